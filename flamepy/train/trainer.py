"""Trainer: what `flamepy train` does, for a model, data and loss of your own.

    trainer = Trainer(model, lambda x, y: F.cross_entropy(model(x), y), batches, folder="runs/mine", steps=1000)
    trainer.run()

It is the same loop (loop.py) with the same run folder: config.toml, metrics.jsonl, timing.jsonl, checkpoints, curves.png. Ctrl-C finishes
the step, saves and ends the process; with resume=True the run goes on, bit for bit.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from .. import optimizers, rng
from ..autograd import no_grad
from ..backend.base import device
from ..core.errors import DTypeError, StateError
from ..dtypes import check_function
from ..nn import Module
from ..saving.plain import rebuilt
from . import checkpoint, runs
from .config import LoopConfig, build, read_toml, setting
from .display import make_display
from .events import Events
from .feed import Feed
from .job import Batch
from .keeping import OPTIMIZER, check_fit, model_state, shapes_of
from .problems import InputError, meant
from .run_folder import RunFolder
from .signals import StopRequest
from .writers import tensorboard_kind, tensorboard_writer, write_csv


@dataclass(frozen=True)
class TrainerConfig(LoopConfig):
    """The options of Trainer."""

    csv: bool = setting(False, "the metrics as metrics.csv too, when the run ends", free=True)
    tensorboard: bool = setting(False, "the metrics for TensorBoard too, in the folder tensorboard", free=True)


class OwnJob:
    """A user's model, data and loss as the loop wants them; see job.py."""

    name, who, data_word, unit, loss_unit, copy = "run", "Trainer", "data", "batches", "loss", None

    def __init__(self, config: TrainerConfig, model: Module, loss: Callable[..., Any], feed: Feed, optimizer: Any):
        self.config, self.model, self.loss, self.feed, self.optimizer = config, model, loss, feed, optimizer
        self.schedule: Callable[[int], float] | None = None
        self.validation: Callable[[], Any] | None = None
        self.members: dict[str, Any] = {"data": feed}
        first = next(iter(model.parameters()), None)
        self.device = device() if first is None else first.device
        self.given: dict[str, Any] = {}
        self.per_step = config.accumulate
        self.title = type(model).__name__
        self.data_line = type(feed.data).__name__
        self.settings_line = f"{config.accumulate} batches in a step, {self.device}" if config.accumulate > 1 else str(self.device)

    def batches(self, step: int) -> Iterator[Batch]:
        return self.feed.take(self.config.accumulate)

    def give_back(self) -> None:
        self.feed.give_back()

    def validate(self) -> dict[str, float]:
        """What the user's function finds; a number alone is "val_loss"."""
        if self.validation is None:
            return {}
        here = rng.get_rng_state()  # a run that is resumed at its end validates once more
        modes = [(m, m.training) for m in self.model.modules()]  # a part that is in evaluation mode stays so
        self.model.eval()
        try:
            with no_grad():
                found = self.validation()
        finally:
            for m, mode in modes:
                m.training = mode
            rng.set_rng_state(here)
        found = found if isinstance(found, dict) else {"val_loss": found}
        wrong = [f"{key!r}: {type(x).__name__}" for key, x in found.items() if not hasattr(x, "__float__") or not isinstance(key, str)]
        if wrong:
            raise DTypeError(f"Trainer: validate() gave no number: {', '.join(wrong)}. Return a float, or floats by name.")
        if found and self.config.patience and "val_loss" not in found:
            raise DTypeError(f"Trainer: patience waits for val_loss: validate() gave {', '.join(found)}. Return the loss by this name.")
        return {key: float(x) for key, x in found.items()}

    def data_facts(self) -> dict[str, Any]:
        counted = {"batches": len(self.feed.data)} if isinstance(self.feed.data, list | tuple) else {}
        return {"source": self.data_line, "sha256": "", **counted}

    def results(self, last: dict[str, float], folder: RunFolder) -> Iterator[str]:
        for name, value in last.items():
            yield f"{name.replace('val_', 'validation ')} {value:.6g}"

    def going_on(self, folder: RunFolder) -> str:
        return f'the same program with Trainer(..., folder="{folder.path}", resume=True)'


class Nowhere(io.StringIO):
    """What is written to it is gone."""

    def write(self, text: str) -> int:
        return len(text)


