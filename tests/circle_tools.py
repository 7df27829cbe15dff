"""Which file of the package imports which, and the circles they form: at module level, or late (in functions, under TYPE_CHECKING)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
Edges = dict[str, set[str]]


def modules(package: str = "flamepy") -> dict[str, Path]:
    """Dotted name -> file; a package is named like its folder."""
    found = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def statements(tree: ast.AST, late: bool = False) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Each import, and whether it is late: inside a function, or under TYPE_CHECKING."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, late
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for inner in node.body:
                yield from statements(ast.Module([inner], []), True)
            for inner in node.orelse:
                yield from statements(ast.Module([inner], []), late)
        else:
            yield from statements(node, late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda))


def targets(node: ast.Import | ast.ImportFrom, own: str, path: Path, known: dict[str, Path]) -> set[str]:
    """The files an import names. `from .. import ops` means the module ops, or the package's own file where it is no module."""
    if isinstance(node, ast.Import):
        return {a.name for a in node.names} & known.keys()
    package = own.split(".") if path.name == "__init__.py" else own.split(".")[:-1]
    base = package[: len(package) - node.level + 1] if node.level else []
    head = ".".join([*base, *(node.module or "").split(".")]).rstrip(".")
    found = {f"{head}.{a.name}" if f"{head}.{a.name}" in known else head for a in node.names}
    return found & known.keys()


def edges() -> tuple[Edges, Edges]:
    """Who imports whom: at module level, and late."""
    known = modules()
    early: Edges = {name: set() for name in known}
    late: Edges = {name: set() for name in known}
    for name, path in known.items():
        for node, is_late in statements(ast.parse(path.read_text())):
            (late if is_late else early)[name] |= targets(node, name, path, known) - {name}
    return early, late


def circles(graph: Edges) -> list[tuple[str, ...]]:
    """Strongly connected sets of more than one file, by Tarjan; each in the order of the alphabet."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[tuple[str, ...]] = []

    def visit(name: str) -> None:
        number[name] = low[name] = len(number)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in number:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], number[other])
        if low[name] == number[name]:
            at = stack.index(name)
            if len(stack) - at > 1:
                found.append(tuple(sorted(stack[at:])))
            del stack[at:]

    for name in sorted(graph):
        if name not in number:
            visit(name)
    return sorted(found)
