"""Hooks of tensors: functions that see a gradient when it is complete, and may replace it.

A hook is part of what a recorded step depends on: adding or removing one says so.
"""

from __future__ import annotations

from collections.abc import Callable

from .changes import changed
from .errors import DTypeError


class TensorHook:
    """One hook of a tensor. Calling this, or remove(), takes it away; nothing the second time."""

    def __init__(self, hooks: list[Callable], hook: Callable):
        if not callable(hook):
            raise DTypeError(f"register_hook: not a function: {type(hook).__name__}. Pass hook(gradient).")
        self.hooks, self.hook = hooks, hook
        hooks.append(hook)
        changed(self)  # a step that was recorded without it is another one

    def remove(self) -> None:
        hooks, self.hooks = self.hooks, []
        if hooks:
            hooks.pop(max(i for i, hook in enumerate(hooks) if hook is self.hook))
            changed(self)

    __call__ = remove

    def __repr__(self) -> str:
        name = getattr(self.hook, "__qualname__", repr(self.hook))
        return f"TensorHook({name}{'' if self.hooks else ', removed'})"
