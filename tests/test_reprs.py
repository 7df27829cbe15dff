"""Whatever a user can get hold of says what it is: no class is printed as an address."""

from __future__ import annotations

import inspect
import re
from typing import Any

import numpy as np
import pytest

import flamepy as fp
import flamepy.accumulation
import flamepy.cuda
import flamepy.gradients.history
import flamepy.train
from flamepy import nn, optimizers, regularizer, schedules, transforms
from flamepy.train.config import GptConfig
from flamepy.train.display import PlainDisplay
from flamepy.train.gpt_job import GptJob
from flamepy.train.loop import Loop
from flamepy.train.run_folder import RunFolder
from flamepy.train.signals import StopRequest

pytestmark = pytest.mark.usefixtures("plain")
HOMES = [fp, nn, optimizers, regularizer, schedules, fp.autograd, fp.gradient, fp.cuda, fp.accumulation, fp.gradients.history, fp.train]
ADDRESS = re.compile(r"<[\w.]+ object at 0x|^<class")


def public_classes() -> list[Any]:
    found = [getattr(home, name) for home in (*HOMES, transforms) for name in dir(home) if name[0] != "_"]
    classes = {c: 0 for c in found if inspect.isclass(c) and c.__module__.startswith("flamepy.") and not issubclass(c, BaseException)}
    return [c for c in classes if c.__module__.split(".")[1] not in ("backend", "op")]


def test_every_public_class_has_a_repr() -> None:
    classes = public_classes()
    without = [c.__name__ for c in classes if c.__repr__ is object.__repr__]
    assert len(classes) > 70 and without in ([], ["TensorGradExt"])  # a mixin


def handed_back() -> list[Any]:
    """What flamepy's functions and constructors give to their callers."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
    x = fp.ones((2, 2), requires_grad=True)
    loss = model(x).square().mean()
    grads = fp.tape(loss) and loss.backward()
    accumulator, tracker, optimizer = fp.GradientAccumulator(2), fp.GradientTracker(), fp.AdamW(model, lr=schedules.cosine(0.1, 5))
    accumulator.step(grads)
    captured = fp.capture(lambda x: x * 2.0)
    made = [captured(fp.ones(2, 2)) for _ in range(3)]
    handle, hook = model.register_forward_hook(print), x.register_hook(print)
    removed = nn.ReLU().register_forward_pre_hook(print)
    removed.remove()
    return [
        model, x, loss, grads, loss.entry, fp.tape(loss), accumulator, accumulator.stats(), fp.AutogradEngine(), fp.no_grad(),
        tracker, optimizer, optimizer.groups, optimizer.groups[0], captured, captured.program, made[0], handle, hook, removed, model.params,
        fp.ParameterDict(), fp.GradientMap(), fp.clip_grad_norm(grads, 1.0), fp.EMA(model, 0.9), fp.SWA(model), fp.GradScaler(),
        fp.Lookahead(fp.SGD(model)), fp.ByName(model, {"*": fp.SGD}), fp.LBFGS(model), fp.Pipeline().add("l1", regularizer.l1),
        fp.GradientNormTracker(3), fp.TrainState(model=model), fp.AccumulationConfig(), fp.AdamConfig(), fp.SGDConfig(),
        schedules.product(schedules.cosine(0.1, 5), 2.0), schedules.ReduceOnPlateau(0.1), transforms.ClipNorm(1.0), fp.device("plain"),
        transforms.SkipSpikes(), fp.float32, nn.Conv2d(1, 2, 3), nn.MultiHeadAttention(4, 2), nn.ModuleDict(), nn.Module(),
    ]  # fmt: skip


def test_nothing_is_printed_as_an_address() -> None:
    for thing in handed_back():
        assert repr(thing) and not ADDRESS.search(repr(thing)), repr(thing)
    assert repr(nn.ReLU().register_forward_hook(print)) == "Handle(print, after each call of a ReLU)"
    assert repr(fp.ones(1, requires_grad=True).register_hook(np.abs)).startswith("TensorHook(")
    assert repr(fp.AdamW([fp.Parameter([1.0])])).startswith("AdamW(1 parameter: lr=")


def test_a_run_and_its_ledger_say_what_they_are(tmp_path: Any) -> None:
    folder = RunFolder(tmp_path)
    ledger = fp.train.Ledger(tmp_path / "notes.jsonl", nn.Linear(2, 2))
    assert repr(ledger) == f"Ledger({tmp_path / 'notes.jsonl'}, 2 parameters, every=10, window=100, z=4)"
    job = GptJob(GptConfig(steps=7, warmup=0, width=8, heads=2, layers=1, context=8, batch=2), "stdlib")
    loop = Loop(job, folder, PlainDisplay(None, 7, "tokens", 1), StopRequest())  # type: ignore[arg-type]
    assert repr(loop) == f"Loop(step 0 of 7, {type(job.model).__name__}, {tmp_path})"
