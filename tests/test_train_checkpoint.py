"""Checkpoints and run folders: whole or not there, whatever happens while they are written."""

import errno
import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest

from flamepy.train import checkpoint, files
from flamepy.train.config import GptConfig, resolve
from flamepy.train.problems import InputError, Interrupted
from flamepy.train.run_folder import JsonLines, RunFolder, check_run

CONFIG = resolve(GptConfig, {"steps": 20})


def tensors(step):
    return {"a": np.full(1000, float(step)), "b": np.arange(3, dtype=np.float32)}


def save(folder, step, keep=2):
    return checkpoint.save(folder, tensors(step), {"step": step}, keep)


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def test_round_trip_and_only_the_newest_are_kept(tmp_path):
    folder = tmp_path / "checkpoints"
    assert checkpoint.load(folder) is None
    for step in (0, 5, 10, 15):
        save(folder, step)
    assert names(folder) == ["last", "step-00000010", "step-00000015"]
    loaded = checkpoint.load(folder)
    assert loaded.step == 15 and np.array_equal(loaded.tensors["a"], tensors(15)["a"])
    assert loaded.tensors["b"].dtype == np.float32


def test_same_contents_give_the_same_bytes(tmp_path):
    for name in "xy":
        save(tmp_path / name, 3)
    for file in ("tensors.safetensors", "state.json"):
        assert (tmp_path / "x/step-00000003" / file).read_bytes() == (tmp_path / "y/step-00000003" / file).read_bytes()


def test_checkpoints_of_an_abandoned_future_go(tmp_path):
    for step in (5, 10):
        save(tmp_path, step)
    (tmp_path / "last").write_text("step-00000005\n")
    save(tmp_path, 6)
    assert names(tmp_path) == ["last", "step-00000005", "step-00000006"]


def test_a_checkpoint_of_the_same_step_is_replaced(tmp_path):
    save(tmp_path, 5)
    checkpoint.save(tmp_path, {"a": np.zeros(2)}, {"step": 5}, 2)
    assert checkpoint.load(tmp_path).tensors["a"].size == 2
    assert names(tmp_path) == ["last", "step-00000005"]


def damaged(folder):
    with pytest.raises(InputError) as caught:
        checkpoint.load(folder)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_damaged_and_foreign_checkpoints(tmp_path):
    for step in (5, 10):
        save(tmp_path, step)
    newest = tmp_path / "step-00000010"
    content = (newest / "tensors.safetensors").read_bytes()
    (newest / "tensors.safetensors").write_bytes(content[:-1] + b"\x01")
    text = damaged(tmp_path)
    assert "damaged" in text and "SHA-256" in text and f"echo step-00000005 > {tmp_path / 'last'}" in text
    (newest / "tensors.safetensors").write_bytes(content)
    (newest / "state.json").write_text('{"step": 10')
    assert "damaged" in damaged(tmp_path)
    (newest / "state.json").write_text('{"step": 10}')
    assert "not a flamepy checkpoint" in damaged(tmp_path)
    (newest / "state.json").write_text('{"format": "flamepy-checkpoint-2", "step": "10"}')
    assert "not a flamepy checkpoint" in damaged(tmp_path)
    (newest / "state.json").write_text('{"format": "flamepy-checkpoint-1", "step": 10}')
    assert "of an earlier flamepy" in damaged(tmp_path)
    (newest / "state.json").write_text("[]")
    assert "not a flamepy checkpoint" in damaged(tmp_path)
    (newest / "state.json").unlink()
    assert "damaged" in damaged(tmp_path) and "state.json" in damaged(tmp_path)
    (tmp_path / "last").write_bytes(b"\xff")
    assert "cannot read" in damaged(tmp_path)
    (tmp_path / "last").write_text("step-00000077\n")
    assert "missing" in damaged(tmp_path)
    (tmp_path / "last").write_text("step-00000005\n")
    assert checkpoint.load(tmp_path).step == 5


