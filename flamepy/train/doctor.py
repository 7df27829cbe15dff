"""`flamepy doctor`: is this machine set up to train well? For each problem, the exact remedy.

A check is a function that yields Findings; a Finding with a remedy is a problem, and makes the exit code 1.

May import: errors, backend. FLAME counterpart: none. Read next: kernel_cache.py.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from ..backend import template
from ..backend.base import device, float32
from ..backend.words import exp, tanh
from ..errors import FlameError

LOOSE = ("NUMBA_DISABLE_JIT", "NUMBA_OPT", "NUMBA_LOOP_VECTORIZE", "NUMBA_ENABLE_AVX", "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES")
QUIET = 0.75  # a process that gets less of the processors it wants shares them with others


class Finding(NamedTuple):
    """One line of the report."""

    label: str
    value: str
    remedy: str = ""


def versions() -> Iterator[Finding]:
    from .. import __version__

    yield Finding("flamepy", __version__)
    yield Finding("python", f"{platform.python_version()} ({platform.system()} {platform.machine()})")
    for name in ("numpy", "numba", "llvmlite", "safetensors", "matplotlib", "scikit-learn"):
        try:
            yield Finding(name, version(name))
        except PackageNotFoundError:
            extra = name == "scikit-learn"
            hint = 'only flamepy train digits needs it: pip install "flamepy[data]"'
            yield Finding(name, f"not installed ({hint})" if extra else "missing", "" if extra else f"pip install {name}")


def threads() -> Iterator[Finding]:
    """How many threads there can be, how many there will be, and what they get of the processors."""
    import numba

    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cgroup_quota()
    usable = here if quota is None else max(1, min(here, round(quota)))
    yield Finding("processors", f"{here} usable by this process, {os.cpu_count()} in the machine")
    yield Finding("quota", "none" if quota is None else f"{quota:g} processors (control group)")
    if "NUMBA_NUM_THREADS" in os.environ:
        yield Finding("NUMBA_NUM_THREADS", os.environ["NUMBA_NUM_THREADS"])
    count = int(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
    if count > usable:
        yield Finding("threads", f"{count}, more than the {usable} processors", f"export NUMBA_NUM_THREADS={usable}")
    elif count < usable:
        yield Finding("threads", f"{count} of {usable}", "unset NUMBA_NUM_THREADS to use every processor")
    else:
        yield Finding("threads", str(count))
    yield from launches()
    yield from blas()


def launches(seconds: float = 0.2) -> Iterator[Finding]:
    """What a parallel launch costs, and whether the threads get the processors they could use."""
    from ..backend.cpu import pool
    from ..backend.cpu.device import threads

    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        return
    cpu, count = device("cpu"), threads()
    if pool.forked:
        yield Finding("helpers", "none: this process was forked from one that had them, and computes on one thread")
    else:
        yield Finding("helpers", f"{pool.helpers()} beside the thread that calls")
    kernel = cpu.kernel("map1", exp_y, float32)
    one, many = (cpu.upload(np.zeros(n, float32)) for n in (1, 1 << 15))
    cpu.stream.run1(kernel, many, many)  # type: ignore[attr-defined]
    times = []
    for _ in range(1000):
        started = time.perf_counter()
        kernel.call(count, one.data, one.data)  # type: ignore[attr-defined]
        times.append(time.perf_counter() - started)
    yield Finding("empty launch", f"{median(times) * 1e6:.1f} us on {count} thread{'s' * (count != 1)}")
    wall, processor = time.perf_counter(), time.process_time()
    while time.perf_counter() - wall < seconds:
        cpu.stream.run1(kernel, many, many)  # type: ignore[attr-defined]
    got = (time.process_time() - processor) / (time.perf_counter() - wall)
    wanted = 1 if pool.forked else count
    busy = "" if got > QUIET * wanted else ": the machine is busy, other programs want them too, and training takes longer"
    yield Finding("processor time", f"{got:.1f} of {wanted} processors{busy}")


def blas() -> Iterator[Finding]:
    """The BLAS libraries in this process. flamepy's own must have one thread: its loops bring the others."""
    from threadpoolctl import threadpool_info

    from ..backend.cpu import blas as own  # noqa: F401  loads flamepy's private OpenBLAS

    found = [i for i in threadpool_info() if i.get("user_api") == "blas"]
    for info in found:
        file = Path(info["filepath"])
        private = "scipy_openblas32" in file.parts
        text = f"{info['internal_api']} {info.get('version')}, {info.get('architecture', '?')}, {info['num_threads']} thread(s)"
        name = "BLAS, ours" if private else "BLAS, NumPy's" if "numpy" in str(file) else "BLAS, other"
        bad = private and info["num_threads"] != 1
        yield Finding(name, text, "unset OPENBLAS_NUM_THREADS; nothing else may raise it" if bad else "")


