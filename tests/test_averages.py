"""EMA, SWA and Lookahead: the averages, the block in which they are the parameters, and what is saved of them.

Oracles: NumPy in float64, torch.optim.swa_utils, eager for what is captured.
"""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from error_text import raises
from habit_tools import B, Net, W, X, bits
from hypothesis import given, settings
from hypothesis import strategies as st

import flamepy as fp
from flamepy import EMA, SWA, Lookahead

pytestmark = pytest.mark.usefixtures("device")
MAKE = {"EMA": lambda net: EMA(net, 0.9), "SWA": SWA, "warm": lambda net: EMA(net, 0.9, warmup=True)}


def net_of(packed: bool) -> Net:
    net = Net()
    if packed:
        net.params.pack()
    return net


def values(net: Net, n: int) -> list[np.ndarray]:
    """What the parameters are before update n."""
    return [np.float32(p.numpy().astype("f8") * 0 + np.sin(np.arange(p.size) + 7.0 * n).reshape(p.shape)) for p in net.parameters()]


def path(net: Net, average: Any, n: int) -> list[list[np.ndarray]]:
    """Set the parameters n times and update; what they were each time."""
    seen = []
    for i in range(n):
        seen.append(values(net, i))
        for p, v in zip(net.parameters(), seen[-1], strict=True):
            p.set_data(v)
        average.update()
    return seen


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", MAKE)
def test_against_numpy_and_torch(kind: str, packed: bool) -> None:
    torch = pytest.importorskip("torch")
    from torch.optim import swa_utils

    net = net_of(packed)
    average = MAKE[kind](net)
    want = [p.numpy().astype("f8") for p in net.parameters()]
    seen = path(net, average, 12)
    for t, now in enumerate(seen):
        share = {"EMA": 0.1, "SWA": 1 / (t + 1), "warm": 1 - min(0.9, (1 + t) / (10 + t))}[kind]
        want = [w + share * (v - w) for w, v in zip(want, now, strict=True)]
    rows = average.state_dict()["average"]
    for p, w in zip(net.parameters(), want, strict=True):
        np.testing.assert_allclose(rows[p.name], w, rtol=1e-5, atol=1e-6)
    if kind != "warm":
        model = torch.nn.ParameterList([torch.tensor(W), torch.tensor(B)])
        theirs = swa_utils.AveragedModel(model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9) if kind == "EMA" else None)
        if kind == "EMA":
            theirs.update_parameters(model)  # theirs takes the first as it is, ours what was there when it was made
        for now in seen:
            for p, v in zip(model, now, strict=True):
                p.data.copy_(torch.tensor(v))
            theirs.update_parameters(model)
        for p, t in zip(net.parameters(), theirs.module, strict=True):
            np.testing.assert_allclose(rows[p.name], t.detach().numpy(), rtol=1e-5, atol=1e-6)


@settings(max_examples=30, deadline=None)
@given(st.floats(0.0, 0.999), st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=8))
def test_an_average_lies_between(decay: float, numbers: list[float]) -> None:
    p = fp.Parameter(np.float32([numbers[0]]))
    ema, swa = EMA([p], decay), SWA([p])
    for x in numbers:
        p.set_data([x])
        ema.update()
        swa.update()
        if len({*numbers}) == 1:  # where they are equal it stays, bit for bit
            assert ema.state_dict()["average"]["0"] == swa.state_dict()["average"]["0"] == np.float32(x)
    for average in (ema, swa):
        found = average.state_dict()["average"]["0"].item()
        room = 1e-4 + 1e-5 * max(map(abs, numbers))
        assert min(numbers) - room <= found <= max(numbers) + room
    assert swa.state_dict()["average"]["0"].item() == pytest.approx(np.mean(numbers), rel=1e-4, abs=1e-2)


@pytest.mark.parametrize("packed", [False, True])
def test_applied(packed: bool) -> None:
    net = net_of(packed)
    ema = EMA(net)
    path(net, ema, 3)
    before, rows = bits(net), ema.state_dict()["average"]
    with ema.applied():
        assert all((p.numpy() == rows[p.name]).all() for p in net.parameters())
        inside = net(fp.tensor(X[0])).item()
        for what, call in (
            ("update()", ema.update), ("load_state_dict()", lambda: ema.load_state_dict(state)),
            ("pickle or copy", lambda: pickle.dumps(ema)),
            ("applied()", lambda: ema.applied().__enter__()),
        ):  # fmt: skip
            state = ema.state_dict()
            with raises(fp.StateError, f"EMA: {what} inside EMA.applied()"):
                call()
    assert bits(net) == before and net(fp.tensor(X[0])).item() != inside
    for by, write in (
        ("SGD.step", lambda: fp.SGD(net, lr=0.1).step(net(fp.tensor(X[0])).backward())),
        ("set_data", lambda: net.bias.set_data([1.0, 2.0])),
        ("set_data", lambda: net.load_state_dict(net.state_dict())),
    ):
        with raises(fp.StateError, "EMA: parameters were written inside applied()", "" if packed else by, "undone"), ema.applied():
            write()
        assert bits(net) == before
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error), ema.applied():
            net.weight.set_data(np.zeros((3, 2)))
            raise error
        assert bits(net) == before
    swa = SWA([net.bias])
    with ema.applied():
        for call in (swa.update, lambda: swa.applied().__enter__(), Lookahead(fp.SGD(net), 1).slow.update):
            with raises(fp.StateError, "inside EMA.applied()"):
                call()
    assert bits(net) == before and swa.updates == 0
    with ema.applied():
        net.params.pack()
    assert bits(net) == before
    loss = net(fp.tensor(X[0], requires_grad=True))  # keeps the weight for its backward
    with raises(fp.VersionError, "overwritten"), ema.applied():
        loss.backward()


