"""Whole training behaviour: the gates that a training engine has to pass. Z1 and Z2 (a tiny transformer, an MLP) are in test_nn.py.

Oracles: arithmetic that must agree with itself (4 micro-batches and one batch), PyTorch when installed.
"""

from __future__ import annotations

import gc

import numpy as np
import pytest

import flamepy as fp
import flamepy.nn.functional as F
from flamepy import nn
from flamepy.core.op import REGISTRY

pytestmark = pytest.mark.usefixtures("device")


def model(seed: int = 0) -> nn.Module:
    fp.manual_seed(seed)
    return nn.Sequential(nn.Linear(20, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 7))


@pytest.mark.parametrize("packed", [False, True])
def test_a9_four_micro_batches_of_8_are_one_batch_of_32(packed):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((32, 20)).astype("f4"), rng.integers(0, 7, 32)
    net = model()
    if packed:
        net.params.pack()
    whole = F.cross_entropy(net(fp.tensor(x)), y).backward()
    total = fp.GradientMap()
    for i in range(0, 32, 8):
        total.merge(F.cross_entropy(net(fp.tensor(x[i : i + 8])), y[i : i + 8]).backward())
    total.scale_(0.25)
    assert set(total) == set(whole)
    for key, g in whole.items():
        np.testing.assert_allclose(total[key].numpy(), g.numpy(), rtol=2e-5, atol=1e-7)


def test_p14_resume_continues_bit_for_bit():
    rng = np.random.default_rng(0)
    x, y = fp.tensor(rng.standard_normal((16, 20)).astype("f4")), rng.integers(0, 7, 16)

    def train(net, optimizer, steps):
        for _ in range(steps):
            grads = F.cross_entropy(F.dropout(net(x), 0.1), y).backward()
            fp.clip_grad_norm(grads, 0.5)
            optimizer.step(grads)

    one = model()
    train(one, opt := fp.AdamW(one, lr=1e-2), 20)
    first = model()
    train(first, half := fp.AdamW(first, lr=1e-2), 10)
    saved = first.state_dict(), half.state_dict(), fp.get_rng_state()
    second = model(seed=99)
    second.load_state_dict(saved[0])
    rest = fp.AdamW(second, lr=1e-2)
    rest.load_state_dict(saved[1])
    fp.set_rng_state(saved[2])
    train(second, rest, 10)
    for name, value in one.state_dict().items():
        assert value.tobytes() == second.state_dict()[name].tobytes(), name
    a, b = opt.state_dict()["state"], rest.state_dict()["state"]
    assert all(a[n]["step"] == b[n]["step"] == 20 and a[n]["v"].tobytes() == b[n]["v"].tobytes() for n in a)


def test_every_differentiable_op_has_a_rule():
    missing = [n for n, o in REGISTRY.items() if getattr(o, "rule", None) in (None, ()) and n not in NO_RULE]
    assert not missing


# What these give are ints and bools, or they refuse a tracked input; tests/test_every_function.py asks each public function.
INTEGER_RESULTS = {"eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_not", "logical_xor"}
BITS = {"signbit_op", "isclose_op", "is_share", "bits_and", "bits_or", "bits_xor", "bits_not", "bits_left", "bits_right", "bits_as"}
PLACES = {
    "argmax", "argmin", "placed_ids", "running_place", "row_order", "places_in", "largest_at", "rows_of", "taken",
    "mode_place", "part_of", "drawn_ids", "ones_at",
}  # fmt: skip
COUNTS = {"id_counts", "histc", "count_nonzero", "running"}
NO_RULE = (
    INTEGER_RESULTS
    | BITS
    | PLACES
    | COUNTS
    | {"whole_power", "floor_divide", "div_trunc_whole", "rounded_whole", "full_qr", "full_svd", "singular_values"}
)


def test_checkpoint_frees_memory_and_changes_nothing():
    fp.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.Dropout(0.2), nn.Linear(256, 256)) for _ in range(6)]
    x = fp.randn(512, 256)

    def run(wrap):
        fp.manual_seed(7)
        gc.collect()
        start = fp.device().memory()["current"]
        h = x
        for block in blocks:
            h = wrap(block, h)
        held = fp.device().memory()["current"] - start
        grads = h.square().mean().backward()
        return held, [grads[p].numpy().copy() for p in blocks[0].parameters()]

    held_plain, plain = run(lambda block, h: block(h))
    held_less, again = run(fp.checkpoint)
    assert held_less < 0.4 * held_plain
    for a, b in zip(plain, again, strict=True):
        assert a.tobytes() == b.tobytes()


def test_checkpoint_takes_flames_form_tuples_and_captured_tensors():
    w = fp.Parameter.randn((3, 3), std=1.0)
    x = fp.randn(2, 3, requires_grad=True)
    h = x * 2  # captured, not passed

    def closure():
        return (h @ w).tanh()

    g = fp.checkpoint(closure, h).sum().backward(retain_graph=True)
    e = closure().sum().backward()
    assert g[w].tolist() == e[w].tolist() and g[x].tolist() == e[x].tolist()
    a, b = fp.checkpoint(lambda t, k, scale=1.0: ((t @ w) * k, t * scale), x, 3, scale=2.0)
    g = (a.sum() + b.sum()).backward()
    np.testing.assert_allclose(g[x].numpy(), np.tile(3 * w.numpy().sum(axis=1) + 2, (2, 1)), rtol=1e-5)


def test_checkpoint_refuses_what_it_cannot_repeat():
    x = fp.ones(2, requires_grad=True)
    calls = []

    def moody(t):
        calls.append(1)
        return t * 2 if len(calls) == 1 else t.exp() * 2

    y = fp.checkpoint(moody, x).sum()
    with pytest.raises(fp.GradientError, match="checkpoint: the block did something else"):
        y.backward()
    w = fp.Parameter([1.0, 2.0])
    y = fp.checkpoint(lambda t: (t * w).tanh(), x).sum()
    w.set_data([3.0, 4.0])
    with pytest.raises(fp.VersionError, match="overwritten"):
        y.backward()
    with pytest.raises(fp.GradientError, match=r"checkpoint: backward\(\) inside the block"):
        fp.checkpoint(lambda t: (t * t).sum().backward()[t], x)
