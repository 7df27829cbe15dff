"""Keeping a run: what its checkpoints hold beside the state, and how a run takes them over again."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ..core.errors import NonFiniteError, StateError
from ..saving.plain import Listed, rebuilt, taken_apart
from . import checkpoint
from .checkpoint import Checkpoint
from .config import job_name, one_line, source_title
from .job import Job
from .ledger import Ledger
from .nonfinite import some
from .problems import InputError
from .run_folder import RunFolder
from .state import TrainState, versions

MODEL, OPTIMIZER, LEDGER = "model", "optimizer", "ledger"
SMOOTHING = 0.05


class Progress:
    """How far a run is, and how well it does."""

    def __init__(self) -> None:
        self.step = 0
        self.smoothed = 0.0
        self.best, self.best_step = math.inf, 0  # the lowest validation loss
        self.waited = 0  # validations since

    def count(self, loss: float) -> None:
        """One more step. The mean of the first twenty, then a moving average: no lag behind the high loss of the first step."""
        self.step += 1
        self.smoothed += (loss - self.smoothed) * max(1 / self.step, SMOOTHING)

    def judge(self, loss: float) -> bool:
        """Take note of a validation; whether it is the best so far."""
        if loss < self.best:
            self.best, self.best_step, self.waited = loss, self.step, 0
            return True
        self.waited += 1
        return False

    def state_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore state_dict(). Raises StateError for what it did not return, and changes nothing then."""
        kinds = {"step": int, "smoothed": float, "best": float, "best_step": int, "waited": int}
        if not isinstance(state, dict) or set(state) != set(kinds) or any([type(state[key]) is not kind for key, kind in kinds.items()]):
            raise StateError(f"progress: not its state: {str(state)[:80]}. Restore what was saved.")
        vars(self).update(state)


class Keeper:
    """Writes the checkpoints of a run and takes them over. `saved`: the step of the newest."""

    def __init__(self, job: Job, folder: RunFolder, progress: Progress, ledger: Ledger | None):
        self.job, self.folder, self.progress, self.ledger = job, folder, progress, ledger
        self.members = {MODEL: job.model, OPTIMIZER: job.optimizer, "progress": progress, **job.members}
        self.saved: int | None = None
        buffers = [(f"{MODEL}.{name}", t) for name, t in job.model.named_buffers(persistent=True)]
        self.odd = {name for name, t in buffers if not np.isfinite(np.asarray(t)).all()}  # from the beginning: a mask of -inf

    def save(self) -> Path:
        """Write a checkpoint of this moment."""
        job, step = self.job, self.progress.step
        more = {} if self.ledger is None else {LEDGER: self.ledger}
        leaves: dict[str, Listed] = {}
        form = json.loads(taken_apart(TrainState(**self.members, **more).contents(), leaves))
        self.check_finite(leaves)
        facts = {
            "job": job_name(type(job.config)),
            "step": step,
            "config": asdict(job.config),
            "schedule": {"position": step, "next_lr": job.optimizer.lr if job.schedule is None else job.schedule(step)},
            "data": {**job.data_facts(), "position": step},
            "given": job.given,
            "state": form,
            "versions": versions(),
        }
        self.folder.sync()  # metrics up to this step must not be younger than the checkpoint
        if self.ledger is not None:
            self.ledger.file.sync()
        best = self.progress.best_step if job.config.patience and self.progress.best < math.inf else None
        path = checkpoint.save(self.folder.checkpoints, leaves, facts, job.config.keep, best)  # type: ignore[arg-type]
        self.saved = step
        return path

    def check_finite(self, leaves: dict[str, Listed]) -> None:
        """Raise NonFiniteError where the last update broke the model or the optimizer."""
        kinds = f"{MODEL}.", f"{OPTIMIZER}."
        found = [(name, leaf) for name, leaf in leaves.items() if name.startswith(kinds) and name not in self.odd]
        broken = [name for name, leaf in found if not np.isfinite(np.asarray(leaf)).all()]
        if broken:
            raise NonFiniteError(
                f"the update of step {self.progress.step} made values that are not finite: {some(broken)}. The checkpoint of step "
                f"{self.saved} is kept in {self.folder.checkpoints}: start again with a lower learning rate (lr)."
            )

    def restore(self, saved: Checkpoint) -> None:
        """Take over everything a checkpoint holds; InputError, and nothing changed, when it does not fit."""
        check_fit(saved, shapes_of(self.job.model))
        try:
            check_data(self.job, saved.facts["data"])
            state = rebuilt(json.dumps(saved.facts["state"]), saved.tensors)
            if state["progress"]["step"] != saved.step:
                raise ValueError(f"progress is at step {state['progress']['step']}, the checkpoint at {saved.step}")
            self.take_over(state)
        except InputError:
            raise
        except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError) as error:
            reason = one_line(error) if isinstance(error, StateError) else f"{type(error).__name__}: {one_line(error)}"
            raise InputError(
                f"the checkpoint is incomplete: {saved.path}: {reason}. Go back to an earlier one, or start a new run."
            ) from error
        self.saved = saved.step
        saved.tensors.clear()  # lets go of the file: once removed, it shall take no more room on disk
        self.folder.forget_after(saved.step)

    def take_over(self, state: dict[str, Any]) -> None:
        """Restore all members. A ledger may have been begun or ended since."""
        kept = state.pop(LEDGER, None)
        more = {LEDGER: self.ledger} if self.ledger is not None and kept is not None else {}
        TrainState(**self.members, **more).load_state_dict(state | ({LEDGER: kept} if more else {}))


def check_data(job: Job, before: dict[str, Any]) -> None:
    """Refuse to go on with other data than the checkpoint was made with; `before`: its facts about them."""
    word, here = job.data_word, job.data_facts()
    count, had = here.get("batches"), before.get("batches")
    if count != had and None not in (count, had):
        raise InputError(f"not the {word} that the run was trained on: {count} batches, it had {had}. Give the same, or start a new run.")
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


def shapes_of(model: Any) -> dict[str, tuple[int, ...]]:
    """The shapes of all that a model's state has, by name."""
    return {name: t.shape for name, t in [*model.params.named_parameters(), *model.named_buffers(persistent=True)]}


def model_state(saved: Checkpoint) -> dict[str, np.ndarray]:
    """The model's part of a checkpoint."""
    return {name.removeprefix(f"{MODEL}."): array for name, array in saved.tensors.items() if name.startswith(f"{MODEL}.")}


def check_fit(saved: Checkpoint, shapes: dict[str, tuple[int, ...]]) -> None:
    """Refuse the checkpoint of another model, naming the first difference."""
    there = {name: array.shape for name, array in model_state(saved).items()}
    for name in sorted(shapes.keys() | there.keys()):
        if shapes.get(name) != there.get(name):
            raise InputError(
                f"the checkpoint is of another model: {name} is {there.get(name, 'missing')} in {saved.path}, "
                f"{shapes.get(name, 'missing')} in the model. Give the run folder its own config.toml back, or start a new run."
            )
