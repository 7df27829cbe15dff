"""Activations that few networks use, and those with a weight or two halves: mish, selu, hardswish, prelu, glu and the like."""

from __future__ import annotations

from typing import Any

from ..backend.formula.words import expm1, log1p
from ..core.errors import ShapeError
from ..core.ops.axes import composed, one_axis, tensors_of
from ..core.ops.pointwise import neg
from ..core.ops.shape import reshape
from ..core.pointwise import define
from ..core.words import abs, exp, exp_down, minimum, select, tanh
from .activations import sigmoid
from .gated import halved
from .rows import softmax

ALPHA, SCALE = 1.6732632423543772, 1.0507009873554805  # of selu: a mean of 0 and a variance of 1 stay so


def mish_y(x):
    """x * tanh(log(1 + exp(x))) (Misra 2019, arXiv:1908.08681)."""
    e = exp(minimum(x, 20.0))
    n = e * (e + 2.0)
    return select(x > 20.0, x, x * (n / (n + 2.0)))


def mish_slope(x):
    e = exp(minimum(x, 20.0))
    n = e * (e + 2.0)
    return select(x > 20.0, 1.0, n / (n + 2.0) + x * (e / (1.0 + e)) * (4.0 * (n + 1.0) / ((n + 2.0) * (n + 2.0))))


def quick_gelu_dx(g, x):
    s = sigmoid(1.702 * x)
    return g * s * (1.0 + 1.702 * x * (1.0 - s))


define("mish", mish_y.__doc__ or "", mish_y, lambda g, x: g * mish_slope(x), home="both")
define(
    "quick_gelu", "x * sigmoid(1.702 x), an approximation of gelu (Hendrycks & Gimpel 2016, arXiv:1606.08415).",
    lambda x: x / (1.0 + exp(-1.702 * x)), quick_gelu_dx, home="both",
)  # fmt: skip
define(
    "relu6", "x limited to [0, 6]; the derivative at both is 0.", lambda x: select(x <= 0, 0.0, select(x >= 6.0, 6.0, x)),
    lambda g, x: select((x <= 0.0) | (x >= 6.0), 0.0, g), home="both", kind="number",
)  # fmt: skip
define(
    "hardtanh", "x limited to [min_val, max_val]; the derivative at both is 0.",
    lambda x, min_val=-1.0, max_val=1.0: select(x <= min_val, min_val, select(x >= max_val, max_val, x)),
    lambda g, x, min_val, max_val: select((x <= min_val) | (x >= max_val), 0.0, g), home="both",
)  # fmt: skip
define(
    "hardsigmoid", "x / 6 + 1/2 limited to [0, 1]; the derivative at both is 0.",
    lambda x: select(x <= -3.0, 0.0, select(x >= 3.0, 1.0, (x + 3.0) / 6.0)),
    lambda g, x: select((x > -3.0) & (x < 3.0), g / 6.0, 0.0), home="both",
)  # fmt: skip
define(
    "hardswish", "x * hardsigmoid(x) (Howard et al. 2019, arXiv:1905.02244).",
    lambda x: x * select(x <= -3.0, 0.0, select(x >= 3.0, 6.0, x + 3.0)) / 6.0,
    lambda g, x: select(x <= -3.0, 0.0, select(x < 3.0, g * (x / 3.0 + 0.5), g)), home="both",
)  # fmt: skip
define(
    "selu", "scale * elu(x, alpha), with numbers that keep mean 0 and variance 1 (Klambauer et al. 2017, arXiv:1706.02515).",
    lambda x: SCALE * select(x > 0.0, x, ALPHA * expm1(x)),
    lambda g, x: g * SCALE * select(x > 0.0, 1.0, ALPHA * exp(minimum(x, 0.0))), home="both",
)  # fmt: skip
define(
    "celu", "x above zero, alpha * (exp(x / alpha) - 1) below (Barron 2017, arXiv:1704.07483).",
    lambda x, alpha=1.0: select(x > 0.0, x, alpha * expm1(x / alpha)),
    lambda g, x, alpha: select(x > 0.0, g, g * exp(select(x > 0.0, 0.0, x / alpha))), home="both",
)  # fmt: skip
define(
    "softsign", "x / (1 + |x|).", lambda x: x / (1.0 + abs(x)), lambda g, x: g / ((1.0 + abs(x)) * (1.0 + abs(x))), home="both",
)  # fmt: skip
logsigmoid = define(
    "logsigmoid", "log(sigmoid(x)), without overflow.", lambda x: minimum(x, 0.0) - log1p(exp_down(-abs(x))),
    lambda g, x: g * sigmoid(-x), home="both",
)  # fmt: skip
define("tanhshrink", "x - tanh(x).", lambda x: x - tanh(x), lambda g, x: g * tanh(x) * tanh(x), home="both")
define(
    "softshrink", "x moved by lambd towards 0, and 0 within lambd of it.",
    lambda x, lambd=0.5: select(x > lambd, x - lambd, select(x < -lambd, x + lambd, select(x == x, 0.0, x))),
    lambda g, x, lambd: select((x >= -lambd) & (x <= lambd), 0.0, g), home="both",
)  # fmt: skip
define(
    "hardshrink", "x, and 0 within lambd of 0.", lambda x, lambd=0.5: select((x >= -lambd) & (x <= lambd), 0.0, x),
    lambda g, x, lambd: select((x >= -lambd) & (x <= lambd), 0.0, g), home="both",
)  # fmt: skip
threshold_op = define(
    "threshold_op", "x above threshold, else value.",
    lambda x, threshold=0.0, value=0.0: select(x <= threshold, value, x),
    lambda g, x, threshold: select(x <= threshold, 0.0, g), title="threshold", home="",
)  # fmt: skip
prelu_op = define(
    "prelu_op", "x above zero, weight * x below.", lambda x, weight: select(x > 0.0, x, weight * x),
    lambda g, x, weight: select(x > 0.0, g, weight * g), lambda g, x: select(x > 0.0, 0.0, g * x), title="prelu", home="",
)  # fmt: skip
gated = define(
    "gated", "a * sigmoid(b).", lambda a, b: a / (1.0 + exp(-b)), lambda g, b: g * sigmoid(b),
    lambda g, a, b: g * a * sigmoid(b) * sigmoid(-b), title="glu", home="",
)  # fmt: skip


