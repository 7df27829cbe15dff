"""What goes into a captured step and what comes out: nested tuples, lists and dicts of tensors, arrays and other values.

A call's form is its nesting, what each tensor is like (shape, dtype, device, whether it requires grad or has a tape), which of them
share memory, and the other values. Calls of one form run one program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from operator import call
from types import SimpleNamespace
from typing import Any

from ...backend.base import Buffer, Device, device
from ...core import ids
from ...core.modes import thread
from ...core.op import over
from ...core.tape import TapeEntry
from ...dtypes import is_array
from ...errors import CaptureError
from ...tensors import Tensor, tensor
from ..autocast import here
from .handing import Handed
from .recorder import Later
from .values import known

new = object.__new__

TAPE = "with a tape"
# Stands for the op that made a tensor, where a replay made it.
REPLAYED = SimpleNamespace(title="capture", inputs=())


def no_way_back() -> CaptureError:
    return CaptureError(
        "capture: backward() through the result of a captured step: a replay has no tape. Run backward() inside the step, or detach() "
        "the result."
    )


def cut_entry(spec: Any) -> TapeEntry:
    """An entry for results of a replay, which are like tracked tensors of this spec but have no tape: backward() raises."""
    call = SimpleNamespace(op=REPLAYED, single=True, ins=(), outs=(spec,), saved=(), tracked=())
    entry = TapeEntry(call)
    entry.output_ids, entry.freed = (0,), entry.code
    entry.refusal = no_way_back  # type: ignore[method-assign]
    return entry


def tape_modes() -> tuple[Any, ...]:
    """What this thread decides for itself and a recorded step depends on: whether it records, whether it is strict, what products read."""
    modes = thread.modes
    return modes.recording, modes.strict, here.dtype


def is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


def is_parameter(value: Any) -> bool:
    return hasattr(type(value), "set_grad")


# ---- arguments -----------------------------------------------------------------------------------------------------------
class Arguments:
    """One call's arguments. `form` as said above; `tensors`: those a replay copies in; `others`: the other values, by label."""

    def __init__(self, args: tuple, options: dict[str, Any]):
        self.args, self.options = args, options
        self.tensors: Sequence[Any] = args
        self.others: dict[str, Any] = {}
        form: list[Any] = [tape_modes()]
        if options or [x for x in args if type(x) is not Tensor]:
            self.take_apart(form)
        else:  # the usual call, for which this is done quickly
            form += [x.spec if x.entry is None else (x.spec, TAPE) for x in args]
        self.roots = roots = [id(t.buffer.root or t.buffer) for t in self.tensors]
        if len(set(roots)) < len(roots):  # some share memory
            form.append(tuple([(roots.index(r), id(t.buffer) == r) for r, t in zip(roots, self.tensors, strict=True)]))
        self.form = tuple(form)

    @cached_property
    def found(self) -> list[tuple[str, Any]]:
        """Every leaf with its label, arrays as tensors."""
        return [(str(i), x) for i, x in enumerate(self.args)]

    def take_apart(self, form: list[Any]) -> None:
        """Find tensors and other values in nested arguments, and add to the form what each is like."""
        found = self.found = []
        nesting: list[Any] = [flatten(str(i), value, found) for i, value in enumerate(self.args)]
        nesting += [(name, flatten(name, value, found)) for name, value in self.options.items()]
        where: Device | None = None
        self.tensors = tensors = []
        for i, (label, value) in enumerate(found):
            if not is_tensor(value) and is_array(value):
                where = where or next((x.device for _, x in found if is_tensor(x)), None) or device()
                value = tensor(value, device=where)
                found[i] = label, value
            if is_tensor(value) and not is_parameter(value):
                tensors.append(value)
                form.append(value.spec if value.entry is None else (value.spec, TAPE))
            else:
                self.others[f"argument {label}"] = value
                form.append(known(value))
        if any(nesting):
            form += nesting

    def own(self, memory_for: Callable[[Buffer], Buffer]) -> tuple[tuple, dict[str, Any], list[Buffer]]:
        """The arguments with a leaf of its own for each tensor, in the memory that is given for its own, and this memory. A tensor given
        twice is one leaf.

        Raises CaptureError for a tensor with a tape.
        """
        leaves: dict[int, Any] = {}
        memory: dict[int, Buffer] = {}
        for label, t in self.found:
            if is_tensor(t) and not is_parameter(t) and id(t) not in leaves:
                if t.entry is not None:
                    by = t.entry.op.title
                    raise CaptureError(f"capture: argument {label} has a tape of its own: made by '{by}'. Pass detach() of it.")
                buffer = memory.get(id(t.buffer)) or memory.setdefault(id(t.buffer), memory_for(t.buffer))
                leaves[id(t)] = over(buffer, t.shape)
                leaves[id(t)].spec = t.spec
        args, options = self.given(lambda x: leaves.get(id(x), x))
        return args, options, [memory[id(t.buffer)] for t in self.tensors]

    def given(self, change: Callable[[Any], Any] = lambda x: x) -> tuple[tuple, dict[str, Any]]:
        """The arguments with every leaf changed, arrays as tensors."""
        converted = iter([change(value) for _, value in self.found])
        values = mapped(lambda _: next(converted), [*self.args, *self.options.values()])
        count = len(self.args)
        return tuple(values[:count]), dict(zip(self.options, values[count:], strict=True))


