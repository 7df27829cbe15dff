"""The emulated GPU as a device: what it lends to others, processes beside it, forks of it, and what it needs installed.

Its memory is the emulator's own: an address of it means nothing to a library that knows a real GPU.
"""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
import threading
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from conftest import LEFT_OUT
from devices import default_device, emulated_gpu
from error_text import raises
from ptx_tools import entry

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: pip install 'flamepy[cuda-emulator]'")

from cuda import pathfinder

import flamepy as fp
from flamepy.backend import base
from flamepy.backend.lending import Lent
from flamepy.core import device as seam


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    device = emulated_gpu()
    monkeypatch.setenv("FLAMEPY_CUDA", "emulator")
    seam.device("cpu")  # opened in the block, it would be forgotten at its end: the next tests would have another one
    with patch.dict(seam._devices, {"cuda": device}), default_device("cuda"):
        yield device


def test_what_is_left_out_there_is_a_test() -> None:
    names = re.findall(r"^def (test_\w+)", "".join(p.read_text() for p in Path(__file__).parent.glob("test_*.py")), flags=re.M)
    assert set(LEFT_OUT) <= set(names) and all(LEFT_OUT.values())


# ---- other libraries -------------------------------------------------------------------------------------------------------------
def test_its_memory_is_not_lent(gpu):
    x = fp.tensor([1.0, 2.0], requires_grad=True)
    own = fp.tensor([3.0, 4.0])
    for t in (x, own):
        assert not hasattr(t, "__cuda_array_interface__")
        for ask in (np.from_dlpack, lambda t: t.__dlpack__(), lambda t: t.__dlpack_device__()):
            with raises(fp.DeviceError, "dlpack: not on this device: an emulated GPU", ".to('cpu')"):
                ask(t)
    with raises(AttributeError, "__cuda_array_interface__: not of this device: an emulated GPU. Use .numpy()."):
        gpu.array_interface(own.buffer, own.shape)
    assert (x * own).sum().backward()[x].tolist() == [3, 4]  # what was refused is not taken for lent
    assert not isinstance(own.buffer, Lent) and np.from_dlpack(own.to("cpu")).tolist() == [3, 4]


def test_there_is_one(gpu):
    with raises(fp.DeviceError, "device: there is one emulated GPU: 'cuda:1'. Use 'cuda'."):
        fp.zeros(2, device="cuda:1")


def test_two_names_of_one_device_are_one(gpu):
    """A captured step asks all devices in use, and may run on one."""
    x = fp.tensor([1.0, 2.0], device="cuda:0")
    assert fp.device("cuda:0") is fp.device("cuda") is gpu and base.opened().count(gpu) == 1
    twice = fp.capture(lambda: x + x)
    assert [twice().tolist() for _ in range(3)] == [[2, 4]] * 3


