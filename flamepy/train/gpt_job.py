"""The default job: a byte-level GPT learns a text."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ..nn import functional as F
from . import data, sample
from .config import GptConfig, source_title
from .display import short
from .files import replace_file
from .gpt import GPT
from .job import Batch, CommandJob, split
from .lines import verbatim
from .problems import InputError
from .run_folder import RunFolder

SAMPLE_PROMPT = "\n"


class GptJob(CommandJob):
    """Model, batches and results of `flamepy train`."""

    settings, build = GptConfig, GPT
    name = "gpt"
    unit = "tokens"
    data_word = "text"
    loss_unit = "loss, nats per byte"

    def __init__(self, config: GptConfig, source: str):
        check_memory(config)
        super().__init__(config, source)
        self.per_step *= config.context
        layers, heads = (f"{n} {what}{'s' * (n != 1)}" for n, what in ((config.layers, "layer"), (config.heads, "head")))
        self.title = f"byte-level GPT: {layers}, {heads}, width {config.width}, context {config.context}"

    def read(self, config: GptConfig, source: str) -> GptConfig:
        self.text = data.load_text(source, config.context)
        self.copy = self.text.content.tobytes() if self.text.once else None
        return replace(config, data=self.text.source) if source == config.data else config

    @property
    def data_line(self) -> str:
        text = self.text
        files = f"{text.files} files" if text.files > 1 else "1 file"
        skipped = f", {text.skipped} others left out" if text.skipped else ""
        parts = f"{len(text.training):,} bytes to train on, {len(text.held_out):,} for validation"
        return f"{source_title(self.config.data)} ({files}{skipped}): {parts}"

    def data_facts(self) -> dict[str, Any]:
        return {"source": self.config.data, "bytes": len(self.text.content), "sha256": self.text.sha256}

    def batches(self, step: int) -> list[Batch]:
        c = self.config
        return split(data.training_batch(self.text, c.seed, step, c.batch * c.accumulate, c.context), c.accumulate)

    def loss(self, x: Any, y: Any) -> Any:
        return F.cross_entropy(self.model(x).reshape((-1, data.VOCABULARY)), y.reshape((-1,)))

    def validate(self) -> dict[str, float]:
        """Mean loss over the held-out windows."""
        total, count = 0.0, 0
        with self.evaluating():
            for batch in self.validation_batches():
                x, y = map(self.tensor, batch)
                total += self.loss(x, y).item() * len(x)
                count += len(x)
        return {"val_loss": total / count}

    def validation_batches(self) -> Iterator[data.Batch]:
        return data.validation_batches(self.text, self.config.validation_batches, self.config.batch, self.config.context)

    def results(self, last: dict[str, float], folder: RunFolder) -> Iterator[str]:
        """Validation loss and a sample, which is written to sample.txt."""
        c = self.config
        with self.evaluating():
            text = data.decode(list(sample.generate(self.model, data.encode(SAMPLE_PROMPT), c.sample_tokens, 0.8, 0, c.seed)))
        loss = last["val_loss"]
        yield f"validation loss {short(loss)} nats per byte ({short(loss / math.log(2))} bits; 8 before any learning)"
        yield "sample"
        yield from verbatim(data.printable(text))
        replace_file(folder.sample, text.encode())


def check_memory(config: GptConfig) -> None:
    """Refuse a model that this machine cannot hold before asking the system for the memory."""
    width, batch = config.width, config.batch * config.context
    parameters = (data.VOCABULARY + config.context) * width + config.layers * (12 * width * width + 13 * width) + 2 * width
    per_token = config.layers * (34 * width + 2 * config.heads * config.context) + 3 * data.VOCABULARY
    need = 4 * (4 * parameters + batch * per_token)
    have = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if "SC_PHYS_PAGES" in getattr(os, "sysconf_names", ()) else need
    if need > have:
        raise InputError(
            f"not enough memory for the model: about {need / 1e9:,.1f} GB needed, {have / 1e9:,.1f} GB here. "
            "Choose a smaller --width, --layers, --context or --batch."
        )
