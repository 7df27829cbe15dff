"""Whole training on the emulated GPU: the losses of a GPT, an MLP and a CNN are the CPU's, replayed steps have the bits of others, runs
move from one device to another, and `flamepy train` tells how much was launched.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from devices import cuda_device
from train_tools import flamepy, prepare, rows, train

import flamepy as fp
import flamepy.nn.functional as F
from flamepy.train.config import DigitsConfig, GptConfig, resolve
from flamepy.train.digits import DigitsJob
from flamepy.train.display import PlainDisplay
from flamepy.train.gpt_job import GptJob
from flamepy.train.loop import Loop
from flamepy.train.run_folder import RunFolder
from flamepy.train.signals import StopRequest

STEPS = 5
NOISE = 1e-5  # of losses: float32, added up in other orders
GPT = {"layers": 1, "heads": 2, "width": 32, "context": 16, "batch": 4}
DIGITS = {"width": 16, "batch": 8}


@pytest.fixture(autouse=True)
def gpu() -> Iterator[Any]:
    with cuda_device() as device:
        yield device


def job(kind: str, device: str, captured: bool) -> Any:
    more = {"steps": STEPS, "device": device, "capture": captured}
    if kind == "gpt":
        return GptJob(resolve(GptConfig, {**GPT, **more}), "stdlib")
    pytest.importorskip("sklearn")
    return DigitsJob(resolve(DigitsConfig, {**DIGITS, **more, "model": kind}), "digits")


def trained(kind: str, device: str, captured: bool) -> tuple[list[float], list[float], dict[str, np.ndarray]]:
    """Losses, gradient norms and the parameters at the end."""
    learning = job(kind, device, captured)
    loop = Loop(learning, RunFolder.nowhere(), PlainDisplay(io.StringIO(), STEPS, "steps", 1), StopRequest())
    found = [loop.one_step() for _ in range(STEPS)]
    assert all(p.device.name == device for p in learning.model.parameters())
    return [row.loss for row in found], [float(row.grad_norm) for row in found], learning.model.state_dict()


@pytest.mark.parametrize("kind", ["gpt", "mlp", "cnn"])
def test_losses_are_the_cpus_and_replays_have_the_same_bits(kind: str, gpu: Any) -> None:
    before = gpu.launched
    losses, norms, end = trained(kind, "cuda", captured=False)
    assert gpu.launched - before > 10 * STEPS
    again = trained(kind, "cuda", captured=True)
    assert (again[0], again[1]) == (losses, norms)
    assert {n: p.tobytes() for n, p in again[2].items()} == {n: p.tobytes() for n, p in end.items()}
    wanted = trained(kind, "cpu", captured=False)
    np.testing.assert_allclose(losses, wanted[0], rtol=NOISE)
    np.testing.assert_allclose(norms, wanted[1], rtol=10 * NOISE)


def test_memory_stays_as_it_is_from_step_to_step(gpu: Any) -> None:
    model = fp.nn.Sequential(fp.nn.Linear(6, 16, device="cuda"), fp.nn.GELU(), fp.nn.Linear(16, 3, device="cuda"))
    optimizer, held = fp.AdamW(model, lr=1e-3), []
    for _ in range(6):
        loss = F.cross_entropy(model(fp.ones((4, 6), device="cuda")), fp.tensor([0, 1, 2, 0], device="cuda"))
        grads = loss.backward()
        fp.clip_grad_norm(grads, 1.0)
        optimizer.step(grads)
        loss.item()
        del loss, grads
        held.append(gpu.memory()["current"])
    assert len(set(held[2:])) == 1, held


def test_a_run_begins_on_the_gpu_and_goes_on_on_the_cpu(tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    prepare(tmp_path, monkeypatch)
    code, out, err = train(capsys, "--steps", "4", "--out", "whole")
    assert code == 0, err
    assert "launched" not in out
    code, out, err = train(capsys, "--steps", "4", "--out", "moved", "--device", "cuda", "--stop-after", "2")
    assert code == 0, err
    code, out, err = flamepy(capsys, "train", "--resume", "moved", "--device", "cpu", "--stop-after", "3")
    assert code == 0, err
    code, out, err = flamepy(capsys, "train", "--resume", "moved", "--device", "cuda")
    assert code == 0, err
    told = re.search(r"^launched  ([\d,]+) kernels on cuda$", out, re.M)
    assert told and int(told[1].replace(",", "")) > 50, out
    np.testing.assert_allclose([r["loss"] for r in rows("moved")], [r["loss"] for r in rows("whole")], rtol=NOISE)
