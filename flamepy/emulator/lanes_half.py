"""16-bit floats: to float32 and back, and arithmetic on them, one or two in a register.

Computed in float32 and rounded to 16 bits.
"""

from __future__ import annotations

from .entry import Instruction
from .lanes import Lanes, saturated, splat
from .runtime_numbers import SPECIAL

HALVES = {"f16": "i16", "bf16": "i16", "f16x2": "i32", "bf16x2": "i32"}


def is_half(name: str) -> bool:
    return name in HALVES


def widened(e: Lanes, value: str, name: str) -> str:
    """16 bits to float32."""
    if name == "bf16":
        bits = e.do(f"shl <32 x i32> {e.do(f'zext <32 x i16> {value} to <32 x i32>')}, {splat('i32', 16)}")
        return e.do(f"bitcast <32 x i32> {bits} to <32 x float>")
    e.store_warp("<32 x i16>", value, e.slot(0))
    e.runtime("from_half")
    return e.load_warp("<32 x float>", e.slot(1))


def narrowed(e: Lanes, value: str, name: str, cut: bool = False, kind: str = "float") -> str:
    """float32 (float64 for f16) to 16 bits, to the nearest, ties to even; `cut`: towards zero."""
    if name == "f16" and not cut:
        e.store_warp(f"<32 x {kind}>", value, e.slot(0))
        e.runtime("to_half", int(kind == "double"))
        return e.load_warp("<32 x i16>", e.slot(1))
    assert kind == "float" and name == "bf16"
    bits = e.do(f"bitcast <32 x float> {value} to <32 x i32>")
    if not cut:
        odd = e.do(f"and <32 x i32> {e.op('lshr', 'i32', bits, 16)}, {splat('i32', 1)}")
        bits = e.do(f"add <32 x i32> {e.op('add', 'i32', bits, 0x7FFF)}, {odd}")
    high = e.do(f"trunc <32 x i32> {e.op('lshr', 'i32', bits, 16)} to <32 x i16>")
    nan = e.do(f"fcmp uno <32 x float> {value}, zeroinitializer")
    return e.do(f"select <32 x i1> {nan}, <32 x i16> {splat('i16', 0x7FFF)}, <32 x i16> {high}")


def parts_of(e: Lanes, value: str) -> list[str]:
    """The two halves of 32 bits, the low one first."""
    high = e.do(f"lshr <32 x i32> {value}, {splat('i32', 16)}")
    return [e.do(f"trunc <32 x i32> {x} to <32 x i16>") for x in (value, high)]


def joined(e: Lanes, low: str, high: str) -> str:
    a, b = (e.do(f"zext <32 x i16> {x} to <32 x i32>") for x in (low, high))
    return e.do(f"or <32 x i32> {a}, {e.op('shl', 'i32', b, 16)}")


def half_arithmetic(e: Lanes, i: Instruction, parts: list[str]) -> None:
    name = parts[-1] if is_half(parts[-1]) else next(p for p in parts if is_half(p))
    kind, one = HALVES[name], name.removesuffix("x2")
    args = [e.value(o, kind) for o in i.operands[1:]]
    if kind == "i16":
        return e.put(i.operands[0], one_of(e, parts, one, args), kind)
    split = [parts_of(e, a) for a in args]
    low, high = (one_of(e, parts, one, [s[k] for s in split]) for k in (0, 1))
    e.put(i.operands[0], joined(e, low, high), kind)


def one_of(e: Lanes, parts: list[str], name: str, args: list[str]) -> str:
    x = [widened(e, a, name) for a in args]
    v = "<32 x float>"
    if parts[0] in ("add", "sub", "mul"):
        result = e.do(f"f{parts[0]} {v} {x[0]}, {x[1]}")
    elif parts[0] in ("fma", "mad"):
        result = e.intrinsic("llvm.fma.v32f32", v, *((v, a) for a in x))
    elif parts[0] in ("min", "max"):
        how = ("minimum" if parts[0] == "min" else "maximum") + ("" if "NaN" in parts else "num")
        result = e.intrinsic(f"llvm.{how}.v32f32", v, *((v, a) for a in x))
    else:
        e.store_warp(v, x[0], e.slot(0))
        e.runtime("special", SPECIAL[parts[0]])
        result = e.load_warp(v, e.slot(1))
    if "relu" in parts:
        result = e.intrinsic("llvm.maximum.v32f32", v, (v, result), (v, "zeroinitializer"))
    return narrowed(e, saturated(e, result, "float", parts), name)
