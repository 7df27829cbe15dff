"""What a function's code reads, found in its bytecode: which variables, and which attributes of them.

Code that calls other functions is followed by names.py. A variable that is only written is left out: code does not depend on it.
Read next: names.py.
"""

from __future__ import annotations

import dis
from functools import cache
from types import CodeType

Path = tuple[str, ...]  # kind of variable ("global", "cell" or "local"), its name, attributes


@cache
def reads(code: CodeType) -> tuple[frozenset[Path], frozenset[str]]:
    """(the variables that code reads, each with the attributes taken from it; attributes taken from anything else)."""
    paths: set[Path] = set()
    loose: set[str] = set()
    path: Path = ()
    found = list(dis.get_instructions(code))
    for at, i in enumerate(found):
        name, value = i.opname, i.argval
        if only_written(found, at):
            path = ()
        elif name in ("LOAD_GLOBAL", "LOAD_NAME"):
            path = ("global", value)
        elif name in ("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"):
            path = ("cell" if value in code.co_freevars else "local", value)
        elif name.startswith("LOAD_FAST"):
            path = ("local", value[-1] if isinstance(value, tuple) else value)
        elif name in ("LOAD_ATTR", "LOAD_METHOD"):
            if not path:
                loose.add(value)
            path = (*path, value) if path else ()
        elif name not in ("PUSH_NULL", "PRECALL", "CACHE", "NOP"):
            path = ()
        if path:
            paths.add(path)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            more, others = reads(inner)
            paths |= {p if p[0] == "global" or p[1] in code.co_freevars else ("local", *p[1:]) for p in more if p[0] != "local"}
            loose |= others | {name for p in more if p[0] == "local" for name in p[2:]}
    return frozenset(paths), frozenset(loose)


def only_written(found: list[dis.Instruction], at: int) -> bool:
    """Whether what is loaded here is a number that is counted up, as in `n += 1`, `n[0] += 1` or `self.n += 1`, a list that is added to,
    or a container in which an item is set, and used for nothing else: a note that the step keeps, on which it does not depend."""
    first, *rest = found[at : at + 10]
    if rest and rest[0].opname in ("LOAD_ATTR", "LOAD_METHOD") and rest[0].argval in ("append", "extend"):
        return True
    names = ["CONST" if i.opname in ("LOAD_CONST", "LOAD_SMALL_INT") else i.opname for i in rest]
    names = [
        "ADD" if n == "BINARY_OP" and i.argrepr.endswith("=") else "ITEM" if i.argrepr == "[]" else n
        for n, i in zip(names, rest, strict=True)
    ]
    if names[1:2] == ["STORE_SUBSCR"]:
        return True
    if names[:2] == ["CONST", "ADD"]:
        store = rest[3 if names[2:3] == ["SWAP"] else 2]
        return store.opname.startswith("STORE_") and store.argval == first.argval
    counted = ["CONST", "COPY", "COPY", "ITEM", "CONST", "ADD", "SWAP", "SWAP", "STORE_SUBSCR"]
    return [n.replace("BINARY_SUBSCR", "ITEM") for n in names] == counted
