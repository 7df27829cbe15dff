"""What a launch did: instructions by kind, divergence, memory traffic and its efficiency, bank conflicts, arithmetic intensity.

Instructions are counted for each basic block, times the runs of the block, so counting costs next to nothing; memory is looked at access
by access.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import layout
from .entry import Instruction
from .layout import READ_NOW, WRITTEN_NOW

SPECIAL = {"ex2", "lg2", "sin", "cos", "tanh", "rsqrt", "rcp", "sqrt"}
CONTROL = {"bra", "brx", "ret", "exit", "call"}
WARP = {"shfl": "shuffle", "vote": "shuffle", "match": "shuffle", "redux": "shuffle", "activemask": "shuffle"}
MMA = {  # of one warp
    "m16n8k16": 2 * 16 * 8 * 16, "m16n8k8": 2 * 16 * 8 * 8, "m64n128k16": 2 * 16 * 128 * 16, "m64n64k16": 2 * 16 * 64 * 16,
}  # fmt: skip


def kind_of(i: Instruction) -> str:
    """The kind under which an instruction is counted."""
    parts = i.opcode.replace("::", ".").split(".")
    head, name = parts[0], parts[-1]
    if head in ("ld", "st", "ldu", "ldmatrix", "stmatrix"):
        space = next(
            (s for s in ("param", "shared", "local", "global", "const") if s in parts), "shared" if "matrix" in head else "generic"
        )
        return f"{'store' if head.startswith('st') else 'load'} {space}"
    if head in ("atom", "red"):
        return "atomic"
    if head == "cp":
        return "copy async"
    if head in WARP:
        return WARP[head]
    if head in ("bar", "barrier", "membar", "fence"):
        return "barrier"
    if head in CONTROL:
        return "branch"
    if head in ("mma", "wgmma"):
        return "mma" if head == "mma" or "mma_async" in parts else "barrier"
    if head in ("mov", "cvta"):
        return "move"
    if head == "cvt":
        return "convert"
    if head in SPECIAL or (head == "div" and name in ("f32", "f64")):
        return "special"
    if name in ("f16", "bf16", "f16x2", "bf16x2"):
        return "fp16"
    return {"f32": "fp32", "f64": "fp64"}.get(name, "int")


def flops_of(i: Instruction) -> int:
    """Floating-point operations of one lane (of one thirty-second of a warp's product)."""
    kind, head = kind_of(i), i.opcode.split(".")[0]
    if kind == "mma":
        return next((f for shape, f in MMA.items() if shape in i.opcode), 0) // 32
    if kind == "special":
        return 1
    if kind not in ("fp32", "fp64", "fp16") or head not in ("add", "sub", "mul", "fma", "mad", "min", "max"):
        return 0
    return (2 if head in ("fma", "mad") else 1) * (2 if i.opcode.endswith("x2") else 1)


@dataclass
class Counts:
    """One launch in numbers. Instructions are those of warps; bytes and sectors are of global memory."""

    threads: int
    warps: int
    instructions: dict[str, int] = field(default_factory=dict)
    active: float = 0.0  # of 32 lanes, on average: 1.0 where nothing diverges
    flops: int = 0
    load_sectors: int = 0
    store_sectors: int = 0
    atomic_sectors: int = 0
    least_load_sectors: int = 0
    least_store_sectors: int = 0
    bytes_loaded: int = 0  # those that several lanes of an access ask for counted once
    bytes_stored: int = 0
    distinct_read: int = 0  # bytes, each counted once for the launch
    distinct_written: int = 0
    wavefronts: int = 0  # of shared memory
    float64: dict[str, int] = field(default_factory=dict)  # by place: instructions that compute in it
    negative: dict[str, int] = field(default_factory=dict)  # by place: indices less than zero, of a kernel that is watched
    written: dict[str, int] = field(default_factory=dict)  # of each argument that is an array: elements that were written
    least_wavefronts: int = 0

    @property
    def total(self) -> int:
        return sum(self.instructions.values())

    @property
    def bank_conflicts(self) -> int:
        """Wavefronts of shared memory beyond the least."""
        return self.wavefronts - self.least_wavefronts

    @property
    def transactions(self) -> float:
        """Sectors moved over the least possible, at best 1.0."""
        least = self.least_load_sectors + self.least_store_sectors
        return (self.load_sectors + self.store_sectors) / least if least else 1.0

    @property
    def intensity(self) -> float:
        """Floating-point operations for each byte moved."""
        moved = 32 * (self.load_sectors + self.store_sectors + self.atomic_sectors)
        return self.flops / moved if moved else 0.0

    @classmethod
    def of(cls, launch: Any) -> Counts:
        runs = launch.runs.reshape(-1, 2)
        counts = cls(launch.threads * launch.blocks, int(launch.words[layout.WARPS]) * launch.blocks)
        issued = lanes = 0
        for block, (times, active) in zip(launch.kernel.blocks, runs.tolist(), strict=True):
            for i in launch.kernel.entry.instructions[block.first : block.last]:
                kind = kind_of(i)
                counts.instructions[kind] = counts.instructions.get(kind, 0) + times
                counts.flops += flops_of(i) * active
                if times and kind in ("fp64", "special") and i.opcode.endswith("f64"):
                    place = launch.kernel.entry.place(i)
                    counts.float64[place] = counts.float64.get(place, 0) + times
                if active and i.opcode == "negative":
                    place = launch.kernel.entry.place(i)
                    counts.negative[place] = counts.negative.get(place, 0) + active
            issued += times * (block.last - block.first)
            lanes += active * (block.last - block.first)
        counts.instructions = {k: n for k, n in sorted(counts.instructions.items()) if n}
        counts.active = lanes / (32 * issued) if issued else 0.0
        names = {
            "load_sectors": layout.LOAD_SECTORS, "store_sectors": layout.STORE_SECTORS, "atomic_sectors": layout.ATOMIC_SECTORS,
            "least_load_sectors": layout.LEAST_LOAD, "least_store_sectors": layout.LEAST_STORE, "bytes_loaded": layout.LOADED,
            "bytes_stored": layout.STORED, "wavefronts": layout.WAVES, "least_wavefronts": layout.LEAST_WAVES,
        }  # fmt: skip
        for name, slot in names.items():
            setattr(counts, name, int(launch.counted[slot]))
        memory = launch.machine.memory
        states = memory.states[: memory.top]
        counts.distinct_read = int(np.count_nonzero(states & READ_NOW))
        counts.distinct_written = int(np.count_nonzero(states & WRITTEN_NOW))
        return counts
