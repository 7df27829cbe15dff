"""Learning-rate schedules: pure functions of the number of finished steps.

Oracle: torch.optim.lr_scheduler where it has the schedule, else numbers worked by hand. Being pure is the point: resuming a run needs
no schedule state, and a step may be asked for twice or out of order.
"""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from error_text import raises

from flamepy import schedules


def torch_path(make, lr: float, steps: int) -> list[float]:
    """The learning rate torch uses for each step."""
    torch = pytest.importorskip("torch")
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=lr)
    scheduler = make(torch.optim.lr_scheduler, optimizer)
    path = []
    for _ in range(steps):
        path.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return path


def path_of(schedule, steps: int) -> list[float]:
    return [schedule(step) for step in range(steps)]


def chained_warmup_cosine(s, o):
    """torch: 4 steps up to the top, then 16 of the cosine."""
    up = s.LinearLR(o, 0.25, 1.0, 3)
    down = s.CosineAnnealingLR(o, 16, 0.02)
    return s.SequentialLR(o, [up, down], [4])


# name -> (ours, torch's, learning rate, steps compared)
AS_TORCH = {
    "constant": (schedules.constant(0.3), lambda s, o: s.ConstantLR(o, 1.0, 1), 0.3, 30),
    "step": (schedules.step(0.3, 7, 0.5), lambda s, o: s.StepLR(o, 7, 0.5), 0.3, 40),
    "step default": (schedules.step(0.3, 7), lambda s, o: s.StepLR(o, 7), 0.3, 40),
    "multistep": (schedules.multistep(0.3, [20, 5, 9], 0.1), lambda s, o: s.MultiStepLR(o, [5, 9, 20], 0.1), 0.3, 30),
    "multistep twice": (schedules.multistep(0.3, [5, 5], 0.5), lambda s, o: s.MultiStepLR(o, [5, 5], 0.5), 0.3, 10),
    "exponential": (schedules.exponential(0.3, 0.9), lambda s, o: s.ExponentialLR(o, 0.9), 0.3, 50),
    "linear": (schedules.linear(0.06, 0.24, 12), lambda s, o: s.LinearLR(o, 0.2, 0.8, 12), 0.3, 30),
    "cosine": (schedules.cosine(0.3, 20), lambda s, o: s.CosineAnnealingLR(o, 20), 0.3, 21),
    "cosine end": (schedules.cosine(0.3, 20, 0.05), lambda s, o: s.CosineAnnealingLR(o, 20, 0.05), 0.3, 21),
    "warmup": (schedules.warmup(0.3, 8), lambda s, o: s.LinearLR(o, 1 / 8, 1.0, 7), 0.3, 20),
    "poly": (schedules.poly(0.3, 15, 0.0, 2.5), lambda s, o: s.PolynomialLR(o, 15, 2.5), 0.3, 25),
    "poly default": (schedules.poly(0.3, 15), lambda s, o: s.PolynomialLR(o, 15), 0.3, 25),
    "one_cycle": (schedules.one_cycle(0.3, 50), lambda s, o: s.OneCycleLR(o, 0.3, total_steps=50), 0.3, 49),
    "one_cycle 10": (schedules.one_cycle(0.3, 10), lambda s, o: s.OneCycleLR(o, 0.3, total_steps=10), 0.3, 9),
    "one_cycle 33": (schedules.one_cycle(0.3, 33), lambda s, o: s.OneCycleLR(o, 0.3, total_steps=33), 0.3, 32),
    "warmup_cosine": (schedules.warmup_cosine(0.3, 4, 20, 0.02), chained_warmup_cosine, 0.3, 20),
    "cyclic": (schedules.cyclic(0.01, 0.3, 5), lambda s, o: s.CyclicLR(o, 0.01, 0.3, 5, cycle_momentum=False), 0.3, 60),
    "cyclic uneven": (
        schedules.cyclic(0.01, 0.3, 5, 3, "triangular2"),
        lambda s, o: s.CyclicLR(o, 0.01, 0.3, 5, 3, "triangular2", cycle_momentum=False),
        0.3,
        60,
    ),
    "cyclic exp_range": (
        schedules.cyclic(0.01, 0.3, 4, 7, mode="exp_range", gamma=0.97),
        lambda s, o: s.CyclicLR(o, 0.01, 0.3, 4, 7, "exp_range", 0.97, cycle_momentum=False),
        0.3,
        60,
    ),
    "restarts": (schedules.cosine_restarts(0.3, 7), lambda s, o: s.CosineAnnealingWarmRestarts(o, 7), 0.3, 40),
    "restarts longer": (
        schedules.cosine_restarts(0.3, 4, 3, 0.02),
        lambda s, o: s.CosineAnnealingWarmRestarts(o, 4, 3, 0.02),
        0.3,
        60,
    ),
    "noam": (
        schedules.noam(512, 12, 2.0),
        lambda s, o: s.LambdaLR(o, lambda n: 2.0 / 0.3 * 512**-0.5 * min((n + 1) ** -0.5, (n + 1) * 12**-1.5)),
        0.3,
        60,
    ),
    "sequence": (
        schedules.sequence([schedules.linear(0.03, 0.3, 5), schedules.exponential(0.3, 0.9), schedules.cosine(0.3, 9)], [5, 11]),
        lambda s, o: s.SequentialLR(o, [s.LinearLR(o, 0.1, 1.0, 5), s.ExponentialLR(o, 0.9), s.CosineAnnealingLR(o, 9)], [5, 11]),
        0.3,
        20,
    ),
    "product": (
        schedules.product(0.5, schedules.exponential(0.6, 0.9), schedules.linear(0.5, 1.0, 6)),
        lambda s, o: s.ChainedScheduler([s.LinearLR(o, 0.5, 1.0, 6), s.ExponentialLR(o, 0.9)], optimizer=o),
        0.3,
        40,
    ),
}


