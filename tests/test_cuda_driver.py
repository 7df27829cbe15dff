"""What opening a GPU says where it cannot be: no library, no driver, none of that index, a driver too old. A played driver's answers."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
import threading
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from error_text import raises
from test_gpu_report import gpu

from flamepy.core.errors import DeviceError

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: pip install 'flamepy[cuda-emulator]'")
DRIVER: Any = import_module("flamepy.backend.cuda.runtime.driver")


class Code(int):
    name = "CUDA_ERROR_NO_DEVICE"


def played(monkeypatch: pytest.MonkeyPatch, **answers: Any) -> None:
    """cuda.bindings with a driver that answers so: a value, or an exception."""
    found: Any = ModuleType("cuda.bindings.driver")
    for name, answer in {"cuInit": (Code(0),), "cuDeviceGetCount": (Code(0), 1), **answers}.items():

        def call(*_: Any, answer: Any = answer) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer

        setattr(found, name, call)
    for name in ("cuda", "cuda.bindings"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["cuda.bindings"].driver = found  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", found)


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with raises(DeviceError, "not installed: cuda-bindings", "flamepy[cuda]"):
        DRIVER.open(0)


GIVES = """.version 8.0
.target sm_80
.address_size 64
.extern .shared .align 128 .b8 {array}[];
.visible .entry kernel(.param .u64 x)
{{
  ret;
}}
"""


def binary(nbytes: int, cc: tuple[int, ...] = (8, 0)) -> Any:
    """A kernel that needs so many bytes of shared memory from its launch."""
    build: Any = import_module("flamepy.backend.cuda.runtime.build")
    return build.Binary("much", GIVES.format(array=f"{build.GIVEN}{nbytes}"), cc, f"digest-of-much-{nbytes}")


def test_what_a_launch_gives_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver is told before the first launch, and each launch says so."""
    asked: list[Any] = []
    core: Any = ModuleType("cuda.core")
    kernel = SimpleNamespace(handle="handle")
    core.ObjectCode = SimpleNamespace(from_cubin=lambda code: SimpleNamespace(get_kernel=lambda name: kernel))
    monkeypatch.setitem(sys.modules, "cuda", ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.core", core)
    driver: Any = object.__new__(DRIVER.Driver)
    attributes = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8)
    driver.cu = SimpleNamespace(CUfunction_attribute=attributes, cuKernelSetAttribute=lambda *given: asked.append(given) or (Code(0),))
    driver.gpu, driver.stream, driver.enter = SimpleNamespace(device_id=3), "stream", lambda: None
    driver.config = lambda **sizes: sizes
    driver.start = lambda *given: asked.append(given)
    much = binary(70_000)
    monkeypatch.setattr(type(much), "cubin", lambda self: (b"", ""))
    monkeypatch.setattr(DRIVER.fire, "starter", lambda *given: given[-1])
    driver.launching = kernel.handle = driver.handle = 4
    driver.starter(driver.load(much), (2, 1, 1), 128)("value")
    sizes = {"grid": (2, 1, 1), "block": 128, "shmem_size": 70_000}
    assert asked == [(8, 70_000, 4, 3), ("stream", sizes, kernel, "value")]


Launch = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3)
Count = type("Count", (int,), {})  # as a tensor's size is
GIVEN = (1 << 63, 5, Count(51), np.float32(1.5), np.float64(-2.5), np.int32(-7), np.int64(-8), np.uint64(9), np.bool_(True), 0)
READ_AS = "u8", "u8", "u8", "f4", "f8", "i4", "i8", "u8", "?", "u8"


