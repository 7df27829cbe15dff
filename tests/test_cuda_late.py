"""Checks that a GPU makes late: what they forbid has not happened when they raise, eager and replayed, however late that is.

The oracle is the CPU, whose checks raise at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from devices import cuda_device

import flamepy as fp
import flamepy.nn.functional as F
from flamepy import nn

X = np.random.default_rng(0).standard_normal((4, 5)).astype("f4")
Y = np.array([0, 1, 2, 1])
FAULTS = {
    "class": (X, np.array([0, 1, 9, 1]), fp.IndexOutOfRange, "class id out of range: 9 at position"),
    "norm": (np.full_like(X, np.nan), Y, fp.NonFiniteError, r"norm nan, in '0\.weight'"),
}


@pytest.fixture(autouse=True)
def gpu() -> Iterator[Any]:
    with cuda_device() as device:
        yield device
        device.late.waiting.clear()


class Trained:
    """A small model with an optimizer: what a step leaves of it."""

    def __init__(self, device: str, capture: bool, clip: Callable[[Any], Any] = lambda grads: fp.clip_grad_norm(grads, 1.0)):
        fp.manual_seed(3)
        self.device = device
        self.model = nn.Sequential(nn.Linear(5, 6, device=device), nn.Dropout(0.5), nn.Linear(6, 3, device=device))
        self.model.params.pack()
        self.optimizer = fp.AdamW(self.model, lr=0.1)

        def step(x: Any, y: Any) -> Any:
            loss = F.cross_entropy(self.model(x), y)
            grads = loss.backward()
            clip(grads)
            self.optimizer.step(grads)
            return loss

        self.step = fp.capture(step) if capture else step

    def __call__(self, x: np.ndarray = X, y: np.ndarray = Y) -> Any:
        return self.step(fp.tensor(x, device=self.device), fp.tensor(y, device=self.device))

    def state(self) -> Any:
        moments = self.optimizer.state_dict()["state"]
        numbers = {name: {k: np.array(v).tobytes() for k, v in found.items()} for name, found in moments.items()}
        return {name: array.tobytes() for name, array in self.model.state_dict().items()}, numbers, fp.get_rng_state()


@pytest.mark.parametrize("capture", [False, True])
@pytest.mark.parametrize("fault", FAULTS)
def test_nothing_is_updated_from_a_fault_on(fault, capture):
    x, y, error, text = FAULTS[fault]
    steps = Trained("cuda", capture)
    for _ in range(3):
        steps().item()
    before = steps.state()[:2]
    with pytest.raises(error, match=text):
        steps(x, y)
        for _ in range(3):
            last = steps()
        last.item()
    assert steps.state()[:2] == before
    assert steps().item() > 0
    after = steps.state()
    assert all(moments["step"] != before[1][name]["step"] for name, moments in after[1].items())


@pytest.mark.parametrize("capture", [False, True])
def test_a_run_with_faults_goes_on_as_on_the_cpu(capture):
    """Counts and random numbers too: the losses afterwards are the CPU's."""
    found = {}
    for device in ("cpu", "cuda"):
        steps, losses = Trained(device, capture), []
        for i in range(9):
            x, y = FAULTS["class"][:2] if i in (4, 6) else (X, Y)
            try:
                losses.append(steps(x, y).item())
            except fp.IndexOutOfRange:
                losses.append(-1.0)
        found[device] = losses, fp.get_rng_state()
    assert found["cuda"][1] == found["cpu"][1]
    np.testing.assert_allclose(found["cuda"][0], found["cpu"][0], rtol=2e-6)


def test_replays_do_not_wait_for_checks_that_only_raise(gpu, monkeypatch):
    steps = Trained("cuda", True, lambda grads: fp.clip_grad_norm(grads, 1.0))
    steps(), steps(), steps().item()
    monkeypatch.setattr(gpu.driver, "synchronize", lambda: pytest.fail("a replay waited"))
    monkeypatch.setattr(gpu.driver, "download", lambda *given: pytest.fail("a replay read"))
    x, y = fp.tensor(X, device="cuda"), fp.tensor(Y, device="cuda")
    launched = gpu.launched
    for n in range(1, 4):
        steps.step(x, y)
        assert gpu.launched == launched + n * steps.step.program.launches


def test_a_norm_that_is_skipped_is_no_fault():
    steps = Trained("cuda", True, lambda grads: (fp.clip_grad_norm(grads, 1.0, nonfinite="skip"), fp.clip_grad_norm(grads, 1.0)))
    for _ in range(3):
        steps().item()
    before = steps.state()[:2]
    steps(*FAULTS["norm"][:2]).item()
    assert steps.state()[:2] == before
    steps().item()
    assert steps.state()[0] != before[0]


