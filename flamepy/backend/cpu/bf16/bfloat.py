"""Products of bf16 matrices with float32 sums: one thread, any sizes, called inside tasks; packing and rounding beside them.

    pack_panels(turned, k, n, b, b_at, ldb, to, to_at)    op(B) (k, n), bf16 or float32, as panels (panels.py); turned: b is (n, k)
    pack_strips(turned, m, k, a, a_at, lda, to, to_at)    op(A) (m, k) as strips; turned: a is (k, m), as for gradients of weights
    packed_size(k, n)                                     numbers of bf16 that op(B) (k, n) is packed in; op(A): packed_size(k, m)
    multiply(m, n, k, alpha, a, a_at, lda, b, b_at, add, c, c_at, ldc)
        c (m, n) = alpha * a (m, k) @ panels b, or += with `add`; a lies row by row, lda numbers apart, or with lda = PACKED in strips
    tiles_on(), tiles_off()                               around the products of a task

bf16 numbers are uint16 in these arrays; packed ones should start at a multiple of 64 bytes. Every 32 columns (or rows) start another
panel (strip), packed_size(k, 32) numbers after the last, so that a task may pack or multiply some of them. Sums run over k in an order
that follows from sizes alone. The routes (tiles.py) share all but the innermost block. The words call functions of C by name, in which
the route is hidden: kernels are the same on all of them, and small. load() makes those functions known and has to come before a
kernel is made. vdpbf16ps and tiles take and give 0 for denormals, multiply-add does not.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

import llvmlite.binding
import numpy as np
from numba import njit, types
from numba.core.ccallback import CFunc

from ....disk_cache import cache_of
from ...formula.bind import digest
from ..runtime import inner, processor, rooms
from ..runtime.inner import ALWAYS, INNER, KernelCompiler
from ..runtime.rooms import address_of, give_space, load_spaces, take_space
from . import blocks, panels, tiles
from .blocks import add_block, block_amx, block_dot, block_fma, copy_block, gather_float, gather_half
from .panels import SIDE, STEP, tiles_by_pairs, tiles_by_rows
from .tiles import AMX, DOT, FMA, configure_tiles, release_tiles, route, stack, write_float

PACKED = 0  # as lda: A lies in strips


# ---- the functions of C -----
@njit(**INNER)
def nothing():
    pass


# What routes put in place of these names. LIES: A is read as it lies where it can be, else it is gathered as numbers of ITEM bytes;
# DEPTH: steps at once, whose part of a strip stays in the nearest cache or next to it; ACROSS: columns whose panels stay beside it.
BLOCK, GATHER, LIES, ITEM, DEPTH, ACROSS, PARTS, TILES_ON, TILES_OFF = block_fma, gather_float, False, 4, 16, 256, 1, nothing, nothing
HALF = {"GATHER": gather_half, "LIES": True, "ITEM": 2}
ROUTES: dict[str, dict[str, Any]] = {
    AMX: {"BLOCK": block_amx, **HALF, "DEPTH": 16, "ACROSS": 128, "TILES_ON": configure_tiles, "TILES_OFF": release_tiles},
    DOT: {"BLOCK": block_dot, **HALF, "DEPTH": 32, "ACROSS": 128},
    FMA: {},
}
CORNER = stack(SIDE * SIDE * 4)  # room for a block


def product(m, n, k, alpha, a, lda, b, add, c, ldc):
    """multiply() by addresses; lda and ldc in numbers."""
    if k <= 0 and not add:
        for i in range(m):
            for j in range(n):
                write_float(c + (i * ldc + j) * 4, np.float32(0))
    steps, packed, corner = (k + SIDE - 1) // SIDE, lda == PACKED, CORNER()
    gathers = not (LIES and packed)
    room = take_space() if gathers else 0
    space = address_of(room)  # for DEPTH steps of a strip
    row, lower, step = (64, 1024, STEP * PARTS) if packed else (2 * lda, 32 * lda, 64)
    for p in range(0, steps, DEPTH):
        deep, adds = min(DEPTH, steps - p), add or p > 0
        for group in range(0, n, ACROSS):
            for i in range(0, m, SIDE):
                left = a + (i // SIDE * steps * STEP * PARTS if packed else i * row) + p * step
                at, a_row, a_lower, a_step = left, row, lower, step
                if not (LIES and (packed or (i + SIDE <= m and SIDE * (p + deep) <= k))):
                    GATHER(space, left, row, lower, step, min(SIDE, m - i), min(SIDE * deep, k - SIDE * p), deep)
                    at, a_row, a_lower, a_step = space, SIDE * ITEM * deep, 16 * SIDE * ITEM * deep, SIDE * ITEM
                for j in range(group, min(group + ACROSS, n), SIDE):
                    right, to = b + (j // SIDE * steps + p) * STEP * PARTS, c + (i * ldc + j) * 4
                    rows, cols = min(SIDE, m - i), min(SIDE, n - j)
                    if rows == SIDE and cols == SIDE and alpha == 1:
                        BLOCK(to, 4 * ldc, at, a_row, a_lower, a_step, right, STEP * PARTS, deep, adds)
                    elif alpha == 1:
                        if adds:
                            copy_block(rows, cols, to, 4 * ldc, corner, 128)
                        BLOCK(corner, 128, at, a_row, a_lower, a_step, right, STEP * PARTS, deep, adds)
                        copy_block(rows, cols, corner, 128, to, 4 * ldc)
                    else:
                        BLOCK(corner, 128, at, a_row, a_lower, a_step, right, STEP * PARTS, deep, False)
                        add_block(rows, cols, alpha, adds, corner, to, 4 * ldc)
    if gathers:
        give_space(room)


def on():
    TILES_ON()


def off():
    TILES_OFF()


# As they lie, and turned; bfloat16 and float32 numbers.
b_half, b_half_turned = tiles_by_pairs(False, 2, 1), tiles_by_rows(True, 2, 1)
b_float, b_float_turned = tiles_by_pairs(False, 4, 1), tiles_by_rows(True, 4, 1)
a_half, a_half_turned = tiles_by_rows(False, 2, 1), tiles_by_pairs(True, 2, 1)
a_float, a_float_turned = tiles_by_rows(False, 4, 1), tiles_by_pairs(True, 4, 1)


PACKERS: dict[str, dict[str, Any]] = {
    "right_half": {"PLAIN": b_half, "TURNED": b_half_turned},
    "right_float": {"PLAIN": b_float, "TURNED": b_float_turned},
    "left_half": {"PLAIN": a_half, "TURNED": a_half_turned},
    "left_float": {"PLAIN": a_float, "TURNED": a_float_turned},
}
PLAIN, TURNED = b_half, b_half_turned  # each of them has its own


def pack_right(turned, k, n, b, ldb, to):
    if turned:
        TURNED(n, k, b, ldb, to)
    else:
        PLAIN(n, k, b, ldb, to)


def pack_left(turned, m, k, a, lda, to):
    if turned:
        TURNED(m, k, a, lda, to)
    else:
        PLAIN(m, k, a, lda, to)


i, f, v = types.int64, types.float32, types.void
FUNCTIONS: dict[str, tuple[Any, Any]] = {
    "on": (on, v()),
    "off": (off, v()),
    "product": (product, v(i, i, i, f, i, i, i, i, i, i)),
    **{name: (pack_right if name.startswith("right") else pack_left, v(i, i, i, i, i, i)) for name in PACKERS},
}
SHARED = (blocks, panels, tiles, inner, processor, rooms)
FILES = (__file__, str(Path(__file__).with_name("lower.py")), *[str(module.__file__) for module in SHARED])


def as_c(function: Any, signature: Any, form: str, names: dict[str, Any]) -> Any:
    """A function with other globals as one of C, taken from the disk cache when it is there; `form` tells its file from the others."""
    load_spaces()
    mark = digest(FILES, ())
    copy = FunctionType(function.__code__, {**function.__globals__, **names})
    copy.__name__ = copy.__qualname__ = f"{function.__name__}_{form}_{mark}"
    copy.__module__ = __name__
    compiler: Any = KernelCompiler
    made = CFunc(copy, (signature.args, signature.return_type), {}, dict(ALWAYS), pipeline_class=compiler)
    made._cache = cache_of(copy)  # type: ignore[attr-defined]
    made.compile()
    return made


@cache
def compiled(name: str, form: str) -> Any:
    """One of FUNCTIONS for a route."""
    return as_c(*FUNCTIONS[name], f"{name}_{form}", {**ROUTES[form], **PACKERS.get(name, {})})


@cache
def load() -> None:
    """Make the functions known to compiled code, in the form that this process's route gives them."""
    for name in FUNCTIONS:
        llvmlite.binding.add_symbol(f"flamepy_bf16_{name}", compiled(name, route()).address)


