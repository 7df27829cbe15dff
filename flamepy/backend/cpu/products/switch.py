"""One word of the process that `gemm` of float32 reads at each call: the address of the function to multiply with instead, or 0.

So the setting behind it (backend/precision.py) changes no kernel: compiled code finds the word by symbol name, and replays and kernels
from the disk cache follow it.
"""

from __future__ import annotations

import ctypes
from functools import cache
from importlib import import_module
from typing import Any

import llvmlite.binding
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ... import precision
from ..runtime.inner import word

WORD = ir.IntType(64)
# Smaller products are float32 at every level. ROWS: no gemm with fewer is a share of a larger product (matmul.cut), so how many threads
# share it does not decide.
ROWS, SIDE = 12, 32
INSTEAD = ctypes.c_int64(0)
llvmlite.binding.add_symbol("flamepy_instead", ctypes.addressof(INSTEAD))


@word(types.int64)
def instead(builder: Any) -> Any:
    """What the word holds."""
    place = cgutils.add_global_variable(builder.module, WORD, "flamepy_instead")
    return builder.load_atomic(place, "acquire", 8)


@intrinsic
def call_instead(typing: Any, function: Any, arguments: Any) -> Any:
    """Call the function at this address with what gemm was called with."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        numbers = cgutils.unpack_tuple(builder, values[1])
        kind = ir.FunctionType(ir.VoidType(), [n.type for n in numbers])
        builder.call(builder.inttoptr(values[0], kind.as_pointer()), numbers)
        return context.get_dummy_value()

    return types.void(types.int64, arguments), code


@cache
def listen() -> None:
    """Heed the setting from now on: what has been set before, and changes."""
    precision.listeners.append(follow)
    follow()


def follow() -> None:
    """Let gemm compute as the setting says. Threads may set it at once: whoever stored last looks whether it is still so."""
    level = ""
    while level != (level := precision.level()):
        INSTEAD.value = 0 if level == "highest" else import_module("..bf16.lower", __package__).function(level)
