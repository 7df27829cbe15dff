"""Forward hooks: functions that see, and may replace, what goes into a module and what comes out.

A hook is part of what a recorded step depends on: the module keeps a tuple of handles that is another one after each change.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from threading import Lock
from typing import Any

from ..bus import changed
from ..core.errors import DTypeError, StateError

changing = Lock()  # a module's hooks are read and replaced: one thread at a time


class Handle:
    """One hook of a module. remove() takes it away, and so does the end of a `with` block."""

    def __init__(self, module: Any, function: Callable[..., Any], before: bool):
        if not callable(function):
            raise DTypeError(f"hook: not a function: {type(function).__name__}. Pass hook(module, args, result) or hook(module, args).")
        self.module, self.function, self.before = module, function, before
        self.keep(lambda hooks: (*hooks, self))

    def remove(self) -> None:
        """Call the hook no more; nothing the second time."""
        self.keep(lambda hooks: tuple([h for h in hooks if h is not self]))

    def keep(self, change: Callable[[tuple[Handle, ...]], tuple[Handle, ...]]) -> None:
        """Give the module other hooks. One without any looks as if it never had one: steps recorded before can be replayed."""
        with changing:
            hooks = change(self.module._hooks)
            if hooks:
                self.module.__dict__["_hooks"] = hooks
            else:
                self.module.__dict__.pop("_hooks", None)
        changed(self.module)

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()

    def __repr__(self) -> str:
        state = "" if self in self.module._hooks else ", removed"
        name = getattr(self.function, "__qualname__", repr(self.function))
        return f"Handle({name}, {'before' if self.before else 'after'} each call of a {type(self.module).__name__}{state})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        name = getattr(self.function, "__qualname__", "")
        if "<" in name:
            kind = type(self.module).__name__
            raise StateError(f"pickle: a hook cannot be pickled: {name} of a {kind}. Remove it, or use a function of a module.")
        return super().__reduce_ex__(protocol)

    def __deepcopy__(self, memo: dict) -> Handle:
        twin = memo[id(self)] = Handle.__new__(Handle)
        vars(twin).update(copy.deepcopy(vars(self), memo))
        return twin


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
