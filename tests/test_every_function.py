"""Every public function, given tracked inputs: what comes back has a gradient that reaches them, or no floats, or the call is refused.

A float result that silently has no gradient is the worst there is. Inputs come from the oracle table; a function without a line there is
another spelling of one that has, and is called with what fits.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cases import Case, Sample
from devices import default_device
from reference import REFERENCE
from test_ops import function, leaves, pieces, run

import flamepy as fp
from flamepy.core.op import PUBLIC
from flamepy.dtypes import FLOATS

NO_FLOATS = "holds no floats"


def outcome(call: Callable[[], Any], floats: list[Any]) -> str:
    """What became of a call; AssertionError for a float result that leads nowhere."""
    try:
        results = [y for y in pieces(call()) if isinstance(y, fp.Tensor)]
    except (fp.FlameError, TypeError, ValueError) as error:
        return f"refused: {error}"
    floating = [y for y in results if y.dtype in FLOATS]
    if not floating:
        return NO_FLOATS
    assert all([y.requires_grad for y in floating]), "a result of floats has no gradient"
    grads = sum([y.sum() for y in floating[1:]], floating[0].sum()).backward()
    assert any([x in grads for x in floats]), "a gradient reaches no input"
    return "has a gradient"


def tracked_call(name: str, case: Case, sample: Sample, promised: bool) -> str:
    """The outcome with all inputs of floats tracked, or only with those that a gradient is `promised` for."""
    arrays = case.draw(sample, np.float64)
    wanted = case.tracked(arrays) if promised else [a.dtype.kind == "f" for a in arrays]
    tensors = [leaves([a])[0] if want else fp.tensor(a) for a, want in zip(arrays, wanted, strict=True)]
    return outcome(lambda: run(name, case, sample, tensors), [t for t in tensors if t.requires_grad])


@pytest.mark.parametrize("name", [n for n in REFERENCE if any(i.kind == "real" for i in REFERENCE[n].inputs)])
def test_a_tracked_input_gives_a_gradient_or_an_error(name: str) -> None:
    case = REFERENCE[name]
    with default_device("plain"):
        for sample in case.samples[:8]:
            said = tracked_call(name, case, sample, False)
            assert not said.startswith("refused") or "no derivative" in said, (name, sample, said)
            assert not case.smooth or tracked_call(name, case, sample, True) == "has a gradient", (name, sample)


def with_flags(name: str, case: Case) -> list[str]:
    """The names of a function's options that are true or false."""
    parameters = inspect.signature(function(name)).parameters.values()
    return [p.name for p in parameters if type(p.default) is bool and not any(p.name in s.kwargs for s in case.samples[:1])]


FLAGS = [(name, flag) for name, case in REFERENCE.items() if not case.samples[0].args for flag in with_flags(name, case)]


def test_there_are_flags() -> None:
    assert len(FLAGS) > 60


@pytest.mark.parametrize(("name", "flag"), FLAGS)
def test_what_is_yes_or_no_takes_nothing_else(name: str, flag: str) -> None:
    case = REFERENCE[name]
    sample = case.samples[0]
    with default_device("plain"):
        tensors = [fp.tensor(a) for a in case.draw(sample, np.float64)]
        for wrong in ("no", 2.5, 2):
            with pytest.raises(fp.DTypeError, match=f"{flag} is no yes or no: {wrong!r}"):
                run(name, case, sample._replace(kwargs={**sample.kwargs, flag: wrong}), tensors)


@pytest.mark.parametrize("name", sorted(set(PUBLIC) - set(REFERENCE)))
def test_another_spelling_does_as_well(name: str) -> None:
    x, y = np.linspace(0.2, 0.8, 4), np.linspace(0.3, 0.9, 4)
    given: tuple[tuple[Any, ...], ...] = ((x,), (x, y), (x, (3, 4)), (x, 0.3, 0.6))
    said = []
    with default_device("plain"):
        for args in given:
            tensors = [leaves([a])[0] if isinstance(a, np.ndarray) else a for a in args]
            call = lambda tensors=tensors: function(name)(*tensors)
            said.append(outcome(call, [t for t in tensors if isinstance(t, fp.Tensor)]))
        if all([text.startswith("refused") for text in said]):  # it takes integers: one, or one and a number
            assert any(
                [not outcome(lambda n=n: function(name)(*n), []).startswith("refused") for n in ([[1, 2]], [[1, 2], 2], [[[1], [2]]])]
            ), said
