"""Fused row kernels: cross-entropy in one pass, norms with their weights' gradients, residual + norm, embedding gradients.

Oracles are NumPy in float64, finite differences, and the compositions that the fused ops replace. Kernels are called with 1, 2 and 5
workers and must give the same bits. Integer ids are never read by the host: a captured step is replayed with others.

May import: flamepy, NumPy, Numba. FLAME counterpart: none. Read next: test_replay.py.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from error_text import raises
from hypothesis import given, settings
from hypothesis import strategies as st
from test_kernels import body, compiled

import flamepy as fp
import flamepy.nn.functional as F
from flamepy import nn
from flamepy.backend.cpu import index as index_loops
from flamepy.backend.cpu.compiler import DIALECT
from flamepy.backend.cpu.device import CpuDevice, find_loop
from flamepy.backend.formula.bind import bind
from flamepy.op.base import REGISTRY
from flamepy.ops import indexing, losses, row_norms, rows

F32, F64, I64 = np.dtype("float32"), np.dtype("float64"), np.dtype("int64")
RESIDUAL_NORM = REGISTRY["residual_layer_norm"]
Array = np.ndarray


def draw(*shape: int, seed: int = 0, dtype: Any = F64) -> Array:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(dtype)


def ids_of(n: int, *shape: int, seed: int = 0) -> Array:
    return np.random.default_rng((seed, *shape)).integers(0, n, shape)


def leaf(array: Array) -> Any:
    return fp.tensor(array, requires_grad=True)


def close(got: Any, want: Any, tolerance: float = 1e-11) -> None:
    np.testing.assert_allclose(got.numpy() if isinstance(got, fp.Tensor) else got, want, tolerance, tolerance)


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of the loops that are launched; of maps also the formula's."""
    names: list[str] = []
    plain = CpuDevice.kernel

    def kernel(self: CpuDevice, loop: str, formula: Callable | None, dtype: np.dtype) -> Any:
        names.append(f"{loop} {formula.__name__}" if formula is not None and loop.startswith("map") else loop)
        return plain(self, loop, formula, dtype)

    monkeypatch.setattr(CpuDevice, "kernel", kernel)
    yield names


def same_for_any_workers(loop: str, formula: Callable | None, dtype: np.dtype, outs: list[Array], *args: Any) -> list[Array]:
    """Run a kernel with 1, 2 and 5 workers, each twice, from the same outs; returns the outs."""
    kernel = bind(find_loop(loop), formula, dtype, DIALECT)
    results = []
    for workers in (1, 2, 5, 2, 5, 1):
        mine = [None if a is None else a.copy() for a in outs]
        kernel(workers, *mine, *args)
        results.append(mine)
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            assert a is None or a.tobytes() == b.tobytes()
    return results[0]


# ---- cross-entropy -----------------------------------------------------------------------------------------------------------
def distribution(x: Array, ids: Array, ignore: int, smoothing: float) -> tuple[Array, Array, Array]:
    """(log-probabilities, target distribution, which rows count) of logits (rows, classes)."""
    x = x.astype(F64)
    logp = x - x.max(1, keepdims=True)
    logp = logp - np.log(np.exp(logp).sum(1, keepdims=True))
    keep = ids != ignore
    target = np.full_like(x, smoothing / max(1, x.shape[1]))
    target[np.arange(len(ids))[keep], ids[keep]] += 1 - smoothing
    return logp, target * keep[:, None], keep


def cross_entropy_oracle(x: Array, ids: Array, reduction: str, ignore: int, smoothing: float) -> tuple[Any, Array]:
    """Loss and its gradient for a cotangent of ones."""
    logp, target, keep = distribution(x, ids, ignore, smoothing)
    each = -(target * np.where(keep[:, None], logp, 0)).sum(1)
    dx = np.exp(logp) * keep[:, None] - target
    if reduction == "mean":
        with np.errstate(all="ignore"):
            return each.sum() / keep.sum(), dx / max(1, keep.sum())
    return (each if reduction == "none" else each.sum()), dx


