"""Places for buffers of known lifetimes in one block of memory.

A buffer lives from the first launch that names it to the last. One after the other, each gets the lowest offset at which it overlaps no
placed buffer that lives at the same time: the largest first (greedy by size: Pisarchyk & Lee 2020, arXiv:2001.03288), or those first
that live longest, where that needs less. A large buffer may come to life part
by part: backward writes the gradients of a packed model one after the other, and activations lie where those of the first layers will be.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

GAPS = 0.02  # with so little of the block unused at its fullest, another order is not tried


class Life(NamedTuple):
    """First and last launch that names a buffer, and its size in bytes. `parts`: (first byte, end, first launch) of each part that has a
    first launch of its own."""

    first: int
    last: int
    nbytes: int
    parts: Sequence[tuple[int, int, int]] = ()


def life_of(uses: Sequence[tuple[int, int, int]], nbytes: int) -> Life:
    """The life of a buffer that these launches name: (number of the launch, first byte, end of what it names)."""
    backwards = sorted(uses, reverse=True)
    first, last = backwards[-1][0], backwards[0][0]
    edges = sorted({0, nbytes, *[edge for _, *edges in uses for edge in edges]})
    if len(edges) <= 2:
        return Life(first, last, nbytes)
    begun = [last] * (len(edges) - 1)  # what lies between two neighbouring edges
    for now, start, end in backwards:
        i, j = bisect_left(edges, start), bisect_left(edges, end)
        begun[i:j] = [now] * (j - i)
    return Life(first, last, nbytes, [(a, b, now) for (a, b), now in zip(pairwise(edges), begun, strict=True)])


def places(lives: Sequence[Life], align: int, gap: int) -> tuple[list[int], int]:
    """(offset of each buffer, size of the block); offsets are multiples of `align`, neighbours `gap` bytes apart."""

    def longest(i: int) -> tuple[bool, int, int]:
        life = lives[i]
        return not life.parts, life.first - life.last, -life.nbytes

    found = placed(lives, sorted(range(len(lives)), key=lambda i: -lives[i].nbytes), align, gap)
    if found[1] <= (1 + GAPS) * alive_at_once(lives):
        return found
    return min(found, placed(lives, sorted(range(len(lives)), key=longest), align, gap), key=lambda one: one[1])


def alive_at_once(lives: Sequence[Life]) -> int:
    """The bytes that live at one time, at most: no block can be smaller."""
    change: Counter[int] = Counter()
    for life in lives:
        for start, end, begun in life.parts or ((0, life.nbytes, life.first),):
            change[begun] += end - start
            change[life.last + 1] -= end - start
    return max(accumulate([change[now] for now in sorted(change)]), default=0)


def placed(lives: Sequence[Life], order: Sequence[int], align: int, gap: int) -> tuple[list[int], int]:
    """places() in this order."""
    offsets = [0] * len(lives)
    used: dict[tuple[int, int], tuple[list[int], list[int]]] = {}  # (offset, end) -> firsts and lasts of who lives there, in order of time
    spots: list[tuple[int, int]] = []  # its keys in order: few where many buffers follow each other
    total = 0
    for i in order:
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
        for start, end, begun in life.parts or ((0, life.nbytes, life.first),):
            spot = at + start, at - (-(end + gap) // align) * align
            if spot not in used:
                insort(spots, spot)
                used[spot] = [], []
            firsts, lasts = used[spot]
            n = bisect_right(firsts, begun)
            firsts.insert(n, begun)
            lasts.insert(n, life.last)
        total = max(total, at + size)
    return offsets, total
