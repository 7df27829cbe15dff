"""capture(): a replay equals eager bit for bit, allocates nothing, and shares the arena's memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from devices import CPU_ONLY
from error_text import raises
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_tools import CLIPS, OPTIMIZERS, Checkpointed, Dropping, Images, Plain, Text, batches, packed, training

import flamepy as fp
import flamepy.nn.functional as F
from flamepy import nn
from flamepy.engine.capture.arena import Life, life_of, places

pytestmark = pytest.mark.usefixtures("device")

GAP = 1024

WAYS = [
    (Plain, "adamw", "often", True), (Plain, "adam", "never", True), (Plain, "sgd", "zero", True), (Plain, "plain sgd", "value", True),
    (Plain, "adam", "often", False), (Dropping, "adamw", "often", True), (Checkpointed, "adam", "none", True),
    (Images, "sgd", "often", True), (Text, "adamw", "often", True),
]  # fmt: skip


def run(make: type, optimizer: str, clip: str, pack: bool, captured: bool, steps: int = 6) -> tuple[list[Any], dict[str, Any]]:
    fp.manual_seed(3)
    model = packed(make()) if pack else make()
    chosen = OPTIMIZERS[optimizer](model)
    step = training(model, chosen, CLIPS[clip])
    if captured:
        step = fp.capture(step)
    results = []
    for i, (x, y) in enumerate(batches(steps)):
        chosen.lr = 1e-2 / (i + 1)
        loss, norm = step(x, y)
        results.append((loss.item(), norm))
    return results, {**model.state_dict(), "random": np.array(list(fp.get_rng_state().values()))}


@pytest.mark.parametrize(("make", "optimizer", "clip", "pack"), WAYS)
def test_replay_equals_eager_bit_for_bit(make, optimizer, clip, pack):
    """Losses, norms, parameters and the place in the random numbers, with a learning rate that changes."""
    eager, replayed = (run(make, optimizer, clip, pack, captured) for captured in (False, True))
    assert eager[0] == replayed[0]
    for name, array in eager[1].items():
        assert array.tobytes() == replayed[1][name].tobytes(), name


def test_half_parameters_replay_bit_for_bit():
    states = []
    for captured in (False, True):
        w = fp.Parameter(fp.full((12, 5), 0.1, dtype=fp.bfloat16))
        params = fp.ParameterDict({"w": w})
        optimizer = fp.Adam(params, lr=1e-3)

        def step(x: Any, y: Any) -> Any:
            loss = F.cross_entropy(x.to(fp.bfloat16) @ w, y)
            optimizer.step(loss.backward())
            return loss

        step = fp.capture(step) if captured else step
        losses = [step(x, y).item() for x, y in batches(5)]
        states.append((losses, w.numpy().tobytes(), optimizer.state_dict()["state"]["w"]["master"].tobytes()))
    assert states[0] == states[1]


@pytest.mark.parametrize("leaf", ["made", "given"])
def test_a_gradient_penalty_is_captured_too(leaf):
    """Second derivatives with respect to a leaf that the step makes, or makes of its argument (Gulrajani et al. 2017,
    arXiv:1704.00028). Oracle: PyTorch."""
    torch = pytest.importorskip("torch")
    first, last = np.random.default_rng(0).standard_normal((2, 3, 3)).astype("f4")
    xs = np.random.default_rng(1).standard_normal((5, 4, 3)).astype("f4")
    w, v = torch.tensor(first, requires_grad=True), torch.tensor(last, requires_grad=True)
    wanted = []
    for a in xs:
        x = torch.tensor(a, requires_grad=True)
        y = (torch.tanh(x @ w) @ v).sum()
        g = torch.autograd.grad(y, x, create_graph=True)[0]
        loss = y * 0.1 + (g.square().sum(1).sqrt() - 1).square().mean()
        wanted.append(loss.item())
        with torch.no_grad():
            for p, dp in zip((w, v), torch.autograd.grad(loss, (w, v)), strict=True):
                p -= 0.1 * dp
    found = []
    for captured in (False, True):
        params = fp.ParameterDict({"w": fp.Parameter(first), "v": fp.Parameter(last)})
        optimizer = fp.SGD(params, lr=0.1)

        def step(x: Any) -> Any:
            x = (x.detach() if leaf == "made" else x).requires_grad_()
            y = ((x @ params["w"]).tanh() @ params["v"]).sum()
            g = y.backward(create_graph=True)[x]
            loss = y * 0.1 + (g.square().sum(1).sqrt() - 1).square().mean()
            optimizer.step(loss.backward())
            return loss

        step = fp.capture(step) if captured else step
        losses = [step(fp.tensor(x)) for x in xs]  # the results are kept, as a log keeps them
        found.append(([loss.item() for loss in losses], params["w"].numpy().tobytes()))
    assert found[0] == found[1]
    np.testing.assert_allclose(found[0][0], wanted, rtol=1e-4)


class Norm(nn.Module):
    """A batch norm: statistics of the batch in training, running ones otherwise. `write`: how these are kept."""

    def __init__(self, write: bool = True):
        self.weight = fp.Parameter.ones(3)
        self.register_buffer("mean", np.zeros(3, "f4"))
        self.register_buffer("seen", fp.tensor(0))
        self.write = write

    def forward(self, x: Any) -> Any:
        if not self.training:
            return (x - self.mean) * self.weight
        mean = x.mean(0)
        with fp.no_grad():
            if self.write:
                self.mean.set_data(0.5 * self.mean + 0.5 * mean)
                self.seen.set_data(self.seen + 1)
            else:
                self.mean = 0.5 * self.mean + 0.5 * mean
        return (x - mean) * self.weight


@pytest.mark.parametrize("device", ["cpu", "plain"], indirect=True)
@pytest.mark.parametrize("verify", [True, 1])
def test_running_statistics_are_buffers_that_are_written(device: str, verify: Any) -> None:
    """In replays too, with the bits of eager steps; a load_state_dict is seen by the next replay. Oracle: NumPy."""
    xs = np.random.default_rng(0).standard_normal((9, 4, 3)).astype("f4")
    found = []
    for captured in (False, True):
        norm = Norm()
        model, optimizer = nn.Sequential(norm), fp.SGD(norm, lr=0.1)

        def step(x: Any) -> Any:
            loss = model(x).square().mean()
            optimizer.step(loss.backward())
            return loss

        run: Any = fp.capture(step, verify=verify) if captured else step
        losses, mean, buffer = [], np.zeros(3), norm.mean
        for i, x in enumerate(xs):
            losses.append(run(fp.tensor(x)).item())
            mean = 0.5 * mean + 0.5 * x.mean(0)
            np.testing.assert_allclose(norm.mean.numpy(), mean, 1e-4, 1e-6)
            if i == 5:
                norm.mean.set_data(np.ones(3))
                model.load_state_dict({**model.state_dict(), "0.seen": np.array(20)})
                mean = np.ones(3)
        assert norm.mean is buffer and norm.seen.item() == 23 and (not captured or run.program is not None)
        found.append((losses, norm.mean.numpy().tobytes(), model.eval()(fp.tensor(xs[0])).numpy().tobytes()))
        if captured:
            assert len(run.kinds) == 1 and len(next(iter(run.kinds.values()))) == 1
    assert found[0] == found[1]


def test_a_buffer_that_is_another_tensor_after_each_call_is_named_once() -> None:
    refused = fp.capture(nn.Sequential(nn.Sequential(Norm(write=False)), nn.Flatten(0)))
    refused(fp.ones(2, 3))
    with raises(fp.CaptureError, "depends on: '0.0.mean' of a Norm. A replay", "x.set_data(value), of a buffer"):
        refused(fp.ones(2, 3))


def test_the_step_itself_runs_twice_and_replays_allocate_nothing():
    calls = []
    model = packed(Plain())
    plain = training(model, fp.AdamW(model), CLIPS["often"])

    def step(x: Any, y: Any) -> Any:
        calls.append(x)
        return plain(x, y)

    captured = fp.capture(step, verify=False)
    with pytest.warns(fp.FlameWarning, match=r"step also adds to calls at .*test_replay_equal.py:\d+"):
        for x, y in batches(2):
            captured(x, y)
    before = fp.device().memory()["current"]
    for x, y in batches(5, seed=1):
        captured(x, y)
    assert len(calls) == 2
    del x, y
    assert fp.device().memory()["current"] <= before
    assert "launches" in repr(captured) and "arena" in repr(captured)


def test_buffers_share_the_arena():
    captured = fp.capture(lambda x: (x.exp() * 2.0).tanh().sin().cos().sum())
    for _ in range(3):
        captured(fp.ones(10_000))
    assert captured.program.separate > 5 * 40_000
    assert captured.program.bytes < 2.2 * 40_000


@pytest.mark.engine
@CPU_ONLY
def test_gradients_lie_where_activations_were():
    """A packed model's gradients are one buffer; its parts for the first layers are written last, when the activations of the last
    layers are gone. Eager the two are there at once."""
    layers, rows, width = 8, 128, 128
    model = nn.Sequential(*[m for _ in range(layers) for m in (nn.Linear(width, width), nn.Tanh())])
    model.params.pack()
    optimizer = fp.SGD(model.params, lr=0.01)

    @fp.capture
    def step(x: Any) -> Any:
        loss = model(x).square().mean()
        optimizer.step(loss.backward())
        return loss

    for seed in range(3):
        step(fp.tensor(np.random.default_rng(seed).standard_normal((rows, width), np.float32)))
    gradients, activations = sum(p.size for p in model.parameters()) * 4, layers * rows * width * 4
    assert step.program.bytes < 0.9 * (gradients + activations)


def test_inference_is_captured_too():
    model = Plain()

    @fp.capture
    @fp.no_grad()
    def predict(x: Any) -> Any:
        return {"scores": model(x), "classes": (model(x).argmax(axis=1), None, "text")}

    for x, _ in batches(5):
        got = predict(x)
        assert (got["scores"].numpy() == model(x).numpy()).all()
        assert (got["classes"][0].numpy() == model(x).numpy().argmax(1)).all() and got["classes"][1:] == (None, "text")


def test_arrays_are_arguments_and_keywords_work():
    captured = fp.capture(lambda x, scale: (x * scale).sum())
    for i in range(4):
        x = np.full((3, 2), i, np.float32)
        assert captured(x, scale=fp.tensor(2.0)).item() == 12.0 * i


@CPU_ONLY
@pytest.mark.parametrize("threads", [1, 2])
def test_the_number_of_threads_may_change(threads):
    numba = pytest.importorskip("numba")
    x = fp.tensor(np.linspace(-1, 1, 40_000, dtype="f4"))
    captured = fp.capture(lambda x: x.gelu().sum())
    captured(x)
    want = captured(x).item()
    before = numba.get_num_threads()
    try:
        numba.set_num_threads(min(threads, before))
        assert captured(x).item() == want
    finally:
        numba.set_num_threads(before)


# ---- the arena ---------------------------------------------------------------------------------------------------------------
LIVES = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10), st.integers(0, 5000)), max_size=40)


@CPU_ONLY  # about no device
@settings(deadline=None)
@given(LIVES)
def test_places_never_overlap_in_time_and_memory(drawn):
    lives = [Life(first, first + length, nbytes) for first, length, nbytes in drawn]
    offsets, total = places(lives, 64, GAP)
    for i, (a, at) in enumerate(zip(lives, offsets, strict=True)):
        assert at % 64 == 0 and at + a.nbytes <= total
        for b, other in zip(lives[:i], offsets, strict=False):
            if a.first <= b.last and b.first <= a.last:
                assert at + a.nbytes + GAP <= other or other + b.nbytes + GAP <= at
    assert total <= sum(-(-(life.nbytes + GAP) // 64) * 64 for life in lives)


USES = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=8)


@CPU_ONLY
@given(st.lists(st.tuples(USES, st.integers(1, 700)), max_size=12))
def test_parts_never_overlap_in_time_and_memory(drawn):
    """A byte lives from the first launch that names it to the last one that names its buffer."""
    named = [[(now, min(a, b) * n, max(a, b) * n) for now, a, b in uses] for uses, n in drawn]
    sizes = [8 * n for _, n in drawn]
    offsets, total = places([life_of(uses, size) for uses, size in zip(named, sizes, strict=True)], 64, GAP)
    parts = [
        (i, at + start, at + end, now, max(n for n, *_ in uses))
        for i, (uses, at) in enumerate(zip(named, offsets, strict=True))
        for now, start, end in uses
        if start < end
    ]
    assert all(at % 64 == 0 and at + size <= total for at, size in zip(offsets, sizes, strict=True))
    for i, start, end, first, last in parts:
        for j, other, stop, begun, over in parts:
            assert i == j or first > over or begun > last or end + GAP <= other or stop + GAP <= start


@CPU_ONLY
def test_a_training_step_with_packed_gradients_takes_what_is_alive_at_once():
    """Activations of early layers live longest, and lie where their own gradients will be: those of late layers come to life first."""
    layers, unit = 6, 64
    last = 8 * layers
    lives = [Life(last - 4 * layers, last + 4, 900 * unit * layers, [(900 * unit * n, 900 * unit * (n + 1), last - 4 * n - 2)
             for n in range(layers)])]  # fmt: skip
    for n in range(layers):
        lives += [Life(4 * n, last - 4 * n - 1, size * unit) for size in (400, 300, 100, 100, 100)]
        lives += [Life(4 * n, 4 * n + 2, 700 * unit), Life(last - 4 * n - 4, last - 4 * n - 1, 800 * unit)]
    pieces = [(life, piece) for life in lives for piece in life.parts or [(0, life.nbytes, life.first)]]
    alive = [sum([b - a for life, (a, b, begun) in pieces if begun <= now <= life.last]) for now in range(last + 5)]
    assert places(lives, 64, 0)[1] <= 1.02 * max(alive)
