"""The functions by which users call ops: the plan of a usual call is found at once, anything else goes to the op's general()."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from ..core.modes import thread
from ..core.op import REGISTRY
from ..core.tensor import Tensor
from ..dtypes import FLOATS
from ..habits import composed as spoken
from .kept import number, rounded
from .plan import NONE, Plans, again, hashable
from .routes import routed

EXACT = 1 << 53  # integers below this are floats without rounding
MOST_FORMS = 1024  # of an op's attributes that are kept
ABSENT: Any = None


def caller(op: Any) -> Callable[..., Any]:
    """The function that calls this op, and its plans, of which there are none yet."""
    op.plans = Plans()
    if op.takes_numbers:
        return numbered(op) if op.attributes or op.masks or len(op.inputs) > 2 else unary(op) if len(op.inputs) == 1 else binary(op)
    if op.variadic:
        return op.general()
    one = len(op.inputs) == 1
    return checked(op) if op.internal and op.attributes else one_input(op) if one else several_inputs(op)


# ---- pointwise ops ---------------------------------------------------------------------------------------------------------------
def unary(op: Any) -> Callable[..., Any]:
    calls, general = op.plans.calls, op.general()

    def function(*args: Any, **options: Any) -> Any:
        try:
            (x,) = args
            known = calls[thread.modes.recording].get(x.spec)
        except (ValueError, AttributeError):  # not one argument, or no Tensor
            return general(*args, **options)
        if known is None or options:
            y = None if options else again(op, args, (x.spec,), x.spec, [x.buffer])
            return general(*args, **options) if y is None else y
        given = [x.buffer]
        known.run(given)
        return known.finish(known, args, given, NONE)

    return function


def binary(op: Any) -> Callable[..., Any]:
    calls, general = op.plans.calls, op.general()

    def function(*args: Any, **options: Any) -> Any:
        try:
            a, b = args
            key: Any = (a.spec, float if type(b) is float else kind_beside(a.spec, b) if type(b) is int else b.spec)
            known = calls[thread.modes.recording].get(key)
        except (ValueError, AttributeError):  # not two arguments, or not both Tensors
            return number_first(op, general, args) if len(args) == 2 and not options else general(*args, **options)
        if known is None or options:
            y = None if options else like_others(op, a, b, key)
            return general(*args, **options) if y is None else y
        try:
            given = [a.buffer, number(b, a.spec.computed) if known.ins[1] is None else b.buffer]
        except OverflowError:  # general() says so
            return general(*args)
        known.run(given)
        return known.finish(known, args, given, NONE)

    return function


def kind_beside(spec: Any, n: int) -> Any:
    """How an int takes part in the key of a call beside a tensor: as a float beside floats; None: not at all."""
    return None if not -EXACT < n < EXACT else float if spec.dtype in FLOATS else int


def like_others(op: Any, a: Any, b: Any, key: tuple[Any, Any]) -> Any:
    """any_size.again() for a Tensor and a Tensor or number."""
    spec, other = key
    if other is float or other is int:
        return again(op, (a, b), (spec, None), key, [a.buffer, number(b, spec.computed)]) if spec.dtype in FLOATS else None
    return again(op, (a, b), key, key, [a.buffer, b.buffer]) if other is not None and spec.shape == other.shape else None


def number_first(op: Any, general: Any, args: tuple[Any, Any]) -> Any:
    """binary() for a number before a Tensor, as in 1 - x; anything else goes to general()."""
    a, b = args
    if not isinstance(b, Tensor) or type(a) not in (float, int):
        return general(*args)
    known = op.plans.calls[thread.modes.recording].get((float if type(a) is float else kind_beside(b.spec, a), b.spec))
    if known is None:
        return general(*args)
    try:
        given = [number(a, b.spec.computed), b.buffer]
    except OverflowError:
        return general(*args)
    known.run(given)
    return known.finish(known, args, given, NONE)


def numbered(op: Any) -> Callable[..., Any]:
    run, count, attributes, calls = op.general(), len(op.inputs), op.attributes, op.plans.calls
    usual: dict[Any, list[Any]] = {}  # by dtype: the attributes nobody gave, as kernels take them

    def function(*args: Any, **options: Any) -> Any:
        if count == len(args) == 1 and not options:
            try:
                spec = args[0].spec
                known, given = calls[thread.modes.recording][spec], [args[0].buffer, *usual[spec.computed]]
            except (AttributeError, KeyError):  # not yet
                pass
            else:
                known.run(given)
                return known.finish(known, args, given, attributes)
        found = attributes
        try:
            if options or len(args) > count:
                found = attributes | dict(zip(attributes, args[count:], strict=False)) | options
                if len(found) > len(attributes) or len(args) > count + len(attributes):
                    return run(*args, **options)
            xs = args if len(args) == count else args[:count]
            key = tuple([float if type(x) is float else x.spec for x in xs]) if count > 1 else xs[0].spec
            known = calls[thread.modes.recording][key]
            wide = next(spec for spec in known.ins[op.masks :] if spec is not None).computed
            given = [number(x, wide) if type(x) is float else x.buffer for x in xs]
            numbers = usual.get(wide) if found is attributes else None
            if numbers is None:
                numbers = op.number_values(found, wide) if found else []
                if found is attributes and not rounded:
                    usual[wide] = numbers
            given += numbers
        except (AttributeError, KeyError, IndexError, TypeError, OverflowError, StopIteration):  # no such plan, or no such call
            return run(*args, **options)
        known.run(given)
        return known.finish(known, xs, given, found)

    return function


# ---- custom ops ------------------------------------------------------------------------------------------------------------------
def one_input(op: Any) -> Callable[..., Any]:
    calls, general, of = op.plans.calls, op.general(), op.of
    forms: dict[Any, tuple] = {}  # see by_form()

    def function(*args: Any, **options: Any) -> Any:
        form = key = ABSENT
        try:
            if options or len(args) != 1:  # attributes as well
                if len(args) == 2 and type(args[1]) is int and not options:  # most often that is an axis, by position or by name
                    form = args[1]
                elif len(args) == len(options) == 1:
                    (named,) = options.items()
                    form = named, type(named[1])
                else:
                    values = (*args[1:], *options.values())
                    form = (values, *options, *map(type, values))
                key = (args[0].spec, form)
            else:
                key = (args[0].spec,)
            known = calls[thread.modes.recording].get(key)
        except (IndexError, AttributeError, TypeError):  # no Tensor, or an attribute without a hash
            known = None
        if known is None:
            whole = form is None and key is not None
            return of(args, op.attributes) if whole else by_form(op, general(*args, **options), forms, form, key, args, options)
        given = [args[0].buffer]
        known.run(given)
        return known.finish(known, args[:1], given, known.attributes)

    return function


def by_form(op: Any, y: Any, forms: dict[Any, tuple], form: Any, key: Any, args: tuple, options: dict[str, Any]) -> Any:
    """y, the result of a call whose attributes are given in this form: from now on the key finds such a call, too, if it is planned.
    `forms`: how plans know attributes so given. Equal values of these types are the same, unlike 0.0 and -0.0."""
    specs = () if key is None else key[0] if type(key[0]) is tuple else key[:1]
    values = (*args[len(specs) :], *options.values())
    if specs and op.trusted and all([v is None or type(v) in (bool, int, str) or isinstance(v, np.dtype) for v in values]):
        if form not in forms:
            if len(forms) >= MOST_FORMS:
                forms.clear()
            forms[form] = tuple([hashable(v) for v in op.bound(args, options)[1].values()])
        calls = op.plans.calls[thread.modes.recording]
        if (known := calls.get((specs, *forms[form]))) is not None:
            calls[key] = known
    return y


def several_inputs(op: Any) -> Callable[..., Any]:
    calls, general, of, least, most = op.plans.calls, op.general(), op.of, op.required, len(op.inputs)
    forms: dict[Any, tuple] = {}  # see by_form()

    def function(*args: Any, **options: Any) -> Any:
        count = len(args)
        if options or count < least:
            return general(*args, **options)
        form = key = ABSENT
        try:
            xs = args[:most] if count >= most else args + (None,) * (most - count)
            key = tuple([None if x is None else x.spec for x in xs])
            if count > most:  # attributes as well
                form = (args[most:], *map(type, args[most:]))
                key = key, form
            known = calls[thread.modes.recording].get(key)
        except (AttributeError, TypeError):  # an input that is no Tensor yet, or an attribute without a hash
            known = None
        if known is None:
            whole = form is None and key is not None
            return of(xs, op.attributes) if whole else by_form(op, general(*args, **options), forms, form, key, args, options)
        given = [None if x is None else x.buffer for x in xs]
        known.run(given)
        return known.finish(known, xs, given, known.attributes)

    return function


def checked(op: Any) -> Callable[..., Any]:
    """For flamepy's own functions, which give every argument by position, attributes in a fixed form."""
    calls, general, of, count, most = op.plans.calls, op.general(), op.of, len(op.inputs), len(op.inputs) + len(op.attributes)

    def function(*args: Any, **options: Any) -> Any:
        xs = args[:count]
        try:
            if count == 1:  # written out for few: a list of them takes as long as its items do
                key: Any = (args[0].spec, *args[1:])
            elif count == 2:
                a, b = xs
                key = (a.spec, None if b is None else b.spec, *args[2:])
            else:
                key = (*[None if x is None else x.spec for x in xs], *args[count:])
            known = calls[thread.modes.recording].get(key)
        except (IndexError, ValueError, AttributeError, TypeError):  # no Tensors, or an attribute without a hash
            return general(*args, **options)
        if options or (known is None and len(args) != most):
            return general(*args, **options)
        if known is None:
            return of(xs, dict(zip(op.attributes, args[count:], strict=True)))
        given = [args[0].buffer] if count == 1 else [None if x is None else x.buffer for x in xs]
        known.run(given)
        return known.finish(known, xs, given, known.attributes)

    return function


# ---- functions made of ops, whose usual call is one planned op --------------------------------------------------------------------
def quick_matmul(plain: Any) -> Any:
    plain = routed(plain)

    @wraps(plain)
    def matmul(*args: Any, **options: Any) -> Any:
        try:
            a, b = args
            known = REGISTRY["product"].plans.calls[thread.modes.recording].get((a.spec, b.spec, False, False))  # type: ignore[attr-defined]
        except (AttributeError, ValueError):  # no Tensors
            return plain(*args, **options)
        if known is None or options:
            return plain(*args, **options)
        given = [a.buffer, b.buffer]
        known.run(given)
        return known.finish(known, args, given, known.attributes)

    return matmul


READERS = "array_equal", "bincount", "masked_select", "nonzero", "unique"  # they read numbers on the host: no route leads there


def composed(name: str, function: Any) -> Any:
    plain = spoken(name, function)
    return plain if name in READERS else quick_matmul(plain) if name == "matmul" else routed(plain)
