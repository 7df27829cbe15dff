"""Tables of what blocks do with the segments of a buffer, in the GPU's memory: made once for each list of segments.

A segment is (start, size). Tasks are pieces of segments, cut at multiples of a fixed length, so results never depend on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ...base import Buffer

TASK = 4096  # elements of a span that a block updates
NORM_TASK = 16384  # elements that it adds up
MOST = 1024  # tables that are kept: parameters and what is chosen of them seldom change


def kept(device: Any, key: tuple[Any, ...], make: Callable[[], np.ndarray]) -> Buffer:
    """The table of this key. It is uploaded at once, also where a step is being recorded."""
    found = device.tables.get(key)
    if found is None:
        if len(device.tables) > MOST:
            device.tables.clear()
        found = device.tables[key] = device.direct.upload(make())
    return found  # type: ignore[no-any-return]


def tasks_of(segments: Any, length: int) -> np.ndarray:
    """First element, end and segment of each task, one task after the other."""
    rows = [np.empty(0, np.int64)]
    for number, (start, size) in enumerate(segments):
        if size:
            first = np.arange(start // length * length, start + size, length)
            rows.append(
                np.stack([np.maximum(first, start), np.minimum(first + length, start + size), np.full(first.size, number)], 1).reshape(-1)
            )
    return np.concatenate(rows).astype(np.int64)


def span_table(device: Any, segments: Any) -> Buffer:
    return kept(device, ("spans", segments), lambda: tasks_of(segments, TASK))


def norm_tables(device: Any, buffers: Any) -> tuple[list[Buffer], Buffer]:
    """The table of each buffer, and where the tasks of each segment, counted through all buffers, end: after a 0."""
    tables = [kept(device, ("norms", segments), partial(tasks_of, segments, NORM_TASK)) for segments in buffers]
    return tables, kept(device, ("ends", buffers), lambda: ends_of(buffers))


def ends_of(buffers: Any) -> np.ndarray:
    counts = [-(-(start + size) // NORM_TASK) - start // NORM_TASK if size else 0 for segments in buffers for start, size in segments]
    return np.cumsum([0, *counts])


def row_table(device: Any, segments: Any) -> Buffer:
    """A task for each row of (start, size, length of a row) segments."""
    return kept(device, ("rows", segments), lambda: rows_of(segments))


def rows_of(segments: Any) -> np.ndarray:
    rows = [np.empty(0, np.int64)]
    for start, size, cols in segments:
        first = np.arange(start, start + size, cols)
        rows.append(np.stack([first, first + cols, 0 * first], 1).reshape(-1))
    return np.concatenate(rows).astype(np.int64)
