"""Optimizers around an optimizer: SAM, which asks for a second gradient where the loss is worst nearby; what Lookahead has in common
with it.

    sam = fp.SAM(fp.SGD(model, lr=0.1), rho=0.05)
    loss = sam.step(lambda: F.mse_loss(model(x), y))        # or by hand:
    sam.first_step(loss.backward()); sam.second_step(F.mse_loss(model(x), y).backward())
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..autograd import enable_grad, no_grad
from ..bus import seen
from ..dtypes import float64, is_number
from ..errors import DTypeError, StateError, warn
from ..gradient import GradientMap
from ..parameter import Parameter
from ..tensors import Tensor
from .given import as_gradient, check_unscaled


class Around:
    """What such an optimizer shows of the one inside."""

    name = "Around"
    optimizer: Any

    def take(self, optimizer: Any) -> None:
        if not hasattr(optimizer, "step") or not hasattr(optimizer, "params"):
            raise DTypeError(f"{self.name}: not an optimizer: {type(optimizer).__name__}. Use {self.name}(AdamW(model, lr=1e-3)).")
        self.optimizer = optimizer

    params = property(lambda self: self.optimizer.params)
    model = property(lambda self: self.optimizer.model)
    groups = property(lambda self: self.optimizer.groups)
    rates = property(lambda self: self.optimizer.rates)
    lr = property(lambda self: self.optimizer.lr, lambda self, lr: setattr(self.optimizer, "lr", lr))

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.optimizer.zero_grad(set_to_none)


class SAM(Around):
    """SAM(optimizer, rho=0.05, adaptive=False): sharpness-aware minimization (Foret et al. 2020, arXiv:2010.01412).

    A step takes two gradients: first_step() goes up by rho along the first one's direction, second_step() goes back and lets the optimizer
    step with the second one. `adaptive`: each element by its own size (Kwon et al. 2021, arXiv:2102.11600; rho is some ten times larger
    then). BatchNorm's running statistics see both passes. Its state is the optimizer's."""

    name = "SAM"

    def __init__(self, optimizer: Any, rho: float = 0.05, adaptive: bool = False):
        if not is_number(rho) or not 0 <= float(rho) < float("inf"):
            raise ValueError(f"SAM: rho out of range: {rho!r}. Use a number >= 0, 0.05.")
        self.take(optimizer)
        self.rho, self.adaptive = float(rho), bool(adaptive)
        self.left: list[tuple[Parameter, Tensor]] = []  # where the parameters were, between the two steps

    def first_step(self, grads: GradientMap) -> None:
        """Go up. Gradients marked as not to be used are the second step's matter: it goes by its own."""
        if self.left:
            raise StateError("SAM: first_step() twice: the parameters are away already. Call second_step(grads) with the gradients there.")
        if not isinstance(grads, GradientMap):
            what = f"not a map of gradients: {type(grads).__name__}"
            raise DTypeError(f"SAM.first_step: {what}. Pass the map that loss.backward() returned, or use step(closure).")
        check_unscaled("SAM.first_step", grads)
        rows = [(p, as_gradient("SAM", p, g).detach()) for p in self.params if p.requires_grad and (g := grads.get(p)) is not None]
        if not rows:
            text = "SAM: first_step() had nothing to go along: no parameter has a gradient. Pass loss.backward()."
            warn(text)
        seen(self, "how far it goes up", lambda: (self.rho, self.adaptive), True)
        with no_grad():
            sizes = [(p.detach().to(g.dtype).abs() if self.adaptive else 1.0, g) for p, g in rows]
            squares = [((size * g).to(float64) ** 2).sum() for size, g in sizes]
            self.left = [(p, p.detach().clone()) for p, _ in rows]
            for (p, g), (size, _) in zip(rows, sizes, strict=True):
                length = self.rho / (sum(squares[1:], squares[0]).sqrt() + 1e-12)
                up = g * length.to(g.dtype)
                p.set_data((p.detach().to(g.dtype) + (up * size * size if self.adaptive else up)).to(p.dtype))

    def second_step(self, grads: Any = None) -> Any:
        """Go back, and a step of the optimizer with the gradients that were found there. Returns what the optimizer's step does."""
        if not self.left:
            raise StateError("SAM: second_step() before first_step(): nobody has gone up. Call first_step(grads), then backward() anew.")
        self.back()
        return self.optimizer.step(grads)

    def back(self) -> None:
        """Have the parameters where they were; nothing if they are."""
        left, self.left = self.left, []
        for p, was in left:
            p.set_data(was)

    def step(self, closure: Callable[[], Tensor]) -> Tensor:
        """Both steps with what closure() returns, the loss before backward(); it is called twice. Returns the first loss. If the second
        call raises, the parameters are where they were."""
        if not callable(closure):
            raise DTypeError(f"SAM.step: not a function: {type(closure).__name__}. Pass one that returns the loss, or use first_step().")
        with enable_grad():
            loss = self.loss_of(closure)
            self.first_step(loss.backward())
            try:
                grads = self.loss_of(closure).backward()
            except BaseException:
                self.back()
                raise
        self.second_step(grads)
        return loss.detach()

    def loss_of(self, closure: Callable[[], Tensor]) -> Tensor:
        loss = closure()
        if not isinstance(loss, Tensor):
            raise DTypeError(f"SAM.step: closure() gave no loss: {type(loss).__name__}. Return the loss, before backward().")
        return loss

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's."""
        self.check_back("state_dict()")
        return self.optimizer.state_dict()  # type: ignore[no-any-return]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore state_dict(); a failure changes nothing (StateError)."""
        self.check_back("load_state_dict()")
        self.optimizer.load_state_dict(state)

    def check_back(self, what: str) -> None:
        if self.left:
            raise StateError(f"SAM: {what} between first_step() and second_step(): the parameters are away. Call second_step() first.")

    def __repr__(self) -> str:
        return f"SAM(rho={self.rho}{', adaptive' if self.adaptive else ''}) of {self.optimizer!r}"
