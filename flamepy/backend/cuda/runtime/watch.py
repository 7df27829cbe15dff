"""A kernel that the emulator can watch more closely: its local arrays, each index beside the size of its axis, and which are negative.

NVVM keeps a local array in registers where it knows every index, and drops what is read or written past its ends. Here inline PTX, in
texts that only the emulator takes, gives the array's address, compares an index with its axis (one past a row's end is inside of the
array), and stands where an index is less than zero, unless NVVM knows that none is. A raise or an assert, of which nobody hears on a GPU,
is a trap. Such a kernel is run to find faults and negative indices, never to count what the one without all this does.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import binding, ir

from ....emulator.layout import APART
from .compat import NUMBA, arrayobj, cgutils, dispatcher, lowerers, nvvm_layout, nvvmutils, types
from .inline import VOID, run

NEGATIVE, CLOSELY = 1, 2  # what is watched: negative indices, or all
NAME = "_cudapy_lmem"  # Numba's, of every local array
allocate, compile_device = cgutils.alloca_once, dispatcher.CUDADispatcher.compile_device
basic_indexing, item_pointer = arrayobj.basic_indexing, cgutils.get_item_pointer
static_raise, call_sreg = lowerers.Lower.lower_static_raise, nvvmutils.call_sreg
RANGES = {"tid": (0, 1024), "ntid": (1, 1025), "ctaid": (0, (1 << 31) - 1), "nctaid": (1, (1 << 31) - 1)}
holding: Any = weakref.WeakKeyDictionary()  # device function -> for types of arguments, what is to be watched in it


@contextmanager
def watching(found: list[int], watched: int = 0) -> Iterator[None]:
    """While this is open, `found` gets CLOSELY for each local array that Numba compiles, each element of several axes and each raise, and
    NEGATIVE for each index that may be less than zero; where they are `watched`, the PTX says what the emulator needs."""
    layout = binding.create_target_data(nvvm_layout())
    kept: dict[Any, Any] = {}

    def allocated(builder: Any, kind: Any, *args: Any, name: str = "", **options: Any) -> Any:
        if name == NAME:
            found.append(CLOSELY)
            if watched:
                return told(builder, kind, kind.get_abi_size(layout))
        return allocate(builder, kind, *args, name=name, **options)

    def compiled(function: Any, args: Any, return_type: Any = None) -> Any:
        """Numba keeps device functions: a watched one is compiled anew."""
        if watched and (function, args) not in kept:
            kept[function, args] = function.overloads.pop(args, None)
        before = len(found)
        result = compile_device(function, args, return_type)
        inside = holding.setdefault(function, {})
        if len(found) > before:
            inside[args] = max(found[before:])
        elif args in inside:
            found.append(inside[args])
        return result

    lowerers.Lower.lower_static_raise, nvvmutils.call_sreg = raising(found, watched), bounded if watched else call_sreg
    cgutils.alloca_once, dispatcher.CUDADispatcher.compile_device = allocated, compiled
    arrayobj.basic_indexing, cgutils.get_item_pointer = comparing(found, watched)
    try:
        yield
    finally:
        cgutils.alloca_once, dispatcher.CUDADispatcher.compile_device = allocate, compile_device
        arrayobj.basic_indexing, cgutils.get_item_pointer = basic_indexing, item_pointer
        lowerers.Lower.lower_static_raise, nvvmutils.call_sreg = static_raise, call_sreg
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
    return builder.bitcast(run(builder, start.type, text, "=l,l", [start], memory=False, kept=True), kind.as_pointer())


def bounded(builder: Any, name: str) -> Any:
    """call_sreg(), which tells NVVM what a register of the GPU can be: then it knows of most indices that they are not negative."""
    found = call_sreg(builder, name)
    if bounds := RANGES.get(name.split(".")[0]):
        found.set_metadata("range", builder.module.add_metadata([ir.Constant(found.type, b) for b in bounds]))
    return found


def raising(found: list[int], watched: int) -> Any:
    """What stands in for lower_static_raise()."""

    def raised(lowerer: Any, statement: Any) -> None:
        if not lowerer.func_ir.loc.filename.startswith(NUMBA):
            found.append(CLOSELY)
            if watched:
                run(lowerer.builder, VOID, "trap;", "", [], memory=False, kept=True)
        static_raise(lowerer, statement)

    return raised


def comparing(found: list[int], watched: int) -> tuple[Any, Any]:
    """What stands in for basic_indexing() and get_item_pointer()."""

    def asked(context: Any, builder: Any, kind: Any, array: Any, kinds: Any, indices: Any) -> None:
        # One past the end of a single axis is beside the array, and needs no comparison; beside a slice is the rest of its array.
        if kind.ndim > 1 or any(isinstance(k, types.SliceType) for k in kinds):
            found.append(CLOSELY)
        for of, index in zip(kinds, indices, strict=True):
            if isinstance(of, types.Integer) and of.signed:
                found.append(NEGATIVE)
                if watched:
                    with builder.if_then(builder.icmp_signed("<", index, index.type(0)), likely=False):
                        run(builder, VOID, "negative;", "", [], memory=False, kept=True)
        if watched == CLOSELY:
            compare(context, builder, kind, array, kinds, indices)

    def indexed(context: Any, builder: Any, kind: Any, array: Any, kinds: Any, indices: Any, **options: Any) -> Any:
        asked(context, builder, kind, array, kinds, indices)
        return basic_indexing(context, builder, kind, array, kinds, indices, **options)

    def pointed(context: Any, builder: Any, kind: Any, array: Any, indices: Any, wraparound: bool = False, **options: Any) -> Any:
        if wraparound:  # an atomic; basic_indexing() has done that itself
            asked(context, builder, kind, array, [types.intp] * len(indices), indices)
        return item_pointer(context, builder, kind, array, indices, wraparound=wraparound, **options)

    return indexed, pointed


def compare(context: Any, builder: Any, kind: Any, array: Any, kinds: Any, indices: Any) -> None:
    """Have the emulator compare each index with the size of its axis, after a negative one was counted from the end."""
    sizes, axis = cgutils.unpack_tuple(builder, array.shape, kind.ndim), 0
    missing = kind.ndim - sum([k is not types.ellipsis and not isinstance(k, types.NoneType) for k in kinds])
    start = builder.ptrtoint(array.data, ir.IntType(64))
    for index, of in zip(indices, kinds, strict=True):
        if isinstance(of, types.Integer):
            index = arrayobj.fix_integer_index(context, builder, of, index, sizes[axis])
            text = f"within.axis{axis} $0, $1, $2;"
            run(builder, VOID, text, "l,l,l", [index, sizes[axis], start], memory=False, kept=True)
        axis += missing if of is types.ellipsis else 0 if isinstance(of, types.NoneType) else 1
