"""What the tests of Trainer share: a linear model on a little data, in NumPy alone."""

import numpy as np
from devices import default_device

import flamepy as fp
from flamepy import nn
from flamepy.train import Trainer

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 3)).astype("f4")
Y = (X @ np.array([[1.0], [-2.0], [0.5]], "f4") + 0.3).astype("f4")
BATCHES = [(X[i : i + 4], Y[i : i + 4]) for i in range(0, 24, 4)]


def on_plain(tmp_path, monkeypatch):
    """For a fixture: in a folder of its own, on the plain device, with pictures that cost nothing."""
    monkeypatch.chdir(tmp_path)
    for place in ("writers.draw", "ledger.draw"):  # a quarter of a second each; test_train_runs.py looks at them
        monkeypatch.setattr(f"flamepy.train.{place}", lambda sheet, path, *_: path.write_text("drawn"))
    with default_device("plain"):
        yield


def trainer(folder, data=BATCHES, dropout=0.0, width=1, **options):
    fp.manual_seed(7)
    model = nn.Sequential(nn.Linear(3, width), nn.Dropout(dropout), *([] if width == 1 else [nn.Linear(width, 1)]))
    options = {"steps": 12, "save_every": 5, "quiet": True, "clip": 0.0, **options}
    return Trainer(model, lambda x, y: (model(x) - y).square().mean(), data, fp.SGD(model, lr=0.05), folder, **options)
