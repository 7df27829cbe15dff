"""Training with a compute dtype: as good as float32, replays to the bit, changes between steps, less memory, and `flamepy train --compute`.

Oracles: the float32 model for the loss, eager steps for replays, a run that was not interrupted for one that was.
"""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from train_tools import contents, flamepy, prepare, rows, train

import flamepy as fp
import flamepy.nn.functional as F
from flamepy import nn
from flamepy.train.config import GptConfig
from flamepy.train.gpt import GPT
from flamepy.train.sample import load_model

HALVES = ["float16", "bfloat16"]


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def bits(model: nn.Module) -> list[bytes]:
    return [value.tobytes() for value in model.state_dict().values()]


def small_gpt(dtype: Any, **more: Any) -> GPT:
    fp.manual_seed(0)
    model = GPT(GptConfig(**{"layers": 2, "heads": 2, "width": 32, "context": 16, **more}))
    model.compute_dtype = dtype
    return model


def windows(count: int, context: int, seed: int = 0) -> tuple[fp.Tensor, fp.Tensor]:
    """Bytes of a sequence in which each depends on the one before."""
    starts = np.random.default_rng(seed).integers(0, 256, (count, 1))
    ids = (starts + 7 * np.arange(context + 1)) % 256
    return fp.tensor(ids[:, :-1].copy()), fp.tensor(ids[:, 1:].reshape(-1))


def loss_of(model: nn.Module, x: Any, y: Any) -> fp.Tensor:
    return F.cross_entropy(model(x).reshape((-1, 256)), y)


def trained(dtype: Any, steps: int, captured: bool) -> tuple[GPT, list[float]]:
    model = small_gpt(dtype)
    optimizer = fp.AdamW(model.params, lr=3e-3)

    def step(x: Any, y: Any) -> fp.Tensor:
        loss = loss_of(model, x, y)
        grads = loss.backward()
        fp.clip_grad_norm(grads, 1.0)
        optimizer.step(grads)
        return loss

    run = fp.capture(step) if captured else step
    return model, [run(*windows(8, 16, seed)).item() for seed in range(steps)]


def test_training_reaches_what_float32_reaches() -> None:
    losses = {dtype: np.mean(trained(dtype, 200, True)[1][-10:]) for dtype in (None, fp.bfloat16, fp.float16)}
    assert losses[None] < 2.5  # a guess has 5.5
    for dtype in (fp.bfloat16, fp.float16):
        assert abs(losses[dtype] - losses[None]) < 0.01 * losses[None] and losses[dtype] != losses[None]


@pytest.mark.parametrize("dtype", HALVES)
def test_a_replay_rounds_the_weights_anew(dtype: str) -> None:
    """To the bit what the eager steps do, in which each forward pass rounds the weights that the last step wrote."""
    (eager, losses), (replayed, again) = (trained(getattr(fp, dtype), 5, captured) for captured in (False, True))
    assert losses == again and bits(eager) == bits(replayed) and len(set(losses)) == 5


def test_changes_between_steps_are_seen_by_a_captured_step() -> None:
    """Another compute dtype, eval(), freeze(): each gives the eager result, and what was recorded for a setting serves it again."""

    def run(captured: bool) -> tuple[list[float], list[bytes], Any]:
        model = small_gpt(None, dropout=0.1)
        optimizer = fp.SGD(model.params, lr=0.1)

        def step(x: Any, y: Any) -> fp.Tensor:
            loss = loss_of(model, x, y)
            optimizer.step(loss.backward())
            return loss

        call, found = fp.capture(step) if captured else step, []
        for dtype in (None, fp.bfloat16, None, fp.float16, fp.bfloat16):
            model.compute_dtype = dtype
            found += [call(*windows(4, 16, n)).item() for n in range(3)]
        for change in (model.eval, lambda: model.freeze("blocks.0.*"), lambda: setattr(model.blocks[1], "compute_dtype", None)):
            change()
            found += [call(*windows(4, 16, n)).item() for n in range(3)]
        return found, bits(model), call

    (eager, state, _), (replayed, same, call) = run(False), run(True)
    assert eager == replayed and state == same
    assert len([kind for kinds in call.kinds.values() for kind in kinds]) == 6


def test_two_models_may_compute_in_two_types() -> None:
    models = {dtype: small_gpt(dtype) for dtype in (None, fp.bfloat16, fp.float16)}
    x, y = windows(4, 16)
    together = [loss_of(model, x, y).item() for model in models.values()]
    assert together == [loss_of(small_gpt(dtype), x, y).item() for dtype in models] and len(set(together)) == 3


