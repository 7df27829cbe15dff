"""Arguments of schedules that cannot be, and the one schedule that remembers.

Oracle: torch.optim.lr_scheduler.ReduceLROnPlateau.
"""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from error_text import raises

from flamepy import schedules

S = schedules
NAN = float("nan")
WRONG: list = [  # (call, words of the error)
    (lambda: S.step(1.0, 0), ["step: every must be positive: 0"]),
    (lambda: S.linear(1.0, 0.0, 0), ["linear: n must be positive"]),
    (lambda: S.cosine(1.0, -1), ["cosine: n", "-1"]),
    (lambda: S.warmup_cosine(1.0, 5, 0), ["warmup_cosine: n must be positive"]),
    (lambda: S.poly(1.0, 0), ["poly: n"]),
    (lambda: S.one_cycle(1.0, 0), ["one_cycle: n"]),
    (lambda: S.warmdown(1.0, 0, 0, 0), ["warmdown: total"]),
    (lambda: S.warmup_cosine(0.1, 10, 5), ["warmup_cosine: the warm-up is longer than the run: 10 > 5"]),
    (lambda: S.warmup(0.1, -1), ["warmup: n must be not negative: -1"]),
    (lambda: S.constant(NAN), ["constant: lr", "nan"]),
    (lambda: S.constant(-0.1), ["constant: lr must be not negative", "-0.1"]),
    (lambda: S.exponential(0.1, -0.9), ["exponential: gamma", "-0.9"]),
    (lambda: S.exponential(math.inf, 0.9), ["exponential: lr", "inf"]),
    (lambda: S.multistep(0.1, [3, -1]), ["multistep: milestone 1", "-1"]),
    (lambda: S.cosine(0.1, 5, -0.1), ["cosine: end", "-0.1"]),
    (lambda: S.cosine(0.1, NAN), ["cosine: n", "nan"]),
    (lambda: S.cosine(0.1, math.inf), ["cosine: n", "inf"]),
    (lambda: S.poly(0.1, 5, power=-1.0), ["poly: power", "-1.0"]),
    (lambda: S.noam(0, 10), ["noam: width"]),
    (lambda: S.noam(8, 0), ["noam: warmup"]),
    (lambda: S.one_cycle(0.1, 9, rise=1.5), ["rise", "1.5"]),
    (lambda: S.one_cycle(0.1, 9, start=0.0), ["one_cycle: start must be positive"]),
    (lambda: S.cyclic(0.1, 0.2, 0), ["cyclic: up"]),
    (lambda: S.cyclic(0.1, 0.2, 5, mode="saw"), ["cyclic: unknown mode: 'saw'"]),
    (lambda: S.cosine_restarts(0.1, 5, 0), ["restarts: factor"]),
    (lambda: S.sequence([1.0, 2.0], [3, 4]), ["sequence: 2 schedules have 1 milestones", "[3, 4]"]),
    (lambda: S.sequence([], []), ["sequence"]),
    (lambda: S.sequence([1.0, 2.0, 3.0], [4, 4]), ["do not rise: [4, 4]"]),
    (lambda: S.sequence([1.0, 2.0], [0]), ["do not rise: [0]"]),
    (lambda: S.sequence([1.0, 2.0], [-2]), ["sequence: milestone 0", "-2"]),
    (S.product, ["product: nothing to multiply"]),
    (lambda: S.product(-1.0), ["product", "-1.0"]),
    (lambda: S.ReduceOnPlateau(0.1, factor=1.0), ["factor must be below 1: 1.0"]),
    (lambda: S.ReduceOnPlateau(-0.1), ["ReduceOnPlateau: lr"]),
    (lambda: S.ReduceOnPlateau(0.1, mode="best"), ["unknown mode: 'best'"]),
    (lambda: S.ReduceOnPlateau(0.1, patience=-1), ["patience"]),
    (lambda: S.warmdown(1.0, 6, 5, 10), ["warmdown", "6 + 5 > 10"]),
]
NO_NUMBERS: list = [
    lambda: S.constant("0.1"),
    lambda: S.constant(None),
    lambda: S.step(0.1, "3"),
    lambda: S.step(0.1, 2.5),
    lambda: S.step(0.1, 3, [0.1]),
    lambda: S.linear(0.1, None, 3),
    lambda: S.warmup(True, 3),
    lambda: S.multistep(0.1, 5),
    lambda: S.multistep(0.1, ["5"]),
    lambda: S.sequence(["0.1", 0.2], [3]),
    lambda: S.product(None),
    lambda: S.cyclic(0.1, 0.2, 2, 1.5),
    lambda: S.ReduceOnPlateau("0.1"),
    lambda: S.ReduceOnPlateau(0.1).record("0.5"),
    lambda: S.ReduceOnPlateau(0.1).record(None),
]


