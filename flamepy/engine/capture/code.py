"""What a function's code reads, found in its bytecode: which variables, which attributes of them, and what it only adds to.

Code that calls other functions is followed by names.py. A variable that is only written is left out: code does not depend on it.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from functools import cache
from types import CodeType
from typing import NamedTuple

# Kind of variable ("global", "cell", "local", "module"), its name, attributes; ITEM at the end where only one item with a constant key
# is taken from it.
Path = tuple[str, ...]
ITEM = "[]"


class Reads(NamedTuple):
    """`paths`: the variables that code reads, each with the attributes taken from it, and the line; `loose`: attributes taken from
    anything else; `written`: what is only counted up or added to, with the line."""

    paths: dict[Path, int]
    loose: frozenset[str]
    written: dict[Path, int]


@cache
def reads(code: CodeType) -> Reads:
    found = Reader(code)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            found.add_inner(*reads(inner))
    return Reads(found.paths, frozenset(found.loose), found.written)


class Reader:
    """Goes through the instructions of one code object."""

    def __init__(self, code: CodeType):
        self.paths: dict[Path, int] = {}
        self.loose: set[str] = set()
        self.written: dict[Path, int] = {}
        self.free = code.co_freevars
        self.known: dict[str, Path] = {}  # variables of its own that stand for a path
        self.rows = list(dis.get_instructions(code))
        path: Path = ()
        line = code.co_firstlineno
        for at, i in enumerate(self.rows):
            line = (i.positions.lineno if i.positions else None) or line
            path = self.next(at, i, path)
            if path and only_written(self.rows, at):
                self.written.setdefault(path, line)
                path = ()
            elif path:
                self.paths.setdefault((*path, ITEM) if takes_item(self.rows, at) else path, line)

    def next(self, at: int, i: dis.Instruction, path: Path) -> Path:
        """The path that is on top of the stack after an instruction, () for anything else."""
        name, value = i.opname, i.argval
        if name in ("LOAD_GLOBAL", "LOAD_NAME"):
            return "global", value
        if name in ("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"):
            return ("cell", value) if value in self.free else self.known.get(value, ("local", value))
        if name.startswith("LOAD_FAST"):
            variable = value[-1] if isinstance(value, tuple) else value
            return self.known.get(variable, ("local", variable))
        if name == "IMPORT_NAME":
            return "module", value
        if name in ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM", "LOAD_SUPER_ATTR"):
            if not path:
                self.loose.add(value)
            return (*path, value) if path else ()
        if name in ("STORE_FAST", "STORE_DEREF"):
            self.known.pop(value, None)
            if path:
                self.known[value] = path
            return ()
        return path if name in ("PUSH_NULL", "PRECALL", "CACHE", "NOP") else ()

    def add_inner(self, paths: dict[Path, int], loose: frozenset[str], written: dict[Path, int]) -> None:
        """What a function inside reads. Its free variables may be this one's own."""
        for path, line in paths.items():
            if path[0] != "local":
                self.paths.setdefault(self.outer(path), line)
        for path, line in written.items():
            if path[0] != "local":
                self.written.setdefault(self.outer(path), line)
        self.loose |= loose | {name for path in paths if path[0] == "local" for name in path[2:]}

    def outer(self, path: Path) -> Path:
        if path[0] != "cell" or path[1] in self.free:
            return path
        return (*self.known.get(path[1], ("local", path[1])), *path[2:])


def following(rows: list[dis.Instruction], at: int) -> Iterator[str]:
    """What the next instructions do, by names that are the same in all versions of Python."""
    for i in rows[at + 1 : at + 10]:
        if i.opname in ("LOAD_CONST", "LOAD_SMALL_INT"):
            yield "CONST"
        elif i.opname == "BINARY_SUBSCR" or i.argrepr == ITEM:
            yield "ITEM"
        else:
            yield "ADD" if i.opname == "BINARY_OP" and i.argrepr.endswith("=") else i.opname


def takes_item(rows: list[dis.Instruction], at: int) -> bool:
    """Whether nothing but one item with a constant key is taken from what is loaded here."""
    return list(following(rows, at))[:2] == ["CONST", "ITEM"]


def only_written(rows: list[dis.Instruction], at: int) -> bool:
    """Whether what is loaded here is a number that is counted up, as in `n += 1`, `n[0] += 1` or `self.n += 1`, a list that is added to,
    or a container in which an item is set, and used for nothing else: a note that the step keeps, on which it does not depend."""
    first, rest = rows[at], rows[at + 1 : at + 10]
    if rest and rest[0].opname in ("LOAD_ATTR", "LOAD_METHOD") and rest[0].argval in ("append", "extend"):
        return True
    names = list(following(rows, at))
    if names[1:2] == ["STORE_SUBSCR"]:
        return True
    if names[:2] == ["CONST", "ADD"]:
        store = rest[3 if names[2:3] == ["SWAP"] else 2]
        return store.opname.startswith("STORE_") and store.argval == first.argval
    return names == ["CONST", "COPY", "COPY", "ITEM", "CONST", "ADD", "SWAP", "SWAP", "STORE_SUBSCR"]
