"""Attention of 16-bit floats: held against PyTorch in float64 on the rounded operands, within a few roundings of the largest number."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from rows_tools import launches

import flamepy as fp
from flamepy.backend.cpu import device as cpu
from flamepy.ops.attention import fused_attention

torch = pytest.importorskip("torch")

BF = np.dtype(ml_dtypes.bfloat16)
HALF = np.dtype("float16")
EPS = {BF: 2.0**-8, HALF: 2.0**-11}  # what a rounding changes at most
CASES = [  # batch, heads, rows, keys, width of q, of v, what hides keys
    (2, 3, 33, 65, 31, 17, ""), (2, 2, 70, 70, 32, 32, "causal"), (1, 2, 300, 300, 64, 64, "causal"), (1, 1, 130, 600, 33, 70, "float32"),
    (1, 2, 5, 7, 8, 8, "bfloat16"), (3, 1, 40, 50, 16, 24, "bool"), (1, 1, 0, 4, 4, 4, ""), (1, 1, 4, 0, 4, 4, ""),
]  # fmt: skip


def draw(*shape: int, seed: int = 0, dtype: Any = BF) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32).astype(dtype)


def near(mine: Any, exact: Any, roundings: int, dtype: Any) -> None:
    exact = exact.detach().numpy()
    bound = roundings * EPS[dtype] * np.abs(exact).max(initial=0) + 1e-6
    assert np.abs(np.asarray(mine.numpy(), np.float64) - exact).max(initial=0) <= bound


@pytest.mark.parametrize("dtype", [BF, HALF], ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_attention_and_its_gradients(case: tuple, dtype: Any, device: str) -> None:
    batch, heads, rows, keys, d, e, hides = case
    arrays = [draw(batch, heads, n, w, seed=i, dtype=dtype) for i, (n, w) in enumerate([(rows, d), (keys, d), (keys, e)])]
    ours = [fp.tensor(a).requires_grad_() for a in arrays]
    theirs = [torch.tensor(a.astype(np.float64), requires_grad=True) for a in arrays]
    mask = other = None
    if hides == "bool":
        seen = draw(rows, keys) > 0
        mask, other = fp.tensor(seen), torch.tensor(seen)
    elif hides not in ("", "causal"):
        bias = draw(1, heads, rows, keys, dtype=np.dtype(hides) if hides == "float32" else dtype)
        mask, other = fp.tensor(bias).requires_grad_(), torch.tensor(bias.astype(np.float64), requires_grad=True)
    y = fp.scaled_dot_product_attention(*ours, attn_mask=mask, is_causal=hides == "causal")
    exact = torch.nan_to_num(torch.nn.functional.scaled_dot_product_attention(*theirs, attn_mask=other, is_causal=hides == "causal"))
    assert y.dtype == (fp.float32 if hides == "float32" else dtype)
    near(y, exact, 2, dtype)
    g = draw(*y.shape, seed=3, dtype=np.float32)
    grads = y.backward(gradient=fp.tensor(g))
    exact.backward(torch.tensor(g.astype(np.float64)))
    for mine, leaf in zip(ours, theirs, strict=True):
        assert grads[mine].dtype == fp.float32
        near(grads[mine], leaf.grad, 4, dtype)
    if other is not None and other.requires_grad:
        near(grads[mask], other.grad, 4, dtype)


@pytest.mark.parametrize("dtype", [BF, HALF], ids=str)
@pytest.mark.parametrize("shape", [(3, 70, 96), (1, 300, 192)], ids=str)
def test_fused_attention_has_the_same_bits_for_any_number_of_workers(shape: tuple, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    heads, g = 2, fp.tensor(draw(*shape[:2], shape[2] // 3, seed=1, dtype=np.float32))
    found = []
    for workers in (1, 2, 3, 4):
        monkeypatch.setattr(cpu, "threads", lambda workers=workers: workers)
        qkv = fp.tensor(draw(*shape, dtype=dtype)).requires_grad_()
        y = fused_attention(qkv, heads, True)
        dx = y.backward(gradient=g)[qkv]
        found.append((y.numpy().tobytes(), dx.numpy().tobytes()))
    assert all(f == found[0] for f in found[1:])
    parts = torch.tensor(draw(*shape, dtype=dtype).astype(np.float64), requires_grad=True)
    q, k, v = (t.unflatten(2, (heads, -1)).transpose(1, 2) for t in parts.chunk(3, 2))
    exact = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
    exact.backward(torch.tensor(g.numpy().astype(np.float64)))
    near(y, exact, 2, dtype)
    near(dx, parts.grad, 4, dtype)


def test_small_gradients_of_float16_are_not_lost_and_nothing_is_cast() -> None:
    """g far below what float16 can hold; and no tensor is cast."""
    shape = (1, 2, 64, 32)
    q, k, v = (fp.tensor(draw(*shape, seed=i, dtype=HALF)).requires_grad_() for i in range(3))
    wide = [fp.tensor(t.numpy().astype(np.float32)).requires_grad_() for t in (q, k, v)]
    g = (draw(*shape, seed=3, dtype=np.float32) * 2.0**-40).astype(np.float32)
    with launches() as names:
        grads = fp.scaled_dot_product_attention(q, k, v, is_causal=True).backward(gradient=fp.tensor(g))
    assert names == ["attention", "attention_dx", "attention_dx_sum"]
    exact = fp.scaled_dot_product_attention(*wide, is_causal=True).backward(gradient=fp.tensor(g))
    for mine, other in zip((q, k, v), wide, strict=True):
        largest = np.abs(exact[other].numpy()).max()
        assert 0 < largest < 2.0**-30 and np.abs(grads[mine].numpy() - exact[other].numpy()).max() <= 4 * EPS[HALF] * largest
