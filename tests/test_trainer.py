"""Trainer: the loop of `flamepy train` on models, data and losses of one's own.

Oracles: the same training written in NumPy; one go, bit for bit, for whatever was stopped and resumed.
"""

import json
import math
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from devices import default_device
from error_text import raises
from train_tools import contents, posix, rows, wait_for_step
from trainer_tools import BATCHES, X, Y, on_plain, trainer

import flamepy as fp

ROOT = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def plain(tmp_path, monkeypatch):
    yield from on_plain(tmp_path, monkeypatch)


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


@pytest.mark.parametrize("part", [1, slice(0, 3)])
def test_a_validation_leaves_each_module_in_its_mode(part):
    """A part in evaluation mode stays there: dropout that it does without does not come on after the first validation."""
    seen = []

    def one(folder, *stops, **options):
        t = trainer(folder, dropout=0.5, width=4, resume=True, validate=lambda: seen.append(modes(t)) or 1.0, **options)
        modes = lambda t: [m.training for m in t.job.model.modules()]
        t.job.model[part].eval()
        before = modes(t)
        for stop_after in stops:
            t.run(stop_after)
        assert modes(t) == before and seen and not any(seen.pop())

    one("never", None, validate_every=12)
    one("often", None, validate_every=2)
    for stop_after in (5, None):
        one("parts", stop_after, validate_every=2)
    losses = [[row["loss"] for row in rows(folder)] for folder in ("never", "often", "parts")]
    assert losses[0] == losses[1] == losses[2] and len(losses[0]) == 12


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
from trainer_tools import trainer
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
    for wrong in ({"validate": 3}, {"schedule": 0.1}):
        with raises(TypeError, "Trainer: ", *wrong, "is no function"):
            trainer("run", resume=True, **wrong)
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
    with raises(ValueError, "there is less data than before: list ends before batch 6"):
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
