"""capture() and what changes between calls: each kind of call is eager, recorded, replayed, or it raises. There is no third outcome.

Every case runs twice, plain and captured, on the same numbers; the results must be the same bits, up to a CaptureError where one is
expected.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flamepy as fp
import flamepy.nn.functional as F
from flamepy import nn
from flamepy.engine import kept

pytestmark = pytest.mark.usefixtures("device")
Log = Callable[[Any], None]
Wrap = Callable[[Any], Any]


def model(dropout: bool = False) -> nn.Sequential:
    fp.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), *([nn.Dropout(0.5)] if dropout else []), nn.Linear(6, 3))


def batch(seed: int, n: int = 5) -> tuple[fp.Tensor, fp.Tensor]:
    draw = np.random.default_rng(seed)
    return fp.tensor(draw.standard_normal((n, 4)).astype("f4")), fp.tensor(draw.integers(0, 3, n))


def training(m: Any, o: Any, clip: float = 0.5) -> Callable[..., Any]:
    def step(x: Any, y: Any) -> Any:
        loss = F.cross_entropy(m(x), y)
        grads = loss.backward()
        norm = fp.clip_grad_norm(grads, clip)
        o.step(grads)
        return loss, norm

    return step


def bits(value: Any) -> Any:
    """A result as it is compared: the bytes of tensors."""
    if isinstance(value, fp.Tensor):
        return value.numpy().tobytes()
    if isinstance(value, nn.Module):
        return {name: array.tobytes() for name, array in value.state_dict().items()}
    if isinstance(value, tuple | list):
        return [bits(v) for v in value]
    return {k: bits(v) for k, v in value.items()} if isinstance(value, dict) else repr(value)


def trial(case: Callable[[Wrap, Log], None], wrap: Wrap) -> tuple[list[Any], str]:
    """What a case logged, and the text of the CaptureError that ended it."""
    fp.manual_seed(5)
    found: list[Any] = []
    try:
        case(wrap, lambda value: found.append(bits(value)))
    except fp.CaptureError as problem:
        return found, str(problem)
    return found, ""


def same(case: Callable[[Wrap, Log], None]) -> None:
    plain, captured = trial(case, lambda f: f), trial(case, fp.capture)
    assert captured == plain


def refused(case: Callable[[Wrap, Log], None], words: str, most: int) -> None:
    """Eager's bits, then a CaptureError with these words, before more than `most` results."""
    (plain, _), (captured, text) = trial(case, lambda f: f), trial(case, fp.capture)
    assert words in text, text
    assert captured == plain[: len(captured)] and len(captured) <= most


# ---- settings that change between calls ------------------------------------------------------------------------------------------
CHANGES: dict[str, Callable[[Any, Any, int], Any]] = {
    "freeze": lambda m, o, i: m.params.freeze("0.*") if i == 4 else None,
    "freeze in turns": lambda m, o, i: [setattr(p, "requires_grad", i % 2 == 0) for p in m.parameters()[:2]],
    "eval": lambda m, o, i: m.train(i not in (4, 5, 6, 9)),
    "a layer replaced": lambda m, o, i: setattr(m, "2", nn.Dropout(0.1)) if i == 4 else None,
    "an attribute of a layer": lambda m, o, i: setattr(m[2], "p", 0.25) if i == 4 else None,
    "a hook of a parameter": lambda m, o, i: m[0].weight.register_hook(lambda g: g * 0.5) if i == 4 else None,
    "lr": lambda m, o, i: setattr(o, "lr", 0.1 / (i + 1)),
    "lr of a group": lambda m, o, i: o.groups[1].update(lr=0.5) if i == 4 else None,
    "momentum begins": lambda m, o, i: o.groups[0].update(momentum=0.9) if i == 4 else None,
    "weight decay": lambda m, o, i: o.groups[0].update(weight_decay=0.1) if i == 4 else None,
}


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_a_setting_that_changes(change, pack):
    def case(wrap: Wrap, log: Log) -> None:
        m = model(dropout=True)
        m.params.pack() if pack else None
        o = fp.SGD(m, lr=0.1, groups={"*.bias": {"weight_decay": 0.0}})
        f = wrap(training(m, o))
        for i in range(11):
            CHANGES[change](m, o, i)
            log(f(*batch(i)))
            log(m)

    same(case)


SCALE = 1.0