def alike(args: tuple, form: tuple) -> set[int] | None:
    """The ids of the arguments' roots where these are tensors of their own memory, and the call's form is this one: found out quickly."""
    roots, i = set(), 0
    if len(args) + 1 != len(form) or tape_modes() != form[0]:
        return None
    for x in args:
        i += 1
        if type(x) is not Tensor or x.spec is not form[i] or x.entry is not None:
            return None
        b = x.buffer
        roots.add(id(b if b.root is None else b.root))
    return roots if len(roots) == i else None


def flatten(label: str, value: Any, found: list[tuple[str, Any]]) -> Any:
    """Add the leaves to `found`; returns what the nesting is, None for a leaf."""
    if isinstance(value, dict):
        return type(value), *[(key, flatten(f"{label}[{key!r}]", v, found)) for key, v in value.items()]
    if isinstance(value, tuple | list):
        return type(value), *[flatten(f"{label}[{i}]", v, found) for i, v in enumerate(value)]
    found.append((label, value))
    return None


# ---- results -------------------------------------------------------------------------------------------------------------
def leaves(result: Any) -> list[Any]:
    """Everything in nested tuples, lists and dicts, in order."""
    if isinstance(result, dict):
        return [x for value in result.values() for x in leaves(value)]
    return [x for value in result for x in leaves(value)] if isinstance(result, tuple | list) else [result]


def mapped(change: Callable[[Any], Any], result: Any) -> Any:
    """The same nesting with every leaf changed."""
    if isinstance(result, dict):
        values = {key: mapped(change, value) for key, value in result.items()}
        return values if type(result) is dict else type(result)(values)
    if isinstance(result, tuple | list):
        items = [mapped(change, value) for value in result]
        return type(result)(*items) if hasattr(result, "_fields") else type(result)(items)
    return change(result)


class Slot:
    """Where a result of the program goes: as a tensor like `like`, or (None) as Python number i of its buffer."""

    def __init__(self, like: Any, make: Any = None, entry: Any = None):
        self.like, self.make = like, make
        self.entry = entry

    def maker(self, place: Any) -> Callable[[], Any]:
        """What makes it of what the step leaves at its place, which the next replay overwrites unless it is Handed."""
        stream = place.device.stream
        if self.like is None:
            return stream.reporter(self.make, place)
        take, spec, entry = place.take if type(place) is Handed else stream.taker(place), self.like.spec, self.entry

        def made() -> Any:
            t = new(Tensor)  # not by its class: a call less
            t.buffer, t.spec, t.id, t.entry = take(), spec, ids.next_id(), entry
            return t

        return made

    def __eq__(self, other: Any) -> bool:
        return type(other) is Slot and self.kind() == other.kind()

    __hash__ = object.__hash__

    def kind(self) -> Any:
        return None if self.like is None else (self.like.shape, self.like.dtype, self.like.device, self.entry is not None)


def slot_for(x: Any) -> Slot:
    """A place for tensors like this one, without its memory."""
    like = over(Buffer(None, x.size, x.dtype, x.device), x.shape)
    like.spec = x.spec
    return Slot(like, None, cut_entry(x.spec) if x.requires_grad else None)


def strip(x: Any) -> Any:
    """A leaf of the results without its memory. Raises CaptureError for what cannot be replayed."""
    if isinstance(x, Later):
        return Slot(None, x.make)
    if is_tensor(x):
        return slot_for(x)
    if x is None or isinstance(x, str | bool | int | float):
        return x
    raise CaptureError(f"capture: a result that cannot be replayed: {type(x).__name__}. Return tensors, or a dict of them.")


def outline(x: Any) -> Any:
    """A leaf of the first call's results, as much of it as is compared."""
    return slot_for(x) if is_tensor(x) else x


def check_same_results(before: Any, now: Any) -> bool:
    """Whether two calls gave results of one form. Raises CaptureError for a Python value that differs: a replay would freeze it."""
    old, new = leaves(before), leaves(now)
    if len(old) != len(new):
        return False
    for a, b in zip(old, new, strict=True):
        if type(b) is Slot and (a == b or (b.like is None and isinstance(a, float))):
            continue
        if type(a) is Slot or type(b) is Slot:
            return False
        if known(a) != known(b):
            raise CaptureError(
                f"capture: a value made by Python among the results changed between two calls and would be frozen: {a!r}, then {b!r}. "
                "Return tensors, or keep such values outside of the step."
            )
    return True


def copy_of(buffer: Buffer) -> Buffer:
    """What it holds now, in a buffer of its own."""
    return buffer.device.stream.copied(buffer)


def maker_of(result: Any, places: Iterator[Buffer]) -> Callable[[], Any]:
    """A function that gives the results with every Slot filled; of the places the first are theirs."""
    makers = mapped(lambda x: x.maker(next(places)) if type(x) is Slot else lambda: x, result)
    if not isinstance(result, tuple | list | dict):
        return makers  # type: ignore[no-any-return]
    if type(makers) is tuple and all([callable(make) for make in makers]):  # as most are: without mapped()'s questions
        if len(makers) == 2:  # such as a loss and a norm
            first, second = makers
            return lambda: (first(), second())
        return lambda: tuple(map(call, makers))
    return lambda: mapped(lambda make: make(), makers)
