"""Records that are checked against the step itself: when, what a difference says, and that it leaves nothing behind."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from error_text import raises

import flamepy as fp
import flamepy.nn.functional as F
from flamepy import nn
from flamepy.engine import capture as replay
from flamepy.engine.capture import verify


def one(i: int) -> fp.Tensor:
    return fp.full((3,), float(i))


def model() -> nn.Sequential:
    fp.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Dropout(0.5), nn.Linear(4, 2))


class World:
    """A step that updates a model; `hidden` decides what it does, and is not seen."""

    def __init__(self, packed: bool = True, grads: bool = False):
        self.model, self.hidden = model(), [0] * 1000
        if packed:
            self.model.params.pack()
        self.optimizer = fp.AdamW(self.model, lr=fp.schedules.cosine(0.1, 50))
        self.ema = fp.EMA(self.model.params, 0.9)
        self.grads = grads

    def step(self, x: Any) -> Any:
        loss = self.model(x).square().mean()
        if self.hidden[500] == 1:
            loss = loss * 2.0
        grads = loss.backward()
        if self.hidden[500] == 2:
            self.model.params.set_grads(grads)
        norm = fp.clip_grad_norm(grads, 1.0 if self.hidden[500] != 3 else 0.5)
        if self.grads:
            self.model.params.set_grads(grads)
        if self.hidden[500] != 4:
            self.optimizer.step(grads)
        if self.hidden[500] == 5:
            self.optimizer.step(grads)
        self.ema.update()
        return (loss, norm) if self.hidden[500] != 6 else (norm, loss)

    def seen(self) -> Any:
        ps = self.model.parameters()
        state = self.optimizer.state_dict()
        arrays = [a.tobytes() for row in state["state"].values() for a in row.values() if isinstance(a, np.ndarray)]
        counts = [row["step"] for row in state["state"].values()], state["groups"][0]["lr"], state["groups"][0].get("finished")
        grads = [None if (g := p.kept_grad()) is None else g.numpy().tobytes() for p in ps]  # grad itself may hint, once a process
        average = [np.asarray(a).tobytes() for a in self.ema.state_dict()["average"].values()] if "average" in self.ema.state_dict() else []
        return [p.numpy().tobytes() for p in ps], [p.buffer.version for p in ps], arrays, counts, grads, average, fp.get_rng_state()


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("grads", [True, False])
@pytest.mark.parametrize("change", range(1, 7))
def test_a_difference_is_told_and_nothing_of_that_call_was_done(packed, grads, change):
    world = World(packed, grads and change != 2)  # which sets what is set again later
    captured = fp.capture(world.step, verify=3)
    for i in range(5):
        captured(one(i))
    world.hidden[500] = change
    captured(one(5)), captured(one(6))  # calls 2 to 4 and 5 to 7 go from check to check
    before = world.seen()
    for _ in range(2):  # as long as the step does something else
        with raises(fp.CaptureError, "step does something else now than what was recorded", "became"):
            captured(one(7))
        assert world.seen() == before
    world.hidden[500] = 0
    captured(one(7))
    assert world.seen() != before


def test_checks_leave_the_bits_of_eager():
    worlds = []
    for wrap in (lambda f: f, lambda f: fp.capture(f, verify=1)):
        world = World(grads=True)
        step, found = wrap(world.step), []
        for i in range(8):
            loss, norm = step(one(i))
            found += [loss.item(), float(norm), *[part for n, part in enumerate(world.seen()) if n != 1]]
        worlds.append(found)
    assert worlds[0] == worlds[1]


def test_what_becomes_what_is_said_with_op_line_and_numbers():
    hidden = [2.0] * 1000
    captured = fp.capture(lambda x: x * hidden[500], verify=1)
    for i in range(3):
        captured(one(i))
    hidden[500] = 3.0
    with raises(fp.CaptureError, "'mul_y' at", "became 'mul_y' at", "(2.0, now 3.0)"):
        captured(one(3))
    swapped = [False] * 1000
    p, q = fp.Parameter(fp.ones(3)), fp.Parameter(fp.zeros(3))
    captured = fp.capture(lambda x: x * (p if swapped[500] else q), verify=1)
    for i in range(3):
        captured(one(i))
    swapped[500] = True
    with raises(fp.CaptureError, "(another tensor)"):
        captured(one(3))


def test_results_of_the_step_itself_that_change_places_are_seen():
    """The same launches on the same sizes; which of the step's own tensors goes where is another."""
    hidden = [False] * 1000

    def step(x: Any) -> Any:
        a, b = x + 1.0, x * 2.0
        return (a if hidden[500] else b) - x

    def giving(x: Any) -> Any:
        a, b = x + 1.0, x * 2.0
        return (a, b) if hidden[500] else (b, a)

    for f in (step, giving):
        hidden[500] = False
        captured = fp.capture(f, verify=1)
        for i in range(3):
            captured(one(i))
        hidden[500] = True
        with raises(fp.CaptureError, "does something else now"):
            captured(one(3))


