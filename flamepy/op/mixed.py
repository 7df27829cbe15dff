"""Ops on 16-bit floats that meet float32, or floats of the other 16-bit type: the result is float32.

Nothing is rounded: x + linear(x) keeps every bit of a float32 x. Most kernels type each array by itself. Elsewhere the 16-bit inputs are
widened, which is part of the op's plan. What the tape saves of 16-bit inputs has 16 bits either way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..dtypes import HALF, float32
from .half import Half, copied, in_half, is_half


class Mixed(Half):
    """The op `wide` on inputs of which some are 16-bit floats, with results of its own types."""

    def forward(self, xs: Sequence[Any], attributes: dict[str, Any], tracked: Sequence[bool | None]) -> tuple[Any, dict[str, Any]]:
        wide = [copied(x, float32) if is_half(x) else x for x in xs]
        return self.wide.forward(wide, attributes, tracked)  # type: ignore[no-any-return]


def on_halves(op: Any, xs: Sequence[Any], dtype: Any) -> Any:
    """The form of a custom op that takes these inputs, whose type coerce() found to be `dtype`."""
    if dtype in HALF:
        return op if dtype in op.takes else in_half(op)
    if dtype != float32 or not any([is_half(x) for x in xs]):
        return op
    if op.mixes is not None:
        operands = {x.dtype for x in xs[: op.mixes]}
        if len(operands) < 2 and operands <= op.takes:
            return op
    return vars(op).get("mixed") or vars(op).setdefault("mixed", Mixed(op))