@pytest.mark.parametrize("kind", MAKE)
def test_parameters_that_are_packed_later(kind: str) -> None:
    nets = [Net(), Net()]
    averages = [MAKE[kind](net) for net in nets]
    for net, average in zip(nets, averages, strict=True):
        path(net, average, 2)
    nets[0].params.pack()
    for net, average in zip(nets, averages, strict=True):
        path(net, average, 2)
    assert len(averages[0].regions) == 1 and len(averages[1].regions) == 2
    assert str(averages[0].state_dict()) == str(averages[1].state_dict())


@pytest.mark.parametrize("dtype", [fp.float16, fp.bfloat16])
@pytest.mark.parametrize("packed", [False, True])
def test_sixteen_bits_are_averaged_in_float32(dtype: Any, packed: bool) -> None:
    params = fp.ParameterDict({name: fp.Parameter(fp.tensor([1.0, 2.0]).to(dtype)) for name in "ab"})
    if packed:
        params.pack()
    ema, want = EMA(params, 0.999), np.array([1.0, 2.0])
    for name in "ab":
        params[name].set_data([1.5, 2.0])
    for _ in range(20):
        ema.update()
        want = want + (np.array([1.5, 2.0]) - want) * 1e-3
    for name in "ab":
        row = ema.state_dict()["average"][name]
        assert row.dtype == np.float32
        np.testing.assert_allclose(row, want, rtol=1e-6)
    before = params["a"].numpy().tobytes()
    with ema.applied():
        assert params["a"].numpy().tobytes() == want.astype(params["a"].dtype).tobytes()
    assert params["a"].numpy().tobytes() == before


@pytest.mark.parametrize("kind", MAKE)
def test_a_parameter_that_was_replaced_is_not_averaged_and_told(kind: str) -> None:
    net = net_of(False)
    average = MAKE[kind](net)
    net.weight = fp.Parameter(W + 1.0)
    average.update()
    text = r"replaced in its model: weight\. What took its place is not averaged"
    with pytest.warns(fp.FlameWarning, match=text) as told, average.applied():
        assert net.weight.numpy().tobytes() == (W + 1.0).tobytes()
    assert told[0].filename == __file__
    with MAKE[kind](net).applied():
        pass


def test_some_of_the_parameters_of_a_span() -> None:
    net = net_of(True)
    ema, bias = EMA([net.bias], 0.5), net.bias.numpy().copy()
    net.bias.set_data([3.0, 4.0])
    net.weight.set_data(np.zeros((3, 2)))
    ema.update()
    with ema.applied():
        np.testing.assert_allclose(net.bias.numpy(), (bias + [3.0, 4.0]) / 2)
        assert not net.weight.numpy().any()
        net.weight.set_data(np.ones((3, 2)))  # is none of its own
    assert net.bias.tolist() == [3.0, 4.0] and net.weight.numpy().all()


# ---- state ----------------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("how", ["state", "pickle", "deepcopy"])
@pytest.mark.parametrize("kind", MAKE)
def test_going_on_from_a_state(kind: str, how: str) -> None:
    net, other = net_of(True), net_of(False)
    first = MAKE[kind](net)
    path(net, first, 3)
    if how == "state":
        second = MAKE[kind](other)
        second.load_state_dict(first.state_dict())
    else:
        other, second = pickle.loads(pickle.dumps((net, first))) if how == "pickle" else copy.deepcopy((net, first))
    assert repr(second) == repr(first) and "2 parameters, 3 updates" in repr(first)
    path(net, first, 4)
    path(other, second, 4)
    assert str(first.state_dict()) == str(second.state_dict())


