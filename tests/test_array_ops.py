"""Scans, sorting, reductions and scattering at their edges: ties, NaN, other types, more threads, captured steps, errors."""

from __future__ import annotations

import numpy as np
import pytest
from error_text import raises

import flamepy as fp
import flamepy.nn.functional as F
from flamepy.core.op import REGISTRY

NAN, INF = float("nan"), float("inf")
ROW = np.array([1, NAN, 3, 2, NAN, -INF, INF, 3], "f4")


@pytest.mark.parametrize("device", ["plain", "cpu"])
def test_nan_goes_on_in_scans_and_comes_last_in_order(device):
    x = fp.tensor(ROW, device=device)
    values, indices = fp.cummax(x)
    assert np.array_equal(values.numpy(), [1, *[NAN] * 7], equal_nan=True) and indices.tolist() == [0, 1, 1, 1, 4, 4, 4, 4]
    assert fp.cummin(fp.tensor([2.0, 1.0, 1.0, 5.0], device=device)).indices.tolist() == [0, 1, 2, 2]
    assert fp.argsort(x).tolist() == [5, 0, 3, 2, 7, 6, 1, 4] and fp.argsort(x, descending=True).tolist() == [1, 4, 6, 2, 7, 3, 0, 5]
    assert fp.argsort(fp.tensor([0.0, -0.0, 0.0], device=device)).tolist() == [0, 1, 2]
    assert np.isnan(fp.median(x).item()) and fp.nanmedian(x).item() == 2.5
    assert fp.searchsorted(fp.tensor([1.0, NAN], device=device), [0.0, 2.0, NAN], side="right").tolist() == [0, 1, 2]
    low = fp.logcumsumexp(fp.tensor([-INF, -800.0, 3.0, INF], device=device)).numpy()
    assert np.array_equal(low, np.array([-INF, -800, 3, INF], "f4"))


@pytest.mark.parametrize("sizes", [(9, 5, 2), (5, 7, 8), (3, 90, 12), (3, 90, 3)], ids=str)
def test_scans_and_ids_of_few_lines_side_by_side(device, sizes):
    rng = np.random.default_rng(0)
    x, ids = rng.integers(-9, 9, sizes).astype("f4"), rng.integers(-sizes[1], sizes[1], sizes)
    p = fp.tensor(x, requires_grad=True, device=device)
    y = fp.cumsum(p, 1)
    assert np.array_equal(y.numpy(), np.cumsum(x, 1))
    assert np.array_equal((y * x).sum().backward()[p].numpy(), np.cumsum(x[:, ::-1], 1)[:, ::-1])
    values, places = fp.cummax(p, 1)
    top, at = np.maximum.accumulate(x, 1), np.arange(sizes[1])[:, None]
    last = [np.where(x[:, : k + 1] == top[:, k : k + 1], at[: k + 1], -1).max(1) for k in range(sizes[1])]
    assert np.array_equal(values.numpy(), top) and np.array_equal(places.numpy(), np.stack(last, 1))
    assert np.array_equal(fp.gather(p, 1, ids).numpy(), np.take_along_axis(x, ids, 1))


def test_what_is_put_and_overwritten_has_no_gradient_whatever_reaches_it(device):
    x, src = (fp.tensor(np.zeros(n, "f4"), requires_grad=True, device=device) for n in (4, 3))
    grads = fp.scatter(x, 0, [2, 0, 2], src).backward(fp.tensor([INF, 2.0, NAN, 3.0], device=device))
    assert grads[x].tolist() == [0, 2, 0, 3] and grads[src].tolist()[:2] == [0, INF] and np.isnan(grads[src].numpy()[2])


def test_products_with_zeros_have_every_derivative():
    for at in ([0.0, 2.0, 3.0, 4.0], [2.0, 0.0, 3.0, 0.0], [0.0, 0.0, 0.0]):
        x = fp.tensor(np.array(at), requires_grad=True, device="plain")
        for f in (
            lambda x: fp.cumprod(x, axis=0),
            fp.prod,
            lambda x: fp.scatter_reduce(fp.ones(2, dtype=x.dtype, device="plain"), 0, [0] * x.size, x, "prod"),
        ):
            assert fp.gradcheck(f, (x,), order=2), at


