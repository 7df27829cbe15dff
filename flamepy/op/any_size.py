"""Pointwise calls on tensors of one shape, whatever it is: one plan for all sizes.

A program may see a new shape at every step (sentences, the last batch). Calls of its pointwise ops are then never alike, but what they
launch is: it is recorded once, for buffers as long as the first input. Read next: rules.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .base import Op
from .plan import Call, CallRecorder, Kinds, finish, plan_call, run_once


def first(
    op: Op, xs: Sequence[Any], attributes: dict[str, Any], numbers: Any, specs: Any, kinds: Kinds, names: Sequence[str] | None,
) -> Any:  # fmt: skip
    """A pointwise call whose shape has not come before; see plan.run_once(), which does what is left."""
    one: Any = None
    for spec in specs:
        if spec is not None:
            if one is not None and spec.shape != one.shape:  # they broadcast
                return run_once(op, xs, attributes, numbers, specs, kinds, names)
            one = spec
    key = names, *[None if spec is None else spec.kind for spec in specs]
    form = op.forms.get(key)
    if form is None and one.size:
        op.forms[key] = False  # until it is known to be possible
        return plan_call(op, xs, attributes, numbers, specs, kinds, names, lambda made, recorder: keep(op, key, made, recorder, one.size))
    if not form or not one.size:
        return run_once(op, xs, attributes, numbers, specs, kinds, names)
    shape = one.shape
    saved = [None if spec is None else spec.of_shape(shape) for _, spec in form.saved]
    made = form.of(specs, [spec.of_shape(shape) for spec in form.outs], saved)
    made.run, made.any_size, made.backwards = form.run, True, form.backwards
    made.places, made.keeps, made.constants = form.places, form.keeps, form.constants
    given = [x if spec is None else x.buffer for x, spec in zip(xs, specs, strict=True)]
    given += numbers
    made.run(given)
    return finish(made, xs, given, attributes)


def keep(op: Op, key: Any, made: Call, recorder: CallRecorder, size: int) -> None:
    """Remember a recorded call of this size for all sizes."""
    run = recorder.for_any_size(size)
    if run is not None:
        form = made.of(made.ins, made.outs, [spec for _, spec in made.saved])
        form.run, form.backwards, form.places, form.keeps, form.constants = run, {}, made.places, made.keeps, made.constants
        op.forms[key] = form
