"""Rotary position embedding: pairs of numbers of each row turned by an angle that its position gives (Su et al. 2021, arXiv:2104.09864).

y = x * cos + (the other of each pair) * sin: the pairs are an axis of two, which is read backwards, so two launches turn everything, and
turning back is the derivative. Angles are taken in float64 and kept for the positions that come again.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from ..core.custom import custom
from ..core.errors import DTypeError, ShapeError
from ..core.ops.axes import Shape, composed, one_axis
from ..core.ops.copy import cast
from ..core.ops.shape import reshape
from ..core.pointwise import define
from ..core.tensor import Tensor
from ..dtypes import FLOATS, INTEGERS, checked_number, float64, is_count
from .joining import cat, split
from .widening import narrowed, widened

turned = define(
    "turned", "x * c + other * s.", lambda x, other, c, s: x * c + other * s, lambda g, c: g * c, lambda g, s: g * s,
    lambda g, x: g * x, lambda g, other: g * other, home="",
)  # fmt: skip
turned_back = define(
    "turned_back", "x * c - other * s.", lambda x, other, c, s: x * c - other * s, lambda g, c: g * c, lambda g, s: -g * s,
    lambda g, x: g * x, lambda g, other: -g * other, home="",
)  # fmt: skip


@custom(inputs=3, title="rope", internal=True)
def rotated(x, c, s, interleaved=False, back=False):
    """x turned by angles with these cosines and sines; s is negative for the first of a pair. Pairs lie in an axis of two, the last one or
    the one before."""
    n = x.shape[-1] // 2
    parts = reshape(x, (*x.shape[:-1], n, 2) if interleaved else (*x.shape[:-1], 2, n))
    other = parts[..., ::-1] if interleaved else parts[..., ::-1, :]
    return reshape((turned_back if back else turned)(parts, other, c, s), x.shape)


rotated.differentiable(lambda g, c, s, interleaved, back: (rotated(g, c, s, interleaved, not back), None, None))


@composed(home="functional")
def rope(
    x: Any, positions: Any = None, *, base: float = 10000.0, scale: float = 1.0, offset: int = 0, width: int | None = None,
    interleaved: bool = False, axis: int = -2,
) -> Any:  # fmt: skip
    """Rows of x turned by their positions: rotary position embedding of queries or keys (Su et al. 2021, arXiv:2104.09864).
    Shapes: x (..., T, ..., D) with T at `axis`; the result has its shape. Position p turns pair i of the first `width` numbers (default:
    all) by p / scale * base^(-2 i / width). A pair is (i, i + width / 2), as in GPT-NeoX and Llama of Hugging Face, or with `interleaved`
    (2 i, 2 i + 1), as in the paper. Positions are offset, offset + 1, ... or `positions`: whole numbers of shape (T,), or of one that
    broadcasts to x.shape[:-1]. scale above 1 squeezes them (Chen et al. 2023, arXiv:2306.15595). 16-bit floats are computed in float32.
    Raises ShapeError, DTypeError.
    >>> [round(v, 4) for v in F.rope(fp.tensor([[1.0, 0.0], [1.0, 0.0]]))[1].tolist()]
    [0.5403, 0.8415]"""
    x = Tensor.of("rope", x)
    x = x if x.dtype in FLOATS else cast(x, np.dtype("float32"))
    if x.ndim < 2:
        raise ShapeError(f"rope: x has no axis of positions: {x.shape}. Use (..., T, D).")
    a = one_axis("rope", axis, x.ndim)
    width = x.shape[-1] if width is None else width
    if a == x.ndim - 1 or not is_count(width, 2) or width % 2 or width > x.shape[-1]:
        what = f"x {x.shape}, axis {axis}, width {width}"
        raise ShapeError(f"rope: pairs do not fit: {what}. Use an even width up to the last size, and another axis for positions.")
    base, scale = checked_number("rope", "base", base), checked_number("rope", "scale", scale)
    if not base > 0 or not scale > 0 or not isinstance(offset, int | np.integer):
        raise ValueError(f"rope: base and scale are not above 0, or offset is no int: {base}, {scale}, {offset!r}. Use others.")
    wide = widened(x)
    if positions is None:
        steps, lead = x.shape[a], (1,) * (x.ndim - 2 - a)
        c, s = table(steps, int(offset), int(width), base, scale, bool(interleaved), lead, wide.dtype, x.device)
    else:
        c, s = angles_of(positions, int(offset), int(width), base, scale, bool(interleaved), wide, a)
    if width == x.shape[-1]:
        return narrowed(rotated(wide, c, s, bool(interleaved), False), x.dtype)
    head, rest = split(wide, (width, x.shape[-1] - width), -1)
    return narrowed(cat((rotated(head, c, s, bool(interleaved), False), rest), -1), x.dtype)


def rates(width: int, base: float, scale: float) -> np.ndarray:
    """By how much one position turns each pair."""
    return base ** (-np.arange(0, width, 2) / width) / scale


def signed(s: Any, axis: int) -> np.ndarray:
    return np.stack((-s, s), axis)


@lru_cache(256)
def table(
    steps: int, offset: int, width: int, base: float, scale: float, interleaved: bool, lead: Shape, dtype: Any, device: Any
) -> tuple[Any, Any]:
    """(cosines, sines) of the positions from `offset` on, to broadcast over what follows the axis of positions."""
    angles = np.outer(np.arange(offset, offset + steps), rates(width, base, scale)).reshape(steps, *lead, width // 2)
    axis = -1 if interleaved else -2
    with device.stream.aside():  # a record of the first call would make them again and again
        found = (np.stack((np.cos(angles),) * 2, axis), signed(np.sin(angles), axis))
        return tuple([Tensor.of("rope", t.astype(dtype), device) for t in found])  # type: ignore[return-value]


def angles_of(positions: Any, offset: int, width: int, base: float, scale: float, interleaved: bool, x: Any, axis: int) -> tuple[Any, Any]:
    """The same for positions that are numbers of a tensor."""
    ids, lead = Tensor.of("rope", positions, x.device), x.shape[:-1]
    if ids.dtype not in INTEGERS:
        raise DTypeError(f"rope: positions are not integers: {ids.dtype}. Cast them to int64.")
    shape = (ids.shape[0], *(1,) * (len(lead) - 1 - axis)) if ids.ndim == 1 else ids.shape
    try:
        fits = np.broadcast_shapes(shape, lead) == lead
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(f"rope: positions do not broadcast: {ids.shape} to {lead}, x is {x.shape}. Use (T,), or sizes equal or 1.")
    angles = reshape(cast(ids, float64), (*shape, 1)) + float(offset)
    angles = angles * Tensor.of("rope", rates(width, base, scale), x.device)
    pair = (*shape, width // 2, 1) if interleaved else (*shape, 1, width // 2)
    sign = Tensor.of("rope", np.array([-1.0, 1.0]).reshape((2,) if interleaved else (2, 1)), x.device)
    c = cast(reshape(angles.cos(), pair), x.dtype)
    return c, cast(reshape(angles.sin(), pair) * sign, x.dtype)