@pytest.mark.parametrize("zeros", [[], [7], [7, 20000]])
@pytest.mark.parametrize("shape", [(1 << 15,), (2, 24576), (16411,), (3, 300)])
def test_the_gradient_of_a_long_product_is_the_product_of_the_others(shape, zeros):
    """Also where a line is gone through as columns, and where there is no number of columns that divides it."""
    a = np.exp(np.random.default_rng(0).standard_normal(shape) / 200)
    a.reshape(-1)[[z for z in zeros if z < a.size]] = 0.0
    x, g = fp.tensor(a, requires_grad=True, device="cpu"), np.arange(1.0, 1.0 + a.size // shape[-1])
    y = fp.prod(x, -1).reshape(-1)
    dx = (y * fp.tensor(g, device="cpu")).sum().backward()[x].numpy()
    lines = a.reshape(-1, shape[-1])
    with np.errstate(divide="ignore"):
        logs = np.where(lines == 0, 0.0, np.log(lines))
    none = (lines == 0).sum(1, keepdims=True) - (lines == 0)  # zeros among the others
    want = np.where(none == 0, np.exp(logs.sum(1, keepdims=True) - logs), 0.0) * g[:, None]
    np.testing.assert_allclose(dx.reshape(lines.shape), want, rtol=1e-9)


def test_an_infinite_product_does_not_reach_the_next_place():
    y = fp.scatter(fp.tensor([1.0, 2.0, 3.0], device="plain"), 0, [0, 1, 0], INF, reduce="multiply")
    assert y.tolist() == [INF, INF, 3.0]
    assert fp.scatter(fp.ones(2, device="plain"), 0, [1, 1], 2.0, reduce="multiply").tolist() == [1.0, 4.0]
    assert fp.scatter(fp.ones(2, device="plain"), 0, [1, 1], 2.0, reduce="add").tolist() == [1.0, 5.0]


@pytest.mark.parametrize("reduce", ["add", "multiply"])
@pytest.mark.parametrize("axis", [0, -1])
def test_scatter_reduces_tensors_too(reduce, axis):
    rng = np.random.default_rng(0)
    x, src, index = rng.uniform(0.5, 1.5, (4, 3)), rng.uniform(0.5, 1.5, (4, 3)), rng.integers(0, 3, (2, 3))
    a, b = (fp.tensor(v, requires_grad=True, device="plain") for v in (x, src))
    y = a.scatter(axis, index, b, reduce=reduce)
    rows, columns = np.indices(index.shape)
    getattr(np, reduce).at(x, (index, columns) if axis == 0 else (rows, index), src[:2])
    np.testing.assert_allclose(y.numpy(), x, rtol=1e-14)
    assert fp.gradcheck(lambda a, b: fp.scatter(a, axis, index, b, reduce=reduce), (a, b))


@pytest.mark.parametrize("include_self", [True, False])
def test_a_product_at_one_place_has_its_derivatives_at_zeros_too(include_self):
    x, src, ids = np.array([[2.0, 0.0, 3.0, 4.0]]), np.array([[0.0, 2.0, 0.5, 0.0, 0.0, 3.0, 2.0]]), [[1, 2, 1, 2, 0, 0, 1]]
    a, b = (fp.tensor(v, requires_grad=True, device="plain") for v in (x, src))
    y = fp.scatter_reduce(a, 1, ids, b, "prod", include_self)
    assert y.tolist() == [[0.0, 0.0, 0.0, 4.0]]
    g = y.sum().backward()
    own = [2.0, 0.0, 3.0] if include_self else [1.0, 1.0, 1.0]
    assert g[a].tolist() == [[0.0, 0.0, 0.0, 1.0]]
    assert g[b].tolist() == [[own[1], 0.0, 0.0, own[2] * 2, own[0] * 3, 0.0, 0.0]]
    assert fp.gradcheck(lambda a, b: fp.scatter_reduce(a, 1, ids, b, "prod", include_self), (a, b), order=2)


def test_norms_at_zero_vectors_have_gradient_zero():
    for p in (2, 1, 3, 0.5, INF, 0):
        x = fp.zeros(2, 3, requires_grad=True, device="plain")
        assert not fp.norm(x, p, axis=1).sum().backward()[x].numpy().any(), p


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64", "bool"])
def test_whole_numbers_and_bools(dtype):
    a = np.array([[3, 0, 2], [1, 1, 0]]).astype(dtype)
    x = fp.tensor(a, device="plain")
    assert fp.cumsum(x, 1).dtype == "int64" and np.array_equal(fp.cumprod(x, 1).numpy(), np.cumprod(a, 1, dtype="i8"))
    values, order = fp.sort(x, 1)
    assert values.dtype == dtype and np.array_equal(order.numpy(), np.argsort(a, 1, kind="stable"))
    assert fp.sum(x).dtype == fp.prod(x).dtype == "int64" and fp.sum(x, dtype=fp.float32).item() == a.sum()
    assert fp.any(x, 1).tolist() == [True, True] and fp.all(x, 1).tolist() == [False, False]
    assert fp.cummax(x, 1)[0].dtype == dtype and fp.median(x).dtype == "float32"
    if dtype != "bool":
        ends = [fp.scatter_reduce(x, 0, [[1, 1, 1], [1, 1, 1]], x, how).numpy()[1] for how in ("amin", "amax")]
        assert np.array_equal(ends, [a.min(0), a.max(0)]) and ends[0].dtype == dtype
        assert fp.bincount(x[0]).tolist() == [1, 0, 1, 1]


@pytest.mark.parametrize("dtype", [fp.bfloat16, fp.float16])
def test_16_bits_are_added_up_in_more(dtype):
    h = fp.full((2, 3000), 0.01, dtype=dtype, device="cpu")
    exact = h.to(fp.float64).numpy()
    for name, want in (("cumsum", np.cumsum(exact, 1)), ("logcumsumexp", np.logaddexp.accumulate(exact, 1))):
        y = getattr(fp, name)(h, axis=1)
        assert y.dtype == dtype
        np.testing.assert_allclose(y.to(fp.float64).numpy(), want, 8e-3)
    x = fp.tensor(np.random.default_rng(0).normal(size=(3, 9)), device="cpu").to(dtype)
    assert np.array_equal(fp.sort(x).indices.numpy(), np.argsort(x.to(fp.float32).numpy(), 1, kind="stable"))
    for f in (fp.prod, fp.norm, F.normalize, fp.nanmean, lambda x: fp.scatter_add(x, 0, fp.zeros(1, 9, dtype=fp.int64), x)):
        assert f(x).dtype == dtype
    w = fp.ones(3, dtype=dtype, requires_grad=True, device="cpu")
    assert w.sum(dtype=fp.float64).backward()[w].dtype == "float32"


def test_the_last_one_counts_and_the_others_get_no_gradient():
    x, src = (fp.tensor(np.arange(1.0, 5.0), requires_grad=True, device="plain") for _ in range(2))
    for y in (fp.scatter(x, 0, [1, 1, 3, 1], src), fp.index_copy(x, 0, [1, 1, 3, 1], src), fp.index_put(x, ([1, 1, 3, 1],), src)):
        assert y.tolist() == [1, 4, 3, 3]
        grads = y.sum().backward()
        assert grads[x].tolist() == [1, 0, 1, 0] and grads[src].tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("shape", [(2,), (), (3, 1), (0,)], ids=str)
def test_one_integer_tensor_puts_whole_rows(shape):
    rng = np.random.default_rng(2)
    x, ids, values = rng.standard_normal((4, 3)), rng.integers(-4, 4, shape), rng.standard_normal((*shape, 3))
    for accumulate in (False, True):
        want = x.copy()
        if accumulate:
            np.add.at(want, ids, values)
        else:
            want[ids] = values
        args = fp.tensor(x, device="plain", requires_grad=True), fp.tensor(values, device="plain", requires_grad=True)
        put = lambda x, v, a=accumulate: fp.index_put(x, (fp.tensor(ids, device="plain"),), v, a)
        np.testing.assert_allclose(put(*args).numpy(), want, 1e-12)
        assert not values.size or fp.gradcheck(put, args, order=2)
    with raises(fp.IndexOutOfRange, "index_put: index out of range: 4 at position (1,), axis has 4."):
        fp.index_put(fp.zeros(4, 3), (fp.tensor([0, 4]),), 1.0)


def test_whole_numbers_are_added_exactly():
    much = 2**55 + 1
    for width in (1, 3, 40):
        y = fp.index_add(fp.tensor(np.zeros((2, width), int)), 0, [1] * 40, np.full((40, width), much))
        assert y.tolist() == [[0] * width, [40 * much] * width]
    assert fp.scatter_add(fp.tensor(np.zeros((1, 2), int)), 1, np.ones((1, 40), int), np.full((1, 40), much)).tolist() == [[0, 40 * much]]


def test_equal_extremes_share_the_gradient():
    x, src = fp.ones(2, requires_grad=True, device="plain"), fp.ones(3, requires_grad=True, device="plain")
    grads = fp.scatter_reduce(x, 0, [0, 0, 0], src, "amax").sum().backward()
    assert grads[x].tolist() == [0.25, 1.0] and grads[src].tolist() == [0.25] * 3
    grads = fp.scatter_reduce(x, 0, [0, 0, 0], src, "amin", include_self=False).sum().backward()
    assert grads[x].tolist() == [0.0, 1.0] and np.allclose(grads[src].numpy(), 1 / 3)


def test_captured_steps_give_the_eager_numbers():
    rng = np.random.default_rng(1)
    ids, x = fp.tensor(rng.integers(0, 4, (5, 6)), device="plain"), fp.tensor(rng.normal(size=(5, 6)), device="plain")

    def step(x, ids):
        y = fp.cumsum(x, 1) + fp.sort(x, 0).values + fp.cummax(x, 1).values
        y = fp.scatter_reduce(y, 0, ids, x, "amax") + fp.scatter(y, 1, ids, x) + fp.logcumsumexp(x, 1)
        return y, fp.topk(x, 2)[1], fp.std_mean(y)[0], fp.any(x > 1, axis=0), fp.masked_scatter(x, x > 0, y)

    captured = fp.capture(step)
    for _ in range(5):
        for a, b in zip(captured(x, ids), step(x, ids), strict=True):
            assert np.array_equal(a.numpy(), b.numpy())
        x = x * 1.5


@pytest.mark.parametrize("call", [fp.nonzero, fp.unique, lambda x: fp.masked_select(x, x > 0), lambda x: fp.where(x > 0)])
def test_what_has_no_known_size_is_refused_in_a_captured_step(call):
    def run(x):
        return call(x)

    step, x = fp.capture(run), fp.tensor([1.0, -1.0, 2.0], device="plain")
    step(x)
    with pytest.raises(fp.CaptureError, match="reads a number on the host"):
        step(x)


def test_names_of_both_libraries():
    x = fp.tensor([[3.0, 1.0, 2.0]], device="plain")
    assert x.sort(dim=1).values.tolist() == x.sort(1)[0].tolist() == [[1, 2, 3]] and x.argsort(1, True).tolist() == [[0, 2, 1]]
    assert x.topk(2, dim=1, largest=False, sorted=True).indices.tolist() == [[1, 2]]
    assert x.cumsum(dim=1).tolist() == x.cumsum(axis=1).tolist() and x.cumsum().shape == (3,)
    assert x.any(dim=1, keepdim=True).shape == (1, 1) and x.norm(p=1, dim=1).item() == x.norm(1, 1).item() == 6
    assert x.gather(dim=1, index=fp.tensor([[2]], device="plain")).tolist() == [[2]]
    assert [t.shape for t in x.std_mean(dim=1, unbiased=False)] == [(1,), (1,)] and fp.var(x[:, :1], axis=1, correction=1).isnan().all()
    assert x.quantile(0.5, dim=1, keepdim=True, interpolation="lower").item() == 2
    assert fp.numel(x) == 3 if hasattr(fp, "numel") else x.numel() == 3


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: fp.cumsum(x, 2), IndexError, "cumsum: axis out of range: 2"),
        (lambda x: fp.topk(x, 4, 1), ValueError, "topk: k is out of range: 4 of 3"),
        (lambda x: fp.kthvalue(x, 0), ValueError, "kthvalue: k is out of range"),
        (lambda x: fp.quantile(x, 1.5), ValueError, "quantile: no number from 0 to 1"),
        (lambda x: fp.quantile(x, 0.5, method="median_unbiased"), ValueError, "quantile: unknown method"),
        (lambda x: fp.searchsorted(x[0], x, side="up"), ValueError, "searchsorted: unknown side"),
        (lambda x: fp.searchsorted(x[0], x, side="left", right=True), ValueError, "searchsorted: two sides"),
        (lambda x: fp.bincount(x[0]), TypeError, "bincount: not integers"),
        (lambda x: fp.bincount([1, -1]), ValueError, "bincount: below 0"),
        (lambda x: fp.scatter(x, 0, [[0]], x, mode="typo"), TypeError, "mode"),
        (lambda x: fp.scatter(x, 0, [[0]], x, reduce="sum"), ValueError, "scatter: unknown reduce: 'sum'"),
        (lambda x: fp.scatter(x, 1, [[3]], x).numpy(), IndexError, r"scatter: index out of range: 3 at position \(0, 0\)"),
        (lambda x: fp.scatter_add(x, 1, [[3]], x).numpy(), IndexError, r"scatter_add: index out of range: 3 at position \(0, 0\)"),
        (lambda x: fp.scatter(x, 0, [[0] * 4], x), ValueError, "scatter: index .* do not fit"),
        (lambda x: fp.scatter(x, 0, [[0]], x.to(fp.float64)), TypeError, "scatter: x and src are of two types"),
        (lambda x: fp.scatter_reduce(x, 0, [[0]], x, "max"), RuntimeError, "scatter_reduce: unknown reduce: 'max'"),
        (lambda x: fp.index_add(x, 1, [0, 1], x), ValueError, "index_add: index .* do not fit"),
        (lambda x: fp.masked_select(x, x), TypeError, "masked_select: the mask is not bool"),
        (lambda x: fp.take(x, [9]).numpy(), IndexError, "take: index out of range: 9"),
        (lambda x: fp.take(x, [9], mode="wrong"), ValueError, "take: unknown mode"),
        (lambda x: fp.norm(x, "nuc"), ValueError, "norm: a norm of matrices"),
        (lambda x: fp.histc(fp.ones(3, requires_grad=True)), fp.GradientError, "histc: no derivative"),
        (lambda x: fp.logcumsumexp([1, 2]), TypeError, "logcumsumexp: needs floats"),
    ],
)
def test_what_does_not_fit_is_refused(call, error, text):
    with pytest.raises(error, match=text):
        call(fp.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], device="plain"))


