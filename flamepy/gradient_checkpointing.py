"""checkpoint(): keep no activations of a block, compute them again in backward (Chen et al. 2016, arXiv:1604.06174).

The block runs and is recorded as always, but its entries drop their saved values at once. When backward first reaches one of
them, the block runs again, with the same random numbers, and its new entries hand their saved values to the old ones. So a
block may use parameters and tensors it was not given as arguments, and hooks, retain_graph and create_graph work as elsewhere.

FLAME counterpart: `flame_core::gradient_checkpointing`. Read next: nn/module.py.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from .autograd import enable_grad, is_grad_enabled
from .autograd.entries import TapeEntry, set_observers, thread
from .backend.divert import before
from .errors import GradientError
from .rng import generator
from .tensors import Tensor


class Rewind:
    """The place in the random numbers where a block began, to go back to when it runs again; so in every replay of a step."""

    saved, restore = generator.saved, generator.restore

    def __init__(self) -> None:
        before(self.begin)

    def begin(self) -> None:
        self.began = generator.saved()

    def back(self) -> None:
        self.now = generator.saved()
        generator.restore(self.began)

    def forth(self) -> None:
        generator.restore(self.now)


class Segment:
    """One checkpointed block: what to run again, and the entries waiting for saved values."""

    def __init__(self, run: Callable[[], Any], inputs: list[Tensor]):
        self.run = run
        self.random = Rewind()
        self.versions = [(t, t.buffer.version) for t in inputs]
        self.entries: list[TapeEntry] = []
        self.keep = False

    def add(self, entry: TapeEntry) -> None:
        """Take note of an entry; the first time round, drop what it saved, except leaves, which may not be overwritten."""
        self.entries.append(entry)
        if not self.keep:
            leaves = {id(node.buffer) for node in entry.inputs if isinstance(node, Tensor)}
            entry.values = [v if id(v) in leaves else None for v in entry.values]
            entry.segment = self

    def recompute(self) -> None:
        """Run the block again and give every entry its saved values."""
        for t, version in self.versions:
            if t.buffer.version != version:
                raise GradientError(
                    f"checkpoint: an input was overwritten before backward: {t.name or t.id}, by {t.buffer.last_write}. "
                    "Run backward before writing."
                )
        again = Segment(self.run, [])
        again.keep = True
        observers = thread.modes.observers
        set_observers((again.add,))
        before(self.random.back)
        try:
            with enable_grad():
                self.run()
        finally:
            set_observers(observers)
            before(self.random.forth)
        self.hand_over(again.entries)

    def hand_over(self, fresh: list[TapeEntry]) -> None:
        same = len(fresh) == len(self.entries) and all(
            [
                a.op is b.op and [s.shape for s in a.call.outs] == [s.shape for s in b.call.outs]
                for a, b in zip(self.entries, fresh, strict=False)
            ]
        )
        if not same:
            raise GradientError(
                f"checkpoint: the block did something else the second time: {len(self.entries)} entries, then {len(fresh)}. "
                "It must depend on its inputs and flamepy's random numbers alone."
            )
        for old, new in zip(self.entries, fresh, strict=True):
            if old.freed is None:
                old.call, old.values, old.versions = new.call, new.values, new.versions
            old.segment = None
        self.entries, self.versions = [], []
        self.run = _done


def _done() -> None:
    """Stands where a block was that need not run again: lets go of its inputs."""


def checkpoint(fn: Callable, *args: Any, **kwargs: Any) -> Any:
    """fn(*args, **kwargs), recorded without keeping activations; they are computed again in backward.

    Any number of inputs, tensors or not, and any outputs. A function without parameters is called without arguments (FLAME's
    `checkpoint(closure, input)`). Inside another checkpoint, or when nothing is recorded, it simply runs. Backward raises
    GradientError if the block does something else the second time.
    """
    if args and takes_nothing(fn):
        run: Callable[[], Any] = fn
    else:

        def run() -> Any:
            return fn(*args, **kwargs)

    modes = thread.modes
    if not is_grad_enabled() or any([isinstance(getattr(o, "__self__", None), Segment) for o in modes.observers]):
        return run()
    tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)]
    observers = modes.observers
    set_observers((Segment(run, tensors).add, *observers))
    try:
        return run()
    finally:
        set_observers(observers)


def takes_nothing(fn: Callable) -> bool:
    try:
        return not inspect.signature(fn).parameters
    except (TypeError, ValueError):
        return False