@composed(home="both")
def threshold(x: Any, threshold: float, value: float) -> Any:
    """x where it is above the threshold, `value` elsewhere.
    Shapes: any; the result has that of x.
    >>> F.threshold(fp.tensor([-1.0, 0.5, 2.0]), 1.0, 0.0).tolist()
    [0.0, 0.0, 2.0]"""
    return threshold_op(x, threshold=threshold, value=value)


@composed(home="both")
def softmin(x: Any, axis: int = -1, dtype: Any = None) -> Any:
    """softmax(-x): the smaller, the likelier.
    Shapes and types: as softmax.
    >>> F.softmin(fp.tensor([0.0, 0.0])).tolist()
    [0.5, 0.5]"""
    return softmax(neg(x), axis, dtype)


@composed(home="both")
def prelu(x: Any, weight: Any) -> Any:
    """x above zero, weight * x below, with one weight or one for each channel: axis 1 (He et al. 2015, arXiv:1502.01852).
    Shapes: x any, weight (), (1,) or (channels,); the result has that of x. Raises ShapeError for another number of weights.
    >>> F.prelu(fp.tensor([[-1.0, 2.0], [3.0, -4.0]]), fp.tensor([0.5, 0.25])).tolist()
    [[-0.5, 2.0], [3.0, -1.0]]"""
    x, weight = tensors_of("prelu", x, weight)
    channels = x.shape[1] if x.ndim > 1 else 1
    if weight.ndim > 1 or weight.size not in (1, channels):
        raise ShapeError(f"prelu: weights do not fit: {weight.shape} for x of shape {x.shape}. Use one, or one for each of axis 1.")
    return prelu_op(x, reshape(weight, (weight.size, *[1] * (x.ndim - 2)) if x.ndim > 1 else ()))


@composed(home="both")
def glu(x: Any, axis: int = -1) -> Any:
    """The first half along an axis times the sigmoid of the second (Dauphin et al. 2016, arXiv:1612.08083).
    Shapes: x any with an even size along axis; the result has half of it. Raises ShapeError for an odd one.
    >>> F.glu(fp.tensor([2.0, 0.0])).tolist()
    [1.0]"""
    (x,) = tensors_of("glu", x)
    axis = one_axis("glu", axis, x.ndim)
    if not x.ndim or x.shape[axis] % 2:
        raise ShapeError(f"glu: no two halves: shape {x.shape}, axis {axis}. The size there must be even.")
    return gated(*halved(x, axis))
