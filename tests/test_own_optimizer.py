"""Optimizers that users write: a formula, slots, numbers. They are checked when their class is read; the arithmetic is NumPy's here.

The example of docs/extending.md is run by test_readme.py.
"""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from error_text import raises

import flamepy as fp
from flamepy.optimizers import Optimizer
from flamepy.words import sign, sqrt

pytestmark = pytest.mark.usefixtures("plain")


def signum_update(p, m, g, lr, beta, *_):
    m = beta * m + (1.0 - beta) * g
    return p - lr * sign(m), m


def plain_update(p, g, lr, *_):
    return p - lr * g


class Signum(Optimizer):
    slots, formula = ("m",), signum_update

    def __init__(self, params: Any, lr: Any = 0.5, beta: float = 0.75, groups: Any = None):
        super().__init__(params, {"lr": lr, "beta": beta}, groups)

    def numbers(self, group: Any, step: int) -> Any:
        return group["lr"], group["beta"]


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_class_of_three_parts_is_an_optimizer(captured: bool, dtype: str) -> None:
    """Groups, schedules, state, copies, 16-bit parameters and captured steps come with it."""
    params = fp.ParameterDict({n: fp.Parameter(fp.ones(2, dtype=dtype)) for n in ("w", "b")})
    params.pack()
    optimizer = Signum(params, lr=lambda n: 0.5 / (n + 1), groups={"b": {"lr_scale": 0.5}})

    def step(x: Any) -> Any:
        loss = (params["w"] * x).sum() + (params["b"] * x).sum()
        optimizer.step(loss.backward())
        return loss

    run = fp.capture(step) if captured else step
    w, m, rates = 1.0, 0.0, [0.5, 0.25, 0.5 / 3, 0.125, 0.1]
    for i, g in enumerate((1.0, -3.0, -1.0, 2.0, 0.25)):
        run(fp.full((2,), g, dtype=dtype))
        m = 0.75 * m + 0.25 * g
        w -= rates[i] * np.sign(m)
    row = optimizer.state_dict()
    assert row["class"] == "Signum" == optimizer.name and row["state"]["w"]["m"].tolist() == [m, m]
    key = "master" if dtype == "bfloat16" else None
    found = row["state"]["w"][key] if key else params["w"].numpy()
    np.testing.assert_allclose(found, [w, w], rtol=1e-6)
    other = Signum(params, groups={"b": {"lr_scale": 0.5}})
    other.load_state_dict(row)
    for twin in (other, copy.deepcopy(optimizer), pickle.loads(pickle.dumps(Signum(params)))):
        assert type(twin) is Signum and repr(twin).startswith("Signum(2 parameters")


def no_gradient(p, grad, lr, *_):
    return p - lr * grad


def method(self, p, g, lr, *_):
    return p - lr * g


def no_rest(p, g, lr):
    return p - lr * g


def one_result(p, m, g, lr, *_):
    return p - lr * g


def numpys(p, g, lr, *_):
    return p - lr * np.sqrt(g)


def branches(p, g, lr, *_):
    return p - lr if lr > 0 else p


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"formula": signum_update}, ["the formula and the slots differ: it takes ['m'] between p and g", "slots = ('m',)"]),
        ({"formula": plain_update, "slots": ("m",)}, ["it takes [] between p and g, slots are ['m']", "formula(p, m, g, lr, *_)"]),
        ({"formula": signum_update, "slots": ("v",)}, ["it takes ['m'] between p and g, slots are ['v']"]),
        ({"formula": one_result, "slots": ("m",)}, ["the formula returns 1 of 2 results: p, m. Return p, m"]),
        ({"formula": no_gradient}, ["not one of p, the slots and the gradient g: (p, grad, lr, *_)"]),
        ({"formula": method}, ["not one of p, the slots and the gradient g: (self, p, g, lr, *_)"]),
        ({"formula": no_rest}, ["the formula gets 12 numbers: (p, g, lr)", "*_ for the rest"]),
        ({"formula": numpys}, ["numpys uses what is no word: np.sqrt. Use sqrt of flamepy.words"]),
        ({"formula": branches}, ["an array cannot decide"]),
        ({"formula": plain_update, "slots": "m"}, ["slots are no names: 'm'"]),
        ({"formula": plain_update, "slots": ("step",)}, ["slots are no names"]),
        ({"formula": 3}, ["not a Python function: 3"]),
    ],
)
def test_what_does_not_fit_together_is_refused_when_the_class_is_read(parts: Any, words: Any) -> None:
    with raises((TypeError, ValueError), "Mine: ", *words):
        type("Mine", (Optimizer,), parts)


