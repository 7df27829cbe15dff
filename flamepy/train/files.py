"""The files of a run: writes that fail say what to do, paths go through text, what a dead process left is removed.

Whole files are written as ../disk.py does it. At the end: what to do with an output that nobody reads.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from ..disk import TEMPORARY, put_file
from .problems import InputError


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


def quoted(path: str | Path) -> str:
    """A path as a word of a command line: Windows knows no single quotes."""
    if sys.platform != "win32":
        return shlex.quote(str(path))
    return str(path) if re.fullmatch(r"[\w.:\\/+-]+", str(path)) else f'"{path}"'


def native(text: str) -> str:
    """What portable() made of a path, as a path again."""
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return os.fsdecode(text.encode())
    return text


def replace_file(path: Path, content: bytes) -> None:
    """Give `path` new content, all or nothing."""
    with writing(path):
        put_file(path, path.with_name(TEMPORARY + path.name), [content])


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
