"""Calls of a module's own functions, put in place: their registers and labels get new names, their parameters become registers.

NVVM leaves such calls for the slow paths of libdevice (sine and cosine of large numbers).
"""

from __future__ import annotations

import re
from dataclasses import replace

from ..errors import EmulationError
from .entry import SIZES, Entry, Instruction

NAME = re.compile(r"[%A-Za-z_$][\w$.]*")
PARAMETER = re.compile(r"\[\s*([\w$.]+)\s*(?:\+\s*(\d+))?\s*\]")
DEEPEST = 16

# What a kernel calls that is linked to it on a GPU: a part of its name, what that is, how people call it, what to do.
LINKED = [
    ("vprintf", "no kernel prints here", "print()", "Write what you want to see to an array"),
    ("bfloat16", "a function of bfloat16 that is linked", "", "Compute in float32: float32(x)"),
    ("6__half", "a function of float16 that is linked", "", "Compute in float32: float32(x)"),
    ("cudaCG", "blocks run one after the other here", "cuda.cg.this_grid()", "Make two kernels of it: a launch waits for the one before"),
    ("nocopy_reshape", "a function that is linked", "reshape()", "Reshape the array before the launch, or compute the index"),
]
ELSE = "a call of a function that is not in the module", "", "Let all functions be inlined"


class Inliner:
    """Rewrites one kernel until no call is left."""

    def __init__(self, entry: Entry, functions: dict[str, Entry]) -> None:
        self.entry, self.functions, self.count = entry, functions, 0
        self.own = {p.name for p in entry.parameters}

    def run(self) -> None:
        for _ in range(DEEPEST):
            if not any(i.opcode.startswith("call") for i in self.entry.instructions):
                break
            self.once()
        self.entry.instructions = [self.moved(i, {}) for i in self.entry.instructions]

    def once(self) -> None:
        old, places = self.entry.instructions, []
        self.entry.instructions = []
        labels = self.entry.labels
        self.entry.labels = {}
        for instruction in old:
            places.append(len(self.entry.instructions))
            if instruction.opcode.startswith("call") and not instruction.opcode.startswith("callseq"):
                self.call(instruction)
            else:
                self.entry.instructions.append(instruction)
        places.append(len(self.entry.instructions))
        self.entry.labels |= {name: places[at] for name, at in labels.items()}

    def call(self, instruction: Instruction) -> None:
        """`call (results), name, (parameters)`: the function's instructions, with the caller's names."""
        groups = [[n.strip() for n in o.strip("()").split(",")] if o.startswith("(") else o for o in instruction.operands]
        name = next(g for g in groups if isinstance(g, str))
        if name not in self.functions or instruction.guard:
            place = self.entry.places(instruction)
            what, shown, advice = next((known for part, *known in LINKED if part in name), ELSE)
            raise EmulationError(f"{self.entry.name}: {what}: {shown or name} at {place}. {advice}.")
        function = self.functions[name]
        at = groups.index(name)
        given, results = groups[at + 1] if at + 1 < len(groups) else [], groups[0] if at else []
        passed = dict(zip((p.name for p in function.parameters), given, strict=True))
        passed |= dict(zip((p.name for p in function.results), results, strict=True))
        self.count += 1
        self.paste(function, passed, f".call{self.count}")

    def paste(self, function: Entry, passed: dict[str, str], tail: str) -> None:
        entry, start = self.entry, len(self.entry.instructions)
        known = {*function.registers, *function.labels, *function.tables, *(v.name for v in function.local)}
        renamed = lambda text: NAME.sub(lambda m: m[0] + tail if m[0] in known else m[0], text)
        end = f"end{tail}"
        for i in function.instructions:
            i = self.moved(i, passed)
            if i.opcode.split(".")[0] in ("ret", "exit"):
                i = replace(i, opcode="bra", operands=[end])
            entry.instructions.append(replace(i, operands=[renamed(o) for o in i.operands], guard=renamed(i.guard)))
        entry.registers |= {name + tail: kind for name, kind in function.registers.items()}
        entry.labels |= {name + tail: at + start for name, at in function.labels.items()}
        entry.labels[end] = len(entry.instructions)
        entry.tables |= {name + tail: [n + tail for n in names] for name, names in function.tables.items()}
        entry.local += [replace(v, name=v.name + tail) for v in function.local]

    def moved(self, i: Instruction, passed: dict[str, str]) -> Instruction:
        """ld.param and st.param of a call as a move from or to a register of that name and offset."""
        parts = i.opcode.split(".")
        if parts[0] not in ("ld", "st") or parts[1] != "param":
            return i
        memory, register = i.operands if parts[0] == "st" else i.operands[::-1]
        match = PARAMETER.match(memory)
        if not match or (match[1] in self.own and not passed):
            return i
        if len(parts) > 3:
            raise EmulationError(f"{self.entry.name}: vectors as parameters of a call: {i}. Let all functions be inlined.")
        kind = f"b{max(8 * SIZES[parts[-1]], 16)}"
        own = f"{passed.get(match[1], match[1])}.at{int(match[2] or 0)}"
        self.entry.registers.setdefault(own, kind)
        return replace(i, opcode=f"mov.{kind}", operands=[own, register] if parts[0] == "st" else [register, own])


def inline(entries: dict[str, Entry], functions: dict[str, Entry]) -> None:
    """Put every called function in its place."""
    for entry in entries.values():
        if any(i.opcode.startswith("call") for i in entry.instructions):
            Inliner(entry, functions).run()
