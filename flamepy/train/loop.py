"""The training loop: one step after another, with everything around a step that makes a run trustworthy.

A Job says what to learn (model, loss of a step, validation); the Loop does the rest: schedule, accumulation, clipping, optimizer,
metrics, checkpoints, stopping. A step depends on nothing but the state, so a run that was stopped and resumed is the same, bit for bit,
as one that was not. `flamepy train` and Trainer (trainer.py) both run it.
"""

from __future__ import annotations

import math
import re
from typing import Any, NoReturn

import numpy as np

from .. import rng, tensors
from ..dtypes import is_array
from ..engine.capture import capture
from ..errors import CaptureError, NonFiniteError
from .config import TrainConfig
from .display import PlainDisplay, Row, short
from .events import CallbackError, Events
from .job import Batch, Job
from .keeping import Keeper, Progress
from .ledger import Ledger
from .nonfinite import explain
from .problems import InputError, Interrupted
from .run_folder import RunFolder
from .signals import StopRequest
from .step import Step, tell_nobody

NOT_FINITE = {"norm": "the gradient norm is", "the loss is": "the loss is"}


class Loop:
    """One run in progress. Callbacks get it: `step`, `model`, `optimizer`, `folder`, ask_stop()."""

    def __init__(self, job: Job, folder: RunFolder, display: PlainDisplay, stop: StopRequest, events: Events | None = None):
        self.job, self.folder, self.display, self.stop = job, folder, display, stop
        config = self.config = job.config
        self.model, self.optimizer, self.events = job.model, job.optimizer, events or Events()
        self.parameters = job.model.named_parameters()
        self.ledger = Ledger(folder.ledger, job.model.params, config.ledger_every) if config.ledger else None
        self.progress = Progress()
        self.keeper = Keeper(job, folder, self.progress, self.ledger)
        # A step that calls back cannot be recorded, and one that is recorded must not reach who is called.
        tell = (lambda event, value: self.events.fire(event, self, value)) if self.events.inside else tell_nobody
        self.arithmetic = Step(job.loss, self.optimizer, config.accumulate, config.clip, config.ledger, tell)
        self.update = capture(self.arithmetic.learn) if config.capture and not self.events.inside else self.arithmetic.learn
        self.stop_reason = ""  # what a callback gave
        self.validated: dict[str, float] | None = None  # what the validation after the newest step found, if there was one

    @property
    def step(self) -> int:
        """How many steps are finished."""
        return self.progress.step

    @property
    def saved(self) -> int | None:
        """The step of the newest checkpoint."""
        return self.keeper.saved

    def __repr__(self) -> str:
        return f"Loop(step {self.step} of {self.job.config.steps}, {type(self.model).__name__}, {self.folder.path})"

    def ask_stop(self, reason: str = "a callback asked for it") -> None:
        """End the run after this step, as Ctrl-C would."""
        self.stop_reason = reason

    def run(self, until: int) -> bool:
        """Train to step `until`, saving on the way and at the end; False when something ended it early."""
        if self.saved is None:
            self.save()  # so that there is a good checkpoint to return to, whatever happens
        try:
            while self.step < until and not self.asked_to_stop():
                self.one_step_and_what_follows()
        except Interrupted:  # parameters may be half updated
            return False
        except CallbackError as failed:
            if self.saved != self.step:
                self.save(told=False)
            failed.error.add_note(f"flamepy: raised in '{failed.event}' after step {self.step}, whose checkpoint is saved")
            raise failed.error from None
        if self.saved != self.step:
            self.save(told=False)
        return self.step >= until

    @property
    def early(self) -> bool:
        """Whether the loss has not fallen for as long as the run is patient."""
        return 0 < self.config.patience <= self.progress.waited

    def asked_to_stop(self) -> bool:
        if not self.stop_reason and self.early:
            self.stop_reason = f"no lower loss in {self.progress.waited} validations; the best was at step {self.progress.best_step:,}"
        return bool(self.stop) or self.display.broken or bool(self.stop_reason)

    def one_step_and_what_follows(self) -> None:
        row = self.one_step()
        seconds = self.display.step(row)
        found = self.due_validation()
        self.folder.metrics.append({**row._asdict(), **found})
        speed = round(self.job.per_step / seconds, 1)
        self.folder.timing.append({"step": row.step, "seconds": round(seconds, 6), f"{self.job.unit}_per_second": speed})
        better = bool(found) and self.progress.judge(found.get("val_loss", math.nan))
        self.events.raise_late()
        self.events.fire("step", self, row)
        if found:
            self.events.fire("validation", self, found)
        if self.step % self.config.save_every == 0 or (better and self.config.patience):
            self.save()

    def one_step(self) -> Row:
        """Loss, gradients, clipping, update. Nothing is updated unless loss and gradients are finite."""
        before, self.validated = rng.get_rng_state(), None
        if self.job.schedule is not None:
            self.optimizer.lr = self.job.schedule(self.step)
        lr = self.optimizer.lr
        batches = self.batches(self.step)
        if self.ledger is not None:
            self.ledger.before(self.step + 1)
        try:
            # A step that is broken off is lost, and those since the last checkpoint with it: at the beginning, where kernels are compiled.
            with self.stop.between_kernels(self.saved is not None and self.step - self.saved <= 1):
                loss, norm, zeros = self.update(*batches)
        except NonFiniteError as error:
            self.give_up(str(error), before, batches)
        except CaptureError as error:
            off = "--no-capture" if isinstance(self.config, TrainConfig) else "capture=False"
            raise CaptureError(f"{error} With {off} training needs no record.") from error
        except CallbackError:
            rng.set_rng_state(before)
            self.arithmetic.broken_off()
            self.job.give_back()
            raise
        value = loss.item()
        self.progress.count(value)
        if self.ledger is not None:
            self.ledger.record(self.step, norm, zeros)
        return Row(self.step, value, self.progress.smoothed, lr, norm)

    def batches(self, step: int) -> list[Batch]:
        """The batches of a step, arrays as tensors on the job's device."""

        def moved(x: Any) -> Any:
            if isinstance(x, dict):
                return {key: moved(value) for key, value in x.items()}
            if type(x) in (tuple, list):
                return type(x)([moved(value) for value in x])
            return tensors.tensor(x, device=self.job.device) if is_array(x) else x

        try:
            return [moved(batch) for batch in self.job.batches(step)]
        except BaseException as error:
            self.job.give_back()
            if not isinstance(error, Exception):
                raise
            raise CallbackError("data", error) from error

    def give_up(self, error: str, before: dict[str, int], batches: list[Batch]) -> NoReturn:
        """Find out what made the number that is not finite, and stop."""
        what = re.sub(r".*: (norm|the loss is) (\S+),.*", lambda m: f"{NOT_FINITE[m[1]]} {m[2]}", error)
        rng.set_rng_state(before)
        reason = ""
        for batch in batches:
            here = rng.get_rng_state()
            if batch is batches[-1] or self.is_broken(batch):
                rng.set_rng_state(here)
                reason = explain(lambda batch=batch: self.job.loss(*batch), self.parameters)  # type: ignore[misc]
                break
        own = not isinstance(self.config, TrainConfig)
        advice = "Lower the learning rate, or look at the data" if own else "start again with a lower --lr or another --seed"
        raise NonFiniteError(
            f"{'Trainer: ' * own}{what} at step {self.step + 1}: {reason}. The checkpoint of step {self.saved} is kept in "
            f"{self.folder.checkpoints}{'. ' if own else ': '}{advice}."
        )

    def is_broken(self, batch: Batch) -> bool:
        """Whether this batch's loss or gradients are not finite."""
        loss = self.job.loss(*batch)
        return not math.isfinite(loss.item()) or not all([np.isfinite(g.numpy()).all() for _, g in loss.backward().items()])

    def due_validation(self) -> dict[str, float]:
        """The validation, when this step has one."""
        if self.step % self.config.validate_every and self.step != self.config.steps:
            return {}
        self.display.busy("validating")
        try:
            found = self.job.validate()
        except InputError:
            raise
        except Exception as error:
            self.events.late = CallbackError("validation", error)
            found = {}
        self.validated = found
        self.display.pause()
        if found:
            self.display.line(
                f"step {self.step}/{self.config.steps}  "
                + "  ".join(f"{k.replace('val_', 'validation ')} {short(v)}" for k, v in found.items())
            )
        return found

    def save(self, told: bool = True) -> None:
        """Write a checkpoint of this moment. `told`: to the callbacks."""
        self.display.busy("saving")
        path = self.keeper.save()
        self.display.pause()
        if told:
            self.events.fire("checkpoint", self, path)
