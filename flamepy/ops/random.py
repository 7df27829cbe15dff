"""Dropout, the one random op that takes a tensor."""

from __future__ import annotations

from typing import Any

from ..core.custom import custom
from ..core.op import launch, like, over
from ..core.ops.axes import composed
from ..core.ops.pointwise import mul, where
from ..core.rng import next_key
from ..dtypes import bool_, checked_number
from ..engine.kept import number


@custom(inputs=1, title="dropout", internal=True)
def dropped(x, p=0.5):
    y, mask = like(x), like(x, dtype=bool_)
    if x.size:
        scale = 0.0 if p == 1 else 1.0 / (1.0 - p)
        wide = x.spec.computed
        launch("philox_dropout", None, (y, mask), (x, over(next_key(x.device), (3,))), (number(float(p), wide), number(scale, wide)))
    return y, {"mask": mask}


dropped.differentiable(lambda g, mask, p: where(mask, mul(g, 0.0 if p == 1 else 1.0 / (1.0 - p)), 0.0))


@composed(home="both")
def dropout(x: Any, p: float = 0.5, training: bool = True) -> Any:
    """Zero each element, a NaN too, with probability p and scale the others by 1 / (1 - p); x itself when not training or p is 0.

    (Srivastava et al. 2014.) The mask depends on the seed and the position, not on threads; see rng.py.
    Shapes: any; the result has that of x. Integers give float32. Raises ValueError for p outside [0, 1].
    >>> fp.dropout(fp.ones(2), p=0.5, training=False).tolist()
    [1.0, 1.0]
    """
    p = checked_number("dropout", "p", p)
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout: p outside [0, 1]: {p}. Use a probability.")
    return dropped(x, p) if training and p > 0 else x
