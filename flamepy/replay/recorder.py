"""Recorder: a stream that runs each launch and writes it down, with numbers (Spots) for the buffers made meanwhile.

While it is installed (Device.divert), everything this thread does on the device goes through it; nothing else in the library knows.
Any buffer that was there before is held: parameters, optimizer state, constants. Two kinds stand on it: StepRecorder here, for a
whole training step, and the recorder of one op's call in op/plan.py.

Read next: program.py.
"""

from __future__ import annotations

import difflib
import hashlib
import sys
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..backend.base import Action, Buffer, Spot, Step, Stream
from ..errors import CaptureError

PACKAGE = str(Path(__file__).parent.parent)


class Later:
    """A number the host will know after the step: it can be returned from a captured step, and nothing else."""

    def __init__(self, buffer: Buffer, i: int):
        self.buffer, self.i = buffer, i

    def refuse(self, *_: Any) -> Any:
        raise host_read()

    __float__ = __int__ = __bool__ = __index__ = __format__ = __str__ = __round__ = __neg__ = __abs__ = refuse
    __lt__ = __le__ = __gt__ = __ge__ = __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = refuse
    __truediv__ = __rtruediv__ = __pow__ = refuse


def host_read() -> CaptureError:
    """The error for a read on the host: which call it was, and where outside this package."""
    call, place = user_call()
    return CaptureError(
        f"capture: the step reads a number on the host while it is recorded: {call}() at {place}. "
        "Return the tensor from the step and read it after the call."
    )


def user_call() -> tuple[str, str]:
    """(the function of this package that was called, file and line of the caller)."""
    frame, call = sys._getframe(1), ""
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        call, frame = frame.f_code.co_name, frame.f_back
    return call, f"{frame.f_code.co_filename}:{frame.f_lineno}"


class Recorder(Stream):
    """Runs on `inner`, the stream in whose place it stands, and keeps `steps` and the buffers `made`."""

    inner: Any

    def __init__(self) -> None:
        self.checking = 0  # depth of checks, which may read what a step may not
        self.steps: list[Step | Action] = []
        self.numbers: dict[int, int] = {}  # id of a made buffer -> its number
        self.made: list[tuple[Any, int, np.dtype]] = []  # (weak reference, size, dtype) of each
        self.written: list[Any] = []  # places of the memory that was overwritten, as it was told

    # ---- memory ------------------------------------------------------------------------------------------------------------
    def empty(self, size: int, dtype: np.dtype) -> Buffer:
        buffer: Buffer = self.inner.empty(size, dtype)
        if not self.checking:
            self.numbers[id(buffer)] = len(self.made)
            self.made.append((weakref.ref(buffer), size, dtype))
        return buffer

    def upload(self, array: np.ndarray) -> Buffer:
        """A constant of the step: held."""
        buffer: Buffer = self.inner.upload(array)
        return buffer

    def download(self, buffer: Buffer) -> np.ndarray:
        found: np.ndarray = self.inner.download(buffer)
        return found

    # ---- launches, and what the host does ------------------------------------------------------------------------------------
    def run(self, kernel: Any, outs: Sequence[Buffer | None], ins: Sequence[Any], consts: Sequence[Any]) -> None:
        self.inner.run(kernel, outs, ins, consts)
        if not self.checking:
            places = [[self.place(a) for a in group] for group in (outs, ins, consts)]
            self.steps.append(Step(kernel, *places))

    def wrote(self, buffer: Buffer) -> None:
        self.inner.wrote(buffer)
        self.written.append(self.place(buffer))

    def before(self, values: Callable[[], Sequence[Any] | None], buffer: Buffer | None = None) -> None:
        self.inner.before(values, buffer)
        self.steps.append(Action(values, () if buffer is None else (self.place(buffer),), True))

    def after(self, check: Callable[..., None], *buffers: Buffer) -> None:
        self.checking += 1
        try:
            self.inner.after(check, *buffers)
        finally:
            self.checking -= 1
        self.steps.append(Action(check, [self.place(b) for b in buffers], False))

    def acted(self, act: Callable[[], None]) -> None:
        """Something was done to host state; see base.before()."""
        self.steps.append(Action(act, (), True))

    def number(self, buffer: Buffer, i: int = 0) -> Any:
        return self.inner.number(buffer, i)

    def note(self, what: str, value: Any) -> None:
        """A setting made meanwhile; see base.note()."""

    def number_of(self, buffer: Buffer) -> int | None:
        """The number of a buffer made meanwhile; None for one that is held."""
        n = self.numbers.get(id(buffer))
        return n if n is not None and self.made[n][0]() is buffer else None

    def place(self, argument: Any) -> Any:
        """A Spot for a buffer made meanwhile, or for a part of one; anything else as it is."""
        if not isinstance(argument, Buffer):
            return argument
        while argument.stands_for is not None:
            argument = argument.stands_for
        n = self.number_of(argument)
        if n is not None:
            return Spot(n)
        n = self.number_of(argument.root) if argument.root is not None else None
        return argument if n is None else Spot(n, argument.offset, argument.size, argument.dtype)


