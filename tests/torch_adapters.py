"""PyTorch's operator database in flamepy's words: for each of its entries, the flamepy call that means the same.

`ADAPTERS[torch name]` is a Row: the flamepy op it exercises, a function that takes PyTorch's arguments (tensors already
flamepy's) and calls flamepy, and `refuses`: the options and shapes that flamepy is allowed to refuse with an error. What
a row does not list must be computed, and equal. An adapter hands options it does not know on, so that flamepy refuses
them itself; it drops one only where its value is PyTorch's default (without()).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from torch_adapters_losses import ROWS

import flamepy as fp
import flamepy.nn.functional as F


class Row(NamedTuple):
    """How one entry of the database is called in flamepy."""

    op: str
    call: Callable[..., Any]
    refuses: Callable[..., Any] = lambda x, *args, **options: False
    random: Callable[..., Any] = lambda x, *args, **options: False  # samples whose answer is drawn: not comparable
    fixed: tuple[int | str, ...] = ()  # arguments that one of the two sends no gradient to (targets of some losses, by promise)
    edge: Callable[..., Any] | None = None  # where flamepy promises another value than PyTorch gives: not compared
    rough: str = ""  # types in which PyTorch's own gradient has few digits
    seen: Callable[..., Any] = lambda results: results  # what is compared of the results, of both libraries


def given(*names: str) -> Callable[..., bool]:
    """True when one of the options is given and is not None."""
    return lambda x, *args, **options: any(options.get(name) is not None for name in names)


def reduce(f: Callable) -> Callable:
    """dim=() means every axis to PyTorch and none to NumPy: translated."""

    def call(x: Any, dim: Any = None, keepdim: bool = False, **options: Any) -> Any:
        return f(x, axis=dim if dim != () and dim != [] else None, keepdims=keepdim, **options)

    return call


def spread(f: Callable) -> Callable:
    """var and std: PyTorch's default correction is 1."""

    def call(x: Any, dim: Any = None, unbiased: Any = None, correction: Any = None, keepdim: bool = False) -> Any:
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        correction = correction if correction is not None else 1 if unbiased is None else int(unbiased)
        return f(x, axis=tuple(dim) if isinstance(dim, (list, tuple)) else dim, correction=correction, keepdims=keepdim)

    return call


def extreme(f: Callable, where: Callable) -> Callable:
    """max and min: all of it, along an axis (values and positions), or of two tensors."""

    def call(x: Any, *args: Any, **options: Any) -> Any:
        if args and isinstance(args[0], int):
            axis, keepdims = args[0], args[1] if len(args) > 1 else False
            return f(x, axis=axis, keepdims=keepdims, **options), where(x, axis=axis, keepdims=keepdims)
        return f(x, *args, **options)

    return call


def squeezes_more(x: Any, *axis: Any) -> bool:
    """PyTorch leaves a named axis alone when its size is not 1; NumPy and flamepy refuse."""
    axes = axis[0] if axis and isinstance(axis[0], tuple) else axis
    return any(x.ndim and x.shape[a] != 1 for a in axes)


def select(x: Any, dim: int, index: int) -> Any:
    return x[(slice(None),) * (dim % x.ndim) + (index,)]


def expand(x: Any, *sizes: Any) -> Any:
    sizes = tuple(sizes[0]) if isinstance(sizes[0], (tuple, list)) else sizes
    own = (1,) * (len(sizes) - x.ndim) + x.shape
    return fp.broadcast_to(x, tuple(n if s == -1 else s for s, n in zip(sizes, own, strict=False)))


def cast(dtype: Any) -> Callable:
    return lambda x, **options: fp.cast(x, dtype, **laid_out(options))


def rms_norm(x: Any, shape: Any, weight: Any = None, eps: Any = None) -> Any:
    """PyTorch's default eps is that of the dtype."""
    return F.rms_norm(x, shape, weight, float(np.finfo(x.dtype).eps) if eps is None else eps)


def without(options: dict[str, Any], **defaults: Any) -> dict[str, Any]:
    """The options less those that say what happens anyway."""
    return {k: v for k, v in options.items() if k not in defaults or v not in (defaults[k], (defaults[k],) * 2)}


def laid_out(options: dict[str, Any]) -> dict[str, Any]:
    """flamepy has one layout: what PyTorch calls contiguous, and keeps of what is."""
    return {k: v for k, v in options.items() if k != "memory_format" or channels_last(None, memory_format=v)}