def test_states_and_arguments_that_are_refused() -> None:
    net = Net()
    ema, swa = EMA(net), SWA(net)
    state = ema.state_dict()
    rows = state["average"]
    before = str(state)
    for wrong, words in (
        (swa.state_dict(), ["not its state: SWA"]), (None, ["NoneType"]), ({"kind": "EMA"}, ["EMA"]), ({**state, "updates": -1}, ["-1"]),
        ({**state, "updates": 1.5}, ["1.5"]), ({**state, "average": {"weight": rows["weight"]}}, ["names mismatch: ['bias']"]),
        ({**state, "average": {**rows, "more": rows["bias"]}}, ["['more']"]), ({**state, "average": None}, ["a NoneType"]),
        ({**state, "average": {**rows, "bias": [1, [2]]}}, ["'bias'"]),
        ({**state, "average": {**rows, "bias": np.zeros(3)}}, ["'bias'", "(3,)", "(2,)"]),
        ({**state, "average": {"weight": np.ones((3, 2)), "bias": np.zeros(2, int)}}, ["'bias'", "int64"]),
    ):  # fmt: skip
        with raises(fp.StateError, "EMA", *words):
            ema.load_state_dict(wrong)  # type: ignore[arg-type]
    rows["bias"][:] = 7.0  # a copy
    assert str(ema.state_dict()) == before
    for decay in (1.0, -0.1, float("nan"), "0.9", None, np.ones(2)):
        with raises(ValueError, "EMA: decay out of range", repr(decay)):
            EMA(net, decay)  # type: ignore[arg-type]
    with raises(fp.StateError, "SWA: no parameters", "list"):
        SWA([])
    for params in (3, fp.ones(2), [fp.ones(2)], ["weight"]):
        with raises(fp.DTypeError, "EMA: not parameters"):
            EMA(params)
    other = Net().params
    with raises(fp.StateError, "EMA: two parameters have one name: 'weight'"):
        EMA([net.weight, other["weight"]])
    for k, alpha in ((0, 0.5), (2.5, 0.5), (True, 0.5), (5, 0.0), (5, 1.5), (5, float("nan")), (5, "1")):
        with raises(ValueError, "Lookahead"):
            Lookahead(fp.SGD(net, lr=0.1), k, alpha)  # type: ignore[arg-type]
    with raises(fp.DTypeError, "Lookahead: not an optimizer", "Net"):
        Lookahead(net)


# ---- Lookahead ---------------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("k, alpha", [(1, 0.5), (3, 0.8), (4, 1.0)])
def test_lookahead_against_numpy(packed: bool, k: int, alpha: float) -> None:
    net = net_of(packed)
    optimizer = Lookahead(fp.SGD(net, lr=0.1, momentum=0.9), k, alpha)
    fast = [p.numpy().astype("f8") for p in net.parameters()]
    slow, velocity = list(fast), [np.zeros(p.shape) for p in net.parameters()]
    for t in range(10):
        x = X[t % 6].astype("f8")
        y = (x @ fast[0] + fast[1]) * 2 / (5 * 2)
        velocity = [0.9 * v + g for v, g in zip(velocity, (x.T @ y, y.sum(0)), strict=True)]
        fast = [w - 0.1 * v for w, v in zip(fast, velocity, strict=True)]
        if (t + 1) % k == 0:
            slow = [s + alpha * (w - s) for s, w in zip(slow, fast, strict=True)]
            fast = list(slow)
        optimizer.step(net(fp.tensor(X[t % 6])).backward())
        for p, w in zip(net.parameters(), fast, strict=True):
            np.testing.assert_allclose(p.numpy(), w, rtol=1e-4, atol=1e-5)


def test_lookahead_is_an_optimizer() -> None:
    nets, states = [Net(), Net()], []
    first, second = (Lookahead(fp.AdamW(net, lr=fp.schedules.warmup(0.1, 4)), k=3) for net in nets)

    def steps(net: Net, optimizer: Any, some: range) -> None:
        for n in some:
            optimizer.step(net(fp.tensor(X[n % 6])).backward())

    steps(nets[0], first, range(4))
    nets[1].load_state_dict(nets[0].state_dict())
    states.append(first.state_dict())
    second.load_state_dict(states[0])
    for net, optimizer in zip(nets, (first, second), strict=True):
        with pytest.warns(fp.FlameWarning, match="nothing to update"):
            optimizer.step(fp.GradientMap())
        steps(net, optimizer, range(4, 9))
    assert bits(nets[0]) == bits(nets[1]) and first.steps == 9 and "k=3, alpha=0.5" in repr(first)
    marked = nets[0](fp.tensor(X[0])).backward().scale_(float("nan"))
    fp.clip_grad_norm(marked, 1.0, nonfinite="skip")
    assert first.step(marked) is False and first.steps == 9
    before = str(first.state_dict())
    for wrong in (None, {}, {**states[0], "steps": -1}, {**states[0], "slow": {}}, {**states[0], "optimizer": {}}):
        with raises(fp.StateError, ""):
            first.load_state_dict(wrong)  # type: ignore[arg-type]
    assert str(first.state_dict()) == before
    first.lr = 0.25
    nets[0].weight.set_grad(np.ones((3, 2)))
    first.zero_grad()
    assert first.lr == first.optimizer.lr == 0.25 and nets[0].weight.grad is None and first.params == nets[0].parameters()
    assert first.groups is first.optimizer.groups and first.groups[0]["lr"] == 0.25
    slow = first.slow.state_dict()
    found = fp.find_lr(lambda: steps(nets[0], first, range(1)) or 1.0, first, steps=5)
    assert len(found.losses) == 5 and str(first.state_dict()["slow"]) == str(slow)
