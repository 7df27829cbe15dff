"""Clipping: gradients are made smaller when their joint norm, one of their norms, or their elements are too large.

`grads` is a GradientMap, or a ParameterDict / iterable of Parameters (then their `.grad`). What counts are the gradients of Parameters:
those of inputs and of tensors with retain_grad() are in the map to be looked at. Gradients of packed parameters are one launch for the
norm and one for the scaling, or none: the optimizer multiplies as it reads, while nobody has looked at them.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from ..backend.base import FINITE, Buffer
from ..backend.formula.clip import NORM, NORMS, USE
from ..core.clip import limit_y
from ..core.errors import NonFiniteError
from ..core.words import select
from ..dtypes import checked_dict, checked_number
from ..engine.kept import number
from ..engine.marks import scale_by_factor
from ..gradient import GradientMap
from .norm import Places, labels_of, listed, norm_of, places_of, result_of, split
from .transforms import ClipEdit, checked_limit

POLICIES = {"raise": (1.0, 1.0), "skip": (1.0, 0.0), "zero": (0.0, 1.0)}  # what a norm that is not finite gives: factor, whether to use


def clip_grad_norm(grads: Any, max_norm: float | None, norm_type: float = 2.0, nonfinite: str = "raise", params: Any = None) -> Any:
    """Scale all gradients by max_norm / (norm + 1e-6) if their joint norm exceeds max_norm; returns the norm before.

    The result is a float, a ClipResult: it also knows each gradient's norm, the factor, and what was not finite. max_norm 0 or None only
    measures. A norm that is NaN or inf: "raise" NonFiniteError naming the parameters (gradients stay), "skip" returns it and marks the
    map (an optimizer's step with it changes nothing and returns False), "zero" sets every gradient to zero. `params` (a glob of names, a
    ParameterDict, a list) chooses among the parameters. (Pascanu et al. 2013, arXiv:1211.5063.)
    """
    return result_of(*clip_norm(grads, max_norm, norm_type, nonfinite, params))


def clip_norm(
    grads: Any, max_norm: float | None, norm_type: float = 2.0, nonfinite: str = "raise", params: Any = None
) -> tuple[Places, Buffer]:  # fmt: skip
    """clip_grad_norm(): which gradients they were, and what was found."""
    places, found = measured(grads, max_norm, norm_type, nonfinite, params)
    if max_norm and places.buffers:
        apply_factor(grads, places, found)
    return places, found


class ClipNorm(ClipEdit, of=clip_norm):
    """Limit the joint norm: clip_grad_norm(). `nonfinite`: "raise", "skip" (no step) or "zero"."""


def measured(grads: Any, max_norm: float | None, norm_type: float, nonfinite: str, params: Any) -> tuple[Places, Buffer]:
    """Which gradients, and the factor for them; no number of theirs is changed. Raises what clip_grad_norm() raises."""
    if not isinstance(nonfinite, str) or nonfinite not in POLICIES:
        raise ValueError(f"clip_grad_norm: unknown nonfinite: {nonfinite!r}. Use 'raise', 'skip' or 'zero'.")
    limit = checked_limit("clip_grad_norm", "max_norm", max_norm)
    places = places_of("clip_grad_norm", grads, params)
    found = norm_of(grads, places, norm_type, limit, *POLICIES[nonfinite])
    if limit and places.buffers:
        if nonfinite == "raise":
            require_finite(places, found, isinstance(grads, GradientMap) and grads.mark is not None)
        if nonfinite == "skip" or getattr(grads, "mark", None) is not None:
            for marked in [grads] if isinstance(grads, GradientMap) else places.gradients:
                marked.mark = found
    return places, found


def apply_factor(grads: Any, places: Places, found: Buffer) -> None:
    """Multiply the gradients by the factor found, or leave it to whoever reads them first."""
    if places.whole and grads.private:
        grads.factor = found
    else:
        for buffer, segments in places.once(places.segments):
            scale_by_factor(buffer, found, segments)


def require_finite(places: Places, found: Buffer, marked: bool) -> None:
    """Have NonFiniteError raised where the norm is not finite; `marked`: unless no step uses the gradients anyway."""
    judged = [found]
    if marked:
        judged.insert(0, found.device.empty(1, found.dtype))
        norm, use = (found.part(i, 1) for i in (NORM, USE))
        found.device.launch("map", used_y, judged[:1], (norm, use), (), found.dtype)
    found.device.require(partial(check_finite, places.ids, places.names), *judged, within=(FINITE,))


def used_y(norm, use):
    return select(use == 0.0, 0.0, norm)


def check_finite(ids: list[int], names: dict[int, str], judged: Buffer, *found: Buffer) -> None:
    """Raise NonFiniteError when the first number of `judged` is not finite; `found`: what the norms are, unless that is `judged`."""
    if math.isfinite(judged.device.download(judged)[NORM]):
        return
    numbers = judged.device.download(found[0] if found else judged)
    named = [label if label.startswith("tensor ") else f"'{label}'" for label in labels_of(ids, names)]
    bad = [label for label, norm in zip(named, numbers[NORMS:], strict=True) if not math.isfinite(norm)]
    where = f"{', '.join(bad)}{' (or by overflow of a sum)' if math.isinf(numbers[NORM]) else ''}" if bad else "the sum (overflow)"
    raise NonFiniteError(
        f"clip_grad_norm: gradients are not finite: norm {numbers[NORM]}, in {where}. "
        "Lower the learning rate, or pass nonfinite='skip' or 'zero'."
    )


def clip_grad_value(grads: Any, clip_value: float, params: Any = None) -> Any:
    """Limit every element to [-clip_value, clip_value] (NaN stays NaN); returns the largest absolute value before, a ClipResult.

    `params`: as in clip_grad_norm(). Raises ValueError for a limit that is negative or NaN.
    """
    return result_of(*clip_value_to(grads, clip_value, params))


def clip_value_to(grads: Any, value: float, params: Any = None) -> tuple[Places, Buffer]:
    """clip_grad_value(): which gradients they were, and what was found."""
    v = checked_number("clip_grad_value", "the value", value)
    if math.isnan(v) or v < 0:
        raise ValueError(f"clip_grad_value: the value must not be negative or NaN: {value}. Use a positive number.")
    places = places_of("clip_grad_value", grads, params)
    if isinstance(grads, GradientMap):
        grads.settle()
    found = norm_of(grads, places, math.inf)
    for (b,) in places.once():
        b.device.launch("map", limit_y, (b,), (b,), (number(v, b.dtype),), b.dtype)
        b.device.stream.after(lambda b, norm: None if b.device.download(norm)[NORM] <= v else b.wrote("clip_grad_value"), b, found)
    return places, found


class ClipValue(ClipEdit, of=clip_value_to):
    """Limit every element to [-value, value]: clip_grad_value()."""


def clip_grad_norm_by_group(
    grads: Any, limits: dict[str, float | None], norm_type: float = 2.0, nonfinite: str = "raise"
) -> dict[str, Any]:
    """Clip the gradients of each group by a joint norm of their own: {glob of names: max_norm}; a parameter belongs to the first glob
    that matches. Returns {glob: ClipResult}. Parameters that no glob matches are left alone; a glob without any raises StateError.
    Whatever raises has changed no gradient."""
    grads = grads if isinstance(grads, GradientMap) else listed("clip_grad_norm_by_group", grads)
    groups = split("clip_grad_norm_by_group", grads, checked_dict("clip_grad_norm_by_group", limits))
    for limit in limits.values():
        checked_limit("clip_grad_norm_by_group", "max_norm", limit)
    found = {glob: measured(grads, limits[glob], norm_type, nonfinite, keys) for glob, keys in groups.items()}
    for glob, (places, factor) in found.items():
        if limits[glob] and places.buffers:
            apply_factor(grads, places, factor)
    return {glob: result_of(*each) for glob, each in found.items()}


clip_grad_norm_ = clip_grad_norm
clip_grad_value_ = clip_grad_value
