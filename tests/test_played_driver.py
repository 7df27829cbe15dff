"""The driver of a GPU, its launches in C, pages and graphs, on a played cuda.h (played_driver.py): the numbers are the emulated GPU's."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from importlib import import_module
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from devices import emulated_gpu
from played_driver import played_gpu

import flamepy as fp
import flamepy.nn.functional as F
from flamepy.core import device as seam

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: pip install 'flamepy[cuda-emulator]'")


@pytest.fixture
def gpu() -> Iterator[Any]:
    with patch.dict(seam._devices, {"cuda:7": played_gpu(), "cuda": emulated_gpu(), "cpu": seam.device("cpu")}):
        yield seam.device("cuda:7")


def trained(on: str, captured: bool, packed: bool) -> list[np.ndarray]:
    """Losses, norms and parameters; some steps leave the first weight out."""
    fp.manual_seed(3)
    model = fp.nn.Sequential(fp.nn.Linear(4, 6, device=on), fp.nn.GELU(), fp.nn.Linear(6, 3, device=on))
    if packed:
        model.params.pack()
    optimizer, random, found = fp.AdamW(model, lr=0.1), np.random.default_rng(0), []

    def step(x: Any, y: Any) -> Any:
        grads = (loss := F.cross_entropy(model(x), y)).backward()
        norm = fp.clip_grad_norm(grads, 0.5)
        optimizer.step(grads)
        return loss, norm

    def some(x: Any, y: Any) -> Any:
        grads = (loss := F.cross_entropy(model(x), y)).backward()
        optimizer.step([(p.id, p, grads[p]) for p in model.parameters()[1:]])
        return loss, loss

    steps = [fp.capture(f) if captured else f for f in (step, some)]
    for i in range(10):
        x, y = random.standard_normal((5, 4)).astype("f4"), random.integers(0, 3, 5)
        loss, norm = steps[i % 3 == 2](fp.tensor(x, device=on), fp.tensor(y, device=on))
        found += [loss.numpy(), np.array(float(norm))]
    return found + [p.numpy() for p in model.parameters()]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("captured", [False, True])
def test_training_is_that_of_the_emulated_gpu(captured: bool, packed: bool, gpu: Any) -> None:
    before = gpu.driver.cu.captures
    found, wanted = (trained(on, captured, packed) for on in ("cuda:7", "cuda"))
    assert [a.tobytes() for a in found] == [b.tobytes() for b in wanted]
    gc.collect()
    assert not gpu.driver.cu.forbidden and not gpu.driver.cu.graphs  # they are given back
    assert (gpu.driver.cu.captures > before) == captured


def test_copies_are_in_order(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the ring, a page, and as a huge array: the array may change at once, and a launch comes behind."""
    monkeypatch.setattr(import_module("flamepy.backend.cuda.runtime.driver"), "STAGED", 1 << 19)
    for size in (5, 1 << 17, 1 << 18):
        x = np.full(size, 1.5, "f4")
        y = fp.tensor(x, device=gpu) * 2.0
        x[:] = 7
        assert (y.numpy() == 3).all()


def test_a_thread_may_begin_with_anything(gpu: Any) -> None:
    x, w = (fp.tensor(np.arange(6, dtype="f4").reshape(s), device=gpu) for s in ((2, 3), (3, 2)))
    run, found = fp.capture(lambda x: (x * 2.0).sum()), []
    assert [run(x).item() for _ in range(3)] == [30.0] * 3
    pinned = [gpu.locked(np.ones(9, "f4")) for _ in range(4)]
    sums = [fp.tensor(p, device=gpu) for p in pinned]
    del pinned
    begin = lambda: x @ w, lambda: x, lambda: run(x), lambda: fp.tensor(gpu.locked(np.full(9, 2.0, "f4")), device=gpu)
    for ask in begin:
        thread = threading.Thread(target=lambda ask=ask: found.append(ask().sum().item()))
        thread.start(), thread.join()
    assert found == [91.0, 15.0, 30.0, 18.0] and [s.sum().item() for s in sums] == [9.0] * 4
