"""emulate(): run every thread of a kernel on the CPU, find what is wrong in it, count what it does."""

from __future__ import annotations

import ctypes
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..errors import EmulationError
from .kernels import CudaKernel, compiled, emulator
from .placing import leaves, machine, parameters, placed, type_of

SECTOR = 32  # bytes that move together
ARCH = 9, 0
busy = threading.Lock()  # one launch at a time
MARKED = re.compile(r"^\s*(own\.|within\.|negative;|trap;)", re.M)  # in PTX: what is watched there (../backend/cuda/runtime/watch.py)


@dataclass
class EmulationReport:
    """What launches did. `instructions`: of warps, by kind; `transactions`: sectors of 32 bytes moved to and from global memory;
    `efficiency`: bytes used over bytes moved; `bank_conflicts`: turns that shared memory needed beyond the least; `divergence`: the share
    of lanes that stood idle while others of their warp ran; `flops`; `intensity`: flops for each byte moved. `used`: bytes, those that
    several lanes of a warp read counted once. `float64`: instructions that compute in it, by line of Python. Of one launch: `written`,
    how many elements of each array were written, by the argument's name, and `elements`, how many each has; `negative`, how many indices
    were less than zero and so counted from the end, by line of Python; `negative_indices`, all of these."""

    kernel: str
    launches: int = 1
    instructions: dict[str, int] = field(default_factory=dict)
    transactions: int = 0
    used: int = 0
    bank_conflicts: int = 0
    divergence: float = 0.0
    flops: int = 0
    float64: dict[str, int] = field(default_factory=dict)
    written: dict[str, int] = field(default_factory=dict)
    elements: dict[str, int] = field(default_factory=dict)
    negative: dict[str, int] = field(default_factory=dict)

    @property
    def negative_indices(self) -> int:
        return sum(self.negative.values())

    @property
    def efficiency(self) -> float:
        return self.used / (SECTOR * self.transactions) if self.transactions else 1.0

    @property
    def intensity(self) -> float:
        return self.flops / (SECTOR * self.transactions) if self.transactions else 0.0

    def __str__(self) -> str:
        many = f" in {self.launches} launches" if self.launches > 1 else ""
        lines = [f"{self.kernel}: {sum(self.instructions.values()):,} instructions of warps{many}"]
        lines += [f"  {kind:<20} {count:>14,}" for kind, count in self.instructions.items()]
        lines.append(f"  {'global transactions':<20} {self.transactions:>14,}  {self.efficiency:.1%} of the bytes moved are used")
        lines.append(f"  {'bank conflicts':<20} {self.bank_conflicts:>14,}")
        lines.append(f"  {'divergence':<20} {self.divergence:>14.1%}  of the lanes idle")
        lines.append(f"  {'arithmetic intensity':<20} {self.intensity:>14.2f}  operations for each byte moved, {self.flops:,} in all")
        for name, count in self.written.items():
            if count or not any(self.written.values()):
                left = f"{self.elements[name] - count:,} never" if count < self.elements[name] else "all"
                lines.append(f"  {'elements written':<20} {count:>14,}  of the {self.elements[name]:,} of {name}: {left}")
        if self.negative:
            lines.append(f"  {'negative indices':<20} {self.negative_indices:>14,}  counted from the end, at {', '.join(self.negative)}")
        if self.float64:
            lines.append(f"  {'in float64':<20} {sum(self.float64.values()):>14,}  at {', '.join(self.float64)}")
        return "\n".join(lines)


def reported(kernel: str, counts: Any) -> EmulationReport:
    """The emulator's counts of one launch in words of this file."""
    used = counts.bytes_loaded + counts.bytes_stored + SECTOR * counts.atomic_sectors
    moved = counts.load_sectors + counts.store_sectors + counts.atomic_sectors
    there = counts.threads / (32 * counts.warps)  # lanes that exist
    idle = max(0.0, 1.0 - counts.active / there)
    return EmulationReport(
        kernel, 1, dict(counts.instructions), moved, used, counts.bank_conflicts, idle, counts.flops, counts.float64
    )  # fmt: skip


