"""Class ids as the losses take them, which axis the classes are on, and what each class counts (`weight`, as in PyTorch).

Weighted losses are composed of ops, so differentiable as often as these.
"""

from __future__ import annotations

import math
from typing import Any

from ..core.errors import DTypeError, ShapeError
from ..core.op import share
from ..core.ops.copy import cast
from ..core.ops.indexing import check_ids
from ..core.ops.matrices import matmul
from ..core.ops.pointwise import add, div, mul, ne, square, where
from ..core.ops.reduce import sum as sum_op
from ..core.ops.shape import permute, reshape
from ..core.tensor import Tensor
from ..dtypes import HALF, INTEGERS, float32, int64, is_number
from .picking import along_at
from .reduce_more import logsumexp
from .rows import log_softmax

REDUCTIONS = ("none", "mean", "sum")


def unknown_reduction(name: str, reduction: str) -> ValueError:
    return ValueError(f"{name}: unknown reduction: {reduction!r}. Use 'none', 'mean' or 'sum'.")


def class_ids(
    name: str, ids: Any, device: Any, shape: tuple[int, ...], classes: int, ignore: int, reduction: str
) -> tuple[Any, str]:  # fmt: skip
    """ids as int64, and what check_ids() says of those that are no class. Raises DTypeError, ShapeError."""
    if reduction not in REDUCTIONS:
        raise unknown_reduction(name, reduction)
    if not is_number(ignore) or not hasattr(ignore, "__index__"):
        raise DTypeError(f"{name}: ignore_index is no class id: {ignore!r}. Use an int, -100 for none.")
    return asked_ids(name, ids, device, shape, classes, ignore)


def asked_ids(
    name: str, ids: Any, device: Any, shape: tuple[int, ...], classes: int, ignore: int | None = None
) -> tuple[Any, str]:  # fmt: skip
    """The same where `ignore` is known to be an id, or None: then every id has to be a class."""
    ids = Tensor.of(name, ids, device)
    if ids.dtype not in INTEGERS:
        raise DTypeError(f"{name}: class ids are not integer: {ids.dtype}. Cast them to int64.")
    if ids.shape != shape:
        raise ShapeError(f"{name}: sizes differ: class ids {ids.shape}, expected {shape}. Give one id for each row of logits.")
    ids = ids if ids.dtype == int64 else cast(ids, int64)
    advice = f"Use 0 to {classes - 1}" + ("." if ignore is None else f", or ignore_index={ignore}.")
    return ids, f"{name}: class id out of range: {{}} at position {{}}. {advice}"


def checked(ids: Any, text: str, classes: int, ignore: int | None = None) -> tuple[Any, Any]:
    """The ids in a line, and what check_ids() found. Raises IndexOutOfRange with value and position."""
    return share(ids, (ids.size,)), check_ids(ids, 0, classes, text, ignore)


def classes_last(name: str, x: Any, ids: Any) -> tuple[Any, tuple[int, ...]]:
    """Logits (N, ..., C), (N, C, d1, ...) or (C,), which the shape of the ids says, as (rows, C); and the shape that the ids should have.
    Raises ShapeError where it could be both."""
    if not x.ndim:
        raise ShapeError(f"{name}: logits have no class axis: shape {x.shape}. Use (rows, classes).")
    shape = x.shape[:-1]
    if x.ndim > 2:
        second = x.shape[:1] + x.shape[2:]
        if shape == second == ids.shape and x.shape[1] > 1:
            raise ShapeError(
                f"{name}: the classes may be the second or the last axis: logits {x.shape}, class ids {ids.shape}. Make the logits "
                "(rows, classes): x.reshape(-1, x.shape[-1]), after x.permute(...) where they are second; and ids.reshape(-1)."
            )
        if shape != ids.shape:
            x, shape = permute(x, (0, *range(2, x.ndim), 1)), second
    return x if x.ndim == 2 else reshape(x, (math.prod(x.shape[:-1]), x.shape[-1])), shape


def class_weights(name: str, weight: Any, x: Any) -> Any:
    """The weights as a Tensor, typed as numbers of x (rows, classes) are computed in. Raises ShapeError."""
    weight = Tensor.of(name, weight, x.device)
    if weight.shape != x.shape[1:]:
        raise ShapeError(f"{name}: not a weight for each class: weight {weight.shape}, classes {x.shape[1:]}. Give one for each.")
    return weight.to(float32 if x.dtype in HALF else x.dtype)


def weighted(losses: Any, ids: Any, weight: Any, ignore: int, reduction: str, mixed: Any = None) -> Any:
    """Losses of rows, each times the weight of its id and plus what is `mixed` in, 0 where that is to be ignored; their mean is over the
    sum of these weights."""
    kept = ne(ids, ignore)
    each = where(kept, along_at(weight, ids, weight.shape[0], ids.shape[0], 1, ids.shape), 0.0)  # the ids are checked
    losses = mul(losses.to(each.dtype), each)
    if mixed is not None:
        losses = add(losses, where(kept, mixed, 0.0))
    if reduction == "none":
        return losses
    return sum_op(losses) if reduction == "sum" else div(sum_op(losses), sum_op(each))


def weighted_cross_entropy(
    run: Any, x: Any, ids: Any, found: Any, weight: Any, smoothing: float, z_loss: float, ignore: int, reduction: str
) -> Any:  # fmt: skip
    """`run`: the op that does it without weights. A row's z-loss counts as much as its id does."""
    weight, mixed = class_weights("cross_entropy", weight, x), None
    losses = run(x, ids, found, 0.0, 0.0 if smoothing else z_loss, ignore, "none")
    if smoothing:
        mixed = mul(matmul(log_softmax(x.to(weight.dtype), axis=1), weight), -smoothing / weight.shape[0])
        losses = mul(losses, 1.0 - smoothing)
    if smoothing and z_loss:
        losses = add(losses, mul(square(logsumexp(x.to(weight.dtype), 1)), z_loss))
    return weighted(losses, ids, weight, ignore, reduction, mixed)
