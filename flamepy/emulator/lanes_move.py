"""mov with its packing and unpacking, addresses between spaces."""

from __future__ import annotations

from .entry import Instruction
from .lanes import KIND, WIDTH, WORD, Lanes, handles, splat, vector
from .layout import LOCAL_WINDOW, SHARED_WINDOW

WINDOWS = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "global": 0, "const": 0, "param": 0}


@handles("mov")
def move(e: Lanes, i: Instruction, parts: list[str]) -> None:
    """Between registers, of constants and addresses, and {a, b} to and from a wider register."""
    to, source, kind = i.operands[0], i.operands[1], KIND[parts[-1]]
    if source.startswith("{"):
        return pack(e, to, source, kind)
    if to.startswith("{"):
        return unpack(e, to, source, kind)
    e.put(to, e.value(source, kind), kind)


def pack(e: Lanes, to: str, source: str, kind: str) -> None:
    names = [n.strip() for n in source.strip("{}").split(",")]
    width = WIDTH[kind] // len(names)
    kind = WORD[WIDTH[kind]]
    total = ""
    for k, name in enumerate(names):
        part = e.cast(e.value(name, WORD[width]), WORD[width], kind)
        part = e.do(f"shl {vector(kind)} {part}, {splat(kind, k * width)}") if k else part
        total = e.do(f"or {vector(kind)} {total}, {part}") if total else part
    e.put(to, total, kind)


def unpack(e: Lanes, to: str, source: str, kind: str) -> None:
    names = [n.strip() for n in to.strip("{}").split(",")]
    width = WIDTH[kind] // len(names)
    kind = WORD[WIDTH[kind]]
    whole = e.value(source, kind)
    parts = []
    for k in range(len(names)):
        part = e.do(f"lshr {vector(kind)} {whole}, {splat(kind, k * width)}") if k else whole
        parts.append(e.cast(part, kind, WORD[width]))
    for name, part in zip(names, parts, strict=True):
        e.put(name, part, WORD[width])


@handles("cvta")
def convert_address(e: Lanes, i: Instruction, parts: list[str]) -> None:
    """Generic addresses of shared and local memory lie in windows of their own; those of global memory are the same."""
    window = WINDOWS[next(p for p in parts if p in WINDOWS)]
    kind = KIND[parts[-1]]
    value = e.value(i.operands[1], kind)
    if window and WIDTH[kind] == 64:
        how = "sub" if "to" in parts else "add"
        value = e.do(f"{how} {vector(kind)} {value}, {splat(kind, window)}")
    e.put(i.operands[0], value, kind)


@handles("isspacep")
def is_space(e: Lanes, i: Instruction, parts: list[str]) -> None:
    value = e.value(i.operands[1], "i64")
    above = lambda limit: e.do(f"icmp uge <32 x i64> {value}, {splat('i64', limit)}")
    below = lambda limit: e.do(f"icmp ult <32 x i64> {value}, {splat('i64', limit)}")
    if "shared" in parts:
        result = e.do(f"and <32 x i1> {above(SHARED_WINDOW)}, {below(LOCAL_WINDOW)}")
    else:
        result = above(LOCAL_WINDOW) if "local" in parts else below(SHARED_WINDOW)
    e.put(i.operands[0], result, "i1")
