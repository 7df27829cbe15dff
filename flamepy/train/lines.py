"""The lines that the command prints: no wider than the window, and broken between words only."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterator

UNKNOWN = 80, 24  # columns and rows where nobody says how many: in a file, in a pipe
JOINED = "\0"  # a space at which no line ends; no path and no command has it
LABEL = re.compile(r"\s*(?:\S+ )*\S+ {2,}")


def width() -> int:
    """How many columns there are: of the terminal, or as the variable COLUMNS says."""
    return shutil.get_terminal_size(UNKNOWN).columns


def whole(text: object) -> str:
    """A command or a path for fitted(): somebody may copy it, so no line ends inside it."""
    return str(text).replace(" ", JOINED)


def fitted(text: str) -> str:
    """Lines that fit. What follows `label  value` continues below the value; a word that is too long stays whole."""
    room, lines = width(), []
    for line in text.split("\n"):
        label = LABEL.match(line)
        value = label.end() if label and label.end() <= room // 2 else len(line) - len(line.lstrip()) + 2
        lines += textwrap.wrap(
            line, room, subsequent_indent=" " * value, break_long_words=False, break_on_hyphens=False, replace_whitespace=False
        ) or [""]  # fmt: skip
    return "\n".join(lines).replace(JOINED, " ")


def verbatim(text: str) -> Iterator[str]:
    """Somebody else's text with a bar before each line: all of it, broken where it must be."""
    for line in text.split("\n"):
        pieces = textwrap.wrap(line, max(width() - 4, 1), drop_whitespace=False, replace_whitespace=False, break_on_hyphens=False)
        yield from (f"{'   ' if i else '  |'} {piece}" for i, piece in enumerate(pieces or [""]))


def amount(nbytes: float) -> str:
    """Bytes for people: 43 MB, not 43,000,000."""
    unit, size = next((u, s) for u, s in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)) if nbytes >= 0.99995 * s or u == "kB")
    return f"{nbytes / size:,.1f} {unit}"


def say(text: str = "") -> None:
    """Print them at once."""
    print(fitted(text), flush=True)
