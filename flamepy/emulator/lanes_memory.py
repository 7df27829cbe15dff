"""Loads, stores and atomics: addresses go to the warp, the runtime checks and moves."""

from __future__ import annotations

import re

from .entry import SIZES, Instruction
from .flow import STRONG
from .lanes import WORD, Lanes, handles, splat, vector
from .layout import ADDRESSES, GENERIC, GLOBAL, LOCAL, SHARED, W_PARAMETERS
from .runtime_atomics import BFLOAT, FLOAT, HALF, INTEGER, KINDS, UNSIGNED

SPACE = {"global": GLOBAL, "const": GLOBAL, "shared": SHARED, "local": LOCAL}


def address(e: Lanes, operand: str) -> str:
    """`[register + number]` as 64-bit numbers."""
    match = re.match(r"\[\s*([^\]+\s]+)\s*(?:\+\s*(-?\w+))?\s*\]", operand)
    assert match
    base = e.value(match[1], "i64")
    if match[2] and (plus := int(match[2], 0)):
        base = e.do(f"add <32 x i64> {base}, {splat('i64', plus)}")
    return base


def keep_address(e: Lanes, operand: str) -> None:
    e.store_warp("<32 x i64>", address(e, operand), ADDRESSES)


def count_access(e: Lanes, size: int, space: int, kind: int) -> None:
    """0: a load, 1: a store, 2: an atomic."""
    e.runtime("count_access", e.here(), size, space, kind)


def space_of(parts: list[str]) -> int:
    return next((SPACE[p] for p in parts if p in SPACE), GENERIC)


def type_of(parts: list[str]) -> tuple[str, int]:
    """The element's type and how many there are."""
    count = next((int(p[1]) for p in parts if p in ("v2", "v4", "v8")), 1)
    return parts[-1], count


def registers(operand: str) -> list[str]:
    return [r.strip() for r in operand.strip("{}").split(",")]


@handles("ld", "ldu")
def load(e: Lanes, i: Instruction, parts: list[str]) -> None:
    name, count = type_of(parts)
    if "param" in parts:
        return load_parameter(e, i, name, count)
    kind = WORD[8 * SIZES[name]]
    keep_address(e, i.operands[1])
    strong = 1 if STRONG & set(parts) else 2 * (e.at in e.tried)
    count_access(e, SIZES[name] * count, space_of(parts), 0)
    e.runtime("load", e.here(), SIZES[name], count, e.instruction, space_of(parts), strong)
    found = [e.load_warp(vector(kind), e.slot(k)) for k in range(count)]
    for register, value in zip(registers(i.operands[0]), found, strict=True):
        e.put(register, value, kind, name.startswith("s"))


def load_parameter(e: Lanes, i: Instruction, name: str, count: int) -> None:
    match = re.match(r"\[\s*([\w$.]+)\s*(?:\+\s*(\d+))?\s*\]", i.operands[1])
    assert match
    block = e.do(f"inttoptr i64 {e.load_warp('i64', 8 * W_PARAMETERS)} to ptr")
    offset = e.parameters[match[1]] + int(match[2] or 0)
    kind = WORD[8 * SIZES[name]]
    for k, register in enumerate(registers(i.operands[0])):
        at = e.do(f"getelementptr i8, ptr {block}, i64 {offset + k * SIZES[name]}")
        e.put(register, e.spread(kind, e.do(f"load {kind}, ptr {at}, align 1")), kind, name.startswith("s"))


def fence(e: Lanes, parts: list[str]) -> None:
    """A cluster is one block here."""
    e.runtime("fence", e.here(), int(bool({"cta", "cluster"} & set(parts))))


def fence_before(e: Lanes, parts: list[str]) -> None:
    if {"release", "acq_rel"} & set(parts):
        fence(e, parts)


@handles("st")
def store(e: Lanes, i: Instruction, parts: list[str]) -> None:
    name, count = type_of(parts)
    assert "param" not in parts
    kind = WORD[8 * SIZES[name]]
    fence_before(e, parts)
    keep_address(e, i.operands[0])
    for k, register in enumerate(registers(i.operands[1])):
        e.store_warp(vector(kind), e.value(register, kind), e.slot(k))
    strong = int(bool(STRONG & set(parts)))
    count_access(e, SIZES[name] * count, space_of(parts), 1)
    e.runtime("store", e.here(), SIZES[name], count, e.instruction, space_of(parts), strong)


def atomic_kind(name: str) -> int:
    if name in ("f32", "f64"):
        return FLOAT
    if "f16" in name:
        return BFLOAT if name.startswith("b") else HALF
    return INTEGER if name.startswith("s") else UNSIGNED


@handles("atom", "red")
def atomic(e: Lanes, i: Instruction, parts: list[str]) -> None:
    returns = parts[0] == "atom"
    operands = i.operands[1:] if returns else i.operands
    name, operation = parts[-1], next(p for p in parts[1:] if p in KINDS)
    assert "vec" not in "".join(parts) and not any(p in ("v2", "v4", "v8") for p in parts)
    kind = WORD[8 * SIZES[name]]
    fence_before(e, parts)
    keep_address(e, operands[0])
    for k, operand in enumerate(operands[1:3]):
        e.store_warp(vector(kind), e.value(operand, kind), e.slot(k))
    count_access(e, SIZES[name], space_of(parts), 2)
    e.runtime("atomic", e.here(), SIZES[name], KINDS[operation], atomic_kind(name), e.instruction, space_of(parts))
    if returns:
        e.put(i.operands[0], e.load_warp(vector(kind), e.slot(2)), kind)


@handles("prefetch", "prefetchu", "discard", "applypriority", "nanosleep", "griddepcontrol", "createpolicy", "negative")
def nothing(e: Lanes, i: Instruction, parts: list[str]) -> None:
    """Advice to the device; and what is counted with its block alone (../watch.py)."""
    assert parts[0] != "createpolicy"


@handles("own")
def own(e: Lanes, i: Instruction, parts: list[str]) -> None:
    """`own.local bytes, address`, no PTX: a local array lies there, and beside it is nothing (../watch.py)."""
    e.store_warp("<32 x i64>", e.value(i.operands[1], "i64"), ADDRESSES)
    e.runtime("own", e.here(), int(i.operands[0]))


@handles("within")
def within(e: Lanes, i: Instruction, parts: list[str]) -> None:
    """`within.axisN index, size, address`, no PTX: the array there is asked for that element of its axis (../watch.py)."""
    for k, operand in enumerate(i.operands):
        e.store_warp("<32 x i64>", e.value(operand, "i64"), e.slot(k))
    e.runtime("within", e.here(), int(parts[1].removeprefix("axis")), e.instruction)


@handles("membar", "fence")
def fence_alone(e: Lanes, i: Instruction, parts: list[str]) -> None:
    if "proxy" not in parts:  # that one orders a thread's own, for wgmma (lanes_tensor.py)
        fence(e, parts)
