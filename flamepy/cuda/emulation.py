"""emulate(): run every thread of a kernel on the CPU, find what is wrong in it, count what it does.

Each array gets device memory of its own with a wide strip around it that belongs to nobody, so that an index that is wrong is told with the
argument's name and the element. Read next: ../backend/cuda/emulator/machine.py.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from ..errors import DTypeError, EmulationError, ShapeError
from .kernels import Argument, CudaKernel, backend, compiled, name_of

STRIP = 1 << 20  # bytes before and after an array
SECTOR = 32  # bytes that move together
ARCH = 9, 0
busy = threading.Lock()  # one launch at a time


@dataclass
class EmulationReport:
    """What launches did. `instructions`: of warps, by kind; `transactions`: sectors of 32 bytes moved to and from global memory;
    `efficiency`: bytes used over bytes moved; `bank_conflicts`: turns that shared memory needed beyond the least; `divergence`: the share
    of lanes that stood idle while others of their warp ran; `flops`; `intensity`: flops for each byte moved. `used`: bytes, those that
    several lanes of a warp read counted once."""

    kernel: str
    launches: int = 1
    instructions: dict[str, int] = field(default_factory=dict)
    transactions: int = 0
    used: int = 0
    bank_conflicts: int = 0
    divergence: float = 0.0
    flops: int = 0

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
        return "\n".join(lines)


def reported(kernel: str, counts: Any) -> EmulationReport:
    """The emulator's counts of one launch in words of this file."""
    used = [
        min(counts.bytes_loaded, SECTOR * counts.least_load_sectors),
        min(counts.bytes_stored, SECTOR * counts.least_store_sectors),
        SECTOR * counts.atomic_sectors,
    ]
    moved = counts.load_sectors + counts.store_sectors + counts.atomic_sectors
    there = counts.threads / (32 * counts.warps)  # lanes that exist
    idle = max(0.0, 1.0 - counts.active / there)
    return EmulationReport(kernel, 1, dict(counts.instructions), moved, sum(used), counts.bank_conflicts, idle, counts.flops)


def joined(kernel: str, reports: Sequence[EmulationReport]) -> EmulationReport:
    """Several launches as one report."""
    kinds = sorted({kind for r in reports for kind in r.instructions})
    issued = [sum(r.instructions.values()) for r in reports]
    total = lambda name: sum(getattr(r, name) for r in reports)
    return EmulationReport(
        kernel, total("launches"), {kind: sum(r.instructions.get(kind, 0) for r in reports) for kind in kinds}, total("transactions"),
        total("used"), total("bank_conflicts"),
        sum(r.divergence * n for r, n in zip(reports, issued, strict=True)) / max(1, sum(issued)), total("flops"),
    )  # fmt: skip


