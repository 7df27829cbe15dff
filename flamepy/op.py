"""Op: a named record of a forward computation and its backward rules, and the path every call takes.

    check  ->  allocate  ->  launch  ->  record

Two builders make ops: `pointwise` (op_pointwise.py) from scalar formulas, `custom` (op_custom.py) from functions on Tensors.
In both, the names in a backward rule's signature are the contract: `g` is the cotangent of the output, `y` the output, the
others are inputs and attributes; what a rule names is what the tape saves, nothing else. Broadcasting is undone in one
place, Op.vjp.

May import: errors, backend, rng, gradient, autograd. FLAME counterpart: `flame_core::autograd::Op`. Read next: op_pointwise.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from math import copysign
from types import MethodType
from typing import Any

import numpy as np

from .backend.base import FLOATS, FULL, HALF, INTEGERS, Buffer, Device, bool_, float32, int64
from .entries import TapeEntry, state, user_frame
from .errors import DTypeError, GradientError

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
    shape = tuple(shape)
    return Tensor(where.empty(size_of(shape), dtype), shape, dtype, where)


def like(x: Any, shape: Sequence[int] | None = None, dtype: np.dtype | None = None) -> Any:
    """An uninitialised Tensor on x's device, of x's dtype and shape unless others are given."""
    return new(x.shape if shape is None else shape, dtype or x.dtype, x.device)


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
    kernel = first.device.kernel(loop, formula, dtype or first.dtype)
    buffers = [t.buffer if isinstance(t, Tensor) else t for t in ins]
    first.device.stream.run(kernel, first.size if work is None else work, [t.buffer for t in outs], buffers, consts)


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
        done = []
        for dx, meta, want in zip(found, entry.input_meta, wanted, strict=True):
            done.append(None if dx is None or not want else dx if dx.shape == meta[1] else REGISTRY["sum_to"](dx, meta[1]))
        return done

    def rules(self, entry: TapeEntry, gs: tuple, wanted: tuple[bool, ...], cotangents: Any) -> Sequence[Any]:
        raise NotImplementedError

    def options(self, options: dict[str, Any]) -> dict[str, Any]:
        """The attributes with the caller's options in place; an unknown one is refused."""
        merged = dict(self.attributes)
        for key, value in options.items():
            key = ALIASES.get(key, key)
            if key not in merged:
                raise TypeError(f"{self.name}: unknown option: {key}={value!r}. Known: {', '.join(merged) or 'none'}.")
            merged[key] = value
        return merged

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
            return plain(*args, **({ALIASES.get(k, k): v for k, v in options.items()} if options else options))

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
    """A saved value as a Tensor; while a graph of the backward is being made, one that is tracked as the original was."""
    value = entry.saved[name]
    if not isinstance(value, Buffer):
        return value
    names = entry.op.inputs
    if name == "y":
        shape, node, slot = entry.output_meta[0][1], entry, 0
    else:
        i = names.index(name)
        node, (_, shape, _, slot) = entry.inputs[i], entry.input_meta[i]
    t = Tensor(value, shape, value.dtype, value.device)
    if state.creating_graph and node is not None:
        if type(node) is not TapeEntry:
            if node.buffer is not value:  # type: ignore[attr-defined]
                raise GradientError(
                    f"{entry.op.name}: a leaf got new memory since it was recorded: {entry.describe(name)}. Pack before the forward pass."
                )
            return node
        t.requires_grad, t.entry, t.slot = True, node, slot
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


# ---- inputs: one dtype, one device ------------------------------------------------------------------------------------


