"""What a file of kernels is made of: kernels, which run on the GPU, and launchers, plain Python that decides how they are run.

    @kernel
    def fill_all(out, value):                  # compiled: outs, ins, constants; index() is this thread's number in the grid
        i = index()
        if i < out.size:
            out[i] = value
    @launcher
    def fill(go, outs, ins, value):            # called for launch("fill", None, (y,), (), (value,)): outs and ins as given,
        go(fill_all, outs, (), (value,), grid=blocks(outs[0].size))      # constants one by one

A buffer is a Span in a kernel (span.py), an int an int32 where it fits, a tuple of ints a tuple, None is None and what asks for it is
left out. `F` in a kernel is the formula. Whatever a kernel calls is compiled for it; float literals have the launch's dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from ...base import Buffer

LAUNCHERS: dict[str, Callable[..., None]] = {}
THREADS = 256  # of a block, unless a launcher says otherwise
WARP = 32


def F(*args: Any) -> Any:
    """Stands where the formula is put."""
    raise NotImplementedError


def kernel(function: Any = None, *, threads: int = THREADS, lanes: int = 0, together: int = 1, wide: bool = False) -> Any:
    """Decorator of a function that runs on the GPU, in blocks of so many threads, known when it is compiled as the word THREADS. `lanes`:
    how many of them share a row (all of them, unless it says otherwise), `wide`: they take neighbours at once; see rows/row_words.py.
    `together`: registers must be enough for so many blocks on a multiprocessor."""
    if function is None:
        return lambda f: kernel(f, threads=threads, lanes=lanes, together=together, wide=wide)
    function.threads, function.lanes, function.together, function.wide = threads, lanes or threads, together, wide
    return function


def shaped(function: Any, threads: int, lanes: int, wide: bool = False, together: int = 1) -> Any:
    """A kernel made of a function that is written for any number of lanes."""
    name = f"{function.__name__}_{lanes}_of_{threads}{'_wide' * wide}"
    copy = FunctionType(function.__code__, function.__globals__, name)
    return kernel(copy, threads=threads, lanes=lanes, together=together, wide=wide)


def launcher(function: Any = None, *, name: str = "") -> Any:
    """Decorator: how an op's launch of this name is done here."""
    if function is None:
        return lambda f: launcher(f, name=name)
    LAUNCHERS[name or function.__name__] = function
    return function


def blocks(elements: int, each: int = THREADS) -> int:
    """How many blocks take so many elements, `each` a block."""
    return -(-elements // each)


class Go:
    """Launches of one name, formula and dtype: called with a kernel and its arguments, it runs that kernel with these."""

    __slots__ = ("device", "dtype", "formula", "raw")

    def __init__(self, device: Any, formula: Callable | None, dtype: np.dtype, raw: bool):
        self.device, self.formula, self.dtype, self.raw = device, formula, dtype, raw

    def __call__(
        self, function: Any, outs: Sequence[Any], ins: Sequence[Any], consts: Sequence[Any] = (), *, grid: int | tuple[int, ...],
        formula: Any = ..., dtype: np.dtype | None = None, per_block: int | Callable[[int], int] = 0,
    ) -> None:  # fmt: skip
        """Run it on `grid` blocks (an int, or (x, y)); none: nothing to do. `per_block`, for kernels that depend on no other size: the
        elements of the first out a block takes, or what makes the number of blocks of its size."""
        device = self.device
        found = device.kernel(function, self.formula if formula is ... else formula, dtype or self.dtype, self.raw)
        device.stream.run(found.on(grid, per_block), outs, ins, consts)

    def empty(self, size: int, dtype: np.dtype | None = None) -> Buffer:
        return self.device.empty(size, dtype or self.dtype)  # type: ignore[no-any-return]