def test_integers_keep_their_type():
    x = fp.tensor(np.arange(4, dtype="i4"), device="plain")
    assert fp.index_fill(x, 0, [1], -8).dtype == fp.scatter_reduce(x, 0, [0, 0], x[:2], "mean").dtype == fp.int32
    assert fp.index_fill(x > 2, 0, [1], True).tolist() == [False, True, False, True]
    assert fp.einsum("i,i", x, x).dtype == fp.einsum("ij->i", x.reshape(2, 2)).dtype == fp.dot(x, x).dtype == fp.int32
    weighted = fp.bincount(fp.tensor([1, 3], device="plain"), fp.tensor([2, -5], device="plain"))
    assert weighted.dtype == fp.float64 and weighted.tolist() == [0, 2, 0, -5]


def test_the_same_bits_for_any_number_of_threads():
    numba = pytest.importorskip("numba")
    rng, before, kept = np.random.default_rng(0), numba.get_num_threads(), []
    x, ids = fp.tensor(rng.normal(size=(70, 300)).astype("f4")), fp.tensor(rng.integers(0, 70, (70, 300)))
    for threads in (1, 2):
        numba.set_num_threads(min(threads, before))
        found = fp.cumsum(x, 1), fp.cumprod(x, 0), fp.sort(x).indices, fp.prod(x, 0), fp.scatter_add(x, 0, ids, x)
        kept.append([t.numpy().tobytes() for t in found])
    numba.set_num_threads(before)
    assert kept[0] == kept[1]