def test_a_launch_is_a_function_of_c() -> None:
    """A played cuLaunchKernel gets each value as a kernel reads it; where it says an error, the slow function gets the arguments."""
    answers, got, slow = [0], [], []

    def call(*given: Any) -> int:
        pointers = (ctypes.c_void_p * len(READ_AS)).from_address(given[9])
        values = [np.frombuffer(ctypes.string_at(p, np.dtype(t).itemsize), t)[0] for p, t in zip(pointers, READ_AS, strict=True)]
        got.append((given[:9], given[10], values))
        return answers[-1]

    def enqueue(*values: Any) -> str:
        slow.append(values)
        if answers[-1] == 2:
            raise DeviceError("cuda: as told.")
        return "slow"

    played = Launch(call)
    launch = DRIVER.fire.starter(ctypes.cast(played, ctypes.c_void_p).value, 77, (3, 2, 1), 256, 4096, 99, enqueue)
    assert launch(*GIVEN) is None and not slow
    assert got == [((77, 3, 2, 1, 256, 1, 1, 4096, 99), None, list(GIVEN))]
    answers.append(201)  # a thread that has not been told of the GPU
    assert launch(*GIVEN) == "slow" and slow == [GIVEN]
    answers.append(2)
    with pytest.raises(DeviceError, match="as told"):
        launch(*GIVEN)
    answers.append(0)
    assert DRIVER.fire.starter(0, 77, (1, 1, 1), 32, 0, 99, enqueue)(*range(193)) == "slow"  # too many for it
    before = sys.getrefcount(GIVEN[3]), sys.getrefcount(None), sys.getrefcount(enqueue)
    for _ in range(1000):
        launch(*GIVEN)
    got.clear()
    after = sys.getrefcount(GIVEN[3]), sys.getrefcount(None), sys.getrefcount(enqueue)
    assert all([abs(a - b) < 100 for a, b in zip(before, after, strict=True)])
    del launch
    assert sys.getrefcount(enqueue) < before[2]


def test_a_launch_lets_other_threads_run() -> None:
    inside, after = threading.Event(), threading.Event()
    played = Launch(lambda *given: 0 if inside.set() or after.wait(20) else 1)
    launch = DRIVER.fire.starter(ctypes.cast(played, ctypes.c_void_p).value, 1, (1, 1, 1), 32, 0, 0, lambda *values: "slow")
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(launch(1, 2)))
    thread.start()
    assert inside.wait(20)
    after.set()
    thread.join()
    assert found == [None]


def test_a_thread_speaks_to_the_gpu_it_asked_last_and_is_told_of_errors() -> None:
    """Two GPUs take turns in a thread; another thread begins anew; what cuda-core raises, and a forked child, have an error of ours."""
    said: list[int] = []
    drivers: list[Any] = [object.__new__(DRIVER.Driver) for _ in range(2)]
    for n, driver in enumerate(drivers):
        driver.gpu = SimpleNamespace(set_current=lambda n=n: said.append(n))
    for n in (0, 0, 1, 1, 0):
        drivers[n].enter()
    thread = threading.Thread(target=drivers[0].enter)
    thread.start(), thread.join()
    assert said == [0, 1, 0, 0]

    def fails() -> None:
        raise RuntimeError("CUDA_ERROR_NOT_INITIALIZED")

    drivers[1].gpu = SimpleNamespace(set_current=fails)
    with raises(DeviceError, "CUDA_ERROR_NOT_INITIALIZED", "Forked processes have none: spawn"):
        drivers[1].enter()
    DRIVER.THREAD.__dict__.clear()


def test_a_graph_is_given_back_and_an_error_while_it_is_captured_is_told() -> None:
    calls: list[str] = []

    class Cu:
        CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL=1)

        def __getattr__(self, name: str) -> Any:
            return lambda *given: calls.append(name) or (Code(0), 7)

    driver: Any = object.__new__(DRIVER.Driver)
    driver.cu, driver.handle, driver.enter, driver.lock = Cu(), 4, lambda: None, threading.RLock()
    run = driver.capture(lambda: calls.append("enqueued"))
    assert calls == ["cuStreamBeginCapture", "enqueued", "cuStreamEndCapture", "cuGraphInstantiate", "cuGraphDestroy"]
    run()
    del run
    assert calls[5:] == ["cuGraphLaunch", "cuGraphExecDestroy"]

    def fails() -> None:
        assert driver.capturing
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        driver.capture(fails)
    assert calls[7:] == ["cuStreamBeginCapture", "cuStreamEndCapture"] and not driver.capturing
    calls.clear()
    other = threading.Thread(target=driver.synchronize)  # it would spoil the graph
    driver.capture(lambda: other.start() or other.join(0.1))
    other.join()
    assert calls.index("cuStreamSynchronize") > calls.index("cuStreamEndCapture")


