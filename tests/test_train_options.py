"""`flamepy train --accumulate`, `--ledger`, `--find-lr`, and patience, in NumPy.

Oracles: the run with the large batch; the run in one go; what is on disk before and after.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from train_tools import contents, flamepy, prepare, rows, train

from flamepy.train import Ledger, jobs
from flamepy.train.config import GptConfig, resolve
from flamepy.train.gpt_job import GptJob

PLAIN = ("--device", "plain", "--steps", "6", "--out")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    prepare(tmp_path, monkeypatch)


def test_small_batches_accumulate_to_the_large_one(capsys):
    code, out, err = train(capsys, *PLAIN, "large", "--batch", "12")
    assert (code, err) == (0, "")
    code, out, err = train(capsys, *PLAIN, "small", "--accumulate", "3", "--ledger")
    assert (code, err) == (0, "") and "batch 4 x 3, seed 1337, device plain" in out
    for row, want in zip(rows("small"), rows("large"), strict=True):
        for key in ("loss", "smoothed", "lr", "grad_norm"):
            np.testing.assert_allclose(row[key], want[key], rtol=1e-4, err_msg=key)
    names = [
        name
        for name, _ in GptJob(resolve(GptConfig, {"layers": 1, "heads": 2, "width": 16, "context": 8}), "text.txt").model.named_parameters()
    ]
    lines = [json.loads(line) for line in Path("small/ledger.jsonl").read_text().splitlines()]
    assert lines[0] == {"step": 0, "parameters": names} and [line["step"] for line in lines[1:]] == [1]
    assert Path("small/ledger.png").read_bytes().startswith(b"\x89PNG") and str(Path("small/ledger.png").resolve()) in out
    # 3 x 4 windows of 8 bytes a step
    step = json.loads(Path("small/timing.jsonl").read_text().splitlines()[-1])
    assert step["tokens_per_second"] * step["seconds"] == pytest.approx(96, rel=0.01)


def test_runs_that_accumulate_go_on_bit_for_bit_and_keep_their_number(capsys):
    more = ("--accumulate", "2", "--ledger")
    Path("often.toml").write_text(
        "save_every = 1\nvalidate_every = 4\nvalidation_batches = 2\nsample_tokens = 20\ndropout = 0.1\nledger_every = 2\n"
    )
    assert train(capsys, *PLAIN, "whole", *more)[0] == 0
    assert train(capsys, *PLAIN, "parts", *more, "--stop-after", "1")[0] == 0
    for step in (3, 4):
        assert flamepy(capsys, "train", "--resume", "parts", "--stop-after", step)[0] == 0
    with Path("parts/ledger.jsonl").open("ab") as file:  # what a process that died had begun
        file.write(b'{"step": 5, "norm": 1.0, "norms": [0.')
    code, _, err = flamepy(capsys, "train", "--resume", "parts", "--accumulate", "3")
    assert code == 2 and "a resumed run keeps its settings: --accumulate 3 was given, the run has 2" in err
    assert flamepy(capsys, "train", "--resume", "parts")[0] == 0
    assert contents("parts") == contents("whole")
    assert train(capsys, *PLAIN, "eager", *more, "--no-capture")[0] == 0
    assert rows("eager") == rows("whole") and Path("eager/ledger.jsonl").read_bytes() == Path("whole/ledger.jsonl").read_bytes()
    assert train(capsys, *PLAIN, "without", "--accumulate", "2")[0] == 0
    assert rows("without") == rows("whole")  # the ledger changes no number
    sheet = Ledger("whole/ledger.jsonl", jobs.KINDS["gpt"](resolve(GptConfig, {}), "text.txt").model).sheet()
    assert sheet.steps.tolist() == [1, 2, 4, 6] and np.isfinite(sheet.norms).all() and (np.nansum(sheet.shares, 1) == pytest.approx(1.0))


def test_patience_ends_a_run_that_does_not_learn(capsys):
    Path("often.toml").write_text("save_every = 100\nvalidate_every = 2\nvalidation_batches = 2\nsample_tokens = 5\npatience = 2\n")
    code, out, err = train(capsys, "--device", "plain", "--steps", "60", "--lr", "0", "--out", "run")
    assert (
        (code, err) == (0, "") and "early     no lower loss in 2 validations; the best was at step 2" in out and "finished  6 steps" in out
    )
    assert sorted(p.name for p in Path("run/checkpoints").iterdir()) == ["best", "last", "step-00000002", "step-00000006"]
    before = contents("run")
    assert flamepy(capsys, "train", "--resume", "run")[0] == 0 and contents("run") == before


def test_find_lr_writes_its_picture_and_nothing_else(capsys, tmp_path):
    before = contents(".")
    code, out, err = train(capsys, "--device", "plain", "--find-lr")
    assert (code, err) == (0, "") and "suggestion  --lr " in out and out.endswith(f"written   {tmp_path / 'find-lr.png'}\n")
    rate = float(out.split("--lr ")[1].split()[0])
    assert 1e-7 <= rate <= 10
    now = contents(".")
    assert now.pop("find-lr.png").startswith(b"\x89PNG") and now == before
    for args, words in (
        (["--find-lr"], f"there is a file in the place of the picture: {tmp_path / 'find-lr.png'}. Name another: --find-lr FILE."),
        (["--find-lr", "none/x.png"], f"no such folder: {tmp_path / 'none'}."),
        (["--find-lr", "x.png", "--out", "run"], "--out does not go with --find-lr: run. It makes no run folder."),
        (["--find-lr", "x.png", "--stop-after", "3"], "--stop-after does not go with --find-lr: 3."),
    ):
        code, out, err = train(capsys, "--device", "plain", *args)
        assert (code, out, err.count("\n")) == (2, "", 1) and words in err, err
    assert contents(".").keys() == before.keys() | {"find-lr.png"}
