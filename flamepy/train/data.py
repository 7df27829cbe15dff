"""Text to learn from: finding it, refusing what is not text, splitting it, cutting batches out of it, and class ids.

A token is one byte, so there is nothing to learn and no text that cannot be written.

The first nine tenths of the bytes are for training, the rest is held out. The batch of a step is a pure function of (seed,
step): Philox random numbers with the step as their counter. The step is therefore the whole data position, which is what
makes a resumed run see exactly the batches it would have seen.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from .files import given_path
from .problems import InputError

STANDARD_LIBRARY = "stdlib"
STANDARD_INPUT = "-"
VOCABULARY = 256
# Control characters that text has no use for: all but tab, newline, form feed, carriage return, backspace, escape.
CONTROL = bytes(c for c in range(32) if c not in b"\t\n\f\r\b\x1b") + b"\x7f"
PLACES = np.uint64(2**63 - 1)


@dataclass(frozen=True)
class Text:
    """A corpus in memory. `once` says that it came from a pipe and cannot be read again."""

    source: str
    content: np.ndarray
    files: int = 1
    skipped: int = 0
    once: bool = False

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.content.data).hexdigest()

    @property
    def split(self) -> int:
        return len(self.content) * 9 // 10

    @property
    def training(self) -> np.ndarray:
        return self.content[: self.split]

    @property
    def held_out(self) -> np.ndarray:
        return self.content[self.split :]


def load_text(source: str, context: int) -> Text:
    """The corpus that `--data` names, or InputError. Both of its parts hold at least one window of the context."""
    if source == STANDARD_LIBRARY:
        text = standard_library()
    elif source == STANDARD_INPUT:
        if sys.stdin is None:
            raise InputError("the standard input is closed. Send a text into it, or give --data FILE.")
        text = one_source(source, sys.stdin.buffer.read(), "standard input", once=True)
    else:
        text = from_path(given_path(source))
    need = 10 * context + 1
    if min(len(text.training), len(text.held_out)) <= context:
        raise InputError(
            f"the text is too short: {len(text.content):,} bytes, context {context} needs at least {need:,}. "
            "Give more text or a smaller --context."
        )
    return text


def standard_library() -> Text:
    """The top-level modules of Python's standard library: a few megabytes of text on every machine."""
    folder = Path(sysconfig.get_path("stdlib"))
    files = sorted(folder.glob("*.py"))
    if not files:
        raise InputError(f"this Python has no readable standard library: {folder}. Give a text with --data FILE.")
    return Text(STANDARD_LIBRARY, join(read(file) for file in files), len(files))


def from_path(path: Path) -> Text:
    """A file, a folder, or a pipe such as <(command)."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError as error:
        raise InputError(f"no such file or folder: {path}. Check the path given to --data.") from error
    except OSError as error:
        raise unreadable(path, error) from error
    if stat.S_ISDIR(mode):
        return from_folder(path)
    if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
        raise InputError(f"not a file or folder: {path}. Give --data a text file, a folder of them, or - .")
    return one_source(str(path), read(path), str(path), once=stat.S_ISFIFO(mode))


def one_source(source: str, content: bytes, name: str, once: bool) -> Text:
    if not content:
        raise InputError(f"the text is empty: {name}. Give --data a text with something in it.")
    reason = why_not_text(content)
    if reason:
        raise InputError(f"not a text: {name} {reason}. Give --data plain text, for example UTF-8.")
    return Text(source, np.frombuffer(content, np.uint8), once=once)


def from_folder(folder: Path) -> Text:
    """Every text file below `folder`, in the order of its path; hidden, empty and non-text files are left out."""
    texts, skipped = [], 0
    for file in files_below(folder):
        content = read(file)
        if content and not why_not_text(content):
            texts.append(content)
        else:
            skipped += 1
    if not texts:
        found = f"{skipped} other file{'s' * (skipped != 1)}" if skipped else "nothing"
        raise InputError(f"no text file in the folder: {folder} holds {found}. Give --data a folder of text files.")
    return Text(str(folder), join(texts), len(texts), skipped)


def files_below(folder: Path) -> list[Path]:
    found = []

    def refuse(error: OSError) -> None:
        raise unreadable(Path(error.filename), error)

    for place, folders, files in os.walk(folder, onerror=refuse):
        if "config.toml" in files and "metrics.jsonl" in files:  # a run folder: what training writes is not its own data
            folders[:], files = [], []
        folders[:] = [f for f in folders if not f.startswith(".") and f != "__pycache__"]
        found += [path for f in files if not f.startswith(".") and (path := Path(place, f)).is_file()]
    return sorted(found)


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: OSError) -> InputError:
    return InputError(f"cannot read: {path}: {error.strerror}. Check its permissions or leave it out.")


def join(texts: Iterator[bytes] | list[bytes]) -> np.ndarray:
    return np.frombuffer(b"".join(texts), np.uint8)


def why_not_text(content: bytes) -> str:
    """Empty for text in any 8-bit encoding; otherwise the reason why these bytes are not text."""
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "is UTF-16 (save it as UTF-8)"
    if b"\0" in content:
        return f"is binary (a zero byte at {content.index(0):,})"
    control = len(content) - len(content.translate(None, CONTROL))
    if control * 100 > len(content):
        return f"is binary ({control:,} control characters in {len(content):,} bytes)"
    return ""


Batch = tuple[np.ndarray, np.ndarray]


def training_batch(text: Text, seed: int, step: int, batch: int, context: int) -> Batch:
    """The batch of `step`: `batch` windows at random places. Inputs and targets (the next byte) as (batch, context)."""
    # Raw Philox words are the same in every NumPy version; Generator.integers promises less.
    words = np.random.Philox(key=[seed, 0], counter=[0, 0, 0, step]).random_raw(batch)
    return windows(text.training, (words & PLACES) % np.uint64(len(text.training) - context), context)


def validation_batches(text: Text, count: int, batch: int, context: int) -> Iterator[Batch]:
    """`count` batches of windows spread evenly over the held-out part, fewer when it is short: always the same ones."""
    available = len(text.held_out) // (context + 1)
    wanted = min(count * batch, available)
    starts = np.arange(wanted, dtype=np.int64) * (len(text.held_out) - context - 1) // max(1, wanted - 1)
    for first in range(0, wanted, batch):
        yield windows(text.held_out, starts[first : first + batch], context)


def windows(content: np.ndarray, starts: np.ndarray, context: int) -> Batch:
    places = starts.astype(np.int64)[:, None] + np.arange(context + 1, dtype=np.int64)
    cut = content[places].astype(np.int64)
    return np.ascontiguousarray(cut[:, :-1]), np.ascontiguousarray(cut[:, 1:])


# ---- class ids -------------------------------------------------------------------------------------------------------------------------
def encode(text: str) -> np.ndarray:
    """UTF-8 bytes; what the terminal could not decode comes through as the bytes it was."""
    return np.frombuffer(text.encode("utf-8", "surrogateescape"), np.uint8)


def decode(ids: np.ndarray | list[int]) -> str:
    """Text; bytes that are not UTF-8 become the replacement character."""
    return bytes(np.asarray(ids, np.uint8)).decode("utf-8", "replace")


def printable(text: str) -> str:
    """Safe for a terminal: control characters, which could move its cursor or worse, become a dot."""
    return "".join(c if c in "\n\t" or c.isprintable() else "\N{MIDDLE DOT}" for c in text)
