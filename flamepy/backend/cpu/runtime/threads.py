"""How many threads a parallel launch uses."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from . import settings


def threads() -> int:
    """How many threads a parallel launch uses: what numba.set_num_threads() was given, else NUMBA_NUM_THREADS."""
    return counter()()


@cache
def counter() -> Callable[[], int]:
    """What tells that number; starts the threads."""
    settings.check()
    from numba.np.ufunc import parallel

    from . import pool

    pool.start()
    most = most_threads()
    # Asking numba.get_num_threads() would start Numba's own threads, which flamepy has no use for.
    return lambda: parallel._get_num_threads() if parallel._is_initialized else most  # type: ignore[attr-defined]


def most_threads() -> int:
    """How many there can be: NUMBA_NUM_THREADS, or the processors. numba.set_num_threads() takes no more."""
    from numba import config

    return config.NUMBA_NUM_THREADS  # type: ignore[attr-defined,no-any-return]
