"""Machines that are not set up: variables that Numba cannot use, no folder for compiled kernels. One line says what to do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from train_tools import TEXT, TINY

import flamepy as fp
from flamepy.backend.cpu.runtime import settings
from flamepy.train import display

ROOT = Path(__file__).parent.parent
CAUGHT = """
import flamepy as fp
x = fp.tensor([1.0, 2.0, 3.0])
for call in (lambda: fp.ones(3), lambda: x + 1, lambda: x.to(fp.float16), lambda: fp.rand(3)):
    try:
        call()
    except fp.DeviceError as error:
        print(error)
print((fp.ones(3, device="plain") + 1).tolist())
"""
WRONG = [("NUMBA_NUM_THREADS", "0"), ("NUMBA_NUM_THREADS", "abc"), ("NUMBA_NUM_THREADS", ""), ("NUMBA_DISABLE_JIT", "1")]


def python(*args: str, cwd: Path = ROOT, **environment: str | None) -> tuple[int, str, str]:
    env = {**os.environ, **environment}
    done = subprocess.run(
        [sys.executable, *args], capture_output=True, text=True, check=False, timeout=120, cwd=cwd,
        env={name: value for name, value in env.items() if value is not None},
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("name, value", WRONG)
def test_a_variable_that_stands_in_the_way_is_named_with_its_cure(name, value):
    code, out, err = python("-c", CAUGHT, **{name: value})
    *refused, plain = out.splitlines()
    assert (code, err, len(refused), plain) == (0, "", 4, "[2.0, 2.0, 2.0]")
    for line in refused:
        assert line.startswith(f"cpu: {name} ") and f": '{value}'. Run unset {name}; " in line


@pytest.mark.parametrize("name, value", [("NUMBA_NUM_THREADS", "abc"), ("NUMBA_DISABLE_JIT", "1")])
def test_the_commands_say_it_in_one_line_too(tmp_path, name, value):
    env = {name: value, "PYTHONPATH": str(ROOT)}
    code, out, err = python("-m", "flamepy", "doctor", **env)
    assert (code, err) == (1, "") and f"problem: {name}: '{value}' " in out and f"remedy: unset {name}\n1 problem found" in out
    for command in (["train", "--preset", "tiny", "--steps", "2"], ["cache", "ls"], ["warmup"]):
        code, out, err = python("-m", "flamepy", *command, cwd=tmp_path, **env)
        assert code in (1, 2) and err.count("\n") == 1, err
        assert err.startswith(f"flamepy {command[0]}: ") and f"unset {name}" in err
    assert not os.listdir(tmp_path)  # no folder of a run that cannot be made


def test_the_plain_device_trains_all_the_same(tmp_path):
    (tmp_path / "text.txt").write_text(TEXT)
    small = ["--data", "text.txt", *TINY, "--steps", "2", "--device", "plain"]
    code, out, err = python("-m", "flamepy", "train", *small, cwd=tmp_path, NUMBA_NUM_THREADS="abc", PYTHONPATH=str(ROOT))
    assert (code, err) == (0, "") and "finished  2 steps" in out


def test_a_threading_layer_that_is_not_there_does_not_matter():
    add = "import flamepy as fp; print((fp.ones(1 << 20) + 1).sum().item())"
    for name in ("nonsense", "tbb"):
        assert python("-c", add, NUMBA_THREADING_LAYER=name) == (0, f"{2.0**21}\n", "")


@pytest.mark.parametrize(
    "text, right", [("1", True), ("12", True), ("0", False), ("-1", False), ("1.5", False), ("", False), ("abc", False)]
)
def test_numbers_of_threads(monkeypatch, text, right):
    monkeypatch.setenv("NUMBA_NUM_THREADS", text)
    assert bool(settings.trouble()) != right


@pytest.fixture(scope="module")
def closed(tmp_path_factory) -> dict[str, str | None]:
    """The environment of a process whose flamepy finds no place for a cache: where folders should be made there are files."""
    folder = tmp_path_factory.mktemp("closed")
    shutil.copytree(ROOT / "flamepy", folder / "flamepy", ignore=shutil.ignore_patterns("__pycache__"))
    for place in [p for p in (folder / "flamepy" / "backend").rglob("*") if p.is_dir()]:
        (place / "__pycache__").touch()
    return {
        "PYTHONPATH": str(folder), "HOME": "/dev/null", "XDG_CACHE_HOME": "/dev/null", "NUMBA_CACHE_DIR": None,
        "PYTHONDONTWRITEBYTECODE": "1", "MPLCONFIGDIR": str(folder),
    }  # fmt: skip


def test_without_a_place_for_a_cache_kernels_are_compiled_in_memory(closed, tmp_path):
    one, many = "fp.tensor([0.5]).tanh()", "fp.tensor([0.5] * (1 << 16)).tanh()"  # a kernel for one thread, and one for all
    several = f"import flamepy as fp; print({one}.item(), *set({many}.tolist()), fp.__file__)"
    code, out, err = python("-c", several, cwd=tmp_path, **closed)
    assert code == 0, err
    first, rest, file = out.split()
    assert round(float(first), 4) == round(float(rest), 4) == 0.4621 and file.startswith(str(closed["PYTHONPATH"]))
    assert err.count("FlameWarning") == 1 and "Traceback" not in err
    assert "kernel cache: no folder can be written to, so every process compiles its kernels again" in err
    assert "Set NUMBA_CACHE_DIR to a folder that can be written to." in err
    kept = python("-c", several, cwd=tmp_path, **{**closed, "NUMBA_CACHE_DIR": str(tmp_path / "made")})
    assert kept == (0, out, "")  # the cure


def test_the_commands_without_a_place_for_a_cache(closed, tmp_path):
    code, out, err = python("-m", "flamepy", "doctor", cwd=tmp_path, **closed)
    assert code == 1 and err.count("flamepy doctor: kernel cache: no folder can be written to") == 1 and "Traceback" not in err
    assert "problem: kernel cache: none (cache: no folder can be written to" in out and "remedy: export NUMBA_CACHE_DIR=" in out
    for command in ("ls", "clear"):
        code, out, err = python("-m", "flamepy", "cache", command, cwd=tmp_path, **closed)
        assert (code, out) == (1, "") and err.count("\n") == 1 and "Set NUMBA_CACHE_DIR" in err
    code, out, err = python("-m", "flamepy", "warmup", cwd=tmp_path, **closed)
    assert (code, out) == (1, "") and err.count("\n") == 1  # at once: nothing could be kept


@pytest.mark.parametrize("there", [True, False])
def test_the_display_says_kernels_are_kept_only_when_they_are(monkeypatch, capsys, there):
    def no_folder(self):
        raise fp.DeviceError("cache: none")

    if not there:
        monkeypatch.setattr(type(fp.device("cpu")), "cache_folder", no_folder)
    shown = display.PlainDisplay(sys.stdout, 1, "tokens", 1)
    shown.compiled("map1_exp_y_float32_0123456789", 0.5)
    shown.compile_summary()
    assert ("the kernel cache keeps them" in capsys.readouterr().out) == there


def test_curves_are_drawn_without_a_home_and_without_a_word(tmp_path):
    row = {"step": 1, "loss": 2.0, "smoothed": 2.0, "grad_norm": 1.0}
    code = f"from pathlib import Path; from flamepy.train import writers; writers.draw([{row}], Path('curves.png'), 'a run')"
    nowhere = dict.fromkeys(("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"), "/dev/null")
    assert python("-c", code, cwd=tmp_path, PYTHONPATH=str(ROOT), MPLCONFIGDIR=None, **nowhere) == (0, "", "")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
