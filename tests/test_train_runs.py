"""Whole runs of a tiny GPT, as a user starts them: what is left behind, resuming bit for bit, failing on NaN."""

import io
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tomllib
from hashlib import sha256
from pathlib import Path

import pytest
from train_tools import TEXT, TINY, begin, contents, end, flamepy, prepare, rows, train


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    prepare(tmp_path, monkeypatch)


# ---- a run and what it leaves -----------------------------------------------------------------------------------------


def test_a_run_leaves_everything_it_promises(capsys):
    code, out, err = train(capsys, "--steps", "8", "--out", "run")
    assert (code, err) == (0, "")
    for words in ("byte-level GPT: 1 layer, 2 heads,", "text.txt (1 file)", "\n 1/8 ", "\n 8/8 ", "tokens/s", " 0:00\n", "grad norm",
                  "smoothed", "step 8/8  validation loss ", "nats per byte", "sample", "written", "finished  8 steps"):  # fmt: skip
        assert words in out, words
    for name in ("config.toml", "metrics.jsonl", "timing.jsonl", "curves.png", "sample.txt", "checkpoints"):
        assert Path("run", name).exists() and str(Path("run", name).resolve()) in out, name
    assert sorted(p.name for p in Path("run/checkpoints").iterdir()) == ["last", "step-00000007", "step-00000008"]
    metrics = rows("run")
    assert [row["step"] for row in metrics] == list(range(1, 9))
    assert set(metrics[0]) == {"step", "loss", "smoothed", "lr", "grad_norm"}
    assert [row["step"] for row in metrics if "val_loss" in row] == [4, 8]
    assert abs(metrics[0]["loss"] - 5.545) < 0.1  # ln 256: it knows nothing yet
    facts = json.loads(Path("run/checkpoints/step-00000008/state.json").read_text())
    assert facts["data"]["position"] == facts["schedule"]["position"] == facts["step"] == 8
    assert {"versions", "state", "config"} <= set(facts) and {"model", "optimizer", "progress", "random"} == set(facts["state"])
    assert len(Path("run/sample.txt").read_bytes()) >= 20


def test_default_folders_count_up(capsys):
    for number in (1, 2):
        assert train(capsys, "--steps", "1")[0] == 0
        assert Path(f"runs/gpt-{number}/curves.png").exists()


def test_the_same_seed_gives_the_same_bytes_and_another_does_not(capsys):
    for name, seed in (("a", 5), ("b", 5), ("c", 6)):
        assert train(capsys, "--steps", "5", "--seed", seed, "--out", name)[0] == 0
    assert contents("a") == contents("b")
    assert rows("a")[0]["loss"] != rows("c")[0]["loss"]


def test_it_learns(capsys):
    assert train(capsys, "--steps", "200", "--lr", "0.01", "--out", "run")[0] == 0
    losses = [row["loss"] for row in rows("run")]
    assert losses[-1] < 3.0 < 5.0 < losses[0] and rows("run")[-1]["val_loss"] < 3.0


ASCII_ONLY = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.mark.skipif(sys.platform != "linux", reason="paths are not bytes everywhere")
def test_a_path_in_utf_8_works_where_the_locale_knows_only_ascii(capsys):
    os.mkdir("päth")
    os.rename("text.txt", "päth/tëxt.txt")
    args = ["--data", "päth/tëxt.txt", "--config", "often.toml", *TINY, "--steps", "4", "--out", "rün"]
    code, out, err = end(begin(*args, "--stop-after", "2", env=ASCII_ONLY, encoding="utf-8"))
    assert (code, err) == (0, "") and str(Path("päth/tëxt.txt").resolve()) in out and str(Path("rün").resolve()) in out
    assert tomllib.loads(Path("rün/config.toml").read_text("utf-8"))["data"] == str(Path("päth/tëxt.txt").resolve())
    assert flamepy(capsys, "train", "--resume", "rün", "--stop-after", "3")[0] == 0
    code, out, err = end(begin("--resume", "rün", env=ASCII_ONLY, encoding="utf-8"))  # shows a sample, of any bytes
    assert (code, err) == (0, "") and [row["step"] for row in rows("rün")] == [1, 2, 3, 4]
    name = os.fsdecode(b"n\xe4")  # in Latin-1
    Path(name).write_text(TEXT)
    for command in ("train", "--data", name), ("train", "digits", "--data", name):
        code, out, err = flamepy(capsys, *command)
        assert (code, out, err.count("\n")) == (2, "", 1) and f"the path is not UTF-8: {os.fsencode(Path(name).resolve())!r}." in err


