"""The tasks of `flamepy doctor --gpu` besides the cases: what is installed, what a launch costs, how fast memory and products are, whether
a GPT learns as on the CPU.

Times are the least of some repeats, each between two points where the GPU has nothing to do.
"""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from ... import creation
from ...autograd import no_grad
from ...backend.base import device
from ...backend.precision import set_float32_matmul_precision
from ...nn import functional as F
from ...parameter import Parameter
from ...tensors import tensor
from ...train.config import GptConfig, resolve
from ...train.display import PlainDisplay
from ...train.gpt_job import GptJob
from ...train.loop import Loop
from ...train.run_folder import RunFolder
from ...train.signals import StopRequest
from .crew import brief

PACKAGES = (
    "numpy", "numba", "llvmlite", "numba-cuda", "cuda-core", "cuda-bindings", "cuda-pathfinder", "nvidia-nvvm", "nvidia-nvjitlink",
    "nvidia-cuda-nvrtc", "nvidia-cublas", "nvidia-cudnn-cu13", "torch",
)  # fmt: skip
STEPS, BRIEF_STEPS = 50, 3
BRIEF = {"layers": 1, "heads": 2, "width": 32, "context": 16, "batch": 4}  # a GPT for the emulator
BYTES = 1 << 30  # of a buffer whose copying is timed
Found = dict[str, Any]


def emulated() -> bool:
    return os.environ.get("FLAMEPY_CUDA") == "emulator"


def gpu() -> Any:
    return device("cuda")


def least(run: Callable[[], Any], times: int, repeats: int = 5) -> float:
    """Seconds of one call, of so many in a row."""
    run()
    best = float("inf")
    for _ in range(repeats):
        gpu().synchronize()
        started = time.perf_counter()
        for _ in range(times):
            run()
        gpu().synchronize()
        best = min(best, (time.perf_counter() - started) / times)
    return best


# ---- what is there ----------------------------------------------------------------------------------------------------------------
def packages() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def facts() -> Found:
    """The device, and one kernel all the way: compiled anew, linked, loaded, launched."""
    from ...backend.cuda.loops import maps, words
    from ...backend.cuda.runtime import build
    from ...backend.formula.bind import typed

    found: Found = {"packages": packages()}
    here = gpu()
    found["findings"] = [list(row) for row in here.findings()]
    single, function = np.dtype("float32"), maps.map_runs
    make = lambda: typed(function, single, words.dialect(function.threads, function.lanes, function.wide), True, maps.same)
    marks = [time.perf_counter()]
    mark = f"{time.time_ns()}"  # never compiled before
    binary = build.compiled(make, "doctor", mark, (single, single), here.driver.cc, (function.threads, function.together))
    marks.append(time.perf_counter())
    _, log = binary.cubin()
    marks.append(time.perf_counter())
    here.driver.load(binary)
    marks.append(time.perf_counter())
    for kind in ("ptx", "cubin", "log"):
        (build.cache_folder() / f"{binary.digest}.{kind}").unlink(missing_ok=True)
    found |= {f"{name}_ms": round(1e3 * (b - a), 2) for name, a, b in zip(("compile", "link", "load"), marks, marks[1:], strict=False)}
    x = np.linspace(-2, 2, 1001, dtype=np.float32)
    got = (tensor(x, device="cuda") * 2.0 + 1.0).numpy()
    wrong = float(np.abs(got - (x * 2 + 1)).max())
    if wrong > 1e-6:
        raise ArithmeticError(f"x * 2 + 1 is off by {wrong:.1e}")
    free, total = memory_of(here)
    return found | {"ptxas": " ".join(log.split())[-200:], "free_bytes": free, "total_bytes": total, "cache": str(here.cache_folder())}


def memory_of(here: Any) -> tuple[int, int]:
    """Bytes that are free, and all; 0 where there is no GPU."""
    if emulated():
        return 0, 0
    from ...backend.cuda.runtime.driver import checked

    free, total = checked(here.driver.cu.cuMemGetInfo(), "memory")
    return int(free), int(total)


# ---- costs and ceilings -----------------------------------------------------------------------------------------------------------
def costs() -> Found:
    """Microseconds of an op, of a launch, of a kernel in a graph, of two ops and their number, of a number that is there."""
    here, x = gpu(), creation.ones((1024,), device="cuda")
    with no_grad():
        op = least(lambda: x + 1.0, 2000)
        item = least(lambda: float(x[0] + 1.0), 100)
        number = least(x[0].item, 100)
    tracked = creation.ones((1024,), device="cuda").requires_grad_()
    recorded = least(lambda: tracked * 2.0, 1000)
    y = here.empty(1024, np.dtype("float32"))

    def many() -> None:
        for _ in range(200):
            here.launch("fill", None, (y,), (), (np.float32(1),), y.dtype)

    many()
    eager = least(many, 10) / 200
    graph = least(here.driver.capture(many), 10) / 200
    found = {"op": op, "recorded_op": recorded, "item": item, "number": number, "launch": eager, "graph": graph}
    return {f"{name}_us": 1e6 * seconds for name, seconds in found.items()}


