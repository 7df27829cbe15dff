"""Launches on the emulated GPU by name, and the machine code of what they ran.

Read next: test_cuda_attention.py, test_cuda_conv.py.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flamepy.dtypes import computed, float64

FLOAT64 = {"DADD", "DMUL", "DFMA", "DSETP"}
LOCAL = ("LDL", "STL")  # local memory
TARGETS = (8, 0), (9, 0), (10, 0)
FAR = re.compile(r"CALL\S* `\((?:\.L|__cuda_sm70).*")  # what sm_80 writes as calls: far jumps, and where the lanes of a warp meet again


def up(gpu: Any, x: np.ndarray | None, at: int = 0) -> Any:
    """A buffer with these numbers, `at` elements into another."""
    if x is None:
        return None
    flat = np.ascontiguousarray(x).reshape(-1)
    return gpu.slot(gpu.upload(np.concatenate([flat[:1].repeat(at), flat])), at * x.dtype.itemsize, x.size, x.dtype)


def launch(gpu: Any, name: str, outs: Any, ins: Any, consts: Any, at: int = 0) -> list[Any]:
    """What the outs, each (size, dtype) or None, hold afterwards: 7 where nothing was written."""
    made = [None if o is None else up(gpu, np.full(o[0], 7, np.float32).astype(o[1]), at) for o in outs]
    wide = any(x is not None and x.dtype == float64 for x in ins)
    gpu.launch(name, None, made, [up(gpu, x, at) for x in ins], consts, computed(float64 if wide else np.dtype(np.float32)))
    return [None if b is None else np.array(gpu.download(b)) for b in made]


def close(found: Any, exact: Any, least: float) -> None:
    """Within `least` of the largest number."""
    exact = np.asarray(exact, np.float64).reshape(-1)
    apart = np.abs(np.asarray(found, np.float64).reshape(-1) - exact).max(initial=0)
    assert apart <= least * max(1e-3, np.abs(exact).max(initial=0)), apart


def machine_code(gpu: Any, tmp_path: Path, starts: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    """(name, what ptxas says, instructions) of every kernel that this device has run and whose name begins so; those of the tensor cores
    in bfloat16 for three GPUs (in float16 they differ by the instructions' names)."""
    pathfinder = pytest.importorskip("cuda.pathfinder")
    tool = pathfinder.find_nvidia_binary_utility("nvdisasm")
    if tool is None:
        pytest.skip("nvdisasm is not installed: pip install nvidia-cuda-nvdisasm")
    for kernel in [k for k in gpu.kernels.values() if k.name.startswith(starts)]:
        for kinds in kernel.variants:
            binary = kernel.binary(kinds)
            older = [] if binary.given else TARGETS[:1]  # these have other kernels than those with much shared memory
            three = "_mma" in kernel.name and "float16" not in binary.name.replace("bfloat16", "")
            for cc in (*older, *TARGETS[1:]) if three else TARGETS[1:2]:
                ptx = binary.ptx if cc >= binary.cc else binary.ptx.replace(".target sm_90", ".target sm_80")
                code, log = binary._replace(ptx=ptx, cc=cc, digest=f"{binary.digest}-{cc[0]}").cubin()
                file = tmp_path / "kernel.cubin"
                file.write_bytes(code)
                text = subprocess.run([tool, "-c", str(file)], capture_output=True, text=True, check=True).stdout
                yield f"{binary.name} for {cc}", log, FAR.sub("", text)


def instructions(text: str) -> set[str]:
    """The names of a listing's instructions."""
    return set(re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)", text))


def check_code(gpu: Any, tmp_path: Path, wants: dict[str, str], sums: tuple[str, ...] = ()) -> None:
    """Kernels whose names begin like one of `wants` have no spills, no local memory and no calls, and that instruction, but those of
    float64, whose divisions are calls; kernels of float32 have no float64, but where `sums` names them."""
    checked = set()
    for name, log, text in machine_code(gpu, tmp_path, tuple(wants)):
        start, names = next(w for w in wants if name.startswith(w)), instructions(text)
        assert "0 bytes spill stores" in log, name
        assert not any(n.startswith(LOCAL) for n in names), name
        if "float64" not in name:
            checked.add(start)
            assert "CALL" not in names, name
            assert wants[start] in names, name
            assert any(s in name for s in sums) or not names & FLOAT64, name
    assert checked == set(wants)
