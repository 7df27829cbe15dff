"""Launches on the emulated GPU by name, and the machine code of what they ran."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import elf_tools
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


def gpu_like(cc: tuple[int, int], runs: bool = True) -> tuple[Any, list[Any]]:
    """(an emulated GPU of this compute capability, the list of kernels it will load); one that runs nothing only loads them."""
    driver: Any = import_module("flamepy.backend.cuda.runtime.emulated").Driver()
    driver.cc, found, load = cc, [], driver.load
    driver.load = lambda binary: found.append(binary) or load(binary)
    if not runs:
        driver.run = lambda *_: None
    return import_module("flamepy.backend.cuda.device").CudaDevice(driver, 0), found


def by_ptxas(binary: Any) -> str:
    """What the ptxas of a toolkit says, which is of another version than nvJitLink's; "" where no toolkit of CUDA 13 is installed."""
    tool = pytest.importorskip("cuda.pathfinder").find_nvidia_binary_utility("ptxas")
    if tool is None:
        return ""
    ptx = re.sub(r"\.version \d+\.\d+", ".version 9.0", binary.ptx, count=1)  # what 13.0 reads
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kernel.ptx").write_text(ptx)
        arch = name_of(binary.cc) + "a" * (".target sm_90a" in ptx)
        command = [tool, "-v", f"-arch={arch}", "kernel.ptx", "-o", "kernel.cubin"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0 or "Unsupported .version" in done.stderr, done.stderr
    return "" if done.returncode else done.stderr


def name_of(cc: tuple[int, int]) -> str:
    return f"sm_{cc[0]}{cc[1]}"


def for_gpu(binary: Any, cc: tuple[int, int]) -> Any:
    """A kernel for another GPU, under the name that all tests give it: its machine code is made once a run."""
    if cc == binary.cc:
        return binary
    ptx = binary.ptx if cc > binary.cc else binary.ptx.replace(".target sm_90", ".target sm_80")
    return binary._replace(ptx=ptx, cc=cc, digest=f"{binary.digest}-{name_of(cc)}")


def needs_nvdisasm() -> None:
    if pytest.importorskip("cuda.pathfinder").find_nvidia_binary_utility("nvdisasm") is None:
        pytest.skip("nvdisasm is not installed: pip install nvidia-cuda-nvdisasm")


def listings(binaries: Sequence[Any]) -> list[tuple[str, str]]:
    """(what ptxas says, instructions) of each kernel."""
    needs_nvdisasm()
    made = [binary.cubin() for binary in binaries]
    found: list[Any] = [None] * len(made)
    for cc in {binary.cc for binary in binaries}:
        own = [i for i, binary in enumerate(binaries) if binary.cc == cc]
        for i, text in zip(own, elf_tools.listings([made[i][0] for i in own]), strict=True):
            found[i] = made[i][1], FAR.sub("", text)
    return found


def machine_code(gpu: Any, starts: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    """(name, what ptxas says, instructions) of every kernel that this device has run and whose name begins so; those of the tensor cores
    in bfloat16 for three GPUs (in float16 they differ by the instructions' names)."""
    chosen = []
    for kernel in [k for k in gpu.kernels.values() if k.name.startswith(starts)]:
        for kinds in kernel.variants:
            binary = kernel.binary(kinds)
            older = [] if "_mma_128_2_" in kernel.name else TARGETS[:1]  # these have another kernel for the widest rows
            three = "_mma" in kernel.name and "float16" not in binary.name.replace("bfloat16", "")
            chosen += [for_gpu(binary, cc) for cc in ((*older, *TARGETS[1:]) if three else TARGETS[1:2])]
    for binary, found in zip(chosen, listings(chosen), strict=True):
        yield f"{binary.name} for {binary.cc}", *found


def instructions(text: str) -> set[str]:
    """The names of a listing's instructions."""
    return set(re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)", text))


def check_code(gpu: Any, wants: dict[str, str], sums: tuple[str, ...] = ()) -> None:
    """Kernels whose names begin like one of `wants` have no spills, no local memory and no calls, and that instruction, but those of
    float64, whose divisions are calls; kernels of float32 have no float64, but where `sums` names them."""
    checked = set()
    for name, log, text in machine_code(gpu, tuple(wants)):
        start, names = next(w for w in wants if name.startswith(w)), instructions(text)
        assert "0 bytes spill stores" in log, name
        assert not any(n.startswith(LOCAL) for n in names), name
        if "float64" not in name:
            checked.add(start)
            assert "CALL" not in names, name
            assert wants[start] in names, name
            assert any(s in name for s in sums) or not names & FLOAT64, name
    assert checked == set(wants)
