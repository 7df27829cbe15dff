"""Every op against its NumPy oracle: forward in both float types, gradients of first and second order by gradcheck.

Nothing here names an op twice: reference.py says how to call each one, these tests draw its samples. An op that is in the
registry or in the promised lists without an oracle line fails. Gradients are checked on plain inputs, on inputs that were
sliced and transposed out of larger tensors, on one tensor used for two inputs, and on zero-size and 0-d ones.

May import: flamepy, cases.py, reference.py, hypothesis. FLAME counterpart: tests/autograd_*. Read next: test_torch_ops.py.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cases import Case, Sample
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, basic_indices, mutually_broadcastable_shapes
from reference import FAMILIES, INTERNAL, REFERENCE

import flamepy as fp
import flamepy.nn.functional as F
from flamepy.op import REGISTRY

PROMISED = {
    "pointwise": """add sub mul div neg abs sign exp log sqrt rsqrt reciprocal square pow sin cos tanh sigmoid erf relu leaky_relu
        elu gelu silu softplus clamp maximum minimum where masked_fill eq ne lt le gt ge floor ceil round""",
    "reduce": "sum mean max min argmax argmin var std logsumexp prod",
    "matrix": "matmul linear",
    "shape": """reshape transpose permute squeeze unsqueeze flatten broadcast_to narrow getitem cat stack split chunk gather
        index_select pad tril triu cast""",
    "rows": """softmax log_softmax layer_norm rms_norm embedding dropout cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss
        huber_loss binary_cross_entropy binary_cross_entropy_with_logits scaled_dot_product_attention""",
    "spatial": "conv2d max_pool2d avg_pool2d",
}
NETWORK = """linear embedding dropout layer_norm rms_norm conv2d max_pool2d avg_pool2d scaled_dot_product_attention softmax
    log_softmax relu leaky_relu elu gelu silu softplus tanh sigmoid cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss
    huber_loss binary_cross_entropy binary_cross_entropy_with_logits"""
SMOOTH = [name for name, case in REFERENCE.items() if case.smooth]
SECOND = [name for name in SMOOTH if REFERENCE[name].second]
STEPS = ["sign", "floor", "ceil", "round"]
SELECTING = ["eq", "ne", "lt", "le", "gt", "ge", "argmax", "argmin"]
# float32 results may differ from the float64 answer by a few roundings of the largest term that entered a sum.
TOLERANCE = {"float32": {"rtol": 4e-6, "atol": 4e-6}, "float64": {"rtol": 1e-12, "atol": 1e-12}}


ORDER = {  # where the op takes its arguments in another order than the oracle
    "gather": lambda x, index, axis: fp.gather(x, axis, index),
    "index_select": lambda x, index, axis: fp.index_select(x, axis, index),
    "getitem": operator.getitem,
}


def function(name: str) -> Callable[..., Any]:
    """The public function of an op."""
    if name in ORDER:
        return ORDER[name]
    return getattr(F, name) if hasattr(F, name) else getattr(fp, name)


def run(name: str, case: Case, sample: Sample, tensors: list[Any]) -> Any:
    inputs = [list(tensors)] if case.listed else tensors
    dtype = next((t.dtype for t in tensors if t.dtype.kind == "f"), None)
    options = {k: attribute(v, dtype) for k, v in sample.kwargs.items()}
    return function(name)(*inputs, *[attribute(v, dtype) for v in sample.args], **options)


def attribute(value: Any, dtype: Any) -> Any:
    """Float arrays among the attributes (weights, biases) become tensors of the inputs' dtype; index keys stay."""
    return fp.tensor(value.astype(dtype)) if isinstance(value, np.ndarray) and value.dtype.kind == "f" else value


def pieces(y: Any) -> list[Any]:
    return list(y) if isinstance(y, (tuple, list)) else [y]


def joined(y: Any) -> Any:
    """One tensor that depends on every element of the result: gradcheck wants one output."""
    parts = [p.reshape((-1,)) for p in pieces(y)]
    return parts[0] if len(parts) == 1 else fp.cat(parts)


def on_floats(name: str, case: Case, sample: Sample, arrays: list[np.ndarray], view: Callable = lambda t, shape: t) -> Callable:
    """The op as a function of its tracked inputs; `view` turns what gradcheck passes into the op's input."""

    def fn(*floats: Any) -> Any:
        rest = iter(floats)
        tensors = [view(next(rest), a.shape) if t else fp.tensor(a) for t, a in zip(case.tracked(arrays), arrays)]
        return joined(run(name, case, sample, tensors))

    return fn