def mine(options: Any, numbers: Any = None, **parts: Any) -> Any:
    """An optimizer of a class without a formula of its own, unless it is among the parts."""

    def __init__(self: Any, params: Any) -> None:
        Optimizer.__init__(self, params, options, None)

    parts |= {"__init__": __init__} | ({"numbers": numbers} if numbers else {})
    return type("Mine", (Optimizer,), parts)([fp.Parameter([1.0])])


def test_what_is_missing_is_told_when_it_is_made() -> None:
    good = {"formula": plain_update}
    for call, words in (
        (lambda: mine({"lr": 0.1}, lambda self, group, step: (group["lr"],)), "no formula: the class has none. Write formula(p, g, "),
        (lambda: mine({"lr": 0.1}, **good), "no numbers()"),
        (lambda: mine({"lr": 0.1}, lambda self, group, step: group["lr"], **good), "numbers() gives no tuple of numbers: 0.1"),
        (lambda: mine({"lr": 0.1}, lambda self, group, step: (), **good), "numbers() gives another count of numbers: 0, the "),
        (lambda: mine({"lr": 0.1}, lambda self, group, step: (0.1,) * 13, **good), "at most 12"),
        (lambda: mine({"rate": 0.1}, lambda self, group, step: (0.1,), **good), "no lr among its options: ['rate']"),
        (lambda: mine({"lr": 0.1}, lambda self, group, step: (group["beta"],), **good), "no such option in a group: 'beta'. Known: "),
    ):  # fmt: skip
        with raises((TypeError, NotImplementedError, KeyError), "Mine: ", words):
            call()


def test_options_that_are_forgotten_are_asked_for_and_groups_may_be() -> None:
    numbers = {"formula": plain_update, "numbers": lambda self, group, step: (group["lr"],)}
    with raises(TypeError, "Mine: no options: its __init__ gives none. Write super().__init__(params, {'lr': lr, ...}, groups)."):
        type("Mine", (Optimizer,), numbers)([fp.Parameter([1.0])])
    short = {"__init__": lambda self, params: Optimizer.__init__(self, params, {"lr": 0.5})}
    p = fp.Parameter([1.0])
    type("Mine", (Optimizer,), numbers | short)([p]).step((p * 2.0).sum().backward())
    assert p.tolist() == [0.0]


def root_update(p, m, g, before, *_):
    return p - before * sqrt(m), m + g


def test_classes_derived_from_flamepys_keep_their_names() -> None:
    class Mine(fp.AdamW):
        pass

    class Other(fp.Lion):
        formula = root_update

    p = fp.Parameter([1.0])
    assert Mine([p]).name == "AdamW" and Other([p]).name == "Other" and fp.Lion.formula is not Other.formula
    with raises(TypeError, "Slots: the formula and the slots differ: it takes ['m'] between p and g, slots are ['m', 'v']"):
        type("Slots", (fp.Lion,), {"slots": ("m", "v")})
    optimizer = Other([p])
    p.set_grad([4.0])
    optimizer.step(), optimizer.step()
    assert p.tolist() == [1 - 2.0]


def test_a_glob_for_parameters_without_names_says_so() -> None:
    with raises(fp.StateError, "no parameter matches the group '*.bias': there are 0. They have no names yet: put them into a Module"):
        fp.AdamW([fp.Parameter([1.0])], groups={"*.bias": {"weight_decay": 0}})
    with raises(fp.StateError, "there are w. Fix the glob."):
        fp.AdamW(fp.ParameterDict({"w": fp.Parameter([1.0])}), groups={"*.bias": {"weight_decay": 0}})
