"""Linear, Bilinear, Embedding, Flatten, Unflatten, Identity."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import ops
from ..core.dtypes import check_flag
from ..core.errors import IndexOutOfRange, ShapeError
from ..dtypes import is_count
from ..ops.spatial_sizes import check_reach
from ..parameter import Parameter
from ..tensors import Tensor
from . import functional as F
from .activation import GELU, ReLU, Sigmoid, SiLU, Tanh
from .compute import linear_in
from .module import Module

ACTIVATIONS = (ReLU, GELU, SiLU, Tanh, Sigmoid)  # what Linear.with_next() can compute


def size(layer: str, name: str, value: Any, least: int = 0) -> int:
    """A size as an int. Raises ShapeError for anything else."""
    if not is_count(value, least):
        raise ShapeError(f"{layer}: {name} is not a size: {value!r}. Use an int, {least} or more.")
    check_reach(layer, name, [value])
    return int(value)


def flags(layer: str, **given: Any) -> None:
    """Raise DTypeError for one that is neither True nor False, such as what belongs to another place of the signature; 0 and 1 will do."""
    for name, value in given.items():
        check_flag(layer, name, value)


class Linear(Module):
    """x @ weight.T + bias: (..., in_features) -> (..., out_features); weight is (out_features, in_features).
    Both start uniform in +-1 / sqrt(in_features)."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None):
        self.in_features = size("Linear", "in_features", in_features)
        self.out_features = size("Linear", "out_features", out_features)
        flags("Linear", bias=bias)
        bound = max(1, in_features) ** -0.5
        self.weight = Parameter.uniform((out_features, in_features), -bound, bound, dtype=dtype, device=device)
        self.bias = Parameter.uniform((out_features,), -bound, bound, dtype=dtype, device=device) if bias else None

    def forward(self, x: Any) -> Any:
        """x (..., in_features) -> (..., out_features). Raises ShapeError where x ends otherwise."""
        return linear_in(self.compute_dtype, x, self.weight, self.bias)

    def with_next(self, following: Module) -> Callable[[Any], Any] | None:
        """With an activation after it, both in one launch."""
        kind = type(following)
        if kind not in ACTIVATIONS or not following.as_written(kind) or not self.as_written(Linear):
            return None
        name = following.op  # type: ignore[attr-defined]

        def both(x: Any) -> Any:
            # A frozen layer keeps less when the activation is an op of its own: it needs no x.
            if not self.weight.requires_grad:
                return following(self(x))
            return linear_in(self.compute_dtype, x, self.weight, self.bias, None, name)

        return both

    def add_to(self, residual: Any, *args: Any, **options: Any) -> Any:
        """residual + self(x) in one launch, where their shapes are the same."""
        if len(args) != 1 or options or not self.as_written(Linear) or residual.shape != (*args[0].shape[:-1], self.out_features):
            return super().add_to(residual, *args, **options)
        return linear_in(self.compute_dtype, args[0], self.weight, self.bias, residual)

    def whole_weight(self) -> Any:
        """What x is multiplied by, for those who need only some rows of it."""
        return self.weight

    def extra(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Embedding(Module):
    """Rows of weight (num_embeddings, embedding_dim) at integer ids; starts normal with mean 0, deviation 1.
    padding_idx: the id of a row that starts at 0 and gets no gradient."""

    padding_idx: int | None = None

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, device: Any = None, dtype: Any = None,
    ):  # fmt: skip
        self.num_embeddings = size("Embedding", "num_embeddings", num_embeddings)
        self.embedding_dim = size("Embedding", "embedding_dim", embedding_dim)
        self.weight = Parameter.randn((num_embeddings, embedding_dim), std=1.0, dtype=dtype, device=device)
        if padding_idx is not None:
            if not is_count(padding_idx, -num_embeddings) or padding_idx >= num_embeddings:
                raise IndexOutOfRange(f"Embedding: padding_idx is no row: {padding_idx!r}. Use an int below {num_embeddings}.")
            self.padding_idx = int(padding_idx) % num_embeddings
            self.weight.set_data(ops.index_fill(self.weight.detach(), 0, [self.padding_idx], 0.0))

    @classmethod
    def from_pretrained(cls, embeddings: Any, freeze: bool = True, padding_idx: int | None = None) -> Embedding:
        """One with this weight (num_embeddings, embedding_dim), which is not trained unless freeze is False. padding_idx: as above, but
        its row stays what it is. Raises ShapeError."""
        rows = Tensor.of("Embedding", embeddings).detach()
        flags("Embedding", freeze=freeze)
        if rows.ndim != 2:
            raise ShapeError(f"Embedding: not a matrix: {rows.shape}. Pass (num_embeddings, embedding_dim).")
        layer = cls(rows.shape[0], rows.shape[1], padding_idx, rows.device, rows.dtype)
        layer.weight.set_data(rows)
        layer.weight.requires_grad = not freeze
        return layer

    def forward(self, ids: Any) -> Any:
        """Integer ids (...) -> rows (..., embedding_dim). Raises IndexOutOfRange unless all are in 0 to num_embeddings - 1."""
        if self.padding_idx is None:
            return F.embedding(ids, self.weight)
        ids = Tensor.of("embedding", ids, self.weight.device)
        rows = F.embedding(ids, self.weight)
        return ops.where(ops.unsqueeze(ids == self.padding_idx, -1), rows.detach(), rows)

    def extra(self) -> str:
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"


class Flatten(Module):
    """Merge the axes from start_dim to end_dim into one; the first axis, of the batch, is left alone."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1):
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, x: Any) -> Any:
        """x (..., a, ..., b, ...) -> (..., a * ... * b, ...), the axes start_dim to end_dim as one."""
        return ops.flatten(x, self.start_dim, self.end_dim)

    def extra(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """One axis as several, one of whose sizes may be -1."""

    def __init__(self, dim: int, unflattened_size: Any):
        self.dim, self.unflattened_size = dim, unflattened_size

    def forward(self, x: Any) -> Any:
        """x (..., n, ...) -> (..., *unflattened_size, ...) at the axis dim. Raises ShapeError."""
        return ops.unflatten(x, self.dim, self.unflattened_size)

    def extra(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


class Identity(Module):
    """x itself; takes any arguments."""

    def __init__(self, *args: Any, **options: Any):
        pass

    def forward(self, x: Any) -> Any:
        """x -> x."""
        return x


class Bilinear(Module):
    """x1 @ weight[o] @ x2 + bias[o]; weight is (out_features, in1_features, in2_features).
    weight and bias start uniform in +-1 / sqrt(in1_features)."""

    def __init__(
        self, in1_features: int, in2_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None,
    ):  # fmt: skip
        shape = [size("Bilinear", "a number of features", n) for n in (out_features, in1_features, in2_features)]
        bound = max(1, shape[1]) ** -0.5
        self.weight = Parameter.uniform(tuple(shape), -bound, bound, dtype=dtype, device=device)
        self.bias = Parameter.uniform((shape[0],), -bound, bound, dtype=dtype, device=device) if bias else None

    def forward(self, x1: Any, x2: Any) -> Any:
        """x1 (..., in1_features), x2 (..., in2_features) -> (..., out_features). Raises ShapeError."""
        x1, x2, weight, bias = self.operands(x1, x2, self.weight, self.bias)
        return F.bilinear(x1, x2, weight, bias)

    def extra(self) -> str:
        out, in1, in2 = self.weight.shape
        return f"in1_features={in1}, in2_features={in2}, out_features={out}, bias={self.bias is not None}"