def channels_last(x: Any, *args: Any, **options: Any) -> bool:
    return "channels_last" in str(options.get("memory_format"))


SDPA = F.scaled_dot_product_attention
BINARY: dict[str, Row] = {
    "mul": Row("mul", lambda x, y: x * y),
    "true_divide": Row("div", lambda x, y: x / y),
    "__radd__": Row("add", lambda x, y: operator.add(y, x)),
    "__rsub__": Row("sub", lambda x, y: operator.sub(y, x)),
    "__rmul__": Row("mul", lambda x, y: operator.mul(y, x)),
    "__rdiv__": Row("div", lambda x, y: operator.truediv(y, x)),
    "__rpow__": Row("pow", lambda x, y: operator.pow(y, x)),
    "pow": Row("pow", fp.pow),
    "maximum": Row("maximum", fp.maximum),
    "minimum": Row("minimum", fp.minimum),
    "where": Row("where", lambda x, mask, y: fp.where(mask, x, y)),
    "masked_fill": Row("masked_fill", fp.masked_fill),
    "eq": Row("eq", lambda x, y: x == y),
    "ne": Row("ne", lambda x, y: x != y),
    "lt": Row("lt", lambda x, y: x < y),
    "le": Row("le", lambda x, y: x <= y),
    "gt": Row("gt", lambda x, y: x > y),
    "ge": Row("ge", lambda x, y: x >= y),
}
SAME_NAME = "neg abs exp log sqrt rsqrt reciprocal square sin cos tanh sigmoid erf floor ceil"
UNARY: dict[str, Row] = {name: Row(name, getattr(fp, name)) for name in SAME_NAME.split()}
ACTIVATIONS: dict[str, Row] = {
    "sign": Row("sign", fp.sign, edge=lambda x: x != x),  # sign(NaN) is NaN here, 0 in PyTorch
    "nn.functional.relu": Row("relu", F.relu),
    "nn.functional.leaky_relu": Row("leaky_relu", F.leaky_relu),
    "nn.functional.elu": Row("elu", F.elu),
    "nn.functional.gelu": Row("gelu", F.gelu),
    "nn.functional.silu": Row("silu", F.silu),
    "nn.functional.softplus": Row("softplus", F.softplus),
}
REDUCE: dict[str, Row] = {
    "sum": Row("sum", reduce(fp.sum)),
    "mean": Row("mean", reduce(fp.mean)),
    "max": Row("max", lambda x, *a, **k: fp.maximum(x, *a) if a and hasattr(a[0], "shape") else extreme(fp.max, fp.argmax)(x, *a, **k)),
    "min": Row("min", lambda x, *a, **k: fp.minimum(x, *a) if a and hasattr(a[0], "shape") else extreme(fp.min, fp.argmin)(x, *a, **k)),
    "argmax": Row("argmax", reduce(fp.argmax)),
    "argmin": Row("argmin", reduce(fp.argmin)),
    "var": Row("var", spread(fp.var)),
    "std": Row("std", spread(fp.std)),
    "logsumexp": Row("logsumexp", reduce(fp.logsumexp)),
}
MATRIX: dict[str, Row] = {
    "matmul": Row("matmul", lambda x, y: x @ y),
    "__rmatmul__": Row("matmul", lambda x, y: y @ x),
    "mm": Row("matmul", fp.matmul),
    "bmm": Row("matmul", fp.matmul),
    "mv": Row("matmul", fp.matmul),
    "nn.functional.linear": Row("linear", F.linear),
}
SHAPE: dict[str, Row] = {
    "reshape": Row("reshape", fp.reshape),
    "view": Row("reshape", lambda x, shape: x.reshape(shape)),
    "reshape_as": Row("reshape", lambda x, y: x.reshape(y.shape)),
    "transpose": Row("transpose", fp.transpose),
    "t": Row("transpose", lambda x: x.T if x.ndim == 2 else x),
    "T": Row("transpose", lambda x: x.T),
    "mT": Row("transpose", lambda x: x.mT),
    "permute": Row("permute", fp.permute),
    "squeeze": Row("squeeze", fp.squeeze, squeezes_more),
    "unsqueeze": Row("unsqueeze", fp.unsqueeze),
    "flatten": Row("flatten", lambda x, start_dim=0, end_dim=-1: fp.flatten(x, start_dim, end_dim)),
    "ravel": Row("flatten", fp.flatten),
    "expand": Row("broadcast_to", expand),
    "broadcast_to": Row("broadcast_to", fp.broadcast_to),
    "expand_as": Row("broadcast_to", lambda x, y: fp.broadcast_to(x, y.shape)),
    "narrow": Row("narrow", lambda x, axis, start, length: fp.narrow(x, axis, start.item() if hasattr(start, "item") else start, length)),
    "select": Row("getitem", select),
    "__getitem__": Row("getitem", operator.getitem),
    "index_select": Row("index_select", fp.index_select),
    "gather": Row("gather", fp.gather, lambda x, axis, index: index.ndim != x.ndim),
    "cat": Row("cat", lambda xs, dim=0: fp.cat(xs, dim), lambda xs, dim=0: len({x.ndim for x in xs}) > 1),
    "stack": Row("stack", lambda xs, dim=0: fp.stack(xs, dim)),
    "split": Row("split", lambda x, sizes, dim=0: fp.split(x, sizes, dim)),
    "split_with_sizes": Row("split", lambda x, sizes, dim=0: fp.split(x, sizes, dim)),
    "chunk": Row("chunk", lambda x, pieces, dim=0: fp.chunk(x, pieces, dim)),
    "nn.functional.pad": Row("pad", F.pad),
    "tril": Row("tril", fp.tril),
    "triu": Row("triu", fp.triu),
    "float": Row("cast", cast(fp.float32), channels_last),
    "double": Row("cast", cast(fp.float64), channels_last),
    "clone": Row("clone", lambda x, **options: x.clone(**laid_out(options)), channels_last),
}
LOSSES: dict[str, Row] = {
    "nn.functional.cross_entropy": Row(
        "cross_entropy", F.cross_entropy, lambda x, t, **k: t.is_floating_point() and k.get("ignore_index", -1) >= 0
    ),
    "nn.functional.nll_loss": Row("nll_loss", F.nll_loss),
    "nn.functional.mse_loss": Row("mse_loss", F.mse_loss),
    "nn.functional.l1_loss": Row("l1_loss", F.l1_loss),
    "nn.functional.smooth_l1_loss": Row("smooth_l1_loss", F.smooth_l1_loss),
    "nn.functional.huber_loss": Row("huber_loss", F.huber_loss),
    "nn.functional.binary_cross_entropy": Row("binary_cross_entropy", F.binary_cross_entropy, fixed=(1,)),
    "nn.functional.binary_cross_entropy_with_logits": Row(
        "binary_cross_entropy_with_logits", F.binary_cross_entropy_with_logits, fixed=(1,)
    ),
    **{name: Row(op, call, **more) for name, (op, call, more) in ROWS.items()},
}
NETWORK: dict[str, Row] = {
    "softmax": Row("softmax", fp.softmax),
    "log_softmax": Row("log_softmax", fp.log_softmax),
    "nn.functional.layer_norm": Row("layer_norm", F.layer_norm),
    "nn.functional.rms_norm": Row("rms_norm", rms_norm),
    "nn.functional.embedding": Row("embedding", lambda w, ids, **k: F.embedding(ids, w, **k)),
    **{
        f"nn.functional.{name}": Row(name, getattr(F, name), random=lambda x, p=0.5, training=True, **k: training and 0 < p < 1)
        for name in ("dropout", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
    },
    "nn.functional.scaled_dot_product_attention": Row(
        "scaled_dot_product_attention", SDPA, random=lambda *a, dropout_p=0.0, **o: dropout_p > 0
    ),
}
from torch_adapters_arrays import ARRAYS  # noqa: E402  (it needs Row)
from torch_adapters_channels import CHANNELS  # noqa: E402
from torch_adapters_made import MADE  # noqa: E402
from torch_adapters_pointwise import POINTWISE  # noqa: E402
from torch_adapters_shapes import SHAPES  # noqa: E402
from torch_adapters_spatial import SPATIAL  # noqa: E402

ADAPTERS = {
    **CHANNELS,
    **BINARY,
    **UNARY,
    **ACTIVATIONS,
    **REDUCE,
    **MATRIX,
    **SHAPE,
    **LOSSES,
    **NETWORK,
    **ARRAYS,
    **SHAPES,
    **SPATIAL,
    **POINTWISE,
    **MADE,
}