@pytest.mark.parametrize("name", AS_TORCH)
@pytest.mark.filterwarnings("ignore:The epoch parameter")
def test_as_torch(name):
    schedule, make, lr, steps = AS_TORCH[name]
    np.testing.assert_allclose(path_of(schedule, steps), torch_path(make, lr, steps), rtol=1e-12, atol=1e-16)


# name -> (schedule, {step: value})
BY_HAND = {
    "constant": (schedules.constant(0.5), {0: 0.5, 10**9: 0.5}),
    "step": (schedules.step(1.0, 3, 0.5), {0: 1, 2: 1, 3: 0.5, 5: 0.5, 6: 0.25}),
    "multistep": (schedules.multistep(1.0, (2, 5), 0.1), {1: 1, 2: 0.1, 4: 0.1, 5: 0.01, 99: 0.01}),
    "exponential": (schedules.exponential(2.0, 0.5), {0: 2, 1: 1, 3: 0.25}),
    "linear down": (schedules.linear(1.0, 0.0, 4), {0: 1, 1: 0.75, 2: 0.5, 4: 0, 99: 0}),
    "linear up": (schedules.linear(0.0, 2.0, 4), {0: 0, 3: 1.5, 4: 2, 5: 2}),
    "cosine": (schedules.cosine(1.0, 4, 0.2), {0: 1, 1: 0.6 + 0.4 * math.sqrt(0.5), 2: 0.6, 4: 0.2, 5: 0.2, 99: 0.2}),
    "warmup": (schedules.warmup(1.0, 4), {0: 0.25, 1: 0.5, 3: 1, 4: 1, 99: 1}),
    "no warmup": (schedules.warmup(1.0, 0), {0: 1, 9: 1}),
    "warmup_cosine": (schedules.warmup_cosine(1.0, 2, 6, 0.2), {0: 0.5, 1: 1, 2: 1, 4: 0.6, 6: 0.2, 7: 0.2, 99: 0.2}),
    "warmup_cosine without": (schedules.warmup_cosine(1.0, 0, 4), {0: 1, 2: 0.5, 4: 0, 9: 0}),
    "poly": (schedules.poly(1.0, 4, 0.2, 2.0), {0: 1, 2: 0.2 + 0.8 / 4, 4: 0.2, 9: 0.2}),
    "warmdown": (schedules.warmdown(1.0, 2, 4, 10, 0.1), {0: 0.5, 1: 1, 5: 1, 6: 1, 8: 0.55, 10: 0.1, 11: 0.1}),
    "warmdown whole": (schedules.warmdown(1.0, 0, 4, 4, 0.0), {0: 1, 1: 0.75, 3: 0.25, 4: 0}),
    "warmdown none": (schedules.warmdown(1.0, 0, 0, 4, 0.0), {0: 1, 3: 1, 4: 1}),
    "one_cycle": (schedules.one_cycle(1.0, 10), {0: 1 / 25, 1: (1 + 1 / 25) / 2, 2: 1, 9: 1 / 25e4, 10: 1 / 25e4, 99: 1 / 25e4}),
    "one_cycle short": (schedules.one_cycle(1.0, 1), {0: 1 / 25e4, 5: 1 / 25e4}),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_by_hand(name):
    schedule, values = BY_HAND[name]
    for step, value in values.items():
        assert schedule(step) == pytest.approx(value, rel=1e-12, abs=1e-15), step


RESTARTS = schedules.cosine_restarts(1.0, 2, 2)
BY_HAND |= {
    "cyclic": (schedules.cyclic(0.1, 0.5, 4), {0: 0.1, 1: 0.2, 4: 0.5, 6: 0.3, 8: 0.1, 12: 0.5}),
    "cyclic halves": (schedules.cyclic(0.0, 1.0, 1, 3, "triangular2"), {1: 1.0, 2: 2 / 3, 4: 0.0, 5: 0.5, 9: 0.25, 4000: 0.0}),
    "restarts": (RESTARTS, {0: 1, 1: 0.5, 2: 1, 4: 0.5, 6: 1, 10: 0.5, 14: 1}),
    "noam": (schedules.noam(4, 2), {0: 0.5 * 2**-1.5, 1: 0.5 * 2**-0.5, 7: 0.5 * 8**-0.5}),
    "sequence": (
        schedules.sequence([schedules.warmup(1.0, 2), 0.75, schedules.step(0.5, 1, 0.5)], [2, 4]),
        {0: 0.5, 1: 1, 2: 0.75, 3: 0.75, 4: 0.5, 6: 0.125},
    ),
    "product": (schedules.product(schedules.constant(0.5), lambda n: 1 / (n + 1)), {0: 0.5, 4: 0.1}),
}


EVERY = {**{n: s for n, (s, *_) in AS_TORCH.items()}, **{n + " by hand": s for n, (s, _) in BY_HAND.items()}}


@pytest.mark.parametrize("name", EVERY)
def test_pure(name):
    schedule = EVERY[name]
    forward = path_of(schedule, 60)
    assert [schedule(step) for step in reversed(range(60))] == forward[::-1] and schedule(17) == forward[17]
    assert schedule(np.int64(7)) == forward[7]


@pytest.mark.parametrize("name", EVERY)
def test_bounded(name):
    top = {"exponential by hand": 2.0, "linear up by hand": 2.0}.get(name, 1.0 if name.endswith("by hand") else 0.3)
    for step in [*range(100), 10**6]:
        value = EVERY[name](step)
        assert math.isfinite(value) and 0.0 <= value <= top * (1 + 1e-12)


def test_a_step_is_used_by_setting_lr():
    import flamepy as fp

    p = fp.Parameter(np.array([1.0]))
    optimizer, lr = fp.SGD([p], lr=1.0), fp.schedules.linear(0.5, 0.0, 2)
    for step in range(3):
        p.set_grad([1.0])
        optimizer.lr = lr(step)
        optimizer.step()
    assert p.item() == 1.0 - 0.5 - 0.25 and optimizer.lr == 0.0


def test_the_arguments_of_the_contract():
    calls = [
        schedules.constant(lr=1.0), schedules.step(lr=1.0, every=2, gamma=0.5), schedules.exponential(lr=1.0, gamma=0.5),
        schedules.linear(start=1.0, end=0.5, n=3), schedules.cosine(lr=1.0, n=3, end=0), schedules.warmup(lr=1.0, n=1),
        schedules.warmup_cosine(lr=1.0, warmup=0, n=3, end=0), schedules.multistep(lr=1.0, milestones=[1], gamma=0.5),
        schedules.poly(lr=1.0, n=3, end=0.0, power=2.0), schedules.warmdown(lr=1.0, warmup=0, warmdown=1, total=3, final=0.0),
    ]  # fmt: skip
    assert [schedule(0) for schedule in calls] == [1.0] * 10
    assert schedules.one_cycle(lr=1.0, n=9)(0) == pytest.approx(0.04)


def test_milestones_are_copied():
    milestones = [3]
    schedule = schedules.multistep(1.0, milestones, 0.5)
    milestones.append(0)
    assert schedule(1) == 1.0
    assert path_of(schedule, 5) == [1.0, 1.0, 1.0, 0.5, 0.5]


@pytest.mark.parametrize("name", EVERY)
def test_pickled_and_shown(name):
    schedule = EVERY[name]
    if name != "product by hand":  # it holds a lambda
        other = pickle.loads(pickle.dumps(schedule))
        assert path_of(other, 40) == path_of(schedule, 40) and repr(other) == repr(schedule)
        assert path_of(eval(repr(schedule), vars(schedules)), 40) == path_of(schedule, 40)
    milestones = [3]
    schedule = schedules.multistep(1.0, milestones, 0.5)
    milestones.append(0)
    assert repr(schedule) == "multistep(1.0, [3], 0.5)" and pickle.loads(pickle.dumps(schedule))(1) == 1.0


def test_a_rate_too_large_is_told_with_its_step():
    import flamepy as fp

    p = fp.Parameter(np.ones(1))
    optimizer, grads = fp.SGD([p], lr=schedules.exponential(1.0, 1e200)), [(p.id, p, fp.zeros(1, dtype=fp.float64))]
    optimizer.step(grads)
    optimizer.step(grads)
    with raises(ValueError, "lr out of range: inf, from the schedule after 2 steps"):
        optimizer.step(grads)
