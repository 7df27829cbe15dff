"""LoRA: a linear layer that stays as it is, and a small product that is trained beside it (Hu et al. 2021, arXiv:2106.09685).

    nn.lora(model, "*.attn.*", rank=8)                         # freezes everything but the new A and B
    optimizer = flamepy.AdamW([p for _, p in nn.lora_parameters(model)], lr=1e-4)
    flamepy.save(nn.lora_state(model), "style.safetensors")    # load_state_dict(state, strict=False) into a model made alike
    nn.merge_lora(model)                                       # plain Linear layers again

B starts at zero, so the model begins as it was: the first step moves B alone, A from the second on.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from typing import Any

import numpy as np

from ..autograd import no_grad
from ..core.errors import DTypeError, StateError
from ..parameter import Parameter
from ..reading import StateArray
from .compute import linear_in
from .linear import Linear, size
from .module import Module


class LoRA(Linear):
    """linear(x) + (x @ A.T @ B.T) * alpha / rank, with the linear layer's own weight and bias, which are frozen.
    A (rank, in_features) starts uniform in +-1 / sqrt(in_features), as in the paper's code, B (out_features, rank) at zero; `alpha` is
    the rank unless given. Names stay: weight, bias, and beside them A and B. Raises StateError for a layer that does more than Linear."""

    def __init__(self, linear: Linear, rank: int, alpha: float | None = None):
        check_plain(linear)
        self.rank = size("LoRA", "rank", rank, 1)
        self.alpha = float(self.rank) if alpha is None else alpha
        if not hasattr(self.alpha, "__float__") or not 0 < self.alpha < float("inf"):
            raise DTypeError(f"LoRA: alpha is no number above 0: {alpha!r}. Leave it out for alpha = rank.")
        self.training, w = linear.training, linear.weight
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = w, linear.bias
        for p in (linear.weight, linear.bias):
            if p is not None:
                p.requires_grad = False
        bound = max(1, self.in_features) ** -0.5
        self.A = Parameter.uniform((self.rank, self.in_features), -bound, bound, dtype=w.dtype, device=w.device)
        self.B = Parameter.zeros((self.out_features, self.rank), dtype=w.dtype, device=w.device)
        self.compute_dtype = linear.compute_dtype

    def forward(self, x: Any) -> Any:
        """x (..., in_features) -> (..., out_features)."""
        (x,), dtype = self.operands(x), self.compute_dtype
        small = linear_in(dtype, x, self.A) * (self.alpha / self.rank)
        return linear_in(dtype, small, self.B, None, linear_in(dtype, x, self.weight, self.bias))

    def whole_weight(self) -> Any:
        return self.weight + (self.B @ self.A) * (self.alpha / self.rank)

    def merge(self) -> Linear:
        """Fold the product into the weight and set B to zero, so that a second time changes nothing. Returns a Linear with the weight and
        the bias, still frozen, to stand in this layer's place."""
        with no_grad():
            self.weight.set_data(self.whole_weight())
            self.B.set_data(np.zeros(self.B.shape, np.float32))
        linear = Linear.__new__(Linear)
        linear.in_features, linear.out_features = self.in_features, self.out_features
        linear.weight, linear.bias, linear.training = self.weight, self.bias, self.training
        linear.compute_dtype = self.compute_dtype
        return linear

    def extra(self) -> str:
        return f"{super().extra()}, rank={self.rank}, alpha={self.alpha:g}"


def check_plain(linear: Any) -> None:
    """Raise StateError for a layer whose call would not be the same afterwards."""
    if type(linear) is not Linear or not linear.as_written(Linear):
        what = f"a {type(linear).__name__}" if type(linear) is not Linear else f"{linear!r} with hooks or another forward()"
        raise StateError(f"LoRA: no plain Linear: {what}. Pass an nn.Linear as it was made; nn.lora() finds those of a model.")


def lora(model: Module, pattern: str, rank: int, alpha: float | None = None) -> list[str]:
    """Put LoRA in the place of each Linear whose name matches the glob, and freeze all else; returns their names.
    Layers that are LoRA already stay, and so do their A and B. `model.unfreeze(pattern)` trains others too. An optimizer built before does
    not know the new parameters. Raises StateError, with the names there are, where no plain Linear matches."""
    linears = {name: m for name, m in checked_model("lora", model).named_modules() if type(m) is Linear and name}
    names = fnmatch.filter(linears, str(pattern))
    if not names:
        there = ", ".join(linears) or "none inside (wrap a single layer: nn.LoRA(linear, rank))"
        raise StateError(f"lora: no Linear matches: '{pattern}'. Use a glob of: {there}.")
    for name in names:  # all of them, before anything is changed
        check_plain(linears[name])
    trained = {p.id: p.requires_grad for _, p in lora_parameters(model)}
    made = {id(linears[name]): LoRA(linears[name], rank, alpha) for name in names}
    for p in model.parameters():
        p.requires_grad = trained.get(p.id, False)
    replace(model, lambda m: made.get(id(m)))
    return names


def checked_model(op: str, model: Any) -> Module:
    if not isinstance(model, Module):
        raise DTypeError(f"{op}: not a Module: {type(model).__name__}. Pass a model.")
    return model


def merge_lora(model: Module) -> Module:
    """Put the merged Linear in the place of each LoRA inside. Their parameters stay frozen: model.unfreeze() trains them again."""
    merged = {id(m): m.merge() for m in checked_model("merge_lora", model).modules() if isinstance(m, LoRA)}
    replace(model, lambda m: merged.get(id(m)))
    return model


def replace(model: Module, other: Callable[[Module], Module | None]) -> None:
    """Put other(m) in the place of each module inside for which there is one."""
    for parent in model.modules():
        for name, m in parent.children():
            if (found := other(m)) is not None:
                setattr(parent, name, found)
                found.compute_dtype = m.compute_dtype  # which may be another than the parent's


def lora_parameters(model: Module) -> list[tuple[str, Parameter]]:
    """(name, parameter) for A and B of every LoRA in the model."""
    here = {p.id for m in checked_model("lora_parameters", model).modules() if isinstance(m, LoRA) for p in (m.A, m.B)}
    return [(name, p) for name, p in model.named_parameters() if p.id in here]


def lora_state(model: Module) -> dict[str, np.ndarray]:
    """The part of model.state_dict() that A and B of every LoRA are: what load_state_dict(state, strict=False) takes."""
    return {name: p.numpy().copy().view(StateArray) for name, p in lora_parameters(model)}
