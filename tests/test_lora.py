"""LoRA: what is trained and when, merging, what is saved. Oracle: NumPy in float64; gradients by hand."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from error_text import raises

import flamepy as fp
from flamepy import nn

X = np.random.default_rng(0).standard_normal((5, 3)).astype("f4")


def model():
    fp.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4, device="plain"), nn.ReLU(), nn.Linear(4, 2, device="plain"))


def given():
    return fp.tensor(X, device="plain")


def test_the_formula_and_its_gradients():
    layer = nn.LoRA(nn.Linear(3, 4, device="plain"), 2, alpha=6)
    rng = np.random.default_rng(1)
    layer.B.set_data(rng.standard_normal((4, 2)))
    w, b, a, bb = (p.numpy().astype("f8") for p in (layer.weight, layer.bias, layer.A, layer.B))
    y = layer(given())
    np.testing.assert_allclose(y.numpy(), X @ w.T + b + (X @ a.T @ bb.T) * 3, rtol=1e-5, atol=1e-6)
    g = rng.standard_normal((5, 4)).astype("f4")
    grads = y.backward(fp.tensor(g, device="plain"))
    assert {layer.A.id, layer.B.id} == {*grads}
    np.testing.assert_allclose(grads[layer.B].numpy(), 3 * g.T @ (X @ a.T), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(grads[layer.A].numpy(), 3 * (g @ bb).T @ X, rtol=1e-4, atol=1e-5)
    assert np.abs(a).max() <= 3**-0.5 and "rank=2, alpha=6" in repr(layer)


def test_the_model_begins_as_it_was_and_the_base_never_moves():
    m = model()
    want, base = m(given()).numpy(), m.state_dict()
    assert nn.lora(m, "*", rank=2) == ["0", "2"]
    assert np.array_equal(m(given()).numpy(), want)
    assert [n for n, _ in nn.lora_parameters(m)] == ["0.A", "0.B", "2.A", "2.B"] == [n for n, p in m.named_parameters() if p.requires_grad]
    optimizer = fp.SGD(m, lr=0.1)
    states = [m.state_dict()]
    for _ in range(2):
        optimizer.step(m(given()).square().sum().backward())
        states.append(m.state_dict())
    moved = [{n for n in a if not np.array_equal(a[n], b[n])} for a, b in pairwise(states)]
    assert moved == [{"0.B", "2.B"}, {"0.A", "0.B", "2.A", "2.B"}]
    other = model()
    nn.lora(other, "*", rank=2)
    other.load_state_dict(nn.lora_state(m), strict=False)
    assert np.array_equal(other(given()).numpy(), m(given()).numpy()) and list(nn.lora_state(m)) == ["0.A", "0.B", "2.A", "2.B"]
    got = m(given()).numpy()
    assert nn.merge_lora(m) is m and [type(k) for k in m] == [nn.Linear, nn.ReLU, nn.Linear]
    np.testing.assert_allclose(m(given()).numpy(), got, atol=1e-6)
    assert list(m.state_dict()) == list(base) and not np.allclose(m[0].weight.numpy(), base["0.weight"])
    assert len(m.unfreeze()) == 4 and len(m(given()).sum().backward()) == 4


def test_merging_twice_is_merging_once():
    m = model()
    nn.lora(m, "2", rank=1)
    m[2].B.set_data(np.ones((2, 1)))
    want = m(given()).numpy()
    for _ in range(2):
        plain = m[2].merge()
        np.testing.assert_allclose(m(given()).numpy(), want, atol=1e-6)
        assert plain.weight is m[2].weight and type(plain) is nn.Linear


def test_a_second_pattern_keeps_the_first_and_shared_layers_stay_shared():
    m = model()
    m.again = m[2]
    nn.lora(m, "0", rank=1)
    first = m[0].A
    assert nn.lora(m, "2", rank=2) == ["2"]  # its first name
    assert m[2] is m.again and isinstance(m[2], nn.LoRA) and m[0].A is first and first.requires_grad
    assert m.num_parameters(trainable=True) == 3 + 4 + 2 * 4 + 2 * 2


def test_what_cannot_be_wrapped_changes_nothing():
    m = model()
    for pattern, words in (("no*", "Use a glob of: 0, 2"), ("1", "Use a glob of: 0, 2")):
        with raises(fp.StateError, f"lora: no Linear matches: '{pattern}'", words):
            nn.lora(m, pattern, rank=1)
    handle = m[2].register_forward_hook(lambda layer, args, y: None)
    with raises(fp.StateError, "LoRA: no plain Linear", "with hooks"):
        nn.lora(m, "*", rank=1)
    handle.remove()
    for rank, alpha, error in ((0, None, fp.ShapeError), (1.5, None, fp.ShapeError), (1, 0, fp.DTypeError), (1, "2", fp.DTypeError)):
        with pytest.raises(error, match="LoRA: "):
            nn.lora(m, "*", rank, alpha)
    assert all(p.requires_grad for p in m.parameters()) and type(m[0]) is nn.Linear
    with raises(fp.StateError, "no plain Linear: a ReLU"):
        nn.LoRA(nn.ReLU(), 1)
    with raises(fp.StateError, "lora: no Linear matches", "none inside (wrap a single layer"):
        nn.lora(nn.Linear(2, 2), "*", 1)


def test_attention_with_keys_of_its_own_reads_the_whole_weight():
    attention = nn.MultiHeadAttention(4, 2, device="plain")
    holder = nn.Sequential(attention)
    nn.lora(holder, "*.qkv", rank=2)
    x = fp.randn((1, 3, 4), device="plain")
    before = attention(x, x + 0.0, x + 0.0).numpy()
    attention.qkv.B.set_data(np.ones((12, 2)))
    got, want = attention(x, x + 0.0, x + 0.0), attention(x)
    assert not np.allclose(got.numpy(), before)
    np.testing.assert_allclose(got.numpy(), want.numpy(), atol=1e-5)
    assert attention.qkv.A in got.sum().backward()


def test_a_captured_step_sees_it_come_and_go():
    m = model()

    def step(x):
        return m(x).sum()

    replay = fp.capture(step)
    for change in (lambda: None, lambda: nn.lora(m, "*", 1), lambda: m[0].B.set_data(np.ones((4, 1))), lambda: nn.merge_lora(m)):
        change()
        for _ in range(3):
            assert replay(given()).item() == step(given()).item()
    assert m[0].weight.requires_grad is False
