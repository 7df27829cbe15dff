"""The runtime's functions as symbols that compiled kernels can call, and `run`, which Python calls.

Compiled by Numba on first use, kept on disk beside the other compiled kernels.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
from pathlib import Path
from typing import Any

from llvmlite import binding
from numba import types
from numba.core import sigutils
from numba.core.ccallback import CFunc

from ..disk_cache import DiskCache, cache_of
from . import (
    runtime_access,
    runtime_atomics,
    runtime_check,
    runtime_count,
    runtime_numbers,
    runtime_races,
    runtime_run,
    runtime_tensor,
    runtime_warp,
)

PREFIX = "flamepy_emulator_"
# name -> function, number of 64-bit arguments, whether it returns one
FUNCTIONS: dict[str, tuple[Any, int, bool]] = {
    "load": (runtime_access.load, 7, False),
    "store": (runtime_access.store, 7, False),
    "count_access": (runtime_count.count_access, 5, False),
    "atomic": (runtime_atomics.atomic, 7, False),
    "own": (runtime_check.own, 3, False),
    "within": (runtime_check.within, 4, False),
    "fence": (runtime_races.fence, 3, False),
    "together": (runtime_warp.together, 4, True),
    "sync_warp": (runtime_warp.sync_warp, 3, False),
    "everyone": (runtime_warp.everyone, 3, False),
    "shuffle": (runtime_warp.shuffle, 4, True),
    "match": (runtime_warp.match, 5, True),
    "reduce_lanes": (runtime_warp.reduce_lanes, 5, False),
    "special": (runtime_numbers.special, 2, False),
    "divide": (runtime_numbers.divide, 3, False),
    "to_half": (runtime_numbers.to_half, 2, False),
    "from_half": (runtime_numbers.from_half, 1, False),
    "product": (runtime_tensor.product, 4, False),
    "in_step": (runtime_tensor.in_step, 3, False),
    "group_product": (runtime_tensor.group_product, 7, False),
    "load_matrices": (runtime_tensor.load_matrices, 4, False),
    "copy_later": (runtime_tensor.copy_later, 4, False),
    "copy_now": (runtime_tensor.copy_now, 3, False),
    "trap": (runtime_run.trap, 3, False),
    "run": (runtime_run.run, 1, True),
}


@functools.cache
def sources() -> str:
    """A digest of the emulator's own files: nothing that another version compiled is used."""
    folder = Path(__file__).parent
    return hashlib.sha256(b"".join(p.read_bytes() for p in sorted(folder.glob("*.py")))).hexdigest()[:16]


class RuntimeCache(DiskCache):
    """The functions of one file call those of others: any change compiles them again."""

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        return *super()._index_key(sig, codegen), sources()


@functools.cache
def compiled(name: str) -> Any:
    """One function as machine code that C can call."""
    function, count, returns = FUNCTIONS[name]
    signature = (types.int64 if returns else types.void)(*[types.int64] * count)
    arguments, result = sigutils.normalize_signature(signature)
    callback = CFunc(function.py_func, (arguments, result), locals={}, options={"error_model": "numpy"})
    callback._cache = cache_of(function.py_func, RuntimeCache)  # type: ignore[attr-defined]
    callback.compile()
    return callback


@functools.cache
def symbol(name: str) -> str:
    """The name under which compiled kernels find a function; it is compiled now."""
    binding.add_symbol(PREFIX + name, compiled(name).address)
    return PREFIX + name


@functools.cache
def runner() -> Any:
    """`run`, for ctypes: the interpreter's lock is free meanwhile."""
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(compiled("run").address)
