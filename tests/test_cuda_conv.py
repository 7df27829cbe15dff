"""Convolution and pooling on the emulated GPU, forward and backward, against PyTorch in float64; and the machine code.

Sizes beside those of tiles, strides, padding, dilation, groups, 16-bit operands, windows that overlap and that leave gaps, NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conv_sizes import conv_sizes, pool_sizes
from cuda_tools import check_code, close, launch
from devices import emulated_gpu

from flamepy.dtypes import bfloat16, computed, float16, float32, float64, int64

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: pip install 'flamepy[cuda-emulator]'")
torch = pytest.importorskip("torch")

LEAST = {float64: 1e-13, float32: 3e-6, float16: 1e-3, bfloat16: 8e-3}
CONVS = [  # dtype, x, weight, stride, padding, dilation, groups
    (float32, (2, 3, 9, 11), (5, 3, 3, 3), 2, 1, 1, 1), (float32, (2, 6, 10, 10), (70, 3, 3, 2), (1, 2), (2, 1), (1, 2), 2),
    (float32, (3, 20, 8, 8), (130, 20, 3, 3), 1, 1, 1, 1), (float64, (1, 4, 5, 5), (4, 4, 1, 1), 1, 0, 1, 1),
    (bfloat16, (2, 3, 9, 11), (5, 3, 3, 3), 2, 1, 1, 1), (float32, (5, 1, 16, 16), (2, 1, 3, 3), 1, 0, 1, 1),
    (bfloat16, (3, 16, 9, 11), (20, 16, 3, 3), 1, 1, 1, 1), (float16, (2, 6, 10, 12), (140, 3, 3, 2), 1, (2, 1), (1, 2), 2),
    (bfloat16, (8, 8, 12, 12), (70, 8, 1, 1), 1, 0, 1, 1), (bfloat16, (2, 6, 12, 17), (16, 3, 3, 4), (2, 3), (2, 1), (3, 2), 2),
    (float16, (1, 70, 9, 8), (8, 70, 1, 3), (2, 4), (0, 1), (1, 2), 1),
]  # fmt: skip
POOLS = [((2, 3, 9, 11), 3, 2, 1), ((1, 2, 8, 8), 2, 2, 0), ((1, 1, 7, 9), (3, 2), (1, 3), 1), ((1, 1, 1, 1), 1, 1, 0)]


def draw(shape: Any, dtype: np.dtype, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32).astype(dtype)


def leaf(x: np.ndarray) -> Any:
    return torch.tensor(x.astype(np.float64), requires_grad=True)


@pytest.mark.parametrize(("dtype", "x", "w", "stride", "padding", "dilation", "groups"), CONVS, ids=str)
def test_convolution_and_its_gradients(dtype: np.dtype, x: Any, w: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> None:
    gpu, sizes = emulated_gpu(), conv_sizes(x, w, stride, padding, dilation, groups)
    arrays = [draw(s, dtype, i) for i, s in enumerate((x, w, w[:1]))]
    leaves = [leaf(a) for a in arrays]
    exact = torch.nn.functional.conv2d(*leaves, stride, padding, dilation, groups)
    g = draw(exact.shape, dtype, 3)
    exact.backward(torch.tensor(g.astype(np.float64)))
    (y,) = launch(gpu, "conv2d", [(g.size, dtype)], arrays, (sizes,))
    (bare,) = launch(gpu, "conv2d", [(g.size, dtype)], [*arrays[:2], None], (sizes,))
    wide = computed(dtype)
    (dx,) = launch(gpu, "conv2d_dx", [(arrays[0].size, wide)], [g, arrays[1]], (sizes,))
    dw, db = launch(gpu, "conv2d_dw", [(arrays[1].size, wide), (w[0], wide)], [g, arrays[0]], (sizes,))
    close(y, exact.detach(), LEAST[dtype])
    close(bare, (exact - leaves[2][:, None, None]).detach(), LEAST[dtype])
    for mine, theirs in zip((dx, dw, db), leaves, strict=True):
        close(mine, theirs.grad, min(LEAST[dtype], LEAST[float32]))


@pytest.mark.parametrize("stride", [1, 2])
def test_16_bit_products_find_their_banks(stride: int) -> None:
    """Gradients are float32, as in training; nothing in shared memory waits for a bank, all three go through tensor cores."""
    gpu, x, w = emulated_gpu(), (1, 16, 16, 20), (40, 16, 3, 3)
    sizes, arrays = conv_sizes(x, w, stride, 1, 1, 1), [draw(s, bfloat16) for s in (x, w)]
    leaves = [leaf(a) for a in arrays]
    exact = torch.nn.functional.conv2d(*leaves, None, stride, 1)
    g = draw(exact.shape, float32, 3)
    exact.backward(torch.tensor(g.astype(np.float64)))
    gpu.driver.counts = counted = []
    try:
        (y,) = launch(gpu, "conv2d", [(g.size, bfloat16)], [*arrays, None], (sizes,))
        (dx,) = launch(gpu, "conv2d_dx", [(arrays[0].size, float32)], [g, arrays[1]], (sizes,))
        dw, _ = launch(gpu, "conv2d_dw", [(arrays[1].size, float32), None], [g, arrays[0]], (sizes,))
    finally:
        gpu.driver.counts = None
    for mine, theirs in zip((y, dx, dw), (exact.detach(), *[leaf.grad for leaf in leaves]), strict=True):
        close(mine, theirs, LEAST[bfloat16])
    products = [(name, counts) for name, counts in counted if "_mma_" in name]
    assert len(products) == 3
    for name, counts in products:
        assert counts.bank_conflicts == 0 and counts.instructions["mma"], name


@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
@pytest.mark.parametrize(("x", "window", "stride", "padding"), POOLS, ids=str)
def test_pools_and_their_gradients(dtype: np.dtype, x: Any, window: Any, stride: Any, padding: Any) -> None:
    gpu, sizes, image = emulated_gpu(), dict(zip(("avg", "max"), pool_sizes(x, window, stride, padding), strict=True)), draw(x, dtype)
    image = np.round(image)  # equal numbers: the first one wins
    for kind in ("max", "avg"):
        own = leaf(image)
        exact = getattr(torch.nn.functional, f"{kind}_pool2d")(own, window, stride, padding)
        g = draw(exact.shape, dtype, 1)
        exact.backward(torch.tensor(g.astype(np.float64)))
        name, outs = f"{kind}_pool" if kind == "max" else f"{kind}_pool2d", [(g.size, int64), (g.size, dtype)]
        *positions, y = launch(gpu, name, outs if kind == "max" else outs[1:], [image], (sizes[kind],))
        close(y, exact.detach(), LEAST[dtype])
        if kind == "max":  # the gradient of a mean is made by tables
            (dx,) = launch(gpu, f"{name}_dx", [(image.size, dtype)], [g, *positions], (sizes[kind],))
            close(dx, own.grad, LEAST[dtype])


def test_the_last_nan_of_a_window_wins() -> None:
    image = draw((1, 2, 8, 8), float32)
    image.flat[::7] = np.nan
    sizes = pool_sizes(image.shape, 2, 2, 0)[1]
    positions, y = launch(emulated_gpu(), "max_pool", [(32, int64), (32, float32)], [image], (sizes,))
    exact, places = torch.nn.functional.max_pool2d(torch.tensor(image), 2, 2, return_indices=True)
    np.testing.assert_array_equal(y, exact.numpy().reshape(-1))
    np.testing.assert_array_equal(positions, places.numpy().reshape(-1))


def test_machine_code() -> None:
    """Every kernel that the emulated GPU has run; channels' sums are float64, to be right for many images."""
    gpu, sizes = emulated_gpu(), conv_sizes((1, 3, 4, 4), (130, 3, 3, 3), 1, 1, 1, 1)
    x, w, g = (draw(s, float32) for s in ((1, 3, 4, 4), (130, 3, 3, 3), (1, 130, 4, 4)))
    launch(gpu, "conv2d", [(g.size, float32)], [x, w, None], (sizes,))
    launch(gpu, "conv2d_dw", [(w.size, float32), (130, float32)], [g, x], (sizes,))
    x, w = x.astype(bfloat16), w.astype(bfloat16)
    launch(gpu, "conv2d", [(g.size, bfloat16)], [x, w, None], (sizes,))
    launch(gpu, "conv2d_dx", [(x.size, float32)], [g, w], (sizes,))
    launch(gpu, "conv2d_dw", [(w.size, float32), None], [g, x], (sizes,))
    wants = dict.fromkeys(("conv2d_tiles", "conv2d_dw_tiles"), "FFMA") | {"plane_sums": "DADD"}
    wants |= dict.fromkeys(("conv2d_mma", "conv2d_dx_mma", "conv2d_dw_mma"), "HMMA") | {"turn_weight": "STG"}
    check_code(gpu, wants, ("plane_sums",))