CALLS = {name: types.ExternalFunction(f"flamepy_bf16_{name}", signature) for name, (_, signature) in FUNCTIONS.items()}
call_on, call_off, call_product = (CALLS[name] for name in ("on", "off", "product"))
call_right_half, call_right_float = CALLS["right_half"], CALLS["right_float"]
call_left_half, call_left_float = CALLS["left_half"], CALLS["left_float"]


# ---- the words -----
def packed_size(k, n):
    return (n + SIDE - 1) // SIDE * ((k + SIDE - 1) // SIDE) * SIDE * SIDE


def pack_panels(turned, k, n, b, b_at, ldb, to, to_at):
    at, place = np.int64(b.ctypes.data) + b_at * b.itemsize, np.int64(to.ctypes.data) + 2 * to_at
    if b.itemsize == 2:
        call_right_half(turned, k, n, at, ldb, place)
    else:
        call_right_float(turned, k, n, at, ldb, place)


def pack_strips(turned, m, k, a, a_at, lda, to, to_at):
    at, place = np.int64(a.ctypes.data) + a_at * a.itemsize, np.int64(to.ctypes.data) + 2 * to_at
    if a.itemsize == 2:
        call_left_half(turned, m, k, at, lda, place)
    else:
        call_left_float(turned, m, k, at, lda, place)


def multiply(m, n, k, alpha, a, a_at, lda, b, b_at, add, c, c_at, ldc):
    left, right, to = np.int64(a.ctypes.data) + 2 * a_at, np.int64(b.ctypes.data) + 2 * b_at, np.int64(c.ctypes.data) + 4 * c_at
    call_product(m, n, k, np.float32(alpha), left, lda, right, add, to, ldc)


def tiles_on():
    call_on()


def tiles_off():
    call_off()
