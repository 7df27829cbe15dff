"""Clipping a GradientMap: all gradients scaled by their joint norm, or each number limited."""

from __future__ import annotations

import math

import numpy as np

from .errors import NonFiniteError
from .gradients import GradientMap, scale_buffer
from .words import maximum, minimum


def limit_y(x, v):
    return minimum(maximum(x, -v), v)


def clip_grad_norm(grads: GradientMap, max_norm: float) -> float:
    """Scale all gradients by max_norm / (norm + 1e-6) if their joint norm exceeds max_norm; returns the norm before (Pascanu et al. 2013,
    arXiv:1211.5063). What counts are the gradients of Parameters, where there are some. Raises NonFiniteError for NaN or inf, before a
    number is changed."""
    counted = list(grads.counted().values())
    norm = math.sqrt(math.fsum([float(np.sum(np.square(g.device.download(g.buffer), dtype=np.float64))) for g in counted]))
    if not math.isfinite(norm):
        raise NonFiniteError(f"clip_grad_norm: the norm is not finite: {norm}. Lower the learning rate, or look for the first NaN.")
    if norm > max_norm:
        for buffer in {id(g.buffer): g.buffer for g in counted}.values():  # a gradient inserted twice: once
            scale_buffer(buffer, max_norm / (norm + 1e-6), "clip_grad_norm")
    return norm


def clip_grad_value(grads: GradientMap, value: float) -> None:
    """Limit each number of all gradients to [-value, value]."""
    for g in grads.counted().values():
        g.device.launch("map", limit_y, (g.buffer,), (g.buffer,), (g.dtype.type(value),), g.dtype)
        g.buffer.wrote("clip_grad_value")
