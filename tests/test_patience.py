"""Compiling says so when it takes a while: once, with the user's line, with no thread left behind; never from the cache."""

from __future__ import annotations

import os
import threading
import time
import warnings
from typing import Any

import numba
import numpy as np
import pytest
from numba.core.caching import NullCache

import flamepy as fp
from flamepy.backend.cpu.device import loop_named
from flamepy.backend.cpu.runtime import compiler
from flamepy.backend.cpu.runtime.patience import Patience
from flamepy.backend.formula import bind


def twice_y(x: Any) -> Any:
    return x + x


def compile_something() -> None:
    """A kernel that no cache has."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiler, "cache_of", lambda function: NullCache())
        kernel = bind.bind(loop_named("map1"), twice_y, np.dtype("f4"), compiler.DIALECT)
        kernel(1, np.empty(4, "f4"), np.ones(4, "f4"))


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What this process says of compiling, as if it had not said it."""
    monkeypatch.setattr(compiler, "patience", Patience(lambda: "a folder", after=0.0))
    monkeypatch.setattr(bind, "_listeners", [])
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield found


def test_it_is_said_once_with_the_users_line_and_no_thread_is_left(told: Any) -> None:
    before = threading.active_count()
    numba.njit(lambda x: x + 1)(1)  # a function of the user's own
    assert not told
    for _ in range(2):
        compile_something()
    (warning,) = told
    assert warning.category is fp.FlameWarning and warning.filename == __file__ and "each once" in str(warning.message)
    assert "kept in a folder" in str(warning.message) and threading.active_count() == before


def test_it_waits_for_what_takes_long_in_all(told: Any) -> None:
    patience = Patience(lambda: "a folder", after=0.05)
    for _ in range(2):
        patience.begin()
        patience.end()
    assert not told and not patience.said
    for _ in range(2):
        patience.begin()
        time.sleep(0.04)
        patience.end()
    assert len(told) == 1 and patience.spent > 0.05 and patience.timer is None


def test_nobody_is_told_twice_and_workers_are_silent(told: Any) -> None:
    forget = bind.on_compile(lambda name, seconds: None)  # as `flamepy train` does, whose lines say it
    compile_something()
    forget()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compile_something()  # an error of another thread would reach nobody
    assert not told and compiler.patience.said


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no forks")
def test_the_child_of_a_fork_is_silent(told: Any) -> None:
    child = os.fork()
    if not child:
        compile_something()
        os._exit(len(told))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    compile_something()
    assert len(told) == 1