SIZES = [(1, 1), (1, 7), (5, 2), (6, 4), (3, 65), (300, 65), (70, 257), (2, 4099), (0, 3)]
OPTIONS = list(itertools.product(("mean", "sum", "none"), (-100, 1), (0.0, 0.15)))


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_cross_entropy_and_its_gradient(size: tuple[int, int], dtype: Any) -> None:
    x = 3 * draw(*size, dtype=dtype)
    for reduction, ignore, smoothing in OPTIONS:
        if ignore >= size[1]:
            ignore = 0
        ids = ids_of(size[1], size[0])
        p = leaf(x)
        loss = F.cross_entropy(p, ids, ignore_index=ignore, label_smoothing=smoothing, reduction=reduction)
        want, dx = cross_entropy_oracle(x, ids, reduction, ignore, smoothing)
        tolerance = 2e-6 if dtype == F32 else 1e-12
        np.testing.assert_allclose(loss.numpy(), want, tolerance * 5, tolerance * 5)
        ones = None if loss.size == 1 else fp.ones(*loss.shape, dtype=dtype)
        close(loss.backward(ones)[p], dx, tolerance)
        with fp.no_grad():  # the kernel that keeps no gradient gives the same bits
            again = F.cross_entropy(p, ids, ignore_index=ignore, label_smoothing=smoothing, reduction=reduction)
        assert np.array_equal(again.numpy(), loss.numpy(), equal_nan=True)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy_under_another_cotangent(reduction: str) -> None:
    x, ids = draw(9, 5), ids_of(5, 9)
    p = leaf(x)
    g = draw(9, seed=1) if reduction == "none" else np.asarray(-2.5)
    grads = F.cross_entropy(p, ids, reduction=reduction, ignore_index=2).backward(fp.tensor(g))
    close(grads[p], cross_entropy_oracle(x, ids, reduction, 2, 0.0)[1] * (g[:, None] if g.ndim else g))
    scaled = (F.cross_entropy(p, ids, ignore_index=2) * 3.0).backward()
    close(scaled[p], 3 * cross_entropy_oracle(x, ids, "mean", 2, 0.0)[1])


def test_cross_entropy_of_pictures_and_of_one_row() -> None:
    x, ids = draw(2, 5, 3, 4), ids_of(5, 2, 3, 4)
    flat = np.moveaxis(x, 1, -1).reshape(-1, 5)
    want, dx = cross_entropy_oracle(flat, ids.reshape(-1), "none", -100, 0.1)
    p = leaf(x)
    loss = F.cross_entropy(p, ids, reduction="none", label_smoothing=0.1)
    assert loss.shape == (2, 3, 4)
    close(loss, want.reshape(2, 3, 4))
    close(loss.sum().backward()[p], np.moveaxis(dx.reshape(2, 3, 4, 5), -1, 1))
    q = leaf(x[0, :, 0, 0])
    loss = F.cross_entropy(q, 3, reduction="none")
    assert loss.shape == ()
    close(loss.backward()[q], cross_entropy_oracle(q.numpy()[None], np.array([3]), "sum", -100, 0.0)[1][0])


def test_all_ignored() -> None:
    p = leaf(draw(4, 3))
    ids = np.full(4, -100)
    loss = F.cross_entropy(p, ids)
    assert np.isnan(loss.item()) and not loss.backward()[p].numpy().any()
    loss = F.cross_entropy(p, ids, reduction="sum")
    assert loss.item() == 0.0 and not loss.backward()[p].numpy().any()
    assert np.isnan(F.nll_loss(p, ids).item()) and F.nll_loss(p, ids, reduction="sum").item() == 0.0
    none = leaf(np.zeros((3, 0)))
    assert F.cross_entropy(none, ids[:3], reduction="none").tolist() == [0.0] * 3
    assert F.nll_loss(none, ids[:3], reduction="none").tolist() == [0.0] * 3