def cgroup_quota(root: Path = Path("/")) -> float | None:
    """How many processors the control group may use (the smallest limit on the way up), or None."""
    limits: list[float] = []
    names: tuple[str, ...]
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base, names = root / "sys/fs/cgroup", ("cpu.max",)
        elif "cpu" in controllers.split(","):
            base, names = root / "sys/fs/cgroup/cpu", ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        else:
            continue
        place = base / path.lstrip("/")
        for folder in (place, *place.parents):
            try:
                words = " ".join((folder / name).read_text() for name in names).split()
            except OSError:
                words = []
            if len(words) == 2 and words[0].isdigit() and int(words[1]) > 0:
                limits.append(int(words[0]) / int(words[1]))
            if folder == base:
                break
    return min(limits, default=None)


def exp_y(x):  # type: ignore[no-untyped-def]  # a formula, as in ops/
    return exp(x)


def tanh_y(x):  # type: ignore[no-untyped-def]
    return tanh(x)


def kernels() -> Iterator[Finding]:
    """Are exp and tanh compiled to packed instructions? Scalar calls would be ten times slower."""
    import llvmlite.binding as llvm

    yield Finding("processor", llvm.get_host_cpu_name())
    for name in LOOSE:
        if name in os.environ:
            yield Finding(name, os.environ[name], f"unset {name}")
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        return
    for name, formula in (("exp", exp_y), ("tanh", tanh_y)):
        lanes = vector_lanes(assembly(formula))
        if lanes > 1:
            yield Finding(name, f"vectorised, {lanes} numbers at once")
        else:
            remedy = "pip install --upgrade numba llvmlite, then flamepy cache clear; if it stays, report this output"
            yield Finding(name, "scalar: about ten times slower than it could be", remedy)


def assembly(formula: Any) -> str:
    """The machine code of map1 with `formula`, compiled now as compiler.py would (a cached kernel keeps no text)."""
    import numba

    from ..backend.cpu import compiler, loops

    function = template.typed(loops.map1, float32, compiler.DIALECT, True, formula)
    kernel = numba.njit(error_model="numpy", fastmath=compiler.LOOP_MATH)(function)
    kernel((0, 1), np.empty(1, float32), np.zeros(1, float32))
    return "\n".join(kernel.inspect_asm().values())


def vector_lanes(text: str) -> int:
    """How many float32 numbers the multiplications of some assembly handle at once; 1 if they call a scalar exp or tanh."""
    if re.search(r"[\s$](expf|tanhf)\b", text):
        return 1
    for pattern, lanes in ((r"v?f?n?m(?:add|ul)\w*ps\s.*%zmm", 16), (r"v?f?n?m(?:add|ul)\w*ps\s.*%ymm", 8),
                           (r"v?f?n?m(?:add|ul)\w*ps\s.*%xmm", 4), (r"fm(?:la|ul)\S*\s+v\d+\.4s", 4)):  # fmt: skip
        if re.search(pattern, text):
            return lanes
    return 1


def cache() -> Iterator[Finding]:
    """Where compiled kernels are kept, and whether they can be."""
    from .kernel_cache import cache_folder, entries, megabytes, total

    try:
        folder = cache_folder()
    except AttributeError:  # NUMBA_DISABLE_JIT
        yield Finding("cache", "none: nothing is compiled")
        return
    except RuntimeError as error:
        yield Finding("cache", f"no place for it: {error}", "export NUMBA_CACHE_DIR=$HOME/.cache/flamepy")
        return
    found = entries()
    yield Finding("cache", str(folder))
    yield Finding("holds", total(found))
    place = next(p for p in (folder, *folder.parents) if p.exists())
    if not os.access(place, os.W_OK):
        yield Finding("writable", "no: every process compiles again", "export NUMBA_CACHE_DIR=$HOME/.cache/flamepy")
    free = shutil.disk_usage(place).free
    yield Finding("free disk", megabytes(free), "flamepy cache clear, or free some space" if free < 2e8 else "")


def gpu() -> Iterator[Finding]:
    """What NVIDIA says, and whether flamepy can use it."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        yield Finding("GPU", "none found; flamepy trains on the CPU")
        return
    if answer.returncode:
        reason = (answer.stdout or answer.stderr).strip().splitlines()
        yield Finding(
            "GPU", f"nvidia-smi fails: {reason[0] if reason else 'no reason given'}", "reinstall the NVIDIA driver, then run nvidia-smi"
        )
        return
    for line in answer.stdout.strip().splitlines():
        yield Finding("GPU", line)
    try:
        device("cuda")
        yield Finding("cuda", "usable: --device cuda")
    except FlameError as error:
        yield Finding("cuda", f"not usable from this flamepy; it trains on the CPU ({error})")


CHECKS = {"versions": versions, "threads": threads, "kernels": kernels, "cache": cache, "GPU": gpu}


def command() -> int:
    """Print the report; 1 if there is a problem."""
    problems = []
    for title, check in CHECKS.items():
        print(title)
        for finding in check():
            print(f"  {finding.label:<14}  {finding.value}")
            if finding.remedy:
                problems.append(finding)
        sys.stdout.flush()
    print()
    for finding in problems:
        print(f"problem: {finding.label}: {finding.value}\n  remedy: {finding.remedy}")
    print(f"{len(problems)} problem{'s' * (len(problems) != 1)} found" if problems else "no problems found")
    return 1 if problems else 0
