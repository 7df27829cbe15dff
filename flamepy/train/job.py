"""What the training loop wants to know of a job: its model, its batches, its loss, and what to call things."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from .. import optimizers, schedules
from .config import LoopConfig, TrainConfig

if TYPE_CHECKING:
    from .run_folder import RunFolder

Batch = tuple[Any, ...]  # the arguments of one call of the loss


class Job(Protocol):
    """What a kind of training has to provide."""

    @property
    def config(self) -> LoopConfig:
        """Its settings."""

    device: Any
    model: Any
    optimizer: Any
    schedule: Callable[[int], float] | None  # None: the optimizer has its own
    members: dict[str, Any]  # what else belongs into a checkpoint; see state.py
    given: dict[str, Any]  # what the run was begun with beside its settings, for its checkpoints
    name: str  # begins the name of the run folder
    title: str
    who: str  # whose words an error ends with: "flamepy train"
    data_word: str  # what it learns from: "text", "images"
    data_line: str  # the same with its source and size, for people
    settings_line: str  # batch, seed, device
    unit: str  # what a step processes, for the speed: "tokens", "images"
    per_step: int  # how many of them
    loss_unit: str  # what the axis of the loss says

    @property
    def copy(self) -> bytes | None:
        """Data that came from a pipe and must be kept for resuming."""

    def batches(self, step: int) -> Iterable[Batch]:
        """The batches of one step, `config.accumulate` of them; the arrays of one may be filled again for the next."""

    def give_back(self) -> None:
        """The step whose batches were taken, all or some, is not made; they will be taken again."""

    def loss(self, *batch: Any) -> Any:
        """The tracked loss of a batch; a pure function of the parameters, the batch and the random state."""

    def validate(self) -> dict[str, float]:
        """Numbers on held-out data, among them "val_loss", or none; no random numbers."""

    def data_facts(self) -> dict[str, Any]:
        """Where the data came from, and its "sha256"."""

    def results(self, last: dict[str, float], folder: RunFolder) -> Iterator[str]:
        """Lines to show when all steps are done; `last` is what validate() found then. May write files, after the lines."""

    def going_on(self, folder: RunFolder) -> str:
        """How to resume the run."""


def adamw(config: TrainConfig, model: Any) -> optimizers.AdamW:
    """The optimizer of the command's own jobs."""
    return optimizers.AdamW(model.params, lr=config.lr, betas=(config.beta1, config.beta2), weight_decay=config.weight_decay)


def schedule_of(config: TrainConfig) -> Callable[[int], float]:
    """The learning rate of each step of theirs."""
    return schedules.warmup_cosine(config.lr, config.warmup, config.steps, config.lr * config.final_lr)


def settings_line(config: TrainConfig) -> str:
    """Their settings that everybody asks for."""
    more = f" x {config.accumulate}" if config.accumulate > 1 else ""
    compute = "" if config.compute_dtype is None else f", products from {config.compute}"
    return f"batch {config.batch}{more}, seed {config.seed}, device {config.device}{compute}"


def split(arrays: tuple[np.ndarray, ...], parts: int) -> list[Batch]:
    """One large batch as several of equal size."""
    return list(zip(*[np.split(array, parts) for array in arrays], strict=True)) if parts > 1 else [arrays]
