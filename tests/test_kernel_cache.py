"""Files of compiled kernels that a crash or a full disk has damaged: compiled again and replaced, one warning, right results."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from fork_tools import Run, forks, run_new

CODE = "import flamepy as fp; print(*[round(v, 4) for v in (fp.tensor([0.5]).tanh() + fp.tensor([0.25]).exp()).tolist()])"
RIGHT = "1.7461\n"  # tanh 0.5 + exp 0.25


@pytest.fixture(scope="module")
def process() -> Iterator[Run]:
    with forks() as run:
        yield run


@pytest.fixture(scope="module")
def full(tmp_path_factory) -> dict[str, bytes]:
    """Name -> contents of every file of a good cache."""
    folder = tmp_path_factory.mktemp("cache")
    assert run_new(CODE, folder, folder) == (0, RIGHT, "")
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def ending(full: dict[str, bytes], word: str, end: str) -> str:
    return next(name for name in sorted(full) if word in name and name.endswith(end))


def flipped(data: bytes) -> bytes:
    """One byte in the middle, where the machine code is: LLVM would abort."""
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 255]) + data[middle + 1 :]


DAMAGE = {
    "empty": lambda data, full: b"",
    "cut": lambda data, full: data[: len(data) // 2],
    "garbage": lambda data, full: bytes(range(256)) * 20,
    "one wrong byte": lambda data, full: flipped(data),
}


@pytest.mark.parametrize("end", [".nbi", ".nbc"])
@pytest.mark.parametrize("word", ["tanh_y", "pool.launch"])
@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_file_is_replaced(full, process, tmp_path, kind, word, end):
    name = ending(full, word, end)
    fill(tmp_path, full, {name: DAMAGE[kind](full[name], full)})
    check(process, tmp_path)


@pytest.mark.parametrize("end", [".nbi", ".nbc"])
def test_the_file_of_another_kernel_is_replaced(full, process, tmp_path, end):
    fill(tmp_path, full, {ending(full, "tanh_y", end): full[ending(full, "exp_y", end)]})
    check(process, tmp_path)


def test_a_cache_of_nothing_but_damage_warns_once(full, process, tmp_path):
    fill(tmp_path, full, {name: data[:100] for name, data in full.items()})
    check(process, tmp_path)


def fill(folder: Path, full: dict[str, bytes], changed: dict[str, bytes]) -> None:
    for name, data in {**full, **changed}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def check(process: Run, folder: Path) -> None:
    """Right results and one warning; the next process finds nothing to warn of."""
    code, result, errors = process(CODE, folder, folder)
    assert (code, result) == (0, RIGHT), errors
    assert errors.count("FlameWarning: kernel cache: damaged file: ") == 1
    assert process(CODE, folder, folder) == (0, RIGHT, "")


@pytest.mark.skipif(not hasattr(os, "geteuid") or not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_cache_that_cannot_be_written_does_not_end_the_run(tmp_path, monkeypatch):
    import numpy as np

    from flamepy import disk_cache
    from flamepy.backend.cpu.device import loop_named
    from flamepy.backend.cpu.runtime import compiler
    from flamepy.backend.formula.bind import bind
    from flamepy.errors import FlameWarning

    def no_room(self, path, data):
        Path("/dev/full").write_bytes(data)

    def thrice_y(x):
        return x * 3.0

    monkeypatch.setattr(disk_cache.CheckedFile, "write", no_room)
    monkeypatch.setattr(disk_cache, "_warned", False)
    kernel = bind(loop_named("map1"), thrice_y, np.dtype("f4"), compiler.DIALECT)
    out = np.empty(2, "f4")
    with pytest.warns(FlameWarning, match=r"kernel cache: cannot write: .*: No space left on device\. "):
        kernel(1, out, np.ones(2, "f4"))
    assert out.tolist() == [3.0, 3.0]


def test_a_kernel_that_names_a_module_of_another_version_is_compiled_again(tmp_path, monkeypatch):
    from numba import types
    from numba.core.registry import cpu_target

    from flamepy import disk_cache
    from flamepy.errors import warn

    cache = disk_cache.cache_of(warn)
    cache._cache_file = disk_cache.CheckedFile(str(tmp_path), "kernel", "stamp")

    def renamed(self):
        raise ModuleNotFoundError("No module named 'flamepy.ops.var'")

    monkeypatch.setattr(disk_cache.CheckedFile, "_load_index", renamed)
    assert cache.load_overload(types.void(), cpu_target.target_context) is None
    monkeypatch.undo()
    assert cache._cache_file._load_index() == {}


def test_how_a_loop_skips_its_rest_does_not_change_what_is_inlined():
    """Python 3.12 compiles the first into the second."""
    from flamepy.backend.cpu.runtime.compiler import nested_loops

    def under_if(y, x):
        for r in range(2):
            if x[r] != 1.0:
                for c in range(3):
                    y[c] *= x[r]

    def after_continue(y, x):
        for r in range(2):
            if x[r] == 1.0:
                y[0] = 0.0
                continue
            for c in range(3):
                y[c] *= x[r]

    def one_after_the_other(y, x):
        for r in range(2):
            y[r] = x[r]
        while y[0] > 1.0:
            y[0] *= 0.5

    assert nested_loops(under_if) and nested_loops(after_continue) and not nested_loops(one_after_the_other)
