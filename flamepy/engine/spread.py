"""A cotangent that is few numbers repeated, as sum() and mean() send back: it stays so until somebody needs memory for all of them.

A pointwise op that gets one reads it as it is, by broadcasting; whoever asks for its buffer gets one that is filled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..core import ids
from ..core.door import Door
from ..core.op import REGISTRY
from ..core.tape import TapeEntry
from ..core.tensor import Tensor

LEAST = 1 << 12  # elements: fewer are written at once


class Spread(Tensor):
    """`small`, repeated to the shape of its spec."""

    def __init__(self, small: Any, shape: tuple[int, ...]):
        self.small, self.spec, self.id = small, Door.spec(shape, small.dtype, small.device), ids.next_id()
        self.filled: Any = None

    @property
    def buffer(self) -> Any:  # type: ignore[override]
        if self.filled is None:
            self.filled = REGISTRY["expanded"](self.small, self.spec.shape).buffer
        return self.filled


RULES: dict[str, Callable[..., Any]] = {}  # of ops that repeat: from the cotangent, the input's shape and attributes, the few numbers


def taken(node: Any, cotangents: Any) -> bool:
    """Whether the cotangent of an entry's result may be a Spread: nobody looks at it but the rule of a pointwise op without broadcasting,
    and nothing else has arrived."""
    if type(node) is not TapeEntry or node.hooks is not None or node.retained is not None or node.serial in cotangents.values:
        return False
    call = node.call
    if not call.op.takes_numbers or call.any_size:
        return False
    return all([spec is None or spec.shape == call.outs[0].shape for spec in call.ins])


def sent_back(entry: Any, g: Any, cotangents: Any) -> Sequence[Any] | None:
    """The cotangent of a sum's or mean's input as a Spread; None where somebody will need its memory."""
    spec = entry.call.ins[0]
    if not taken(entry.inputs[0], cotangents) or entry.attributes.get("dtype") is not None:
        return None
    return (Spread(RULES[entry.call.op.name](g, spec.shape, **entry.attributes), spec.shape),)


def handed_on(entry: Any, found: Sequence[Any], cotangents: Any) -> list[Any]:
    """What a pointwise rule gave for the few numbers of a Spread: where they are few again, they go on as they are, if they can."""
    fitting: list[Any] = []
    for node, spec, dx in zip(entry.inputs, entry.call.ins, found, strict=True):
        if dx is not None and dx.spec.shape != spec.shape:
            dx = Spread(dx, spec.shape) if taken(node, cotangents) else REGISTRY["expanded"](dx, spec.shape)
        fitting.append(dx)
    return fitting
