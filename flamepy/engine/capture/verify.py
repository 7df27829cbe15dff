"""The net under a recorded step: now and then the step runs again, launching nothing, and each launch is compared with the recorded one.

No reading of code sees everything that Python can do. So what a record is keyed by (names.py) is an economy, and this is the proof.
A Verifier stands in the stream's place: it gives out memory of the program's arena, compares, and takes back what the step did to host
state. A check costs what the step's Python costs; Checks makes them as rare as their share of the time asks.
"""

from __future__ import annotations

import math
import sys
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from types import FunctionType, MethodType
from typing import Any, NamedTuple

import numpy as np

from ...backend import base
from ...backend.base import Buffer
from ...backend.recorder import divert
from ...backend.run import Action, Required, Spot, Step
from ...errors import CaptureError
from .generators import Generators
from .program import Program, check_nothing_left
from .recorder import StepRecorder, hearing, user_call

FIRST = 4  # the call that is checked first; then 8, 16, about 32 ...
UNEVEN = 16  # from this call on checks come up to an eighth sooner, each time another part of it: a step that does something else
SCATTER = 2654435761  # at every third or tenth call is checked at such a call, too. (Knuth's multiplier, 2^32 by the golden ratio)
SHARE = 0.008  # of the time, that checks take: they are to cost less than 1 %, however times vary
NEVER = sys.maxsize


class Record(NamedTuple):
    """What was recorded, to be compared with: `steps` with the user's line of each, digests of the data that the step made by id of the
    buffer, places of its outputs, attributes it sets, its results without their memory."""

    program: Program
    steps: list[Step | Action]
    wheres: list[str]
    digests: dict[int, bytes]
    outputs: list[Any]
    sets: list[tuple[int, Any, str, Any]]
    result: Any


