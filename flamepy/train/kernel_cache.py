"""`flamepy cache ls` and `flamepy cache clear`: the compiled kernels kept on disk for the next process, of the CPU and for GPUs.

Numba writes one index (.nbi) and some data files (.nbc) per kernel; for GPUs there are PTX, machine code, what the emulator runs, and
which of several ways was the fastest. Only those are listed and removed, whatever else lies in the folders.

Read next: doctor.py.
"""

from __future__ import annotations

import contextlib
import re
from collections import defaultdict
from importlib import import_module
from pathlib import Path

from ..backend import base
from ..disk import TEMPORARY, cuda_folder
from .display import kernel_title
from .problems import InputError

# <file>.<kernel name>-<line>.py311.nbi or .py311.1.nbc; and .tmp.<something> behind it, which a killed process was writing
OURS = {path.stem for path in Path(base.__file__).with_name("cpu").glob("*.py")}  # files whose functions Numba keeps there
ENTRY = re.compile(r"^(?P<file>\w+)\.(?P<kernel>.+)-\d+\.py\d+\w*\.(nbi|\d+\.nbc)(\.tmp\.\w+)?$")
# what a file for GPUs is called (.tmp-...- before it, which a killed process was writing) -> what that is
FOR_GPUS = {
    r"[0-9a-f]{20}(-\w+)?\.ptx": "PTX", r"[0-9a-f]{20}(-\w+)?\.(cubin|log)": "machine code",
    r"[0-9a-f]{20}(-\w+)?\.sass": "machine code as text", r"[0-9a-f]{32}\.emulated": "what the emulator runs",
    r"(products|attention)-.+\.json": "choices of the fastest",
}  # fmt: skip


def cache_folder() -> Path:
    """Where this machine keeps flamepy's compiled kernels."""
    return base.device("cpu").cache_folder()


def entries() -> dict[str, list[Path]]:
    """Kernel name -> its files."""
    found: dict[str, list[Path]] = defaultdict(list)
    folder = cache_folder()
    if folder.is_dir():
        for path in sorted(folder.iterdir()):
            match = ENTRY.match(path.name)
            if match and match["file"] in OURS:
                found[match["kernel"]].append(path)
    return dict(found)


def emulator_folder() -> Path:
    """Where Numba keeps the emulator's own functions."""
    runtime = import_module("flamepy.backend.cuda.emulator.runtime")
    return Path(runtime.RuntimeCache(runtime.runtime_run.run.py_func).cache_path)


def for_gpus() -> dict[str, list[Path]]:
    """What is kept for GPUs -> its files."""
    found: dict[str, list[Path]] = defaultdict(list)
    with contextlib.suppress(RuntimeError, OSError):  # no folder can be written to: nothing is kept
        own = sorted(emulator_folder().glob("runtime_*.nb[ic]*"))
        found |= {"the emulator's own functions": own} if own else {}
    for path in sorted([*cuda_folder().glob("*"), *cuda_folder().glob("emulator-*/*")]):
        name = re.sub(rf"^{re.escape(TEMPORARY)}\d+-\d+-", "", path.name)
        what = next((what for pattern, what in FOR_GPUS.items() if re.fullmatch(pattern, name)), None)
        if what:
            found[what].append(path)
    return dict(found)


def size_of(files: list[Path]) -> int:
    return sum(f.stat().st_size for f in files if f.exists())


def megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"


def total(found: dict[str, list[Path]]) -> str:
    """How many kernels, how large."""
    return f"{len(found)} kernel{'s' * (len(found) != 1)}, {megabytes(sum(map(size_of, found.values())))}"


def list_kernels() -> int:
    found = entries()
    for name, files in found.items():
        print(f"{size_of(files) / 1e3:8.1f} kB  {kernel_title(name)}")
    print(f"{total(found)} in the kernel cache {cache_folder()}")
    gpus = for_gpus()
    for what, files in gpus.items():
        print(f"{size_of(files) / 1e3:8.1f} kB  {what}: {len(files)} file{'s' * (len(files) != 1)}")
    print(f"{total_for_gpus(gpus)} in {cuda_folder()}")
    return 0


def total_for_gpus(found: dict[str, list[Path]]) -> str:
    count = sum(map(len, found.values()))
    return f"{count} file{'s' * (count != 1)} for GPUs, {megabytes(sum(map(size_of, found.values())))}"


def clear() -> int:
    found, gpus = entries(), for_gpus()
    removed = f"{total(found)} from the kernel cache {cache_folder()}, {total_for_gpus(gpus)} from {cuda_folder()}"
    for file in [file for files in (*found.values(), *gpus.values()) for file in files]:
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            raise InputError(f"cannot remove: {file}: {error.strerror}. Check its permissions.") from error
    for folder in cuda_folder().glob("emulator-*"):
        with contextlib.suppress(OSError):  # something else lies there
            folder.rmdir()
    print(f"removed {removed}; the next run compiles again")
    return 0
