"""Differentially private gradients: each sample's gradient clipped, their sum with noise (Abadi et al. 2016, arXiv:1607.00133).

    grads = fp.private_gradients(model, lambda x, y: F.cross_entropy(model(x), y), x, y, max_norm=1.0, noise_multiplier=1.1)
    optimizer.step(grads)

How private that is, epsilon and delta after so many steps of such batches, is not counted here: give noise_multiplier, the share of the
data in a batch and the number of steps to an accountant, such as dp-accounting or prv-accountant. The bound holds for batches in which
each sample is drawn by itself (Poisson), with `batch_size` the size that is expected, and for a model in which no sample sees another one:
no BatchNorm.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..autograd import no_grad
from ..core.errors import DTypeError, GradientError, ShapeError
from ..creation import randn, zeros
from ..dtypes import check_function, checked_number, computed
from ..gradient import GradientMap
from ..tensors import Tensor
from .clip import clip_grad_norm
from .norm import listed


def private_gradients(
    params: Any, loss_of: Callable[..., Any], *batch: Any, max_norm: float = 1.0, noise_multiplier: float = 1.0,
    batch_size: float | None = None,
) -> GradientMap:  # fmt: skip
    """(sum of the samples' gradients, each at most max_norm long, + max_norm * noise_multiplier * normal numbers) / batch_size, for every
    parameter that requires grad; a map for optimizer.step().

    loss_of(*rows) gives the loss of one sample: `rows` are the batch's tensors or arrays, cut to a first axis of 1. It is called, and goes
    backward, once for each sample. `batch_size`: by default how many there are. The noise is of flamepy's random numbers: seeded, drawn
    anew by each replay of a captured step. Accounting is left to you; see the top of this module. Raises ValueError, ShapeError,
    NonFiniteError for a sample without a finite gradient, GradientError where loss_of() gives no loss, and for a model of which a BatchNorm
    trains.
    """
    name = "private_gradients"
    limit, noise = checked_number(name, "max_norm", max_norm), checked_number(name, "noise_multiplier", noise_multiplier)
    if not 0.0 < limit < float("inf"):
        raise ValueError(f"{name}: max_norm out of range: {max_norm}. Use a number above 0.")
    if not 0.0 <= noise < float("inf"):
        raise ValueError(f"{name}: noise_multiplier out of range: {noise_multiplier}. Use a number, 0 or more.")
    check_function(name, "loss_of", loss_of)
    ps = [p for p in listed(name, params.params if hasattr(params, "params") else params) if p.requires_grad]
    check_apart(name, params)
    rows = [Tensor.of(name, x, ps[0].device if ps else None) for x in batch]
    count = samples_in(name, rows)
    size = float(count) if batch_size is None else checked_number(name, "batch_size", batch_size)
    if not size > 0:
        raise ValueError(f"{name}: no size of a batch to divide by: {size:g}. Give batch_size, the size that is expected.")
    total = {p.id: zeros(p.shape, dtype=computed(p.dtype), device=p.device) for p in ps}
    for i in range(count):
        loss = loss_of(*[x[i : i + 1] for x in rows])
        if not isinstance(loss, Tensor) or loss.size != 1:
            what = f"shape {loss.shape}" if isinstance(loss, Tensor) else type(loss).__name__
            raise GradientError(f"{name}: loss_of() gave no loss of one sample: {what}. Return one number, as a tensor.")
        take(loss.backward(), ps, limit, total)
    found = GradientMap()
    with no_grad():
        for p in ps:
            drawn = total[p.id]
            if noise:
                drawn = drawn + randn(*p.shape, dtype=drawn.dtype, device=p.device) * (limit * noise)
            found.insert(p, drawn / size)
    return found


def take(grads: GradientMap, ps: list[Any], limit: float, total: dict[int, Any]) -> None:
    """Add a sample's gradients, at most so long together, to the sums by id."""
    clip_grad_norm(grads, limit, params=ps)
    with no_grad():
        for p in ps:
            if (g := grads.get(p)) is not None:
                total[p.id] = total[p.id] + g


def check_apart(name: str, params: Any) -> None:
    """Raise GradientError for a model with a layer that keeps of all samples what no clipping bounds."""
    modules = params.modules() if hasattr(params, "modules") else ()
    if seen := [m for m in modules if m.training and getattr(m, "running_mean", None) is not None]:
        what = f"running statistics see all samples, without a bound: {type(seen[0]).__name__}"
        raise GradientError(f"{name}: {what}. Use GroupNorm, or eval() of that layer.")


def samples_in(name: str, rows: list[Tensor]) -> int:
    """How many samples there are."""
    if not rows:
        raise DTypeError(f"{name}: no batch: no tensors behind loss_of. Pass those that loss_of() takes, such as x and y.")
    counts = {x.shape[0] if x.ndim else -1 for x in rows}
    if len(counts) != 1 or -1 in counts:
        raise ShapeError(f"{name}: not as many samples in each: shapes {[x.shape for x in rows]}. Pass tensors of one first size.")
    return counts.pop()
