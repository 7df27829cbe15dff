"""One sparse matrix along one axis: y[o, j, i] = the sum over t of weights[t] * x[o, columns[t], i].

Average pools whose windows differ, adaptive pools, interpolation, windows laid out (unfold) and added back (fold) are such sums, along
one axis after the other. The matrix follows from sizes, so the host works it out once for each device; its transpose is the derivative, of
any order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ..core.custom import custom
from ..core.errors import ShapeError
from ..core.op import launch, like
from ..core.tensor import Tensor
from ..dtypes import HALF, float64
from .widening import narrowed, widened

Kind = tuple[Any, ...]  # which matrix: the name of its function here, columns, rows, what else it takes


class Table(NamedTuple):
    """Row j has weights[starts[j] : starts[j + 1]], at these columns."""

    starts: np.ndarray
    columns: np.ndarray
    weights: np.ndarray


# ---- the op ----------------------------------------------------------------------------------------------------------------------------
@custom(inputs=1, kind="as is", internal=True, title="weighted sums")
def mixed(x, steps=()):
    """x through a matrix along an axis, then the next one: steps has (axis, kind) of each."""
    for axis, kind in steps:
        tables = on_device(kind, x.device, x.spec.computed)
        given, (many, made) = x, sides_of(kind, tables[0].size - 1)
        behind = given.shape[axis + many :]
        x = like(given, (*given.shape[:axis], *made, *behind))
        if x.size:
            launch("mixed", None, (x,), (given, *tables), tuple(map(math.prod, (given.shape[axis : axis + many], made, behind))))
    return x


def sides_of(kind: Kind, rows: int) -> tuple[int, tuple[int, ...]]:
    """(how many axes a matrix takes together, the sizes of those that it makes)."""
    if kind[0] == "turned" and kind[1][0] == "joined":
        return len(kind[1][4]), kind[1][3]
    return (len(kind[3]), kind[4]) if kind[0] == "joined" else (1, (rows,))


@mixed.differentiable
def mixed_dx(g, steps):
    return through(g, tuple([(axis, turned(kind)) for axis, kind in reversed(steps)]))


def through(x: Any, steps: tuple[tuple[int, Kind], ...]) -> Any:
    """The sums along one axis >= 0 after the other of x, a Tensor of floats. Those of 16 bits are rounded once."""
    several = x.dtype in HALF and any([t.columns.size >= t.starts.size for _, kind in steps for t in (table_of(kind),)])  # are added up
    return narrowed(mixed(widened(x) if several else x, steps), x.dtype)


def along(x: Any, axis: int, kind: Kind) -> Any:
    return through(x, ((axis, kind),))


def turned(kind: Kind) -> Kind:
    """The transpose."""
    return kind[1] if kind[0] == "turned" else ("turned", kind)


@lru_cache(4096)
def on_device(kind: Kind, device: Any, dtype: np.dtype) -> tuple[Any, ...]:
    starts, columns, weights = table_of(kind)
    tables = [Tensor.of("table", a, device) for a in (starts, columns, weights.astype(dtype))]
    for t in tables:
        t.buffer.fixed = True
    return tuple(tables)


@lru_cache(4096)
def table_of(kind: Kind) -> Table:
    name, *numbers = kind
    if name == "turned":
        return transposed(table_of(numbers[0]), numbers[0][1])
    if name == "in 15 bits":
        return in_15_bits(table_of(numbers[0]))
    if numbers[1] >= 1 << 31:  # else rows would be made without an end
        raise ShapeError(f"size: out of reach: {numbers[1]} places along an axis. Use a smaller one.")
    return MATRICES[name](*numbers)


def transposed(table: Table, size: int) -> Table:
    """The transpose of a matrix with `size` columns; equal places stay in the order of rows."""
    rows = np.repeat(np.arange(table.starts.size - 1), np.diff(table.starts))
    order = np.argsort(table.columns, kind="stable")
    starts = np.searchsorted(table.columns[order], np.arange(size + 1))
    return Table(starts.astype(np.int64), rows[order].astype(np.int64), table.weights[order])


def in_15_bits(table: Table) -> Table:
    """The same with weights that have as many binary places as 15 bits hold, as PyTorch's for bytes."""
    places = 0
    while places < 22 and int(0.5 + table.weights.max(initial=0.0) * 2 ** (places + 1)) < 1 << 15:
        places += 1
    scaled = table.weights * 2**places
    return table._replace(weights=np.trunc(scaled + np.copysign(0.5, scaled)) / 2**places)


def of_ranges(low: np.ndarray, high: np.ndarray, weights: Any) -> Table:
    """Row j has the columns from low[j] up to high[j], each with its weight."""
    counts = np.maximum(high - low, 0)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    columns = np.arange(starts[-1]) + np.repeat(low - starts[:-1], counts)
    return Table(starts, columns.astype(np.int64), np.repeat(np.broadcast_to(weights, counts.shape).astype(float64), counts))


