"""Pointwise ops: one scalar formula, applied to every element, with its derivatives.

    tanh = pointwise("tanh", tanh_y, tanh_dx)
    define("tanh", "Hyperbolic tangent.", lambda x: tanh(x), lambda g, y: g * (1.0 - y * y))  # the same in one line, for flamepy's own

A formula's arguments without default are the op's inputs, those with default its attributes, which are numbers. Rule i is the
derivative for input i. Formulas run four ways: on Python floats, compiled for the CPU, compiled for CUDA, and on Tensors (on_tensors),
which is how gradients of gradients come for free. Inputs of different shapes broadcast without being copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from types import FunctionType
from typing import Any

import numpy as np

from .door import Door
from .dtypes import FLOATS, computed
from .errors import DTypeError, GradientError
from .formula import globals_of
from .inputs import KINDS, coerce, common_shape
from .op import REGISTRY, SCALARS, Op, arguments, parameters_of, publish, signature_of
from .tape import TapeEntry
from .tensor import Tensor
from .words import VOCABULARY, select


def pass_g(g):
    """The rule of an op that adds: hand the cotangent on. Costs nothing."""
    return g


def zero(g):
    """The rule of a step function: the derivative is zero wherever it exists."""
    return select(g > 0.0, 0.0, 0.0)


class Pointwise(Op):
    """An op from scalar formulas. See pointwise()."""

    takes_numbers = True

    def __init__(self, name: str, formula: Any, rules: tuple, kind: str, out: np.dtype | None, masks: int, title: str):
        inputs, attributes = arguments(formula)
        if not isinstance(kind, str) or kind not in KINDS:
            raise ValueError(f"{name}: unknown kind: {kind!r}. Use one of {', '.join(KINDS)}.")
        Door.tried(name, formula, rules, inputs, attributes)
        super().__init__(name, inputs, attributes, formula, title)
        self.formula, self.rule, self.kind, self.out, self.masks = formula, rules, kind, out, masks
        self.numbers = tuple(attributes)
        self.names = [arguments(r)[0] if r is not None else () for r in rules]
        self.saved = [{n: True for n in names if n != "g" and n not in attributes} for names in self.names]
        self.function = Door.caller(self)
        taken = parameters_of(formula).values()
        signature_of(self, [p.replace(kind=p.POSITIONAL_ONLY) if p.default is p.empty else p for p in taken])

    # ---- the call in general ---------------------------------------------------------------------------------------------------------
    def general(self) -> Callable[..., Any]:
        """The op as a function of any inputs: Tensors, numbers, arrays, other types, shapes that broadcast."""

        def function(*args: Any, **options: Any) -> Any:
            xs: Sequence[Any] = args
            attributes = self.attributes
            if options or len(args) != len(self.inputs):
                xs, attributes = self.bound(args, options)
            fit = not self.masks  # Tensors of one float type: nothing to bring together
            for x in xs:
                fit = fit and isinstance(x, Tensor) and x.dtype is xs[0].dtype
            xs, dtype = (xs, x.spec.computed) if fit and x.dtype in FLOATS else self.coerced(xs)
            return Door.call(self, xs, attributes, self.number_values(attributes, dtype) if attributes else ())

        return function

    def coerced(self, args: Sequence[Any]) -> tuple[Sequence[Any], np.dtype]:
        """(the inputs as Tensors of one type and numbers, the mask as one of bools; what they are computed in)."""
        place = args[0].device if self.masks and isinstance(args[0], Tensor) else None
        xs, dtype, device = coerce(self.title, args[self.masks :], self.kind, place)
        return [as_mask(self.title, args[0], device), *xs] if self.masks else xs, computed(dtype)

    def number_values(self, attributes: dict[str, Any], dtype: np.dtype) -> list[Any]:
        for name, value in attributes.items():
            if type(value) not in (float, int) and not isinstance(value, SCALARS):
                raise DTypeError(f"{self.title}: {name} is no number: {value!r}. Use a float.")
        return [Door.number(value, dtype) for value in attributes.values()]

    # ---- forward and rules -------------------------------------------------------------------------------------------------------
    def needs(self, tracked: Sequence[bool | None], attributes: dict[str, Any]) -> tuple[str, ...] | None:
        if self.out is not None or not self.rule:
            return None
        found: dict[str, Any] = {}
        for flag, rule, names in zip(tracked, self.rule, self.saved, strict=True):
            if flag and rule is None:
                return None
            found |= names if flag else {}
        return tuple(found)

    def forward(self, xs: Sequence[Any], attributes: dict[str, Any], tracked: Sequence[bool | None]) -> tuple[Any, dict[str, Any]]:
        dtype: Any = None
        for x in xs[self.masks :]:
            if isinstance(x, Tensor):
                wide = x.spec.computed
                dtype = x.dtype if dtype is None or dtype == x.dtype else wide
        if dtype is None:  # numbers alone, beside a mask
            dtype = wide = xs[-1].dtype
        return apply(self.title, self.formula, xs, tuple(attributes.values()), self.out or dtype, wide), {}

    def rules(self, entry: TapeEntry, gs: Sequence[Any], values: dict[str, Any]) -> Sequence[Any]:
        return [None if node is None else self.derivative(i, gs[0], values) for i, node in enumerate(entry.inputs)]

    def derivative(self, i: int, g: Any, values: dict[str, Any]) -> Any:
        """Rule i in one launch."""
        if self.rule[i] is pass_g:
            return g
        found = {n: g if n == "g" else values[n] for n in self.names[i]}
        operands = [x for n, x in found.items() if n not in self.attributes]
        numbers = [x if type(x) is g.dtype.type else Door.number(x, g.dtype) for n, x in found.items() if n in self.attributes]
        return apply(self.name, self.rule[i], operands, numbers, g.dtype, g.spec.computed)

    def graph_rules(self, entry: TapeEntry, gs: Sequence[Any], values: dict[str, Any]) -> Sequence[Any]:
        """The rules themselves, run on tracked Tensors."""
        g = gs[0]
        found: list[Any] = []
        for rule, names, node in zip(self.rule, self.names, entry.inputs, strict=True):
            dx = on_tensors(rule, g.dtype)(*[g if n == "g" else values[n] for n in names]) if node is not None else None
            if node is not None and not isinstance(dx, Tensor):  # a rule may come to a number
                dx = Tensor.of(self.name, np.full(g.shape, dx, g.dtype), g.device)
            found.append(dx)
        return found


def apply(name: str, formula: Any, operands: Sequence[Any], numbers: Sequence[Any], out: np.dtype, dtype: np.dtype) -> Any:
    """One launch of a formula, computed in `dtype`, over Tensors and numbers that broadcast: a new Tensor of type `out`."""
    shapes: tuple[Any, ...] = ()
    given: list[Any] = []
    for x in operands:
        if isinstance(x, Tensor):
            device = x.device
        shapes += (x.shape if isinstance(x, Tensor) else None,)
        given.append(x.buffer if isinstance(x, Tensor) else x)
    shape = shapes[0] if len(shapes) == 1 else common_shape(name, shapes)
    spec = Door.spec(shape, out, device)
    y = Tensor(device.empty(spec.size, out), spec)
    if spec.size and {*shapes} <= {shape, None}:
        device.launch("map", formula, (y.buffer,), given, numbers, dtype)
    elif spec.size:
        device.launch("broadcast", formula, (y.buffer,), given, (shape, shapes, *numbers), dtype)
    return y


def as_mask(name: str, mask: Any, device: Any) -> Any:
    """A bool Tensor from a bool Tensor, array or Python bool. Raises DTypeError."""
    mask = Tensor.of(name, mask, device)
    if mask.dtype.kind != "b":
        raise DTypeError(f"{name}: the mask is not bool: {mask.dtype}. Compare to make one, e.g. x > 0.")
    return mask


def pointwise(
    name: str, formula: Any, *rules: Any, kind: str = "float", out: np.dtype | None = None, home: str = "", masks: int = 0, title: str = "",
) -> Any:  # fmt: skip
    """Define an op that applies `formula` to every element, broadcasting its inputs; returns the function to call.
    rules[i] is the derivative for input i (None: not differentiable there; no rules at all: not differentiable). In a rule's signature
    attributes come last. kind: "float" computes integers in float32, "number" as they are, "any" takes bools too. out: the result's
    dtype when it is not that of the inputs (then the op records nothing). masks: 1 if the first input is a bool mask. title: what a
    tape shows. home: where it is published, for flamepy's own ops (see publish()).
    The numbers and functions that formula and rules read from their module are taken as they are now. A user's op may be defined again
    under its name; then the new one counts. Raises ValueError (TypeError for what is no function) for one of flamepy's names, for a rule
    that names something unknown or uses a word that Tensors do not have, and for what cannot be compiled: see definitions.py."""
    formula = Door.checked(name, formula)
    rules = tuple([None if rule is None else Door.checked(name, rule) for rule in rules])
    if rules and len(rules) != len(arguments(formula)[0]):
        raise ValueError(
            f"{name}: wrong number of rules: {len(rules)} for inputs {arguments(formula)[0]}. Give one for each input, or none."
        )
    op = Pointwise(name, formula, rules, kind, out, masks, title)
    op.function.__doc__ = Door.explain(op, bool(home))
    publish(name, op.function, home)
    return op.function


def define(name: str, text: str, formula: Any, *rules: Any, home: str = "flamepy", **options: Any) -> Any:
    """An op of flamepy's own, as a line of a table of derivatives: what it is in words, its formula, its rules. Those written as lambdas
    get the names of their kernels here: tanh_y, tanh_dx."""
    formula = named(formula, f"{name}_y")
    formula.__doc__ = text
    given = [rule and named(rule, f"{name}_d{x}") for x, rule in zip(arguments(formula)[0], rules, strict=False)]
    return pointwise(name, formula, *given, home=home, **options)


def named(function: Any, name: str) -> Any:
    """A lambda under this name; what has a name keeps it."""
    if function.__name__ != "<lambda>":
        return function
    code = function.__code__.replace(co_name=name, co_qualname=name)
    return FunctionType(code, function.__globals__, name, function.__defaults__)


@lru_cache(1024)
def on_tensors(formula: Any, dtype: np.dtype) -> Callable:
    """The formula with the vocabulary bound to ops: applied to Tensors it records itself. Numbers it chooses between are `dtype`."""
    scope = dict(formula.__globals__)
    for name in globals_of(formula.__code__):
        value = scope.get(name)
        word = VOCABULARY.get(getattr(value, "__name__", ""))
        if word is not None and word.scalar is value:
            if word.on_tensors not in REGISTRY:
                raise GradientError(f"{formula.__name__}: no second derivative: its word {name}() is no op. Use create_graph=False.")
            chosen = lambda condition, a, b: select_tensors(condition, a, b, dtype)
            scope[name] = chosen if value is select else REGISTRY[word.on_tensors]
        elif isinstance(value, FunctionType):
            scope[name] = on_tensors(value, dtype)
    return FunctionType(formula.__code__, scope, formula.__name__, formula.__defaults__)


def select_tensors(condition: Any, a: Any, b: Any, dtype: np.dtype) -> Any:
    """The word `select` on Tensors."""
    if not isinstance(condition, Tensor):
        return a if condition else b
    if not isinstance(a, Tensor) and not isinstance(b, Tensor):
        a = Tensor.of("select", np.array(a, dtype), condition.device)
    return REGISTRY["where"](condition, a, b)
