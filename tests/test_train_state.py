"""TrainState: everything a run goes on with, saved and restored as one, all or nothing.

Oracle: the same training in one go, bit for bit, in another process too.
"""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from devices import default_device
from error_text import raises

import flamepy as fp
from flamepy import nn, schedules
from flamepy.train import TrainState

ROOT = Path(__file__).parent.parent
MICRO = 3


@pytest.fixture(autouse=True)
def plain():
    with default_device("plain"):
        yield


class Training:
    """A small model with dropout, an average and a scaled loss, in windows of three micro-batches."""

    def __init__(self, width=5, seed=1):
        fp.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Dropout(0.3), nn.Linear(width, 1))
        self.model.params.pack()
        self.optimizer = fp.AdamW(self.model, lr=schedules.cosine(1e-2, 20))
        self.accumulator = fp.GradientAccumulator(MICRO)
        self.scaler, self.ema = fp.GradScaler(init_scale=8.0, growth_interval=2), fp.EMA(self.model, decay=0.5)
        self.progress = {"micro": 0}
        self.state = TrainState(
            model=self.model,
            optimizer=self.optimizer,
            accumulator=self.accumulator,
            scaler=self.scaler,
            ema=self.ema,
            progress=self.progress,
            schedule=schedules.cosine(1e-2, 20),
        )

    def micro_batch(self):
        x = np.random.default_rng(self.progress["micro"]).normal(size=(6, 4)).astype("f4")
        self.progress["micro"] += 1
        loss = (self.model(fp.tensor(x)) - fp.tensor(x[:, :1])).square().mean()
        grads = self.accumulator.step(loss.backward())
        if grads is not None:
            fp.clip_grad_norm(grads, 0.1)
            self.optimizer.step(grads)
            self.ema.update()
            scaled = self.scaler.scale(self.model(fp.tensor(x)).square().mean()).backward()
            self.scaler.unscale(scaled)
            self.scaler.step(self.optimizer, scaled)
        return loss.item()

    def numbers(self):
        average = {f"average of {name}": array.tolist() for name, array in self.ema.state_dict()["average"].items()}
        return {name: p.numpy().tolist() for name, p in self.model.named_parameters()} | average | {"scale": self.scaler.get_scale()}


CONTINUE = """
import json, sys
sys.path.insert(0, sys.argv[1])
from devices import default_device
from test_train_state import Training
with default_device("plain"):
    for n in map(int, sys.argv[3:]):
        t = Training(seed=99)
        t.state.load(f"{sys.argv[2]}/{n}.safetensors")
        print(json.dumps([[t.micro_batch() for _ in range(9 - n)], t.numbers()]))
"""


def test_a_new_process_goes_on_from_every_point_of_a_window(tmp_path):
    whole, losses = Training(), []
    for n in range(9):
        whole.state.save(tmp_path / f"{n}.safetensors")
        losses.append(whole.micro_batch())
    points = [0, 3, 4, 5, 8]  # between windows and inside of two of them
    command = [sys.executable, "-c", CONTINUE, str(ROOT / "tests"), str(tmp_path), *map(str, points)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    for n, line in zip(points, done.stdout.splitlines(), strict=True):
        assert json.loads(line) == [losses[n:], whole.numbers()], n


def changed(training):
    """A state a few micro-batches later than a new one."""
    for _ in range(4):
        training.micro_batch()
    return training


def same(one, other):
    for key in one:
        np.testing.assert_equal(one[key], other[key])
    return one.keys() == other.keys()


def test_a_restore_that_fails_changes_no_member(tmp_path):
    changed(Training()).state.save(tmp_path / "a.safetensors")
    here = changed(Training(width=7))
    here.micro_batch()
    before = here.state.state_dict()
    with raises(fp.StateError, "TrainState: 'model' cannot be restored: load_state_dict: shape differs"):
        here.state.load(tmp_path / "a.safetensors")
    assert same(before, here.state.state_dict())
    # The model and the optimizer are restored before the accumulator refuses: they must come back.
    there, fits = changed(Training()).state.state_dict(), changed(Training(seed=3))
    before = fits.state.state_dict()
    for name, value in (
        ("accumulator", {}),
        ("progress", 3),
        ("schedule", "linear(1.0, 0.0, 5)"),
        ("random", {"seed": -1, "stream": 0, "step": 0}),
    ):
        with raises(fp.StateError, "TrainState: ", name):
            fits.state.load_state_dict({**there, name: value})
        assert same(before, fits.state.state_dict()), name
    fits.state.load_state_dict(there)
    assert same(there, fits.state.state_dict())


def test_an_error_that_is_no_error_of_the_state_comes_through_and_changes_nothing():
    class Stubborn:
        def state_dict(self):
            return {}

        def load_state_dict(self, state):
            raise KeyboardInterrupt

    training, member = Training(), Stubborn()
    state = TrainState(model=training.model, stubborn=member)
    found = {**state.state_dict(), "model": changed(Training(seed=5)).model.state_dict()}
    before = training.numbers()
    member.load_state_dict = lambda given: None if given == {"x": 1} else (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        member.state_dict = lambda: {"x": 1}
        state.load_state_dict(found)
    assert training.numbers() == before


def test_members_are_named_when_they_are_missing_or_too_many(tmp_path):
    training = Training()
    TrainState(model=training.model, ema=training.accumulator).save(tmp_path / "a.safetensors")
    with raises(fp.StateError, "TrainState: members differ: missing ['optimizer'], not here ['ema']"):
        TrainState(model=training.model, optimizer=training.optimizer).load(tmp_path / "a.safetensors")
    fp.save({"w": np.ones(2)}, tmp_path / "b.safetensors")
    with raises(fp.StateError, "TrainState: not written by TrainState.save()", "['w']"):
        TrainState(model=training.model).load(tmp_path / "b.safetensors")
    with raises(fp.StateError, "TrainState: not a state: int"):
        training.state.load_state_dict(3)
    for member in (3, nn.Linear, "x", np.ones(3)):
        with raises(fp.DTypeError, "TrainState: a member without state_dict()", "'it' is a"):
            TrainState(it=member)
    with raises(fp.StateError, "TrainState: a name that it needs itself: 'random'"):
        TrainState(random={})


def test_optional_members_functions_and_versions(tmp_path):
    training = Training()
    TrainState(model=training.model, scaler=None, function=len).save(tmp_path / "a.safetensors")
    TrainState(model=training.model, scaler=None, function=len).load(tmp_path / "a.safetensors")
    with raises(fp.StateError, "'scaler' cannot be restored"):
        TrainState(model=training.model, scaler={}, function=len).load(tmp_path / "a.safetensors")
    found = fp.load(tmp_path / "a.safetensors")
    assert set(found["versions"]) == {"flamepy", "python", "numpy", "numba"} and found["random"] == fp.get_rng_state()


def test_a_full_disk_leaves_the_file_before(tmp_path, monkeypatch):
    training, path = Training(), tmp_path / "a.safetensors"
    training.state.save(path)
    before = path.read_bytes()
    training.micro_batch()
    real, calls = os.write, []

    def full(handle, data):
        calls.append(len(data))
        if len(calls) > 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(handle, data)

    monkeypatch.setattr(os, "write", full)
    with raises(fp.StateError, "save: cannot write", "No space left on device"):
        training.state.save(path)
    monkeypatch.undo()
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]