def floats_of(case: Case, arrays: list[np.ndarray]) -> list[np.ndarray]:
    return [a for tracked, a in zip(case.tracked(arrays), arrays) if tracked]


def leaves(arrays: list[np.ndarray]) -> tuple[Any, ...]:
    return tuple(fp.tensor(a, requires_grad=True) for a in arrays)


# ---- the lists


@pytest.mark.parametrize("family", PROMISED)
def test_promised_ops_exist_and_have_an_oracle(family: str) -> None:
    for name in PROMISED[family].split():
        assert name in FAMILIES[family], f"{name}: no oracle line in reference.py"
        assert callable(function(name)), name


def test_network_ops_are_in_functional() -> None:
    assert not [name for name in NETWORK.split() if not hasattr(F, name)]


def test_registered_ops_have_an_oracle() -> None:
    lines = {**INTERNAL, **{name: name for name in REFERENCE}}
    missing = [name for name in REGISTRY if not name.startswith("_") and lines.get(name) not in REFERENCE]
    assert not missing, f"no oracle line in reference.py for: {missing}"


# ---- forward


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", REFERENCE)
def test_forward(name: str, dtype: str) -> None:
    case = REFERENCE[name]
    for seed, sample in enumerate(case.samples):
        arrays = case.draw(sample, dtype, seed)
        expected = pieces(case.expected(sample, arrays))
        found = pieces(run(name, case, sample, [fp.tensor(a) for a in arrays]))
        assert len(found) == len(expected), (name, sample)
        for y, e in zip(found, expected):
            assert y.shape == np.shape(e), (name, sample, y.shape, np.shape(e))
            kind = np.asarray(e).dtype.kind
            assert y.dtype == {"b": "bool", "i": "int64"}.get(kind, "float64" if name == "cast" else dtype), (name, sample, y.dtype)
            np.testing.assert_allclose(y.numpy(), e, **TOLERANCE[dtype], err_msg=f"{name} {sample}")


# ---- gradients


@pytest.mark.parametrize("name", SMOOTH)
def test_gradient(name: str) -> None:
    case = REFERENCE[name]
    for seed, sample in enumerate(case.samples):
        arrays = case.draw(sample, np.float64, seed)
        assert fp.gradcheck(on_floats(name, case, sample, arrays), leaves(floats_of(case, arrays))), (name, sample)


def embed(a: np.ndarray) -> np.ndarray:
    """A larger array that holds `a` transposed, between other numbers: unembed() takes it out again."""
    big = np.random.default_rng(1).uniform(0.3, 0.9, (2, *(2 * n + 1 for n in a.T.shape)))
    big[(1, *(slice(1, None, 2) for _ in a.shape))] = a.T
    return big


def unembed(big: Any, shape: tuple[int, ...]) -> Any:
    return fp.permute(big[(1, *(slice(1, None, 2) for _ in shape))], tuple(range(len(shape)))[::-1])