def test_right_checksum_but_no_safetensors(tmp_path):
    import hashlib

    save(tmp_path, 5)
    folder = tmp_path / "step-00000005"
    (folder / "tensors.safetensors").write_bytes(b"hello")
    facts = json.loads((folder / "state.json").read_text())
    facts["tensors"]["sha256"] = hashlib.sha256(b"hello").hexdigest()
    (folder / "state.json").write_text(json.dumps(facts))
    assert "damaged" in damaged(tmp_path) and "There is no other checkpoint" in damaged(tmp_path)


WRITES = 5  # header, two tensors, state.json, last


@pytest.mark.parametrize("after", range(WRITES + 1))
def test_full_disk_leaves_the_previous_checkpoint(tmp_path, monkeypatch, after):
    """The disk fills up in the middle of the n-th write."""
    save(tmp_path, 5)
    real, calls = os.write, []

    def full(handle, data):
        calls.append(len(data))
        if len(calls) > after:
            real(handle, bytes(data[: len(data) // 2]))
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(handle, data)

    monkeypatch.setattr(os, "write", full)
    if after < WRITES:
        with pytest.raises(InputError, match=r"cannot write: .*No space left on device\. Make room, .* is untouched\."):
            save(tmp_path, 10)
    else:
        save(tmp_path, 10)
    monkeypatch.undo()
    assert checkpoint.load(tmp_path).step == (10 if after == WRITES else 5)
    assert not list(tmp_path.glob(".tmp-*"))


@pytest.mark.parametrize("call", ["rename", "replace", "fsync"])
def test_failing_system_calls_leave_the_previous_checkpoint(tmp_path, monkeypatch, call):
    save(tmp_path, 5)

    def fail(*args, **kwargs):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(InputError, match="Input/output error"):
        save(tmp_path, 10)
    monkeypatch.undo()
    assert checkpoint.load(tmp_path).step == 5
    assert not list(tmp_path.glob(".tmp-*"))


KILLED = """
import sys, numpy as np
from pathlib import Path
from flamepy.train import checkpoint
print("go", flush=True)
for step in range(int(sys.argv[2]), 100000):
    checkpoint.save(Path(sys.argv[1]), {"a": np.full(20000, float(step))}, {"step": step}, 2)
"""


def test_kill_9_while_saving_leaves_a_whole_checkpoint(tmp_path):
    step = -1
    for attempt in range(6):
        process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path), str(step + 1)], stdout=subprocess.PIPE)
        process.stdout.readline()
        time.sleep(0.05 + 0.013 * attempt)
        process.kill()
        process.wait()
        process.stdout.close()
        files.sweep(tmp_path)
        loaded = checkpoint.load(tmp_path)
        if loaded is not None:
            assert loaded.step >= step and (loaded.tensors["a"] == loaded.step).all()
            step = loaded.step
    assert step > 0


@pytest.mark.parametrize("end", [KeyboardInterrupt, Interrupted(15), MemoryError], ids=repr)
def test_interrupted_between_two_tensors(tmp_path, monkeypatch, end):
    """Ctrl-C, a signal or a lack of memory in the middle of the tensors: nothing of the new checkpoint stays."""
    save(tmp_path, 5)
    real, calls = os.write, []

    def interrupted(handle, data):
        calls.append(len(data))
        if len(calls) == 3:
            raise end
        return real(handle, data)

    monkeypatch.setattr(os, "write", interrupted)
    with pytest.raises(end if isinstance(end, type) else type(end)):
        save(tmp_path, 10)
    monkeypatch.undo()
    assert calls[0] % 8 == 0 and calls[1:] == [8000, 12]  # header, then one tensor after the other
    assert names(tmp_path) == ["last", "step-00000005"] and checkpoint.load(tmp_path).step == 5


