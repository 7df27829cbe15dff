"""What a suite is made of: works, and jobs that do them; which contenders there are, and which of them can run here.

A suite is a module with

    OURS           who is timed: "flamepy" (in control.py: "numpy")
    AGAINST        contenders it knows; DEFAULT: those taken when --against is not given
    WORKS          name -> Work
    ALONE          a new process for every work (its memory is then its own)
    THREADS        only where that is less than everybody's: how many threads it is about
    TOLERANCE      largest difference allowed, relative to the largest number; or one for each output
    CONTROL        the suite of its ceilings, where that is not `control`
    build(contender, work, mode) -> Job     called in the contender's process
    peak_mb(contender)                      there, too: memory on a device of its own, at most since build()
    verify(work, outputs)                   called here; raises Disagree unless the oracle agrees
    agree(work, outputs, others)            the same for two contenders; left out where TOLERANCE says it
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

SUITES = ("kernels", "ops", "products", "dispatch", "optim", "transforms", "step", "control", "gpu")
MODES = ("eager", "replay")


class Disagree(Exception):
    """Two results differ: no speed may be shown."""


class Work(NamedTuple):
    """One thing that is timed. `flops` and `nbytes` (read and written) of one call; `per`: how many ops a call makes, when the
    time of one op is what counts; `ceiling`: the work of suite `control` with the most arithmetic a second; `shared`: contenders do it
    too, or only those in `against`."""

    name: str
    flops: float = 0.0
    nbytes: float = 0.0
    per: int = 1
    modes: tuple[str, ...] = ("eager",)
    ceiling: str = "sgemm"
    shared: bool = True
    against: tuple[str, ...] = ()


@dataclass
class Job:
    """`run` is what is timed; `outputs` turns its result into arrays; the first `calls` results are compared."""

    run: Callable[[], Any]
    outputs: Callable[[Any], list[Any]]
    calls: int = 1


class Contender(NamedTuple):
    title: str
    module: str
    remedy: str


INSTALL = 'pip install "flamepy[bench]"'
CONTENDERS = {
    "torch": Contender("PyTorch eager", "torch", INSTALL),
    "torch-compile": Contender("torch.compile", "torch", INSTALL),
    "jax": Contender("JAX jit", "jax", INSTALL),
}


def missing(contender: str) -> str:
    """Why this contender cannot run here; empty if it can."""
    found = CONTENDERS.get(contender)
    if found is None:
        return ""
    if importlib.util.find_spec(found.module) is None:
        return f"{found.title} skipped: {found.module} is not installed. {found.remedy}"
    if contender == "torch-compile" and not any(map(shutil.which, (os.environ.get("CXX", "g++"), "g++", "clang++", "cl"))):
        return f"{found.title} skipped: it needs a C++ compiler. Install g++ or clang++ (on Windows: cl)."
    return ""


def suite_of(name: str) -> Any:
    """The module of a suite."""
    return importlib.import_module(f".{name}", __package__)


def distance(got: Any, expected: Any) -> float:
    """The largest difference of two arrays, by the largest number in `expected`."""
    a, b = np.asarray(got, np.float64), np.asarray(expected, np.float64)
    return float(np.abs(a - b).max(initial=0.0) / max(np.abs(b).max(initial=0.0), 1e-30))


def near(what: str, got: Any, expected: Any, tolerance: float) -> None:
    """Raise Disagree unless two arrays are equal up to `tolerance` of the largest number in `expected`."""
    if np.shape(got) != np.shape(expected):
        raise Disagree(f"{what}: shape {np.shape(got)}, expected {np.shape(expected)}")
    error = distance(got, expected)
    if not error <= tolerance:
        raise Disagree(f"{what}: relative difference {error:.1e}, allowed {tolerance:.0e}")


def close(got: list[Any], expected: list[Any], tolerance: float | tuple[float, ...]) -> None:
    """Raise Disagree unless two lists of outputs are equal up to `tolerance`, or up to one for each output."""
    if len(got) != len(expected):
        raise Disagree(f"{len(got)} outputs, expected {len(expected)}")
    each = tolerance if isinstance(tolerance, tuple) else (tolerance,) * len(got)
    for i, (a, b, allowed) in enumerate(zip(got, expected, each, strict=True)):
        near(f"output {i}", a, b, allowed)
