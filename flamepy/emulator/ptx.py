"""Reading PTX: the text that NVVM writes (and inline assembly within it) as a Module of Entries.

An instruction keeps its opcode, operands, guard, and the line of Python it came from (.loc, where the text has them): that in a device
function and that of its call.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass

from ..errors import EmulationError
from .calls import inline
from .entry import SIZES, Entry, Instruction, Variable, place_all
from .halves import TYPES, operators


@dataclass
class Module:
    """A PTX text."""

    entries: dict[str, Entry]
    variables: list[Variable]  # .global and .const
    target: str


TOKEN = re.compile(
    r"(?P<space>\s+|//[^\n]*|/\*.*?\*/)|(?P<loc>\.loc\b[^\n]*)|(?P<file>\.file\b[^\n]*)|(?P<section>\.section[^{]*\{[^}]*\})"
    r"|(?P<open>\{)|(?P<close>\})|(?P<label>[A-Za-z_$%][\w$.]*\s*:(?!:))|(?P<entry>(?:\.visible\s+|\.weak\s+|\.extern\s+)*\.(?:entry|func)\b)"
    r"|(?P<statement>(?:[^;{}\"]|\{[^{};]*\}|\"[^\"]*\")+;)",
    re.S,
)
ARRAY = re.compile(
    r"(?:\.(?:visible|extern|weak|common)\s+)*\.(?P<space>shared|local|global|const|param)\s+(?:\.attribute\([^)]*\)\s*)?"
    r"(?:\.align\s+(?P<align>\d+)\s+)?\.(?P<type>\w+)\s+(?:\.ptr\s*(?:\.(?!align)\w+\s*)*(?:\.align\s+\d+\s*)?)?(?P<rest>.+)",
    re.S,
)


LIBRARY = re.compile(r"[\\/](numba|numba_cuda)[\\/]")  # in the path of a file of Numba's


class Reader:
    """Walks through a PTX text once."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.entries: dict[str, Entry] = {}
        self.functions: dict[str, Entry] = {}
        self.variables: list[Variable] = []
        self.files: dict[int, str] = {}
        self.shared: list[Variable] = []
        self.dynamic: set[str] = set()
        self.entry: Entry | None = None
        self.scopes: list[dict[str, str]] = []
        self.line: tuple[int, int, tuple[int, int]] = (0, 0, (0, 0))
        self.astray: int | None = None  # where instructions without a line begin, in the block that is being read
        self.row = 1
        self.scope_count = 0

    def read(self) -> Module:
        text = re.sub(r"^\s*\.(version|target|address_size|pragma)\b[^\n]*", "", self.text, flags=re.M)
        self.files = {int(number): name for number, name in re.findall(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', text, re.M)}
        position, end = 0, len(text)
        while position < end:
            match = TOKEN.match(text, position)
            if not match:
                raise EmulationError(
                    f"ptx: cannot be read: line {self.row}: {text[position : position + 60]!r}. Give the PTX of a whole module."
                )
            kind, piece = match.lastgroup, match.group()
            position = match.end()
            if kind == "entry":
                position = self.begin(text, match.start(), position)
                piece = text[match.start() : position]
            elif kind != "space":
                self.take(kind or "", piece)
            self.row += piece.count("\n")
        target = re.search(r"^\s*\.target\s+(\w+)", self.text, re.M)
        for entry in self.entries.values():
            entry.files = self.files
        if self.entries and any(name in self.text for name in TYPES.values()):
            halves = Reader(operators())
            halves.read()
            self.functions = halves.functions | self.functions
        inline(self.entries, self.functions)
        for entry in self.entries.values():
            names = {operand for i in entry.instructions for operand in re.findall(r"[A-Za-z_$][\w$.]*", " ".join(i.operands))}
            entry.shared = [v for v in self.shared if v.name in names] + entry.shared
            entry.dynamic = self.dynamic & names
        return Module(self.entries, self.variables, target[1] if target else "")

    def begin(self, text: str, start: int, position: int) -> int:
        """`.entry name(parameters)` or `.func (results) name (parameters)`, up to its body."""
        body = re.compile(r"[^{;]*(?:;|(?=\{))").match(text, position)
        assert body
        head = text[position : body.end()]
        if head.endswith(";"):  # only announced
            return body.end()
        found = re.match(r"\s*(?:\(([^()]*)\))?\s*([\w$]+)\s*(?:\(([^()]*)\))?", head)
        assert found
        self.astray = None
        self.entry = Entry(found[2], is_kernel=".func" not in text[start:position])
        for inside, to in ((found[1], self.entry.results), (found[3], self.entry.parameters)):
            to += [array(piece.strip())[1] for piece in (inside or "").split(",") if piece.strip()]
        place_all(self.entry.parameters)
        return body.end()

    def take(self, kind: str, piece: str) -> None:
        if kind == "open":
            self.scopes.append({})
            self.scope_count += 1
        elif kind == "close":
            self.scopes.pop()
            if not self.scopes and self.entry:
                (self.entries if self.entry.is_kernel else self.functions)[self.entry.name] = self.entry
                self.entry = None
        elif kind == "loc":
            self.locate(piece)
        elif kind == "label" and self.entry:
            self.entry.labels[self.scoped(piece.rstrip(":").strip())] = len(self.entry.instructions)
            self.astray = None
        elif kind == "statement":
            self.statement(piece[:-1].strip())

    def locate(self, piece: str) -> None:
        """`.loc file line column`, and behind `inlined_at` those of the call. What is Numba's own counts as the line that called it. Line 0
        is what the compiler moved, out of a loop for one: it belongs to what comes next in its block."""
        places = [(int(file), int(line)) for file, line in re.findall(r"(?:\.loc|inlined_at)\s+(\d+)\s+(\d+)", piece)]
        users = [place for place in places if place[1] and not LIBRARY.search(self.files.get(place[0], ""))]
        if users and places[0][1]:
            self.line = *users[0], users[1] if len(users) > 1 else (0, 0)
            for moved in self.entry.instructions[self.astray :] if self.entry and self.astray is not None else ():
                moved.file, moved.line, moved.called = self.line
            self.astray = None
        elif self.entry and not places[0][1] and self.astray is None:
            self.astray = len(self.entry.instructions)

    def statement(self, piece: str) -> None:
        if piece.startswith(".reg") and self.entry:
            self.declare(piece)
        elif piece.startswith(".branchtargets") and self.entry:
            last = next(name for name, at in reversed(self.entry.labels.items()) if at == len(self.entry.instructions))
            self.entry.tables[last] = [self.scoped(n.strip()) for n in piece.removeprefix(".branchtargets").split(",")]
        elif piece.startswith("."):
            if ARRAY.match(piece):
                self.variable(piece)
        elif piece and self.entry:
            self.instruction(piece)

    def variable(self, piece: str) -> None:
        space, variable = array(piece)
        if space == "shared" and ".extern" in piece:
            self.dynamic.add(variable.name)
        elif space == "shared":
            (self.entry.shared if self.entry else self.shared).append(variable)
        elif space == "local" and self.entry:
            self.entry.local.append(variable)
        elif space in ("global", "const") and ".extern" not in piece:
            self.variables.append(variable)

    def declare(self, piece: str) -> None:
        """`.reg .b32 %r<5>;` and names one by one. Inside braces they are the braces' own."""
        assert self.entry
        kind, names = re.match(r"\.reg\s+\.(\w+)\s+(.*)", piece, re.S).groups()  # type: ignore[union-attr]
        for name in (n.strip() for n in names.split(",")):
            many = re.match(r"(.*)<(\d+)>", name)
            for each in [f"{many[1]}{k}" for k in range(int(many[2]))] if many else [name]:
                own = each if len(self.scopes) < 2 else f"{each}.{self.scope_count}"
                self.scopes[-1][each] = own
                self.entry.registers[own] = kind

    def scoped(self, name: str) -> str:
        return next((scope[name] for scope in reversed(self.scopes) if name in scope), name)

    def instruction(self, piece: str) -> None:
        assert self.entry
        guard = ""
        if piece.startswith("@"):
            guard, piece = re.match(r"@\s*(!?\s*[\w$%.]+)\s+(.*)", piece, re.S).groups()  # type: ignore[union-attr]
            guard = guard.replace(" ", "")
            guard = "!" * guard.startswith("!") + self.scoped(guard.lstrip("!"))
        opcode, _, rest = re.sub(r"\s+", " ", piece).partition(" ")
        if len(self.scopes) > 1:
            rest = re.sub(r"[%A-Za-z_$][\w$]*", lambda m: self.scoped(m[0]), rest)
        operands = [sys.intern(operand) for operand in split(rest)]  # kernels are kept, and name the same registers again and again
        self.entry.instructions.append(Instruction(sys.intern(opcode), operands, guard, *self.line, self.row))


def split(rest: str) -> list[str]:
    """Operands, at the commas outside of brackets."""
    found, depth, begin = [], 0, 0
    for k, letter in enumerate(rest):
        if letter in "{[(":
            depth += 1
        elif letter in "}])":
            depth -= 1
        elif letter == "," and depth == 0:
            found.append(rest[begin:k].strip())
            begin = k + 1
    return [*found, rest[begin:].strip()] if rest.strip() else []


def array(piece: str) -> tuple[str, Variable]:
    """A declaration of a parameter or an array: its space, and what it is."""
    match = ARRAY.match(piece)
    if not match:
        raise EmulationError(f"ptx: a declaration that is not known: {piece!r}. Report it with the kernel.")
    kind, rest = match["type"], match["rest"]
    declared, _, values = rest.partition("=")
    name = re.match(r"\s*([\w$.]+)", declared)
    assert name
    sizes = [int(n) if n else 0 for n in re.findall(r"\[\s*(\d*)\s*\]", declared)]
    size = SIZES[kind]
    for count in sizes:
        size *= count
    return match["space"], Variable(name[1], kind, size, int(match["align"] or SIZES[kind]), data=contents(kind, values))


def contents(kind: str, values: str) -> bytes:
    """The numbers of `= {1, 2, 3}`."""
    found = bytearray()
    for value in re.findall(r"0[fFdD][0-9a-fA-F]+|-?0[xX][0-9a-fA-F]+|-?\d+", values):
        number = int(value[2:], 16) if value[1:2] in ("f", "F", "d", "D") else int(value, 0)
        found += (number & ((1 << 8 * SIZES[kind]) - 1)).to_bytes(SIZES[kind], "little")
    return bytes(found)


def read(text: str) -> Module:
    return Reader(text).read()
