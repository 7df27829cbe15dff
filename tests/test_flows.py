"""How much of flamepy a flow enters, each counted in a new process: a table of budgets that may only shrink."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache

import pytest
from flow_tools import ROOT, Count

# On the device "plain" what comes first, on "cpu" what is hot: a first call there also binds, or compiles, kernels.
BUDGETS = {  # (device, flow): at most calls, files, climbs, depth
    ("plain", "tanh, first"): Count(165, 18, 7, 16),  # to be: 25 calls, depth 8
    ("plain", "backward of tanh, sum, first"): Count(192, 26, 15, 25),
    ("plain", "linear, first"): Count(116, 13, 4, 14),
    ("plain", "captured clip and AdamW, call 1"): Count(2800, 65, 130, 30),
    ("plain", "captured clip and AdamW, call 2"): Count(2630, 56, 156, 31),
    ("cpu", "tanh, hot"): Count(6, 5, 0, 3),  # to stay: 6 calls, depth 3
    ("cpu", "backward of tanh, sum, hot"): Count(42, 12, 4, 6),
    ("cpu", "linear, hot"): Count(8, 5, 0, 3),
    ("cpu", "captured clip and AdamW, replay"): Count(39, 16, 10, 7),  # to stay: 39 calls
}


@cache
def counted(device: str) -> dict[str, list[int]]:
    command = [sys.executable, str(ROOT / "tests" / "flow_tools.py"), device]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


@pytest.mark.parametrize(("device", "flow"), list(BUDGETS), ids=" ".join)
def test_a_flow_keeps_to_its_budget(device: str, flow: str) -> None:
    found, most = Count(*counted(device)[flow]), BUDGETS[device, flow]
    assert all(n <= limit for n, limit in zip(found, most, strict=True)), f"{found}, at most {most}"
