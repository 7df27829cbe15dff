"""A run folder: where one training run keeps everything it writes.

    runs/gpt-1/
      config.toml      the settings, readable and reusable with --config
      metrics.jsonl    one line a step: loss, smoothed loss, learning rate, gradient norm, now and then a validation
      timing.jsonl     one line a step: seconds, tokens per second (apart, so that metrics are the same bytes every time)
      checkpoints/     see checkpoint.py
      curves.png  sample.txt  written when the run ends
      data.txt         a copy of the text, when it came from a pipe

No command ever writes into a folder that holds something else, and only one process at a time writes into a run.

Read next: loop.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from pathlib import Path
from typing import Any

from ..saving.disk import sync_folder, write_file
from .config import TrainConfig, to_toml
from .files import replace_file, sweep, writing
from .problems import InputError


class JsonLines:
    """A file of one JSON object of numbers a line, appended with one write each: a crash can only cut the last line.

    `needed`: what every line must have besides "step". Lines that a bad disk or an editor has damaged are left out when the file
    is read, and left alone when it is rewritten.
    """

    def __init__(self, path: Path, needed: tuple[str, ...] = ()):
        self.path, self.needed = path, needed
        self.handle: int | None = None

    def append(self, row: dict[str, Any]) -> None:
        with writing(self.path):
            if self.handle is None:
                self.handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            line = memoryview((json.dumps(row) + "\n").encode())
            while line:
                line = line[os.write(self.handle, line) :]

    def sync(self) -> None:
        """Everything appended so far is on disk when this returns."""
        if self.handle is not None:
            with writing(self.path):
                os.fsync(self.handle)

    def lines(self) -> list[tuple[bytes, dict[str, Any] | None]]:
        """Every line with its end, and what it says: None if it is damaged or a crash has cut it."""
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise InputError(f"cannot read: {self.path}: {error.strerror}. Move away what is in its place.") from error
        return [(line, self.parsed(line)) for line in re.findall(rb"[^\n]*\n|[^\n]+", content)]

    def parsed(self, line: bytes) -> dict[str, Any] | None:
        """The numbers in one line, None if they are not all there."""
        with contextlib.suppress(ValueError, RecursionError):
            row = json.loads(line)
            whole = line.endswith(b"\n") and isinstance(row, dict) and {"step", *self.needed} <= row.keys()
            if whole and all(map(is_number, row.values())) and type(row["step"]) is int and 0 <= row["step"] < 10**12:
                return row
        return None

    def rows(self) -> list[dict[str, Any]]:
        """What the undamaged lines say."""
        return [row for _, row in self.lines() if row is not None]

    def drop_after(self, step: int) -> None:
        """Forget the steps that will be computed again and what a crash has cut, in one atomic move."""
        lines = self.lines()
        if self.path.exists():
            kept = [line for line, row in lines if line.endswith(b"\n") and (row is None or row["step"] <= step)]
            replace_file(self.path, b"".join(kept))

    def close(self) -> None:
        if self.handle is not None:
            os.close(self.handle)
            self.handle = None


def is_number(value: Any) -> bool:
    """Whether a JSON value is a number that a float can hold, or NaN or infinity."""
    return type(value) is float or (type(value) is int and abs(value) < 1e300)


class RunFolder:
    """One run's files. Open it with create() or reopen()."""

    def __init__(self, path: Path):
        self.path = path
        self.config = path / "config.toml"
        self.curves = path / "curves.png"
        self.sample = path / "sample.txt"
        self.data = path / "data.txt"
        self.checkpoints = path / "checkpoints"
        self.metrics = JsonLines(path / "metrics.jsonl", ("loss", "smoothed", "lr", "grad_norm"))
        self.timing = JsonLines(path / "timing.jsonl", ("seconds",))
        self.lock: int | None = None

    @classmethod
    def create(cls, out: str | None, name: str, config: TrainConfig) -> RunFolder:
        """A fresh folder: `out`, which must be new or empty, or else runs/<name>-<next number>."""
        path = next_free(name) if out is None else fresh(Path(os.path.abspath(os.path.expanduser(out))))
        folder = cls(path)
        try:
            folder.acquire()
            folder.write_config(config)
        except InputError:
            folder.close()
            with contextlib.suppress(OSError):
                path.rmdir()
            raise
        return folder

    @classmethod
    def nowhere(cls) -> RunFolder:
        """For a rehearsal that writes nothing."""
        return cls(Path(os.devnull))

    @classmethod
    def reopen(cls, path: Path) -> RunFolder:
        """The folder of a run that will go on."""
        folder = cls(check_run(path))
        folder.acquire()
        sweep(folder.path)
        if folder.checkpoints.is_dir():
            sweep(folder.checkpoints)
        return folder

    def acquire(self) -> None:
        """Hold the folder for this process; the system lets go of it however the process ends."""
        try:
            import fcntl
        except ImportError:  # Windows
            return
        with writing(self.path):
            self.lock = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self.lock)
            self.lock = None
            raise InputError(f"another process is training in this run folder: {self.path}. Wait for it or stop it.") from error
        except OSError:  # some network file systems cannot lock; better to train than to refuse
            pass

    def write_config(self, config: TrainConfig) -> None:
        replace_file(self.config, to_toml(config).encode())

    def copy_data(self, content: bytes) -> None:
        with writing(self.data):
            write_file(self.data, [content])
            sync_folder(self.path)

    def forget_after(self, step: int) -> None:
        """Drop what was noted of steps that will be computed again."""
        self.metrics.drop_after(step)
        self.timing.drop_after(step)

    def sync(self) -> None:
        self.metrics.sync()
        self.timing.sync()

    def close(self) -> None:
        self.metrics.close()
        self.timing.close()
        if self.lock is not None:
            os.close(self.lock)
            self.lock = None


def next_free(name: str) -> Path:
    """Make runs/<name>-<number>; mkdir decides who gets a number, so two processes never share one."""
    runs = Path.cwd() / "runs"
    with writing(runs):
        runs.mkdir(exist_ok=True)
        number = 1
        while True:
            try:
                path = runs / f"{name}-{number}"
                path.mkdir()
                return path
            except FileExistsError:
                number += 1


def fresh(path: Path) -> Path:
    """`path`, if nothing is there yet; InputError if it holds anything at all."""
    if path.exists() and not path.is_dir():
        raise InputError(f"not a folder: {path}. Choose another --out.")
    if path.is_dir() and (path / "config.toml").exists():
        raise InputError(f"already a run folder: {path}. Go on with --resume {path}, or choose another --out.")
    if path.is_dir() and any(path.iterdir()):
        raise InputError(f"the folder is not empty: {path}. Choose another --out.")
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)
    return path


def check_run(path: Path) -> Path:
    """`path` as an absolute path, if a run lives there."""
    path = Path(os.path.abspath(os.path.expanduser(path)))
    if not path.is_dir():
        raise InputError(f"no such run folder: {path}. Give a run folder, such as runs/gpt-1.")
    if not (path / "config.toml").is_file():
        inside = path.name.startswith("step-") or path.name == "checkpoints"
        hint = f" Try {path.parent if path.name == 'checkpoints' else path.parent.parent}." if inside else ""
        raise InputError(f"not a run folder: {path} has no config.toml.{hint or ' Give a run folder, such as runs/gpt-1.'}")
    return path
