"""Op: a named record of a forward computation and its backward rules, and the path every call takes.

    check  ->  allocate  ->  launch  ->  record

Two builders make ops: `pointwise` (op_pointwise.py) from scalar formulas, `custom` (op_custom.py) from functions on Tensors.
In both, the names in a backward rule's signature are the contract: `g` is the cotangent of the output, `y` the output, the
others are inputs and attributes; what a rule names is what the tape saves, nothing else. Broadcasting is undone in vjp().

FLAME counterpart: `flame_core::autograd::Op`. Read next: op_inputs.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any

import numpy as np

from ..autograd.entries import TapeEntry, state, user_frame
from ..backend.base import Buffer, Device
from ..errors import GradientError

REGISTRY: dict[str, Op] = {}
PUBLIC: dict[str, Callable] = {}  # what users call: ops and the functions composed of them
HOMES: dict[str, str] = {}  # where: "flamepy", "functional" (flamepy.nn.functional) or "both"
METHODS: dict[str, bool] = {}  # whether it is a Tensor method as well
SCALARS = (int, float, bool, np.number, np.bool_)
watchers: list[Callable[[str, Any], None]] = []  # who watches results: on_result()
Tensor: Any = None  # the Tensor class; tensors.py, further right, puts it here


def use_tensor_class(cls: type) -> None:
    """Tell the ops which class their results have."""
    global Tensor
    Tensor = cls


def new(shape: Sequence[int], dtype: np.dtype, where: Device) -> Any:
    """An uninitialised, unrecorded Tensor."""
    shape, size = tuple(shape), 1
    for n in shape:
        size *= n
    return Tensor(where.empty(size, dtype), shape, dtype, where)


def like(x: Any, shape: Sequence[int] | None = None, dtype: np.dtype | None = None) -> Any:
    """An uninitialised Tensor on x's device, of x's dtype and shape unless others are given."""
    if shape is None:
        where, dtype = x.device, dtype or x.dtype
        return Tensor(where.empty(x.buffer.size, dtype), x.shape, dtype, where)
    return new(shape, dtype or x.dtype, x.device)


def share(x: Any, shape: Sequence[int]) -> Any:
    """A Tensor of another shape on the same memory."""
    return Tensor(x.buffer, tuple(shape), x.dtype, x.device)


def size_of(shape: Sequence[int]) -> int:
    size = 1
    for n in shape:
        size *= n
    return size


def launch(
    loop: str, formula: Callable | None, outs: Sequence[Any], ins: Sequence[Any] = (), consts: Sequence[Any] = (),
    work: int | None = None, dtype: np.dtype | None = None,
) -> None:  # fmt: skip
    """Run one kernel on Tensors: outs first, then ins (Tensors or scalars), then constants.

    `work` counts the elements touched (default: those of the first out); `dtype` types the formula's constants (default: that
    of the first out).
    """
    first = outs[0]
    where, out = first.device, first.buffer
    kernel = where.kernel(loop, formula, first.dtype if dtype is None else dtype)
    buffers = (out,) if len(outs) == 1 else [t.buffer for t in outs]
    taken = []
    for t in ins:
        taken.append(t.buffer if isinstance(t, Tensor) else t)
    where.stream.run(kernel, out.size if work is None else work, buffers, taken, consts)


class Op:
    """What both kinds of op have: a name, input names, rules, and vjp(). Calling an op runs and records it."""

    def __init__(self, name: str, inputs: tuple[str, ...], attributes: dict[str, Any], doc: str | None, home: str):
        self.name = name
        self.inputs = inputs
        self.attributes = attributes
        self.__doc__ = doc
        self.__name__ = name
        if name in REGISTRY:
            raise ValueError(f"op: name used twice: '{name}'. Give the op another name.")
        REGISTRY[name] = self
        publish(name, self, home)

    def __repr__(self) -> str:
        return f"<op {self.name}({', '.join((*self.inputs, *self.attributes))})>"

    def __call__(self, *args: Any, **options: Any) -> Any:
        raise NotImplementedError

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """An op assigned in a class is a method."""
        return self if instance is None else MethodType(self, instance)

    def vjp(self, entry: TapeEntry, gs: tuple, cotangents: Any) -> Sequence[Any]:
        """Cotangents of the inputs from those of the outputs, each brought to its input's shape."""
        wanted = tuple([node is not None for node in entry.inputs])
        found = self.rules(entry, gs, wanted, cotangents)
        if len(found) != len(wanted):
            raise ValueError(f"{self.name}: its backward rule returned {len(found)} values for {len(wanted)} inputs. Return one for each.")
        for dx, meta in zip(found, entry.input_meta, strict=True):
            if dx is not None and dx.shape != meta[1]:
                return self.summed(entry, found)
        return found

    def summed(self, entry: TapeEntry, found: Sequence[Any]) -> Sequence[Any]:
        """Cotangents summed to the shapes of the inputs that want one: broadcasting undone."""
        rows = zip(entry.inputs, entry.input_meta, found, strict=True)
        sum_to: Any = REGISTRY["sum_to"]
        return [dx if node is None or dx is None or dx.shape == meta[1] else sum_to(dx, meta[1]) for node, meta, dx in rows]

    def rules(self, entry: TapeEntry, gs: tuple, wanted: tuple[bool, ...], cotangents: Any) -> Sequence[Any]:
        raise NotImplementedError

    def options(self, options: dict[str, Any]) -> dict[str, Any]:
        """The attributes with the caller's options in place; an unknown one is refused."""
        merged = self.attributes | options
        if len(merged) == len(self.attributes):
            return merged
        return self.attributes | self.known(options)

    def known(self, options: dict[str, Any]) -> dict[str, Any]:
        """The caller's options by the names of the attributes; an unknown one is refused."""
        found = {ALIASES.get(key, key): value for key, value in options.items()}
        for key in found:
            if key not in self.attributes:
                raise TypeError(f"{self.name}: unknown option: {key}={found[key]!r}. Known: {', '.join(self.attributes) or 'none'}.")
        return found

    def no_rule(self) -> GradientError:
        return GradientError(
            f"{self.name}: no derivative for an input that requires grad: '{self.name}'. Use detach(), no_grad(), or strict_mode(False) "
            "if the gradient may stop here."
        )