@pytest.mark.parametrize("i", range(len(WRONG)))
def test_impossible_arguments(i):
    call, words = WRONG[i]
    with raises(ValueError, *words):
        call()


@pytest.mark.parametrize("i", range(len(NO_NUMBERS)))
def test_arguments_that_are_no_numbers(i):
    with raises(TypeError):
        NO_NUMBERS[i]()


def test_arguments_that_are_missing_or_too_many():
    for wrong in (lambda: S.cosine(0.1), lambda: S.cosine(0.1, 5, steps=3)):
        with pytest.raises(TypeError, match=r"^cosine\(\) "):
            wrong()


# ---- a rate with a memory ----------------------------------------------------------------------------------------------------------------
METRICS = [1.0, 0.9, 0.95, 0.9, 0.8999999, 0.91, NAN, 0.5, *[0.6] * 4, math.inf, *[0.4] * 7, 0.1, -1.0, -1.0, 5.0]


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("patience", [0, 2])
@pytest.mark.parametrize("cooldown", [0, 3])
def test_reduce_on_plateau(mode, patience, cooldown):
    torch = pytest.importorskip("torch")
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.3)
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, mode, factor=0.5, patience=patience, threshold=1e-3, cooldown=cooldown, min_lr=0.01, eps=0.0
    )
    ours = schedules.ReduceOnPlateau(0.3, 0.5, patience, 1e-3, mode, cooldown, 0.01)
    for n, metric in enumerate(METRICS):
        before = ours.lr
        fell = ours.record(metric)
        theirs.step(metric)
        assert ours(n) == ours(0) == optimizer.param_groups[0]["lr"] and fell == (ours.lr < before)
        ours = pickle.loads(pickle.dumps(ours)) if n % 3 == 0 else ours
        if n % 3 == 1:
            other = schedules.ReduceOnPlateau(7.0, 0.5, patience, 1e-3, mode, cooldown, 0.01)
            other.load_state_dict(ours.state_dict())
            ours = other


def test_reduce_on_plateau_is_a_rate():
    import flamepy as fp

    plateau = schedules.ReduceOnPlateau(0.5, patience=0, factor=0.5)
    p = fp.Parameter(np.zeros(1))
    optimizer = fp.SGD([p], lr=schedules.product(schedules.warmup(1.0, 2), plateau))
    for metric in (1.0, fp.tensor(2.0), np.float32(3.0)):
        plateau.record(metric)
        optimizer.step([(p.id, p, fp.ones(1, dtype=fp.float64))])
    assert p.item() == -(0.5 * 0.5 + 0.25 + 0.125) and "min_lr=0.0" in repr(plateau) and "0.125" in repr(optimizer)
    state = plateau.state_dict()
    for wrong in ({}, None, {**state, "lr": -1.0}, {**state, "bad": "1"}, {**state, "best": None}, {**state, "more": 1}):
        with raises(fp.StateError, "ReduceOnPlateau"):
            plateau.load_state_dict(wrong)
    assert plateau.state_dict() == state
    low = schedules.ReduceOnPlateau(1e-3, patience=0, min_lr=0.5)
    assert [low.record(1.0) for _ in range(3)] == [False] * 3 and low.lr == 1e-3


def test_names_of_pytorch_lead_to_ours():
    for name, word in (("CosineAnnealingLR", "cosine("), ("polynomial", "poly("), ("SequentialLR", "sequence("), ("cosin", "'cosine'")):
        with pytest.raises(AttributeError, match="schedules: no such name") as caught:
            getattr(schedules, name)
        assert word in str(caught.value)
