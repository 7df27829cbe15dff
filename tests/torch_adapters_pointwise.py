"""PyTorch's operator database in flamepy's words: angles, logarithms, activations, arithmetic with options. See torch_adapters.py."""

from __future__ import annotations

from typing import Any

from torch_adapters import Row

import flamepy as fp
import flamepy.nn.functional as F


def same(names: str, prefix: str = "") -> dict[str, Row]:
    return {prefix + name: Row(name, getattr(F if prefix else fp, name)) for name in names.split()}


def at_nan(x: Any) -> Any:
    return x != x


def at_infinity(x: Any) -> Any:
    return x.abs() == float("inf")


POINTWISE: dict[str, Row] = {
    **same("""log1p expm1 log2 log10 exp2 tan asin acos atan sinh cosh asinh acosh atanh atan2 hypot logaddexp2 xlogy
        erfc erfinv lgamma logit deg2rad rad2deg signbit trunc frac fmod nan_to_num isclose lerp addcmul addcdiv
        positive float_power logical_and logical_or logical_xor logical_not isnan isinf isfinite div floor_divide remainder"""),
    **same("hardswish selu logsigmoid tanhshrink threshold prelu glu", "nn.functional."),
    "digamma": Row("digamma", fp.digamma, edge=lambda x: (x == x.floor()) & (x <= 0), rough="float64"),  # there it is infinite
    # PyTorch's gradient at NaN depends on how many numbers there are; at infinity it is NaN.
    **{f"nn.functional.{name}": Row(name, getattr(F, name), edge=at_nan) for name in ("relu6", "hardtanh", "softshrink", "hardshrink")},
    **{f"nn.functional.{name}": Row(name, getattr(F, name), edge=at_infinity) for name in ("mish", "softsign")},
    **{name: Row(name, getattr(fp, name), edge=at_infinity) for name in ("copysign", "logaddexp")},
    "sinc": Row("sinc", fp.sinc, rough="float64"),  # near 0, where it subtracts what is alike
    # PyTorch's rules have constants in float32.
    **{f"nn.functional.{name}": Row(name, getattr(F, name), rough="float64") for name in ("hardsigmoid", "celu")},
    **{name: Row(name, getattr(fp, name)) for name in ("add", "sub", "rsub")},
    "sgn": Row("sign", fp.sgn, edge=at_nan),  # sign(NaN) is NaN here, 0 in PyTorch
    "heaviside": Row("heaviside", fp.heaviside, edge=at_nan),
    "round": Row("round", lambda x, decimals=0: fp.round(x, decimals)),
    "clamp": Row("clamp", lambda x, min=None, max=None: fp.clamp(x, min, max)),
    "clamp_min": Row("clamp", lambda x, low: fp.clamp(x, min=low)),
    "clamp_max": Row("clamp", lambda x, high: fp.clamp(x, max=high)),
    "nn.functional.softmin": Row("softmin", F.softmin),
}
