"""Span: what a buffer is inside a kernel: a pointer and a number of elements, with x[i], x[i:j] and x.size.

16-bit floats are stored as integers: x[i] is a float32 and what is stored is rounded to the nearest, of two equally near ones to the even
one, by one instruction of the GPU. Each argument has a type of its own, so one kernel may read float32 and write bfloat16. A slice is a
Span; nothing is checked on a GPU (the emulator checks each byte).
"""

from __future__ import annotations

import operator
from typing import Any

from llvmlite import ir

from ....dtypes import bfloat16, bool_, float16
from .compat import AbstractTemplate, AttributeTemplate, StructModel, cgutils, lowering, register_model, signature, types, typing
from .inline import run

I16, I32, I64, F32 = ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.FloatType()


class Span(types.Type):  # type: ignore[name-defined,misc]
    """`dtype`: of a number as it is read; `stored`: as it lies in memory; `half`: "bf16" or "f16" where they differ."""

    def __init__(self, dtype: Any, stored: Any, half: str = ""):
        self.dtype, self.stored, self.half = dtype, stored, half
        super().__init__(f"Span({dtype}, {stored}, {half})")


def span_of(dtype: Any) -> Span:
    """The Span of a buffer of that dtype."""
    if dtype == bfloat16:
        return Span(types.float32, types.uint16, "bf16")
    if dtype == float16:
        return Span(types.float32, types.uint16, "f16")
    if dtype == bool_:
        return Span(types.boolean, types.uint8)
    kind = getattr(types, dtype.name)
    return Span(kind, kind)


@register_model(Span)
class SpanModel(StructModel):
    def __init__(self, manager: Any, kind: Any):
        super().__init__(manager, kind, [("data", types.CPointer(kind.stored)), ("size", types.int64)])


@typing.register_attr
class SpanAttributes(AttributeTemplate):
    key = Span

    def resolve_size(self, kind: Any) -> Any:
        return types.int64


@typing.register_global(operator.getitem)
class GetItem(AbstractTemplate):
    def generic(self, args: Any, kws: Any) -> Any:
        x, i = args
        if isinstance(x, Span):
            if isinstance(i, types.Integer):
                return signature(x.dtype, x, i)
            if isinstance(i, types.SliceType):
                return signature(x, x, types.slice2_type)
        return None


@typing.register_global(operator.setitem)
class SetItem(AbstractTemplate):
    def generic(self, args: Any, kws: Any) -> Any:
        x, i, _ = args
        if isinstance(x, Span) and isinstance(i, types.Integer):
            return signature(types.none, x, i, x.dtype)
        return None


@lowering.lower_getattr(Span, "size")
def get_size(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    return builder.extract_value(value, 1)


def place(builder: Any, index_type: Any, span: Any, index: Any) -> Any:
    """The address of an element."""
    if index.type.width < 64:
        index = (builder.sext if index_type.signed else builder.zext)(index, I64)
    return builder.gep(builder.extract_value(span, 0), [index])


def decoded(builder: Any, kind: Span, value: Any) -> Any:
    """What lies in memory as the number it stands for."""
    if kind.half == "bf16":
        return builder.bitcast(builder.shl(builder.zext(value, I32), I32(16)), F32)
    if kind.half == "f16":
        return run(builder, F32, "cvt.f32.f16 $0, $1;", "=f,h", [value], memory=False)
    return builder.icmp_unsigned("!=", value, value.type(0)) if kind.dtype is types.boolean else value


def encoded(builder: Any, kind: Span, value: Any) -> Any:
    """A number as it lies in memory."""
    if kind.half:
        return run(builder, I16, f"cvt.rn.{kind.half}.f32 $0, $1;", "=h,f", [value], memory=False)
    return builder.zext(value, ir.IntType(8)) if kind.dtype is types.boolean else value


@lowering.lower(operator.getitem, Span, types.Integer)
def get_item(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    x = sig.args[0]
    return decoded(builder, x, builder.load(place(builder, sig.args[1], *args), align=max(1, x.stored.bitwidth // 8)))


@lowering.lower(operator.setitem, Span, types.Integer, types.Any)
def set_item(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    x, _, kind = sig.args
    value = encoded(builder, x, context.cast(builder, args[2], kind, x.dtype))
    builder.store(value, place(builder, sig.args[1], args[0], args[1]), align=max(1, x.stored.bitwidth // 8))
    return context.get_dummy_value()


@lowering.lower(operator.getitem, Span, types.SliceType)
def get_slice(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    part = context.make_helper(builder, sig.args[1], value=args[1])
    size = builder.extract_value(args[0], 1)
    stop = builder.select(builder.icmp_signed("<", part.stop, size), part.stop, size)
    found = cgutils.create_struct_proxy(sig.return_type)(context, builder)
    found.data = builder.gep(builder.extract_value(args[0], 0), [part.start])
    found.size = builder.sub(stop, part.start)
    return found._getvalue()
