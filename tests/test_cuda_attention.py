"""Attention on the emulated GPU, both ways: against PyTorch in float64 on the operands as they were rounded; and its machine code.

Plain tiles (float32, float64, wide 16-bit rows) and tensor cores (16-bit rows), sizes beside those of tiles, masks of every shape, rows
that see no key, operands at odd places.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from cuda_tools import by_ptxas, check_code, close, gpu_like, launch
from devices import emulated_gpu

from flamepy.dtypes import bfloat16, computed, float16, float32, float64
from flamepy.ops.attention import apart, fused

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: pip install 'flamepy[cuda-emulator]'")
torch = pytest.importorskip("torch")

LEAST = {float64: 1e-13, float32: 2e-6, float16: 2e-3, bfloat16: 1.2e-2}  # of the largest number
CASES = [  # dtype, (batch, heads, rows, keys, width of q, of v), is_causal, the mask's shape or None
    (float32, (2, 3, 33, 70, 31, 17), False, (2, 1, 33, 70)), (float32, (1, 2, 70, 70, 24, 32), True, None),
    (float32, (1, 1, 1, 1, 1, 1), True, None), (float32, (1, 1, 3, 5, 20, 150), False, None),
    (float64, (1, 2, 37, 34, 20, 32), True, None), (float64, (1, 2, 5, 7, 31, 17), False, (1, 2, 5, 1)),
    (bfloat16, (1, 2, 150, 150, 64, 64), True, None), (bfloat16, (2, 1, 70, 40, 31, 17), False, (1, 1, 1, 40)),
    (bfloat16, (1, 1, 1, 1, 64, 64), False, None), (bfloat16, (1, 1, 20, 40, 128, 128), True, None),
    (bfloat16, (1, 1, 20, 20, 150, 8), False, None), (float16, (1, 2, 65, 66, 64, 48), False, None),
    (float16, (1, 1, 300, 300, 64, 64), True, None), (bfloat16, (1, 1, 130, 200, 31, 17), False, (1, 1, 130, 200)),
    (bfloat16, (1, 1, 150, 150, 96, 84), True, None), (bfloat16, (1, 2, 140, 170, 128, 120), True, (1, 1, 140, 170)),
    (float16, (1, 1, 200, 40, 64, 48), True, None),
    (bfloat16, (1, 2, 150, 150, 64, 64), True, (1, 1, 150, 150)), (float16, (1, 1, 70, 90, 96, 128), True, (1, 1, 70, 1)),
    (bfloat16, (1, 2, 70, 90, 31, 17), False, (1, 2, 70, 1)), (bfloat16, (1, 2, 140, 170, 72, 80), True, None),
    (bfloat16, (1, 1, 130, 90, 80, 66), False, (1, 1, 130, 90)),
    (bfloat16, (2, 35, 129, 129, 16, 16), True, None),  # more pairs of batch and head than begin side by side
]  # fmt: skip


def exact(arrays: list[Any], mask: Any, scale: float, is_causal: bool, g: Any) -> tuple[Any, list[Any]]:
    """PyTorch's result in float64, zero where a row sees no key, and the gradients of q, k, v and the scores."""
    q, k, v = (torch.tensor(a.astype(np.float64), requires_grad=True) for a in arrays)
    scores = scale * (q @ k.transpose(2, 3))
    if mask is not None:
        scores = scores + torch.tensor(mask.astype(np.float64))
    scores.retain_grad()
    seen = torch.ones(scores.shape[2:], dtype=torch.bool).tril() if is_causal else torch.ones(())
    shown = scores.masked_fill(seen == 0, -torch.inf)
    dead = (shown == -torch.inf).all(-1, keepdim=True)
    y = shown.masked_fill(dead, 0.0).softmax(-1).masked_fill(dead, 0.0) @ v
    y.backward(torch.tensor(g.astype(np.float64)))
    return y.detach(), [t.grad for t in (q, k, v, scores)]


