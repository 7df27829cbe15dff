"""The most that one core can do: multiplications and sums on registers alone, without a load. Every product is measured against it.

A fused multiply-add takes some four cycles and a core begins one or two in each, so a single chain z = z * x + y would mostly wait. As
many chains as a register tile has sums, none of which needs another's result, keep the units at work.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import llvmlite.binding
import numpy as np
from numba import njit, types
from numba.core.ccallback import CFunc
from numba.extending import intrinsic

from ....disk_cache import NamedCache, cache_of
from ..products.gemm import SIGNATURES, SOURCES, load, own_name
from ..products.micro import ALONE, Vectors, word
from .inner import ALWAYS
from .processor import Tile, tile

ROUNDS = 1 << 16  # of a measured call: less than 2 ms


def chain_kernel(itemsize: int, tile: Tile) -> Any:
    """A jitted (z, x, y, rounds): z = z * x + y, so many times, for each of tile.rows * tile.across vectors z; x and y are one vector.
    Addresses."""

    def typed(typing: Any, z: Any, x: Any, y: Any, rounds: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            z, x, y, rounds = values
            v, size = Vectors(builder, itemsize, tile.lanes), itemsize * tile.lanes
            many, one = v.load(x), v.load(y)
            starts = [v.load(z, i * size) for i in range(tile.rows * tile.across)]
            before, loop, done = builder.block, builder.append_basic_block("round"), builder.append_basic_block("done")
            builder.branch(loop)
            builder.position_at_end(loop)
            left, chains = builder.phi(rounds.type), [builder.phi(v.kind) for _ in starts]
            following = builder.sub(left, word(1))
            ends = [v.multiply_add(chain, many, one) for chain in chains]
            for phi, start, end in [(left, rounds, following), *zip(chains, starts, ends, strict=True)]:
                phi.add_incoming(start, before)
                phi.add_incoming(end, loop)
            builder.cbranch(builder.icmp_signed(">", following, word(0)), loop, done)
            builder.position_at_end(done)
            for i, end in enumerate(ends):
                v.store(end, z, i * size)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4), code

    emit = intrinsic(typed)

    def chains(z, x, y, rounds):
        emit(z, x, y, rounds)

    return njit(**ALONE)(chains)


@cache
def compiled(itemsize: int) -> Any:
    """The chains as a function of C, from the disk cache or compiled now."""
    kernel = chain_kernel(itemsize, tile(itemsize))

    def peak(z, x, y, rounds):
        kernel(z, x, y, rounds)

    made = CFunc(own_name(peak, itemsize, SOURCES), ((types.int64,) * 4, types.void), {}, dict(ALWAYS))
    made._cache = cache_of(made._pyfunc, NamedCache)  # type: ignore[attr-defined]
    made.compile()
    return made


def chains(itemsize: int, rounds: int = ROUNDS) -> tuple[Callable[[], np.ndarray], float]:
    """A function that runs every chain from 0, 1, 2, ... with x = 1/2 and y = 1 and gives where they end, and its arithmetic."""
    own, call = tile(itemsize), compiled(itemsize).ctypes
    x, y = (np.full(own.lanes, value, f"f{itemsize}") for value in (0.5, 1.0))
    z = np.empty(own.lanes * own.rows * own.across, x.dtype)

    def run() -> np.ndarray:
        z[:] = np.arange(z.size)
        call(z.ctypes.data, x.ctypes.data, y.ctypes.data, rounds)
        return z

    return run, 2.0 * rounds * z.size


def gemm_from_python(itemsize: int) -> Any:
    """The word `gemm` to be called from Python, with addresses and strides in bytes."""
    load(itemsize)
    kinds: list[Any] = [{types.int64: ctypes.c_int64, types.float64: ctypes.c_double}[kind] for kind in SIGNATURES["gemm"]]
    return ctypes.CFUNCTYPE(None, *kinds)(llvmlite.binding.address_of_symbol(f"flamepy_gemm{itemsize}"))


def product(itemsize: int, side: int) -> tuple[Callable[[], np.ndarray], float]:
    """A function that multiplies two square matrices on this thread, and its arithmetic."""
    call = gemm_from_python(itemsize)
    a, b, c = (np.ones((side, side), f"f{itemsize}") for _ in range(3))

    def run() -> np.ndarray:
        row = side * itemsize
        call(0, 0, side, side, side, 1.0, a.ctypes.data, row, b.ctypes.data, row, 0, c.ctypes.data, row)
        return c

    return run, 2.0 * side**3


def rate(run: Callable[[], Any], flops: float, seconds: float) -> float:
    """GFLOP/s of the fastest call; calls for so many seconds."""
    times: list[float] = []
    while len(times) < 3 or sum(times) < seconds:
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return flops / min(times) / 1e9