@pytest.mark.parametrize("name", SMOOTH)
def test_gradient_of_strided_inputs(name: str) -> None:
    case = REFERENCE[name]
    for sample in case.samples[:: max(1, len(case.samples) // 5)]:
        arrays = case.draw(sample, np.float64, 7)
        fn = on_floats(name, case, sample, arrays, unembed)
        assert fp.gradcheck(fn, leaves([embed(a) for a in floats_of(case, arrays)])), (name, sample)


@pytest.mark.parametrize("name", [n for n in SMOOTH if sum(i.kind == "real" and i.tracked for i in REFERENCE[n].inputs) > 1])
def test_gradient_of_one_tensor_used_twice(name: str) -> None:
    case, tried = REFERENCE[name], 0
    for sample in case.samples:
        arrays = case.draw(sample, np.float64, 3)
        shapes = {a.shape for a in floats_of(case, arrays)}
        if len(shapes) == 1:
            fn, n = on_floats(name, case, sample, arrays), len(floats_of(case, arrays))
            x = np.random.default_rng(0).uniform(0.3, 0.9, shapes.pop())
            assert fp.gradcheck(lambda x: fn(*[x] * n), leaves([x])), (name, sample)
            tried += 1
    assert tried or name in ("linear", "layer_norm", "rms_norm", "conv2d")


@pytest.mark.parametrize("name", SECOND)
def test_second_gradient(name: str) -> None:
    case = REFERENCE[name]
    for seed, sample in enumerate(case.samples):
        arrays = case.draw(sample, np.float64, seed)
        fn = on_floats(name, case, sample, arrays)
        assert fp.gradcheck(fn, leaves(floats_of(case, arrays)), order=2), (name, sample)


@pytest.mark.parametrize("name", sorted(set(SMOOTH) - set(SECOND)))
def test_second_gradient_is_refused_or_right(name: str) -> None:
    """What promises no second derivative says so, naming the op; it never gives a wrong one."""
    case = REFERENCE[name]
    arrays = case.draw(case.samples[0], np.float64)
    try:
        fn = on_floats(name, case, case.samples[0], arrays)
        assert fp.gradcheck(fn, leaves(floats_of(case, arrays)), order=2)
    except fp.errors.GradientError as error:
        named = str(error).split(":")[0]
        assert "no second derivative" in str(error) and INTERNAL.get(named, named) == name, error


@pytest.mark.parametrize("name", STEPS)
def test_step_functions_record_a_zero_gradient(name: str) -> None:
    x = fp.tensor(np.array([-1.7, -0.2, 0.0, 0.6, 2.0]), requires_grad=True)
    np.testing.assert_array_equal(function(name)(x).sum().backward()[x].numpy(), np.zeros(5))


@pytest.mark.parametrize("name", SELECTING)
def test_integer_and_bool_results_record_nothing(name: str) -> None:
    case = REFERENCE[name]
    arrays = case.draw(case.samples[0], np.float64)
    y = run(name, case, case.samples[0], list(leaves(arrays)))
    assert not y.requires_grad


@pytest.mark.parametrize("name", ["max", "min", "maximum", "minimum", "relu", "clamp"])
def test_nan_passes_through(name: str) -> None:
    x = fp.tensor(np.array([1.0, np.nan, -3.0]))
    more = {"maximum": [fp.tensor(np.zeros(3))], "minimum": [fp.tensor(np.zeros(3))], "clamp": [-1.0, 1.0]}.get(name, [])
    y = function(name)(x, *more).numpy()
    assert np.isnan(y if y.ndim == 0 else y[1])


def test_choices_at_kinks() -> None:
    """Ties share equally; clamp passes at its bounds; relu, abs and sign are 0 at 0; std of equal numbers is 0."""
    three = np.array([2.0, 2.0, 1.0])
    for fn, at, expected in [
        (fp.max, three, [0.5, 0.5, 0]), (lambda x: fp.max(x, axis=0), three, [0.5, 0.5, 0]), (fp.min, -three, [0.5, 0.5, 0]),
        (lambda x: fp.maximum(x, fp.tensor(three)).sum(), three, [0.5] * 3), (lambda x: fp.clamp(x, 1.0, 2.0).sum(), three, [1] * 3),
        (lambda x: fp.relu(x).sum(), np.zeros(3), [0] * 3), (lambda x: fp.abs(x).sum(), np.zeros(3), [0] * 3),
        (fp.std, np.ones(3), [0] * 3), (fp.prod, np.array([0.0, 2.0, 3.0]), [6, 0, 0]), (fp.prod, np.array([0.0, 0.0, 3.0]), [0] * 3),
    ]:  # fmt: skip
        x = fp.tensor(at, requires_grad=True)
        np.testing.assert_allclose(fn(x).backward()[x].numpy(), expected)


def test_dropout_keeps_the_mean_and_uses_one_mask() -> None:
    fp.manual_seed(1)
    x = fp.ones((200, 200), requires_grad=True)
    y = F.dropout(x, p=0.25, training=True)
    kept = y.numpy() != 0
    assert abs(kept.mean() - 0.75) < 0.02
    np.testing.assert_allclose(y.numpy()[kept], 1 / 0.75, rtol=1e-6)
    np.testing.assert_allclose(y.sum().backward()[x].numpy(), kept / 0.75, rtol=1e-6)
    assert (F.dropout(x, p=0.25, training=True).numpy() != y.numpy()).any()


# ---- properties

TWO = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "maximum": np.maximum}
quick = settings(max_examples=40, deadline=None, derandomize=True)


def numbers(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-2, 2, shape)


@quick
@given(mutually_broadcastable_shapes(num_shapes=2, max_dims=4, max_side=4, min_side=0), st.sampled_from(sorted(TWO)))
def test_broadcasting_is_that_of_numpy(shapes: Any, name: str) -> None:
    a, b = (numbers(s, i) for i, s in enumerate(shapes.input_shapes))
    x, w = leaves([a, b])
    y = function(name)(x, w)
    np.testing.assert_array_equal(y.numpy(), TWO[name](a, b))
    grads = y.backward(gradient=fp.ones_like(y)) if y.size else {}
    for t in (x, w):
        assert not y.size or grads[t].shape == t.shape


@quick
@given(mutually_broadcastable_shapes(num_shapes=2, max_dims=4, max_side=4), st.integers(0, 9))
def test_gradient_of_a_broadcast_input_is_the_sum(shapes: Any, seed: int) -> None:
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
