"""Backward: walk the entries behind a loss, newest first, and add up cotangents.

Collect the entries reachable from the loss, sort them by serial number, walk from the newest, ask each op for the cotangents
of its inputs, accumulate them, and let go of saved values on the way (release.py). What reaches a leaf is its gradient.
"""

from __future__ import annotations

import inspect
import sys
import weakref
from collections.abc import Callable
from contextlib import ContextDecorator
from functools import wraps
from typing import Any

from ..backend.base import Buffer
from ..core.door import Door
from ..core.errors import DTypeError, GradientError
from ..gradient import GradientMap
from .cotangents import Cotangents
from .entries import Tape, TapeEntry, reachable, scalings, set_observers, thread
from .entries import tape as tape
from .release import Release


class _Mode(ContextDecorator):
    """Sets one switch of this thread's state in a block or a decorated function."""

    def __init__(self, switch: str, value: bool):
        self.switch, self.value = switch, value

    def __enter__(self) -> None:
        modes = thread.modes
        modes.blocks[self.switch].append([self, getattr(modes, self.switch)])
        setattr(modes, self.switch, self.value)

    def __exit__(self, *exc: object) -> None:
        """Back to what was before. Where a generator or a coroutine stopped in this block, one that began later may still be open: then
        that one goes back to it. A block that began in another thread is no business of this one."""
        modes = thread.modes
        blocks = modes.blocks[self.switch]
        for i in reversed(range(len(blocks))):
            if blocks[i][0] is self:
                _, before = blocks.pop(i)
                if i < len(blocks):
                    blocks[i][1] = before
                else:
                    setattr(modes, self.switch, before)
                return

    def __repr__(self) -> str:
        named = {("recording", False): "no_grad()", ("recording", True): "enable_grad()"}
        return named.get((self.switch, self.value), f"{self.switch}_mode({self.value})")

    def _recreate_cm(self) -> _Mode:
        return _Mode(self.switch, self.value)

    def __call__(self, function: Any) -> Any:
        """As a decorator. The body of a generator has the mode while it runs, and the caller in between its own. GradientError for a
        coroutine: others run in its thread while it waits."""
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            what = f"a coroutine cannot be decorated: {function.__name__}"
            raise GradientError(f"no_grad: {what}. Use the context inside, around what awaits nothing.")
        if not inspect.isgeneratorfunction(function):
            return super().__call__(function)

        @wraps(function)
        def generator(*args: Any, **options: Any) -> Any:
            running = function(*args, **options)
            resume, given = running.send, None
            try:
                while True:
                    with self._recreate_cm():
                        found, given = resume(given), None
                    try:
                        resume, given = running.send, (yield found)
                    except GeneratorExit:
                        raise
                    except BaseException as error:
                        resume, given = running.throw, error
            except StopIteration as end:
                return end.value
            finally:
                with self._recreate_cm():
                    running.close()

        return generator


def no_grad(function: Any = None) -> Any:
    """Context manager and decorator, with or without parentheses: record nothing in this thread."""
    return _switched(False, function)


def enable_grad(function: Any = None) -> Any:
    """Context manager and decorator, with or without parentheses: record again, inside no_grad()."""
    return _switched(True, function)


def _switched(value: bool, function: Any) -> Any:
    mode = _Mode("recording", value)
    return mode if function is None else mode(function)


def strict_mode(enabled: bool = True) -> _Mode:
    """Context manager: whether an op that has no derivative refuses a tracked input (the default) or returns an untracked result."""
    return _Mode("strict", enabled)


def is_grad_enabled() -> bool:
    """Whether this thread records."""
    return thread.modes.recording


def backward(loss: Any, gradient: Any | None = None, retain_graph: bool = False, create_graph: bool = False) -> GradientMap:
    """Gradients of `loss` with respect to every leaf that requires grad and reaches it.

    `gradient` is the cotangent of `loss` (its shape; 1 for a loss of one element). `retain_graph` keeps saved values for another
    backward; `create_graph` (implies it) also records the backward itself, so that gradients can be differentiated. Returns a
    GradientMap and touches no `.grad`. Raises GradientError, VersionError, ShapeError or DeviceError before anything is changed; what a
    hook or another function of yours raises leaves everything as it was, too: run it again.
    """
    seed = _seed(loss, gradient)
    hooked = [loss] if loss.entry is None and loss.hooks else []
    entries = reachable(loss.entry, hooked)
    release = Release(entries, bool(hooked), retain_graph or create_graph)
    if seed is None:  # where no code of the user's runs, nobody can write into it
        seed = loss.ones_cotangent(shared=release.until == sys.maxsize)
    create_graph = bool(create_graph)
    cotangents = Cotangents(create_graph)
    kept: list[tuple[Any, Any]] = []
    modes = thread.modes
    before = modes.recording, modes.creating_graph
    modes.recording = modes.creating_graph = create_graph
    try:
        cotangents.add(loss.entry if loss.entry is not None else loss, loss.slot, seed)
        walk(entries, cotangents, kept, release)
        for leaf in cotangents.leaves.values():
            g = cotangents.values[-leaf.id]
            kept.append((leaf, g if leaf.hooks is None else _hooked(leaf.hooks, g)))
        saved = [v for entry in entries for v in entry.values] if retain_graph else []
        grads = _finish(kept, [seed.buffer, *saved], cotangents)
        if scalings:
            grads.scaled = next((entry.scaled for entry in entries if entry.scaled is not None), None)
        if release.until < sys.maxsize:
            release.settle()
        return grads
    except BaseException as error:
        release.undo(error)
        raise
    finally:
        modes.recording, modes.creating_graph = before


