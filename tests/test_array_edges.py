"""Array ops where numbers tie, are infinite or of very different size, beside NumPy; each found by fuzzing."""

from __future__ import annotations

import math

import numpy as np
import pytest
from error_text import raises
from reference import REFERENCE
from test_ops import function

import flamepy as fp
import flamepy.nn.functional as F
from flamepy.core.errors import IndexOutOfRange

pytestmark = [pytest.mark.usefixtures("device"), pytest.mark.parametrize("device", ["plain"], indirect=True)]
INF, NAN = math.inf, math.nan


def gradient(f, x) -> list:
    x = fp.tensor(x, requires_grad=True)
    return f(x).sum().backward()[x].tolist()


def test_quantiles_between_infinities_and_equal_numbers() -> None:
    for x in ([-INF, 5.0], [INF, 5.0], [1.0, 2.0, 2.0, INF], [-INF, INF]):
        for q in (0.25, 0.5, 0.7, 0.75):
            with np.errstate(invalid="ignore"):
                want = np.quantile(np.float64(x), q)
            assert np.array_equal(fp.quantile(fp.tensor(x, dtype="float64"), q).numpy(), want, equal_nan=True), (x, q)
    assert fp.quantile(fp.tensor([-INF, -INF]), 0.3).item() == -INF
    assert gradient(lambda x: fp.quantile(x, 0.25), [3.0, 3.0]) == [0.75, 0.25]


def test_quantiles_are_captured() -> None:
    for f in (lambda x: fp.median(x, axis=0), lambda x: fp.quantile(x, [0.2, 0.3]), fp.nanmedian):
        captured = fp.capture(f)
        for seed in range(4):
            x = fp.tensor(np.random.default_rng(seed).normal(size=(5, 2)))
            assert np.array_equal(captured(x).numpy(), f(x).numpy())


def test_a_triangle_is_solved_by_substitution() -> None:
    a, b = np.random.default_rng(0).normal(size=(4, 4)), np.random.default_rng(1).normal(size=(4, 2))
    a[2] *= 1e20
    a[:, 1] *= 1e-20
    y = fp.linalg.solve_triangular(fp.tensor(a), fp.tensor(b), upper=False).numpy()
    want = np.zeros_like(b)
    for i in range(4):
        want[i] = (b[i] - a[i, :i] @ want[:i]) / a[i, i]
    np.testing.assert_allclose(y, want, 1e-13)
    with raises(np.linalg.LinAlgError, "solve_triangular: Singular matrix"):
        fp.linalg.solve_triangular(fp.zeros(2, 2), fp.ones(2, 1), upper=True)
    fp.tensor(7)  # what is gone may stand where zeros are counted
    assert fp.linalg.solve_triangular(fp.eye(2), fp.zeros(2, 0), upper=True).shape == (2, 0)


def test_norms_of_what_is_not_finite() -> None:
    for x in ([NAN, 1.0], [NAN, 0.0], [INF, INF], [INF, 1.0], [0.0, 1.0], [0.0, 0.0]):
        for p in (0, 0.5, 1, 2, 3, -1, INF, -INF):
            with np.errstate(divide="ignore"):
                want = np.linalg.norm(x, p)
            for norm in (fp.vector_norm, fp.linalg.vector_norm):
                assert np.isclose(norm(fp.tensor(x), p).item(), want, equal_nan=True), (x, p)


def test_nothing_is_put_into_nothing_and_has_a_gradient() -> None:
    for axis, ids in ((0, [1, 0]), (1, [])):
        x, y = (fp.zeros(2, 0).requires_grad_() for _ in range(2))
        grads = fp.index_copy(x, axis, fp.tensor(ids, dtype="int64"), y).sum().backward()
        assert grads[x].shape == grads[y].shape == (2, 0)


def test_an_axis_without_elements_has_as_many_chunks_as_asked_for() -> None:
    assert [t.shape for t in fp.chunk(fp.zeros(2, 0), 3, 1)] == [(2, 0)] * 3 and len(fp.chunk(fp.ones(2), 3)) == 2


