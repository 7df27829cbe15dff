"""PTX to LLVM: each basic block becomes a function in which every register is a vector of 32 lanes.

A block takes its registers from the warp, computes with vectors, and leaves what later blocks need; lanes that are not active keep what
they had. It returns the lanes that branch. Memory and everything that lanes do together are calls of the runtime. The text is LLVM's
own language: `do` writes one line of it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

from ..errors import EmulationError
from .entry import SIZES, Entry, Instruction
from .flow import Block, blocks_of, find_live, tried
from .layout import CTAID, GIVEN, INDEX, LANE_PC, LAUNCH, NCTAID, NTID, R_INSTRUCTIONS, REGISTERS, TID, VALUES, VARIABLES
from .runtime import FUNCTIONS, PREFIX

WIDTH = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "float": 32, "double": 64}
WORD = {8: "i8", 16: "i16", 32: "i32", 64: "i64"}
KIND = {name: WORD[8 * size] for name, size in SIZES.items() if size <= 8} | {"pred": "i1", "f32": "float", "f64": "double"}
LANE = ", ".join(f"i32 {k}" for k in range(32))
LANEMASKS = {
    "%lanemask_eq": [1 << k for k in range(32)],
    "%lanemask_lt": [(1 << k) - 1 for k in range(32)],
    "%lanemask_le": [(2 << k) - 1 for k in range(32)],
    "%lanemask_gt": [0xFFFFFFFF & ~((2 << k) - 1) for k in range(32)],
    "%lanemask_ge": [0xFFFFFFFF & ~((1 << k) - 1) for k in range(32)],
}
WORDS = {"%warpid": INDEX, "%nwarpid": INDEX, "%dynamic_smem_size": GIVEN}
GRID = {"%ntid": NTID, "%ctaid": CTAID, "%nctaid": NCTAID}
Handler = Callable[["Lanes", Instruction, list[str]], None]
HANDLERS: dict[str, Handler] = {}


def handles(*names: str) -> Callable[[Handler], Handler]:
    """Enter a function as what writes these instructions."""

    def enter(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(names, handler))
        return handler

    return enter


def vector(kind: str) -> str:
    return f"<32 x {kind}>"


def splat(kind: str, value: int) -> str:
    return f"splat ({kind} {value})"


class Lanes:
    """Writes one kernel. `value` reads an operand as a vector, `put` writes a register, `do` writes a line and names its result."""

    def __init__(self, entry: Entry, variables: dict[str, int], apart: bool = False) -> None:
        self.entry = entry
        self.blocks, self.tried = blocks_of(entry, apart), tried(entry)
        self.bits = find_live(entry, self.blocks)
        self.globals = variables  # name -> number
        self.offsets = {v.name: v.offset for v in (*entry.shared, *entry.local)}
        self.parameters = {v.name: v.offset for v in entry.parameters}
        self.slots, self.bytes = self.give_slots()
        self.lines: list[str] = []
        self.functions: list[str] = []
        self.declared: dict[str, str] = {}
        self.called: set[str] = set()
        self.count = 0

    def give_slots(self) -> tuple[dict[str, int], int]:
        """A place in the warp for each register that lives from one block to another."""
        across = 0
        for block in self.blocks:
            across |= block.live_in | block.live_out
        slots, end = {}, REGISTERS
        for name, kind in self.entry.registers.items():
            if self.bits[name] & across:
                slots[name] = end
                end += 64 if kind == "pred" else max(64, 4 * WIDTH[KIND[kind]])
        return slots, end

    # ---- writing lines ---------------------------------------------------------------------------------------------------------------
    def do(self, text: str) -> str:
        self.count += 1
        self.lines.append(f"  %v{self.count} = {text}")
        return f"%v{self.count}"

    def op(self, how: str, kind: str, a: str, b: str | int) -> str:
        """One operation on two vectors, or on a vector and a whole number."""
        return self.do(f"{how} {vector(kind)} {a}, {splat(kind, b) if isinstance(b, int) else b}")

    def line(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def intrinsic(self, name: str, result: str, *args: tuple[str, str]) -> str:
        """Call one of LLVM's own functions."""
        self.declared[name] = f"declare {result} @{name}({', '.join(kind for kind, _ in args)})"
        return self.do(f"call {result} @{name}({', '.join(f'{kind} {value}' for kind, value in args)})")

    def runtime(self, name: str, *args: str | int) -> str:
        """Call the runtime with the warp and these whole numbers."""
        self.called.add(name)
        _, count, returns = FUNCTIONS[name]
        assert count == len(args) + 1, name
        text = f"call {'i64' if returns else 'void'} @{PREFIX}{name}({', '.join(f'i64 {a}' for a in ('%warp', *args))})"
        if returns:
            return self.do(text)
        self.line(text)
        return ""

    def slot(self, number: int) -> int:
        """Where the runtime finds, or leaves, a vector."""
        return VALUES + 256 * number

    def pointer(self, offset: int) -> str:
        return self.do(f"getelementptr i8, ptr %w, i64 {offset}")

    def load_warp(self, kind: str, offset: int) -> str:
        return self.do(f"load {kind}, ptr {self.pointer(offset)}, align 8")

    def store_warp(self, kind: str, value: str, offset: int) -> None:
        self.line(f"store {kind} {value}, ptr {self.pointer(offset)}, align 8")

    def spread(self, kind: str, scalar: str) -> str:
        """One value for all lanes."""
        one = self.do(f"insertelement {vector(kind)} poison, {kind} {scalar}, i64 0")
        return self.do(f"shufflevector {vector(kind)} {one}, {vector(kind)} poison, <32 x i32> zeroinitializer")

    def cast(self, value: str, kind: str, to: str, signed: bool = False) -> str:
        """The same bits; wider or narrower where the sizes differ."""
        if kind == to:
            return value
        have, want = WIDTH[kind], WIDTH[to]
        if kind in ("float", "double") and (have != want or to not in WORD.values()):
            value, kind = self.do(f"bitcast {vector(kind)} {value} to {vector(WORD[have])}"), WORD[have]
        if have != want:
            how = "trunc" if have > want else ("sext" if signed else "zext")
            middle = WORD[want] if want > 1 else "i1"
            value, kind = self.do(f"{how} {vector(kind)} {value} to {vector(middle)}"), middle
        return value if kind == to else self.do(f"bitcast {vector(kind)} {value} to {vector(to)}")

    # ---- operands --------------------------------------------------------------------------------------------------------------------
    def number(self, operand: str) -> int | None:
        """The bits of a constant."""
        if re.match(r"0[fF][0-9a-fA-F]{8}$", operand) or re.match(r"0[dD][0-9a-fA-F]{16}$", operand):
            return int(operand[2:], 16)
        if re.match(r"-?(0[xX][0-9a-fA-F]+|\d+)[uU]?$", operand):
            return int(operand.rstrip("uU"), 8 if re.match(r"-?0\d+[uU]?$", operand) else 0)
        if re.match(r"-?\d*\.\d+([eE][-+]?\d+)?$", operand):
            return int.from_bytes(struct.pack("<d", float(operand)), "little")
        return None

    def constant(self, operand: str, kind: str) -> str:
        bits = self.number(operand)
        assert bits is not None
        if kind == "float" and (operand[1:2] in "dD" or "." in operand):
            bits = int.from_bytes(struct.pack("<f", struct.unpack("<d", bits.to_bytes(8, "little"))[0]), "little")
        if kind == "i1":
            return splat("i1", bits & 1)
        word = WORD[WIDTH[kind]]
        whole = splat(word, bits & ((1 << WIDTH[kind]) - 1))
        return whole if word == kind else self.do(f"bitcast {vector(word)} {whole} to {vector(kind)}")

    def value(self, operand: str, kind: str) -> str:
        """An operand as a vector of this kind."""
        if operand.startswith("!"):
            return self.do(f"xor <32 x i1> {self.value(operand[1:].strip(), 'i1')}, splat (i1 true)")
        if operand in self.entry.registers:
            return self.register(operand, kind)
        if operand.startswith("-") and operand[1:] in self.entry.registers:
            return self.do(f"fneg {vector(kind)} {self.register(operand[1:], kind)}")
        if operand.startswith("%") or operand == "WARP_SZ":
            found, have = special_register(self, operand)
            return self.cast(found, have, kind)
        if self.number(operand) is not None:
            return self.constant(operand, kind)
        return self.symbol(operand, kind)

    def symbol(self, name: str, kind: str) -> str:
        """The address of a variable."""
        name, _, plus = name.partition("+")
        if name in self.offsets:
            return splat(kind, self.offsets[name] + int(plus or 0))
        if name in self.entry.dynamic:
            start = self.spread("i64", self.load_warp("i64", 8 * 29))
        elif name in self.globals:
            launch = self.do(f"inttoptr i64 {self.load_warp('i64', 8 * LAUNCH)} to ptr")
            table = self.do(f"load ptr, ptr {self.do(f'getelementptr i64, ptr {launch}, i64 {VARIABLES}')}")
            start = self.spread("i64", self.do(f"load i64, ptr {self.do(f'getelementptr i64, ptr {table}, i64 {self.globals[name]}')}"))
        else:
            raise EmulationError(f"{self.entry.name}: a name that is not declared: {name}. Give the PTX of the whole module.")
        if plus:
            start = self.do(f"add <32 x i64> {start}, {splat('i64', int(plus))}")
        return self.cast(start, "i64", kind)

    def register(self, name: str, kind: str) -> str:
        found = self.casts.get((name, kind))
        if found:
            return found
        if name not in self.now:
            self.now[name] = self.fetch(name)
        have, own = self.now[name]
        value = self.cast(have, own, kind)
        self.casts[name, kind] = value
        return value

    def fetch(self, name: str) -> tuple[str, str]:
        """A register as an earlier block has left it."""
        kind = KIND[self.entry.registers[name]]
        if name not in self.slots:  # never written before: any value will do
            return "zeroinitializer", kind
        if kind == "i1":
            bits = self.load_warp("i32", self.slots[name])
            return self.do(f"bitcast i32 {bits} to <32 x i1>"), kind
        return self.load_warp(vector(kind), self.slots[name]), kind

    def put(self, name: str, value: str, kind: str, signed: bool = False) -> None:
        """Write a register (or `_`, nothing). Under a guard the other lanes keep theirs."""
        if name == "_":
            return
        name = name.lstrip("%") if name not in self.entry.registers else name
        own = KIND[self.entry.registers[name]]
        if WIDTH[own] != WIDTH[kind]:
            value, kind = self.cast(value, kind, own, signed), own
        if self.guard:
            old = self.register(name, kind)
            value = self.do(f"select <32 x i1> {self.guard}, {vector(kind)} {value}, {vector(kind)} {old}")
        for key in [k for k in self.casts if k[0] == name]:
            del self.casts[key]
        self.now[name] = (value, kind)
        self.casts[name, kind] = value
        self.written.add(name)

    def bitmask(self, predicate: str) -> str:
        return self.do(f"bitcast <32 x i1> {predicate} to i32")

    def here(self) -> str:
        """The lanes that do this instruction, as a 64-bit number."""
        mask = "%active"
        if self.guard:
            mask = self.do(f"and i32 %active, {self.bitmask(self.guard)}")
        return self.do(f"zext i32 {mask} to i64")

    # ---- blocks ----------------------------------------------------------------------------------------------------------------------
    def write(self) -> str:
        """The whole kernel as LLVM text: a function for each block, and a table of them."""
        for number, block in enumerate(self.blocks):
            self.functions.append(self.block(number, block))
        for name in sorted(self.called):
            _, count, returns = FUNCTIONS[name]
            self.declared[name] = f"declare {'i64' if returns else 'void'} @{PREFIX}{name}({', '.join(['i64'] * count)})"
        table = ", ".join(f"ptr @b{number}" for number in range(len(self.blocks)))
        return "\n".join([*self.declared.values(), *self.functions, f"@blocks = constant [{len(self.blocks)} x ptr] [{table}]"])

    def block(self, number: int, block: Block) -> str:
        self.lines, self.count = [], 0
        self.now: dict[str, tuple[str, str]] = {}
        self.casts: dict[tuple[str, str], str] = {}
        self.written: set[str] = set()
        self.guard, self.taken = "", "%active"
        self.number_of_block, self.current = number, block
        self.line("%w = inttoptr i64 %warp to ptr")
        if block.first and self.entry.instructions[block.first - 1].opcode.startswith(("bar.red", "barrier.cta.red", "barrier.red")):
            HANDLERS["the result of a barrier"](self, self.entry.instructions[block.first - 1], [])
        for self.at in range(block.first, block.last):
            self.emit(self.entry.instructions[self.at])
        self.leave(block)
        body = "\n".join(self.lines)
        return f"define internal i32 @b{number}(i64 %warp, i32 %active) {{\n{body}\n  ret i32 {self.taken}\n}}"

    def emit(self, instruction: Instruction) -> None:
        parts = instruction.opcode.replace("::", ".").split(".")
        handler = HANDLERS.get(parts[0])
        self.instruction = min(self.at, R_INSTRUCTIONS)
        self.guard = self.value(instruction.guard, "i1") if instruction.guard else ""
        if not handler:
            raise self.error(instruction)
        try:
            handler(self, instruction, parts)
        except (KeyError, IndexError, AssertionError) as error:
            raise self.error(instruction) from error
        self.guard = ""

    def error(self, instruction: Instruction) -> EmulationError:
        place = self.entry.places(instruction)
        return EmulationError(
            f"{self.entry.name}: an instruction that the emulator does not know: {instruction} at {place}. "
            "Run this kernel on a device, or write it with other instructions."
        )

    def leave(self, block: Block) -> None:
        """Keep in the warp what later blocks read."""
        keep = [n for n in self.written if self.bits[n] & block.live_out]
        lanes = self.do("bitcast i32 %active to <32 x i1>") if keep else ""
        for name in sorted(keep):
            value, kind = self.now[name]
            slot = self.slots[name]
            if kind == "i1":
                new, old = self.bitmask(value), self.load_warp("i32", slot)
                kept = self.do(f"and i32 {old}, {self.do('xor i32 %active, -1')}")
                self.store_warp("i32", self.do(f"or i32 {kept}, {self.do(f'and i32 {new}, %active')}"), slot)
            else:
                old = self.load_warp(vector(kind), slot)
                merged = self.do(f"select <32 x i1> {lanes}, {vector(kind)} {value}, {vector(kind)} {old}")
                self.store_warp(vector(kind), merged, slot)

    def send_lanes(self, blocks: str) -> None:
        """Per lane, the block where it goes on (brx)."""
        old = self.load_warp("<32 x i32>", LANE_PC)
        lanes = self.do("bitcast i32 %active to <32 x i1>")
        self.store_warp("<32 x i32>", self.do(f"select <32 x i1> {lanes}, <32 x i32> {blocks}, <32 x i32> {old}"), LANE_PC)


