"""GradScaler: the arithmetic of scales and skips, in eager and captured steps; what is called in the wrong order raises.

Oracle: a table of the scale worked by hand, and the same training without a scaler.
"""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest
from error_text import raises

import flamepy as fp

pytestmark = pytest.mark.usefixtures("device")


def model(pack=True):
    rng = np.random.default_rng(1)
    params = fp.ParameterDict({n: fp.Parameter(rng.normal(size=s).astype("f4")) for n, s in (("w", (4, 3)), ("b", (3,)))})
    return params.pack() if pack else params


def loss_of(params, x):
    return (x @ params["w"] + params["b"]).square().mean()


def data(i, bad=None):
    x = np.random.default_rng(i).normal(size=(5, 4)).astype("f4")
    if bad is not None:
        x[2, 1] = bad
    return fp.tensor(x)


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("pack, clip", [(True, True), (True, False), (False, True)])
def test_steps_are_those_without_a_scaler_and_the_scale_moves(captured, pack, clip):
    """Powers of two are exact: every parameter has the bits of training without scaling and without the overflowing batches."""
    params, plain = model(pack), model(pack)
    scaler, optimizer, other = fp.GradScaler(1024.0, growth_interval=3), fp.AdamW(params, lr=0.1), fp.AdamW(plain, lr=0.1)

    def step(x):
        grads = scaler.scale(loss_of(params, x)).backward()
        if clip:
            scaler.unscale(grads)
            fp.clip_grad_norm(grads, 0.5)
        return scaler.step(optimizer, grads), scaler.get_scale()

    run = fp.capture(step) if captured else step
    table = [(None, 1024, 1), (None, 1024, 2), (None, 2048, 0), (math.inf, 1024, 0), (None, 1024, 1), (math.nan, 512, 0), (3e38, 256, 0),
             (None, 256, 1), (None, 256, 2), (None, 512, 0)]  # fmt: skip
    overflows = 0
    for i, (bad, scale, good) in enumerate(table):
        took, now = run(data(i, bad))
        overflows += bad is not None
        assert bool(took) is (bad is None) and now == scale == scaler.get_scale()
        assert (scaler.good_steps, scaler.overflows) == (good, overflows)
        if bad is None:
            grads = loss_of(plain, data(i)).backward()
            if clip:
                fp.clip_grad_norm(grads, 0.5)
            other.step(grads)
        assert all(np.array_equal(params[n].numpy(), plain[n].numpy()) for n in "wb")
    mine, theirs = optimizer.state_dict(), other.state_dict()
    assert [row["step"] for row in mine["state"].values()] == [7, 7]
    assert all(np.array_equal(mine["state"][n][k], theirs["state"][n][k]) for n in "wb" for k in "mv")


def test_the_floor_static_and_off():
    scaler, params = fp.GradScaler(2.0), model()
    optimizer = fp.SGD(params, lr=0.1)
    for expected in (1.0, 1.0):
        assert scaler.step(optimizer, scaler.scale(loss_of(params, data(0, math.inf))).backward()) is False
        assert scaler.get_scale() == expected
    static = fp.GradScaler(8.0, growth_interval=1, mode="static")
    assert static.step(optimizer, static.scale(loss_of(params, data(0))).backward()) is True
    assert static.step(optimizer, static.scale(loss_of(params, data(0, math.inf))).backward()) is False
    assert (static.get_scale(), static.good_steps, static.overflows) == (8.0, 0, 1)
    off = fp.GradScaler(mode="off")
    loss = loss_of(params, data(0))
    assert off.scale(loss) is loss and off.get_scale() == 1.0
    grads = loss.backward()
    assert off.unscale(grads) is grads and off.step(optimizer, grads) is True and off.overflows == 0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_types(dtype):
    """A 16-bit loss times 65536 would overflow float16: it becomes float32."""
    p = fp.Parameter(fp.tensor([0.5, -0.25]).to(dtype))
    scaler = fp.GradScaler()
    grads = scaler.scale((p * 3.0).sum()).backward()
    assert grads[p].tolist() == [3.0 * 65536] * 2
    assert scaler.unscale(grads)[p].tolist() == [3.0, 3.0]


