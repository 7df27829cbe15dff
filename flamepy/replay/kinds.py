"""Kinds of calls of a captured step: what calls that are alike saw from outside, and what was found out about them so far.

Read next: names.py, verify.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..backend.divert import Settings
from .names import Names
from .program import Program
from .recorder import Guard, Trace
from .values import known
from .verify import Checks, Record


class Kind:
    """Calls that are alike: what they saw from outside, and what was found out about them so far."""

    def __init__(self, form: tuple, names: Names):
        self.form, self.names = form, names
        self.checks: Checks  # when its record is checked, and
        self.record: Record  # what with
        self.trace: Trace | None = None  # of the last call, until one is recorded
        self.result: Any = None
        self.make: Callable[[], Any] = lambda: None  # the result of a replay
        self.guards: list[tuple[Guard, Any, Any]] = []  # with the value each had, as it is compared and as it was
        self.live: list[tuple[Guard, Any, Any]] = []
        self.settings = -1  # the version of the settings for which they held
        self.rounds = 0
        self.program: Program | None = None

    def holds(self) -> bool:
        """Whether the settings are as they were."""
        for g, value, found in self.live if self.settings == Settings.version else self.guards:
            now = g.read()
            if now is not found and compared(now) != value:
                return False
        self.settings = Settings.version
        return True

    def settings_changed(self) -> list[str]:
        """Which settings are not as they were, for error texts."""
        return [f"{g.what.lstrip('_')} of {known(g.owner)!r}" for g, value, _ in self.guards if compared(g.read()) != value]

    def sees(self, now: Names) -> bool:
        """Whether a call that sees this from outside is of the same kind."""
        if self.names.differing(now):
            return False
        self.names.take_places(now)
        return True

    def keep_guards(self, guards: Iterable[Guard]) -> None:
        found = [(g, g.read()) for g in guards]
        self.guards = [(g, compared(value), value) for g, value in found]
        self.live = [row for row in self.guards if row[0].live]
        self.settings = Settings.version


def compared(value: Any) -> Any:
    """What a guard reads, as it is compared."""
    return value if isinstance(value, tuple) else known(value)
