"""Which tests compare with PyTorch or JAX: they get the marker `torch` by what they name, so that nobody has to remember it.

Read next: conftest.py, test_oracle_marks.py.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any

import pytest

ORACLES = ("torch", "jax")


def names_oracle(function: Callable[..., Any]) -> bool:
    """Whether a test, or a function of its module that it calls, has an oracle's name in its code."""
    todo, seen, scope = [function.__code__], set(), function.__globals__
    while todo:
        code = todo.pop()
        if code in seen:
            continue
        seen.add(code)
        if any(oracle in (*code.co_names, *code.co_consts) for oracle in ORACLES):
            return True
        todo += [const for const in code.co_consts if isinstance(const, CodeType)]
        called = (getattr(scope.get(name), "__code__", None) for name in code.co_names)
        todo += [other for other in called if isinstance(other, CodeType)]
    return False


def mark(items: list[pytest.Item]) -> None:
    """Give the marker `torch` to what compares: by a module that has an oracle, a parameter that is its name, or code that names it."""
    for item in items:
        function, values = getattr(item, "function", None), getattr(item, "callspec", None)
        by_module = any(oracle in vars(getattr(item, "module", item)) for oracle in ORACLES)
        by_value = values is not None and any(isinstance(v, str) and v in ORACLES for v in values.params.values())
        if by_module or by_value or (hasattr(function, "__code__") and names_oracle(function)):
            item.add_marker("torch")
