"""FLAME's names for the tape and the walk back. Read core/tape.py (what one recorded op keeps), then core/backward.py."""

from __future__ import annotations

import inspect
import threading
from contextlib import ContextDecorator
from functools import wraps
from typing import TYPE_CHECKING, Any

from .advice import missing_in as _missing_in
from .core.errors import DTypeError, GradientError
from .core.modes import Mode, thread
from .core.modes import enable_grad as enable_grad
from .core.modes import no_grad as no_grad
from .core.modes import strict_mode as strict_mode
from .core.op import Op as Op
from .core.tape import Tape as Tape
from .core.tape import TapeEntry as TapeEntry
from .core.tape import tape as tape
from .core.tensor import attach
from .engine.backward import backward as backward
from .engine.entries import observers, set_observers
from .gradient import GradientMap


class _Opened(threading.local):
    """This thread's open blocks: `blocks` lists, for each switch of core/modes.py, [who set it, what was before]."""

    def __init__(self) -> None:
        self.blocks: dict[str, list[list[Any]]] = {"recording": [], "strict": []}


opened = _Opened()


class _Suspended:
    """What no_grad() and the like do beside core's, for generators and coroutines, which stop in the middle of a block."""

    def __enter__(self: Any) -> None:
        modes = thread.modes
        opened.blocks[self.switch].append([self, getattr(modes, self.switch)])
        setattr(modes, self.switch, self.value)

    def __exit__(self: Any, *exc: object) -> None:
        """Back to what was before. Where a generator or a coroutine stopped in this block, one that began later may still be open: then
        that one goes back to it. A block that began in another thread is no business of this one."""
        modes = thread.modes
        blocks = opened.blocks[self.switch]
        for i in reversed(range(len(blocks))):
            if blocks[i][0] is self:
                _, before = blocks.pop(i)
                if i < len(blocks):
                    blocks[i][1] = before
                else:
                    setattr(modes, self.switch, before)
                return

    def __call__(self: Any, function: Any) -> Any:
        """As a decorator. The body of a generator has the mode while it runs, and the caller in between its own. GradientError for a
        coroutine: others run in its thread while it waits."""
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            what = f"a coroutine cannot be decorated: {function.__name__}"
            raise GradientError(f"no_grad: {what}. Use the context inside, around what awaits nothing.")
        if not inspect.isgeneratorfunction(function):
            return ContextDecorator.__call__(self, function)

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


attach(_Suspended, Mode)


def is_grad_enabled() -> bool:
    """Whether this thread records."""
    return bool(thread.modes.recording)


class AutogradContext(Mode):
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
        if any([getattr(o, "__self__", None) is self.tape for o in observers.entries]):
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
        self.before = observers.entries
        kept = [o for o in self.before if getattr(o, "__self__", None).__class__ is not Tape]  # an inner block takes over
        set_observers((*kept, self.engine.tape.append), observers.reader)
        return self.engine

    def __exit__(self, *exc: object) -> None:
        set_observers(self.before, observers.reader)


if not TYPE_CHECKING:
    __getattr__ = _missing_in("autograd", globals())
