"""Which instructions multiply bf16 numbers in this process (tiles, vdpbf16ps or multiply-add), and the tile instructions as words.

A tile is 16 rows of 64 bytes; one instruction adds the product of two to a third, sixteen times the work of a vector's. Linux gives
a process the 8 KB of tile registers only when asked: without that the first tile instruction kills the process. So route() asks, once,
and what it answers chooses between kernels of different names; permission is not part of the disk cache's key. Threads and children
by fork have the permission too. Where it is refused (old kernels, gVisor, a small signal stack) the next route is taken.
"""

from __future__ import annotations

import ctypes
import platform
from functools import cache
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..runtime.inner import word
from ..runtime.processor import cpu_name, features

I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
F32, VOID = ir.FloatType(), ir.VoidType()
TILE = 16  # rows of a tile, and 32-bit words in a row


class BFloat(ir.Type):  # type: ignore[misc]
    """LLVM's bfloat, for which llvmlite has no class; all it needs is the name."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BFloat)

    def __hash__(self) -> int:
        return hash(BFloat)


BF16 = BFloat()


# ---- what this processor and this process may do -----
AMX, DOT, FMA = "amx", "dot", "fma"  # the routes, fastest first
FULL_RATE = ("znver4", "znver5")  # one vdpbf16ps takes the time of one multiply-add; on Intel's it takes that of four: widening is faster


@cache
def route() -> str:
    """How bf16 numbers are multiplied in this process."""
    if not why_not_amx():
        return AMX
    return DOT if {"avx512bf16", "avx512bw", "avx512vl"} <= features() and cpu_name() in FULL_RATE else FMA


@cache
def why_not_amx() -> str:
    """Why tiles are not used; empty if they are. Asks Linux for them, once."""
    if not {"amx-tile", "amx-bf16"} <= features():
        return f"the processor ({cpu_name()}) has no AMX for bf16"
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return "only Linux on x86-64 is asked for the tile registers"
    code = ask_for_tiles()
    return f"Linux refuses the tile registers: error {code}" if code else ""


def ask_for_tiles() -> int:
    """Ask Linux (5.16 and later) for the tile registers; 0 or its error: 22 from old kernels and gVisor, 28 where a signal stack is too
    small, 95 from processors without them."""
    arch_prctl, get_permission, request, tile_data = 158, 0x1022, 0x1023, 18
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    granted = ctypes.c_uint64()
    if libc.syscall(*map(ctypes.c_long, (arch_prctl, request, tile_data))):
        return ctypes.get_errno() or -1
    if libc.syscall(*map(ctypes.c_long, (arch_prctl, get_permission)), ctypes.byref(granted)):
        return ctypes.get_errno() or -1
    return 0 if granted.value >> tile_data & 1 else -1


def fact() -> str:
    """How products of bf16 are done in this process."""
    how = {
        AMX: "by tiles (AMX)",
        DOT: "by vdpbf16ps, two multiply-adds at once",
        FMA: "of numbers widened to float32: 16 bits save memory here, not time",
    }
    why = why_not_amx()
    return f"products {how[route()]}" + (f"; no tiles: {why}" if why else "")


def lanes() -> int:
    """float32 numbers in this processor's widest vectors."""
    return 16 if "avx512f" in features() else 8 if "avx" in features() else 4


# ---- words of memory, by address -----
def pointer(builder: Any, address: Any, kind: Any = I8, offset: int = 0) -> Any:
    return builder.inttoptr(builder.add(address, ir.Constant(I64, offset)) if offset else address, kind.as_pointer())


def by_address(number: Any, kind: Any, align: int) -> tuple[Any, Any]:
    """Words read(address) and write(address, value) for a type of numbers, in Numba's words and LLVM's."""

    @word(number, types.int64)
    def read(builder: Any, at: Any) -> Any:
        return builder.load(pointer(builder, at, kind), align=align)

    @word(types.void, types.int64, number)
    def write(builder: Any, at: Any, value: Any) -> None:
        builder.store(value, pointer(builder, at, kind), align=align)

    return read, write


read_half, write_half = by_address(types.uint16, I16, 2)
read_float, write_float = by_address(types.float32, F32, 4)


def stack(size: int) -> Any:
    """A word: the address of `size` bytes on the stack of the function that calls it, not initialised."""

    @word(types.int64)
    def space(builder: Any) -> Any:
        with builder.goto_entry_block():
            memory = builder.alloca(ir.ArrayType(I8, size))
        memory.align = 64
        return builder.ptrtoint(memory, I64)

    return space


# ---- tile instructions -----
def call(builder: Any, name: str, result: Any, *args: Any) -> Any:
    """Call LLVM's own function of this name."""
    kind = ir.FunctionType(result, [a.type for a in args])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), args)


def tile_instruction(name: str, tiles: int, memory: bool) -> Any:
    """A word for an instruction: first `tiles` numbers of tiles, which are literals, then with `memory` an address and a stride."""

    def typed(*args: Any) -> Any:
        if not all(isinstance(a, types.IntegerLiteral) for a in args[:tiles]):
            return None
        numbers = [ir.Constant(I8, a.literal_value) for a in args[:tiles]]

        def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            place = [pointer(builder, values[tiles]), values[tiles + 1]] if memory else []
            call(builder, name, VOID, *numbers, *place)
            return context.get_dummy_value()

        return types.void(*args[:tiles], *[types.int64] * (2 * memory)), code

    def one(typing: Any, t: Any) -> Any:
        return typed(t)

    def three(typing: Any, x: Any, y: Any, z: Any) -> Any:
        return typed(x, y, z)

    return intrinsic(prefer_literal=True)(one if tiles + 2 * memory == 1 else three)


tile_zero = tile_instruction("llvm.x86.tilezero", 1, False)
tile_load = tile_instruction("llvm.x86.tileloadd64", 1, True)
tile_store = tile_instruction("llvm.x86.tilestored64", 1, True)
tile_dot = tile_instruction("llvm.x86.tdpbf16ps", 3, False)  # (c, a, b): c += a @ b


@word(types.void)
def configure_tiles(builder: Any) -> None:
    """Make eight tiles of 16 rows of 64 bytes on this thread."""
    layout = bytearray(64)
    layout[0] = 1
    for t in range(8):
        layout[16 + 2 * t] = 64  # bytes a row
        layout[48 + t] = TILE  # rows
    found = builder.module.globals.get("flamepy.tiles")
    if found is None:
        bytes_ = cgutils.create_constant_array(I8, layout)
        found = cgutils.global_constant(builder.module, "flamepy.tiles", bytes_, linkage="internal")
        found.align = 64
    call(builder, "llvm.x86.ldtilecfg", VOID, builder.bitcast(found, I8.as_pointer()))


@word(types.void)
def release_tiles(builder: Any) -> None:
    """Give the tiles back: the system need not save 8 KB at a switch, and the core may sleep deeper."""
    call(builder, "llvm.x86.tilerelease", VOID)


def rows(builder: Any, at: Any, stride: Any, count: int) -> list[Any]:
    """Addresses of `count` rows."""
    found = [at]
    for _ in range(count - 1):
        found.append(builder.add(found[-1], stride))
    return found