# ---- resuming -----------------------------------------------------------------------------------------------------------


def test_stopped_and_resumed_in_new_processes_equals_one_go(capsys):
    """Gate P14, with dropout, so that the random state counts too."""
    Path("often.toml").write_text("save_every = 7\nvalidate_every = 5\nvalidation_batches = 2\nsample_tokens = 20\ndropout = 0.1\n")
    assert train(capsys, "--steps", "20", "--out", "whole")[0] == 0
    code, out, err = train(capsys, "--steps", "20", "--stop-after", "10", "--out", "parts")
    assert (code, err) == (0, "") and "stopped   after step 10 of 20" in out
    assert f"go on     flamepy train --resume {Path('parts').resolve()}" in out
    assert not Path("parts/sample.txt").exists() and Path("parts/curves.png").exists()
    code, out, err = end(begin("--resume", "parts", "--stop-after", "13"))
    assert (code, err) == (0, "") and "goes on from step 10" in out
    code, out, err = end(begin("--resume", "parts"))
    assert (code, err) == (0, "") and "finished  20 steps" in out
    assert contents("whole") == contents("parts")


def test_resuming_a_finished_run_changes_nothing(capsys):
    assert train(capsys, "--steps", "3", "--out", "run")[0] == 0
    before = contents("run")
    code, out, _ = flamepy(capsys, "train", "--resume", "run")
    assert code == 0 and "finished  3 steps" in out and contents("run") == before


def test_a_run_folder_can_be_moved_and_lengthened(capsys):
    assert train(capsys, "--steps", "3", "--out", "run")[0] == 0
    os.rename("run", "moved")
    code, _out, _ = flamepy(capsys, "train", "--resume", "moved", "--steps", "5")
    assert code == 0 and [row["step"] for row in rows("moved")] == [1, 2, 3, 4, 5]
    assert "steps = 5 " in Path("moved/config.toml").read_text()


def test_a_run_that_died_before_its_first_checkpoint_begins_again(capsys):
    assert train(capsys, "--steps", "3", "--out", "run")[0] == 0
    before = contents("run")
    shutil.rmtree("run/checkpoints")
    assert flamepy(capsys, "train", "--resume", "run")[0] == 0
    assert contents("run") == before


def test_a_piped_text_is_kept_for_resuming(capsys):
    process = begin(
        "--data", "-", "--config", "often.toml", *TINY, "--steps", "4", "--stop-after", "2", "--out", "run", stdin=subprocess.PIPE
    )
    _out, err = process.communicate(TEXT, timeout=120)
    assert process.returncode == 0, err
    assert Path("run/data.txt").read_text() == TEXT
    assert flamepy(capsys, "train", "--resume", "run")[0] == 0
    assert train(capsys, "--steps", "4", "--out", "file")[0] == 0
    assert rows("run") == rows("file")


