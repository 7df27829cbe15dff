"""What the process is told from outside: Numba's environment variables, and how many threads a parallel launch uses.

Variables that flamepy cannot compute with are found before Numba is imported, which would fail in ways of its own.

NUMBA_THREADING_LAYER needs no check: it chooses among Numba's own threads, and flamepy has others (pool.py).
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from functools import cache

from ....core.errors import DeviceError


def trouble() -> list[tuple[str, str, str]]:
    """(variable, its value, what is wrong with it) for each variable that stands in the way."""
    found = []
    threads = os.environ.get("NUMBA_NUM_THREADS")
    if threads is not None and not is_count(threads):
        found.append(("NUMBA_NUM_THREADS", threads, "is not a number of threads"))
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        found.append(("NUMBA_DISABLE_JIT", os.environ["NUMBA_DISABLE_JIT"], "forbids to compile the kernels"))
    return found


def is_count(text: str) -> bool:
    try:
        return int(text) > 0
    except ValueError:
        return False


def check() -> None:
    """Raise DeviceError for the first variable that stands in the way, with its cure."""
    for name, value, why in trouble():
        raise DeviceError(f"cpu: {name} {why}: '{value}'. Run {to_unset(name)}; device=\"plain\" computes without Numba.")


def to_set(name: str, value: object) -> str:
    """What to type so that the next program has this variable; Windows has two shells."""
    if sys.platform == "win32":
        return f"set {name}={value} (in PowerShell: $env:{name} = '{value}')"
    return f"export {name}={shlex.quote(str(value))}"


def to_unset(name: str) -> str:
    """What to type so that the next program has no such variable."""
    return f"set {name}= (in PowerShell: $env:{name} = '')" if sys.platform == "win32" else f"unset {name}"


def threads() -> int:
    """How many threads a parallel launch uses: what numba.set_num_threads() was given, else NUMBA_NUM_THREADS."""
    return counter()()


@cache
def counter() -> Callable[[], int]:
    """What tells that number; starts the threads."""
    check()
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