class Job:
    """A user's own object, with settings at several depths."""

    share = 1.0

    def __init__(self) -> None:
        self.model, self.iteration, self.clip = model(), 0, 0.01
        self.config = types.SimpleNamespace(scale=2.0)
        self.optimizer = fp.SGD(self.model, lr=0.1)

    @property
    def factor(self) -> float:
        return self.config.scale * 0.5

    def loss(self, x: Any, y: Any) -> Any:
        return F.cross_entropy(self.model(x), y) * self.factor * self.share

    def step(self, x: Any, y: Any) -> Any:
        grads = (loss := self.loss(x, y)).backward()
        fp.clip_grad_norm(grads, self.clip)
        self.optimizer.step(grads)
        return loss


def test_numbers_of_closures_globals_and_objects_that_change():
    def case(wrap: Wrap, log: Log) -> None:
        global SCALE
        SCALE, number, options = 1.0, 2.0, {"add": 1.0}
        f = wrap(lambda x: [helper(x) * number + options["add"], x * SCALE])
        for i in range(16):
            SCALE = 3.0 if i >= 4 else 1.0
            number = 5.0 if i >= 8 else 2.0
            options["add"] = -1.0 if i >= 12 else 1.0
            options[f"note {i}"] = i  # not read by the step
            log(f(fp.full((2,), i)))

    same(case)

    def attributes(wrap: Wrap, log: Log) -> None:
        job = Job()
        f = wrap(job.step)
        for i in range(16):
            job.iteration += 1  # not read by the step
            job.clip = 10.0 if i >= 4 else 0.01
            job.config.scale = 0.5 if i >= 8 else 2.0
            Job.share = 0.25 if i >= 12 else 1.0
            log(f(*batch(i)))
            log(job.model)

    same(attributes)


def helper(x: Any) -> Any:
    return x * SCALE


def test_other_arguments_are_other_kinds():
    def batches(wrap: Wrap, log: Log) -> None:
        m = model()
        f = wrap(training(m, fp.AdamW(m, lr=0.1)))
        for i in range(12):
            log(f(*batch(i, 2 if i % 4 == 3 else 5)))

    same(batches)

    def nested(wrap: Wrap, log: Log) -> None:
        f = wrap(lambda b, *, flag: (b["x"] * b["pair"][1]).sum() if flag else b["x"])
        for i in range(10):
            log(f({"x": fp.full((2,), i), "pair": (1, 2.0 if i < 5 else 3.0)}, flag=i % 2 == 0))

    same(nested)

    def tracked(wrap: Wrap, log: Log) -> None:
        w = fp.Parameter(fp.ones(2))

        def step(x: Any) -> Any:
            grads = (x * w).sum().backward()
            return grads.get(x), grads[w]

        f = wrap(step)
        for i in range(10):
            log(f(fp.tensor([1.0, i], requires_grad=i % 4 > 1)))

    same(tracked)


def test_grad_mode_is_part_of_the_kind_and_results_have_no_tape():
    w = fp.Parameter(fp.ones(2))
    captured = fp.capture(lambda x: x * w)
    for i in range(9):
        with fp.enable_grad() if i % 3 else fp.no_grad():
            assert captured(fp.ones(2)).requires_grad == bool(i % 3)
    loss = (captured(fp.ones(2)) * w).sum()
    with pytest.raises(fp.CaptureError, match=r"backward\(\) through the result of a captured step.*inside the step"):
        loss.backward()


# ---- aliases ---------------------------------------------------------------------------------------------------------------------
def test_one_tensor_passed_twice_is_one_leaf():
    def case(wrap: Wrap, log: Log) -> None:
        f = wrap(lambda a, b: (a * b).sum().backward()[a])
        for i in range(8):
            x = fp.tensor([float(i), 2.0], requires_grad=True)
            log(f(x, x if i % 2 else x.clone().detach().requires_grad_()))
        x = fp.ones(4)
        f = wrap(lambda a, b: a + b)
        for _ in range(4):
            log(f(x, x.detach()))

    same(case)


def test_an_argument_that_shares_memory_with_what_the_step_holds_is_refused():
    def closed_over(wrap: Wrap, log: Log) -> None:
        x = fp.tensor([2.0], requires_grad=True)
        f = wrap(lambda a: (a * x).sum().backward()[a])
        for _ in range(4):
            log(f(x))

    def alias(wrap: Wrap, log: Log) -> None:
        p = fp.Parameter(fp.ones(3))

        def step(a: Any) -> Any:
            p.apply_update(a)
            return (a * 2.0).sum()

        f = wrap(step)
        for i in range(6):
            log(f(p.detach() if i == 4 else fp.ones(3)))
            log(p)

    def hidden(wrap: Wrap, log: Log) -> None:
        held = iter([fp.ones(2)] * 9)
        f = wrap(lambda a: a * (x := next(held)) + x)
        for _ in range(3):
            log(f(next(held)))

    refused(closed_over, "shares memory", 1)
    refused(alias, "shares memory", 8)
    refused(hidden, "shares memory", 1)


