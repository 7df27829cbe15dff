"""Linear layers with what follows them in one launch: bias, activation, residual; forward, gradients, second derivatives.

Oracles: NumPy in float64 for the results, the composition of single ops for the gradients, finite differences. Any number
of workers gives the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from error_text import raises
from hypothesis import given, settings
from hypothesis import strategies as st
from linear_tools import close
from rows_tools import F32, F64, Array, draw, launches, leaf

import flamepy as fp
import flamepy.nn.functional as F
from flamepy import nn
from flamepy.backend.cpu.device import loop_named
from flamepy.backend.cpu.products.finish import SUM
from flamepy.core.op import REGISTRY

erf = np.vectorize(math.erf, otypes=[float])
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "": lambda z: z,
    "relu": lambda z: np.maximum(z, 0),
    "gelu_erf": lambda z: 0.5 * z * (1 + erf(z / math.sqrt(2))),
    "gelu_tanh": lambda z: 0.5 * z * (1 + np.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3))),
    "silu": lambda z: z / (1 + np.exp(-z)),
    "tanh": np.tanh,
    "sigmoid": lambda z: 1 / (1 + np.exp(-z)),
}


@pytest.fixture
def launched() -> Iterator[list[str]]:
    """The names of the loops that are launched, with the formula's where there is one."""
    with launches(formulas=True) as names:
        yield names


def composed(x: Any, w: Any, b: Any, r: Any, activation: str) -> Any:
    """The same in single ops that existed before: matmul, add, the activation, add."""
    z = x @ w.T
    z = z if b is None else z + b
    z = REGISTRY[activation](z) if activation else z
    return z if r is None else z + r


def check(x: Any, w: Any, b: Any, r: Any, activation: str, dtype: Any) -> None:
    """Forward against NumPy in float64, gradients of everything tracked against the composition."""
    inputs = [t for t in (x, w, b, r) if t is not None]
    y = F.linear(x, w, b, r, activation)
    wide: list[Any] = [None if t is None else t.numpy().astype(F64) for t in (x, w, b, r)]
    z = wide[0] @ wide[1].T + (0 if b is None else wide[2])
    close(y, ACTIVATIONS[activation](z) + (0 if r is None else wide[3]), dtype)
    if not any(t.requires_grad for t in inputs):
        return
    g = fp.tensor(draw(*y.shape, seed=9, dtype=dtype))
    got, want = y.backward(g), composed(x, w, b, r, activation).backward(g)
    for name, t in zip("xwbr", (x, w, b, r), strict=True):
        if t is not None and t.requires_grad:
            close(got[t], want[t], dtype, name)


@settings(max_examples=150, deadline=None)
@given(
    lead=st.lists(st.integers(0, 9), max_size=2), n_in=st.integers(0, 9), n_out=st.integers(0, 9), bias=st.booleans(),
    residual=st.booleans(), activation=st.sampled_from(sorted(ACTIVATIONS)), tracked=st.lists(st.booleans(), min_size=4, max_size=4),
    dtype=st.sampled_from([F32, F64]),
)  # fmt: skip
def test_every_form_is_its_composition(
    lead: list[int], n_in: int, n_out: int, bias: bool, residual: bool, activation: str, tracked: list[bool], dtype: Any
) -> None:
    x, w = leaf(draw(*lead, n_in, dtype=dtype), tracked[0]), leaf(draw(n_out, n_in, seed=1, dtype=dtype), tracked[1])
    b = leaf(draw(n_out, seed=2, dtype=dtype), tracked[2]) if bias else None
    r = leaf(draw(*lead, n_out, seed=3, dtype=dtype), tracked[3]) if residual else None
    check(x, w, b, r, activation, dtype)


SIZES = [(300, 130, 70), (64, 65, 300), (128, 96, 97), (33, 20, 1030), (1, 200, 200), (513, 1, 33), (100, 1030, 40), (2, 3, 1000)]