def joined(kernel: str, reports: Sequence[EmulationReport]) -> EmulationReport:
    """Several launches as one report."""
    kinds = sorted({kind for r in reports for kind in r.instructions})
    places = {place for r in reports for place in r.float64}
    issued = [sum(r.instructions.values()) for r in reports]
    total = lambda name: sum(getattr(r, name) for r in reports)
    return EmulationReport(
        kernel, total("launches"), {kind: sum(r.instructions.get(kind, 0) for r in reports) for kind in kinds}, total("transactions"),
        total("used"), total("bank_conflicts"),
        sum(r.divergence * n for r, n in zip(reports, issued, strict=True)) / max(1, sum(issued)), total("flops"),
        {place: sum(r.float64.get(place, 0) for r in reports) for place in sorted(places)},
    )  # fmt: skip


def emulate(kernel: Any, grid: Any, block: Any, *args: Any, shared: int = 0) -> EmulationReport:
    """Run a kernel on `grid` blocks of `block` threads (each an int or a tuple), from its PTX, thread by thread; count what it does.

    kernel: what compile() gave, or a function in Numba's CUDA, which is compiled for these arguments. args: NumPy arrays, which the kernel
    changes, numbers, and tuples of these; an array that is read-only may not be written, one that is given twice is one. As in NumPy, a
    negative index counts from the end, on a GPU too: x[i - 1] of thread 0 is the last element. shared: bytes for
    cuda.shared.array(0, ...), as in kernel[grid, block, stream, shared]. Raises EmulationError for what is wrong in the kernel: its `kind`
    is "out of bounds", "misaligned", "uninitialised", "race" or "barrier". The arrays are as they were then.
    A kernel with local arrays, arrays of several axes, raise, assert or indices that may be negative is run once more before, compiled so
    that these and each index can be watched: a thread that raises is an EmulationError, though on a GPU it only ends. One with fences or
    barriers of some warps is run once more after, its warps in another order. float64 and negative indices are no error: the report tells
    where.
    """
    if isinstance(kernel, str):
        raise TypeError(f"emulate: not a kernel: '{kernel}'. Give what flamepy.cuda.compile('{kernel}') returns.")
    if not isinstance(kernel, CudaKernel):
        kernel = compiled(getattr(kernel, "py_func", kernel), tuple(type_of(kernel, a) for a in args), ARCH)
    if len(args) != len(kernel.arguments):
        wanted = ", ".join(map(str, kernel.arguments))
        raise TypeError(f"{kernel.name}: wrong number of arguments: {len(args)}. It takes {len(kernel.arguments)}: {wanted}.")
    size, values, negative = emulator("machine").size_of(kernel.name, grid, block, shared), leaves(kernel, args), {}
    with busy:
        if kernel.watched_ptx is not None and MARKED.search(watched(kernel).ptx):  # for what NVVM drops, before it has
            negative = checked(watched(kernel), size, copied(values), count=False).negative
        before = copied(values)
        counts = checked(kernel, size, values, count=True)
        if loaded(kernel).loose and (late := again(kernel, size, before, "chance")[0]) and late.kind == "race":
            for value, old in zip(values, before, strict=True):
                if isinstance(value, np.ndarray) and value.flags.writeable:
                    value[...] = old
            raise late
    arrays = {want.name: value.size for want, value in zip(kernel.leaves, values, strict=True) if isinstance(value, np.ndarray)}
    return replace(reported(kernel.name, counts), written=counts.written, elements=arrays, negative=negative)


def watched(kernel: CudaKernel) -> CudaKernel:
    """The kernel with arrays that the emulator can watch; kept with it."""
    kept = vars(kernel)
    if "watched" not in kept:
        assert kernel.watched_ptx is not None
        kept["watched"] = replace(kernel, ptx=kernel.watched_ptx())
    return kept["watched"]  # type: ignore[no-any-return]


def checked(kernel: CudaKernel, size: tuple[Any, ...], args: Sequence[Any], count: bool) -> Any:
    """run(), and what is wrong as the fault that it most likely is."""
    try:
        return run(kernel, size, args, count=count)
    except EmulationError as error:
        if error.kind == "barrier" and loaded(kernel).copied and not loaded(kernel).apart:
            return meeting(kernel, size, args, count, error)
        found = missing_barrier(kernel, size, args) if error.kind == "uninitialised" else None
        found = found or error
        if found.kind == "race":
            found = divided_barrier(kernel, size, args) or found
        raise found from None


def meeting(kernel: CudaKernel, size: tuple[Any, ...], args: Sequence[Any], count: bool, missing: EmulationError) -> Any:
    """checked(), where lanes were `missing` that may come to another copy of the line. They are missing all the same if something else goes
    wrong behind that line while the others wait."""
    place, device, code = emulator("machine"), machine(), loaded(parted(kernel))
    code.launches[device, *size] = launch = place.Launch(device, code, *size)
    try:
        return checked(parted(kernel), size, args, count)
    except EmulationError as error:
        raise missing if launch.left_behind() else error from None