@cache
def machine() -> Any:
    """The device that emulate() runs on, with memory that knows its arrays by name."""
    emulator = backend("emulator")

    class Named(emulator.Memory):  # type: ignore[misc,name-defined]
        """Device memory whose blocks are arrays with names."""

        arrays: dict[int, tuple[str, np.ndarray]] = {}  # noqa: RUF012  (one machine)
        top: int

        def nearest(self, address: int) -> str:
            for start, (name, array) in self.arrays.items():
                if start - STRIP <= address < start + array.nbytes + STRIP:
                    return ", " + element(name, array, (address - start) // array.itemsize)
            return super().nearest(address)  # type: ignore[no-any-return]

        def place(self, name: str, array: np.ndarray) -> int:
            """A copy of the array, alone in its memory."""
            address = self.allocate(array.nbytes + 2 * STRIP) + STRIP
            at = address - emulator.layout.DEVICE_BASE
            self.states[at - STRIP : at] = self.states[at + array.nbytes : at + array.nbytes + STRIP] = 0
            self.arrays[address] = name, array
            self.write(address, array.ravel("K"))
            return address

        def remove(self) -> None:
            """Free all arrays, and forget that they were: the next ones lie where these did."""
            for address in self.arrays:
                self.free(address - STRIP)
                self.top: int = min(self.top, address - STRIP - emulator.layout.DEVICE_BASE)
            self.arrays.clear()
            self.room.clear()

    return emulator.Machine(Named(), backend("build").cache_folder())


def element(name: str, array: np.ndarray, at: int) -> str:
    """Which element of an argument that is; counted on where it lies outside."""
    if 0 <= at < array.size:
        index = ", ".join(map(str, np.unravel_index(at, array.shape)))
        return f"which is {name}[{index}]"
    return f"which would be element {at} of {name}, an array of {array.size} (shape {array.shape}, {array.dtype})"


def emulate(kernel: Any, grid: Any, block: Any, *args: Any) -> EmulationReport:
    """Run a kernel on `grid` blocks of `block` threads (each an int or a tuple), from its PTX, thread by thread; count what it does.

    kernel: what compile() gave, or a function in Numba's CUDA, which is compiled for these arguments. args: NumPy arrays, which the kernel
    changes, and numbers. Raises EmulationError for what is wrong in the kernel: its `kind` is "out of bounds", "misaligned",
    "uninitialised", "race" or "barrier". The arrays are as they were then.
    """
    if not isinstance(kernel, CudaKernel):
        kernel = compiled(getattr(kernel, "py_func", kernel), tuple(type_of(kernel, a) for a in args), ARCH)
    if len(args) != len(kernel.arguments):
        wanted = ", ".join(map(str, kernel.arguments))
        raise TypeError(f"{kernel.name}: wrong number of arguments: {len(args)}. It takes {len(kernel.arguments)}: {wanted}.")
    with busy:
        try:
            counts = run(kernel, grid, block, args)
        except EmulationError as error:
            if error.kind != "uninitialised":
                raise
            raise missing_barrier(kernel, grid, block, args) or error from None
    return reported(kernel.name, counts)


def run(kernel: CudaKernel, grid: Any, block: Any, args: Sequence[Any]) -> Any:
    """One launch on copies of the arrays, which get what it left; the emulator's counts."""
    device, code = machine(), loaded(kernel)
    try:
        copies = [ordered(kernel, want, a) if isinstance(a, np.ndarray) else a for want, a in zip(kernel.arguments, args, strict=True)]
        values = [v for want, a in zip(kernel.arguments, copies, strict=True) for v in given(kernel, want, a)]
        counts = device.launch(code, grid, block, values, count=True)
        for a, copy in zip(args, copies, strict=True):
            if isinstance(a, np.ndarray):
                fetch(device.memory, kernel, a, copy)
    finally:
        device.memory.remove()
    return counts


def missing_barrier(kernel: CudaKernel, grid: Any, block: Any, args: Sequence[Any]) -> EmulationError | None:
    """What was read before anyone wrote it may be what another thread was about to write. The launch is run again with shared memory that
    counts as written: the race, if it is one, then shows."""
    place, layout, device, code = backend("emulator.machine"), backend("emulator.layout"), machine(), loaded(kernel)
    launch = place.Launch(device, code, place.three(grid), place.three(block), 0)
    states = (ctypes.c_uint8 * launch.shared_size).from_address(int(launch.words[layout.SHARED_STATE]))
    np.ctypeslib.as_array(states)[:] |= layout.WRITTEN * (np.ctypeslib.as_array(states) & layout.ALLOCATED)
    key = device, grid, block, 0
    code.launches[key] = launch  # where the emulator looks first
    try:
        run(kernel, grid, block, [np.array(a) if isinstance(a, np.ndarray) else a for a in args])
    except EmulationError as error:
        return error if error.kind == "race" else None
    finally:
        code.launches.pop(key, None)
    return None


def loaded(kernel: CudaKernel) -> Any:
    """The kernel as the emulator runs it; kept with it."""
    kept = vars(kernel)
    if "loaded" not in kept:
        (kept["loaded"],) = machine().load(kernel.ptx).values()
        kept["loaded"].name = kernel.name
    return kept["loaded"]


def type_of(kernel: Any, value: Any) -> Any:
    """Numba's type of a value."""
    types = backend("compat").types
    if isinstance(value, np.ndarray):
        layout = "C" if value.flags.c_contiguous else "F" if value.flags.f_contiguous else "A"
        return types.Array(number_type(kernel, value.dtype), value.ndim, layout)
    if isinstance(value, tuple):
        return types.Tuple([type_of(kernel, v) for v in value])
    return number_type(kernel, value.dtype if isinstance(value, np.generic) else np.asarray(value).dtype)


def number_type(kernel: Any, dtype: np.dtype) -> Any:
    found = getattr(backend("compat").types, "boolean" if dtype == np.bool_ else dtype.name, None)
    if found is None:
        raise DTypeError(f"{name_of(kernel)}: no kernel takes this type: {dtype}. Use NumPy's integers, floats and bools.")
    return found


def ordered(kernel: CudaKernel, want: Argument, array: np.ndarray) -> np.ndarray:
    """A copy of an array as the kernel reads it: whole, row by row or column by column."""
    if want.form not in ("array", "span") or array.dtype != want.dtypes[0]:
        raise DTypeError(f"{kernel.name}: not what {want.name} is: an array of {array.dtype}. It takes {want}.")
    if array.ndim != want.ndim and want.form == "array":
        raise ShapeError(f"{kernel.name}: not the dimensions of {want.name}: shape {array.shape}. It takes {want}.")
    return np.array(array, order="F" if want.layout == "F" else "C", copy=True)


def given(kernel: CudaKernel, want: Argument, value: Any) -> Sequence[Any]:
    """An argument as parameters. Numba's array has seven for one dimension: two pointers, elements, bytes of one, data, shape, strides."""
    if want.form == "none":
        return [np.int32(0)]
    if isinstance(value, np.ndarray):
        address = np.int64(machine().memory.place(want.name, value))
        if want.form == "span":
            return [address, np.int64(value.size)]
        whole = (0, 0, value.size, value.itemsize, address, *value.shape, *value.strides)
        return [np.int64(v) for v in whole]
    numbers = value if isinstance(value, tuple) else (value,)
    if want.form not in ("number", "tuple") or len(numbers) != len(want.dtypes):
        raise TypeError(f"{kernel.name}: not what {want.name} is: {value!r}. It takes {want}.")
    return [dtype.type(v) for dtype, v in zip(want.dtypes, numbers, strict=True)]


def fetch(memory: Any, kernel: CudaKernel, array: np.ndarray, copy: np.ndarray) -> None:
    """Give an array what the kernel left of it."""
    address = next(start for start, (_, known) in memory.arrays.items() if known is copy)
    left = memory.read(address, array.nbytes).view(array.dtype).reshape(array.shape, order="C" if copy.flags.c_contiguous else "F")
    if array.flags.writeable:
        array[...] = left
    elif left.tobytes() != copy.tobytes():
        raise EmulationError(f"{kernel.name}: it writes into an array that is read-only: shape {array.shape}. Give a copy.")
