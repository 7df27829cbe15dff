"""Local arrays that the emulator can watch: cuda.local.array as memory of its own, with a strip on both sides that belongs to none.

NVVM keeps a local array in registers where it knows every index, and drops what is read or written past its ends. Here it is not told
where the array lies: inline PTX gives the address, in a text that only the emulator takes. Such a kernel is run to find faults, never to
count. Read next: ../../cuda/emulation.py, emulator/lanes_memory.py.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import binding, ir

from .compat import cgutils, dispatcher, nvvm_layout
from .emulator.layout import APART

NAME = "_cudapy_lmem"  # Numba's, of every local array
allocate, compile_device = cgutils.alloca_once, dispatcher.CUDADispatcher.compile_device
holding: Any = weakref.WeakKeyDictionary()  # device function -> the types of arguments with which it has local arrays


@contextmanager
def local_arrays(found: list[int], watched: bool = False) -> Iterator[None]:
    """While this is open, `found` gets the bytes of each local array that Numba compiles."""
    layout = binding.create_target_data(nvvm_layout())
    kept: dict[Any, Any] = {}

    def allocated(builder: Any, kind: Any, *args: Any, name: str = "", **options: Any) -> Any:
        if name == NAME:
            found.append(kind.get_abi_size(layout))
            if watched:
                return told(builder, kind, found[-1])
        return allocate(builder, kind, *args, name=name, **options)

    def compiled(function: Any, args: Any, return_type: Any = None) -> Any:
        """Numba keeps device functions: a watched one is compiled anew."""
        if watched and (function, args) not in kept:
            kept[function, args] = function.overloads.pop(args, None)
        before = len(found)
        result = compile_device(function, args, return_type)
        if args in holding.get(function, ()):
            found.append(0)
        elif len(found) > before:
            holding.setdefault(function, set()).add(args)
        return result

    cgutils.alloca_once, dispatcher.CUDADispatcher.compile_device = allocated, compiled
    try:
        yield
    finally:
        cgutils.alloca_once, dispatcher.CUDADispatcher.compile_device = allocate, compile_device
        for (function, args), before in kept.items():
            del function.overloads[args]
            if before is not None:
                function.overloads[args] = before


def told(builder: Any, kind: Any, size: int) -> Any:
    """Room for an array, and its address out of inline PTX."""
    room = allocate(builder, ir.ArrayType(ir.IntType(8), -(-size // 16) * 16 + 2 * APART), name=NAME)
    room.align = 16
    start = cgutils.gep_inbounds(builder, room, 0, APART)
    text = f"{{ mov.b64 $0, $1; own.local {size}, $1; }}"
    address = ir.InlineAsm(ir.FunctionType(start.type, [start.type]), text, "=l,l", side_effect=True)
    return builder.bitcast(builder.call(address, [start]), kind.as_pointer())
