"""Trainer's events and callbacks, what it writes for other programs, what it refuses.

Oracles: the same run without callbacks; what is on disk when one of them raises.
"""

import sys
import types
from pathlib import Path

import numpy as np
import pytest
from error_text import raises
from train_tools import rows
from trainer_tools import BATCHES, X, Y, on_plain, trainer

import flamepy as fp
from flamepy import nn
from flamepy.train import Trainer


@pytest.fixture(autouse=True)
def plain(tmp_path, monkeypatch):
    yield from on_plain(tmp_path, monkeypatch)


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
    assert any(f"raised in '{event}' after step {done}" in note for note in caught.value.__notes__)
    assert Path("run/checkpoints/last").read_text() == f"step-{done:08d}\n" and len(rows("run")) == done
    trainer("run", dropout=0.3, validate=lambda: 1.0, validate_every=4, accumulate=2, resume=True).run()
    trainer("whole", dropout=0.3, validate=lambda: 1.0, validate_every=4, accumulate=2).run()
    assert rows("run") == rows("whole") and len(rows("run")) == 12


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit(3)], ids=repr)
def test_a_callback_that_ends_the_program_loses_nothing(error):
    t = trainer("run")

    @t.on("step")
    def leave(run, row):
        if row.step == 4:
            raise error

    with pytest.raises(error if isinstance(error, type) else SystemExit):
        t.run()
    assert Path("run/checkpoints/last").read_text() == "step-00000004\n" and len(rows("run")) == 4


@pytest.mark.parametrize("what", ["data", "validation"])
def test_data_and_validation_that_raise_lose_no_finished_step(what):
    asked = []

    def data(n):
        asked.append(n)
        if what == "data" and asked.count(9) == 1 and n == 9:
            raise OSError("the network is gone")
        return BATCHES[n % 6]

    def validate():
        asked.append("validation")
        if what == "validation" and asked.count("validation") == 1:
            raise OSError("the network is gone")
        return 1.0

    options = {"validate": validate, "validate_every": 4, "accumulate": 2, "dropout": 0.3}
    with pytest.raises(OSError, match="the network is gone"):
        trainer("run", data, **options).run()
    assert Path("run/checkpoints/last").read_text() == "step-00000004\n" and len(rows("run")) == 4
    assert trainer("run", data, resume=True, **options).run()
    assert trainer("whole", data, **options).run()
    found, whole = rows("run"), rows("whole")
    assert [row["loss"] for row in found] == [row["loss"] for row in whole]


def test_batches_may_be_dicts_and_single_arrays():
    fp.manual_seed(1)
    model = nn.Linear(3, 1)
    start = [p.numpy().copy() for p in model.parameters()]
    losses = []
    for name, data, loss in (
        ("dict", [{"x": X[:2], "y": Y[:2]}, {"x": X[2:8], "y": Y[2:8]}], lambda b: (model(b["x"]) - b["y"]).square().mean()),
        ("tuple", [(X[:2], Y[:2]), (X[2:8], Y[2:8])], lambda x, y: (model(x) - y).square().mean()),
        ("one", [np.hstack([X, Y])[:2], np.hstack([X, Y])[2:8]], lambda both: (model(both[:, :3]) - both[:, 3:]).square().mean()),
    ):
        for p, numbers in zip(model.parameters(), start, strict=True):
            p.set_data(numbers)
        Trainer(model, loss, data, fp.SGD(model, lr=0.1), name, accumulate=2, steps=4, quiet=True).run()
        losses.append([row["loss"] for row in rows(name)])
    np.testing.assert_allclose(losses[1:], [losses[0]] * 2, rtol=1e-5)
    with raises(fp.DTypeError, "train: the loss is no tensor: float. Return the tracked loss"):
        Trainer(model, lambda x: 3.0, [X], folder="none", quiet=True, steps=1).run()


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
    assert not Path("none").exists()
    trainer("none", steps=1).run()  # nothing stands in the way of the next
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
    with raises(fp.DTypeError, "Trainer: no optimizer: str"):
        Trainer(model, print, BATCHES, "adam")
    with raises(fp.DTypeError, "Trainer: no data: int"):
        Trainer(model, print, 3)
    with raises(fp.StateError, "Trainer: members that it has itself: ['data']"):
        Trainer(model, print, BATCHES, members={"data": {}})
    with raises(fp.DTypeError, "Trainer: validate() gave no number: 'val_loss': str"):
        trainer("run", validate=lambda: "low", validate_every=1).run()
    with raises(ValueError, "Trainer: there is no checkpoint yet"):
        trainer("nowhere").load_best()


# ---- data and options ----------------------------------------------------------------------------------------------------------------
class OneArray:
    """A loader that fills the same arrays for each batch."""

    def __iter__(self):
        x, y = (a.copy() for a in BATCHES[0])
        for batch in BATCHES:
            x[:], y[:] = batch
            yield x, y


