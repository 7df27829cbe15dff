"""Pointwise ops: one scalar formula, applied to every element, with its derivatives.

    tanh = pointwise("tanh", tanh_y, tanh_dx)

A formula's arguments without default are the op's inputs, those with default its attributes. Rule i is the derivative for
input i. Formulas run four ways: on Python floats, compiled for the CPU, compiled for CUDA, and on Tensors (on_tensors), which
is how gradients of gradients come for free. Inputs of different shapes broadcast without being copied.

May import: errors, backend, autograd, op, op_inputs. FLAME counterpart: `flame_core::ops` elementwise. Read next: op_custom.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from types import FunctionType
from typing import Any

import numpy as np

from ..autograd.entries import TapeEntry, state
from ..backend.base import Buffer, Device, Kernel
from ..backend.formula.words import select
from ..dtypes import FULL, HALF
from ..errors import DTypeError
from . import base as op
from .base import REGISTRY, Op, arguments, finish, saved_tensor, untracked, watch, watchers
from .inputs import coerce, in_float32, number, plan_for, run_map

EXACT = 1 << 53  # integers below this are floats without rounding
MISSING: Any = object()  # stands for an argument that was not given
OUTPUT, COTANGENT = -1, -2  # where a rule finds a value that is no input; the output is the last of what record() gets
NO_KERNEL: tuple[Any, Any] = (None, None)


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
        self.names = [arguments(r)[0] if r is not None else () for r in rules]
        known = {"g", "y", *inputs, *attributes}
        for rule, names in zip(rules, self.names, strict=True):
            for unknown in set(names) - known:
                raise ValueError(f"{name}: the rule {rule.__name__} names something unknown: '{unknown}'. Known: {sorted(known)}.")
        # What rule i takes, in order, attributes last: (name, which input; OUTPUT for y, COTANGENT for g).
        place = {"g": COTANGENT, "y": OUTPUT, **{n: k for k, n in enumerate(inputs)}}
        self.takes = [[(n, place[n]) for n in names if n in place] for names in self.names]
        self.options_of = [[n for n in names if n in attributes] for names in self.names]
        self.keeps = [self.kept(mask) for mask in range(1 << len(inputs))]
        self.second = [self.beside_g(i) for i in range(len(rules))]
        # Kernels for inputs of one shape, by dtype, on the device that was used last.
        self.kernels: dict[np.dtype, tuple[Device, Kernel]] = {}
        self.rule_kernels: list[dict[np.dtype, tuple[Device, Kernel]]] = [{} for _ in rules]
        self.short = lambda *args, **options: self.general(args, options)
        if not attributes and not masks and len(inputs) <= 2:
            self.short = unary(self) if len(inputs) == 1 else binary(self)

    def kept(self, mask: int) -> tuple[tuple[str, int], ...] | None:
        """What is saved when the inputs in the bit mask require grad; None when there is no rule for one of them."""
        tracked = [i for i in range(len(self.inputs)) if mask >> i & 1]
        if self.out is not None or not self.rule or any([self.rule[i] is None for i in tracked]):
            return None
        return tuple(dict.fromkeys([(n, k) for i in tracked for n, k in self.takes[i] if k != COTANGENT]))

    def beside_g(self, i: int) -> str | None:
        """Which saved value rule i takes beside g: "" for none, None when it takes anything else."""
        names = self.names[i]
        if names[:1] != ("g",) or len(names) > 2 or self.options_of[i]:
            return None
        return names[1] if len(names) == 2 else ""

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.general(args, options) if self.attributes else self.short(*args, **options)

    def general(self, args: Sequence[Any], options: dict[str, Any]) -> Any:
        """The op called in any way; refuses what is no input and no attribute."""
        n = len(self.inputs)
        if len(args) == n:
            return self.apply(args, self.options(options) if options else self.attributes)
        if len(args) < n:
            raise TypeError(f"{self.name}: wrong number of inputs: {len(args)}. Expected {', '.join(self.inputs)}.")
        if len(args) > n + len(self.attributes):
            raise TypeError(f"{self.name}: too many arguments: {len(args)}. Takes {', '.join((*self.inputs, *self.attributes))}.")
        attributes = dict(self.attributes)
        for i, name in enumerate(attributes, n):
            if i < len(args):
                attributes[name] = args[i]
        return self.apply(args[:n], attributes | self.known(options) if options else attributes)

    def apply(self, args: Sequence[Any], attributes: dict[str, Any]) -> Any:
        """The op on any inputs: numbers, arrays, other types, shapes that broadcast."""
        xs, dtype, where = coerce(self.name, args[self.masks :] if self.masks else args, self.kind)
        if self.masks:
            xs = [as_mask(self.name, args[0], where), *xs]
        if dtype in HALF:
            return in_float32(self, xs, attributes)
        inputs, ins, shapes, mask, bit = [], [], [], 0, 1
        for x in xs:
            if isinstance(x, op.Tensor):
                inputs.append(x)
                ins.append(x.buffer)
                shapes.append(x.shape)
                if x.requires_grad:
                    mask += bit
            else:
                inputs.append(None)
                ins.append(x)
                shapes.append(None)
            bit += bit
        plan = plan_for(self.formula, dtype, where, tuple(shapes), self.name)
        if plan.columns is None and dtype in FULL:
            self.kernels[dtype] = where, plan.kernel
        consts = [number(v, dtype) for v in attributes.values()] if attributes else ()
        y = run_map(plan, ins, consts, self.out or dtype, where)
        if watchers:
            watch(self.name, y)
        return self.record(inputs, (*ins, y.buffer), y, attributes, mask) if mask and state.recording else untracked(self, inputs, y)

    def record(self, inputs: Sequence[Any], ins: Sequence[Any], y: Any, attributes: dict[str, Any], mask: int) -> Any:
        """Put the op on the tape. inputs: Tensors, None for numbers; ins: what the kernel took, and y's buffer; mask: which inputs
        require grad."""
        keeps = self.keeps[mask]
        if keeps is None:
            if self.out is None and state.strict:
                raise self.no_rule()
            return untracked(self, inputs, y)
        saved: dict[str, Any] = {}
        versions = []
        for name, k in keeps:
            saved[name] = b = ins[k]
            if isinstance(b, Buffer):
                versions.append((name, b, b.writes if b.span is None else b.version))
        return finish(self, inputs, y, attributes, saved, versions)

    def vjp(self, entry: TapeEntry, gs: tuple, cotangents: Any) -> Sequence[Any]:
        g = gs[0]
        found: list[Any] = []
        for i, node in enumerate(entry.inputs):
            if node is None:
                found.append(None)
                continue
            dx = g if self.rule[i] is pass_g else self.derivative(i, entry, g)
            shape = entry.input_meta[i][1]
            found.append(dx if dx.shape == shape else REGISTRY["sum_to"](dx, shape))
        return found

    def derivative(self, i: int, entry: TapeEntry, g: Any) -> Any:
        """Rule i on Tensors: one launch, or the formula itself run on tracked Tensors when a graph is wanted."""
        rule, dtype, where = self.rule[i], g.dtype, g.device
        if state.creating_graph:
            attributes = entry.attributes
            values = [g if n == "g" else attributes[n] if n in attributes else saved_tensor(entry, n) for n in self.names[i]]
            return on_tensors(rule, dtype)(*values)
        name, size, saved = self.second[i], g.buffer.size, entry.saved
        at, kernel = self.rule_kernels[i].get(dtype, NO_KERNEL)
        if at is where and size and name is not None:  # the short way
            value = saved[name] if name else None
            # Two shapes that broadcast and have one size have their memory in the same order.
            if not isinstance(value, Buffer) or value.size == size:
                dx = op.Tensor(where.empty(size, dtype), g.shape, dtype, where)
                if name:
                    where.stream.run2(kernel, dx.buffer, g.buffer, value)
                else:
                    where.stream.run1(kernel, dx.buffer, g.buffer)
                return dx
        ins, shapes = [], []
        for n, k in self.takes[i]:
            x = g.buffer if k == COTANGENT else saved[n]
            ins.append(x)
            shapes.append(None if not isinstance(x, Buffer) else entry.input_meta[k][1] if k >= 0 else g.shape)
        plan = plan_for(rule, dtype, where, tuple(shapes), self.name)
        if plan.columns is None:
            self.rule_kernels[i][dtype] = where, plan.kernel
        return run_map(plan, ins, [number(entry.attributes[n], dtype) for n in self.options_of[i]], dtype, where)


def unary(self: Pointwise) -> Callable:
    """The op as a plain function: the short way for a Tensor of a float type. Anything else goes to general()."""
    kernels, record, out, attributes = self.kernels, self.record, self.out, self.attributes

    def call(x: Any = MISSING, /, *rest: Any, **options: Any) -> Any:
        if rest or options or not isinstance(x, op.Tensor):
            return self.general(given((x, *rest)), options)
        dtype, where, size = x.dtype, x.device, x.buffer.size
        at, kernel = kernels.get(dtype, NO_KERNEL)
        if at is not where or not size:
            return self.apply((x,), attributes)
        y = op.Tensor(where.empty(size, out or dtype), x.shape, out or dtype, where)
        where.stream.run1(kernel, y.buffer, x.buffer)
        if watchers:
            watch(self.name, y)
        if x.requires_grad and state.recording:
            return record((x,), (x.buffer, y.buffer), y, attributes, 1)
        return untracked(self, (x,), y) if x.requires_grad or x.broken is not None else y

    return call


def binary(self: Pointwise) -> Callable:
    """The op as a plain function: the short way for two Tensors of one shape and float type. Anything else goes to general()."""
    kernels, record, out, attributes = self.kernels, self.record, self.out, self.attributes

    def call(a: Any = MISSING, b: Any = MISSING, /, *rest: Any, **options: Any) -> Any:
        if rest or options:
            return self.general(given((a, b, *rest)), options)
        if not (isinstance(a, op.Tensor) and isinstance(b, op.Tensor)):
            return beside(self, a, b)
        dtype, where, shape, size = a.dtype, a.device, a.shape, a.buffer.size
        at, kernel = kernels.get(dtype, NO_KERNEL)
        if at is not where or b.dtype is not dtype or b.shape != shape or not size:
            return self.apply((a, b), attributes)
        y = op.Tensor(where.empty(size, out or dtype), shape, out or dtype, where)
        where.stream.run2(kernel, y.buffer, a.buffer, b.buffer)
        if watchers:
            watch(self.name, y)
        mask = a.requires_grad + 2 * b.requires_grad
        if mask and state.recording:
            return record((a, b), (a.buffer, b.buffer, y.buffer), y, attributes, mask)
        return untracked(self, (a, b), y) if mask or a.broken is not None or b.broken is not None else y

    return call


def beside(self: Pointwise, a: Any, b: Any) -> Any:
    """The short way for a Tensor of a float type beside a Python number. Anything else goes to general()."""
    x, value, mask = (a, b, 1) if isinstance(a, op.Tensor) else (b, a, 2)
    kind = type(value)
    if not (kind is float or (kind is int and -EXACT < value < EXACT)) or not isinstance(x, op.Tensor):
        return self.general(given((a, b)), {})
    dtype, where, size = x.dtype, x.device, x.buffer.size
    at, kernel = self.kernels.get(dtype, NO_KERNEL)
    if at is not where or not size:
        return self.apply((a, b), self.attributes)
    scalar, out = number(value, dtype), self.out or dtype
    y = op.Tensor(where.empty(size, out), x.shape, out, where)
    inputs, ins = ((x, None), (x.buffer, scalar, y.buffer)) if mask == 1 else ((None, x), (scalar, x.buffer, y.buffer))
    where.stream.run2(kernel, y.buffer, ins[0], ins[1])
    if watchers:
        watch(self.name, y)
    if x.requires_grad and state.recording:
        return self.record(inputs, ins, y, self.attributes, mask)
    return untracked(self, (x,), y) if x.requires_grad or x.broken is not None else y


def given(args: tuple) -> list[Any]:
    return [x for x in args if x is not MISSING]


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
WORDS |= {"rint": "round", "pow": "power", "exp_down": "exp", "normal_tail": "normal_tail"}
