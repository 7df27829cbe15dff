"""autocast(): products from 16 bits in a block, as compute_dtype does for a model; nested, off, in threads, captured, checkpointed.

Oracle: the same with casts written by hand, bit for bit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from error_text import raises

import flamepy as fp
import flamepy.nn.functional as F
from flamepy import nn
from flamepy.core.door import Door
from flamepy.core.op import REGISTRY
from flamepy.engine.autocast import NARROW, WIDE, Watched, entrance, here

pytestmark = pytest.mark.usefixtures("device")
HALVES = [fp.bfloat16, fp.float16]


def x_of(*shape: int) -> fp.Tensor:
    n = int(np.prod(shape))
    return fp.tensor(np.sin(np.arange(n) * 1.7).reshape(shape).astype("f4"), requires_grad=True)


NARROWED: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "matmul": (lambda a, b: a @ b, [(3, 4), (4, 5)]),
    "batched": (fp.matmul, [(2, 3, 4), (2, 4, 5)]),
    "linear": (F.linear, [(3, 4), (5, 4), (5,)]),
    "linear, activation": (lambda x, w: F.linear(x, w, activation="relu"), [(3, 4), (5, 4)]),
    "conv2d": (lambda x, w, b: F.conv2d(x, w, b, padding=1), [(2, 3, 5, 5), (4, 3, 3, 3), (4,)]),
    "conv1d": (F.conv1d, [(2, 3, 8), (4, 3, 3)]),
    "transposed": (lambda x, w: F.conv_transpose2d(x, w, stride=2), [(1, 3, 4, 4), (3, 2, 3, 3)]),
    "einsum": (lambda a, b: fp.einsum("bij,bjk->bik", a, b), [(2, 3, 4), (2, 4, 5)]),
    "attention": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), [(2, 2, 4, 8)] * 3),
}


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", NARROWED)
def test_products_are_those_of_rounded_operands(name: str, dtype: Any) -> None:
    run, shapes = NARROWED[name]
    xs = [x_of(*shape) for shape in shapes]
    for _ in range(3):  # planned
        with fp.autocast(dtype):
            y = run(*xs)
        want = run(*[x.to(dtype) for x in xs])
        assert y.dtype == want.dtype == dtype
        np.testing.assert_allclose(y.numpy().astype("f4"), want.numpy().astype("f4"), rtol=1e-2, atol=1e-2)
        grads, wanted = [t.to(fp.float32).square().sum().backward() for t in (y, want)]
        for x in xs:
            assert grads[x].dtype == fp.float32
            np.testing.assert_allclose(grads[x].numpy(), wanted[x].numpy(), rtol=3e-2, atol=3e-2)
        plain = run(*xs)
        assert plain.dtype == fp.float32 and plain.numpy().tobytes() != y.to(fp.float32).numpy().tobytes()
    wide = [x.detach().to(fp.float64) for x in xs]
    with fp.autocast(dtype):
        assert run(*wide).dtype == fp.float64  # never touched


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_what_is_wide(dtype: Any) -> None:
    x, t = x_of(4, 6).to(dtype), fp.tensor([1, 2, 0, 5])
    for name, run in {
        "softmax": lambda: fp.softmax(x, -1), "log_softmax": lambda: fp.log_softmax(x, axis=-1), "sum": x.sum,
        "mean": lambda: x.mean(axis=0), "mse": lambda: F.mse_loss(x, x * 0.5), "cross": lambda: F.cross_entropy(x, t),
        "nll": lambda: F.nll_loss(fp.log_softmax(x, -1), t),
    }.items():  # fmt: skip
        for _ in range(3):
            with fp.autocast(dtype):
                assert run().dtype == fp.float32, name
        with fp.autocast(dtype):
            np.testing.assert_allclose(run().numpy(), run().numpy())
        assert run().dtype == (fp.float32 if name == "cross" else dtype)
    with fp.autocast(dtype):
        assert (x * x).dtype == F.relu(x).dtype == dtype and (x + x_of(4, 6)).dtype == fp.float32  # others follow


def test_every_op_that_is_named_exists() -> None:
    assert {*NARROW, *WIDE} <= set(REGISTRY)


class Net(nn.Module):
    def __init__(self) -> None:
        self.conv, self.norm, self.attention = nn.Conv2d(2, 4, 3, padding=1), nn.LayerNorm(8), nn.MultiHeadAttention(8, 2)
        self.inner, self.head = nn.Linear(36, 8), nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        h = F.gelu(self.inner(self.conv(x).reshape(x.shape[0], 4, 36).flatten(2)))
        return self.head(self.norm(h + self.attention(h)).mean(axis=1))


def step_of(net: Net, optimizer: Any, block: Callable[[], Any]) -> Callable[..., Any]:
    def step(x: Any, t: Any) -> Any:
        with block():
            loss = F.cross_entropy(net(x), t)
        optimizer.step(loss.backward())
        return loss

    return step


IMAGES = np.sin(np.arange(4 * 2 * 36) * 0.7).reshape(4, 2, 6, 6).astype("f4")
IDS = np.array([0, 1, 2, 1])


def test_a_model_trains_in_it_captured_bit_for_bit() -> None:
    found = []
    for capture in (False, True):
        fp.manual_seed(0)
        net = Net()
        optimizer = fp.AdamW(net, lr=1e-2)
        step = step_of(net, optimizer, lambda: fp.autocast(fp.bfloat16))
        run = fp.capture(step) if capture else step
        losses = [run(fp.tensor(IMAGES), fp.tensor(IDS)).item() for _ in range(8)]
        found.append((losses, {n: a.tobytes() for n, a in net.state_dict().items()}))
        assert losses[-1] < losses[0] and all(p.dtype == fp.float32 for p in net.parameters())
    assert found[0] == found[1]


def test_another_key_for_a_captured_step() -> None:
    w = x_of(4, 4)
    step = fp.capture(lambda x: x @ w)
    x = fp.tensor(x_of(4, 4).numpy())
    for _ in range(3):
        assert step(x).dtype == fp.float32
        for dtype in HALVES:
            with fp.autocast(dtype):
                assert step(x).dtype == dtype
                with fp.autocast(enabled=False):
                    assert step(x).dtype == fp.float32


def test_nested_off_and_restored() -> None:
    x = x_of(3, 3)
    with fp.autocast(fp.bfloat16):
        assert (x @ x).dtype == fp.bfloat16
        with fp.autocast(fp.float16):
            assert (x @ x).dtype == fp.float16
            with fp.autocast(enabled=False):
                assert (x @ x).dtype == fp.float32
            assert (x @ x).dtype == fp.float16
        y = x @ x
        assert y.dtype == fp.bfloat16 and (y @ x).dtype == fp.bfloat16
        with pytest.raises(ZeroDivisionError), fp.autocast(fp.float16):
            raise ZeroDivisionError
        assert (x @ x).dtype == fp.bfloat16
    assert (x @ x).dtype == fp.float32
    assert here.dtype is None and entrance.open == 0 and Door.call is not None
    plans = getattr(REGISTRY["product"], "plans", None)
    assert plans is None or not any(isinstance(calls, Watched) for calls in plans.calls)

    @fp.autocast(fp.float16)
    def decorated(n: int) -> Any:
        return decorated(n - 1) if n else x @ x

    assert decorated(3).dtype == fp.float16 and here.dtype is None and entrance.open == 0
    assert repr(fp.autocast(fp.float16, enabled=False)) == "autocast(float16, enabled=False)"


def test_it_holds_for_its_thread() -> None:
    x, found, inside, done = x_of(3, 3), [], threading.Event(), threading.Event()

    def other() -> None:
        inside.wait(20)
        found.append((x @ x).dtype)
        with fp.autocast(fp.float16):
            found.append((x @ x).dtype)
        done.set()

    thread = threading.Thread(target=other)
    thread.start()
    with fp.autocast(fp.bfloat16):
        inside.set()
        done.wait(20)
        found.append((x @ x).dtype)
    thread.join()
    assert found == [fp.float32, fp.float16, fp.bfloat16] and entrance.open == 0


def test_backward_inside_and_outside() -> None:
    found = []
    for inside in (True, False):
        x, w = x_of(3, 4), x_of(5, 4)
        with fp.autocast(fp.bfloat16):
            loss = F.linear(x, w).square().sum()
            grads = loss.backward() if inside else None
        grads = grads or loss.backward()
        found.append([grads[t].numpy().tobytes() for t in (x, w)])
    assert found[0] == found[1]
    with fp.autocast(fp.bfloat16):
        y = (x @ w.T).square().sum()
        g = y.backward(create_graph=True)[x]
        assert g.dtype == fp.float32 and g.square().sum().backward()[w].dtype == fp.float32


def test_a_checkpointed_block_reads_the_same_again() -> None:
    x, w = x_of(3, 4), x_of(4, 4)
    with fp.autocast(fp.bfloat16):
        y, want = fp.checkpoint(lambda t: (t @ w).tanh() @ w, x), (x @ w).tanh() @ w
    a, b = y.sum().backward(), want.sum().backward()
    assert all(a[t].numpy().tobytes() == b[t].numpy().tobytes() for t in (x, w))
    y = fp.checkpoint(lambda t: (t @ w).tanh() @ w, x)
    with fp.autocast(fp.float16):
        a = y.sum().backward()
    assert a[x].numpy().tobytes() == ((x @ w).tanh() @ w).sum().backward()[x].numpy().tobytes()


def test_beside_compute_dtype() -> None:
    """The model's own goes first; what it says by its parts, a block says by ops, with the same bits."""
    fp.manual_seed(0)
    layer, x = nn.Linear(6, 4), fp.tensor(x_of(5, 6).numpy())
    with fp.autocast(fp.bfloat16):
        y = layer(x)
    layer.compute_dtype = fp.bfloat16
    assert (layer(x).numpy() == y.numpy()).all() and y.dtype == fp.bfloat16
    layer.compute_dtype = fp.float16
    with fp.autocast(fp.bfloat16):
        assert layer(x).dtype == fp.float16
        with fp.autocast(enabled=False):
            assert layer(x).dtype == fp.float16


def test_it_refuses() -> None:
    for error, call, word in (
        (fp.DTypeError, lambda: fp.autocast("cuda"), "not a dtype"),
        (fp.DTypeError, lambda: fp.autocast("cuda", dtype=fp.bfloat16), "not a dtype: 'cuda'"),  # type: ignore[misc]
        (fp.DTypeError, lambda: fp.autocast(device_type="cuda"), "not a dtype: 'cuda'"),  # type: ignore[call-arg]
        (fp.DTypeError, lambda: fp.autocast(fp.float32), "16-bit"),
        (fp.DTypeError, lambda: fp.autocast(fp.bfloat16, enabled=1), "enabled"),
        (fp.DTypeError, lambda: fp.autocast(None), "autocast"),
    ):  # fmt: skip
        with raises(error, "autocast", word):
            call()

    def generator() -> Any:
        yield 1

    with raises(TypeError, "a generator or coroutine"):
        fp.autocast()(generator)