def test_nan_is_not_lost_in_the_gradient_of_a_running_logarithm() -> None:
    assert np.isnan(gradient(fp.logcumsumexp, [1.0, NAN, 2.0])).all()
    assert gradient(fp.logcumsumexp, [-INF, INF, INF]) == [1.0, 2.0, 1.0]


def test_losses_of_classes_have_no_gradient_at_the_margin() -> None:
    assert gradient(lambda x: F.multi_margin_loss(x, 0), [2.0, 1.0, 0.0]) == [0.0, 0.0, 0.0]
    assert gradient(lambda x: F.multilabel_margin_loss(x, [0, -1, -1]), [2.0, 1.0, 0.0]) == [0.0, 0.0, 0.0]


def test_a_number_put_in_keeps_the_type() -> None:
    assert fp.index_fill(fp.tensor([1, 2], dtype="uint8"), 0, [0], 5).dtype == fp.uint8
    assert fp.index_fill(fp.tensor([False, False]), 0, [0], True).tolist() == [True, False]


def test_a_range_that_is_not_finite_has_no_parts() -> None:
    for x in ([NAN, 1.0], [INF, 1.0]):
        assert np.isnan(fp.histc(fp.tensor(x), 3).numpy()).all()
    assert fp.histc(fp.tensor([NAN, 1.0, 2.0]), 2, 0, 3).tolist() == [1.0, 1.0]
    assert fp.histc(fp.tensor([1.0, 2.0, 5.0]), 2, 3, 3).tolist() == [2.0, 1.0]  # ends that are alike: x's own, as in PyTorch


def test_a_read_on_the_host_is_called_by_the_op_s_name() -> None:
    captured = fp.capture(lambda x: fp.unique(x + 0))
    with raises(fp.CaptureError, "while it is recorded: unique()"):
        for _ in range(3):
            captured(fp.ones(2))


def test_the_type_asked_for_is_that_of_the_result() -> None:
    x, bytes_ = fp.tensor([1.5, 2.5, 3.5]), fp.tensor([200, 100], dtype="uint8")
    for dtype in ("bool", "int32", "uint8", "float64", "float16"):
        assert fp.sum(x, dtype=dtype).dtype == dtype and fp.nansum(x, dtype=dtype).dtype == dtype
    assert fp.sum(bytes_, dtype="uint8").item() == 44 and fp.sum(bytes_).item() == 300
    assert fp.nansum(fp.tensor([NAN, 2.0]), dtype="int64").item() == 2
    for f in (fp.mean, fp.nanmean, fp.norm):
        with raises(fp.DTypeError, "int64"):
            f(x, dtype="int64")
    with raises(fp.DTypeError, "cast: not supported: None"):
        fp.cast(x, None)
    with raises(ValueError, "norm: two orders"):
        fp.norm(x, 2, p=3)


def test_ends_of_differences_are_not_rounded() -> None:
    x = fp.tensor([1, 2], dtype="uint8")
    for end in (1.5, 300, 7, [1.5], [9, 1]):
        want = np.diff(np.array([1, 2], np.int64), append=end)
        assert fp.diff(x, append=end).tolist() == want.tolist(), end
    with raises(fp.DTypeError, "diff"):
        fp.diff(x, append="a")


@pytest.mark.parametrize(
    "name",
    [
        "addmm",
        "addmv",
        "addr",
        "addbmm",
        "baddbmm",
        "affine_grid",
        "avg_pool2d",
        "avg_pool3d",
        "cdist",
        "cross",
        "diff",
        "index_add",
        "scatter_add",
        "scatter_reduce",
        "logit",
    ],
)
def test_ops_made_of_several_round_16_bits_once(name: str) -> None:
    case = REFERENCE[name]
    for sample in case.samples[::3]:
        for dtype in ("float16", "bfloat16"):
            xs = [fp.tensor(a).to(dtype) if a.dtype.kind == "f" else fp.tensor(a) for a in case.draw(sample, "float32", 1)]
            wide = [x.to("float32") if x.dtype == dtype else x for x in xs]
            found, want = [function(name)(*given, *sample.args, **sample.kwargs) for given in (xs, wide)]
            assert found.dtype == dtype
            assert np.array_equal(found.numpy().view("u2"), want.to(dtype).numpy().view("u2")), sample


