"""The functions by which users call custom ops: the plan of a usual call is found at once, anything else goes to the op's general()."""

from __future__ import annotations

from collections.abc import Callable
from math import copysign
from typing import Any

import numpy as np

from ..autograd.entries import thread

MOST_FORMS = 1024  # of an op's attributes that are kept


def hashable(value: Any) -> Any:
    """An attribute as part of a key: 1, 1.0 and True differ, and so do 0.0 and -0.0."""
    if isinstance(value, list | tuple):
        return tuple([hashable(v) for v in value])
    return (value.__class__, value, copysign(1.0, value)) if isinstance(value, float) else (value.__class__, value)


def one_input(op: Any) -> Callable[..., Any]:
    calls, general, of_tensors = op.calls, op.general, op.of_tensors
    forms: dict[Any, tuple] = {}  # of attributes as users gave them: how plans know them

    def function(*args: Any, **options: Any) -> Any:
        form = specs = None
        try:
            if options or len(args) != 1:  # attributes as well
                values = (*args[1:], *options.values()) if options else args[1:]
                form = (values, *options, *map(type, values))
                known = calls[thread.modes.recording].get(((args[0].spec,), *forms[form]))
            else:
                specs = (args[0].spec,)
                known = calls[thread.modes.recording].get(specs)
        except (KeyError, IndexError, AttributeError, TypeError):  # a new form, no Tensor, or an attribute without a hash
            known = None
        if known is None:
            if specs is not None:
                return of_tensors(args, op.attributes, specs)
            y = general(args, options)
            if form is not None:
                remember(op, forms, form, args, options)
            return y
        given = [args[0].buffer]
        known.run(given)
        return known.finish(known, args[:1], given, known.attributes)

    return function


def remember(op: Any, forms: dict[Any, Any], form: tuple, args: tuple, options: dict[str, Any]) -> None:
    """Note what a call with attributes given in this form is planned by. Equal values of these types are the same, unlike 0.0 and -0.0."""
    if op.planned and all([v is None or type(v) in (bool, int, str) or isinstance(v, np.dtype) for v in form[0]]):
        if len(forms) >= MOST_FORMS:
            forms.clear()
        forms[form] = tuple([hashable(v) for v in op.bound(args, options)[1].values()])


def several_inputs(op: Any) -> Callable[..., Any]:
    calls, general, of_tensors, least, most = op.calls, op.general, op.of_tensors, op.required, len(op.inputs)
    forms: dict[Any, tuple] = {}  # see one_input()

    def function(*args: Any, **options: Any) -> Any:
        count = len(args)
        if options or count < least:
            return general(args, options)
        form = key = None
        try:
            if count > most:  # attributes as well
                xs, values = args[:most], args[most:]
                form = (values, *map(type, values))
                key = (tuple([None if x is None else x.spec for x in xs]), *forms[form])
            else:
                xs = args if count == most else args + (None,) * (most - count)
                key = tuple([None if x is None else x.spec for x in xs])
            known = calls[thread.modes.recording].get(key)
        except (KeyError, AttributeError, TypeError):  # a new form, an input that is no Tensor yet, or an attribute without a hash
            known = None
        if known is None:
            if form is None and key is not None:
                return of_tensors(xs, op.attributes, key)
            y = general(args, options)
            if form is not None:
                remember(op, forms, form, args, options)
            return y
        given = [None if x is None else x.buffer for x in xs]
        known.run(given)
        return known.finish(known, xs, given, known.attributes)

    return function


def checked(op: Any, one: bool) -> Callable[..., Any]:
    """For flamepy's own functions, which give every argument by position, attributes in a fixed form."""
    calls, general, of_tensors, count, most = op.calls, op.general, op.of_tensors, len(op.inputs), len(op.positional)

    def function(*args: Any, **options: Any) -> Any:
        try:
            if one:
                x, *rest = args
                specs: tuple[Any, ...] = (x.spec,)
                known = calls[thread.modes.recording].get((x.spec, *rest))
            else:
                specs = tuple([None if x is None else x.spec for x in args[:count]])
                known = calls[thread.modes.recording].get((*specs, *args[count:]))
        except (AttributeError, TypeError):  # no Tensor, or an attribute without a hash
            return general(args, options)
        xs = args[:count]
        if known is None or options:
            if options or len(args) != most:
                return general(args, options)
            return of_tensors(xs, dict(zip(op.attributes, args[count:], strict=True)), specs)
        given = [x.buffer] if one else [None if x is None else x.buffer for x in xs]
        known.run(given)
        return known.finish(known, xs, given, known.attributes)

    return function