def test_extreme_logits() -> None:
    x = np.array([[1e30, -1e30, 0.0], [-np.inf, 0.0, 1.0], [88.0, 89.0, 90.0], [-1e4, -1e4, -1e4]], F32)
    p = leaf(x)
    loss = F.cross_entropy(p, np.array([0, 2, 1, 1]), reduction="none")
    np.testing.assert_allclose(loss.numpy(), [0.0, 0.3132617, 1.4076059, np.log(3)], 1e-6)
    assert np.isfinite(loss.sum().backward()[p].numpy()).all()
    assert np.isinf(F.cross_entropy(p, np.array([1, 0, 1, 1]), reduction="none").numpy()[1])
    x[0, 1] = np.nan
    assert np.isnan(F.cross_entropy(fp.tensor(x), np.array([0, 2, 1, 1])).item())


def test_sixteen_bits_are_computed_in_float32() -> None:
    x, ids = draw(64, 7, dtype=F32), ids_of(7, 64)
    for dtype in (fp.float16, fp.bfloat16):
        p = fp.tensor(x).to(dtype).requires_grad_()
        loss = F.cross_entropy(p, ids)
        want, dx = cross_entropy_oracle(p.numpy().astype(F32), ids, "mean", -100, 0.0)
        assert loss.dtype == dtype and abs(float(loss.numpy()) - want) < 0.01
        close(loss.backward()[p], dx, 1e-6)
        many = fp.tensor(np.full((70000, 1), -0.5, F32)).to(dtype)  # more rows than float16 can count
        assert abs(float(F.nll_loss(many, np.zeros(70000, int)).numpy()) - 0.5) < 1e-2 or dtype == fp.float16


def test_cross_entropy_goes_over_the_logits_once(launched: list[str]) -> None:
    p, ids = leaf(draw(6, 4, dtype=F32)), fp.tensor(ids_of(4, 6))
    loss = F.cross_entropy(p, ids)
    assert launched == ["check_ids", "row", "batch_loss"]
    launched.clear()
    grads = loss.backward()
    assert launched == ["fill"]  # the cotangent, 1
    assert grads[p].shape == (6, 4)


def test_without_a_gradient_nothing_is_kept_for_it() -> None:
    big = fp.tensor(draw(512, 512, dtype=F32))
    where = big.device
    ids = fp.tensor(ids_of(512, 512))
    for call in (lambda: F.cross_entropy(big, ids), lambda: untracked(leaf(big.numpy()), ids)):
        call()
        before = where.memory()["current"]
        kept = call()
        assert where.memory()["current"] - before < big.size
        del kept


def untracked(x: Any, ids: Any) -> Any:
    with fp.no_grad():
        return F.cross_entropy(x, ids)


def test_a_second_backward_gives_the_same_gradient() -> None:
    p, ids = leaf(draw(6, 4)), ids_of(4, 6)
    loss = F.cross_entropy(p, ids)
    first = loss.backward(retain_graph=True)
    want = first[p].numpy().copy()
    fp.clip_grad_norm(first, 1e-3)  # edits the gradients in the map, not what the loss keeps
    close(loss.backward(retain_graph=True)[p], want)
    close(loss.backward()[p], want)


def test_cross_entropy_gradcheck() -> None:
    ids = np.array([0, 2, 1, 1, 3])
    for reduction, ignore, smoothing in OPTIONS:
        assert fp.gradcheck(
            lambda x: F.cross_entropy(x, ids, reduction=reduction, ignore_index=ignore, label_smoothing=smoothing), (leaf(draw(5, 4)),)
        )
        assert fp.gradcheck(lambda x: F.nll_loss(x, ids, reduction=reduction, ignore_index=ignore), (leaf(draw(5, 4)),))


