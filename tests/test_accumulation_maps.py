"""Gradient accumulation of all kinds of maps: 16 bits, packed or moved meanwhile, of two models, from threads, with some parameters.

Oracle: NumPy float64 sums of the gradients handed in.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from habit_tools import Net, X
from hypothesis import given, settings
from hypothesis import strategies as st

import flamepy as fp
from flamepy import GradientAccumulator

pytestmark = pytest.mark.usefixtures("device")
RNG = np.random.default_rng(5)


def micro(net: Net, packed: bool = False) -> list[fp.GradientMap]:
    if packed:
        net.params.pack()
    return [net(fp.tensor(x)).backward() for x in X[:4]]


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
