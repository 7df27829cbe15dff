"""Text from a trained model: `flamepy sample RUN`, and the sample at the end of a run.

The model sees at most `context` bytes. When the text outgrows that, the window moves on by half a context, so that the
key/value cache serves half a context of bytes before it is filled anew. The window depends on the length alone, so the text
is the same with the cache and without.
"""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from .. import autograd, tensors
from . import checkpoint, data
from .config import LAST_SEED, DigitsConfig, GptConfig, build, job_name, read_table, read_toml, within
from .files import quoted
from .gpt import GPT, Cache
from .keeping import check_fit, model_state, shapes_of
from .problems import InputError
from .run_folder import RunFolder, check_run


def generate(model: GPT, prompt: np.ndarray, count: int, temperature: float, top_k: int, seed: int, cached: bool = True) -> Iterator[int]:
    """`count` bytes after `prompt` (at least one byte), one at a time."""
    random = np.random.Philox(key=[seed, 1])
    text = [int(b) for b in prompt]
    cache: Cache = []
    start = -1
    for _ in range(count):
        begin = window_start(len(text), model.context)
        if begin != start or not cached:
            start, cache = begin, model.empty_cache()
            new = text[start:]
        else:
            new = text[-1:]
        with autograd.no_grad():
            logits = model.extend(tensors.tensor(np.array([new]), device=model.device), cache).numpy()
        # 53 random bits, the same in every NumPy version.
        chosen = choose(logits.reshape(-1).astype(np.float64), temperature, top_k, (int(random.random_raw()) >> 11) * 2.0**-53)
        text.append(chosen)
        yield chosen


def window_start(length: int, context: int) -> int:
    """Where the window begins when `length` bytes are there."""
    hop = max(1, context // 2)
    return max(0, -(-(length - context) // hop) * hop)


def choose(logits: np.ndarray, temperature: float, top_k: int, u: float) -> int:
    """The class whose share of the probability, in order, holds u in [0, 1)."""
    order = np.argsort(-logits, kind="stable")
    if temperature == 0:
        return int(order[0])
    if top_k:
        order = order[:top_k]
    with np.errstate(over="ignore"):  # a tiny temperature: minus infinity, whose share is 0
        weights = np.exp((logits[order] - logits[order[0]]) / temperature)
    place = np.searchsorted(np.cumsum(weights), u * weights.sum(), side="right")
    return int(order[min(place, len(order) - 1)])


def load_model(run: Path) -> GPT:
    """The model of a run folder, with the parameters of its last checkpoint."""
    folder = RunFolder(check_run(run))
    if read_table(folder.config).get("job") == job_name(DigitsConfig):
        raise InputError(f"a digits run has no text to go on with: {folder.path}. Give the run folder of a GPT.")
    config = build(GptConfig, read_toml(GptConfig, folder.config))
    saved = checkpoint.load(folder.checkpoints)
    if saved is None:
        command = f"flamepy train --resume {quoted(folder.path)}"
        raise InputError(f"the run has no checkpoint yet: {folder.path}. Train it first: {command}")
    model = GPT(config)
    check_fit(saved, shapes_of(model))
    model.load_state_dict(model_state(saved))
    model.eval()
    return model


def command(run: Path, prompt: str, count: int, temperature: float, top_k: int, seed: int, cached: bool) -> None:
    """Write the prompt and what the model makes of it to standard output, character by character."""
    for name, value, high in (
        ("tokens", count, 10**9),
        ("temperature", temperature, 1e9),
        ("top-k", top_k, 10**9),
        ("seed", seed, LAST_SEED),
    ):
        within(f"--{name}", value, 0, high)
    model = load_model(run)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a character appears when its last byte is there
    given = data.encode(prompt or "\n")
    write(data.decode(given))
    for byte in generate(model, given, count, temperature, top_k, seed, cached):
        write(decoder.decode(bytes([byte])))
    write(decoder.decode(b"", final=True) + "\n")


def write(text: str) -> None:
    """To standard output, at once; what it cannot show becomes a question mark or, in a terminal, a dot."""
    out = sys.stdout
    text = data.printable(text) if out.isatty() else text
    out.write(text.encode(out.encoding or "utf-8", "replace").decode(out.encoding or "utf-8"))
    out.flush()