def of_rows(columns: np.ndarray, weights: np.ndarray) -> Table:
    """Row j has columns[j], with weights[j]."""
    return Table(np.arange(len(columns) + 1) * columns.shape[1], columns.astype(np.int64).reshape(-1), weights.reshape(-1))


# ---- matrices: of `size` columns, `count` windows or results -----------------------------------------------------------------------------
def windows(size: int, count: int, window: int, step: int, before: int, gap: int, tap_first: bool) -> Table:
    """What each tap of each window sees; padding is 0. Rows: windows, each with its taps, or with tap_first the other way round."""
    place = np.arange(count)[:, None] * step - before + np.arange(window) * gap
    place = (place.T if tap_first else place).reshape(-1)
    return of_ranges(place, place + ((place >= 0) & (place < size)), 1.0)


def means(size: int, count: int, window: int, step: int, before: int, after: int, counts: str) -> Table:
    """Means of windows. counts: "all" numbers, padding too, those "inside", or none ("sum")."""
    first = np.arange(count) * step - before
    end = np.minimum(first + window, size + after)
    low, high = np.maximum(0, first), np.clip(end, 0, size)
    return of_ranges(low, high, 1.0 / {"all": end - first, "inside": np.maximum(1, high - low), "sum": 1}[counts])


def joined(size: int, count: int, given: tuple[int, ...], made: tuple[int, ...], *kinds: Kind) -> Table:
    """Several axes at once, of these sizes before and after: of few numbers one launch is sooner."""
    columns, weights = [np.zeros(0, np.int64)], [np.zeros(0)]
    for places in np.ndindex(*made):
        columns.append(np.zeros(1, np.int64))
        weights.append(np.ones(1))
        for t, n, j in zip(map(table_of, kinds), given, places, strict=True):
            row = slice(t.starts[j], t.starts[j + 1])
            columns[-1] = np.add.outer(columns[-1] * n, t.columns[row]).reshape(-1)
            weights[-1] = np.multiply.outer(weights[-1], t.weights[row]).reshape(-1)
    return Table(np.cumsum([*map(len, columns)], dtype=np.int64), np.concatenate(columns), np.concatenate(weights))


def shares(size: int, count: int) -> Table:
    """Means of `count` windows that share the axis as evenly as may be (adaptive pools)."""
    j = np.arange(count)
    low, high = j * size // count, -(-(j + 1) * size // count)
    return of_ranges(low, high, 1.0 / np.maximum(1, high - low))


def nearest(size: int, count: int, scale: float, exact: bool) -> Table:
    """The number that is nearest; as in PyTorch places are float32."""
    step, j = np.float32(scale), np.arange(count)
    place = ((j + 0.5) * float(step)).astype(np.float32) if exact else j.astype(np.float32) * step
    return of_rows(np.minimum(np.floor(place), size - 1)[:, None], np.ones(count))


def places(count: int, scale: float, align: bool) -> np.ndarray:
    """Where in the input the results lie."""
    j = np.arange(count)
    return j * scale if align else (j + 0.5) * scale - 0.5


def linear(size: int, count: int, scale: float, align: bool) -> Table:
    """Between the two neighbours."""
    place = np.maximum(0.0, places(count, scale, align))
    first = np.minimum(np.floor(place), size - 1)
    share = np.minimum(1.0, place - first)
    return of_rows(np.stack([first, np.minimum(first + 1, size - 1)], 1), np.stack([1.0 - share, share], 1))


def cubic(size: int, count: int, scale: float, align: bool) -> Table:
    """Between four neighbours by Keys' cubic convolution (1981), a = -0.75; what lies outside is the number at the end."""
    place = places(count, scale, align)[:, None]
    first = np.floor(place)
    return of_rows(np.clip(first + np.arange(-1, 3), 0, size - 1), keys(place - first + np.arange(1, -3, -1), -0.75))


def keys(distance: np.ndarray, a: float) -> np.ndarray:
    """The cubic convolution kernel."""
    x = abs(distance)
    near, far = ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0, (((x - 5.0) * x + 8.0) * x - 4.0) * a
    return np.where(x <= 1.0, near, np.where(x < 2.0, far, 0.0))


def smooth(size: int, count: int, scale: float, mode: str) -> Table:
    """Linear or cubic weights, stretched over what a result covers where the image shrinks (antialias)."""
    stretch = max(1.0, scale)
    reach, center = (1.0 if mode == "linear" else 2.0) * stretch, scale * (np.arange(count) + 0.5)
    low, high = np.maximum(0, np.trunc(center - reach + 0.5)), np.minimum(size, np.trunc(center + reach + 0.5))
    table = of_ranges(low.astype(np.int64), high.astype(np.int64), center)
    distances = (table.columns - table.weights + 0.5) / stretch
    weights = np.maximum(0.0, 1.0 - abs(distances)) if mode == "linear" else keys(distances, -0.5)
    return table._replace(weights=weights / np.repeat(np.add.reduceat(weights, table.starts[:-1]), np.diff(table.starts)))


MATRICES: dict[str, Callable[..., Table]] = {
    f.__name__: f for f in (windows, means, joined, shares, nearest, linear, cubic, smooth)
}  # fmt: skip
