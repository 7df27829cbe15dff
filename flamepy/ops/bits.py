"""The bits of integers: and, or, xor, not, shifts; of bools the same are logical_and() and its like. bitcast: bits as another type's.

Nothing is recorded, but that a tracked float is refused where its bits would become a float (strict mode).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.custom import custom
from ..core.errors import DTypeError, ShapeError
from ..core.op import SCALARS, like
from ..core.ops.axes import composed, tensors_of
from ..core.pointwise import define
from ..core.tensor import Tensor
from ..core.words import select
from ..dtypes import INTEGERS, as_dtype, bool_
from .logic import logical_and, logical_not, logical_or, logical_xor

bits_and = define("bits_and", "a & b.", lambda a, b: a & b, kind="number", title="bitwise_and", home="")
bits_or = define("bits_or", "a | b.", lambda a, b: a | b, kind="number", title="bitwise_or", home="")
bits_xor = define("bits_xor", "a ^ b.", lambda a, b: a ^ b, kind="number", title="bitwise_xor", home="")
bits_not = define("bits_not", "-1 - x: each bit the other way round.", lambda x: ~x, kind="number", title="bitwise_not", home="")
bits_left = define(
    "bits_left", "a << b; what is shifted out is lost, and by `bits` or more that is everything.",
    lambda a, b, bits=64: select((b >= 0) & (b < bits), a << (b & 63), a & 0), kind="number", title="bitwise_left_shift", home="",
)  # fmt: skip
bits_right = define(
    "bits_right", "a >> b; the sign comes in from the left.",
    lambda a, b, bits=64: select((b >= 0) & (b < bits), a >> (b & 63), select(a < 0, (a & 0) - 1, a & 0)), kind="number",
    title="bitwise_right_shift", home="",
)  # fmt: skip


def whole_numbers(name: str, *xs: Any) -> list[Any]:
    """These as Tensors of integers or bools, and Python's ints, which become those with the same bits. Raises DTypeError for others."""
    found = [x if type(x) in (int, bool) or isinstance(x, np.integer | np.bool_) else tensors_of(name, x)[0] for x in xs]
    types = [x.dtype for x in found if isinstance(x, Tensor)]
    for dtype in types:
        if dtype not in INTEGERS and dtype != bool_:
            raise DTypeError(f"{name}: not integers or bools: {dtype}. Cast with .to(flamepy.int64), or compare first, as in x != 0.")
    widest = np.result_type(*types, *([] if {*types} & INTEGERS else [x for x in found if isinstance(x, SCALARS)])) if types else None
    return [signed(x, widest) if widest in INTEGERS and isinstance(x, SCALARS) else x for x in found]


def signed(x: Any, dtype: Any) -> int:
    """A number as the one of `dtype` that has its bits, if there is one: 0xFF is -1 of int8."""
    ends, size = np.iinfo(dtype), 1 << 8 * dtype.itemsize
    x = int(x)
    return x if ends.min <= x <= ends.max or not -(size >> 1) <= x < size else x + (size if x < 0 else -size)


def of_bits(name: str, of_bools: Any, of_integers: Any, a: Any, b: Any) -> Any:
    a, b = whole_numbers(name, a, b)
    bools = all([getattr(x, "dtype", None) == bool_ or type(x) is bool for x in (a, b)])
    return (of_bools if bools else of_integers)(a, b)


@composed
def bitwise_and(a: Any, b: Any) -> Any:
    """a & b: the bits that both have; of bools whether both hold.
    Shapes: those of a and b broadcast. Types: integers and bools. Raises DTypeError for floats.
    >>> fp.bitwise_and(fp.tensor([6, 5]), 3).tolist()
    [2, 1]"""
    return of_bits("bitwise_and", logical_and, bits_and, a, b)


@composed
def bitwise_or(a: Any, b: Any) -> Any:
    """a | b: the bits that at least one has. Shapes and types: as bitwise_and.
    >>> fp.bitwise_or(fp.tensor([6, 5]), 3).tolist()
    [7, 7]"""
    return of_bits("bitwise_or", logical_or, bits_or, a, b)


@composed
def bitwise_xor(a: Any, b: Any) -> Any:
    """a ^ b: the bits that one of both has. Shapes and types: as bitwise_and.
    >>> fp.bitwise_xor(fp.tensor([6, 5]), 3).tolist()
    [5, 6]"""
    return of_bits("bitwise_xor", logical_xor, bits_xor, a, b)


@composed
def bitwise_not(x: Any) -> Any:
    """~x: the bits that x does not have; of bools whether x does not hold. Shapes: any. Types: as bitwise_and.
    >>> fp.bitwise_not(fp.tensor([6, -1])).tolist()
    [-7, 0]"""
    (x,) = tensors_of("bitwise_not", x)
    whole_numbers("bitwise_not", x)
    return logical_not(x) if x.dtype == bool_ else bits_not(x)


def shifted(name: str, op: Any, a: Any, b: Any) -> Any:
    a, b = whole_numbers(name, a, b)
    types = [x.dtype for x in (a, b) if isinstance(x, Tensor) and x.dtype in INTEGERS]
    return op(a, b, bits=8 * np.result_type(*types).itemsize if types else 64)


@composed
def bitwise_left_shift(a: Any, b: Any) -> Any:
    """a << b: a times 2**b; bits that do not fit are lost. By fewer than 0 bits, or more than there are, it is 0.
    Shapes: those of a and b broadcast. Types: integers. Raises DTypeError for floats.
    >>> fp.bitwise_left_shift(fp.tensor([1, 3]), 4).tolist()
    [16, 48]"""
    return shifted("bitwise_left_shift", bits_left, a, b)


@composed
def bitwise_right_shift(a: Any, b: Any) -> Any:
    """a >> b: a divided by 2**b and rounded down. Shapes and types: as bitwise_left_shift.
    >>> fp.bitwise_right_shift(fp.tensor([16, -3]), 1).tolist()
    [8, -2]"""
    return shifted("bitwise_right_shift", bits_right, a, b)


@custom(inputs=1, kind="as is", title="view", internal=True)
def bits_as(x, dtype=None, shape=()):
    y = like(x, shape, dtype)
    if x.size:
        x.device.copy(x.device.slot(y.buffer, 0, x.size, x.dtype), x.buffer)
    return y


@composed
def bitcast(x: Any, dtype: Any) -> Any:
    """The same bits as numbers of another type, as PyTorch's view(dtype) and NumPy's give them; there is no gradient.
    Shapes: x's; if the types differ in size, the last axis is longer or shorter by as much. Raises DTypeError for bools as the result,
    ShapeError where the last axis cannot be divided so.
    >>> fp.bitcast(fp.tensor([1.0, -1.0]), fp.int32).tolist()
    [1065353216, -1082130432]"""
    (x,) = tensors_of("bitcast", x)
    dtype = as_dtype(dtype)
    if dtype == bool_ != x.dtype:
        raise DTypeError(f"bitcast: to bools: from {x.dtype}. Compare instead, as in x != 0.")
    shape, old, new = x.shape, x.dtype.itemsize, dtype.itemsize
    if old != new:
        if not shape or shape[-1] * old % new:
            raise ShapeError(
                f"bitcast: the last axis does not fit: shape {shape}, {x.dtype} as {dtype}. Its bytes must be a multiple of {new}."
            )
        shape = (*shape[:-1], shape[-1] * old // new)
    return bits_as(x, dtype, shape)