def draw(sizes: Any, dtype: np.dtype, mask: Any) -> tuple[list[Any], Any, Any]:
    """(q, k, v), a mask that hides all keys from the first row where it can, the gradient of y."""
    rng = np.random.default_rng([*sizes])
    batch, heads, rows, keys, d, e = sizes
    arrays = [rng.standard_normal((batch, heads, *s)).astype(np.float32).astype(dtype) for s in ((rows, d), (keys, d), (keys, e))]
    values = None if mask is None else rng.standard_normal(mask).astype(computed(dtype))
    if mask is not None and mask[2] > 1:
        values[:, :, 0] = -np.inf
    return arrays, values, rng.standard_normal((batch, heads, rows, e)).astype(computed(dtype))


def run(gpu: Any, arrays: list[Any], mask: Any, g: Any, scale: float, is_causal: bool, at: int = 0) -> list[Any]:
    """y and the gradients of q, k, v and the scores (None without a mask)."""
    q, _, v = arrays
    layout, sizes = apart(q.shape, v.shape, None if mask is None else mask.shape)
    wide = computed(q.dtype)
    consts = (layout, sizes, wide.type(scale), is_causal)
    rows = sizes[0] * sizes[1] * sizes[2]
    y, kept = launch(gpu, "attention", [(g.size, q.dtype), (2 * rows, wide)], [*arrays, mask], consts, at)
    outs = [*[(a.size, wide) for a in arrays], None if mask is None else (rows * sizes[3], wide)]
    return [y, *launch(gpu, "attention_dx", outs, [g, y, kept, *arrays, mask], consts, at)]


@pytest.mark.parametrize(("dtype", "sizes", "is_causal", "mask"), CASES, ids=str)
def test_attention_and_its_gradients(dtype: np.dtype, sizes: Any, is_causal: bool, mask: Any) -> None:
    arrays, values, g = draw(sizes, dtype, mask)
    found = run(emulated_gpu(), arrays, values, g, 0.3, is_causal)
    y, grads = exact(arrays, values, 0.3, is_causal, g)
    for mine, theirs in zip(found, [y, *grads], strict=True):
        if mine is not None:
            close(mine, theirs, LEAST[dtype])


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("scale", [-0.5, 0.0])
def test_a_scale_may_turn_the_order_of_scores(scale: float, is_causal: bool) -> None:
    arrays, _, g = draw((1, 2, 40, 44, 64, 64), bfloat16, None)
    y, grads = exact(arrays, None, scale, is_causal, g)
    for mine, theirs in zip(run(emulated_gpu(), arrays, None, g, scale, is_causal), [y, *grads[:3]], strict=False):
        close(mine, theirs, LEAST[bfloat16])


