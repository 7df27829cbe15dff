"""How many threads a parallel launch uses. Read next: parallel.py."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache


def threads() -> int:
    """How many threads a parallel launch uses: Numba's setting."""
    return counter()()


@cache
def counter() -> Callable[[], int]:
    """What tells that setting. numba.get_num_threads() also makes sure that the threads run, which takes 0.6 us each time."""
    import numba
    from numba.np.ufunc import parallel

    numba.get_num_threads()
    return getattr(parallel, "_get_num_threads", numba.get_num_threads)