def test_a_factor_of_integers_is_no_fraction() -> None:
    x = fp.tensor([1, 2, 3])
    assert fp.index_add(x, 0, [0], x[:1], alpha=2).tolist() == [3, 2, 3]
    with raises(fp.DTypeError, "index_add: alpha is no whole number: 1.5"):
        fp.index_add(x, 0, [0], x[:1], alpha=1.5)


def test_what_reads_the_host_takes_numbers_rows_nan_and_no_elements() -> None:
    nan, zero = fp.tensor([1.0, NAN]), fp.zeros(0, 3)
    assert not fp.array_equal(nan, nan) and fp.array_equal(zero, zero) and fp.array_equal(fp.tensor([0.0]), [-0.0])
    for dtype in ("float16", "bfloat16", "float32", "float64"):  # which lie as integers, some
        a, b, c = (fp.tensor([v]).to(dtype) for v in (0.0, -0.0, NAN))
        assert fp.array_equal(a, b) is True and fp.array_equal(c, c) is False and fp.array_equal(a, c) is False
    assert not fp.array_equal(fp.tensor([1, 2]), fp.tensor([1, 3])) and fp.array_equal(fp.tensor([1.0]), fp.tensor([1]))
    assert fp.argwhere(fp.tensor(3)).shape == (1, 0) and fp.nonzero(fp.tensor(0)).shape == (0, 0) and fp.argwhere(zero).shape == (0, 2)
    assert [t.tolist() for t in fp.nonzero(fp.tensor(3), as_tuple=True)] == [[0]]
    x = fp.tensor([[1.0, 0.0], [2.0, -0.0]], dtype="bfloat16")
    assert fp.nonzero(x, size=3, fill_value=9).tolist() == [[0, 0], [1, 0], [9, 9]] and fp.nonzero(x, size=1).tolist() == [[0, 0]]
    assert fp.masked_select(x, fp.tensor([True, False]), size=3, fill_value=7).tolist() == [1.0, 2.0, 7.0]
    for call in (lambda **k: fp.nonzero(x, **k), lambda **k: fp.masked_select(x, x > 0.0, **k)):
        with raises(ValueError, ": size is below 0: -1"):
            call(size=-1)
    y = fp.tensor(np.arange(6.0).reshape(2, 3), requires_grad=True)
    gradient = (fp.masked_select(y, y > 2.0) * 2.0).sum().backward()[y]
    assert gradient.tolist() == [[0, 0, 0], [2, 2, 2]] and y[fp.tensor([False, True])].tolist() == [[3, 4, 5]]
    values, first = fp.unique(fp.tensor([0.0, NAN, -0.0, NAN]), return_index=True)
    assert first.tolist() == [0, 1] and not np.signbit(values.numpy()[0]) and fp.unique(x).dtype == fp.bfloat16
    assert fp.bincount(fp.tensor([], dtype="int64"), minlength=2).tolist() == [0, 0]
    for numbers, least in (([1, -1], 0), ([1], -1)):
        with pytest.raises(ValueError, match="bincount: below 0: minlength"):
            fp.bincount(fp.tensor(numbers), minlength=least)


def test_indices_of_triangles_are_tensors_of_their_own() -> None:
    found = [fp.tril_indices(3, m=2) for _ in range(4)]
    assert all([[t.tolist() for t in pair] == [[0, 1, 1, 2, 2], [0, 0, 1, 0, 1]] for pair in found])
    assert len({id(t.buffer) for pair in found for t in pair}) == 8 and type(found[3]) is tuple