@pytest.mark.parametrize("step", [1.0, 3.0, 30.0])
def test_scores_may_grow_from_tile_to_tile(step: float) -> None:
    """By little, so that sums stay as they are, by more, and by so much that what was before is nothing; backward takes what is kept."""
    arrays, _, g = draw((1, 1, 70, 320, 64, 64), float16, None)
    arrays[0] = np.abs(arrays[0])
    arrays[1] = (0.1 * arrays[1].astype(np.float32) + step / 64 * (np.arange(320) // 64)[:, None]).astype(float16)
    y, grads = exact(arrays, None, 1.0, False, g)
    found = run(emulated_gpu(), arrays, None, g, 1.0, False)
    close(found[0], y, LEAST[float16])
    close(found[3], grads[2], LEAST[float16])


def test_nothing_is_read_twice_in_vain() -> None:
    """No bank conflicts, and no more of the device's memory moved than is asked for, as GPT-2's attention lies."""
    gpu, (batch, rows, heads, width) = emulated_gpu(), (1, 200, 2, 64)
    rng = np.random.default_rng(0)
    qkv, g = rng.standard_normal((batch, rows, 3 * heads * width)).astype(bfloat16), rng.standard_normal((batch, rows, heads * width))
    layout, sizes = fused(qkv.shape, heads)
    consts = (layout, sizes, np.float32(0.125), True)
    gpu.driver.counts = counted = []
    try:
        y, kept = launch(gpu, "attention", [(g.size, bfloat16), (2 * heads * rows, float32)], [qkv, qkv, qkv, None], consts)
        outs = [(qkv.size, float32)] * 3
        launch(gpu, "attention_dx", [*outs, None], [g.astype(np.float32), y, kept, qkv, qkv, qkv, None], consts)
    finally:
        gpu.driver.counts = None
    assert [name.split("_64")[0] for name, _ in counted[::2]] == ["attention_mma", "attention_mma_dkv"] and len(counted) == 4
    for name, counts in counted:
        assert counts.bank_conflicts == 0 and counts.transactions == 1.0, name


TAKEN = [  # width, which columns the mask has, instructions of PTX for a product of tiles: forward, dk and dv, dq
    (64, None, 5.9, 5.4, 4.7), (64, "all", 7.7, 6.4, 7.5), (128, None, 4.4, 5.3, 4.1), (128, "all", 5.8, 5.9, 5.9),
    (64, "one", 7.7, 6.4, 7.5), (80, None, 5.8, 5.1, 4.0), (80, "all", 8.4, 5.9, 6.5),
    (96, None, 5.0, 6.8, 4.0),
]  # fmt: skip


@pytest.mark.parametrize(("width", "masked", "most"), [(w, masked, most) for w, masked, *most in TAKEN], ids=str)
def test_what_a_product_of_tiles_takes(width: int, masked: str | None, most: list[float]) -> None:
    """Of what more keys take: tiles within forward's and dq's loops, blocks for dk and dv. No tile ends early."""
    gpu, found = emulated_gpu(), []
    for keys in (128, 256):
        shape = {None: None, "one": (1, 1, 128, 1), "all": (1, 1, 128, keys)}[masked]
        arrays, mask, g = draw((1, 1, 128, keys, width, width), bfloat16, shape)
        gpu.driver.counts = counted = []
        try:
            run(gpu, arrays, mask, g, 0.1, False)
        finally:
            gpu.driver.counts = None
        found.append([c for name, c in counted if name.startswith("attention_mma")])
    for first, second, limit in zip(*found, most, strict=True):
        products = second.instructions["mma"] - first.instructions["mma"]
        assert second.total - first.total <= limit * products, (second.total - first.total) / products
        assert second.bank_conflicts == 0


def test_large_scores_do_not_overflow() -> None:
    arrays, _, g = draw((1, 1, 40, 40, 64, 64), bfloat16, None)
    arrays[0] = (arrays[0].astype(np.float32) * 1000).astype(bfloat16)
    y, _ = exact(arrays, None, 1.0, True, g)
    close(run(emulated_gpu(), arrays, None, g, 1.0, True)[0], y, LEAST[bfloat16])


def test_buffers_at_odd_places_give_the_same_bits() -> None:
    """What begins at no multiple of 16 bytes is copied number by number."""
    gpu, (arrays, _, g) = emulated_gpu(), draw((1, 2, 70, 70, 64, 64), bfloat16, None)
    even, odd = (run(gpu, arrays, None, g, 0.125, True, at) for at in (0, 1))
    assert all(a.tobytes() == b.tobytes() for a, b in zip(even[:4], odd[:4], strict=True))


@pytest.mark.parametrize("dtype", [bfloat16, float32], ids=str)
def test_fused_operands_stay_where_they_are_and_the_order_of_warps_does_not_matter(dtype: np.dtype) -> None:
    gpu, heads, shape = emulated_gpu(), 2, (2, 40, 192)
    rng = np.random.default_rng(1)
    qkv, g = rng.standard_normal(shape).astype(dtype), rng.standard_normal((2, 40, 64)).astype(np.float32)
    layout, sizes = fused(shape, heads)
    consts, found = (layout, sizes, np.float32(0.2), True), []
    for order in ("all", "last"):
        gpu.driver.order = order
        y, kept = launch(gpu, "attention", [(g.size, dtype), (2 * 2 * heads * 40, float32)], [qkv, qkv, qkv, None], consts)
        dx, inputs = gpu.upload(np.full(qkv.size, 7, np.float32)), [gpu.upload(x.reshape(-1)) for x in (g, y, kept, qkv)]
        gpu.launch("attention_dx", None, (dx, dx, dx, None), (*inputs, *inputs[3:] * 2, None), consts, float32)
        found.append((y, np.array(gpu.download(dx))))
    gpu.driver.order = "all"
    assert all(a.tobytes() == b.tobytes() for a, b in zip(*found, strict=True))
    parts = [p.reshape(2, 40, heads, 32).transpose(0, 2, 1, 3) for p in np.split(qkv.astype(np.float64), 3, axis=2)]
    y, grads = exact(parts, None, 0.2, True, g.reshape(2, 40, heads, 32).transpose(0, 2, 1, 3))
    close(found[0][0], y.numpy().transpose(0, 2, 1, 3), LEAST[dtype])
    close(found[0][1], np.stack([p.numpy().transpose(0, 2, 1, 3) for p in grads[:3]], axis=2), LEAST[dtype])


@pytest.mark.parametrize(("width", "masked", "cc"), [(128, False, (8, 0)), (128, True, (8, 0)), (64, False, (8, 9)), (128, False, (10, 0))])
def test_other_gpus(width: int, masked: bool, cc: tuple[int, int]) -> None:
    """Of the widest fewer rows a warp before sm_90, and smaller tiles from sm_100 on: what fits into registers there. Two tiles in shared
    memory, not three, where it has 100 KB."""
    gpu, binaries = gpu_like(cc)
    arrays, mask, g = draw((1, 1, 70, 90, width, min(width, 88)), bfloat16, (1, 1, 70, 90) if masked else None)
    y, grads = exact(arrays, mask, 0.3, True, g)
    for mine, theirs in zip(run(gpu, arrays, mask, g, 0.3, True), [y, *grads], strict=True):
        if mine is not None:
            close(mine, theirs, LEAST[bfloat16])
    if cc == (8, 0):  # of sm_100 the next test looks at the code
        check_code(gpu, {"attention_mma": "HMMA"})
    (forward,) = [k.name for k in gpu.kernels.values() if k.name.startswith(f"attention_mma_{width}")]
    assert forward.startswith(f"attention_mma_{width}_{1 if width == 128 and cc < (9, 0) else 2}_"), "32 rows a warp where they fit"
    assert (max([b.given for b in binaries]) > 48 << 10) == (cc != (8, 9))


@pytest.mark.parametrize("cc", [(9, 0), (10, 0)])
def test_the_widest_rows_leave_registers_to_another_assembler(cc: tuple[int, int]) -> None:
    """One whose ptxas takes some more: 13.0 spilled 4 bytes where this one took 255 of 255."""
    gpu, binaries = gpu_like(cc, runs=False)  # nothing but machine code is asked for
    for masked in (False, True):
        arrays, mask, g = draw((1, 1, 70, 90, 128, 128), bfloat16, (1, 1, 70, 90) if masked else None)
        run(gpu, arrays, mask, g, 0.3, True)
    own = [b for b in binaries if b.name.startswith("attention_mma_128")]
    found = [int(re.search(r"Used (\d+) registers", b.cubin()[1])[1]) for b in own]  # type: ignore[index]
    assert len(found) == 2 and max(found) <= 248
    logs = [b.cubin()[1] for b in binaries]
    logs += filter(None, map(by_ptxas, binaries))
    assert all(re.findall(r"(\d+) bytes spill", log) == ["0", "0"] for log in logs)


def test_machine_code() -> None:
    """Every kernel of this file, as it was compiled for the tests before."""
    gpu = emulated_gpu()
    for dtype, sizes, is_causal, mask in CASES:
        arrays, values, g = draw((*sizes[:2], 1, 1, *sizes[4:]), dtype, None if mask is None else (1, 1, 1, 1))
        run(gpu, arrays, values, g, 0.3, is_causal)
    check_code(gpu, {"attention_mma": "HMMA", "attention_tiles": "FFMA", "row_dots": "FFMA", "row_stats": "FFMA"})
