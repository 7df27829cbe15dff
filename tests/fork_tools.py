"""Short programs, each in a process of its own that need not start from nothing: forks of one that has imported Numba and flamepy.

A start takes half a second, most of it imports, and Numba's first compilation as much again. Nothing of flamepy's CPU backend is there
before the fork, so what a program finds in its kernel cache, compiles and warns of is what a new process would. Where there is no fork
it is one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

SERVER = """
import json, os, sys, tempfile, traceback
import numba, flamepy
numba.njit("f8(f8)")(lambda x: x + 1.0)
assert "flamepy.backend.cpu.runtime.compiler" not in sys.modules

def run(code, folder, cache):
    os.chdir(folder)
    os.environ["NUMBA_CACHE_DIR"] = numba.config.CACHE_DIR = cache
    exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})

for line in sys.stdin:
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = os.fork()
        if not child:
            code = 1
            try:
                os.dup2(out.fileno(), 1)
                os.dup2(err.fileno(), 2)
                run(*json.loads(line))
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        for file in (out, err):
            file.seek(0)
        print(json.dumps([code, out.read(), err.read()]), flush=True)
"""
Run = Callable[[str, Path, Path], tuple[int, str, str]]  # (program, its folder, its kernel cache) -> exit status, stdout, stderr


def run_new(code: str, folder: Path, cache: Path) -> tuple[int, str, str]:
    """In a new process."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=folder,
        env={**os.environ, "NUMBA_CACHE_DIR": str(cache)},
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@contextmanager
def forks() -> Iterator[Run]:
    """run_new(), by forks while the block lasts."""
    if not hasattr(os, "fork"):
        yield run_new
        return
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # a process with threads is not to be forked
    with subprocess.Popen(
        [sys.executable, "-c", SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=Path(__file__).parent,  # from elsewhere it would import this folder's flamepy, and not the one that is installed
    ) as server:
        assert server.stdin is not None and server.stdout is not None

        def run(code: str, folder: Path, cache: Path) -> tuple[int, str, str]:
            server.stdin.write(json.dumps([code, str(folder), str(cache)]) + "\n")
            server.stdin.flush()
            return tuple(json.loads(server.stdout.readline()))

        yield run
