"""cvt: between whole numbers, float32, float64 and the 16-bit floats, with every rounding.

To whole numbers the result is clamped; NaN gives 0, or the highest bit where 64 bits are involved (PTX ISA 9.0, cvt), as on the device.
"""

from __future__ import annotations

from .entry import Instruction
from .lanes import KIND, WIDTH, Lanes, handles, saturated, splat, vector
from .lanes_half import is_half, joined, narrowed, widened
from .lanes_rounding import narrowed as narrowed_to_float
from .lanes_rounding import rounding

TO_WHOLE = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}


def is_float(name: str) -> bool:
    return name in ("f32", "f64") or is_half(name)


@handles("cvt")
def convert(e: Lanes, i: Instruction, parts: list[str]) -> None:
    types = [p for p in parts if p in KIND]
    to, source = types[0], types[1]
    if to in ("f16x2", "bf16x2"):
        return pack_halves(e, i, parts, to)
    if to == "tf32":
        return to_tf32(e, i)
    value = e.value(i.operands[1], KIND[source])
    if is_float(source):
        result, kind = from_float(e, value, source, to, parts)
    else:
        result, kind = from_whole(e, value, source, to, parts)
    e.put(i.operands[0], result, kind, to.startswith("s"))


def pack_halves(e: Lanes, i: Instruction, parts: list[str], to: str) -> None:
    """cvt.rn.bf16x2.f32 d, a, b: a to the high half, b to the low one."""
    high, low = (half_of(e, e.value(o, "float"), to.removesuffix("x2"), parts) for o in i.operands[1:3])
    e.put(i.operands[0], joined(e, low, high), "i32")


def half_of(e: Lanes, value: str, name: str, parts: list[str]) -> str:
    if "relu" in parts:
        value = e.intrinsic("llvm.maximum.v32f32", "<32 x float>", ("<32 x float>", value), ("<32 x float>", "zeroinitializer"))
    return narrowed(e, value, name, "rz" in parts)


def to_tf32(e: Lanes, i: Instruction) -> None:
    """cvt.rna: 10 bits of fraction, ties away from zero."""
    bits = e.do(f"add <32 x i32> {e.value(i.operands[1], 'i32')}, {splat('i32', 0x1000)}")
    e.put(i.operands[0], e.do(f"and <32 x i32> {bits}, {splat('i32', ~0x1FFF)}"), "i32")


def from_float(e: Lanes, value: str, source: str, to: str, parts: list[str]) -> tuple[str, str]:
    kind = KIND[source]
    if is_half(source):
        value, kind = widened(e, value, source), "float"
    if not is_float(to):
        return to_whole(e, value, kind, to, parts)
    whole = next((TO_WHOLE[p] for p in parts if p in TO_WHOLE), "")
    if whole:
        value = e.intrinsic(f"llvm.{whole}.v32f{WIDTH[kind]}", vector(kind), (vector(kind), value))
    if is_half(to):
        value = saturated(e, value, kind, parts)
        if to == "bf16" and kind == "double":
            value, kind = e.do(f"fptrunc <32 x double> {value} to <32 x float>"), "float"
        if "relu" in parts:
            return half_of(e, value, to, parts), "i16"
        return narrowed(e, value, to, "rz" in parts, kind), "i16"
    if KIND[to] != kind:
        if to == "f32" and rounding(parts):
            value = narrowed_to_float(e, value, "zeroinitializer", rounding(parts))
        else:
            value = e.do(f"{'fpext' if to == 'f64' else 'fptrunc'} {vector(kind)} {value} to {vector(KIND[to])}")
    return saturated(e, value, KIND[to], parts), KIND[to]


def to_whole(e: Lanes, value: str, kind: str, to: str, parts: list[str]) -> tuple[str, str]:
    how = next((TO_WHOLE[p] for p in parts if p in TO_WHOLE), "trunc")
    v, target = vector(kind), KIND[to]
    value = e.intrinsic(f"llvm.{how}.v32f{WIDTH[kind]}", v, (v, value))
    signed = "s" if to.startswith("s") else "u"
    name = f"llvm.fpto{signed}i.sat.v32{target}.v32f{WIDTH[kind]}"
    result = e.intrinsic(name, vector(target), (v, value))
    if 64 in (WIDTH[kind], WIDTH[target]):
        nan, highest = e.do(f"fcmp uno {v} {value}, zeroinitializer"), splat(target, -1 << (WIDTH[target] - 1))
        result = e.do(f"select <32 x i1> {nan}, {vector(target)} {highest}, {vector(target)} {result}")
    return result, target


def from_whole(e: Lanes, value: str, source: str, to: str, parts: list[str]) -> tuple[str, str]:
    kind, signed = KIND[source], source.startswith("s")
    if is_float(to):
        return whole_to_float(e, value, kind, signed, to, parts)
    target = KIND[to]
    if "sat" in parts:
        value = clamped(e, value, kind, signed, to)
    return e.cast(value, kind, target, signed), target


def whole_to_float(e: Lanes, value: str, kind: str, signed: bool, to: str, parts: list[str]) -> tuple[str, str]:
    how = "sitofp" if signed else "uitofp"
    if is_half(to):  # float64 holds all 32-bit numbers, so there is one rounding
        wide = e.do(f"{how} {vector(kind)} {value} to <32 x {'double' if to == 'f16' else 'float'}>")
        return narrowed(e, wide, to, "rz" in parts, "double" if to == "f16" else "float"), "i16"
    if to == "f32" and rounding(parts):
        assert WIDTH[kind] <= 32
        wide = e.do(f"{how} {vector(kind)} {value} to <32 x double>")
        return narrowed_to_float(e, wide, "zeroinitializer", rounding(parts)), "float"
    return e.do(f"{how} {vector(kind)} {value} to {vector(KIND[to])}"), KIND[to]


def clamped(e: Lanes, value: str, kind: str, signed: bool, to: str) -> str:
    """.sat between whole numbers."""
    v, width, wanted = vector(kind), WIDTH[kind], WIDTH[KIND[to]]
    low, high = (-(1 << wanted - 1), (1 << wanted - 1) - 1) if to.startswith("s") else (0, (1 << wanted) - 1)
    if signed:
        if low > -(1 << width - 1):
            value = e.intrinsic(f"llvm.smax.v32{kind}", v, (v, value), (v, splat(kind, low)))
        if high < (1 << width - 1) - 1:
            value = e.intrinsic(f"llvm.smin.v32{kind}", v, (v, value), (v, splat(kind, high)))
    elif high < (1 << width) - 1:
        value = e.intrinsic(f"llvm.umin.v32{kind}", v, (v, value), (v, splat(kind, high)))
    return value
