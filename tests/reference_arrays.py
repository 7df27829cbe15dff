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


# ---- reductions
def normed(x: np.ndarray, ord: float = 2, axis: Any = None, keepdims: bool = False) -> np.ndarray:
    axes = tuple(range(x.ndim)) if axis is None else axis
    moved = np.moveaxis(x, axes, range(np.size(axes))) if x.ndim else x.reshape(1)
    y = np.linalg.norm(moved.reshape(-1, *moved.shape[max(np.size(axes), 1):]), ord, 0)
    return y.reshape([1 if d in np.atleast_1d(axes) % x.ndim else n for d, n in enumerate(x.shape)]) if keepdims and x.ndim else y


def normalized(x: np.ndarray, p: float = 2.0, axis: int = 1) -> np.ndarray:
    return x / normed(x, p, axis, True)


SUMS: list[dict[str, Any]] = [{}, {"axis": 1}, {"axis": (0, 2), "keepdims": True}]
NONE = [(((0, 3),), (), {}), (((0, 3),), (), {"axis": 1}), (((0, 3),), (), {"axis": 0}), (((),), (), {})]
MOMENTS: list[dict[str, Any]] = [{}, {"axis": 1, "correction": 0}, {"axis": (0, 2), "keepdims": True}]
NORMS: list[dict[str, Any]] = [{}, {"axis": 1}, {"axis": (0, 2), "keepdims": True}]


def moments(root: Any) -> Any:
    return lambda x, axis=None, correction=1, keepdims=False: (
        root(x.var(axis, ddof=correction, keepdims=keepdims)), x.mean(axis, keepdims=keepdims))


REDUCTIONS = {
    "any": case(np.any, GRID, shapes=SOLID, attrs=SUMS, also=NONE, smooth=False),
    "all": case(np.all, GRID, shapes=SOLID, attrs=SUMS, also=NONE, smooth=False),
    "count_nonzero": case(lambda x, **a: np.asarray(np.count_nonzero(x, **a)), GRID, shapes=SOLID, attrs=SUMS, also=NONE, smooth=False),
    "amax": case(np.max, shapes=SOLID, attrs=SUMS), "amin": case(np.min, shapes=SOLID, attrs=SUMS),
    "aminmax": case(lambda x, **a: (np.min(x, **a), np.max(x, **a)), shapes=SOLID, attrs=SUMS),
    "vector_norm": case(normed, shapes=SOLID, attrs=[{**a, "ord": p} for a in NORMS for p in (2, 1, 3, 0.5, -1, 0, np.inf, -np.inf)]),
    "norm": case(normed, shapes=[*SOLID, ((),)], attrs=[{}, {"ord": 1}]),
    "normalize": case(normalized, shapes=[((3, 4),), ((2, 3, 2),)], attrs=[{}, {"p": 1.0}, {"p": 3.0, "axis": 0}]),
    "var_mean": case(moments(np.asarray), shapes=SOLID, attrs=MOMENTS), "std_mean": case(moments(np.sqrt), shapes=SOLID, attrs=MOMENTS),
    "nansum": case(np.nansum, shapes=SOLID, attrs=SUMS, also=NONE), "nanmean": case(np.nanmean, shapes=SOLID, attrs=SUMS),
}

# ---- scattering
def scattered(ufunc: Any = None, start: float = 0.0, mean: bool = False) -> Any:
    """What comes from src to the places of x that an index names, one after the other; None: the last one stays."""
    def call(x: np.ndarray, index: np.ndarray, src: Any, axis: int, include_self: bool = True) -> np.ndarray:
        y, seen = x.copy(), np.zeros(x.shape, np.int64)
        for at in np.ndindex(index.shape):
            to = list(at)
            to[axis] = index[at]
            place, value = tuple(to), src[at] if np.ndim(src) else src
            y[place] = value if ufunc is None or not (seen[place] or include_self) else ufunc(y[place], value)
            seen[place] += 1
        return np.where(seen > 0, y / (np.maximum(seen, 1) + include_self), y) if mean and include_self else (
            np.where(seen > 0, y / np.maximum(seen, 1), y) if mean else y)
    return call


def sliced(put: Any) -> Any:
    def call(x: np.ndarray, index: np.ndarray, source: Any, axis: int = 0) -> np.ndarray:
        y = np.moveaxis(x.copy(), axis, 0)
        put(y, index, np.moveaxis(source, axis, 0) if np.ndim(source) else source)
        return np.moveaxis(y, 0, axis)
    return call


def put_along(x: np.ndarray, index: np.ndarray, values: np.ndarray, axis: int) -> np.ndarray:
    y = x.copy()
    np.put_along_axis(y, index, values, axis)
    return y


def put_at(x: np.ndarray, keys: Any, values: np.ndarray, accumulate: bool = False) -> np.ndarray:
    y = x.copy()
    if accumulate:
        np.add.at(y, keys, values)
    else:
        y[keys] = values
    return y


