"""For tests of bf16 products: operands beside memory that must not be touched, and the functions of each route, of tiles emulated."""

from __future__ import annotations

import ctypes
import mmap
from functools import cache
from types import FunctionType
from typing import Any

import numpy as np
import pytest
from numba import njit
from numba.core.caching import NullCache

from flamepy.backend.cpu.bf16 import bfloat, tiles
from flamepy.backend.cpu.bf16.blocks import OWN
from flamepy.backend.cpu.bf16.panels import read_widened
from flamepy.backend.cpu.bf16.tiles import read_float, write_float
from flamepy.backend.cpu.runtime import processor
from flamepy.backend.cpu.runtime.inner import INNER

HAS_DOT = {"avx512bf16", "avx512bw", "avx512vl"} <= processor.features()
EMULATED = "emulated tiles"  # the tile route, its instructions as loops over memory
FORMS = [form for form, there in (("amx", not tiles.why_not_amx()), ("dot", HAS_DOT), ("fma", True), (EMULATED, True)) if there]
PAGE = mmap.PAGESIZE


@cache
def functions(form: str) -> dict[str, Any]:
    """The functions of C for one route, here under the names of bfloat's."""
    found = {name: bfloat.compiled(name, {EMULATED: "fma"}.get(form, form)) for name in bfloat.FUNCTIONS}
    return found | ({"product": emulated(bfloat.ROUTES["amx"])} if form == EMULATED else {})


ROOM = np.zeros(8 * 1024 + 64, np.uint8)  # eight tiles
BASE = ROOM.ctypes.data


@njit(**INNER)
def tile_load(t, at, stride):
    for r in range(16):
        for q in range(16):
            write_float(BASE + t * 1024 + r * 64 + q * 4, read_float(at + r * stride + q * 4))


@njit(**INNER)
def tile_store(t, at, stride):
    for r in range(16):
        for q in range(16):
            write_float(at + r * stride + q * 4, read_float(BASE + t * 1024 + r * 64 + q * 4))


@njit(**INNER)
def tile_zero(t):
    for q in range(256):
        write_float(BASE + t * 1024 + q * 4, np.float32(0))


@njit(**INNER)
def tile_dot(c, a, b):
    """As Intel's manual has it: c[m, n] += a[m, 2p] * b[p, 2n] + a[m, 2p + 1] * b[p, 2n + 1]."""
    for m in range(16):
        for p in range(32):
            x = read_widened(BASE + a * 1024 + m * 64 + p * 2)
            for n in range(16):
                at = BASE + c * 1024 + m * 64 + n * 4
                write_float(at, read_float(at) + x * read_widened(BASE + b * 1024 + p // 2 * 64 + n * 4 + p % 2 * 2))


def emulated_block(block: Any) -> Any:
    """A block of the tile route with the words above for its instructions."""
    own = {word.py_func.__name__: word for word in (tile_load, tile_store, tile_zero, tile_dot)}

    def copy(word: Any) -> Any:
        scope = {**word.py_func.__globals__, **own}
        helpers = [name for name in word.py_func.__code__.co_names if name not in own and hasattr(scope.get(name), "py_func")]
        scope |= {name: copy(scope[name]) for name in helpers}
        return njit(**OWN)(FunctionType(word.py_func.__code__, scope, word.py_func.__name__))

    return copy(block)


def uncached(function: Any, signature: Any, names: dict[str, Any]) -> Any:
    """bfloat.as_c() without the disk cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bfloat, "cache_of", lambda function: NullCache())
        return bfloat.as_c(function, signature, "emulated", names)


def emulated(names: dict[str, Any]) -> Any:
    """The product of the tile route on emulated tiles."""
    return uncached(*bfloat.FUNCTIONS["product"], {**names, "BLOCK": emulated_block(names["BLOCK"])})


def call(found: dict[str, Any], name: str, *arguments: Any) -> None:
    found[name].ctypes(*[a.at if isinstance(a, Guarded) else int(a) if name != "product" else a for a in arguments])


class Guarded:
    """Numbers that end where a page begins that may not be touched; in front of them NaN."""

    pools: dict[str, Any] = {}  # noqa: RUF012  memory is mapped once for each name

    def __init__(self, name: str, count: int, kind: Any, values: Any = None):
        size = count * np.dtype(kind).itemsize
        pages = 256
        assert size < (pages - 1) * PAGE
        if name not in self.pools:
            memory = mmap.mmap(-1, (pages + 1) * PAGE)
            start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
            assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(start + pages * PAGE), PAGE, 0) == 0
            self.pools[name] = memory, start
        memory, start = self.pools[name]
        whole = np.frombuffer(memory, np.uint8, pages * PAGE)
        self.front = whole[-size - PAGE : -size or None].view(np.uint16)
        self.front[:] = 0x7FC1
        self.numbers = whole[whole.size - size :].view(kind)
        self.numbers.view(np.uint8)[:] = 0xFF  # NaN
        if values is not None:
            self.numbers[:] = values.ravel()
        self.at = start + pages * PAGE - size

    def unharmed(self) -> bool:
        return bool((self.front == 0x7FC1).all())
