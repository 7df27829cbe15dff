"""`flamepy cache ls` and `flamepy cache clear`: the compiled kernels kept on disk for the next process, of the CPU and for GPUs.

Numba writes one index (.nbi) and some data files (.nbc) per kernel; for GPUs there are PTX, machine code, what the emulator runs, and
which of several ways was the fastest. Only those are listed and removed, whatever else lies in the folders.
"""

from __future__ import annotations

import contextlib
import re
from collections import defaultdict
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from ..backend import base
from ..disk import TEMPORARY, cuda_folder
from ..train.display import kernel_title
from ..train.lines import amount, say, whole
from ..train.problems import InputError

# <file>.<kernel name>-<line>.py311.nbi or .py311.1.nbc; and .tmp.<something> behind it, which a killed process was writing
OURS = {path.stem for path in Path(base.__file__).with_name("cpu").rglob("*.py")}  # files whose functions Numba keeps there
ENTRY = re.compile(r"^(?P<file>\w+)\.(?P<kernel>.+)-\d+\.py\d+\w*\.(nbi|\d+\.nbc)(\.tmp\.\w+)?$")
# what a file for GPUs is called (.tmp-...- before it, which a killed process was writing) -> what that is
FOR_GPUS = {
    r"[0-9a-f]{20}(-\w+)?\.ptx": "PTX", r"[0-9a-f]{20}(-\w+)?\.(cubin|log)": "machine code",
    r"[0-9a-f]{20}(-\w+)?\.sass": "machine code as text", r"[0-9a-f]{32}\.emulated": "what the emulator runs",
    r"(products|attention)-.+\.json": "choices of the fastest",
}  # fmt: skip


class Place(NamedTuple):
    """A folder with compiled code in it: what is there -> its files."""

    title: str
    folder: Path
    found: dict[str, list[Path]]

    @property
    def files(self) -> list[Path]:
        return [file for files in self.found.values() for file in files]

    def __str__(self) -> str:
        return f"{self.title}: {count(self.files)} in {whole(self.folder)}"


def cache_folder() -> Path:
    """Where this machine keeps flamepy's compiled kernels."""
    return base.device("cpu").cache_folder()


def kernels() -> Place:
    """The CPU's kernels by name."""
    found: dict[str, list[Path]] = defaultdict(list)
    folder = cache_folder()
    if folder.is_dir():
        for path in sorted(folder.iterdir()):
            match = ENTRY.match(path.name)
            if match and match["file"] in OURS:
                found[match["kernel"]].append(path)
    return Place(f"{len(found)} kernel{'s' * (len(found) != 1)} of the CPU", folder, dict(found))


def emulator_folder() -> Path:
    """Where Numba keeps the emulator's own functions."""
    runtime = import_module("flamepy.emulator.runtime")
    return Path(runtime.RuntimeCache(runtime.runtime_run.run.py_func).cache_path)


def for_gpus() -> list[Place]:
    """What is kept for GPUs, and for the emulated one."""
    found: dict[str, list[Path]] = defaultdict(list)
    for path in sorted([*cuda_folder().glob("*"), *cuda_folder().glob("emulator-*/*")]):
        name = re.sub(rf"^{re.escape(TEMPORARY)}\d+-\d+-", "", path.name)
        what = next((what for pattern, what in FOR_GPUS.items() if re.fullmatch(pattern, name)), None)
        if what:
            found[what].append(path)
    places = [Place("code for GPUs", cuda_folder(), dict(found))]
    with contextlib.suppress(RuntimeError, OSError):  # no folder can be written to: nothing is kept
        own = sorted(emulator_folder().glob("runtime_*.nb[ic]*"))
        places.append(Place("the GPU emulator", emulator_folder(), {"the emulator's own functions": own} if own else {}))
    return places


def size_of(files: list[Path]) -> int:
    return sum(f.stat().st_size for f in files if f.exists())


def count(files: list[Path]) -> str:
    """How many files, how large."""
    return f"{len(files)} file{'s' * (len(files) != 1)}, {amount(size_of(files))}"


def list_kernels() -> int:
    for place in (kernels(), *for_gpus()):
        for name, files in place.found.items():
            say(f"{amount(size_of(files)):>10}  {kernel_title(name)}")
        say(str(place))
    return 0


def clear(cpu: bool, gpu: bool) -> int:
    """Remove the CPU's kernels, what is kept for GPUs, or both."""
    places = [*([kernels()] if cpu else []), *(for_gpus() if gpu else [])]
    for place in places:
        say(f"emptying  {place}")
    files = [file for place in places for file in place.files]
    removed = count(files)
    for file in files:
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            raise InputError(f"cannot remove: {file}: {error.strerror}. Check its permissions.") from error
    for folder in cuda_folder().glob("emulator-*") if gpu else ():
        with contextlib.suppress(OSError):  # something else lies there
            folder.rmdir()
    say(f"removed   {removed}; the next run compiles again" if files else "removed   nothing: there was nothing")
    return 0