class Checks:
    """When the calls of one kind are checked. `left`: calls up to and with the next check; `gap`: from one check to the next."""

    def __init__(self, verify: bool | int):
        self.verify, self.calls = verify, 1
        self.left = self.gap = NEVER if verify is False else FIRST - 1 if verify is True else verify
        self.since = self.start = time.perf_counter()
        self.spent = 0.0  # seconds in checks since then

    def again(self, began: float) -> None:
        """A check that began then went well: say when the next one comes."""
        now = time.perf_counter()
        if self.verify is True:
            self.calls += self.gap
            each = (began - self.since) / self.gap  # what a call costs, with what the user does in between
            self.spent += now - began
            # The first checks take more than their share: those after them take half of it until that is made up for.
            share = SHARE if self.spent <= SHARE * (now - self.start) else SHARE / 2
            self.gap = min(self.calls, max(1, math.ceil((now - began) / share / max(each, 1e-9))))
            if self.calls >= UNEVEN:
                self.gap -= (self.calls * SCATTER >> 16) % (1 + self.gap // 8)
        self.left, self.since = self.gap, now

    def __repr__(self) -> str:
        return "never checked" if self.left >= NEVER >> 1 else f"checked in {self.left:,} calls"


class Verifier(StepRecorder):
    """Compares what the step does with its record; nothing is launched, no check looks at numbers. `record`: None on a device that the
    step does not use. `undo`: what takes back, last first, what the step did to host state."""

    def __init__(self, name: str, record: Record | None, began: int, undo: list[Callable[[], Any]]):
        super().__init__(True, began)
        self.name, self.record, self.undo = name, record, undo
        self.wheres = record.wheres if record else []
        self.difference: CaptureError | None = None

    # ---- memory: nothing is computed, so all buffers may lie at one place ---------------------------------------------------------
    def empty(self, size: int, dtype: np.dtype) -> Buffer:
        buffer = self.somewhere(size, dtype)
        if not self.checking:
            self.numbers[id(buffer)] = len(self.made)
            self.made.append((weakref.ref(buffer), size, dtype))
        return buffer

    def somewhere(self, size: int, dtype: np.dtype) -> Buffer:
        """A buffer in memory that no launch of the record reads before it has written it."""
        if self.record is None or size * dtype.itemsize > self.record.program.arena.size:
            return self.inner.empty(size, dtype)  # type: ignore[no-any-return]
        return Buffer(self.device.slot(self.record.program.arena, 0, size, dtype).data, size, dtype, self.device)

    def upload(self, array: np.ndarray) -> Buffer:
        buffer: Buffer = self.inner.upload(array)
        self.keep_constant(buffer, array)
        return buffer

    # ---- launches, and what the host does ------------------------------------------------------------------------------------------
    def run(self, kernel: Any, outs: Sequence[Buffer | None], ins: Sequence[Any], consts: Sequence[Any]) -> None:
        self.compare(Step(kernel, *[[self.place(a) for a in group] for group in (outs, ins, consts)]))

    def before(self, values: Callable[[], Sequence[Any] | None], buffer: Buffer | None = None) -> None:
        self.acted(values, () if buffer is None else (self.place(buffer),))
        values()

    def after(self, check: Callable[..., None], *buffers: Buffer) -> None:
        self.compare(Action(check, [self.place(b) for b in buffers], False))

    def acted(self, act: Callable[[], Any], places: Sequence[Any] = ()) -> None:
        owner = owner_of(act)
        if hasattr(owner, "saved"):
            self.undo.append(partial(owner.restore, owner.saved()))
        self.compare(Action(act, places, True))

    def assigned(self, owner: Any, attribute: str) -> None:
        if (id(owner), attribute) not in self.sets:
            self.undo.append(partial(setattr, owner, attribute, getattr(owner, attribute)))
        super().assigned(owner, attribute)

    def wrote(self, buffer: Buffer) -> None:
        if self.number_of(buffer.root or buffer) is None:
            self.undo.append(partial(unwrite, buffer))

    # What else they hear is for what is recorded anew.
    def note(self, what: str, value: Any) -> None: ...

    def rounded(self, value: Any, scalar: np.generic) -> None: ...

    def seen(self, owner: Any, what: str = "", read: Callable[[], Any] | None = None, live: bool = False) -> None: ...

    # ---- comparing -----------------------------------------------------------------------------------------------------------------
    def compare(self, now: Step | Action) -> None:
        """The next step of the record with what the step does now. Raises CaptureError where they differ."""
        if self.record is None and isinstance(now, Action):  # every device's recorder is told of these
            return
        n = len(self.steps)
        self.steps.append(now)
        then = self.record.steps[n] if self.record and n < len(self.record.steps) else None
        if then is None or not self.same(then, now):
            self.differs(n, then, now, user_call()[1])

    def same(self, then: Any, now: Any) -> bool:
        if type(then) is not type(now):
            return False
        if isinstance(now, Action):
            return then.early is now.early and alike(then.act, now.act) and self.same_places(then.buffers, now.buffers)
        return then.kernel is now.kernel and all([self.same_places(a, b) for a, b in zip(then[1:], now[1:], strict=True)])

    def same_places(self, then: Sequence[Any], now: Sequence[Any]) -> bool:
        return len(then) == len(now) and all([a is b or self.same_place(a, b) for a, b in zip(then, now, strict=True)])

    def same_place(self, then: Any, now: Any) -> bool:
        if type(then) is Spot:
            return type(now) is Spot and then == now
        if not isinstance(then, Buffer) or not isinstance(now, Buffer):
            return alike(then, now)
        if (then.root or then) is (now.root or now):
            return (then.offset, then.size, then.dtype) == (now.offset, now.size, now.dtype)
        digest = self.digests.get(id(now))  # of data that the step made
        return digest is not None and self.record is not None and digest == self.record.digests.get(id(then))

    def compare_end(self, outputs: list[Buffer], result: Any) -> None:
        """What is left when the step is done: steps that did not come, results (their memory, and what they are like), attributes. Raises
        CaptureError."""
        if self.record is None:
            return
        n = len(self.steps)
        if n < len(self.record.steps):
            self.differs(n, self.record.steps[n], None, "the end of the step")
        places = [self.place(b) for b in outputs]
        if not alike(self.record.result, result) or not self.same_places(self.record.outputs[: len(places)], places):
            self.differs(n, "its results", "others", "the end of the step")
        if len(self.sets) != len(self.record.sets) or not all([self.same_set(*row) for row in self.record.sets]):
            self.differs(n, "the attributes that it sets", "others", "the end of the step")

    def same_set(self, n: int, owner: Any, attribute: str, then: Any) -> bool:
        if self.sets.get((id(owner), attribute), (None,))[0] != n or self.record is None:
            return False
        now = getattr(owner, attribute)
        if isinstance(then, tuple):
            return now is not None and self.place(now.buffer) == self.record.outputs[then[0]]
        return (now is None) is (then is None) and (now is None or self.same_place(then.buffer, self.place(now.buffer)))

    def differs(self, n: int, then: Any, now: Any, where: str) -> None:
        """Raise CaptureError, also at the end of a step that catches it."""
        was = f"{title(then)} at {self.wheres[n]}" if n < len(self.wheres) else title(then) if then else "the end of the step"
        detail = f" ({found})" if (found := self.detail(then, now)) else ""
        self.difference = self.difference or CaptureError(
            f"capture: {self.name} does something else now than what was recorded: {was} became {title(now)} at {where}{detail}. "
            "What it decides with was not seen: pass it as an argument, or capture() the step again. Nothing of this call was done; "
            "replays since the last check did what was recorded."
        )
        raise self.difference

    def detail(self, then: Any, now: Any) -> str:
        """Which argument of one kernel is another."""
        if not isinstance(then, Step) or not isinstance(now, Step) or then.kernel is not now.kernel:
            return ""
        pairs = [(a, b) for x, y in zip(then[1:], now[1:], strict=True) for a, b in zip(x, y, strict=False)]
        a, b = next(((a, b) for a, b in pairs if not self.same_places((a,), (b,))), (0, 0))
        if isinstance(a, Buffer | Spot) or isinstance(b, Buffer | Spot):
            return "another tensor"
        return f"{a!s:.40}, now {b!s:.40}"


# ---- a check ---------------------------------------------------------------------------------------------------------------------
@contextmanager
def verifying(name: str, record: Record, began: int, generators: list[Any]) -> Iterator[Verifier]:
    """Compare what this thread does in the block with the record; take back what it does to host state, whether it is the same or not.
    `began`: from which id on tensors are the step's own; `generators`: those in its reach. Raises CaptureError for a difference."""
    program = record.program
    drawn = Generators(generators)
    written = [(b, b.writes, b.written) for _, b in program.written]
    undo: list[Callable[[], Any]] = []
    found = {d: Verifier(name, record if d is program.device else None, began, undo) for d in base.opened()}
    try:
        with ExitStack() as stack:
            for device, verifier in found.items():
                stack.enter_context(divert(device, verifier))
            stack.enter_context(hearing(list(found.values()), began))
            yield found[program.device]
        drawn.check(name)
    except BaseException:
        drawn.put_back()
        raise
    finally:
        for act in reversed(undo):
            act()
        for b, writes, by in written:
            b.writes, b.written = writes, by
        if (first := next((v.difference for v in found.values() if v.difference is not None), None)) is not None:
            raise first  # also where the step's own code caught it
    check_nothing_left(found[program.device])


def owner_of(act: Callable[..., Any]) -> Any:
    """The object whose state an action changes."""
    while isinstance(act, partial):
        act = act.func
    return getattr(act, "__self__", None)


def unwrite(buffer: Buffer) -> None:
    buffer.writes -= 1


def title(step: Any) -> str:
    """What an error text calls a step."""
    if isinstance(step, Step):
        kernel = step.kernel
        names = [getattr(getattr(kernel, part, None), "__name__", "") for part in ("formula", "loop", "function")]
        return next((f"'{name}'" for name in names if name), "") or f"'{getattr(kernel, 'name', kernel)}'"
    if isinstance(step, Action):
        return f"'{getattr(step.act, '__name__', type(step.act).__name__)}'"
    return step or "nothing"


# ---- what is the same ------------------------------------------------------------------------------------------------------------
def alike(then: Any, now: Any) -> bool:
    """Whether two numbers, functions or objects of the engine's, made by two calls, are the same for a replay."""
    if then is now:
        return True
    if type(then) is not type(now):
        return False
    if isinstance(then, (int, str)):
        return bool(then == now)
    if isinstance(then, (np.ndarray, np.generic)):
        return then.dtype == now.dtype and then.shape == now.shape and then.tobytes() == now.tobytes()
    if isinstance(then, float):
        return repr(then) == repr(now)
    if isinstance(then, MethodType):
        return then.__func__ is now.__func__ and alike(then.__self__, now.__self__)
    if isinstance(then, FunctionType):
        return then.__code__ is now.__code__ and alike(cells(then), cells(now))
    if isinstance(then, partial):
        return alike((then.func, *then.args, then.keywords), (now.func, *now.args, now.keywords))
    if isinstance(then, Required):
        return alike(then.check, now.check) and then.within == now.within
    if isinstance(then, list | tuple):
        return len(then) == len(now) and all([alike(a, b) for a, b in zip(then, now, strict=True)])
    if isinstance(then, dict):
        return then.keys() == now.keys() and all([alike(value, now[key]) for key, value in then.items()])
    return bool(then == now)  # the engine's that each call makes anew say so by __eq__


def cells(function: FunctionType) -> list[Any]:
    return [*[cell.cell_contents for cell in function.__closure__ or ()], *(function.__defaults__ or ())]
