"""StepRecorder: what a captured training step launches, reads and sets, as one list; Trace compares two such calls."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...backend.base import Buffer
from ...backend.recorder import Recorder
from ...backend.run import Action, Spot
from ...bus import assigned, before, changed, here, outside, seen
from ...core.tensor import Tensor
from ...dtypes import digest_of
from ...errors import CaptureError
from ..kept import rounded
from .values import LEAF, MODULE, leaf_settings, settings_of

PACKAGE = str(Path(__file__).parents[2])


def own(owner: Any) -> None:
    """Note whose memory this is: a recorded step that uses it depends on whether the leaf requires grad."""
    if isinstance(owner, Tensor):
        buffer = owner.buffer
        buffer.owners = (*[o for o in buffer.owners if o() is not None and o() is not owner], weakref.ref(owner))


changed.append(own)


class Later:
    """A number the host will know after the step, by make(what is in the buffer): it can be returned from a captured step, and nothing
    else."""

    def __init__(self, buffer: Buffer, make: Callable[[np.ndarray], Any]):
        self.buffer, self.make = buffer, make

    def refuse(self, *_: Any, **__: Any) -> Any:
        raise host_read("a norm, before it is known,")

    __hash__ = refuse
    real = imag = property(refuse)


OPERATORS = "add sub mul matmul truediv floordiv mod divmod pow and or xor lshift rshift"
OTHERS = "float int complex bool index round trunc floor ceil format str repr bytes array reduce_ex copy deepcopy contains"
SIGNS = "lt le eq ne gt ge neg pos abs invert"
for _name in f"{OPERATORS} {OTHERS} {SIGNS} r{OPERATORS.replace(' ', ' r')}".split():
    setattr(Later, f"__{_name}__", Later.refuse)
for _name in ("conjugate", "is_integer", "as_integer_ratio", "hex"):  # what a float has beside operators
    setattr(Later, _name, Later.refuse)


def host_read(what: str = "") -> CaptureError:
    """The error for a read on the host: which call it was (or what was read), and where outside this package."""
    call, place = user_call()
    return CaptureError(
        f"capture: the step reads a number on the host while it is recorded: {what or call + '()'} at {place}. "
        "Return the tensor from the step and read it after the call."
    )


def user_call() -> tuple[str, str]:
    """(the function of this package that was called, file and line of the caller)."""
    frame, call = sys._getframe(1), ""
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        call, frame = frame.f_code.co_name, frame.f_back
    return call, f"{frame.f_code.co_filename}:{frame.f_lineno}"


class Guard(NamedTuple):
    """A setting outside of buffers that a step depends on: read() gives it. The owner is kept, so that its id stays its own. `live`: it
    may change without a call of changed()."""

    owner: Any
    what: str
    read: Callable[[], Any]
    live: bool


class StepRecorder(Recorder):
    """Records a training step. With `planned` False it only takes down what was launched with which numbers, to be compared with.
    Tensors with ids from `began` on are the step's own."""

    def __init__(self, planned: bool, began: int):
        super().__init__()
        self.planned, self.began = planned, began
        self.trace = Trace()
        self.inputs: list[int] = []  # numbers of the arguments
        self.wheres: list[str] = []  # the user's line of each step
        self.constants: dict[int, Buffer] = {}  # uploaded by the step, by id: their numbers are compared
        self.digests: dict[int, bytes] = {}  # of these
        self.guards: dict[Any, Guard] = {}
        self.sets: dict[Any, tuple[int, Any, str]] = {}  # attributes that were set: (after how many steps, owner, name)

    def adopt(self, buffer: Buffer) -> None:
        """An argument: as if the step had made it."""
        self.inputs.append(len(self.made))
        self.numbers[id(buffer)] = len(self.made)
        self.made.append((weakref.ref(buffer), buffer.size, buffer.dtype))

    def upload(self, array: np.ndarray) -> Buffer:
        buffer = super().upload(array)
        if not self.checking:
            self.note(f"data of shape {array.shape}", self.keep_constant(buffer, array))
        return buffer

    def keep_constant(self, buffer: Buffer, array: np.ndarray) -> bytes:
        """Remember data that the step made; returns its digest."""
        self.constants[id(buffer)] = buffer
        self.digests[id(buffer)] = found = digest_of(array)
        return found

    def download(self, buffer: Buffer) -> np.ndarray:
        if self.planned and not self.checking:
            raise host_read()
        return super().download(buffer)

    def run(self, kernel: Any, outs: Sequence[Buffer | None], ins: Sequence[Any], consts: Sequence[Any]) -> None:
        super().run(kernel, outs, ins, consts)
        if not self.checking:
            arguments = [*outs, *ins, *consts]
            numbers = [a.tobytes() if isinstance(a, np.ndarray) else a for a in arguments if not isinstance(a, Buffer)]
            self.step_taken(id(kernel), numbers, arguments)

    def before(self, values: Callable[[], Sequence[Any] | None], buffer: Buffer | None = None) -> None:
        super().before(values, buffer)
        self.step_taken("before", [], () if buffer is None else (buffer,))

    def after(self, check: Callable[..., None], *buffers: Buffer) -> None:
        super().after(check, *buffers)
        self.step_taken("after", [], buffers)

    def report(self, make: Callable[[np.ndarray], Any], buffer: Buffer) -> Any:
        return Later(buffer, make) if self.planned and not self.checking else super().report(make, buffer)

    def flag(self, buffer: Buffer, i: int = 0) -> Any:
        return self.number(buffer, i)

    def shared(self, buffer: Buffer) -> None:
        self.note("memory shared with another library", buffer.size)

    def note(self, what: str, value: Any) -> None:
        """A value of Python's, to be compared with the next call's."""
        if not self.checking:
            self.take_down(what, [value], ())

    # ---- what it hears: see bus.py ------------------------------------------------------------------------------------
    def acted(self, act: Callable[[], None]) -> None:
        self.steps.append(Action(act, (), True))
        self.step_taken("before", [], ())

    def rounded(self, value: Any, scalar: np.generic) -> None:
        if not self.checking and value == value:
            self.trace.rounded.setdefault((user_call()[1], scalar.tobytes()), set()).add(value)

    def seen(self, owner: Any, what: str = "", read: Callable[[], Any] | None = None, live: bool = False) -> None:
        if read is None:
            what, find = (MODULE, settings_of) if hasattr(owner, "named_modules") else (LEAF, leaf_settings)
            read = partial(find, owner)
        if owner is None:
            self.note(what, read())
        elif (id(owner), what) not in self.sets:
            self.guards.setdefault((id(owner), what), Guard(owner, what, read, live))

    def assigned(self, owner: Any, attribute: str) -> None:
        self.sets[id(owner), attribute] = len(self.steps), owner, attribute

    def outside(self, text: str) -> None:
        raise CaptureError(text)

    def step_taken(self, what: Any, numbers: list[Any], arguments: Sequence[Any]) -> None:
        self.take_down(what, numbers, arguments)
        self.wheres.append(self.trace.rows[-1][2])

    def take_down(self, what: Any, numbers: list[Any], arguments: Sequence[Any]) -> None:
        buffers = [a for a in arguments if isinstance(a, Buffer)]
        for b in buffers:
            while b.stands_for is not None:  # a call is being planned
                b = b.stands_for
            for reference in b.owners:
                if (t := reference()) is not None and t.id < self.began:  # nobody outside sets what the step makes itself
                    self.seen(t)
        sizes = [a.size if isinstance(a, Buffer | np.ndarray) else -1 for a in arguments]
        self.trace.add((what, *sizes), numbers, [self.from_outside(b) for b in buffers], user_call()[1])

    def from_outside(self, buffer: Buffer) -> Any:
        """Which memory it is, if it was there before the step and is no argument."""
        root = buffer.root or buffer
        return None if id(root) in self.constants or type(self.place(buffer)) is Spot else (weakref.ref(root), buffer.offset, buffer.size)


