"""Traps of capture(): every way to get something else than eager raises or is written down here."""

from __future__ import annotations

import copy
import math
import pickle
import threading
from typing import Any

import numpy as np
import pytest
from replay_tools import CLIPS, Plain, batches, packed, training

import flamepy as fp

pytestmark = pytest.mark.usefixtures("device")


# ---- traps: aliasing --------------------------------------------------------------------------------------------------------
def test_results_and_arguments_are_never_overwritten():
    captured = fp.capture(lambda a, b: (a + b, a * 1.0))
    given = [fp.tensor([float(i), 1.0]) for i in range(5)]
    results = [captured(g, g) for g in given]  # the same tensor twice
    assert [r[0].tolist() for r in results] == [[2.0 * i, 2.0] for i in range(5)]
    assert [g.tolist() for g in given] == [[float(i), 1.0] for i in range(5)]


def test_a_result_may_be_the_next_argument():
    captured = fp.capture(lambda x: x * 2.0)
    x = fp.tensor([1.0])
    for _ in range(6):
        x = captured(x)
    assert x.item() == 64.0


def test_an_argument_may_be_the_result():
    captured = fp.capture(lambda x: x)
    results = [captured(fp.tensor([float(i)])) for i in range(4)]
    assert [r.item() for r in results] == [0.0, 1.0, 2.0, 3.0]


def test_what_a_step_keeps_elsewhere_is_refused():
    kept = {}

    def step(x: Any) -> Any:
        kept["square"] = x * x
        return x.sum()

    captured = fp.capture(step)
    captured(fp.ones(2))
    with pytest.raises(fp.CaptureError, match=r"a tensor of 2 elements, made at .*test_replay.py:\d+, is kept outside.*return it"):
        captured(fp.ones(2))


def test_a_replay_counts_as_a_write():
    w = fp.Parameter(fp.ones(3))
    captured = fp.capture(w.apply_update)
    for _ in range(2):
        captured(fp.ones(3))
    loss = (w * w).sum()
    captured(fp.ones(3))
    with pytest.raises(fp.VersionError, match="replay"):
        loss.backward()


# ---- traps: what would be frozen ---------------------------------------------------------------------------------------------
def test_a_python_number_that_cannot_be_seen_raises_if_it_changes_in_the_first_calls():
    hidden = type("Hidden", (), {"__getattr__": lambda self, name: next(self.count)})()
    hidden.count = iter([1.0, 0.5, 1.0, 1.0])
    captured = fp.capture(lambda x: x * hidden.scale)
    captured(fp.ones(2))
    with pytest.raises(fp.CaptureError, match=r"1\.0, then 0\.5 at .*test_replay.py:\d+.*tensor argument"):
        captured(fp.ones(2))
    with pytest.raises(fp.CaptureError, match=r"cannot be watched: self.count \(an iterator\) at .*test_replay.py:\d+"):
        captured(fp.ones(2))


def test_a_learning_rate_set_inside_raises():
    model = packed(Plain())
    optimizer = fp.SGD(model, lr=1.0)
    plain = training(model, optimizer, CLIPS["none"])
    count = iter(range(1, 9))

    def step(x: Any, y: Any) -> Any:
        optimizer.lr = 1.0 / next(count)
        return plain(x, y)

    captured = fp.capture(step)
    captured(*batches(1)[0])
    with pytest.raises(fp.CaptureError, match=r"SGD\.lr made by Python changed.*1\.0, then 0\.5"):
        captured(*batches(1)[0])


def test_data_made_inside_is_a_constant_or_raises():
    captured = fp.capture(lambda x: x + fp.tensor([1.0, 2.0]))
    for i in range(4):
        assert captured(fp.full((2,), i)).tolist() == [i + 1.0, i + 2.0]
    draw = np.random.default_rng(0)
    captured = fp.capture(lambda x: x + fp.tensor(draw.standard_normal(2).astype("f4")))
    captured(fp.ones(2))
    with pytest.raises(fp.CaptureError, match=r"data of shape \(2,\)"):
        captured(fp.ones(2))