@pytest.mark.usefixtures("device")
def test_a_weight_that_several_layers_share_gets_the_sum_of_its_gradients() -> None:
    """Packed, where gradients are written in place, and not; with a layer called twice, and a tied head."""
    for packed in (False, True):
        fp.manual_seed(1)
        model = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6))
        model[1].weight = model[0].weight
        model.compute_dtype = fp.bfloat16
        if packed:
            model.params.pack()
        x = fp.tensor(draw(4, 6))
        w = model[0].weight
        w16 = fp.Parameter(w.to(fp.bfloat16))
        for _ in range(3):
            y = model(model(x)).to(fp.float32)
            grads = (y * y).sum().backward()
            h = x.to(fp.bfloat16)
            for layer in [*model] * 2:  # the bias is added as it is to sums of float32
                h = F.linear(h, w16, None, layer.bias.reshape((1, 6)) * fp.ones(4, 1)).to(fp.bfloat16)
            h = h.to(fp.float32)
            want = (h * h).sum().backward()[w16].numpy()
            np.testing.assert_allclose(grads[w].numpy(), want, 1e-5, 1e-5 * np.abs(want).max())


def test_a_step_of_a_gpt_holds_less() -> None:
    """What is held between forward and backward; a quarter of it is the stream, which stays float32, and the rounded weights."""
    held = {}
    x, y = windows(16, 64)
    for dtype in (None, fp.bfloat16):
        model = small_gpt(dtype, layers=4, width=64, context=64)
        for _ in range(3):
            gc.collect()
            before = fp.device("cpu").memory()["current"]
            loss = loss_of(model, x, y)
            held[dtype] = fp.device("cpu").memory()["current"] - before
            del loss
    assert held[fp.bfloat16] <= 0.65 * held[None]


# ---- the command ----------------------------------------------------------------------------------------------------------------------
def test_a_run_of_the_command_keeps_its_compute_dtype(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    """Stopped and resumed bit for bit; its parameters are float32; another --compute is refused; sampling computes as training did."""
    prepare(tmp_path, monkeypatch)
    for out, more in (("whole", []), ("parts", ["--stop-after", 3]), ("wide", ["--compute", "float32"])):
        code, text, err = train(capsys, "--steps", 6, "--compute", "bfloat16", "--ledger", "--out", out, *more)
        assert (code, err) == (0, "") and ("products from bfloat16" in text) == (out != "wide")
    code, _, err = flamepy(capsys, "train", "--resume", "parts", "--compute", "float16")
    assert code == 2 and "a resumed run keeps its settings: --compute float16 was given, the run has bfloat16" in err
    assert flamepy(capsys, "train", "--resume", "parts")[0] == 0
    assert contents("whole") == contents("parts") and contents("whole").keys() == contents("wide").keys()
    assert contents("whole")["metrics.jsonl"] != contents("wide")["metrics.jsonl"]
    model = load_model(Path("whole"))
    assert model.compute_dtype == fp.bfloat16 and {p.dtype for p in model.parameters()} == {np.dtype("float32")}


def test_a_run_begun_before_there_was_a_choice_goes_on_in_float32(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    prepare(tmp_path, monkeypatch)
    assert train(capsys, "--steps", 4, "--stop-after", 2, "--out", "run")[0] == 0
    config, state = Path("run/config.toml"), Path("run/checkpoints/step-00000002/state.json")
    config.write_text("".join(line for line in config.read_text().splitlines(True) if not line.startswith("compute")))
    facts = json.loads(state.read_text())
    del facts["config"]["compute"]
    state.write_text(json.dumps(facts))
    assert flamepy(capsys, "train", "--resume", "run")[0] == 0
    assert load_model(Path("run")).compute_dtype is None


@pytest.mark.parametrize("model", ["mlp", "cnn"])
def test_digits_are_learned_in_bfloat16(model: str, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    pytest.importorskip("sklearn")
    prepare(tmp_path, monkeypatch)
    common = ["train", "digits", "--model", model, "--steps", 60]
    assert flamepy(capsys, *common, "--out", "wide")[0] == 0
    assert flamepy(capsys, *common, "--compute", "bfloat16", "--out", "whole")[0] == 0
    assert flamepy(capsys, *common, "--compute", "bfloat16", "--out", "parts", "--stop-after", 30)[0] == 0
    assert flamepy(capsys, "train", "digits", "--resume", "parts")[0] == 0
    last = [f"checkpoints/step-00000060/{name}" for name in ("tensors.safetensors", "state.json")]
    assert all(contents("whole")[name] == contents("parts")[name] for name in ["metrics.jsonl", *last])
    wide, ours = (rows(out)[-1]["val_loss"] for out in ("wide", "whole"))
    assert wide != ours and abs(ours - wide) < 0.01 * (np.log(10) - wide)  # of what was learned: a guess has log(10)