@pytest.mark.parametrize("lr", [fp.schedules.linear(0.5, 0.1, 50), 0.1])
def test_another_optimizer_of_the_same_parameters_is_seen(lr):
    """Its launches are the same; what is counted, and which rate is asked for, is another's."""
    hidden, p = [0] * 1000, fp.Parameter(fp.ones(3))
    choices = [fp.SGD([p], lr=fp.schedules.linear(0.1, 1.0, 50)), fp.SGD([p], lr=lr)]

    def step(x: Any) -> Any:
        choices[hidden[500]].step((p * x).sum().backward())
        return x

    captured = fp.capture(step, verify=1)
    for i in range(4):
        captured(one(i))
    before, hidden[500] = p.tolist(), 1
    with raises(fp.CaptureError, "does something else now"):
        captured(one(4))
    assert p.tolist() == before


def test_results_are_compared_with_their_tape_and_types_and_nan_is_nan():
    hidden, p = [0] * 1000, fp.Parameter(fp.ones(3))

    def detached(x: Any) -> Any:
        y = p * x
        return y.detach() if hidden[500] else y

    def number(x: Any) -> Any:
        return x * 2.0, float("nan"), bool(hidden[500]) if hidden[500] else 0, {"a": [float("inf") - float("inf")]}

    for step in (detached, number):
        hidden[500] = 0
        captured = fp.capture(step, verify=1)
        for i in range(5):
            captured(one(i))
        hidden[500] = 1
        with raises(fp.CaptureError, "its results became others"):
            captured(one(5))


def test_steps_that_come_or_do_not_come_are_seen():
    hidden = [1] * 1000

    def step(x: Any) -> Any:
        for _ in range(hidden[500]):
            x = x * 2.0
        return x

    for count in (0, 2):
        hidden[500] = 1
        captured = fp.capture(step, verify=1)
        for i in range(3):
            captured(one(i))
        hidden[500] = count
        with raises(fp.CaptureError, "the end of the step"):
            captured(one(3))


def test_a_step_that_catches_the_error_does_not_hide_it():
    hidden = [2.0] * 1000

    def step(x: Any) -> Any:
        try:
            return x * hidden[500]
        except fp.CaptureError:
            return x

    captured = fp.capture(step, verify=1)
    for i in range(3):
        captured(one(i))
    hidden[500] = 3.0
    with raises(fp.CaptureError, "(2.0, now 3.0)"):
        captured(one(3))


def test_an_error_of_the_steps_own_comes_through_and_changes_nothing():
    world = World()
    limit = [10] * 1000

    def step(x: Any) -> Any:
        found = world.step(x)
        if limit[500] < 5:
            raise KeyError("the user's")
        return found

    captured = fp.capture(step, verify=1)
    for i in range(4):
        captured(one(i))
    before, limit[500] = world.seen(), 1
    with pytest.raises(KeyError, match="the user's"):
        captured(one(4))
    assert world.seen() == before


# ---- when ------------------------------------------------------------------------------------------------------------------------
def clock_of_checks(monkeypatch: Any, at: list[Any]) -> None:
    """Let checks be timed by at[600], and nothing else."""
    for module in (replay, verify):
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: at[600]))


def counted(at: list[int], runs: list[int], check: float = 0.0) -> Any:
    """A step that notes at which calls it runs; `at`: (this call, seconds by the clock), too long to be watched."""

    def step(x: Any) -> Any:
        runs.append(at[500])
        at[600] += check * (at[500] > 1)
        return x * 2.0

    return step


@pytest.mark.parametrize(
    "check, wanted", [(0.255, [4, 8, 16, 31, 59, 117, 180]), (10.0, [4, 8, 16, 31, 59, 117]), (1e-6, [4, *range(5, 201)])]
)
def test_checks_come_at_calls_4_8_16_then_at_uneven_distances_and_then_for_one_percent_of_the_time(monkeypatch, check, wanted):
    at: list[Any] = [0] * 1000
    runs: list[int] = []
    clock_of_checks(monkeypatch, at)
    captured = fp.capture(counted(at, runs, check))
    with pytest.warns(fp.FlameWarning, match="also adds to runs"):
        for at[500] in range(201):
            captured(one(0))
            at[600] += 1.0  # what a call takes
    assert runs == [0, 1, *wanted]


