"""The two ways a command ends early, other than by a bug.

    InputError     something the user gave (an option, a file, a checkpoint, a full disk) cannot be used: exit code 2
    Interrupted    a signal asked the command to end: exit code 128 + signal number

Text as everywhere in flamepy: `<what is wrong>: <values>. <what to do>`; the command line puts `flamepy train: ` before it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from ..core.errors import FlameError


class InputError(FlameError, ValueError):
    """An option, file or folder that cannot be used as given."""


class Interrupted(BaseException):
    """A signal arrived; like KeyboardInterrupt, no `except Exception` should swallow it."""

    def __init__(self, number: int):
        self.number = number
        super().__init__(f"signal {number}")

    @property
    def exit_code(self) -> int:
        return 128 + self.number


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant; dashes before and in it do not count."""
    names = {name.strip("-").replace("_", "-"): name for name in known}
    found = difflib.get_close_matches(word.strip("-").replace("_", "-"), names, 1, 0.7)
    return names[found[0]] if found else None


def meant(word: str, known: Iterable[str], use: str = "") -> str:
    """What to do about an unknown word; `use`: when nothing is near it, in place of a list of all."""
    near = nearest(word, known)
    return f"Did you mean {near}?" if near else f"Use {use or ', '.join(known)}."
