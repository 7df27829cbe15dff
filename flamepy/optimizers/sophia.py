"""Sophia: the mean gradient divided by an estimate of the curvature, each element cut at 1 (Liu et al. 2023, arXiv:2305.14342,
algorithm 3).

    if t % 10 == 0:
        optimizer.update_hessian(fp.optimizers.hutchinson(loss))     # or gauss_newton_bartlett(logits), or an estimate of your own
    optimizer.step(loss.backward())
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import ops
from ..autograd import no_grad
from ..bus import seen
from ..core.words import abs, maximum, minimum, sign
from ..creation import rand, randn_like
from ..errors import GradientError, ShapeError, StateError
from ..gradient import GradientMap
from ..tensors import Tensor
from .base import Optimizer
from .given import as_gradient, check_unscaled
from .groups import check_range


def sophia_update(p, m, h, g, before, rise, rho, eps, lr, way, *_):
    """h: the curvature, which stays as it is."""
    m = m + (way * g - m) * rise
    return p * before - lr * sign(m) * minimum(abs(m) / maximum(rho * h, eps), 1.0), m, h


class Sophia(Optimizer):
    """The mean gradient divided by an estimate of the curvature, cut so that no element moves by more than lr; rho, gamma in the paper,
    says how many are cut. update_hessian(estimate) is called every few steps, ten in the paper; until its first call every element moves
    by lr. Weight decay is decoupled. `lr` may be a schedule."""

    name = "Sophia"
    slots = ("m", "h")
    formula = staticmethod(sophia_update)

    def __init__(
        self, params: Any = None, lr: Any = 1e-4, betas: tuple[float, float] = (0.965, 0.99), rho: float = 0.04, eps: float = 1e-12,
        weight_decay: float = 0.1, maximize: bool = False, groups: dict[str, dict[str, Any]] | None = None, transforms: Any = None,
    ):  # fmt: skip
        options = {"lr": lr, "betas": betas, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, options, groups, transforms)

    def check(self, options: dict[str, Any]) -> None:
        super().check({key: value for key, value in options.items() if key != "rho"})
        check_range(self.name, "rho", options["rho"], 0.0)

    def numbers(self, group: dict[str, Any], step: int) -> tuple[float, ...]:
        lr, way = group["lr"], -1.0 if group["maximize"] else 1.0
        return 1.0 - lr * group["weight_decay"], 1.0 - group["betas"][0], group["rho"], group["eps"], lr, way

    def update_hessian(self, estimate: GradientMap) -> None:
        """Take an estimate of the diagonal of the Hessian into its mean: a map as backward() gives it, of numbers for each parameter.

        A parameter without one keeps its mean. Raises ShapeError, DeviceError or GradientError before anything is changed."""
        if not isinstance(estimate, GradientMap):
            what = f"not a map: {type(estimate).__name__}"
            raise GradientError(f"Sophia.update_hessian: {what}. Pass what hutchinson(loss) or gauss_newton_bartlett(logits) returned.")
        check_unscaled("Sophia.update_hessian", estimate)
        found = {p.id: as_gradient(self.name, p, h) for p in self.params if p.requires_grad and (h := estimate.get(p)) is not None}
        if not found:
            what = f"no parameter has an estimate: {len(estimate)} in the map"
            raise StateError(f"Sophia.update_hessian: {what}. Pass those of this model's parameters.")
        self._arrange()
        seen(self, "how fast its curvature forgets", self.shares, True)
        with no_grad():
            for block in self.blocks:
                for i, p in enumerate(block.params):
                    if p.id in found and p.size:
                        h, new = block.kept[i]["h"], found[p.id].detach().to(block.dtype)
                        (h + (new - h) * (1.0 - block.groups[i]["betas"][1])).copied_into(h.buffer)

    def shares(self) -> str:
        """What a recorded step has as it was."""
        return str([group["betas"][1] for group in self.groups])


def hutchinson(loss: Tensor, params: Sequence[Tensor] | None = None) -> GradientMap:
    """An estimate of the diagonal of the Hessian of a loss: u * (Hu) for one normal u (Hutchinson 1989), by backward through backward.

    `params`: those to ask for; None for every leaf that the loss reaches. The loss can go backward afterwards."""
    grads = loss.backward(create_graph=True, retain_graph=True)
    asked = None if params is None else {p.id for p in params}
    rows = [(key, g, randn_like(g.detach())) for key, g in grads.items() if asked is None or key in asked]
    along = [(g * u).sum() for _, g, u in rows if g.requires_grad]
    if not along:
        return named_as(grads, [])
    products = sum(along[1:], along[0]).backward(retain_graph=True)
    return named_as(grads, [(key, u * product.detach()) for key, _, u in rows if (product := products.get(key)) is not None])


def named_as(grads: GradientMap, rows: list[tuple[int, Tensor]]) -> GradientMap:
    """A map of these by id, with the names of another map."""
    found = GradientMap()
    for key, t in rows:
        found.insert(key, t)
        found.names[key], found.others[key] = grads.names.get(key, ""), grads.others.get(key, False)
    return found


def gauss_newton_bartlett(logits: Tensor) -> GradientMap:
    """An estimate of the diagonal of the Gauss-Newton matrix of a cross-entropy, by labels that are drawn from the model itself: the
    square of their mean loss's gradient times how many there are. `logits`: of shape (..., classes); they can go backward afterwards."""
    if logits.ndim < 2:
        raise ShapeError(f"gauss_newton_bartlett: not logits of several samples: shape {logits.shape}. Pass them as (samples, classes).")
    rows = logits.reshape(-1, logits.shape[-1])
    with no_grad():
        draws = rand(*rows.shape, device=rows.device).clamp(min=1e-20)
        labels = (rows.detach().to(draws.dtype) - (-draws.log()).log()).argmax(axis=-1)  # Gumbel's way to draw from a softmax
    grads = ops.cross_entropy(rows, labels).backward(retain_graph=True)
    return named_as(grads, [(key, g * g * float(rows.shape[0])) for key, g in grads.items()])
