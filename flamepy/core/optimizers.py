"""SGD, Adam, AdamW: an update is a formula on single numbers, here applied to whole Tensors, one parameter after the other.

The same formulas are compiled where an engine is there: flamepy.optimizers adds groups, schedules, saved state and steps in one launch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .errors import DTypeError
from .gradients import GradientMap
from .modes import no_grad
from .pointwise import on_tensors
from .words import sqrt


def sgd_update(p, g, lr, l2, momentum, share, nesterov, sign, *_):
    return p - lr * (sign * g + l2 * p)


def momentum_update(p, m, g, lr, l2, momentum, share, nesterov, sign, *_):
    """m is the velocity; `share` is how much of the gradient enters it; `nesterov` is 1 for the look-ahead, else 0."""
    g = sign * g + l2 * p
    m = momentum * m + share * g
    return p - lr * (nesterov * (g + momentum * m) + (1.0 - nesterov) * m), m


def adam_update(p, m, v, g, before, l2, after, rise1, rise2, step_size, root, eps, sign, *_):
    """p times `before` (decay first), gradient plus l2 * p, moments, the step, p times `after` (decay last)."""
    p = p * before
    g = sign * g + l2 * p
    m = m + (g - m) * rise1
    v = v + (g * g - v) * rise2
    p = p - step_size * (m / (sqrt(v) / root + eps))
    return p * after, m, v


class Optimizer:
    """Parameters, how often each was updated, and its moments: `slots` names them. `formula(p, *moments, g, *numbers)` gives p and the
    moments anew; the numbers are those of numbers(options, step)."""

    name = "Optimizer"
    slots: tuple[str, ...] = ()
    formula: Callable[..., Any]

    def __init__(self, params: Iterable[Any], options: dict[str, Any]):
        self.params = list(params.parameters() if hasattr(params, "parameters") else params)
        self.options = options
        self.state: dict[int, tuple[int, list[Any]]] = {}  # by id: steps done, moments

    def numbers(self, group: dict[str, Any], step: int) -> Sequence[float]:
        raise NotImplementedError

    def step(self, grads: GradientMap) -> bool:
        """Update every parameter that requires grad and has a gradient; whether there was one. Raises DTypeError for what is no map."""
        if not isinstance(grads, GradientMap):
            raise DTypeError(f"{self.name}: not a GradientMap: {type(grads).__name__}. Pass what backward() returned.")
        found = [(p, g) for p in self.params if p.requires_grad and (g := grads.get(p)) is not None]
        with no_grad():
            for p, g in found:
                self._update(p, g.detach(), f"{self.name}.step")
        return bool(found)

    def _update(self, p: Any, g: Any, by: str) -> None:
        step, moments = self.state.get(p.id) or (0, [p.zero_gradient() for _ in self.slots])
        made = on_tensors(self.formula, p.dtype)(p.detach(), *moments, g, *self.numbers(self.options, step + 1))
        p_new, *moments = made if self.slots else (made,)
        p._write(p_new, by)
        self.state[p.id] = step + 1, moments


class SGD(Optimizer):
    """p -= lr * velocity (Sutskever et al. 2013). Weight decay is L2: added to the gradient. The first velocity is the gradient itself."""

    name = "SGD"

    def __init__(
        self, params: Any, lr: float = 1e-3, momentum: float = 0.0, dampening: float = 0.0, weight_decay: float = 0.0,
        nesterov: bool = False,
    ):  # fmt: skip
        options = {"lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay, "nesterov": nesterov}
        super().__init__(params, options)
        self.slots, self.formula = (("m",), momentum_update) if momentum else ((), sgd_update)

    def numbers(self, group: dict[str, Any], step: int) -> tuple[float, ...]:
        momentum = group["momentum"]
        share = 1.0 if step == 1 or not momentum else 1.0 - group["dampening"]
        sign = -1.0 if group.get("maximize") else 1.0
        return group["lr"], group["weight_decay"], momentum, share, float(bool(group["nesterov"])), sign


class Adam(Optimizer):
    """Adam (Kingma & Ba 2014, arXiv:1412.6980); its weight decay is L2: added to the gradient. Epsilon is added outside the square root,
    after the bias correction."""

    name = "Adam"
    slots: tuple[str, ...] = ("m", "v")
    formula = staticmethod(adam_update)
    decoupled = False
    order = "torch"
    default_decay = 0.0

    def __init__(
        self, params: Any, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float | None = None
    ):  # fmt: skip
        decay = self.default_decay if weight_decay is None else weight_decay
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": decay})

    def numbers(self, group: dict[str, Any], step: int) -> tuple[float, ...]:
        return self.rule(group)(step)

    def rule(self, group: Any) -> Callable[[int], tuple[float, ...]]:
        """numbers() as a function of the step alone."""
        lr, (beta1, beta2), decay = group["lr"], group["betas"], group["weight_decay"]
        keep, l2 = (1.0 - lr * decay, 0.0) if self.decoupled else (1.0, decay)
        before, after = (keep, 1.0) if self.order == "torch" else (1.0, keep)
        rise1, rise2, eps = 1.0 - beta1, 1.0 - beta2, group["eps"]
        sign, largest = -1.0 if group.get("maximize") else 1.0, float(group.get("amsgrad", 0.0))

        def numbers(step: int) -> tuple[float, ...]:
            step_size, root = lr / (1.0 - beta1**step), (1.0 - beta2**step) ** 0.5
            return before, l2, after, rise1, rise2, step_size, root, eps, sign, largest, 0.0, 0.0  # as many as an update takes

        return numbers


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2017, arXiv:1711.05101): p *= 1 - lr * weight_decay before the step."""

    name = "AdamW"
    decoupled = True
    default_decay = 0.01
