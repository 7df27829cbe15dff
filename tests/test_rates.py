"""Learning rates: schedules in the place of numbers, and groups that keep their share of the optimizer's rate.

Oracles: PyTorch's LambdaLR, the schedule itself, eager for what is captured.
"""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from error_text import raises
from habit_tools import B, Net, W, X

import flamepy as fp
from flamepy import schedules


def training(optimizer: Any, net: Net) -> Callable[[Any], Any]:
    def step(x: Any) -> Any:
        loss = net(x)
        optimizer.step(loss.backward())
        return loss

    return step


RATES: dict[str, Callable[[int], float]] = {
    "warmup": schedules.warmup_cosine(0.1, 2, 8, 0.01), "to zero and back": lambda n: abs(0.1 - 0.05 * n), "int": lambda n: n,
}  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {"AdamW": {"weight_decay": 0.1}, "SGD": {"momentum": 0.9}}


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_schedule_is_a_rate(kind, rate):
    torch = pytest.importorskip("torch")
    cls, options = getattr(torch.optim, kind), KINDS[kind]
    net, lr = Net(), RATES[rate]
    w, b = torch.tensor(W, requires_grad=True), torch.tensor(B, requires_grad=True)
    theirs = cls([{"params": [w]}, {"params": [b], "lr": 0.25}], lr=1.0, **options)
    their_rates = torch.optim.lr_scheduler.LambdaLR(theirs, lr)
    ours = getattr(fp, kind)(net, lr=lr, groups={"bias": {"lr_scale": 0.25}}, **options)
    for n in range(6):
        assert ours.lr == lr(n) and [g["lr"] for g in ours.state_dict()["groups"]] == [lr(n), 0.25 * lr(n)]
        ours.step(net(fp.tensor(X[n])).backward())
        theirs.zero_grad()
        (torch.tensor(X[n]) @ w + b).square().mean().backward()
        theirs.step()
        their_rates.step()
        np.testing.assert_allclose(net.weight.numpy(), w.detach(), rtol=2e-5, atol=2e-6)
        np.testing.assert_allclose(net.bias.numpy(), b.detach(), rtol=2e-5, atol=2e-6)


def moved(optimizer: fp.SGD, p: fp.Parameter) -> float:
    """How far a step with gradient 1 takes a parameter: the rate it was done with."""
    before = p.item()
    optimizer.step([(q.id, q, fp.ones(1, dtype=fp.float64)) for q in optimizer.params])
    return before - p.item()


def pair() -> tuple[fp.ParameterDict, fp.Parameter, fp.Parameter]:
    params = fp.ParameterDict({"a": fp.Parameter(np.zeros(1)), "b": fp.Parameter(np.zeros(1))})
    return params, params["a"], params["b"]


def test_groups_keep_their_share_of_a_rate_that_is_set():
    for group in ({"lr": 0.5}, {"lr_scale": 0.25}):
        params, _, b = pair()
        optimizer = fp.SGD(params, lr=2.0, groups={"b": group})
        assert (optimizer.lr, moved(optimizer, b)) == (2.0, 0.5)
        optimizer.lr = 8
        assert (optimizer.lr, moved(optimizer, b)) == (8, 2.0)
        optimizer.lr = lambda n: 4.0 * n
        assert (optimizer.lr, moved(optimizer, b), optimizer.lr) == (8.0, 2.0, 12.0)
        optimizer.lr = 1.0  # no schedule any more
        assert [moved(optimizer, b) for _ in range(2)] == [0.25, 0.25]
        optimizer.groups[1]["lr"] = 0.5  # its share from now on
        assert moved(optimizer, b) == 0.5
        optimizer.lr = 2.0
        assert moved(optimizer, b) == 1.0


def test_a_rate_beside_zero_stays_as_it_is():
    params, a, b = pair()
    optimizer = fp.SGD(params, lr=0.0, groups={"b": {"lr": 0.5}})
    assert moved(optimizer, a) == 0.0 and moved(optimizer, b) == 0.5
    optimizer.lr = 1.0
    assert moved(optimizer, a) == 1.0 and moved(optimizer, b) == 0.5


