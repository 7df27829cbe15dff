"""The architecture, enforced: imports go one way, files stay short, only one place knows CUDA, every file says what it is."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from circle_tools import circles, edges

from flamepy.core.door import Door

ROOT = Path(__file__).parent.parent / "flamepy"
FILES = sorted(p for p in ROOT.rglob("*.py"))
BENCH = sorted((ROOT.parent / "bench").glob("*.py"))
TESTS = sorted((ROOT.parent / "tests").glob("*.py"))

# Left to right: a file may import what stands before it, its own folder, and nothing after it.
LAYERS = [
    "starting",
    "core", "errors", "bus", "advice", "ids", "dtypes", "disk", "disk_cache", "inner_code", "emulator", "backend",
    "words", "rng", "tensor_grad", "definitions", "docstrings", "habits", "engine", "gradient", "autograd", "pickling",
    "ops", "linalg", "reading", "ported", "tensors", "creation", "stored", "parameter", "capture",
    "schedules", "gradient_checkpointing", "activations",
    "gradients", "gradient_clip", "transforms", "accumulation", "regularizer", "optimizers",
    "nn", "metrics", "saving", "cuda",
    "train", "command",
]  # fmt: skip
SIDE_BY_SIDE = [
    {"gradients", "gradient_checkpointing", "schedules", "nn"},
    {"accumulation", "regularizer", "optimizers", "nn"},
]
TOP = {"__init__", "__main__"}

# Circles of files, which must go: one that is gone, or smaller, is taken out of here. Dotted names without "flamepy.".
CIRCLES: set[frozenset[str]] = set()
# Those that imports inside functions and under TYPE_CHECKING close.
LATE_CIRCLES = {
    frozenset({"backend.cuda.device", "backend.cuda.runtime.stream"}),
    frozenset({"cuda.kernels", "cuda.recording"}),
}
LATE = 42  # pairs of files joined by such an import
DOOR = 16  # names of the one door by which something comes in front of core: what goes makes room
# Late bindings: names of one file that another one sets when it is imported, beside the door's.
LATE_BINDINGS = {"FlameError.__reduce__", "Tensor.randn"}


def layer(path: Path) -> str:
    first, *rest = path.relative_to(ROOT).parts
    return named(first.removesuffix(".py"), *rest)


def named(first: str, *rest: str) -> str:
    """The layer of a module: its folder, but for what stands above the rest of the engine."""
    return "capture" if first == "engine" and rest[:1] == ("capture",) else first


def at_run_time(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node of a tree but those that only type checkers look at."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            for other in node.orelse:
                yield from (other, *at_run_time(other))
        else:
            yield from (node, *at_run_time(node))


def imports(path: Path) -> set[str]:
    """First-level flamepy modules a file imports, wherever in the file."""
    found = set()
    package = ("flamepy", *path.relative_to(ROOT).parts[:-1])
    for node in at_run_time(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            full = (*base, *(node.module or "").split(".")) if node.module else base
            if full[:1] != ("flamepy",):
                continue
            found |= {named(*full[1:])} if len(full) > 1 else {a.name for a in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("flamepy.")}
            if any(a.name == "flamepy" for a in node.names):
                found.add("flamepy")
    return found


def test_imports_go_left():
    for path in FILES:
        assert not imports(path) & right_of(layer(path)), path


def right_of(own: str) -> set[str]:
    """The layers that one may not import."""
    if own in TOP or own in ("train", "command"):
        forbidden = {"command"} if own == "train" else set()
    else:
        assert own in LAYERS, f"{own} has no place in LAYERS"
        forbidden = set(LAYERS[LAYERS.index(own) + 1 :]) | {"flamepy"}
        for group in SIDE_BY_SIDE:
            if own in group:
                forbidden |= group - {own}
    return forbidden


def test_files_and_functions_are_short():
    for path in (*FILES, *BENCH, *TESTS):
        text = path.read_text()
        assert len(text.splitlines()) <= 500, path
        for node in ast.walk(ast.parse(text)) if path not in TESTS else ():  # one test may need many lines in a row
            if isinstance(node, ast.FunctionDef):
                body = node.end_lineno - node.body[0].lineno + 1
                assert body <= 40, f"{path}: {node.name}: {body} lines"
                given = len(node.args.posonlyargs) + len(node.args.args) + len(node.args.kwonlyargs)
                # Kernels and formulas are not annotated; launchers are told by their decorator.
                compiled = node.returns is None and not any(["launcher" in ast.unparse(d) for d in node.decorator_list])
                assert given <= 12 or compiled, f"{path}: {node.name}: {given} parameters"


def test_each_file_says_what_it_is():
    for path in (*FILES, *BENCH):
        if text := path.read_text().strip():
            doc = ast.get_docstring(ast.parse(text))
            assert doc and len(doc.splitlines()[0]) > 20, path
            assert "May import" not in doc and "counterpart: none" not in doc  # the first is said here, the second says nothing


def test_core_imports_numpy_and_itself_alone():
    """So it runs wherever NumPy does, whatever else of flamepy is there."""
    known = {"numpy", "__future__", *sys.stdlib_module_names}
    for path in (ROOT / "core").rglob("*.py"):
        for node in at_run_time(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level:
                assert node.level <= len(path.relative_to(ROOT / "core").parts), f"{path}: line {node.lineno}"
            else:
                assert {n.split(".")[0] for n in names_of(node)} <= known, f"{path}: line {node.lineno}"


def test_only_backends_and_the_emulator_import_numba():
    for path in FILES:
        heads = {n.split(".")[0] for node in ast.walk(ast.parse(path.read_text())) for n in names_of(node)}
        if heads & {"numba", "llvmlite"}:
            assert path.relative_to(ROOT).parts[0] in ("backend", "emulator", "disk_cache.py", "inner_code.py", "command"), path


def names_of(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [a.name for a in node.names]
    return [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []


def test_no_function_is_replaced_by_a_module():
    import flamepy as fp

    for path in FILES:
        name = path.relative_to(ROOT).parts[0].removesuffix(".py")
        found = getattr(fp, name, None) if name not in TOP else None
        assert not callable(found), f"flamepy.{name} is both a module and a function"


def found_circles(late: bool) -> set[frozenset[str]]:
    early, others = edges()
    graph = {name: early[name] | others[name] for name in early} if late else early
    return {frozenset(name.removeprefix("flamepy.") for name in circle) for circle in circles(graph)}


def test_files_import_each_other_in_no_new_circle():
    assert found_circles(late=False) == CIRCLES  # one that is gone is deleted above


def test_late_imports_close_no_new_circle():
    assert found_circles(late=True) == CIRCLES | LATE_CIRCLES


def test_late_imports_get_fewer():
    assert sum(map(len, edges()[1].values())) == LATE  # fewer: write the new number above


def test_there_is_one_door_and_it_is_narrow():
    assert len(Door.__annotations__) <= DOOR


def test_what_one_file_sets_in_another_is_two_names():
    found = set()
    for path in FILES:
        tree = ast.parse(path.read_text())
        ours = {a.asname or a.name for node in tree.body if isinstance(node, ast.ImportFrom) and node.level for a in node.names} - {"Door"}
        for node in tree.body:
            for target in node.targets if isinstance(node, ast.Assign) else ():
                names = target.elts if isinstance(target, ast.Tuple) else [target]
                found |= {ast.unparse(t) for t in names if isinstance(t, ast.Attribute) and ast.unparse(t).split(".")[0] in ours}
    assert found == LATE_BINDINGS
