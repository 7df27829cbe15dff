"""Gradient accumulation goes on: from a saved state inside a window, bit for bit; pickled; in a captured step; with few launches.

Oracles: the same steps without a break, eager for what is captured.
"""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import numpy as np
import pytest
from error_text import raises
from habit_tools import Net, X, bits

import flamepy as fp
from flamepy import AccumulationConfig, GradientAccumulator

WEIGHTS = [3.0, 1.0, 0.7, 4.0, 2.0, 5.0]


def train(net: Net, accumulator: GradientAccumulator, optimizer: Any, some: range, weights: Any = WEIGHTS) -> None:
    for n in some:
        found = accumulator.add(net(fp.tensor(X[n % 6])).backward(), weights[n % 6])
        if found is not None:
            optimizer.step(found)


@pytest.mark.parametrize("how", ["names", "model", "json", "pickle", "deepcopy"])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.usefixtures("device")
def test_going_on_inside_a_window(how: str, packed: bool) -> None:
    whole, parts = Net(), Net()
    if packed:
        whole.params.pack()
    train(whole, GradientAccumulator(4), fp.SGD(whole, lr=0.1), range(10))
    first = GradientAccumulator(4)
    train(parts, first, fp.SGD(parts, lr=0.1), range(6))
    other = Net()
    other.load_state_dict(parts.state_dict())
    if packed:
        other.params.pack()
    second = GradientAccumulator(4)
    state = first.state_dict()
    if how == "pickle":
        second = pickle.loads(pickle.dumps(first))
    elif how == "deepcopy":
        second = copy.deepcopy(first)
    elif how == "json":
        text = json.dumps({**state, "sums": {n: a.tolist() for n, a in state["sums"].items()}})
        read = json.loads(text)
        second.load_state_dict({**read, "sums": {n: np.float32(a) for n, a in read["sums"].items()}})
    else:
        second.load_state_dict(state, other if how == "model" else None)
    assert second.stats() == first.stats() and str(second.state_dict()) == str(state)
    train(other, second, fp.SGD(other, lr=0.1), range(6, 10))
    assert bits(other) == bits(whole)


def test_restored_sums_need_their_parameters() -> None:
    net, first = Net(), GradientAccumulator(3)
    train(net, first, fp.SGD(net, lr=0.1), range(2))
    alone = first.get_gradients()
    second = GradientAccumulator(3)
    second.load_state_dict(first.state_dict())
    with raises(fp.AccumulationError, "restored gradients met no parameter", "weight", "bias", "load_state_dict(state, model)"):
        second.flush()
    half = fp.GradientMap()
    half.insert(net.weight, alone[net.weight])
    with raises(fp.AccumulationError, "restored gradients met no parameter", "bias"):
        second.step(half)
    second.load_state_dict(first.state_dict(), net)
    found = second.flush()
    assert all((found[p].numpy() == alone[p].numpy()).all() for p in net.parameters())
    p = fp.Parameter.ones(2)  # has no name of its own
    named = GradientAccumulator(2)
    named.register("v", p)
    named.step((p * 2.0).sum().backward())
    again = GradientAccumulator(2)
    again.load_state_dict(named.state_dict())
    with raises(fp.AccumulationError, "restored gradients met no parameter: v", "register(name, parameter)"):
        again.step((p * 4.0).sum().backward())
    again.register("v", p)
    assert again.step((p * 4.0).sum().backward())[p].tolist() == [3.0, 3.0]
    by_name = GradientAccumulator(3)
    by_name.register("v", 2)
    by_name.accumulate("v", [1.0, 2.0])
    second.load_state_dict(by_name.state_dict())  # registered there: no parameter is needed
    second.accumulate("v", [3.0, 4.0])
    assert second.flush()["v"].tolist() == [2.0, 3.0]


