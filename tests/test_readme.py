"""The README is true: its Python blocks run and print what it says, its tree exists, its commands name real things."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", TEXT, re.S)
PYTHON = [
    (code, BLOCKS[i + 1][1] if i + 1 < len(BLOCKS) and BLOCKS[i + 1][0] == "text" else None)
    for i, (kind, code) in enumerate(BLOCKS)
    if kind == "python"
]


@pytest.mark.parametrize(("code", "printed"), PYTHON, ids=[f"block{i}" for i in range(len(PYTHON))])
def test_python_blocks_run_and_print_what_is_shown(code, printed, tmp_path):
    file = tmp_path / "block.py"
    file.write_text(code)
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    if "print(" in code:
        assert done.stdout == printed


def test_the_tree_exists():
    tree = next(code for kind, code in BLOCKS if kind == "text" and "errors.py" in code)
    names = re.findall(r"^  +([\w/. ]+?)(?:  |$)", tree, re.M)
    for name in " ".join(names).split():
        found = [p for p in (ROOT / "flamepy" / name, ROOT / "flamepy" / "backend" / name) if p.exists()]
        assert found, name


def test_the_reading_order_exists():
    order = TEXT.split("## Reading order")[1].split("## Adding")[0]
    for name in re.findall(r"`([\w/]+\.py)`", order):
        assert (ROOT / "flamepy" / name).exists(), name


def test_commands_are_real():
    from flamepy.command.cli import cli

    block = next(code for kind, code in BLOCKS if kind == "text" and "flamepy train " in code)
    for name in re.findall(r"^flamepy (\w+)", block, re.M):
        assert name in cli.commands, name


def test_two_commands_start_from_nothing():
    for mark in ("train", "test"):
        command = TEXT.split(f"<!-- {mark} command -->")[1].split("```")[1]
        assert command.startswith("bash\npython3 -m venv .venv && .venv/bin/python -m pip install")
