"""What a file of kernels is made of: loops, which are compiled, and launchers, plain Python that decides how loops are run.

    @loop
    def map1(part, out, x, *c): ...            # compiled: (worker, workers), outs, ins, constants
    @launcher
    def fill(go, outs, ins, value):            # called for launch("fill", None, (y,), (), (value,)): outs and ins as given,
        go(fill_run, outs, (), (value,))       # constants one by one

`go` knows the device, the formula and the dtype; go.empty() gives scratch. How work is cut follows from sizes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ...base import Buffer, Device

LOOPS: dict[str, Any] = {}
LAUNCHERS: dict[str, Callable[..., None]] = {}


def loop(function: Any = None, *, reorders: bool = False, fixed: bool = False, launched: bool | str = False, table: Any = None) -> Any:
    """Decorator of a function that can be launched. `reorders`: its formula may add up in any order (it sums over vector lanes).
    `fixed`: it does something else when its worker is alone, so nobody but the launcher may choose how many there are. `launched`: the
    launch of its name, or of this one, runs it with what it was given, or with the table of it."""
    if function is None:
        return lambda f: loop(f, reorders=reorders, fixed=fixed, launched=launched, table=table)
    if function.__name__ in LOOPS:
        raise ValueError(f"loop: name used twice: '{function.__name__}'. Give the loop another name.")
    LOOPS[function.__name__], function.reorders, function.fixed = function, reorders, fixed
    if launched:
        name = launched if isinstance(launched, str) else function.__name__
        LAUNCHERS[name] = lambda go, outs, ins, *consts: go(function, outs, ins, consts if table is None else (table(*consts),))
    return function


def launcher(function: Any = None, *, name: str = "") -> Any:
    """Decorator: how an op's launch of this name is done here."""
    if function is None:
        return lambda f: launcher(f, name=name)
    LAUNCHERS[name or function.__name__] = function
    return function


class Go:
    """Launches of one name, formula and dtype: called with a loop and its arguments, it runs that loop with these."""

    __slots__ = ("device", "dtype", "formula", "kernels")

    def __init__(self, device: Device, formula: Callable | None, dtype: np.dtype):
        self.device, self.formula, self.dtype = device, formula, dtype
        self.kernels: dict[Any, Any] = {}  # by loop

    def __call__(
        self, loop: Any, outs: Sequence[Any], ins: Sequence[Any], consts: Sequence[Any] = (), work: int | None = None,
        formula: Any = ..., dtype: Any = None,
    ) -> None:  # fmt: skip
        """`work` counts the elements touched (default: those of the first out): it decides between one thread and all."""
        device: Any = self.device
        if formula is ... and dtype is None:
            found = self.kernels.get(loop)
            if found is None:
                found = self.kernels[loop] = device.kernels_of(loop, self.formula, self.dtype)
        else:
            found = device.kernels_of(loop, self.formula if formula is ... else formula, dtype or self.dtype)
        narrow, wide, grain = found
        device.stream.run(wide if (outs[0].size if work is None else work) >= grain else narrow, outs, ins, consts)

    def empty(self, size: int, dtype: np.dtype | None = None) -> Buffer:
        return self.device.empty(size, dtype or self.dtype)


@lru_cache(4096)
def table(values: tuple[int, ...]) -> np.ndarray:
    """Whole numbers as kernels read them; equal tables are made once."""
    return np.array(values, np.int64)
