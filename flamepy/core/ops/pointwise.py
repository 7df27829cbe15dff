"""Pointwise ops: a formula, its derivatives, one line that makes the op. Read one and you have read them all.

`x_y` is the forward formula, `x_da`, `x_db` or `x_dx` the derivative for that input. Words (exp, select, ...) come from
core/words.py; float literals take the dtype of the kernel. The ops are not assigned to names here, because many are called
like the word they are made of: reach them as `ops.exp`.
"""

from __future__ import annotations

from typing import Any

from ..dtypes import FLOATS, bool_
from ..errors import DTypeError
from ..op import SCALARS
from ..pointwise import pass_g, pointwise, zero
from ..tensor import Tensor
from ..words import abs as abs_word
from ..words import cos, erf, exp, exp_down, log, maximum, minimum, pow, select, sign, sin, sqrt, tanh


# ---- arithmetic ----------------------------------------------------------------------------------------------------------
def add_y(a, b):
    """a + b."""
    return a + b


def sub_y(a, b):
    """a - b."""
    return a - b


def neg_g(g):
    return -g


def mul_y(a, b):
    """a * b."""
    return a * b


def mul_da(g, b):
    return g * b


def mul_db(g, a):
    return g * a


def div_y(a, b):
    """a / b; integers give float32."""
    return a / b


def div_da(g, b):
    return g / b


def div_db(g, a, b):
    return -g * (a / b / b)


def neg_y(x):
    """-x."""
    return -x


add = pointwise("add", add_y, pass_g, pass_g, kind="number", home="flamepy")
sub = pointwise("sub", sub_y, pass_g, neg_g, kind="number", home="flamepy")
mul = pointwise("mul", mul_y, mul_da, mul_db, kind="number", home="flamepy")
div = pointwise("div", div_y, div_da, div_db, home="flamepy")
neg = pointwise("neg", neg_y, neg_g, kind="number", home="flamepy")


def power_da(g, a, b):
    return select(b == 0.0, 0.0, g * b * pow(a, b - 1.0))


def power_db(g, a, b):
    return select((a == 0.0) & (b >= 0.0), 0.0, g * pow(a, b) * log(a))


def power_y(a, b):
    """a to the power b."""
    return pow(a, b)


def square_y(x):
    """x * x."""
    return x * x


def square_dx(g, x):
    return 2.0 * g * x


def sqrt_y(x):
    """Square root; NaN below zero."""
    return sqrt(x)


def sqrt_dx(g, y):
    return 0.5 * g / y


def rsqrt_y(x):
    """1 / sqrt(x)."""
    return 1.0 / sqrt(x)


def rsqrt_dx(g, y):
    return -0.5 * g * y * y * y


power = pointwise("power", power_y, power_da, power_db, title="pow")
square = pointwise("square", square_y, square_dx, kind="number", home="flamepy")
sqrt_op = pointwise("sqrt", sqrt_y, sqrt_dx, home="flamepy")
rsqrt = pointwise("rsqrt", rsqrt_y, rsqrt_dx, home="flamepy")


# ---- exponentials and friends ----------------------------------------------------------------------------------------------
def exp_y(x):
    """e to the power x."""
    return exp(x)


def exp_dx(g, y):
    return g * y


def log_y(x):
    """Natural logarithm; -inf at zero, NaN below."""
    return log(x)


def log_dx(g, x):
    return g / x


def sin_y(x):
    """Sine of x in radians."""
    return sin(x)


def sin_dx(g, x):
    return g * cos(x)


def cos_y(x):
    """Cosine of x in radians."""
    return cos(x)


def cos_dx(g, x):
    return -g * sin(x)


def tanh_y(x):
    """Hyperbolic tangent."""
    return tanh(x)


def tanh_dx(g, y):
    return g * (1.0 - y * y)


def erf_y(x):
    """Error function 2/sqrt(pi) * integral of exp(-t^2) from 0 to x."""
    return erf(x)


def erf_dx(g, x):
    return g * 1.1283791670955126 * exp_down(-x * x)


exp_op = pointwise("exp", exp_y, exp_dx, home="flamepy")
log_op = pointwise("log", log_y, log_dx, home="flamepy")
pointwise("sin", sin_y, sin_dx, home="flamepy")
pointwise("cos", cos_y, cos_dx, home="flamepy")
pointwise("tanh", tanh_y, tanh_dx, home="both")
erf_op = pointwise("erf", erf_y, erf_dx, home="flamepy")


# ---- signs, steps, choices -------------------------------------------------------------------------------------------------
def abs_y(x):
    """|x|; the derivative at 0 is 0."""
    return abs_word(x)


def abs_dx(g, x):
    return g * sign(x)


def sign_y(x):
    """-1, 0 or 1; NaN for NaN. Records a zero gradient."""
    return sign(x)


def maximum_y(a, b):
    """The larger of a and b; NaN if either is. Ties share the gradient equally; NaN passes it on to both, as in PyTorch."""
    return maximum(a, b)


def maximum_da(g, a, b):
    return select(a < b, 0.0, select(a == b, 0.5 * g, g))


def maximum_db(g, a, b):
    return select(b < a, 0.0, select(a == b, 0.5 * g, g))


def minimum_y(a, b):
    """The smaller of a and b; NaN if either is. Ties share the gradient equally; NaN passes it on to both, as in PyTorch."""
    return minimum(a, b)


def where_y(condition, a, b):
    """a where the condition holds, b elsewhere."""
    return select(condition, a, b)


def where_da(g, condition):
    return select(condition, g, 0.0)


def where_db(g, condition):
    return select(condition, 0.0, g)


abs_op = pointwise("abs", abs_y, abs_dx, kind="number", home="flamepy")
pointwise("sign", sign_y, zero, kind="number", home="flamepy")
maximum_op = pointwise("maximum", maximum_y, maximum_da, maximum_db, kind="number", home="flamepy")
minimum_op = pointwise("minimum", minimum_y, maximum_db, maximum_da, kind="number", home="flamepy")
where = pointwise("where", where_y, None, where_da, where_db, kind="any", masks=1, home="flamepy")


# ---- comparisons: nothing of them is recorded --------------------------------------------------------------------------------
def eq_y(a, b):
    """a == b."""
    return a == b


def ne_y(a, b):
    """a != b."""
    return a != b


def lt_y(a, b):
    """a < b."""
    return a < b


def le_y(a, b):
    """a <= b."""
    return a <= b


def gt_y(a, b):
    """a > b."""
    return a > b


def ge_y(a, b):
    """a >= b."""
    return a >= b


eq, ne, lt, le, gt, ge = [
    pointwise(formula.__name__[:-2], formula, kind="any", out=bool_, home="flamepy") for formula in (eq_y, ne_y, lt_y, le_y, gt_y, ge_y)
]


# ---- x ** n ---------------------------------------------------------------------------------------------------------------------
POWERS: dict[Any, Any] = {2: square, 0.5: sqrt_op, -0.5: rsqrt, 3: lambda a: mul(square(a), a), -1: lambda a: div(1.0, a)}


def raised(a: Any, b: Any) -> Any:
    """a ** b of floats. Raises DTypeError for whole numbers, which flamepy's pow() keeps whole."""
    n, dtype = b if isinstance(b, SCALARS) else None, (a if isinstance(a, Tensor) else b).dtype
    if dtype not in FLOATS:
        raise DTypeError(f"pow: not in core: {dtype} to the power {b!r}. Cast it to float32, or write products.")
    return POWERS[n](a) if n in POWERS else power(a, b)
