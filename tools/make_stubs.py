"""Write the stubs that editors and type checkers read: python tools/make_stubs.py

Public ops get their names at run time, which no editor sees. From the same registry this writes

    flamepy/ops/__init__.pyi       every public op: types, help text, the file and function that define it
    flamepy/methods.pyi            the same as methods, and the operators: what type checkers take for the base class of Tensor
    flamepy/__init__.pyi           the package's names; flamepy/nn/functional.pyi those of functional

Parameters are typed by their defaults and annotations, and by name (NAMES) where those say nothing. tests/test_editor.py fails
when a stub is not what this writes.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import flamepy  # noqa: E402
from flamepy.core.op import HOMES, PUBLIC  # noqa: E402
from flamepy.habits import ALIASES  # noqa: E402
from flamepy.tensors import Tensor, TensorMethods  # noqa: E402

FIRST = "# Written by tools/make_stubs.py, not by hand.\n# fmt: off\n"
NAMES = {
    "shape": "int | Sequence[int]", "axes": "int | Sequence[int]", "sizes": "int | Sequence[int]", "axis": "Axis",
    "tensors": "Iterable[TensorLike]", "widths": "Iterable[Sequence[int]]", "dtype": "DTypeLike", "kernel_size": "Pair",
    "stride": "Pair | None", "padding": "Pair | str", "dilation": "Pair", "min": "float | None", "max": "float | None", "value": "float",
    "normalized_shape": "int | Sequence[int] | Tensor | None",
    "pad.value": "float | None", "pad.widths": "int | Iterable[Sequence[int]]",
    "argmax.axis": "int | None", "argmin.axis": "int | None",
}  # fmt: skip
NEEDED = ("kernel_size",)  # has a default only to be an attribute of its op
BINARY = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"]
BINARY += ["radd", "rsub", "rmul", "rtruediv", "rfloordiv", "rmod", "rpow", "rmatmul"]
BINARY += ["and", "or", "rand", "ror", "xor", "rxor", "lshift", "rshift", "rlshift", "rrshift", "lt", "le", "gt", "ge"]
UNARY = ["neg", "abs", "invert"]
IMPORTS = """from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray

"""
OWN = """from ..tensors import Tensor
from .copy import copy_into as copy_into
from .copy import filled as filled
from .copy import move as move
from .picking import getitem as getitem

