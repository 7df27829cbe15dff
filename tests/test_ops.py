"""Every op against its NumPy oracle: forward in both float types, gradients of first and second order by gradcheck.

Nothing here names an op twice: reference.py says how to call each one, these tests draw its samples. An op that is in the
registry or in the promised lists without an oracle line fails. Gradients are checked on plain inputs, on inputs that were
sliced and transposed out of larger tensors, on one tensor used for two inputs, and on zero-size and 0-d ones.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from cases import Case, Sample
from devices import default_device, has_gpu
from linalg_calls import CALLS
from reference import FAMILIES, INTERNAL, REFERENCE

import flamepy as fp
import flamepy.nn.functional as F
from flamepy.core.op import REGISTRY

pytestmark = pytest.mark.usefixtures("device")

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
FIRST = {name for names in PROMISED.values() for name in names.split()}  # the first wave of ops: the README's test command asks all of it
NETWORK = """linear embedding dropout layer_norm rms_norm conv2d max_pool2d avg_pool2d scaled_dot_product_attention softmax
    log_softmax relu leaky_relu elu gelu silu softplus tanh sigmoid cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss
    huber_loss binary_cross_entropy binary_cross_entropy_with_logits"""
SMOOTH = [name for name, case in REFERENCE.items() if case.smooth]
SECOND = [name for name in SMOOTH if REFERENCE[name].second]
CONVOLUTIONS = [name for name in REFERENCE if name.startswith("conv")]
STEPS = ["sign", "floor", "ceil", "round"]
SELECTING = ["eq", "ne", "lt", "le", "gt", "ge", "argmax", "argmin"]
# float32 results may differ from the float64 answer by a few roundings of the largest term that entered a sum.
TOLERANCE = {"float32": {"rtol": 4e-6, "atol": 4e-6}, "float64": {"rtol": 1e-12, "atol": 1e-12}}


ORDER = {  # where the op takes its arguments in another order than the oracle, or has another name
    "gather": lambda x, index, axis: fp.gather(x, axis, index),
    "index_select": lambda x, index, axis: fp.index_select(x, axis, index),
    "getitem": operator.getitem,
    "group_norm": lambda x, *weights, num_groups, **options: F.group_norm(x, num_groups, *weights, **options),
    **CALLS,
    "einsum": lambda xs, subscripts: fp.einsum(subscripts, *xs),
    "unfold": lambda x, *args: x.unfold(*args),
    **{
        name: lambda x, index, src, axis, name=name, **a: getattr(fp, name)(x, axis, index, src, **a)
        for name in ("scatter", "scatter_add", "scatter_reduce", "index_add", "index_copy", "index_fill")
    },
    "index_put": lambda x, values, **a: fp.index_put(x, ([2, 0, 2], slice(None), [1, 1, 1]), values, **a),
    "searchsorted": lambda x, v, **a: fp.searchsorted(fp.msort(x), v, **a),  # what is drawn is not in order
    "bucketize": lambda x, b, **a: fp.bucketize(x, fp.msort(b), **a),
    "soft_cross_entropy": F.cross_entropy,
}


def function(name: str) -> Callable[..., Any]:
    """The public function of an op."""
    if name in ORDER:
        return ORDER[name]
    return getattr(F, name) if hasattr(F, name) else getattr(fp, name)


def run(name: str, case: Case, sample: Sample, tensors: list[Any]) -> Any:
    inputs = [list(tensors)] if case.listed else tensors
    dtype = next((t.dtype for t in tensors if t.dtype.kind in "fV"), None)  # "V": bfloat16
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
        tensors = [view(next(rest), a.shape) if t else fp.tensor(a) for t, a in zip(case.tracked(arrays), arrays, strict=True)]
        return joined(run(name, case, sample, tensors))

    return fn


def floats_of(case: Case, arrays: list[np.ndarray]) -> list[np.ndarray]:
    return [a for tracked, a in zip(case.tracked(arrays), arrays, strict=True) if tracked]


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


# One op of each kind of kernel. Emulated GPUs compile and run for long: there float64 is that of these, and the gradients of the others
# are compared with the plain device's, which gradcheck has seen.
KINDS = ("add", "exp", "where", "pow", "sum", "max", "argmax", "softmax", "layer_norm", "cross_entropy", "matmul", "linear", "conv2d",
         "max_pool2d", "scaled_dot_product_attention", "embedding", "transpose", "cat", "cast", "dropout")  # fmt: skip


def placed(names: list[str]) -> list[tuple[str, str]]:
    """Each on each device, but on an emulated GPU."""
    return [(d, n) for d in ("cpu", "plain", "cuda") for n in names if d != "cuda" or n in KINDS or has_gpu()]


def plain_samples(name: str) -> list[Sample]:
    """Of an op that is a formula, the samples whose inputs have one shape: how several shapes are read is the loop's matter and not the
    formula's, and each way is a kernel. Of the others, and of one of each kind, all."""
    case = REFERENCE[name]
    formula = name in FAMILIES["pointwise"] and name not in KINDS
    return [sample for sample in case.samples if not formula or len(set(sample.shapes)) == 1]


