"""Writing files so that a crash, a kill -9 or a full disk never leaves half of one.

The recipe: write under a temporary name, fsync the file, rename over the real name, fsync the folder. Rename is atomic, so a
reader sees the old file or the new one; the fsyncs make that true after a power cut as well. Who writes holds a lock, so that
what a killed process was writing can be told from what a living one writes, and goes. What can be made again is not worth a wait
for the disk: after a power cut its file may be empty or torn, so it begins with a digest, and readers look.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

TEMPORARY = ".tmp-"  # what every unfinished file or folder begins with
DIGEST = 32  # bytes at the beginning of a file that is checked
FRESH = 60.0  # seconds: a file that was written to so lately may have an owner who has just opened or just closed it


def write_file(path: Path, pieces: Iterable[bytes | memoryview], late: Callable[[], tuple[int, bytes]] | None = None) -> None:
    """Create `path` from `pieces`, on disk when this returns. Plain os.write: no buffer that could fail later.

    `late` gives (where, bytes) of what is known only when all pieces are written.
    """
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), 0o644)
    try:
        lock(handle)
        for piece in pieces:
            write_whole(handle, piece)
        if late is not None:
            where, piece = late()
            os.lseek(handle, where, os.SEEK_SET)
            write_whole(handle, piece)
        os.fsync(handle)
    finally:
        os.close(handle)


def write_whole(handle: int, piece: bytes | memoryview) -> None:
    view = memoryview(piece)
    while view:
        view = view[os.write(handle, view) :]


def lock(handle: int) -> bool:
    """Take an open file's lock, if nobody has it; it goes when the file is closed, however the process ends. Windows needs none: it does
    not remove a file that somebody has open."""
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError:
        return False


def sweep_dead(folder: Path, pattern: str) -> None:
    """Remove the unfinished files that match a glob whose writers were killed."""
    for left in folder.glob(TEMPORARY + pattern):
        with contextlib.suppress(OSError):
            handle = os.open(left, os.O_RDWR)
            try:
                dead = time.time() - os.fstat(handle).st_mtime > FRESH and lock(handle)
            finally:
                os.close(handle)
            if dead:  # nobody opens such a file again; closed first, or Windows would keep it
                left.unlink()


def sync_folder(path: Path) -> None:
    """Make renames inside `path` survive a power cut (a no-op where folders cannot be opened)."""
    with contextlib.suppress(PermissionError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def put_in_cache(path: Path, data: bytes) -> None:
    """Keep what can be made again; where it cannot be written, whoever wants it next makes it again. Nobody waits for the disk: data must
    tell its reader whether they are whole, as JSON does, and checked()."""
    temporary = path.with_name(f"{TEMPORARY}{os.getpid()}-{threading.get_ident()}-{path.name}")
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_bytes(data)
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def cuda_folder() -> Path:
    """Where code for GPUs is kept: beside Numba's files if NUMBA_CACHE_DIR says where, else with the user's other caches."""
    given = os.environ.get("NUMBA_CACHE_DIR")
    home = Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "flamepy-cuda"


def put_checked(path: Path, data: bytes) -> None:
    """put_in_cache() for any bytes; checked() reads them."""
    put_in_cache(path, hashlib.sha256(data).digest() + data)


def kept(path: Path, make: Callable[[], bytes]) -> bytes:
    """What put_checked() kept there; made, and kept, where it is not."""
    data = checked(path)
    if data is None:
        data = make()
        put_checked(path, data)
    return data


def checked(path: Path) -> bytes | None:
    """What put_checked() kept; None where there is nothing, or not all of it."""
    try:
        raw = path.read_bytes()
    except OSError:
        return None
    return raw[DIGEST:] if raw[:DIGEST] == hashlib.sha256(raw[DIGEST:]).digest() else None


def put_file(
    path: Path, temporary: Path, pieces: Iterable[bytes | memoryview], late: Callable[[], tuple[int, bytes]] | None = None
) -> None:  # fmt: skip
    """Give `path` new content, all or nothing; see write_file. A file that is replaced hands its mode on."""
    try:
        write_file(temporary, pieces, late)
        with contextlib.suppress(OSError):
            os.chmod(temporary, os.stat(path).st_mode & 0o7777)
        os.replace(temporary, path)
        sync_folder(path.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
