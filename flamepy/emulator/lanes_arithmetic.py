"""Arithmetic on whole numbers and floats. float32 and float64 are exact to the bit: one rounding for an fma, none hidden.

`.ftz` is accepted and denormals are kept. Division of 32-bit whole numbers goes through float64, which is exact.
"""

from __future__ import annotations

from .entry import Instruction
from .lanes import KIND, WIDTH, Lanes, handles, saturated, splat, vector
from .lanes_half import half_arithmetic, is_half
from .lanes_rounding import directed, rounding
from .runtime_numbers import SPECIAL


def is_float(name: str) -> bool:
    return name in ("f32", "f64")


def is_signed(name: str) -> bool:
    return name.startswith("s")


@handles("add", "sub", "mul")
def add_sub_mul(e: Lanes, i: Instruction, parts: list[str]) -> None:
    name, to = parts[-1], i.operands[0]
    if is_half(name):
        return half_arithmetic(e, i, parts)
    kind = KIND[name]
    if parts[0] == "mul" and not is_float(name):
        return product(e, i, parts, "")
    a, b = e.value(i.operands[1], kind), e.value(i.operands[2], kind)
    if is_float(name):
        result = directed(e, parts[0], rounding(parts), kind, a, b) if rounding(parts) else e.do(f"f{parts[0]} {vector(kind)} {a}, {b}")
        return e.put(to, saturated(e, result, kind, parts), kind)
    if "cc" in parts:
        return with_carry(e, to, a, b, kind, parts[0] == "sub", "")
    if "sat" in parts:
        name = f"llvm.s{parts[0]}.sat.v32{kind}"
        return e.put(to, e.intrinsic(name, vector(kind), (vector(kind), a), (vector(kind), b)), kind)
    e.put(to, e.do(f"{parts[0]} {vector(kind)} {a}, {b}"), kind)


CARRY = "carry"  # the flag of add.cc and sub.cc: a register of its own


def with_carry(e: Lanes, to: str, a: str, b: str, kind: str, minus: bool, carry: str) -> None:
    e.entry.registers.setdefault(CARRY, "pred")
    e.bits.setdefault(CARRY, 0)
    wide = f"i{2 * WIDTH[kind]}"
    a, b = (e.do(f"zext {vector(kind)} {x} to {vector(wide)}") for x in (a, b))
    total = e.do(f"{'sub' if minus else 'add'} {vector(wide)} {a}, {b}")
    if carry:
        extra = e.do(f"zext <32 x i1> {carry} to {vector(wide)}")
        total = e.do(f"{'sub' if minus else 'add'} {vector(wide)} {total}, {extra}")
    high = e.do(f"lshr {vector(wide)} {total}, {splat(wide, WIDTH[kind])}")
    e.put(to, e.do(f"trunc {vector(wide)} {total} to {vector(kind)}"), kind)
    e.put(CARRY, e.do(f"trunc {vector(wide)} {high} to <32 x i1>"), "i1")


@handles("addc", "subc")
def add_with_carry(e: Lanes, i: Instruction, parts: list[str]) -> None:
    kind = KIND[parts[-1]]
    a, b = e.value(i.operands[1], kind), e.value(i.operands[2], kind)
    with_carry(e, i.operands[0], a, b, kind, parts[0] == "subc", e.value(CARRY, "i1"))


def product(e: Lanes, i: Instruction, parts: list[str], plus: str) -> None:
    """mul and mad: the low half, the high half, or both."""
    name = parts[-1]
    kind, signed = KIND[name], is_signed(name)
    a, b = e.value(i.operands[1], kind), e.value(i.operands[2], kind)
    if "wide" in parts:
        wide = f"i{2 * WIDTH[kind]}"
        a, b = e.cast(a, kind, wide, signed), e.cast(b, kind, wide, signed)
        result, kind = e.do(f"mul {vector(wide)} {a}, {b}"), wide
    elif "hi" in parts:
        result = high_product(e, a, b, kind, signed)
    else:
        result = e.do(f"mul {vector(kind)} {a}, {b}")
    if plus and ("cc" in parts or parts[0] == "madc"):
        return with_carry(e, i.operands[0], result, e.value(plus, kind), kind, False, e.value(CARRY, "i1") if parts[0] == "madc" else "")
    if plus:
        result = e.do(f"add {vector(kind)} {result}, {e.value(plus, kind)}")
    e.put(i.operands[0], result, kind)


def high_product(e: Lanes, a: str, b: str, kind: str, signed: bool) -> str:
    if kind == "i64":
        return high_product_64(e, a, b, signed)
    wide = f"i{2 * WIDTH[kind]}"
    x, y = e.cast(a, kind, wide, signed), e.cast(b, kind, wide, signed)
    shifted = e.do(f"lshr {vector(wide)} {e.do(f'mul {vector(wide)} {x}, {y}')}, {splat(wide, WIDTH[kind])}")
    return e.do(f"trunc {vector(wide)} {shifted} to {vector(kind)}")


