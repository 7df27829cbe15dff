"""The training loop: one step after another, with everything around a step that makes a run trustworthy.

A Job says what to learn (model, loss of a step, validation); the Trainer does the rest: schedule, clipping, optimizer,
metrics, checkpoints, stopping. A step depends on nothing but the parameters, the optimizer and the step number, so a run
that was stopped and resumed is the same, bit for bit, as one that was not.

Read next: runs.py, gpt_job.py.
"""

from __future__ import annotations

import math
import platform
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any, NoReturn, Protocol

import numpy as np

from .. import optimizers, rng, schedules, tensors
from ..errors import NonFiniteError
from ..gradient_clip import clip_grad_norm
from ..replay import capture
from . import checkpoint
from .checkpoint import Checkpoint
from .config import TrainConfig, job_name, one_line, source_title
from .display import PlainDisplay, Row, short
from .nonfinite import explain, some
from .problems import InputError, Interrupted
from .run_folder import RunFolder
from .signals import StopRequest

SMOOTHING = 0.05
NOT_FINITE = {"norm": "the gradient norm is", "the loss is": "the loss is"}
MODEL, OPTIMIZER = "model.", "optimizer."


class Job(Protocol):
    """What a kind of training has to provide."""

    config: TrainConfig
    model: Any
    name: str  # begins the name of the run folder
    command: str  # what stands between `flamepy train` and the options: "" or "digits "
    title: str
    data_word: str  # what it learns from: "text", "images"
    data_line: str  # the same with its source and size, for people
    unit: str  # what a step processes, for the speed: "tokens", "images"
    per_step: int  # how many of them
    loss_unit: str  # what the axis of the loss says
    copy: bytes | None  # data that came from a pipe and must be kept for resuming

    def batch(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and targets of one step; a pure function of the step."""

    def loss(self, x: Any, y: Any) -> Any:
        """The tracked loss of a batch; a pure function of the parameters, the batch and the random state."""

    def validate(self) -> dict[str, float]:
        """Numbers on held-out data, among them "val_loss"; no random numbers."""

    def data_facts(self) -> dict[str, Any]:
        """Where the data came from, and its "sha256"."""

    def results(self, last: dict[str, float], folder: RunFolder) -> Iterator[str]:
        """Lines to show when all steps are done; `last` is what validate() found then. May write files, after the lines."""


class Trainer:
    """One run in progress."""

    def __init__(self, job: Job, folder: RunFolder, display: PlainDisplay, stop: StopRequest):
        self.job, self.folder, self.display, self.stop = job, folder, display, stop
        config = self.config = job.config
        self.parameters = job.model.named_parameters()
        self.optimizer = optimizers.AdamW(
            job.model.params, lr=config.lr, betas=(config.beta1, config.beta2), weight_decay=config.weight_decay
        )
        self.schedule = schedule_of(config)
        self.update = capture(self.learn) if config.capture else self.learn
        self.step = 0
        self.smoothed = 0.0
        self.saved: int | None = None
        self.validated: dict[str, float] | None = None  # what the last step's validation found, if this process made it

    def run(self, until: int) -> bool:
        """Train to step `until`, saving on the way and at the end; False when a signal ended it early."""
        if self.saved is None:
            self.save()  # so that there is a good checkpoint to return to, whatever happens
        while self.step < until and not self.asked_to_stop():
            try:
                row = self.one_step()
            except Interrupted:  # parameters may be half updated
                return False
            seconds = self.display.step(row)
            record = {**row._asdict(), **self.due_validation()}
            self.folder.metrics.append(record)
            speed = round(self.job.per_step / seconds, 1)
            self.folder.timing.append({"step": row.step, "seconds": round(seconds, 6), f"{self.job.unit}_per_second": speed})
            if self.step % self.config.save_every == 0:
                self.save()
        if self.saved != self.step:
            self.save()
        return self.step >= until

    def asked_to_stop(self) -> bool:
        return bool(self.stop) or self.display.broken

    def one_step(self) -> Row:
        """Loss, gradients, clipping, update. Nothing is updated unless loss and gradients are finite."""
        before = rng.get_rng_state()
        self.optimizer.lr = lr = self.schedule(self.step)
        x, y = (tensors.tensor(array, device=self.config.device) for array in self.job.batch(self.step))
        try:
            # A step that is broken off is lost, and those since the last checkpoint with it: at the beginning, where kernels are compiled.
            with self.stop.between_kernels(self.saved is not None and self.step - self.saved <= 1):
                loss, norm = self.update(x, y)
        except NonFiniteError as error:
            self.give_up(str(error), before)
        value = loss.item()
        self.step += 1
        # The mean of the first twenty, then a moving average: no lag behind the high loss of the first step.
        self.smoothed += (value - self.smoothed) * max(1 / self.step, SMOOTHING)
        return Row(self.step, value, self.smoothed, lr, norm)

    def learn(self, x: Any, y: Any) -> tuple[Any, float]:
        """One step on a batch, as it is captured: the loss, and the norm of the gradients before clipping."""
        loss = self.job.loss(x, y)
        grads = loss.backward()
        loss.device.stream.after(check_loss, loss.buffer)
        norm = clip_grad_norm(grads, self.config.clip or math.inf)
        self.optimizer.step(grads)
        return loss, norm

    def give_up(self, error: str, before: dict[str, int]) -> NoReturn:
        """Find out what made the number that is not finite, and stop."""
        what = re.sub(r".*: (norm|the loss is) (\S+),.*", lambda m: f"{NOT_FINITE[m[1]]} {m[2]}", error)
        rng.set_rng_state(before)
        batch = [tensors.tensor(array, device=self.config.device) for array in self.job.batch(self.step)]
        reason = explain(lambda: self.job.loss(*batch), self.parameters)
        raise NonFiniteError(
            f"{what} at step {self.step + 1}: {reason}. The checkpoint of step {self.saved} is kept in "
            f"{self.folder.checkpoints}: start again with a lower --lr or another --seed."
        )

    def due_validation(self) -> dict[str, float]:
        """The validation, when this step has one."""
        if self.step % self.config.validate_every and self.step != self.config.steps:
            return {}
        self.display.busy("validating")
        found = self.job.validate()
        if self.step == self.config.steps:
            self.validated = found
        self.display.pause()
        self.display.line(
            f"step {self.step}/{self.config.steps}  "
            + "  ".join(f"{k.replace('val_', 'validation ')} {short(v)}" for k, v in found.items())
        )
        return found

    # ---- checkpoints ------------------------------------------------------------------------------------------------

    def save(self) -> None:
        """Write a checkpoint of this moment."""
        self.display.busy("saving")
        arrays, scalars = self.arrays()
        broken = [name for name, array in arrays.items() if not np.isfinite(array).all()]
        if broken:
            raise NonFiniteError(
                f"the update of step {self.step} made values that are not finite: {some(broken)}. The checkpoint of step "
                f"{self.saved} is kept in {self.folder.checkpoints}: start again with a lower --lr."
            )
        facts = {
            "job": job_name(type(self.config)),
            "step": self.step,
            "smoothed_loss": self.smoothed,
            "config": asdict(self.config),
            "schedule": {"name": "warmup_cosine", "position": self.step, "next_lr": self.schedule(self.step)},
            "data": {**self.job.data_facts(), "position": self.step},
            "random_state": rng.get_rng_state(),
            "optimizer": scalars,
            "versions": versions(),
        }
        self.folder.sync()  # metrics up to this step must not be younger than the checkpoint
        checkpoint.save(self.folder.checkpoints, arrays, facts, self.config.keep)
        self.saved = self.step
        self.display.pause()

    def arrays(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Every array by name, the parameters' as views, and what of the optimizer's state is not an array."""
        arrays = {MODEL + name: p.numpy() for name, p in self.parameters}
        state = self.optimizer.state_dict()
        scalars: dict[str, Any] = {"groups": state["groups"], "state": {}}
        for name, values in state["state"].items():
            scalars["state"][name] = {key: v for key, v in values.items() if not isinstance(v, np.ndarray)}
            arrays.update({f"{OPTIMIZER}{name}.{key}": v for key, v in values.items() if isinstance(v, np.ndarray)})
        return arrays, scalars

    def restore(self, saved: Checkpoint) -> None:
        """Take over everything a checkpoint holds."""
        check_fit(saved, {MODEL + name: p.shape for name, p in self.parameters})
        try:
            self.take_over(saved, saved.facts)
        except InputError:
            raise
        except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
            reason = f"{type(error).__name__}: {one_line(error)}"
            raise InputError(
                f"the checkpoint is incomplete: {saved.path}: {reason}. Go back to an earlier one, or start a new run."
            ) from error

    def take_over(self, saved: Checkpoint, facts: dict[str, Any]) -> None:
        check_data(self.job, facts["data"])
        self.job.model.load_state_dict(pick(saved.tensors, MODEL))
        state = {name: dict(values) for name, values in facts["optimizer"]["state"].items()}
        for key, array in pick(saved.tensors, OPTIMIZER).items():
            name, _, moment = key.rpartition(".")
            state.setdefault(name, {})[moment] = array
        self.optimizer.load_state_dict({"groups": facts["optimizer"]["groups"], "state": state})
        if not all(0 <= int(number) < 2**63 for number in facts["random_state"].values()):
            raise ValueError(f"random_state is {facts['random_state']}")
        rng.set_rng_state(facts["random_state"])
        self.step = self.saved = saved.step
        self.smoothed = float(facts["smoothed_loss"])
        saved.tensors.clear()  # lets go of the file: once removed, it shall take no more room on disk
        self.folder.forget_after(self.step)


def schedule_of(config: TrainConfig) -> Callable[[int], float]:
    """The learning rate of each step."""
    return schedules.warmup_cosine(config.lr, config.warmup, config.steps, config.lr * config.final_lr)


def check_data(job: Job, before: dict[str, Any]) -> None:
    """Refuse to go on with other data than the checkpoint was made with; `before`: its facts about them."""
    word, here = job.data_word, job.data_facts()
    if here["sha256"] == before["sha256"]:
        return
    if here["source"] == before["source"] and job.copy is None:
        raise InputError(
            f"the {word} changed after the checkpoint was made: {here['source']}. Give the same {word} with --data, or start a new run."
        )
    given, wanted = (f"{source_title(facts['source'])} (SHA-256 {facts['sha256'][:8]})" for facts in (here, before))
    raise InputError(
        f"not the {word} that the run was trained on: {given}; it was {wanted}. Leave --data out, give the same {word}, or start a new run."
    )


def check_loss(loss: Any) -> None:
    """Raise NonFiniteError unless the loss in this buffer is finite."""
    value = loss.device.download(loss)[0]
    if not math.isfinite(value):
        raise NonFiniteError(f"train: the loss is {value}, which no step can use. Lower the learning rate.")


def pick(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def check_fit(saved: Checkpoint, shapes: dict[str, tuple[int, ...]]) -> None:
    """Refuse the checkpoint of another model, naming the first difference."""
    there = {name: array.shape for name, array in saved.tensors.items() if name.startswith(MODEL)}
    for name in sorted(shapes.keys() | there.keys()):
        if shapes.get(name) != there.get(name):
            raise InputError(
                f"the checkpoint is of another model: {name.removeprefix(MODEL)} is {there.get(name, 'missing')} in {saved.path}, "
                f"{shapes.get(name, 'missing')} in the model. Give the run folder its own config.toml back, or start a new run."
            )


def versions() -> dict[str, str]:
    from importlib.metadata import version

    from .. import __version__

    return {"flamepy": __version__, "python": platform.python_version(), **{n: version(n) for n in ("numpy", "numba")}}
