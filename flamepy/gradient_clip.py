"""Clipping: one joint norm over all gradients, and scaling when it is too large.

`grads` is a GradientMap, or a ParameterDict / iterable of Parameters (then their `.grad`). Sums are in float64 and in a fixed
order. Gradients of packed parameters are one launch for the norm and one for the scaling.

May import: errors, backend, gradient, op, ops, tensors, parameter. FLAME counterpart: `flame_core::gradient_clip`.
Read next: optimizers/base.py.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .backend.base import Buffer, float64
from .backend.plans import span_table
from .backend.words import abs, maximum, minimum, pow
from .errors import FlameWarning, NonFiniteError
from .gradient import GradientMap, scale_y
from .op import launch, new
from .parameter import Parameter


def square_size(x):
    return x * x


def absolute_size(x):
    return abs(x)


def power_size(x, p):
    return pow(abs(x), p)


def limit_y(x, v):
    return minimum(maximum(x, -v), v)


def named_gradients(name: str, grads: Any) -> list[tuple[str, Any]]:
    """(label, gradient) of every gradient there is; a parameter listed twice counts once."""
    if isinstance(grads, GradientMap):
        return [(grads.label(key), g) for key, g in grads.items()]
    ps = [grads] if isinstance(grads, Parameter) else grads.parameters() if hasattr(grads, "parameters") else list(grads)
    if isinstance(grads, Iterator) and not ps:
        warnings.warn(f"{name}: the iterator is exhausted: no parameters. Pass a list.", FlameWarning, stacklevel=3)
    for p in ps:
        if not isinstance(p, Parameter):
            raise TypeError(f"{name}: not a Parameter: {type(p).__name__}. Pass a GradientMap, a ParameterDict or a list of Parameters.")
    return [(f"'{p.name}'" if p.name else p.label, p.grad) for p in dict.fromkeys(ps) if p.grad is not None]


def regions(grads: Any, found: list[tuple[str, Any]]) -> list[Buffer]:
    """The memory to go over: whole spans where every gradient of the map lies in one, else each gradient's own."""
    if isinstance(grads, GradientMap) and grads.spans and sum(span.size for _, span in grads.spans) == sum(g.size for _, g in found):
        return [span for _, span in grads.spans]
    return [g.buffer for _, g in found if g.size]


def fold_regions(loop: str, formula: Callable, buffers: list[Buffer], *consts: float) -> np.ndarray:
    """The result of every task over all the buffers, in order."""
    parts = []
    for buffer in buffers:
        table = span_table(((0, buffer.size),))
        out = new((table.size // 3,), float64, buffer.device)
        where = buffer.device
        where.stream.run(where.kernel(loop, formula, float64), buffer.size, (out.buffer,), (buffer,), (where.constant(table), *consts))
        parts.append(out.numpy())
    return np.concatenate(parts) if parts else np.zeros(0)


def map_regions(formula: Callable, buffers: list[Buffer], value: float, by: str) -> None:
    """Apply a formula with one constant to the buffers, in place; to memory that is listed twice, once."""
    for buffer in {id(b): b for b in buffers}.values():
        where = buffer.device
        table = where.constant(span_table(((0, buffer.size),)))
        kernel = where.kernel("span_map", formula, buffer.dtype)
        where.stream.run(kernel, buffer.size, (buffer,), (buffer,), (table, buffer.dtype.type(value)))
        buffer.wrote(by)


def norm_of(buffers: list[Buffer], norm_type: float) -> float:
    p = float(norm_type)
    if not p > 0:
        raise ValueError(f"grad_norm: norm_type must be positive: {norm_type}. Use 1, 2, any p > 0 or inf.")
    if p == math.inf:
        return float(np.max(fold_regions("span_max", absolute_size, buffers), initial=0.0))
    if p == 2:
        return math.sqrt(np.sum(fold_regions("span_sum", square_size, buffers)))
    if p == 1:
        return float(np.sum(fold_regions("span_sum", absolute_size, buffers)))
    return float(np.sum(fold_regions("span_sum", power_size, buffers, p)) ** (1.0 / p))


def grad_norm(grads: Any, norm_type: float = 2.0) -> float:
    """The joint norm of all gradients: (sum of |g|^p)^(1/p), or the largest |g| for inf. 0.0 when there are none."""
    return norm_of(regions(grads, named_gradients("grad_norm", grads)), norm_type)


def clip_grad_norm(grads: Any, max_norm: float | None, norm_type: float = 2.0, nonfinite: str = "raise") -> float:
    """Scale all gradients by max_norm / (norm + 1e-6) if their joint norm exceeds max_norm; returns the norm before.

    max_norm 0 or None only measures. A norm that is NaN or inf: "raise" NonFiniteError naming the parameters (gradients stay),
    "skip" returns it, "zero" also sets every gradient to zero. (Pascanu et al. 2013, arXiv:1211.5063.)
    """
    if nonfinite not in ("raise", "skip", "zero"):
        raise ValueError(f"clip_grad_norm: unknown nonfinite: {nonfinite!r}. Use 'raise', 'skip' or 'zero'.")
    limit = 0.0 if max_norm is None else float(max_norm)
    if math.isnan(limit) or limit < 0:
        raise ValueError(f"clip_grad_norm: max_norm must not be negative or NaN: {max_norm}. Use a positive number, or None for off.")
    found = named_gradients("clip_grad_norm", grads)
    buffers = regions(grads, found)
    norm = norm_of(buffers, norm_type)
    if limit == 0.0:
        return norm
    if not math.isfinite(norm):
        if nonfinite == "raise":
            bad = [label for label, g in found if not np.isfinite(g.numpy()).all()]
            raise NonFiniteError(
                f"clip_grad_norm: gradients are not finite: norm {norm}, in {', '.join(bad) or 'the sum (overflow)'}. "
                "Lower the learning rate, or pass nonfinite='skip' or 'zero'."
            )
        if nonfinite == "zero":
            for _, g in found:
                if g.size:
                    launch("fill", None, (g,), (), (g.dtype.type(0),))
                g.buffer.wrote("clip_grad_norm")
        return norm
    if norm > limit:
        map_regions(scale_y, buffers, limit / (norm + 1e-6), "clip_grad_norm")
    return norm


def clip_grad_value(grads: Any, clip_value: float) -> float:
    """Limit every element to [-clip_value, clip_value] (NaN stays NaN); returns the largest absolute value before."""
    v = float(clip_value)
    if math.isnan(v) or v < 0:
        raise ValueError(f"clip_grad_value: the value must not be negative or NaN: {clip_value}. Use a positive number.")
    buffers = regions(grads, named_gradients("clip_grad_value", grads))
    largest = norm_of(buffers, math.inf)
    if not largest <= v:
        map_regions(limit_y, buffers, v, "clip_grad_value")
    return largest


clip_grad_norm_ = clip_grad_norm
clip_grad_value_ = clip_grad_value
