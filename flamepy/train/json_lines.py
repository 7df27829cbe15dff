"""A file of JSON objects, one a line: what a run notes of its steps."""

from __future__ import annotations

import contextlib
import json
import os
import re
from pathlib import Path
from typing import Any

from ..disk import write_whole
from .files import replace_file, writing
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
                self.handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o644)
            write_whole(self.handle, (json.dumps(row) + "\n").encode())

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
        """What one line says, None if that is not all there."""
        with contextlib.suppress(ValueError, RecursionError):
            row = json.loads(line)
            whole = line.endswith(b"\n") and isinstance(row, dict) and type(row.get("step")) is int and 0 <= row["step"] < 10**12
            if whole and self.usable(row):
                return row
        return None

    def usable(self, row: dict[str, Any]) -> bool:
        """Whether it holds what it has to hold: numbers."""
        return row.keys() >= set(self.needed) and all(map(is_number, row.values()))

    def rows(self) -> list[dict[str, Any]]:
        """What the undamaged lines say."""
        return [row for _, row in self.lines() if row is not None]

    def drop_after(self, step: int) -> None:
        """Forget the steps that will be computed again and what a crash has cut, in one atomic move."""
        self.close()  # what is appended from now on goes into the new file; Windows replaces none that is open
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
