"""First numbers of parameters: each function overwrites a Parameter with set_data() and returns it.

Random ones draw from flamepy's generator, so `manual_seed` fixes them. fan_in and fan_out are the numbers of inputs and
outputs of one unit of a weight (out, in, ...).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import creation, ops
from ..advice import missing_in as _missing_in
from ..core.errors import DTypeError, ShapeError
from ..dtypes import checked_number, is_count
from ..parameter import Parameter
from ..tensors import Tensor, full_like, tensor

CONVOLUTIONS = [f"conv{part}{n}d" for part in ("", "_transpose") for n in (1, 2, 3)]
GAINS = {
    "linear": 1.0, **dict.fromkeys(CONVOLUTIONS, 1.0), "sigmoid": 1.0, "tanh": 5 / 3, "relu": math.sqrt(2), "selu": 0.75,
}  # fmt: skip


def gain(nonlinearity: str, a: float = 0.0) -> float:
    """The factor that keeps the variance through a nonlinearity; `a` is the slope of leaky_relu."""
    if nonlinearity == "leaky_relu":
        return math.sqrt(2 / (1 + checked_number("init", "a", a) ** 2))
    if not isinstance(nonlinearity, str) or nonlinearity not in GAINS:
        raise ValueError(f"init: unknown nonlinearity: {nonlinearity!r}. Use leaky_relu or one of {', '.join(GAINS)}.")
    return GAINS[nonlinearity]


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """gain() under PyTorch's name; the slope of leaky_relu is 0.01 if not given."""
    return gain(nonlinearity, 0.01 if param is None else param)


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


def trunc_normal(p: Parameter, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0) -> Parameter:
    """Normal numbers of that mean and standard deviation between a and b: others are not drawn."""
    mean, std, a, b = (checked_number("trunc_normal", name, v) for name, v in (("mean", mean), ("std", std), ("a", a), ("b", b)))
    if not std > 0 or not a < b:
        raise ValueError(f"trunc_normal: no numbers between: std {std}, a {a}, b {b}. Use std above 0 and a below b.")
    low, high = (0.5 * (1 + math.erf((end - mean) / std / math.sqrt(2))) for end in (a, b))
    share = creation.uniform(parameter(p).shape, low, high, dtype="float64", device=p.device)
    drawn = ops.erfinv(share * 2.0 - 1.0) * (std * math.sqrt(2)) + mean
    return filled(p, ops.clip(drawn, a, b).to(p.dtype))


def eye(p: Parameter) -> Parameter:
    """The identity matrix, as far as it goes."""
    return filled(p, tensor(np.eye(two_axes("eye", p)[0], p.shape[1]), device=p.device))


def sparse(p: Parameter, sparsity: float, std: float = 0.01) -> Parameter:
    """Normal numbers, in each column the share `sparsity` of them zero (Martens 2010)."""
    rows, cols = two_axes("sparse", p)
    zeros, std = math.ceil(checked_number("sparse", "sparsity", sparsity) * rows), checked_number("sparse", "std", std)
    if not 0 <= zeros <= rows:
        raise ValueError(f"sparse: sparsity outside [0, 1]: {sparsity}. Use the share of zeros.")
    order = creation.rand((rows, cols)).numpy().argsort(axis=0)
    return filled(p, tensor(creation.randn((rows, cols), std=std).numpy() * (order >= zeros), device=p.device))


def dirac(p: Parameter, groups: int = 1) -> Parameter:
    """A convolution that hands its channels on, as many as there are: 1 in the middle of each one's own window."""
    if parameter(p).ndim not in (3, 4, 5) or not is_count(groups, 1) or p.shape[0] % groups:
        raise ShapeError(f"dirac: not a convolution's weight of {groups} groups: {p.shape}. Use (out, in, window ...), out a multiple.")
    numbers, own = np.zeros(p.shape), p.shape[0] // groups
    for i in range(min(own, p.shape[1])):
        place: Any = slice(i, None, own), i, *[n // 2 for n in p.shape[2:]]
        numbers[place] = 1.0
    return filled(p, tensor(numbers, device=p.device))


def two_axes(name: str, p: Any) -> tuple[int, ...]:
    if parameter(p).ndim != 2:
        raise ShapeError(f"{name}: no matrix: shape {p.shape}. Use a weight of two axes.")
    return p.shape


# PyTorch's names of these.
normal_, trunc_normal_, zeros_, ones_, eye_ = normal, trunc_normal, zeros, ones, eye
orthogonal_, sparse_, dirac_ = orthogonal, sparse, dirac
xavier_normal_, xavier_uniform_, kaiming_normal_, kaiming_uniform_ = xavier_normal, xavier_uniform, kaiming_normal, kaiming_uniform


def uniform_(p: Parameter, a: float = 0.0, b: float = 1.0) -> Parameter:
    return uniform(p, a, b)


def constant_(p: Parameter, val: float) -> Parameter:
    return constant(p, val)


if not TYPE_CHECKING:
    __getattr__ = _missing_in("init", globals())
