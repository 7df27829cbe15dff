"""Kinds of calls of a captured step: what calls that are alike saw from outside, and what was found out about them so far."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ...bus import settings
from ...core.spec import Spec
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
        self.settings = -1  # the version of all settings for which they held
        self.rounds = 0
        self.program: Program | None = None

    def holds(self) -> bool:
        """Whether the settings are as they were."""
        for g, value, found in self.live if self.settings == settings.version else self.guards:
            now = g.read()
            if now is not found and compared(now) != value:
                return False
        self.settings = settings.version
        return True

    def settings_changed(self) -> list[str]:
        """Which settings are not as they were, for error texts."""
        found: dict[Any, str] = {}
        for g, value, _ in self.guards:
            if (now := compared(g.read())) != value:
                for key, label in differing(g, value, now):
                    found.setdefault(key, label)  # modules around it have it, too
        return list(found.values())

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
        self.settings = settings.version


def differing(g: Guard, before: Any, now: Any) -> Iterator[tuple[Any, str]]:
    """What is not as it was in a setting, with what an error text calls it: the attribute, of a module."""
    if not hasattr(g.owner, "named_modules"):
        label = getattr(g.owner, "label", "") or repr(known(g.owner))
        yield (id(g.owner), g.what), f"{g.what.lstrip('_')} of {label}"
        return
    old, new = ({(place, name): value for place, name, value in rows} for rows in (before, now))
    paths = {id(m): (path, type(m).__name__) for path, m in g.owner.named_modules()}
    for place, name in [key for key in old | new if old.get(key) != new.get(key)]:
        path, kind = paths.get(place, ("", "module"))
        yield (place, name), f"'{'.'.join(filter(None, (path, name)))}' of a {kind}"


def compared(value: Any) -> Any:
    """What a guard reads, as it is compared."""
    return value if isinstance(value, tuple) else known(value)


def same_form(a: Any, b: Any) -> bool:
    """Whether two forms, or parts of them, say the same: specs that were forgotten are made anew (see ../kept.py)."""
    if isinstance(a, Spec) and isinstance(b, Spec):
        return (a.shape, a.dtype, a.device, a.tracked) == (b.shape, b.dtype, b.device, b.tracked)
    if type(a) is tuple and type(b) is tuple:
        return len(a) == len(b) and all(map(same_form, a, b))
    return bool(a == b)
