"""The bus (core/changes.py, bus.py): few names, no listeners where nothing is recorded, nobody above the engine who switches streams."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from thread_tools import at_once

import flamepy as fp
import flamepy.nn as nn
from flamepy import bus
from flamepy.engine.kept import rounded

ROOT = Path(__file__).parent.parent / "flamepy"
NAMES = {"Topic", "Settings", "Before", "Here", "changed", "settings", "before", "seen", "assigned", "heard", "outside", "here"}
QUIET = (bus.seen, bus.assigned, bus.outside, rounded)


def importers(module: str, *names: str) -> set[str]:
    """Files that import a module of flamepy's, or these names of it."""
    found = set()
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                taken = {a.name for a in node.names}
                whole = not names and module in taken
                if whole or ((node.module or "").split(".")[-1] == module and (not names or taken & {*names})):
                    found.add(path.relative_to(ROOT).as_posix())
    return found


def test_the_bus_has_few_names() -> None:
    own = {name for name, x in vars(bus).items() if getattr(x, "__module__", "") in (bus.__name__, "flamepy.core.changes")}
    assert own == NAMES  # one more is one more thing to know for everybody who writes a setting


def test_only_the_engine_and_backends_switch_streams() -> None:
    assert {path.partition("/")[0] for path in importers("recorder", "divert")} <= {"engine", "backend"}


def test_hardly_anybody_asks_which_step_is_recorded() -> None:
    asking = {path for path in importers("bus", "here") if not path.startswith("engine/")}
    assert asking == {"accumulation/accumulator.py", "regularizer/pipeline.py"}  # what begins in one step must not go on in another


def test_nobody_listens_but_while_a_step_is_recorded() -> None:
    assert not any(QUIET)
    heard: list[Any] = []

    def step(x: fp.Tensor) -> fp.Tensor:
        heard.append([len(topic) for topic in QUIET])
        if len(heard) > 1:
            raise KeyError("as a step may")
        return x * 2.0

    run = fp.capture(step)
    run(fp.ones(3))
    with pytest.raises(KeyError):
        run(fp.ones(3))
    assert heard == [[1] * len(QUIET)] * 2 and not any(QUIET) and bus.here.step == 0


def test_threads_hear_of_their_own_steps_alone() -> None:
    def work() -> None:
        layer = nn.Linear(3, 2)
        other = nn.Linear(3, 2)

        def step(x: fp.Tensor) -> fp.Tensor:
            return layer(x).sum()

        run, x = fp.capture(step), fp.ones(4, 3)
        for _ in range(6):
            other(x)
            run(x)
        (kind,) = next(iter(run.kinds.values()))
        owners = [guard.owner for guard, _, _ in kind.guards]
        assert any(owner is layer for owner in owners) and not any(owner is other for owner in owners)

    work()  # what calls need is made once
    at_once(work)
    assert not any(QUIET)


def test_a_change_has_another_version_and_knows_whose_it_is() -> None:
    heard: list[Any] = []
    bus.changed.append(heard.append)
    try:
        before = bus.settings.version
        p = fp.Parameter([1.0])
        p.requires_grad_(False)
        assert heard == [p, p] and heard[0] is p and bus.settings.version not in (before, 0)
    finally:
        bus.changed.remove(heard.append)


def test_who_leaves_while_a_topic_is_told_takes_nobody_elses_turn() -> None:
    topic, found = bus.Topic(), []
    leaving = lambda what: topic.remove(leaving)  # as another thread may, at that moment
    topic += [leaving, found.append]
    topic("it")
    assert found == ["it"] and len(topic) == 1
