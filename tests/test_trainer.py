"""Trainer: the loop of `flamepy train` on models, data and losses of one's own.

Oracles: the same training written in NumPy; one go, bit for bit, for whatever was stopped and resumed. Read next: test_train_stops.py,
flamepy/train/trainer.py.
"""

import json
import math
import os
import signal
import subprocess
import sys
import threading
import types
from pathlib import Path

import numpy as np
import pytest
from devices import default_device
from error_text import raises
from train_tools import contents, posix, rows, wait_for_step

import flamepy as fp
from flamepy import nn
from flamepy.train import Trainer

ROOT = Path(__file__).parent.parent
RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 3)).astype("f4")
Y = (X @ np.array([[1.0], [-2.0], [0.5]], "f4") + 0.3).astype("f4")
BATCHES = [(X[i : i + 4], Y[i : i + 4]) for i in range(0, 24, 4)]


@pytest.fixture(autouse=True)
def plain(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for place in ("curves.draw", "ledger.draw"):  # a quarter of a second each; test_train_runs.py looks at them
        monkeypatch.setattr(f"flamepy.train.{place}", lambda sheet, path, *_: path.write_text("drawn"))
    with default_device("plain"):
        yield


def trainer(folder, data=BATCHES, dropout=0.0, width=1, **options):
    fp.manual_seed(7)
    model = nn.Sequential(nn.Linear(3, width), nn.Dropout(dropout), *([] if width == 1 else [nn.Linear(width, 1)]))
    options = {"steps": 12, "save_every": 5, "quiet": True, "clip": 0.0, **options}
    return Trainer(model, lambda x, y: (model(x) - y).square().mean(), data, fp.SGD(model, lr=0.05), folder, **options)


def in_numpy(batches, clip=0.0, lr=0.05):
    """Losses and norms of linear regression by SGD, in float64."""
    w, b = (np.array(p.numpy(), float) for p in trainer("unused").job.model.parameters())
    found = []
    for x, y in batches:
        error = x.astype(float) @ w.T + b - y
        dw, db = 2 * error.T @ x / len(x), 2 * error.mean(0)
        norm = math.sqrt((dw**2).sum() + (db**2).sum())
        share = clip / (norm + 1e-6) if 0 < clip < norm else 1.0
        w, b = w - lr * share * dw, b - lr * share * db
        found.append(((error**2).mean(), norm))
    return np.array(found)


@pytest.mark.parametrize("accumulate, clip", [(1, 0.0), (1, 0.5), (3, 0.5)])
def test_it_computes_what_numpy_does(accumulate, clip):
    t = trainer("run", accumulate=accumulate, clip=clip)
    assert t.run() is True
    each = [BATCHES[i % 6] for i in range(12 * accumulate)]
    large = [tuple(map(np.concatenate, zip(*each[i : i + accumulate], strict=True))) for i in range(0, len(each), accumulate)]
    found = np.array([(row["loss"], row["grad_norm"]) for row in rows("run")])
    np.testing.assert_allclose(found, in_numpy(large, clip), rtol=2e-5)
    assert f"accumulate = {accumulate} " in Path("run/config.toml").read_text()


def test_micro_batches_of_other_sizes_count_by_their_examples():
    uneven = [(X[:2], Y[:2]), (X[2:8], Y[2:8])]
    trainer("run", uneven, accumulate=2, steps=3).run()
    found = np.array([(row["loss"], row["grad_norm"]) for row in rows("run")])
    np.testing.assert_allclose(found, in_numpy([(X[:8], Y[:8])] * 3), rtol=2e-5)


# ---- stopping and going on ---------------------------------------------------------------------------------------------------------
class Loader:
    """Batches in another order each round; keeps its own place if it is asked to."""

    def __init__(self):
        self.round = 0

    def set_epoch(self, number):
        self.round = number

    def __iter__(self):
        return iter([BATCHES[i] for i in np.random.default_rng(self.round).permutation(6)])


class Keeping:
    """One endless stream that knows where it is."""

    def __init__(self):
        self.at = 0

    def __iter__(self):
        while True:
            self.at += 1
            yield BATCHES[(self.at * self.at) % 6]

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


DATA = {
    "list": lambda: BATCHES,
    "function": lambda: lambda n: BATCHES[(7 * n) % 6],
    "loader": Loader,
    "loader with a state": Keeping,
    "iterator": lambda: iter([BATCHES[(5 * n) % 6] for n in range(24)]),
}


@pytest.mark.parametrize("kind", DATA)
def test_stopped_and_resumed_equals_one_go(kind):
    options = {"accumulate": 2, "ledger": True, "ledger_every": 3, "csv": True, "dropout": 0.3, "width": 4, "validate_every": 4}
    # 3: inside a round; 5: a checkpoint; 9: inside a round again
    whole = trainer("whole", DATA[kind](), validate=lambda: 1.0, **options)
    assert whole.run()
    for stop_after in (3, 5, 9, None):
        parts = trainer("parts", DATA[kind](), validate=lambda: 1.0, resume=True, **options)
        assert parts.run(stop_after) is (stop_after is None)
    assert contents("whole") == contents("parts")
    names = {"metrics.jsonl", "metrics.csv", "ledger.jsonl", "ledger.png", "curves.png", "config.toml"}
    assert names <= set(contents("parts")) and len(rows("parts")) == 12
    before = contents("whole")
    assert whole.run() and contents("whole") == before  # again: there is nothing left to do
    assert trainer("eager", DATA[kind](), validate=lambda: 1.0, capture=False, **options).run()
    assert rows("eager") == rows("whole") and Path("eager/ledger.jsonl").read_bytes() == Path("whole/ledger.jsonl").read_bytes()


def test_the_ledger_may_begin_and_end_with_a_resumed_run():
    trainer("run").run(4)
    trainer("run", resume=True, ledger=True, ledger_every=1).run(8)
    trainer("run", resume=True).run()
    trainer("whole").run()
    assert rows("run") == rows("whole")
    steps = [json.loads(line)["step"] for line in Path("run/ledger.jsonl").read_text().splitlines()]
    assert steps == [0, 5, 6, 7, 8]


CTRL_C = """
import os, sys
sys.path.insert(0, sys.argv[1])
from devices import default_device
from test_trainer import trainer
with default_device("plain"):
    t = trainer("run", dropout=0.3, steps=100000, save_every=100000)
    try:
        t.run()
    finally:
        print("cleaned up")
"""


@posix
def test_ctrl_c_saves_and_ends_the_process_and_nothing_is_lost():
    command = [sys.executable, "-c", CTRL_C, str(ROOT / "tests")]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    wait_for_step("run", 5, process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=100)
    assert (process.returncode, out) == (130, "cleaned up\n") and "Traceback" not in err
    step = rows("run")[-1]["step"]
    assert Path("run/checkpoints/last").read_text() == f"step-{step:08d}\n"
    options = {"dropout": 0.3, "steps": 100000, "save_every": 100000}
    trainer("run", resume=True, **options).run(step + 3)
    trainer("whole", **options).run(step + 3)
    assert rows("run") == rows("whole")


def test_what_does_not_fit_is_refused_and_changes_nothing():
    trainer("run", accumulate=2).run(4)
    before = contents("run")

    def refused(*words, **options):
        with raises(ValueError, "Trainer: ", *words):
            trainer("run", **{"accumulate": 2, "resume": True, **options}).run()
        assert contents("run") == before

    refused("a resumed run keeps its options: accumulate is 3, the run has 2", accumulate=3)
    refused("a resumed run keeps its options: clip is 1.0, the run has 0.0", clip=1.0)
    refused("the checkpoint is of another model: 0.bias is (1,) in ", width=4)
    refused("nothing to do: steps is 3, the run is at step 4", steps=3)
    refused("already a run folder", resume=False)
    refused("missing ['ema'], not here []", members={"ema": {}})
    refused("not the place in this data", data=Keeping())
    for file, content in (("last", "nonsense"), ("step-00000004/state.json", "{}"), ("step-00000004/tensors.safetensors", "x")):
        kept = Path("run/checkpoints", file).read_bytes()
        Path("run/checkpoints", file).write_text(content)
        with raises(ValueError, "Trainer: ", "checkpoint"):
            trainer("run", accumulate=2, resume=True).run()
        Path("run/checkpoints", file).write_bytes(kept)
    assert trainer("run", accumulate=2, resume=True).run() and len(rows("run")) == 12


def test_data_that_ends():
    t = trainer("run", iter(BATCHES))
    with raises(ValueError, "Trainer: the data ended after 6 batches: list_iterator can be read once. Give a list or a loader."):
        t.run()
    assert len(rows("run")) == 6
    with raises(ValueError, "the data ended after 0 batches: list is empty"):
        trainer("none", []).run()
    with raises(ValueError, "there is less data than before: list ends before batch 5"):
        trainer("run", BATCHES[:2], resume=True).run()
    assert trainer("run", BATCHES, resume=True).run()  # from the checkpoint on
    trainer("whole").run()
    assert rows("run") == rows("whole")


def test_two_at_once():
    inside = trainer("run")
    found = []
    inside.on("step", lambda run, row: found.append(row.step) if row.step != 3 else trainer("run", resume=True).run())
    with raises(ValueError, "another process is training in this run folder"):
        inside.run()
    runs = [trainer(f"thread{n}", dropout=0.3) for n in range(2)]

    def work(t):
        fp.manual_seed(7)
        with default_device("plain"):
            t.run()

    crowd = [threading.Thread(target=work, args=(t,)) for t in runs]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join(60)
    assert rows("thread0") == rows("thread1") and len(rows("thread0")) == 12


# ---- early stopping ------------------------------------------------------------------------------------------------------------------
def test_early_stopping_keeps_the_best_and_stays_stopped():
    losses = [5.0, 3.0, 2.0, 4.0, 2.0, 2.5, 1.0]
    state = {"n": 0}

    def validate():
        state["n"] += 1
        return {"val_loss": losses[state["n"] - 1], "accuracy": 0.5}

    options = {
        "validate": validate,
        "validate_every": 2,
        "patience": 3,
        "keep": 1,
        "save_every": 1,
        "steps": 40,
        "members": {"count": state},
    }
    t = trainer("run", **options)
    numbers = {}
    t.on("step", lambda run, row: numbers.update({row.step: [p.numpy().copy() for p in run.model.parameters()]}))
    assert t.run(7) is False and t.run() is True
    assert len(rows("run")) == 12 and state["n"] == 6
    assert sorted(p.name for p in Path("run/checkpoints").iterdir()) == ["best", "last", "step-00000006", "step-00000012"]
    assert t.load_best() == 6
    for p, want in zip(t.job.model.parameters(), numbers[6], strict=True):
        np.testing.assert_array_equal(p.numpy(), want)
    before = contents("run")
    assert trainer("run", resume=True, **options).run() is True and contents("run") == before
    assert trainer("run", resume=True, **{**options, "patience": 5, "steps": 14}).run() is True  # more patience: it goes on
    assert Path("run/checkpoints/best").read_text() == "step-00000014\n"
    with raises(ValueError, "Trainer: patience without validation: 2"):
        trainer("x", patience=2)


# ---- callbacks -------------------------------------------------------------------------------------------------------------------------
def test_events_come_in_order_with_what_happened():
    t = trainer("run", steps=2, save_every=1, validate=lambda: 2.0, validate_every=2)
    seen = []
    for event in ("step", "validation", "checkpoint", "backward", "clip", "optimizer"):
        t.on(event, lambda run, value, event=event: seen.append((event, run.step, value)))
    t.run()
    order = [(event, step) for event, step, _ in seen]
    one = ["backward", "clip", "optimizer"]
    assert order == [
        ("checkpoint", 0), *[(e, 0) for e in one], ("step", 1), ("checkpoint", 1),
        *[(e, 1) for e in one], ("step", 2), ("validation", 2), ("checkpoint", 2),
    ]  # fmt: skip
    by = {event: value for event, _, value in seen}
    assert by["validation"] == {"val_loss": 2.0} and by["checkpoint"].name == "step-00000002" and by["step"].loss == rows("run")[-1]["loss"]
    assert len(by["backward"]) == 2 and float(by["clip"]) == rows("run")[-1]["grad_norm"]
    trainer("whole", steps=2, save_every=1, validate=lambda: 2.0, validate_every=2).run()
    assert rows("run") == rows("whole")  # eager, the same bits
    with raises(ValueError, "Trainer.on: no such event: 'stpe'. Did you mean step?"):
        t.on("stpe", print)


@pytest.mark.parametrize("event, done", [("step", 4), ("validation", 4), ("checkpoint", 5), ("backward", 3), ("clip", 3), ("optimizer", 4)])
def test_a_callback_that_raises_ends_the_run_with_everything_saved(event, done):
    t = trainer("run", dropout=0.3, validate=lambda: 1.0, validate_every=4, accumulate=2)

    @t.on(event)
    def fail(run, value):
        if run.step >= (5 if event == "checkpoint" else 3 if event in ("backward", "clip", "optimizer") else 4):
            raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine") as caught:
        t.run()
    assert any(f"callback for '{event}' after step {done}" in note for note in caught.value.__notes__)
    assert Path("run/checkpoints/last").read_text() == f"step-{done:08d}\n" and len(rows("run")) == done
    trainer("run", dropout=0.3, validate=lambda: 1.0, validate_every=4, accumulate=2, resume=True).run()
    trainer("whole", dropout=0.3, validate=lambda: 1.0, validate_every=4, accumulate=2).run()
    if event not in ("backward", "clip"):  # the batches of the step that was broken off are taken
        assert rows("run") == rows("whole")
    assert len(rows("run")) == 12


def test_a_callback_may_stop_the_run(capsys):
    t = trainer("run", quiet=False)
    t.on("step", lambda run, row: run.ask_stop("enough") if row.step == 7 else None)
    assert t.run() is False and len(rows("run")) == 7 and Path("run/checkpoints/last").read_text() == "step-00000007\n"
    out = capsys.readouterr().out
    assert "stopped   enough: after step 7 of 12; the checkpoint is saved" in out
    assert f'the same program with Trainer(..., folder="{Path("run").resolve()}", resume=True)' in out


def test_nan_is_explained_and_the_checkpoint_kept():
    bad = (np.full_like(X[:4], np.nan), Y[:4])
    with raises(fp.NonFiniteError, "Trainer: the loss is nan at step 6: first made by op 'linear'", "The checkpoint of step 5 is kept in"):
        trainer("run", [*BATCHES[:5], bad]).run()
    assert Path("run/checkpoints/last").read_text() == "step-00000005\n"
    with raises(fp.NonFiniteError, "at step 2: first made by op 'linear'"):  # in the second of its three batches
        trainer("more", [*BATCHES[:4], bad, BATCHES[5]], accumulate=3).run()


# ---- other programs' forms, and what is refused ----------------------------------------------------------------------------------------
def test_tensorboard(monkeypatch):
    written = []

    class SummaryWriter:
        def __init__(self, folder, purge_step):
            written.append((Path(folder).name, purge_step))

        def add_scalar(self, name, value, step):
            written.append((name, value, step))

        def close(self):
            written.append("closed")

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with raises(ValueError, "Trainer: there is no writer for TensorBoard", 'pip install "flamepy[tensorboard]"'):
        trainer("none", tensorboard=True).run()
    monkeypatch.setitem(sys.modules, "tensorboardX", types.SimpleNamespace(SummaryWriter=SummaryWriter))
    options = {"tensorboard": True, "steps": 2, "validate": lambda: 2.0, "validate_every": 2}
    t = trainer("run", **options)
    t.run(1)
    t.run()
    row = rows("run")[1]
    assert written[0] == ("tensorboard", 1) and written[-1] == "closed" and written.count("closed") == 2
    assert [w for w in written if w[-1] == 2][1:] == [
        *[(name, row[name], 2) for name in ("loss", "smoothed", "lr", "grad_norm")], ("val_loss", 2.0, 2),
    ]  # fmt: skip


def test_arguments_are_checked():
    model = nn.Linear(3, 1)
    with raises(TypeError, "Trainer: no such option: 'step'. Did you mean steps?"):
        Trainer(model, print, BATCHES, step=3)
    with raises(ValueError, "Trainer: steps must be at least 1: 0"):
        Trainer(model, print, BATCHES, steps=0)
    with raises(fp.DTypeError, "Trainer: no model: function"):
        Trainer(lambda x: x, print, BATCHES)
    with raises(fp.DTypeError, "Trainer: the loss is no function: int"):
        Trainer(model, 3, BATCHES)
    with raises(fp.DTypeError, "Trainer: no data: int"):
        Trainer(model, print, 3)
    with raises(fp.StateError, "Trainer: members that it has itself: ['data']"):
        Trainer(model, print, BATCHES, members={"data": {}})
    with raises(fp.DTypeError, "Trainer: validate() gave no number: 'val_loss': str"):
        trainer("run", validate=lambda: "low", validate_every=1).run()
    with raises(ValueError, "Trainer: there is no checkpoint yet"):
        trainer("nowhere").load_best()
