"""Logarithms and powers of fixed bases, sums and products of them, and special functions beside exp and log."""

from __future__ import annotations

from typing import Any

from ..backend.formula.words import copysign, exp2, expm1, log1p, log2, log10
from ..core.ops.axes import composed
from ..core.pointwise import define, zero
from ..core.tensor import Tensor
from ..core.words import INF, NAN, abs, exp, exp_down, log, maximum, select
from ..dtypes import checked_number
from .rounding import clip
from .special_formulas import digamma_of, erfc_of, erfinv_of, lgamma_of, trigamma_of
from .widening import narrowed, widened

LN2, LN10 = 0.6931471805599453, 2.302585092994046


def apart(a, b):
    """a - b, which is 0 for two infinities of one sign."""
    return select(a == b, 0.0, a - b)


def share(a, b):
    """exp(a) / (exp(a) + exp(b))."""
    d = select((a == b) & (abs(a) == INF), 0.0, a - b)
    e = exp_down(select(d < 0.0, d, -d))  # -abs(d) would have no slope where a is b
    return select(d < 0.0, e, 1.0) / (1.0 + e)


define("log1p", "log(1 + x), precise near 0.", lambda x: log1p(x), lambda g, x: g / (1.0 + x))
define("expm1", "exp(x) - 1, precise near 0.", lambda x: expm1(x), lambda g, y: g * (y + 1.0))
define("exp2", "2 to the power x.", lambda x: exp2(x), lambda g, y: g * y * LN2)
define("log2", "Logarithm to base 2; -inf at zero, NaN below.", lambda x: log2(x), lambda g, x: g / (x * LN2))
define("log10", "Logarithm to base 10; -inf at zero, NaN below.", lambda x: log10(x), lambda g, x: g / (x * LN10))
define(
    "logaddexp", "log(exp(a) + exp(b)), without overflow.",
    lambda a, b: maximum(a, b) + log1p(exp_down(-abs(apart(a, b)))),
    lambda g, a, b: g * share(a, b), lambda g, a, b: g * share(b, a),
)  # fmt: skip
define(
    "logaddexp2", "log2(2**a + 2**b), without overflow.",
    lambda a, b: maximum(a, b) + log1p(exp2(-abs(apart(a, b)))) * 1.4426950408889634,
    lambda g, a, b: g * share(a * LN2, b * LN2), lambda g, a, b: g * share(b * LN2, a * LN2),
)  # fmt: skip
define(
    "xlogy", "a * log(b), and 0 where a is 0 unless b is NaN.",
    lambda a, b: select((a == 0.0) & (b == b), 0.0, a * log(b)),
    lambda g, a, b: select((a == 0.0) & (b <= 0.0), 0.0, g * log(b)), lambda g, a, b: g * a / b,
)  # fmt: skip
define(
    "erfc", "1 - erf(x), precise where that is small.", lambda x: erfc_of(x), lambda g, x: g * -1.1283791670955126 * exp_down(-x * x),
)  # fmt: skip
define(
    "erfinv", "The number whose erf is x; NaN outside [-1, 1].",
    lambda x: erfinv_of(x), lambda g, y: g * 0.8862269254527580 * exp(y * y),
)  # fmt: skip
define("lgamma", "Logarithm of |gamma(x)|.", lambda x: lgamma_of(x), lambda g, x: g * digamma_of(x))
define("digamma", "Derivative of lgamma; NaN at -1, -2, ...", lambda x: digamma_of(x), lambda g, x: g * trigamma_of(x))
logit_op = define(
    "logit_op", "log(x / (1 - x)).", lambda x: log(x / (1.0 - x)),
    lambda g, x: select((x >= 0.0) & (x <= 1.0), g / (x * (1.0 - x)), NAN), title="logit", home="",
)  # fmt: skip
define(
    "copysign", "|a| with the sign of b, which zeros have, too; the derivative at a = 0 is 0.",
    lambda a, b: copysign(a, b), lambda g, a, b: select(a == 0.0, 0.0, g * copysign(1.0, a) * copysign(1.0, b)), zero,
)  # fmt: skip


@composed
def logit(x: Any, eps: Any = None) -> Any:
    """log(x / (1 - x)), the inverse of sigmoid; with eps x is first limited to [eps, 1 - eps]. NaN outside [0, 1].
    Shapes: any; the result has that of x. Integers give float32.
    >>> [round(v, 4) for v in fp.logit(fp.tensor([0.5, 0.75])).tolist()]
    [0.0, 1.0986]"""
    if eps is None:
        return logit_op(x)
    x, eps = Tensor.of("logit", x), checked_number("logit", "eps", eps)
    return narrowed(logit_op(clip(widened(x), low=eps, high=1.0 - eps)), x.dtype)