def test_one_launch_each_for_statistics_and_small_products() -> None:
    a = np.random.default_rng(0).standard_normal((2, 20_001)).astype("f4")
    np.testing.assert_allclose(fp.var(fp.tensor(a), axis=1).numpy(), a.astype("f8").var(axis=1), 1e-6)  # in parts, the last one short
    same = fp.tensor(np.full((2, 9), 1e6 + 0.3, np.float32)).requires_grad_()
    assert fp.std(same, axis=1).tolist() == [0.0, 0.0] and not fp.std(same).backward()[same].numpy().any()
    v = fp.tensor(a[:, :3])
    assert not fp.cross(v, v).numpy().any()  # also where products are fused
    x = fp.tensor([-np.inf, 1.0, np.inf, 1.0], dtype=fp.float64).requires_grad_()
    y = fp.logcumsumexp(x)
    assert y.tolist() == [-np.inf, 1.0, np.inf, np.inf] and y[:2].sum().backward()[x].tolist() == [1.0, 1.0, 0.0, 0.0]
    add = REGISTRY["add"]
    for _ in range(3):
        found = v + 1, v + 1.0, v + (1 << 60)
    assert (found[0].numpy() == found[1].numpy()).all() and (v.spec, int) not in add.plans.calls[True]


def test_differences_of_many_lines(device):
    x = np.random.default_rng(0).integers(-9, 9, (20, 3, 2)).astype("f4")
    for axis, n in ((1, 1), (2, 1), (1, 2)):
        assert np.array_equal(fp.diff(fp.tensor(x, device=device), n, axis).numpy(), np.diff(x, n, axis))
    wide = fp.tensor(x.astype("f8"), requires_grad=True, device=device)
    assert device == "cuda" or fp.gradcheck(lambda x: fp.diff(x, axis=1) * x[:, 1:], (wide,), order=2)