def test_states_that_are_refused() -> None:
    net, first = Net(), GradientAccumulator(3)
    train(net, first, fp.SGD(net, lr=0.1), range(2))
    state = first.state_dict()
    before = str(state)
    sums = state["sums"]
    for changes, words in (
        ({"micro_batches": -1}, ["count for 'micro_batches'", "-1"]), ({"micro_batches": 4}, ["more micro-batches", "4"]),
        ({"weight": float("nan")}, ["not a weight", "nan"]), ({"counts": {"weight": 1.5}}, ["'weight'", "1.5"]),
        ({"sums": {"weight": np.zeros((3, 2), int), "bias": sums["bias"]}}, ["not a sum for 'weight'", "int64"]),
        ({"extra": 1}, ["not the state", "extra"]), ({"accumulation_steps": 8}, ["state 8, this one 3"]),
        ({"registered": {"weight": [1]}}, ["'weight'", "(1,)"]), ({"registered": {"v": "2"}}, ["shape for 'v'", "'2'"]),
        ({"counts": []}, ["no dict: 'counts'"]), ({"sums": None}, ["no dict: 'sums'"]), ({"parameters": 3}, ["no list: 'parameters'", "3"]),
    ):  # fmt: skip
        with raises(fp.StateError, "GradientAccumulator", *words):
            first.load_state_dict({**state, **changes})
    for wrong in (None, [], {"sums": {}}):
        with raises(fp.StateError, "GradientAccumulator: not the state"):
            first.load_state_dict(wrong)  # type: ignore[arg-type]
    with raises(fp.StateError, "no such parameter: 'bias'"):
        first.load_state_dict(state, [fp.Parameter.zeros(2)])
    with raises(fp.StateError, "'weight'", "(3, 2)", "(2, 2)"):
        first.load_state_dict(state, fp.ParameterDict({"weight": fp.Parameter.zeros((2, 2)), "bias": fp.Parameter.zeros(2)}))
    assert str(first.state_dict()) == before
    nameless = GradientAccumulator(2)
    p = fp.Parameter.ones(2)
    nameless.step((p * 2.0).sum().backward())
    with raises(fp.StateError, "each parameter needs a name", "1 gradients, 0 names"):
        nameless.state_dict()
    sums["weight"][:] = 0.0  # a copy
    assert str(first.state_dict()) == before


def test_a_captured_step_with_a_whole_window() -> None:
    results = []
    for captured in (False, True):
        net = Net()
        net.params.pack()
        accumulator, optimizer = GradientAccumulator(AccumulationConfig(3, max_grad_norm=0.5)), fp.AdamW(net, lr=0.1)

        def step(x: Any, net: Any = net, accumulator: Any = accumulator, optimizer: Any = optimizer) -> Any:
            for i in range(3):
                loss = net(x[i])
                grads = accumulator.add(loss.backward(), weight=WEIGHTS[i])
            optimizer.step(grads)
            return loss

        run = fp.capture(step) if captured else step
        losses = [run(fp.tensor(X[n : n + 3])).item() for n in (0, 3, 1, 2, 0)]
        results.append((losses, bits(net), accumulator.stats()))
        assert not captured or run.program is not None
    assert results[0] == results[1] and results[0][2][:2] == (15, 5)


def test_a_captured_step_with_a_part_of_a_window() -> None:
    net, accumulator = Net(), GradientAccumulator(4)

    def step(x: Any) -> Any:
        accumulator.step((loss := net(x)).backward())
        return loss

    run = fp.capture(step)
    run(fp.tensor(X[0]))
    for call in (run, step):
        with raises(fp.CaptureError, "accumulate: a window does not begin and end in one call", "1 of 4"):
            call(fp.tensor(X[0]))
    accumulator.reset()
    assert step(fp.tensor(X[0])) and accumulator.stats()[:2] == (2, 1)


def test_packed_parameters_are_one_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    with_launches: list[str] = []
    net = Net()
    net.params.pack()
    maps = [net(fp.tensor(x)).backward() for x in X[:4]]
    on = net.weight.device
    launch = type(on).launch

    def counted(self: Any, name: str, *args: Any) -> None:
        with_launches.append(name)
        launch(self, name, *args)

    monkeypatch.setattr(type(on), "launch", counted)
    accumulator, optimizer = GradientAccumulator(3), fp.SGD(net, lr=0.1)
    for grads in maps[:3]:
        found = accumulator.step(grads)
    assert with_launches == ["map"] * 3  # two additions and the division; the first is a copy
    fp.clip_grad_norm(found, 1e-3)
    optimizer.step(found)
    assert with_launches[3:] == ["norm", "update"]
    del with_launches[:]
    for grads, w in zip(maps[:3], WEIGHTS, strict=False):
        accumulator.add(grads, w)
    assert with_launches == ["map"] * 4
