"""Picked rows: embedding, gather, index_select and indices of integers, their gradients, and how ids are checked.

Oracles are NumPy and loops in the order of the ids. Integer ids are never read by the host: a captured step is replayed with
others.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from error_text import raises
from hypothesis import given, settings
from hypothesis import strategies as st
from rows_tools import F32, F64, I64, close, draw, ids_of, leaf, same_for_any_workers

import flamepy as fp
import flamepy.nn.functional as F
from flamepy import nn
from flamepy.backend.cpu.device import CpuStream
from flamepy.backend.cpu.loops import index as index_loops
from flamepy.backend.cpu.loops.along import FEW
from flamepy.backend.cpu.runtime.compiler import DIALECT
from flamepy.backend.formula.bind import bind
from flamepy.ops import indexing
from flamepy.ops.picking import along_added
from flamepy.ops.scattering import latest, recurred_along

# ---- embedding and the gradients of picked rows ----------------------------------------------------------------------------------
TABLES = [(1, 1, 1), (2, 300, 50), (65, 128, 300), (65, 5, 70), (700, 16, 90), (3000, 96, 40), (40000, 32, 200), (200, 4096, 60), (9, 3, 0)]


@pytest.mark.parametrize("sizes", TABLES, ids=str)
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_rows_are_added_in_order_whoever_does_it(sizes: tuple[int, int, int], dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    n, width, count = sizes
    x, start = draw(count, width, dtype=dtype), draw(n, width, seed=1, dtype=dtype)
    ids = np.minimum(np.random.default_rng(0).zipf(1.3, count) - 1, n - 1)
    plans: list[Any] = []
    monkeypatch.setattr(CpuStream, "run", lambda stream, kernel, outs, ins, consts: plans.append((kernel.loop.__name__, outs, ins, consts)))
    for add in (True, False):
        plans.clear()
        indexing.add_rows(fp.tensor(start), fp.tensor(x), fp.tensor(ids), width, add)
        if not start.size:
            assert not plans
            continue
        blank, flat = start.reshape(-1) if add else np.full(n * width, np.nan, dtype), x.reshape(-1)
        name, outs, _, consts = plans[-1]
        scratch = [np.full(b.size, -7, b.dtype) for b in outs[1:]]
        if name == "add_rows":
            scratch = same_for_any_workers("chain_rows", None, np.dtype("int64"), scratch, ids)
        got = same_for_any_workers(name, None, dtype, [blank, *scratch], flat, ids, *consts)[0].reshape(start.shape)
        want, wide = (start.astype(kind) if add else np.zeros((n, width), kind) for kind in (dtype, np.float64))
        np.add.at(wide, ids, x)
        for i, r in enumerate(ids):
            want[r] += x[i]
        often = np.bincount(ids, minlength=n) > 16
        if name == "add_rows":  # in the order of the ids: equal to the last bit, unless they are many
            assert got[~often].tobytes() == want[~often].tobytes()
        total = abs(start) if add else np.zeros((n, width))
        np.add.at(total, ids, abs(x))
        assert (abs(got - wide) <= 3e-7 * total).all()


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 400), st.integers(1, 200), st.integers(0, 60), st.booleans(), st.integers(0, 10**6))
def test_rows_are_added_whatever_the_sizes(n: int, width: int, count: int, add: bool, seed: int) -> None:
    ids, x = ids_of(n, count, seed=seed), draw(count, width, seed=seed, dtype=F32)
    y = fp.tensor(draw(n, width, seed=seed, dtype=F32))
    want = y.numpy().copy() if add else np.zeros((n, width), F32)
    exact, total = want.astype(np.float64), abs(want)
    for i, r in enumerate(ids):
        want[r] += x[i]
    np.add.at(exact, ids, x)
    np.add.at(total, ids, abs(x))
    indexing.add_rows(y, fp.tensor(x), fp.tensor(ids), width, add)
    assert (abs(y.numpy() - exact) <= 3e-7 * total).all()
    assert count > 16 or y.numpy().tobytes() == want.tobytes()


@pytest.mark.parametrize(
    "sizes", [(40, 30, 50, 1), (3, 20, 9000, 1), (2, 9, 40, 700), (5, 60, 1, 12), (2, 5, 700, 3), (99, 7, 9, 1)], ids=str
)
def test_numbers_are_added_along_an_axis_in_order_whoever_does_it(sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    outer, n, m, inner = sizes
    x, ids = draw(outer, m, inner, dtype=F32), np.random.default_rng(1).integers(-n, n, (outer, m, inner))
    wide = np.zeros((outer, n, inner), F32 if m <= FEW else np.float64)
    np.add.at(wide, (np.arange(outer)[:, None, None], ids, np.arange(inner)), x)  # one after the other; more than FEW rounded at the end
    plans: list[Any] = []
    monkeypatch.setattr(CpuStream, "run", lambda stream, kernel, outs, ins, consts: plans.append((outs, consts)))
    along_added.body(fp.tensor(x), fp.tensor(ids), n, m, inner, wide.shape)
    blank = [np.full(b.size, np.nan, b.dtype) for b in plans[-1][0]]
    if m <= FEW:
        assert (len(plans), plans[0][1]) == (2, (0.0,))  # zeros come first, by a launch of their own
        blank[0][:] = 0.0
    got = same_for_any_workers("add_along", None, F32, blank, x.reshape(-1), ids.reshape(-1), *plans[-1][1])[0]
    assert got.tobytes() == wide.astype(F32).tobytes()
    take = "take_few" if 1 < inner < FEW else "take_along"
    got = same_for_any_workers(take, None, F32, [np.empty(x.size, F32)], got, ids.reshape(-1), n, m, inner)[0]
    assert got.tobytes() == np.take_along_axis(wide.astype(F32), ids, 1).tobytes()
    put = np.zeros(wide.shape, F32)
    for j in range(m):
        np.put_along_axis(put, ids[:, j : j + 1], x[:, j : j + 1], 1)
    zeros = np.zeros(put.size, F32)
    blank = [zeros.copy() if inner == 1 else np.full(put.size, np.nan, F32), np.zeros(3 * n * 8, F32)]  # neighbours are put into a copy
    got = same_for_any_workers("put_along", latest, F32, blank, zeros, x.reshape(-1), ids.reshape(-1), n, m, inner, 8, 3)[0]
    assert got.tobytes() == put.tobytes()
    for reverse in (False, True):
        start, by, more, before = (draw(*shape, dtype=F32, seed=seed) for seed, shape in enumerate([put.shape, x.shape, x.shape, x.shape]))
        want = start.astype(np.float64)
        for j in range(m)[:: -1 if reverse else 1]:
            at = ids[:, j : j + 1]
            before[:, j : j + 1] = now = np.take_along_axis(want, at, 1)
            np.put_along_axis(want, at, now * by[:, j : j + 1] + more[:, j : j + 1], 1)
        recurred_along.body(*map(fp.tensor, (start, by, more, ids)), n, m, inner, "", reverse)
        blank = [np.full(b.size, np.nan, b.dtype) for b in plans[-1][0]]
        flat = [v.reshape(-1) for v in (start, by, more, ids)]
        got = same_for_any_workers("recur_along", None, F32, blank, *flat, *plans[-1][1])
        np.testing.assert_allclose(got[0], want.reshape(-1), rtol=2e-7, atol=1e-10)
        np.testing.assert_allclose(got[1], before.reshape(-1), rtol=2e-7, atol=1e-10)


def test_many_ids_are_looked_at_in_pieces() -> None:
    ids = np.zeros(3 * index_loops.PIECE, int)
    for at in (ids.size - 1, index_loops.PIECE + 5):
        ids[at] = 4
        with raises(fp.IndexOutOfRange, f"index out of range: 4 at position ({at},), axis has 3."):
            fp.gather(fp.zeros(3), 0, ids)
    assert indexing.id_counts(fp.tensor(ids), 0, 9, True, 4).tolist() == [-1, 0, ids.size - 2]


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


@pytest.mark.parametrize("ignores", [True, False])
@pytest.mark.parametrize("compiled", [True, False])
def test_check_ids(ignores: bool, compiled: bool) -> None:
    pieces = index_loops.check_pieces
    kernel = bind(pieces, None, I64, DIALECT) if compiled else lambda _, *args: pieces((0, 1), *args)
    for size, bad, seed in itertools.product((0, 1, 7, 100), (None, 0, -1), range(2)):
        ids = ids_of(6, size, seed=seed)
        if bad is not None and size:
            ids[bad], ids[0 if bad == -1 else -1] = 6, ids[0]
        if size > 2:
            ids[1] = -100
        found = np.zeros(3, I64)
        kernel(1, found, ids, size, 0, 6, ignores, -100)
        outside = [(i, v) for i, v in enumerate(ids.tolist()) if not (0 <= v < 6 or (ignores and v == -100))]
        assert tuple(found[:2]) == (outside[0] if outside else (-1, 0))
        assert found[2] == size - (ids == -100).sum() * ignores


# ---- several arrays, and masks ---------------------------------------------------------------------------------------------------
ROW, COLUMN, PLANE = (np.random.default_rng(n).integers(-n, n, (2, 3)) for n in (6, 5, 4))
MASK = np.random.default_rng(0).random((6, 5)) > 0.5
KEYS = [
    (ROW, COLUMN), (ROW, COLUMN, PLANE), (ROW, COLUMN[:1]), (ROW[:, :1], COLUMN), (MASK,), (MASK[:, 0],), (MASK, slice(1, 3)), (ROW, 2),
    (ROW, slice(None), PLANE), (np.zeros((6, 5), bool),), (ROW[:0], COLUMN[:0]), (ROW.astype("i4"), COLUMN % 5), (np.array(2), np.array(1)),
]  # fmt: skip


@pytest.mark.parametrize("key", KEYS, ids=range(len(KEYS)))
def test_arrays_and_masks_pick_as_in_numpy(key: tuple) -> None:
    x = draw(6, 5, 4, dtype=F32)
    leaf_x = leaf(x)
    y = leaf_x[key]
    np.testing.assert_array_equal(y.numpy(), x[key])
    g, want = draw(*y.shape, seed=1, dtype=F32), np.zeros(x.shape)
    np.add.at(want, key, g)
    np.testing.assert_allclose(y.backward(fp.tensor(g))[leaf_x].numpy(), want, 1e-6, 1e-6)


@pytest.mark.parametrize("key", [(ROW * 0 + 6, COLUMN), (ROW, COLUMN * 0 - 6), (MASK.T,), (ROW, COLUMN[:, :2])], ids=range(4))
def test_arrays_that_do_not_fit_are_refused(key: tuple) -> None:
    with raises(IndexError, "index", "(6, 5, 4)"):
        fp.zeros(6, 5, 4)[key]


# ---- strided copies --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("shape", [(7, 5, 3, 33), (2, 9001), (40, 3, 4), (1, 5000, 2), (300, 7)], ids=str)
def test_strided_copies_whoever_does_them(shape: tuple[int, ...]) -> None:
    x = draw(*shape, dtype=F32)
    for view in (x, np.swapaxes(x, 0, -2), x[..., ::-2], x[::-1], np.moveaxis(x, -1, 0), x[1:, ..., 1:]):
        strides = tuple(s // 4 for s in view.strides)
        base = (view.__array_interface__["data"][0] - x.__array_interface__["data"][0]) // 4
        table, *rest = index_loops.walk(view.shape, strides)
        consts = np.array(table, np.int64), *rest, base
        blank = np.full(view.size, np.nan, F32)
        (got,) = same_for_any_workers("strided_get", None, F32, [blank], x.reshape(-1), *consts)
        np.testing.assert_array_equal(got.reshape(view.shape), view)
        new, want = draw(*view.shape, seed=1, dtype=F32), x.copy()
        np.lib.stride_tricks.as_strided(want.reshape(-1)[base:], view.shape, view.strides)[...] = new
        (got,) = same_for_any_workers("strided_put", None, F32, [x.reshape(-1)], new.reshape(-1), *consts)
        np.testing.assert_array_equal(got, want.reshape(-1))


# ---- ids that are checked where they are used -------------------------------------------------------------------------------------
CHECKED = {
    "gather": lambda x, ids: fp.gather(x, 0, ids.reshape((3, 1))), "take": lambda x, ids: fp.take(x, ids, 0),
    "index": lambda x, ids: x[ids], "scatter": lambda x, ids: fp.scatter(x, 0, ids.reshape((3, 1)), x[:3, :1]),
    "index_add": lambda x, ids: fp.index_add(x, 0, ids, x[:3]), "index_copy": lambda x, ids: fp.index_copy(x, 0, ids, x[:3]),
    "index_put": lambda x, ids: fp.index_put(x, (ids,), x[:3]),
}  # fmt: skip


@pytest.mark.parametrize("name", CHECKED)
def test_a_wrong_id_of_a_planned_call_is_refused_like_that_of_the_first(name: str, device: str) -> None:
    function, position = CHECKED[name], r"\(1, 0\)" if name in ("gather", "scatter") else r"\(1,\)"
    x, good = fp.tensor(np.arange(8, dtype=F32).reshape(4, 2)), fp.tensor([0, -1, 1])
    text = rf"{name}: index out of range: 4 at position {position}, axis has 4. Use 0 to 3."
    with pytest.raises(IndexError, match=text):
        function(x, fp.tensor([0, 4, 7])).numpy()
    want = [function(x, good).numpy() for _ in range(4)]
    step = fp.capture(lambda ids: function(x, ids))
    assert {w.tobytes() for w in want} == {step(good).numpy().tobytes() for _ in range(3)}
    for wrong in (function, lambda _, ids: step(ids)):
        with pytest.raises(IndexError, match=text):
            wrong(x, fp.tensor([0, 4, 7])).numpy()
        assert function(x, good).numpy().tobytes() == step(good).numpy().tobytes() == want[0].tobytes()


def test_no_parameter_moves_after_a_wrong_id_of_a_planned_call(device: str) -> None:
    weight = fp.Parameter(np.ones((4, 2), F32))
    opt = fp.SGD([weight], lr=0.5)

    def step(ids: Any) -> None:
        opt.step(fp.index_select(weight, 0, ids).sum().backward())

    for _ in range(4):
        step(fp.tensor([0, 0, 3]))
    before = weight.numpy().copy()
    with pytest.raises(IndexError, match="index_select: index out of range: 9"):
        step(fp.tensor([0, 9, 1]))
        weight.numpy()
    assert weight.numpy().tobytes() == before.tobytes()


def test_several_tensors_as_index_are_not_read_by_the_host(device: str) -> None:
    x, first, last = np.arange(24, dtype=F32).reshape(2, 3, 4), np.array([0, 1, -1]), np.array([[2, -3, 1], [0, 1, 3], [3, -4, 0]])
    t, keys = fp.tensor(x), [fp.tensor(first), fp.tensor(last[0] % 3), fp.tensor(last[1])]
    want = [x[first, last[0] % 3], x[first, last[0] % 3, last[1]]]
    step = fp.capture(lambda *ids: (t[ids[:2]], t[ids]))
    for y in [(t[keys[0], keys[1]], t[tuple(keys)]) for _ in range(4)] + [step(*keys) for _ in range(4)]:
        assert [part.numpy().tobytes() for part in y] == [part.tobytes() for part in want]
    with pytest.raises(IndexError, match=r"index: index -5 is out of bounds for axis 2 with size 4: shape \(2, 3, 4\)."):
        t[keys[0], keys[1], fp.tensor([0, -5, 9])].numpy()
    leaf = fp.tensor(x, requires_grad=True)
    back = leaf[keys[0], keys[0]].sum().backward()[leaf].numpy()
    assert back.sum(-1).tolist() == [[4, 0, 0], [0, 4, 4]]


def test_tensors_beside_numbers_and_slices_are_not_read_by_the_host(device: str) -> None:
    x, a, b = np.arange(120, dtype=F32).reshape(2, 3, 4, 5), np.array([1, 0, -1]), np.array([[2], [-3]])
    every, t = slice(None), fp.tensor(x, requires_grad=True)
    keys: list[Any] = [
        (a, 1, a), (every, a), (..., a), (every, a, b), (1, a), (every, None, a, every, slice(1, None, 2)), (a, b), (every, 0, a, b),
        (every, every, a, -1),
    ]  # fmt: skip
    step = fp.capture(lambda first, second: [t[tuple([first if k is a else second if k is b else k for k in key])] for key in keys])
    for _ in range(3):
        for key, y in zip(keys, step(fp.tensor(a), fp.tensor(b)), strict=True):
            np.testing.assert_array_equal(y.numpy(), x[key])
    for key in keys:
        want = np.zeros(x.shape)
        np.add.at(want, key, 1)
        assert t[key].sum().backward()[t].tolist() == want.tolist()


def test_index_fill_tells_zeros_apart_and_integers_from_floats() -> None:
    x, n = fp.tensor([1.0, 2.0]), fp.tensor([1, 2])
    for _ in range(5):
        assert [np.signbit(fp.index_fill(x, 0, [1], zero).numpy()[1]) for zero in (0.0, -0.0)] == [False, True]
        assert [fp.index_fill(t, 0, [0], 1).dtype for t in (x, n)] == [F32, I64]
    with raises(fp.IndexOutOfRange, "index_fill: index out of range: 2 at position (1,)"):
        fp.index_fill(x, 0, [1, 2], 1.0).numpy()


def test_arrays_of_numpy_pick_as_tensors_do() -> None:
    a, rng = np.arange(24.0, dtype=F32).reshape(4, 3, 2), np.random.default_rng(0)
    x = leaf(a)
    for kind in (np.int64, np.int32, np.uint8):
        for _ in range(4):
            i, j = rng.integers(0, 3, (2, 1)).astype(kind), rng.integers(0, 3, 5).astype(kind)
            for key in (i, (i, j), (j, j, j % 2), (i, slice(1), j % 2), (slice(None), j)):
                np.testing.assert_array_equal(x[key].numpy(), a[key])
                np.testing.assert_array_equal(x[key].sum().backward()[x].numpy(), counted_picks(a, key))
    with raises(fp.IndexOutOfRange, "index: index 3 is out of bounds for axis 1 with size 3"):
        x[np.array([0, 1]), np.array([2, 3])].numpy()
    with raises(fp.IndexOutOfRange, "too many indices"):
        fp.tensor(1.0)[np.array([0])]


def counted_picks(a: np.ndarray, key: Any) -> np.ndarray:
    """How often a[key] has each element."""
    found = np.zeros_like(a)
    np.add.at(found, key, 1.0)
    return found
