"""What tests of single launches share: a device under test, numbers, and how close two results are.

A device is spoken to through backend/base.py alone, so any device may be added to ON: it is then held against the same oracles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from flamepy.backend.base import device

F4, F8, I4, I8, B1 = (np.dtype(name) for name in ("float32", "float64", "int32", "int64", "bool"))
FLOATS = [F4, F8]
SECRET = 77.0  # what stands in memory before a launch
_rng = np.random.default_rng(7)


class Bench:
    """A device, and launches on it from NumPy arrays to NumPy arrays."""

    def __init__(self, name: str):
        self.device = device(name)

    def __call__(
        self,
        name: str,
        outs: Sequence[Any],
        ins: Sequence[Any],
        consts: Sequence[Any] = (),
        formula: Callable | None = None,
        dtype: Any = None,
    ) -> list[Any]:
        """outs: (size, dtype), arrays to be overwritten, or None. Returns what they hold after the launch."""
        where = self.device
        arrays = [o if o is None or isinstance(o, np.ndarray) else np.full(o[0], SECRET, o[1]) for o in outs]
        made = [None if o is None else where.upload(o) for o in arrays]
        given = [where.upload(x) if isinstance(x, np.ndarray) else x for x in ins]
        where.launch(name, formula, made, given, consts, dtype or arrays[0].dtype)
        return [None if b is None else where.download(b) for b in made]


ON = pytest.mark.parametrize("on", [Bench("plain"), Bench("cpu")], ids=lambda on: on.device.name)


def numbers(*shape: int, dtype: np.dtype = F4) -> np.ndarray:
    return _rng.standard_normal(shape).astype(dtype)


def close(got: np.ndarray, want: Any, ulps: int = 8) -> None:
    """Equal to a few last places of the largest number in the result; NaN and infinity where they are wanted."""
    want, got = np.asarray(want), got.reshape(np.shape(want))
    finite = np.isfinite(want)
    assert np.array_equal(got[~finite], want[~finite], equal_nan=True)
    size = np.abs(want[finite]).max(initial=1e-30)
    assert np.abs(got[finite] - want[finite]).max(initial=0) <= ulps * size * np.finfo(got.dtype).eps
