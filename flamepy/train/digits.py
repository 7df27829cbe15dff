"""`flamepy train digits`: an MLP and a small CNN learn to read handwritten digits.

The CNN's training images are moved by up to `shift` pixels (the MLP, to which a moved image is another image, does better
without). By how much, and which images a step sees, is a pure function of (seed, step), as in data.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from .. import nn
from ..backend.base import Device
from ..nn import functional as F
from .config import DigitsConfig, source_title
from .display import short
from .images import Images, load_images
from .job import Batch, CommandJob, split
from .run_folder import RunFolder

EVALUATE = 500  # images at once


def mlp(shape: tuple[int, ...], classes: int, width: int, device: Device) -> Any:
    """Two hidden layers."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(int(np.prod(shape)), width, device=device),
        nn.ReLU(),
        nn.Linear(width, width, device=device),
        nn.ReLU(),
        nn.Linear(width, classes, device=device),
    )


def cnn(shape: tuple[int, ...], classes: int, width: int, device: Device) -> Any:
    """Two convolutions, a pool after each that the image is large enough for, one hidden layer."""
    channels, height, wide = shape
    first, second = max(1, width // 4), max(1, width // 2)
    layers: list[Any] = [nn.Conv2d(channels, first, 3, padding=1, device=device), nn.ReLU()]
    if min(height, wide) >= 16:
        layers.append(nn.MaxPool2d(2))
        height, wide = height // 2, wide // 2
    layers += [nn.Conv2d(first, second, 3, padding=1, device=device), nn.ReLU()]
    if min(height, wide) >= 2:
        layers.append(nn.MaxPool2d(2))
        height, wide = height // 2, wide // 2
    layers += [nn.Flatten(), nn.Linear(second * height * wide, width, device=device), nn.ReLU(), nn.Linear(width, classes, device=device)]
    return nn.Sequential(*layers)


class DigitsJob(CommandJob):
    """Model, batches and results of one of the two networks."""

    settings = DigitsConfig
    name, command = "digits", "flamepy train digits"
    unit = data_word = "images"
    loss_unit = "loss"

    def __init__(self, config: DigitsConfig, source: str):
        super().__init__(config, source)
        self.shift = config.shift if config.model == "cnn" else 0
        self.title = f"digits, {config.model.upper()} of width {config.width}"

    def read(self, config: DigitsConfig, source: str) -> DigitsConfig:
        self.images: Images = load_images(source)
        return replace(config, data=self.images.source)

    def build(self, config: DigitsConfig) -> Any:
        make = {"mlp": mlp, "cnn": cnn}[config.model]
        model = make(self.images.x_train.shape[1:], self.images.classes, config.width, self.device)
        model.params.pack()
        model.compute_dtype = config.compute_dtype
        return model

    @property
    def data_line(self) -> str:
        size = "x".join(map(str, self.images.x_train.shape[1:]))
        train, validation, test = (f"{len(x):,}" for x in (self.images.x_train, self.images.x_validation, self.images.x_test))
        parts = f"{train} images of {size} to train on, {validation} for validation, {test} for the test at the end"
        return f"{source_title(self.config.data)}: {parts}"

    def data_facts(self) -> dict[str, Any]:
        return {"source": self.config.data, "sha256": self.images.sha256}

    def batches(self, step: int) -> list[Batch]:
        c = self.config
        return split(training_batch(self.images, c.seed, step, c.batch * c.accumulate, self.shift), c.accumulate)

    def loss(self, x: Any, y: Any) -> Any:
        return F.cross_entropy(self.model(x), y)

    def validate(self) -> dict[str, float]:
        """Mean loss and the share of right answers on the validation images."""
        loss, right = self.measured(self.images.x_validation, self.images.y_validation)
        return {"val_loss": loss, "accuracy": right / len(self.images.y_validation)}

    def measured(self, x: np.ndarray, y: np.ndarray) -> tuple[float, int]:
        """(mean loss, how many answers are right) on these images."""
        total, right = 0.0, 0
        with self.evaluating():
            for first in range(0, len(x), EVALUATE):
                logits = self.model(self.tensor(x[first : first + EVALUATE]))
                labels = y[first : first + EVALUATE]
                total += F.cross_entropy(logits, self.tensor(labels), reduction="sum").item()
                right += int((logits.numpy().argmax(1) == labels).sum())
        return total / len(x), right

    def results(self, last: dict[str, float], folder: RunFolder) -> Iterator[str]:
        """What the test images say, which nothing has looked at before."""
        count = len(self.images.y_test)
        loss, right = self.measured(self.images.x_test, self.images.y_test)
        yield f"test accuracy {100 * right / count:.2f} % ({right:,} of {count:,} images it has never seen), loss {short(loss)}"


def training_batch(images: Images, seed: int, step: int, batch: int, shift: int) -> tuple[np.ndarray, np.ndarray]:
    """The batch of `step`: random images, each moved by up to `shift` pixels; what comes in from outside is 0."""
    words = np.random.Philox(key=[seed, 0], counter=[0, 0, 0, step]).random_raw(3 * batch).reshape(3, batch)
    chosen = (words[0] % np.uint64(len(images.x_train))).astype(np.int64)
    x = images.x_train[chosen]
    if shift:
        height, width = x.shape[2:]
        padded = np.pad(x, ((0, 0), (0, 0), (shift, shift), (shift, shift)))
        down, right = (words[1:] % np.uint64(2 * shift + 1)).astype(np.int64)
        rows = down[:, None] + np.arange(height)
        cols = right[:, None] + np.arange(width)
        x = padded[np.arange(batch)[:, None, None], :, rows[:, :, None], cols[:, None, :]].transpose(0, 3, 1, 2)
    return np.ascontiguousarray(x), images.y_train[chosen]
