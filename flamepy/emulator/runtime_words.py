"""Raw memory for the runtime: reading and writing numbers at integer addresses, and calling a compiled block.

The runtime is written in Python and compiled by Numba once for all kernels (kept on disk).
"""

from __future__ import annotations

from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ..inner_code import InnerCompiler

INNER: dict[str, Any] = {
    "error_model": "numpy", "_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True, "pipeline_class": InnerCompiler,
}  # fmt: skip


def compiled_once(inline: bool) -> Any:
    """Decorator of a function of the runtime. Numba would compile it again for each constant that it is called with."""

    def decorate(function: Any) -> Any:
        dispatcher = numba.njit(forceinline=inline, **INNER)(function)
        template = dispatcher.get_call_template
        dispatcher.get_call_template = lambda args, kws: template(tuple(map(types.unliteral, args)), kws)
        return dispatcher

    return decorate


inlined, plain = compiled_once(True), compiled_once(False)  # plain: what is called often and is long stays a function of its own


def _peek(number: Any) -> Any:
    @intrinsic
    def peek(typing: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind = context.get_value_type(number)
            return builder.load(builder.inttoptr(args[0], kind.as_pointer()), align=1)

        return number(types.int64), generate

    return peek


def _poke(number: Any) -> Any:
    @intrinsic
    def poke(typing: Any, address: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind = context.get_value_type(number)
            builder.store(args[1], builder.inttoptr(args[0], kind.as_pointer()), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, number), generate

    return poke


peek8, peek16, peek32, peek64 = (_peek(t) for t in (types.uint8, types.uint16, types.int32, types.int64))
poke8, poke16, poke32, poke64 = (_poke(t) for t in (types.uint8, types.uint16, types.int32, types.int64))
peek_float, poke_float = _peek(types.float32), _poke(types.float32)
peek_double, poke_double = _peek(types.float64), _poke(types.float64)


@intrinsic
def run_block(typing: Any, function: Any, warp: Any, active: Any) -> Any:
    """Call a compiled block: it returns the lanes that branch."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = ir.IntType(32)
        kind = ir.FunctionType(word, [ir.IntType(64), word])
        pointer = builder.inttoptr(args[0], kind.as_pointer())
        taken = builder.call(pointer, [args[1], builder.trunc(args[2], word)])
        return builder.zext(taken, ir.IntType(64))

    return types.int64(types.int64, types.int64, types.int64), generate


@intrinsic
def ones(typing: Any, mask: Any) -> Any:
    """How many bits are set."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.int64(types.int64), generate


@intrinsic
def copy_bytes(typing: Any, to: Any, source: Any, count: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, byte, ir.IntType(64), ir.IntType(1)])
        move = builder.module.declare_intrinsic("llvm.memmove", [byte, byte, ir.IntType(64)], kind)
        builder.call(move, [builder.inttoptr(args[0], byte), builder.inttoptr(args[1], byte), args[2], ir.Constant(ir.IntType(1), 0)])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@intrinsic
def set_bytes(typing: Any, to: Any, value: Any, count: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, ir.IntType(8), ir.IntType(64), ir.IntType(1)])
        fill = builder.module.declare_intrinsic("llvm.memset", [byte, ir.IntType(64)], kind)
        value = builder.trunc(args[1], ir.IntType(8))
        builder.call(fill, [builder.inttoptr(args[0], byte), value, args[2], ir.Constant(ir.IntType(1), 0)])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@inlined
def word(base, index):
    """A word of a launch or a warp."""
    return peek64(base + 8 * index)


@inlined
def set_word(base, index, value):
    poke64(base + 8 * index, value)


@plain
def fail(launch, code, instruction, thread, address, detail, other_at, other_thread):
    """Note what went wrong. The first fault of a launch is the one that is told."""
    if peek64(launch) != 0:
        return
    poke64(launch, code)
    poke64(launch + 8, instruction)
    poke64(launch + 16, thread)
    poke64(launch + 24, address)
    poke64(launch + 32, detail)
    poke64(launch + 40, other_at)
    poke64(launch + 48, other_thread)
