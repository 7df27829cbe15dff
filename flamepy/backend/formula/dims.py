"""How loops walk over inputs that broadcast: the common shape in as few dimensions as there can be, with a stride of each input in each.

Core's kernel has NumPy do it; the loops for CPUs and GPUs are made for these.
"""

from __future__ import annotations

from functools import lru_cache

Shape = tuple[int, ...]


@lru_cache(4096)
def merged_dims(shape: Shape, shapes: tuple[Shape | None, ...]) -> tuple[tuple[int, ...], ...]:
    """The common shape as dimensions (size, stride in each input), outermost first; neighbouring ones along which every input moves
    alike are one. A stride of 0 repeats; numbers (None) have 0 everywhere."""
    rows: list[list[int]] = []  # [size, moves in input 0?, moves in input 1? ...] from the innermost outwards
    for d in range(1, len(shape) + 1):
        moves = [int(s is not None and d <= len(s) and s[-d] != 1) for s in shapes]
        if shape[-d] == 1:
            continue
        if rows and rows[-1][1:] == moves:
            rows[-1][0] *= shape[-d]
        else:
            rows.append([shape[-d], *moves])
    rows = rows or [[1] + [1] * len(shapes)]
    steps = [1] * len(shapes)
    found = []
    for n, *moves in rows:
        found.append((n, *[step if m else 0 for step, m in zip(steps, moves, strict=True)]))
        steps = [step * n if m else step for step, m in zip(steps, moves, strict=True)]
    return tuple(found[::-1])
