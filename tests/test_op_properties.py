"""Properties that hold for every op, whatever the numbers: broadcasting is NumPy's, a vjp is linear, indexing loses nothing.

Hypothesis draws the shapes, axes and keys. What is not an argument of an op is refused by every op; 16-bit floats keep
their dtype and get float32 gradients.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, basic_indices, mutually_broadcastable_shapes
from reference import FAMILIES, REFERENCE
from test_ops import FIRST as FIRST
from test_ops import SMOOTH, floats_of, function, leaves, on_floats, pieces, plain_samples, run

import flamepy as fp

pytestmark = pytest.mark.usefixtures("device")

quick = settings(max_examples=40, deadline=None, derandomize=True)


def numbers(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-2, 2, shape)


@quick
@given(mutually_broadcastable_shapes(num_shapes=2, max_dims=4, max_side=4, min_side=0))
def test_broadcasting_is_that_of_numpy(shapes: Any) -> None:
    """Of one op, in which the order counts: a kernel is compiled for each way to broadcast, and the ways are those of all ops."""
    a, b = (numbers(s, i) for i, s in enumerate(shapes.input_shapes))
    x, w = leaves([a, b])
    y = x - w
    np.testing.assert_array_equal(y.numpy(), a - b)
    grads = y.backward(gradient=fp.ones_like(y)) if y.size else {}
    for t in (x, w):
        assert not y.size or grads[t].shape == t.shape


@pytest.mark.parametrize("device", ["cuda"], indirect=True)
@settings(max_examples=4, deadline=None, derandomize=True)  # emulated: each new way to broadcast is a kernel
@given(mutually_broadcastable_shapes(num_shapes=2, max_dims=4, max_side=4), st.integers(0, 9))
def test_gradient_of_a_broadcast_input_on_a_gpu(shapes: Any, seed: int) -> None:
    broadcast_and_summed(shapes, seed)


@pytest.mark.parametrize("device", ["cpu", "plain"], indirect=True)
@quick
@given(mutually_broadcastable_shapes(num_shapes=2, max_dims=4, max_side=4), st.integers(0, 9))
def test_gradient_of_a_broadcast_input_is_the_sum(shapes: Any, seed: int) -> None:
    broadcast_and_summed(shapes, seed)


def broadcast_and_summed(shapes: Any, seed: int) -> None:
    """Broadcasting inside the op and broadcasting first give the same gradient, which is the cotangent summed."""
    a, b = (numbers(s, seed + i) for i, s in enumerate(shapes.input_shapes))
    g = numbers(shapes.result_shape, seed + 2)
    x, w = leaves([a, b])
    found = (x * w).backward(gradient=fp.tensor(g))[x].numpy()
    first = (fp.broadcast_to(x, g.shape) * w).backward(gradient=fp.tensor(g))[x].numpy()
    full = g * np.broadcast_to(b, g.shape)
    lead = full.sum(tuple(range(g.ndim - a.ndim)))
    expected = lead.sum(tuple(i for i, n in enumerate(a.shape) if n == 1), keepdims=True).reshape(a.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(first, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("device", ["plain"], indirect=True)  # of rules, not of kernels: nothing has to be compiled for it
@quick
@given(st.sampled_from([n for n in SMOOTH if n != "dropout"]), st.integers(0, 3), st.floats(-2, 2))
def test_vjp_is_linear(name: str, seed: int, c: float) -> None:
    """vjp(g1 + c g2) = vjp(g1) + c vjp(g2), for every op."""
    case = REFERENCE[name]
    sample = case.samples[seed % len(case.samples)]
    arrays = case.draw(sample, np.float64, seed)
    fn, xs = on_floats(name, case, sample, arrays), leaves(floats_of(case, arrays))
    y = fn(*xs)
    g1, g2 = numbers(y.shape, 1), numbers(y.shape, 2)
    three = [y.backward(gradient=fp.tensor(g), retain_graph=True) for g in (g1, g2, g1 + c * g2)]
    for x in xs:
        if x in three[0]:
            one, two, both = (grads[x].numpy() for grads in three)
            np.testing.assert_allclose(both, one + c * two, rtol=1e-9, atol=1e-9, err_msg=f"{name} {sample}")


@quick
@given(array_shapes(max_dims=4, max_side=4), st.data())
def test_basic_indexing_is_that_of_numpy(shape: tuple[int, ...], data: st.DataObject) -> None:
    key = data.draw(basic_indices(shape, allow_newaxis=True, allow_ellipsis=True))
    a = numbers(shape, 0)
    (x,) = leaves([a])
    y = x[key]
    np.testing.assert_array_equal(y.numpy(), a[key])
    expected = np.zeros(shape)
    g = numbers(a[key].shape, 1)
    np.add.at(expected, key, g)
    if y.size:
        np.testing.assert_allclose(y.backward(gradient=fp.tensor(g))[x].numpy(), expected)


@quick
@given(array_shapes(max_dims=4, max_side=4), st.data(), st.sampled_from(["sum", "mean", "max", "prod", "logsumexp", "var"]))
def test_reduction_over_any_axes(shape: tuple[int, ...], data: st.DataObject, name: str) -> None:
    axes = data.draw(st.lists(st.integers(0, len(shape) - 1), unique=True))
    axis = tuple(a - len(shape) if data.draw(st.booleans()) else a for a in axes)
    keepdims = data.draw(st.booleans())
    a = numbers(shape, 0)
    expected = REFERENCE[name].fn(a, axis=axis, keepdims=keepdims)
    y = function(name)(fp.tensor(a), axis=axis, keepdims=keepdims).numpy()
    np.testing.assert_allclose(y, expected, rtol=1e-12, atol=1e-12)


@quick
@given(array_shapes(max_dims=4, max_side=4), st.data())
def test_permute_and_reshape_lose_nothing(shape: tuple[int, ...], data: st.DataObject) -> None:
    order = tuple(data.draw(st.permutations(range(len(shape)))))
    a = numbers(shape, 0)
    x = fp.tensor(a)
    y = fp.permute(x, order)
    np.testing.assert_array_equal(y.numpy(), a.transpose(order))
    np.testing.assert_array_equal(fp.permute(y, tuple(np.argsort(order))).numpy(), a)
    np.testing.assert_array_equal(y.reshape((-1,)).numpy(), a.transpose(order).reshape(-1))


# ---- every op alike

LOSSES_OF_IDS = "cross_entropy", "soft_cross_entropy", "linear_cross_entropy"  # float32, whatever the logits are
HALF = {"float16": 4e-3, "bfloat16": 3e-2}  # a few roundings of 11 and 8 significant bits
TWO_ORDERS = ("gather", "index_select", "getitem")  # called through another order of arguments: see test_ops.ORDER


@pytest.mark.parametrize("name", sorted(set(REFERENCE) - set(TWO_ORDERS)))
def test_unknown_arguments_are_refused(name: str) -> None:
    """Never accepted and ignored: neither a keyword no op has, nor one argument too many."""
    case = REFERENCE[name]
    sample = case.samples[0]
    tensors = [fp.tensor(a) for a in case.draw(sample, np.float32)]
    inputs = [tensors] if case.listed else tensors
    for args, options in [((), {"bogus": 1}), ((None,) * 12, {})]:
        with pytest.raises((TypeError, fp.errors.FlameError)):
            function(name)(*inputs, *sample.args, *args, **{**sample.kwargs, **options})


def with_dtypes() -> Iterator[tuple[str, str]]:
    """Ops with bfloat16, and those with float16 that are no formula: a formula's kernels differ only in how a number is read and written,
    which test_halves.py asks of some of them."""
    for name in sorted(set(REFERENCE) - {"cast"} - set(FAMILIES["linalg"])):  # LAPACK has neither type: see test_linalg.py
        yield from [(name, dtype) for dtype in HALF if dtype == "bfloat16" or name not in FAMILIES["pointwise"]]


@pytest.mark.parametrize("name, dtype", list(with_dtypes()))
def test_16_bit_floats(name: str, dtype: str) -> None:
    case = REFERENCE[name]
    samples = plain_samples(name)
    for seed, sample in enumerate(samples[:: max(1, len(samples) // (6 if dtype == "bfloat16" else 3))]):
        arrays = case.draw(sample, np.float32, seed)
        tensors = [fp.tensor(a).to(getattr(fp, dtype)) if a.dtype.kind == "f" else fp.tensor(a) for a in arrays]
        rounded = [t.to(fp.float32).numpy() if a.dtype.kind == "f" else a for t, a in zip(tensors, arrays, strict=True)]
        tracked = [t for t, wanted in zip(tensors, case.tracked(arrays), strict=True) if wanted and case.smooth]
        for t in tracked:
            t.requires_grad_()
        found, loss = pieces(run(name, case, sample, tensors)), fp.tensor(0.0)
        for y, e in zip(found, pieces(case.expected(sample, rounded)), strict=True):
            if np.asarray(e).dtype.kind == "f":
                assert str(y.dtype) == ("float32" if name in LOSSES_OF_IDS else dtype), (name, sample, y.dtype)
                y = y.to(fp.float32)
                loss = loss + y.sum()
            np.testing.assert_allclose(y.numpy(), e, HALF[dtype], HALF[dtype], err_msg=f"{name} {sample}")
        if tracked:
            grads = loss.backward()
            assert all(grads[t].dtype == fp.float32 for t in tracked if t in grads), (name, sample)


EXACT = """add sub mul neg abs sign square floor ceil round maximum minimum where relu sum max min prod eq lt transpose permute
    broadcast_to getitem cat stack split gather index_select pad tril clone"""


@pytest.mark.parametrize("dtype", ["int64", "int32"])
@pytest.mark.parametrize("name", EXACT.split())
def test_integers_stay_exact(name: str, dtype: str) -> None:
    """No detour through float32, which cannot hold 16777217."""
    case = REFERENCE[name]
    for seed, sample in enumerate(plain_samples(name)[:6]):
        arrays = [a if a.dtype.kind != "f" else np.round(a * 3) for a in case.draw(sample, np.float64, seed)]
        if name in ("maximum", "minimum", "sum", "max", "min", "neg", "abs", "floor", "ceil", "round", "relu", "cat", "transpose"):
            arrays = [a * 16777217 for a in arrays]
        arrays = [a.astype(dtype) if a.dtype.kind == "f" else a for a in arrays]
        expected = case.fn(*([arrays] if case.listed else arrays), *sample.args, **sample.kwargs)
        found = run(name, case, sample, [fp.tensor(a) for a in arrays])
        for y, e in zip(pieces(found), pieces(expected), strict=True):
            assert y.dtype.kind == np.asarray(e).dtype.kind, (name, sample, y.dtype)
            np.testing.assert_array_equal(y.numpy(), e, err_msg=f"{name} {sample}")


def test_a_numpy_view_outlives_its_tensor() -> None:
    """The memory behind .numpy() is not given to the next op while someone looks at it."""
    x = fp.tensor(np.arange(1.0, 5.0), requires_grad=True)
    views = [(x * 3).numpy(), np.asarray(x * 3), (x * 3).numpy()[:4], (x * x).backward(fp.full((4,), 1.5, "float64"))[x].numpy()]
    for _ in range(8):
        (x * 100).sum().backward()
    for view in views:
        np.testing.assert_array_equal(view, x.numpy() * 3)
