"""Page-locked memory: batches that a GPU copies while the host goes on, and numbers that come back, many for one wait.

The emulated GPU copies from such memory as late as a real one might: whoever lends it to others too early is found out.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from devices import cuda_device
from error_text import raises

import flamepy as fp
import flamepy.nn.functional as F
from flamepy.core import device as seam


@pytest.fixture
def gpu() -> Iterator[Any]:
    with cuda_device() as device:
        device.synchronize()
        yield device
        device.late.waiting.clear()


def address(array: np.ndarray) -> int:
    return array.ctypes.data


@pytest.mark.parametrize("data", [np.arange(6, dtype="f4"), [1.5, 2], [[1], [2]], 3.0, np.ones((0, 3)), np.arange(12)[::-2], True])
@pytest.mark.parametrize("where", ["cuda", "cpu"])
def test_is_what_a_tensor_of_the_data_holds(data, where, gpu, monkeypatch):
    if where == "cpu":
        monkeypatch.delitem(seam._devices, "cuda")
        monkeypatch.setenv("FLAMEPY_CUDA", "none there")
    found, wanted = fp.pinned(data), fp.tensor(data, device="plain")
    assert type(found) is np.ndarray and found.dtype == wanted.dtype and not found.flags.writeable and not np.shares_memory(found, data)
    np.testing.assert_array_equal(found, wanted.numpy())
    again = fp.tensor(found, device=where)
    assert again.shape == wanted.shape and again.dtype == wanted.dtype and again.tolist() == wanted.tolist()


def test_types_and_refusals(gpu):
    assert fp.pinned([1, 2], dtype="bfloat16").dtype == fp.bfloat16
    for dtype in ("bfloat16", "float16", "int8", "bool"):
        assert fp.tensor(fp.pinned([1, 0], dtype), device="cuda").to("float32").tolist() == [1, 0]
    with raises(fp.DTypeError, "pinned: not supported: <U1", "Use one of"):
        fp.pinned(np.array(["a"]))
    with pytest.raises(ValueError, match="read-only"):
        fp.pinned([1.0])[0] = 2


def test_nothing_is_overwritten_while_a_copy_is_under_way(gpu):
    data = np.arange(6, dtype="f4")
    batch = fp.pinned(data)
    data[:] = -1
    row = fp.tensor(fp.pinned(np.ones((4, 2)))[1:3, 0], device="cuda")  # a part that is no whole piece is copied first
    where, x = address(batch), fp.tensor(batch, device="cuda")
    assert not gpu.driver.watches or gpu.driver.begun  # not copied yet
    del batch
    other = fp.pinned(np.full(6, 7, "f4"))
    assert address(other) != where
    assert x.tolist() == [0, 1, 2, 3, 4, 5] and row.tolist() == [1, 1]
    del other
    assert address(fp.pinned(np.full(6, 8, "f4"))) == where  # lent again: the copy has ended


def test_a_view_keeps_the_memory(gpu):
    row = fp.pinned(np.arange(8, dtype="f4").reshape(2, 4))[1]
    others = [fp.pinned(np.zeros((2, 4), "f4")) for _ in range(4)]
    assert row.tolist() == [4, 5, 6, 7] and not any([np.shares_memory(row, other) for other in others])


def test_a_host_far_ahead_waits_instead_of_locking_more(gpu):
    places, sums = set(), []
    for i in range(20):
        batch = fp.pinned(np.full(5000, i, "f4"))
        places.add(address(batch))
        sums.append(fp.tensor(batch, device="cuda"))
    assert len(places) <= 5
    assert [x[-1].item() for x in sums] == list(range(20))


def test_threads_that_make_batches(gpu):
    made: list[Any] = [None] * 4

    def work(n: int) -> None:
        for _ in range(50):
            made[n] = fp.pinned(np.full((3, 50), n))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    [t.start() for t in threads], [t.join() for t in threads]
    for n, batch in enumerate(made):
        assert (batch == n).all() and fp.tensor(batch, device="cuda").sum().item() == 150 * n


def test_kept_memory_is_given_back(gpu):
    fp.tensor(fp.pinned(np.ones(3)), device="cuda")
    assert not gpu.driver.watches or gpu.driver.host
    gpu.trim()
    assert not any(gpu.driver.pages.kept.values())


def test_checks_that_wait_cost_no_wait_of_their_own(gpu, monkeypatch):
    """One copy of the fault for all that only raise, and one wait."""
    ids = fp.tensor([0, 1], device="cuda")
    weight = fp.ones((3, 4), device="cuda")
    found = [F.embedding(ids, weight).sum() for _ in range(5)]
    assert len(gpu.late.waiting) >= 5
    copies, waits = [], []
    reading, wait = gpu.driver.reading, gpu.driver.synchronize
    monkeypatch.setattr(gpu.driver, "reading", lambda *given: copies.append(given) or reading(*given))
    monkeypatch.setattr(gpu.driver, "synchronize", lambda: waits.append(1) or wait())
    assert found[0].item() == 8
    assert (len(copies), len(waits), gpu.late.waiting) == (2, 1, [])
    with pytest.raises(fp.IndexOutOfRange):
        F.embedding(fp.tensor([0, 3], device="cuda"), weight).sum().item()
    assert found[1].item() == 8


# ---- the driver on a GPU, whose calls are played ----------------------------------------------------------------------------------
class Code(int):
    name = "CUDA_SUCCESS"


class NotReady(int):
    name = "CUDA_ERROR_NOT_READY"


class Played:
    """What the driver calls; memory is the host's, and an event has passed when `done` says so."""

    CU_MEMHOSTALLOC_PORTABLE = 1
    CUevent_flags = SimpleNamespace(CU_EVENT_DISABLE_TIMING=2)

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.memory: list[np.ndarray] = []
        self.done = False

    def cuMemHostAlloc(self, nbytes: int, flags: int) -> tuple[Any, ...]:
        self.memory.append(np.zeros(nbytes, np.uint8))
        return Code(0), address(self.memory[-1])

    def cuEventQuery(self, event: Any) -> tuple[Any, ...]:
        return (Code(0) if self.done else NotReady(600),)

    def __getattr__(self, name: str) -> Any:
        def call(*given: Any) -> tuple[Any, ...]:
            self.calls.append(name)
            if name.startswith("cuMemcpy"):
                to, start, nbytes = given[:3]
                import_module("ctypes").memmove(to, start, nbytes)
            return Code(0), 77

        return call


