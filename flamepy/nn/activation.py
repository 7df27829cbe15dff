"""Activations as modules, for Sequential. `op` names the pointwise op an activation is: what a Linear before it can compute."""

from __future__ import annotations

from typing import Any

from . import functional as F
from .module import Module


class Named(Module):
    """A layer that is a function of flamepy.nn.functional, `op`, which a class says beside its name."""

    op = ""

    def __init_subclass__(cls, op: str | None = None) -> None:
        cls.op = op or cls.op


def check_not_in_place(layer: Module, inplace: Any) -> None:
    """Refuse PyTorch's option to write into the input."""
    if inplace:
        raise ValueError(f"{type(layer).__name__}: nothing is changed in place: inplace={inplace!r}. Leave it out.")


class Activation(Named):
    """One pointwise op without parameters."""

    def __init__(self, inplace: bool = False):
        check_not_in_place(self, inplace)

    def forward(self, x: Any) -> Any:
        """x of any shape -> the op of each number, of the same shape."""
        return getattr(F, self.op)(x)


WEIGHTS = ("weight", "pos_weight")


class Options(Named):
    """A function of flamepy.nn.functional with its options, of which weights are buffers: state_dict() has them, to() moves them."""

    def keep(self, **options: Any) -> None:
        """Hold these, under their names."""
        self.names = tuple(options)
        for name, value in options.items():
            if name in WEIGHTS:
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    def forward(self, *xs: Any) -> Any:
        """What the function takes before its options -> what it gives."""
        return getattr(F, self.op)(*xs, **{name: getattr(self, name) for name in self.names})

    def extra(self) -> str:
        return ", ".join([f"{name}={getattr(self, name)!r}" for name in self.names if name not in WEIGHTS])


class ReLU(Activation, op="relu"):
    """max(x, 0)."""


class GELU(Activation):
    """x * Phi(x); approximate="tanh" for the formula with tanh."""

    def __init__(self, approximate: str = "none"):
        if approximate not in ("none", "tanh"):
            raise ValueError(f"GELU: unknown approximation: {approximate!r}. Use 'none' or 'tanh'.")
        self.approximate = approximate

    @property
    def op(self) -> str:  # type: ignore[override]
        return "gelu_erf" if self.approximate == "none" else "gelu_tanh"

    def forward(self, x: Any) -> Any:
        """x of any shape -> x * Phi(x), of the same shape."""
        return F.gelu(x, approximate=self.approximate)

    def extra(self) -> str:
        return f"approximate={self.approximate!r}"


class SiLU(Activation, op="silu"):
    """x * sigmoid(x)."""


class Tanh(Activation, op="tanh"):
    """tanh(x)."""


class Sigmoid(Activation, op="sigmoid"):
    """1 / (1 + exp(-x))."""
