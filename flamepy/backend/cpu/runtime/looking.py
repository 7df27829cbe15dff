"""For those who look at kernels: a CPU device that writes down each launch and how long it took, and a loop's LLVM and assembly.

Code that comes from the disk cache has neither, so a loop is compiled again, alone.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numba
import numpy as np

from ...base import Buffer, Chain, Stream
from ...formula.bind import typed
from ...run import Step
from ..device import CpuDevice, CpuStream
from . import compiler

FUNCTION = re.compile(r"^define .*?^}", re.S | re.M)
WRAPPERS = "cpython", "cfunc"  # what Numba puts around a function
DIRECTIVE = re.compile(r"^\s+\.(?!long|quad|byte|short|zero|ascii)")
INSTRUCTION = re.compile(r"^\s+[a-z][\w.]*\s")
# What kind of floats an instruction takes: x86-64's name says it at its end, ARM's by its registers.
FLOATS = {
    "packed": re.compile(r"^\s+(\w*p[sd]\s|f\w+\s.*\b[vz]\d+\.)"),
    "scalar": re.compile(r"^\s+(\w*s[sd]\s|f\w+\s.*\b[hsd]\d)"),
}


@dataclass
class Launch:
    """A loop that was launched, with `dtype` that of its formula's constants: argument types, bytes of its buffers, the shortest time."""

    kernel: Any
    dtype: np.dtype
    kinds: tuple[Any, ...]
    nbytes: int
    seconds: list[float] = field(default_factory=list)

    @property
    def name(self) -> str:
        names = [f.__name__ for f in (self.kernel.loop, self.kernel.formula) if f is not None]
        return "_".join([*names, self.dtype.name])

    def code(self) -> tuple[str, str]:
        """(LLVM, assembly) of the loop for these arguments, without what Python needs to call it."""
        kernel = compiler.jit_alone(typed(self.kernel.loop, self.dtype, compiler.DIALECT, True, self.kernel.formula))
        kernel.compile(kernel._compiler.fold_argument_types(self.kinds, {})[1])
        (signature,) = kernel.signatures
        llvm = [f for f in FUNCTION.findall(kernel.inspect_llvm(signature)) if not any(w in f.split("\n")[0] for w in WRAPPERS)]
        return "\n\n".join(llvm), assembly(kernel.inspect_asm(signature))


def assembly(text: str) -> str:
    """The functions of an assembly text but the wrappers, without directives."""
    kept, inside = [], False
    for line in text.splitlines():
        if re.match(r"^[^\s.#][^\s]*:", line):
            inside = not any(w in line for w in WRAPPERS)
        if inside and not DIRECTIVE.match(line) and ".Lfunc_" not in line:
            kept.append(line)
    return "\n".join(kept)


def tally(text: str) -> dict[str, int]:
    """Instructions of an assembly text: all, those on packed floats, those on single ones."""
    found = {"instructions": 0, "packed": 0, "scalar": 0}
    for line in text.splitlines():
        if INSTRUCTION.match(line + " "):
            found["instructions"] += 1
            kind = next((kind for kind, pattern in FLOATS.items() if pattern.match(line)), None)
            if kind:
                found[kind] += 1
    return found


class Watched(CpuStream):
    """Runs each launch at once, and writes it down."""

    def __init__(self) -> None:
        self.launches: dict[Any, Launch] = {}

    def run(self, kernel: Any, outs: Sequence[Buffer | None], ins: Sequence[Any], consts: Sequence[Any]) -> None:
        given = [b.data if isinstance(b, Buffer) else b for b in (*outs, *ins, *consts)]
        kinds = numba.typeof((0, 1)), *map(numba.typeof, given)
        nbytes = sum(b.size * b.dtype.itemsize for b in (*outs, *ins) if isinstance(b, Buffer))
        device: Any = self.device
        key = kernel.loop, kernel.formula, kinds
        if key not in self.launches:
            dtype = next(d for (_, _, d), ways in device.kernels.items() if kernel in ways[:2])
            self.launches[key] = Launch(kernel, dtype, kinds, nbytes)
        started = time.perf_counter()
        super().run(kernel, outs, ins, consts)
        self.launches[key].seconds.append(time.perf_counter() - started)

    def prepare(self, fresh: Any, steps: Any, inputs: Any, wanted: Any = None) -> Chain:
        return Stream.prepare(self, fresh, steps, inputs)

    def prepare_any_size(self, fresh: Any, steps: Sequence[Step], inputs: Any) -> Chain:
        return Stream.prepare_any_size(self, fresh, steps, inputs)


@cache
def watched() -> tuple[CpuDevice, dict[Any, Launch]]:
    """(a CPU device, what is launched on it). There is one: calls are planned for a device once, and known by its name."""
    device, stream = CpuDevice(), Watched()
    device.name, stream.device = "cpu (watched)", device
    device.direct = device.stream = stream
    return device, stream.launches
