"""All ops that core/ops/ does not have. Each is written in one block of one file: formula or forward function, derivative, name.

Importing this package registers them all; `ops.NAME` then finds any public one (editors read __init__.pyi, which tools/make_stubs.py
writes).

    activations.py more_activations.py powers.py rounding.py logic.py
    trigonometry.py logarithms.py spellings.py bits.py one number at a time
    products.py conv.py attention.py recurrent.py   products
    pools.py                                        windows, of sizes in spatial_sizes.py, by matrices in tables.py
    reduce_more.py reductions.py variance.py        many numbers to one
    scans.py sorting.py counting.py                 what comes before each number, numbers in order, how often they occur
    rows.py row_norms.py losses.py rowwise.py       one row at a time
    channel_norms.py                                one channel at a time
    rotary.py                                       pairs of a row, by its position
    cross_entropy.py losses.py margins.py similarity.py overlap.py policy.py    losses
    shape_more.py joining.py picking.py             moving numbers about
    rearranging.py stacking.py diagonals.py pads.py the same, made of these
    patches.py resampling.py grids.py               windows and pixels moved about, images of other sizes and places
    contractions.py vectors.py                      products made of these
    random.py drops.py mixing.py                    random numbers
    scattering.py selecting.py                      numbers put where indices say, taken where masks say
"""

from __future__ import annotations

from typing import Any

from ..autograd import is_grad_enabled
from ..core import op as _op
from ..core.errors import FlameError
from ..core.ops import axes, copy, indexing, matrices, pointwise, reduce, shape  # noqa: F401
from . import (  # noqa: F401
    activations,
    attention,
    bits,
    channel_norms,
    contractions,
    conv,
    counting,
    cross_entropy,
    ctc,
    diagonals,
    drops,
    gated,
    grids,
    joining,
    linear_loss,
    logarithms,
    logic,
    losses,
    margins,
    mixing,
    more_activations,
    overlap,
    pads,
    patches,
    picking,
    policy,
    pools,
    powers,
    products,
    random,
    rearranging,
    recurrent,
    reduce_more,
    reductions,
    resampling,
    rotary,
    rounding,
    row_norms,
    rows,
    scans,
    scattering,
    selecting,
    shape_more,
    similarity,
    sorting,
    spellings,
    stacking,
    trigonometry,
    variance,
    vectors,
)


def in_place(sign: str, function: Any) -> Any:
    """The method for x -= v, which is x = x - v. Refused for what PyTorch would overwrite, where only a name would change: a Parameter,
    and under no_grad() any leaf that requires grad."""

    def method(self: Any, other: Any) -> Any:
        if self.is_parameter or (self.entry is None and self.requires_grad and not is_grad_enabled()):
            advice = "p.apply_update(v) does p -= v, p.set_data(v) takes any v" if self.is_parameter else f"Write x = x {sign} v"
            raise FlameError(f"{function.__name__}: not changed in place: x {sign}= v, of shape {self.shape}. {advice}.")
        return function(self, other)

    return method


filled, copy_into, move = copy.filled, copy.copy_into, copy.move
getitem = picking.getitem
globals().update(_op.PUBLIC)
for _name, _function in _op.PUBLIC.items():
    if hasattr(_function, "op"):  # where pickle finds it again
        _function.__module__ = "flamepy.nn.functional" if _op.HOMES[_name] == "functional" else "flamepy"
