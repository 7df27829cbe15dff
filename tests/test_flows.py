"""How much of flamepy a flow enters, each counted in a new process, with the engine and without: budgets that may only shrink."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache

import pytest
from flow_tools import ROOT, Count

# The device "plain" that may be recorded stands in backend/: where core asks it for memory, or for a launch, that is a climb.
# So is what core asks of the engine through the door: a spec that is made once and kept, a number.
# On the device "plain" what comes first, on "cpu" what is hot: a first call there also binds, or compiles, kernels.
BUDGETS = {  # (engine, device, flow): at most calls, files, climbs, depth
    ("core", "plain", "tanh, first"): Count(24, 11, 4, 8),  # to stay: at most 25 calls, depth 8
    ("core", "plain", "tanh, hot"): Count(20, 9, 4, 8),
    ("core", "plain", "backward of tanh, sum, first"): Count(127, 29, 11, 21),
    ("core", "plain", "linear, first"): Count(52, 18, 6, 11),
    ("", "plain", "tanh, first"): Count(119, 16, 7, 15),
    ("", "plain", "backward of tanh, sum, first"): Count(138, 33, 17, 26),  # functions made of ops look for their route
    ("", "plain", "linear, first"): Count(61, 21, 7, 13),
    ("", "plain", "captured clip and AdamW, call 1"): Count(2374, 81, 125, 32),
    ("", "plain", "captured clip and AdamW, call 2"): Count(2609, 70, 120, 32),
    ("", "cpu", "tanh, hot"): Count(6, 5, 0, 3),  # to stay: 6 calls, depth 3
    ("", "cpu", "backward of tanh, sum, hot"): Count(40, 16, 5, 6),
    ("", "cpu", "linear, hot"): Count(8, 5, 0, 3),
    ("", "cpu", "captured clip and AdamW, replay"): Count(36, 15, 6, 7),  # to stay: 39 calls
}


@cache
def counted(engine: str, device: str) -> dict[str, list[int]]:
    command = [sys.executable, str(ROOT / "tests" / "flow_tools.py"), device]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "FLAMEPY_ENGINE": engine}, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


@pytest.mark.parametrize(("engine", "device", "flow"), list(BUDGETS), ids=" ".join)
def test_a_flow_keeps_to_its_budget(engine: str, device: str, flow: str) -> None:
    found, most = Count(*counted(engine, device)[flow]), BUDGETS[engine, device, flow]
    assert all(n <= limit for n, limit in zip(found, most, strict=True)), f"{found}, at most {most}"