class StepRecorder(Recorder):
    """Records a training step. With `planned` False it only takes down what was launched with which numbers, to be compared with."""

    def __init__(self, planned: bool):
        super().__init__()
        self.planned = planned
        self.keys: list[tuple] = []  # what each step is, without its Python numbers
        self.values: list[tuple[tuple, str]] = []  # those numbers, and where the step was made

    def upload(self, array: np.ndarray) -> Buffer:
        buffer = super().upload(array)
        if not self.checking:
            self.note(f"data of shape {array.shape}", hashlib.sha1(np.ascontiguousarray(array).tobytes()).hexdigest())
        return buffer

    def download(self, buffer: Buffer) -> np.ndarray:
        if self.planned and not self.checking:
            raise host_read()
        return super().download(buffer)

    def run(self, kernel: Any, outs: Sequence[Buffer | None], ins: Sequence[Any], consts: Sequence[Any]) -> None:
        super().run(kernel, outs, ins, consts)
        if not self.checking:
            arguments = [*outs, *ins, *consts]
            numbers = [a.tobytes() if isinstance(a, np.ndarray) else a for a in arguments if not isinstance(a, Buffer)]
            self.take_down(id(kernel), numbers, arguments)

    def before(self, values: Callable[[], Sequence[Any] | None], buffer: Buffer | None = None) -> None:
        super().before(values, buffer)
        self.take_down("before", [], () if buffer is None else (buffer,))

    def after(self, check: Callable[..., None], *buffers: Buffer) -> None:
        super().after(check, *buffers)
        self.take_down("after", [], buffers)

    def acted(self, act: Callable[[], None]) -> None:
        super().acted(act)
        self.take_down("before", [], ())

    def number(self, buffer: Buffer, i: int = 0) -> Any:
        return Later(buffer, i) if self.planned and not self.checking else super().number(buffer, i)

    def note(self, what: str, value: Any) -> None:
        if not self.checking:
            self.take_down(what, [value], ())

    # ---- what may not change between two calls ---------------------------------------------------------------------------------
    def take_down(self, what: Any, numbers: list[Any], arguments: Sequence[Any]) -> None:
        self.keys.append((what, *[a.size if isinstance(a, Buffer | np.ndarray) else -1 for a in arguments]))
        self.values.append((tuple(numbers), user_call()[1]))

    def compare(self, first: StepRecorder) -> None:
        """Raise if a number differs from the first call: it is Python's, and a replay would freeze it."""
        matcher = difflib.SequenceMatcher(None, first.keys, self.keys, autojunk=False)
        for a, b, length in matcher.get_matching_blocks():
            rows = zip(first.values[a : a + length], self.values[b : b + length], self.keys[b : b + length], strict=True)
            for (before, _), (now, place), key in rows:
                for x, y in zip(before, now, strict=True):
                    if x != y and (x == x or y == y):
                        raise frozen(key[0] if isinstance(key[0], str) else "a number", x, y, place)


def frozen(what: str, x: Any, y: Any, place: str) -> CaptureError:
    shown = ("another table of sizes", "now") if isinstance(x, bytes) else (x, y)
    return CaptureError(
        f"capture: {what} made by Python changed between the first two calls and would be frozen: {shown[0]}, then {shown[1]} at "
        f"{place}. Pass it as a tensor argument, or set it outside of the step."
    )