@pytest.fixture
def driver() -> Any:
    module: Any = pytest.importorskip("flamepy.backend.cuda.runtime.driver", reason="numba-cuda is not installed")
    made: Any = object.__new__(module.Driver)
    made.cu, made.handle, made.enter = Played(), 5, lambda: None
    made.lock = threading.RLock()
    made.rings()
    return made


def test_numbers_come_through_page_locked_memory(driver):
    device = np.arange(2000, dtype="f4")
    reads = [driver.reading(address(device) + 4 * i, 3, device.dtype) for i in range(50)]
    assert driver.cu.calls == ["cuMemcpyDtoHAsync"] * 50
    assert [read().tolist() for read in reads] == [[i, i + 1, i + 2] for i in range(50)]
    large = driver.reading(address(device), 2000, device.dtype)
    assert "cuMemcpyDtoH" not in driver.cu.calls and large().tolist() == device.tolist()
    for i in range(700):  # round and round
        assert driver.reading(address(device) + 4 * i, 900, device.dtype)()[0] == i


def test_uploads_wait_for_nothing_unless_they_are_huge(driver, monkeypatch):
    device = np.zeros(1 << 17, "f4")
    for size in (3, 1 << 17):
        array = np.full(size, size, "f4")
        driver.upload(address(device), array)
        assert device[size - 1] == size
    assert driver.cu.calls == ["cuMemcpyHtoDAsync"] * 2 + ["cuEventCreate", "cuEventRecord"]
    driver.cu.calls.clear()
    batch = driver.pages.copy(np.full(8, 3, "f4"))
    driver.upload(address(device), batch[2:])
    assert driver.cu.calls == ["cuMemcpyHtoDAsync", "cuEventCreate", "cuEventRecord"] and device[5] == 3
    monkeypatch.setattr(import_module(type(driver).__module__), "STAGED", 1 << 18)
    driver.upload(address(device), np.ones(1 << 17, "f4"))
    assert driver.cu.calls[3:] == ["cuMemcpyHtoDAsync", "cuStreamSynchronize"]  # on the stream: launches come behind it


def test_a_page_is_lent_again_once_its_event_has_passed(driver):
    device = np.zeros(8, "f4")
    batch = driver.pages.copy(np.ones(8, "f4"))
    where = address(batch)
    driver.upload(address(device), batch)
    del batch
    second = driver.pages.copy(np.ones(8, "f4"))
    assert address(second) != where
    driver.cu.done = True
    assert address(driver.pages.copy(np.ones(8, "f4"))) == where
    del second
    driver.pages.release()
    assert driver.cu.calls.count("cuMemFreeHost") == 2