def test_the_first_of_a_long_line():
    ties = np.random.default_rng(0).integers(0, 300, 5000).astype("f4")
    for x in (ties, np.sort(ties), np.sort(ties)[::-1]):  # the second: too many are put in one before the other
        for largest in (True, False):
            found = fp.topk(fp.tensor(x.copy()), 60, largest=largest)
            assert found.indices.tolist() == np.argsort(-x if largest else x, kind="stable")[:60].tolist()
    assert np.array_equal(fp.unique(fp.tensor(ROW)).numpy(), np.unique(ROW), equal_nan=True) and fp.unique(fp.zeros(0)).shape == (0,)


@pytest.mark.parametrize("device", ["plain", "cpu"])
def test_what_is_put_along_any_axis_has_its_gradient(device):
    ids, rng = np.array([[2, 0, 2], [-1, 0, 1]]), np.random.default_rng(0)
    x, src = (fp.tensor(rng.normal(size=s), requires_grad=True, device=device) for s in ((3, 3), (2, 3)))
    for axis in (0, 1):
        assert fp.gradcheck(lambda x, src: fp.scatter(x, axis, ids, src) ** 2, (x, src), order=2)
    y = fp.scatter(x, 0, ids, src)
    assert y.tolist() == [[x[0, 0].item(), src[1, 1].item(), x[0, 2].item()], [*x[1].tolist()[:2], src[1, 2].item()],
                          [src[1, 0].item(), x[2, 1].item(), src[0, 2].item()]]  # fmt: skip
    assert y.sum().backward()[src].tolist() == [[0, 0, 1], [1, 1, 1]]


