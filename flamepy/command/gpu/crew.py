"""The side of `flamepy doctor --gpu` that asks: processes that use the GPU (worker.py), one of which may crash or hang alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Answer = dict[str, Any]
LOST = "its process ended"


def brief(error: BaseException) -> str:
    """An error on one line, with the innermost line of flamepy."""
    place, trace = "", error.__traceback__
    while trace is not None:
        file = Path(trace.tb_frame.f_code.co_filename)
        if "flamepy" in file.parts and file != Path(__file__).with_name("worker.py"):
            place = f" ({file.parent.name}/{file.name}:{trace.tb_lineno})"
        trace = trace.tb_next
    return f"{type(error).__name__}: {' '.join(str(error).split())[:600]}{place}"


def begin(task: str, **more: str) -> subprocess.Popen[str]:
    """A worker of this Python and this flamepy, wherever it was imported from."""
    root = str(Path(__file__).parents[3])
    env = {**os.environ, **more, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)}
    command = [sys.executable, "-W", "ignore", "-m", "flamepy.command.gpu.worker", task]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)


def finish(process: subprocess.Popen[str], seconds: float) -> Answer:
    """The answer of a worker that does one task."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return {"ok": False, "error": f"no answer within {seconds:.0f} s"}
    for line in reversed(out.splitlines()):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            return found
    return {"ok": False, "error": f"{LOST} with code {process.returncode}: {' '.join(err.split())[-400:]}"}


class Crew:
    """Workers that do cases side by side. One that dies, hangs or says that the device has failed is replaced."""

    def __init__(self, asked: list[Answer], workers: int, patience: float, deadline: float, told: Callable[[Answer], None]):
        self.waiting = iter(asked)  # all threads take from it
        self.answers: list[Answer] = []
        self.reached: set[str] = set()
        self.launchers: set[str] = set()
        self.variants = 0
        self.patience, self.deadline, self.told, self.lock = patience, deadline, told, threading.Lock()
        threads = [threading.Thread(target=self.work) for _ in range(min(workers, len(asked)))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def work(self) -> None:
        process = None
        for item in self.waiting:
            if time.monotonic() > self.deadline:
                self.note({**item, "ok": False, "error": "not done: out of time", "skipped": True})
                continue
            process = process or begin("cases", OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
            answer = self.ask(process, item)
            self.note(answer)
            if answer.get("fatal"):
                self.end(process, answer)
                process = None
        if process is not None:
            self.end(process, {})

    def ask(self, process: subprocess.Popen[str], item: Answer) -> Answer:
        assert process.stdin and process.stdout
        watch = threading.Timer(self.patience, process.kill)
        watch.start()
        try:
            process.stdin.write(json.dumps(item) + "\n")
            process.stdin.flush()
            while line := process.stdout.readline():
                if line.startswith("{"):
                    return json.loads(line)  # type: ignore[no-any-return]
        except OSError:
            pass
        finally:
            alive = watch.is_alive()
            watch.cancel()
        code = process.wait()
        tail = "" if process.stderr is None else " ".join(process.stderr.read().split())[-400:]
        why = f"{LOST} with code {code}: {tail}" if alive else f"no answer within {self.patience:.0f} s"
        return {**item, "ok": False, "error": why, "fatal": True}

    def end(self, process: subprocess.Popen[str], answer: Answer) -> None:
        """Close a worker; what it tells at last is what it has reached."""
        found = finish(process, 60)
        with self.lock:
            self.reached |= set(found.get("reached", ()))
            self.launchers |= set(found.get("launchers", ()))
            self.variants += found.get("variants", 0)

    def note(self, answer: Answer) -> None:
        with self.lock:
            self.answers.append(answer)
            self.told(answer)
