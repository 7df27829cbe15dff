"""An example of each op: inputs of about n elements that it can take, to see which kernels it launches and what they count.

Inputs are uploaded before, so that what is launched is the op's own. Pointwise ops need no line here.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt
from typing import Any

import numpy as np

from .. import optimizers
from ..backend.base import Device
from ..core.op import PUBLIC
from ..core.pointwise import Pointwise
from ..dtypes import FLOATS, as_dtype
from ..gradient import GradientMap
from ..gradients.clip import clip_grad_norm, clip_grad_value
from ..optimizers.base import Optimizer
from ..parameter import Parameter
from ..tensors import Tensor, tensor

COLS = 1024  # of a row
WIDTH = 64  # of an embedding, of a head


class Inputs:
    """Makes an example's tensors on a device; the same ones each time."""

    def __init__(self, device: Device, dtype: np.dtype):
        self.device, self.dtype, self.rng = device, dtype, np.random.default_rng(0)

    def real(self, *shape: int, tracked: bool = True) -> Tensor:
        """Numbers from 0.1 to 0.9, which every op takes."""
        values = self.rng.uniform(0.1, 0.9, shape).astype(self.dtype)
        return tensor(values, device=self.device, requires_grad=tracked and self.dtype in FLOATS)

    def rows(self, n: int, tracked: bool = True) -> Tensor:
        """n numbers in rows."""
        cols = max(1, min(n, COLS))
        return self.real(max(1, n // cols), cols, tracked=tracked)

    def ids(self, count: int, below: int) -> Tensor:
        return tensor(self.rng.integers(0, max(below, 1), count), device=self.device)

    def mask(self, *shape: int) -> Tensor:
        return tensor(self.rng.random(shape) < 0.5, device=self.device)


def linear(m: Inputs, n: int) -> Tensor:
    side = max(1, isqrt(n))
    return PUBLIC["linear"](m.real(side, side), m.real(side, side), m.real(side))


def matmul(m: Inputs, n: int) -> Tensor:
    side = max(1, isqrt(n))
    return PUBLIC["matmul"](m.real(side, side), m.real(side, side))


def norm(name: str, vectors: int) -> Callable[[Inputs, int], Tensor]:
    def example(m: Inputs, n: int) -> Tensor:
        x = m.rows(n)
        cols = x.shape[-1]
        return PUBLIC[name](x, cols, *(m.real(cols) for _ in range(vectors)))

    return example


def attention(m: Inputs, n: int) -> Tensor:
    shape = 1, 2, max(1, n // (2 * WIDTH)), WIDTH
    return PUBLIC["scaled_dot_product_attention"](m.real(*shape), m.real(*shape), m.real(*shape), is_causal=True)


def embedding(m: Inputs, n: int) -> Tensor:
    return PUBLIC["embedding"](m.ids(max(1, n // WIDTH), 256), m.real(256, WIDTH))


def classes(name: str) -> Callable[[Inputs, int], Tensor]:
    def example(m: Inputs, n: int) -> Tensor:
        x = m.rows(n)
        return PUBLIC[name](x, m.ids(x.shape[0], x.shape[1]))

    return example


def images(m: Inputs, n: int) -> Tensor:
    side = max(4, isqrt(max(1, n // 32)))
    return m.real(4, 8, side, side)


def pair(name: str) -> Callable[[Inputs, int], Tensor]:
    return lambda m, n: PUBLIC[name](m.real(n), m.real(n, tracked=False))


def alone(name: str, *args: Any) -> Callable[[Inputs, int], Any]:
    return lambda m, n: PUBLIC[name](m.rows(n), *args)


def channels(name: str) -> Callable[[Inputs, int], Any]:
    options = {"group_norm": (2,), "batch_norm": (None, None, None, None, True)}
    return lambda m, n: PUBLIC[name](images(m, n), *options.get(name, ()))


def recurrent(name: str, gates: int) -> Callable[[Inputs, int], Any]:
    """16 steps of 8 units."""
    return lambda m, n: PUBLIC[name](m.real(16, max(1, n // 128), 8), m.real(8 * gates, 8), m.real(8 * gates, 8))


SCANS = "cumsum cumprod cummax logcumsumexp sort argsort median"
EXAMPLES: dict[str, Callable[[Inputs, int], Any]] = {
    **{name: alone(name) for name in ("gelu", "clone", "sum", "mean", "prod", "max", "min", "argmax", "argmin", "var", "std", "dropout")},
    **{name: alone(name, -1) for name in ("softmax", "log_softmax", "logsumexp")},
    **{name: alone(name) for name in ("isnan", "isinf", "isfinite", "tril", "triu")},
    **{name: pair(name) for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy")},
    **{name: classes(name) for name in ("cross_entropy", "nll_loss")},
    "binary_cross_entropy_with_logits": pair("binary_cross_entropy_with_logits"),
    "clamp": alone("clamp", 0.2, 0.8), "pow": alone("pow", 3.0), "transpose": alone("transpose", 0, 1),
    "layer_norm": norm("layer_norm", 2), "rms_norm": norm("rms_norm", 1), "linear": linear, "matmul": matmul,
    "scaled_dot_product_attention": attention, "attention": attention, "embedding": embedding,
    "conv2d": lambda m, n: PUBLIC["conv2d"](images(m, n), m.real(8, 8, 3, 3), m.real(8), padding=1),
    "max_pool2d": lambda m, n: PUBLIC["max_pool2d"](images(m, n), 2), "avg_pool2d": lambda m, n: PUBLIC["avg_pool2d"](images(m, n), 2),
    "masked_fill": lambda m, n: PUBLIC["masked_fill"](m.real(n), m.mask(n), 0.0),
    "cat": lambda m, n: PUBLIC["cat"]([m.real(n), m.real(n)]), "gather": lambda m, n: PUBLIC["gather"](m.real(n), 0, m.ids(n, n)),
    "cast": lambda m, n: PUBLIC["cast"](m.real(n), "float16"),
    **{name: alone(name) for name in SCANS.split()}, "topk": alone("topk", 4), "roll": alone("roll", 3), "flip": alone("flip", -1),
    **{name: pair(name) for name in ("div", "kl_div", "hinge_embedding_loss")},
    **{name: channels(name) for name in ("batch_norm", "instance_norm", "group_norm")},
    "scatter_add": lambda m, n: PUBLIC["scatter_add"](m.real(n), 0, m.ids(n, n), m.real(n)),
    "searchsorted": lambda m, n: PUBLIC["searchsorted"](m.real(n), m.real(n)),
    "swiglu": lambda m, n: PUBLIC["swiglu"](m.rows(n), m.rows(n)), "rope": lambda m, n: PUBLIC["rope"](images(m, n)),
    "interpolate": lambda m, n: PUBLIC["interpolate"](images(m, n), scale_factor=2, mode="bilinear"),
    **{name: recurrent(name, gates) for name, gates in (("lstm", 4), ("gru", 3), ("rnn", 1))},
    "adaptive_avg_pool2d": lambda m, n: PUBLIC["adaptive_avg_pool2d"](images(m, n), 2),
}  # fmt: skip
OPTIMIZERS: dict[str, Any] = {
    name.lower(): kind for name, kind in vars(optimizers).items() if isinstance(kind, type) and issubclass(kind, Optimizer) and kind.slots
}
CLIPS: dict[str, Callable[..., float]] = {"clip_grad_norm": clip_grad_norm, "clip_grad_value": clip_grad_value}


def names() -> list[str]:
    """Everything that has an example."""
    pointwise = [name for name, f in PUBLIC.items() if isinstance(getattr(f, "op", None), Pointwise)]
    return sorted({*pointwise, *EXAMPLES, *OPTIMIZERS, *CLIPS})


def prepared(name: str, n: int, dtype: Any, device: Device) -> Callable[[], Any]:
    """What runs the example once, forward and backward; its inputs are there. Raises ValueError for an unknown name."""
    m = Inputs(device, as_dtype(dtype))
    if name in OPTIMIZERS or name in CLIPS:
        return training(name, n, m)
    example = EXAMPLES.get(name)
    if example is None:
        function = PUBLIC[name]
        op: Any = function.op  # type: ignore[attr-defined]
        inputs = [m.mask(n) if i < op.masks else m.real(n, tracked=bool(op.rule)) for i in range(len(op.inputs))]
        forward = lambda: function(*inputs)
    else:
        inputs = []
        forward = lambda: example(m, n)
    return lambda: forward_and_backward(forward, m)


def forward_and_backward(forward: Callable[[], Any], m: Inputs) -> None:
    y = forward()
    if isinstance(y, Tensor) and y.requires_grad:
        y.backward(gradient=tensor(np.ones(y.shape, y.dtype), device=m.device))


def training(name: str, n: int, m: Inputs) -> Callable[[], Any]:
    """An optimizer's step, or a clip, on one parameter of n elements."""
    shape = (max(1, isqrt(n)),) * 2 if name == "muon" else (n,)
    p = Parameter(m.real(*shape, tracked=False))
    g = tensor(np.full(shape, 0.5, "f4" if m.dtype.itemsize == 2 else m.dtype), device=m.device)
    grads = GradientMap()
    grads.insert(p, g)
    if name in CLIPS:
        return lambda: CLIPS[name](grads, 0.1)
    optimizer = OPTIMIZERS[name]([p], lr=1e-3)
    optimizer.step(grads)  # its state is made
    return lambda: optimizer.step(grads)