@pytest.mark.parametrize(
    ("device", "name", "dtype"), [*[(d, n, "float32") for d in ("cpu", "plain", "cuda") for n in REFERENCE],
    *[(d, n, "float64") for d, n in placed(list(REFERENCE))]], indirect=["device"]
)  # fmt: skip
def test_forward(name: str, dtype: str, device: str) -> None:
    case, everything = REFERENCE[name], device == "plain" or (device == "cuda" and has_gpu())
    for seed, sample in enumerate(case.samples if everything else plain_samples(name)):
        arrays = case.draw(sample, dtype, seed)
        expected = pieces(case.expected(sample, arrays))
        found = pieces(run(name, case, sample, [fp.tensor(a) for a in arrays]))
        assert len(found) == len(expected), (name, sample)
        for y, e in zip(found, expected, strict=True):
            assert y.shape == np.shape(e), (name, sample, y.shape, np.shape(e))
            kind = np.asarray(e).dtype.kind
            assert y.dtype == {"b": "bool", "i": "int64"}.get(kind, "float64" if name == "cast" else dtype), (name, sample, y.dtype)
            np.testing.assert_allclose(y.numpy(), e, **TOLERANCE[dtype], err_msg=f"{name} {sample}")


# ---- gradients


@pytest.mark.parametrize(("device", "name"), [("cuda", n) for n in SMOOTH if n != "dropout"], indirect=["device"])
def test_gradient_is_that_of_the_plain_device(name: str, device: str) -> None:
    case = REFERENCE[name]
    for seed, sample in enumerate(case.samples if has_gpu() else plain_samples(name)):
        arrays = case.draw(sample, np.float32, seed)
        found = []
        for place in (device, "plain"):
            with default_device(place):
                xs = leaves(floats_of(case, arrays))
                y = on_floats(name, case, sample, arrays)(*xs)
                g = np.random.default_rng(seed).standard_normal(y.shape).astype(np.float32)
                grads = y.backward(gradient=fp.tensor(g))
                found.append([grads[x].numpy() for x in xs])
        for one, other in zip(*found, strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5, err_msg=f"{name} {sample}")


@pytest.mark.parametrize(("device", "name"), placed(SMOOTH), indirect=["device"])
def test_gradient(name: str, device: str) -> None:
    case = REFERENCE[name]
    for seed, sample in enumerate(plain_samples(name) if device == "cpu" else case.samples):
        arrays = case.draw(sample, np.float64, seed)
        assert fp.gradcheck(on_floats(name, case, sample, arrays), leaves(floats_of(case, arrays))), (name, sample)


