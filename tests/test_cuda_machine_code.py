"""Machine code of every kernel that training steps launch on a GPU: a GPT in float32 and in bfloat16, a CNN, all optimizers.

All variants are compiled for sm_90; one of each kernel function is assembled for sm_80 and sm_100, too (see cuda_steps.py). Three processes
share the work and leave what they made on disk: the second time nothing is compiled. What is wanted was read off the kernels' purpose:
16-byte accesses where numbers are only moved, HMMA where 16-bit numbers are multiplied, no float64 beside float32 but in sums that say so.
"""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: pip install 'flamepy[cuda-emulator]'")
STEPS = ("gpt",), ("gpt_bfloat16",), ("cnn", "optimizers", "half_optimizers")
# Sums over many blocks' parts, and a batch's mean: few numbers, added up in float64, as their files say.
WIDE_SUMS = "batch_loss", "add_parts", "plane_sums", "add_totals", "add_chunks", "add_ends", "row_sums_"
# The slow paths of division and square root of float64: in kernels that have it.
SLOW_PATHS = {"__cuda_sm20_div_rn_f64_full", "__cuda_sm20_dblrcp_rn_slowpath_v3", "__cuda_sm20_dsqrt_rn_f64_mediumpath_v1"}
VECTORS = "map_runs_", "span_scale_float32", "span_update_"


def made(steps: tuple[str, ...]) -> list[dict[str, Any]]:
    file = Path(__file__).with_name("cuda_steps.py")
    done = subprocess.run([sys.executable, str(file), *steps], capture_output=True, text=True, check=False, cwd=file.parent.parent)
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def kernels() -> list[dict[str, Any]]:
    with ThreadPoolExecutor(2) as pool:
        return [k for lines in pool.map(made, STEPS) for k in lines[:-1]]


def check(kernels: list[dict[str, Any]], holds: Any) -> None:
    """holds(kernel) for all of them."""
    assert not [(k["source"], k["name"], k["arch"], k) for k in kernels if not holds(k)]


def test_every_target_is_there(kernels):
    assert {k["arch"] for k in kernels} == {"sm_80", "sm_90", "sm_100"}
    found = {k["source"] for k in kernels}
    wanted = {"map_runs", "span_update", "plain_small", "plain_large", "norm_factor"}
    assert wanted | {"tensor_small_64_3_1_49152_0", "tensor_large_64_3_1_98304_0"} <= found
    assert len({k["name"] for k in kernels}) > 80


def test_nothing_spills_and_nothing_is_outside(kernels):
    assert all(0 < k["registers"] <= 255 for k in kernels)
    check(kernels, lambda k: k["spills"] == 0)
    check(kernels, lambda k: k["local"] == 0 and not {op.split(".")[0] for op in k["opcodes"]} & {"LDL", "STL"})
    assert not [k["name"] for k in kernels if k["extern"]]


def test_nothing_is_called(kernels):
    """But slow paths of float64, where float64 is wanted."""
    check(kernels, lambda k: not set(k["calls"]) - (SLOW_PATHS if is_wide(k) else set()))


def is_wide(k: dict[str, Any]) -> bool:
    return k["name"].endswith("_float64") or k["source"].startswith(WIDE_SUMS)


def test_float32_kernels_hold_no_float64(kernels):
    wide = {"DADD", "DMUL", "DFMA"}
    assert not [k["name"] for k in kernels if not is_wide(k) and {op.split(".")[0] for op in k["opcodes"]} & wide]
    for source in WIDE_SUMS:  # each earns its place
        assert any({op.split(".")[0] for op in k["opcodes"]} & wide for k in kernels if k["source"].startswith(source)), source


def test_vectors_go_by_16_bytes(kernels):
    kernels = [k for k in kernels if {"bool", "bfloat16"}.isdisjoint(k["dtypes"])]
    meant = [k for k in kernels if k["name"].startswith(VECTORS) and "float32" in k["dtypes"] and not is_wide(k)]  # those are few numbers
    assert len({k["name"] for k in meant}) > 12
    for k in meant:
        assert k["arrays"] == 1 or any(op.startswith("LDG.E") and ".128" in op for op in k["opcodes"]), k  # to fill is not to read
        assert any(op.startswith("STG.E") and ".128" in op for op in k["opcodes"]), k


def test_16_bit_products_are_tensor_products(kernels):
    meant = [k for k in kernels if k["source"].startswith(("tensor_", "attention_mma"))]
    assert {k["source"].split("_")[0] for k in meant} == {"tensor", "attention"}
    assert not [k["name"] for k in meant if not any(op.startswith("HMMA") for op in k["opcodes"])]
    assert not [k["name"] for k in kernels if k["source"].startswith("plain_") and any(op.startswith("HMMA") for op in k["opcodes"])]


def test_a_second_process_compiles_nothing(kernels):
    assert made(("cnn",))[-1] == {"compiled": []}
