"""`flamepy kernel NAME`: from the formula of an op down to the machine code that runs it, and what a run counts.

The op runs once on an example, forward and backward, on a device that writes down what it launches; of an optimizer, a step does.
"""

from __future__ import annotations

import difflib
import inspect
import textwrap
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any

from ..core.errors import DTypeError
from ..cuda.emulation import EmulationReport, joined, reported
from ..cuda.examples import CLIPS, OPTIMIZERS, names, prepared
from ..cuda.kernels import architecture, backend
from ..cuda.recording import launches_of, refuse_converted
from ..docstrings import written
from ..dtypes import as_dtype
from ..train.config import spelled
from ..train.lines import fitted, width
from ..train.problems import InputError

USUAL = 1 << 16  # elements of the example, where nothing is run
REPEATS = 5


def list_names() -> int:
    """Print every name there is."""
    print(textwrap.fill("  ".join(names()), width(), break_on_hyphens=False, break_long_words=False))
    return 0


def command(name: str, device: str, n: int | None, dtype: str, arch: str) -> int:
    """Print everything about the kernels of an op; capitals in its name do not count."""
    given, name, dtype = name, name.lower(), spelled(dtype)
    if name not in names():
        near = difflib.get_close_matches(name, names(), 3, 0.5)
        advice = f"Did you mean {' or '.join(near)}?" if near else "flamepy kernel --list prints all."
        raise InputError(f"no kernel of this name: {given!r}. {advice}")
    if n is not None and n < 1:
        raise InputError(f"--run must be at least 1: {n}. Give a number of elements.")
    try:
        architecture(arch)
    except ValueError as error:
        raise InputError(str(error).partition(": ")[2]) from None
    try:
        for line in (on_cuda if device == "cuda" else on_cpu)(name, n, dtype, arch):
            print(line)
    except DTypeError as error:
        raise InputError(str(error)) from None
    return 0


def section(title: str, text: str) -> Iterator[str]:
    yield from ("", title, "-" * len(title), textwrap.dedent(text).rstrip())


def source(function: Any) -> str:
    """A function as it stands in its file; a lambda as the function it would be."""
    try:
        text = inspect.getsource(function)
    except (OSError, TypeError):
        return f"{function!r}: its file is not here"
    if "lambda " not in text.partition("\n")[0]:
        return text
    explained = f'    """{function.__doc__}"""\n' if function.__doc__ else ""
    return f"def {function.__name__}{inspect.signature(function)}:\n{explained}    return {''.join(written(function))}"


def heading(name: str, where: str, kernels: list[str], n: int) -> Iterator[str]:
    way = "" if name in (*OPTIMIZERS, *CLIPS) else ", forward and backward"
    yield fitted(f"{name} on {where}: {len(kernels)} kernel{'s' * (len(kernels) != 1)} for {n:,} elements{way}")
    yield from (f"  {i}. {kernel}" for i, kernel in enumerate(kernels, 1))


def title(i: int, text: str) -> Iterator[str]:
    yield from ("", "=" * 80, f"{i}. {text}", "=" * 80)


# ---- CUDA ------------------------------------------------------------------------------------------------------------------------------
def on_cuda(name: str, n: int | None, dtype: str, arch: str) -> Iterator[str]:
    found = launches_of(name, n or USUAL, dtype, architecture(arch))
    counted = {} if n is None else emulated(name, n, dtype, arch)
    yield from heading(name, arch, [launch.kernel.name for launch in found], n or USUAL)
    for i, launch in enumerate(found, 1):
        kernel = launch.kernel
        grid = " x ".join(str(size) for size in launch.grid if size > 1) or "1"
        yield from title(i, f"{kernel.name}: {grid} blocks of {launch.threads} threads")
        if launch.formula is not None:
            yield from section("Formula", source(launch.formula))
        yield from section("Kernel", source(launch.source))
        yield from section("Arguments", "\n".join(map(str, kernel.arguments)))
        yield from section("PTX", kernel.ptx)
        yield from section("Machine code (SASS)", kernel.sass)
        yield from section("Figures", figures(kernel))
        if launch.binary.digest in counted:
            yield from section(f"A run of {n:,} elements", fitted(str(counted[launch.binary.digest])))
    if n is not None:
        yield from section("All launches of the run", fitted(str(joined(f"{name}, {dtype}", list(counted.values())))))


