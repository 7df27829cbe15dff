"""The processes of bench: a contender has its own, its death is told, and Ctrl-C leaves none behind."""

from __future__ import annotations

import io
import os
import pickle
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

from flamepy.command.cli import benchmarks
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
        assert len(seat.block().calls) in (built.calls, built.calls - 1)
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


CHILD = """
from {package}.worker import serve
serve("control", "numpy", 1)
"""
PARENT = """
import signal
import sys
sys.path.insert(0, {root!r})
from {package} import worker
from flamepy.command.cli import run
assert not hasattr(signal, "SIGKILL")
code = run(["bench", "control", "--work", "python-loop", "--threads", "1", "--rounds", "1", "--json", "lines.jsonl"])
print("code", code)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="this plays another system on Linux")
def test_it_asks_for_nothing_that_windows_lacks(tmp_path):
    """The process that times and the one that asks (elsewhere.py; macOS lacks less). Oracle: the sum of 0 ... 99999."""
    play = [sys.executable, str(ROOT / "tests" / "elsewhere.py"), "win32"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    for name, text in (("child", CHILD), ("parent", PARENT)):
        (tmp_path / f"{name}.py").write_text(text.format(package=PACKAGE, root=str(ROOT)))
    asked = [("build", "python-loop", "eager"), ("block",)]
    words = b"".join(map(pickle.dumps, asked))
    done = subprocess.run([*play, "child.py"], cwd=tmp_path, env=env, input=words, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0 and not done.stderr, done.stderr[-4000:]
    answers = io.BytesIO(done.stdout)
    (kind, built), (_, turn) = pickle.load(answers), pickle.load(answers)
    assert kind == "done" and built.outputs[0] == 4999950000 and turn.others is None and min(turn.calls) > 0
    done = subprocess.run([*play, "parent.py"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert "code 0" in done.stdout and "python-loop" in done.stdout, done.stdout[-2000:] + done.stderr[-4000:]
    assert len((tmp_path / "lines.jsonl").read_text().splitlines()) == 1