KILLED_AT = """
import os, signal, sys, numpy as np
from pathlib import Path
from flamepy.train import checkpoint
tensors = {"a": np.full(300_000, 1.0), "b": np.arange(3, dtype=np.float32)}
real = os.write
for n in range(1, int(sys.argv[2]) + 1):
    if os.fork() == 0:
        calls = []
        def write(handle, data):
            calls.append(0)
            if len(calls) == n:
                real(handle, bytes(data[: len(data) // 2]))
                os.kill(os.getpid(), signal.SIGKILL)
            return real(handle, data)
        os.write = write
        checkpoint.save(Path(sys.argv[1]) / str(n), tensors, {"step": 10}, 2)
        os._exit(0)
    print(os.WTERMSIG(os.wait()[1]), end=" ")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="POSIX")
def test_kill_9_in_the_middle_of_each_write(tmp_path):
    writes = 7  # header, three pieces of the large tensor, the small one, state.json, last
    for n in range(1, writes + 2):
        save(tmp_path / str(n), 5)
    command = [sys.executable, "-W", "ignore", "-c", KILLED_AT, str(tmp_path), str(writes + 1)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["9"] * writes + ["0"]
    for n in range(1, writes + 2):
        folder = tmp_path / str(n)
        files.sweep(folder)
        assert not list(folder.glob(".tmp-*"))
        assert checkpoint.load(folder).step == (5 if n <= writes else 10)
        save(folder, 10)  # over what the dead process may have renamed already
        assert checkpoint.load(folder).step == 10


# ---- run folders ------------------------------------------------------------------------------------------------------


def test_default_folders_are_numbered_and_never_shared(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number in (1, 2):
        folder = RunFolder.create(None, "gpt", CONFIG)
        assert folder.path == tmp_path / "runs" / f"gpt-{number}"
        folder.close()


def test_nothing_is_ever_overwritten(tmp_path):
    RunFolder.create(str(tmp_path / "run"), "gpt", CONFIG).close()
    with pytest.raises(InputError, match="already a run folder"):
        RunFolder.create(str(tmp_path / "run"), "gpt", CONFIG)
    (tmp_path / "other").mkdir()
    RunFolder.create(str(tmp_path / "other"), "gpt", CONFIG).close()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="not empty"):
        RunFolder.create(str(tmp_path / "full"), "gpt", CONFIG)
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="not a folder"):
        RunFolder.create(str(tmp_path / "file"), "gpt", CONFIG)
    with pytest.raises(InputError, match="cannot write"):
        RunFolder.create(str(tmp_path / "file" / "below"), "gpt", CONFIG)


def test_full_disk_at_the_start_leaves_nothing(tmp_path, monkeypatch):
    def full(handle, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(InputError, match="No space left"):
        RunFolder.create(str(tmp_path / "run"), "gpt", CONFIG)
    assert not (tmp_path / "run").exists()


def test_one_process_at_a_time(tmp_path):
    pytest.importorskip("fcntl")
    first = RunFolder.create(str(tmp_path / "run"), "gpt", CONFIG)
    with pytest.raises(InputError, match="another process"):
        RunFolder.reopen(tmp_path / "run")
    first.close()
    RunFolder.reopen(tmp_path / "run").close()


def test_what_is_no_run_folder(tmp_path):
    with pytest.raises(InputError, match="no such run folder"):
        check_run(tmp_path / "nope")
    with pytest.raises(InputError, match="not a run folder"):
        check_run(tmp_path)
    inside = tmp_path / "run" / "checkpoints" / "step-00000001"
    inside.mkdir(parents=True)
    with pytest.raises(InputError, match=rf"Try {tmp_path / 'run'}\."):
        check_run(inside)


def test_metrics_survive_a_cut_line_and_forget_what_is_computed_again(tmp_path):
    metrics = JsonLines(tmp_path / "metrics.jsonl")
    for step in (1, 2, 3):
        metrics.append({"step": step, "loss": 1 / 3})
    metrics.close()
    whole = metrics.path.read_bytes()
    metrics.path.write_bytes(whole + b'{"step": 4, "lo')
    assert [row["step"] for row in metrics.rows()] == [1, 2, 3]
    metrics.drop_after(2)
    assert metrics.path.read_bytes() == b"".join(whole.splitlines(keepends=True)[:2])
    metrics.append({"step": 3, "loss": 1 / 3})
    assert metrics.path.read_bytes() == whole
    metrics.close()
