"""`flamepy doctor`: is this machine set up to train well? For each problem, the exact remedy.

A check is a function that yields Findings; a Finding with a remedy is a problem, and makes the exit code 1.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from itertools import starmap
from typing import NamedTuple

from ..backend.base import device
from ..backend.cpu.runtime.settings import to_set
from ..core.errors import FlameError
from ..train.lines import amount, say, whole

HOME = os.path.expanduser(os.path.join("~", ".cache", "flamepy"))
SCRATCH = os.path.join(os.environ.get("TEMP") or "/tmp", "flamepy")  # TEMP is Windows's


class Finding(NamedTuple):
    """One line of the report."""

    label: str
    value: str
    remedy: str = ""


def versions() -> Iterator[Finding]:
    from .. import __version__

    yield Finding("flamepy", __version__)
    yield Finding("python", f"{platform.python_version()} ({platform.system()} {platform.machine()})")
    for name in ("numpy", "numba", "llvmlite", "ml-dtypes", "safetensors", "filelock", "click", "rich", "matplotlib", "scikit-learn"):
        try:
            yield Finding(name, version(name))
        except PackageNotFoundError:
            extra = name == "scikit-learn"
            hint = 'only flamepy train digits needs it: pip install "flamepy[data]"'
            yield Finding(name, f"not installed ({hint})" if extra else "missing", "" if extra else f"pip install {name}")


def cpu() -> Iterator[Finding]:
    """What the backend says of itself."""
    return starmap(Finding, device("cpu").findings())


def cache() -> Iterator[Finding]:
    """Where compiled kernels are kept, and whether they can be."""
    from .cache import cache_folder, count, kernels

    try:
        folder = cache_folder()
    except FlameError as error:
        no_place = "NUMBA_CACHE_DIR" in str(error)  # else a variable is wrong, which the backend has told
        yield Finding("kernel cache", f"none ({error})", to_set("NUMBA_CACHE_DIR", SCRATCH) * no_place)
        return
    found = kernels()
    yield Finding("kernel cache", whole(folder))
    yield Finding("holds", f"{len(found.found)} kernels in {count(found.files)}")
    place = next(p for p in (folder, *folder.parents) if p.exists())
    if not os.access(place, os.W_OK):
        yield Finding("writable", "no: every process compiles again", to_set("NUMBA_CACHE_DIR", HOME))
    free = shutil.disk_usage(place).free
    yield Finding("free disk", amount(free), "flamepy cache clear, or free some space" if free < 2e8 else "")


def gpu() -> Iterator[Finding]:
    """What NVIDIA says, and whether flamepy can use it."""
    if os.environ.get("FLAMEPY_CUDA") == "emulator":
        yield from cuda()
        return
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
    yield from cuda()


def cuda() -> Iterator[Finding]:
    """What the CUDA backend says of itself, and where its kernels have been checked."""
    from .gpu.report import hardware

    try:
        found = list(device("cuda").findings())
    except FlameError as error:
        yield Finding("cuda", f"not usable from this flamepy; it trains on the CPU ({error})")
        return
    yield from starmap(Finding, found)
    yield Finding("cuda kernels", f"{hardware()}; flamepy doctor --gpu checks them here")


CHECKS = {"versions": versions, "cpu": cpu, "kernel cache": cache, "GPU": gpu}


def command() -> int:
    """Print the report; 1 if there is a problem."""
    problems = []
    for title, check in CHECKS.items():
        say(title)
        for finding in check():
            say(f"  {finding.label:<14}  {finding.value}")
            if finding.remedy:
                problems.append(finding)
    say()
    for finding in problems:
        remedy = re.sub("^[^,;(]*", lambda command: whole(command[0]), finding.remedy)  # what is to be typed comes first
        say(f"problem: {finding.label}: {finding.value}\n  remedy: {remedy}")
    say(f"{len(problems)} problem{'s' * (len(problems) != 1)} found" if problems else "no problems found")
    return 1 if problems else 0