def test_the_emulated_gpu_has_as_much_shared_memory_as_a_real_one() -> None:
    emulated: Any = import_module("flamepy.backend.cuda.runtime.emulated")
    for cc, most in ((8, 0), 163 << 10), ((8, 9), 99 << 10), ((9, 0), 227 << 10), ((10, 0), 227 << 10):
        driver = emulated.Driver()
        driver.cc = cc
        assert driver.load(binary(most, cc))[1] == most
        with raises(DeviceError, "too much shared memory", f"{most + 1:,} given", f"{most:,} for a block"):
            driver.load(binary(most + 1, cc))


def test_without_a_driver_or_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    played(monkeypatch, cuInit=RuntimeError("Failed to dlopen libcuda.so.1"))
    with raises(DeviceError, "no NVIDIA driver", "libcuda.so.1", "FLAMEPY_CUDA=emulator"):
        DRIVER.open(0)
    played(monkeypatch, cuInit=(Code(100),))
    with raises(DeviceError, "starting the driver failed", "CUDA_ERROR_NO_DEVICE"):
        DRIVER.open(0)
    played(monkeypatch, cuDeviceGetCount=(Code(0), 2))
    with raises(DeviceError, "no such GPU: 'cuda:2'", "there are 2"):
        DRIVER.open(2)


def test_a_driver_older_than_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    played(monkeypatch, cuDriverGetVersion=(Code(0), 12090))
    monkeypatch.setattr(DRIVER.build, "installed", {"nvidia-nvjitlink": "13.0.88"}.__getitem__)
    with raises(DeviceError, "driver is too old", "CUDA 12", "CUDA 13", "Update the driver"):
        DRIVER.open(0)
    for version in (13, 14):
        DRIVER.check_version(version, "13.0.88")
    DRIVER.check_version(12, "-")  # a toolkit's own: nobody knows


def test_a_gpu_older_than_what_kernels_are_made_of(monkeypatch: pytest.MonkeyPatch) -> None:
    played(monkeypatch, cuDriverGetVersion=(Code(0), 13000))
    for cc in (7, 5), (8, 0), (12, 0):
        monkeypatch.setattr(DRIVER, "Driver", lambda index, cc=cc: SimpleNamespace(name="T4", cc=cc))
        if cc < (8, 0):
            with raises(DeviceError, "the GPU is too old: T4", "(7, 5)", "Use 'cpu'"):
                DRIVER.open(0)
        else:
            assert DRIVER.open(0).cc == cc


# ---- with a GPU -------------------------------------------------------------------------------------------------------------------
STEPS = """
import flamepy as fp
model = fp.nn.Sequential(fp.nn.Linear(17, 33, device="cuda"), fp.nn.GELU(), fp.nn.LayerNorm(33, device="cuda"),
                         fp.nn.Linear(33, 5, device="cuda"))
optimizer = fp.AdamW(model, lr=1e-3)
def step(x, y):
    grads = (loss := fp.cross_entropy(model(x), y)).backward()
    fp.clip_grad_norm(grads, 1.0)
    optimizer.step(grads)
    return loss
for run in (step, fp.capture(step)):
    for _ in range(4):
        run(fp.ones((7, 17), device="cuda"), fp.zeros((7,), dtype="int64", device="cuda")).item()
"""


@pytest.mark.parametrize("tool", [pytest.param(name, marks=gpu) for name in ("memcheck", "racecheck", "initcheck", "synccheck")])
def test_compute_sanitizer_finds_nothing(tool: str) -> None:
    program = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    if program is None:
        pytest.skip("compute-sanitizer is not installed: it comes with NVIDIA's CUDA toolkit")
    command = [program, "--tool", tool, "--error-exitcode", "9", sys.executable, "-c", STEPS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    clean = "RACECHECK SUMMARY: 0 hazards" if tool == "racecheck" else "ERROR SUMMARY: 0 errors"
    assert done.returncode == 0 and clean in done.stdout, done.stdout