# ---- state that crosses calls ----------------------------------------------------------------------------------------------------
def test_state_carried_outside_is_refused_and_state_passed_along_is_right():
    def tensor(wrap: Wrap, log: Log) -> None:
        state = {"h": fp.zeros(2)}

        def step(x: Any) -> Any:
            state["h"] = state["h"] * 0.5 + x
            return state["h"].sum()

        f = wrap(step)
        for i in range(5):
            log(f(fp.full((2,), i)))

    def argument(wrap: Wrap, log: Log) -> None:
        last: list[Any] = [None]

        def step(x: Any) -> Any:
            y = x if last[0] is None else x + last[0]
            last[0] = x
            return y

        f = wrap(step)
        for i in range(5):
            log(f(fp.full((2,), i)))

    def passed(wrap: Wrap, log: Log) -> None:
        f = wrap(lambda x, h: ((h := h * 0.5 + x).sum(), h))
        h = fp.zeros(2)
        for i in range(5):
            total, h = f(fp.full((2,), i), h)
            log(total)

    def written(wrap: Wrap, log: Log) -> None:
        h = fp.Parameter(fp.zeros(2), requires_grad=False)

        def step(x: Any) -> Any:
            h.set_data(h * 0.5 + x)
            return h.sum()

        f = wrap(step)
        for i in range(5):
            log(f(fp.full((2,), i)))
            log(h)

    refused(tensor, "state['h']", 2)
    refused(argument, "last[0]", 2)
    same(passed)
    same(written)


def test_grads_set_inside_are_there_outside():
    def case(wrap: Wrap, log: Log) -> None:
        m = model()
        o = fp.SGD(m, lr=0.1)

        def step(x: Any, y: Any) -> Any:
            m.zero_grad()
            m.params.set_grads((loss := F.cross_entropy(m(x), y)).backward())
            fp.clip_grad_norm(m.params, 0.5)
            o.step()
            return loss

        f = wrap(step)
        for i in range(6):
            f(*batch(i))
            log([p.grad for p in m.parameters()])
            m.zero_grad() if i == 3 else None
        kept = [p.grad for p in m.parameters()]
        f(*batch(9))
        log(kept)  # the caller's own

    same(case)

    def accumulated(wrap: Wrap, log: Log) -> None:
        p = fp.Parameter(fp.ones(2))
        p.set_grad(fp.zeros(2))

        def step(x: Any) -> Any:
            grads = (p * x).sum().backward()
            p.set_grad(p.grad + grads[p])
            return x.sum()

        f = wrap(step)
        for i in range(6):
            log(f(fp.full((2,), i)))
            log(p.grad)

    refused(accumulated, "capture: ", 6)


def test_a_step_whose_ops_are_new_is_recorded_at_its_second_call() -> None:
    """Its first call plans what comes twice: a recorder then sees stand-ins for the parameters' memory."""
    model = nn.Sequential(*[m for _ in range(4) for m in (nn.Linear(37, 37), nn.Tanh())])
    model.params.pack()
    optimizer = fp.SGD(model, lr=0.1)

    def step(x: fp.Tensor) -> fp.Tensor:
        loss = model(x).square().mean()
        optimizer.step(loss.backward())
        return loss

    run = fp.capture(step)
    for _ in range(2):
        run(fp.ones(5, 37))
    assert run.program is not None


def test_a_call_is_known_again_when_specs_were_forgotten(monkeypatch):
    """The engine keeps one spec of each shape, and forgets all after some thousand shapes: what is made anew says the same."""
    p = fp.Parameter.ones(3)

    def step(x: Any) -> Any:
        p.apply_update((p * x).sum().backward()[p] * 0.5)
        return p.sum() * 2.0

    captured, found = fp.capture(step, programs=1), []
    for i in range(9):
        found.append(captured(fp.full((3,), float(i % 2))).item())  # the same number three times: a copy of what is kept
        with monkeypatch.context() as m:
            m.setattr(kept, "MOST", 0)
            fp.tensor(np.zeros((1, i + 2)))
        assert fp.zeros(3).spec is fp.tensor(np.zeros(3, "f4")).spec
    assert found == [6.0 - 3.0 * ((i + 1) // 2) for i in range(9)] and captured.program is not None