# ---- traps: other arguments --------------------------------------------------------------------------------------------------
def test_other_arguments_are_another_kind_of_call():
    w = fp.Parameter(fp.zeros(3))
    captured = fp.capture(w.apply_update)
    for _ in range(3):
        captured(fp.ones(3))
    with pytest.raises(fp.ShapeError, match=r"expected \(3,\), got \(1,\)"):
        captured(fp.ones(1))
    with pytest.raises(TypeError):
        captured(fp.ones(3), fp.ones(3))
    assert w.tolist() == [-3.0] * 3
    for _ in range(3):
        captured(fp.ones(3, dtype=fp.float64))
    captured(fp.ones(3))
    assert w.tolist() == [-7.0] * 3


def test_an_argument_that_requires_grad():
    captured = fp.capture(lambda x: x.square().sum().backward()[x])
    for i in range(4):
        assert captured(fp.tensor([float(i)], requires_grad=True)).tolist() == [2.0 * i]
    leaf = fp.ones((1, 1), requires_grad=True)
    for name, tracked in {"mul": leaf * 2, "matmul": leaf @ leaf}.items():  # the user's words
        again = fp.capture(lambda x: x * 2)
        again(tracked)
        with pytest.raises(fp.CaptureError, match=f"argument 0 has a tape of its own: made by '{name}'"):
            again(tracked)


# ---- traps: the host -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("call", "read"),
    [
        ("item", lambda x: x.sum().item()), ("numpy", fp.Tensor.numpy), ("tolist", fp.Tensor.tolist),
        ("__float__", lambda x: float(x.sum())), ("__bool__", lambda x: bool(x.sum() > 0)), ("numpy|tensor", fp.tensor),
    ],
)  # fmt: skip
def test_host_reads_while_recording_raise(call, read):
    captured = fp.capture(lambda x: (read(x), x)[1])
    captured(fp.ones(2))
    with pytest.raises(fp.CaptureError, match=rf"host while it is recorded: ({call})\(\) at .*test_replay.py:\d+.*Return the tensor"):
        captured(fp.ones(2))


USES: dict[str, Any] = {
    "float": float, "isfinite": math.isfinite, "<": lambda n: n > 1, "*": lambda n: n * 2, "str": str, "format": lambda n: f"{n:.3f}",
    "==": lambda n: n == 1, "!=": lambda n: n != 1, "in": lambda n: n in [1, 2], "hash": hash, "repr": repr, "set": lambda n: {n},
    "array": lambda n: np.array([n]), "//": lambda n: n // 2, "%": lambda n: n % 2, "2**n": lambda n: 2**n, "+n": lambda n: +n,
    "divmod": lambda n: divmod(n, 2), "array + n": lambda n: np.ones(2) + n, "float32 * n": lambda n: np.float32(2) * n,
    "tensor * n": lambda n: fp.ones(2) * n, "tensor": lambda n: fp.tensor([n]), "complex": complex, "is_integer": lambda n: n.is_integer(),
    "real": lambda n: n.real, "sum": lambda n: sum([n]), "max": lambda n: max(n, 1), "pickle": pickle.dumps, "copy": copy.copy,
}  # fmt: skip


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_the_norm_can_only_be_returned(use):
    w = fp.Parameter(fp.ones(3))

    def step(x: Any) -> Any:
        norm = fp.clip_grad_norm((w * x).sum().backward(), 1.0)
        use(norm)
        return norm

    captured = fp.capture(step)
    assert captured(fp.ones(3)) == pytest.approx(3**0.5)
    with pytest.raises(fp.CaptureError, match="reads a number on the host"):
        captured(fp.ones(3))


def test_results_that_cannot_be_replayed_raise():
    w = fp.Parameter(fp.ones(3))
    captured = fp.capture(lambda x: (w * x).sum().backward())
    captured(fp.ones(3))
    with pytest.raises(fp.CaptureError, match=r"GradientMap.*dict of them"):
        captured(fp.ones(3))


