"""A linear layer and the cross-entropy of what it gives, a chunk of rows at a time: no more than a chunk of logits is ever there.

Of a large vocabulary the logits are what training needs most memory for. Here loss and gradients of a chunk are made while its logits are
there: those of x chunk by chunk, those of the weight added up (as in Liger kernels, Hsu et al. 2024, arXiv:2410.10989).
"""

from __future__ import annotations

from typing import Any

from ..core.custom import custom
from ..core.errors import DTypeError, ShapeError
from ..core.inputs import common_dtype
from ..core.op import launch, like
from ..core.ops.axes import composed, tensors_of
from ..core.ops.copy import cast
from ..core.ops.matrices import product
from ..core.ops.pointwise import mul
from ..core.ops.reduce import sum as sum_op
from ..core.ops.shape import reshape, write_strided
from ..dtypes import FLOATS, bfloat16, is_count
from ..engine.kept import number
from .class_ids import checked, class_ids
from .cross_entropy import batch_loss, gradient_of, smoothed, targets
from .loss_bodies import cross_entropy_row
from .products import linear
from .widening import widened

ENOUGH = 1 << 20  # logits of a chunk, at least


@custom(inputs=5, kind="as is", title="linear_cross_entropy", internal=True)
def chunked_loss(x, weight, bias, ids, found, chunk=1, smoothing=0.0, z_loss=0.0, ignore=-100, reduction="mean", *, tracked=()):
    """x (rows, width), weight (classes, width), bias (classes,) or None. Gradients are made with the loss, for those that are tracked."""
    (rows, width), classes, wide = x.shape, weight.shape[0], x.spec.computed
    losses = like(x, (rows,), wide)
    outs = tuple([like(t, dtype=wide) if t is not None and want else None for t, want in zip((x, weight, bias), tracked, strict=False)])
    consts = number(float(smoothing), wide), number(float(z_loss), wide), ignore, reduction == "mean"
    for many in dict.fromkeys((min(chunk, rows), rows % chunk)):  # chunks of a size use the same memory
        room = Room(x, ids, many, classes, outs) if many else None
        for first in range(0, rows, chunk):
            if room is not None and min(chunk, rows - first) == many:
                room.fill(x, ids, first)
                launch("linear", None, (room.z, None), (room.x, weight, bias, None), (many, classes, width, False, False, x.dtype))
                launch("row", cross_entropy_row, (room.losses, room.dz), (room.z, room.ids, found, None), (*consts, many, classes))
                put(losses, room.losses, first)
                room.add_gradients(outs, weight, first)
    for t in outs[1:] if not rows else ():
        if t is not None and t.size:
            launch("fill", None, (t,), (), (wide.type(0),))
    return batch_loss(losses, found, reduction), dict(zip(("dx", "dw", "db"), outs, strict=False))


class Room:
    """What is in memory of `many` rows at a time."""

    def __init__(self, x: Any, ids: Any, many: int, classes: int, outs: Any):
        wide, (dx, dw, db) = x.spec.computed, outs
        self.x, self.ids = like(x, (many, x.shape[1])), like(ids, (many,))
        self.z, self.losses = like(x, (many, classes), wide), like(x, (many,), wide)
        self.dz: Any = None if dx is dw is db else like(self.z)
        self.read: Any = self.dz
        if self.dz is not None and x.dtype == bfloat16:  # which products read
            self.read = like(self.z, dtype=bfloat16)
        self.dx = None if dx is None else like(self.x, dtype=wide)
        self.dw = dw if dw is not None or db is None else like(x, (classes, x.shape[1]), wide)  # nobody wants it

    def fill(self, x: Any, ids: Any, first: int) -> None:
        for own, t in ((self.x, x), (self.ids, ids)):
            step = t.size // t.shape[0]
            launch("strided_get", None, (own,), (t,), (own.shape, (step, 1)[: t.ndim], first * step))

    def add_gradients(self, outs: Any, weight: Any, first: int) -> None:
        """What these logits give: rows of dx, and something for dw and db."""
        (dx, _, db), (many, classes), width = outs, self.z.shape, self.x.shape[1]
        if self.read is not self.dz:
            self.read.device.stream.copy(self.read.buffer, self.dz.buffer)
        if dx is not None:
            launch("linear", None, (self.dx, None), (self.read, weight, None, None), (many, width, classes, True, False, self.read.dtype))
            put(dx, self.dx, first)
        if self.dw is not None:
            launch("linear_dw", None, (self.dw, db), (self.read, self.x), (many, classes, width, first > 0, first > 0))