def test_rates_that_cannot_be():
    params, a, _ = pair()
    for lr, groups, words in (
        (1.0, {"b": {"lr": 1.0, "lr_scale": 1.0}}, ["lr_scale", "'b'"]), (lambda n: 1.0, {"b": {"lr": 1.0}}, ["a schedule", "lr_scale"]),
        (1.0, {"b": {"lr_scale": -1.0}}, ["lr_scale out of range: -1.0"]), (lambda n: -1.0, {}, ["lr out of range: -1.0", "0 steps"]),
    ):  # fmt: skip
        with raises(ValueError, "SGD", *words):
            fp.SGD(params, lr=lr, groups=groups)
    for group in (scheduled := fp.SGD(params, lr=lambda n: 0.5)).param_groups:
        with raises(ValueError, "SGD: a group has an lr beside a schedule: groups[0]", "Set optimizer.lr"):
            group["lr"] = 0.1
    scheduled.lr = 0.25
    scheduled.groups[0]["lr"] = 0.125
    assert scheduled.lr == 0.125
    with raises(TypeError, "SGD: unknown option in group 'b': lrscale", "lr, ", "lr_scale"):
        fp.SGD(params, lr=1.0, groups={"b": {"lrscale": 1.0}})
    with raises(fp.DTypeError, "SGD: the schedule gave no number: str"):
        fp.SGD(params, lr=lambda n: "0.1")
    for lr in ("0.1", None, fp.tensor(0.1), True):
        with raises(fp.DTypeError, "SGD: lr is no number", repr(lr)):
            fp.SGD(params, lr=lr)
    optimizer = fp.SGD(params, lr=lambda n: 1.0 - n)
    moved(optimizer, a)
    moved(optimizer, a)
    with raises(ValueError, "lr out of range: -1.0, from the schedule after 2 steps"):
        moved(optimizer, a)
    with raises(ValueError, "lr out of range: nan, from the schedule after 2 steps"):
        optimizer.lr = lambda n: math.nan
    assert a.item() == -1.0
    optimizer.lr = 4.0
    assert moved(optimizer, a) == 4.0


@pytest.mark.parametrize("packed", [False, True])
def test_captured_steps_ask_the_schedule(packed):
    results = []
    for captured in (False, True):
        net = Net()
        if packed:
            net.params.pack()
        optimizer = fp.AdamW(net, lr=RATES["warmup"], groups={"bias": {"lr_scale": 3.0}})
        step = training(optimizer, net)
        run = fp.capture(step) if captured else step
        seen = []
        for n in range(12):
            if n == 6:
                optimizer.lr = 0.05
            if n == 8:
                optimizer.lr = RATES["to zero and back"]
            seen.append((run(fp.tensor(X[n % 6])).item(), optimizer.lr, net.weight.numpy().tobytes(), net.bias.numpy().tobytes()))
        assert not captured or run.program is not None
        results.append(seen)
    assert results[0] == results[1]


def test_a_replay_whose_schedule_fails_changes_nothing():
    net, broken = Net(), []
    optimizer = fp.SGD(net, lr=lambda n: -1.0 if broken else 0.1 / (n + 1), momentum=0.9)
    run = fp.capture(training(optimizer, net))
    for n in range(4):
        run(fp.tensor(X[n]))
    before, state = net.weight.numpy().copy(), copy.deepcopy(optimizer.state_dict())
    broken.append(1)
    with raises(ValueError, "lr out of range: -1.0, from the schedule after 4 steps"):
        run(fp.tensor(X[4]))
    broken.clear()
    assert (net.weight.numpy() == before).all() and optimizer.lr == 0.1 / 5 and str(optimizer.state_dict()) == str(state)


def test_a_restored_schedule_goes_on_where_it_was():
    """Also where no parameter was updated at every step."""
    lr = schedules.linear(1.0, 0.0, 16)

    def steps(params: fp.ParameterDict, optimizer: fp.SGD, some: range) -> None:
        for n in some:
            p = params["ab"[n % 2]]
            optimizer.step([(p.id, p, fp.ones(1, dtype=fp.float64))])

    for other in (lr, 0.5):
        params, a, b = pair()
        optimizer = fp.SGD(params, lr=lr, groups={"b": {"lr_scale": 0.5}})
        steps(params, optimizer, range(6))
        again, c, d = pair()
        again.load_state_dict(params.state_dict())
        restored = fp.SGD(again, lr=other, groups={"b": {"lr_scale": 0.5}})
        restored.load_state_dict(optimizer.state_dict())
        assert restored.lr == optimizer.lr == lr(6)
        if other is lr:
            twin, optimizer2 = copy.deepcopy((params, optimizer))
            for some in ((params, optimizer), (again, restored), (twin, optimizer2)):
                steps(*some, range(6, 12))
            assert (a.item(), b.item()) == (c.item(), d.item()) == (twin["a"].item(), twin["b"].item())
            assert a.item() == -sum(lr(n) for n in range(0, 12, 2)) and b.item() == -sum(0.5 * lr(n) for n in range(1, 12, 2))
    state = optimizer.state_dict()
    state["groups"][0]["finished"] = -1
    with raises(fp.StateError, "finished is -1"):
        restored.load_state_dict(state)


def test_an_optimizer_with_a_schedule_is_pickled():
    params, a, _ = pair()
    optimizer = fp.SGD(params, lr=schedules.multistep(1.0, [1, 3], gamma=0.5), groups={"b": {"lr_scale": 0.5}})
    rates = [moved(optimizer, a) for _ in range(2)]
    again = pickle.loads(pickle.dumps(optimizer))
    assert repr(again) == repr(optimizer) and again.lr == optimizer.lr == 0.5
    assert [*rates, *[moved(again, again.params[0]) for _ in range(2)]] == [1.0, 0.5, 0.5, 0.25]
    for n in range(4):  # one that is used by hand goes along, too
        assert pickle.loads(pickle.dumps(schedules.cosine(0.1, n=3)))(n) == schedules.cosine(0.1, n=3)(n)
