"""No folder of the package grows unseen: each is held to its row of budgets.py."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from budgets import BUDGETS, TOTAL

ROOT = Path(__file__).parent.parent


def lines() -> Counter[str]:
    """Lines of Python in each folder of the package, without the folders inside it."""
    found: Counter[str] = Counter()
    for path in (ROOT / "flamepy").rglob("*.py"):
        found[path.parent.relative_to(ROOT).as_posix()] += len(path.read_text().splitlines())
    return found


def test_every_folder_has_a_row() -> None:
    assert set(lines()) == set(BUDGETS)  # a row without a folder goes too


@pytest.mark.parametrize("folder", sorted(BUDGETS))
def test_a_folder_keeps_to_its_budget(folder: str) -> None:
    most, buys = BUDGETS[folder]
    assert buys and lines()[folder] <= most


def test_the_package_keeps_to_its_budget() -> None:
    assert sum(lines().values()) <= TOTAL