def run(kernel: CudaKernel, size: tuple[Any, ...], args: Sequence[Any], order: str = "all", count: bool = False) -> Any:
    """One launch on copies of the arrays, which get what it left; the emulator's counts, if it is to count."""
    device, code = machine(), loaded(kernel)
    try:
        arrays = placed(kernel, args)
        values = [v for k, want in enumerate(kernel.leaves) for v in parameters(kernel, want, args[k], arrays.get(k))]
        counts = device.launch(code, *size[:2], values, size[2], order, count)
        if count:
            counts.written = {kernel.leaves[k].name: array.written(device.memory) for k, array in sorted(arrays.items())}
        for k, array in arrays.items():
            if args[k].flags.writeable:
                args[k][...] = array.left(device.memory)
    finally:
        device.memory.remove()
    return counts


def missing_barrier(kernel: CudaKernel, size: tuple[Any, ...], args: Sequence[Any]) -> EmulationError | None:
    """What was read before anyone wrote it may be what another thread was about to write: the race, if it is one, then shows."""
    found, _ = again(kernel, size, args)
    return found if found is not None and found.kind == "race" else None


def divided_barrier(kernel: CudaKernel, size: tuple[Any, ...], args: Sequence[Any]) -> EmulationError | None:
    """A race may come from threads that went around a barrier where others wait. That is so if some never reach it, whoever is first (in
    what order warps run changes what a race does), and if one was past it when the first race came: what a race does cannot lead there."""
    if not any(i.opcode.startswith(("bar.", "barrier.")) for i in loaded(kernel).entry.instructions):
        return None
    found = [again(kernel, size, args, order, forgiving=True) for order in ("last", "first")]
    missed = all(error is not None and error.kind == "barrier" for error, _ in found) and any(past for _, past in found)
    return found[0][0] if missed else None


def again(
    kernel: CudaKernel, size: tuple[Any, ...], args: Sequence[Any], order: str = "all", forgiving: bool = False
) -> tuple[EmulationError | None, bool]:
    """The error, if any, of the launch on copies, with shared memory that counts as written; races are no error where it is `forgiving`,
    and the second result tells whether the first of them was behind a barrier at which another thread waited."""
    place, layout, device, code = emulator("machine"), emulator("layout"), machine(), loaded(kernel)
    comes_by = emulator("flow").comes_by
    launch = place.Launch(device, code, *size)
    states = (ctypes.c_uint8 * launch.shared_size).from_address(int(launch.words[layout.SHARED_STATE]))
    np.ctypeslib.as_array(states)[:] |= layout.WRITTEN * (np.ctypeslib.as_array(states) & layout.ALLOCATED)
    launch.words[layout.FORGIVING] = forgiving
    launch.words[layout.LIMIT] = min(device.limit, 1 << 20)  # it may not end with what a race has left
    key = device, *size
    code.launches[key] = launch  # where the emulator looks first
    try:
        run(kernel, size, copied(args), order)
    except EmulationError as error:
        raced, stood = (int(launch.words[k]) for k in (layout.RACED_AT, layout.STOOD_AT))
        return error, launch.words[layout.FORGIVING] == 2 and stood >= 0 and not comes_by(code.blocks, raced, stood)
    finally:
        code.launches.pop(key, None)
    return None, False


def copied(args: Sequence[Any]) -> list[Any]:
    """The arguments, with arrays that may be changed: still one where one was given twice."""
    arrays = {id(a): np.array(a) for a in args if isinstance(a, np.ndarray)}
    return [arrays.get(id(a), a) for a in args]


def parted(kernel: CudaKernel) -> CudaKernel:
    """The kernel, so run that lanes that come to two copies of a line meet: slower, so only where lanes were missing; kept with it."""
    kept = vars(kernel)
    if "parted" not in kept:
        kept["parted"] = replace(kernel)
        loaded(kept["parted"], apart=True)
    return kept["parted"]  # type: ignore[no-any-return]


def loaded(kernel: CudaKernel, apart: bool = False) -> Any:
    """The kernel as the emulator runs it; kept with it."""
    kept = vars(kernel)
    if "loaded" not in kept:
        (kept["loaded"],) = machine().load(kernel.ptx, apart).values()
        kept["loaded"].name = kernel.name
    return kept["loaded"]