TensorLike: TypeAlias = Tensor | NDArray[Any] | np.generic | float | list[Any]
Axis: TypeAlias = int | Sequence[int] | None
Pair: TypeAlias = int | Sequence[int]
"""


def typed(function: str, p: inspect.Parameter, of_op: bool) -> str:
    """The annotation of a parameter."""
    named = NAMES.get(f"{function}.{p.name}") or NAMES.get(p.name)
    if not of_op and p.annotation not in ("Any", p.empty):
        return NAMES[p.name] if p.annotation == "Axis" else str(p.annotation)
    if named and not (of_op and isinstance(p.default, int | float | str) and p.name == "axis"):
        return f"{named} | None" if named == "DTypeLike" and p.default is None else named
    if p.default is None:
        return "TensorLike | None"
    return "TensorLike" if p.default is p.empty else type(p.default).__name__


def declared(name: str, function: Callable[..., Any], method: bool, indent: str) -> list[str]:
    """The def lines of a public function: two where an axis may be called dim as well."""
    signature = inspect.signature(function)
    of_op = hasattr(function, "op")
    parameters = []
    given = [*signature.parameters.values()]
    if method and given[0].kind is given[0].VAR_POSITIONAL:
        given.insert(0, inspect.Parameter("self", given[0].POSITIONAL_ONLY))
    for i, p in enumerate(given):
        default = p.default if isinstance(p.default, int | float | str | None) or p.default is p.empty else ...
        default = p.empty if p.name in NEEDED else default
        parameters.append((p, "self" if method and i == 0 else p.name, "" if method and i == 0 else typed(name, p, of_op), default))
    returned = str(signature.return_annotation)
    result = "list[Tensor]" if returned.startswith("list") else "tuple[Tensor, Tensor]" if returned == "Found" else "Tensor"
    spoken = {new: old for old, new in ALIASES.items()}
    other = any(p.name in spoken for p, *_ in parameters)
    found = []
    for renamed in (False, True) if other else (False,):
        rows: list[str] = []
        for i, (p, shown, kind, default) in enumerate(parameters):
            shown = spoken.get(shown, shown) if renamed else shown
            if p.kind is p.KEYWORD_ONLY and parameters[i - 1][0].kind not in (p.KEYWORD_ONLY, p.VAR_POSITIONAL):
                rows.append("*")
            star = "*" if p.kind is p.VAR_POSITIONAL else ""
            value = "" if default is p.empty else " = ..." if default is ... else f" = {default!r}"
            rows.append(f"{star}{shown}: {kind}{value}" if kind else shown)
            last = i + 1 == len(parameters) or parameters[i + 1][0].kind is not p.POSITIONAL_ONLY
            if p.kind is p.POSITIONAL_ONLY and last and not (method and i == 0):
                rows.append("/")
        found += [f"{indent}@overload"] * other + wrapped(f"{indent}def {name}(", rows, f") -> {result}:", indent)
    return found


def wrapped(start: str, rows: list[str], end: str, indent: str) -> list[str]:
    line = start + ", ".join(rows) + end
    return [line] if len(line) <= 130 else [start, *[f"{indent}    {row}," for row in rows], indent + end]


def source_of(function: Any) -> str:
    """Where a public function is written: file, function, or the name in the line of a pointwise op."""
    op = getattr(function, "op", None)
    formula = getattr(op, "formula", None)
    code = inspect.unwrap(formula or getattr(op, "body", None) or function).__code__
    return f"# {Path(code.co_filename).relative_to(ROOT)}: " + (f'"{op.name}"' if formula else code.co_name)


def with_body(lines: list[str], text: str, indent: str) -> list[str]:
    """The docstring in the last def, `...` in the others."""
    ends = [i for i, line in enumerate(lines) if line.endswith("Tensor:") or line.endswith("]:")]
    found = [f"{line} ..." if i in ends[:-1] else line for i, line in enumerate(lines)]
    body = "\n".join([f"{indent}    {line}".rstrip() for line in text.split("\n")]).strip()
    quote = 'r"""' if "\\" in body else '"""'
    return [*found, f"{indent}    {quote}{body}\n{indent}    " + '"""' if "\n" in body else f'{indent}    {quote}{body}"""']


def ops_stub() -> str:
    lines = [FIRST + IMPORTS + OWN]
    for name, function in sorted(PUBLIC.items()):
        text = inspect.cleandoc(function.__doc__ or "")
        lines += [source_of(function), *with_body(declared(name, function, False, ""), text, ""), ""]
    return "\n".join(lines)


def methods_stub() -> str:
    lines = [
        FIRST + "# ruff: noqa: E501, F401\n" + IMPORTS + "from .core.parameter import Stored",
        "from .core.tensor import Tensor as Tensor",
        "from .habits import Count as Count",
        "from .ops import Axis, Pair, TensorLike",
        "from .parameter import ParameterMethods",
        "from .tensors import TensorMethods",
        "",
        "class Trained(ParameterMethods, Stored): ...  # type: ignore[misc]",
        "",
        "class Methods(TensorMethods):",
    ]
    for name, function in sorted(PUBLIC.items()):
        if HOMES[name] != "functional" and vars(Tensor)[name] is function:
            meaning = inspect.cleandoc(function.__doc__ or "").splitlines()[0].partition(" Shapes:")[0]
            text = f"{meaning} See flamepy.{name}."
            lines += [f"    {source_of(function)}", *with_body(declared(name, function, True, "    "), text, "    ")]
    for name, value in vars(Tensor).items():
        if isinstance(value, staticmethod) and not hasattr(TensorMethods, name):
            lines += ["    @staticmethod", f"    def {name}{str(inspect.signature(value.__func__)).replace(chr(39), '')}: ..."]
    for name in BINARY:
        lines.append(f"    def __{name}__(self, other: TensorLike, /) -> Tensor: ...")
    for name in UNARY:
        lines.append(f"    def __{name}__(self) -> Tensor: ...")
    for name in ("eq", "ne"):
        lines.append(f"    def __{name}__(self, other: object, /) -> Tensor: ...  # type: ignore[override]")
    return "\n".join([*lines, "    def __getitem__(self, key: Any, /) -> Tensor: ...", ""])


def natural(name: str) -> list[Any]:
    """log2 before log10, as ruff sorts imports."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def place(row: tuple[str, str]) -> tuple[Any, ...]:
    """As ruff sorts imports: by module, then constants, classes, functions."""
    module, name = row
    return module, not name.isupper(), not name[0].isupper(), natural(name.lower())


def package_stub() -> str:
    """The imports of flamepy/__init__.py as they are, what it imports late, and the public ops."""
    kept = [(module or ".", name) for name, module in flamepy._LATE.items()]
    for node in ast.parse(Path(flamepy.__file__).with_suffix(".py").read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.level and not any((a.asname or "").startswith("_") for a in node.names):
            kept += [("." + (node.module or ""), a.name) for a in node.names]
    kept += [(".ops", name) for name in PUBLIC if HOMES[name] != "functional"]
    lines = [f"from {module} import {name} as {name}\n" for module, name in sorted(kept, key=place)]
    return FIRST + "".join(lines) + "\n__version__: str\n"


def functional_stub() -> str:
    names = [name for name in sorted(PUBLIC, key=natural) if HOMES[name] in ("functional", "both")]
    lines = [*[f"from ..ops import {name} as {name}" for name in names], "from ..ops.pads import flat_pad", "", "pad = flat_pad", ""]
    return FIRST + "\n".join(lines)


STUBS: dict[str, Callable[[], str]] = {
    "flamepy/ops/__init__.pyi": ops_stub,
    "flamepy/methods.pyi": methods_stub,
    "flamepy/__init__.pyi": package_stub,
    "flamepy/nn/functional.pyi": functional_stub,
}

if __name__ == "__main__":
    for name, text in STUBS.items():
        (ROOT / name).write_text(text())
        print(name)
