"""What `flamepy doctor --gpu` has a GPU do: every public op, forward and backward.

A case is a function of a Draw, which makes its inputs: the same numbers on the GPU, in the type that is looked at, and on the plain
device, in float64. What it returns is compared.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from ... import ops
from ...dtypes import as_dtype, float64
from ...nn import functional as F
from ...parameter import Parameter, ParameterDict
from ...tensors import tensor

ROWS, COLUMNS = 37, 261  # odd: blocks and 16-byte loads end within a row
Call = Callable[["Draw"], Any]


class Draw:
    """Makes a case's inputs on a device: drawn by the case's name, rounded to `dtype`, then `wide` if wanted."""

    def __init__(self, name: str, device: str, dtype: str, wide: bool):
        self.random, self.device, self.dtype, self.wide = np.random.default_rng(zlib.crc32(name.encode())), device, dtype, wide
        self.tracked: list[Any] = []

    def put(self, array: np.ndarray) -> Any:
        given = array.astype(as_dtype(self.dtype))
        return tensor(given.astype(float64) if self.wide else given, device=self.device)

    def x(self, *shape: int, low: float = -2.0, high: float = 2.0) -> Any:
        """Numbers in [low, high), which get a gradient."""
        found = self.put(self.random.uniform(low, high, shape or (ROWS, COLUMNS))).requires_grad_()
        self.tracked.append(found)
        return found

    def ids(self, high: int, *shape: int) -> Any:
        return tensor(self.random.integers(0, high, shape), device=self.device)

    def mask(self, *shape: int) -> Any:
        return tensor(self.random.random(shape or (ROWS, COLUMNS)) < 0.6, device=self.device)

    def params(self, *shapes: tuple[int, ...]) -> ParameterDict:
        shapes = shapes or ((COLUMNS, 3), (19,), (8, 4, 5), ())
        return ParameterDict({f"p{n}": Parameter(self.put(self.random.uniform(-1, 1, shape))) for n, shape in enumerate(shapes)})


# ---- ops --------------------------------------------------------------------------------------------------------------------------
POSITIVE = {"low": 0.3, "high": 3.0}
NAMES = """neg abs sign exp square sin cos tanh sigmoid erf relu isnan isinf isfinite clone leaky_relu elu gelu silu softplus floor ceil
    round sum mean max min argmax argmin logsumexp var std softmax log_softmax tril triu flatten transpose logical_not"""
ALONG = "sum mean max min argmax argmin var std logsumexp prod softmax log_softmax"
UNARY: dict[str, dict[str, float]] = {name: {} for name in NAMES.split()}
UNARY |= dict.fromkeys(("log", "sqrt", "rsqrt", "reciprocal"), POSITIVE)
BINARY = ["add", "sub", "mul", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge"]


def found(name: str) -> Callable[..., Any]:
    return getattr(F, name, None) or getattr(ops, name)


def unary(name: str, limits: dict[str, float]) -> Call:
    return lambda w: found(name)(w.x(**limits))


def binary(name: str) -> Call:
    return lambda w: [found(name)(a := w.x(), w.x()), found(name)(a, w.x(COLUMNS)), found(name)(w.x(ROWS, 1), a), found(name)(a, 0.5)]


def folded(name: str, **options: Any) -> Call:
    """Over the rows, the columns, and the middle of three dimensions."""
    f = found(name)
    return lambda w: [f(x := w.x(9, 33, 65), axis=2, **options), f(x, axis=0, **options), f(x, axis=1, **options)]


def pairwise(name: str) -> Call:
    return lambda w: [found(name)(x := w.x(), y := w.x()), found(name)(x, y, reduction="none")]


OPS: dict[str, Call] = {
    **{name: unary(name, limits) for name, limits in UNARY.items()},
    **{name: binary(name) for name in BINARY},
    **{f"{name} along axes": folded(name) for name in ALONG.split()},
    **{name: pairwise(name) for name in ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"]},
    "div": lambda w: w.x() / w.x(**POSITIVE),
    "pow": lambda w: [ops.pow(w.x(**POSITIVE), w.x()), w.x() ** 3],
    "logical": lambda w: [ops.logical_and(w.mask(), w.mask()), ops.logical_or(w.mask(), w.mask())],
    "gelu by tanh": lambda w: F.gelu(w.x(), approximate="tanh"),
    "clamp": lambda w: ops.clamp(w.x(), min=-0.5, max=0.7),
    "where": lambda w: ops.where(w.mask(), w.x(), w.x(COLUMNS)),
    "masked_fill": lambda w: ops.masked_fill(w.x(), w.mask(), -7.5),
    "sum of a million": lambda w: ops.mean(w.x(1013, 1031)),
    "prod": lambda w: ops.prod(w.x(7, 9, low=0.8, high=1.2)),
    "matmul": lambda w: [w.x(ROWS, 65) @ w.x(65, 129), w.x(5, 33, 17) @ w.x(5, 17, 40), w.x(3, 33, 17) @ w.x(17, 40), w.x(64) @ w.x(64)],
    "matmul of aligned sides": lambda w: w.x(256, 128) @ w.x(128, 512),
    "matmul transposed": lambda w: ops.transpose(w.x(72, 40)) @ ops.transpose(w.x(136, 72)),
    "matmul with a long sum": lambda w: w.x(24, 4096, low=-1, high=1) @ w.x(4096, 40, low=-1, high=1),
    "linear": lambda w: F.linear(w.x(6, ROWS, 72), w.x(129, 72), w.x(129)),
    "linear of aligned sides": lambda w: F.linear(w.x(256, 128), w.x(384, 128), w.x(384)),
    "linear then gelu": lambda w: F.gelu(F.linear(w.x(128, 64), w.x(256, 64), w.x(256)), approximate="tanh"),
    "linear without bias": lambda w: F.linear(w.x(ROWS, 72), w.x(129, 72)),
    "reshape": lambda w: ops.reshape(w.x(12, 35), (21, 20)),
    "permute": lambda w: ops.permute(w.x(9, 33, 20), (2, 0, 1)),
    "squeeze, unsqueeze": lambda w: ops.unsqueeze(ops.squeeze(w.x(9, 1, 20)), 0),
    "broadcast_to": lambda w: ops.broadcast_to(w.x(33, 1), (9, 33, 20)),
    "narrow, slices": lambda w: [ops.narrow(x := w.x(), 1, 3, 200), x[::2, 5:], x[3], x[:, -7]],
    "rows by ids": lambda w: [w.x()[w.ids(ROWS, 90)], ops.index_select(w.x(), 1, w.ids(COLUMNS, 70))],
    "gather": lambda w: ops.gather(w.x(), 1, w.ids(COLUMNS, ROWS, 50)),
    "cat, stack": lambda w: [ops.cat([w.x(), w.x(5, COLUMNS)]), ops.stack([w.x(), w.x()], 1)],
    "split, chunk": lambda w: [*ops.split(w.x(), 100, 1), *ops.chunk(w.x(), 4)],
    "pad": lambda w: ops.pad(w.x(), ((1, 0), (2, 3)), 1.5),
    "cast": lambda w: [ops.cast(w.x(), name) for name in ("float32", "bfloat16", "float16")],
    "layer_norm": lambda w: [F.layer_norm(w.x(ROWS, n), (n,), w.x(n), w.x(n)) for n in (40, 261, 768, 4099)],
    "layer_norm plain": lambda w: F.layer_norm(w.x(), (COLUMNS,)),
    "rms_norm": lambda w: [F.rms_norm(w.x(ROWS, n), (n,), w.x(n)) for n in (40, 261, 768)],
    "residual then layer_norm": lambda w: F.layer_norm(w.x() + w.x(), (COLUMNS,), w.x(COLUMNS), w.x(COLUMNS)),
    "long rows": lambda w: [F.softmax(w.x(3, 20001), -1), ops.logsumexp(w.x(3, 20001), axis=1)],
    "embedding": lambda w: F.embedding(w.ids(50, 6, ROWS), w.x(50, 72)),
    "cross_entropy": lambda w: [F.cross_entropy(w.x(64, n), w.ids(n, 64)) for n in (10, 261, 5003)],
    "cross_entropy, smoothed": lambda w: F.cross_entropy(w.x(64, 33), w.ids(33, 64), label_smoothing=0.1, ignore_index=3),
    "nll_loss": lambda w: F.nll_loss(w.x(64, 33), w.ids(33, 64)),
    "binary_cross_entropy": lambda w: F.binary_cross_entropy(w.x(low=0.05, high=0.95), w.x(low=0.05, high=0.95).detach()),
    "binary_cross_entropy_with_logits": lambda w: F.binary_cross_entropy_with_logits(w.x(), w.x(low=0.05, high=0.95).detach()),
    "attention": lambda w: F.scaled_dot_product_attention(w.x(2, 3, 65, 32), w.x(2, 3, 97, 32), w.x(2, 3, 97, 32)),
    "attention, causal": lambda w: [
        F.scaled_dot_product_attention(w.x(2, 3, t, d), w.x(2, 3, t, d), w.x(2, 3, t, d), is_causal=True)
        for t, d in ((33, 32), (128, 64), (130, 24))
    ],
    "attention, heads of 128": lambda w: F.scaled_dot_product_attention(*[w.x(1, 2, 96, 128) for _ in range(3)], is_causal=True),
    "attention, masked": lambda w: masked_attention(w, *[w.x(2, 2, 40, 16) for _ in range(3)]),
    "conv2d": lambda w: F.conv2d(w.x(4, 3, 14, 13), w.x(8, 3, 3, 3), w.x(8), padding=1),
    "conv2d, strided, in groups": lambda w: F.conv2d(w.x(2, 4, 15, 16), w.x(6, 2, 3, 2), w.x(6), stride=2, dilation=(1, 2), groups=2),
    "max_pool2d": lambda w: [F.max_pool2d(w.x(3, 4, 13, 14), 2), F.max_pool2d(w.x(3, 4, 13, 14), 3, 2, 1)],
    "avg_pool2d": lambda w: [F.avg_pool2d(w.x(3, 4, 13, 14), 2), F.avg_pool2d(w.x(3, 4, 13, 14), 3, 2, 1)],
}  # fmt: skip


def masked_attention(w: Draw, q: Any, k: Any, v: Any) -> Any:
    """Each position sees itself, at least."""
    mask = (w.random.random((40, 40)) < 0.6) | np.eye(40, dtype=bool)
    return F.scaled_dot_product_attention(q, k, v, tensor(mask, device=w.device))