def test_class_ids_are_checked_and_named() -> None:
    x = fp.zeros(2, 4, 3)
    for loss in (F.cross_entropy, F.nll_loss):
        ids = np.array([[0, 1, -100], [2, 4, 9]])
        with raises(fp.IndexOutOfRange, loss.__name__, "class id out of range: 4 at position (1, 1)", "Use 0 to 3, or ignore_index=-100"):
            loss(x, ids)
        with raises(fp.IndexOutOfRange, "-1 at position (0, 1)"):
            loss(x, np.array([[0, -1, 0], [7, 0, 0]]))
        with raises(fp.IndexOutOfRange, "7 at position ()"):
            loss(x[0, :, 0], 7)
        with raises(fp.DTypeError, "class ids are not integer: float32"):
            loss(x, [[0.0]])
        with raises(ValueError, loss.__name__, "unknown reduction: 'max'"):
            loss(x, ids * 0, reduction="max")
        assert loss(x, ids * 0 + 9, ignore_index=9, reduction="sum").item() == 0


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_cross_entropy_kernel_has_the_same_bits_for_any_workers(dtype: Any) -> None:
    n, classes = 301, 67
    x, ids, found = draw(n, classes, dtype=dtype).reshape(-1), ids_of(classes, n), np.array([-1, 0, n])
    outs = [np.full(n, np.nan, dtype), np.full(n * classes, np.nan, dtype)]
    args = (x, ids, found, dtype.type(0.1), 3, True, n, classes)
    loss, _ = same_for_any_workers("row", losses.cross_entropy_row, dtype, outs, *args)
    (total,) = same_for_any_workers("batch_loss", None, dtype, [np.full(1, np.nan, dtype)], loss, found, True)
    np.testing.assert_allclose(total[0], loss.mean(), 1e-6)
    plain: Any = losses.cross_entropy_row
    plain(0, *outs, *args)  # the body is plain Python too
    np.testing.assert_allclose(outs[0][0], loss[0], 1e-5)


