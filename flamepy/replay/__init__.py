"""capture(): record a whole training step once, plan its memory, replay it without tape, shape checks or allocation.

    replay = flamepy.capture(step)      # call 0 runs eagerly, call 1 is recorded, later calls are replayed
    loss, norm = replay(x, y)

The seam is the Stream: while call 1 runs, a Recorder stands in the stream's place and writes down each launch. Buffers made
during the step get places in one arena, by lifetime; parameters, optimizer state and constants stay where they are (they are
held). A replay copies the arguments in, walks a flat list of calls and copies the results out: the same kernels on the same
numbers, so the same bits as eager. What Python decides (shapes, branches, numbers in closures) is decided once; what changes
from step to step lives in buffers, which host actions fill.

Read next: recorder.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Generic, TypeVar

import numpy as np

from ..backend import base, divert
from ..backend.base import Buffer, Device, Step
from ..errors import CaptureError, DTypeError, ShapeError
from .program import Program
from .recorder import Later, StepRecorder

_as_tensor: Callable[[Any, Any], Any]
R = TypeVar("R")  # what the step returns, for type checkers


def use_tensor_function(function: Callable[[Any, Any], Any]) -> None:
    """Tell capture() how an array becomes a Tensor on a device; tensors.py, further right, says it."""
    global _as_tensor
    _as_tensor = function


def capture(step: Callable[..., R]) -> Captured[R]:
    """A function that does what `step` does: eagerly at its first call, recorded at its second, replayed from then on.

    Arguments are Tensors or NumPy arrays (they go to the device of the first Tensor, else to the default one), whose shapes and dtypes
    must stay those of the second call (ShapeError, DTypeError); Parameters and any other values must stay the same (CaptureError).
    Results are Tensors, the norm that clip_grad_norm returns (a float), None, or tuples, lists and dicts of them; a result is a copy
    that no later call changes. `step` may call backward(), clip and optimizers; the optimizer's learning rate may be set between calls.

    Recording raises CaptureError when the step reads numbers on the host, or when a Python number or data made inside the step
    differ between the first two calls: they would be frozen. Moving memory (pack(), optimizer.load_state_dict()) after the
    recording makes later calls raise.
    """
    return Captured(step)


class Captured(Generic[R]):
    """See capture(). `program` is None until the second call; print(captured) shows what was recorded."""

    def __init__(self, step: Callable[..., R]):
        self.step = step
        self.name = getattr(step, "__name__", "step")
        self.first: StepRecorder | None = None
        self.program: Program | None = None
        self.inputs: dict[str, Any] = {}
        self.constants: dict[str, Any] = {}
        self.result: Any = None
        self.lock = threading.Lock()

    def __call__(self, *args: Any, **options: Any) -> R:
        if any([isinstance(divert.recorder_of(d), StepRecorder) for d in base.opened()]):
            raise CaptureError("capture: a step is being recorded: captured steps do not nest. Call the plain function inside.")
        with self.lock:
            if self.program is None:
                given = {name: to_tensor(value, device_of(args, options)) for name, value in named(args, options).items()}
                return self.eager(len(args), given) if self.first is None else self.record(len(args), given, self.first)
            self.take_arguments(named(args, options))
            self.program.run()
            return self.results(self.program)

    def eager(self, count: int, given: dict[str, Any]) -> R:
        """The first call: only take down what was launched."""
        with recording(planned=False) as recorders:
            result = self.call(count, given)
            self.first = used(recorders)
        return result

    def record(self, count: int, given: dict[str, Any], first: StepRecorder) -> R:
        """The second call: run and recorded. An error leaves no program, so the next call records; what the step wrote stays written."""
        inputs, constants = {}, {}
        for name, value in given.items():
            if is_tensor(value) and not is_parameter(value):
                given[name] = inputs[name] = own_tensor(name, value)
            else:
                constants[name] = value
        with recording(planned=True) as recorders:
            result = self.call(count, given)
            recorder = used(recorders)
            recorder.compare(first)
            found = [x for x in leaves(result) if isinstance(x, Later) or is_tensor(x)]
            stripped = mapped(strip, result)
        values = [copied(x) for x in found]
        buffers = [x.buffer for x in found]
        del found, result, given
        self.inputs, self.constants, self.result = inputs, constants, stripped
        self.program, self.first = Program(recorder, buffers, self.name), None
        self.program.device.trim()
        return rebuild(stripped, iter(values))

    def call(self, count: int, given: dict[str, Any]) -> R:
        """The step with these arguments, the first `count` of them by position."""
        return self.step(*list(given.values())[:count], **dict(list(given.items())[count:]))

    def results(self, program: Program) -> Any:
        return rebuild(self.result, map(program.result, range(len(program.places))))

    # ---- arguments ---------------------------------------------------------------------------------------------------
    def take_arguments(self, given: dict[str, Any]) -> None:
        """Check the arguments of a replay, all of them first, and copy them in."""
        if given.keys() != self.inputs.keys() | self.constants.keys():
            known = ", ".join((*self.inputs, *self.constants))
            raise CaptureError(f"capture: other arguments than recorded: {', '.join(given)}. Call {self.name} as it was recorded: {known}.")
        for name, value in self.constants.items():
            if not same(given[name], value):
                raise CaptureError(
                    f"capture: argument {name} is frozen: recorded with {value!r}, now {given[name]!r}. "
                    "Pass a tensor for what changes, or capture again."
                )
        found = [(mine, check_argument(name, mine, given[name])) for name, mine in self.inputs.items()]
        for mine, value in found:
            mine.device.stream.copy(mine.buffer, value.buffer)

    def __reduce__(self) -> Any:
        raise CaptureError(f"pickle: a captured step cannot be copied: {self.name}. Pickle the function, and capture it where it is used.")

    def __repr__(self) -> str:
        return f"captured {self.name}: {self.program or ('call 1 will be recorded' if self.first else 'not called yet')}"


@contextmanager
def recording(planned: bool) -> Iterator[list[StepRecorder]]:
    """Record what this thread does on any device."""
    with ExitStack() as stack:
        yield [stack.enter_context(divert.divert(d, StepRecorder(planned))) for d in base.opened()]


def used(recorders: list[StepRecorder]) -> StepRecorder:
    """The recorder of the device that the step ran on. Raises CaptureError if there are two."""
    busy = [r for r in recorders if any([isinstance(s, Step) for s in r.steps])] or recorders[:1]
    if len(busy) > 1:
        names = ", ".join([r.device.name for r in busy])
        raise CaptureError(f"capture: the step runs on two devices: {names}. Put the model and its inputs on one of them.")
    return busy[0]


def device_of(args: tuple, options: dict[str, Any]) -> Device:
    """The device of the first tensor among the arguments: arrays go there too."""
    return next((x.device for x in (*args, *options.values()) if is_tensor(x)), base.device())


def named(args: tuple, options: dict[str, Any]) -> dict[str, Any]:
    return {**{str(i): value for i, value in enumerate(args)}, **options}


def to_tensor(value: Any, device: Device) -> Any:
    return _as_tensor(value, device) if isinstance(value, np.ndarray) else value


def is_tensor(value: Any) -> bool:
    return hasattr(value, "buffer") and hasattr(value, "shape")


def is_parameter(value: Any) -> bool:
    return hasattr(value, "set_data")


def same(a: Any, b: Any) -> bool:
    return a is b or (type(a) is type(b) and not is_tensor(a) and bool(a == b))


def own_tensor(name: str, value: Any) -> Any:
    """A leaf with the same numbers in new memory."""
    if value.entry is not None:
        raise CaptureError(f"capture: argument {name} has a tape of its own: made by '{value.entry.op.title}'. Pass detach() of it.")
    mine = value.over(copied(value))
    mine.requires_grad = value.requires_grad
    return mine


def check_argument(name: str, mine: Any, value: Any) -> Any:
    """`value` as a Tensor; raises unless it can be copied into the recorded argument `mine`."""
    value = to_tensor(value, mine.device)
    if not is_tensor(value):
        raise CaptureError(f"capture: argument {name} was a tensor when recorded: now {type(value).__name__}. Pass a tensor or an array.")
    if value.shape != mine.shape:
        raise ShapeError(
            f"capture: argument {name} has another shape: recorded {mine.shape}, now {value.shape}. "
            "Capture a step for each shape, or drop the last incomplete batch."
        )
    if value.dtype != mine.dtype:
        raise DTypeError(f"capture: argument {name} has another dtype: recorded {mine.dtype}, now {value.dtype}. Cast it first.")
    if value.device != mine.device:
        raise CaptureError(f"capture: argument {name} is on another device: recorded {mine.device}, now {value.device}. Move it first.")
    return value


# ---- results -----------------------------------------------------------------------------------------------------------
def leaves(result: Any) -> list[Any]:
    """Everything in nested tuples, lists and dicts, in order."""
    if isinstance(result, dict):
        return [x for value in result.values() for x in leaves(value)]
    return [x for value in result for x in leaves(value)] if isinstance(result, tuple | list) else [result]


def mapped(change: Callable[[Any], Any], result: Any) -> Any:
    """The same nesting with every leaf changed."""
    if isinstance(result, dict):
        return {key: mapped(change, value) for key, value in result.items()}
    if isinstance(result, tuple | list):
        values = [mapped(change, value) for value in result]
        return type(result)(*values) if hasattr(result, "_fields") else type(result)(values)
    return change(result)


class Slot:
    """Where a result of the program goes: as a tensor like `like`, or (None) as Python number i of its buffer."""

    def __init__(self, like: Any, i: int = 0):
        self.like, self.i = like, i

    def fill(self, buffer: Buffer) -> Any:
        return buffer.device.download(buffer)[self.i].item() if self.like is None else self.like.over(buffer)


def strip(x: Any) -> Any:
    """A leaf of the results without its memory. Raises CaptureError for what cannot be replayed."""
    if isinstance(x, Later):
        return Slot(None, x.i)
    if is_tensor(x):
        return Slot(x.over(Buffer(None, x.size, x.dtype, x.device)))  # the shape without the memory
    if x is None or isinstance(x, str | bool | int | float):
        return x
    raise CaptureError(f"capture: a result that cannot be replayed: {type(x).__name__}. Return tensors, or a dict of them.")


def copied(x: Any) -> Buffer:
    """What a leaf of the results holds now, in a buffer of its own."""
    copy: Buffer = x.buffer.device.empty(x.buffer.size, x.buffer.dtype)
    x.buffer.device.stream.copy(copy, x.buffer)
    return copy


def rebuild(result: Any, buffers: Iterator[Buffer]) -> Any:
    """The results with every Slot filled."""
    return mapped(lambda x: x.fill(next(buffers)) if isinstance(x, Slot) else x, result)