def publish(name: str, function: Callable, home: str) -> None:
    """Make a function part of flamepy (and a Tensor method), of flamepy.nn.functional, of both, or of neither (home "")."""
    if home:
        PUBLIC[name], HOMES[name], METHODS[name] = function, home, home != "functional"


def composed(function: Any = None, *, home: str = "flamepy") -> Any:
    """Decorator: a public function made of ops, with nothing of its own on the tape."""
    if function is None:
        return lambda f: composed(f, home=home)
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    if "axis" in names:  # `dim` and `keepdim` are accepted too
        plain = function

        @functools.wraps(plain)
        def function(*args: Any, **options: Any) -> Any:
            return plain(*args, **{ALIASES.get(k, k): v for k, v in options.items()}) if options else plain(*args)

    publish(function.__name__, function, home)
    return function


ALIASES = {"dim": "axis", "keepdim": "keepdims"}


def finish(op: Op, inputs: Sequence[Any], y: Any, attributes: dict[str, Any], saved: dict[str, Any], versions: Sequence) -> Any:
    """Record the op that made y (one Tensor or a tuple of them) from inputs of which at least one requires grad."""
    if type(y) is tuple:
        entry = TapeEntry(op, inputs, y, attributes, saved, versions)
        for slot, output in enumerate(y):
            output.requires_grad, output.entry, output.slot = True, entry, slot
    else:
        entry = y.entry = TapeEntry(op, inputs, (y,), attributes, saved, versions)
        y.requires_grad = True
    if state.segment is not None:
        state.segment.add(entry)
    if state.engine is not None:
        state.engine.tape.append(entry)
    return y


def untracked(op: Op, xs: Sequence[Any], y: Any) -> Any:
    """Remember in y where the chain from a tracked tensor broke, for the error text of a backward() that comes too late."""
    for x in xs:
        if isinstance(x, Tensor):  # not a number or None
            if x.requires_grad:
                why = "under no_grad()" if not state.recording else "its result has no gradient"
                y = mark(y, (op.name, why, user_frame()))
                break
            if x.broken is not None:
                y = mark(y, x.broken)
                break
    return y


def mark(y: Any, broken: tuple) -> Any:
    for t in y if type(y) is tuple else (y,):
        if t.entry is None and not t.requires_grad:
            t.broken = broken
    return y


def saved_tensor(entry: TapeEntry, name: str) -> Any:
    """A saved value as a Tensor that is tracked as the original was: for rules that run while a graph of the backward is made."""
    value = entry.saved[name]
    if not isinstance(value, Buffer):
        return value
    if name == "y":
        i, shape = -1, entry.output_meta[0][1]
    else:
        i = entry.op.inputs.index(name)
        shape = entry.input_meta[i][1]
    t = Tensor(value, shape, value.dtype, value.device)
    node: Any = entry if i < 0 else entry.inputs[i]
    if node is not None:
        if type(node) is not TapeEntry:
            if node.buffer is not value:
                raise GradientError(
                    f"{entry.op.name}: a leaf got new memory since it was recorded: {entry.describe(name)}. Pack before the forward pass."
                )
            return node
        t.requires_grad, t.entry, t.slot = True, node, 0 if i < 0 else entry.input_meta[i][3]
    return t


class _Watch:
    def __init__(self, callback: Callable[[str, Any], None]):
        self.callback = callback

    def __enter__(self) -> None:
        watchers.append(self.callback)

    def __exit__(self, *exc: object) -> None:
        watchers.remove(self.callback)


def on_result(callback: Callable[[str, Any], None]) -> _Watch:
    """Context manager: call `callback(op name, result)` for every op that runs in the block (finding the first NaN)."""
    return _Watch(callback)


def watch(name: str, y: Any) -> None:
    for callback in watchers:
        for t in y if type(y) is tuple else (y,):
            callback(name, t)


def arguments(function: Any) -> tuple[tuple[str, ...], dict[str, Any]]:
    """(names without default, {name: default})."""
    code, defaults = function.__code__, function.__defaults__ or ()
    names = code.co_varnames[: code.co_argcount]
    split = len(names) - len(defaults)
    return names[:split], dict(zip(names[split:], defaults, strict=True))
