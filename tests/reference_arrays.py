"""The oracle of what goes through, orders, picks and scatters the numbers of an array: see reference.py."""

from __future__ import annotations

from typing import Any

import numpy as np
from cases import Input, case

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

FAMILIES_OF_ARRAYS = {"scans": SCANS}
INTERNAL_OF_ARRAYS = {"running_sum": "cumsum", "recurrence": "cumprod", "running_place": "cummax"}
