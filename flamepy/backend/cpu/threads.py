"""How many threads a parallel launch uses. Read next: pool.py."""

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
    from numba import config
    from numba.np.ufunc import parallel

    from . import pool

    pool.start()
    most = config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
    # Asking numba.get_num_threads() would start Numba's own threads, which flamepy has no use for.
    return lambda: parallel._get_num_threads() if parallel._is_initialized else most  # type: ignore[attr-defined]
