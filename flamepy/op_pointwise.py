"""Pointwise ops: one scalar formula, applied to every element, with its derivatives.

    tanh = pointwise("tanh", tanh_y, tanh_dx)

A formula's arguments without default are the op's inputs, those with default its attributes. Rule i is the derivative for
input i. Formulas run four ways: on Python floats, compiled for the CPU, compiled for CUDA, and on Tensors (on_tensors), which
is how gradients of gradients come for free. Inputs of different shapes broadcast without being copied.

May import: errors, backend, autograd, op. FLAME counterpart: `flame_core::ops` elementwise. Read next: op_custom.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from types import FunctionType
from typing import Any

import numpy as np

from . import op
from .backend.base import FULL, HALF, Buffer, Device, Kernel
from .backend.words import select
from .entries import TapeEntry, state
from .errors import DTypeError, ShapeError
from .op import REGISTRY, Op, arguments, coerce, finish, in_float32, saved_tensor, size_of, untracked, watch, watchers

EXACT = 1 << 53  # integers below this are floats without rounding


def pass_g(g):
    """The rule of an op that adds: hand the cotangent on. Costs nothing."""
    return g


def zero(g):
    """The rule of a step function: the derivative is zero wherever it exists."""
    return select(g > 0.0, 0.0, 0.0)


class Pointwise(Op):
    """An op from scalar formulas. See pointwise()."""

    def __init__(self, name: str, formula: Any, rules: tuple, kind: str, out: np.dtype | None, home: str, masks: int):
        inputs, attributes = arguments(formula)
        super().__init__(name, inputs, attributes, formula.__doc__, home)
        self.formula, self.rule, self.kind, self.out, self.masks = formula, rules, kind, out, masks
        self.differentiable = bool(rules)
        self.partial = None in rules
        self.simple = not attributes and not masks and out is None and bool(rules)
        self.kernels: dict[tuple[str, np.dtype], Kernel] = {}
        self.names = [arguments(r)[0] if r is not None else () for r in rules]
        # What rule i saves: (name, which input; -1 for y). Attributes and g are not saved.
        self.saves = [[(n, inputs.index(n) if n in inputs else -1) for n in ns if n == "y" or n in inputs] for ns in self.names]
        known = {"g", "y", *inputs, *attributes}
        for rule, names in zip(rules, self.names, strict=True):
            for unknown in set(names) - known:
                raise ValueError(f"{name}: the rule {rule.__name__} names something unknown: '{unknown}'. Known: {sorted(known)}.")

    def __call__(self, *args: Any, **options: Any) -> Any:
        if self.simple and not options and len(args) == len(self.inputs):
            y = self.alike(args)
            if y is not None:
                return y
        if len(args) > len(self.inputs):
            if len(args) > len(self.inputs) + len(self.attributes):
                raise TypeError(f"{self.name}: too many arguments: {len(args)}. Takes {', '.join((*self.inputs, *self.attributes))}.")
            options = {**dict(zip(self.attributes, args[len(self.inputs) :], strict=False)), **options}
            args = args[: len(self.inputs)]
        if len(args) != len(self.inputs):
            raise TypeError(f"{self.name}: wrong number of inputs: {len(args)}. Expected {', '.join(self.inputs)}.")
        attributes = self.options(options) if options else self.attributes
        xs, dtype, where = coerce(self.name, args[self.masks :], self.kind)
        if self.masks:
            xs = [as_mask(self.name, args[0], where), *xs]
        if dtype in HALF:
            return in_float32(self, xs, attributes)
        consts = [dtype.type(v) for v in attributes.values()] if attributes else ()
        shape = broadcast_shape(self.name, xs)
        y = run_map(self.formula, xs, consts, shape, dtype, self.out or dtype, where)
        if watchers:
            watch(self.name, y)
        if state.recording and self.out is None:
            tracked = [i for i, x in enumerate(xs) if isinstance(x, op.Tensor) and x.requires_grad]
            if tracked:
                return self.record(xs, y, attributes, tracked)
        return untracked(self, xs, y)

    def alike(self, args: tuple) -> Any:
        """The short way for Tensors of one shape and float type, and numbers beside them. None for anything else."""
        dtype: Any = None
        xs, data, tracked, numbers = list(args), [], [], []
        for i, x in enumerate(args):
            if isinstance(x, op.Tensor):
                if dtype is None:
                    first, dtype, shape = x, x.dtype, x.shape
                elif x.dtype is not dtype or x.shape != shape:
                    return None
                if x.requires_grad:
                    tracked.append(i)
                data.append(x.buffer)
            elif type(x) is float or (type(x) is int and -EXACT < x < EXACT):
                numbers.append(i)
                data.append(x)
            else:
                return None
        if dtype not in FULL:
            return None
        for i in numbers:
            data[i] = xs[i] = dtype.type(args[i])
        where, size = first.device, first.buffer.size
        kernel = self.kernels.get((where.name, dtype))
        if kernel is None:
            kernel = self.kernels[where.name, dtype] = where.kernel("map" + str(len(xs)), self.formula, dtype)
        y = op.Tensor(where.empty(size, dtype), shape, dtype, where)
        if size:
            where.stream.run(kernel, size, (y.buffer,), data, ())
        if watchers:
            watch(self.name, y)
        return self.record(xs, y, self.attributes, tracked) if tracked and state.recording else untracked(self, xs, y)

    def record(self, xs: Sequence[Any], y: Any, attributes: dict[str, Any], tracked: list[int]) -> Any:
        if not self.differentiable or (self.partial and any([self.rule[i] is None for i in tracked])):
            if state.strict:
                raise self.no_rule()
            return untracked(self, xs, y)
        saved: dict[str, Any] = {}
        for i in tracked:
            for name, position in self.saves[i]:
                x = y if position < 0 else xs[position]
                saved[name] = x.buffer if isinstance(x, op.Tensor) else x
        return finish(self, [x if isinstance(x, op.Tensor) else op.Tensor.placeholder for x in xs], y, attributes, saved)

    def rules(self, entry: TapeEntry, gs: tuple, wanted: tuple[bool, ...], cotangents: Any) -> Sequence[Any]:
        g = gs[0]
        found: list[Any] = []
        for i, want in enumerate(wanted):
            if not want:
                found.append(None)
            elif self.rule[i] is pass_g:
                found.append(g)
            else:
                found.append(self.derivative(i, entry, g))
        return found

    def derivative(self, i: int, entry: TapeEntry, g: Any) -> Any:
        """Rule i on Tensors: one launch, or the formula itself run on tracked Tensors when a graph is wanted."""
        rule, attributes = self.rule[i], entry.attributes
        if state.creating_graph:
            values = [g if n == "g" else attributes[n] if n in attributes else saved_tensor(entry, n) for n in self.names[i]]
            return on_tensors(rule, g.dtype)(*values)
        xs = [g if n == "g" else saved_tensor(entry, n) for n in self.names[i] if n not in attributes]
        consts = [g.dtype.type(attributes[n]) for n in self.names[i] if n in attributes]
        return run_map(rule, xs, consts, g.shape, g.dtype, g.dtype, g.device)


def as_mask(name: str, mask: Any, where: Device) -> Any:
    """A bool Tensor from a bool Tensor, array or Python bool. Raises DTypeError."""
    mask = op.Tensor.of(name, mask)
    if mask.dtype.kind != "b":
        raise DTypeError(f"{name}: the mask is not bool: {mask.dtype}. Compare to make one, e.g. x > 0.")
    return mask


def pointwise(
    name: str,
    formula: Any,
    *rules: Any,
    kind: str = "float",
    out: np.dtype | None = None,
    home: str = "flamepy",
    masks: int = 0,
) -> Pointwise:
    """An op that applies `formula` to every element, broadcasting its inputs.

    rules[i] is the derivative for input i (None: not differentiable there). In a rule's signature attributes come last.
    kind: see coerce(). out: the result's dtype when it is not that of the inputs (then the op records nothing).
    home: see op.publish(). masks: 1 if the first input is a bool mask.
    Raises ValueError at import if a rule names something unknown.
    """
    if rules and len(rules) != len(arguments(formula)[0]):
        raise ValueError(f"{name}: {len(rules)} rules for inputs {arguments(formula)[0]}. Give one for each input, or none.")
    return Pointwise(name, formula, rules, kind, out, home, masks)


@lru_cache(1024)
def on_tensors(formula: Any, dtype: np.dtype) -> Callable:
    """The formula with the vocabulary bound to ops: applied to Tensors it records itself. Numbers it chooses between are `dtype`."""
    scope = dict(formula.__globals__)
    for name in formula.__code__.co_names:
        value = scope.get(name)
        if name == "select":
            scope[name] = lambda condition, a, b: select_tensors(condition, a, b, dtype)
        elif name in WORDS:
            scope[name] = REGISTRY[WORDS[name]]
        elif isinstance(value, FunctionType):
            scope[name] = on_tensors(value, dtype)
    return FunctionType(formula.__code__, scope, formula.__name__, formula.__defaults__)


def select_tensors(condition: Any, a: Any, b: Any, dtype: np.dtype) -> Any:
    """The word `select` on Tensors."""
    if not isinstance(condition, op.Tensor):
        return a if condition else b
    if not isinstance(a, op.Tensor) and not isinstance(b, op.Tensor):
        a = op.Tensor.of("select", np.array(a, dtype))
    return REGISTRY["where"](condition, a, b)


# The vocabulary of backend/words.py as ops; a word spelled differently from its op stands here.
WORDS = {w: w for w in ("exp", "log", "tanh", "sqrt", "erf", "sin", "cos", "floor", "ceil", "abs", "sign", "maximum", "minimum")}
WORDS |= {"rint": "round", "pow": "power"}


def broadcast_shape(name: str, xs: Sequence[Any]) -> tuple[int, ...]:
    """The common shape of the Tensors among xs, by NumPy's rule. Raises ShapeError."""
    shape: tuple[int, ...] | None = None
    for x in xs:
        if isinstance(x, op.Tensor) and x.shape != shape:
            shape = x.shape if shape is None else combine(name, shape, x.shape)
    return shape or ()


