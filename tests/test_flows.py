"""How much of flamepy a flow enters, each counted in a new process, with the engine and without: budgets that may only shrink."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache

import pytest
from flow_tools import ROOT, Count

# A recorder stands in the place of a stream: where core's device asks it for memory, that is a climb.
# On the device "plain" what comes first, on "cpu" what is hot: a first call there also binds, or compiles, kernels.
BUDGETS = {  # (engine, device, flow): at most calls, files, climbs, depth
    ("core", "plain", "tanh, first"): Count(86, 14, 0, 13),  # to be: 25 calls, depth 8
    ("core", "plain", "tanh, hot"): Count(68, 13, 1, 13),
    ("core", "plain", "backward of tanh, sum, first"): Count(189, 25, 2, 25),
    ("core", "plain", "linear, first"): Count(101, 14, 2, 15),
    ("", "plain", "tanh, first"): Count(164, 18, 6, 16),
    ("", "plain", "backward of tanh, sum, first"): Count(201, 27, 8, 26),
    ("", "plain", "linear, first"): Count(109, 16, 3, 15),
    ("", "plain", "captured clip and AdamW, call 1"): Count(2804, 72, 117, 31),
    ("", "plain", "captured clip and AdamW, call 2"): Count(2532, 62, 128, 31),
    ("", "cpu", "tanh, hot"): Count(6, 5, 0, 3),  # to stay: 6 calls, depth 3
    ("", "cpu", "backward of tanh, sum, hot"): Count(42, 15, 5, 6),
    ("", "cpu", "linear, hot"): Count(8, 5, 0, 3),
    ("", "cpu", "captured clip and AdamW, replay"): Count(38, 17, 8, 7),  # to stay: 39 calls
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