def test_a_large_batch_is_added_accurately() -> None:
    each = np.random.default_rng(0).random(1 << 20).astype(F32)
    out = np.zeros(1, F32)
    bind(find_loop("batch_loss"), None, F32, DIALECT)(1, out, each, np.array([-1, 0, each.size]), True)
    assert abs(out[0] / each.astype(F64).mean() - 1) < 1e-6


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
    blank = [np.full(s, np.nan, dtype) for s in (n * cols, n, n)]
    _, mean, rstd = same_for_any_workers("row", row_norms.layer_norm_row, dtype, blank, x, w, b, dtype.type(1e-5), n, cols)
    same_for_any_workers("row", row_norms.residual_norm_row, dtype, [blank[0], *blank], x, more, w, b, dtype.type(1e-5), n, cols)
    same_for_any_workers("row", row_norms.rms_norm_row, dtype, blank[:2], x, w, dtype.type(1e-5), n, cols)
    chunk = 16
    chunks = -(-n // chunk)
    outs = [np.full(n * cols, np.nan, dtype), np.full(chunks * 2 * cols, np.nan, dtype)]
    args = (np.array([chunk, 2 * cols]), g, more, x, w, mean, rstd, n, cols)
    _, sums = same_for_any_workers("row_sums", row_norms.norm_dx_row, dtype, outs, *args)
    start = [np.ones(cols, dtype), np.full(cols, np.nan, dtype), sums]
    dw, db, _ = same_for_any_workers("add_chunks", None, dtype, start, chunks, cols, True, False)
    _, _, want_w, want_b = norm_oracle(x.reshape(size), g.reshape(size), w, 1e-5, True)
    close(dw, want_w + 1, 1e-3 if dtype == F32 else 1e-10)
    close(db, want_b, 1e-3 if dtype == F32 else 1e-10)


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
    outs = [np.zeros(10), np.zeros(10), np.zeros(2), np.zeros(2)]
    plain: Any = row_norms.residual_norm_row
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
    block = nn.TransformerBlock(8, 2, dtype=fp.float64)
    x, g = leaf(draw(2, 3, 8)), fp.tensor(draw(2, 3, 8, seed=1))
    y = block(x, is_causal=True)
    names = [entry.op.name for entry in fp.tape(y)]
    assert names.count("residual_layer_norm") == 2 and "layer_norm" not in names and names.count("add") <= 1
    launched.clear()
    ours = y.backward(g)
    assert "map2 add_y" not in launched and launched.count("row_sums") == 2
    h = x + block.attn(block.norm1(x), is_causal=True)
    z = h + block.mlp(block.norm2(h))
    close(y, z.numpy())
    theirs = z.backward(g)
    for p in (x, *block.parameters()):
        close(ours[p], theirs[p].numpy(), 1e-10)


R4, C4 = 16, 256
FLAT = [np.ones(R4 * C4, F32) for _ in range(5)]
ROW, COLUMN = np.ones(R4, F32), np.ones(C4, F32)
BODIES: dict[str, tuple[str, Any, tuple]] = {
    "cross-entropy": (
        "row", losses.cross_entropy_row,
        (ROW, FLAT[0], FLAT[1], np.zeros(R4, I64), np.array([-1, 0, R4]), F32.type(0), -100, True),
    ),
    "layer norm": ("row", row_norms.layer_norm_row, (FLAT[0], ROW, ROW, FLAT[1], COLUMN, COLUMN, F32.type(1e-5))),
    "residual norm": ("row", row_norms.residual_norm_row, (*FLAT[:2], ROW, ROW, *FLAT[2:4], COLUMN, COLUMN, F32.type(1e-5))),
    "norm dx": ("row", row_norms.norm_dx_row, (FLAT[0], None, FLAT[1], FLAT[2], FLAT[3], COLUMN, ROW, ROW)),
    "norm dx dw db": (
        "row_sums", row_norms.norm_dx_row,
        (FLAT[0], np.ones(2 * C4, F32), np.array([R4, 2 * C4]), FLAT[1], None, FLAT[3], COLUMN, ROW, ROW),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_row_bodies_vectorise_and_hold_no_float64(name: str) -> None:
    loop, formula, args = BODIES[name]
    llvm, assembly = compiled(loop, formula, *args, R4, C4)
    assert " double " not in body(llvm)
    assert len(re.findall(r"v(mul|fma\w+|fnma\w+|max|add|sub)ps\s.*%[yz]mm", assembly)) > 8


# ---- embedding and the gradients of picked rows ----------------------------------------------------------------------------------
TABLES = [(1, 1, 1), (2, 300, 50), (65, 128, 300), (65, 5, 70), (700, 16, 90), (3000, 96, 40), (40000, 32, 200), (200, 4096, 60), (9, 3, 0)]


@pytest.mark.parametrize("sizes", TABLES, ids=str)
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_rows_are_added_in_order_whoever_does_it(sizes: tuple[int, int, int], dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    n, width, count = sizes
    x, start = draw(count, width, dtype=dtype), draw(n, width, seed=1, dtype=dtype)
    ids = np.minimum(np.random.default_rng(0).zipf(1.3, count) - 1, n - 1)
    plans = []
    monkeypatch.setattr(indexing, "launch", lambda *args, **options: plans.append(args))
    for add in (True, False):
        indexing.add_rows(fp.tensor(start), fp.tensor(x), fp.tensor(ids), width, add)
        want = start.copy() if add else np.zeros_like(start)
        for i, r in enumerate(ids):  # in the order of the ids: equal to the last bit
            want[r] += x[i]
        blank = start.reshape(-1) if add else np.full(n * width, np.nan, dtype)
        (got,) = same_for_any_workers("add_rows", None, dtype, [blank], x.reshape(-1), ids, *plans[-1][4])
        assert got.tobytes() == want.tobytes()


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 400), st.integers(1, 200), st.integers(0, 60), st.booleans(), st.integers(0, 10**6))
def test_rows_are_added_whatever_the_sizes(n: int, width: int, count: int, add: bool, seed: int) -> None:
    ids, x = ids_of(n, count, seed=seed), draw(count, width, seed=seed, dtype=F32)
    y = fp.tensor(draw(n, width, seed=seed, dtype=F32))
    want = y.numpy().copy() if add else np.zeros((n, width), F32)
    for i, r in enumerate(ids):
        want[r] += x[i]
    indexing.add_rows(y, fp.tensor(x), fp.tensor(ids), width, add)
    assert y.numpy().tobytes() == want.tobytes()


def test_embedding_and_its_gradient() -> None:
    w, ids, g = draw(7, 5), ids_of(7, 4, 6), draw(4, 6, 5, seed=1)
    p = leaf(w)
    y = F.embedding(ids, p)
    close(y, w[ids])
    want = np.zeros_like(w)
    np.add.at(want, ids, g)
    close(y.backward(fp.tensor(g))[p], want)
    assert F.embedding(np.zeros((0, 2), int), p).shape == (0, 2, 5)
    assert F.embedding(np.zeros((0, 2), int), p).sum().backward()[p].numpy().tolist() == np.zeros((7, 5)).tolist()
    assert F.embedding(np.int64(3), p).shape == (5,)
    assert F.embedding(fp.tensor(ids).to(fp.int32), p).tolist() == y.tolist()
    assert fp.gradcheck(lambda p: F.embedding(ids, p), (p,), order=2)


def test_ids_are_checked_and_named() -> None:
    w = fp.zeros(4, 2)
    with raises(fp.IndexOutOfRange, "embedding: id out of range: 4 at position (1, 0), the table has 4 rows. Use 0 to 3."):
        F.embedding(np.array([[0, 3], [4, -1]]), w)
    with raises(fp.IndexOutOfRange, "embedding", "-1 at position (1,)"):
        F.embedding(np.array([0, -1]), w)
    with raises(fp.IndexOutOfRange, "embedding", "0 at position ()"):
        F.embedding(0, fp.zeros(0, 2))
    with raises(fp.IndexOutOfRange, "gather: index out of range: -5 at position (0, 1), axis has 4. Use 0 to 3."):
        fp.gather(w, 0, np.array([[0, -5]]))
    with raises(fp.IndexOutOfRange, "index_select", "2 at position (1,)", "axis has 2"):
        fp.index_select(w, 1, fp.tensor([0, 2]))
    with raises(fp.IndexOutOfRange, "index: index out of range: 4 at position (0,)"):
        w[fp.tensor([4])]
    with raises(fp.DTypeError, "gather: the index is not integer: float64"):
        fp.gather(w, 0, [[0.5, 0.5]])


def test_one_integer_index_of_any_kind() -> None:
    x = draw(3, 4, 5)
    t = leaf(x)
    for ids in (np.array([2, -1, 0, 2]), np.array([[1], [-3]]), np.array(-2), np.array([], int)):
        for index in (ids, fp.tensor(ids), fp.tensor(ids).to(fp.int32), ids.tolist() if ids.ndim else fp.tensor(ids)):
            assert np.array_equal(t[index].numpy(), x[ids])
    for axis, places in ((0, [2, 0, -1]), (1, [-4, 3]), (2, []), (-1, [4, 4])):
        index = np.array(places, int)
        for form in (index, fp.tensor(index)):
            picked = fp.index_select(t, axis, form)
            assert np.array_equal(picked.numpy(), np.take(x, index, axis))
            counts = np.bincount(index % x.shape[axis], minlength=x.shape[axis])
            close(picked.sum().backward()[t], np.moveaxis(np.moveaxis(np.zeros_like(x), axis, -1) + counts, -1, axis))
    for axis in range(3):
        shape = [2, 3, 4]
        shape[axis] = 6
        ids = np.random.default_rng(axis).integers(-x.shape[axis], x.shape[axis], shape)
        cut = x[tuple(slice(n if d == axis else m) for d, (m, n) in enumerate(zip(shape, x.shape, strict=True)))]
        for form in (ids, fp.tensor(ids)):
            assert np.array_equal(fp.gather(t, axis, form).numpy(), np.take_along_axis(cut, ids, axis))
    assert fp.gather(fp.tensor(3.0), 0, 0).item() == 3.0


def test_a_tied_embedding_adds_to_the_gradient_that_is_there() -> None:
    ids, targets, w = ids_of(11, 3, 4), ids_of(11, 3, 4, seed=1), draw(11, 6)
    loose, packed = leaf(w), fp.ParameterDict()
    packed.insert("other", fp.Parameter(draw(3)))
    packed.insert("w", fp.Parameter(w))
    packed.pack()
    results = []
    for p in (loose, packed["w"]):
        x = F.embedding(ids, p).tanh()
        loss = F.cross_entropy((x.reshape(12, 6) @ p.T), targets.reshape(-1)) + F.embedding(ids, p).square().mean()
        results.append(loss.backward()[p].numpy())
    close(results[1], results[0])


# ---- nothing is read by the host -------------------------------------------------------------------------------------------------
def test_replays_take_other_ids_and_check_them() -> None:
    model = nn.ModuleList([nn.Embedding(9, 6), nn.LayerNorm(6), nn.Linear(6, 5)])

    def step(ids: Any, targets: Any) -> Any:
        h = model[1](model[0](ids))
        rest = F.nll_loss(F.log_softmax(model[2](h)), targets, ignore_index=1) + fp.gather(h, 1, targets[:, None]).sum()
        rest = rest + h[targets].mean() + fp.index_select(h, 0, targets).square().mean()
        loss = F.cross_entropy(model[2](h), targets, ignore_index=2) + rest
        grads = loss.backward()
        return loss, [grads[p] for p in model.parameters()]

    captured = fp.capture(step)
    for seed in range(5):
        ids, targets = fp.tensor(ids_of(9, 8, seed=seed)), fp.tensor(ids_of(5, 8, seed=seed + 50))
        (loss, grads), (want, wanted) = captured(ids, targets), step(ids, targets)
        assert loss.item() == want.item()
        assert all(a.numpy().tobytes() == b.numpy().tobytes() for a, b in zip(grads, wanted, strict=True))
    with raises(fp.IndexOutOfRange, "embedding: id out of range: 9 at position (3,)"):
        captured(fp.tensor([0, 1, 2, 9, 0, 0, 0, 0]), targets)
    with raises(fp.IndexOutOfRange, "class id out of range: 5 at position (0,)"):
        captured(ids, fp.tensor([5, 1, 2, 0, 0, 0, 0, 0]))
    assert captured(ids, targets)[0].item() == want.item()


def test_probabilities_are_checked_in_replays() -> None:
    target = fp.tensor(np.array([0.0, 1.0], F32))
    captured = fp.capture(lambda x: F.binary_cross_entropy(x, target))
    for _ in range(3):
        assert captured(fp.tensor([0.25, 0.5])).item() == F.binary_cross_entropy(fp.tensor([0.25, 0.5]), target).item()
    with raises(ValueError, "binary_cross_entropy: not probabilities: from 0.25 to 1.5"):
        captured(fp.tensor([0.25, 1.5]))
    with raises(ValueError, "not probabilities", "nan"):
        F.binary_cross_entropy(fp.tensor([0.25, float("nan")]), target)


@pytest.mark.parametrize("ignores", [True, False])
@pytest.mark.parametrize("compiled", [True, False])
def test_check_ids(ignores: bool, compiled: bool) -> None:
    kernel = bind(index_loops.check_ids, None, I64, DIALECT) if compiled else lambda _, *args: index_loops.check_ids((0, 1), *args)
    for size, bad, seed in itertools.product((0, 1, 7, 100), (None, 0, -1), range(2)):
        ids = ids_of(6, size, seed=seed)
        if bad is not None and size:
            ids[bad], ids[0 if bad == -1 else -1] = 6, ids[0]
        if size > 2:
            ids[1] = -100
        found = np.zeros(3, I64)
        kernel(1, found, ids, 0, 6, ignores, -100)
        outside = [(i, v) for i, v in enumerate(ids.tolist()) if not (0 <= v < 6 or (ignores and v == -100))]
        assert tuple(found[:2]) == (outside[0] if outside else (-1, 0))
        assert found[2] == size - (ids == -100).sum() * ignores