def mask_put(x: np.ndarray, mask: np.ndarray, source: np.ndarray) -> np.ndarray:
    y = np.broadcast_to(x, np.broadcast_shapes(x.shape, mask.shape)).copy()
    mask = np.broadcast_to(mask, y.shape)
    y[mask] = source.ravel()[:mask.sum()]
    return y


SPOTS = [((3, 4), (3, 3), (3, 3)), ((3, 4), (2, 2), (3, 4)), ((3, 3), (5, 2), (5, 3))]
WHERE: list[dict[str, Any]] = [{"axis": 0}]
OTHERS: list[Any] = [(((3, 4), (3, 3), (3, 4)), (), {"axis": 1})]
IDS3 = Input("ids", 0, 3)
SLICES = [((3, 4), (5,), (5, 4)), ((3, 4), (3,), (3, 4))]
SIDE: list[Any] = [(((2, 3), (4,), (2, 4)), (), {"axis": 1})]
ONE = Input("ids", 0, 1)
MASK = Input("mask")
REDUCED = {"sum": scattered(np.add), "prod": scattered(np.multiply), "mean": scattered(np.add, mean=True),
           "amax": scattered(np.maximum), "amin": scattered(np.minimum)}
SCATTERING = {
    "scatter": case(scattered(), R, IDS3, R, shapes=SPOTS, attrs=WHERE, also=OTHERS),
    "scatter_add": case(scattered(np.add), R, IDS3, R, shapes=SPOTS, attrs=WHERE, also=OTHERS),
    "scatter_reduce": case(lambda x, index, src, axis, reduce, **a: REDUCED[reduce](x, index, src, axis, **a), R, IDS3, R, shapes=SPOTS,
                           attrs=[{"axis": 0, "reduce": r, "include_self": s} for r in REDUCED for s in (True, False)]),
    "index_add": case(sliced(np.add.at), R, IDS3, R, shapes=SLICES, attrs=WHERE, also=SIDE),
    "index_copy": case(sliced(lambda y, i, v: y.__setitem__(i, v)), R, IDS3, R, shapes=SLICES, attrs=WHERE, also=SIDE),
    "index_fill": case(sliced(lambda y, i, v: y.__setitem__(i, v)), R, IDS3,
                       shapes=[((3, 4), (2,)), ((2, 3), (3,))], args=[(0.5,)], attrs=[{"axis": -1}]),
    "index_put": case(lambda x, values, **a: put_at(x, (np.array([2, 0, 2]), slice(None), np.array([1, 1, 1])), values, **a), R, R,
                      shapes=[((3, 2, 4), (3, 2)), ((3, 2, 4), (2,))], attrs=[{}, {"accumulate": True}]),
    "put_along_axis": case(put_along, R, ONE, R, shapes=[((3, 4), (1, 4), (1, 4)), ((1, 1), (1, 1), (1, 1))], args=[(0,), (1,)]),
    "masked_scatter": case(mask_put, R, MASK, R, shapes=[((3, 4), (3, 4), (3, 4)), ((4,), (3, 1), (12,))]),
    "take": case(lambda x, i, axis=None, mode="raise": np.take(x, i, axis, mode=mode), R, IDS3, shapes=[((3, 4), (2, 2)), ((3, 4), ())],
                 attrs=[{}, {"axis": 0}, {"axis": 1, "mode": "wrap"}, {"mode": "clip"}]),
    "take_along_axis": case(np.take_along_axis, R, IDS3, shapes=[((3, 4), (3, 1)), ((2, 3, 3), (1, 5, 3))],
                            attrs=[{"axis": 1}]),
    "masked_select": case(lambda x, m: np.broadcast_to(x, np.broadcast_shapes(x.shape, m.shape))[np.broadcast_to(m, np.broadcast_shapes(
        x.shape, m.shape))], R, MASK, shapes=[((3, 4), (3, 4)), ((4,), (3, 1)), ((2, 3), (3,)), ((), ())]),
    "nonzero": case(np.argwhere, GRID, shapes=[((3, 4),), ((),), ((0, 2),)], smooth=False),
    "argwhere": case(np.argwhere, GRID, shapes=[((3, 4),), ((),), ((0, 2),)], smooth=False),
}

FAMILIES_OF_ARRAYS = {"scans": SCANS, "order": ORDER, "reductions": REDUCTIONS, "scattering": SCATTERING}
INTERNAL_OF_ARRAYS = {
    "middle": "median", "running_log": "logcumsumexp", "extremes": "aminmax", "present_sum": "nansum",
    "axes_prod": "prod", "row_order": "sort", "places_in": "searchsorted", "recurred_along": "scatter_reduce",
    "extreme_along": "scatter_reduce", "scattered": "masked_scatter", "part_of": "histc",
    "mode_place": "mode", "running_sum": "cumsum", "recurrence": "cumprod", "running_place": "cummax",
    "differences": "diff", "distances": "cdist", "slope": "norm", "signed_square": "norm",
}
