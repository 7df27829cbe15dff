"""Attention of bfloat16: held against PyTorch in float64 on the rounded operands, within a few roundings of the largest number.

Read next: test_bfloat_layers.py.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import flamepy as fp
from flamepy.backend.cpu import device as cpu
from flamepy.ops.attention import fused_attention

torch = pytest.importorskip("torch")

BF = np.dtype(ml_dtypes.bfloat16)
EPS = 2.0**-8  # what a rounding changes at most
CASES = [  # batch, heads, rows, keys, width of q, of v, what hides keys
    (2, 3, 33, 65, 31, 17, ""), (2, 2, 70, 70, 32, 32, "causal"), (1, 2, 300, 300, 64, 64, "causal"), (1, 1, 130, 600, 33, 70, "float32"),
    (1, 2, 5, 7, 8, 8, "bfloat16"), (3, 1, 40, 50, 16, 24, "bool"), (1, 1, 0, 4, 4, 4, ""), (1, 1, 4, 0, 4, 4, ""),
]  # fmt: skip


def draw(*shape: int, seed: int = 0, dtype: Any = BF) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32).astype(dtype)


def near(mine: Any, exact: Any, roundings: int) -> None:
    exact = exact.detach().numpy()
    assert np.abs(np.asarray(mine.numpy(), np.float64) - exact).max(initial=0) <= roundings * EPS * np.abs(exact).max(initial=0) + 1e-6


@pytest.mark.parametrize("case", CASES, ids=str)
def test_attention_and_its_gradients(case: tuple, device: str) -> None:
    batch, heads, rows, keys, d, e, hides = case
    arrays = [draw(batch, heads, n, w, seed=i) for i, (n, w) in enumerate([(rows, d), (keys, d), (keys, e)])]
    ours = [fp.tensor(a).requires_grad_() for a in arrays]
    theirs = [torch.tensor(a.astype(np.float64), requires_grad=True) for a in arrays]
    mask = other = None
    if hides == "bool":
        seen = draw(rows, keys) > 0
        mask, other = fp.tensor(seen), torch.tensor(seen)
    elif hides not in ("", "causal"):
        bias = draw(1, heads, rows, keys, dtype=np.dtype(hides) if hides == "float32" else BF)
        mask, other = fp.tensor(bias).requires_grad_(), torch.tensor(bias.astype(np.float64), requires_grad=True)
    y = fp.scaled_dot_product_attention(*ours, attn_mask=mask, is_causal=hides == "causal")
    exact = torch.nan_to_num(torch.nn.functional.scaled_dot_product_attention(*theirs, attn_mask=other, is_causal=hides == "causal"))
    assert y.dtype == (fp.float32 if hides == "float32" else fp.bfloat16)
    near(y, exact, 2)
    g = draw(*y.shape, seed=3, dtype=np.float32)
    grads = y.backward(gradient=fp.tensor(g))
    exact.backward(torch.tensor(g.astype(np.float64)))
    for mine, leaf in zip(ours, theirs, strict=True):
        assert grads[mine].dtype == fp.float32
        near(grads[mine], leaf.grad, 4)
    if other is not None and other.requires_grad:
        near(grads[mask], other.grad, 4)


@pytest.mark.parametrize("shape", [(3, 70, 96), (1, 300, 192)], ids=str)
def test_fused_attention_has_the_same_bits_for_any_number_of_workers(shape: tuple, monkeypatch: pytest.MonkeyPatch) -> None:
    heads, g = 2, fp.tensor(draw(*shape[:2], shape[2] // 3, seed=1, dtype=np.float32))
    found = []
    for workers in (1, 2, 3, 4):
        monkeypatch.setattr(cpu, "threads", lambda workers=workers: workers)
        qkv = fp.tensor(draw(*shape)).requires_grad_()
        y = fused_attention(qkv, heads, True)
        dx = y.backward(gradient=g)[qkv]
        found.append((y.numpy().tobytes(), dx.numpy().tobytes()))
    assert all(f == found[0] for f in found[1:])
    parts = torch.tensor(draw(*shape).astype(np.float64), requires_grad=True)
    q, k, v = (t.unflatten(2, (heads, -1)).transpose(1, 2) for t in parts.chunk(3, 2))
    exact = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
    exact.backward(torch.tensor(g.numpy().astype(np.float64)))
    near(y, exact, 2)
    near(dx, parts.grad, 4)
