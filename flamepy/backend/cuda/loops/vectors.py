"""16-byte loads and stores of Spans: words that every family's kernels may use.

    a, b, c, d = load4(x, i)              # x[i], x[i + 1], x[i + 2], x[i + 3]
    store4(y, i, (a, b, c, d))            # rounds as y[i] = a does; also store2
    if aligned(x, 4) and aligned(y, 4):   # whether load4 and store4 may be used where i is a multiple of 4

load4 of float32 is one instruction of 16 bytes, of 16-bit floats one of 8. Numbers and None, which a kernel may get in a Span's place, are
loaded as themselves, and are aligned. Import them as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from ..runtime.compat import cgutils, literal, types, word
from ..runtime.inline import run
from ..runtime.span import F32, I32, I64, Span, decoded

WIDEST = 16  # bytes of one load


# ---- words of memory ---------------------------------------------------------------------------------------------------------------
def pointer(builder: Any, span: Any, index: Any) -> Any:
    """The address of element `index` (int64)."""
    return builder.gep(builder.extract_value(span, 0), [index])


def pieces(nbytes: int, bits: int) -> tuple[int, Any, int]:
    """(how many loads, the type of each, its bytes) for so many bytes of numbers of so many bits."""
    each = min(nbytes, WIDEST)
    word = ir.IntType(max(bits, min(32, 8 * each)))
    count = 8 * each // word.width
    return nbytes // each, word if count == 1 else ir.VectorType(word, count), each


def load_words(builder: Any, address: Any, nbytes: int, bits: int) -> list[Any]:
    """Words of 32 bits (wider for wider numbers, narrower for less memory) of memory that is aligned to its size, or to 16 bytes."""
    loads, kind, each = pieces(nbytes, bits)
    start, found = builder.bitcast(address, kind.as_pointer()), []
    for n in range(loads):
        loaded = builder.load(builder.gep(start, [I32(n)]), align=each)
        vector = isinstance(kind, ir.VectorType)
        found += [builder.extract_element(loaded, I32(k)) for k in range(kind.count)] if vector else [loaded]
    return found


def store_words(builder: Any, address: Any, nbytes: int, bits: int, words: list[Any]) -> None:
    loads, kind, each = pieces(nbytes, bits)
    start, count = builder.bitcast(address, kind.as_pointer()), len(words) // loads
    for n in range(loads):
        value = words[n]
        if isinstance(kind, ir.VectorType):
            value = ir.Constant(kind, ir.Undefined)
            for k, item in enumerate(words[n * count : (n + 1) * count]):
                value = builder.insert_element(value, item, I32(k))
        builder.store(value, builder.gep(start, [I32(n)]), align=each)


def unpacked(builder: Any, kind: Span, words: list[Any]) -> list[Any]:
    """The numbers that lie in these words, as x[i] reads them."""
    bits, found = kind.stored.bitwidth, []
    for given in words:
        for shift in range(0, given.type.width, bits):
            if kind.half == "bf16" and given.type.width == 32:
                part = builder.and_(given, I32(0xFFFF0000)) if shift else builder.shl(given, I32(16))
                found.append(builder.bitcast(part, F32))
                continue
            part = builder.lshr(given, given.type(shift)) if shift else given
            part = builder.trunc(part, ir.IntType(bits)) if given.type.width > bits else part
            found.append(as_number(builder, kind, part))
    return found


def as_number(builder: Any, kind: Span, value: Any) -> Any:
    """An integer of the stored width as the number it stands for."""
    if kind.dtype in types.real_domain and not kind.half:
        return builder.bitcast(value, F32 if value.type.width == 32 else ir.DoubleType())
    return decoded(builder, kind, value)


def packed(builder: Any, kind: Span, values: list[Any]) -> list[Any]:
    """The reverse of unpacked()."""
    bits = kind.stored.bitwidth
    if kind.half:
        code = f"cvt.rn.{kind.half}x2.f32 $0, $1, $2;"  # the first one goes to the upper half
        return [run(builder, I32, code, "=r,f,f", [b, a], memory=False) for a, b in zip(values[::2], values[1::2], strict=True)]
    if kind.dtype in types.real_domain:
        values = [builder.bitcast(value, ir.IntType(bits)) for value in values]
    lanes = max(1, min(4, len(values) * bits // 8) * 8 // bits)
    word, found = ir.IntType(lanes * bits), []
    for first in range(0, len(values), lanes):
        total = builder.zext(values[first], word) if lanes > 1 else values[first]
        for k in range(1, lanes):
            total = builder.or_(total, builder.shl(builder.zext(values[first + k], word), word(k * bits)))
        found.append(total)
    return found


# ---- loads and stores -----------------------------------------------------------------------------------------------------------
def loaded(context: Any, builder: Any, kind: Any, value: Any, index: Any, lanes: int) -> list[Any]:
    """`lanes` numbers from an element on, or what is no Span so many times."""
    if not isinstance(kind, Span):
        return [value] * lanes
    bits = kind.stored.bitwidth
    return unpacked(builder, kind, load_words(builder, pointer(builder, value, index), lanes * bits // 8, bits))


def number_type(kind: Any) -> Any:
    return kind.dtype if isinstance(kind, Span) else kind


def loader(lanes: int) -> Any:
    """loadN(x, i): N numbers."""

    @word(lambda x, i: types.UniTuple(number_type(x), lanes)(x, types.int64))
    def load(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return loaded(context, builder, sig.args[0], args[0], args[1], lanes)

    return load


def storer(lanes: int) -> Any:
    """storeN(x, i, values): N numbers, converted to x's dtype."""

    @word(lambda x, i, values: types.none(x, types.int64, values))
    def store(context: Any, builder: Any, sig: Any, args: Any) -> None:
        x, _, values = sig.args
        given = cgutils.unpack_tuple(builder, args[2], lanes)
        stored(context, builder, x, args[0], args[1], [*zip(values, given, strict=True)])

    return store


