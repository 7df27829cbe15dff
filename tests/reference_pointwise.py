"""Lines of the oracle (see reference.py) for angles, logarithms, special functions, activations, and arithmetic of three inputs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from cases import GRID, IDS4, MASK, POSITIVE, UNIT, Input, R, case


# fmt: off
def sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(0.5 * x))


def shrunk(x: np.ndarray, lambd: float) -> np.ndarray:
    return np.sign(x) * np.maximum(abs(x) - lambd, 0)


def inverse_erf(x: float) -> float:
    low, high = -6.0, 6.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if math.erf(middle) < x else (low, middle)
    return (low + high) / 2


def digamma(x: float) -> float:
    z = x + 60
    return math.log(z) - 1 / (2 * z) - 1 / (12 * z**2) + 1 / (120 * z**4) - sum(1 / (x + k) for k in range(60))


def each(function: Any) -> Any:
    return np.vectorize(function, otypes=[float])


def halves(x: np.ndarray, axis: int = -1) -> np.ndarray:
    a, b = np.split(x, 2, axis)
    return a * sigmoid(b)


def prelu(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    w = w.reshape(-1, *[1] * (x.ndim - 2)) if x.ndim > 1 else w.reshape(())
    return np.where(x > 0, x, w * x)


def divided(a: np.ndarray, b: np.ndarray, rounding_mode: Any = None) -> np.ndarray:
    return {None: np.asarray, "trunc": np.trunc, "floor": np.floor}[rounding_mode](a / b)


def softmin(x: np.ndarray, axis: int = -1) -> np.ndarray:
    e = np.exp(-x)
    return e / e.sum(axis, keepdims=True)


BITS = Input("ids", -100, 100)
SELU = 1.0507009873554805, 1.6732632423543772
THREE = [((3, 4), (3, 4), (3, 4)), ((4,), (3, 4), ()), ((2, 1, 3), (1, 3), (4, 1)), ((0, 3), (3,), ()), ((), (), ())]
LAMBDAS: list[dict[str, Any]] = [{}, {"lambd": 0.8}]
POINTWISE = {
    "log1p": case(np.log1p, domain=(-0.6, 4)), "expm1": case(np.expm1), "exp2": case(np.exp2),
    "log2": case(np.log2, domain=(0.2, 4)), "log10": case(np.log10, domain=(0.2, 4)),
    "logaddexp": case(np.logaddexp, R, R), "logaddexp2": case(np.logaddexp2, R, R),
    "xlogy": case(lambda a, b: a * np.log(b), R, POSITIVE),
    "logit": case(lambda x, eps=0.0: np.log(np.clip(x, eps, 1 - eps) / (1 - np.clip(x, eps, 1 - eps))), UNIT, attrs=[{}, {"eps": 0.2}],
                  shapes=[((3, 4),), ((),), ((0, 3),)]),
    "erfc": case(each(math.erfc), domain=(-3, 3)), "erfinv": case(each(inverse_erf), domain=(-0.95, 0.95)),
    "lgamma": case(each(math.lgamma), domain=(0.2, 9)), "digamma": case(each(digamma), domain=(0.2, 9)),
    "tan": case(np.tan, domain=(-1.2, 1.2)), "asin": case(np.arcsin, domain=(-0.9, 0.9)), "acos": case(np.arccos, domain=(-0.9, 0.9)),
    "atan": case(np.arctan, domain=(-4, 4)), "atan2": case(np.arctan2, R, R), "hypot": case(np.hypot, R, POSITIVE),
    "sinh": case(np.sinh), "cosh": case(np.cosh), "asinh": case(np.arcsinh, domain=(-4, 4)),
    "acosh": case(np.arccosh, domain=(1.2, 4)), "atanh": case(np.arctanh, domain=(-0.9, 0.9)),
    "sinc": case(lambda x: np.sin(math.pi * x) / (math.pi * x), domain=(0.1, 3)),
    "deg2rad": case(np.deg2rad, domain=(-360, 360)), "rad2deg": case(np.rad2deg),
    "copysign": case(np.copysign, R, R),
    "mish": case(lambda x: x * np.tanh(np.logaddexp(0, x)), domain=(-9, 25)),
    "quick_gelu": case(lambda x: x * sigmoid(1.702 * x), domain=(-6, 6)),
    "relu6": case(lambda x: np.clip(x, 0, 6), domain=(-3, 9)),
    "hardtanh": case(lambda x, min_val=-1.0, max_val=1.0: np.clip(x, min_val, max_val), attrs=[{}, {"min_val": 0.1, "max_val": 0.9}]),
    "hardsigmoid": case(lambda x: np.clip(x / 6 + 0.5, 0, 1), domain=(-5, 5)),
    "hardswish": case(lambda x: x * np.clip(x / 6 + 0.5, 0, 1), domain=(-5, 5)),
    "selu": case(lambda x: SELU[0] * np.where(x > 0, x, SELU[1] * np.expm1(x))),
    "celu": case(lambda x, alpha=1.0: np.where(x > 0, x, alpha * np.expm1(x / alpha)), attrs=[{}, {"alpha": 2.5}]),
    "softsign": case(lambda x: x / (1 + abs(x))), "logsigmoid": case(lambda x: -np.logaddexp(0, -x), domain=(-20, 20)),
    "tanhshrink": case(lambda x: x - np.tanh(x)),
    "softshrink": case(lambda x, lambd=0.5: shrunk(x, lambd), attrs=LAMBDAS),
    "hardshrink": case(lambda x, lambd=0.5: np.where(abs(x) > lambd, x, 0), attrs=LAMBDAS),
    "threshold": case(lambda x, threshold, value: np.where(x > threshold, x, value), args=[(0.3, -2.0)]),
    "prelu": case(prelu, R, R, shapes=[((3, 4), (4,)), ((3, 4), (1,)), ((2, 3, 5), (3,)), ((4,), ()), ((), ()), ((0, 3), (3,))]),
    "softmin": case(softmin, shapes=[((2, 3, 4),)], attrs=[{}, {"axis": 1}]),
    "glu": case(halves, shapes=[((2, 6, 4),)], attrs=[{}, {"axis": 1}, {"axis": 0}], also=[(((0, 4),), (), {})]),
    "trunc": case(np.trunc, domain=(-5, 5), smooth=False), "frac": case(lambda x: x - np.trunc(x), domain=(-0.95, 0.95)),
    "fmod": case(np.fmod, R, POSITIVE),
    "div": case(divided, R, POSITIVE, attrs=[{}, {"rounding_mode": "floor"}, {"rounding_mode": "trunc"}]),
    "nan_to_num": case(np.nan_to_num, smooth=True), "heaviside": case(np.heaviside, R, R),
    "isclose": case(np.isclose, GRID, GRID, smooth=False, attrs=[{}, {"rtol": 0.5, "atol": 0.1}]),
    "signbit": case(np.signbit, smooth=False), "logical_xor": case(np.logical_xor, MASK, MASK, smooth=False),
    **{f"bitwise_{name}": case(getattr(np, f"bitwise_{name}"), BITS, BITS, smooth=False) for name in ("and", "or", "xor")},
    "bitwise_left_shift": case(np.left_shift, BITS, IDS4, smooth=False),
    "bitwise_right_shift": case(np.right_shift, BITS, IDS4, smooth=False),
    "bitwise_not": case(np.invert, BITS, smooth=False),
    "bitcast": case(lambda x, dtype: x.view(dtype), BITS, args=[("int64",)], smooth=False),
    "lerp": case(lambda a, b, w: a + w * (b - a), R, R, R, shapes=THREE),
    "addcmul": case(lambda x, a, b, value=1.0: x + value * a * b, R, R, R, shapes=THREE, attrs=[{}, {"value": -0.5}]),
    "addcdiv": case(lambda x, a, b, value=1.0: x + value * a / b, R, R, POSITIVE, shapes=THREE, attrs=[{}, {"value": -0.5}]),
    "add": case(lambda a, b, alpha=1: a + alpha * b, R, R, also=[(((3, 1), (4,)), (), {"alpha": 2.0})]),
    "sub": case(np.subtract, R, R),
    "rsub": case(lambda a, b, alpha=1: b - alpha * a, R, R, also=[(((3,), (3,)), (), {"alpha": -0.5})]),
}

# Ops without a public name, and the public one whose line exercises them.
INTERNAL = {
    "logit_op": "logit", "signbit_op": "signbit", "isclose_op": "isclose", "numbers_op": "nan_to_num", "threshold_op": "threshold",
    "prelu_op": "prelu", "gated": "glu", "rounded_at": "round", "rounded_whole": "round", "div_floor": "div",
    "div_trunc": "div", "div_trunc_whole": "div",
    "bounded": "clamp", "bits_and": "bitwise_and", "bits_or": "bitwise_or", "bits_xor": "bitwise_xor",
    "bits_not": "bitwise_not", "bits_left": "bitwise_left_shift", "bits_right": "bitwise_right_shift", "bits_as": "bitcast",
}
# fmt: on
