"""Averages in captured steps, and how many launches they take.

Oracle: eager, bit for bit.
"""

from __future__ import annotations

from typing import Any

import pytest
from error_text import raises
from habit_tools import Net, X

import flamepy as fp
from flamepy import EMA, SWA, Lookahead

MAKE = {"EMA": lambda net: EMA(net, 0.9), "SWA": SWA, "warm": lambda net: EMA(net, 0.9, warmup=True)}


def training(net: Net, average: Any) -> Any:
    optimizer = fp.AdamW(net, lr=0.1)

    def step(x: Any) -> Any:
        loss = net(x)
        optimizer.step(loss.backward())
        average.update()
        with average.applied():
            held_out = net(x)
        return loss, held_out

    return step


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", MAKE)
def test_captured_steps_average_too(kind: str, packed: bool) -> None:
    results = []
    for captured in (False, True):
        net = Net()
        if packed:
            net.params.pack()
        average = MAKE[kind](net)
        step = training(net, average)
        run = fp.capture(step) if captured else step
        losses = [[t.item() for t in run(fp.tensor(x))] for x in X]
        assert not captured or run.program is not None
        state = average.state_dict()
        average.load_state_dict(state)  # in place: what was captured goes on
        losses += [[t.item() for t in run(fp.tensor(X[0]))]]
        results.append((losses, str(average.state_dict()), [p.numpy().tobytes() for p in net.parameters()]))
    assert results[0] == results[1] and average.updates == 7


def test_a_replay_inside_applied_averages_nothing() -> None:
    net = Net()
    ema = EMA(net, 0.9)
    run = fp.capture(ema.update)
    for _ in range(3):
        run()
    net.weight.set_data(net.weight.numpy() + 1)
    before = str(ema.state_dict())
    with ema.applied(), raises(fp.StateError, "EMA: update() inside EMA.applied()"):
        run()
    assert str(ema.state_dict()) == before
    run()
    assert ema.updates == 4


def test_memory_that_moved_is_told() -> None:
    net = Net()
    ema = EMA([net.weight])
    run = fp.capture(ema.update)
    for _ in range(3):
        run()
    assert ema.updates == 3
    net.params.pack()
    with raises(fp.CaptureError, "capture: memory was moved", "pack()"):
        run()
    ema.update()
    assert ema.updates == 4
    optimizer = Lookahead(fp.SGD(net, lr=0.1))
    step = fp.capture(lambda: optimizer.step(net(fp.tensor(X[0])).backward()))
    with raises(fp.CaptureError, "Lookahead: every k-th step does more", "k is 5"):
        step()


@pytest.mark.parametrize("dtype", [fp.float32, fp.bfloat16])
def test_packed_parameters_are_one_launch(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    params = fp.ParameterDict({name: fp.Parameter(fp.ones(3, dtype=dtype)) for name in "abc"}).pack()
    ema, launches = EMA(params), []
    on = type(params["a"].device)
    launch = on.launch

    def counted(self: Any, name: str, *args: Any) -> None:
        launches.append(name)
        launch(self, name, *args)

    monkeypatch.setattr(on, "launch", counted)
    ema.update()
    assert launches == ["broadcast"]
    with ema.applied():
        assert launches == ["broadcast"]  # the rest is copies
