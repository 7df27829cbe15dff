"""`flamepy train digits`: the accuracies promised, both networks in one run folder, resuming, other data."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from flamepy.command import cli

sklearn = pytest.importorskip("sklearn")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    x = random.integers(0, 255, (40, 17, 18), dtype=np.uint8)
    y = np.arange(40) % 4
    np.savez("small.npz", x_train=x[:30], y_train=y[:30], x_test=x[30:], y_test=y[30:])


def digits(capsys, *args):
    code = cli.run(["train", "digits", *[str(a) for a in args]])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def accuracy(run):
    return json.loads(Path(run, "metrics.jsonl").read_text().splitlines()[-1])["accuracy"]


def contents(run):
    """Every file but the timing, and but the checkpoints before the last, which depend on where a run was stopped."""
    files = [p for p in Path(run).rglob("*") if p.is_file() and p.name != "timing.jsonl"]
    files = [p for p in files if "step-" not in p.parent.name or p.parent.name == "step-00000006"]
    return {str(p.relative_to(run)): p.read_bytes() for p in files}


@pytest.mark.parametrize("model, steps, least", [("mlp", 1000, 0.97), ("cnn", 300, 0.98)])
def test_promised_accuracy(capsys, model, steps, least):
    code, out, err = digits(capsys, "--model", model, "--steps", steps, "--out", "run")
    assert (code, err) == (0, "") and "images/s" in out
    assert "1,290 images of 1x8x8 to train on, 143 for validation, 364 for the test at the end" in out
    share, right = re.search(r"test accuracy ([\d.]+) % \((\d+) of 364 images it has never seen\), loss", out).groups()
    assert float(share) == pytest.approx(100 * int(right) / 364, abs=0.006) and int(right) / 364 >= least
    assert accuracy("run") >= 0.95 and round(143 * accuracy("run")) == pytest.approx(143 * accuracy("run"))
    assert Path("run/curves.png").exists()


def test_no_step_and_no_validation_sees_the_test_images(capsys):
    """Other test images: the same run, bit for bit, but for the line at its end."""
    with np.load("small.npz") as arrays:
        np.savez("other.npz", **{**arrays, "x_test": 255 - arrays["x_test"], "y_test": (arrays["y_test"] + 1) % 4})
    told = []
    for name in ("small", "other"):
        options = ["--data", f"{name}.npz", "--model", "mlp", "--steps", "4", "--batch", "8", "--width", "8", "--device", "plain"]
        told.append(digits(capsys, *options, "--out", name)[1])
    assert contents("small")["metrics.jsonl"] == contents("other")["metrics.jsonl"]
    assert len({re.search("test accuracy.*", out)[0] for out in told}) == 2


def test_both_networks_stop_and_resume_bit_for_bit(capsys):
    options = ["--data", "small.npz", "--steps", "6", "--batch", "8", "--width", "8"]
    assert digits(capsys, *options, "--out", "whole")[0] == 0
    assert digits(capsys, *options, "--stop-after", "3", "--out", "parts")[0] == 0
    assert Path("parts/mlp/checkpoints/last").exists() and not Path("parts/cnn").exists()
    code, out, err = digits(capsys, "--resume", "parts", "--stop-after", "5")
    assert code == 0 and "goes on from step 3" in out
    assert digits(capsys, "--resume", "parts")[0] == 0
    assert contents("whole") == contents("parts")
    code, out, err = digits(capsys, "--resume", "parts", "--batch", "9")
    assert code == 2 and "--batch 9 was given, the run has 8" in err
    assert digits(capsys, "--resume", "whole/cnn")[0] == 0


def test_resuming_with_other_images_says_so_and_changes_nothing(capsys):
    options = ["--data", "small.npz", "--steps", "4", "--batch", "8", "--width", "8", "--stop-after", "2", "--out", "run"]
    assert digits(capsys, *options)[0] == 0
    with np.load("small.npz") as arrays:
        np.savez("other.npz", **{**arrays, "x_test": arrays["x_test"] // 2})
    before = contents("run")
    code, out, err = digits(capsys, "--resume", "run", "--data", "other.npz")
    assert (code, out, err.count("\n")) == (2, "", 1) and contents("run") == before
    assert f"not the images that the run was trained on: {Path('other.npz').resolve()} (SHA-256 " in err


def test_a_run_of_the_other_job_is_refused(capsys):
    assert digits(capsys, "--data", "small.npz", "--model", "mlp", "--steps", "1", "--out", "run")[0] == 0
    assert cli.run(["train", "--resume", "run"]) == 2
    assert "the config file is for another job" in capsys.readouterr().err
    assert cli.run(["sample", "run"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith(f"flamepy sample: a digits run has no text to go on with: {Path('run').resolve()}.")
    assert said.err.count("\n") == 1


def test_nothing_is_left_when_the_data_is_unusable(capsys):
    Path("junk").mkdir()
    code, out, err = digits(capsys, "--data", "junk")
    assert (code, out, err.count("\n")) == (2, "", 1) and not Path("runs").exists()
