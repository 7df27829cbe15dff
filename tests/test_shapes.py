"""Shapes as NumPy's and PyTorch's users write them: where the two differ nobody gets the other's answer in silence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from error_text import raises

import flamepy as fp
import flamepy.nn.functional as F

pytestmark = pytest.mark.usefixtures("device")
X = np.arange(6.0, dtype="f4").reshape(2, 3)


def repeated(shape: tuple[int, ...], *args: Any, **options: Any) -> list[Any]:
    return fp.tensor(np.arange(np.prod(shape), dtype="f4").reshape(shape)).repeat(*args, **options).tolist()


def test_repeat_as_a_function_is_numpys():
    assert fp.repeat(fp.tensor([1, 2]), 2).tolist() == [1, 1, 2, 2]
    assert fp.repeat(fp.tensor(X), 2, 0).tolist() == np.repeat(X, 2, 0).tolist() == fp.tensor(X).repeat(2, axis=0).tolist()
    assert fp.tensor(X).repeat_interleave(2, dim=1).tolist() == np.repeat(X, 2, 1).tolist()


@pytest.mark.parametrize("count", [2, 3, 16])
def test_elements_repeated_a_few_times_in_rows_of_any_length(count):
    for x in (np.arange(10_000, dtype="f4"), np.arange(30, dtype="f2").reshape(2, 3, 5), np.arange(6).reshape(2, 3) % 2 > 0):
        assert fp.repeat_interleave(fp.tensor(x), count, -1).numpy().tobytes() == np.repeat(x, count, -1).tobytes()
        wide = (*x.shape, count)
        assert np.array_equal(fp.broadcast_to(fp.tensor(x)[..., None], wide).numpy(), np.broadcast_to(x[..., None], wide))


def test_how_many_come_of_repeating_may_be_said():
    assert fp.repeat_interleave(fp.tensor([1, 2]), [2, 1], output_size=3).tolist() == [1, 1, 2]
    with raises(fp.errors.ShapeError, "output_size=4, there are 3"):
        fp.repeat_interleave(fp.tensor([1, 2]), [2, 1], output_size=4)


def test_repeat_as_a_method_takes_what_only_one_library_means():
    assert repeated((2, 3), 2, 3) == np.tile(X, (2, 3)).tolist()  # no axis 3
    assert repeated((2, 3), 2, 1, 1) == repeated((2, 3), (2, 1, 1)) == np.tile(X, (2, 1, 1)).tolist()
    assert repeated((2, 3), 2) == np.repeat(X, 2).tolist()  # PyTorch wants a count for each axis
    assert repeated((1, 2, 3), 2, 1) == np.repeat(X[None], 2, 1).tolist()
    assert repeated((), 3) == [0.0] * 3 and repeated((), [2, 2]) == [[0.0] * 2] * 2
    assert repeated((3,), np.array([1, 0, 2])) == [0.0, 2.0, 2.0]


@pytest.mark.parametrize(
    ("shape", "args"), [((3,), (2,)), ((3,), ([2],)), ((2, 3), (2, 1)), ((2, 3), (2, -1)), ((2,), ([2, 3],)), ((1, 2), ([2, 1],))]
)
def test_repeat_as_a_method_refuses_what_they_mean_differently(shape, args):
    with raises(fp.ShapeError, "repeat: NumPy and PyTorch differ", "x.tile(", "x.repeat_interleave("):
        repeated(shape, *args)


def test_names_of_axes_as_pytorch_spells_them():
    x = fp.tensor(X)
    assert x.roll(shifts=(1, 1), dims=(0, 1)).tolist() == np.roll(X, (1, 1), (0, 1)).tolist()
    assert x.flip(dims=(0,)).tolist() == x.flip(0).tolist() == x.flip([0]).tolist() == X[::-1].tolist()
    assert x.flip(0, 1).tolist() == X[::-1, ::-1].tolist() and x.flip().tolist() == x.flip(0, 1).tolist()
    assert x.flatten(start_dim=0, end_dim=1).shape == (6,) and x.diagonal(dim1=-1, dim2=0).tolist() == [0.0, 4.0]
    assert x.permute(dims=(1, 0)).shape == (3, 2) and x.swapdims(dim0=0, dim1=1).shape == (3, 2)
    assert fp.diag(x, diagonal=1).tolist() == [1.0, 5.0] and fp.diagflat(x, offset=0).shape == (6, 6)


def test_indices_of_all_kinds():
    x, rng = fp.tensor(np.arange(60.0).reshape(3, 4, 5)), np.arange(60.0).reshape(3, 4, 5)
    ids = fp.tensor([0, -1])
    for key, same in (
        (((0, 2),), ((0, 2),)), (([0, 2], ids), ([0, 2], [0, -1])), ((ids, slice(None), (1, 1)), ([0, -1], slice(None), (1, 1))),
        ([True, False, 2], [1, 0, 2]), ((Ellipsis, ids), (Ellipsis, [0, -1])), ((None, ids, 1), (None, [0, -1], 1)),
        ((slice(9, None, -2), slice(-9, 2)), (slice(9, None, -2), slice(-9, 2))), (([[0], [1]], ids), ([[0], [1]], [0, -1])),
        (([True, False, True], ids), ([True, False, True], [0, -1])), ((ids, None, ids), ([0, -1], None, [0, -1])),
    ):  # fmt: skip
        assert np.array_equal(x[key].numpy(), rng[same]), key


def test_indices_that_are_none():
    x = fp.ones(4, 3)
    for key, kind, text in (
        ((1, 3), IndexError, "out of bounds"), ((1, 2, 3), IndexError, "too many"), ((..., ...), IndexError, "single ellipsis"),
        (slice(None, None, 0), ValueError, "zero"), (slice(fp.tensor([3])), TypeError, "one integer"), ([1.5], IndexError, "not integers"),
        ([1.5], TypeError, "not integers"), (fp.tensor([True, False]), IndexError, "boolean"),
    ):  # fmt: skip
        with pytest.raises(kind, match=text):
            x[key]
    with pytest.raises(fp.FlameError, match="in place"):
        x[0] = 1.0


@pytest.mark.parametrize(("call", "kind", "text"), [
    (lambda x: x.flip((0, 0)), fp.ShapeError, "flip: an axis is given twice"),
    (lambda x: x.roll((1, 2)), fp.ShapeError, "roll: several shifts and no axes"),
    (lambda x: x.roll(1, (0, 1)), fp.ShapeError, "roll: not one shift for each axis"),
    (lambda x: x.roll((1, 2), 0), fp.ShapeError, "roll: not one shift for each axis"),
    (lambda x: x.rot90(1, (0, 0)), fp.ShapeError, "rot90: not two axes"),
    (lambda x: x.unfold(0, 9, 1), fp.ShapeError, "unfold: no such windows"),
    (lambda x: x.unfold(5, 1, 1), fp.IndexOutOfRange, "unfold: axis out of range"),
    (lambda x: x.unflatten(1, (2, 2)), fp.ShapeError, "unflatten: sizes do not make the axis"),
    (lambda x: x.tile(-1), fp.ShapeError, "tile"),
    (lambda x: x.moveaxis((0, 1), 0), fp.ShapeError, "moveaxis: places do not match"),
    (lambda x: x.diagonal(0, 1, 1), fp.ShapeError, "diagonal: the two axes are one"),
    (lambda x: x[0].diagonal(), fp.ShapeError, "diagonal: needs a matrix"),
    (lambda x: x.meshgrid(), fp.ShapeError, "meshgrid: more than one axis"),
    (lambda x: x[0].meshgrid(indexing="no"), ValueError, "meshgrid: unknown indexing"),
    (lambda x: x[0, 0].unbind(), fp.ShapeError, "unbind: no axis"),
    (lambda x: x[0, 0].chunk(2), fp.ShapeError, "split: no axis"),
    (lambda x: x.tensor_split(0), fp.ShapeError, "tensor_split"),
    (lambda x: x.unsqueeze(0).t(), fp.ShapeError, "t: more than two axes"),
    (lambda x: x.fliplr().fliplr()[0].fliplr(), fp.IndexOutOfRange, "fliplr: too few axes"),
    (F.one_hot, fp.DTypeError, "one_hot: ids are not integer"),
    (lambda x: F.one_hot(fp.tensor([3]), 3).numpy(), fp.IndexOutOfRange, "one_hot: id out of range: 3"),
    (lambda x: F.one_hot(fp.tensor([3]), -1), ValueError, "one_hot: a negative number"),
    (lambda x: fp.tril_indices(3, 3), TypeError, "positional"),
    (lambda x: fp.triu_indices(2.5), fp.ShapeError, "triu_indices: not a size: 2.5"),
    (lambda x: x.flip(0, out=x), TypeError, "out"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(call, kind, text):
    with pytest.raises(kind, match=text):
        call(fp.tensor(X))


def test_a_shape_error_is_both_libraries():
    for kind in (ValueError, RuntimeError):
        with pytest.raises(kind):
            fp.ones(2, 3).reshape(4)


def test_integers_bools_and_halves_are_moved_as_they_are():
    for dtype in (fp.int64, fp.int32, fp.bool_, fp.float16, fp.bfloat16):
        x = fp.tensor([[1, 0, 1], [0, 1, 1]]).to(dtype)
        for y in (x.flip(), x.roll(1, 1), x.tile(2), x.repeat_interleave(2), x.unfold(1, 2, 1), x.diagonal(), x.diag_embed(), x.rot90()):
            assert y.dtype == dtype
    assert F.one_hot(fp.tensor([1, 0]).to(fp.int32)).dtype == fp.int32 and F.one_hot(fp.tensor([1, 0])).tolist() == [[0, 1], [1, 0]]


def test_triangles_by_their_places():
    for k in (-1, 0, 2):
        assert [t.tolist() for t in fp.tril_indices(3, k=k, m=4)] == [t.tolist() for t in np.tril_indices(3, k, 4)]
        assert [t.tolist() for t in fp.triu_indices(3, k=k, m=4)] == [t.tolist() for t in np.triu_indices(3, k, 4)]
        assert fp.tri(3, 4, k).tolist() == np.tri(3, 4, k).tolist()
    x = fp.tensor(np.arange(9.0).reshape(3, 3))
    assert x[fp.tril_indices(3)].tolist() == [0.0, 3.0, 4.0, 6.0, 7.0, 8.0]
    for k, far in ((2**63 - 1, 9), (-(2**63), -9), (2**70, 9)):  # what is added to them would be the smallest number
        assert fp.tril(x, k).tolist() == np.tril(x.numpy(), far).tolist() and fp.triu(x, k).tolist() == np.triu(x.numpy(), far).tolist()
        assert len(fp.tril_indices(3, k=k)[0]) + len(fp.triu_indices(3, k=k)[0]) == fp.tri(3, 3, k).sum().item() + 9 * (k < 0) == 9
    step = fp.capture(lambda x: x[fp.triu_indices(3)])
    assert [step(x + n).tolist() for n in range(3)] == [[n, n + 1, n + 2, n + 4, n + 5, n + 8] for n in range(3)]


def test_pads_as_each_library_writes_them():
    x = fp.tensor(X)
    assert F.pad(x, (1, 0)).tolist() == x.pad((1, 0)).tolist() == np.pad(X, ((0, 0), (1, 0))).tolist()
    assert F.pad(x, (0, 1, 2, 0), value=3).tolist() == fp.pad(x, ((2, 0), (0, 1)), value=3).tolist()
    assert x.pad((None, (0, 1)), "edge").tolist() == F.pad(x, [0, 1], mode="replicate").tolist()
    assert fp.pad(x, 1, "wrap").tolist() == np.pad(X, 1, "wrap").tolist() and fp.pad(x[0], (1, 2)).tolist() == [0.0, *X[0], 0.0, 0.0]
    assert fp.pad(x, ((0, 0), (1, 0)), 2.5).tolist() == F.pad(x, (1, 0), "constant", 2.5).tolist()
    assert F.pad(fp.tensor([[1, 2]]), (1, 1), "circular").tolist() == [[2, 1, 2, 1]]
    assert F.pad(fp.ones((1, 3)).to(fp.bfloat16), (1, 1), "reflect").dtype == fp.bfloat16
    for call, kind, text in (
        (lambda: fp.pad(x, (1, 0)), fp.ShapeError, "F.pad() takes"), (lambda: x.pad(((1, 0),)), fp.ShapeError, "a pair"),
        (lambda: F.pad(x, (1, 0, 1)), fp.ShapeError, "an even number"), (lambda: F.pad(x, (0,) * 6), fp.ShapeError, "at most 2 axes"),
        (lambda: F.pad(x, (3, 0), "reflect"), fp.ShapeError, "Use up to 2"), (lambda: F.pad(x, (0, 4), "circular"), fp.ShapeError, "to 3"),
        (lambda: F.pad(x, (1, 0), "typo"), NotImplementedError, "unknown mode"), (lambda: F.pad(x, (1, 0), "typo"), ValueError, "'typo'"),
        (lambda: F.pad(x, (-4, 0)), fp.ShapeError, "takes off more"), (lambda: F.pad(x, (1, 0), "reflect", 2.0), fp.DTypeError, "no value"),
    ):  # fmt: skip
        with raises(kind, text):
            call()


def test_products_as_each_library_writes_them():
    a, b = np.random.default_rng(0).standard_normal((2, 3, 4, 4)).astype("f4")
    x, y = fp.tensor(a), fp.tensor(b)
    for text, same in (("ij...,ij...->ij", "ijk,ijk->ij"), ("...ij , ...kj", "bij,bkj->bik")):
        np.testing.assert_allclose(fp.einsum(text, [x, y]).numpy(), np.einsum(same, a, b), rtol=1e-5, atol=1e-5)
    assert fp.einsum("ij,jk", fp.tensor([[1, 2]]), fp.tensor([[3], [4]])).tolist() == [[11]]  # integers as well
    assert fp.dot(fp.tensor([1, 2]), fp.tensor([3, 4])).item() == 11 and x.dot(y).shape == (3, 4, 4)
    assert fp.tensordot(x, y, dims=([0, 1], [0, 2])).shape == (4, 4)
    assert fp.addmm(fp.tensor([float("nan")]), x[0], y[0], beta=0).isnan().sum().item() == 0
    ids = fp.arange(4).reshape(2, 2)
    for factors in ({"beta": 0}, {"alpha": 0}):
        z = fp.addmm(ids, ids, ids, **factors)  # integers stay what they are
        assert z.dtype == np.int64 and z.tolist() == ((ids @ ids) if "beta" in factors else ids).tolist()
    p = fp.tensor([[1.0, 2.0], [1.0, 2.0]], requires_grad=True)
    for n in (0.5, 1, 2, 3, float("inf")):  # points that coincide
        assert not fp.cdist(p, p, n).sum().backward()[p].numpy().any()
    for call, text in (
        (lambda: fp.einsum("...ik...,...jk->", x, y), "einsum: not letters"), (lambda: fp.einsum("ij,jk->ij", x[0]), "einsum: 2 operands"),
        (lambda: fp.einsum("ij,jk->iz", x[0], y[0]), "unknown one"), (lambda: fp.einsum("ij->ii", x[0]), "a letter twice"),
        (lambda: fp.einsum("ij->i", x), "not a letter for each"), (lambda: fp.einsum("ij,jk->ik", x[0], y[0, :3]), "'j' is 4 and 3"),
        (lambda: fp.einsum(x, "ij"), "come first"), (lambda: fp.einsum("ii->i", x[0, :1]), "no diagonal"),
        (lambda: fp.mm(x, y), "mm: takes tensors"), (lambda: fp.bmm(x, y[:2]), "not as many"), (lambda: fp.cross(x, y), "not 3 numbers"),
        (lambda: fp.addmm(x, x[0], y[0]), "another shape"), (lambda: fp.tensordot(x, y, ([0], [1])), "sizes of an axis differ"),
        (lambda: fp.multi_dot([x[0], y]), "no chain"), (lambda: fp.multi_dot([x[0], y[0], y[0, :3]]), "inner sizes"),
        (lambda: fp.cdist(x, y[..., :3]), "points do not fit"),
    ):  # fmt: skip
        with raises(fp.ShapeError, text):
            call()


def test_a_chain_is_multiplied_in_the_better_order():
    from flamepy.ops.contractions import best_order

    sizes = (("i", 1000), ("j", 2), ("k", 1000), ("l", 3))
    assert best_order((frozenset("ij"), frozenset("jk"), frozenset("kl")), frozenset("il"), sizes)[0] == (1, 2)


def test_captured_as_called():
    def step(x: Any) -> Any:
        y = (x.unfold(1, 2, 1).flip(0) * 2).roll(1, -1).tile(1, 2, 1).pad((1, 1), "reflect").diagonal(0, 1, 2).rot90()
        z = sum([t.sum() for t in fp.meshgrid(x[0], x[1])]) + (x.repeat_interleave([1, 2], 0) ** 2).sum()
        return (y * y).sum() + z

    run = fp.capture(lambda x: (loss := step(x), loss.backward()[x]))
    for seed in range(4):
        x = fp.tensor(np.random.default_rng(seed).standard_normal((2, 3)).astype("f4"), requires_grad=True)
        loss, g = run(x)
        want = step(x)
        assert loss.item() == want.item() and (g.numpy() == want.backward()[x].numpy()).all()


def test_unbind_is_one_op_of_which_parts_may_go_unused() -> None:
    x = fp.tensor(np.arange(6.0).reshape(2, 3), requires_grad=True, device="plain")
    for _ in range(3):  # as it is, recorded, planned
        parts = fp.unbind(x, 1)
        gradient = (parts[0] * -0.0 + parts[2] * 2.0).sum().backward()[x].numpy()
        assert len({id(part.entry) for part in parts}) == 1
        assert gradient.tolist() == [[0.0, 0.0, 2.0]] * 2 and np.signbit(gradient).tolist() == [[True, False, False]] * 2
    assert fp.unbind(fp.ones(0, 3)) == [] and [part.shape for part in fp.unbind(fp.ones(0, 2), 1)] == [(0,), (0,)]


@pytest.mark.parametrize("n", [64, 65])
def test_the_trace_of_few_and_of_many(n):
    a = np.random.default_rng(n).integers(-9, 9, (n + 1, n))
    for dtype in ("int64", "float32", "float64"):
        x = fp.tensor(a.astype(dtype))
        assert [fp.trace(x, k).item() for k in (0, -1, 1)] == [np.trace(a, k) for k in (0, -1, 1)]
    assert fp.trace(fp.tensor(a).to(fp.bfloat16)).dtype == fp.bfloat16
