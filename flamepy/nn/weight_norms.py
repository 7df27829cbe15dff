"""Weights that are made of other parameters whenever they are read: weight_norm and spectral_norm.

The layer gets a class of its own, under its own name, in which `weight` is a property. So whoever reads it, in whichever way, has the
weight of now with a tape, and layers that compute several things in one launch go on doing so.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from .. import ops
from ..autograd import no_grad
from ..core.errors import DTypeError, StateError
from ..core.ops.axes import one_axis
from ..creation import randn
from ..dtypes import checked_number
from ..engine.entries import own_state
from ..engine.routes import routed
from ..parameter import Parameter
from .conv import Transposed
from .linear import size
from .module import Module

Rule = Callable[..., Any]  # (module, name of the weight) -> the weight


@lru_cache
def class_with(base: Any, made: tuple[tuple[str, Rule], ...]) -> type:
    """A subclass in which each of these names is what its rule makes."""

    def reduced(self: Any, protocol: Any) -> Any:
        return revived, (base, made), dict(vars(self))

    def fixed(self: Any, value: Any) -> None:
        names = ", ".join([name for name, _ in made])
        raise StateError(f"{base.__name__}: made of other parameters at each call, and not set: {names}. Remove the norm first.")

    weights = {name: property(partial(rule, name=name), fixed) for name, rule in made}
    return type(base.__name__, (base,), {**weights, "__module__": base.__module__, "__reduce_ex__": reduced, "_made": (base, made)})


def revived(base: Any, made: tuple[tuple[str, Rule], ...]) -> Any:
    """What a pickle of such a module begins with."""
    module = base.__new__(base)
    object.__setattr__(module, "__class__", class_with(base, made))
    return module


def made_of(module: Any) -> tuple[Any, tuple[tuple[str, Rule], ...]]:
    """The class that was written, and what its weights are made by."""
    return getattr(type(module), "_made", (type(module), ()))


def own(op: str, module: Any, name: str) -> Parameter:
    """The module's parameter of that name. Raises DTypeError, StateError."""
    if not isinstance(module, Module):
        raise DTypeError(f"{op}: not a Module: {type(module).__name__}. Pass a layer.")
    p = vars(module).get(name)
    if not isinstance(p, Parameter):
        there = ", ".join([n for n, value in vars(module).items() if isinstance(value, Parameter)]) or "none"
        raise StateError(f"{op}: no parameter of its own: '{name}' of a {type(module).__name__}. It has: {there}.")
    return p


def take_out(module: Any, name: str, rule: Rule) -> None:
    """What the rule makes stands in the parameter's place."""
    base, made = made_of(module)
    getattr(module, name).replaced = True  # an optimizer that was made before says so
    delattr(module, name)
    object.__setattr__(module, "__class__", class_with(base, (*made, (name, rule))))


def put_back(op: str, module: Any, name: str, rule: Rule, parts: tuple[str, ...]) -> Any:
    """The weight of now as a parameter again, in the place of its parts."""
    base, made = made_of(module)
    if (name, rule) not in made:
        raise StateError(f"{op}: nothing to remove: '{name}' of a {type(module).__name__}. Name what was normed.")
    with no_grad():
        value = getattr(module, name)
    rest = tuple([pair for pair in made if pair[0] != name])
    object.__setattr__(module, "__class__", class_with(base, rest) if rest else base)
    for part in parts:
        delattr(module, part)
    setattr(module, name, Parameter(value.detach()))
    return module


# ---- weight_norm -----------------------------------------------------------------------------------------------------------------------
def length_of(v: Any, dim: int | None) -> Any:
    """The length of each slice along dim, of all for None, with v's axes."""
    return v.norm(axis=tuple([a for a in range(v.ndim) if a != dim]), keepdims=dim is not None)


@routed
def normed(v: Any, g: Any, dim: int | None) -> Any:
    return v * (g / length_of(v, dim))


def normed_weight(module: Any, name: str) -> Any:
    return normed(*[getattr(module, f"{name}_{part}") for part in ("v", "g", "dim")])


