"""What the tests of whole runs share: a tiny GPT on a small text, started here or in a process of its own."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flamepy.command import cli

TEXT = "".join(f"def f{i}(x):\n    return x + {i * i}\n\n" for i in range(120))
TINY = ["--layers", "1", "--heads", "2", "--width", "16", "--context", "8", "--batch", "4"]
posix = pytest.mark.skipif(os.name != "posix", reason="POSIX signals")


def prepare(tmp_path, monkeypatch):
    """A folder with a text and settings that save and validate often."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text(TEXT)
    (tmp_path / "often.toml").write_text("save_every = 1\nvalidate_every = 4\nvalidation_batches = 2\nsample_tokens = 20\n")


def flamepy(capsys, *args):
    code = cli.run([str(a) for a in args])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def train(capsys, *args):
    return flamepy(capsys, "train", "--data", "text.txt", "--config", "often.toml", *TINY, *args)


def begin(*args, **options):
    """The same in a process of its own."""
    command = [sys.executable, "-m", "flamepy", "train", *[str(a) for a in args]]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def end(process):
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def fresh(*args):
    return ["--data", "text.txt", "--config", "often.toml", *TINY, *args]


def contents(run):
    """Every file of a run but its timing."""
    files = sorted(p for p in Path(run).rglob("*") if p.is_file() and p.name != "timing.jsonl")
    return {str(p.relative_to(run)): p.read_bytes() for p in files}


def rows(run):
    return [json.loads(line) for line in (Path(run) / "metrics.jsonl").read_text().splitlines()]


def wait_for_step(run, step, process):
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline and process.poll() is None:
        path = Path(run) / "metrics.jsonl"
        if path.exists() and path.read_bytes().count(b"\n") >= step:
            return
        time.sleep(0.01)
    raise AssertionError(f"step {step} was not reached: {process.poll()}")
