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

from ..advice import missing_in as _missing_in
from ..errors import EmulationError as EmulationError
from .emulation import EmulationReport as EmulationReport
from .emulation import emulate as emulate
from .kernels import CudaKernel as CudaKernel
from .kernels import compile as compile

__all__ = ["CudaKernel", "EmulationError", "EmulationReport", "compile", "emulate"]


def __dir__() -> list[str]:
    return list(__all__)


__getattr__ = _missing_in("cuda", __all__)
