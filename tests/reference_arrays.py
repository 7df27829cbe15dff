"""The oracle of what goes through, orders, picks and scatters the numbers of an array: see reference.py."""

from __future__ import annotations

from typing import Any

import numpy as np
from cases import GRID, IDS4, Input, R, case

# fmt: off
ALONG: list[dict[str, Any]] = [{"axis": 0}, {"axis": 1}, {"axis": -1}]
SOLID = [((2, 3, 4),)]
EDGES: list[Any] = [(((),), (), {"axis": 0}), (((0, 3),), (), {"axis": 0}), (((0, 3),), (), {"axis": 1}), (((80,),), (), {"axis": 0})]
SOME = Input("real", -1.3, 1.3)


def accumulated(ufunc: Any) -> Any:
    """A NumPy ufunc's accumulate, which has no scalars."""
    def call(x: np.ndarray, axis: int | None = None) -> np.ndarray:
        if axis is None:
            return ufunc.accumulate(x.ravel())
        return ufunc.accumulate(np.atleast_1d(x), axis).reshape(x.shape)
    return call


def running(better: Any) -> Any:
    """Values and places of the best element up to each one; of equal ones the last."""
    def call(x: np.ndarray, axis: int = 0) -> tuple[np.ndarray, np.ndarray]:
        flat = np.moveaxis(np.atleast_1d(x), axis, 0)
        places = np.zeros(flat.shape, np.int64)
        for i in range(1, len(flat)):
            held = np.take_along_axis(flat, places[i - 1:i], 0)
            places[i] = np.where(better(flat[i], held[0]), i, places[i - 1])
        values = np.take_along_axis(flat, places, 0)
        return tuple(np.moveaxis(t, 0, axis).reshape(x.shape) for t in (values, places))
    return call


SCANS = {
    "cumsum": case(accumulated(np.add), shapes=SOLID, attrs=[{}, *ALONG], also=EDGES),
    "cumprod": case(accumulated(np.multiply), SOME, shapes=SOLID, attrs=[{}, *ALONG], also=EDGES),
    "logcumsumexp": case(accumulated(np.logaddexp), shapes=SOLID, attrs=ALONG, also=EDGES),
    "cummax": case(running(np.greater_equal), shapes=SOLID, attrs=ALONG, also=EDGES),
    "cummin": case(running(np.less_equal), shapes=SOLID, attrs=ALONG, also=EDGES),
    "diff": case(lambda x, n=1, axis=-1, **ends: np.diff(x, n, axis, **ends), shapes=SOLID, attrs=[
        {}, {"axis": 0}, {"n": 2, "axis": 1}, {"n": 0}, {"prepend": 0.5, "append": -1.0}, {"n": 3, "axis": 1}]),
}


# ---- order
def ordered(x: np.ndarray, axis: int = -1, descending: bool = False) -> tuple[np.ndarray, np.ndarray]:
    line = np.atleast_1d(x)
    order = np.argsort(-line if descending else line, axis, kind="stable")
    return np.take_along_axis(line, order, axis).reshape(x.shape), order.reshape(x.shape)


def first_of(x: np.ndarray, k: int, axis: int = -1, largest: bool = True) -> tuple[np.ndarray, ...]:
    return tuple(np.take(t, range(k), axis) for t in ordered(x, axis, largest))


def kth(x: np.ndarray, k: int, axis: int = -1, keepdims: bool = False) -> tuple[np.ndarray, ...]:
    found = [np.take(t, range(k - 1, k), axis) for t in ordered(x, axis)]
    return tuple(t if keepdims else t.squeeze(axis) for t in found)


def most_frequent(x: np.ndarray, axis: int = -1, keepdims: bool = False) -> tuple[np.ndarray, ...]:
    def of(line: np.ndarray) -> tuple[Any, int]:
        values, counts = np.unique(line, return_counts=True)
        return values[counts.argmax()], int(np.flatnonzero(line == values[counts.argmax()])[-1])
    found = [np.apply_along_axis(lambda line, n=n: of(line)[n], axis, x) for n in (0, 1)]
    return tuple(np.expand_dims(t, axis) if keepdims else t for t in found)


DOWN: list[dict[str, Any]] = [{}, *ALONG, {"axis": 1, "descending": True}]
LINES: list[Any] = [(((),), (), {}), (((0, 3),), (), {"axis": 0}), (((60,),), (), {}), (((2, 70),), (), {"descending": True})]
SHARES: list[dict[str, Any]] = [{}, {"axis": 1}, {"axis": (0, 2), "keepdims": True}]
ORDER = {
    "sort": case(ordered, shapes=SOLID, attrs=DOWN, also=LINES),
    "argsort": case(lambda x, **a: ordered(x, **a)[1], shapes=SOLID, attrs=DOWN, also=LINES, smooth=False),
    "msort": case(lambda x: np.sort(x, 0), shapes=SOLID),
    "topk": case(first_of, shapes=SOLID, args=[(2,), (0,), (1, 1), (2, 0, False)]),
    "kthvalue": case(kth, shapes=SOLID, args=[(2,), (1, 1), (2, 0, True)]),
    "mode": case(most_frequent, Input("real", -2.0, 2.0, 1.0), smooth=False, shapes=[((3, 7),), ((2, 5, 3),)], attrs=[
        {}, {"axis": 1, "keepdims": True}]),
    "median": case(np.median, shapes=[*SOLID, ((3, 5),)], attrs=[{}, {"axis": 1}, {"axis": (0, 1), "keepdims": True}]),
    "quantile": case(np.quantile, shapes=SOLID, args=[(0.3,), ([0.0, 0.25, 1.0],)], attrs=[
        *SHARES, *[{"axis": 2, "method": method} for method in ("lower", "higher", "midpoint", "nearest")]]),
    "nanmedian": case(np.nanmedian, shapes=SOLID, attrs=SHARES),
    "nanquantile": case(np.nanquantile, shapes=SOLID, args=[(0.3,), ([0.25, 1.0],)], attrs=SHARES),
    "searchsorted": case(lambda x, v, **a: np.searchsorted(np.sort(x), v, **a), GRID, GRID, smooth=False, shapes=[
        ((5,), (3, 4)), ((5,), ()), ((0,), (2,)), ((3,), (0,))], attrs=[{}, {"side": "right"}]),
    "bucketize": case(lambda x, b, right=False: np.searchsorted(np.sort(b), x, "right" if right else "left"), GRID, GRID, smooth=False,
                      shapes=[((3, 4), (5,))], attrs=[{}, {"right": True}]),
    "unique": case(np.unique, GRID, shapes=[((3, 4),), ((),), ((0,),)], attrs=[
        {}, {"return_index": True, "return_inverse": True, "return_counts": True}], smooth=False),
    "bincount": case(np.bincount, IDS4, R, shapes=[((7,), (7,)), ((1,), (1,))], attrs=[{}, {"minlength": 9}]),
    "histc": case(lambda x, bins, min, max: np.histogram(x, bins, (min, max))[0].astype(float), shapes=[((30,),), ((3, 4),)],
                  args=[(5, -1.5, 1.0)], smooth=False),
}

FAMILIES_OF_ARRAYS = {"scans": SCANS, "order": ORDER}
INTERNAL_OF_ARRAYS = {
    "row_order": "sort", "places_in": "searchsorted",
    "running_sum": "cumsum", "recurrence": "cumprod", "running_place": "cummax",
}
