"""The processes of bench: a contender has its own, its death is told, and Ctrl-C leaves none behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

from flamepy.cli import benchmarks
from flamepy.train import signals
from flamepy.train.problems import Interrupted

PACKAGE = benchmarks().__package__
harness, worker = (import_module(f"{PACKAGE}.{name}") for name in ("harness", "worker"))
ROOT = Path(__file__).parent.parent


def test_a_contender_has_its_own_process_and_its_death_is_told():
    seat = worker.Elsewhere("control", "numpy", 1)
    try:
        built = seat.build("python-loop", "eager")
        assert built.outputs[0] == 4999950000 and built.calls >= 1
        assert len(seat.block()) in (built.calls, built.calls - 1)
        with pytest.raises(worker.Failed, match="numpy: KeyError"):
            seat.build("no-such-work", "eager")
        seat.build("python-loop", "eager")  # it goes on
        os.kill(seat.process.pid, signal.SIGKILL)
        with pytest.raises(worker.Failed, match="its process ended with code -9"):
            seat.block()
    finally:
        seat.close()
    assert seat.process.returncode == -9


def test_ctrl_c_ends_every_process_quietly(tmp_path):
    file = tmp_path / "lines.jsonl"
    args = [sys.executable, "-m", "flamepy", "bench", "control", "--rounds", "100000", "--json", str(file)]
    process = subprocess.Popen(args, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    children: list[str] = []
    for _ in range(200):
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        if len(children) == 2:  # the work's and the ceilings'
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    said = [line for line in err.splitlines() if not line.startswith("bench: other programs")]
    assert (process.returncode, out, said) == (130, "", ["flamepy bench: interrupted as you asked."])
    assert len(children) == 2 and not any(Path(f"/proc/{pid}").exists() for pid in children)
    assert not file.exists()


def test_one_ctrl_c_while_a_process_starts_counts_as_one(monkeypatch):
    """The listener of signals hears every one that is sent, and ends the process at the second without a word."""
    twice, ended = [], []
    monkeypatch.setattr(signals.StopRequest, "leave", lambda self, number: twice.append(number))
    seat = lambda *a: os.kill(os.getpid(), signal.SIGINT) or SimpleNamespace(close=lambda: ended.append(1))
    with pytest.raises(Interrupted), signals.StopRequest() as stop, harness.Plan("step", [], ["eager"], 1, 1, print, print, seat) as p:
        p.seat("step", ("flamepy", "eager"))
    assert (stop.number, twice, ended) == (signal.SIGINT, [], [1])


def test_ctrl_c_while_a_process_starts_leaves_none():
    ended = []
    seat = lambda *a: os.kill(os.getpid(), signal.SIGINT) or SimpleNamespace(close=lambda: ended.append(1))
    with pytest.raises(KeyboardInterrupt), harness.Plan("step", [], ["eager"], 1, 1, print, print, seat) as p:
        p.seat("step", ("flamepy", "eager"))
    assert ended == [1]
