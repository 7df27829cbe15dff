"""Branches and barriers, and what the lanes of a warp tell each other."""

from __future__ import annotations

from .entry import Instruction
from .lanes import KIND, Lanes, handles, splat, vector
from .layout import BARRIER, BARRIER_COUNT, BARRIER_KIND, RESULT, VOTES
from .runtime_atomics import KINDS

MODES = ("up", "down", "bfly", "idx")


@handles("bra", "ret", "exit")
def branch(e: Lanes, i: Instruction, parts: list[str]) -> None:
    if e.guard:
        e.taken = e.do(f"and i32 %active, {e.bitmask(e.guard)}")


@handles("brx")
def branch_by_index(e: Lanes, i: Instruction, parts: list[str]) -> None:
    index = e.value(i.operands[0], "i32")
    blocks = splat("i32", e.blocks[e.number_of_block].more[-1])
    for k, to in enumerate(e.blocks[e.number_of_block].more):
        here = e.do(f"icmp eq <32 x i32> {index}, {splat('i32', k)}")
        blocks = e.do(f"select <32 x i1> {here}, <32 x i32> {splat('i32', to)}, <32 x i32> {blocks}")
    assert not e.guard
    e.send_lanes(blocks)


@handles("trap", "brkpt")
def trap(e: Lanes, i: Instruction, parts: list[str]) -> None:
    e.runtime("trap", e.here(), e.instruction)


@handles("bar", "barrier")
def barrier(e: Lanes, i: Instruction, parts: list[str]) -> None:
    """bar.warp.sync; bar.sync, .arrive and .red of the block: the lanes of e.taken wait, the block scheduler lets them go."""
    if "warp" in parts:
        keep_mask(e, i.operands[0])
        e.runtime("sync_warp", e.here(), e.instruction)
        return
    red = "red" in parts
    operands = i.operands[1:] if red else i.operands
    if red:
        e.store_warp("i64", e.do(f"zext i32 {e.bitmask(e.value(operands[-1], 'i1'))} to i64"), 8 * VOTES)
        operands = operands[:-1]
    first = lambda operand: e.do(f"zext i32 {e.do('extractelement <32 x i32> ' + e.value(operand, 'i32') + ', i64 0')} to i64")
    e.store_warp("i64", first(operands[0]), 8 * BARRIER)
    e.store_warp("i64", first(operands[1]) if len(operands) > 1 else "0", 8 * BARRIER_COUNT)
    e.store_warp(
        "i64", str(1 + ["popc", "and", "or"].index(next(p for p in parts if p in ("popc", "and", "or"))) if red else 0), 8 * BARRIER_KIND
    )
    if e.guard:
        e.taken = e.do(f"and i32 %active, {e.bitmask(e.guard)}")


@handles("the result of a barrier")
def barrier_result(e: Lanes, i: Instruction, parts: list[str]) -> None:
    """The block after bar.red begins with its result."""
    word = e.load_warp("i64", 8 * RESULT)
    if ".popc." in i.opcode:
        e.put(i.operands[0], e.spread("i32", e.do(f"trunc i64 {word} to i32")), "i32")
    else:
        e.put(i.operands[0], e.spread("i1", e.do(f"icmp ne i64 {word}, 0")), "i1")


def keep_mask(e: Lanes, operand: str) -> None:
    e.store_warp("<32 x i32>", e.value(operand, "i32"), e.slot(3))


@handles("shfl")
def shuffle(e: Lanes, i: Instruction, parts: list[str]) -> None:
    """shfl.sync.mode.b32 d|p, a, b, c, mask"""
    to, _, inside = i.operands[0].partition("|")
    for slot, operand in enumerate(i.operands[1:5]):
        e.store_warp("<32 x i32>", e.value(operand, "i32"), e.slot(slot))
    assert "sync" in parts
    lanes = e.runtime("shuffle", e.here(), MODES.index(next(p for p in parts if p in MODES)), e.instruction)
    e.put(to.strip(), e.load_warp("<32 x i32>", e.slot(4)), "i32")
    if inside:
        e.put(inside.strip(), e.do(f"bitcast i32 {e.do(f'trunc i64 {lanes} to i32')} to <32 x i1>"), "i1")


@handles("vote")
def vote(e: Lanes, i: Instruction, parts: list[str]) -> None:
    """vote.sync.mode d, p, mask: each lane asks the lanes of its mask."""
    predicate = e.value(i.operands[1], "i1")
    mask = e.value(i.operands[2], "i32")
    keep_mask(e, i.operands[2])
    e.store_warp("<32 x i32>", e.do(f"zext <32 x i1> {predicate} to <32 x i32>"), e.slot(0))
    here = e.do(f"trunc i64 {e.runtime('together', e.here(), 0, e.instruction)} to i32")
    predicate = e.do(f"icmp ne <32 x i32> {e.load_warp('<32 x i32>', e.slot(0))}, zeroinitializer")
    said = e.spread("i32", e.do(f"and i32 {here}, {e.bitmask(predicate)}"))
    asked = e.do(f"and <32 x i32> {mask}, {e.spread('i32', here)}")
    yes = e.do(f"and <32 x i32> {said}, {asked}")
    if "ballot" in parts:
        return e.put(i.operands[0], yes, "i32")
    none = e.do(f"icmp eq <32 x i32> {yes}, zeroinitializer")
    everyone = e.do(f"icmp eq <32 x i32> {yes}, {asked}")
    if "uni" in parts:
        return e.put(i.operands[0], e.do(f"or <32 x i1> {none}, {everyone}"), "i1")
    e.put(i.operands[0], everyone if "all" in parts else e.do(f"xor <32 x i1> {none}, splat (i1 true)"), "i1")


@handles("activemask")
def active_mask(e: Lanes, i: Instruction, parts: list[str]) -> None:
    e.put(i.operands[0], e.spread("i32", "%active"), "i32")


@handles("match")
def match(e: Lanes, i: Instruction, parts: list[str]) -> None:
    kind = KIND[parts[-1]]
    to, _, equal = i.operands[0].partition("|")
    e.store_warp(vector(kind), e.value(i.operands[1], kind), e.slot(0))
    keep_mask(e, i.operands[2])
    lanes = e.runtime("match", e.here(), int("all" in parts), int(kind == "i64"), e.instruction)
    e.put(to.strip(), e.load_warp("<32 x i32>", e.slot(4)), "i32")
    if equal:
        e.put(equal.strip(), e.do(f"bitcast i32 {e.do(f'trunc i64 {lanes} to i32')} to <32 x i1>"), "i1")


@handles("redux")
def reduce_lanes(e: Lanes, i: Instruction, parts: list[str]) -> None:
    assert parts[-1] in ("s32", "u32", "b32")
    e.store_warp("<32 x i32>", e.value(i.operands[1], "i32"), e.slot(0))
    keep_mask(e, i.operands[2])
    kind = KINDS[next(p for p in parts if p in KINDS)]
    e.runtime("reduce_lanes", e.here(), kind, int(parts[-1] == "s32"), e.instruction)
    e.put(i.operands[0], e.load_warp("<32 x i32>", e.slot(4)), "i32")