def test_resuming_with_another_text_says_so(capsys, monkeypatch):
    def piped(text, *args):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        return flamepy(capsys, "train", *args, "--data", "-")

    Path("other.txt").write_text(TEXT + "more")
    code, _out, err = piped(TEXT, "--config", "often.toml", *TINY, "--steps", "4", "--stop-after", "2", "--out", "piped")
    assert (code, err) == (0, "")
    assert train(capsys, "--steps", "4", "--stop-after", "2", "--out", "run")[0] == 0
    for run, was in (("piped", "standard input"), ("run", Path("text.txt").resolve())):
        before = contents(run)
        of_file = flamepy(capsys, "train", "--resume", run, "--data", "other.txt")
        for found, (code, out, err) in (
            (Path("other.txt").resolve(), of_file),
            ("standard input", piped(TEXT + "more", "--resume", run)),
        ):
            texts = [f"{name} (SHA-256 {sha256(t.encode()).hexdigest()[:8]})" for name, t in ((found, TEXT + "more"), (was, TEXT))]
            said = f"flamepy train: not the text that the run was trained on: {texts[0]}; it was {texts[1]}. Leave --data out, give "
            assert (code, out) == (2, "") and err.startswith(said) and err.count("\n") == 1, (run, found, out, err)
        assert contents(run) == before
    code, _out, err = piped(TEXT, "--resume", "run", "--stop-after", "3")  # the same text from a pipe: kept
    assert (code, err) == (0, "") and Path("run/data.txt").read_text() == TEXT
    assert flamepy(capsys, "train", "--resume", "run")[0] == 0
    assert flamepy(capsys, "train", "--resume", "piped", "--data", "text.txt")[0] == 0
    assert rows("run") == rows("piped")


@pytest.mark.parametrize("steps, what", [(12, "stretched"), (6, "shortened")])
def test_other_steps_say_what_becomes_of_the_learning_rate(capsys, steps, what):
    Path("often.toml").write_text("save_every = 1\nwarmup = 2\n")
    assert train(capsys, "--steps", "8", "--stop-after", "4", "--out", "run")[0] == 0
    code, out, _ = flamepy(capsys, "train", "--resume", "run", "--steps", steps)

    def rate(of):  # of the step after the fourth: a cosine from 1e-3 to 1e-4 after two steps of warm-up
        return 1e-4 + 9e-4 * (1 + math.cos(math.pi * (4 - 2) / (of - 2))) / 2

    assert f"schedule  {what} from 8 to {steps} steps: the learning rate goes on at {rate(steps):.2e}, not {rate(8):.2e}\n" in out
    assert code == 0 and rows("run")[4]["lr"] == pytest.approx(rate(steps), rel=1e-12)
    assert "schedule  " not in flamepy(capsys, "train", "--resume", "run")[1]


def test_resume_refuses_what_does_not_fit(capsys):
    assert train(capsys, "--steps", "4", "--stop-after", "2", "--out", "run")[0] == 0
    before = contents("run")

    def refused(*args):
        code, out, err = flamepy(capsys, "train", "--resume", "run", *args)
        assert (code, out, err.count("\n")) == (2, "", 1), err
        return err

    assert "--width 32 was given, the run has 16" in refused("--width", "32")
    assert "--seed 1 was given, the run has 1337" in refused("--seed", "1")
    assert "nothing to do: --steps 1, the run is at step 2" in refused("--steps", "1")
    assert "the run is at step 2" in refused("--stop-after", "2")
    assert "the config file is for another job" in flamepy(capsys, "train", "digits", "--resume", "run")[2]
    Path("text.txt").write_text(TEXT + "more")
    assert f"the text changed after the checkpoint was made: {Path('text.txt').resolve()}. Give the same text" in refused()
    Path("text.txt").unlink()
    assert "no such file or folder" in refused()
    Path("elsewhere.txt").write_text(TEXT)
    assert contents("run") == before
    assert flamepy(capsys, "train", "--resume", "run", "--width", "16", "--data", "elsewhere.txt")[0] == 0


def test_damaged_and_foreign_checkpoints_are_refused(capsys):
    assert train(capsys, "--steps", "4", "--stop-after", "2", "--out", "run")[0] == 0
    assert train(capsys, "--steps", "4", "--stop-after", "2", "--width", "32", "--out", "other")[0] == 0
    config = Path("run/config.toml").read_text()

    def refused(words):
        before = contents("run")
        for command in (["train", "--resume", "run"], ["sample", "run"]):
            code, out, err = flamepy(capsys, *command)
            assert (code, out, err.count("\n")) == (2, "", 1) and words in err, err
        assert contents("run") == before

    Path("run/config.toml").write_text(config.replace("width = 16 ", "width = 32 "))
    refused("another")
    Path("run/config.toml").write_text("width = ")
    refused("not a TOML file")
    Path("run/config.toml").write_text(config)
    shutil.copytree("other/checkpoints", "run/checkpoints", dirs_exist_ok=True)
    refused("another")
    Path("run/checkpoints/step-00000002/tensors.safetensors").write_bytes(b"junk")
    refused("damaged")
    Path("run/checkpoints/last").write_text("step-00000001\n")
    Path("run/checkpoints/step-00000001/state.json").write_text("{}")
    refused("not a flamepy checkpoint")


