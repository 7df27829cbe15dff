"""Gated linear units: an activation of one half times the other half, in one launch each way (Shazeer 2020, arXiv:2002.05202)."""

from __future__ import annotations

from typing import Any

from ..core.custom import custom
from ..core.errors import ShapeError
from ..core.ops.axes import composed, one_axis, tensors_of
from ..core.pointwise import define
from ..core.words import exp, select
from .activations import gelu_erf_dx, gelu_erf_y, silu_dx
from .joining import joined
from .shape_more import narrow

swiglu_op = define(
    "swiglu_op", "silu(x) y.", lambda x, b: x / (1.0 + exp(-x)) * b, lambda g, x, b: silu_dx(g * b, x),
    lambda g, x: g * x / (1.0 + exp(-x)), title="swiglu", home="",
)  # fmt: skip
geglu_op = define(
    "geglu_op", "gelu(x) y.", lambda x, b: gelu_erf_y(x) * b, lambda g, x, b: gelu_erf_dx(g * b, x),
    lambda g, x: g * gelu_erf_y(x), title="geglu", home="",
)  # fmt: skip
reglu_op = define(
    "reglu_op", "relu(x) y.", lambda x, b: select(x <= 0.0, 0.0, x) * b, lambda g, x, b: select(x <= 0.0, 0.0, g * b),
    lambda g, x: g * select(x <= 0.0, 0.0, x), title="reglu", home="",
)  # fmt: skip


@custom(inputs=1, kind="as is", title="chunk", internal=True)
def halved(x, axis=0):
    """Both halves of x along an axis."""
    half = x.shape[axis] // 2
    return narrow(x, axis, 0, half), narrow(x, axis, half, half)


halved.differentiable(lambda gs, axis: joined(*gs, axis=axis))


def halves(name: str, x: Any, gate: Any, axis: int) -> tuple[Any, Any]:
    """Both factors as they are given, or as the halves of x. Raises ShapeError."""
    if gate is not None:
        x, gate = tensors_of(name, x, gate)
        return x, gate
    (x,) = tensors_of(name, x)
    axis = one_axis(name, axis, x.ndim)
    if not x.ndim or x.shape[axis] % 2:
        raise ShapeError(f"{name}: no two halves: shape {x.shape}, axis {axis}. The size there must be even; or pass both factors.")
    return halved(x, axis)  # type: ignore[no-any-return]


@composed(home="functional")
def swiglu(x: Any, y: Any = None, axis: int = -1) -> Any:
    """silu(x) * y; without y silu of the first half of x along an axis times the second.
    Shapes: x and y broadcast; or x with an even size along axis, the result has half of it. Raises ShapeError for an odd one.
    >>> [round(v, 4) for v in F.swiglu(fp.tensor([1.0, 2.0])).tolist()]
    [1.4621]"""
    return swiglu_op(*halves("swiglu", x, y, axis))


@composed(home="functional")
def geglu(x: Any, y: Any = None, axis: int = -1) -> Any:
    """gelu(x) * y; without y gelu of the first half of x along an axis times the second.
    Shapes and errors: as swiglu.
    >>> [round(v, 4) for v in F.geglu(fp.tensor([1.0, 2.0])).tolist()]
    [1.6827]"""
    return geglu_op(*halves("geglu", x, y, axis))


@composed(home="functional")
def reglu(x: Any, y: Any = None, axis: int = -1) -> Any:
    """relu(x) * y; without y relu of the first half of x along an axis times the second.
    Shapes and errors: as swiglu.
    >>> F.reglu(fp.tensor([1.0, 2.0])).tolist()
    [2.0]"""
    return reglu_op(*halves("reglu", x, y, axis))