def test_masked_scatter_says_which_element_and_lets_no_gradient_stray() -> None:
    x, mask = fp.tensor(np.zeros((2, 3)), requires_grad=True), fp.tensor([[True, False, True], [False, True, False]])
    source = fp.tensor([1.0, 2.0, 3.0, 4.0], dtype="float64", requires_grad=True)
    gradients = (fp.masked_scatter(x, mask, source) * fp.tensor([[1.0, NAN, 2.0], [INF, 3.0, NAN]], dtype="float64")).sum().backward()
    assert gradients[source].tolist() == [1.0, 2.0, 3.0, 0.0]
    with raises(IndexOutOfRange, "masked_scatter: source has 2 elements, the mask takes more: element 2 at position (4,). Give more."):
        fp.masked_scatter(x, mask, source[:2])


@pytest.mark.parametrize("where", ["cpu", "plain"])
def test_long_lines_are_rolled_and_padded_piece_by_piece(where: str) -> None:
    a = np.arange(2 * 9001, dtype=np.float32).reshape(2, 9001)
    x = fp.tensor(a, device=where)
    for shift in (1, -5, 4096, 8999):
        np.testing.assert_array_equal(fp.roll(x, (shift, 1), (1, 0)).numpy(), np.roll(a, (shift, 1), (1, 0)))
        np.testing.assert_array_equal(fp.roll(x, shift).numpy(), np.roll(a, shift))
    for mode, width in (("reflect", 9000), ("symmetric", 5000), ("edge", 9), ("wrap", 8000)):
        np.testing.assert_array_equal(fp.pad(x, ((1, 0), (width, 4096)), mode=mode).numpy(), np.pad(a, ((1, 0), (width, 4096)), mode))


def test_the_most_frequent_of_any_type_along_any_axis() -> None:
    x = np.random.default_rng(0).integers(0, 3, (2, 7, 3))
    for dtype in ("int8", "uint8", "bool", "int64", "float16", "float64"):
        y = x.astype(dtype)
        for axis in range(3):
            values, places = fp.mode(fp.tensor(y), axis)
            lines = np.moveaxis(y, axis, -1).reshape(-1, x.shape[axis])
            want = [min(set(line.tolist()), key=lambda v, line=line: (-line.tolist().count(v), v)) for line in lines]
            assert values.numpy().ravel().tolist() == want and values.numpy().dtype == y.dtype
            assert places.numpy().ravel().tolist() == [int(np.flatnonzero(line == v)[-1]) for line, v in zip(lines, want, strict=True)]
    with raises(fp.ShapeError, "mode: no elements to choose from: shape (3, 0)"):
        fp.mode(fp.zeros(3, 0))


def test_long_lines_are_resampled_by_tables_that_are_made_at_once() -> None:
    """Made row by row, these tables took half a minute."""
    n = 2_000_000
    x = fp.tensor(np.arange(n, dtype="f4").reshape(1, 1, n) % 64, requires_grad=True, device="cpu")
    assert (F.avg_pool1d(x, 2, 2).sum().backward()[x].numpy() == 0.5).all()
    assert np.array_equal(F.interpolate(x, n // 4).numpy(), x.numpy()[..., ::4])
    assert np.array_equal(F.adaptive_avg_pool1d(x, n // 4).numpy(), x.numpy().reshape(1, 1, -1, 4).mean(-1))


def test_logsumexp_of_nothing_leaves_second_derivatives_alone() -> None:
    """log(0) has an infinite slope, and its sum of no gradients is 0: their product would be NaN for x, too."""
    nothing, x = fp.tensor(np.zeros((0, 2)), requires_grad=True), fp.tensor(np.array([0.5, -1.0]), requires_grad=True)
    grads = (x * (fp.logsumexp(nothing, axis=0) - x)).sum().backward(create_graph=True)
    assert grads[x].tolist() == [-np.inf, -np.inf] and grads[nothing].shape == (0, 2)
    assert (grads[x].sum() + grads[nothing].sum()).backward()[x].tolist() == [-2, -2]