RECORDED: dict[int, Sequence[StepRecorder]] = {}  # by here.step: the recorders of each step that some thread records
_recording = threading.Lock()


def tell(name: str, *what: Any) -> None:
    """Tell this thread's recorders."""
    for recorder in RECORDED.get(here.step, ()):
        getattr(recorder, name)(*what)


TOPICS = (seen, "seen"), (assigned, "assigned"), (before, "acted"), (outside, "outside"), (rounded, "rounded")
HEARD = [(topic, partial(tell, name)) for topic, name in TOPICS]


@contextmanager
def hearing(recorders: Sequence[StepRecorder], step: int) -> Iterator[None]:
    """Have the recorders hear what this thread says in the block, which is recorded step number `step`."""
    with _recording:
        if not RECORDED:
            for topic, hear in HEARD:
                topic.append(hear)
        RECORDED[step] = recorders
    here.step = step
    try:
        yield
    finally:
        here.step = 0
        with _recording:
            del RECORDED[step]
            if not RECORDED:
                for topic, hear in HEARD:
                    topic.remove(hear)


class Trace:
    """What a call did, to be compared with the next one's: for each step what it is (without Python's numbers), these numbers, the
    memory from outside that it used, and where in the user's code it was made."""

    def __init__(self) -> None:
        self.keys: list[tuple] = []
        self.rows: list[tuple[list[Any], list[Any], str]] = []
        self.rounded: dict[tuple[str, bytes], set[Any]] = {}  # Python's numbers, by where they were given and what kernels took them for

    def add(self, key: tuple, numbers: list[Any], held: list[Any], where: str) -> None:
        self.keys.append(key)
        self.rows.append((numbers, held, where))

    def agrees(self, first: Trace) -> bool:
        """Whether both calls did the same. Raises CaptureError if they did, but with another number or another tensor from outside:
        that is Python's, and a replay would freeze it."""
        if self.keys != first.keys:
            return False
        for key, (numbers, held, _), (now, others, where) in zip(self.keys, first.rows, self.rows, strict=True):
            for x, y in zip(numbers, now, strict=True):
                if (x != y and (x == x or y == y)) or (x == 0 and str(x) != str(y)):  # 1 / -0.0 is not 1 / 0.0
                    raise frozen(key[0] if isinstance(key[0], str) else "a number", x, y, where)
            for x, y in zip(held, others, strict=True):
                if x != y:
                    before = None if x is None or y is None else x[0]()
                    if before is None or before.retired:  # an argument, or memory that is gone or was moved
                        return False
                    raise CaptureError(
                        f"capture: the step took a tensor of {y[2]} elements from outside, another one than in the call before, at "
                        f"{where}. A replay would go on with this one: pass it as an argument and return the new one, or keep it "
                        "in a Parameter and write with set_data()."
                    )
        for (where, kind), values in self.rounded.items():
            before = first.rounded.get((where, kind), values)
            if values - before and before - values:  # calls may ask for a number more or less often, as ops are planned
                raise frozen("a number", min(before - values), min(values - before), where)
        return True


def frozen(what: str, x: Any, y: Any, place: str) -> CaptureError:
    shown = ("another table of sizes", "now") if isinstance(x, bytes) else (x, y)
    return CaptureError(
        f"capture: {what} made by Python changed between the first two calls and would be frozen: {shown[0]}, then {shown[1]} at "
        f"{place}. Pass it as a tensor argument, or set it outside of the step."
    )