def combine(name: str, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(a, b)
    except ValueError:
        raise ShapeError(f"{name}: shapes do not broadcast: {a} and {b}. Sizes must be equal or 1, counted from the right.") from None


def run_map(
    formula: Any, xs: Sequence[Any], consts: Sequence[Any], shape: tuple[int, ...], dtype: np.dtype, out: np.dtype, where: Device
) -> Any:
    """One launch of a formula over Tensors (and scalars) that broadcast to `shape`."""
    y = op.Tensor(where.empty(size_of(shape), out), shape, out, where)
    if y.size == 0:
        return y
    n = str(len(xs))
    if all([x.shape == shape for x in xs if isinstance(x, op.Tensor)]):
        ins = [x.buffer if isinstance(x, op.Tensor) else x for x in xs]
        where.stream.run(where.kernel("map" + n, formula, dtype), y.size, (y.buffer,), ins, consts)
        return y
    table, k, inner, columns = plan_broadcast(shape, tuple([x.shape if isinstance(x, op.Tensor) else None for x in xs]))
    ins = [x if not isinstance(x, op.Tensor) else as_column(x.buffer) if c else x.buffer for x, c in zip(xs, columns, strict=True)]
    plan = (where.table(table), k, inner, 4096)
    where.stream.run(where.kernel("broadcast" + n, formula, dtype), y.size, (y.buffer,), ins, (*plan, *consts))
    return y


def as_column(buffer: Buffer) -> Buffer:
    """The same memory with shape (size, 1): how broadcast loops know an input that repeats along the inner run."""
    return Buffer(buffer.data.reshape(-1, 1), buffer.size, buffer.dtype, buffer.device, buffer)


@lru_cache(4096)
def plan_broadcast(
    shape: tuple[int, ...], shapes: tuple[tuple[int, ...] | None, ...]
) -> tuple[tuple[int, ...], int, int, tuple[bool, ...]]:
    """(table, k, inner, repeats): neighbouring dimensions along which every input moves alike are one dimension."""
    rows: list[list[int]] = []  # [size, moves in input 0?, moves in input 1? ...] from the innermost outwards
    for d in range(1, len(shape) + 1):
        moves = [int(s is not None and d <= len(s) and s[-d] != 1) for s in shapes]
        if shape[-d] == 1:
            continue
        if rows and rows[-1][1:] == moves:
            rows[-1][0] *= shape[-d]
        else:
            rows.append([shape[-d], *moves])
    rows = rows or [[1] + [1] * len(shapes)]
    inner, outer = rows[0], rows[:0:-1]
    table = [r[0] for r in outer]
    for i in range(1, len(shapes) + 1):
        strides, step = [], inner[0] if inner[i] else 1
        for r in rows[1:]:
            strides.append(step if r[i] else 0)
            step *= r[0] if r[i] else 1
        table += strides[::-1]
    return tuple(table), len(outer), inner[0], tuple(s is not None and not inner[i + 1] for i, s in enumerate(shapes))
