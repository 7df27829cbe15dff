"""This process as one on Windows or macOS, as far as Linux can play it: run as `python elsewhere.py win32|darwin script.py`.

What Python documents as Unix-only (for darwin: Linux-only) is hidden, but for what the standard library and filelock need here
themselves. For win32 the file system behaves like Windows's too: a file that is open or mapped is neither removed nor replaced,
folders cannot be opened, only sockets can be waited for, and new names must be possible there. The libraries below flamepy are
imported before: they have their own ways there. Not played: the drive letters and backslashes of paths, the file formats and calling
conventions of machine code.
"""

from __future__ import annotations

import builtins
import errno
import importlib
import io
import mmap
import os
import platform
import re
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

LIBRARIES = [
    "numpy",
    "numba",
    "numba.core.ccallback",
    "llvmlite.binding",
    "ml_dtypes",
    "safetensors",
    "rich.live",
    "rich.progress",
    "click",
    "matplotlib.pyplot",
    "filelock",
    "subprocess",
    "multiprocessing.pool",
    "concurrent.futures",
    "tempfile",
    "shutil",
    "uuid",
    "asyncio",
    "unittest.mock",
    "importlib.metadata",
]
MODULES = {
    "win32": [
        "fcntl",
        "resource",
        "termios",
        "pwd",
        "grp",
        "pty",
        "tty",
        "posix",
        "crypt",
        "spwd",
        "syslog",
        "readline",
        "curses",
        "_posixsubprocess",
    ],
    "darwin": ["spwd"],
}
NAMES = {
    "win32": {
        os: [
            "register_at_fork",
            "fork",
            "forkpty",
            "sched_getaffinity",
            "sched_setaffinity",
            "sched_yield",
            "sysconf",
            "sysconf_names",
            "confstr",
            "O_DIRECTORY",
            "O_SYNC",
            "getuid",
            "getgid",
            "getegid",
            "getpgid",
            "setsid",
            "killpg",
            "fstatvfs",
            "uname",
            "getloadavg",
            "fchown",
            "chown",
            "lchown",
            "mkfifo",
            "pread",
            "pwrite",
            "readv",
            "writev",
            "posix_fadvise",
            "posix_fallocate",
            "sendfile",
            "set_blocking",
            "get_blocking",
            "fdatasync",
            "memfd_create",
            "openpty",
            "wait",
            "wait3",
            "wait4",
            "WIFEXITED",
            "nice",
            "getpriority",
            "eventfd",
            "pidfd_open",
            "ctermid",
            "ttyname",
        ],
        signal: [
            "SIGHUP",
            "SIGKILL",
            "SIGPIPE",
            "SIGALRM",
            "SIGUSR1",
            "SIGUSR2",
            "SIGCHLD",
            "SIGQUIT",
            "SIGSTOP",
            "SIGCONT",
            "SIGTSTP",
            "SIGWINCH",
            "pthread_sigmask",
            "pthread_kill",
            "sigwait",
            "sigpending",
            "setitimer",
            "getitimer",
            "alarm",
            "pause",
            "siginterrupt",
        ],
        mmap: ["MAP_SHARED", "MAP_PRIVATE", "MAP_ANONYMOUS", "MAP_ANON", "MADV_HUGEPAGE", "MAP_NORESERVE", "MAP_POPULATE", "PROT_READ"],
        select: ["poll", "epoll"],
    },
    "darwin": {
        os: ["sched_getaffinity", "sched_setaffinity", "posix_fadvise", "memfd_create", "eventfd", "pidfd_open", "getresuid"],
        mmap: ["MADV_HUGEPAGE", "MAP_POPULATE", "MAP_NORESERVE"],
        select: ["epoll"],
    },
}
RESERVED = re.compile(r'[<>:"|?*\x00-\x1f\\]|[ .]$|^(con|prn|aux|nul|com\d|lpt\d)(\.|$)', re.I)


def held() -> set[str]:
    """The files that this process has open or mapped."""
    found = set()
    for handle in LISTDIR("/proc/self/fd"):
        try:
            found.add(os.readlink(f"/proc/self/fd/{handle}"))
        except OSError:
            continue
    return found | {line.split(None, 5)[5].strip() for line in OPEN("/proc/self/maps") if line.count("/")}


