"""Gradient accumulation of all kinds of maps: 16 bits, packed or moved meanwhile, of two models, from threads, with some parameters; and
what maps carry beside gradients: marks that skip a step, the scale of a loss, tensors that are no Parameters.

Oracles: NumPy float64 sums of the gradients handed in, what GradientMap.merge() makes of the same maps, numbers by hand.
"""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
import pytest
from error_text import raises
from habit_tools import Net, X, micro
from hypothesis import given, settings
from hypothesis import strategies as st

import flamepy as fp
from flamepy import AccumulationConfig, GradientAccumulator

pytestmark = pytest.mark.usefixtures("device")
RNG = np.random.default_rng(5)


def test_what_was_tracked_is_not_kept() -> None:
    p, accumulator = fp.Parameter(np.ones(2, "f4")), GradientAccumulator(1)
    for _ in range(9):
        h = p * 2.0
        h.retain_grad()
        found = accumulator.step(h.sum().backward(create_graph=True))
    assert len(found) == 1 and not found[p].requires_grad and accumulator.stats()[3:] == (1, 2)  # no h


def test_a_factor_that_waits_is_part_of_the_gradients() -> None:
    net = Net()
    (grads, *_) = micro(net, True)
    fp.clip_grad_norm(grads, 1e-3)
    assert fp.grad_norm(GradientAccumulator(1).step(grads)) == pytest.approx(1e-3, rel=1e-2)
    (grads, more, *_) = micro(net)
    accumulator, optimizer = GradientAccumulator(2), fp.SGD(net, lr=0.0)
    accumulator.step(grads)
    both = fp.ParameterDict({**net.params._parameters, "more": fp.Parameter(np.ones(3, "f4"))}).pack()
    loss = net(fp.tensor(X[1])) + both["more"].sum()
    found = accumulator.step(loss.backward())  # all moved into another span meanwhile
    optimizer.step(found)
    assert found.packed and found["more"].tolist() == [0.5] * 3
    for p in net.parameters():
        np.testing.assert_allclose(found[p].numpy(), (grads[p].numpy().astype("f8") + more[p].numpy()) / 2, rtol=1e-5, atol=1e-6)


def test_sixteen_bits_and_sixty_four() -> None:
    for dtype, want in ((fp.float16, fp.float32), (fp.bfloat16, fp.float32), (fp.float64, fp.float64)):
        p = fp.Parameter(fp.tensor([1.0, 2.0]).to(dtype))
        accumulator = GradientAccumulator(3)
        for _ in range(3):
            found = accumulator.step((p * 0.001).sum().backward())
        assert found[p].dtype == want
        np.testing.assert_allclose(found[p].numpy(), [0.001] * 2, rtol=1e-6)
        accumulator.register("h", p)
        accumulator.accumulate("h", p.detach())
        assert accumulator.flush()["h"].dtype == want


def test_two_models_and_two_threads() -> None:
    nets, accumulator = [Net(), Net()], GradientAccumulator(2)
    maps = [micro(net, packed)[0] for net, packed in zip(nets, (True, False), strict=True)]
    accumulator.step(maps[0])
    found = accumulator.step(maps[1])
    for net, grads in zip(nets, maps, strict=True):
        for p in net.parameters():
            np.testing.assert_allclose(found[p].numpy(), grads[p].numpy() / 2, rtol=1e-6)
    busy, results = GradientAccumulator(10), []
    crowd = [threading.Thread(target=lambda: [results.append(busy.step(maps[0])) for _ in range(10)]) for _ in range(4)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join(60)
    done = [r for r in results if r is not None]
    assert len(results) == 40 and len(done) == 4 and busy.total_micro_batches == 40
    for grads in done:
        np.testing.assert_allclose(grads[nets[0].weight].numpy(), maps[0][nets[0].weight].numpy(), rtol=1e-5)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sets(st.sampled_from("abc")), st.sampled_from([0.0, 1.0, 2.5])), min_size=1, max_size=6), st.booleans())