def high_product_64(e: Lanes, a: str, b: str, signed: bool) -> str:
    """From four products of 32-bit halves."""
    v, op = "<32 x i64>", lambda name, x, y: e.do(f"{name} <32 x i64> {x}, {y}")
    low = splat("i64", 0xFFFFFFFF)
    al, bl, ah, bh = op("and", a, low), op("and", b, low), op("lshr", a, splat("i64", 32)), op("lshr", b, splat("i64", 32))
    first = op("lshr", op("mul", al, bl), splat("i64", 32))
    middle = op("add", op("mul", ah, bl), first)
    other = op("add", op("mul", al, bh), op("and", middle, low))
    high = op("add", op("mul", ah, bh), op("lshr", middle, splat("i64", 32)))
    high = op("add", high, op("lshr", other, splat("i64", 32)))
    if signed:
        for x, y in ((a, b), (b, a)):
            negative = e.do(f"icmp slt {v} {x}, zeroinitializer")
            high = op("sub", high, e.do(f"select <32 x i1> {negative}, {v} {y}, {v} zeroinitializer"))
    return high


@handles("mad", "madc", "fma")
def multiply_add(e: Lanes, i: Instruction, parts: list[str]) -> None:
    name = parts[-1]
    if is_half(name):
        return half_arithmetic(e, i, parts)
    if not is_float(name):
        return product(e, i, parts, i.operands[3])
    kind = KIND[name]
    a, b, c = (e.value(o, kind) for o in i.operands[1:4])
    if rounding(parts):
        result = directed(e, "fma", rounding(parts), kind, a, b, c)
    else:
        v = vector(kind)
        result = e.intrinsic(f"llvm.fma.v32f{WIDTH[kind]}", v, (v, a), (v, b), (v, c))
    e.put(i.operands[0], saturated(e, result, kind, parts), kind)


@handles("mul24", "mad24")
def product_24(e: Lanes, i: Instruction, parts: list[str]) -> None:
    signed = is_signed(parts[-1])
    shift = "ashr" if signed else "lshr"
    factors = []
    for operand in i.operands[1:3]:
        up = e.do(f"shl <32 x i32> {e.value(operand, 'i32')}, {splat('i32', 8)}")
        factors.append(e.cast(e.do(f"{shift} <32 x i32> {up}, {splat('i32', 8)}"), "i32", "i64", signed))
    result = e.do(f"mul <32 x i64> {factors[0]}, {factors[1]}")
    if "hi" in parts:
        result = e.do(f"lshr <32 x i64> {result}, {splat('i64', 16)}")
    result = e.cast(result, "i64", "i32")
    if parts[0] == "mad24":
        result = e.do(f"add <32 x i32> {result}, {e.value(i.operands[3], 'i32')}")
    e.put(i.operands[0], result, "i32")


@handles("div", "rem")
def divide(e: Lanes, i: Instruction, parts: list[str]) -> None:
    name = parts[-1]
    kind = KIND[name]
    a, b = e.value(i.operands[1], kind), e.value(i.operands[2], kind)
    if is_float(name):
        result = directed(e, "div", rounding(parts), kind, a, b) if rounding(parts) else e.do(f"fdiv {vector(kind)} {a}, {b}")
        return e.put(i.operands[0], result, kind)
    remainder, signed = parts[0] == "rem", is_signed(name)
    if kind == "i64":
        e.store_warp(vector(kind), a, e.slot(0))
        e.store_warp(vector(kind), b, e.slot(1))
        e.runtime("divide", int(signed), int(remainder))
        return e.put(i.operands[0], e.load_warp(vector(kind), e.slot(2)), kind)
    e.put(i.operands[0], divided(e, a, b, kind, signed, remainder), kind)


def divided(e: Lanes, a: str, b: str, kind: str, signed: bool, remainder: bool) -> str:
    """By zero: all ones, and the number itself as the remainder."""
    v, how = vector(kind), "si" if signed else "ui"
    zero = e.do(f"icmp eq {v} {b}, zeroinitializer")
    safe = e.do(f"select <32 x i1> {zero}, {v} {splat(kind, 1)}, {v} {b}")
    x, y = (e.do(f"{how}tofp {v} {n} to <32 x double>") for n in (a, safe))
    wide = e.do(f"fptosi <32 x double> {e.do(f'fdiv <32 x double> {x}, {y}')} to <32 x i64>")
    quotient = e.do(f"trunc <32 x i64> {wide} to {v}")
    if not remainder:
        return e.do(f"select <32 x i1> {zero}, {v} {splat(kind, -1)}, {v} {quotient}")
    rest = e.do(f"sub {v} {a}, {e.do(f'mul {v} {quotient}, {safe}')}")
    return e.do(f"select <32 x i1> {zero}, {v} {a}, {v} {rest}")


