"""One sparse matrix along one axis: y[o, j, i] = the sum over t of weights[t] * x[o, columns[t], i].

Average pools whose windows differ, adaptive pools, interpolation, windows laid out (unfold) and added back (fold) are such sums, along
one axis after the other. The matrix follows from sizes, so the host works it out once for each device; its transpose is the derivative, of
any order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from ..core.custom import custom
from ..core.errors import ShapeError
from ..core.op import launch, like
from ..core.tensor import Tensor
from ..dtypes import HALF, float64
from .widening import narrowed, widened

Kind = tuple[Any, ...]  # which matrix: the name of its function here, columns, rows, what else it takes
Taps = Iterator[tuple[Any, Any]]  # of each row: columns, their weights


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
    columns, weights = [*zip(*MATRICES[name](*numbers), strict=True)] or ((), ())
    counts = [*map(len, columns)]
    each = [[w] * n if isinstance(w, float) else w for w, n in zip(weights, counts, strict=True)]
    flat, shares = np.fromiter(chain.from_iterable(columns), np.int64), np.fromiter(chain.from_iterable(each), float64)
    return Table(np.cumsum([0, *counts], dtype=np.int64), flat, shares)


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


# ---- matrices: of `size` columns, `count` windows or results -----------------------------------------------------------------------------
def windows(size: int, count: int, window: int, step: int, before: int, gap: int, tap_first: bool) -> Taps:
    """What each tap of each window sees; padding is 0. Rows: windows, each with its taps, or with tap_first the other way round."""
    for a in range(window if tap_first else count):
        for b in range(count if tap_first else window):
            tap, at = (a, b) if tap_first else (b, a)
            place = at * step - before + tap * gap
            yield ([place] if 0 <= place < size else []), 1.0


def means(size: int, count: int, window: int, step: int, before: int, after: int, counts: str) -> Taps:
    """Means of windows. counts: "all" numbers, padding too, those "inside", or none ("sum")."""
    for j in range(count):
        first = j * step - before
        end = min(first + window, size + after)
        low, high = max(0, first), max(0, min(size, end))
        divisor = {"all": end - first, "inside": max(1, high - low), "sum": 1}[counts]
        yield range(low, high), 1.0 / divisor


def joined(size: int, count: int, given: tuple[int, ...], made: tuple[int, ...], *kinds: Kind) -> Taps:
    """Several axes at once, of these sizes before and after: of few numbers one launch is sooner."""
    for places in np.ndindex(*made):
        columns, weights = np.zeros(1, np.int64), np.ones(1)
        for t, n, j in zip(map(table_of, kinds), given, places, strict=True):
            columns = np.add.outer(columns * n, t.columns[t.starts[j] : t.starts[j + 1]]).reshape(-1)
            weights = np.multiply.outer(weights, t.weights[t.starts[j] : t.starts[j + 1]]).reshape(-1)
        yield columns, weights


def shares(size: int, count: int) -> Taps:
    """Means of `count` windows that share the axis as evenly as may be (adaptive pools)."""
    for j in range(count):
        low, high = j * size // count, -(-(j + 1) * size // count)
        yield range(low, high), 1.0 / max(1, high - low)


def nearest(size: int, count: int, scale: float, exact: bool) -> Taps:
    """The number that is nearest; as in PyTorch places are float32."""
    step = np.float32(scale)
    for j in range(count):
        place = np.floor(np.float32((j + 0.5) * float(step)) if exact else j * step)
        yield [min(int(place), size - 1)], 1.0


def places(count: int, scale: float, align: bool) -> np.ndarray:
    """Where in the input the results lie."""
    j = np.arange(count)
    return j * scale if align else (j + 0.5) * scale - 0.5


def linear(size: int, count: int, scale: float, align: bool) -> Taps:
    """Between the two neighbours."""
    for place in places(count, scale, align):
        place = max(0.0, place)
        first = min(int(place), size - 1)
        share = min(1.0, place - first)
        yield (first, min(first + 1, size - 1)), (1.0 - share, share)


def cubic(size: int, count: int, scale: float, align: bool) -> Taps:
    """Between four neighbours by Keys' cubic convolution (1981), a = -0.75; what lies outside is the number at the end."""
    for place in places(count, scale, align):
        first = math.floor(place)
        distances = place - first + np.arange(1, -3, -1)
        yield np.clip(np.arange(first - 1, first + 3), 0, size - 1), [keys(d, -0.75) for d in distances]


def near(x: Any, a: float) -> Any:
    """The cubic convolution kernel at distances up to 1: floats, or Tensors of them."""
    return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0


def far(x: Any, a: float) -> Any:
    """The same from 1 to 2."""
    return (((x - 5.0) * x + 8.0) * x - 4.0) * a


def keys(distance: float, a: float) -> float:
    """The cubic convolution kernel."""
    x = abs(distance)
    return near(x, a) if x <= 1.0 else far(x, a) if x < 2.0 else 0.0  # type: ignore[no-any-return]


def smooth(size: int, count: int, scale: float, mode: str) -> Taps:
    """Linear or cubic weights, stretched over what a result covers where the image shrinks (antialias)."""
    stretch = max(1.0, scale)
    reach = (1.0 if mode == "linear" else 2.0) * stretch
    for j in range(count):
        center = scale * (j + 0.5)
        low, high = max(0, int(center - reach + 0.5)), min(size, int(center + reach + 0.5))
        distances = (np.arange(low, high) - center + 0.5) / stretch
        weights = np.array([max(0.0, 1.0 - abs(d)) if mode == "linear" else keys(d, -0.5) for d in distances])
        yield range(low, high), weights / weights.sum()


MATRICES: dict[str, Callable[..., Taps]] = {
    f.__name__: f for f in (windows, means, joined, shares, nearest, linear, cubic, smooth)
}  # fmt: skip