def test_everything_in_the_map_is_unscaled():
    params = model()
    x = fp.tensor(np.ones((5, 4), "f4"), requires_grad=True)
    hidden = (x @ params["w"]).retain_grad()
    expected = ((xx := fp.tensor(np.ones((5, 4), "f4"), requires_grad=True)) @ params["w"]).square().mean().backward()
    scaler = fp.GradScaler()
    grads = scaler.unscale(scaler.scale(hidden.square().mean()).backward())
    assert np.array_equal(grads[x].numpy(), expected[xx].numpy()) and np.array_equal(
        grads[params["w"]].numpy(), expected[params["w"]].numpy()
    )
    assert np.array_equal(grads[hidden].numpy(), hidden.numpy() * np.float32(2 / hidden.size))


def test_a_scaled_map_is_not_clipped_nor_stepped():
    """Also where the scaled loss was divided for accumulation."""
    params, scaler = model(), fp.GradScaler()
    optimizer = fp.AdamW(params, transforms=fp.transforms.ClipNorm(1.0))
    before = params.state_dict()
    for make in (lambda s: s, lambda s: s / 4, lambda s: s + loss_of(params, data(1))):
        grads = make(scaler.scale(loss_of(params, data(0)))).backward()
        for call in (lambda g: fp.clip_grad_norm(g, 1.0), lambda g: fp.clip_grad_value(g, 1.0), fp.grad_norm, fp.centralize_gradients,
                     optimizer.step, fp.AdamW(params).step):  # fmt: skip
            with raises(fp.GradientError, "gradients of a scaled loss", "GradScaler(dynamic, scale=65536"):
                call(grads)
        with raises(fp.GradientError, "merge", "scaled loss"):
            loss_of(params, data(1)).backward().merge(grads)
    assert all(np.array_equal(before[n], params[n].numpy()) for n in before)
    total = fp.GradientMap()
    for i in range(2):
        total.merge((scaler.scale(loss_of(params, data(i))) / 2).backward())
    assert scaler.step(fp.SGD(params, lr=0.1), total) is True  # scaled maps add up to one


def test_scaled_gradients_taken_from_their_map_are_known():
    """FLAME's loop hands them over one by one: a step with them would be 65536 times too large."""
    params, scaler = model(), fp.GradScaler()
    optimizer, before = fp.SGD(params, lr=0.1), params.state_dict()
    for look in (
        lambda g: [(p.id, p, g[p]) for p in params.parameters()],
        lambda g: [p.set_grad(g[p]) for p in params.parameters()] and None,
    ):
        grads = scaler.scale(loss_of(params, data(0))).backward()
        given = look(grads)
        with raises(fp.GradientError, "SGD", "the gradient of a scaled loss"):
            optimizer.step(given)
        other = loss_of(params, data(0)).backward()
        for call in (other.insert, other.accumulate):
            with raises(fp.GradientError, "the gradient of a scaled loss among others"):
                call(params["w"], grads[params["w"]])
        total = fp.GradientMap()
        total.accumulate(params["w"], grads[params["w"]])
        with raises(fp.GradientError, "these are the gradients of a scaled loss"):
            optimizer.step(total)
        assert all(np.array_equal(before[n], params[n].numpy()) for n in before)
        scaler.unscale(grads)
        assert optimizer.step(given) is True  # the same tensors, divided now
        before = params.state_dict()
        params.zero_grad()


def test_maps_unscaled_one_by_one_add_up_and_one_overflow_skips():
    params = model()
    optimizer = fp.SGD(params, lr=0.1)
    for bad in (None, math.inf):
        scaler = fp.GradScaler()
        total = fp.GradientMap()
        for i in range(2):
            total.merge(scaler.unscale(scaler.scale(loss_of(params, data(i, bad if i == 0 else None))).backward()))
        assert scaler.step(optimizer, total) is (bad is None) and scaler.overflows == (bad is not None)


def test_what_is_called_in_the_wrong_order_raises():
    params, scaler, other = model(), fp.GradScaler(), fp.GradScaler()
    optimizer = fp.SGD(params, lr=0.1)
    grads = scaler.scale(loss_of(params, data(0))).backward()
    with raises(fp.GradientError, "GradScaler.unscale", "another scaler"):
        other.unscale(grads)
    scaler.unscale(grads)
    with raises(fp.GradientError, "GradScaler.unscale", "unscaled already"):
        scaler.unscale(grads)
    plain = loss_of(params, data(0)).backward()
    for call in (scaler.unscale, lambda g: other.step(optimizer, g)):
        with raises(fp.GradientError, "GradScaler", "not gradients of this scaler's loss"):
            call(plain)
    for loss in (loss_of(params, data(0)).detach(), 1.0):
        with raises(fp.GradientError, "GradScaler.scale", "does not require grad"):
            scaler.scale(loss)
    for arguments in ({"init_scale": 0.5}, {"init_scale": math.inf}, {"growth_interval": 0}, {"mode": "on"}, {"init_scale": "x"}):
        with pytest.raises(ValueError, match="GradScaler: "):
            fp.GradScaler(**arguments)


