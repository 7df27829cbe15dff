"""16-bit floats: computed in float32, kept in 16 bits.

Most kernels read them as float32 and round what they write; those of products multiply bfloat16 as it is, and widen float16 block by
block. What users write may not take them: such an op is its float32 self between casts, which are part of its plan: inputs are widened,
results rounded, and a rule gets what was saved widened again.

Either way the tape saves what users see, the 16-bit inputs and results (as in PyTorch), so activations take half the memory, or less:
remade.py. Extras of one number a row stay float32, and so do cotangents, but for those that a bfloat16 layer rounds before it
reads them (Cotangents.narrow).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.op import Op, like, share
from ..core.tape import TapeEntry
from ..core.tensor import Tensor
from ..dtypes import FULL, HALF, float32
from .forms import forms_of
from .plan import Plans

WIDE = {"source": float32}  # what a rule is told of the first input's dtype


class Half(Op):
    """The op `wide` on 16-bit floats."""

    def __init__(self, wide: Any):
        self.wide, self.name, self.title, self.own = wide, wide.name, wide.title, wide.own
        self.inputs, self.attributes, self.numbers = wide.inputs, wide.attributes, wide.numbers
        self.names = [n for n in wide.names if n != "narrow_dx"]
        self.trusted, self.internal, self.plans = wide.trusted, wide.internal, Plans()

    def forward(self, xs: Sequence[Any], attributes: dict[str, Any], tracked: Sequence[bool | None]) -> tuple[Any, dict[str, Any]]:
        dtype = next(x.dtype for x in xs if is_half(x))
        wide = [copied(x, float32) if is_half(x) else x for x in xs]
        y, extras = self.wide.forward(wide, attributes, tracked)
        known = {id(w.buffer): x for x, w in zip(xs, wide, strict=True) if w is not x}  # a result may be an input, or another result
        if type(y) is tuple:
            y = tuple([rounded(t, dtype, known) for t in y])
        else:
            y = rounded(y, dtype, known)
        return y, {n: rounded(t, dtype, known) if n == forms_of(self.wide).large else t for n, t in extras.items()}

    def needs(self, tracked: Sequence[bool | None], attributes: dict[str, Any]) -> tuple[str, ...] | None:
        return self.wide.needs(tracked, attributes)  # type: ignore[no-any-return]

    def rules(self, entry: TapeEntry, gs: Sequence[Any], values: dict[str, Any]) -> Sequence[Any]:
        values = {n: copied(v, float32) if is_half(v) else v for n, v in values.items()} | WIDE
        return self.wide.rules(entry, gs, values)  # type: ignore[no-any-return]

    def graph_rules(self, entry: TapeEntry, gs: Sequence[Any], values: dict[str, Any]) -> Sequence[Any]:
        return self.wide.graph_rules(entry, gs, values | WIDE)  # type: ignore[no-any-return]


class Mixed(Half):
    """The op `wide` on inputs of which some are 16-bit floats, with results of its own types. Nothing is rounded: x + linear(x) keeps every
    bit of a float32 x. Most kernels type each array by itself; elsewhere the 16-bit inputs are widened, which is part of the op's plan."""

    def forward(self, xs: Sequence[Any], attributes: dict[str, Any], tracked: Sequence[bool | None]) -> tuple[Any, dict[str, Any]]:
        wide = [copied(x, float32) if is_half(x) else x for x in xs]
        return self.wide.forward(wide, attributes, tracked)  # type: ignore[no-any-return]


def together(xs: Sequence[Any]) -> np.dtype:
    """The type that these Tensors, numbers and Nones have together: float32 where 16-bit floats meet others."""
    found = {x.dtype for x in xs if isinstance(x, Tensor)} or {x.dtype for x in xs if x is not None}
    return found.pop() if len(found) == 1 else float32


def is_half(x: Any) -> bool:
    return isinstance(x, Tensor) and x.dtype in HALF


def copied(x: Any, dtype: np.dtype) -> Any:
    """An unrecorded copy in another dtype."""
    y = like(x, dtype=dtype)
    if x.size:
        y.device.stream.copy(y.buffer, x.buffer)
    return y


def rounded(t: Any, dtype: np.dtype, known: dict[int, Any]) -> Any:
    """A result in 16 bits; `known`: by the id of a float32 buffer, a tensor that holds its numbers in 16 bits already."""
    if not isinstance(t, Tensor) or t.dtype != float32:
        return t
    found = known.get(id(t.buffer))
    if found is None:
        found = known[id(t.buffer)] = copied(t, dtype)
    return share(found, t.shape)


def on_halves(op: Any, xs: Sequence[Any], dtype: Any) -> Any:
    """The form of a custom op that takes these inputs, whose type coerce() found to be `dtype`."""
    forms = forms_of(op)
    takes = forms.takes if op.trusted else FULL
    if dtype in HALF:
        return op if dtype in takes else form_of(op, Half)
    if dtype != float32 or not any([is_half(x) for x in xs]):
        return op
    if forms.mixes is not None:
        operands = {x.dtype for x in xs[: forms.mixes]}
        if len(operands) < 2 and operands <= set(takes):
            return op
    return form_of(op, Mixed)


def form_of(op: Any, kind: type[Half]) -> Op:
    """The one form of this kind of an op, which is made when it is first asked for."""
    found = vars(op).get(kind.__name__)
    if found is None or found.wide is not op:  # an op of another title began as a copy
        found = vars(op)[kind.__name__] = kind(op)
    return found  # type: ignore[no-any-return]
