"""compile(): a Python function, or the name of one of flamepy's kernels, as PTX and machine code for a GPU that need not be there.

What is slow to make, machine code and its text, is made when it is asked for and kept on disk.
"""

from __future__ import annotations

import hashlib
import inspect
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from ..core.errors import DeviceError
from ..disk import kept
from ..dtypes import bfloat16

EXTRA = "pip install 'flamepy[cuda-emulator]'"
LEAST = 7, 5  # the compute capability below which numba-cuda makes no code
LINE = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/.*$|^\.L\w+:$")  # of machine code: an instruction, or where one jumps to
OPCODE = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", re.M)
DOUBLE = re.compile(r"D(ADD|MUL|FMA|SETP|MNMX|MMA)\b|MUFU\.\w+64")  # opcodes that compute in float64


@contextmanager
def installed() -> Iterator[None]:
    """Around what needs NVIDIA's compilers: tells how to get them."""
    try:
        yield
    except DeviceError as error:
        if "not installed" not in str(error):
            raise
        raise DeviceError(f"{str(error).partition(' Use ')[0]} Use {EXTRA}.") from None
    except ImportError as error:
        raise DeviceError(f"cuda: not installed: {error.name or error}. Use {EXTRA}.") from error


def backend(name: str) -> Any:
    """A file of the backend."""
    with installed():
        return import_module(f"flamepy.backend.cuda.{name}")


def emulator(name: str) -> Any:
    """A file of the emulator."""
    with installed():
        return import_module(f"flamepy.emulator.{name}")


@dataclass(frozen=True)
class Argument:
    """One argument of a kernel. `form`: "array" (Numba's), "span" (flamepy's), "number", "tuple" (of `parts`), "none"; dtypes: those of its
    numbers."""

    name: str
    form: str
    dtype: np.dtype | None = None
    ndim: int = 1
    layout: str = "C"
    parts: tuple[Argument, ...] = ()

    def kind(self) -> str:
        axes = {"array": f"[{', '.join(':' * self.ndim)}]", "span": "[:]"}.get(self.form, "")
        return f"({', '.join(part.kind() for part in self.parts)})" if self.form == "tuple" else f"{self.dtype or 'none'}{axes}"

    def leaves(self) -> tuple[Argument, ...]:
        """Itself, or all that a tuple holds, of which each is an argument to the GPU."""
        return tuple(leaf for part in self.parts for leaf in part.leaves()) if self.form == "tuple" else (self,)

    @property
    def dtypes(self) -> tuple[np.dtype, ...]:
        return tuple(leaf.dtype for leaf in self.leaves() if leaf.dtype is not None)

    def __str__(self) -> str:
        return f"{self.name}: {self.kind()}"


@dataclass(frozen=True, eq=False)
class CudaKernel:
    """A kernel compiled for one type of GPU: `ptx`; `sass`, its machine code as text; `registers` of a thread; `spills`, bytes of registers
    that did not fit; `local`, bytes of a thread's own memory; `shared`, bytes of a block's; `opcodes`, how often each instruction stands
    in it. `threads`: of a block, where the kernel is made for that number."""

    name: str
    arch: str
    ptx: str
    arguments: tuple[Argument, ...]
    binary: Any = field(repr=False)
    threads: int | None = None
    watched_ptx: Callable[[], str] | None = field(default=None, repr=False)  # where it has what the emulator can watch, so that it can

    @cached_property
    def leaves(self) -> tuple[Argument, ...]:
        return tuple(leaf for argument in self.arguments for leaf in argument.leaves())

    @cached_property
    def cubin(self) -> bytes:
        """The machine code."""
        with installed():
            return self.binary.cubin()[0]  # type: ignore[no-any-return]

    def figure(self, pattern: str) -> int:
        """A sum over what the assembler said of the kernel."""
        with installed():
            return sum(map(int, re.findall(pattern, self.binary.cubin()[1])))

    @cached_property
    def registers(self) -> int:
        return self.figure(r"Used (\d+) registers")

    @cached_property
    def spills(self) -> int:
        return self.figure(r"(\d+) bytes spill")

    @cached_property
    def local(self) -> int:
        return self.figure(r"(\d+) bytes stack frame")

    @cached_property
    def shared(self) -> int:
        own = sum(map(int, re.findall(r"\.shared[^;\[\]]*\[(\d+)\]", self.ptx)))  # the assembler is silent about it
        return own + self.binary.given  # type: ignore[no-any-return]

    @cached_property
    def sass(self) -> str:
        build = backend("runtime.build")
        file = build.cache_folder() / f"{self.binary.digest}.sass"
        return kept(file, lambda: disassembled(self.cubin).encode()).decode()

    @cached_property
    def opcodes(self) -> dict[str, int]:
        found = OPCODE.findall(self.sass)
        return {code: found.count(code) for code in sorted(set(found))}

    def __str__(self) -> str:
        wide = sum(count for code, count in self.opcodes.items() if DOUBLE.match(code))
        hint = f", {wide} of them in float64 (emulate() tells the lines)" if wide else ""
        return (
            f"{self.name}({', '.join(map(str, self.arguments))}) for {self.arch}: {self.registers} registers, {self.spills} bytes spilled, "
            f"{self.shared} bytes of shared memory, {sum(self.opcodes.values())} instructions{hint}"
        )


