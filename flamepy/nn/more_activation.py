"""More activations as modules: those without numbers, those with numbers or an axis of their own, and PReLU, whose slope is learnt."""

from __future__ import annotations

from typing import Any

from ..creation import full
from ..parameter import Parameter
from . import functional as F
from .activation import Activation, check_not_in_place
from .module import Module


class ReLU6(Activation):
    """x limited to [0, 6]."""

    op = "relu6"


class Mish(Activation):
    """x * tanh(softplus(x))."""

    op = "mish"


class Hardswish(Activation):
    """x * hardsigmoid(x)."""

    op = "hardswish"


class Hardsigmoid(Activation):
    """x / 6 + 1/2 limited to [0, 1]."""

    op = "hardsigmoid"


class SELU(Activation):
    """An elu whose numbers keep mean 0 and variance 1."""

    op = "selu"


class Softsign(Activation):
    """x / (1 + |x|)."""

    op = "softsign"


class LogSigmoid(Activation):
    """log(sigmoid(x))."""

    op = "logsigmoid"


class Tanhshrink(Activation):
    """x - tanh(x)."""

    op = "tanhshrink"


class Numbered(Module):
    """An op of F with numbers of its own: `names` are the attributes that forward hands on."""

    op = ""
    names: tuple[str, ...] = ()

    def forward(self, x: Any) -> Any:
        """x of any shape -> the op of it."""
        return getattr(F, self.op)(x, *[getattr(self, name) for name in self.names])

    def extra(self) -> str:
        return ", ".join([f"{name}={getattr(self, name)!r}" for name in self.names])


class LeakyReLU(Numbered):
    """x above zero, negative_slope * x below."""

    op, names = "leaky_relu", ("negative_slope",)

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False):
        check_not_in_place(self, inplace)
        self.negative_slope = negative_slope


class ELU(Numbered):
    """x above zero, alpha * (exp(x) - 1) below."""

    op, names = "elu", ("alpha",)

    def __init__(self, alpha: float = 1.0, inplace: bool = False):
        check_not_in_place(self, inplace)
        self.alpha = alpha


class CELU(ELU):
    """x above zero, alpha * (exp(x / alpha) - 1) below."""

    op = "celu"


class Softplus(Numbered):
    """log(1 + exp(beta * x)) / beta, and x itself where beta * x > threshold."""

    op, names = "softplus", ("beta", "threshold")

    def __init__(self, beta: float = 1.0, threshold: float = 20.0):
        self.beta, self.threshold = beta, threshold


class Hardtanh(Numbered):
    """x limited to [min_val, max_val]."""

    op, names = "hardtanh", ("min_val", "max_val")

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False):
        check_not_in_place(self, inplace)
        if min_val >= max_val:
            raise ValueError(f"Hardtanh: no range: min_val {min_val}, max_val {max_val}. Use min_val < max_val.")
        self.min_val, self.max_val = min_val, max_val


class Softshrink(Numbered):
    """x moved by lambd towards 0, and 0 within lambd of it."""

    op, names = "softshrink", ("lambd",)

    def __init__(self, lambd: float = 0.5):
        self.lambd = lambd


class Hardshrink(Softshrink):
    """x, and 0 within lambd of 0."""

    op = "hardshrink"


class Threshold(Numbered):
    """x where it is above threshold, `value` elsewhere."""

    op, names = "threshold", ("threshold", "value")

    def __init__(self, threshold: float, value: float, inplace: bool = False):
        check_not_in_place(self, inplace)
        self.threshold, self.value = threshold, value


class Softmax(Numbered):
    """exp(x), divided by its sum along the axis dim."""

    op, names = "softmax", ("dim",)

    def __init__(self, dim: int = -1):
        self.dim = dim


class LogSoftmax(Softmax):
    """The logarithm of softmax along the axis dim."""

    op = "log_softmax"


class Softmin(Softmax):
    """softmax(-x) along the axis dim."""

    op = "softmin"


class GLU(Softmax):
    """The first half along the axis dim times the sigmoid of the second."""

    op = "glu"


class PReLU(Module):
    """x above zero, weight * x below; `weight` is one slope or one for each channel (axis 1), and learnt."""

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None):
        self.weight = Parameter(full((num_parameters,), init, dtype, device))

    def forward(self, x: Any) -> Any:
        """x (N, channels, ...), or of any shape for one slope -> of the same shape."""
        return F.prelu(x, self.weight)

    def extra(self) -> str:
        return f"num_parameters={len(self.weight)}"
