"""What help() says of an op: shapes, types, formula and derivative as they are written, errors, an example with its result.

A pointwise op's text is composed when the op is defined, from its formulas: their lines are read from the file, and the example's
result is the formula itself on Python numbers. A custom op's docstring says its shapes and example; here it gets a line on types.
Op.__doc__ stays as written; what users call has the whole text.
"""

from __future__ import annotations

import inspect
import linecache
from typing import Any

from .core.door import Door
from .core.inputs import KINDS
from .core.pointwise import Pointwise, zero

SAMPLES = ("[-1.5, 1.5]", "0.5", "2.0")  # of the inputs, in order


def custom_help(op: Any) -> str:
    """The docstring of a custom op with a line on types before its example."""
    head, mark, example = inspect.cleandoc(op.__doc__ or op.name).partition(">>>")
    blank = "" if "\n" in head else "\n"
    return f"{head.rstrip()}\n{blank}Types: {KINDS[op.kind]}.\n{mark}{example}".rstrip()


def pointwise_help(op: Any, published: bool) -> str:
    """All there is to say of a pointwise op."""
    many, outcome = len(op.inputs) > 1, "" if op.out is None else f" The result is {op.out}."
    masks = f"{', '.join(op.inputs[: op.masks])} bool, the others " if op.masks else ""
    lines = [
        inspect.cleandoc(op.__doc__ or op.name),
        "",
        "Shapes: " + ("those of the inputs broadcast." if many else f"any; the result has that of {op.inputs[0]}."),
        f"Types: {masks}{KINDS[op.kind]}.{outcome}",
        *labelled("Formula", "y", written(op.formula)),
    ]
    for name, rule in zip(op.inputs, op.rule, strict=False):
        if rule is not None:
            lines += labelled("Derivative from g, the cotangent of y", f"d{name}", ["0"] if rule is zero else written(rule))
    if not op.rule:
        lines.append("Derivative: none; nothing is recorded.")
    alone = "no tensor, array or number"
    wrong = f"two float types; {alone}), ShapeError (shapes that do not broadcast" if many else alone
    lines.append(f"Raises: DTypeError ({wrong}).")
    return "\n".join([*lines, *(example(op) if published else ())])


def labelled(label: str, result: str, body: list[str]) -> list[str]:
    return [f"{label}: {'; '.join([*body[:-1], f'{result} = {body[-1]}'])}"] if body else []


def written(formula: Any) -> list[str]:
    """The statements of a short function as they stand in its file, the last without `return`; [] where the file isn't there."""
    code = formula.__code__
    lines = linecache.getlines(code.co_filename, formula.__globals__)[code.co_firstlineno - 1 :]
    body = statements(lines) or expression(code, lines)
    if not body or not body[-1].startswith("return "):
        return []
    for name in code.co_names:  # a word that the file imports under another name
        word = getattr(formula.__globals__.get(name), "__name__", name)
        body = [text.replace(f"{name}(", f"{word}(") for text in body] if word != name else body
    return [*body[:-1], body[-1].removeprefix("return ")]


def statements(lines: list[str]) -> list[str]:
    """Of a function written with def."""
    if not lines or not lines[0].lstrip().startswith("def ") or not lines[0].rstrip().endswith(":"):
        return []
    indent, body, quoted = len(lines[0]) - len(lines[0].lstrip()), [], False
    for line in lines[1:]:
        text = line.partition("  # ")[0].strip()
        if not quoted and (not text or len(line) - len(line.lstrip()) <= indent):
            break
        quotes = text.count('"""')
        if not quoted and not quotes:
            body.append(text)
        quoted = quoted != (quotes == 1)
    return body


def expression(code: Any, lines: list[str]) -> list[str]:
    """Of a lambda: the longest part of its line that Python knows the place of."""
    start, end = max([(start or 0, end or 0) for *_, start, end in code.co_positions()], key=lambda part: part[1] - part[0])
    return [f"return {lines[0][start:end]}"] if end and lines and "lambda " in lines[0][:start] else []


def example(op: Any) -> list[str]:
    """A call and its result, which the formula gives on Python numbers."""
    samples = ["[True, False]"] * op.masks + list(SAMPLES)
    given = [f"fp.tensor({s})" if s.startswith("[") else s for s in samples[: len(op.inputs)]]
    numbers = [[True, False]] * op.masks + [[-1.5, 1.5], [0.5] * 2, [2.0] * 2]
    found = [op.formula(*row) for row in zip(*numbers[: len(op.inputs)], strict=True)]
    call = f"fp.{op.name}({', '.join(given)}).tolist()"
    if op.out is not None:
        return [f">>> {call}", repr(found)]
    return [f">>> [round(v, 4) for v in {call}]", repr([round(v, 4) for v in found])]


def explain(op: Any, published: bool) -> str:
    return pointwise_help(op, published) if isinstance(op, Pointwise) else custom_help(op)


Door.explain = staticmethod(explain)
