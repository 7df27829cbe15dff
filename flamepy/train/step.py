"""The arithmetic of one training step, apart from everything around it: capture() looks at all that a step reaches."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..accumulation import GradientAccumulator
from ..autograd import no_grad
from ..backend.base import FINITE
from ..core.errors import DTypeError, NonFiniteError
from ..gradients.clip import clip_grad_norm
from ..tensors import Tensor
from .job import Batch
from .ledger import zeros_in


def tell_nobody(event: str, value: Any) -> None:
    """Where no callback is inside of a step."""


class Step:
    """`zeros`: whether the zeros in the gradients are counted; `tell`: called at the events inside of a step."""

    def __init__(
        self, loss: Callable[..., Any], optimizer: Any, accumulate: int, clip: float, zeros: bool,
        tell: Callable[[str, Any], None] = tell_nobody,
    ):  # fmt: skip
        self.loss, self.optimizer, self.clip, self.zeros, self.tell = loss, optimizer, clip or math.inf, zeros, tell
        self.accumulator = GradientAccumulator(accumulate)

    def learn(self, *batches: Batch) -> tuple[Any, Any, Any]:
        """One step on its batches, as it is captured: the loss, the norm of the gradients before clipping, the zeros in them."""
        loss, grads = self.gradients(*batches) if len(batches) > 1 else self.of_one(batches[0])
        loss.device.require(check_loss, loss.buffer, within=(FINITE,))
        self.tell("backward", grads)
        zeros = zeros_in(grads) if self.zeros else None
        norm = clip_grad_norm(grads, self.clip)
        self.tell("clip", norm)
        self.optimizer.step(grads)
        self.tell("optimizer", grads)
        return loss, norm, zeros

    def of_one(self, batch: Batch) -> tuple[Any, Any]:
        loss = self.loss(*batch)
        if not isinstance(loss, Tensor):
            raise DTypeError(f"train: the loss is no tensor: {type(loss).__name__}. Return the tracked loss, a tensor of one element.")
        return loss, loss.backward()

    def gradients(self, *batches: Batch) -> tuple[Any, Any]:
        """The loss and the gradients of several batches as if they were one: each counts by its examples."""
        sizes = [examples(batch) for batch in batches]
        mean: Any = None
        grads: Any = None
        for batch, size in zip(batches, sizes, strict=True):
            loss, found = self.of_one(batch)
            grads = self.accumulator.add(found, size / sizes[0])
            with no_grad():
                part = loss * (size / sum(sizes))
                mean = part if mean is None else mean + part
        return mean, grads

    def broken_off(self) -> None:
        """Forget the batches of a step that was not finished."""
        self.accumulator = GradientAccumulator(self.accumulator.config)


def examples(batch: Any) -> int:
    """How many examples a batch has: the length of its first tensor, 1 if that is a number."""
    for x in batch.values() if isinstance(batch, dict) else batch:
        if isinstance(x, Tensor):
            return len(x) if x.ndim else 1
        if isinstance(x, tuple | list | dict):
            return examples(x)
    return 1


def check_loss(loss: Any) -> None:
    """Raise NonFiniteError unless the loss in this buffer is finite."""
    value = loss.device.download(loss)[0]
    if not math.isfinite(value):
        raise NonFiniteError(f"train: the loss is {value}, which no step can use. Lower the learning rate.")