def walk(entries: list[TapeEntry], cotangents: Cotangents, kept: list[tuple[Any, Any]], release: Release) -> None:
    """Pass cotangents from the newest entry to the oldest. Saved values are let go of on the way, as far as release.py allows."""
    add, values, until, freed, rule = cotangents.add, cotangents.values, release.until, release.freed, Door.rule
    for entry in entries:
        if entry.call.single and entry.hooks is None and entry.retained is None:
            g = values.pop(entry.serial, None)
            if g is None:
                continue
            gs: Any = (g,)
        else:
            gs = _outputs(entry, cotangents, kept)
            if gs is None:
                continue
        held = entry.serial >= until
        if held:
            release.enter(entry)
        tracked = entry.call.tracked
        found = rule(entry, gs, cotangents) if tracked else ()
        for i in tracked:
            if found[i] is not None:
                add(entry.inputs[i], 0 if entry.slots is None else entry.slots[i], found[i])
        if held:
            release.leave(entry)
        elif freed is not None:
            entry.release(freed)


def _seed(loss: Any, gradient: Any | None) -> Any:
    """The cotangent of the loss; None for 1."""
    if not loss.requires_grad:
        raise GradientError(f"backward: the loss does not require grad: {loss.origin()}. Make its inputs require grad and record.")
    if gradient is None:
        if loss.size != 1:
            raise GradientError(
                f"backward: the loss has more than one element: shape {loss.shape}. "
                "Reduce it with .sum() or .mean(), or pass gradient= of its shape."
            )
        return None
    return loss.as_cotangent(gradient, "backward: gradient=")


def _outputs(entry: TapeEntry, cotangents: Cotangents, kept: list) -> tuple | None:
    """The cotangents of an entry's outputs, after hooks; None when nothing flowed into it."""
    gs = []
    for slot in range(len(entry.output_ids)):
        g = cotangents.values.pop((entry.serial, slot) if slot else entry.serial, None)
        if g is not None:
            if entry.hooks is not None:
                g = _hooked(entry.hooks.get(slot), g)
            if entry.retained is not None and slot in entry.retained:
                kept.append((entry.retained[slot], g))
        gs.append(g)
    return tuple(gs) if any(g is not None for g in gs) else None


def _hooked(hooks: list[Callable] | None, g: Any) -> Any:
    """Run a tensor's hooks: each may look at the gradient or return another in its place, which is copied: the hook may have returned a
    tensor of its own, which clipping must not edit."""
    for hook in tuple(hooks or ()):  # a hook may remove itself
        changed = hook(g)
        if changed is not None:
            g = g.as_cotangent(changed, "hook: what it returned").clone()
    return g


def _finish(kept: list[tuple[Any, Any]], taken: list[Buffer], cotangents: Cotangents) -> GradientMap:
    """Put gradients into a map in which none shares memory with another or with `taken`: editing one must edit nothing else."""
    grads = GradientMap()
    seen = {id(buffer) for buffer in taken}
    filled: dict[int, int] = {}
    placed = 0
    for tensor, g in kept:
        buffer = g.buffer
        home = tensor.buffer.root if tensor.entry is None else None
        if home is not None and not cotangents.tracked:
            slot = cotangents.slot_of(tensor)
            if buffer is not slot:
                g, buffer = g.copied_into(slot), slot
            filled[id(home)] = filled.get(id(home), 0) + buffer.size
            placed += 1
        elif id(buffer) in seen or buffer.root is not None:
            g = g.clone()
        seen.add(id(g.buffer))
        grads.put(tensor, g)
    grads.spans = [(home, span) for key, (home, span) in cotangents.spans.items() if filled.get(key) == home.size]
    thread.modes.reached = weakref.ref(grads), grads.names
    grads.whole_map = placed == sum([tensor.is_parameter for tensor, _ in kept]) and len(grads.spans) == len(filled)
    return grads


class AutogradContext(_Mode):
    """FLAME's context object: operations inside its `with` block, or in a function it decorates, are recorded. Outside of no_grad()
    they are anyway, so that making one, as FLAME's programs do at the start, changes nothing. The argument is FLAME's."""

    def __init__(self, device: Any = None):
        super().__init__("recording", True)


class AutogradEngine:
    """FLAME's engine object: collects this thread's entries while its `record()` block runs.

    Outside such a block nothing global holds an entry; inside, `engine.tape` keeps them alive until reset(). The device is that of
    the tensors; the argument is FLAME's.
    """

    def __init__(self, device: Any = None):
        self.tape = Tape()

    def __getstate__(self) -> dict[str, Any]:
        if any([getattr(o, "__self__", None) is self.tape for o in thread.modes.observers]):
            raise GradientError("pickle: the engine is recording: inside its record() block. Pickle it outside.")
        return self.__dict__

    def record(self) -> _Recording:
        return _Recording(self)

    def backward(self, loss: Any, gradient: Any | None = None) -> GradientMap:
        if not hasattr(loss, "buffer"):
            raise DTypeError(f"backward: the loss is no Tensor: {type(loss).__name__}. Pass what the ops of flamepy returned.")
        return backward(loss, gradient)

    def reset(self) -> None:
        self.tape.clear()

    def tape_len(self) -> int:
        return len(self.tape)

    def __repr__(self) -> str:
        return f"AutogradEngine({len(self.tape)} entries)"


class _Recording:
    def __init__(self, engine: AutogradEngine):
        self.engine = engine

    def __enter__(self) -> AutogradEngine:
        self.before = thread.modes.observers
        kept = [o for o in self.before if getattr(o, "__self__", None).__class__ is not Tape]  # an inner block takes over
        set_observers((*kept, self.engine.tape.append), thread.modes.reader)
        return self.engine

    def __exit__(self, *exc: object) -> None:
        set_observers(self.before, thread.modes.reader)
