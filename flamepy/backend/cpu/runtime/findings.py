"""What `flamepy doctor` says of the CPU: threads and what they get of the processors, products, packed instructions.

Each line is (label, value, remedy); a remedy says that the line is a problem.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from ....core.words import exp, tanh
from ....dtypes import bfloat16, float32, float64
from ...base import device
from ...formula.bind import typed
from . import settings

LOOSE = ("NUMBA_OPT", "NUMBA_LOOP_VECTORIZE", "NUMBA_ENABLE_AVX", "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES")
SIDE = 512  # of the product that is timed: more than the nearest cache holds
QUIET = 0.75  # a process that gets less of the processors it wants shares them with others

SCALABLE = r"fm(?:la|ul|ad)\s+z\d+\.s"  # ARM's SVE: of vectors as long as the processor has them, four numbers or more

Finding = tuple[str, str, str]


def finding(label: str, value: str, remedy: str = "") -> Finding:
    return label, value, remedy


def findings() -> Iterator[Finding]:
    """All of them; where a variable stands in the way of Numba, that alone."""
    wrong = settings.trouble()
    for name, value, why in wrong:
        yield finding(name, f"'{value}' {why}", settings.to_unset(name))
    if not wrong:
        yield from threads()
        yield from kernels()
        yield from levels()
        if "NUMBA_OPT" not in os.environ:  # unoptimised code says nothing, and Numba cannot keep it
            yield from products()


def threads() -> Iterator[Finding]:
    """How many threads there can be, how many there will be, and what they get of the processors."""
    import numba

    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cgroup_quota()
    usable = here if quota is None else max(1, min(here, round(quota)))
    yield finding("processors", f"{here} usable by this process, {os.cpu_count()} in the machine")
    limit = "none: this process may use all of them" if quota is None else f"{quota:g} processors, set by a control group"
    yield finding("quota", limit)
    if "NUMBA_NUM_THREADS" in os.environ:
        yield finding("NUMBA_NUM_THREADS", os.environ["NUMBA_NUM_THREADS"])
    count = int(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
    if count > usable:
        yield finding("threads", f"{count}, more than the {usable} processors", settings.to_set("NUMBA_NUM_THREADS", usable))
    elif count < usable:
        yield finding("threads", f"{count}, fewer than the {usable} processors", settings.to_unset("NUMBA_NUM_THREADS"))
    else:
        yield finding("threads", str(count))
    yield from launches()


def launches(seconds: float = 0.2) -> Iterator[Finding]:
    """What a parallel launch costs, and whether the threads get the processors they could use."""
    from ..loops import maps
    from . import pool
    from .settings import threads as count_threads

    cpu: Any = device("cpu")
    count = count_threads()
    if pool.forked:
        yield finding("helper threads", "none: this process was forked from one that had them, and computes on one thread")
    else:
        yield finding("helper threads", f"{pool.helpers()}, beside the thread that calls")
    one, many = (cpu.upload(np.zeros(n, float32)) for n in (1, 1 << 15))
    kernel = cpu.kernel(maps.map1, exp_y, float32, many.size)
    cpu.direct.run(kernel, (many,), (many,), ())
    times = []
    for _ in range(1000):
        started = time.perf_counter()
        kernel.call(count, one.data, one.data)
        times.append(time.perf_counter() - started)
    threads = f"{count} thread{'s' * (count != 1)}"
    yield finding("empty launch", f"{median(times) * 1e6:.1f} us to start a kernel on {threads} and wait for it")
    wall, processor = time.perf_counter(), time.process_time()
    while time.perf_counter() - wall < seconds:
        cpu.direct.run(kernel, (many,), (many,), ())
    got = (time.process_time() - processor) / (time.perf_counter() - wall)
    wanted = 1 if pool.forked else count
    busy = "" if got > QUIET * wanted else ": other programs keep the machine busy, and training takes longer"
    yield finding("processor time", f"got {got:.1f} of {wanted} processors{busy}")


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
    from . import processor

    yield finding("processor", processor.cpu_name())
    for name in LOOSE:
        if name in os.environ:
            yield finding(name, os.environ[name], settings.to_unset(name))
    for name, formula in (("exp", exp_y), ("tanh", tanh_y)):
        text = assembly(formula)
        lanes = vector_lanes(text)
        if lanes > 1:
            least = "at least " if re.search(SCALABLE, text) else ""
            yield finding(name, f"vectorised: {least}{lanes} numbers at once")
        else:
            remedy = "pip install --upgrade numba llvmlite, then flamepy cache clear; if it stays, report this output"
            yield finding(name, "scalar: about ten times slower than it could be", remedy)


def products(seconds: float = 0.02) -> Iterator[Finding]:
    """The register tile that products of each type are made of, and how near one core comes to the most it can do."""
    from ..bf16 import tiles
    from . import peak, processor

    how = "fused multiply-adds" if processor.fuses() else "no fused multiply-adds"
    for dtype in (float32, float64):
        size, tile = dtype.itemsize, processor.tile(dtype.itemsize)
        most, got = (peak.rate(*job, seconds) for job in (peak.chains(size), peak.product(size, SIDE)))
        route = f"tiles of {tile.rows} rows x {tile.across} vectors of {tile.lanes} numbers, {how}"
        yield finding(str(dtype), f"a product of {SIDE} x {SIDE} reaches {got:.0f} of {most:.0f} GFLOP/s of one core ({route})")
    yield finding(str(bfloat16), tiles.fact())


def levels() -> Iterator[Finding]:
    """What set_float32_matmul_precision() chooses among here."""
    from ..bf16 import lower

    yield finding("precision", f"float32 products at {lower.fact()}")


def assembly(formula: Any) -> str:
    """The machine code of map1 with `formula`, compiled now as compiler.py would (a cached kernel keeps no text)."""
    from ..loops import maps
    from . import compiler

    function = typed(maps.map1, float32, compiler.DIALECT, True, formula)
    kernel = compiler.jit_alone(function)
    kernel((0, 1), np.empty(1, float32), np.zeros(1, float32))
    return "\n".join(kernel.inspect_asm().values())


def vector_lanes(text: str) -> int:
    """How many float32 numbers the multiplications of some assembly handle at once, or how many at least; 1 if they call a scalar exp or
    tanh."""
    if re.search(r"[\s$](expf|tanhf)\b", text):
        return 1
    for pattern, lanes in ((r"v?f?n?m(?:add|ul)\w*ps\s.*%zmm", 16), (r"v?f?n?m(?:add|ul)\w*ps\s.*%ymm", 8),
                           (r"v?f?n?m(?:add|ul)\w*ps\s.*%xmm", 4), (r"fm(?:la|ul)\S*\s+v\d+\.4s", 4), (SCALABLE, 4)):  # fmt: skip
        if re.search(pattern, text):
            return lanes
    return 1