def figures(kernel: Any) -> str:
    rows = {
        "registers per thread": kernel.registers, "bytes of registers spilled to memory": kernel.spills,
        "bytes of local memory per thread": kernel.local, "bytes of shared memory per block": kernel.shared,
        "instructions": sum(kernel.opcodes.values()),
    }  # fmt: skip
    return "\n".join(f"{value:>8,}  {what}" for what, value in rows.items())


def emulated(name: str, n: int, dtype: str, arch: str) -> dict[str, EmulationReport]:
    """What each kernel counts in a run on the emulated GPU, by its digest; where it is launched more than once, all together."""
    device, found = counting(arch)
    run = prepared(name, n, dtype, device)
    found.clear()
    run()
    device.synchronize()
    return {digest: joined(reports[0].kernel, reports) for digest, reports in found.items()}


@cache
def counting(arch: str) -> tuple[Any, dict[str, list[EmulationReport]]]:
    """(an emulated GPU, what launches on it counted). One for each kind: calls are planned for a device once, and known by its name."""
    found: dict[str, list[EmulationReport]] = {}

    class Counting(backend("runtime.emulated").Driver):  # type: ignore[misc]
        """Keeps what each launch counts."""

        cc = architecture(arch)

        def load(self, binary: Any) -> Any:
            kernel, given = super().load(binary)
            kernel.digest = binary.digest
            return kernel, given

        def run(self, loaded: tuple[Any, int], grid: tuple[int, ...], threads: int, values: Any) -> None:
            kernel, given = loaded
            counts = self.machine.launch(kernel, grid, threads, values, given, count=True)
            found.setdefault(kernel.digest, []).append(reported(kernel.name, counts))

    device = backend("device").CudaDevice(Counting(), 0)
    device.name = f"cuda ({arch}, emulated)"
    return device, found


# ---- CPU -------------------------------------------------------------------------------------------------------------------------------
def on_cpu(name: str, n: int | None, dtype: str, arch: str) -> Iterator[str]:
    looking = import_module("flamepy.backend.cpu.runtime.looking")
    device, launches = looking.watched()
    run = prepared(name, n or USUAL, dtype, device)
    launches.clear()
    for _ in range(1 if n is None else REPEATS):
        run()
    refuse_converted(name, as_dtype(dtype), [(launch.kernel.formula, launch.dtype) for launch in launches.values()])
    yield from heading(name, "this processor", [launch.name for launch in launches.values()], n or USUAL)
    for i, launch in enumerate(launches.values(), 1):
        yield from title(i, launch.name)
        if launch.kernel.formula is not None:
            yield from section("Formula", source(launch.kernel.formula))
        yield from section("Loop", source(launch.kernel.loop))
        llvm, assembly = launch.code()
        yield from section("LLVM", llvm)
        yield from section("Assembly", assembly)
        found = looking.tally(assembly)
        yield from section("Figures", "\n".join(f"{found[key]:>8,}  {WHAT[key]}" for key in found))
        if n is not None:
            best = min(launch.seconds)
            rate = f"{launch.nbytes / best / 1e9:.1f} GB/s ({launch.nbytes:,} bytes in its buffers)"
            yield from section(f"A run of {n:,} elements", f"fastest of {len(launch.seconds)} runs: {best * 1e6:.1f} us, {rate}")


WHAT = {"instructions": "instructions", "packed": "of them compute several floats at once", "scalar": "of them compute one float"}
