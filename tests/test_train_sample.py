"""Sampling: the key/value cache changes nothing, options do what they say, the command writes what it should."""

import json
from pathlib import Path

import numpy as np
import pytest

import flamepy as fp
from flamepy.command import cli
from flamepy.train import data, sample
from flamepy.train.config import GptConfig, resolve
from flamepy.train.gpt import GPT

CONTEXT = 8


@pytest.fixture(scope="module")
def model():
    fp.manual_seed(3)
    made = GPT(resolve(GptConfig, {"layers": 2, "heads": 2, "width": 16, "context": CONTEXT}))
    random = np.random.default_rng(0)
    for _, p in made.named_parameters():  # larger numbers than at the start, so that positions and order matter
        p.set_data(p.numpy() + random.normal(0, 0.3, p.shape).astype(np.float32))
    return made.eval() or made


def test_scores_with_the_cache_equal_the_full_forward(model):
    ids = np.random.default_rng(1).integers(0, 256, (1, CONTEXT))
    with fp.no_grad():
        whole = model(fp.tensor(ids)).numpy().copy()
        for first in (1, 3, CONTEXT):
            cache = model.empty_cache()
            found = [model.extend(fp.tensor(ids[:, :first]), cache).numpy().copy()]
            found += [model.extend(fp.tensor(ids[:, t : t + 1]), cache).numpy().copy() for t in range(first, CONTEXT)]
            np.testing.assert_allclose(np.concatenate(found), whole[0, first - 1 :], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("temperature, top_k", [(0.0, 0), (0.8, 0), (1.5, 5)])
def test_text_with_the_cache_equals_text_without(model, temperature, top_k):
    prompt = data.encode("hello, world")  # longer than the context
    made = [list(sample.generate(model, prompt, 40, temperature, top_k, 7, cached)) for cached in (True, False)]
    assert made[0] == made[1] and len(made[0]) == 40
    if temperature:
        assert made[0] != list(sample.generate(model, prompt, 40, temperature, top_k, 8))


def test_window():
    assert [sample.window_start(n, 8) for n in (1, 8, 9, 12, 13, 16, 17)] == [0, 0, 4, 4, 8, 8, 12]
    assert all(1 <= n - sample.window_start(n, c) <= c for c in (1, 2, 3, 8) for n in range(1, 60))


def test_choose_follows_the_probabilities():
    logits = np.log(np.array([0.1, 0.6, 0.3]))
    places = (np.arange(1000) + 0.5) / 1000
    counts = np.bincount([sample.choose(logits, 1.0, 0, u) for u in places], minlength=3)
    assert counts.tolist() == [100, 600, 300]
    assert np.bincount([sample.choose(logits, 1.0, 2, u) for u in places], minlength=3)[0] == 0
    assert {sample.choose(logits, 0.0, 0, u) for u in places} == {1}
    assert {sample.choose(logits, 1.0, 1, u) for u in places} == {1}
    assert sample.choose(np.array([1000.0, -1000.0]), 1e-3, 0, 0.999999) == 0
    assert sample.choose(np.array([0.0, 1.0]), 1e-320, 0, 0.999999) == 1  # without a warning: pytest makes them errors


def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("some text, and more of it; " * 40)
    options = ["--layers", "1", "--heads", "1", "--width", "8", "--context", "8", "--batch", "2", "--steps", "2", "--out", "run"]
    assert cli.run(["train", "--data", "text.txt", *options]) == 0
    capsys.readouterr()

    def text(*args):
        assert cli.run(["sample", "run", "--tokens", "30", *args]) == 0
        return capsys.readouterr().out

    first = text("--prompt", "naïve ", "--seed", "4")
    assert first.startswith("naïve ") and first.endswith("\n")
    assert first == text("--prompt", "naïve ", "--seed", "4") == text("--prompt", "naïve ", "--seed", "4", "--no-cache")
    assert first != text("--prompt", "naïve ", "--seed", "5")
    assert text("--prompt", "x", "--temperature", "0") == text("--prompt", "x", "--top-k", "1", "--seed", "9")
    assert text("--prompt", "", "--top-k", "300")
    assert text("--prompt", "only this", "--tokens", "0") == "only this\n"
    before = json.loads(Path("run/checkpoints/step-00000002/state.json").read_text())
    assert before["step"] == 2
