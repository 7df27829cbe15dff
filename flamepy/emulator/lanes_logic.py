"""Comparisons, choices, and everything on single bits."""

from __future__ import annotations

from .entry import Instruction
from .lanes import KIND, WIDTH, Lanes, handles, splat, vector
from .lanes_half import is_half, widened

ORDERS = {"lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
JOIN = "and", "or", "xor"


def compared(e: Lanes, how: str, name: str, a: str, b: str) -> str:
    """One comparison, of operands; a trailing u means true if one is NaN."""
    kind = KIND[name]
    if name in ("f32", "f64") or is_half(name):
        x, y = (e.value(o, kind) for o in (a, b))
        if is_half(name):
            x, y, kind = widened(e, x, name), widened(e, y, name), "float"
        test = {"eq": "oeq", "ne": "one", "equ": "ueq", "neu": "une", "num": "ord", "nan": "uno"}.get(how)
        if not test:
            test = "u" + how[:-1] if how.endswith("u") and len(how) == 3 else "o" + how
        return e.do(f"fcmp {test} {vector(kind)} {x}, {y}")
    x, y = e.value(a, kind), e.value(b, kind)
    if how in ("eq", "ne"):
        return e.do(f"icmp {how} {vector(kind)} {x}, {y}")
    sign = "s" if name.startswith("s") and how not in ("lo", "ls", "hi", "hs") else "u"
    return e.do(f"icmp {sign}{ORDERS[how]} {vector(kind)} {x}, {y}")


@handles("setp")
def set_predicate(e: Lanes, i: Instruction, parts: list[str]) -> None:
    """setp.cmp{.bool}.type p|q, a, b{, c}"""
    result = compared(e, parts[1], parts[-1], i.operands[1], i.operands[2])
    first, _, second = i.operands[0].partition("|")
    outcomes = [result]
    if second:
        outcomes.append(e.do(f"xor <32 x i1> {result}, splat (i1 true)"))
    join = next((p for p in parts[2:-1] if p in JOIN), "")
    if join:
        other = e.value(i.operands[3], "i1")
        outcomes = [e.do(f"{join} <32 x i1> {o}, {other}") for o in outcomes]
    for name, outcome in zip((first, second), outcomes, strict=False):
        e.put(name.strip(), outcome, "i1")


@handles("set")
def set_number(e: Lanes, i: Instruction, parts: list[str]) -> None:
    """set.cmp.dtype.stype: all ones, or 1.0, where true."""
    result = compared(e, parts[1], parts[-1], i.operands[1], i.operands[2])
    join = next((p for p in parts[2:-2] if p in JOIN), "")
    if join:
        result = e.do(f"{join} <32 x i1> {result}, {e.value(i.operands[3], 'i1')}")
    kind = KIND[parts[-2]]
    true = splat(kind, "1.0") if kind == "float" else splat(kind, -1)  # type: ignore[arg-type]
    e.put(i.operands[0], e.do(f"select <32 x i1> {result}, {vector(kind)} {true}, {vector(kind)} zeroinitializer"), kind)


@handles("selp")
def select(e: Lanes, i: Instruction, parts: list[str]) -> None:
    kind = KIND[parts[-1]]
    a, b, p = e.value(i.operands[1], kind), e.value(i.operands[2], kind), e.value(i.operands[3], "i1")
    e.put(i.operands[0], e.do(f"select <32 x i1> {p}, {vector(kind)} {a}, {vector(kind)} {b}"), kind)


@handles("slct")
def select_by_sign(e: Lanes, i: Instruction, parts: list[str]) -> None:
    kind, test = KIND[parts[-2]], KIND[parts[-1]]
    c = e.value(i.operands[3], test)
    how = "fcmp oge" if test == "float" else "icmp sge"
    p = e.do(f"{how} {vector(test)} {c}, zeroinitializer")
    a, b = e.value(i.operands[1], kind), e.value(i.operands[2], kind)
    e.put(i.operands[0], e.do(f"select <32 x i1> {p}, {vector(kind)} {a}, {vector(kind)} {b}"), kind)


@handles("testp")
def test_number(e: Lanes, i: Instruction, parts: list[str]) -> None:
    kind = KIND[parts[-1]]
    classes = {"nan": 3, "number": 1020, "infinite": 516, "finite": 504, "normal": 264, "subnormal": 144}
    name = f"llvm.is.fpclass.v32f{WIDTH[kind]}"
    a = e.value(i.operands[1], kind)
    e.declared[name] = f"declare <32 x i1> @{name}({vector(kind)}, i32 immarg)"
    e.put(i.operands[0], e.do(f"call <32 x i1> @{name}({vector(kind)} {a}, i32 {classes[parts[1]]})"), "i1")


@handles("and", "or", "xor")
def logic(e: Lanes, i: Instruction, parts: list[str]) -> None:
    kind = KIND[parts[-1]]
    a, b = e.value(i.operands[1], kind), e.value(i.operands[2], kind)
    e.put(i.operands[0], e.do(f"{parts[0]} {vector(kind)} {a}, {b}"), kind)


@handles("not", "cnot")
def negation(e: Lanes, i: Instruction, parts: list[str]) -> None:
    kind = KIND[parts[-1]]
    a = e.value(i.operands[1], kind)
    if parts[0] == "not":
        return e.put(i.operands[0], e.do(f"xor {vector(kind)} {a}, {splat(kind, -1)}"), kind)
    zero = e.do(f"icmp eq {vector(kind)} {a}, zeroinitializer")
    e.put(i.operands[0], e.do(f"zext <32 x i1> {zero} to {vector(kind)}"), kind)


@handles("lop3")
def logic_of_three(e: Lanes, i: Instruction, parts: list[str]) -> None:
    """Any function of three bits: its table is the last number."""
    a, b, c = (e.value(o, "i32") for o in i.operands[1:4])
    table = e.number(i.operands[4])
    assert table is not None and "BOOL" not in parts
    result = "zeroinitializer"
    for bit in range(8):
        if table >> bit & 1:
            term = ""
            for k, x in enumerate((a, b, c)):
                one = x if bit >> (2 - k) & 1 else e.do(f"xor <32 x i32> {x}, {splat('i32', -1)}")
                term = e.do(f"and <32 x i32> {term}, {one}") if term else one
            result = e.do(f"or <32 x i32> {result}, {term}")
    e.put(i.operands[0], result, "i32")


@handles("shl", "shr")
def shift(e: Lanes, i: Instruction, parts: list[str]) -> None:
    """A shift by the width or more gives zero, or the sign."""
    name = parts[-1]
    kind = KIND[name]
    a, by = e.value(i.operands[1], kind), e.cast(e.value(i.operands[2], "i32"), "i32", kind)
    if WIDTH[kind] == 16:  # the amount may not fit
        by32 = e.intrinsic(
            "llvm.umin.v32i32", "<32 x i32>", ("<32 x i32>", e.value(i.operands[2], "i32")), ("<32 x i32>", splat("i32", 31))
        )
        by = e.cast(by32, "i32", kind)
    how = "shl" if parts[0] == "shl" else ("ashr" if name.startswith("s") else "lshr")
    e.put(i.operands[0], shifted(e, how, kind, a, by), kind)


@handles("shf")
def funnel(e: Lanes, i: Instruction, parts: list[str]) -> None:
    """shf.l and .r of the 64 bits b:a, by c (wrap: modulo 32, clamp: up to 32)."""
    a, b, c = (e.value(o, "i32") for o in i.operands[1:4])
    v = "<32 x i32>"
    by = e.do(f"and {v} {c}, {splat('i32', 31)}") if "wrap" in parts else e.intrinsic("llvm.umin.v32i32", v, (v, c), (v, splat("i32", 32)))
    low, high, by = (e.cast(x, "i32", "i64") for x in (a, b, by))
    whole = e.do(f"or <32 x i64> {low}, {e.op('shl', 'i64', high, 32)}")
    if "l" in parts:
        result = e.do(f"lshr <32 x i64> {e.do(f'shl <32 x i64> {whole}, {by}')}, {splat('i64', 32)}")
    else:
        result = e.do(f"lshr <32 x i64> {whole}, {by}")
    e.put(i.operands[0], e.cast(result, "i64", "i32"), "i32")


@handles("brev", "popc", "clz")
def bits(e: Lanes, i: Instruction, parts: list[str]) -> None:
    kind = KIND[parts[-1]]
    v, a = vector(kind), e.value(i.operands[1], kind)
    if parts[0] == "clz":
        e.declared[f"llvm.ctlz.v32{kind}"] = f"declare {v} @llvm.ctlz.v32{kind}({v}, i1)"
        result = e.do(f"call {v} @llvm.ctlz.v32{kind}({v} {a}, i1 false)")
    else:
        result = e.intrinsic(f"llvm.{'bitreverse' if parts[0] == 'brev' else 'ctpop'}.v32{kind}", v, (v, a))
    e.put(i.operands[0], result, kind)


@handles("bfind")
def find_bit(e: Lanes, i: Instruction, parts: list[str]) -> None:
    """The highest bit (for signed numbers the highest that differs from the sign), or all ones."""
    kind = KIND[parts[-1]]
    v, a = vector(kind), e.value(i.operands[1], kind)
    if parts[-1].startswith("s"):
        a = e.do(f"xor {v} {a}, {e.do(f'ashr {v} {a}, {splat(kind, WIDTH[kind] - 1)}')}")
    e.declared[f"llvm.ctlz.v32{kind}"] = f"declare {v} @llvm.ctlz.v32{kind}({v}, i1)"
    zeros = e.do(f"call {v} @llvm.ctlz.v32{kind}({v} {a}, i1 false)")
    result = zeros if "shiftamt" in parts else e.do(f"sub {v} {splat(kind, WIDTH[kind] - 1)}, {zeros}")
    none = e.do(f"icmp eq {v} {a}, zeroinitializer")
    result = e.do(f"select <32 x i1> {none}, {v} {splat(kind, -1)}, {v} {result}")
    e.put(i.operands[0], e.cast(result, kind, "i32"), "i32")


def field_masks(e: Lanes, i: Instruction, kind: str, at: int) -> tuple[str, str]:
    """Position (8 bits of it) and a mask as long as the field, both in 128-bit safe form: at most the width."""
    v, width = vector(kind), WIDTH[kind]
    clipped = []
    for operand in i.operands[at : at + 2]:
        byte = e.do(f"and <32 x i32> {e.value(operand, 'i32')}, {splat('i32', 255)}")
        clipped.append(
            e.cast(e.intrinsic("llvm.umin.v32i32", "<32 x i32>", ("<32 x i32>", byte), ("<32 x i32>", splat("i32", width))), "i32", kind)
        )
    position, length = clipped
    safe = e.intrinsic(f"llvm.umin.v32{kind}", v, (v, length), (v, splat(kind, width - 1)))
    mask = e.do(f"sub {v} {e.do(f'shl {v} {splat(kind, 1)}, {safe}')}, {splat(kind, 1)}")
    whole = e.do(f"icmp uge {v} {length}, {splat(kind, width)}")
    return position, e.do(f"select <32 x i1> {whole}, {v} {splat(kind, -1)}, {v} {mask}")


def shifted(e: Lanes, how: str, kind: str, a: str, by: str) -> str:
    """A shift; one by the width or more gives zero, or the sign."""
    v, width = vector(kind), WIDTH[kind]
    inside = e.intrinsic(f"llvm.umin.v32{kind}", v, (v, by), (v, splat(kind, width - 1)))
    result = e.do(f"{how} {v} {a}, {inside}")
    if how == "ashr":
        return result
    fits = e.do(f"icmp ult {v} {by}, {splat(kind, width)}")
    return e.do(f"select <32 x i1> {fits}, {v} {result}, {v} zeroinitializer")


@handles("bfe")
def extract_field(e: Lanes, i: Instruction, parts: list[str]) -> None:
    kind, signed = KIND[parts[-1]], parts[-1].startswith("s")
    v = vector(kind)
    a = e.value(i.operands[1], kind)
    position, mask = field_masks(e, i, kind, 2)
    result = e.do(f"and {v} {shifted(e, 'ashr' if signed else 'lshr', kind, a, position)}, {mask}")
    if signed:  # the field's highest bit goes on to the left; a field past the end has the number's own sign
        top = e.do(f"xor {v} {mask}, {e.do(f'lshr {v} {mask}, {splat(kind, 1)}')}")
        turned = e.do(f"xor {v} {result}, {top}")
        result = e.do(f"sub {v} {turned}, {top}")
    e.put(i.operands[0], result, kind)


@handles("bfi")
def insert_field(e: Lanes, i: Instruction, parts: list[str]) -> None:
    kind = KIND[parts[-1]]
    v = vector(kind)
    a, b = e.value(i.operands[1], kind), e.value(i.operands[2], kind)
    position, mask = field_masks(e, i, kind, 3)
    where = shifted(e, "shl", kind, mask, position)
    new = e.do(f"and {v} {shifted(e, 'shl', kind, a, position)}, {where}")
    old = e.do(f"and {v} {b}, {e.do(f'xor {v} {where}, {splat(kind, -1)}')}")
    e.put(i.operands[0], e.do(f"or {v} {new}, {old}"), kind)


@handles("prmt")
def permute(e: Lanes, i: Instruction, parts: list[str]) -> None:
    """Four bytes chosen out of eight."""
    assert parts[-1] == "b32"
    a, b, c = (e.value(o, "i32") for o in i.operands[1:4])
    low, high = e.cast(a, "i32", "i64"), e.cast(b, "i32", "i64")
    whole = e.do(f"or <32 x i64> {low}, {e.op('shl', 'i64', high, 32)}")
    choice, result = e.cast(c, "i32", "i64"), "zeroinitializer"
    op = lambda name, x, y: e.do(f"{name} <32 x i64> {x}, {y}")
    for k in range(4):
        nibble = op("lshr", choice, splat("i64", 4 * k))
        at = op("shl", op("and", nibble, splat("i64", 7)), splat("i64", 3))
        byte = op("and", op("lshr", whole, at), splat("i64", 255))
        sign = op("mul", op("lshr", byte, splat("i64", 7)), splat("i64", 255))
        copies = e.do(f"icmp ne <32 x i64> {op('and', nibble, splat('i64', 8))}, zeroinitializer")
        byte = e.do(f"select <32 x i1> {copies}, <32 x i64> {sign}, <32 x i64> {byte}")
        result = op("or", result, op("shl", byte, splat("i64", 8 * k)))
    e.put(i.operands[0], e.cast(result, "i64", "i32"), "i32")