def weight_norm(module: Any, name: str = "weight", dim: int | None = 0) -> Any:
    """The layer with its weight as g * v / |v|, of which g and v are trained, as weight_g and weight_v (Salimans & Kingma 2016,
    arXiv:1602.07868). dim: the axis of which each slice has a length of its own; None: all have one. Returns the layer."""
    w = own("weight_norm", module, name)
    dim = dim if dim is None else one_axis("weight_norm", dim, w.ndim)
    setattr(module, f"{name}_g", Parameter(length_of(w.detach(), dim)))
    setattr(module, f"{name}_v", Parameter(w.detach()))
    setattr(module, f"{name}_dim", dim)
    take_out(module, name, normed_weight)
    return module


def remove_weight_norm(module: Any, name: str = "weight") -> Any:
    """The layer with its weight of now as one parameter. Raises StateError where there is no weight_norm."""
    return put_back("remove_weight_norm", module, name, normed_weight, (f"{name}_g", f"{name}_v", f"{name}_dim"))


# ---- spectral_norm ---------------------------------------------------------------------------------------------------------------------
def as_matrix(w: Any, dim: int) -> Any:
    """The weight with `dim` first and all else in one axis."""
    w = w if dim == 0 else ops.permute(w, (dim, *[a for a in range(w.ndim) if a != dim]))
    return ops.reshape(w, (w.shape[0], w.size // max(1, w.shape[0])))


def of_length_one(x: Any, eps: float) -> Any:
    return x / ops.maximum((x * x).sum().sqrt(), eps)


def spectral_weight(module: Any, name: str) -> Any:
    w, dim = getattr(module, f"{name}_orig"), getattr(module, f"{name}_power")[0]
    u, v = (ops.clone(getattr(module, f"{name}_{part}").detach()) for part in "uv")  # the next call writes over them
    return w / (u * (as_matrix(w, dim) @ v)).sum()


def iterate(module: Any, args: Any) -> None:
    """Before each call while training: the next steps towards the largest singular values."""
    for name, rule in made_of(module)[1] if module.training else ():
        if rule is spectral_weight:
            step(module, name, *getattr(module, f"{name}_power"))


def step(module: Any, name: str, dim: int, times: int, eps: float) -> None:
    u, v = (getattr(module, f"{name}_{part}") for part in "uv")
    with own_state() as first:
        w = as_matrix(getattr(module, f"{name}_orig").detach(), dim)
        left, right = u.detach(), v.detach()
        for _ in range(times):
            right = of_length_one(left @ w, eps)
            left = of_length_one(w @ right, eps)
        if first:
            u.set_data(left)
            v.set_data(right)


def spectral_norm(module: Any, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None) -> Any:
    """The layer with its weight divided by its largest singular value (Miyato et al. 2018, arXiv:1802.05957). Returns the layer.
    What is trained is weight_orig. The value comes from n_power_iterations a call while training, which go on from the vectors weight_u and
    weight_v of the state. dim: the axis of outputs; None: 1 for a transposed convolution, else 0."""
    times, eps = size("spectral_norm", "n_power_iterations", n_power_iterations, 1), checked_number("spectral_norm", "eps", eps)
    w = own("spectral_norm", module, name)
    dim = int(isinstance(module, Transposed)) if dim is None else one_axis("spectral_norm", dim, w.ndim)
    setattr(module, f"{name}_orig", Parameter(w.detach()))
    for part, n in zip("uv", as_matrix(w.detach(), dim).shape, strict=True):
        module.register_buffer(f"{name}_{part}", of_length_one(randn((n,), dtype=w.dtype, device=w.device), eps))
    setattr(module, f"{name}_power", (dim, times, eps))
    take_out(module, name, spectral_weight)
    if not [h for h in module._hooks if h.function is iterate]:
        module.register_forward_pre_hook(iterate)
    return module


def remove_spectral_norm(module: Any, name: str = "weight") -> Any:
    """The layer with its weight of now as one parameter. Raises StateError where there is no spectral_norm."""
    put_back("remove_spectral_norm", module, name, spectral_weight, tuple([f"{name}_{part}" for part in ("orig", "u", "v", "power")]))
    left = [rule for _, rule in made_of(module)[1] if rule is spectral_weight]
    for hook in [h for h in module._hooks if h.function is iterate and not left]:
        hook.remove()
    return module
