"""Class ids as the losses take them, which axis the classes are on, and what each class counts (`weight`, as in PyTorch)."""

from __future__ import annotations

import math
from typing import Any

from ..core.dtypes import FULL
from ..core.errors import DTypeError, ShapeError
from ..core.op import share
from ..core.ops.copy import cast
from ..core.ops.indexing import check_ids
from ..core.ops.shape import permute, reshape
from ..core.tensor import Tensor
from ..dtypes import INTEGERS, int64, is_number

REDUCTIONS = ("none", "mean", "sum")
FEW = 16  # rows side by side that fill a vector


def unknown_reduction(name: str, reduction: str) -> ValueError:
    return ValueError(f"{name}: unknown reduction: {reduction!r}. Use 'none', 'mean' or 'sum'.")


def class_ids(
    name: str, ids: Any, device: Any, shape: tuple[int, ...], classes: int, ignore: int, reduction: str
) -> tuple[Any, str]:  # fmt: skip
    """ids as int64, and what check_ids() says of those that are no class. Raises DTypeError, ShapeError, ValueError for a reduction."""
    if not is_number(ignore) or not hasattr(ignore, "__index__"):
        raise DTypeError(f"{name}: ignore_index is no class id: {ignore!r}. Use an int, -100 for none.")
    return asked_ids(name, ids, device, shape, classes, reduction, ignore)


def asked_ids(
    name: str, ids: Any, device: Any, shape: tuple[int, ...], classes: int, reduction: str, ignore: int | None = None
) -> tuple[Any, str]:  # fmt: skip
    """The same where `ignore` is known to be an id, or None: then every id has to be a class."""
    if reduction not in REDUCTIONS:
        raise unknown_reduction(name, reduction)
    ids = Tensor.of(name, ids, device)
    if ids.dtype not in INTEGERS:
        raise DTypeError(f"{name}: class ids are not integer: {ids.dtype}. Cast them to int64.")
    if ids.shape != shape:
        raise ShapeError(f"{name}: sizes differ: class ids {ids.shape}, expected {shape}. Give ids of that shape.")
    ids = ids if ids.dtype == int64 else cast(ids, int64)
    advice = f"Use 0 to {classes - 1}" + ("." if ignore is None else f", or ignore_index={ignore}.")
    return ids, f"{name}: class id out of range: {{}} at position {{}}. {advice}"


def checked(ids: Any, text: str, classes: int, ignore: int | None = None) -> tuple[Any, Any]:
    """The ids in a line, and what check_ids() found. Raises IndexOutOfRange with value and position."""
    return share(ids, (ids.size,)), check_ids(ids, 0, classes, text, ignore)


def classes_last(name: str, x: Any, ids: Any, beside: float = 0) -> tuple[Any, tuple[int, ...]]:
    """Logits (N, ..., C), (N, C, d1, ...) or (C,), which the shape of the ids says, as (rows, C); and the shape that the ids should have.
    `beside`: the second form, of up to so many classes, may stay as it lies, (N, C, d1 * ...), where the device takes rows side by side.
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
            area = math.prod(x.shape[2:])
            if area >= FEW and x.device.beside and 0 < x.shape[1] <= beside and x.dtype in FULL:
                return reshape(x, (x.shape[0], x.shape[1], area)), second
            x, shape = permute(x, (0, *range(2, x.ndim), 1)), second
    return x if x.ndim == 2 else reshape(x, (math.prod(x.shape[:-1]), x.shape[-1])), shape


def class_weights(name: str, weight: Any, x: Any) -> Any:
    """The weights as a Tensor, typed as numbers of x (rows, classes, ...) are computed in; None where there are none. Raises ShapeError."""
    if weight is None:
        return None
    weight = Tensor.of(name, weight, x.device)
    if weight.shape != x.shape[1:2]:
        raise ShapeError(f"{name}: not a weight for each class: weight {weight.shape}, classes {x.shape[1:2]}. Give one for each.")
    return weight if weight.dtype == x.spec.computed else weight.to(x.spec.computed)
