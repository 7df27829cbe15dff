"""The architecture, enforced: imports go one way, files stay short, only one place knows CUDA, every file says what it is."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "flamepy"
FILES = sorted(p for p in ROOT.rglob("*.py"))
BENCH = sorted((ROOT.parent / "bench").glob("*.py"))
TESTS = sorted((ROOT.parent / "tests").glob("*.py"))

# Left to right: a file may import what stands before it, its own folder, and nothing after it.
LAYERS = [
    "starting",
    "errors", "advice", "ids", "dtypes", "disk", "backend", "words", "replay", "rng", "tensor_grad", "gradient_memory", "gradient",
    "autograd", "op", "pickling", "ops", "reading", "tensors", "creation", "stored", "parameter",
    "schedules", "gradient_checkpointing", "gradient_check", "gradient_norm", "gradient_clip", "gradient_transforms", "gradient_history",
    "transforms", "accumulation", "averages", "regularizer", "optimizers", "learning_rate", "loss_scaling", "nn", "saving", "cuda",
    "train", "command",
]  # fmt: skip
SIDE_BY_SIDE = [
    {"gradient_norm", "gradient_checkpointing", "gradient_check", "schedules", "nn"},
    {"accumulation", "averages", "regularizer", "optimizers", "nn"},
]
TOP = {"__init__", "__main__"}


def layer(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """First-level flamepy modules a file imports, wherever in the file."""
    found = set()
    package = ("flamepy", *path.relative_to(ROOT).parts[:-1])
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            full = (*base, *(node.module or "").split(".")) if node.module else base
            if full[:1] != ("flamepy",):
                continue
            found |= {full[1]} if len(full) > 1 else {a.name for a in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("flamepy.")}
            if any(a.name == "flamepy" for a in node.names):
                found.add("flamepy")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_left(path):
    own = layer(path)
    if own in TOP or own in ("train", "command"):
        forbidden = {"command"} if own == "train" else set()
    else:
        assert own in LAYERS, f"{own} has no place in LAYERS"
        forbidden = set(LAYERS[LAYERS.index(own) + 1 :]) | {"flamepy"}
        for group in SIDE_BY_SIDE:
            if own in group:
                forbidden |= group - {own}
    assert not imports(path) & forbidden


@pytest.mark.parametrize("path", [*FILES, *BENCH, *TESTS], ids=lambda p: str(p.relative_to(ROOT.parent)))
def test_files_and_functions_are_short(path):
    text = path.read_text()
    assert len(text.splitlines()) <= 500
    if path in TESTS:  # one test may need many lines in a row
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            body = node.end_lineno - node.body[0].lineno + 1
            assert body <= 40, f"{node.name}: {body} lines"
            given = len(node.args.posonlyargs) + len(node.args.args) + len(node.args.kwonlyargs)
            # Kernels and formulas are not annotated; launchers are told by their decorator.
            compiled = node.returns is None and not any(["launcher" in ast.unparse(d) for d in node.decorator_list])
            assert given <= 12 or compiled, f"{node.name}: {given} parameters"


@pytest.mark.parametrize("path", [p for p in (*FILES, *BENCH) if p.read_text().strip()], ids=lambda p: str(p.relative_to(ROOT.parent)))
def test_each_file_says_what_it_is(path):
    doc = ast.get_docstring(ast.parse(path.read_text()))
    assert doc and len(doc.splitlines()[0]) > 20
    assert "May import" not in doc and "counterpart: none" not in doc  # the first is said here, the second says nothing


def test_only_the_cpu_backend_imports_numba():
    for path in FILES:
        heads = {n.split(".")[0] for node in ast.walk(ast.parse(path.read_text())) for n in names_of(node)}
        if heads & {"numba", "llvmlite"}:
            assert path.is_relative_to(ROOT / "backend") or path.is_relative_to(ROOT / "command"), path


def names_of(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [a.name for a in node.names]
    return [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []


def test_no_function_is_replaced_by_a_module():
    import flamepy as fp

    for path in FILES:
        name = layer(path)
        found = getattr(fp, name, None) if name not in TOP else None
        assert not callable(found), f"flamepy.{name} is both a module and a function"
