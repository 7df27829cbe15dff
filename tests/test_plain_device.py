"""What is the plain device's own: its texts, read-only memory for others, and that nothing is compiled."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from launches import F4, Bench

from flamepy.backend.base import device
from flamepy.backend.formula.row_words import lane, lanes, top_and_sum
from flamepy.core.errors import DeviceError
from flamepy.words import exp


@pytest.fixture
def on():
    return Bench("plain")


def test_what_it_hands_out_is_read_only(on):
    shared = np.from_dlpack(on.device.dlpack(on.device.upload(np.zeros(6)), (2, 3)))
    with pytest.raises(ValueError, match="read-only"):
        shared[0] = 1


def test_refusals(on):
    with pytest.raises(DeviceError, match=r"no such kernel: 'softmix'. Use one of .*matmul"):
        on("softmix", [(1, F4)], [])
    with pytest.raises(DeviceError, match=r"'plain:1'\. Use 'plain'"):
        device("plain:1")
    assert on.device == "plain" and [line for line in on.device.findings() if "NumPy" in line[1]]


def softmax_row(r, y, x, rows, cols):
    top, total = top_and_sum(None, x[r * cols : (r + 1) * cols], cols)
    for j in range(lane(), cols, lanes()):
        y[r * cols + j] = exp(x[r * cols + j] - top) / total


def test_it_takes_row_bodies(on):
    (y,) = on("row", [(6, F4)], [np.linspace(-2, 2, 6, dtype=F4)], (2, 3), softmax_row)
    assert np.allclose(y.reshape(2, 3).sum(1), 1)


def test_nothing_is_compiled(on):
    code = f"""
import sys, numpy as np
from flamepy.backend.base import device
d = device({on.device.name!r}); y = d.empty(3, np.dtype("float32"))
d.launch("philox_normal", None, [y], [d.upload(np.array([1, 2, 3]))], (np.float32(0), np.float32(1)), y.dtype)
d.launch("map", lambda x: x + 1.0, [y], [y], (), y.dtype)
print(sorted(name for name in sys.modules if name.split(".")[0] in ("numba", "llvmlite")))
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
