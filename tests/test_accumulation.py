"""Gradient accumulation: N micro-batches are one batch, whatever comes in between.

Oracles: NumPy float64 sums of the gradients handed in, one batch of all examples, PyTorch's accumulation in `.grad`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from error_text import raises
from habit_tools import Net, X, micro

import flamepy as fp
from flamepy import AccumulationConfig, GradientAccumulator

pytestmark = pytest.mark.usefixtures("device")


def map_of(**arrays: Any) -> tuple[fp.GradientMap, dict[str, fp.Parameter]]:
    """A map of gradients, and the parameters they belong to."""
    params = {name: fp.Parameter.zeros(np.shape(a)) for name, a in arrays.items()}
    fp.ParameterDict(dict(params))
    grads = fp.GradientMap()
    for name, a in arrays.items():
        grads.insert(params[name], fp.tensor(np.float32(a)))
    return grads, params


def like(params: dict[str, fp.Parameter], **arrays: Any) -> fp.GradientMap:
    grads = fp.GradientMap()
    for name, a in arrays.items():
        grads.insert(params[name], fp.tensor(np.float32(a)))
    return grads


# ---- the contract, sentence by sentence ---------------------------------------------------------------------------------------------
def test_the_config() -> None:
    config = AccumulationConfig()
    assert (config.accumulation_steps, config.normalize, config.max_grad_norm) == (4, True, None)
    assert AccumulationConfig(0).accumulation_steps == AccumulationConfig(-3).accumulation_steps == 1
    assert AccumulationConfig(4).effective_batch_size(32) == 128 and AccumulationConfig(np.int64(3)).accumulation_steps == 3
    assert GradientAccumulator().config == config == GradientAccumulator(4).config and GradientAccumulator(config).config is config
    for steps in (2.5, "4", None, True):
        with raises(fp.DTypeError, "AccumulationConfig: accumulation_steps is no whole number", repr(steps)):
            AccumulationConfig(steps)  # type: ignore[arg-type]
    for limit in (-1.0, float("nan"), "1"):
        with raises(ValueError, "AccumulationConfig: max_grad_norm", repr(limit)):
            AccumulationConfig(4, max_grad_norm=limit)  # type: ignore[arg-type]


@pytest.mark.parametrize("packed", [False, True])
def test_micro_batches_are_one_batch(packed: bool) -> None:
    torch = pytest.importorskip("torch")
    net, accumulator = Net(), GradientAccumulator(4)
    maps = micro(net, packed)
    found = [accumulator.step(grads) for grads in maps]
    assert found[:3] == [None, None, None]
    whole = net(fp.tensor(X[:4].reshape(20, 3))).backward()
    w, b = (torch.tensor(p.numpy(), requires_grad=True) for p in (net.weight, net.bias))
    for x in X[:4]:
        ((torch.tensor(x) @ w + b).square().mean() / 4).backward()
    for p, theirs in ((net.weight, w.grad), (net.bias, b.grad)):
        np.testing.assert_allclose(found[3][p].numpy(), whole[p].numpy(), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found[3][p].numpy(), theirs.numpy(), rtol=1e-5, atol=1e-6)
    assert accumulator.step(maps[0]) is None  # a new window


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("normalize", [False, True])
def test_against_numpy(packed: bool, normalize: bool) -> None:
    net = Net()
    maps, weights = micro(net, packed), [3.0, 0.0, 1.0, 4.0]
    accumulator = GradientAccumulator(AccumulationConfig(4, normalize))
    for shares in ([1.0] * 4, weights):
        *nothing, found = [accumulator.add(grads, weight=w) for grads, w in zip(maps, shares, strict=True)]
        assert nothing == [None] * 3
        for p in net.parameters():
            want = sum(w * grads[p].numpy().astype("f8") for grads, w in zip(maps, shares, strict=True))
            np.testing.assert_allclose(found[p].numpy(), want / (sum(shares) if normalize else 1), rtol=1e-5, atol=1e-6)


def test_by_name_as_the_first_of_its_kind_does() -> None:
    accumulator = GradientAccumulator(AccumulationConfig(2))
    accumulator.register("w", (2,))
    accumulator.register("w", [2])
    accumulator.register("b", 3)
    assert accumulator.stats()[:2] == (0, 0) and accumulator.stats()[2:] == (2, 2, 5) and not accumulator.should_update()
    assert accumulator.stats().effective_batch_multiplier() == 2
    accumulator.accumulate("w", [2.0, 4.0])
    assert not accumulator.should_update() and accumulator.get_gradients()["w"].tolist() == [2.0, 4.0]
    accumulator.accumulate("w", np.array([6, 8]))
    assert accumulator.should_update() and accumulator.get_gradients()["w"].tolist() == [4.0, 6.0]
    accumulator.accumulate("b", fp.tensor([2.0, 2.0, 4.0]))
    assert accumulator.get_gradients()["b"].tolist() == [1.0, 1.0, 2.0]  # missing once, divided by two
    with raises(fp.AccumulatorFull, "2 micro-batches"):
        accumulator.accumulate("w", [0.0, 0.0])
    accumulator.reset()
    assert not accumulator.should_update() and (accumulator.total_updates, accumulator.total_micro_batches) == (1, 2)
    with raises(fp.NoGradients, "no gradients"):
        accumulator.get_gradients()
    with raises(fp.NoGradients, "'v'"):
        accumulator.accumulate("v", [1.0])
    with raises(fp.ShapeMismatch, "'w'", "(2,)", "(3,)") as caught:
        accumulator.accumulate("w", [1.0, 2.0, 3.0])
    assert (caught.value.name, caught.value.expected, caught.value.got) == ("w", (2,), (3,))
    with raises(fp.ShapeMismatch, "'w'", "(2,)", "(4,)"):
        accumulator.register("w", (4,))
    assert accumulator.step({"w": [1, 1]}) is None
    last = accumulator.step({"w": [3, 3], "b": [1, 1, 1]})
    assert last["w"].tolist() == [2.0, 2.0] and last["b"].tolist() == [0.5] * 3 and accumulator.total_updates == 2
    with raises(fp.NoGradients, "'v'"):
        accumulator.step({"w": [1, 1], "v": [1]})


def test_a_registered_parameter_has_its_own_id() -> None:
    net = Net()
    accumulator, optimizer = GradientAccumulator(2), fp.SGD(net, lr=1.0)
    for name, p in net.named_parameters():
        accumulator.register(name, p if name == "weight" else p.shape)
    before = net.state_dict()
    maps = micro(net)
    accumulator.accumulate("weight", maps[0][net.weight])
    accumulator.accumulate("bias", maps[0][net.bias])
    assert net.weight in accumulator.get_gradients() and net.bias not in accumulator.get_gradients()
    found = accumulator.step(maps[1])  # brings the id of the other
    optimizer.step(found)
    for p in net.parameters():
        want = (maps[0][p].numpy().astype("f8") + maps[1][p].numpy()) / 2
        np.testing.assert_allclose(before[p.name] - p.numpy(), want, rtol=1e-5, atol=1e-6)
    assert accumulator.stats()[2:] == (2, 2, 8)


def test_names_and_shapes_that_are_none() -> None:
    accumulator = GradientAccumulator(2)
    for name, shape, word in (("", 2, "''"), (None, 2, "None"), ("w", -1, "-1"), ("w", (2, 1.5), "1.5")):
        with raises(fp.AccumulationError, "register: not a", word):
            accumulator.register(name, shape)  # type: ignore[arg-type]
    accumulator.register("s", ())
    accumulator.accumulate("s", 3.0)
    assert accumulator.flush()["s"].item() == 3.0 and accumulator.stats()[3:] == (1, 1)


def test_a_name_is_one_parameter() -> None:
    p, q = fp.Parameter(np.ones(2, "f4")), fp.Parameter(np.ones(2, "f4"))  # without names
    accumulator = GradientAccumulator(3)
    accumulator.step((p * 2.0).sum().backward())
    accumulator.register("w", p)
    accumulator.accumulate("w", [4.0, 4.0])
    found = accumulator.get_gradients()
    assert len(found) == 1 and found["w"].tolist() == found[p].tolist() == [3.0, 3.0]
    with raises(fp.AccumulationError, "register: another Parameter has this name: 'w'"):
        accumulator.register("w", q)
    accumulator.register("v", 2)
    accumulator.accumulate("v", [1.0, 1.0])
    half = fp.GradientMap()
    half.insert(q, fp.ones(2))
    out = accumulator.step(half)
    assert len(out) == 3
    accumulator.accumulate("v", [1.0, 1.0])
    accumulator.step(half)
    with raises(fp.AccumulationError, "register: another Parameter has this name: 'v'"):  # came by name and without it
        accumulator.register("v", q)
    accumulator.flush()
    accumulator.register("v", q)


def test_the_last_partial_window() -> None:
    accumulator = GradientAccumulator(4)
    assert accumulator.flush() is None
    grads, params = map_of(w=[3.0, 6.0])
    for value in ([1.0, 2.0], [5.0, 4.0]):
        accumulator.step(like(params, w=value))
    assert accumulator.flush()["w"].tolist() == [3.0, 3.0] and accumulator.flush() is None
    accumulator.add(grads, weight=6)
    assert accumulator.flush()["w"].tolist() == [3.0, 6.0]
    assert accumulator.stats()[:2] == (3, 2)
    accumulator.step(grads)
    accumulator.reset()
    accumulator.reset()
    assert accumulator.stats()[:2] == (4, 3)
    assert [accumulator.step(grads) for _ in range(3)] == [None] * 3


def test_a_missing_parameter_is_divided_by_all() -> None:
    accumulator = GradientAccumulator(4)
    first, params = map_of(a=[4.0], b=[8.0, 8.0])
    for grads in (like(params, a=[4.0]), first, like(params, a=[4.0])):
        accumulator.step(grads)
    found = accumulator.step(fp.GradientMap())
    assert found["a"].tolist() == [3.0] and found["b"].tolist() == [2.0, 2.0]
    assert dict(found.named_items()).keys() == {"a", "b"}


# ---- nothing is shared, nothing is half done -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("packed", [False, True])
def test_maps_are_the_callers_own(packed: bool, steps: int) -> None:
    net, accumulator = Net(), GradientAccumulator(steps)
    first, second, *_ = micro(net, packed)
    before = [first[p].numpy().copy() for p in net.parameters()]
    want = [(first[p].numpy().astype("f8") + second[p].numpy()) / 2 if steps == 2 else before[i] for i, p in enumerate(net.parameters())]
    out = accumulator.step(first)
    assert all((first[p].numpy() == was).all() for p, was in zip(net.parameters(), before, strict=True))
    first.scale_(100.0)
    out = accumulator.step(second) if steps == 2 else out
    second.scale_(100.0)
    for _ in range(2):
        for p, w in zip(net.parameters(), want, strict=True):
            np.testing.assert_allclose(out[p].numpy(), w, rtol=1e-6)
        other = accumulator.step(first) or accumulator.get_gradients()
        other.scale_(0.0)
        accumulator.reset()


@pytest.mark.parametrize("by", ["map", "dict"])
def test_a_failed_step_changes_nothing(by: str) -> None:
    arrays = {name: np.full(3, i + 1.0) for i, name in enumerate("abcde")}
    grads, params = map_of(**arrays)
    accumulator = GradientAccumulator(2)
    for name in arrays:
        accumulator.register(name, 3)
    accumulator.step(grads)
    bad = {**arrays, "c": np.ones(4)}
    wrong: Any = bad
    if by == "map":
        wrong = fp.GradientMap()
        for name, a in bad.items():
            wrong.insert(params[name].id, fp.tensor(np.float32(a)))
    state = str(accumulator.state_dict())
    with raises(fp.ShapeMismatch, "'c'", "(3,)", "(4,)"):
        accumulator.step(wrong)
    for weight, error in ((-1.0, fp.AccumulationError), (float("nan"), ValueError), (float("inf"), ValueError), ("3", fp.DTypeError)):
        with raises(error, "accumulate: weight"):
            accumulator.add(grads, weight=weight)  # type: ignore[arg-type]
    for what in (None, params["a"], 3.0, [1.0]):
        with raises(fp.DTypeError, "accumulate: not a map of gradients", type(what).__name__):
            accumulator.step(what)  # type: ignore[arg-type]
    assert str(accumulator.state_dict()) == state
    found = accumulator.step(grads)
    assert all((found[name].numpy() == a).all() for name, a in arrays.items())


def test_gradients_on_another_device_than_before() -> None:
    a, b = (fp.Parameter(np.ones(2, "f4")).to(device=d) for d in ("cpu", "plain"))
    accumulator = GradientAccumulator(2)
    both = fp.GradientMap()
    both.insert(a.id, a.clone())
    both.insert(b.id, b.clone())
    accumulator.step(both)
    turned = fp.GradientMap()
    turned.insert(a.id, b.clone())
    with raises(fp.DeviceError, "accumulate", "cpu", "plain"):
        accumulator.step(turned)
    accumulator.register("a", a)
    accumulator.register("b", b)
    found = accumulator.step({"a": [1.0, 1.0], "b": np.ones(2)})  # arrays go where the Parameter is
    assert [found[t.id].device.name for t in (a, b)] == ["cpu", "plain"] and found[b.id].tolist() == [1.0, 1.0]


def test_weights_that_are_all_zero() -> None:
    grads, params = map_of(w=[np.nan, 1.0])
    accumulator = GradientAccumulator(2)
    accumulator.add(grads, weight=0)  # 0 / 0 of a batch without tokens
    with raises(fp.AccumulationError, "accumulate: all weights are zero", "2 micro-batches"):
        accumulator.add(grads, weight=0.0)
    assert accumulator.add(like(params, w=[2.0, 4.0]), weight=np.int64(7))["w"].tolist() == [2.0, 4.0]
    assert accumulator.add(grads, 0) is None and len(accumulator.get_gradients()) == 0


def test_clipping_comes_last_and_may_refuse() -> None:
    torch = pytest.importorskip("torch")
    grads, params = map_of(a=[30.0, 0.0], b=[40.0])
    for normalize, share in ((True, 1.0), (False, 2.0)):
        found = None
        accumulator = GradientAccumulator(AccumulationConfig(2, normalize, 5.0))
        for _ in range(2):
            found = accumulator.step(grads)
        leaves = [torch.zeros(2, requires_grad=True), torch.zeros(1, requires_grad=True)]
        leaves[0].grad, leaves[1].grad = torch.tensor([30.0, 0.0]) * share, torch.tensor([40.0]) * share
        torch.nn.utils.clip_grad_norm_(leaves, 5.0)
        for name, leaf in zip("ab", leaves, strict=True):
            np.testing.assert_allclose(found[name].numpy(), leaf.grad.numpy(), rtol=1e-6)
    accumulator.step(grads)
    with raises(fp.NonFiniteError, "clip_grad_norm", "'a'"):
        accumulator.step(like(params, a=[np.nan, 0.0], b=[1.0]))
    np.testing.assert_allclose(accumulator.step(grads)["b"].numpy(), [4.0], rtol=1e-6)
    plain = GradientAccumulator(AccumulationConfig(1, max_grad_norm=0))
    assert plain.step(grads)["a"].tolist() == [30.0, 0.0] and np.isnan(plain.step(like(params, a=[np.nan, 1.0]))["a"].numpy()[0])


def test_the_config_stays_inside_a_window() -> None:
    grads, _ = map_of(w=[2.0])
    accumulator = GradientAccumulator(4)
    accumulator.step(grads)
    with raises(fp.AccumulationError, "config was set inside a window", "1 of 4"):
        accumulator.config = AccumulationConfig(1)
    with pytest.raises(AttributeError):
        accumulator.config.accumulation_steps = 1  # type: ignore[misc]
    accumulator.flush()
    accumulator.config = AccumulationConfig(1, normalize=False)
    assert accumulator.step(grads)["w"].tolist() == [2.0]
    with raises(fp.DTypeError, "no AccumulationConfig", "4"):
        accumulator.config = 4  # type: ignore[assignment]
    for name, value in (("accumulation_steps", 7), ("normalize", True), ("max_grad_norm", 1.0)):
        with raises(AttributeError, "GradientAccumulator: an option of its config, which is set as a whole"):
            setattr(accumulator, name, value)
    assert (accumulator.accumulation_steps, accumulator.normalize, accumulator.max_grad_norm) == (1, False, None)


def test_the_documents_loop_by_step_get_gradients_and_reset():
    accumulator = fp.GradientAccumulator(2)
    accumulator.register("w", [2])
    found = []
    for i in range(4):
        if accumulator.step({"w": np.full(2, i + 1.0, "f4")}):
            found.append(accumulator.get_gradients()["w"].tolist())
            accumulator.reset()
        assert (accumulator.current_step, accumulator.accum_steps) == ((i + 1) % 2, 2)
    assert found == [[1.5, 1.5], [3.5, 3.5]] and accumulator.total_updates == 2
    with pytest.raises(fp.NoGradients):
        accumulator.get_gradients()
    assert repr(accumulator) == "GradientAccumulator(0 of 2 micro-batches, 2 updates so far)"