def test_whichever_parameters_come(batches: list[tuple[set[str], float]], packed: bool) -> None:
    params = fp.ParameterDict({name: fp.Parameter(np.zeros(i + 1, "f4"), requires_grad=True) for i, name in enumerate("abc")})
    if packed:
        params.pack()
    accumulator = GradientAccumulator(len(batches) + 1)
    want: dict[str, Any] = {}
    for names, weight in batches:
        numbers = {name: RNG.standard_normal(params[name].shape).astype("f4") for name in names}
        loss = sum([(params[name] * numbers[name]).sum() for name in sorted(names)], fp.tensor(0.0))
        accumulator.add(loss.backward() if names else fp.GradientMap(), weight)
        for name in names if weight else ():
            want[name] = want.get(name, 0.0) + weight * numbers[name].astype("f8")
    total = sum(weight for _, weight in batches)
    found = accumulator.flush()
    assert {name for name, _ in found.named_items()} == set(want)
    for name, sums in want.items():
        np.testing.assert_allclose(found[name].numpy(), sums / total, rtol=1e-5, atol=1e-6)
    whole = packed and any(len(names) == 3 and weight for names, weight in batches)
    assert found.packed == whole and len(found.spans) == whole


# ---- what maps carry ---------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("limit", [None, 0.5])
def test_a_marked_micro_batch_marks_the_window(packed: bool, limit: float | None) -> None:
    net = Net()
    if packed:
        net.params.pack()
    accumulator, optimizer = GradientAccumulator(AccumulationConfig(2, max_grad_norm=limit)), fp.AdamW(net, lr=0.1)
    before = [p.numpy().tobytes() for p in net.parameters()]
    for which in (0, 1):
        for i in (0, 1):
            grads = net(fp.tensor(X[i])).backward()
            if i == which:
                grads.scale_(math.nan)
            fp.clip_grad_norm(grads, 1.0, nonfinite="skip")
            found = accumulator.step(grads)
        assert optimizer.step(found) is False and [p.numpy().tobytes() for p in net.parameters()] == before
    for i in (0, 1):  # the next window is as good as any
        found = accumulator.step(net(fp.tensor(X[i])).backward())
    assert optimizer.step(found) is True and [p.numpy().tobytes() for p in net.parameters()] != before


def test_gradients_of_a_scaled_loss() -> None:
    net, scaler, accumulator = Net(), fp.GradScaler(init_scale=1024.0), GradientAccumulator(2)
    maps = [net(fp.tensor(x)).backward() for x in X[:2]]
    scaled = [scaler.scale(net(fp.tensor(x))).backward() for x in X[:2]]
    accumulator.step(scaled[0])
    with raises(fp.GradientError, "accumulate: gradients of a scaled loss and others", "unscale()"):
        accumulator.step(maps[1])
    accumulator.register("v", 1)
    with raises(fp.GradientError, "accumulate: gradients of a scaled loss and others"):
        accumulator.accumulate("v", [1.0])
    found = accumulator.step(scaled[1])
    scaler.unscale(found)
    for p in net.parameters():
        np.testing.assert_allclose(found[p].numpy(), (maps[0][p].numpy() + maps[1][p].numpy()) / 2, rtol=1e-5, atol=1e-6)
    assert scaler.step(fp.SGD(net, lr=0.1), found)


@pytest.mark.parametrize("order", [(0, None), (None, 0)])
def test_a_map_without_gradients_differs_in_no_scale(order: tuple[int | None, ...]) -> None:
    """A micro-batch that reached no parameter: it counts, and adds nothing."""
    net, scaler, accumulator = Net(), fp.GradScaler(init_scale=1024.0), GradientAccumulator(2)
    for i in order:
        found = accumulator.step(fp.GradientMap() if i is None else scaler.scale(net(fp.tensor(X[i]))).backward())
    merged = fp.GradientMap()
    for i in order:
        merged.merge(fp.GradientMap() if i is None else scaler.scale(net(fp.tensor(X[i]))).backward())
    alone = net(fp.tensor(X[0])).backward()
    for grads, share in ((scaler.unscale(found), 0.5), (scaler.unscale(merged), 1.0)):
        for p in net.parameters():
            np.testing.assert_allclose(grads[p].numpy(), alone[p].numpy().astype("f8") * share, rtol=1e-5, atol=1e-6)


def test_what_is_no_parameter() -> None:
    net, accumulator = Net(), GradientAccumulator(2)
    assert len(net.params) == 2  # gives names
    for x in X[:2]:
        given = fp.tensor(x, requires_grad=True)
        y = (given * 2.0).retain_grad()
        found = accumulator.step(net(y).backward())
    assert {name for name, _ in found.named_items()} == {"weight", "bias"} and accumulator.stats()[3:] == (2, 8)
    leaf = fp.tensor([1.0, 2.0], requires_grad=True)  # a map without Parameters: its leaves
    for _ in range(2):
        found = accumulator.step((leaf * leaf).retain_grad().sum().backward())
    assert len(found) == 1 and found[leaf].tolist() == [2.0, 4.0] and fp.grad_norm(found) == pytest.approx(math.sqrt(20))