def stored(context: Any, builder: Any, x: Span, span: Any, index: Any, given: Sequence[tuple[Any, Any]]) -> None:
    """Store numbers, each (type, value), from an element on."""
    numbers = [context.cast(builder, value, kind, x.dtype) for kind, value in given]
    if x.dtype is types.boolean:
        numbers = [builder.zext(v, ir.IntType(8)) for v in numbers]
    bits = x.stored.bitwidth
    store_words(builder, pointer(builder, span, index), len(given) * bits // 8, bits, packed(builder, x, numbers))


# ---- alignment -------------------------------------------------------------------------------------------------------------------
def misplaced(builder: Any, kind: Any, value: Any, lanes: int) -> Any:
    """The bits of a Span's address that must be 0."""
    if not isinstance(kind, Span):
        return I64(0)
    nbytes = min(WIDEST, lanes * kind.stored.bitwidth // 8)
    return builder.and_(builder.ptrtoint(builder.extract_value(value, 0), I64), I64(nbytes - 1))


@word(lambda x, lanes: types.boolean(x, literal(lanes)))
def aligned(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """Whether `lanes` numbers (a literal) of x may be loaded and stored at once."""
    x, lanes = sig.args
    return builder.icmp_unsigned("==", misplaced(builder, x, args[0], lanes.literal_value), I64(0))


store2 = storer(2)
load4, store4 = loader(4), storer(4)


# ---- four at a time, where there may be fewer ---------------------------------------------------------------------------------------
def plus4(a, b):
    return a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]


def take4(x, at, many, wide):
    """x[at] and the three numbers behind it, the last one again where only so `many` are there; `wide`: all are, and aligned."""
    if wide:
        return load4(x, at)
    return x[at], x[at + min(1, many - 1)], x[at + min(2, many - 1)], x[at + min(3, many - 1)]


def put4(x, at, values, many, wide):
    """The reverse of take4()."""
    if wide:
        store4(x, at, values)
    else:
        x[at] = values[0]
        if many > 1:
            x[at + 1] = values[1]
        if many > 2:
            x[at + 2] = values[2]
        if many > 3:
            x[at + 3] = values[3]
