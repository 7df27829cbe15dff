"""`flamepy cache ls` and `flamepy cache clear`: the compiled kernels Numba keeps on disk for the next process.

Numba writes one index (.nbi) and some data files (.nbc) per kernel. Only those are listed and removed, whatever else lies
in the folder.

Read next: doctor.py.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from ..backend import base
from .display import kernel_title
from .problems import InputError

# <file>.<kernel name>-<line>.py311.nbi or .py311.1.nbc; and .tmp.<something> behind it, which a killed process was writing
OURS = {path.stem for path in Path(base.__file__).with_name("cpu").glob("*.py")}  # files whose functions Numba keeps there
ENTRY = re.compile(r"^(?P<file>\w+)\.(?P<kernel>.+)-\d+\.py\d+\w*\.(nbi|\d+\.nbc)(\.tmp\.\w+)?$")


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
    return 0


def clear() -> int:
    found = entries()
    removed = total(found)
    for files in found.values():
        for file in files:
            try:
                file.unlink(missing_ok=True)
            except OSError as error:
                raise InputError(f"cannot remove: {file}: {error.strerror}. Check its permissions.") from error
    print(f"removed {removed} from the kernel cache {cache_folder()}; the next run compiles again")
    return 0
