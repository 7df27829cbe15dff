"""What a PTX text is made of: instructions, variables, kernels."""

from __future__ import annotations

from dataclasses import dataclass, field

SIZES = {"pred": 1, "b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2, "b32": 4, "u32": 4, "s32": 4, "f32": 4}
SIZES |= {"f16x2": 4, "bf16x2": 4, "tf32": 4, "b64": 8, "u64": 8, "s64": 8, "f64": 8, "b128": 16}


@dataclass(slots=True)
class Instruction:
    """One instruction: `@guard opcode operands;`"""

    opcode: str
    operands: list[str]
    guard: str = ""  # a register, with "!" in front if it must be false
    file: int = 0
    line: int = 0
    called: tuple[int, int] = 0, 0  # file and line of the call, if this is a device function's
    row: int = 0  # the line of the PTX text

    def __str__(self) -> str:
        guard = f"@{self.guard} " if self.guard else ""
        return f"{guard}{self.opcode} {', '.join(self.operands)};"


@dataclass(slots=True)
class Variable:
    """A parameter, or an array in shared, local, global or constant memory."""

    name: str
    type: str
    size: int  # bytes
    align: int
    offset: int = 0
    data: bytes = b""


@dataclass
class Entry:
    """One kernel."""

    name: str
    parameters: list[Variable] = field(default_factory=list)
    registers: dict[str, str] = field(default_factory=dict)
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    tables: dict[str, list[str]] = field(default_factory=dict)  # .branchtargets
    shared: list[Variable] = field(default_factory=list)
    local: list[Variable] = field(default_factory=list)
    dynamic: set[str] = field(default_factory=set)  # names of the shared arrays that a launch gives a size: all lie at one place
    files: dict[int, str] = field(default_factory=dict)
    results: list[Variable] = field(default_factory=list)  # of a function that kernels call
    is_kernel: bool = True

    def place(self, instruction: Instruction) -> str:
        """`file.py:12` of an instruction, or where it stands in the PTX text."""
        if instruction.line and instruction.file in self.files:
            return f"{self.files[instruction.file]}:{instruction.line}"
        return f"PTX line {instruction.row}"

    def places(self, instruction: Instruction) -> str:
        """The same, and from where a device function was called."""
        file, line = instruction.called
        return self.place(instruction) + (f" (called at {self.files[file]}:{line})" if file in self.files else "")


def place_all(variables: list[Variable], gap: int = 0) -> int:
    """Give each its offset. Returns the bytes that all take."""
    end = 0
    for variable in variables:
        align = max(variable.align, 1)
        variable.offset = -(-(end + (gap if end else 0)) // align) * align
        end = variable.offset + variable.size
    return end
