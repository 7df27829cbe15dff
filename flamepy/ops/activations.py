"""Activations: pointwise ops of the networks, and the public functions that choose between formulas."""

from __future__ import annotations

from typing import Any

from ..backend.formula.words import bell, expm1, log1p, normal_tail
from ..core import op
from ..core.errors import DTypeError
from ..core.ops.axes import composed
from ..core.ops.pointwise import where
from ..core.pointwise import define, pointwise, zero
from ..core.words import abs, exp, select
from ..dtypes import is_number


def sigmoid(x):
    """1 / (1 + exp(-x)) without overflow, so that its derivatives are numbers too: no infinity that is multiplied by 0."""
    e = exp(select(x < 0.0, x, -x))
    return select(x < 0.0, e, 1.0) / (1.0 + e)


def silu_dx(g, x):
    s = sigmoid(x)
    return g * s * (1.0 + x * (1.0 - s))


relu = define(
    "relu", "max(x, 0); NaN passes; the derivative at 0 is 0 (Nair & Hinton 2010).",
    lambda x: select(x <= 0.0, 0.0, x), lambda g, y: select(y <= 0.0, 0.0, g), kind="number", home="both",
)  # fmt: skip
define(
    "leaky_relu", "x above zero, negative_slope * x below (Maas et al. 2013).",
    lambda x, negative_slope=0.01: select(x > 0.0, x, negative_slope * x),
    lambda g, x, negative_slope: select(x > 0.0, g, negative_slope * g), home="both",
)  # fmt: skip
define(
    "elu", "x above zero, alpha * (exp(x) - 1) below (Clevert et al. 2015, arXiv:1511.07289).",
    lambda x, alpha=1.0: select(x > 0.0, x, alpha * expm1(x)),
    lambda g, x, alpha: select(x > 0.0, g, g * alpha * exp(select(x > 0.0, 0.0, x))), home="both",
)  # fmt: skip
define("sigmoid", "1 / (1 + exp(-x)).", lambda x: 1.0 / (1.0 + exp(-x)), lambda g, y: g * y * (1.0 - y), home="both")
define("silu", "x * sigmoid(x) (Elfwing et al. 2017, arXiv:1702.03118).", lambda x: x / (1.0 + exp(-x)), silu_dx, home="both")
define(
    "softplus", "log(1 + exp(beta x)) / beta, and x itself where beta x > threshold.",
    lambda x, beta=1.0, threshold=20.0: select(x * beta > threshold, x, log1p(exp(x * beta)) / beta),
    lambda g, x, beta, threshold: select(x * beta > threshold, g, g * sigmoid(x * beta)), home="both",
)  # fmt: skip


def gelu_erf_y(x):
    """x * Phi(x), Phi the normal distribution function (Hendrycks & Gimpel 2016, arXiv:1606.08415)."""
    tail = normal_tail(abs(x), bell(x))
    return x * select(x > 0.0, 1.0 - tail, tail)


def gelu_erf_dx(g, x):
    e = bell(x)
    tail = normal_tail(select(x > 0.0, x, -x), e)  # abs(x), with a derivative at 0
    return g * (select(x > 0.0, 1.0 - tail, tail) + x * 0.3989422804014327 * e)


def twice_inner(x):
    """2 * sqrt(2 / pi) * (x + 0.044715 * x^3)."""
    return x * (1.5957691216057308 + 0.07135481627260026 * x * x)


def gelu_tanh_dx(g, x):
    # The slope is -1e-36 at -10 and 1 at 10; further out exp or x * x overflows, and inf * 0 is NaN.
    x = select(x < -10.0, -10.0, select(x > 10.0, 10.0, x))
    e = exp(-twice_inner(x))
    s = 1.0 / (1.0 + e)
    return g * s * (1.0 + e * s * x * (1.5957691216057308 + 0.21406444881780078 * x * x))


define("bell", "exp(-x^2 / 2).", lambda x: bell(x), lambda g, x: g * -x * bell(x), home="")
define(
    "normal_tail", "1 - Phi(a) for a >= 0 and e = exp(-a^2 / 2); its derivative counts a alone.",
    lambda a, e: normal_tail(a, e), lambda g, e: g * -0.3989422804014327 * e, zero, home="",
)  # fmt: skip
gelu_erf = pointwise("gelu_erf", gelu_erf_y, gelu_erf_dx, title="gelu")
gelu_tanh = define(
    "gelu_tanh", "The tanh approximation of x * Phi(x) (same paper, section 2), written as x * sigmoid: one exp less.",
    lambda x: x / (1.0 + exp(-twice_inner(x))), gelu_tanh_dx, title="gelu", home="",
)  # fmt: skip


@composed(home="both")
def gelu(x: Any, approximate: str = "none") -> Any:
    """Gaussian error linear unit, exact ("none") or by tanh ("tanh").
    Shapes: any; the result has that of x. Integers give float32. Raises ValueError for another approximation.
    >>> [round(v, 4) for v in fp.gelu(fp.tensor([-1.5, 1.5])).tolist()]
    [-0.1002, 1.3998]"""
    if approximate not in ("none", "tanh"):
        raise ValueError(f"gelu: unknown approximation: {approximate!r}. Use 'none' or 'tanh'.")
    return gelu_erf(x) if approximate == "none" else gelu_tanh(x)


@composed
def masked_fill(x: Any, mask: Any, value: Any) -> Any:
    """x with `value`, a number or a tensor without axes, where the bool mask holds; mask broadcasts.
    Shapes: those of x and mask broadcast. Types: any x; a bool mask. Raises DTypeError for another mask or a value that is no number.
    >>> fp.masked_fill(fp.tensor([1.0, 2.0]), [False, True], 0.0).tolist()
    [1.0, 0.0]"""
    if not isinstance(value, op.SCALARS) and not is_number(value):
        raise DTypeError(f"masked_fill: value must be a number: {type(value).__name__}. Use where() for a tensor.")
    return where(mask, value, x)