@pytest.mark.parametrize("how", ["update", "apply_update", "set_data"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_parameters_are_not_written_after_a_fault(how, dtype):
    w = fp.Parameter(fp.tensor(X.reshape(-1)[:9], device="cuda").to(getattr(fp, dtype)))
    table, one = fp.ones((3, 2), device="cuda"), fp.ones(9, device="cuda").to(getattr(fp, dtype))
    w.set_grad(fp.ones(9, device="cuda"))
    before = w.numpy().copy()

    def write() -> None:
        if how == "update":
            w.update(0.5)
        else:
            getattr(w, how)(one)

    F.embedding(fp.tensor([1, 7], device="cuda"), table)
    write()
    with pytest.raises(fp.IndexOutOfRange, match="7 at position"):
        w.numpy()
    assert (w.numpy() == before).all()
    write()
    assert (w.numpy() != before).all()


def test_a_fault_of_one_thread_stops_no_other(gpu):
    mine = Trained("cuda", False)
    mine().item()
    start = mine.state()
    fp.tensor(X, device="cuda")
    F.embedding(fp.tensor([7], device="cuda"), fp.ones((3, 2), device="cuda"))
    found: list[Any] = []

    def other() -> None:
        with cuda_device():
            waiting, gpu.late.waiting[:] = gpu.late.waiting[:], []  # this thread reads, which would raise the other's error here
            theirs = Trained("cuda", False)
            before = theirs.state()[0]
            theirs().item()
            found.append(theirs.state()[0] != before)
            gpu.late.waiting[:] = waiting

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert found == [True]
    x, y = fp.tensor(X, device="cuda"), fp.tensor(Y, device="cuda")
    mine.optimizer.step(F.cross_entropy(mine.model(x), y).backward())
    with pytest.raises(fp.IndexOutOfRange):
        gpu.synchronize()
    assert mine.state()[:2] == start[:2]


def test_probabilities_are_compared_on_the_gpu_too(gpu):
    w = fp.Parameter(fp.ones(2, device="cuda"))
    F.binary_cross_entropy(fp.tensor([0.5, 1.5], device="cuda"), fp.tensor([1.0, 0.0], device="cuda"))
    w.apply_update(fp.ones(2, device="cuda"))
    with pytest.raises(ValueError, match="no probability: element"):
        gpu.synchronize()
    assert w.tolist() == [1.0, 1.0]
    F.binary_cross_entropy(fp.tensor([0.0, 1.0], device="cuda"), fp.tensor([1.0, 0.0], device="cuda"))
    w.apply_update(fp.ones(2, device="cuda"))
    assert w.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("capture", [False, True])
def test_a_scaler_counts_no_step_with_a_fault(capture):
    found = {}
    for device in ("cpu", "cuda"):
        scaler = fp.GradScaler(init_scale=8.0, growth_interval=2)
        steps = Trained(device, False)

        def step(x: Any, y: Any, scaler: Any = scaler, steps: Any = steps) -> Any:
            loss = F.cross_entropy(steps.model(x), y)
            grads = scaler.scale(loss).backward()
            scaler.unscale(grads)
            scaler.step(steps.optimizer, grads)
            return loss

        steps.step, seen = fp.capture(step) if capture else step, []
        for i in range(8):
            try:
                steps(*(FAULTS["class"][:2] if i in (3, 6) else (X, Y))).item()
            except fp.IndexOutOfRange:
                seen.append("fault")
            seen.append((scaler.get_scale(), scaler.overflows, scaler.good_steps))
        found[device] = seen
    assert found["cuda"] == found["cpu"]


def test_a_window_with_a_fault_does_not_go_on():
    p = fp.Parameter(fp.tensor(X[:, :3].copy(), device="cuda"))
    accumulator = fp.GradientAccumulator(3)

    def add(classes: Any) -> Any:
        loss = F.cross_entropy(p, fp.tensor(classes, device="cuda"))
        return accumulator.add(loss.backward()), loss

    add([0, 1, 2, 0])[1].item()
    loss = add([0, 1, 7, 0])[1]
    with pytest.raises(fp.IndexOutOfRange):
        loss.item()
    with pytest.raises(fp.AccumulationError, match="before a check of theirs failed"):
        add([0, 0, 0, 0])
    accumulator.reset()
    grads = [add([n, n, n, n])[0] for n in range(3)][-1]
    softmax = np.exp(X[:, :3]) / np.exp(X[:, :3]).sum(1, keepdims=True)
    np.testing.assert_allclose(grads[p].numpy(), (softmax - 1 / 3) / 4, atol=1e-6)


@pytest.mark.parametrize("capture", [False, True])
def test_nothing_is_remembered_of_a_step_with_a_fault(capture):
    """The norms that a transform keeps are the CPU's: none of a step that raised, nor of one after it."""
    kept = {}
    for device in ("cpu", "cuda"):
        steps, history = Trained(device, capture, lambda grads: None), fp.transforms.ClipHistory(window=8, warmup=2)
        steps.optimizer = fp.AdamW(steps.model, lr=0.1, transforms=history)
        for i in range(7):
            if i != 4:
                steps().item()
                continue
            with pytest.raises(fp.NonFiniteError):
                steps(np.full_like(X, np.nan), Y).item()
        kept[device] = history.state_dict()["past"]
    assert len(kept["cpu"]) == 6
    np.testing.assert_allclose(kept["cuda"], kept["cpu"], rtol=1e-5)


@pytest.mark.parametrize("capture", [False, True])
def test_an_average_takes_nothing_in_after_a_fault(capture):
    """Neither a share nor a count: the averages and their number are the CPU's."""
    found = {}
    for device in ("cpu", "cuda"):
        steps = Trained(device, False)
        averages = fp.EMA(steps.model, decay=0.5), fp.SWA(steps.model)

        def step(x: Any, y: Any, steps: Any = steps, averages: Any = averages) -> Any:
            loss = F.cross_entropy(steps.model(x), y)
            steps.optimizer.step(loss.backward())
            for average in averages:
                average.update()
            return loss

        steps.step = fp.capture(step) if capture else step
        for i in range(7):
            try:
                loss = steps(*(FAULTS["class"][:2] if i in (3, 5) else (X, Y)))
                if i == 3 and device == "cuda":
                    steps()  # nothing of this one is left either
                loss.item()
            except fp.IndexOutOfRange:
                pass
        found[device] = [average.updates for average in averages], [average.regions[0].average for average in averages]
    assert found["cuda"][0] == found["cpu"][0] == [5, 5]
    for mine, other in zip(found["cuda"][1], found["cpu"][1], strict=True):
        np.testing.assert_allclose(mine.device.download(mine), other.device.download(other), rtol=1e-5, atol=1e-7)
