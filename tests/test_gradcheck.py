"""A test of the test: gradcheck must accept right derivatives and reject every planted mistake.

Mutants are ops built with the public builders (pointwise, custom) around a wrong rule: a flipped sign, a factor of
1.001, swapped arguments, a broadcast that is not summed, one wrong element in many. Each is taken out of the registry
again when its test ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from error_text import raises

import flamepy as fp
from flamepy.core.custom import custom
from flamepy.core.op import REGISTRY
from flamepy.core.pointwise import pointwise
from flamepy.core.words import exp, sin

pytestmark = pytest.mark.usefixtures("device")


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    """What a test registers is gone afterwards."""
    before = set(REGISTRY)
    yield
    for name in set(REGISTRY) - before:
        del REGISTRY[name]


def leaf(*shape: int, seed: int = 0, dtype: str = "float64") -> Any:
    return fp.tensor(np.random.default_rng(seed).uniform(0.4, 1.6, shape).astype(dtype), requires_grad=True)


def wave_y(x):
    return sin(x) * exp(x)


def wave_dx(g, x):
    return g * exp(x) * (sin(x) + sin(x + 1.5707963267948966))


def flipped_dx(g, x):
    return -g * exp(x) * (sin(x) + sin(x + 1.5707963267948966))


def scaled_dx(g, x):
    return 1.001 * g * exp(x) * (sin(x) + sin(x + 1.5707963267948966))


def forgets_g_dx(g, x):
    return exp(x) * (sin(x) + sin(x + 1.5707963267948966)) + 0.0 * g


def output_for_input_dx(g, y):
    return g * exp(y) * (sin(y) + sin(y + 1.5707963267948966))


def nothing_dx(g, x):
    return 0.0 * g * x


def product_y(a, b):
    return a * a * b


def product_da(g, a, b):
    return 2.0 * g * a * b


def product_db(g, a):
    return g * a * a


@pytest.mark.parametrize("rule", [flipped_dx, scaled_dx, forgets_g_dx, output_for_input_dx, nothing_dx])
@pytest.mark.parametrize("shape", [(3, 4), (), (700,)])
def test_wrong_formulas_are_rejected(rule: Any, shape: tuple[int, ...]) -> None:
    wave = pointwise("_mutant", wave_y, rule)
    assert not fp.gradcheck(wave, (leaf(*shape),), raise_exception=False)
    with pytest.raises(fp.errors.GradientError):
        fp.gradcheck(wave, (leaf(*shape),))


@pytest.mark.parametrize("shape", [(3, 4), (), (0, 3), (700,)])
def test_the_right_formula_is_accepted(shape: tuple[int, ...]) -> None:
    assert fp.gradcheck(pointwise("_right", wave_y, wave_dx), (leaf(*shape),)) is True
    assert fp.gradcheck(pointwise("_product", product_y, product_da, product_db), (leaf(*shape), leaf(*shape, seed=1)))


@pytest.mark.parametrize("rules", [(product_db, product_da), (product_da, product_da), (product_db, product_db)])
def test_swapped_arguments_are_rejected(rules: Any) -> None:
    mutant = pointwise("_mutant", product_y, *rules)
    for shapes in [((3, 4), (3, 4)), ((3, 4), (4,)), ((), ())]:
        assert not fp.gradcheck(mutant, (leaf(*shapes[0]), leaf(*shapes[1], seed=1)), raise_exception=False)


def bias_op(name: str, rule: Any) -> Any:
    def forward(x, b):
        return x * b

    forward.__name__ = name
    op = custom(forward)
    op.backward(rule)
    return op


def right(g, x, b):
    return g * b, (g * x).sum(axis=0)


def not_summed(g, x, b):
    return g * b, (g * x)[0]


def averaged(g, x, b):
    return g * b, (g * x).mean(axis=0)


def wrong_axis(g, x, b):
    return g * b, (g * x).sum(axis=1)


def one_wrong_element(g, x, b):
    spot = np.ones(x.shape)
    spot[1, 2] = 1.01
    return g * b * fp.tensor(spot), (g * x).sum(axis=0)


def transposed(g, x, b):
    return (g * b).T, (g * x).sum(axis=0)


@pytest.mark.parametrize("rule", [not_summed, averaged, wrong_axis, one_wrong_element, transposed])
def test_wrong_broadcasting_is_rejected(rule: Any) -> None:
    args = (leaf(4, 4), leaf(4, seed=1))
    assert fp.gradcheck(bias_op("_right", right), args)
    assert not fp.gradcheck(bias_op("_mutant", rule), args, raise_exception=False)


def test_a_cut_path_is_rejected() -> None:
    """d(x * x): half of the derivative is lost where one factor is detached."""
    assert not fp.gradcheck(lambda x: x * x.detach(), (leaf(3),), raise_exception=False)
    assert not fp.gradcheck(lambda x, w: x.detach() * w, (leaf(3), leaf(3, seed=1)), raise_exception=False)


def test_a_wrong_graph_rule_is_rejected() -> None:
    """The first derivative is right, the differentiable rule beside it is not."""

    def _cube(x):
        return x * x * x

    cube = custom(_cube)
    cube.backward(lambda g, x: g * x * x * 3.0)
    cube.graph(lambda g, x: g * x * x * 3.003)

    assert fp.gradcheck(cube, (leaf(3),))
    assert not fp.gradcheck(cube, (leaf(3),), order=2, raise_exception=False)


def test_the_report_names_the_worst_element_and_both_values() -> None:
    with pytest.raises(fp.errors.GradientError) as caught:
        fp.gradcheck(bias_op("_mutant", one_wrong_element), (leaf(4, 4), leaf(4, seed=1)))
    assert "(1, 2)" in str(caught.value), caught.value


@pytest.mark.parametrize("wrong", [{"eps": 0.0}, {"eps": -1e-6}, {"atol": -1.0}, {"rtol": -1.0}])
def test_steps_and_limits_are_checked(wrong: dict[str, float]) -> None:
    with raises(ValueError, "gradcheck: steps or limits out of range: ", f"{next(iter(wrong))} {next(iter(wrong.values()))}"):
        fp.gradcheck(lambda x: x * 2, (leaf(3),), **wrong)


def test_inputs_are_left_as_they_were() -> None:
    x = leaf(3, 4)
    before = x.numpy().copy()
    fp.gradcheck(lambda x: (x * x).sum(), (x,))
    np.testing.assert_array_equal(x.numpy(), before)


def test_a_tensor_that_requires_no_grad_is_a_constant() -> None:
    fixed = fp.tensor(np.ones(3))
    assert fp.gradcheck(lambda x, c: fp.floor(c) * x, (leaf(3), fixed))