def refuse(path: Any) -> None:
    """As Windows does where a file there, or one in the folder, is open."""
    place = os.path.realpath(os.fsdecode(path))
    if any(name == place or name.startswith(place + "/") for name in held()):
        raise PermissionError(errno.EACCES, "The process cannot access the file because it is being used", place)


def check_name(path: Any) -> None:
    name = os.path.basename(os.path.normpath(os.fsdecode(path)))
    if RESERVED.search(name):
        raise OSError(errno.EINVAL, "The filename, directory name, or volume label syntax is incorrect", name)


OPEN, LISTDIR = builtins.open, os.listdir


def guard_files() -> None:
    """The file system's functions with the manners of Windows."""
    before = {name: getattr(os, name) for name in ("open", "replace", "rename", "unlink", "remove", "mkdir", "rmdir")}

    def open_file(path: Any, flags: int, *args: Any, **given: Any) -> int:
        if os.path.isdir(path):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        if flags & os.O_CREAT:
            check_name(path)
        ours = str(sys._getframe(1).f_globals.get("__name__")).startswith("flamepy") and path != os.devnull
        assert flags & (0x10000000 | os.O_RDWR) or not flags & os.O_WRONLY or not ours, f"text mode: {path}"  # O_BINARY: else \r\n
        return before["open"](path, flags & ~0x10000000, *args, **given)

    def moved(name: str) -> Any:
        def move(source: Any, target: Any, **given: Any) -> None:
            check_name(target)
            refuse(source)
            if os.path.exists(target):
                if name == "rename":
                    raise FileExistsError(errno.EEXIST, "Cannot create a file when that file already exists", target)
                refuse(target)
            before[name](source, target, **given)

        return move

    def removed(name: str) -> Any:
        def remove(path: Any, **given: Any) -> None:
            if given.get("dir_fd") is None:
                refuse(path)
            before[name](path, **given)

        return remove

    def make_folder(path: Any, *args: Any, **given: Any) -> None:
        check_name(path)
        before["mkdir"](path, *args, **given)

    def wait(readers: Any, writers: Any, others: Any, *rest: Any) -> Any:
        assert all(isinstance(one, socket.socket) for one in (*readers, *writers)), "only sockets can be waited for"
        return select_before(readers, writers, others, *rest)

    def open_named(path: Any, mode: str = "r", *args: Any, **given: Any) -> Any:
        if not isinstance(path, int) and mode[0] in "wax" and not given.get("opener"):  # tempfile's names its folder
            check_name(path)
        return OPEN(path, mode, *args, **given)

    shutil._use_fd_functions = False  # type: ignore[attr-defined]  # folders have no handles there
    tempfile.TemporaryFile = tempfile.NamedTemporaryFile  # as it is there
    select_before, select.select = select.select, wait
    builtins.open = io.open = open_named
    os.O_BINARY = 0x10000000  # type: ignore[attr-defined]
    os.open, os.mkdir = open_file, make_folder  # type: ignore[assignment]
    for name in ("replace", "rename"):
        setattr(os, name, moved(name))
    for name in ("unlink", "remove"):
        setattr(os, name, removed(name))


def go(system: str) -> None:
    """Become such a process."""
    for name in LIBRARIES:
        importlib.import_module(name)
    for name in MODULES[system]:
        sys.modules[name] = None  # type: ignore[assignment]  # an import of it fails
    for module, names in NAMES[system].items():
        for name in names:
            vars(module).pop(name, None)
    machine = {"win32": ("Windows", "AMD64"), "darwin": ("Darwin", "arm64")}[system]
    platform.system, platform.machine = lambda: machine[0], lambda: machine[1]
    sys.platform = system
    if system == "win32":
        guard_files()
        subprocess.Popen.kill = lambda process: process.send_signal(9)  # type: ignore[method-assign]  # needs no signal's name there


if __name__ == "__main__":
    here = str(Path(__file__).resolve().parent.parent)
    script = sys.argv[2]
    sys.path.insert(0, here)
    go(sys.argv[1])
    sys.argv[:] = sys.argv[2:]
    runpy.run_path(script, run_name="__main__")
