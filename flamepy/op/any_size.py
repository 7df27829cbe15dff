"""Pointwise calls on tensors of one shape, whatever it is: one plan for all sizes.

A program may see a new shape at every step (sentences, the last batch). Calls of its pointwise ops are then never alike, but what they
launch is: it is recorded once, for buffers as long as the first input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..autograd.entries import thread
from .base import Op
from .plan import ONCE, Call, CallRecorder, Kinds, plan_call, remember_key, run_once

NONE: dict[str, Any] = {}  # the attributes of most calls


def again(op: Op, xs: Sequence[Any], specs: tuple[Any, ...], key: Any, given: list[Any]) -> Any:
    """A call like others in all but its shape, which has not come before; None where it is not such a call, or nothing is launched.
    `given`: what its kernel gets, but for the numbers among the attributes."""
    recording = thread.modes.recording
    seen = op.seen[recording]
    form = op.forms.get((recording, *[spec and spec.kind for spec in specs]))
    if not form or hash(key) in seen or not (specs[0] or specs[1]).size:
        return None
    remember_key(seen, key)
    return of_size(form, xs, specs, given, NONE)


def first(
    op: Op, xs: Sequence[Any], attributes: dict[str, Any], numbers: Any, specs: Any, kinds: Kinds, names: Sequence[str] | None,
) -> Any:  # fmt: skip
    """A pointwise call whose shape has not come before; see plan.run_once(), which does what is left."""
    one = common(specs)
    if one is None:  # they broadcast, or are empty
        return run_once(op, xs, attributes, numbers, specs, kinds, names)
    key = thread.modes.recording, *[spec and spec.kind for spec in specs]
    form = op.forms.get(key)
    if form is None:
        if len(op.forms) >= ONCE:  # specs are forgotten now and then
            op.forms.clear()
        op.forms[key] = False  # until it is known to be possible
        return plan_call(op, xs, attributes, numbers, specs, kinds, names, lambda made, recorder: keep(op, key, made, recorder, one.size))
    if not form:
        return run_once(op, xs, attributes, numbers, specs, kinds, names)
    given = [x if spec is None else x.buffer for x, spec in zip(xs, specs, strict=True)]
    return of_size(form, xs, specs, [*given, *numbers], attributes)


def common(specs: Sequence[Any]) -> Any:
    """The spec of the last tensor, if all have its shape and it has elements; else None."""
    one: Any = None
    for spec in specs:
        if spec is not None:
            if one is not None and spec.shape != one.shape:
                return None
            one = spec
    return one if one.size else None


def of_size(form: Call, xs: Sequence[Any], specs: tuple[Any, ...], given: list[Any], attributes: dict[str, Any]) -> Any:
    """The call that `form` is, for inputs of this shape."""
    shape = (specs[0] or specs[1]).shape
    saved = [None if spec is None else spec.of_shape(shape) for _, spec in form.saved]
    made = form.of(specs, [form.outs[0].of_shape(shape)], saved)
    made.run, made.any_size, made.backwards = form.run, True, form.backwards
    made.run(given)
    return made.finish(made, xs, given, attributes)


def keep(op: Op, key: Any, made: Call, recorder: CallRecorder, size: int) -> None:
    """Make a recorded call of this size one for all sizes, and remember it."""
    run = recorder.for_any_size(size)
    if run is not None:
        made.run, made.any_size = run, True
        op.forms[key] = made
