"""Gradient accumulation and what maps carry beside gradients: marks that skip a step, the scale of a loss, tensors that are no Parameters.

Oracle: what GradientMap.merge() makes of the same maps, and numbers by hand.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from error_text import raises
from habit_tools import Net, X

import flamepy as fp
from flamepy import AccumulationConfig, GradientAccumulator

pytestmark = pytest.mark.usefixtures("device")


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
