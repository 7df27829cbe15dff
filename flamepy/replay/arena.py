"""Places for buffers of known lifetimes in one block of memory.

A buffer lives from the first launch that names it to the last. Largest first, each gets the lowest offset at which it overlaps no
placed buffer that lives at the same time (greedy by size: Pisarchyk & Lee 2020, arXiv:2001.03288).

May import: nothing. FLAME counterpart: `flame_core::memory_pool`. Read next: recorder.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

ALIGN = 64
GAP = 1024  # between neighbours: as far apart as the allocator's blocks, or kernels could take other paths; see cpu/device.py


class Life(NamedTuple):
    """First and last launch that names a buffer, and its size in bytes."""

    first: int
    last: int
    nbytes: int


def places(lives: Sequence[Life]) -> tuple[list[int], int]:
    """(offset of each buffer, size of the block)."""
    offsets = [0] * len(lives)
    placed: list[tuple[int, int, Life]] = []  # (offset, end, life), by offset
    total = 0
    for i in sorted(range(len(lives)), key=lambda i: -lives[i].nbytes):
        life, at = lives[i], 0
        size = -(-(life.nbytes + GAP) // ALIGN) * ALIGN
        for offset, end, other in placed:
            if offset >= at + size:
                break
            if other.first <= life.last and life.first <= other.last:
                at = max(at, end)
        offsets[i] = at
        placed.append((at, at + size, life))
        placed.sort(key=lambda p: p[0])
        total = max(total, at + size)
    return offsets, total
