"""README and docs/ are true: their Python blocks run and print what they say, and links, paths and commands name real things."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]
FENCED = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
NEXT = "---- next block ----"
# One process for a page: each block is a program of its own, with a file and a folder of its own. The first that fails ends it.
RUN = f"""
import os, runpy, sys
for file in sys.argv[1:]:
    os.chdir(os.path.dirname(file))
    runpy.run_path(file, run_name="__main__")
    print({NEXT!r})
"""


def blocks(page: Path) -> list[tuple[str, str]]:
    """(language, text) of everything between fences."""
    return FENCED.findall(page.read_text())


def prose(page: Path) -> str:
    """The text without code."""
    return re.sub(r"`[^`\n]*`", "", FENCED.sub("", page.read_text()))


def programs(page: Path) -> list[tuple[str, str | None]]:
    """Python blocks, each with the text block that follows it: what it prints."""
    found = blocks(page)
    pairs = zip(found, [*found[1:], ("", "")], strict=False)
    return [(code, text if after == "text" else None) for (kind, code), (after, text) in pairs if kind == "python"]


def anchors(page: Path) -> set[str]:
    """Where a link into the page may lead: its headings, as GitHub names them."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def each_page(pages: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("page", pages, ids=lambda page: page.name)


@each_page([page for page in PAGES if programs(page)])
def test_python_blocks_run_and_print_what_is_shown(page, tmp_path):
    expected = programs(page)
    files = [tmp_path / f"block{i}" / "example.py" for i in range(len(expected))]
    for file, (code, _) in zip(files, expected, strict=True):
        file.parent.mkdir()
        file.write_text(code)
    done = subprocess.run([sys.executable, "-c", RUN, *map(str, files)], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    printed = done.stdout.split(f"{NEXT}\n")
    for (code, text), out in zip(expected, printed[:-1], strict=True):
        if "print(" in code:
            assert out == text, code


def test_the_readme_is_short_and_names_every_page():
    text = README.read_text()
    assert len(text.splitlines()) <= 250
    for page in PAGES[1:]:
        assert f"](docs/{page.name})" in text, page.name


@each_page(PAGES)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if not target.startswith("https://"):
            name, _, anchor = target.partition("#")
            there = (page.parent / name).resolve() if name else page
            assert there.is_relative_to(ROOT) and there.exists(), target
            assert not anchor or anchor in anchors(there), target


@each_page(PAGES)
def test_paths_exist(page):
    for name in re.findall(r"(?<![\w/.-])(?:flamepy|bench|tests|tools|docs)/[\w/.-]*", page.read_text()):
        assert (ROOT / name.rstrip(".")).exists(), name


@each_page(PAGES)
def test_commands_are_real(page):
    from flamepy.command.cli import cli

    shown = "".join(text for kind, text in blocks(page) if kind == "text")
    for name in re.findall(r"^flamepy (\w+)", shown, re.MULTILINE) + re.findall(r"`flamepy (\w+)[^`]*`", page.read_text()):
        assert name in cli.commands, name


def test_two_commands_start_from_nothing():
    for mark in ("train", "test"):
        command = README.read_text().split(f"<!-- {mark} command -->")[1].split("```")[1]
        assert command.startswith("bash\npython3 -m venv .venv && .venv/bin/python -m pip install")


def as_shown(said: str) -> str:
    """What pdb says, without the lines' numbers and the folders above the package."""
    said = re.sub(r"[^\s(]*?(flamepy/[\w/]+\.py|lesson\.py)(?:\(\d+\)|:\d+)", r"\1 ", said)
    said = re.sub(r"^  \S+ <listcomp>\(\)\n->.*\n", "", said, flags=re.MULTILINE)  # no frame since Python 3.12
    return re.sub(r" +$", "", said, flags=re.MULTILINE)


def test_the_session_with_a_debugger_is_true(tmp_path):
    """In core alone: nothing else of flamepy is there."""
    page = ROOT / "docs" / "architecture.md"
    (code, (_, shown)) = next(pair for pair in zip(blocks(page), blocks(page)[1:], strict=False) if pair[1][0] == "pdb")
    shutil.copytree(ROOT / "flamepy" / "core", tmp_path / "flamepy" / "core", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "flamepy" / "__init__.py").touch()
    (tmp_path / "lesson.py").write_text(code[1])
    typed = re.findall(r"^\(Pdb\) (.*)$", shown, re.MULTILINE)
    given = "".join(f"{command}\n" for command in typed)
    done = subprocess.run([sys.executable, "lesson.py"], input=given, capture_output=True, text=True, check=True, cwd=tmp_path)
    start, *answers = as_shown(done.stdout).split("(Pdb) ")
    assert start + "".join(f"(Pdb) {c}\n{a}" for c, a in zip(typed, answers, strict=True)) == shown
