"""What opening a GPU says where it cannot be: no library, no driver, none of that index, a driver too old. A played driver's answers.

Read next: test_cuda_public.py, ../flamepy/backend/cuda/driver.py.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest
from error_text import raises
from test_gpu_report import gpu

from flamepy.errors import DeviceError

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: pip install 'flamepy[cuda-emulator]'")
DRIVER: Any = import_module("flamepy.backend.cuda.driver")


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