# ---- other processes -------------------------------------------------------------------------------------------------------------
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_is_told(gpu):
    """Its memory is the parent's alone: what a child does there is an error, not a crash, and does nothing to the parent."""
    x, freed = fp.tensor([1.0, 2.0]), [fp.tensor([5.0])]
    asked = [lambda: fp.tensor([3.0]), x.numpy, lambda: x + 1.0, freed.pop]
    reading, writing = os.pipe()
    if not (child := os.fork()):
        for ask in asked:
            try:
                ask()
                os.write(writing, b"nothing|")
            except BaseException as error:
                os.write(writing, f"{type(error).__name__}: {error}|".encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        *told, freed_text, _ = pipe.read().split("|")
    assert os.waitpid(child, 0)[1] == 0 and freed_text == "nothing"
    refusal = "DeviceError: cuda: the emulated GPU stayed in the process that was forked: there is none here. Use spawn."
    assert told == [refusal] * 3
    assert (x + 1).tolist() == [2, 3]


BESIDE = """
import sys
from pathlib import Path
from flamepy.backend.cuda.runtime import build
build.cache_folder = lambda: Path(sys.argv[1])
from flamepy.backend.formula.bind import on_compile
import numpy as np, flamepy as fp
compiled = []
on_compile(lambda name, seconds: compiled.append(name))
x = fp.tensor(np.linspace(-2, 2, 7), device="cuda", requires_grad=True)
y = (fp.exp(x) * x).sum()
print(len(compiled), (y.backward()[x].numpy()).tobytes().hex())
"""


def test_two_processes_share_a_cold_cache(tmp_path):
    """Both compile, each file is written whole; a third one compiles nothing and computes the same bits."""
    start = lambda: subprocess.Popen(
        [sys.executable, "-c", BESIDE, str(tmp_path)], stdout=subprocess.PIPE, text=True, env={**os.environ, "FLAMEPY_CUDA": "emulator"}
    )
    both = [start(), start()]
    first, second = (p.communicate(timeout=300)[0].split() for p in both)
    files = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert {p.suffix for p in files} == {".ptx", ".emulated"} and all(p.read_bytes() for p in files)
    third = start().communicate(timeout=300)[0].split()
    x = np.linspace(-2, 2, 7)
    np.testing.assert_allclose(np.frombuffer(bytes.fromhex(first[1])), np.exp(x) * (1 + x), rtol=1e-15)
    assert int(first[0]) and int(second[0]) and first[1] == second[1] and third == ["0", first[1]]


def test_the_cache_waits_for_no_disk_and_what_is_torn_is_made_again(tmp_path, monkeypatch):
    """After a power cut a file that was renamed may be empty, cut off, or zeros."""
    build = import_module("flamepy.backend.cuda.runtime.build")
    monkeypatch.setattr(build, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(os, "fsync", lambda handle: pytest.fail("the disk was waited for"))
    made = []
    plain = lambda data: re.sub(rb"Compile time = [\d.]+ ms", b"", data[32:])  # behind the digest; ptxas tells how long it took

    def fill(x):
        x[0] = 1

    def read():
        binary = build.compiled(lambda: made.append(1) or fill, "fill", "-", (np.dtype("float32"),), (9, 0), (32, 1))
        return binary.ptx, binary.cubin()[0]

    first = read()
    files = list(tmp_path.iterdir())
    assert read() == first and made == [1] and {f.suffix for f in files} == {".ptx", ".cubin", ".log"}
    for file in files:
        whole = file.read_bytes()
        for torn in b"", whole[:-1], bytes(len(whole)):
            file.write_bytes(torn)
            assert read() == first and plain(file.read_bytes()) == plain(whole)


def test_what_is_remembered_of_operators_has_a_bound(monkeypatch):
    compat = import_module("flamepy.backend.cuda.runtime.compat")
    monkeypatch.setattr(compat, "known", dict.fromkeys(range(5)))
    monkeypatch.setattr(compat, "MOST", 5)
    monkeypatch.setattr(compat, "resolve", lambda *given: given)
    for n in range(12):
        found = compat.remembered("add", "context", (n,), {})
        assert found is compat.remembered("add", "context", (n,), {}) and len(compat.known) <= 5


def test_two_threads_compile_one_after_the_other():
    """What is put in Numba's place is the process's: where two were inside at once, the first to leave took it from the second."""
    compat, order = import_module("flamepy.backend.cuda.runtime.compat"), []
    before = compat.dispatcher.get_current_device

    def second():
        with compat.target((8, 0)):
            order.append(compat.dispatcher.get_current_device().compute_capability)

    thread = threading.Thread(target=second)
    with compat.target((9, 0)):
        thread.start()
        thread.join(0.1)
        order.append(compat.dispatcher.get_current_device().compute_capability)
    thread.join()
    assert order == [(9, 0), (8, 0)] and compat.dispatcher.get_current_device is before and gc.isenabled()


# ---- what it needs ---------------------------------------------------------------------------------------------------------------
ABSENT = """
import sys
from importlib import import_module
import flamepy as fp
class DynamicLibNotFoundError(RuntimeError): pass
def refuse(*args): raise DynamicLibNotFoundError("no " + sys.argv[1])
if sys.argv[1] == "libcudart":
    import_module("cuda.bindings.runtime").getLocalRuntimeVersion = refuse
elif sys.argv[1] == "libnvvm":
    import_module("cuda.bindings.nvvm").create_program = refuse
    from flamepy.backend.cuda.runtime import build
    build.cache_folder = lambda: __import__("pathlib").Path(sys.argv[2])
else:
    sys.modules[sys.argv[1]] = None
try:
    fp.exp(fp.tensor([1.0], device="cuda"))
except fp.DeviceError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("numba.cuda", "a package is not installed: numba-cuda"),
        ("libcudart", "a library is not installed: no libcudart"),
        ("libnvvm", "a library is not installed: no libnvvm"),
    ],
)
def test_the_extra_is_named_where_something_is_not_installed(tmp_path, what, told):
    done = subprocess.run(
        [sys.executable, "-c", ABSENT, what, str(tmp_path)], capture_output=True, text=True, check=True,
        env={**os.environ, "FLAMEPY_CUDA": "emulator"},
    )  # fmt: skip
    assert done.stdout == f"cuda: {told}. Use pip install 'flamepy[cuda-emulator]'.\n"


@pytest.mark.parametrize("name", ["cudart", "nvrtc", "nvJitLink", "nvvm"])
def test_the_extra_brings_every_library(name):
    """A CUDA toolkit of the machine's own must not stand in for a wheel that the extra forgot."""
    loaded = pathfinder.load_nvidia_dynamic_lib(name)
    assert Path(loaded.abs_path).is_relative_to(sys.prefix), loaded


# ---- launches --------------------------------------------------------------------------------------------------------------------
SPREAD = """mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [flag]; ld.global.u32 %r2, [%rd1]; ld.param.u64 %rd2, [y];
mul.lo.u32 %r3, %r1, %r2; cvt.u64.u32 %rd3, %r3; add.u64 %rd4, %rd2, %rd3; st.global.u32 [%rd4], %r1;"""


def test_races_are_looked_for_in_the_first_launch_and_in_each_32nd_like_it() -> None:
    """All else is checked in each: what a launch that is not watched reads and writes is right, and out of bounds is told."""
    from flamepy.backend.cuda.runtime.build import ENTRY, Binary
    from flamepy.backend.cuda.runtime.emulated import Driver

    driver, out = Driver(), np.zeros(32, "i4")
    loaded = driver.load(Binary("spread", entry(ENTRY, "u64 y, u64 flag, f32 any", SPREAD), (9, 0), ""))
    y, other, flag = (driver.allocate(size) for size in (128, 128, 4))
    launch = driver.starter(loaded, (1, 1, 1), 32)

    def run(step: int, to: int, number: float) -> None:  # step: bytes from one thread's word to the next's
        driver.upload(flag, np.array([step], "i4"))
        launch(to, flag, np.float32(number))

    with raises(fp.EmulationError, "spread: race: thread 1 of block 0 writes"):
        run(0, y, 0)
    run(4, y, 0)  # the first that was right; other buffers and other floats are like it
    for k in range(30):
        run(0, other if k % 2 else y, k)
    run(4, y, 0)
    race = "spread: race: thread 1 of block 0 writes"
    with raises(fp.EmulationError, race):
        run(0, y, 0)
    for step, fault in (
        (4, ""),
        (8, "write out of bounds"),
        (4, ""),
        (2, "misaligned"),
        (0, race),
        (4, ""),
    ):  # after a fault all is watched
        if fault:
            with raises(fp.EmulationError, fault):
                run(step, y, 0)
        else:
            run(step, y, 0)
    driver.download(out, y)
    np.testing.assert_array_equal(out, np.arange(32))
