"""Run folders whose files are damaged: every command runs to its end, or says one line and exits with 2, and nothing is lost.

A file can be empty, cut, garbage, valid but of other things, or a folder.
"""

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from train_tools import TEXT, contents, flamepy, prepare, rows, train

from flamepy.train import writers
from flamepy.train.run_folder import JsonLines


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    prepare(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of four steps, finished, and one stopped after two."""
    from flamepy.command import cli

    folder = tmp_path_factory.mktemp("runs")
    (folder / "text.txt").write_text(TEXT)
    (folder / "often.toml").write_text("save_every = 1\nvalidate_every = 2\nvalidation_batches = 2\nsample_tokens = 20\n")
    tiny = ["--layers", "1", "--heads", "2", "--width", "16", "--context", "8", "--batch", "4"]
    for name, more in (("whole", []), ("stopped", ["--stop-after", "2"])):
        args = ["train", "--data", str(folder / "text.txt"), "--config", str(folder / "often.toml"), *tiny, "--steps", "4"]
        assert cli.run([*args, "--out", str(folder / name), *more]) == 0
    return folder


def one_line(code, err):
    """Done, or exit code 2 with one line."""
    assert (code, err) == (0, "") or (code == 2 and err.count("\n") == 1 and err.startswith("flamepy ")), err


def replace(path, content):
    """Give a file other bytes, or put a folder with a file in its place (None)."""
    shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    if content is None:
        path.mkdir()
        (path / "inside").write_text("x")
    else:
        path.write_bytes(content)


# ---- metrics and timing ------------------------------------------------------------------------------------------------------
LINE = b'{"step": 3, "loss": 5.5, "smoothed": 5.5, "lr": 0.001, "grad_norm": 1.0}'
LINES = {
    "without loss": LINE.replace(b"loss", b"lors"),
    "loss is text": LINE.replace(b"5.5", b'"5.5"', 1),
    "loss is null": LINE.replace(b"5.5", b"null", 1),
    "loss is a list": LINE.replace(b"5.5", b"[5.5]", 1),
    "loss is true": LINE.replace(b"5.5", b"true", 1),
    "loss beyond floats": LINE.replace(b"5.5", b"9" * 400, 1),
    "loss beyond ints": LINE.replace(b"5.5", b"9" * 5000, 1),
    "step is text": LINE.replace(b"3", b'"3"', 1),
    "step is true": LINE.replace(b"3", b"true", 1),
    "step far away": LINE.replace(b"3", b"9" * 300, 1),
    "validation is text": LINE[:-1] + b', "val_loss": "5"}',
    "no object": b"[3]",
    "no UTF-8": b"\xff" + LINE,
    "nothing": b"",
    "zeros": bytes(80),
    "brackets": b"[" * 100_000,
}


@pytest.mark.parametrize("kind", LINES)
def test_a_damaged_line_of_the_metrics(capsys, finished, kind):
    """It is told and left out of the picture; it and all other lines stay as they are, and the run goes on."""
    run = Path(shutil.copytree(finished / "stopped", "run"))
    before = (run / "metrics.jsonl").read_bytes().splitlines()
    (run / "metrics.jsonl").write_bytes(b"\n".join([before[0], LINES[kind], before[1]]) + b"\n")
    code, out, err = flamepy(capsys, "train", "--resume", "run")
    assert (code, err) == (0, "") and "finished  4 steps in" in out and "validation loss" in out
    assert f"damaged   {run.resolve()}/metrics.jsonl: 1 of 5 lines cannot be read and are left out\n" in out
    whole = (finished / "whole" / "metrics.jsonl").read_bytes().splitlines()
    assert (run / "metrics.jsonl").read_bytes().splitlines() == [whole[0], LINES[kind], *whole[1:]]
    for name in ("checkpoints/step-00000004/tensors.safetensors", "sample.txt"):
        assert (run / name).read_bytes() == (finished / "whole" / name).read_bytes()
    assert (run / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("where", ["metrics.jsonl", "timing.jsonl"])
@pytest.mark.parametrize("content", [b"", b"\n" * 9, b"\xff\x00" * 50, b"{}\n{}\n", None], ids=lambda content: repr(content)[:9])
def test_a_whole_file_of_numbers_is_damaged_at_the_end_of_training(capsys, finished, monkeypatch, where, content):
    """Damage while the run is going on: it is told in one line, and the results are there."""
    from flamepy.train.gpt_job import GptJob

    real = GptJob.validate

    def validate(self):
        replace(Path("run", where), content)
        return real(self)

    monkeypatch.setattr(GptJob, "validate", validate)
    Path("often.toml").write_text("validate_every = 10\nvalidation_batches = 2\nsample_tokens = 20\n")
    code, out, err = train(capsys, "--steps", "3", "--out", "run")
    assert (code, err) == (0, "") and "finished  3 steps" in out and "validation loss" in out
    assert ("damaged   " in out) == (content != b"")
    if content is None:
        assert f"damaged   cannot read: {Path('run', where).resolve()}: Is a directory." in out
    assert Path("run/checkpoints/last").read_text() == "step-00000003\n" and Path("run/sample.txt").exists()
    code, _, err = flamepy(capsys, "train", "--resume", "run")
    one_line(code, err)
    assert (code == 2) == (content is None)


def test_results_do_not_depend_on_the_metrics(capsys, finished):
    shutil.copytree(finished / "whole", "run")
    shown = [flamepy(capsys, "train", "--resume", "run")[1]]
    replace(Path("run/metrics.jsonl"), rows_without_validation("run"))
    shown.append(flamepy(capsys, "train", "--resume", "run")[1])
    lines = [next(line for line in out.splitlines() if line.startswith("validation loss")) for out in shown]
    assert lines[0] == lines[1] and f"{rows(finished / 'whole')[-1]['val_loss']:.4f} nats" in lines[0]


def rows_without_validation(run):
    kept = [{key: value for key, value in row.items() if key != "val_loss"} for row in rows(run)]
    return "".join(json.dumps(row) + "\n" for row in kept).encode()


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 7))
def test_any_flipped_bit_costs_two_lines_at_most(tmp_path_factory, place, bit):
    file = JsonLines(tmp_path_factory.mktemp("x") / "metrics.jsonl", ("loss",))
    for step in (1, 2, 3, 4):
        file.append({"step": step, "loss": 5 / 3, "val_loss": 1e-5})
    file.close()
    whole = file.path.read_bytes()
    content = bytearray(whole)
    content[place % len(content)] ^= 1 << bit
    file.path.write_bytes(content)
    read = file.rows()
    assert len(read) >= 2 and all(type(row["loss"]) in (int, float) for row in read)
    file.drop_after(10**9)
    assert file.path.read_bytes() == (bytes(content) if content.endswith(b"\n") else content[: content.rindex(b"\n") + 1])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e308, -1e308, 0.0, -1.0, 10**200], ids="{:.0e}".format)
def test_pictures_of_odd_numbers(tmp_path, value):
    plain = {"step": 1, "loss": 2.0, "smoothed": 2.0, "grad_norm": 1.0, "val_loss": 2.0}
    for key in plain.keys() - {"step"}:
        writers.draw([plain, {**plain, "step": 2, key: value}, {**plain, "step": 3}], tmp_path / "curves.png", "title")
        assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    writers.draw([dict.fromkeys(plain, value) | {"step": 1}], tmp_path / "curves.png", "title")


# ---- every other file --------------------------------------------------------------------------------------------------------
STEP = "checkpoints/step-00000002"
FILES = [
    "config.toml", "checkpoints", "checkpoints/last", STEP, f"{STEP}/state.json", f"{STEP}/tensors.safetensors",
    "metrics.jsonl", "timing.jsonl", "ledger.jsonl", "curves.png", "sample.txt", "data.txt",
]  # fmt: skip
CONTENTS = {
    "empty": b"", "zeros": bytes(4096), "junk": bytes(range(256)) * 4, "a list": b"[]\n", "a number": b"3\n", "brackets": b"[" * 100_000,
    "a long line": b"step-" + b"1" * 5000, "several lines": b"step-00000002\nstep-00000001\n", "a folder": None,
}  # fmt: skip


@pytest.mark.parametrize("file", FILES)
def test_each_file_of_a_run_damaged(capsys, finished, tmp_path, file):
    """`train --resume` and `sample`; when a command refuses, it has changed nothing."""
    for kind, content in CONTENTS.items():
        run = tmp_path / kind.replace(" ", "-")
        shutil.copytree(finished / "stopped", run)
        replace(run / file, content)
        before = contents(run)
        for command in (["sample", run, "--tokens", "1"], ["train", "--resume", run]):
            code, out, err = flamepy(capsys, *command)
            one_line(code, err)
            if code == 2 and file not in ("curves.png", "sample.txt"):
                assert contents(run) == before, (kind, err)
            if code == 2 and file in ("curves.png", "sample.txt"):  # what cannot be written costs nothing else
                assert "validation loss" in out and "Move away the folder in its place" in err and "Go on with: flamepy train" in err
                assert (run / "checkpoints/last").read_text() == "step-00000004\n"
            assert code == 2 or content is not None or command[0] == "sample" or file == "checkpoints", (kind, out)


STATE = {
    "tensors": [[], "x", {"sha256": 3}, {}],
    "config": [[], "x", 3, {}, {"steps": []}],
    "state.random": [[], 3, None, {"seed": []}, *[{"seed": seed, "stream": 0, "step": 0} for seed in ("x", -1, 10**30)]],
    "state.progress.smoothed": ["x", [], {}, ["array", "model.norm.bias"], ["array", "none"], ["dict"], ["list", 1]],
    "state.progress.step": [1, 3, True, None],
    "state.model": [[], 3, {}, {"norm.bias": 3}],
    "data": [[], "x", 3, {}],
    "state.optimizer": [[], 3, {}, {"groups": 3, "state": {}}, {"groups": ["list"], "state": ["list"]}],
    "state": [[], 3, {}, {"model": {}}],
    "job": [3, [], "digits"],
    "step": [1, 3, -2, 10**30, True, 2.0, "2"],
    "format": ["flamepy-checkpoint-1", "flamepy-checkpoint-3", 3],
}


@pytest.mark.parametrize("key", STATE)
def test_each_part_of_a_state_damaged(capsys, finished, key):
    run = Path(shutil.copytree(finished / "stopped", "run"))
    file = run / "checkpoints/step-00000002/state.json"
    for value in STATE[key]:
        facts = json.loads((finished / "stopped/checkpoints/step-00000002/state.json").read_text())
        *outer, last = key.split(".")
        inner = facts
        for name in outer:
            inner = inner[name]
        inner[last] = value
        file.write_text(json.dumps(facts))
        before = contents(run)
        code, out, err = flamepy(capsys, "train", "--resume", "run")
        assert (code, out, err.count("\n")) == (2, "", 1), (value, err)
        assert contents(run) == before


OPTIONS: list = [{"lr": "x"}, {"lr": -1.0}, {"lr": None}, {"betas": [0.9]}, {"betas": [0.9, 3.0]}, {"betas": 3}, {"names": 3}, {"more": 1}]


@pytest.mark.parametrize("change", OPTIONS, ids=str)
def test_each_option_of_the_optimizer_damaged(capsys, finished, change):
    shutil.copytree(finished / "stopped", "run")
    file = Path("run/checkpoints/step-00000002/state.json")
    facts = json.loads(file.read_text())
    facts["state"]["optimizer"]["groups"][1].update(change)  # after the word "list"
    file.write_text(json.dumps(facts))
    before = contents("run")
    code, out, err = flamepy(capsys, "train", "--resume", "run")
    assert (code, out, err.count("\n")) == (2, "", 1) and "the checkpoint is incomplete" in err, err
    assert contents("run") == before


SETTINGS = [
    "width = 1e400", "width = " + "9" * 400, "lr = " + "9" * 400, "lr = " + "9" * 9999, "seed = 9223372036854775808",
    "width = [[[", "width = " + "[" * 9999, "[width]", "lr = nan", "lr = inf", "job = []",
]  # fmt: skip


@pytest.mark.parametrize("line", SETTINGS, ids=lambda line: line[:20])
def test_settings_that_are_no_settings(capsys, line):
    Path("odd.toml").write_text(line + "\n")
    code, out, err = flamepy(capsys, "train", "--data", "text.txt", "--config", "odd.toml")
    assert (code, out, err.count("\n")) == (2, "", 1), err


def test_without_last_no_checkpoint_is_thrown_away(capsys, finished):
    shutil.copytree(finished / "stopped", "run")
    Path("run/checkpoints/last").unlink()
    before = contents("run")
    code, out, err = flamepy(capsys, "train", "--resume", "run")
    assert (code, out, err.count("\n")) == (2, "", 1) and "echo step-00000002 > " in err
    assert contents("run") == before


def test_a_restored_run_lets_go_of_the_file(capsys, finished, monkeypatch):
    """Mapped, it would keep its room on disk for the rest of the run."""
    from flamepy.train.loop import Loop

    shutil.copytree(finished / "stopped", "run")
    found = []
    monkeypatch.setattr(Loop, "run", lambda self, until: found.append(Path("/proc/self/maps").read_text()))
    flamepy(capsys, "train", "--resume", "run")
    if not Path("/proc/self/maps").exists():
        pytest.skip("reads /proc")
    assert len(found) == 1 and str(Path("run").resolve()) not in found[0]
