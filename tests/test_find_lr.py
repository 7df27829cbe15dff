"""The learning-rate finder: the sweep, what it suggests, and that nothing is left of it.

Oracle: the same sweep by NumPy in float64.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from error_text import raises
from habit_tools import Net, X

import flamepy as fp
from flamepy import find_lr, schedules
from flamepy.schedules.search import FoundRates

pytestmark = pytest.mark.usefixtures("device")
CURVES = np.array([1.0, 4.0])  # of the quadratic: plain descent diverges beyond 2 / 4


def bowl() -> tuple[fp.Parameter, fp.SGD, Any]:
    w = fp.Parameter(np.array([1.0, 2.0]))
    optimizer, curves = fp.SGD([w], lr=0.25), fp.tensor(CURVES)

    def step() -> Any:
        loss = (w * w * curves).sum() * 0.5
        optimizer.step(loss.backward())
        return loss

    return w, optimizer, step


def test_the_sweep_and_the_suggestion() -> None:
    _, optimizer, step = bowl()
    found = find_lr(step, optimizer, 1e-4, 100.0, 60)
    w, average, want, smoothed = np.array([1.0, 2.0]), 0.0, [], []
    rates = 1e-4 * 1e6 ** (np.arange(60) / 59)
    for i, rate in enumerate(rates):
        want.append(0.5 * (w * w * CURVES).sum())
        average = 0.9 * average + 0.1 * want[-1]
        smoothed.append(average / (1 - 0.9 ** (i + 1)))
        w = w - rate * CURVES * w
        if smoothed[-1] > 4 * min(smoothed):
            break
    n = len(want)
    assert 20 < n < 60 and rates[n - 1] > 0.5
    np.testing.assert_allclose(found.rates, rates[:n], rtol=1e-12)
    np.testing.assert_allclose(found.losses, want, rtol=1e-9)
    np.testing.assert_allclose(found.smoothed, smoothed, rtol=1e-9)
    slopes = np.diff(smoothed)
    assert 1e-3 < found.suggestion < 0.5 and slopes[found.rates.index(found.suggestion)] < 0.5 * slopes.min()


def falling(n: int) -> float:
    return 0.1 / (n + 1)


KINDS = {
    "sgd": lambda net: fp.SGD(net, lr=0.1, momentum=0.9, groups={"bias": {"lr": 0.05}}),
    "adamw": lambda net: fp.AdamW(net, lr=schedules.warmup_cosine(0.1, 3, 9), groups={"bias": {"lr_scale": 0.5}}),
    "lambda": lambda net: fp.Adam(net, lr=falling),
}


@pytest.mark.parametrize("ending", ["whole", "diverges", "not finite", "raises", "interrupted"])
@pytest.mark.parametrize("kind, warm", [("sgd", 0), ("adamw", 2), ("lambda", 0), ("lambda", 2)])
def test_nothing_is_left_of_it(kind: str, ending: str, warm: int) -> None:
    net, same = Net(), Net()
    net.params.pack()
    calls = []

    def training(net: Net, optimizer: Any) -> Any:
        def step() -> Any:
            calls.append(1)
            if ending == "raises" and len(calls) > 9:
                raise ValueError("a file is missing")
            if ending == "interrupted" and len(calls) > 9:
                raise KeyboardInterrupt
            x = fp.nn.functional.dropout(fp.tensor(X[0]), 0.5)
            loss = net(x)
            grads = loss.backward()
            if ending == "not finite" and len(calls) > 9:
                grads.scale_(math.nan)
                fp.clip_grad_norm(grads, 1.0)
            net.params.set_grads(grads)
            optimizer.step()
            return loss

        return step

    results = []
    for model, swept in ((net, True), (same, False)):
        del calls[:]
        fp.manual_seed(3)
        optimizer = KINDS[kind](model)
        step = training(model, optimizer)
        for _ in range(warm):
            step()
        model.bias.set_grad([7.0, 8.0])
        if swept:
            top = 1e-5 if ending == "whole" else 1e6
            if ending in ("raises", "interrupted"):
                with pytest.raises(ValueError if ending == "raises" else KeyboardInterrupt):
                    find_lr(step, optimizer, 1e-7, top, 20)
            else:
                found = find_lr(step, optimizer, 1e-7, top, 20)
                assert (len(found.rates) == 20) == (ending == "whole") and math.isnan(found.losses[-1]) == (ending == "not finite")
        kept = [None if p.grad is None else p.grad.tolist() for p in model.parameters()]
        del calls[:]
        state = optimizer.state_dict()
        losses = [step().item() for _ in range(3)]
        results.append((kept, str(state), losses, optimizer.lr, repr(optimizer), [p.numpy().tobytes() for p in model.parameters()]))
    assert results[0] == results[1]


def test_what_it_cannot_say() -> None:
    flat = fp.Parameter(np.zeros(1))
    optimizer = fp.SGD([flat], lr=1.0)
    losses = iter([1.0, 1.0, math.nan])
    found = find_lr(lambda: next(losses), optimizer, 1e-3, 1.0, 10)
    assert len(found.losses) == 3 and found.suggestion is None
    found = find_lr(lambda: 1.0, optimizer, 1e-3, 1.0, 10)
    assert found.losses == [1.0] * 10 and found.suggestion is None
    assert found.rates[0] == 1e-3 and found.rates[-1] == 1.0
    found = find_lr(lambda: fp.tensor(-1.0), optimizer)  # a loss may be negative
    assert len(found.losses) == 100 and (found.rates[0], found.rates[-1]) == (1e-7, 10.0)


def test_arguments_that_cannot_be() -> None:
    _, optimizer, step = bowl()
    for options, words in (
        ({"start": 0.0}, ["start", "0.0"]), ({"end": math.inf}, ["end", "inf"]), ({"start": math.nan}, ["start", "nan"]),
        ({"start": "1"}, ["start", "'1'"]), ({"start": 1.0, "end": 0.1}, ["1.0 to 0.1"]), ({"steps": 2}, ["in 2 steps"]),
        ({"steps": 9.5}, ["in 9.5 steps"]),
    ):  # fmt: skip
        with raises(ValueError, "find_lr", *words):
            find_lr(step, optimizer, **options)
    with raises(fp.DTypeError, "find_lr: step() returned no loss", "tuple"):
        find_lr(lambda: (1.0, 2.0), optimizer)
    with raises(fp.DTypeError, "find_lr: takes a function and an optimizer", "SGD"):
        find_lr(optimizer, step)
    with raises(fp.StateError, "find_lr: the optimizer knows no parameters"):
        find_lr(step, fp.Adam(fp.AdamConfig()))
    assert optimizer.lr == 0.25


def test_the_picture(tmp_path: Path) -> None:
    _, optimizer, step = bowl()
    found = find_lr(step, optimizer, 1e-3, 1e3, 30)
    found.losses[-1] = math.inf
    path = tmp_path / "rates.png"
    path.write_text("before")
    found.save(path)
    assert path.read_bytes().startswith(b"\x89PNG") and list(tmp_path.iterdir()) == [path]
    with pytest.raises(OSError):
        found.save(tmp_path / "none" / "rates.png")
    assert find_lr(lambda: math.nan, optimizer).suggestion is None
    find_lr(lambda: math.nan, optimizer).save(str(path))


def test_the_picture_shows_the_useful_range_and_where_it_ends() -> None:
    """Plain descent diverges beyond 0.5: the losses there are not what the axis is for."""
    _, optimizer, step = bowl()
    found = find_lr(step, optimizer, 1e-4, 100.0, 60)
    highest = max(found.smoothed[: int(np.argmin(found.smoothed)) + 1])
    assert found.exploded is not None and found.exploded > 0.5
    at = found.rates.index(found.exploded)
    assert found.smoothed[at] > highest >= found.smoothed[at - 1] and max(found.losses) > 1.5 * highest
    (axes,) = found.figure().axes
    bottom, top = axes.get_ylim()
    assert bottom < min(found.losses[:at]) and highest < top < 1.4 * highest
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert legend == ["loss", "smoothed", f"suggestion {found.suggestion:.2g}", f"exploded from {found.exploded:.2g} on"]
    (span,) = axes.patches
    assert span.get_x() == found.exploded and span.get_x() + span.get_width() >= found.rates[-1]


def test_where_nothing_explodes_and_where_everything_does() -> None:
    rates = [1e-3, 1e-2, 1e-1]
    for losses, exploded in (([3.0, 2.0, 1.0], None), ([1.0, 1.0, 1.0], None), ([3.0, 1.0, math.nan], 1e-1), ([1.0, 2.0, 3.0], 1e-2),
                             ([math.nan] * 3, 1e-3), ([3.0, math.inf, 1.0], None)):  # fmt: skip
        found = FoundRates(rates, losses, losses)
        assert found.exploded == exploded
        assert len(found.figure().axes[0].patches) == (exploded is not None)


def test_the_suggestion_lies_before_the_lowest_loss():
    """A loss that rises to a peak falls from it faster than it fell before: those rates are of no use."""
    losses = [3.0, 2.9, 2.5, 2.4, 2.35, 6.0, 9.0, 4.0, 3.0]
    rates = [10.0**i for i in range(9)]
    assert FoundRates(rates, losses, losses).suggestion == rates[np.gradient(losses)[:5].argmin()]
    assert FoundRates(rates[:4], [1.0, 2.0, 3.0, 2.5], [1.0, 2.0, 3.0, 2.5]).suggestion is None
