"""One spelling for four libraries: a formula such as `lambda L, x, w: L.linear(x, w)` runs in flamepy, PyTorch, JAX and NumPy.

Each class gives the functions a formula may name, puts arrays where its library wants them, and makes the function that is timed:
forward, backward (from a tape or, in JAX, compiled together with what it recomputes), or both.
NumPy, in float64, is the oracle.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np

Formula = Callable[..., Any]


def torch_module() -> Any:
    """PyTorch with the number of threads everybody has."""
    import torch

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", torch.get_num_threads())))
    return torch


class Flamepy:
    def __init__(self) -> None:
        import flamepy as fp
        import flamepy.nn.functional as F

        self.fp, self.F = fp, F
        self.t = fp  # what is spelled as in PyTorch
        for name in ("relu", "silu", "tanh", "exp", "softmax", "log_softmax", "linear", "embedding", "cross_entropy", "conv2d"):
            setattr(self, name, getattr(F, name, None) or getattr(fp, name))

    def gelu(self, x: Any) -> Any:
        return self.F.gelu(x, approximate="tanh")

    def gelu_erf(self, x: Any) -> Any:
        return self.F.gelu(x)

    def layer_norm(self, x: Any, w: Any, b: Any) -> Any:
        return self.F.layer_norm(x, w.shape, w, b)

    def rms_norm(self, x: Any, w: Any) -> Any:
        return self.F.rms_norm(x, w.shape, w)

    def attention(self, q: Any, k: Any, v: Any) -> Any:
        return self.F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def max_pool(self, x: Any) -> Any:
        return self.F.max_pool2d(x, 2)

    def sum(self, x: Any, axis: Any = None) -> Any:
        return x.sum(axis)

    def max(self, x: Any, axis: int) -> Any:
        return x.max(axis)

    def transposed(self, x: Any) -> Any:
        return self.fp.transpose(x)

    def reshape(self, x: Any, shape: tuple[int, ...]) -> Any:
        return x.reshape(shape)

    def place(self, array: np.ndarray, tracked: bool) -> Any:
        return self.fp.tensor(array, requires_grad=tracked)

    def host(self, x: Any) -> np.ndarray:
        return x.numpy()

    def forward(self, formula: Formula, xs: list[Any]) -> Callable[[], Any]:
        return lambda: formula(self, *xs)

    def backward(self, formula: Formula, xs: list[Any], g: np.ndarray) -> Callable[[], list[Any]]:
        y, cotangent = formula(self, *xs), self.fp.tensor(g)
        return lambda: self.gradients(y.backward(cotangent, retain_graph=True), xs)

    def both(self, formula: Formula, xs: list[Any], g: np.ndarray) -> Callable[[], list[Any]]:
        cotangent = self.fp.tensor(g)

        def run() -> list[Any]:
            y = formula(self, *xs)
            return [y, *self.gradients(y.backward(cotangent), xs)]

        return run

    def gradients(self, grads: Any, xs: list[Any]) -> list[Any]:
        return [grads[x] for x in xs if x.requires_grad]


class Torch:
    def __init__(self, compiled: bool = False) -> None:
        torch = self.torch = self.t = torch_module()
        self.compiled = compiled
        self.F = torch.nn.functional
        for name in ("relu", "silu", "linear", "embedding", "cross_entropy"):
            setattr(self, name, getattr(self.F, name))
        self.tanh, self.exp, self.reshape = torch.tanh, torch.exp, torch.reshape

    def gelu(self, x: Any) -> Any:
        return self.F.gelu(x, approximate="tanh")

    def gelu_erf(self, x: Any) -> Any:
        return self.F.gelu(x)

    def softmax(self, x: Any) -> Any:
        return self.F.softmax(x, -1)

    def log_softmax(self, x: Any) -> Any:
        return self.F.log_softmax(x, -1)

    def layer_norm(self, x: Any, w: Any, b: Any) -> Any:
        return self.F.layer_norm(x, w.shape, w, b)

    def rms_norm(self, x: Any, w: Any) -> Any:
        return self.F.rms_norm(x, w.shape, w, 1e-5)

    def attention(self, q: Any, k: Any, v: Any) -> Any:
        return self.F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def conv2d(self, x: Any, w: Any, b: Any, padding: int) -> Any:
        return self.F.conv2d(x, w, b, padding=padding)

    def max_pool(self, x: Any) -> Any:
        return self.F.max_pool2d(x, 2)

    def sum(self, x: Any, axis: Any = None) -> Any:
        return x.sum() if axis is None else x.sum(axis)

    def max(self, x: Any, axis: int) -> Any:
        return x.amax(axis)

    def transposed(self, x: Any) -> Any:
        return x.transpose(-2, -1).contiguous()

    def place(self, array: np.ndarray, tracked: bool) -> Any:
        return self.torch.tensor(array, requires_grad=tracked)

    def host(self, x: Any) -> np.ndarray:
        return x.detach().numpy()

    def function(self, formula: Formula) -> Formula:
        """The formula, compiled if wanted."""
        plain = lambda *xs: formula(self, *xs)
        if not self.compiled:
            return plain
        import torch._functorch.config as functorch

        self.torch._dynamo.reset()
        functorch.donated_buffer = False  # the backward of one tape is timed many times
        return self.torch.compile(plain, dynamic=False)

    def forward(self, formula: Formula, xs: list[Any]) -> Callable[[], Any]:
        f = self.function(formula)
        return lambda: f(*xs)

    def backward(self, formula: Formula, xs: list[Any], g: np.ndarray) -> Callable[[], list[Any]]:
        y, wanted, cotangent = self.function(formula)(*xs), [x for x in xs if x.requires_grad], self.torch.tensor(g)
        return lambda: self.torch.autograd.grad(y, wanted, cotangent, retain_graph=True)

    def both(self, formula: Formula, xs: list[Any], g: np.ndarray) -> Callable[[], list[Any]]:
        f, wanted, cotangent = self.function(formula), [x for x in xs if x.requires_grad], self.torch.tensor(g)

        def run() -> list[Any]:
            y = f(*xs)
            return [y, *self.torch.autograd.grad(y, wanted, cotangent)]

        return run


class Jax:
    def __init__(self) -> None:
        import jax
        import jax.numpy as jnp

        self.jax, self.jnp = jax, jnp
        self.relu, self.silu, self.softmax, self.log_softmax = jax.nn.relu, jax.nn.silu, jax.nn.softmax, jax.nn.log_softmax
        self.tanh, self.exp, self.reshape, self.gelu = jnp.tanh, jnp.exp, jnp.reshape, jax.nn.gelu

    def gelu_erf(self, x: Any) -> Any:
        return self.jax.nn.gelu(x, approximate=False)

    def layer_norm(self, x: Any, w: Any, b: Any) -> Any:
        offset = x - x.mean(-1, keepdims=True)
        return offset * self.jax.lax.rsqrt((offset * offset).mean(-1, keepdims=True) + 1e-5) * w + b

    def rms_norm(self, x: Any, w: Any) -> Any:
        return x * self.jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w

    def cross_entropy(self, x: Any, ids: Any) -> Any:
        return -self.jnp.take_along_axis(self.jax.nn.log_softmax(x, -1), ids[:, None], -1).mean()

    def linear(self, x: Any, w: Any, b: Any) -> Any:
        return x @ w.T if b is None else x @ w.T + b

    def embedding(self, ids: Any, w: Any) -> Any:
        return w[ids]

    def attention(self, q: Any, k: Any, v: Any) -> Any:
        rows = q.shape[-2]
        scores = q @ self.jnp.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1])
        scores = self.jnp.where(self.jnp.tril(self.jnp.ones((rows, rows), bool)), scores, -1e30)
        return self.jax.nn.softmax(scores, -1) @ v

    def conv2d(self, x: Any, w: Any, b: Any, padding: int) -> Any:
        around = [(padding, padding)] * 2
        return self.jax.lax.conv_general_dilated(x, w, (1, 1), around, dimension_numbers=("NCHW", "OIHW", "NCHW")) + b[:, None, None]

    def max_pool(self, x: Any) -> Any:
        window = (1, 1, 2, 2)
        return self.jax.lax.reduce_window(x, -math.inf, self.jax.lax.max, window, window, "VALID")

    def sum(self, x: Any, axis: Any = None) -> Any:
        return x.sum(axis)

    def max(self, x: Any, axis: int) -> Any:
        return x.max(axis)

    def transposed(self, x: Any) -> Any:
        return self.jnp.swapaxes(x, -1, -2)

    def place(self, array: np.ndarray, tracked: bool) -> Any:
        return self.jnp.asarray(array)

    def host(self, x: Any) -> np.ndarray:
        return np.asarray(x)

    def forward(self, formula: Formula, xs: list[Any]) -> Callable[[], Any]:
        f = self.jax.jit(lambda *xs: formula(self, *xs))
        return lambda: self.jax.block_until_ready(f(*xs))

    def backward(self, formula: Formula, xs: list[Any], g: np.ndarray) -> Callable[[], list[Any]]:
        return self.both(formula, xs, g, slice(1, None))

    def both(self, formula: Formula, xs: list[Any], g: np.ndarray, part: slice = slice(None)) -> Callable[[], list[Any]]:
        floats = [i for i, x in enumerate(xs) if x.dtype.kind == "f"]

        def all_of(xs: list[Any], g: Any) -> list[Any]:
            def of_floats(*values: Any) -> Any:
                full = list(xs)
                for i, value in zip(floats, values, strict=True):
                    full[i] = value
                return formula(self, *full)

            y, vjp = self.jax.vjp(of_floats, *[xs[i] for i in floats])
            return [y, *vjp(g)][part]

        f, cotangent = self.jax.jit(all_of), self.jnp.asarray(g)
        return lambda: self.jax.block_until_ready(f(xs, cotangent))


class Numpy:
    """The oracle's spelling: plain, in whatever dtype comes in."""

    exp, tanh, reshape = staticmethod(np.exp), staticmethod(np.tanh), staticmethod(np.reshape)

    def relu(self, x: Any) -> Any:
        return np.maximum(x, 0)

    def silu(self, x: Any) -> Any:
        return x / (1 + np.exp(-x))

    def gelu(self, x: Any) -> Any:
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    def gelu_erf(self, x: Any) -> Any:
        flat = np.fromiter(map(math.erf, (x / math.sqrt(2)).ravel().tolist()), float, x.size)
        return 0.5 * x * (1 + flat.reshape(x.shape))

    def softmax(self, x: Any) -> Any:
        e = np.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    def log_softmax(self, x: Any) -> Any:
        top = x - x.max(-1, keepdims=True)
        return top - np.log(np.exp(top).sum(-1, keepdims=True))

    def layer_norm(self, x: Any, w: Any, b: Any) -> Any:
        return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * w + b

    def rms_norm(self, x: Any, w: Any) -> Any:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w

    def cross_entropy(self, x: Any, ids: Any) -> Any:
        return -self.log_softmax(x)[np.arange(len(ids)), ids].mean()

    def linear(self, x: Any, w: Any, b: Any) -> Any:
        return x @ w.T if b is None else x @ w.T + b

    def embedding(self, ids: Any, w: Any) -> Any:
        return w[ids]

    def attention(self, q: Any, k: Any, v: Any) -> Any:
        scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
        return self.softmax(np.where(np.tri(q.shape[-2], dtype=bool), scores, -np.inf)) @ v

    def conv2d(self, x: Any, w: Any, b: Any, padding: int) -> Any:
        padded = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], (2, 3))
        return np.tensordot(windows, w, ((1, 4, 5), (1, 2, 3))).transpose(0, 3, 1, 2) + b[:, None, None]

    def max_pool(self, x: Any) -> Any:
        n, c, h, w = x.shape
        return x.reshape(n, c, h // 2, 2, w // 2, 2).max((3, 5))

    def sum(self, x: Any, axis: Any = None) -> Any:
        return x.sum(axis)

    def max(self, x: Any, axis: int) -> Any:
        return x.max(axis)

    def transposed(self, x: Any) -> Any:
        return x.swapaxes(-1, -2)


def library(contender: str) -> Any:
    """The library of a contender."""
    if contender == "flamepy":
        return Flamepy()
    return Jax() if contender == "jax" else Torch(compiled=contender == "torch-compile")
