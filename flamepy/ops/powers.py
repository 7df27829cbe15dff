"""pow: which op raises to a power, by what kinds of numbers are given; the ops that core has not."""

from __future__ import annotations

from typing import Any

from ..core.dtypes import int64
from ..core.errors import ArgumentError
from ..core.op import SCALARS
from ..core.ops.axes import composed
from ..core.ops.copy import clone
from ..core.ops.indexing import check_ids
from ..core.ops.pointwise import POWERS, power, square
from ..core.pointwise import define, pointwise
from ..core.tensor import Tensor
from ..core.words import select


def whole_power_y(a, b):
    """a to the power b >= 0 for integers: by its bits, what does not fit is cut off as in products."""
    a = a + b * 0
    y = a * 0 + 1
    for _ in range(64):
        y = select((b & 1) == 1, y * a, y)
        a = a * a
        b = b >> 1
    return y


whole_power = pointwise("whole_power", whole_power_y, kind="number", title="pow")
third_power = define("third_power", "x * x * x.", lambda x: x * x * x, lambda g, x: 3.0 * g * (x * x), title="pow", home="")
reciprocal = define("reciprocal", "1 / x.", lambda x: 1.0 / x, lambda g, y: -g * y * y)
SOONER: dict[Any, Any] = {**POWERS, 3: third_power, -1: reciprocal}  # of floats: pow() itself takes several times as long


@composed
def pow(a: Any, b: Any) -> Any:
    """a to the power b, broadcasting. Integers to the power of integers are integers, exact where they fit; else float32 is computed.
    Shapes: those of a and b broadcast. Raises ShapeError if they do not, DTypeError for two float types, ValueError for a negative power
    of integers.
    >>> fp.pow(fp.tensor([2.0, 3.0]), 2).tolist()
    [4.0, 9.0]"""
    if isinstance(b, list | tuple):
        b = Tensor.of("pow", b, getattr(a, "device", None))
    if is_whole(b) and is_whole(a):
        return integer_power(a, b)
    if isinstance(b, SCALARS) and b in SOONER and not (b == 2 and is_whole(a)):
        return SOONER[b](a)
    return power(a, b)


def is_whole(x: Any) -> bool:
    """Whether it is an integer, or an array or Tensor of integers."""
    if type(x) in (int, float, bool):
        return type(x) is int
    return getattr(getattr(x, "dtype", None), "kind", "") in ("i", "u")


def integer_power(a: Any, b: Any) -> Any:
    """Integers to the power of integers."""
    if isinstance(b, SCALARS):
        if b < 0:
            raise ArgumentError(f"pow: a negative power of integers: {b}. Cast x to a float: x.to(flamepy.float32).")
        return by_squaring(Tensor.of("pow", a), int(b))
    b = Tensor.of("pow", b, getattr(a, "device", None))
    text = "pow: a negative power of integers: {} at position {}. Cast one to a float: x.to(flamepy.float32)."
    check_ids(b.to(int64), 0, 2**63 - 1, text, error=ArgumentError)
    return whole_power(a, b)


def by_squaring(x: Any, n: int) -> Any:
    """x to the power n with few products."""
    y = None
    while n:
        if n & 1:
            y = x if y is None else y * x
        n >>= 1
        x = square(x) if n else x
    return clone(y) if y is x else x * 0 + 1 if y is None else y
