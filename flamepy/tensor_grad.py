"""TensorGradExt: a tensor asked for its gradient in a map, the other way round than the map asked for a tensor's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any


class TensorGradExt:
    """What FLAME's trait adds to tensors. Every Tensor has has_grad() and take_grad(); since `x.grad` is an attribute here, FLAME's
    `x.grad(&grads)` is `TensorGradExt.grad(x, grads)`, the same as `grads.get(x)`."""

    if TYPE_CHECKING:
        grad: Any  # a Tensor has a property in its place
    else:

        def grad(self, grads: Any) -> Any:
            """The stored gradient of this tensor, or None; editing it edits the map."""
            return grads.get(self)

    def has_grad(self, grads: Any) -> bool:
        """Whether the map has a gradient of this tensor."""
        return self in grads

    def take_grad(self, grads: Any) -> Any:
        """Remove this tensor's gradient from the map and return it, or None."""
        return grads.take(self)
