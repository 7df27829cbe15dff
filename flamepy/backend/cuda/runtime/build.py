"""From a Python function to code for a GPU: PTX by numba-cuda, machine code by nvJitLink; no driver and no GPU is needed for either.

A kernel's arguments are kinds: a dtype (a Span of it), a number's type, None, or a tuple of int32. What was compiled is kept on disk, in
files that are checked, under a name that is a digest of everything it was made of. Division and square root in float32 are the GPU's own,
right to 2 and 1 units in the last place: the exact ones are calls of a slow path.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from ....disk import checked, cuda_folder, kept, put_checked, put_in_cache
from ...formula.bind import announce
from .compat import cuda, libraries, target, types
from .span import span_of

ENTRY = "kernel"
STATIC, GIVEN = 48 << 10, "given_room_"  # bytes of shared memory that a kernel may have of its own; the array of what a launch gives it
ROUGH = ("div.rn.f32", "div.full.f32"), ("sqrt.rn.f32", "sqrt.approx.f32"), ("rcp.rn.f32", "rcp.approx.f32")


class Binary(NamedTuple):
    """A compiled kernel: PTX whose entry is called ENTRY, and its name for people."""

    name: str
    ptx: str
    cc: tuple[int, ...]
    digest: str

    @property
    def given(self) -> int:
        """Bytes of shared memory that a launch has to give it."""
        found = re.search(rf"\.extern \.shared [^;]*\b{GIVEN}(\d+)\[", self.ptx)
        return int(found[1]) if found else 0

    def cubin(self) -> tuple[bytes, str]:
        """(machine code, what ptxas says: registers, spills), from disk where it was made before."""
        folder = cache_folder()
        files = folder / f"{self.digest}.cubin", folder / f"{self.digest}.log"
        code, log = map(checked, files)
        if code is not None and log is not None:
            return code, log.decode()
        made = link(self.ptx, arch(self.cc) + "a" * (".target sm_90a" in self.ptx))
        put_checked(files[0], made[0])
        put_checked(files[1], made[1].encode())
        return made


def arch(cc: tuple[int, ...]) -> str:
    return "sm_" + "".join(map(str, cc))


def link(ptx: str, name: str) -> tuple[bytes, str]:
    from cuda.core import Linker, LinkerOptions, ObjectCode

    with libraries():
        linker = Linker(ObjectCode.from_ptx(ptx.encode()), options=LinkerOptions(arch=name, ptxas_options=["-v"]))
        return bytes(linker.link("cubin").code), linker.get_info_log()


def compiled(make: Callable[[], Any], name: str, mark: str, kinds: Sequence[Any], cc: tuple[int, ...], bounds: tuple[int, int]) -> Binary:
    """The kernel that make() gives as a Python function, for arguments of these kinds. bounds: (threads of a block, blocks together).
    `mark`: a digest of what the function is made of."""
    key = hashlib.sha256(repr((name, mark, list(kinds), cc, bounds, versions())).encode()).hexdigest()[:20]

    def translated() -> bytes:
        started, function = time.perf_counter(), make()
        text = tidied(ptx_of(function, signature_of(function, kinds), cc, bounds))
        announce(f"{name} (cuda)", started)
        return text.encode()

    return Binary(name, kept(cache_folder() / f"{key}.ptx", translated).decode(), cc, key)


def ptx_of(function: Any, signature: Any, cc: tuple[int, ...], bounds: tuple[int, int] | None = None, inside: bool = False) -> str:
    """What numba-cuda makes of a kernel: with line numbers, unless a label is lost for them; `inside`: of its device functions, too."""
    options = {"device": False, "abi": "numba", "cc": cc, "launch_bounds": bounds}
    with target(cc, inside):
        text, _ = cuda.compile(function, signature, lineinfo=True, **options)
        if lost_labels(text):
            text, _ = cuda.compile(function, signature, **options)
    return str(text)


# Python keeps frames in pieces of 16 KiB and gives the last one back at once: a loop whose calls cross the end of a piece asks the system
# for memory each time, and Numba's often do. Behind a frame of this size there is room for all of theirs.
ptx_of.__code__ = ptx_of.__code__.replace(co_stacksize=1 << 16)


def lost_labels(ptx: str) -> set[str]:
    """Labels that are jumped to and stand nowhere: NVVM 13 forgets one, in loops that it unrolls, when it also writes lines."""
    return set(re.findall(r"\bbra(?:\.uni)?\s+(\$\w+)", ptx)) - set(re.findall(r"^(\$\w+):", ptx, flags=re.M))


def tidied(ptx: str) -> str:
    """PTX with a short name for its entry and the GPU's own division; what no later GPU has is for sm_90a."""
    ptx = renamed(ptx, ENTRY)
    if "wgmma." in ptx:
        ptx = ptx.replace(".target sm_90", ".target sm_90a", 1)
    for exact, rough in ROUGH:
        ptx = ptx.replace(exact, rough)
    return ptx


def renamed(ptx: str, name: str) -> str:
    """PTX without Numba's globals, whose entry has this name."""
    ptx = re.sub(r"^\.common \.global .*NumbaEnv.*\n", "", ptx, flags=re.M)
    found = re.search(r"\.entry\s+(\w+)", ptx)
    return ptx.replace(found[1], name)  # type: ignore[index]


def signature_of(function: Any, kinds: Sequence[Any]) -> Any:
    """Numba's signature of a kernel; what `*c` takes is one tuple."""
    given, code = [argument(kind) for kind in kinds], function.__code__
    if code.co_flags & inspect.CO_VARARGS:
        first = code.co_argcount
        given[first:] = [types.StarArgTuple.from_types(given[first:])]
    return types.void(*given)


def argument(kind: Any) -> Any:
    """Numba's type of a kernel's argument."""
    if kind is None:
        return types.none
    if isinstance(kind, tuple):  # (dtype, how many): a small table
        return types.UniTuple(getattr(types, kind[0]), kind[1])
    if isinstance(kind, str):
        return getattr(types, kind)
    return span_of(kind)


@cache
def versions() -> tuple[str, ...]:
    return tuple(installed(package) for package in ("numba-cuda", "numba", "nvidia-nvvm", "cuda-bindings"))


def installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # NVVM may come with a toolkit
        return "-"


class Chooser:
    """A library that remembers in a file what was chosen, in this and earlier processes, so that the next run takes the same."""

    file: Path
    kind: Any = str  # of a choice

    def choices(self) -> dict[str, Any]:
        try:
            return {key: self.kind(value) for key, value in json.loads(self.file.read_text()).items()}
        except (OSError, ValueError, AttributeError, TypeError):
            return {}

    def choose(self, key: Any, what: Any) -> None:
        put_in_cache(self.file, json.dumps(self.choices() | {str(key): what}, indent=0, sort_keys=True).encode())


@cache
def cache_folder() -> Path:
    """Where PTX and machine code are kept: where the user's caches are, or for this process alone."""
    folder = cuda_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        return Path(tempfile.mkdtemp(prefix="flamepy-cuda-"))