def test_a_loader_may_fill_the_same_array_again():
    for folder, data in (("one", OneArray()), ("list", BATCHES)):
        trainer(folder, data, accumulate=3).run()
    assert rows("one") == rows("list")


def test_batches_that_are_no_tensors_are_the_next_again():
    bad = [*BATCHES[:3], (BATCHES[3][0].astype("S4"), BATCHES[3][1]), *BATCHES[4:]]
    with pytest.raises(TypeError):
        trainer("run", bad, accumulate=2).run()
    assert trainer("run", BATCHES, accumulate=2, resume=True).run() and trainer("whole", accumulate=2).run()
    assert [row["loss"] for row in rows("run")] == [row["loss"] for row in rows("whole")]


def test_a_mask_of_infinities_is_saved_and_a_parameter_is_not():
    t = trainer("run")
    t.job.model.register_buffer("mask", fp.tensor(np.array([0.0, -np.inf], "f4")))
    assert t.run()
    p = t.job.model[0].weight
    t = trainer("other", steps=3)
    t.on("step", lambda run, row: t.job.model[0].weight.set_data(fp.full(p.shape, np.inf)) if row.step == 3 else None)
    with pytest.raises(fp.NonFiniteError, match=r"the update of step 3 made values that are not finite: 'model.0.weight'"):
        t.run()


def test_a_resumed_run_keeps_its_data_and_its_optimizer():
    assert trainer("run").run(4) is False
    with raises(ValueError, "not the data that the run was trained on: 5 batches, it had 6. Give the same"):
        trainer("run", BATCHES[:5], resume=True).run()
    other = trainer("run", resume=True)
    other.job.optimizer.lr = 0.01
    with raises(ValueError, r"keeps its options: the optimizer's groups[0].lr is 0.01, the run has 0.05. Use the same"):
        other.run()
    other = trainer("run", resume=True)
    other.on("step", lambda run, row: run.optimizer.groups[0].update(lr=0.02, momentum=0.5))
    assert other.run(6) is False
    assert other.run(8) is False  # what a callback has set is the checkpoint's
    assert trainer("run", resume=True).run(9) is False  # and so is what the run was begun with
    by_schedule = [trainer("by", schedule=lambda n: 0.1 / (n + 1), resume=True).run(n) for n in (3, 5, None)]
    assert by_schedule == [False, False, True]


def test_patience_is_not_spent_on_numbers_of_other_names():
    """It would have ended the run after three validations, whatever they found."""
    t = trainer("run", validate=lambda: {"accuracy": 0.5}, validate_every=2, patience=3)
    with raises(TypeError, "Trainer: patience waits for val_loss: validate() gave accuracy. Return the loss by this name."):
        t.run()
    assert trainer("other", validate=lambda: {"accuracy": 0.5}, validate_every=2).run()


def test_the_batches_of_a_pytorch_loader_are_taken():
    torch = pytest.importorskip("torch")
    for folder, as_given in (("torch", torch.from_numpy), ("numpy", np.copy)):  # others each time, as a DataLoader makes them
        trainer(folder, lambda n, f=as_given: tuple(map(f, BATCHES[n % 6]))).run()
    assert rows("torch") == rows("numpy")


def test_an_optimizer_of_another_model_is_refused():
    model, other = (fp.nn.Linear(3, 1) for _ in range(2))
    more = fp.ParameterDict({"scale": fp.Parameter(np.ones(1, "f4"))})

    def with_optimizer(params, **options):
        return Trainer(model, lambda x, y: (model(x) * more["scale"] - y).square().mean(), BATCHES, fp.SGD(params, lr=0.1), **options)

    with raises(ValueError, "Trainer: the optimizer trains what is not in the model: 2 of 2 parameters, first weight. Make it from this"):
        with_optimizer(other)
    both = [*model.parameters(), *more.parameters()]
    with raises(ValueError, "what is not in the model: 1 of 3 parameters, first scale."):
        with_optimizer(both)
    options = {"folder": "run", "steps": 4, "quiet": True, "members": {"more": more}}
    assert with_optimizer(both, **options).run(2) is False and more["scale"].item() != 1
    kept = more["scale"].item()
    more["scale"].set_data(np.zeros(1, "f4"))
    again, found = with_optimizer(both, resume=True, **options), []
    again.on("step", lambda run, row: found.append(more["scale"].item()))
    assert again.run(3) is False and abs(found[0] - kept) < 0.5 < abs(found[0])


def test_a_step_that_cannot_be_recorded_says_that_capture_may_be_off():
    sizes = [(X[:n], Y[:n]) for n in range(1, 12)]
    with pytest.raises(fp.CaptureError, match=r"more than 8 kinds .* With capture=False training needs no record"):
        trainer("run", sizes).run()
    assert trainer("eager", sizes, capture=False).run()
