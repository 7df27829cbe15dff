"""What clipping and loss scaling leave beside gradients: a factor that waits to be applied, a mark that says whether to use them.

A gradient of a packed model is a part of a span. `no_factor` is what an update reads where nobody has clipped: formula/clip.py says
what stands in such a buffer.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from ..backend.base import Buffer
from ..backend.formula.clip import FACTOR, NORMS, USE
from ..core.gradients import scale_y

Segments = tuple[tuple[int, int], ...]  # (start, size) of parts of a buffer, in elements


def scale_by_factor(buffer: Any, factor: Any, segments: Segments | None = None, by: str = "clip_grad_norm") -> None:
    """Multiply a buffer, or these segments of it, in place by the factor that a launch "norm" found."""
    buffer.device.launch("scale", None, (buffer,), (factor,), (segments or ((0, buffer.size),),), buffer.dtype)
    buffer.device.stream.after(lambda b, found: b.wrote(by) if b.device.download(found)[FACTOR] != 1.0 else None, buffer, factor)


@cache
def no_factor(device: Any) -> Buffer:
    """What clipping would leave for gradients that need no factor and may be used."""
    return mark_of(1.0, device)


EARLIER = "scaled before a state was saved"  # stands for the scaler of sums that were restored


def mark_of(keep: float, device: Any) -> Buffer:
    """What says of gradients whether a step may use them."""
    return device.direct.upload(np.array([0.0, 1.0, keep, 1.0]))  # type: ignore[no-any-return]


def kept_by(mark: Buffer) -> float:
    """Whether a step may use the gradients that are so marked: 1 or 0."""
    return float(mark.device.direct.download(mark)[USE])


def both_marks(x: Buffer, y: Buffer) -> Buffer:
    """What says of gradients whether a step may use them, where two such buffers say it."""
    parts = [b.part(0, NORMS) for b in (x, y)]
    both = x.device.empty(NORMS, x.dtype)
    x.device.launch("map", scale_y, (both,), parts, (), x.dtype)
    return both
