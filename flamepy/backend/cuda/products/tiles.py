"""Tiles of plain products: tuples of numbers that a thread keeps in registers, and the words for them.

A word of this file is unrolled while it is compiled, so no tuple ever lies in memory: a tile of rows by columns is one tuple, row after
row. What a word takes as `n`, `rows` or a step must be a constant; sized() gives a kernel its own.
"""

from __future__ import annotations

from functools import cache
from types import FunctionType
from typing import Any

from ....core.formula import PACKAGE, globals_of
from ..runtime.compat import cgutils, intrinsic, literal, types, word
from ..runtime.span import I32, I64, encoded

elements = cgutils.unpack_tuple
plain = types.unliteral


# ---- kernels of one size ---------------------------------------------------------------------------------------------------------
@cache
def sized(function: Any, **sizes: int) -> Any:
    """A copy of a kernel for which these global names, its helpers' too, are other numbers."""
    scope = dict(function.__globals__) | sizes
    for name in globals_of(function.__code__):
        value = scope.get(name)
        if isinstance(value, FunctionType) and str(value.__module__).startswith(PACKAGE + "backend.cuda"):
            scope[name] = sized(value, **sizes)
    name = "_".join([function.__name__, *[str(n) for n in sizes.values()]])
    copy: Any = FunctionType(function.__code__, scope, name, function.__defaults__)
    copy.__dict__.update(function.__dict__)
    return copy


def constant(kind: Any) -> int:
    return int(literal(kind).literal_value)


def start(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """The address of an array's first element."""
    return context.make_array(kind)(context, builder, value).data


def wide(builder: Any, value: Any) -> Any:
    return value if value.type.width == 64 else builder.sext(value, I64)


# ---- plain tiles -----------------------------------------------------------------------------------------------------------------
@word(lambda n, value: types.UniTuple(plain(value), constant(n))(n, plain(value)))
def filled(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """n times the same number."""
    return [args[1]] * sig.return_type.count


@word(lambda a, at, step, n: types.UniTuple(a.dtype, constant(n))(a, plain(at), step, n))
def gather(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """a[at], a[at + step], ... of a shared array; a constant step."""
    a, _, step, n = sig.args
    first = builder.gep(start(context, builder, a, args[0]), [args[1]])
    return [builder.load(builder.gep(first, [I32(constant(step) * i)], inbounds=True)) for i in range(constant(n))]


@word(lambda acc, a, b: acc(acc, a, b))
def outer(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """acc + a b^T: rows by columns, one row after the other."""
    sums, left, right = (elements(builder, value) for value in args)
    return [builder.fma(x, y, sums[i * len(right) + j]) for i, x in enumerate(left) for j, y in enumerate(right)]


@word(lambda acc, f: acc(acc, f))
def times_rows(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """Each row times its own factor."""
    sums, factors = (elements(builder, value) for value in args)
    width = len(sums) // len(factors)
    return [builder.fmul(x, factors[i // width]) for i, x in enumerate(sums)]


@word(lambda f, n: types.UniTuple(f.dtype, f.count * constant(n))(f, n))
def spread(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """A tile whose rows have the same number everywhere, n times."""
    return [x for x in elements(builder, args[0]) for _ in range(constant(sig.args[1]))]


@word(lambda a, at, row_step, step, acc, rows: types.none(a, plain(at), literal(row_step), literal(step), acc, literal(rows)))
def put_shared(context: Any, builder: Any, sig: Any, args: Any) -> None:
    """A tile to a shared array: element (i, j) to a[at + i row_step + j step]; constant steps."""
    a, _, row_step, step, acc, rows = sig.args
    down, across, width = constant(row_step), constant(step), acc.count // constant(rows)
    first = builder.gep(start(context, builder, a, args[0]), [args[1]])
    for i, value in enumerate(elements(builder, args[4])):
        offset = i // width * down + i % width * across
        builder.store(value, builder.gep(first, [I32(offset)], inbounds=True))


@intrinsic
def put_tile(typing: Any, x: Any, at: Any, row_step: Any, left: Any, col: Any, step: Any, cols: Any, acc: Any, rows: Any) -> Any:
    """A tile to a buffer: element (i, j) to x[at + i row_step + col + j step] where i < left and col + j step < cols."""
    across, width = constant(step), acc.count // constant(rows)

    def make(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        at, down, left, col, cols = (wide(builder, args[i]) for i in (1, 2, 3, 4, 6))
        first = builder.gep(builder.extract_value(args[0], 0), [builder.add(at, col)])
        for i, value in enumerate(elements(builder, args[7])):
            row, j = divmod(i, width)
            fits = builder.and_(builder.icmp_signed(">", left, I64(row)), builder.icmp_signed("<", builder.add(col, I64(across * j)), cols))
            with builder.if_then(fits):
                offset = builder.add(builder.mul(down, I64(row)), I64(across * j))
                builder.store(encoded(builder, x, value), builder.gep(first, [offset]))
        return context.get_dummy_value()

    return types.none(x, plain(at), plain(row_step), plain(left), plain(col), step, plain(cols), acc, rows), make


@intrinsic
def put_columns(typing: Any, x: Any, at: Any, row_step: Any, left: Any, places: Any, col: Any, step: Any, acc: Any, rows: Any) -> Any:
    """A tile to a buffer: element (i, j) to x[at + i row_step + places[col + j step]] where i < left, unless that place is below 0."""
    width = acc.count // constant(rows)

    def make(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        at, down, left = (wide(builder, args[i]) for i in (1, 2, 3))
        first = builder.gep(start(context, builder, places, args[4]), [args[5]])
        base, values = builder.gep(builder.extract_value(args[0], 0), [at]), elements(builder, args[7])
        for j in range(width):
            place = wide(builder, builder.load(builder.gep(first, [I32(constant(step) * j)])))
            for i in range(constant(rows)):
                fits = builder.and_(builder.icmp_signed(">", left, I64(i)), builder.icmp_signed(">=", place, I64(0)))
                with builder.if_then(fits):
                    to = builder.gep(base, [builder.add(builder.mul(down, I64(i)), place)])
                    builder.store(encoded(builder, x, values[i * width + j]), to)
        return context.get_dummy_value()

    return types.none(x, plain(at), plain(row_step), plain(left), places, plain(col), step, acc, rows), make
