"""The other activations as modules, and softmax along an axis. Names and options are PyTorch's; `inplace` is refused."""

from __future__ import annotations

from typing import Any

from ..core.creation import full, uniform
from ..core.errors import ShapeError
from ..core.ops.pointwise import mul, where
from ..dtypes import checked_number
from ..parameter import Parameter
from . import functional as F
from .activation import Activation, Named, Options, check_not_in_place
from .module import Module


# ---- without options -----------------------------------------------------------------------------------------------------------------
class ReLU6(Activation, op="relu6"):
    """x limited to [0, 6]."""


class Hardsigmoid(Activation, op="hardsigmoid"):
    """x / 6 + 1/2 limited to [0, 1]."""


class Hardswish(Activation, op="hardswish"):
    """x * hardsigmoid(x)."""


class Mish(Activation, op="mish"):
    """x * tanh(softplus(x))."""


class SELU(Activation, op="selu"):
    """scale * elu(x, alpha), which keeps mean 0 and variance 1."""


class Softsign(Activation, op="softsign"):
    """x / (1 + |x|)."""


class LogSigmoid(Activation, op="logsigmoid"):
    """log(sigmoid(x))."""


class Tanhshrink(Activation, op="tanhshrink"):
    """x - tanh(x)."""


# ---- with options ----------------------------------------------------------------------------------------------------------------------
class LeakyReLU(Options, op="leaky_relu"):
    """x above zero, negative_slope * x below."""

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False):
        check_not_in_place(self, inplace)
        self.keep(negative_slope=negative_slope)


class ELU(Options, op="elu"):
    """x above zero, alpha * (exp(x) - 1) below."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False):
        check_not_in_place(self, inplace)
        self.keep(alpha=alpha)


class CELU(ELU, op="celu"):
    """x above zero, alpha * (exp(x / alpha) - 1) below."""


class Hardtanh(Options, op="hardtanh"):
    """x limited to [min_val, max_val]."""

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False):
        check_not_in_place(self, inplace)
        self.keep(min_val=min_val, max_val=max_val)


class Softplus(Options, op="softplus"):
    """log(1 + exp(beta x)) / beta, and x itself where beta x > threshold."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0):
        self.keep(beta=beta, threshold=threshold)


class Softshrink(Options, op="softshrink"):
    """x moved by lambd towards 0, and 0 within lambd of it."""

    def __init__(self, lambd: float = 0.5):
        self.keep(lambd=lambd)


class Hardshrink(Softshrink, op="hardshrink"):
    """x, and 0 within lambd of 0."""


class Threshold(Options, op="threshold"):
    """x above the threshold, `value` elsewhere."""

    def __init__(self, threshold: float, value: float, inplace: bool = False):
        check_not_in_place(self, inplace)
        self.keep(threshold=threshold, value=value)


class PReLU(Module):
    """x above zero, weight * x below; one weight, or one for each channel (axis 1) (He et al. 2015, arXiv:1502.01852)."""

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None):
        self.weight = Parameter(full((num_parameters,), checked_number("PReLU", "init", init), dtype, device))

    def forward(self, x: Any) -> Any:
        """x (..., ) or (N, channels, ...) -> the same shape."""
        return F.prelu(x, self.weight)

    def extra(self) -> str:
        return f"num_parameters={self.weight.size}"


class RReLU(Module):
    """x above zero; below, x times a slope that is drawn for each element while training, else their mean (Xu et al. 2015,
    arXiv:1505.00853)."""

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3, inplace: bool = False):
        check_not_in_place(self, inplace)
        self.lower, self.upper = checked_number("RReLU", "lower", lower), checked_number("RReLU", "upper", upper)
        if not self.lower <= self.upper:
            raise ValueError(f"RReLU: lower is larger than upper: {lower} and {upper}. Swap them.")

    def forward(self, x: Any) -> Any:
        """x of any shape -> the same shape."""
        if not self.training:
            return F.leaky_relu(x, negative_slope=0.5 * (self.lower + self.upper))
        slopes = uniform(x.shape, self.lower, self.upper, x.dtype, x.device)
        return where(x > 0, x, mul(x, slopes))

    def extra(self) -> str:
        return f"lower={self.lower}, upper={self.upper}"


# ---- along an axis -----------------------------------------------------------------------------------------------------------------------
class AlongAxis(Named):
    """A function of flamepy.nn.functional along axis `dim`."""

    def __init__(self, dim: int):
        self.dim = dim

    def forward(self, x: Any) -> Any:
        """x of any shape with that axis -> the same shape, of gated units half the size there."""
        return getattr(F, self.op)(x, axis=self.dim)

    def extra(self) -> str:
        return f"dim={self.dim}"


class Softmax(AlongAxis, op="softmax"):
    """exp(x) / sum(exp(x)) along an axis, which has to be named."""


class LogSoftmax(AlongAxis, op="log_softmax"):
    """log(softmax(x)) along an axis, which has to be named."""


class Softmin(AlongAxis, op="softmin"):
    """softmax(-x) along an axis, which has to be named."""


class Softmax2d(Module):
    """softmax over the channels of images."""

    def forward(self, x: Any) -> Any:
        """x (N, channels, height, width) or (channels, height, width) -> the same shape."""
        if x.ndim not in (3, 4):
            raise ShapeError(f"Softmax2d: not images: shape {x.shape}. Use (N, channels, height, width), or Softmax(dim).")
        return F.softmax(x, axis=-3)


class GLU(AlongAxis, op="glu"):
    """The first half along an axis times the sigmoid of the second."""

    def __init__(self, dim: int = -1):
        super().__init__(dim)


class SwiGLU(GLU, op="swiglu"):
    """silu of the first half along an axis times the second; see functional.swiglu."""


class GEGLU(GLU, op="geglu"):
    """gelu of the first half along an axis times the second; see functional.geglu."""


class ReGLU(GLU, op="reglu"):
    """relu of the first half along an axis times the second; see functional.reglu."""
