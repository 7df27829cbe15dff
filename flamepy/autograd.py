"""FLAME's names for the tape and the walk back. Read core/tape.py (what one recorded op keeps), then core/backward.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .advice import missing_in as _missing_in
from .core.errors import DTypeError, GradientError
from .core.modes import Mode
from .core.modes import enable_grad as enable_grad
from .core.modes import is_grad_enabled as is_grad_enabled
from .core.modes import no_grad as no_grad
from .core.modes import strict_mode as strict_mode
from .core.op import Op as Op
from .core.tape import Tape as Tape
from .core.tape import TapeEntry as TapeEntry
from .core.tape import tape as tape
from .engine.backward import backward as backward
from .engine.entries import observers, set_observers
from .gradient import GradientMap


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
