"""mma.sync, wgmma, ldmatrix, movmatrix and cp.async."""

from __future__ import annotations

from ..errors import EmulationError
from .entry import Entry, Instruction
from .flow import head, is_wait, touched
from .lanes import KIND, Lanes, handles, splat
from .lanes_memory import address, count_access, keep_address, registers
from .layout import ASYNC_GROUP, GLOBAL, SHARED, SUMS
from .runtime_tensor import BF16, F16, HELD, TF32

SHAPES = {"m16n8k16": 16, "m16n8k8": 8}
SIMPLE, PROXY = ("wgmma.mma_async.", "wgmma.commit_group", "add.", "setp."), "fence.proxy.async.shared::cta"


@handles("mma")
def product(e: Lanes, i: Instruction, parts: list[str]) -> None:
    """mma.sync.aligned.shape.row.col.dtype.atype.btype.ctype d, a, b, c"""
    depth = SHAPES[next(p for p in parts if p.startswith("m16"))]
    types = parts[-4:]
    kind = {"bf16": BF16, "f16": F16, "tf32": TF32}[types[1]]
    assert types[1] == types[2] and types[0] == types[3] and types[0] in ("f32", "f16") and (kind != TF32 or depth == 8)
    narrow = types[0] == "f16"
    for first, operand in ((0, i.operands[1]), (4, i.operands[2]), (8, i.operands[3])):
        for k, register in enumerate(registers(operand)):
            e.store_warp("<32 x i32>", e.value(register, "i32"), e.slot(first + k))
    e.runtime("everyone", e.here(), e.instruction)
    e.runtime("product", depth, kind, int(narrow))
    for k, register in enumerate(registers(i.operands[0])):
        e.put(register, e.load_warp("<32 x i32>", e.slot(12 + k)), "i32")


@handles("wgmma")
def group_product(e: Lanes, i: Instruction, parts: list[str]) -> None:
    """wgmma.mma_async.sync.aligned.m64nNk16.f32.type.type d, a, b, adds, 1, 1(, ta), tb: factors by descriptors, the left one perhaps in
    registers. It is done at once. What else has this name only keeps warps in step."""
    e.runtime("in_step", e.here(), e.instruction)
    if "mma_async" not in parts:
        return
    sums, (kind, same), held = registers(i.operands[0]), parts[-2:], i.operands[1].startswith("{")
    assert f"m64n{2 * len(sums)}k16" in parts and parts[-3] == "f32" and kind == same and i.operands[4:6] == ["1", "1"] and len(sums) <= 64
    in_order(e, sums, registers(i.operands[1]) if held else [])
    for k, register in enumerate(sums):
        e.store_warp("<32 x i32>", e.value(register, "i32"), SUMS + 128 * k)
    for k, register in enumerate(registers(i.operands[1])):
        e.store_warp(*("<32 x i32>", e.value(register, "i32")) if held else ("<32 x i64>", e.value(register, "i64")), e.slot(k))
    e.store_warp("<32 x i64>", e.value(i.operands[2], "i64"), e.slot(4))
    adds = e.do(f"zext i32 {e.bitmask(e.value(i.operands[3], 'i1'))} to i64")
    turned = [HELD, *i.operands[6:]] if held else i.operands[6:]
    e.runtime("group_product", len(sums), {"bf16": BF16, "f16": F16}[kind], *turned, adds, e.instruction)
    for k, register in enumerate(sums):
        e.put(register, e.load_warp("<32 x i32>", SUMS + 128 * k), "i32")


def in_order(e: Lanes, sums: list[str], left: list[str]) -> None:
    """What a GPU needs around a product and this one does not: registers fenced before it, let alone until it is waited for; what was
    copied to shared memory fenced for it, after it came and before others hear of that."""
    own = [i.opcode for i in e.entry.instructions]
    before = next((n for n in range(e.at, -1, -1) if not own[n].startswith(SIMPLE)), 0)
    if not own[before].startswith("wgmma.fence") or is_touched(e.entry, e.at, set(sums), set(left)):
        said = "wgmma.fence before it, and wgmma.commit_group and wgmma.wait_group 0 behind it"
    elif PROXY not in own or any(o.startswith("cp.async.wait_") and own[n + 1 : n + 2] != [PROXY] for n, o in enumerate(own)):
        said = f"{PROXY} behind each cp.async.wait_group, or behind what else writes there"
    else:
        return
    i = e.entry.instructions[e.at]
    raise EmulationError(f"{e.entry.name}: {i.opcode} at {e.entry.places(i)} needs other instructions. Put {said}.")


def is_touched(entry: Entry, at: int, sums: set[str], left: set[str]) -> bool:
    """Whether, on any way, a product's registers are touched by others than products, or its warp comes to a barrier or an end, before
    that product has been waited for."""
    ways, been = [(at + 1, 0)], set()
    while ways:
        here = n, later = ways.pop()  # later: groups committed since, its own with them
        if here in been:
            continue
        been.add(here)
        i = entry.instructions[n]
        if i.opcode.startswith("wgmma.wait_group"):
            if later > int(i.operands[0]):
                continue
        elif head(i) in ("ret", "exit", "brx") or is_wait(i):
            return True
        elif head(i) == "bra":
            ways.append((entry.labels[i.operands[0]], later))
        else:
            writes, reads = touched(entry, i)
            if left & {*writes} or (head(i) != "wgmma" and sums & {*writes, *reads}):
                return True
        if head(i) != "bra" or i.guard:
            ways.append((n + 1, later + i.opcode.startswith("wgmma.commit_group")))
    return False


@handles("ldmatrix")
def load_matrices(e: Lanes, i: Instruction, parts: list[str]) -> None:
    count = int(next(p for p in parts if p in ("x1", "x2", "x4"))[1])
    assert "m8n8" in parts and parts[-1] == "b16"
    keep_address(e, i.operands[1])
    e.runtime("everyone", e.here(), e.instruction)
    e.runtime("count_access", (1 << 8 * count) - 1, 16, SHARED, 0)
    e.runtime("load_matrices", count, int("trans" in parts), e.instruction)
    for k, register in enumerate(registers(i.operands[0])):
        e.put(register, e.load_warp("<32 x i32>", e.slot(k)), "i32")


@handles("cp")
def copy_async(e: Lanes, i: Instruction, parts: list[str]) -> None:
    """cp.async.ca.shared.global [to], [from], size{, bytes to read}; and its groups."""
    assert parts[1] == "async" and "bulk" not in parts and "mbarrier" not in parts
    if "commit_group" in parts:  # groups are counted for the warp: lanes that parted count apart on a device
        group = e.load_warp("i64", 8 * ASYNC_GROUP)
        return e.store_warp("i64", e.do(f"add i64 {group}, 1"), 8 * ASYNC_GROUP)
    if "wait_group" in parts or "wait_all" in parts:
        pending = e.number(i.operands[0]) if "wait_group" in parts else -1
        assert pending is not None
        e.runtime("copy_now", e.here(), pending)
        return
    size = e.number(i.operands[2])
    assert size in (4, 8, 16)
    keep_address(e, i.operands[1])
    count_access(e, size, GLOBAL, 0)
    keep_address(e, i.operands[0])
    count_access(e, size, SHARED, 1)
    e.store_warp("<32 x i64>", address(e, i.operands[1]), e.slot(0))
    wanted = e.value(i.operands[3], KIND["u32"]) if len(i.operands) > 3 and i.operands[3].isalnum() | i.operands[3].startswith("%r") else ""
    e.store_warp("<32 x i32>", wanted or splat("i32", size), e.slot(1))
    e.runtime("copy_later", e.here(), size, e.instruction)
