"""What kernels that only move numbers read and write on the emulated GPU: sectors of 32 bytes, over the least that could be.

The least is counted twice: access by access (sectors that the bytes of a warp would fill), and over a launch, each byte once. ONCE says
what does not reach the second, and why.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flamepy as fp
import flamepy.nn.functional as F

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: pip install 'flamepy[cuda-emulator]'")

from flamepy.cuda.examples import prepared
from flamepy.cuda.kernels import backend

MOST = 1.05
FEW = 300  # sectors: what smaller launches move is not looked at
# Kernel: the most that it may move over each byte once, and why.
ONCE = {
    "layer_norm_row": (1.35, "each block reads the weights, which lie in the second cache then"),
    "rms_norm_row": (1.2, "likewise"),
    "norm_dx_row": (1.35, "likewise, where few rows are shared out among many blocks"),
    "softmax_row far": (1.51, "what does not fit near is read twice"),
    "softmax_dx_row far": (1.61, "likewise: g and y"),
    "cross_entropy_row far": (1.51, "likewise, in float32 where the gradient is made with the loss"),
}  # fmt: skip


@pytest.fixture(scope="module")
def counting() -> tuple[Any, list[tuple[str, Any]]]:
    """(an emulated GPU, what each of its launches counts: (kernel, counts))."""
    counted: list[tuple[str, Any]] = []

    class Counting(backend("runtime.emulated").Driver):  # type: ignore[misc]
        cc = (9, 0)

        def load(self, binary: Any) -> Any:
            kernel, given = super().load(binary)
            kernel.shown = binary.name
            return kernel, given

        def run(self, loaded: tuple[Any, int], grid: tuple[int, ...], threads: int, values: Any) -> None:
            kernel, given = loaded
            counted.append((kernel.shown, self.machine.launch(kernel, grid, threads, values, given, count=True)))

    device = backend("device").CudaDevice(Counting(), 0)
    device.name = "cuda (emulated)"
    return device, counted


def allowed(name: str) -> float:
    """The most that a kernel may move over each byte once."""
    for words, (most, _) in ONCE.items():
        body, *far = words.split()
        if body in name and ("far_" in name) == bool(far):
            return most
    return MOST


def check(counting: tuple[Any, list[tuple[str, Any]]], run: Callable[[], Any]) -> None:
    device, counted = counting
    counted.clear()
    run()
    device.synchronize()
    looked = [(name, c) for name, c in counted if c.load_sectors + c.store_sectors >= FEW]
    assert looked
    for name, c in looked:
        moved = c.load_sectors + c.store_sectors
        assert moved <= MOST * (c.least_load_sectors + c.least_store_sectors), (name, c)
        assert 32 * moved <= allowed(name) * (c.distinct_read + c.distinct_written), (name, c)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["add", "gelu", "adamw", "clip_grad_norm"])
def test_elements(counting: Any, name: str, dtype: str) -> None:
    check(counting, prepared(name, 1 << 16, dtype, counting[0]))


ROWS = {
    "softmax": lambda x, ids, w: F.softmax(x, -1),
    "log_softmax": lambda x, ids, w: F.log_softmax(x, -1),
    "layer_norm": lambda x, ids, w: F.layer_norm(x, w.shape, w, w),
    "rms_norm": lambda x, ids, w: F.rms_norm(x, w.shape, w),
    "cross_entropy": lambda x, ids, w: F.cross_entropy(x, ids),
}  # fmt: skip
SIZES = [(name, rows, cols, dtype) for name in ROWS for rows, cols, dtype in ((512, 256, "float32"), (500, 1024, "bfloat16"))]
SIZES += [("softmax", 4, 50257, "bfloat16"), ("log_softmax", 64, 1001, "float32"), ("layer_norm", 800, 250, "float32")]
SIZES += [("cross_entropy", 4, cols, dtype) for cols in (50257, 50304) for dtype in ("bfloat16", "float16", "float32")]
SIZES += [("cross_entropy", 256, 1001, "bfloat16")]


@pytest.mark.parametrize(("name", "rows", "cols", "dtype"), SIZES, ids=str)
def test_rows(counting: Any, name: str, rows: int, cols: int, dtype: str) -> None:
    device, rng = counting[0], np.random.default_rng(0)
    x = fp.tensor(rng.standard_normal((rows, cols), np.float32), device=device).to(dtype).requires_grad_(True)
    w = fp.tensor(np.ones(cols, np.float32), device=device).to(dtype).requires_grad_(True)
    ids = fp.tensor(np.arange(rows) % cols, device=device)
    made: list[Any] = []
    check(counting, lambda: made.append(ROWS[name](x, ids, w)))
    (y,) = made
    g = fp.tensor(np.ones(y.shape, np.float32), device=device)
    check(counting, lambda: y.backward(g))