@pytest.mark.parametrize("rows, n_out, n_in", SIZES)
@pytest.mark.parametrize("activation", ["", "gelu_erf", "tanh"])
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_sizes_that_take_several_tiles(rows: int, n_out: int, n_in: int, activation: str, dtype: Any) -> None:
    x, w = leaf(draw(rows, n_in, dtype=dtype) / 8), leaf(draw(n_out, n_in, seed=1, dtype=dtype) / 8)
    b, r = leaf(draw(n_out, seed=2, dtype=dtype)), leaf(draw(rows, n_out, seed=3, dtype=dtype))
    check(x, w, b, r, activation, dtype)
    check(x, w, None, None, activation, dtype)


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_gradcheck_and_second_derivatives(activation: str) -> None:
    x, w, b, r = leaf(draw(2, 3, 4)), leaf(draw(5, 4, seed=1)), leaf(draw(5, seed=2)), leaf(draw(2, 3, 5, seed=3))
    assert fp.gradcheck(lambda *a: F.linear(*a, activation), (x, w, b, r), order=2)
    assert fp.gradcheck(lambda *a: F.linear(*a, activation=activation), (x, w), order=2)


def test_a_linear_without_activation_hands_its_cotangent_on(launched: list[str]) -> None:
    x, w, b, r = leaf(draw(6, 4)), leaf(draw(5, 4)), leaf(draw(5)), leaf(draw(6, 5))
    y = F.linear(x, w, b, r)
    assert launched == ["linear same"]
    g = fp.tensor(draw(6, 5, seed=1))
    launched.clear()
    grads = y.backward(g)
    assert sorted(launched)[:2] == ["linear same", "linear_dw"] and len(launched) <= 3  # and a copy: the map shares nothing
    close(grads[r], g)
    assert grads[r].buffer is not g.buffer


@pytest.mark.parametrize("activation", ["relu", "gelu_erf", "gelu_tanh", "silu"])
def test_one_launch_forward_and_two_backward(activation: str, launched: list[str]) -> None:
    act: Any = REGISTRY[activation]
    x, w, b = leaf(draw(6, 4)), leaf(draw(5, 4)), leaf(draw(5))
    y = F.linear(x, w, b, None, activation)
    assert launched == [f"linear {act.formula.__name__}"]
    launched.clear()
    y.backward(fp.tensor(draw(6, 5)))
    assert launched == [f"linear_dx {act.rule[0].__name__}", "linear_dw"]
    y = F.linear(x.detach(), w, b, None, activation)
    launched.clear()
    y.backward(fp.tensor(draw(6, 5)))
    assert launched == [f"map2 {act.rule[0].__name__}", "linear_dw"]


def test_what_is_kept() -> None:
    x, w = leaf(draw(64, 32, dtype=F32)), leaf(draw(48, 32, dtype=F32))
    r = fp.tensor(draw(64, 48, dtype=F32))
    for activation, residual, extra in [("", None, 0), ("relu", None, 0), ("tanh", r, 1), ("silu", None, 1), ("gelu_erf", r, 1)]:
        for _ in range(2):
            before = x.device.memory()["current"]
            y = F.linear(x, w, None, residual, activation)
            assert x.device.memory()["current"] - before == (1 + extra) * y.size * 4, activation
            del y


def test_without_a_gradient_a_layer_keeps_nothing() -> None:
    x = fp.tensor(draw(64, 32, dtype=F32))
    model = nn.Sequential(nn.Linear(32, 48), nn.GELU())
    with fp.no_grad():
        y = model(x)
        peak = x.device.memory()["current"] - y.size * 4
        y = None
        y = model(x)
        assert x.device.memory()["current"] == peak + y.size * 4
    model.params.freeze()  # and nothing where no input wants a gradient
    assert F.linear(x, model[0].weight, None, None, "silu").entry is None


def test_the_same_weight_again_and_again() -> None:
    x, w, b = leaf(draw(7, 5)), leaf(draw(5, 5, seed=1)), leaf(draw(5, seed=2))
    y = z = x
    for activation in ("tanh", "", "gelu_erf"):
        y = F.linear(y, w, b, y, activation)
        z = composed(z, w, b, z, activation)
    close(y, z)
    got, want = y.sum().backward(), z.sum().backward()
    for t in (x, w, b):
        close(got[t], want[t])
    check(w, w, b, None, "relu", F64)  # the weight is its own input
    square = leaf(draw(4, 4))
    close(F.linear(square, square, None, square).sum().backward()[square], (square @ square.T + square).sum().backward()[square])


def test_transposed_and_sliced_inputs() -> None:
    x, w = draw(6, 7), draw(9, 10, seed=1)
    check(leaf(x.T), leaf(w[::2, 1:7]), leaf(draw(10)[::2]), leaf(draw(5, 7).T), "gelu_tanh", F64)