def compile(function: Any, signature: Any = None, arch: str = "sm_90") -> CudaKernel:
    """A kernel as PTX and machine code for `arch`, on any machine.

    function: a Python function in Numba's CUDA, decorated with @cuda.jit or not, with a signature as Numba writes it:
    "void(float32[::1], float32[::1], int32)". Or a name: that of an op (its first kernel, from the formula up), whose signature is a
    dtype, float32 by default. Raises DeviceError for what cannot be compiled, and where the compilers are not installed.
    """
    cc = architecture(arch)
    if isinstance(function, str):
        from .recording import first_kernel

        return first_kernel(function, "float32" if signature is None else signature, cc)
    if signature is None:
        raise TypeError(f"compile: no signature: {name_of(function)}. Say which types it takes: 'void(float32[::1], int32)'.")
    return compiled(getattr(function, "py_func", function), signature, cc)


def architecture(arch: str) -> tuple[Any, ...]:
    """A GPU's compute capability: (9, 0) of "sm_90"."""
    found = re.fullmatch(r"sm_(\d+)(\d)([af]?)", str(arch))
    if found is None or (int(found[1]), int(found[2])) < LEAST:
        raise ValueError(f"compile: no such architecture: {arch!r}. Use sm_80, sm_90, sm_100, ...")
    return int(found[1]), int(found[2]), *([found[3]] if found[3] else [])


def name_of(function: Any) -> str:
    name = getattr(function, "__name__", type(function).__name__)
    return name if name.isidentifier() else "kernel"


def compiled(function: Any, signature: Any, cc: tuple[Any, ...]) -> CudaKernel:
    """A user's function for arguments of these types."""
    if not hasattr(function, "__code__"):
        raise TypeError(f"compile: not a function: {function!r}. Give a Python function, @cuda.jit or not, or the name of an op.")
    compat, build, name = backend("runtime.compat"), backend("runtime.build"), name_of(function)
    if function.__code__.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
        raise DeviceError(f"{name}: a kernel with *args or **kwargs: numba-cuda launches none. Name the arguments, or give one tuple.")
    found: list[int] = []
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    with installed():
        types, watch = argument_types(signature), backend("runtime.watch").watching
        if len(types) != len(names):
            raise TypeError(f"{name}: wrong number of arguments: {len(types)}. It takes {len(names)}: {', '.join(names)}.")
        try:
            with watch(found):
                ptx = build.renamed(build.ptx_of(function, types, cc, inside=True), name)
        except (*compat.PROBLEMS, TypeError, AttributeError, NotImplementedError) as problem:  # try, where Numba knows none
            text = " ".join(str(problem).split()).rstrip(".")
            raise DeviceError(f"{name}: cannot be compiled for CUDA: {text[:400]}. Write it in Numba's CUDA Python.") from problem

    def watched() -> str:
        with watch([], max(found)):
            return build.renamed(build.ptx_of(function, types, cc, inside=True), name)  # type: ignore[no-any-return]

    digest = hashlib.sha256(repr((ptx, cc, build.versions())).encode()).hexdigest()[:20]
    arguments = tuple(argument(n, t) for n, t in zip(names, types, strict=True))
    return CudaKernel(name, build.arch(cc), ptx, arguments, build.Binary(name, ptx, cc, digest), None, watched if found else None)


def argument_types(signature: Any) -> tuple[Any, ...]:
    """Numba's types of the arguments, from a signature in any of the forms that Numba takes."""
    try:
        types, result = import_module("numba.cuda.core.sigutils").normalize_signature(signature)
    except Exception as problem:
        raise ValueError(f"compile: not a signature: {signature!r}. Write it as 'void(float32[::1], int32)'.") from problem
    if result is not None and str(result) not in ("none", "void"):
        raise ValueError(f"compile: a kernel returns nothing: {signature!r}. Write it as 'void(...)'.")
    return tuple(types)


def argument(name: str, kind: Any) -> Argument:
    """What a Numba type asks of an argument."""
    if hasattr(kind, "ndim"):
        return Argument(name, "array", dtype_of(name, kind.dtype), kind.ndim, kind.layout)
    if isinstance(getattr(kind, "types", None), Sequence):
        names = [f"{name}.{field}" for field in getattr(kind, "fields", ())] or [f"{name}[{k}]" for k in range(len(kind.types))]
        return Argument(name, "tuple", parts=tuple(map(argument, names, kind.types)))
    if str(kind) == "none":
        return Argument(name, "none")
    return Argument(name, "number", dtype_of(name, kind))


def dtype_of(name: str, kind: Any) -> np.dtype:
    text = str(kind)
    if hasattr(kind, "fields"):  # a record
        return kind.dtype  # type: ignore[no-any-return]
    try:
        return bfloat16 if "bfloat16" in text else np.dtype("bool" if text in ("bool", "boolean") else text)
    except TypeError:
        raise DeviceError(f"compile: no such argument here: {name}, {text}. Use arrays, numbers and tuples of numbers.") from None


def disassembled(cubin: bytes) -> str:
    """Machine code as text."""
    return "\n".join(line for line in nvdisasm(cubin).splitlines() if LINE.match(line)) + "\n"


def nvdisasm(cubin: bytes) -> str:
    """What NVIDIA's disassembler prints of code sections."""
    with installed():
        pathfinder = import_module("cuda.pathfinder")
    tool = pathfinder.find_nvidia_binary_utility("nvdisasm")
    if tool is None:
        raise DeviceError(f"cuda: a program is not installed: nvdisasm. Use {EXTRA}.")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cubin"
        file.write_bytes(cubin)
        # Without the analysis of where old GPUs' branches go, a third of its time.
        done = subprocess.run([tool, "-ndf", "-c", str(file)], capture_output=True, check=False)
    if done.returncode:
        raise DeviceError(f"cuda: nvdisasm failed: {done.stderr.decode(errors='replace').strip()[:200]}. Install another: {EXTRA}.")
    return done.stdout.decode("latin1")
