"""The README's test command needs nothing but what it installs: every file is collected without PyTorch, JAX, scikit-learn and CUDA.

And tests that need PyTorch are known by their code, and left out where there is none.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch_tools
from hypothesis import given
from hypothesis import strategies as st
from torch_tools import is_there, left_out, mark, names_oracle

WITHOUT = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"torch", "jax", "sklearn", "numba_cuda", "cuda", "nvidia"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Refuse())
import pytest
sys.exit(pytest.main(["--collect-only", "-qq", "-p", "no:cacheprovider", "tests"]))
"""


def test_every_file_is_collected_with_nothing_optional_installed():
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run([sys.executable, "-c", WITHOUT], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]


# ---- which tests compare ---------------------------------------------------------------------------------------------------------
def imports_inside():
    import torch

    return torch


def asks_for_it():
    return pytest.importorskip("torch")


def by_a_helper():
    return asks_for_it()


def by_an_inner_function():
    def inner():
        return pytest.importorskip("jax")

    return inner()


@given(st.booleans())
def by_a_property(flag):
    return asks_for_it() if flag else None


def speaks_of_it(monkeypatch):
    return ["torch", "pages"], monkeypatch


class Item(SimpleNamespace):
    """As much of a test as the marking reads: its module, its function, its parameters."""

    def __init__(self, function: Any, module: Any = None, **params: Any) -> None:
        super().__init__(function=function, module=module or SimpleNamespace(), callspec=SimpleNamespace(params=params), marks=set())

    def add_marker(self, name: str) -> None:
        self.marks.add(name)

    def get_closest_marker(self, name: str) -> Any:
        return name if name in self.marks else None


@pytest.mark.parametrize("function", [imports_inside, asks_for_it, by_a_helper, by_an_inner_function, by_a_property])
def test_a_test_that_imports_an_oracle_compares(function):
    assert names_oracle(function)


def test_a_test_that_only_speaks_of_one_does_not():
    assert not names_oracle(speaks_of_it)


def test_marks_by_module_by_parameter_and_by_code():
    items = [
        Item(speaks_of_it, SimpleNamespace(torch=None)),
        Item(speaks_of_it, who="jax"),
        Item(asks_for_it),
        Item(speaks_of_it, who="us"),
    ]
    mark(items)
    assert [item.marks for item in items] == [{"torch"}] * 3 + [set()]


@pytest.mark.parametrize(
    "there, expression, count", [(False, "", 1), (False, "not gpu", 1), (False, "torch", 0), (True, "", 0), (True, "not gpu", 0)]
)
def test_what_compares_is_left_out_without_pytorch_unless_asked_for(monkeypatch, there, expression, count):
    monkeypatch.setattr(torch_tools, "is_there", lambda name: there)
    items = [Item(asks_for_it), Item(speaks_of_it)]
    mark(items)
    assert left_out(items, expression) == items[:count]


def test_a_module_that_a_hook_hides_is_not_there(monkeypatch):
    def refuse(name: str) -> None:
        raise ModuleNotFoundError(name)

    assert is_there("json") and not is_there("no_such_module")
    monkeypatch.setattr(torch_tools, "find_spec", refuse)
    assert not is_there("json")
