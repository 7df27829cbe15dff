"""The walk back as core has it, without the engine's: it is complete, and gives the same bits.

Oracle: the engine's backward, on the same tape.
"""

from __future__ import annotations

import numpy as np
import pytest
from error_text import raises

import flamepy as fp
import flamepy.nn.functional as F
from flamepy.core import backward as core
from flamepy.core import call
from flamepy.core.door import Door
from flamepy.core.gradients import GradientMap
from flamepy.engine.named_map import add_to_buffer


def backward(*args, **options):
    """Core's backward, with the rules as core runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Door, "rule", staticmethod(call.rule))
        return core.backward(*args, **options)


def tensor(seed: int, *shape: int, tracked: bool = True) -> fp.Tensor:
    numbers = np.random.default_rng(seed).standard_normal(shape, np.float32)
    return fp.tensor(numbers, device="plain", requires_grad=tracked)


def network(x: fp.Tensor, w: fp.Tensor, b: fp.Tensor) -> fp.Tensor:
    """A weight that is used twice, a broadcast, a view, an op of two results, an op that passes nothing on."""
    h = F.linear(x, w, b).tanh()
    h = F.linear(h, w) + h * 0.5
    left, right = h.split(2, axis=1)
    return (left * right.exp()).mean() + h.T.reshape(-1)[::2].sum() * 0.1 + h.sign().sum()


LEAVES = tensor(0, 3, 4), tensor(1, 4, 4), tensor(2, 4)


def test_it_gives_the_bits_of_the_engines():
    x, w, b = LEAVES
    loss = network(x, w, b)
    found, expected = backward(loss, retain_graph=True), loss.backward(retain_graph=True)
    assert type(found) is GradientMap and type(expected) is fp.GradientMap and issubclass(fp.GradientMap, GradientMap)
    assert list(found) == list(expected)
    for leaf in LEAVES:
        np.testing.assert_array_equal(found[leaf].numpy(), expected[leaf].numpy())


def test_it_records_itself():
    x, w, b = LEAVES
    twice = [f(f(network(x, w, b), create_graph=True)[x].square().sum()) for f in (backward, fp.autograd.backward)]
    np.testing.assert_array_equal(twice[0][w].numpy(), twice[1][w].numpy())
    cubed = fp.tensor(2.0, device="plain", requires_grad=True)
    assert backward(backward(cubed**3, create_graph=True)[cubed])[cubed].item() == 12.0


def test_what_was_saved_is_let_go_of_once():
    x = tensor(0, 3)
    loss = x.exp().sum()
    backward(loss, retain_graph=True)
    backward(loss)
    with pytest.raises(fp.GradientError, match=r"first backward at .*test_core_backward\.py"):
        backward(loss)


def test_what_was_overwritten_is_refused():
    p = fp.Parameter(tensor(0, 3))
    loss = (p * p).sum()
    p.set_data(tensor(1, 3))
    with raises(fp.VersionError, "overwritten", "set_data"):
        backward(loss)


def test_hooks_and_retained_gradients():
    x = tensor(0, 3)
    y = x * 2.0
    y.retain_grad()
    y.register_hook(lambda g: g * 3.0)
    x.register_hook(lambda g: g + 1.0)
    grads = backward(y.sum())
    assert grads[y].tolist() == [3.0] * 3 and grads[x].tolist() == [7.0] * 3


def test_a_cotangent_may_be_given():
    x = tensor(0, 2, 3)
    given = tensor(1, 2, 3, tracked=False)
    assert backward(x + 0.0, given)[x].tolist() == given.tolist()
    with raises(fp.GradientError, "more than one element"):
        backward(x + 0.0)
    with raises(fp.ShapeError, "another shape"):
        backward(x + 0.0, tensor(1, 3, tracked=False))
    with raises(fp.GradientError, "does not require grad"):
        backward(tensor(0, 1, tracked=False))


def test_no_gradient_shares_memory():
    x, y = tensor(0, 3), tensor(1, 3)
    seed = tensor(2, 3, tracked=False)
    grads = backward(x + y, seed)
    before = seed.tolist()
    add_to_buffer(grads[x].buffer, grads[x].buffer, "a test")
    assert grads[x].tolist() == [2 * g for g in before]
    assert grads[y].tolist() == before == seed.tolist()


def test_its_map_is_whole():
    x, y = tensor(0, 3), tensor(1, 3)
    grads = backward((x * 2.0 + y).sum())
    assert grads[x].tolist() == [2.0] * 3 and grads[y].tolist() == [1.0] * 3 and len(grads) == 2 and x in grads
    assert dict(grads.items()).keys() == {x.id, y.id} and grads.get(tensor(0, 1)) is None
    grads[x] = grads[y]
    assert grads[x.id].tolist() == [1.0] * 3
    with pytest.raises(KeyError, match="no gradient"):
        grads[tensor(0, 1)]
