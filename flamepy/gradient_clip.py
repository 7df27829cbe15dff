"""Clipping: one joint norm over all gradients, and scaling when it is too large.

`grads` is a GradientMap, or a ParameterDict / iterable of Parameters (then their `.grad`). Sums are in float64 and in a fixed
order. Gradients of packed parameters are one launch for the norm and one for the scaling.

FLAME counterpart: `flame_core::gradient_clip`. Read next: optimizers/base.py.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .backend.base import Buffer, device
from .backend.formula.words import abs, maximum, minimum, pow
from .dtypes import float64
from .errors import DeviceError, FlameWarning, NonFiniteError
from .gradient import GradientMap, label_of, no_factor, scale_by_factor
from .parameter import Parameter


def square_size(x):
    return x * x


def absolute_size(x):
    return abs(x)


def power_size(x, p):
    return pow(abs(x), p)


def limit_y(x, v):
    return minimum(maximum(x, -v), v)


def named_gradients(name: str, grads: Any) -> list[tuple[Any, Any]]:
    """(key of a map or label, gradient) of every gradient there is; a parameter listed twice counts once."""
    if isinstance(grads, GradientMap):
        return list(grads._gradients.items())
    ps = [grads] if isinstance(grads, Parameter) else grads.parameters() if hasattr(grads, "parameters") else list(grads)
    if isinstance(grads, Iterator) and not ps:
        warnings.warn(f"{name}: the iterator is exhausted: no parameters. Pass a list.", FlameWarning, stacklevel=3)
    for p in ps:
        if not isinstance(p, Parameter):
            raise TypeError(f"{name}: not a Parameter: {type(p).__name__}. Pass a GradientMap, a ParameterDict or a list of Parameters.")
    found = [(f"'{p.name}'" if p.name else p.label, g) for p in dict.fromkeys(ps) if (g := p.kept_grad()) is not None]
    if ps and not found:
        what = f"{name}: no parameter holds a gradient: {len(ps)} given. Pass the map that loss.backward() returned."
        warnings.warn(what, FlameWarning, stacklevel=3)
    return found


def regions(name: str, grads: Any, found: list[tuple[str, Any]]) -> list[Buffer]:
    """The memory to go over: whole spans where every gradient of the map lies in one, else each gradient's own. Raises DeviceError
    unless it is all on one device."""
    packed = isinstance(grads, GradientMap) and grads.packed
    buffers = [span for _, span in grads.spans] if packed else [g.buffer for _, g in found if g.size]
    devices = {b.device for b in buffers}
    if len(devices) > 1:
        names = ", ".join(sorted([d.name for d in devices]))
        raise DeviceError(f"{name}: gradients are on two devices: {names}. Pass those of one device at a time.")
    return buffers


def norm_of(grads: Any, buffers: list[Buffer], norm_type: float, limit: float = 0.0, other: float = 1.0) -> Buffer:
    """(norm, clip factor) of all the buffers, in a buffer; see norm_factor() in spans.py for `limit` and `other`. A factor that an
    earlier clipping of `grads` left to be applied is part of both."""
    p = float(norm_type)
    if not p > 0:
        raise ValueError(f"grad_norm: norm_type must be positive: {norm_type}. Use 1, 2, any p > 0 or inf.")
    on = buffers[0].device if buffers else device()
    found = on.empty(2, float64)
    formula, numbers = (absolute_size, ()) if p == math.inf else SIZES.get(p, (power_size, (p,)))
    before = getattr(grads, "factor", None) or no_factor(on)
    order = 0.0 if p == math.inf else p
    on.launch("norm", formula, (found,), (before, *buffers), (order, limit, other, *numbers), float64)
    return found


SIZES: dict[float, tuple[Callable, tuple]] = {2.0: (square_size, ()), 1.0: (absolute_size, ())}


def grad_norm(grads: Any, norm_type: float = 2.0) -> float:
    """The joint norm of all gradients: (sum of |g|^p)^(1/p), or the largest |g| for inf. 0.0 when there are none."""
    found = norm_of(grads, regions("grad_norm", grads, named_gradients("grad_norm", grads)), norm_type)
    norm: float = found.device.stream.number(found)
    return norm


def clip_grad_norm(grads: Any, max_norm: float | None, norm_type: float = 2.0, nonfinite: str = "raise") -> float:
    """Scale all gradients by max_norm / (norm + 1e-6) if their joint norm exceeds max_norm; returns the norm before.

    max_norm 0 or None only measures. A norm that is NaN or inf: "raise" NonFiniteError naming the parameters (gradients stay),
    "skip" returns it, "zero" also sets every gradient to zero. (Pascanu et al. 2013, arXiv:1211.5063.) The gradients of a
    packed model that nobody has looked at are scaled when the optimizer reads them, or when somebody does look.
    """
    if nonfinite not in ("raise", "skip", "zero"):
        raise ValueError(f"clip_grad_norm: unknown nonfinite: {nonfinite!r}. Use 'raise', 'skip' or 'zero'.")
    limit = 0.0 if max_norm is None else float(max_norm)
    if math.isnan(limit) or limit < 0:
        raise ValueError(f"clip_grad_norm: max_norm must not be negative or NaN: {max_norm}. Use a positive number, or None for off.")
    gradients = named_gradients("clip_grad_norm", grads)
    buffers = regions("clip_grad_norm", grads, gradients)
    found = norm_of(grads, buffers, norm_type, limit, 0.0 if nonfinite == "zero" else 1.0)
    stream = found.device.stream
    if limit and buffers:
        if nonfinite == "raise":
            keys, names = [key for key, _ in gradients], getattr(grads, "names", {})  # not the map, which would hold its gradients
            stream.after(lambda found, *parts: check_finite(keys, names, found, parts), found, *[g.buffer for _, g in gradients])
        if isinstance(grads, GradientMap) and grads.private and grads.packed:
            grads.factor = found
        else:
            for buffer in {id(b): b for b in buffers}.values():
                scale_by_factor(buffer, found)
    norm: float = stream.number(found)
    return norm


def check_finite(keys: list[Any], names: dict[int, str], found: Buffer, gradients: tuple[Buffer, ...]) -> None:
    """Raise NonFiniteError when the norm is not finite."""
    norm = found.device.download(found)[0]
    if not math.isfinite(norm):
        bad = [key for key, g in zip(keys, gradients, strict=True) if not np.isfinite(g.device.download(g)).all()]
        bad = [key if isinstance(key, str) else label_of(key, names.get(key, "")) for key in bad]
        raise NonFiniteError(
            f"clip_grad_norm: gradients are not finite: norm {norm}, in {', '.join(bad) or 'the sum (overflow)'}. "
            "Lower the learning rate, or pass nonfinite='skip' or 'zero'."
        )


def clip_grad_value(grads: Any, clip_value: float) -> float:
    """Limit every element to [-clip_value, clip_value] (NaN stays NaN); returns the largest absolute value before."""
    v = float(clip_value)
    if math.isnan(v) or v < 0:
        raise ValueError(f"clip_grad_value: the value must not be negative or NaN: {clip_value}. Use a positive number.")
    buffers = regions("clip_grad_value", grads, named_gradients("clip_grad_value", grads))
    if isinstance(grads, GradientMap):
        grads.settle()
    found = norm_of(grads, buffers, math.inf)
    for b in {id(b): b for b in buffers}.values():
        b.device.launch("map", limit_y, (b,), (b,), (b.dtype.type(v),), b.dtype)
        b.device.stream.after(lambda b, norm: None if b.device.download(norm)[0] <= v else b.wrote("clip_grad_value"), b, found)
    largest: float = found.device.stream.number(found)
    return largest


clip_grad_norm_ = clip_grad_norm
clip_grad_value_ = clip_grad_value
