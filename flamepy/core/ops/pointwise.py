"""Pointwise ops: a formula, its derivatives, one line that makes the op. Read one and you have read them all.

`x_y` is the forward formula, `x_da`, `x_db` or `x_dx` the derivative for that input. Words (exp, select, ...) come from
core/words.py; float literals take the dtype of the kernel. The ops are not assigned to names here, because many are called
like the word they are made of: reach them as `ops.exp`.
"""

from __future__ import annotations

from ..pointwise import pass_g, pointwise, zero
from ..words import (
    INF,
    ceil,
    cos,
    erf,
    exp,
    exp_down,
    floor,
    log,
    maximum,
    minimum,
    pow,
    rint,
    select,
    sign,
    sin,
    sqrt,
    tanh,
)
from ..words import abs as abs_word


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


def floor_divide_y(a, b):
    """The largest whole number not above a / b, as Python's and NumPy's a // b. It jumps and has no derivative: a tracked input raises."""
    return a // b


def remainder_y(a, b):
    """a - (a // b) * b, with the sign of b, as Python's and NumPy's a % b; the gradient takes a // b for constant, as in PyTorch."""
    return a % b


def remainder_db(g, a, b, y):
    return -g * rint((a - y) / b)


add = pointwise("add", add_y, pass_g, pass_g, kind="number", home="flamepy")
sub = pointwise("sub", sub_y, pass_g, neg_g, kind="number", home="flamepy")
mul = pointwise("mul", mul_y, mul_da, mul_db, kind="number", home="flamepy")
div = pointwise("div", div_y, div_da, div_db, home="flamepy")
neg = pointwise("neg", neg_y, neg_g, kind="number", home="flamepy")
pointwise("floor_divide", floor_divide_y, kind="number", home="flamepy")
pointwise("remainder", remainder_y, pass_g, remainder_db, kind="number", home="flamepy")


def power_da(g, a, b):
    return select(b == 0.0, 0.0, g * b * pow(a, b - 1.0))


def power_db(g, a, b):
    return select((a == 0.0) & (b >= 0.0), 0.0, g * pow(a, b) * log(a))


def power_y(a, b):
    """a to the power b."""
    return pow(a, b)


def whole_power_y(a, b):
    """a to the power b >= 0 for integers: by its bits, what does not fit is cut off as in products."""
    a = a + b * 0
    y = a * 0 + 1
    for _ in range(64):
        y = select((b & 1) == 1, y * a, y)
        a = a * a
        b = b >> 1
    return y


def square_y(x):
    """x * x."""
    return x * x


def square_dx(g, x):
    return 2.0 * g * x


def third_power_y(x):
    """x * x * x."""
    return x * x * x


def third_power_dx(g, x):
    return 3.0 * g * (x * x)


def reciprocal_y(x):
    """1 / x."""
    return 1.0 / x


def reciprocal_dx(g, y):
    return -g * y * y


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


pointwise("power", power_y, power_da, power_db, title="pow")
pointwise("whole_power", whole_power_y, kind="number", title="pow")
square = pointwise("square", square_y, square_dx, kind="number", home="flamepy")
pointwise("third_power", third_power_y, third_power_dx, title="pow")
pointwise("reciprocal", reciprocal_y, reciprocal_dx, home="flamepy")
pointwise("sqrt", sqrt_y, sqrt_dx, home="flamepy")
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


def floor_y(x):
    """Largest integer not above x. Records a zero gradient."""
    return floor(x)


def ceil_y(x):
    """Smallest integer not below x. Records a zero gradient."""
    return ceil(x)


def round_y(x):
    """Nearest integer, halves to even. Records a zero gradient."""
    return rint(x)


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


def clip_y(x, low=-INF, high=INF):
    """x limited to [low, high]; the gradient passes at the bounds. NaN stays NaN and gets the gradient 0, as in PyTorch."""
    return minimum(maximum(x, low), high)


def clip_dx(g, x, low, high):
    return select((x >= low) & (x <= high), g, 0.0)


def where_y(condition, a, b):
    """a where the condition holds, b elsewhere."""
    return select(condition, a, b)


def where_da(g, condition):
    return select(condition, g, 0.0)


def where_db(g, condition):
    return select(condition, 0.0, g)


abs_op = pointwise("abs", abs_y, abs_dx, kind="number", home="flamepy")
pointwise("sign", sign_y, zero, kind="number", home="flamepy")
pointwise("floor", floor_y, zero, kind="number", home="flamepy")
pointwise("ceil", ceil_y, zero, kind="number", home="flamepy")
pointwise("round", round_y, zero, kind="number", home="flamepy")
maximum_op = pointwise("maximum", maximum_y, maximum_da, maximum_db, kind="number", home="flamepy")
minimum_op = pointwise("minimum", minimum_y, maximum_db, maximum_da, kind="number", home="flamepy")
pointwise("clip", clip_y, clip_dx, title="clamp")
where = pointwise("where", where_y, None, where_da, where_db, kind="any", masks=1, home="flamepy")
