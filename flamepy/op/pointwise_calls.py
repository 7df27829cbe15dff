"""The functions by which users call pointwise ops: the plan of a usual call is found at once, anything else goes to the op's general()."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..autograd.entries import thread
from ..backend.numbers import number
from ..core.tensor import Tensor
from ..dtypes import FLOATS
from .any_size import NONE, again

EXACT = 1 << 53  # integers below this are floats without rounding


def unary(op: Any) -> Callable[..., Any]:
    calls, general = op.calls, op.general

    def function(*args: Any, **options: Any) -> Any:
        try:
            (x,) = args
            known = calls[thread.modes.recording].get(x.spec)
        except (ValueError, AttributeError):  # not one argument, or no Tensor
            return general(args, options)
        if known is None or options:
            y = None if options else again(op, args, (x.spec,), x.spec, [x.buffer])
            return general(args, options) if y is None else y
        given = [x.buffer]
        known.run(given)
        return known.finish(known, args, given, NONE)

    return function


def binary(op: Any) -> Callable[..., Any]:
    calls, general = op.calls, op.general

    def function(*args: Any, **options: Any) -> Any:
        try:
            a, b = args
            kind = type(b)
            key: Any = (a.spec, kind if kind is float or (kind is int and -EXACT < b < EXACT) else b.spec)
            known = calls[thread.modes.recording].get(key)
        except (ValueError, AttributeError):  # not two arguments, or not both Tensors
            return number_first(op, args) if len(args) == 2 and not options else general(args, options)
        if known is None or options:
            y = None if options else like_others(op, a, b, key)
            return general(args, options) if y is None else y
        given = [a.buffer, number(b, a.spec.computed) if known.ins[1] is None else b.buffer]
        known.run(given)
        return known.finish(known, args, given, NONE)

    return function


def like_others(op: Any, a: Any, b: Any, key: tuple[Any, Any]) -> Any:
    """any_size.again() for a Tensor and a Tensor or number."""
    spec, other = key
    if other is float or other is int:
        return again(op, (a, b), (spec, None), key, [a.buffer, number(b, spec.computed)]) if spec.dtype in FLOATS else None
    return again(op, (a, b), key, key, [a.buffer, b.buffer]) if spec.shape == other.shape else None


def number_first(op: Any, args: tuple[Any, Any]) -> Any:
    """binary() for a number before a Tensor, as in 1 - x; anything else goes to general()."""
    a, b = args
    kind = type(a)
    if not isinstance(b, Tensor) or not (kind is float or (kind is int and -EXACT < a < EXACT)):
        return op.general(args, NONE)
    known = op.calls[thread.modes.recording].get((kind, b.spec))
    if known is None:
        return op.general(args, NONE)
    given = [number(a, b.spec.computed), b.buffer]
    known.run(given)
    return known.finish(known, args, given, NONE)


def general(op: Any) -> Callable[..., Any]:
    run, count, attributes = op.general, len(op.inputs), op.attributes

    def function(*args: Any, **options: Any) -> Any:
        found = attributes
        try:
            if options or len(args) > count:
                found = attributes | dict(zip(attributes, args[count:], strict=False)) | options
                if len(found) > len(attributes) or len(args) > count + len(attributes):
                    return run(args, options)
            xs = args[:count]
            wide = next(x.spec.computed for x in xs[op.masks :] if type(x) is not float)
            key = tuple([float if type(x) is float else x.spec for x in xs]) if count > 1 else xs[0].spec
            known = op.calls[thread.modes.recording][key]
            given = [number(x, wide) if type(x) is float else x.buffer for x in xs]
            if found:
                given += op.number_values(found, wide)
        except (AttributeError, KeyError, IndexError, TypeError, OverflowError, StopIteration):  # no such plan, or no such call
            return run(args, options)
        known.run(given)
        return known.finish(known, xs, given, found)

    return function
