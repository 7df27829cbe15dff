"""Writing files so that a crash, a kill -9 or a full disk never leaves half of one.

The recipe is always: write under a temporary name, fsync the file, rename over the real name, fsync the folder. Rename is
atomic, so a reader sees the old file or the new one; the fsyncs make that true after a power cut as well. At the end: what to do
with an output that nobody reads.

Read next: checkpoint.py.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TextIO

from .problems import InputError

TEMPORARY = ".tmp-"  # what every unfinished file or folder begins with


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a failed write (full disk, quota, no permission, ...) into one line that says what to do."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        advice = "Move away the folder in its place" if isinstance(error, IsADirectoryError) else "Make room, or choose another folder"
        raise InputError(f"cannot write: {path}: {reason}. {advice}; what was saved before is untouched.") from error


def given_path(source: str) -> Path:
    """The path that --data names, absolute; InputError unless config.toml can hold it."""
    path = os.path.abspath(os.path.expanduser(source))
    try:
        portable(path)
    except UnicodeError as error:
        raise InputError(f"the path is not UTF-8: {os.fsencode(path)!r}. Rename the file.") from error
    return Path(path)


def portable(path: str) -> str:
    """A path as text for a file: where the locale knows only ASCII (LC_ALL=C), Python has bytes stand in for the rest."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8")


def native(text: str) -> str:
    """What portable() made of a path, as a path again."""
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return os.fsdecode(text.encode())
    return text


def write_file(path: Path, pieces: Iterable[bytes | memoryview]) -> None:
    """Create `path` from `pieces`, on disk when this returns. Plain os.write: no buffer that could fail later."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), 0o644)
    try:
        for piece in pieces:
            view = memoryview(piece)
            while view:
                view = view[os.write(handle, view) :]
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_folder(path: Path) -> None:
    """Make renames inside `path` survive a power cut (a no-op where folders cannot be opened)."""
    with contextlib.suppress(PermissionError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def replace_file(path: Path, content: bytes) -> None:
    """Give `path` new content, all or nothing."""
    temporary = path.with_name(TEMPORARY + path.name)
    with writing(path):
        try:
            write_file(temporary, [content])
            os.replace(temporary, path)
            sync_folder(path.parent)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise


def sweep(folder: Path) -> None:
    """Remove what an earlier process was writing when it died."""
    for left in folder.glob(TEMPORARY + "*"):
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                left.unlink()


GONE = (errno.EPIPE, errno.EIO)  # a pipe nobody reads, a terminal that was closed


def silence(stream: TextIO) -> None:
    """Lead a stream nobody reads to nowhere, so that Python's own flush at exit does not fail again."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