def some(case: Case) -> Sequence[Sample]:
    """Five of the samples, or a few more."""
    return case.samples[:: max(1, len(case.samples) // 5)]


def embed(a: np.ndarray) -> np.ndarray:
    """A larger array that holds `a` transposed, between other numbers: unembed() takes it out again."""
    big = np.random.default_rng(1).uniform(0.3, 0.9, (2, *(2 * n + 1 for n in a.T.shape)))
    big[(1, *(slice(1, None, 2) for _ in a.shape))] = a.T
    return big


def unembed(big: Any, shape: tuple[int, ...]) -> Any:
    return fp.permute(big[(1, *(slice(1, None, 2) for _ in shape))], tuple(range(len(shape)))[::-1])


@pytest.mark.parametrize(("device", "name"), placed(SMOOTH), indirect=["device"])
def test_gradient_of_strided_inputs(name: str) -> None:
    case = REFERENCE[name]
    for sample in some(case):
        arrays = case.draw(sample, np.float64, 7)
        fn = on_floats(name, case, sample, arrays, unembed)
        assert fp.gradcheck(fn, leaves([embed(a) for a in floats_of(case, arrays)])), (name, sample)


NEVER_ALIKE = "mv", "addmv", "addr", "addbmm", "solve_triangular", "cdist"  # other shapes, or a kink there


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
    assert tried or name in (
        "batch_norm",
        "instance_norm",
        "group_norm",
        "linear_cross_entropy",
        "batch_norm",
        "instance_norm",
        "group_norm",
        "linear",
        "layer_norm",
        "rms_norm",
        "linear",
        "index_put",
        "layer_norm",
        "rms_norm",
        "conv2d",
        "lstm",
        "gru",
        "rnn",
        "lstm_cell",
        "gru_cell",
        "rnn_cell",
        *CONVOLUTIONS,
        *NEVER_ALIKE,
    )


@pytest.mark.parametrize(("device", "name"), placed(SECOND), indirect=["device"])
def test_second_gradient(name: str, device: str) -> None:
    case = REFERENCE[name]
    for seed, sample in enumerate(some(case) if device == "plain" else case.samples):
        arrays = case.draw(sample, np.float64, seed)
        fn = on_floats(name, case, sample, arrays)
        assert fp.gradcheck(fn, leaves(floats_of(case, arrays)), order=2), (name, sample)


@pytest.mark.parametrize("name", SECOND)
def test_a_recorded_backward_gives_the_same_gradient(name: str) -> None:
    """The fused backward rule and the differentiable one beside it are the same function."""
    case = REFERENCE[name]
    for seed, sample in enumerate(case.samples):
        arrays = case.draw(sample, np.float64, seed)
        fn, xs = on_floats(name, case, sample, arrays), leaves(floats_of(case, arrays))
        y = fn(*xs)
        g = fp.tensor(np.random.default_rng(seed).normal(size=y.shape))
        plain, recorded = y.backward(g, retain_graph=True), y.backward(g, create_graph=True)
        for x in xs:
            assert (x in plain) == (x in recorded), (name, sample)
            if x in plain:
                np.testing.assert_allclose(recorded[x].numpy(), plain[x].numpy(), 1e-9, 1e-11, err_msg=f"{name} {sample}")


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
    x = fp.ones((100, 100), requires_grad=True)
    y = F.dropout(x, p=0.25, training=True)
    kept = y.numpy() != 0
    assert abs(kept.mean() - 0.75) < 0.02
    np.testing.assert_allclose(y.numpy()[kept], 1 / 0.75, rtol=1e-6)
    np.testing.assert_allclose(y.sum().backward()[x].numpy(), kept / 0.75, rtol=1e-6)
    assert (F.dropout(x, p=0.25, training=True).numpy() != y.numpy()).any()


def test_gradient_of_dropout_with_its_mask_fixed() -> None:
    assert fp.gradcheck(lambda x: F.dropout(x * x, p=0.4, training=True), leaves([np.linspace(0.3, 0.9, 60)]), order=2)


def test_fused_attention_is_attention_of_its_three_parts() -> None:
    """The op behind MultiHeadAttention: values, and gradients of the one fused input."""
    batch, rows, heads, width = 2, 5, 3, 4

    def apart(qkv: Any) -> Any:
        parts = fp.permute(qkv.reshape((batch, rows, 3, heads, width)), (2, 0, 3, 1, 4))
        y = F.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
        return fp.permute(y, (0, 2, 1, 3)).reshape((batch, rows, heads * width))

    (x,) = leaves([np.random.default_rng(0).normal(size=(batch, rows, 3 * heads * width))])
    g = fp.tensor(np.random.default_rng(1).normal(size=(batch, rows, heads * width)))
    fused, plain = REGISTRY["fused_attention"](x, heads=heads, is_causal=True), apart(x)
    np.testing.assert_allclose(fused.numpy(), plain.numpy(), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(fused.backward(g)[x].numpy(), plain.backward(g)[x].numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bool"])
@pytest.mark.parametrize(
    ("shape", "order"),
    [
        ((300, 70), (1, 0)),
        ((1, 257), (1, 0)),
        ((3, 65, 130), (0, 2, 1)),
        ((2, 64, 5, 33), (2, 0, 3, 1)),
        ((4, 6, 5), (2, 1, 0)),
        ((0, 3), (1, 0)),
    ],
)
def test_matrices_are_turned_in_tiles(shape, order, dtype):
    x = (np.random.default_rng(1).standard_normal(shape) * 100).astype(dtype)
    t = fp.tensor(x, requires_grad=dtype.startswith("float"))
    assert np.array_equal(t.permute(order).numpy(), x.transpose(order))
    if t.requires_grad and t.size:
        g = np.random.default_rng(2).standard_normal(x.transpose(order).shape).astype(dtype)
        grads = t.permute(order).backward(fp.tensor(g))
        assert np.array_equal(grads[t].numpy(), g.transpose(np.argsort(order)))


def test_a_long_run_is_repeated_and_read_backwards():
    x = np.arange(10_000, dtype=np.float32)
    assert (fp.tensor(np.float32(3.5)).broadcast_to((3, 9_000)).numpy() == 3.5).all()
    assert np.array_equal(fp.tensor(x)[::-1].numpy(), x[::-1]) and np.array_equal(fp.tensor(x)[5:9_999:3].numpy(), x[5:9_999:3])


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_extremes_of_rows_with_nan_and_infinity(dtype):
    x = (np.random.default_rng(3).standard_normal((40, 77)) * 50).astype(dtype)
    if dtype.startswith("float"):
        x[1, 0] = x[2, 40] = x[3, 76] = x[4] = np.nan  # at the start, in a packed middle, in the scalar rest of a loop
        x[5], x[6], x[7, 9], x[8, 9] = np.inf, -np.inf, np.inf, -np.inf
    for name in ("max", "min"):
        got = getattr(fp.tensor(x), name)(axis=1).numpy()
        assert np.array_equal(got, getattr(x, name)(axis=1), equal_nan=dtype.startswith("float"))
