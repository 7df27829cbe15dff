"""A run folder: where one training run keeps everything it writes.

    runs/gpt-1/
      config.toml      the settings, readable and reusable with --config
      metrics.jsonl    one line a step: loss, smoothed loss, learning rate, gradient norm, now and then a validation
      timing.jsonl     one line a step: seconds, tokens per second (apart, so that metrics are the same bytes every time)
      ledger.jsonl     with --ledger: gradients and updates by parameter, see ledger.py
      checkpoints/     see checkpoint.py
      curves.png  ledger.png  sample.txt  written when the run ends
      data.txt         a copy of the text, when it came from a pipe
      .lock            held by the process that trains

No command ever writes into a folder that holds something else, and only one process at a time writes into a run.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from filelock import FileLock, Timeout

from ..disk import sync_folder, write_file
from .config import LoopConfig, to_toml
from .files import quoted, replace_file, sweep, writing
from .json_lines import JsonLines
from .ledger_file import LedgerFile
from .problems import InputError

LOCK = ".lock"


class RunFolder:
    """One run's files. Open it with create() or reopen()."""

    def __init__(self, path: Path):
        self.path = path
        self.config = path / "config.toml"
        self.curves = path / "curves.png"
        self.sample = path / "sample.txt"
        self.ledger = path / "ledger.jsonl"
        self.ledger_picture = path / "ledger.png"
        self.data = path / "data.txt"
        self.checkpoints = path / "checkpoints"
        self.metrics = JsonLines(path / "metrics.jsonl", ("loss", "smoothed", "lr", "grad_norm"))
        self.timing = JsonLines(path / "timing.jsonl", ("seconds",))
        self.lock = FileLock(path / LOCK, mode=0o644)

    @classmethod
    def create(cls, out: str | None, name: str, config: LoopConfig) -> RunFolder:
        """A fresh folder: `out`, which must be new or empty, or else runs/<name>-<next number>."""
        path = next_free(name) if out is None else fresh(Path(os.path.abspath(os.path.expanduser(out))))
        folder = cls(path)
        try:
            folder.acquire()
            folder.write_config(config)
        except InputError:
            folder.close()
            with contextlib.suppress(OSError):
                (path / LOCK).unlink(missing_ok=True)
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
        with writing(self.path):
            try:
                self.lock.acquire(timeout=0)
            except Timeout as error:
                raise InputError(f"another process is training in this run folder: {self.path}. Wait for it or stop it.") from error

    def write_config(self, config: LoopConfig) -> None:
        replace_file(self.config, to_toml(config).encode())

    def copy_data(self, content: bytes) -> None:
        with writing(self.data):
            write_file(self.data, [content])
            sync_folder(self.path)

    def forget_after(self, step: int) -> None:
        """Drop what was noted of steps that will be computed again."""
        self.metrics.drop_after(step)
        self.timing.drop_after(step)
        LedgerFile(self.ledger, []).drop_after(step)

    def sync(self) -> None:
        self.metrics.sync()
        self.timing.sync()

    def close(self) -> None:
        self.metrics.close()
        self.timing.close()
        self.lock.release()


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
        raise InputError(f"not a folder: {path}. Choose another folder.")
    if path.is_dir() and (path / "config.toml").exists():
        raise InputError(f"already a run folder: {path}. Go on with --resume {quoted(path)}, or choose another folder.")
    if path.is_dir() and any(path.iterdir()):
        raise InputError(f"the folder is not empty: {path}. Choose another folder.")
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