@pytest.mark.parametrize("check, calls", [(0.08, 500), (0.9, 2_000), (60.0, 200_000)])  # like a small GPT, a tiny one, a tiny MLP
def test_checks_cost_less_than_one_percent_in_the_mean(monkeypatch, check, calls):
    """The first ones, at 4, 8, 16, cost more; later ones make up for it, and none lets twice as much time pass as the others do."""
    at: list[Any] = [0.0] * 1000
    clock_of_checks(monkeypatch, at)
    checks, longest = verify.Checks(True), 0
    while checks.calls + checks.left <= calls:
        longest = max(longest, checks.left)
        at[600] += checks.left  # what the calls take
        began, at[600] = at[600], at[600] + check * (3.0 if checks.calls < 10 else 1.0)  # the first are slower
        checks.again(began)
    taken = at[600] - (checks.calls - 1)
    assert 0 < taken < 0.01 * at[600] and longest <= 2 / verify.SHARE * check + 1


@pytest.mark.parametrize("every", [3, 5, 7, 10, 12])
@pytest.mark.parametrize("check", [0.08, 0.255])
def test_what_a_step_does_at_every_tenth_call_is_met_by_a_check(monkeypatch, every, check):
    """Checks at even distances would miss it for ever: none of 4, 8, 16, 32 ... ends in 0."""
    at: list[Any] = [0] * 1000

    def step(x: Any) -> Any:
        at[600] += check * (at[500] > 1)
        return x * 3.0 if at[500] % every == every - 1 else x * 2.0

    clock_of_checks(monkeypatch, at)
    captured = fp.capture(step)
    with raises(fp.CaptureError, "(2.0, now 3.0)"):
        for at[500] in range(1000):
            captured(one(1))
            at[600] += 1.0


@pytest.mark.parametrize("verify, wanted", [(1, [2, 3, 4, 5, 6, 7, 8]), (3, [4, 7]), (False, [])])
def test_checks_come_as_often_as_asked(verify, wanted):
    at: list[int] = [0] * 1000
    runs: list[int] = []
    captured = fp.capture(counted(at, runs), verify=verify)
    with pytest.warns(fp.FlameWarning, match="also adds to runs"):
        for at[500] in range(9):
            captured(one(0))
    assert runs == [0, 1, *wanted]
    assert ("never checked" in repr(captured)) is (verify is False)


def test_verify_is_checked_itself():
    for wrong in (0, -1, 1.5, "yes", None):
        with raises(ValueError, "capture: verify must be", repr(wrong)):
            fp.capture(lambda x: x, verify=wrong)


def test_a_check_costs_no_memory_and_runs_no_kernel():
    world = World()
    captured = fp.capture(world.step, verify=2)
    for i in range(6):
        captured(one(i))
    before = fp.device().memory()
    launched: list[Any] = []
    direct = fp.device().direct
    run = type(direct).run
    try:
        type(direct).run = lambda self, kernel, *rest: (launched.append(kernel), run(self, kernel, *rest))[1]
        captured(one(6))
        replayed = len(launched)
        captured(one(7))
    finally:
        type(direct).run = run
    assert len(launched) == 2 * replayed
    assert fp.device().memory()["current"] <= before["current"] and fp.device().memory()["cached"] <= before["cached"]


def test_two_models_and_threads_are_checked_each_for_itself():
    def work(found: list[Any]) -> None:
        world = World()
        captured = fp.capture(world.step, verify=1)
        for i in range(6):
            captured(one(i))
        found.append(world.seen()[0])

    found: list[Any] = []
    threads = [threading.Thread(target=work, args=(found,)) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(found) == 2


def test_a_loss_scaler_and_accumulation_are_checked_too():
    m, y = model(), fp.ones(3)
    optimizer, scaler = fp.SGD(m, lr=0.1), fp.GradScaler(init_scale=8.0, growth_interval=2)

    def step(x: Any) -> Any:
        loss = F.mse_loss(m(x), y[:2])
        scaler.step(optimizer, scaler.scale(loss).backward())
        return loss

    captured = fp.capture(step, verify=1)
    for i in range(6):
        captured(one(i))
    assert scaler.get_scale() == 64.0
