"""What the training loop wants to know of a job: its model, its batches, its loss, and what to call things; what the command's share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import numpy as np

from .. import autograd, optimizers, rng, schedules, tensors
from ..backend.base import device
from .config import LoopConfig, TrainConfig
from .files import quoted
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


class CommandJob:
    """A job of `flamepy train`. `settings`: the class of its settings; read() and build() are for those who inherit."""

    settings: type[TrainConfig]
    who = command = "flamepy train"
    copy: bytes | None = None

    def __init__(self, config: Any, source: str):
        self.device = device(config.device)
        self.config = self.read(config, source)
        rng.manual_seed(config.seed)
        self.model = self.build(config)
        betas = config.beta1, config.beta2
        self.optimizer = optimizers.AdamW(self.model.params, lr=config.lr, betas=betas, weight_decay=config.weight_decay)
        self.schedule = schedule_of(config)
        self.members: dict[str, Any] = {}
        self.given: dict[str, Any] = {}
        self.per_step = config.batch * config.accumulate
        more = f" x {config.accumulate}" if config.accumulate > 1 else ""
        compute = "" if config.compute_dtype is None else f", products from {config.compute}"
        self.settings_line = f"batch {config.batch}{more}, seed {config.seed}, device {config.device}{compute}"

    def read(self, config: Any, source: str) -> Any:
        """Read the data; the settings that name where they are."""
        raise NotImplementedError

    def build(self, config: Any) -> Any:
        """The model."""
        raise NotImplementedError

    def tensor(self, array: np.ndarray) -> Any:
        return tensors.tensor(array, device=self.device)

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        """In the block the model is in evaluation mode, and nothing is recorded."""
        self.model.eval()
        with autograd.no_grad():
            yield
        self.model.train()

    def give_back(self) -> None:
        """Batches depend on the step alone."""

    def going_on(self, folder: RunFolder) -> str:
        return f"{self.command} --resume {quoted(folder.path)}"


def schedule_of(config: TrainConfig) -> Callable[[int], float]:
    """The learning rate of each step of the command's jobs."""
    return schedules.warmup_cosine(config.lr, config.warmup, config.steps, config.lr * config.final_lr)


def split(arrays: tuple[np.ndarray, ...], parts: int) -> list[Batch]:
    """One large batch as several of equal size."""
    return list(zip(*[np.split(array, parts) for array in arrays], strict=True)) if parts > 1 else [arrays]
