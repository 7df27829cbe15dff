"""Angles and hyperbolas: tan, the inverse functions, sinh and the like, atan2, hypot, sinc."""

from ..backend.formula.words import expm1
from ..core.pointwise import define
from ..core.words import abs, cos, select, sin, sqrt
from .special_formulas import (
    PI,
    acos_of,
    acosh_of,
    asin_of,
    asinh_of,
    atan2_of,
    atan_of,
    atanh_of,
    cosh_of,
    hypot_of,
    root_of,
    sinc_slope,
    sine_of_pi,
    sinh_of,
)


def turned(a, b):
    """b / (a * a + b * b), and 0 for two zeros."""
    square = a * a + b * b
    return b / select(square == 0.0, 1.0, square)


define("tan", "Tangent of x in radians.", lambda x: sin(x) / cos(x), lambda g, y: g * (1.0 + y * y))
define("asin", "Angle in [-pi/2, pi/2] whose sine is x; NaN outside [-1, 1].", lambda x: asin_of(x), lambda g, x: g / root_of(x))
define("acos", "Angle in [0, pi] whose cosine is x; NaN outside [-1, 1].", lambda x: acos_of(x), lambda g, x: -g / root_of(x))
define("atan", "Angle in (-pi/2, pi/2) whose tangent is x.", lambda x: atan_of(x), lambda g, x: g / (1.0 + x * x))
define(
    "atan2", "Angle in [-pi, pi] of the point (b, a); signs of zeros count, as in C.",
    lambda a, b: atan2_of(a, b), lambda g, a, b: g * turned(a, b), lambda g, a, b: g * turned(b, -a),
)  # fmt: skip
define(
    "hypot", "sqrt(a * a + b * b), without overflow on the way.",
    lambda a, b: hypot_of(a, b), lambda g, a, y: g * (a / y), lambda g, b, y: g * (b / y),
)  # fmt: skip
define("sinh", "Hyperbolic sine.", lambda x: sinh_of(x), lambda g, x: g * cosh_of(x))
define("cosh", "Hyperbolic cosine.", lambda x: cosh_of(x), lambda g, x: g * (0.5 * expm1(x) - 0.5 * expm1(-x)))
define("asinh", "The number whose sinh is x.", lambda x: asinh_of(x), lambda g, x: g / sqrt(x * x + 1.0))
define(
    "acosh", "The number, 0 or more, whose cosh is x; NaN below 1.",
    lambda x: acosh_of(x), lambda g, x: g / sqrt((x - 1.0) * (x + 1.0)),
)  # fmt: skip
define(
    "atanh", "The number whose tanh is x; NaN outside [-1, 1].", lambda x: atanh_of(x), lambda g, x: g / ((1.0 - x) * (1.0 + x)),
)  # fmt: skip
define(
    "sinc", "sin(pi * x) / (pi * x), and 1 at 0, as in NumPy.",
    lambda x: select(x == 0.0, 1.0, sine_of_pi(x) / select(x == 0.0, 1.0, PI * x)),
    lambda g, x, y: g * select(abs(x) < 0.25, sinc_slope(x), (cos(PI * x) - y) / select(x == 0.0, 1.0, x)),
)  # fmt: skip
define("deg2rad", "Degrees as radians.", lambda x: x * 0.017453292519943295, lambda g: g * 0.017453292519943295)
define("rad2deg", "Radians as degrees.", lambda x: x * 57.29577951308232, lambda g: g * 57.29577951308232)
