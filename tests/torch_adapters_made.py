"""Rows of torch_adapters.py: tensors made anew, casts, copies of what else are views, bits, truths and plain numbers."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from torch_adapters import SHAPE, Row, channels_last, laid_out, without

import flamepy as fp


def made(f: Callable) -> Row:
    """Where PyTorch keeps a tensor and how changes none of its numbers: on the CPU, dense, untracked."""

    def call(*args: Any, **options: Any) -> Any:
        return f(*args, **without(options, device="cpu", requires_grad=False))

    return Row(f.__name__, call)


def arange(start: Any, end: Any = None, step: Any = 1, dtype: Any = None) -> Any:
    """Bounds and steps may be truths in PyTorch."""
    bounds = [v + 0 for v in (start, end) if v is not None]
    return fp.arange(*bounds, step=step + 0, dtype=dtype)


def linspace(start: Any, end: Any, steps: int, dtype: Any = None) -> Any:
    return fp.linspace(float(start), float(end), steps, dtype)


def indices(f: Callable) -> Row:
    """PyTorch has the columns second, and one tensor of two rows."""

    def call(rows: int, columns: int, offset: int = 0, dtype: Any = fp.int64, device: Any = None) -> Any:
        return fp.stack(f(rows, m=columns, k=offset)).to(dtype)

    return Row(f.__name__, call)


def to(x: Any, *args: Any, **options: Any) -> Any:
    """A device, a type or a tensor that has both; then whether to wait and whether to copy."""
    wanted = [a.dtype if isinstance(a, fp.Tensor) else a for a in args if not isinstance(a, bool | str)]
    return x.to(*wanted, **laid_out(options))


def cast(dtype: Any) -> Row:
    """What an integer type does not hold becomes any number."""
    edge = (lambda x: ~(x.abs() < np.iinfo(dtype).max)) if dtype.kind in "iu" else None
    return Row("cast", lambda x, **options: fp.cast(x, dtype, **laid_out(options)), channels_last, edge=edge)


def split(axis: int) -> Row:
    """hsplit and the like: along axis 1, of what has no other along 0."""
    return Row("tensor_split", lambda x, parts: fp.tensor_split(x, parts, axis if x.ndim > 1 else 0))


def middle(f: Callable) -> Callable:
    """The lower one of two middles, where flamepy's median, as NumPy's, is halfway; along an axis its place, too."""

    def call(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
        flat = x.reshape(-1) if dim is None or not x.ndim else x
        axis = dim if flat is x and dim is not None else 0
        k = (flat.shape[axis] + 1) // 2
        found, place = fp.kthvalue(flat, k, axis, keepdim if dim is not None and x.ndim else False)
        if flat.shape[axis] % 2:
            found = f(flat, axis, keepdim if dim is not None and x.ndim else False)
        return found if dim is None else (found, place)

    return call


COPIES = "permute squeeze expand t transpose unsqueeze view narrow split_with_sizes"
CASTS = {
    "bool": fp.bool_, "byte": fp.uint8, "char": fp.int8, "short": fp.int16, "int": fp.int32, "long": fp.int64, "half": fp.float16,
    "bfloat16": fp.bfloat16,
}  # fmt: skip
BITS = "bitwise_and bitwise_or bitwise_xor bitwise_not bitwise_left_shift bitwise_right_shift isneginf isposinf diagflat cross"
MADE: dict[str, Row] = {
    **{f"{name}_copy": SHAPE[name] for name in COPIES.split()},
    "alias_copy": Row("clone", fp.clone),
    **{f"unsafe_{name}": SHAPE[name] for name in ("split", "chunk")},
    **{name: cast(dtype) for name, dtype in CASTS.items()},
    **{name: Row(name, getattr(fp, name)) for name in BITS.split()},
    "__rand__": Row("bitwise_and", lambda x, y: operator.and_(y, x)),
    "__ror__": Row("bitwise_or", lambda x, y: operator.or_(y, x)),
    "__rxor__": Row("bitwise_xor", lambda x, y: operator.xor(y, x)),
    "__rmod__": Row("remainder", lambda x, y: operator.mod(y, x)),
    "to": Row("cast", to, channels_last),
    "H": SHAPE["T"],
    "mH": SHAPE["mT"],
    "linalg.diagonal": Row("diagonal", lambda x, offset=0, dim1=-2, dim2=-1: fp.linalg.diagonal(x, offset, dim1, dim2)),
    "slice": Row("getitem", lambda x, dim=0, start=None, end=None, step=1: x[(slice(None),) * dim + (slice(start, end, step),)]),
    "hsplit": split(1),
    "vsplit": split(0),
    "dsplit": split(2),
    "equal": Row("array_equal", fp.array_equal),
    "allclose": Row("allclose", fp.allclose),
    "item": Row("item", lambda x: x.item()),
    **{f.__name__: made(f) for f in (arange, linspace, fp.eye, fp.full, fp.ones, fp.zeros, fp.full_like, fp.ones_like, fp.zeros_like)},
    "scalar_tensor": Row("tensor", made(fp.tensor).call),
    **{f.__name__: indices(f) for f in (fp.tril_indices, fp.triu_indices)},
    "nn.functional.one_hot": Row("one_hot", lambda x, num_classes=-1: fp.one_hot(x, None if num_classes < 0 else num_classes)),
    "bincount": Row("bincount", fp.bincount),
    "mode": Row("mode", fp.mode),
    "median": Row("median", middle(fp.median)),
    "nanmedian": Row("nanmedian", middle(fp.nanmedian)),
}