@pytest.mark.parametrize("p", [1, 2, np.inf])
def test_distances_of_points_one_by_one(device, p):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 5, 7)), rng.normal(size=(9, 7))
    a[:, 4], b[0] = 0.0, [2, -2, 1, 0, 0, 2, -1]  # three as far apart share the gradient
    b[3] = a[0, 1] + np.where(np.arange(7) == 2, 1e-6, 0.0)  # products would lose this
    want = abs(a[:, :, None] - b).max(-1) if p == np.inf else (abs(a[:, :, None] - b) ** p).sum(-1) ** (1 / p)
    x, y = (fp.tensor(t, requires_grad=True, device=device) for t in (a, b))
    np.testing.assert_allclose(fp.cdist(x, y, p).numpy(), want, 1e-12)
    far = abs(a[:, :, None] - b) == want[..., None]
    shares = {1: np.sign, 2: lambda d: d / want[..., None], np.inf: lambda d: np.sign(d) * far / far.sum(-1, keepdims=True)}
    unit = shares[p](a[:, :, None] - b)
    grads = fp.cdist(x, y, p).sum().backward()
    np.testing.assert_allclose(grads[x].numpy(), unit.sum(2), 1e-10, 1e-12)
    np.testing.assert_allclose(grads[y].numpy(), -unit.sum((0, 1)), 1e-10, 1e-12)
    assert np.isnan(fp.cdist(x, y * np.nan, p).numpy()).all() and np.isnan(fp.cdist(x * np.nan, y, 3).numpy()).all()
    assert device == "cuda" or fp.gradcheck(lambda x, y: fp.cdist(x[:, :2], y[4:], p), (x, y), order=2)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i1", "i8"])
@pytest.mark.parametrize("lines", [1, 5])
def test_extremes_of_long_lines_so_far(dtype, lines):
    rng = np.random.default_rng(0)
    x = rng.integers(-50, 50, (lines, 1001))
    x[:, :200] = np.sort(x[:, :200])
    x[:, 300:500] = np.linspace(0, 100, 200) + rng.integers(0, 20, 200)
    x = (x if lines == 1 else np.concatenate([x, -x])).astype(dtype)
    if dtype[0] == "f":
        x[-1, 701] = x[-1, 900] = NAN
    for f, best in ((fp.cummax, np.maximum), (fp.cummin, np.minimum)):
        values, indices = f(fp.tensor(x), 1)
        so_far = best.accumulate(x, 1)
        assert np.array_equal(values.numpy(), so_far, equal_nan=dtype[0] == "f")
        hit = (x == so_far) | ((x != x) & (so_far != so_far))
        assert np.array_equal(indices.numpy(), np.maximum.accumulate(np.where(hit, np.arange(1001), 0), 1))