@pytest.mark.parametrize("missing", ["state.random", "state.optimizer", "state.progress", "state.model", "state", "data", "config", "job"])
def test_a_checkpoint_that_lacks_a_part_is_refused(capsys, missing):
    assert train(capsys, "--steps", "4", "--stop-after", "2", "--out", "run")[0] == 0
    state = Path("run/checkpoints/step-00000002/state.json")
    facts = json.loads(state.read_text())
    *outer, last = missing.split(".")
    del (facts["state"] if outer else facts)[last]
    state.write_text(json.dumps(facts))
    before = contents("run")
    code, out, err = flamepy(capsys, "train", "--resume", "run")
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert contents("run") == before


# ---- NaN -------------------------------------------------------------------------------------------------------------------


def test_a_learning_rate_that_explodes_is_told_in_one_line(capsys):
    code, _out, err = train(capsys, "--steps", "50", "--lr", "1e6", "--out", "run")
    assert code == 1 and err.count("\n") == 1, err
    assert re.search(r"first made by op '\w+' \(.*\) in the|was not finite before|made values that are not finite: '", err), err
    step = int(re.search(r"The checkpoint of step (\d+) is kept", err)[1])
    assert Path("run/checkpoints/last").read_text() == f"step-{step:08d}\n"


@pytest.mark.parametrize("where", ["forward", "backward", "parameter"])
def test_the_first_op_and_the_parameter_are_named(capsys, monkeypatch, where):
    from flamepy import ops
    from flamepy.train.gpt import GPT

    real = GPT.scores

    def broken(self, x):
        self.calls = getattr(self, "calls", 0) + 1
        if self.calls >= 4 and where == "forward":
            return ops.log(real(self, x) * 0.0 - 1.0)
        if self.calls >= 4 and where == "backward":
            return real(self, x) + ops.sqrt(self.norm.bias * 0.0).sum()
        if self.calls == 4:
            values = self.norm.weight.numpy().copy()
            values[3] = float("nan")
            self.norm.weight.set_data(values)
        return real(self, x)

    monkeypatch.setattr(GPT, "scores", broken)
    Path("often.toml").write_text("save_every = 2\nvalidate_every = 1000\n")
    code, _out, err = train(capsys, "--steps", "10", "--out", "run", "--no-capture")  # the fault is in Python, step by step
    assert code == 1 and err.count("\n") == 1, err
    place = r"\(.*test_train_runs\.py:\d+\)"
    expected = {
        "forward": rf"the loss is nan at step 4: first made by op 'log' {place} in the forward pass, from parameter 'token\.weight'",
        "backward": rf"the gradient norm is (nan|inf) at step 4: first made by op 'sqrt' {place} in the backward pass, "
        r"in the gradient of parameter 'norm\.bias'",
        "parameter": r"the loss is nan at step 4: parameter 'norm\.weight' was not finite before the step",
    }
    assert re.search(expected[where], err), err
    assert "The checkpoint of step 2 is kept in" in err
    assert Path("run/checkpoints/last").read_text() == "step-00000002\n" and Path("run/curves.png").exists()


def test_an_update_that_breaks_the_parameters_is_not_saved(capsys, monkeypatch):
    from flamepy.optimizers import AdamW

    real = AdamW.step

    def broken(self, grads):
        real(self, grads)
        if self.state_dict()["state"]["norm.weight"]["step"] == 3:
            self.params[-1].set_data(self.params[-1].numpy() * float("inf"))

    monkeypatch.setattr(AdamW, "step", broken)
    code, _, err = train(capsys, "--steps", "10", "--out", "run", "--no-capture")
    assert code == 1 and "the update of step 3 made values that are not finite: 'model." in err
    assert Path("run/checkpoints/last").read_text() == "step-00000002\n"
