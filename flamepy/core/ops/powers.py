"""pow: which op raises to a power, by what kinds of numbers are given."""

from __future__ import annotations

from typing import Any

from .. import op
from ..dtypes import int64
from ..tensor import Tensor
from .axes import composed
from .copy import clone
from .indexing import check_ids
from .pointwise import square

POWERS: dict[Any, str] = {
    3: "third_power",
    -1: "reciprocal",
    0.5: "sqrt",
    -0.5: "rsqrt",
}  # of floats: pow() itself is a call of the C library for each number


@composed
def pow(a: Any, b: Any) -> Any:
    """a to the power b, broadcasting. Integers to the power of integers are integers, exact where they fit; else float32 is computed.

    Shapes: those of a and b broadcast. Raises ShapeError if they do not, DTypeError for two float types, ValueError for a negative power
    of integers.
    >>> fp.pow(fp.tensor([2.0, 3.0]), 2).tolist()
    [4.0, 9.0]
    """
    if isinstance(b, list | tuple):
        b = Tensor.of("pow", b, getattr(a, "device", None))
    if is_whole(b) and is_whole(a):
        return whole_power(a, b)
    if isinstance(b, op.SCALARS):
        if b == 2 and not is_whole(a):
            return square(a)
        name = POWERS.get(b)
        if name:
            return op.REGISTRY[name](a)
    return op.REGISTRY["power"](a, b)


def is_whole(x: Any) -> bool:
    """Whether it is an integer, or an array or Tensor of integers."""
    if type(x) in (int, float, bool):
        return type(x) is int
    return getattr(getattr(x, "dtype", None), "kind", "") in ("i", "u")


def whole_power(a: Any, b: Any) -> Any:
    """Integers to the power of integers."""
    if isinstance(b, op.SCALARS):
        if b < 0:
            raise ValueError(f"pow: a negative power of integers: {b}. Cast x to a float: x.to(flamepy.float32).")
        return by_squaring(Tensor.of("pow", a), int(b))
    b = Tensor.of("pow", b, getattr(a, "device", None))
    text = "pow: a negative power of integers: {} at position {}. Cast one to a float: x.to(flamepy.float32)."
    check_ids(b.to(int64), 0, 2**63 - 1, text, error=ValueError)
    return op.REGISTRY["whole_power"](a, b)


def by_squaring(x: Any, n: int) -> Any:
    """x to the power n with few products."""
    y = None
    while n:
        if n & 1:
            y = x if y is None else y * x
        n >>= 1
        x = square(x) if n else x
    return clone(y) if y is x else x * 0 + 1 if y is None else y
