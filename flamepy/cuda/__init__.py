"""CUDA kernels to look at and to try out, without a GPU and without a driver: compile them, run every thread of them, count what they do.

    @numba.cuda.jit
    def double(y, x):
        i = cuda.grid(1)
        if i < x.size:
            y[i] = 2 * x[i]

    print(flamepy.cuda.compile(double, "void(float32[::1], float32[::1])").sass)
    print(flamepy.cuda.emulate(double, 4, 256, y, x))      # y and x are NumPy arrays; what is wrong in the kernel is an EmulationError

flamepy's own kernels go by the names of ops: compile("gelu"). Needs pip install 'flamepy[cuda-emulator]'; nothing is imported before the
first call.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..advice import missing
from ..errors import EmulationError as EmulationError

if TYPE_CHECKING:
    from .emulation import EmulationReport as EmulationReport
    from .emulation import emulate as emulate
    from .kernels import CudaKernel as CudaKernel
    from .kernels import compile as compile

__all__ = ["CudaKernel", "EmulationError", "EmulationReport", "compile", "emulate"]
HOMES = {"CudaKernel": "kernels", "compile": "kernels", "EmulationReport": "emulation", "emulate": "emulation"}  # found when asked for


def __dir__() -> list[str]:
    return list(__all__)


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise missing("cuda", name, __all__)
    found = globals()[name] = getattr(import_module(f"{__name__}.{HOMES[name]}"), name)
    return found
