"""What is said when the CPU's memory does not suffice, and that the engine works afterwards."""

from __future__ import annotations

import subprocess
import sys

import pytest
from error_text import raises

import flamepy as fp

STEPS = """
import resource
import numpy as np
import flamepy as fp
import flamepy.nn.functional as F
from flamepy import nn

m = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 8))
o = fp.SGD(m, lr=0.1)
def step(x):
    o.step(F.cross_entropy(m(x), fp.zeros((len(x),), dtype=fp.int64)).backward())
    return m(x).sum()

run, x = fp.capture(step), fp.ones(8, 64)
for i in range(3):
    step(x), run(x)
start = m.state_dict()
want = run(x).item()
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (100 << 20),) * 2)
for i in range(3):
    try:
        step(fp.ones(100_000, 64))
    except MemoryError as error:
        print(error)
m.load_state_dict(start)
print(run(x).item() == want and step(x).item() is not None)
"""


def test_the_text_names_the_call_and_what_to_do():
    what = "1,099,511,627,776 numbers of float32, 4,398,046,511,104 bytes, beside"
    with raises(MemoryError, "zeros: out of memory: ", what, "smaller batch, checkpoint(), or bfloat16"):
        fp.zeros((1 << 20, 1 << 20))
    with raises(MemoryError, "randn: out of memory: "):  # more than an address can say
        fp.randn(1 << 40, 1 << 40, dtype=fp.bfloat16)
    assert fp.ones(3).sum().item() == 3.0


@pytest.mark.skipif(sys.platform != "linux", reason="limits its own memory")
def test_a_step_that_finds_no_memory_says_so_and_the_next_one_works():
    done = subprocess.run([sys.executable, "-c", STEPS], check=False, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 4 and lines[3] == "True", done.stdout + done.stderr
    assert all([line.startswith("linear: out of memory: 25,600,000 numbers of float32, 102,400,000 bytes, beside ") for line in lines[:3]])