def saturated(e: Lanes, value: str, kind: str, parts: list[str]) -> str:
    """.sat: to 0..1, NaN to 0."""
    if "sat" not in parts:
        return value
    zero, one = "zeroinitializer", splat(kind, "1.0")  # type: ignore[arg-type]
    above = e.do(f"fcmp ogt {vector(kind)} {value}, zeroinitializer")
    value = e.do(f"select <32 x i1> {above}, {vector(kind)} {value}, {vector(kind)} {zero}")
    below = e.do(f"fcmp olt {vector(kind)} {value}, {one}")
    return e.do(f"select <32 x i1> {below}, {vector(kind)} {value}, {vector(kind)} {one}")


def special_register(e: Lanes, name: str) -> tuple[str, str]:
    """A special register's vector, and its kind."""
    head, _, axis = name.partition(".")
    if head == "%tid":
        return e.load_warp("<32 x i32>", TID + 128 * "xyz".index(axis)), "i32"
    if head in GRID:
        word = e.load_warp("i64", 8 * (GRID[head] + "xyz".index(axis)))
        return e.spread("i32", e.do(f"trunc i64 {word} to i32")), "i32"
    if name == "%laneid":
        return f"<{LANE}>", "i32"
    if name in LANEMASKS:
        return f"<{', '.join(f'i32 {m}' for m in LANEMASKS[name])}>", "i32"
    if name in WORDS:
        return e.spread("i32", e.do(f"trunc i64 {e.load_warp('i64', 8 * WORDS[name])} to i32")), "i32"
    if name == "WARP_SZ":
        return splat("i32", 32), "i32"
    if name in ("%clock", "%clock_hi", "%clock64", "%globaltimer", "%globaltimer_lo"):
        e.declared["llvm.readcyclecounter"] = "declare i64 @llvm.readcyclecounter()"
        return e.spread("i64", e.do("call i64 @llvm.readcyclecounter()")), "i64"
    if name in ("%smid", "%gridid"):
        return "zeroinitializer", "i32"
    raise e.error(e.entry.instructions[e.at])
