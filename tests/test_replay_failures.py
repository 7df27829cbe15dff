"""Captured steps and what leaves them, step counts, random state, errors midway, how long recording takes."""

from __future__ import annotations

import copy
import time
from typing import Any

import numpy as np
import pytest
from test_replay_kinds import Log, Wrap, batch, bits, model, refused, same, training

import flamepy as fp
import flamepy.nn.functional as F

pytestmark = pytest.mark.usefixtures("device")


def test_maps_and_tensors_kept_outside_are_refused():
    def maps(wrap: Wrap, log: Log) -> None:
        m, kept = model(), []
        m.params.pack()

        def step(x: Any, y: Any) -> Any:
            grads = (loss := F.cross_entropy(m(x), y)).backward()
            fp.clip_grad_norm(grads, 0.1)
            kept.append(grads)
            return loss

        f = wrap(step)
        for i in range(4):
            log(f(*batch(i)))
            log([fp.grad_norm(g) for g in kept])

    def behind_grad(wrap: Wrap, log: Log) -> None:
        """`.grad` may stay, the map whose memory it shares may not."""
        m, kept = model(), []

        def step(x: Any, y: Any) -> Any:
            grads = (loss := F.cross_entropy(m(x), y)).backward()
            m.params.set_grads(grads)
            kept.append(grads)
            return loss

        f = wrap(step)
        for i in range(4):
            log(f(*batch(i)))

    def hooks(wrap: Wrap, log: Log) -> None:
        w, seen = fp.Parameter(fp.ones(2)), []

        def step(x: Any) -> Any:
            y = w * x
            y.register_hook(seen.append)
            return y.sum().backward()[w]

        f = wrap(step)
        for i in range(4):
            log(f(fp.full((2,), i)))
        log(seen)

    refused(maps, "is kept outside of the step", 2)
    refused(behind_grad, "is kept outside of the step", 1)
    refused(hooks, "is kept outside of the step", 1)


@pytest.mark.parametrize("make", [fp.Adam, fp.AdamW])
def test_step_counts_that_differ_between_replays(make):
    def case(wrap: Wrap, log: Log) -> None:
        m = model()
        m.params.pack()
        o = make(m, lr=0.1)
        f = wrap(training(m, o))
        for i in range(12):
            if i in (4, 8):
                grads = F.cross_entropy(m(batch(i)[0]), batch(i)[1]).backward()
                grads.take(m.parameters()[i % 3])
                o.step(grads)
            log(f(*batch(i)))
            log(m)

    same(case)


def test_two_captured_steps_of_one_optimizer():
    def case(wrap: Wrap, log: Log) -> None:
        m = model()
        m.params.pack()
        o = fp.Adam(m, lr=0.1)
        whole = wrap(training(m, o))

        def some(x: Any, y: Any) -> Any:
            grads = (loss := F.cross_entropy(m(x), y)).backward()
            o.step([(p.id, p, grads[p]) for p in m.parameters()[1:]])
            return loss

        part = wrap(some)
        for i in range(14):
            log((part if i in (5, 8, 9, 11) else whole)(*batch(i)))
            log(m)

    same(case)


def test_counters_are_no_settings_unless_they_are_read():
    runs, tally, kept = 0, [0], {"n": 0}

    def step(x: Any) -> Any:
        nonlocal runs
        runs += 1
        tally[0] += 1
        kept["n"] += 1
        return x * 2.0

    captured = fp.capture(step)
    with pytest.warns(fp.FlameWarning, match="step also adds to runs"):
        assert [captured(fp.full((1,), i)).item() for i in range(5)] == [0.0, 2.0, 4.0, 6.0, 8.0]
    assert (runs, tally, kept) == (3, [3], {"n": 3})  # a replay runs no Python; call 4 checks the record

    def read(wrap: Wrap, log: Log) -> None:
        count = [0]

        def step(x: Any) -> Any:
            count[0] += 1
            return x * 2.0 if count[0] % 5 else x

        f = wrap(step)
        for i in range(9):
            log(f(fp.full((2,), i)))

    refused(read, "the step itself changes: count[0]", 2)

    def grown(wrap: Wrap, log: Log) -> None:
        factors: list[float] = []

        def step(x: Any) -> Any:
            for factor in factors:
                x = x * factor
            return x

        f = wrap(step)
        for i in range(9):
            factors.extend([2.0] if i in (4, 7) else [])
            log(f(fp.ones(2)))

    same(grown)


def test_two_updates_in_one_step():
    def case(wrap: Wrap, log: Log) -> None:
        m = model()
        o = fp.AdamW(m, lr=0.1)

        def step(x: Any, y: Any) -> Any:
            for rate in (0.1, 0.02):
                o.lr = rate
                o.step((loss := F.cross_entropy(m(x), y)).backward())
            return loss

        f = wrap(step)
        for i in range(6):
            o.lr = 1.0
            log((f(*batch(i)), m, o.lr))

    same(case)


def test_grads_set_outside_are_seen():
    def case(wrap: Wrap, log: Log) -> None:
        p = fp.Parameter(fp.ones(2))
        p.set_grad(fp.full((2,), 3.0))

        def step(x: Any) -> Any:
            p.update(0.1)
            return (p * x).sum()

        f = wrap(step)
        for i in range(12):
            if i in (4, 8):
                p.set_grad(None if i == 8 else fp.full((2,), 9.0))
            log((f(fp.ones(2)), p))

    same(case)


