"""Pointwise ops as a table of derivatives: what an op is, its formula, the derivative for each input.

Words (exp, select, ...) come from core/words.py; float literals take the dtype of the kernel. Many ops are not assigned to names here,
because they are called like the word they are made of: reach them as `ops.exp`.
"""

from __future__ import annotations

from typing import Any

from ..dtypes import FLOATS, bool_
from ..errors import DTypeError
from ..op import SCALARS
from ..pointwise import define, pass_g, zero
from ..tensor import Tensor
from ..words import abs as abs_word
from ..words import cos, erf, exp, exp_down, log, maximum, minimum, pow, select, sign, sin, sqrt, tanh


# ---- rules of two ops each -----------------------------------------------------------------------------------------------
def neg_g(g):
    return -g


def maximum_da(g, a, b):
    return select(a < b, 0.0, select(a == b, 0.5 * g, g))


def maximum_db(g, a, b):
    return select(b < a, 0.0, select(a == b, 0.5 * g, g))


# ---- arithmetic ----------------------------------------------------------------------------------------------------------
add = define("add", "a + b.", lambda a, b: a + b, pass_g, pass_g, kind="number")
sub = define("sub", "a - b.", lambda a, b: a - b, pass_g, neg_g, kind="number")
mul = define("mul", "a * b.", lambda a, b: a * b, lambda g, b: g * b, lambda g, a: g * a, kind="number")
div = define("div", "a / b; integers give float32.", lambda a, b: a / b, lambda g, b: g / b, lambda g, a, b: -g * (a / b / b))
neg = define("neg", "-x.", lambda x: -x, neg_g, kind="number")
power = define(
    "power", "a to the power b.", lambda a, b: pow(a, b),
    lambda g, a, b: select(b == 0.0, 0.0, g * b * pow(a, b - 1.0)),
    lambda g, a, b: select((a == 0.0) & (b >= 0.0), 0.0, g * pow(a, b) * log(a)),
    title="pow", home="",
)  # fmt: skip
square = define("square", "x * x.", lambda x: x * x, lambda g, x: 2.0 * g * x, kind="number")
sqrt_op = define("sqrt", "Square root; NaN below zero.", lambda x: sqrt(x), lambda g, y: 0.5 * g / y)
rsqrt = define("rsqrt", "1 / sqrt(x).", lambda x: 1.0 / sqrt(x), lambda g, y: -0.5 * g * y * y * y)

# ---- exponentials and friends ----------------------------------------------------------------------------------------------
exp_op = define("exp", "e to the power x.", lambda x: exp(x), lambda g, y: g * y)
log_op = define("log", "Natural logarithm; -inf at zero, NaN below.", lambda x: log(x), lambda g, x: g / x)
define("sin", "Sine of x in radians.", lambda x: sin(x), lambda g, x: g * cos(x))
define("cos", "Cosine of x in radians.", lambda x: cos(x), lambda g, x: -g * sin(x))
define("tanh", "Hyperbolic tangent.", lambda x: tanh(x), lambda g, y: g * (1.0 - y * y), home="both")
erf_op = define(
    "erf", "Error function 2/sqrt(pi) * integral of exp(-t^2) from 0 to x.",
    lambda x: erf(x), lambda g, x: g * 1.1283791670955126 * exp_down(-x * x),
)  # fmt: skip

# ---- signs, steps, choices -------------------------------------------------------------------------------------------------
abs_op = define("abs", "|x|; the derivative at 0 is 0.", lambda x: abs_word(x), lambda g, x: g * sign(x), kind="number")
define("sign", "-1, 0 or 1; NaN for NaN. Records a zero gradient.", lambda x: sign(x), zero, kind="number")
TIES = "NaN if either is. Ties share the gradient equally; NaN passes it on to both, as in PyTorch."
maximum_op = define("maximum", f"The larger of a and b; {TIES}", lambda a, b: maximum(a, b), maximum_da, maximum_db, kind="any")
minimum_op = define("minimum", f"The smaller of a and b; {TIES}", lambda a, b: minimum(a, b), maximum_db, maximum_da, kind="any")
where = define(
    "where", "a where the condition holds, b elsewhere.", lambda condition, a, b: select(condition, a, b),
    None, lambda g, condition: select(condition, g, 0.0), lambda g, condition: select(condition, 0.0, g),
    kind="any", masks=1,
)  # fmt: skip

# ---- comparisons: nothing of them is recorded --------------------------------------------------------------------------------
eq = define("eq", "a == b.", lambda a, b: a == b, kind="any", out=bool_)
ne = define("ne", "a != b.", lambda a, b: a != b, kind="any", out=bool_)
lt = define("lt", "a < b.", lambda a, b: a < b, kind="any", out=bool_)
le = define("le", "a <= b.", lambda a, b: a <= b, kind="any", out=bool_)
gt = define("gt", "a > b.", lambda a, b: a > b, kind="any", out=bool_)
ge = define("ge", "a >= b.", lambda a, b: a >= b, kind="any", out=bool_)

# ---- x ** n ---------------------------------------------------------------------------------------------------------------------
POWERS: dict[Any, Any] = {2: square, 0.5: sqrt_op, -0.5: rsqrt, 3: lambda a: mul(square(a), a), -1: lambda a: div(1.0, a)}


def raised(a: Any, b: Any) -> Any:
    """a ** b of floats. Raises DTypeError for whole numbers, which flamepy's pow() keeps whole."""
    n, dtype = b if isinstance(b, SCALARS) else None, (a if isinstance(a, Tensor) else b).dtype
    if dtype not in FLOATS:
        raise DTypeError(f"pow: not in core: {dtype} to the power {b!r}. Cast it to float32, or write products.")
    return POWERS[n](a) if n in POWERS else power(a, b)