def test_state():
    params = model()
    scaler, optimizer = fp.GradScaler(16.0, growth_interval=2), fp.SGD(params, lr=0.0)
    for bad in (math.inf, None):
        scaler.step(optimizer, scaler.scale(loss_of(params, data(0, bad))).backward())
    state = scaler.state_dict()
    assert state == {"mode": "dynamic", "growth_interval": 2, "scale": 8.0, "good_steps": 1, "overflows": 1, "seen": None}
    for other in (fp.GradScaler(), pickle.loads(pickle.dumps(scaler)), copy.deepcopy(scaler)):
        other.load_state_dict(state)
        assert other.state_dict() == state
        other.step(optimizer, other.scale(loss_of(params, data(0))).backward())
        assert (other.get_scale(), other.good_steps) == (16.0, 0)
    for wrong in ({}, None, {**state, "scale": 0.0}, {**state, "good_steps": -1}, {**state, "mode": "static"}, {**state, "seen": 2}):
        with raises(fp.StateError, "GradScaler"):
            scaler.load_state_dict(wrong)
        assert scaler.state_dict() == state


@pytest.mark.parametrize("when", ["each micro-batch", "the window"])
@pytest.mark.parametrize("bad", [None, 6, 7])
def test_a_window_goes_on_from_a_saved_state(when, bad, tmp_path):
    """Saved at every point of a window of scaled gradients, with an overflow in its first or second half, it goes on with the same bits."""

    def made():
        params = model()
        scaler, optimizer, accumulator = fp.GradScaler(1024.0, growth_interval=2), fp.AdamW(params, lr=0.1), fp.GradientAccumulator(3)
        return params, scaler, optimizer, accumulator

    def train(parts, steps):
        params, scaler, optimizer, accumulator = parts
        for i in steps:
            grads = scaler.scale(loss_of(params, data(i, math.inf if i == bad else None))).backward()
            total = accumulator.step(scaler.unscale(grads) if when == "each micro-batch" else grads)
            if total is not None:
                scaler.step(optimizer, total)

    def everything(parts):
        params, scaler, optimizer, accumulator = parts
        return fp.TrainState(params=params, scaler=scaler, optimizer=optimizer, accumulator=accumulator)

    whole = made()
    train(whole, range(12))
    for stop in (5, 6, 7, 8):
        first, second = made(), made()
        train(first, range(stop))
        everything(first).save(tmp_path / "state")
        everything(second).load(tmp_path / "state")
        train(second, range(stop, 12))
        assert all(np.array_equal(whole[0][n].numpy(), second[0][n].numpy()) for n in "wb")
        assert whole[1].state_dict() == second[1].state_dict() and whole[1].overflows == (bad is not None)


@pytest.mark.parametrize("captured, policy", [(False, "skip"), (True, "skip"), (False, "unscale")])
def test_what_a_map_knows_goes_to_grad(captured, policy):
    """FLAME's loop, set_grads() and then step(), does what step(grads) does: nothing where the gradients overflowed."""
    params, plain = model(), model()
    scaler, optimizer, other = fp.GradScaler(8.0, mode="static"), fp.SGD(params, lr=0.1), fp.SGD(plain, lr=0.1)

    def step(x):
        if policy == "unscale":
            grads = scaler.unscale(scaler.scale(loss_of(params, x)).backward())
        else:
            grads = loss_of(params, x).backward()
            fp.clip_grad_norm(grads, 1e6, nonfinite="skip")
        params.set_grads(grads)
        return optimizer.step()

    run = fp.capture(step) if captured else step
    for i, bad in enumerate([None, None, None, math.inf, math.nan, None]):
        assert bool(run(data(i, bad))) is (bad is None)
        if bad is None:
            other.step(loss_of(plain, data(i)).backward())
        assert all(np.array_equal(params[n].numpy(), plain[n].numpy()) for n in "wb")


def test_scaled_gradients_do_not_become_grad():
    params, scaler = model(), fp.GradScaler(8.0)
    grads = scaler.scale(loss_of(params, data(0))).backward()
    with raises(fp.GradientError, "set_grads: gradients of a scaled loss", "scale=8"):
        params.set_grads(grads)
    assert [p.grad for p in params.parameters()] == [None, None]
    params.set_grads(scaler.unscale(grads))
    assert all(p.grad is not None for p in params.parameters())