def test_python_results_that_change_are_refused_and_options_read_are_seen():
    def counted(wrap: Wrap, log: Log) -> None:
        numbers = iter(range(9))
        f = wrap(lambda x: (x * 2.0, next(numbers)))
        for _ in range(4):
            log(f(fp.ones(2)))

    def rate(wrap: Wrap, log: Log) -> None:
        m = model()
        o = fp.SGD(m, lr=0.1)

        def step(x: Any, y: Any) -> Any:
            loss = F.cross_entropy(m(x), y) * o.lr
            o.step(loss.backward())
            return loss, o.lr

        f = wrap(step)
        for i in range(9):
            o.lr = 0.5 if i in (4, 5, 6) else 0.1
            log(f(*batch(i)))

    refused(counted, "a value made by Python among the results changed", 1)
    same(rate)


def test_random_state_set_inside():
    def seed(wrap: Wrap, log: Log) -> None:
        def step(x: Any) -> Any:
            fp.manual_seed(7)
            return F.dropout(x, 0.5)

        f = wrap(step)
        for i in range(6):
            fp.manual_seed(100 + i)
            log((f(fp.ones(20)), fp.get_rng_state()))

    def constant(wrap: Wrap, log: Log) -> None:
        state = {"seed": 3, "stream": 5, "step": 0}

        def step(x: Any) -> Any:
            a = F.dropout(x, 0.5)
            fp.set_rng_state(state)
            return a, F.dropout(x, 0.5)

        f = wrap(step)
        for _ in range(6):
            log((f(fp.ones(20)), fp.get_rng_state()))

    def position(wrap: Wrap, log: Log) -> None:
        def step(x: Any) -> Any:
            state = fp.get_rng_state()
            a = F.dropout(x, 0.5)
            fp.set_rng_state(state)
            return a, F.dropout(x, 0.5)

        f = wrap(step)
        for _ in range(4):
            F.dropout(fp.ones(2), 0.5)
            log(f(fp.ones(20)))

    same(seed)
    same(constant)
    refused(position, "get_rng_state made by Python changed", 1)


@pytest.mark.parametrize("where", ["clip", "between"])
def test_an_error_midway_leaves_what_eager_leaves(where):
    """Parameters, moments, step counts, random numbers, versions; and the next call goes on."""

    def case(wrap: Wrap, log: Log) -> None:
        m, w = model(dropout=True), fp.Parameter(fp.ones(2))
        m.params.pack()
        first, o = fp.Adam([w], lr=0.1), fp.Adam(m, lr=0.1)

        def step(x: Any, y: Any) -> Any:
            first.step((w * w).sum().backward())  # done before the error
            out = F.dropout(m(x), 0.2)
            grads = (loss := F.cross_entropy(out, y)).backward()
            if where == "clip":
                fp.clip_grad_norm(grads, 0.5)
            else:
                F.nll_loss(F.log_softmax(F.dropout(out.detach(), 0.1)), y)
            o.step(grads)
            return loss

        f = wrap(step)
        for i in range(10):
            x, y = batch(i)
            if i in (4, 6):
                x, y = (x * float("nan"), y) if where == "clip" else (x, y + 2)
            try:
                log(f(x, y))
            except (fp.NonFiniteError, fp.IndexOutOfRange) as problem:
                log(type(problem).__name__)
            counts = [r["step"] for opt in (first, o) for r in opt.state_dict()["state"].values()]
            log((m, w, counts, fp.get_rng_state()))

    same(case)


def test_what_a_failing_replay_wrote_is_counted_and_nothing_else():
    early, late = fp.Parameter(fp.ones(2)), fp.Parameter(fp.ones(2))

    def step(x: Any) -> Any:
        early.apply_update(x)
        fp.clip_grad_norm((late * x).sum().backward(), 1.0)
        late.apply_update(x)
        return x.sum()

    captured = fp.capture(step)
    for _ in range(3):
        captured(fp.ones(2))
    squares = [(p * p).sum() for p in (early, late)]
    with pytest.raises(fp.NonFiniteError):
        captured(fp.full((2,), np.nan)).item()
    with pytest.raises(fp.VersionError, match="a replay of step"):
        squares[0].backward()
    if late.device.checks_late:  # the whole replay was counted before anybody knew
        squares[1] = (late * late).sum()
    assert squares[1].backward()[late].tolist() == [-4.0, -4.0]


def test_results_are_the_callers_own():
    captured = fp.capture(lambda x: {"y": (y := x * 2.0), "same": y})
    results = [captured(fp.full((2,), i)) for i in range(5)]
    before = copy.deepcopy([bits(r) for r in results])
    captured(fp.full((2,), 9.0))
    assert [bits(r) for r in results] == before


def test_more_kinds_than_programs_says_what_keeps_changing():
    rate = 0

    def step(x: Any) -> Any:
        return (x * rate).sum()

    captured = fp.capture(step, programs=3)
    for rate in range(3):
        assert captured(fp.ones(2)).item() == 2.0 * rate
    rate = 3
    with pytest.raises(fp.CaptureError, match=r"more than 3 kinds of calls of step, what keeps changing is: rate \(from 2 to 3\)"):
        captured(fp.ones(2))
    rate = 1
    assert [captured(fp.ones(2)).item() for _ in range(3)] == [2.0] * 3
    with pytest.raises(ValueError, match="programs must be at least 1"):
        fp.capture(step, programs=0)


def test_recording_takes_time_in_proportion():
    """Equal launches: eight times as many may take sixteen times as long, but not sixty-four times."""
    seconds = []
    for n in (500, 4000):
        captured = fp.capture(lambda x, n=n: [x := x + 1.0 for _ in range(n)][-1])
        captured(fp.ones(2))
        best = []
        for _ in range(2):
            start = time.thread_time()
            captured(fp.ones(2))
            best.append(time.thread_time() - start)
            assert captured.program is not None and captured.program.launches == n
            captured.kinds.clear()
            captured(fp.ones(2))
        seconds.append(min(best))
    assert seconds[1] < 32 * seconds[0], seconds
