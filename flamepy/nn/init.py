"""First numbers of parameters: each function overwrites a Parameter with set_data() and returns it.

Random ones draw from flamepy's generator, so `manual_seed` fixes them. fan_in and fan_out are the numbers of inputs and
outputs of one unit of a weight (out, in, ...).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import creation
from ..advice import missing_in as _missing_in
from ..core.errors import DTypeError, ShapeError
from ..dtypes import checked_number
from ..parameter import Parameter
from ..tensors import Tensor, full_like, tensor

GAINS = {"linear": 1.0, "conv2d": 1.0, "sigmoid": 1.0, "tanh": 5 / 3, "relu": math.sqrt(2), "selu": 0.75}


def gain(nonlinearity: str, a: float = 0.0) -> float:
    """The factor that keeps the variance through a nonlinearity; `a` is the slope of leaky_relu."""
    if nonlinearity == "leaky_relu":
        return math.sqrt(2 / (1 + checked_number("init", "a", a) ** 2))
    if not isinstance(nonlinearity, str) or nonlinearity not in GAINS:
        raise ValueError(f"init: unknown nonlinearity: {nonlinearity!r}. Use leaky_relu or one of {', '.join(GAINS)}.")
    return GAINS[nonlinearity]


def fans(p: Tensor) -> tuple[int, int]:
    """(fan_in, fan_out) of a weight. Raises ShapeError for one with fewer than two axes."""
    if parameter(p).ndim < 2:
        raise ShapeError(f"init: fan_in and fan_out need two axes: shape {p.shape}. Use normal(), uniform() or zeros().")
    taps = math.prod(p.shape[2:])
    return p.shape[1] * taps, p.shape[0] * taps


def parameter(p: Any) -> Parameter:
    """p itself; DTypeError where it is no Parameter."""
    if not isinstance(p, Parameter):
        raise DTypeError(f"init: not a Parameter: {type(p).__name__}. Pass layer.weight, or Parameter(tensor).")
    return p


def filled(p: Parameter, data: Tensor) -> Parameter:
    """p with these numbers, of its shape."""
    p.set_data(data)
    return p


def normal(p: Parameter, mean: float = 0.0, std: float = 1.0) -> Parameter:
    """Normal numbers of that mean and standard deviation."""
    return filled(p, creation.randn_like(parameter(p), mean, std))


def uniform(p: Parameter, low: float = 0.0, high: float = 1.0) -> Parameter:
    """Uniform numbers in [low, high)."""
    return filled(p, creation.uniform_like(parameter(p), low, high))


def constant(p: Parameter, value: float) -> Parameter:
    """The same number everywhere."""
    return filled(p, full_like(parameter(p), value))


def zeros(p: Parameter) -> Parameter:
    """0 everywhere."""
    return constant(p, 0.0)


def ones(p: Parameter) -> Parameter:
    """1 everywhere."""
    return constant(p, 1.0)


def xavier_normal(p: Parameter, gain: float = 1.0) -> Parameter:
    """Normal, variance 2 gain^2 / (fan_in + fan_out) (Glorot & Bengio 2010)."""
    return normal(p, 0.0, checked_number("init", "gain", gain) * math.sqrt(2 / max(1, sum(fans(p)))))


def xavier_uniform(p: Parameter, gain: float = 1.0) -> Parameter:
    """Uniform, variance 2 gain^2 / (fan_in + fan_out)."""
    bound = checked_number("init", "gain", gain) * math.sqrt(6 / max(1, sum(fans(p))))
    return uniform(p, -bound, bound)


def kaiming_std(p: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"init: unknown mode: {mode!r}. Use 'fan_in' or 'fan_out'.")
    return gain(nonlinearity, a) / math.sqrt(max(1, fans(p)[mode == "fan_out"]))


def kaiming_normal(p: Parameter, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> Parameter:
    """Normal, variance gain^2 / fan (He et al. 2015, arXiv:1502.01852)."""
    return normal(p, 0.0, kaiming_std(p, a, mode, nonlinearity))


def kaiming_uniform(p: Parameter, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> Parameter:
    """Uniform, variance gain^2 / fan."""
    bound = math.sqrt(3) * kaiming_std(p, a, mode, nonlinearity)
    return uniform(p, -bound, bound)


def orthogonal(p: Parameter, gain: float = 1.0) -> Parameter:
    """Rows (or columns, whichever are fewer) at right angles and of length `gain` (Saxe et al. 2013, arXiv:1312.6120)."""
    gain = checked_number("orthogonal", "gain", gain)  # before numbers are drawn
    if parameter(p).ndim < 2:
        raise ShapeError(f"orthogonal: needs two axes: shape {p.shape}. Use a matrix.")
    rows, cols = p.shape[0], math.prod(p.shape[1:])
    draw = creation.randn((max(rows, cols), min(rows, cols))).numpy().astype(np.float64)
    q, r = np.linalg.qr(draw)
    q *= np.where(np.diag(r) < 0, -1.0, 1.0)  # the signs LAPACK chooses would not be uniform
    return filled(p, tensor((gain * (q.T if rows < cols else q)).reshape(p.shape), device=p.device))


if not TYPE_CHECKING:
    __getattr__ = _missing_in("init", globals())  # PyTorch's names end in _
