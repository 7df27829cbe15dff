"""Faults that a reading of the house found, and what must hold instead: captured models side by side, what is saved, what a tape says."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from error_text import raises

import flamepy as fp
import flamepy.nn.functional as F
from flamepy import nn
from flamepy.train.nonfinite import explain

X, Y = np.linspace(-1, 1, 32 * 6, dtype="f4").reshape(32, 6), np.arange(32) % 3


def model(seed: int) -> nn.Sequential:
    fp.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3))


def training(seed: int, packed: bool, captured: bool) -> Callable[[], float]:
    """One step of a model of its own, as a function of nothing."""
    net = model(seed)
    if packed:
        net.params.pack()
    optimizer = fp.AdamW(net, lr=1e-2)

    def step(x: Any, y: Any) -> Any:
        grads = (loss := F.cross_entropy(net(x), y)).backward()
        fp.clip_grad_norm(grads, 0.5)
        optimizer.step(grads)
        return loss

    run = fp.capture(step) if captured else step
    return lambda: run(fp.tensor(X), fp.tensor(Y)).item()


# ---- captured steps side by side -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("packed", [False, True])
def test_other_models_may_be_built_and_packed_beside_a_captured_step(packed: bool) -> None:
    wanted = [training(1, packed, False), training(2, packed, False)]
    first = training(1, packed, True)
    losses = [[first() for _ in range(3)], []]
    second = training(2, packed, True)  # builds, packs, makes an optimizer's state
    for _ in range(4):
        losses[0].append(first())
        losses[1].append(second())
    fp.AdamW(model(3), lr=1.0).load_state_dict(fp.AdamW(model(3), lr=1.0).state_dict())
    losses[0].append(first())
    assert losses[0] == [wanted[0]() for _ in losses[0]]
    assert losses[1] == [wanted[1]() for _ in losses[1]]


def test_memory_of_its_own_that_moved_is_told() -> None:
    net = model(0)
    optimizer = fp.SGD(net, lr=0.1, momentum=0.9)

    def step(x: Any, y: Any) -> Any:
        grads = (loss := F.cross_entropy(net(x), y)).backward()
        optimizer.step(grads)
        return loss

    captured = fp.capture(step)
    for _ in range(3):
        captured(fp.tensor(X), fp.tensor(Y))
    net.params.pack()
    before = net.params.state_dict()
    with raises(fp.CaptureError, "capture: memory was moved since step was recorded", "pack()"):
        captured(fp.tensor(X), fp.tensor(Y))
    assert all((before[name] == p.numpy()).all() for name, p in net.named_parameters())


@pytest.mark.parametrize("captured", [False, True])
def test_four_threads_train_at_once(captured: bool) -> None:
    """Planning, recording and replaying in one thread is nothing to the others."""
    wanted = [(run := training(seed, seed % 2 == 0, False)) and [run() for _ in range(8)] for seed in range(4)]
    found: list[Any] = [None] * 4
    ready = threading.Barrier(4)

    def work(seed: int) -> None:
        run = training(seed, seed % 2 == 0, captured)
        ready.wait(30)
        found[seed] = [run() for _ in range(8)]

    crowd = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join(120)
    assert found == wanted


def test_an_op_inside_an_op_that_is_planned_is_not_frozen() -> None:
    """A softmax over another axis transposes first: both are planned in one call, the one inside the other."""
    rng = np.random.default_rng(0)
    for _ in range(5):
        x = rng.standard_normal((7, 11)).astype("f4")
        leaf = fp.tensor(x, requires_grad=True)
        y = F.softmax(leaf, 0)
        g = rng.standard_normal(y.shape).astype("f4")
        e = np.exp(x - x.max(0))
        want = e / e.sum(0)
        np.testing.assert_allclose(y.numpy(), want, rtol=2e-6)
        np.testing.assert_allclose(y.backward(fp.tensor(g))[leaf].numpy(), want * (g - (g * want).sum(0)), atol=1e-6)


def test_one_tensor_given_twice_is_not_two_given_once() -> None:
    a, b = fp.tensor([2.0, 3.0], requires_grad=True), fp.tensor([5.0, 7.0], requires_grad=True)
    for x, y, want in ((a, a, [4.0, 9.0]), (a, a, [4.0, 9.0]), (a, b, [10.0, 21.0]), (b, b, [25.0, 49.0]), (b, a, [10.0, 21.0])):
        assert (x * y).tolist() == want
        grads = (x * y).sum().backward()
        assert grads[x].tolist() == (y.numpy() * (2 if x is y else 1)).tolist()


def test_attributes_that_are_equal_and_not_the_same() -> None:
    x, i = fp.ones((2, 2), requires_grad=True), fp.tensor([1, 2])
    for value in (0.0, 0.0, -0.0, -0.0, 0.0, -0.0):
        assert np.signbit(fp.pad(x, ((1, 0), (0, 0)), value).numpy()[0]).all() == np.signbit(value)
        assert np.signbit(F.leaky_relu(fp.tensor([-1.0]), value).numpy()[0]) != np.signbit(value)
    for _ in range(3):
        assert (i * 2).tolist() == [2, 4] and (i * 2.5).tolist() == [2.5, 5.0] and (i * True).dtype == fp.int64
        assert F.softmax(x, 0).shape == x.reshape((2, 2)).shape == (2, 2)
        with pytest.raises(TypeError, match="axis must be an int"):
            F.softmax(x, 0.0)
        with raises(fp.ShapeError, "reshape: not a shape"):
            x.reshape((2.0, 2.0))


# ---- what is saved ---------------------------------------------------------------------------------------------------------------
def saved(y: Any) -> set[str]:
    return {name for name, value in y.entry.saved.items() if value is not None}


def test_what_is_saved_follows_which_inputs_require_grad() -> None:
    x, w, b = (fp.randn(s, requires_grad=True) for s in ((4, 3), (5, 3), (5,)))
    frozen = w.detach()
    for _ in range(3):  # as it is, planned, as planned
        assert saved(F.linear(x, frozen, b)) == {"weight", "bias"}  # not x
        assert saved(F.linear(x.detach(), w, b)) == {"x", "bias"}
        assert saved(F.linear(x, w, b)) == {"x", "weight", "bias"}
        assert saved(x @ frozen.T) == {"b"} and saved(x.detach() @ w.T) == {"a"}
        assert saved(x * 2.0) == {"b"} or saved(x * 2.0) == set()
    image, kernel = fp.randn((1, 2, 5, 5), requires_grad=True), fp.randn((3, 2, 3, 3), requires_grad=True)
    assert saved(F.conv2d(image, kernel.detach())) == {"weight"} and saved(F.conv2d(image.detach(), kernel)) == {"x"}


def test_a_frozen_layer_keeps_no_activations() -> None:
    net = nn.Sequential(*[nn.Linear(64, 64) for _ in range(4)])
    net.params.freeze("*.weight")
    net.params.freeze("*.bias")
    where = fp.device("cpu")
    x = fp.randn((512, 64), requires_grad=True)
    for _ in range(3):
        gc.collect()
        before = where.memory()["current"]
        y = net(x)
        assert where.memory()["current"] - before == y.size * 4
        del y


def test_second_derivatives_of_frozen_layers() -> None:
    x, w = fp.randn((3, 4), dtype=fp.float64, requires_grad=True), fp.randn((5, 4), dtype=fp.float64)
    for activation in ("", "tanh", "gelu_erf"):
        assert fp.gradcheck(lambda x, a=activation: F.linear(x, w, None, None, a), (x,), order=2)
        assert fp.gradcheck(lambda w, a=activation: F.linear(x.detach(), w, None, None, a), (w,), order=2)


def test_a_saved_result_that_was_overwritten_is_told() -> None:
    for _ in range(3):
        x = fp.tensor([0.5, 1.0], requires_grad=True)
        y = x.exp()  # its rule reads y
        grads = fp.GradientMap()
        grads.insert(x, y.detach())
        grads.scale_(2.0)
        with raises(fp.VersionError, "a saved value was overwritten: 'y' (output of exp)", "GradientMap.scale_"):
            y.sum().backward()


# ---- what a tape says --------------------------------------------------------------------------------------------------------------
SPOKEN: dict[str, Callable[[Any], Any]] = {
    "matmul": lambda x: x @ x,
    "reshape": lambda x: x.reshape(16),
    "transpose": lambda x: x.T,
    "permute": lambda x: x.permute(1, 0),
    "pow": lambda x: x**3,
    "clamp": lambda x: x.clamp(0, 1),
    "gelu": F.gelu,
    "dropout": lambda x: F.dropout(x, 0.5),
    "embedding": lambda x: F.embedding([0, 2], x),
    "gather": lambda x: fp.gather(x, 0, [[0, 1, 2, 3]]),
    "index": lambda x: x[1:],
    "narrow": lambda x: x.narrow(0, 1, 2),
    "cat": lambda x: fp.cat([x, x]),
    "pad": lambda x: fp.pad(x, ((1, 1), (0, 0))),
    "broadcast_to": lambda x: x[0].broadcast_to((2, 4)),
    "cross_entropy": lambda x: F.cross_entropy(x, [0, 1, 2, 3]),
    "huber_loss": lambda x: F.huber_loss(x, x.detach()),
    "layer_norm": lambda x: F.layer_norm(x, (4,)),
    "scaled_dot_product_attention": lambda x: F.scaled_dot_product_attention(x, x, x),
}


@pytest.mark.parametrize("name", SPOKEN)
def test_a_tape_speaks_the_users_words(name: str) -> None:
    x = fp.randn((4, 4), requires_grad=True)
    for _ in range(3):
        entries = fp.tape(SPOKEN[name](x))
        assert name in [entry.op.title for entry in entries] and f"= {name}(" in repr(entries)
        assert name in [entry.record()["op"] for entry in entries]


def test_what_explains_infinities_speaks_them_too() -> None:
    for number, other, scale, where in ((3e38, 2.0, 1.0, "forward"), (1e-10, 100.0, 3e38, "backward")):
        p, x = fp.Parameter(np.float32([[number]])), fp.tensor([[other]])
        for _ in range(3):  # planned at the second time
            text = explain(lambda p=p, x=x, scale=scale: (p @ x * scale).sum(), [("p", p)])
            assert text.startswith("first made by op 'matmul' (") and f"in the {where} pass" in text, text


# ---- numbers at the edge -----------------------------------------------------------------------------------------------------------
def test_layer_norm_over_one_element_has_gradient_zero() -> None:
    rng = np.random.default_rng(3)
    x, w = fp.tensor(rng.standard_normal((50, 1)).astype("f4"), requires_grad=True), fp.tensor([1.7], requires_grad=True)
    for _ in range(3):
        grads = F.layer_norm(x, (1,), w, fp.tensor([0.3])).backward(fp.tensor(rng.standard_normal((50, 1)).astype("f4")))
        assert not grads[x].numpy().any() and grads[w].item() == 0.0
    s, y = nn.LayerNorm(1).residual(x)
    assert (s + y * 2).sum().backward()[x].tolist() == [[1.0]] * 50


def test_reshape_of_nothing_to_an_unknown_size_is_refused() -> None:
    empty = fp.zeros(0, 3)
    for shape in ((-1, 0), (0, -1), (-1, 0, 2)):
        with raises(fp.ShapeError, "reshape: -1 could be any size", "(0, 3)", shape):
            empty.reshape(shape)
    assert empty.reshape(-1, 3).shape == (0, 3) and empty.reshape(-1).shape == (0,) and empty.reshape(3, 0).shape == (3, 0)
