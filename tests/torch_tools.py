"""Which tests compare with PyTorch or JAX: they get the marker `torch` by what they name, so that nobody has to remember it.

Without PyTorch they are left out, and the closing line counts them, unless the command asks for them (`-m torch`).
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from types import CodeType, FunctionType
from typing import Any

import pytest

HERE = os.path.dirname(__file__) + os.sep
ORACLES = ("torch", "jax")
# What imports a module by its name: only beside one of these is the string "torch" more than a word.
BY_NAME = {"importorskip", "import_module", "__import__"}


@cache
def names_oracle(function: Callable[..., Any]) -> bool:
    """Whether a test, or a function of the tests' that it calls, imports an oracle or uses one that its module imported."""
    function = inspect.unwrap(getattr(getattr(function, "hypothesis", None), "inner_test", function))  # what @given was put on
    todo: list[tuple[CodeType, dict[str, Any]]] = [(function.__code__, function.__globals__)]
    seen = set()
    while todo:
        code, scope = todo.pop()
        if code in seen:
            continue
        seen.add(code)
        strings = code.co_consts if BY_NAME.intersection(code.co_names) else ()
        if any(oracle in (*code.co_names, *strings) for oracle in ORACLES):
            return True
        todo += [(const, scope) for const in code.co_consts if isinstance(const, CodeType)]
        called = [found for name in code.co_names if isinstance(found := scope.get(name), FunctionType)]
        todo += [(f.__code__, f.__globals__) for f in called if f.__code__.co_filename.startswith(HERE)]
    return False


def mark(items: list[pytest.Item]) -> None:
    """Give the marker `torch` to what compares: by a module that has an oracle, a parameter that is its name, or code that names it."""
    for item in items:
        function, values = getattr(item, "function", None), getattr(item, "callspec", None)
        by_module = any(oracle in vars(getattr(item, "module", item)) for oracle in ORACLES)
        by_value = values is not None and any(isinstance(v, str) and v in ORACLES for v in values.params.values())
        if by_module or by_value or (hasattr(function, "__code__") and names_oracle(function)):
            item.add_marker("torch")


def left_out(items: list[pytest.Item], expression: str) -> list[pytest.Item]:
    """The tests with the marker, where there is no PyTorch and `expression` (pytest's `-m`) does not speak of it."""
    if is_there("torch") or "torch" in expression:
        return []
    return [item for item in items if item.get_closest_marker("torch")]


def is_there(name: str) -> bool:
    """Whether a module can be found, without importing it."""
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # by an import hook that hides it
        return False