def ceilings() -> Found:
    """GB/s of a copy and of kernels, TFLOP/s of products."""
    with no_grad():
        return bandwidths() | {
            "bf16_tflops": tried(lambda: product("bfloat16", "highest", 8192)),
            "tf32_tflops": tried(lambda: product("float32", "high", 4096)),
            "float32_tflops": tried(lambda: product("float32", "highest", 4096)),
        }


def bandwidths() -> Found:
    here = gpu()
    nbytes = min(BYTES, memory_of(here)[0] // 16 // 4096 * 4096)
    x = creation.randn((nbytes // 4096, 1024), device="cuda")
    y = here.empty(x.size, x.dtype)
    both = 2 * nbytes
    works: dict[str, tuple[Callable[[], Any], int]] = {
        "copy": (lambda: here.driver.copy(y.data, x.buffer.data, nbytes), both),
        "add": (lambda: x + x, both),
        "gelu": (lambda: F.gelu(x, approximate="tanh"), both),
        "softmax": (lambda: F.softmax(x, -1), both),
        "layer_norm": (lambda: F.layer_norm(x, (1024,)), both),
        "sum": (x.sum, nbytes),
    }
    rates = {f"{name}_gbs": tried(lambda run=run, moved=moved: moved / least(run, 5) / 1e9) for name, (run, moved) in works.items()}  # type: ignore[misc]
    return {"bytes": nbytes, **rates}


def product(dtype: str, level: str, n: int) -> float:
    set_float32_matmul_precision(level)
    a, b = (creation.randn((n, n), device="cuda").to(dtype) for _ in range(2))
    return 2 * n**3 / least(lambda: a @ b, 10) / 1e12


def tried(measure: Callable[[], float]) -> float | str:
    """A figure, or why there is none."""
    try:
        return measure()
    except Exception as error:
        return brief(error)


# ---- a GPT ------------------------------------------------------------------------------------------------------------------------
def losses(on: str, captured: bool) -> Found:
    """Losses and norms of the GPT that `flamepy train` trains, step by step."""
    steps, smaller = (BRIEF_STEPS, BRIEF) if emulated() else (STEPS, {})
    config = resolve(GptConfig, {"steps": steps, "device": on, "capture": captured, **smaller})
    job: Any = GptJob(config, "stdlib")
    loop = Loop(job, RunFolder.nowhere(), PlainDisplay(io.StringIO(), steps, "steps", 1), StopRequest())
    rows, seconds, held = [], [], []
    for _ in range(steps):
        started = time.perf_counter()
        rows.append(loop.one_step())
        seconds.append(time.perf_counter() - started)
        held.append(job.device.memory()["current"])
    late = sorted(seconds[steps // 2 :])
    return {
        "losses": [row.loss for row in rows], "norms": [float(row.grad_norm) for row in rows], "step_ms": 1e3 * late[len(late) // 2],
        "memory": job.device.memory(), "grown_bytes": held[-1] - held[min(3, steps - 1)], "launched": getattr(job.device, "launched", 0),
        "settings": f"{config.layers} layers, width {config.width}, context {config.context}, batch {config.batch}",
    }  # fmt: skip


def wrong_ids() -> Found:
    """An id that does not exist must be told, no parameter be moved until then, and the device must live on."""
    from ...core.errors import IndexOutOfRange

    table, weight = creation.ones((5, 8), device="cuda"), Parameter(creation.ones((8,), device="cuda"))
    try:
        found = F.embedding(tensor(np.array([1, 7]), device="cuda"), table)
        weight.apply_update(creation.ones((8,), device="cuda"))
        found.numpy()
    except IndexOutOfRange:
        told = True
    else:
        told = False
    still = bool((weight.numpy() == 1.0).all())
    alive = bool(np.array_equal((table + 1.0).numpy(), np.full((5, 8), 2.0)))
    if not (told and still and alive):
        raise ArithmeticError(f"an id out of range: told {told}, no parameter moved {still}, usable afterwards {alive}")
    return {}


TASKS: dict[str, Callable[[], Found]] = {
    "facts": facts,
    "costs": costs,
    "ceilings": ceilings,
    "wrong ids": wrong_ids,
    "losses cpu": lambda: losses("cpu", True),
    "losses cuda": lambda: losses("cuda", False),
    "losses replay": lambda: losses("cuda", True),
}