@pytest.mark.engine
@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("activation", ["", "relu"])
def test_gradients_of_packed_parameters_are_written_where_they_belong(twice: bool, activation: str, launched: list[str]) -> None:
    def grads(pack: bool) -> tuple[Any, dict[str, Array]]:
        model = nn.Sequential(nn.Linear(5, 5), nn.ReLU())
        model.load_state_dict({"0.weight": draw(5, 5, dtype=F32), "0.bias": draw(5, dtype=F32)})
        if pack:
            model.params.pack()
        w, b = model.parameters()
        y = F.linear(fp.tensor(draw(6, 5, dtype=F32)), w, b, None, activation)
        y = F.linear(y, w, b, None, activation) if twice else y
        launched.clear()
        found = y.backward(fp.tensor(draw(6, 5, dtype=F32)))
        return found, {p.name: found[p].numpy().copy() for p in (w, b)}

    want = grads(False)[1]
    found, got = grads(True)
    first = "map2 relu_dx" if activation else ""
    then = "linear_dx relu_dx" if activation else "linear same"
    assert launched == [name for name in ([then, "linear_dw"] if twice else []) + [first, "linear_dw"] if name]
    assert len(found.spans) == 1
    for name, array in want.items():
        close(got[name], array, F32, name)


def test_half_types_are_computed_in_float32() -> None:
    x, w, r = draw(6, 4, dtype=F32), draw(5, 4, dtype=F32), draw(6, 5, dtype=F32)
    for dtype in (fp.float16, fp.bfloat16):
        a, b, c = (fp.tensor(t).to(dtype).requires_grad_() for t in (x, w, r))
        y = F.linear(a, b, None, c, "silu")
        wide = [t.numpy().astype(F64) for t in (a, b, c)]
        assert y.dtype == dtype
        np.testing.assert_allclose(y.numpy().astype(F64), ACTIVATIONS["silu"](wide[0] @ wide[1].T) + wide[2], 2e-2, 2e-2)
        assert y.sum().backward()[b].shape == (5, 4)


def test_errors() -> None:
    x, w = fp.ones(3, 4), fp.ones(5, 4)
    with raises(fp.ShapeError, "linear: sizes differ", "(3, 4)", "weight is (4, 5)"):
        F.linear(x, fp.ones(4, 5))
    with raises(fp.ShapeError, "linear: residual has another shape", "(5,)", "(3, 5)"):
        F.linear(x, w, None, fp.ones(5))
    for name in ("nothing", "add", "softmax", "leaky_relu", "linear", "sign"):
        with raises(ValueError, "linear: not an activation", name, "gelu_erf"):
            F.linear(x, w, activation=name)


@pytest.mark.parametrize("rows, n, k", [(768, 130, 96), (200, 70, 33)])
def test_any_number_of_workers_gives_the_same_bits(rows, n, k):
    """Few workers share out rows, many share out panels of columns."""
    x, w, bias, residual = fp.randn((rows, k)), fp.randn((n, k)), fp.randn((n,)), fp.randn((rows, n))
    kernel = fp.device("cpu").kernel(loop_named("linear"), REGISTRY["gelu_erf"].formula, fp.float32, 0)
    found = set()
    for workers in (1, 2, 3, 5, 16):
        y, kept = fp.zeros((rows, n)), fp.zeros((rows, n))
        arrays = [t.buffer.data for t in (y, kept, x, w, bias, residual)]
        kernel.call(workers, *arrays, rows, n, k, False, True, True, SUM)
        found.add((y.numpy().tobytes(), kept.numpy().tobytes()))
    assert len(found) == 1
    np.testing.assert_allclose(kept.numpy(), x.numpy() @ w.numpy().T + bias.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("activation", ["tanh", "sigmoid", "silu", "relu"])
@pytest.mark.parametrize("residual", [False, True])
def test_a_hook_of_the_result_is_heard_in_second_derivatives(activation, residual):
    """As with one op after the other: the derivative of tanh reads the result, whose hook replaces the gradient again."""
    given = [np.random.default_rng(1).normal(size=shape) for shape in ((4, 3), (2, 3), (2,), (4, 2))]

    def second(fused: bool) -> list[Any]:
        x, w, b, r = (fp.tensor(a, requires_grad=True) for a in given)
        y = F.linear(x, w, b, r if residual else None, activation) if fused else getattr(fp, activation)(F.linear(x, w, b))
        y = y + r if residual and not fused else y
        y.register_hook(lambda g: g * g)
        g = (y**2).sum().backward(create_graph=True)[x]
        found = (g**2).sum().backward()
        return [found[t].numpy() for t in (x, w, b)]

    for one, other in zip(second(True), second(False), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)