@handles("sqrt", "rcp", "rsqrt")
def roots(e: Lanes, i: Instruction, parts: list[str]) -> None:
    kind = KIND[parts[-1]]
    v, a = vector(kind), e.value(i.operands[1], kind)
    one = splat(kind, "1.0")  # type: ignore[arg-type]
    if parts[0] == "rsqrt" and kind == "float":
        return special(e, i, parts)
    if rounding(parts):
        result = directed(e, parts[0], rounding(parts), kind, a)
    elif parts[0] == "rcp":
        result = e.do(f"fdiv {v} {one}, {a}")
    else:
        result = e.intrinsic(f"llvm.sqrt.v32f{WIDTH[kind]}", v, (v, a))
        if parts[0] == "rsqrt":
            result = e.do(f"fdiv {v} {one}, {result}")
    e.put(i.operands[0], result, kind)


@handles("ex2", "lg2", "sin", "cos", "tanh")
def special(e: Lanes, i: Instruction, parts: list[str]) -> None:
    """In float64, rounded once."""
    if is_half(parts[-1]):
        return half_arithmetic(e, i, parts)
    assert parts[-1] == "f32"
    e.store_warp("<32 x float>", e.value(i.operands[1], "float"), e.slot(0))
    e.runtime("special", SPECIAL[parts[0]])
    e.put(i.operands[0], e.load_warp("<32 x float>", e.slot(1)), "float")


@handles("min", "max")
def least_most(e: Lanes, i: Instruction, parts: list[str]) -> None:
    name = parts[-1]
    if is_half(name):
        return half_arithmetic(e, i, parts)
    kind = KIND[name]
    v, a, b = vector(kind), e.value(i.operands[1], kind), e.value(i.operands[2], kind)
    if is_float(name):
        how = ("minimum" if parts[0] == "min" else "maximum") + ("" if "NaN" in parts else "num")
        return e.put(i.operands[0], e.intrinsic(f"llvm.{how}.v32f{WIDTH[kind]}", v, (v, a), (v, b)), kind)
    result = e.intrinsic(f"llvm.{'s' if is_signed(name) else 'u'}{parts[0]}.v32{kind}", v, (v, a), (v, b))
    if "relu" in parts:
        result = e.intrinsic(f"llvm.smax.v32{kind}", v, (v, result), (v, "zeroinitializer"))
    e.put(i.operands[0], result, kind)


@handles("neg", "abs")
def sign(e: Lanes, i: Instruction, parts: list[str]) -> None:
    name = parts[-1]
    if is_half(name):
        bits, word = (0x8000, "i16") if WIDTH[KIND[name]] == 16 else (0x80008000, "i32")
        a = e.value(i.operands[1], word)
        change = f"xor {vector(word)} {a}, {splat(word, bits)}" if parts[0] == "neg" else f"and {vector(word)} {a}, {splat(word, ~bits)}"
        return e.put(i.operands[0], e.do(change), word)
    kind = KIND[name]
    v, a = vector(kind), e.value(i.operands[1], kind)
    if is_float(name):
        result = e.do(f"fneg {v} {a}") if parts[0] == "neg" else e.intrinsic(f"llvm.fabs.v32f{WIDTH[kind]}", v, (v, a))
    else:
        minus = e.do(f"sub {v} zeroinitializer, {a}")
        result = minus if parts[0] == "neg" else e.intrinsic(f"llvm.smax.v32{kind}", v, (v, a), (v, minus))
    e.put(i.operands[0], result, kind)


@handles("copysign")
def copysign(e: Lanes, i: Instruction, parts: list[str]) -> None:
    """copysign d, a, b: the sign of a, the size of b."""
    kind = KIND[parts[-1]]
    v = vector(kind)
    size, from_ = e.value(i.operands[2], kind), e.value(i.operands[1], kind)
    e.put(i.operands[0], e.intrinsic(f"llvm.copysign.v32f{WIDTH[kind]}", v, (v, size), (v, from_)), kind)


@handles("sad")
def sum_of_differences(e: Lanes, i: Instruction, parts: list[str]) -> None:
    kind = KIND[parts[-1]]
    v, how = vector(kind), "s" if is_signed(parts[-1]) else "u"
    a, b, c = (e.value(o, kind) for o in i.operands[1:4])
    most = e.intrinsic(f"llvm.{how}max.v32{kind}", v, (v, a), (v, b))
    least = e.intrinsic(f"llvm.{how}min.v32{kind}", v, (v, a), (v, b))
    e.put(i.operands[0], e.do(f"add {v} {e.do(f'sub {v} {most}, {least}')}, {c}"), kind)
