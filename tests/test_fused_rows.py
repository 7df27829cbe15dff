"""Fused row kernels: norms with their weights' gradients, residual + norm, and the machine code of all row bodies.

Oracles are NumPy in float64, finite differences, and the compositions that the fused ops replace. Kernels are called with 1, 2 and 5
workers and must give the same bits.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from error_text import raises
from machine_code import packed
from rows_tools import F32, F64, I64, Array, close, draw, launches, leaf, same_for_any_workers
from test_kernels import compiled, only_sums

import flamepy as fp
import flamepy.nn.functional as F
from flamepy import nn
from flamepy.core.op import REGISTRY
from flamepy.ops import loss_bodies, norm_bodies, rows

RESIDUAL_NORM = REGISTRY["residual_layer_norm"]


@pytest.fixture
def launched() -> Iterator[list[str]]:
    with launches() as names:
        yield names


# ---- norms -------------------------------------------------------------------------------------------------------------------
def norm_oracle(x: Array, g: Array, w: Any, eps: float, centred: bool) -> tuple[Array, Array, Array, Array]:
    """(y without bias, dx, dw, db) of a norm over the last axis, in float64."""
    x, g = x.astype(F64), g.astype(F64)
    xc = x - x.mean(-1, keepdims=True) if centred else x
    rstd = 1 / np.sqrt((xc * xc).mean(-1, keepdims=True) + eps)
    xn, gw = xc * rstd, g if w is None else g * w
    dx = gw - xn * (gw * xn).mean(-1, keepdims=True) - (gw.mean(-1, keepdims=True) if centred else 0)
    return xn * (1 if w is None else w), rstd * dx, (g * xn).sum(0), g.sum(0)


@pytest.mark.parametrize("size", [(1, 1), (1, 5), (17, 3), (16, 64), (65, 128), (1030, 7), (4100, 2), (3, 9000)], ids=str)
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_norms_and_their_gradients(size: tuple[int, int], dtype: Any) -> None:
    x, g = draw(*size, dtype=dtype) * 2 + 1, draw(*size, seed=1, dtype=dtype)
    w, b = draw(size[1], dtype=dtype), draw(size[1], seed=2, dtype=dtype)
    tolerance = 3e-4 if dtype == F32 else 1e-9
    for with_w, with_b in itertools.product((True, False), repeat=2):
        p, q, r = leaf(x), leaf(w) if with_w else None, leaf(b) if with_b else None
        y = F.layer_norm(p, None, q, r, eps=1e-3)
        want, dx, dw, db = norm_oracle(x, g, w if with_w else None, 1e-3, True)
        close(y, want + (b if with_b else 0), tolerance)
        grads = y.backward(fp.tensor(g))
        close(grads[p], dx, tolerance)
        for parameter, gradient in ((q, dw), (r, db)):
            if parameter is not None:
                close(grads[parameter], gradient, tolerance * 10)
    for weight in (leaf(w), None):
        p = leaf(x)
        want, dx, dw, _ = norm_oracle(x, g, None if weight is None else w, 1e-3, False)
        y = F.rms_norm(p, None, weight, eps=1e-3)
        close(y, want, tolerance)
        grads = y.backward(fp.tensor(g))
        close(grads[p], dx, tolerance)
        if weight is not None:
            close(grads[weight], dw, tolerance * 10)


def test_norms_of_no_rows_and_of_no_columns() -> None:
    w, b = leaf(draw(3)), leaf(draw(3))
    grads = F.layer_norm(leaf(np.zeros((0, 3))), None, w, b).sum().backward()
    assert grads[w].tolist() == grads[b].tolist() == [0.0] * 3
    p, w, b = leaf(np.zeros((4, 0))), leaf(np.zeros(0)), leaf(np.zeros(0))
    for y in (F.layer_norm(p, None, w, b), F.rms_norm(p, None, w)):
        assert y.shape == (4, 0) and y.sum().backward()[p].shape == (4, 0)
    pack = fp.ParameterDict()
    for name in "wb":
        pack.insert(name, fp.Parameter.ones(3))
    pack.pack()
    s, y = RESIDUAL_NORM(fp.zeros(0, 3), None, pack["w"], pack["b"])
    grads = y.sum().backward()
    assert s.shape == (0, 3) and grads[pack["w"]].tolist() == grads[pack["b"]].tolist() == [0.0] * 3


def test_frozen_weights_cost_nothing(launched: list[str]) -> None:
    p, w, b = leaf(draw(6, 4)), fp.tensor(draw(4)), fp.tensor(draw(4, seed=1))
    y = F.layer_norm(p, None, w, b)
    g = fp.tensor(draw(6, 4, seed=2))
    launched.clear()
    grads = y.backward(g)
    assert launched == ["row"] and len(grads) == 1
    bias = leaf(b.numpy())
    y = F.layer_norm(p.detach(), None, w, bias)
    launched.clear()
    close(y.backward(g)[bias], g.numpy().sum(0))
    assert launched == ["row_sums", "add_chunks"]


@pytest.mark.parametrize("size", [(300, 33), (2000, 5), (40, 1200)], ids=str)
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_norm_kernels_have_the_same_bits_for_any_workers(size: tuple[int, int], dtype: Any) -> None:
    n, cols = size
    x, g, more = (draw(n, cols, seed=i, dtype=dtype).reshape(-1) for i in range(3))
    w, b = draw(cols, dtype=dtype), draw(cols, seed=1, dtype=dtype)
    blank = [np.full(s, np.nan, dtype) for s in (n * cols, 2 * n, n)]
    _, mean, rstd = same_for_any_workers("row", norm_bodies.layer_norm_row, dtype, blank, x, w, b, dtype.type(1e-5), n, cols)
    same_for_any_workers("row", norm_bodies.residual_norm_row, dtype, [blank[0], *blank], x, more, w, b, dtype.type(1e-5), n, cols)
    same_for_any_workers("row", norm_bodies.rms_norm_row, dtype, blank[::2], x, w, dtype.type(1e-5), n, cols)
    chunk = 40
    chunks = -(-n // chunk)
    outs = [np.full(n * cols, np.nan, dtype), *[np.full(chunks * 2 * cols, np.nan, dtype) for _ in range(2)]]
    args = (np.array([chunk, 2 * cols]), g, more, x, w, mean, rstd, n, cols)
    _, sums, _ = same_for_any_workers("row_sums", norm_bodies.norm_dx_row, dtype, outs, *args)
    start = [np.ones(cols, dtype), np.full(cols, np.nan, dtype), sums]
    dw, db, _ = same_for_any_workers("add_chunks", None, dtype, start, chunks, cols, True, False)
    _, _, want_w, want_b = norm_oracle(x.reshape(size), g.reshape(size), w, 1e-5, True)
    close(dw, want_w + 1, 1e-3 if dtype == F32 else 1e-10)
    close(db, want_b, 1e-3 if dtype == F32 else 1e-10)


@pytest.mark.engine
def test_gradients_of_packed_weights_go_straight_to_their_place(launched: list[str]) -> None:
    x, w, b = fp.tensor(draw(20, 6)), draw(6), draw(6, seed=1)
    loose = [leaf(w), leaf(b)]
    packed = fp.ParameterDict()
    packed.insert("w", fp.Parameter(w))
    packed.insert("b", fp.Parameter(b))
    packed.pack()
    results = []
    for p, q in (loose, packed.parameters()):
        y = F.layer_norm(F.layer_norm(x, None, p, q), None, p, q) + F.rms_norm(x, None, p)  # shared: the second use adds
        launched.clear()
        grads = y.square().sum().backward()
        results.append([grads[p].numpy(), grads[q].numpy(), list(launched)])
    close(results[1][0], results[0][0])
    close(results[1][1], results[0][1])
    assert grads.spans, "the gradients fill a span"
    assert len(results[1][2]) < len(results[0][2]) + 2, "no copies into the span"


# ---- residual + norm ---------------------------------------------------------------------------------------------------------
def composition(x: Any, residual: Any, w: Any, b: Any, *, eps: float = 1e-5) -> tuple[Any, Any]:
    s = x if residual is None else x + residual
    return s, F.layer_norm(s, None, w, b, eps=eps)


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("used", ["both", "s", "y"])
@pytest.mark.parametrize("given", [*itertools.product((True, False), repeat=3)], ids=str)
def test_residual_norm_equals_its_composition(given: tuple[bool, bool, bool], used: str, dtype: Any) -> None:
    shape = (3, 7, 10)
    arrays = [draw(*shape, dtype=dtype), draw(*shape, seed=1, dtype=dtype), draw(10, dtype=dtype), draw(10, seed=2, dtype=dtype)]
    g, h = fp.tensor(draw(*shape, seed=3, dtype=dtype)), fp.tensor(draw(*shape, seed=4, dtype=dtype))
    results = []
    for fn in (RESIDUAL_NORM, composition):
        inputs: list[Any] = [leaf(a) if keep else None for a, keep in zip(arrays, (True, *given), strict=True)]
        s, y = fn(*inputs, eps=1e-3)
        loss = (s * g).sum() * (used != "y") + (y * h).sum() * (used != "s")
        if used == "s":
            loss = (s * g).sum()
        if used == "y":
            loss = (y * h).sum()
        grads = loss.backward()
        results.append([s.numpy(), y.numpy(), *[None if p is None else grads.get(p) for p in inputs]])
    assert results[0][0].tobytes() == results[1][0].tobytes()
    for ours, theirs in zip(results[0][1:], results[1][1:], strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            close(ours, np.asarray(theirs), 1e-4 if dtype == F32 else 1e-11)


def test_residual_norm_without_a_residual_copies_nothing() -> None:
    x = leaf(draw(5, 4))
    s, y = RESIDUAL_NORM(x, None, None, None)
    assert s.buffer is x.buffer and s is not x and x.entry is None
    assert np.array_equal(y.numpy(), F.layer_norm(x).numpy())
    with fp.no_grad():
        s, y = RESIDUAL_NORM(x)
    assert not s.requires_grad and not y.requires_grad


def test_residual_norm_backward_is_two_launches(launched: list[str]) -> None:
    x, r, w, b = (leaf(draw(*s)) for s in ((8, 6), (8, 6), (6,), (6,)))
    s, y = RESIDUAL_NORM(x, r, w, b)
    assert launched == ["row"]
    z = s * 2.0 + y * 3.0
    g = fp.ones(8, 6, dtype=fp.float64)
    launched.clear()
    grads = z.backward(g)
    assert [n for n in launched if not n.startswith("map")] == ["row_sums", "add_chunks"] and len(grads) == 4
    grads[x].buffer.data[:] = 0  # the two inputs' gradients are equal, and not one memory
    assert grads[r].numpy().any()


def test_residual_norm_of_one_tensor_twice_and_chained() -> None:
    x, w, b = leaf(draw(4, 6)), leaf(draw(6)), leaf(draw(6, seed=1))

    def chain(fn: Callable) -> Any:
        s, y = fn(x, x, w, b)
        for _ in range(3):
            s, y = fn(s, y.tanh(), w, b)
        return s * y

    g = fp.tensor(draw(4, 6, seed=2))
    ours, theirs = chain(RESIDUAL_NORM).backward(g), chain(composition).backward(g)
    for p in (x, w, b):
        close(ours[p], theirs[p].numpy(), 1e-10)


def test_residual_norm_gradients_of_gradients() -> None:
    inputs = tuple(leaf(draw(*s, seed=i)) for i, s in enumerate([(3, 5), (3, 5), (5,), (5,)]))
    assert fp.gradcheck(RESIDUAL_NORM, inputs, order=2)
    assert fp.gradcheck(lambda x, w, b: RESIDUAL_NORM(x, None, w, b)[1], (inputs[0], *inputs[2:]), order=2)
    assert fp.gradcheck(lambda x, r: RESIDUAL_NORM(x, r)[0] * 2.0, inputs[:2])
    axes = (leaf(draw(2, 3, 4)), leaf(draw(3, 4)), leaf(draw(3, 4, seed=1)))
    assert fp.gradcheck(lambda x, w, b: RESIDUAL_NORM(x, None, w, b), axes, order=2)
    assert fp.gradcheck(lambda x, w, b: F.layer_norm(x, (3, 4), w, b), axes, order=2)
    assert fp.gradcheck(lambda x, w: F.rms_norm(x, (3, 4), w), axes[:2], order=2)


def test_residual_norm_in_sixteen_bits_and_what_it_refuses() -> None:
    x, r = (fp.tensor(draw(4, 6, seed=i, dtype=F32)).to(fp.bfloat16).requires_grad_() for i in (0, 1))
    s, y = RESIDUAL_NORM(x, r)
    assert s.dtype == y.dtype == fp.bfloat16
    assert np.array_equal(s.numpy(), (x + r).numpy())
    grads = (s * y).sum().backward()
    assert grads[x].dtype == fp.float32 and np.array_equal(grads[x].numpy(), grads[r].numpy())
    with raises(fp.ShapeError, "residual_layer_norm: shapes differ", (4, 6), (6,)):
        RESIDUAL_NORM(fp.ones(4, 6), fp.ones(6))
    with pytest.raises(fp.ShapeError, match=r"residual_layer_norm: sizes differ: x is \(4, 6\)"):
        RESIDUAL_NORM(fp.ones(4, 6), None, fp.ones(5))


def test_norm_kernels_are_the_formulas_as_written() -> None:
    x, r, w, b = draw(2, 5), draw(2, 5, seed=1), draw(5), draw(5, seed=2)
    outs = [np.zeros(10), np.zeros(10), np.zeros(4), np.zeros(2)]
    plain: Any = norm_bodies.residual_norm_row
    for row in range(2):
        plain(row, *outs, x.reshape(-1), r.reshape(-1), w, b, 1e-5, 2, 5)
    s, y = RESIDUAL_NORM(*map(fp.tensor, (x, r, w, b)))
    close(outs[0].reshape(2, 5), s.numpy())
    close(outs[1].reshape(2, 5), y.numpy())
    e = np.zeros(5)
    top, total = rows.top_and_sum(e, x[0], 5)
    assert top == x[0].max() and np.isclose(total, np.exp(x[0] - top).sum()) and np.isclose(e.sum(), total)
    assert rows.top_and_sum(None, x[0], 5) == (top, total)


def test_a_transformer_block_adds_no_cotangents_of_the_stream(launched: list[str]) -> None:
    block = nn.TransformerBlock(8, 2, causal=True, dtype=fp.float64)
    x, g = leaf(draw(2, 3, 8)), fp.tensor(draw(2, 3, 8, seed=1))
    y = block(x)
    names = [entry.op.name for entry in fp.tape(y)]
    assert names.count("residual_layer_norm") == 2 and "layer_norm" not in names and names.count("add") <= 1
    launched.clear()
    ours = y.backward(g)
    assert "map2 add_y" not in launched and launched.count("row_sums") == 2
    h = x + block.attn(block.norm1(x))
    z = h + block.mlp(block.norm2(h))
    close(y, z.numpy())
    theirs = z.backward(g)
    for p in (x, *block.parameters()):
        close(ours[p], theirs[p].numpy(), 1e-10)


R4, C4 = 16, 256
FLAT = [np.ones(R4 * C4, F32) for _ in range(5)]
ROW, MEANS, COLUMN = np.ones(R4, F32), np.ones(2 * R4, F32), np.ones(C4, F32)
BODIES: dict[str, tuple[str, Any, tuple]] = {
    "cross-entropy": (
        "row", loss_bodies.cross_entropy_row,
        (ROW, FLAT[0], FLAT[1], np.zeros(R4, I64), np.array([-1, 0, R4]), None, F32.type(0), F32.type(0), -100, True),
    ),
    "few classes": (
        "rows_together", loss_bodies.cross_entropy_row.together,  # type: ignore[attr-defined]
        (ROW, FLAT[0], FLAT[1], np.zeros(R4, I64), np.array([-1, 0, R4]), None, F32.type(0), F32.type(0), -100, True),
    ),
    "weighted cross-entropy": (
        "row", loss_bodies.cross_entropy_row,
        (ROW, FLAT[0], FLAT[1], np.zeros(R4, I64), np.array([-1, 0, R4]), COLUMN, F32.type(0), F32.type(0), -100, True),
    ),
    "layer norm": ("row", norm_bodies.layer_norm_row, (FLAT[0], MEANS, ROW, FLAT[1], COLUMN, COLUMN, F32.type(1e-5))),
    "residual norm": ("row", norm_bodies.residual_norm_row, (*FLAT[:2], MEANS, ROW, *FLAT[2:4], COLUMN, COLUMN, F32.type(1e-5))),
    "norm dx": ("row", norm_bodies.norm_dx_row, (FLAT[0], None, FLAT[1], FLAT[2], FLAT[3], COLUMN, MEANS, ROW)),
    "norm dx dw db": (
        "row_sums", norm_bodies.norm_dx_row,
        (FLAT[0], np.ones(2 * C4, F32), np.ones(2 * C4, F32), np.array([R4, 2 * C4]), FLAT[1], None, FLAT[3], COLUMN, MEANS, ROW),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_row_bodies_vectorise_and_add_up_runs_alone_in_float64(name: str) -> None:
    loop, formula, args = BODIES[name]
    llvm, assembly = compiled(loop, formula, *args, R4, 16 if loop == "rows_together" else C4)
    assert only_sums(llvm)
    assert packed("steps", assembly) > 8


@pytest.mark.parametrize(("shape", "axis"), [
    ((2, 21, 9, 17), 1), ((3, 5, 128), 1), ((1, 257, 40), 1), ((300, 7), 0), ((2, 3, 0, 4), 1), ((129, 10), 1), ((1, 21), 1),
    ((70, 32), 1), ((64, 33), 1),
])  # fmt: skip
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_of_rows_side_by_side(name: str, shape: Any, axis: int) -> None:
    """Rows whose numbers are apart, and short ones, many at once: as NumPy, and a row's bits do not depend on those beside it."""
    x, g = np.random.default_rng(3).normal(0, 4, (2, *shape))
    x.reshape(-1)[::11] = -np.inf
    op, e = getattr(fp, name), np.exp(x - x.max(axis, keepdims=True, initial=-1e300))
    y = e / e.sum(axis, keepdims=True)
    dx = y * (g - (g * y).sum(axis, keepdims=True)) if name == "softmax" else g - y * g.sum(axis, keepdims=True)
    for dtype, room in ((np.float64, 1e-11), (np.float32, 2e-5)):
        t = fp.tensor(x.astype(dtype), requires_grad=True)
        got = op(t, axis)
        with np.errstate(divide="ignore"):
            close(got.detach(), y if name == "softmax" else np.log(y), room)
        close(got.backward(gradient=fp.tensor(g.astype(dtype)))[t], dx, room)
    alone = op(t.detach()[:1], axis) if axis else op(t.detach()[:, :1], axis)
    assert alone.numpy().tobytes() == (got.detach()[:1] if axis else got.detach()[:, :1]).numpy().tobytes()