def put(y: Any, rows: Any, first: int) -> None:
    """These as the rows of y from `first` on."""
    step = y.size // y.shape[0]
    write_strided(y, rows, (step, 1)[: y.ndim], first * step)


@chunked_loss.backward
def chunked_loss_dx(g, dx, dw, db, x, weight, bias, ids, found):  # those from x on: for the rule below
    return *[None if t is None else t if g.unit else mul(t, g) for t in (dx, dw, db)], None, None


@chunked_loss.graph
def chunked_loss_ddx(g, x, weight, bias, ids, found, wanted, smoothing, z_loss, ignore, reduction):
    """In differentiable ops, with all logits in memory."""
    x, weight = widened(x), widened(weight)
    z = linear(x, weight, None if bias is None else widened(bias))
    dz, _, _ = gradient_of(g, z, *targets(ids, found, None, z, smoothing, ignore, reduction), z_loss, reduction)
    dx = product(dz, weight, False, False) if wanted[0] else None
    dw = product(dz, x, True, False) if wanted[1] else None
    return dx, dw, sum_op(dz, axis=0) if wanted[2] else None, None, None


@composed(home="functional")
def linear_cross_entropy(
    x: Any, weight: Any, target: Any, bias: Any = None, *, chunk: int | None = None, ignore_index: int = -100,
    label_smoothing: float = 0.0, z_loss: float = 0.0, reduction: str = "mean",
) -> Any:  # fmt: skip
    """cross_entropy(linear(x, weight, bias), ids) that holds the logits of `chunk` rows at a time, and never all.
    By default a chunk's logits are about as many numbers as x has. Gradients are made in the forward pass.
    Shapes: x (..., width), weight (classes, width), bias (classes,), ids (...). Raises ShapeError, ValueError for a reduction other than
    "mean" and "sum" or a chunk that is no count, and what cross_entropy raises for ids. The options are cross_entropy's.
    >>> round(F.linear_cross_entropy(fp.zeros(3, 4), fp.ones(2, 4), [0, 1, 1]).item(), 4)
    0.6931"""
    name = "linear_cross_entropy"
    x, weight, target = tensors_of(name, x, weight, target)
    bias = None if bias is None else tensors_of(name, x, bias)[1]
    given = [x, weight] if bias is None else [x, weight, bias]
    if not x.ndim or weight.ndim != 2 or x.shape[-1] != weight.shape[1] or (bias is not None and bias.shape != weight.shape[:1]):
        shown = f"x is {x.shape}, weight is {weight.shape}" + ("" if bias is None else f", bias is {bias.shape}")
        raise ShapeError(f"{name}: sizes differ: {shown}. Use x (..., width), weight (classes, width), bias (classes,).")
    if reduction == "none":
        raise ValueError(f"{name}: no losses of single rows: reduction='none'. Use 'mean' or 'sum', or linear and cross_entropy.")
    if any([t.dtype not in FLOATS for t in given]):
        raise DTypeError(f"{name}: needs floats: {', '.join([str(t.dtype) for t in given])}. Cast with .to(flamepy.float32).")
    label_smoothing, z_loss = smoothed(name, label_smoothing, z_loss)
    common_dtype(name, given, "float")
    weight, bias = (t if t is None or t.dtype == x.dtype else cast(t, x.dtype) for t in (weight, bias))
    ids, text = class_ids(name, target, x.device, x.shape[:-1], weight.shape[0], ignore_index, reduction)
    ids, found = checked(ids, text, weight.shape[0], int(ignore_index))
    rows = reshape(x, (ids.size, x.shape[-1]))
    if chunk is None:
        chunk = max(1, min(rows.shape[0], max(rows.size, ENOUGH) // max(1, weight.shape[0])))
    elif not is_count(chunk, 1):
        raise ValueError(f"{name}: chunk is no number of rows: {chunk!r}. Use 1 or more.")
    return chunked_loss(rows, weight, bias, ids, found, int(chunk), label_smoothing, z_loss, int(ignore_index), reduction)
