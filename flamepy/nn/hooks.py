"""Forward hooks: functions that see, and may replace, what goes into a module and what comes out.

A hook is part of what a recorded step depends on: the module keeps a tuple of handles that is another one after each change.

Read next: moving.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..backend.divert import changed
from ..errors import DTypeError


class Handle:
    """One hook of a module. remove() takes it away, and so does the end of a `with` block."""

    def __init__(self, module: Any, function: Callable[..., Any], before: bool):
        if not callable(function):
            raise DTypeError(f"hook: not a function: {type(function).__name__}. Pass hook(module, args, result) or hook(module, args).")
        self.module, self.function, self.before = module, function, before
        keep(module, (*module._hooks, self))

    def remove(self) -> None:
        """Call the hook no more; nothing the second time."""
        keep(self.module, tuple([h for h in self.module._hooks if h is not self]))

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def keep(module: Any, hooks: tuple[Handle, ...]) -> None:
    """Give a module these hooks. One without any looks as if it never had one: steps recorded before can be replayed."""
    if hooks:
        module.__dict__["_hooks"] = hooks
    else:
        module.__dict__.pop("_hooks", None)
    changed()


def hooked(module: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """What calling a module with hooks does."""
    hooks = module._hooks
    for h in hooks:
        if h.before and (found := h.function(module, args)) is not None:
            args = found if isinstance(found, tuple) else (found,)
    y = module.forward(*args, **options)
    for h in hooks:
        if not h.before and (found := h.function(module, args, y)) is not None:
            y = found
    return y
