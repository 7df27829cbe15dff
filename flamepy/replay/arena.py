"""Places for buffers of known lifetimes in one block of memory.

A buffer lives from the first launch that names it to the last. Largest first, each gets the lowest offset at which it overlaps no
placed buffer that lives at the same time (greedy by size: Pisarchyk & Lee 2020, arXiv:2001.03288).

FLAME counterpart: `flame_core::memory_pool`. Read next: recorder.py.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from typing import NamedTuple


class Life(NamedTuple):
    """First and last launch that names a buffer, and its size in bytes."""

    first: int
    last: int
    nbytes: int


def places(lives: Sequence[Life], align: int, gap: int) -> tuple[list[int], int]:
    """(offset of each buffer, size of the block); offsets are multiples of `align`, neighbours `gap` bytes apart."""
    offsets = [0] * len(lives)
    used: dict[tuple[int, int], tuple[list[int], list[int]]] = {}  # (offset, end) -> firsts and lasts of who lives there, in order of time
    spots: list[tuple[int, int]] = []  # its keys in order: few where many buffers follow each other
    total = 0
    for i in sorted(range(len(lives)), key=lambda i: -lives[i].nbytes):
        life, at = lives[i], 0
        size = -(-(life.nbytes + gap) // align) * align
        for spot in spots:
            if spot[0] >= at + size:
                break
            firsts, lasts = used[spot]
            earlier = bisect_right(firsts, life.last)
            if earlier and lasts[earlier - 1] >= life.first:
                at = max(at, spot[1])
        offsets[i] = at
        if (at, at + size) not in used:
            insort(spots, (at, at + size))
            used[at, at + size] = [], []
        firsts, lasts = used[at, at + size]
        n = bisect_right(firsts, life.first)
        firsts.insert(n, life.first)
        lasts.insert(n, life.last)
        total = max(total, at + size)
    return offsets, total