class Trainer:
    """Trains `model` with `loss(*batch)` on `data`, into the run folder `folder` (None: the next free one in runs/).

    `data`: a list of batches or anything that can be gone through again and again, a function of the batch's number, or an iterator;
    NumPy arrays in a batch become tensors on the model's device. `optimizer`: AdamW(model, lr=1e-3) if None. `schedule`: the rate after
    so many steps (None: the optimizer's own). `validate`: a function that returns the validation loss, or numbers by name ("val_loss"
    is the one that early stopping looks at). `members`: what else belongs into a checkpoint, by name: {"ema": ema}. resume=True goes
    on with the run in the folder if there is one. `quiet`: show nothing.

    More options: steps=1000, accumulate=1, clip=1.0 (0: off), capture=True, validate_every=500, save_every=250, keep=2, patience=0 (early
    stopping, and the best checkpoint is kept), ledger=False, ledger_every=10, csv=False, tensorboard=False.
    """

    def __init__(
        self, model: Module, loss: Callable[..., Any], data: Any, optimizer: Any = None, folder: str | os.PathLike[str] | None = None,
        schedule: Callable[[int], float] | None = None, validate: Callable[[], Any] | None = None, members: dict[str, Any] | None = None,
        resume: bool = False, quiet: bool = False, **options: Any,
    ):  # fmt: skip
        known = [field.name for field in fields(TrainerConfig)]
        for name in options:
            if name not in known:
                raise TypeError(f"Trainer: no such option: {name!r}. {meant(name, known)}")
        if not isinstance(model, Module):
            raise DTypeError(f"Trainer: no model: {type(model).__name__}. Give a flamepy.nn.Module.")
        if not callable(loss):
            raise DTypeError(f"Trainer: the loss is no function: {type(loss).__name__}. Give a function of a batch that returns the loss.")
        if optimizer is not None and not (hasattr(optimizer, "step") and hasattr(optimizer, "lr")):
            raise DTypeError(f"Trainer: no optimizer: {type(optimizer).__name__}. Give one of flamepy.optimizers, such as AdamW(model).")
        with speaking():
            config = build(TrainerConfig, options)
        optimizer = optimizers.AdamW(model, lr=1e-3) if optimizer is None else optimizer
        self.job = OwnJob(config, model, loss, Feed(data), optimizer)
        self.job.schedule, self.job.validation = schedule, validate
        more = dict(members or {})
        if more.keys() & {"model", "optimizer", "progress", "data", "ledger"}:
            raise StateError(f"Trainer: members that it has itself: {sorted(more)}. Choose other names.")
        self.job.members.update(more)
        check_optimizer(optimizer, [model, *more.values()])
        self.place, self.resume, self.quiet = None if folder is None else os.fspath(folder), resume, quiet
        self.events = Events()
        for what, function in (("validate", validate), ("schedule", schedule)):
            if function is not None:
                check_function("Trainer", what, function)
        if config.patience and validate is None:
            raise InputError(f"Trainer: patience without validation: {config.patience}. Give validate=, a function that returns the loss.")

    def on(self, event: str, callback: Callable[[Any, Any], Any] | None = None) -> Any:
        """Have callback(run, value) called at an event: "step", "validation", "checkpoint", or inside each step "backward", "clip",
        "optimizer" (then steps are not captured). run.ask_stop("reason") ends the run after the step. What a callback raises ends it too,
        with the finished steps saved. Without a callback: a decorator."""
        if callback is None:
            return lambda function: self.on(event, function) or function
        self.events.on(event, callback)
        return None

    def __repr__(self) -> str:
        parts = type(self.job.model).__name__, f"{self.job.config.steps:,} steps", type(self.job.optimizer).__name__
        return f"Trainer({', '.join(parts)}, folder {self.place or 'runs/...'})"

    def run(self, stop_after: int | None = None) -> bool:
        """Train to the end, or to step `stop_after`; whether the run is complete (by early stopping too). After Ctrl-C or SIGTERM the
        checkpoint is saved and SystemExit raised, with 130 or 143. May be called again: it goes on from the last checkpoint, whatever was
        done to the model since."""
        with speaking():
            stop = StopRequest()
            with stop if threading.current_thread() is threading.main_thread() else contextlib.nullcontext():
                done = self.run_in_folder(stop, stop_after)
        if stop.number is not None:
            raise SystemExit(128 + stop.number)
        return done

    def run_in_folder(self, stop: StopRequest, stop_after: int | None) -> bool:
        config = self.job.config
        there = self.place is not None and (Path(self.place) / "config.toml").exists()
        if there and not self.resume:
            raise InputError(f"already a run folder: {self.place}. Pass resume=True to go on with it, or another folder.")
        if config.tensorboard:
            tensorboard_kind()  # before a folder is made
        if there:
            folder = RunFolder.reopen(Path(str(self.place)))
        else:
            folder = RunFolder.create(self.place, self.job.name, config)
        with contextlib.ExitStack() as ending:
            ending.callback(folder.close)
            saved = self.fitting(folder) if there else None
            self.job.given = self.given(saved)
            self.place, self.resume = str(folder.path), True
            step = 0 if saved is None else saved.step
            runs.check_stop_after(stop_after, step)
            display = make_display(config.steps, self.job.unit, self.job.per_step, Nowhere() if self.quiet else None)
            if config.tensorboard:
                ending.callback(tensorboard_writer(folder, self.events, step))
            if config.csv:
                ending.callback(write_csv, folder)
            return runs.train(self.job, folder, saved, stop_after, stop, self.events, display)

    def fitting(self, folder: RunFolder) -> checkpoint.Checkpoint | None:
        """The checkpoint to go on from; InputError when it was made with other options."""
        before, config = build(TrainerConfig, read_toml(TrainerConfig, folder.config)), self.job.config
        for field in fields(TrainerConfig):
            was, now = getattr(before, field.name), getattr(config, field.name)
            if was != now and not field.metadata.get("free"):
                raise InputError(
                    f"a resumed run keeps its options: {field.name} is {now}, the run has {was}. Use the same, or a new folder."
                )
        saved = checkpoint.load(folder.checkpoints)
        if saved is None:
            folder.forget_after(0)
            return None
        if saved.step > config.steps:
            raise InputError(f"nothing to do: steps is {config.steps}, the run is at step {saved.step}. Give more steps.")
        runs.same_run(config, saved)
        return saved

    def given(self, saved: checkpoint.Checkpoint | None) -> dict[str, Any]:
        """The optimizer's options that the run was begun with. InputError for others now: they would be those of the checkpoint, unseen."""
        optimizer, here = self.job.optimizer, options_of(getattr(self.job.optimizer, "groups", ()))
        before = {} if saved is None else saved.facts.get("given")
        before = before if isinstance(before, dict) else {}
        scheduled = self.job.schedule is not None or getattr(getattr(optimizer, "rates", None), "schedule", None) is not None
        found = [n for n in here if here[n] != before.get(n, here[n]) and not (scheduled and n.endswith(".lr"))]
        if found and saved is not None:
            try:
                now = options_of(rebuilt(json.dumps(saved.facts["state"]), saved.tensors)[OPTIMIZER]["groups"])
            except (LookupError, TypeError, AttributeError, ValueError):  # damaged: that is told when it is restored
                return before
            for name in found:
                if here[name] != now.get(name):  # else a callback has set it
                    raise InputError(
                        f"a resumed run keeps its options: the optimizer's {name} is {here[name]}, the run has {before[name]}. Use the "
                        "same, or set others in a callback: run.optimizer is there."
                    )
        return before or here

    def load_best(self) -> int:
        """Give the model the numbers of the best checkpoint (of the last, where none was chosen); returns its step."""
        with speaking():
            folder = RunFolder(Path(str(self.place))).checkpoints
            saved = checkpoint.load(folder, checkpoint.BEST) or checkpoint.load(folder)
            if saved is None:
                raise InputError(f"there is no checkpoint yet: {folder}. Call run() first.")
            check_fit(saved, shapes_of(self.job.model))
            self.job.model.load_state_dict(model_state(saved))
            return saved.step


def check_optimizer(optimizer: Any, saved: list[Any]) -> None:
    """Raise StateError for an optimizer of other parameters: the model would stay as it is, or what is trained would not be saved."""
    keep_more = any([hasattr(x, "state_dict") and not hasattr(x, "parameters") for x in saved])  # of what, they alone know
    ids = {p.id for x in saved if hasattr(x, "parameters") for p in x.parameters()}
    strange = [p for p in getattr(optimizer, "params", ()) if p.id not in ids]
    if strange and (not keep_more or len(strange) == len(optimizer.params)):
        raise StateError(
            f"Trainer: the optimizer trains what is not in the model: {len(strange)} of {len(optimizer.params)} parameters, first "
            f"{strange[0].label}. Make it from this model, or save the others too: members={{'more': a ParameterDict}}."
        )


def options_of(groups: Any) -> dict[str, str]:
    """The options of an optimizer's groups."""
    return {f"groups[{i}].{name}": repr(value) for i, group in enumerate(groups) for name, value in group.items() if name != "names"}


@contextlib.contextmanager
def speaking() -> Iterator[None]:
    """In the block an InputError begins with whose it is."""
    try:
        yield
    except InputError as error:
        raise InputError(f"Trainer: {error}") from error