def coerce(name: str, args: Sequence[Any], kind: str) -> tuple[list[Any], np.dtype, Device]:
    """Inputs as Tensors of one dtype (Python scalars stay scalars of that dtype), that dtype, the device.

    kind: "float" turns integers into float32, "number" also computes integers as they are, "any" takes bools as well.
    """
    dtype: np.dtype | None = None
    where: Device | None = None
    uniform = True
    for x in args:
        if isinstance(x, Tensor):
            if dtype is None:
                dtype, where = x.dtype, x.device
            elif x.dtype is not dtype and x.dtype != dtype:
                uniform = False
        elif not isinstance(x, SCALARS):
            uniform = False
    if uniform and dtype in FULL:
        try:
            return [x if isinstance(x, Tensor) else number(x, dtype) for x in args], dtype, where  # type: ignore
        except OverflowError:
            raise too_large(name, args, dtype) from None
    return mixed(name, args, kind)


NUMBERS: dict[tuple[np.dtype, Any], Any] = {}


def number(value: Any, dtype: np.dtype) -> Any:
    """A number as kernels take it, a scalar of `dtype`. NumPy needs 200 ns to make one, so they are kept."""
    if value == 0 and copysign(1, value) < 0:  # -0.0, which as a key equals 0.0
        return dtype.type(value)
    scalar = NUMBERS.get((dtype, value))
    if scalar is None:
        if len(NUMBERS) >= 4096:
            NUMBERS.clear()
        scalar = NUMBERS[dtype, value] = dtype.type(value)
    return scalar


def mixed(name: str, args: Sequence[Any], kind: str) -> tuple[list[Any], np.dtype, Device]:
    """coerce() for everything but tensors of one float type and scalars."""
    if not any(isinstance(x, Tensor) for x in args):
        args = [Tensor.of(name, args[0]), *args[1:]]
    xs = [x if isinstance(x, (Tensor, *SCALARS)) else Tensor.of(name, x) for x in args]
    dtype = common_dtype(name, xs, kind)
    where = next(x.device for x in xs if isinstance(x, Tensor))
    cast = REGISTRY["cast"]
    scalar = (lambda v: v) if dtype in HALF else dtype.type
    try:
        return [scalar(x) if not isinstance(x, Tensor) else x if x.dtype == dtype else cast(x, dtype) for x in xs], dtype, where
    except OverflowError:
        raise too_large(name, args, dtype) from None


def too_large(name: str, args: Sequence[Any], dtype: Any) -> DTypeError:
    numbers = [x for x in args if isinstance(x, SCALARS)]
    return DTypeError(f"{name}: a number does not fit {dtype}: one of {len(numbers)} given. Use smaller numbers or a wider dtype.")


def common_dtype(name: str, xs: Sequence[Any], kind: str) -> np.dtype:
    """The type to compute in: the one float type if any; two float types are an error, never a silent promotion."""
    tensors = [x.dtype for x in xs if isinstance(x, Tensor)]
    floats = {d for d in tensors if d in FLOATS}
    if len(floats) > 1:
        raise DTypeError(f"{name}: two different float types: {', '.join(sorted(map(str, floats)))}. Cast one, e.g. x.to(flamepy.float32).")
    if floats:
        return floats.pop()
    scalars = [x for x in xs if not isinstance(x, Tensor)]
    if kind == "float" or any(isinstance(s, float | np.floating) for s in scalars):
        return float32
    integers = [d for d in tensors if d in INTEGERS]
    if integers:
        return max(integers, key=lambda d: d.itemsize)
    if kind == "any" and all(isinstance(s, bool | np.bool_) for s in scalars):
        return bool_
    return int64


def in_float32(op: Op, xs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Run an op on 16-bit floats: computed in float32, the result rounded back."""
    half = next(x.dtype for x in xs if isinstance(x, Tensor) and x.dtype in HALF)
    cast = REGISTRY["cast"]
    y = op(*[cast(x, float32) if isinstance(x, Tensor) and x.dtype in HALF else x for x in xs], **attributes)
    outputs = [cast(t, half) if t.dtype == float32 else t for t in (y if type(y) is tuple else (y,))]
    return tuple(outputs) if type(y) is tuple else outputs[0]


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
