"""Rowwise ops: a body that sees one row at a time, where every number of the result may depend on the whole row.

    def unit_row(r, y, norm, x, eps, rows, cols):        # y = x / |x|; norm: one number a row, which backward may name
        y, x = y[r * cols : r * cols + cols], x[r * cols : r * cols + cols]
        total = 0.0
        for j in range(lane(), cols, lanes()):
            total += x[j] * x[j]
        norm[r] = sqrt(all_sum(total)) + eps
        for j in range(lane(), cols, lanes()):
            y[j] = x[j] / norm[r]

    unit = rowwise("unit", unit_row, unit_dx_row, eps=1e-6)         # unit(x, axis=-1, eps=1e-6)

A body gets the row number r, flat arrays, numbers, then how many rows there are and how long each is. It shares a row between lanes with
the words lane lanes all_sum all_max barrier.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..core.custom import Custom
from ..core.errors import ShapeError
from ..core.op import SCALARS, arguments, launch, like, share
from ..core.ops.axes import one_axis
from ..definitions import compilable, try_body
from ..dtypes import FULL
from ..engine.forms import form
from ..engine.kept import number
from .rows import along, back

FIXED = ("r", "y", "x", "g", "dx", "rows", "cols", "axis")
POSITIONAL = inspect.Parameter.POSITIONAL_OR_KEYWORD


class Body(NamedTuple):
    """A row body, and what its arguments are: arrays it writes, arrays it reads, attributes."""

    function: Any
    outs: list[str]
    ins: list[str]
    numbers: list[str]

    def run(self, outs: Sequence[Any], ins: Sequence[Any], numbers: dict[str, Any], cols: int) -> None:
        """One launch over all rows of length `cols`; at least one array holds them whole."""
        rows = max(t.size for t in (*outs, *ins)) // cols if cols else 0
        if rows:
            launch("row", self.function, outs, ins, (*[numbers[n] for n in self.numbers], rows, cols))


def rowwise(name: str, body: Any, dx_body: Any = None, *, axis: int = -1, reduces: bool = False, **attributes: Any) -> Callable[..., Any]:
    """Define an op that works row by row along an axis; returns the function to call: `op(x, axis=axis, **attributes)`.
    body(r, y, *statistics, x, *attributes, rows, cols) writes its row of y, which has x's shape; with `reduces` it writes y[r] and the
    axis goes. A statistic is one number a row. dx_body(r, dx, *arrays, *attributes, rows, cols) writes its row of dx from what it names
    among g, x, y and the statistics: that is what the tape saves. Without it the op has no derivative; it has no second one in any case.
    `attributes` are numbers with their usual values. For what is checked see definitions.py; raises ValueError and TypeError."""
    for key, value in attributes.items():
        if key in FIXED or not isinstance(value, SCALARS):
            raise TypeError(f"{name}: not an attribute: {key}={value!r}. Give numbers, under names other than {', '.join(FIXED)}.")
    ahead = body_of(name, body, "y", ("x",), attributes)
    statistics = ahead.outs[1:]
    behind = None if dx_body is None else body_of(name, dx_body, "dx", ("g", "x", "y", *statistics), attributes)

    def forward(x: Any, axis: int, **given: Any) -> Any:
        shape = x.shape
        x, a = along(name, x, axis)
        y = like(x, (*x.shape[:-1], 1)) if reduces else like(x)
        cols = x.shape[-1] if x.ndim else 1
        if y.size and not cols:
            raise ShapeError(f"{name}: rows without elements: shape {shape}. Give the axis at least one element.")
        more = {n: like(x, (x.size // cols if cols else 0,)) for n in statistics}
        ahead.run((y, *more.values()), (x,), typed_numbers(name, attributes, given, x.dtype), cols)
        y = back(y, a)
        return share(y, with_size(shape, a, ())) if reduces else y, more

    # The op is its user's: of that module, and replaced when the user defines it again. What runs is known here, so calls are planned.
    forward.__name__, forward.__doc__, forward.__module__ = name, ahead.function.__doc__, ahead.function.__module__
    options = [inspect.Parameter(n, POSITIONAL, default=value) for n, value in (("axis", axis), *attributes.items())]
    signature = [inspect.Parameter("x", POSITIONAL), *options]
    forward.__signature__ = inspect.Signature(signature)  # type: ignore[attr-defined]
    op = form(takes=FULL)(Custom(forward, name, 1, "float", "", False))
    if behind is not None:
        op.backward(*rule_of(name, behind, attributes, reduces))
    return op.function


def rule_of(name: str, body: Body, attributes: dict[str, Any], reduces: bool) -> tuple[Callable, tuple[str, ...]]:
    """The backward rule made of a body, and the names it is called with."""
    names = tuple(dict.fromkeys(("g", "shapes", "axis", *body.ins, *attributes)))

    def rule(*values: Any) -> Any:
        known = dict(zip(names, values, strict=True))
        axis, shape = known["axis"], known["shapes"][0]
        a = one_axis(name, axis, len(shape))
        for n in body.ins:
            if n in ("g", "x", "y"):
                t = known[n] if n == "x" or not reduces else share(known[n], with_size(shape, a, (1,)))
                known[n], _ = along(name, t, axis)
        turned = list(shape)
        if shape:
            turned[a], turned[-1] = turned[-1], turned[a]
        dx = like(known["g"], turned)
        body.run((dx,), [known[n] for n in body.ins], typed_numbers(name, attributes, known, dx.dtype), turned[-1] if turned else 1)
        return back(dx, a)

    return rule, names


def with_size(shape: Sequence[int], a: int, size: tuple[int, ...]) -> tuple[int, ...]:
    """The shape with another size at an axis, or without the axis; a scalar has none."""
    return (*shape[:a], *size, *shape[a + 1 :]) if shape else ()


def body_of(name: str, function: Any, first: str, arrays: Sequence[str], attributes: dict[str, Any]) -> Body:
    """A body that is checked: r, arrays it writes, arrays it reads, attributes, rows, cols. Raises ValueError and TypeError."""
    function = compilable(name, function, True)
    names, defaults = arguments(function)
    middle = list(names[1:-2])
    ins, numbers = [n for n in middle if n in arrays], [n for n in middle if n in attributes]
    outs = [n for n in middle if n not in arrays and n not in attributes]
    ends = names[:1] + names[-2:] == ("r", "rows", "cols") and outs[:1] == [first] and arrays[0] in ins and not defaults
    if not ends or middle != outs + ins + numbers or (first == "dx" and len(outs) > 1):
        form = "r, y, any statistics, x" if first == "y" else f"r, dx, g, any of {', '.join(arrays[1:])}"
        raise ValueError(
            f"{name}: the arguments of {function.__name__} are not what a body gets: {inspect.signature(function)}. "
            f"Write ({form}, any of the attributes, rows, cols); attributes given to rowwise: {', '.join(attributes) or 'none'}."
        )
    try_body(name, function, len(outs) + len(ins), [attributes[n] for n in numbers])
    return Body(function, outs, ins, numbers)


def typed_numbers(name: str, usual: dict[str, Any], given: dict[str, Any], dtype: np.dtype) -> dict[str, Any]:
    """Attributes as kernels take them: floats in the rows' dtype, whole numbers and bools as they are."""
    found: dict[str, Any] = {}
    for n, old in usual.items():
        value, whole = given[n], isinstance(old, int)
        if not isinstance(value, SCALARS) or (whole and isinstance(value, float | np.floating)):
            raise TypeError(f"{name}: not a {type(old).__name__}: {n}={value!r}. Pass one.")
        found[n] = type(old)(value) if whole else number(value, dtype)
    return found