def test_checks_go_on_in_replays():
    model = packed(Plain())
    captured = fp.capture(training(model, fp.AdamW(model), CLIPS["often"]))
    for x, y in batches(3):
        captured(x, y)
    before = {name: array.copy() for name, array in model.state_dict().items()}
    with pytest.raises(fp.IndexOutOfRange, match=r"class id out of range: 9 at position \(3,\)"):
        captured(x, np.where(np.arange(16) == 3, 9, 0))
    with pytest.raises(fp.NonFiniteError, match=r"gradients are not finite: norm nan, in .*'net\.0\.weight'"):
        captured(fp.full((16, 12), math.nan), y)
    for name, array in model.state_dict().items():
        assert (array == before[name]).all()
    assert math.isfinite(captured(x, y)[0].item())


# ---- traps: memory, nesting, threads ------------------------------------------------------------------------------------------
def test_moved_memory_raises():
    model = Plain()
    captured = fp.capture(training(model, fp.AdamW(model), CLIPS["none"]))
    for x, y in batches(3):
        captured(x, y)
    model.params.pack()
    with pytest.raises(fp.CaptureError, match="memory was moved since step was recorded"):
        captured(x, y)


def test_an_optimizers_state_may_be_loaded_between_calls():
    """load_state_dict writes into the moments that are there. Oracle: the same steps, eager."""
    ends = []
    for way in (fp.capture, lambda step: step):
        fp.manual_seed(0)
        model = Plain()
        optimizer = fp.AdamW(model)
        step = way(training(model, optimizer, CLIPS["none"]))
        for i, (x, y) in enumerate(batches(6)):
            step(x, y)
            if i == 0:
                early = copy.deepcopy(optimizer.state_dict())
            if i == 3:
                optimizer.load_state_dict(early)
        ends.append({name: array.copy() for name, array in model.state_dict().items()})
    for name, array in ends[0].items():
        assert (array == ends[1][name]).all(), name


def test_a_parameter_that_an_optimizer_takes_between_calls_is_trained_at_once():
    ends = []
    for way in (fp.capture, lambda step: step):
        scale, w = fp.Parameter(fp.ones(3)), fp.Parameter(fp.ones(3))
        optimizer = fp.SGD([w], lr=0.1)
        step = way(lambda x, w=w, scale=scale, o=optimizer: o.step((x * w * scale).square().sum().backward()))
        for i in range(8):
            if i == 5:
                optimizer.add_param_group({"params": [scale], "lr": 0.01})
            step(fp.tensor([1.0, 2.0, 3.0]))
        ends.append((w.tolist(), scale.tolist()))
    assert ends[0] == ends[1] and ends[0][1] != [1.0] * 3


def test_numbers_may_be_loaded_between_calls():
    model = packed(Plain())
    captured = fp.capture(fp.no_grad()(model.forward))
    x = batches(1)[0][0]
    for _ in range(3):
        captured(x)
    model.load_state_dict({name: array * 0.5 for name, array in model.state_dict().items()})
    with fp.no_grad():
        assert (captured(x).numpy() == model(x).numpy()).all()


def test_captured_steps_do_not_nest():
    inner = fp.capture(lambda x: x * 2.0)
    for _ in range(3):
        inner(fp.ones(1))
    outer = fp.capture(lambda x: inner(x) + 1.0)
    with pytest.raises(fp.CaptureError, match="do not nest"):
        outer(fp.ones(1))
    assert (fp.ones(2) + 1.0).tolist() == [2.0, 2.0]  # the recorder is gone


def test_an_error_in_the_step_leaves_no_recorder_behind():
    def step(x: Any) -> Any:
        return x @ fp.ones(5, 5)

    captured = fp.capture(step)
    with pytest.raises(fp.ShapeError, match="inner sizes"):
        captured(fp.ones(2, 3))
    assert fp.ones(2).sum().item() == 2.0
    assert captured(fp.ones(2, 5)).shape == (2, 5)


def test_other_threads_are_not_recorded():
    inside, done = threading.Event(), threading.Event()
    seen = []

    def elsewhere() -> None:
        inside.wait(10)
        seen.append((fp.ones(3) * 5.0).sum().item())
        done.set()

    def step(x: Any) -> Any:
        inside.set()
        done.wait(10)
        return x * 2.0

    thread = threading.Thread(target=elsewhere)
    thread.start()
    captured = fp.capture(step)
    captured(fp.ones(1))
    captured(fp.ones(1))
    thread.join()
    assert seen == [15.0]
    assert captured.program.launches == 1
