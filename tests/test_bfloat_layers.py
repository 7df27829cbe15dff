"""Products, linear layers and convolutions of 16-bit floats: held against PyTorch in float64 on the rounded operands,
with the bounds of their roundings.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import flamepy as fp
import flamepy.nn.functional as F
from flamepy import nn
from flamepy.backend.cpu import device as cpu
from flamepy.backend.cpu.bf16 import bfloat
from flamepy.backend.cpu.bf16 import conv as bfloat_conv
from flamepy.backend.cpu.bf16 import matmul as bfloat_matmul
from flamepy.backend.cpu.bf16.tiles import route
from flamepy.backend.cpu.products.finish import SUM
from flamepy.backend.cpu.runtime.memory import allocator
from flamepy.core.op import REGISTRY

torch = pytest.importorskip("torch")

BF = np.dtype(ml_dtypes.bfloat16)
HALF = np.dtype("float16")
EPS = 2.0**-8  # what a rounding changes at most
EPS16 = 2.0**-11  # of float16
SUMS = 3e-6  # of |a| |b|: sums of some hundred products in float32
SIZES = [(1, 1, 1), (3, 5, 7), (33, 65, 31), (97, 131, 100), (64, 128, 32), (0, 3, 4), (5, 0, 3), (4, 3, 0), (130, 257, 129)]
ACTIVATIONS = {
    "": lambda z: z, "relu": torch.relu, "silu": torch.nn.functional.silu, "tanh": torch.tanh,
    "gelu_tanh": lambda z: torch.nn.functional.gelu(z, approximate="tanh"),
}  # fmt: skip


def draw(*shape: int, seed: int = 0, dtype: Any = BF) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32).astype(dtype)


def wide(x: Any) -> np.ndarray:
    return np.asarray(x.numpy(), np.float64)


def leaves(*arrays: Any) -> tuple[list[Any], list[Any]]:
    """Arrays as flamepy's leaves, and as PyTorch's in float64."""
    ours = [None if a is None else fp.tensor(a).requires_grad_() for a in arrays]
    return ours, [None if a is None else torch.tensor(a.astype(np.float64), requires_grad=True) for a in arrays]


@pytest.mark.parametrize("dtype", [BF, HALF], ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize(("activation", "extra"), [("", 0), ("relu", 1), ("gelu_tanh", 2), ("silu", 3), ("tanh", 1), ("", 3)])
def test_linear_is_the_exact_layer_rounded_once(size: tuple[int, ...], activation: str, extra: int, dtype: Any, device: str) -> None:
    """extra: 1 a bias; 2 that and a residual; 3 a residual of float32, and then the result is float32."""
    rows, n, k = size
    eps = EPS if dtype == BF else EPS16
    x, w = draw(rows, k, dtype=dtype), (draw(n, k, seed=1, dtype=dtype).astype(np.float32) / np.sqrt(max(1, k))).astype(dtype)
    bias = draw(n, seed=2, dtype=dtype) if extra in (1, 2) else None
    residual = draw(rows, n, seed=3, dtype=np.float32 if extra == 3 else dtype) if extra > 1 else None
    ours, theirs = leaves(x, w, bias, residual)
    y = F.linear(*ours, activation)
    assert y.dtype == (fp.float32 if extra == 3 else dtype)
    z = theirs[0] @ theirs[1].T + (0 if bias is None else theirs[2])
    exact = ACTIVATIONS[activation](z) + (0 if residual is None else theirs[3])
    size_of_sums = np.abs(wide(ours[0])) @ np.abs(wide(ours[1])).T + (0 if bias is None else np.abs(wide(ours[2])))
    rounding = 0 if extra == 3 else eps * np.abs(exact.detach().numpy())
    assert (np.abs(wide(y) - exact.detach().numpy()) <= rounding + SUMS * size_of_sums + 1e-6).all()

    g = draw(rows, n, seed=4, dtype=np.float32)
    grads = y.backward(gradient=fp.tensor(g))
    exact.backward(torch.tensor(g.astype(np.float64)))
    slack = 2.0 * eps * np.abs(g)  # of dz: its own rounding, and that of what the derivative reads
    bounds = [slack @ np.abs(wide(ours[1])), slack.T @ np.abs(wide(ours[0])), slack.sum(0), slack * 0]
    for mine, other, bound in zip(ours, theirs, bounds, strict=True):
        if mine is not None:
            assert grads[mine].dtype == fp.float32
            assert (np.abs(wide(grads[mine]) - other.grad.numpy()) <= bound + 1e-5).all()


@pytest.mark.parametrize("dtype", [BF, HALF], ids=str)
@pytest.mark.parametrize("shapes", [
    ((2, 140, 300), (2, 300, 270)),
    ((3, 5), (5, 4)), ((2, 33, 40), (2, 40, 70)), ((4, 1, 17, 32), (1, 3, 32, 9)), ((2, 0, 3), (2, 3, 4)), ((2, 5, 0), (2, 0, 4)),
    ((7,), (7, 3)), ((2, 3, 65), (65, 130)),
], ids=str)  # fmt: skip
def test_matmul_of_stacks(shapes: Any, dtype: Any, device: str) -> None:
    (a, b), (p, q) = leaves(draw(*shapes[0], dtype=dtype), draw(*shapes[1], seed=1, dtype=dtype))
    eps, rounding = (EPS, EPS) if dtype == BF else (EPS16, SUMS)  # the other product of g, which float16 leaves as it is
    y, exact = a @ b, p @ q
    g = draw(*y.shape, seed=2, dtype=np.float32)
    grads = y.backward(gradient=fp.tensor(g))
    exact.backward(torch.tensor(g.astype(np.float64)))
    size = np.abs(wide(a)) @ np.abs(wide(b))
    assert y.dtype == dtype and (np.abs(wide(y) - exact.detach().numpy()) <= eps * np.abs(exact.detach().numpy()) + SUMS * size).all()
    rough = [torch.tensor(np.abs(wide(t)), requires_grad=True) for t in (a, b)]
    (rough[0] @ rough[1]).backward(torch.tensor(np.abs(g).astype(np.float64)))
    for mine, other, bound in zip((a, b), (p, q), rough, strict=True):
        assert grads[mine].dtype == fp.float32
        assert (np.abs(wide(grads[mine]) - other.grad.numpy()) <= rounding * bound.grad.numpy() + 1e-6).all()


def test_what_is_rounded_while_it_is_packed_is_what_a_cast_gives() -> None:
    """Where x needs no gradient, float32 gradients are packed as they are; by the identity they come out as they were rounded."""
    g = draw(64, 70, dtype=np.float32)
    g[0, :4] = 1.0 + 2.0**-8, 1.0 + 3 * 2.0**-8, -1.0 - 2.0**-8, 3e38  # two ties to even, a negative one, a large number
    w = fp.tensor(draw(70, 64)).requires_grad_()
    dw = F.linear(fp.tensor(np.eye(64, dtype=BF)), w).backward(gradient=fp.tensor(g))[w]
    assert np.array_equal(dw.numpy(), g.astype(BF).astype(np.float32).T)
    assert np.array_equal(fp.tensor(g).to(fp.bfloat16).numpy(), g.astype(BF))


def test_gradients_are_added_where_they_belong() -> None:
    layer = nn.Linear(40, 33)
    layer.params.pack()
    layer.compute_dtype = fp.bfloat16
    x = fp.tensor(draw(50, 40, dtype=np.float32))
    once = layer(x).sum().backward()
    expected = [2 * once[p].numpy() for p in layer.parameters()]
    twice = (layer(x).sum() + layer(x).sum()).backward()
    for p, want in zip(layer.parameters(), expected, strict=True):
        np.testing.assert_allclose(twice[p].numpy(), want, 1e-6)


def test_second_derivatives_go_through_products() -> None:
    (a, b), (p, q) = leaves(draw(5, 6), draw(6, 4, seed=1))
    y, z = a @ b, p @ q
    da = (y * y).sum().backward(create_graph=True)[a]
    (ta,) = torch.autograd.grad((z * z).sum(), [p], create_graph=True)
    dab, (tab,) = (da * da).sum().backward()[b], torch.autograd.grad((ta * ta).sum(), [q])
    assert np.abs(wide(dab) - tab.numpy()).max() <= 8 * EPS * np.abs(tab.numpy()).max()


@pytest.mark.parametrize("dtype", [BF, HALF], ids=str)
@pytest.mark.parametrize("size", [(300, 260, 200), (40, 700, 300), (700, 33, 129)], ids=str)
def test_any_number_of_workers_gives_the_same_bits(size: tuple[int, ...], dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few workers share out rows, many share out panels of columns."""
    rows, n, k = size
    x, w, b = (draw(*shape, seed=i, dtype=dtype) for i, shape in enumerate(((rows, k), (n, k), (n,))))
    g = fp.tensor(draw(rows, n, seed=3, dtype=np.float32))
    found = []
    for workers in (1, 2, 3, 4):
        monkeypatch.setattr(cpu, "threads", lambda workers=workers: workers)
        ours = [fp.tensor(t).requires_grad_() for t in (x, w, b)]
        y = F.linear(*ours, None, "silu")
        grads = y.backward(gradient=g)
        found.append([y.numpy().tobytes(), (ours[0] @ ours[1].T).numpy().tobytes(), *[grads[t].numpy().tobytes() for t in ours]])
    assert all(f == found[0] for f in found[1:])


def dense() -> Any:
    return nn.Sequential(nn.Linear(20, 70), nn.GELU(), nn.LayerNorm(70), nn.Linear(70, 5))


def convolutional() -> Any:
    image = nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 33, 2, stride=2), nn.ReLU()
    return nn.Sequential(*image, nn.Flatten(), nn.Linear(33 * 2 * 2, 5))


@pytest.mark.parametrize(("build", "shape", "dtype"), [
    (dense, (37, 20), "bfloat16"), (convolutional, (37, 1, 4, 5), "bfloat16"), (convolutional, (37, 1, 4, 5), "float16"),
])  # fmt: skip
def test_a_replay_has_the_bits_of_an_eager_step(build: Any, shape: tuple[int, ...], dtype: str) -> None:
    results = []
    for capture in (False, True):
        fp.manual_seed(0)
        model = build()
        model.params.pack()
        model.compute_dtype = getattr(fp, dtype)
        optimizer = fp.AdamW(model, lr=1e-2)

        def step(x: Any, y: Any, model: Any = model, optimizer: Any = optimizer) -> Any:
            loss = F.cross_entropy(model(x), y)
            optimizer.step(loss.backward())
            return loss

        call = fp.capture(step) if capture else step
        xs = [(fp.tensor(draw(*shape, seed=i, dtype=np.float32)), fp.tensor(np.arange(37) % 5)) for i in range(5)]
        results.append([call(x, y).item() for x, y in xs] + [p.numpy().tobytes() for p in model.parameters()])
    assert results[0] == results[1]


@pytest.mark.parametrize("size", [(33, 129, 31), (5, 3, 70)], ids=str)
def test_nothing_is_written_beside_a_result(size: tuple[int, ...]) -> None:
    rows, n, k = size
    bfloat.load()
    room = np.full(2 * rows * n + 256, 0x7FC1, np.uint16)
    y, kept = room[64 : 64 + rows * n], room[128 + rows * n : 128 + 2 * rows * n]
    x, w, bias = (draw(*shape).view(np.uint16).ravel() for shape in ((rows, k), (n, k), (n,)))
    packed, none = np.zeros(bfloat.packed_size(k, n), np.uint16), np.zeros(1, np.int64)
    where = fp.device("cpu")
    pack = where.kernel(bfloat_matmul.pack_bfloat, None, np.dtype("float32"), 1)
    pack.call(2, packed, packed, x, w, none, none, 1, 0, n, k, False, True)
    layer = where.kernel(bfloat_matmul.linear_bfloat, REGISTRY["gelu_tanh"].formula, np.dtype("float32"), 1)
    layer.call(2, y, kept, x, packed, bias, x, rows, n, k, True, False, SUM)
    beside = np.concatenate([room[:64], room[64 + rows * n : 128 + rows * n], room[128 + 2 * rows * n :]])
    assert (beside == 0x7FC1).all() and not (y == 0x7FC1).any() and not (kept == 0x7FC1).any()


# ---- convolutions -----
CONVS: list[Any] = [  # x, weight, options
    ((4, 16, 9, 8), (40, 16, 3, 3), {"padding": 1}),
    ((17, 32, 5, 7), (64, 16, 3, 2), {"groups": 2, "stride": (2, 1), "padding": (1, 2), "dilation": (1, 2)}),
    ((2, 33, 30, 31), (31, 33, 1, 1), {}),
    ((2, 33, 12, 13), (35, 33, 1, 1), {"stride": (2, 3), "padding": 1}),
    ((40, 7, 4, 4), (5, 7, 2, 2), {}),
    ((9, 33, 1, 1), (3, 33, 1, 1), {}),
    ((1, 70, 5, 40), (3, 70, 3, 3), {"padding": (3, 1), "dilation": (3, 1)}),
    ((3, 4, 6, 5), (4, 1, 3, 3), {"groups": 4}),
    ((1, 1, 140, 3), (1, 1, 2, 3), {}),
]  # fmt: skip
EMPTY: list[Any] = [((0, 3, 5, 5), (4, 3, 3, 3), {}), ((2, 0, 5, 5), (4, 0, 3, 3), {}), ((2, 3, 5, 5), (0, 3, 3, 3), {})]
WIDENED, BY_PRODUCTS = "widened", "by products of bfloat16"


@pytest.fixture(params=[WIDENED, BY_PRODUCTS])
def way(request: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every convolution of bfloat16 is done this way; batches differ, since what a call does is planned once."""
    monkeypatch.setattr(bfloat_conv, "LEAST", {route(): 0} if request.param == BY_PRODUCTS else {})
    return str(request.param)


def leaves_of_conv(shapes: Any, way: str, dtype: Any) -> tuple[list[Any], list[Any]]:
    (images, *x), w, _ = shapes
    size = np.float32(max(1, np.prod(w[1:])))
    weight = (draw(*w, seed=1, dtype=np.float32) / np.sqrt(size)).astype(dtype)
    return leaves(draw(images + (images > 0) * (way == WIDENED), *x, dtype=dtype), weight, draw(w[0], seed=2, dtype=dtype))


@pytest.mark.parametrize("dtype", [BF, HALF], ids=str)
@pytest.mark.parametrize("shapes", [*CONVS, *EMPTY], ids=lambda s: f"{s[0]} {s[1]}")
def test_convolution_is_the_exact_one_rounded_once(shapes: Any, dtype: Any, way: str, device: str) -> None:
    ours, theirs = leaves_of_conv(shapes, way, dtype)
    rough = [torch.tensor(np.abs(wide(t)), requires_grad=True) for t in ours]
    y = F.conv2d(*ours, **shapes[2])
    if 0 in shapes[1]:  # PyTorch has none
        assert (wide(y) == np.broadcast_to(wide(ours[2])[:, None, None], y.shape)).all()
        grads = y.backward(gradient=fp.ones(*y.shape))
        assert all(not grads[t].numpy().any() and grads[t].shape == t.shape for t in ours[:2])
        return
    exact, sums = (torch.nn.functional.conv2d(*xs, **shapes[2]) for xs in (theirs, rough))
    eps = EPS if dtype == BF else EPS16
    assert y.dtype == dtype
    error = np.abs(wide(y) - exact.detach().numpy())
    assert (error <= eps * np.abs(exact.detach().numpy()) + SUMS * sums.detach().numpy() + 2.0**-25).all()
    g = draw(*y.shape, seed=4, dtype=np.float32)
    grads = y.backward(gradient=fp.tensor(g))
    exact.backward(torch.tensor(g.astype(np.float64)))
    sums.backward(torch.tensor(np.abs(g).astype(np.float64)))
    rounding = EPS if dtype == BF else 0  # of g, where a product of bfloat16 reads it
    for mine, other, size, round_of_g in zip(ours, theirs, rough, (rounding, rounding, 0), strict=True):
        assert grads[mine].dtype == fp.float32
        assert (np.abs(wide(grads[mine]) - other.grad.numpy()) <= (round_of_g + SUMS) * size.grad.numpy()).all()


@pytest.mark.parametrize("dtype", [BF, HALF], ids=str)
@pytest.mark.parametrize("shapes", CONVS[:3], ids=lambda s: f"{s[0]} {s[1]}")
def test_what_is_no_number_reaches_the_windows_that_see_it(shapes: Any, dtype: Any, way: str) -> None:
    ours, theirs = leaves_of_conv((shapes[0], shapes[1], 0), way, dtype)
    x, g_shape = ours[0].numpy().copy(), F.conv2d(*[t.detach() for t in ours], **shapes[2]).shape
    x[0, 0, 0, 0], x[-1, -1, -1, -1], x[0, -1, 2, 0] = np.nan, np.inf, -np.inf
    g = draw(*g_shape, seed=4, dtype=np.float32)
    g[0, 0, 0, 0], g[-1, -1, -1, -1] = np.inf, np.nan
    (a,), (p,) = leaves(x)
    y, exact = F.conv2d(a, *ours[1:], **shapes[2]), torch.nn.functional.conv2d(p, *theirs[1:], **shapes[2])
    grads = y.backward(gradient=fp.tensor(g))
    exact.backward(torch.tensor(g.astype(np.float64)))
    for mine, other in ((y, exact.detach()), (grads[a], p.grad), (grads[ours[2]], theirs[2].grad)):
        finite = np.isfinite(other.numpy())
        assert 0 < finite.sum() < finite.size
        np.testing.assert_array_equal(np.isfinite(wide(mine)), finite)
        np.testing.assert_array_equal(wide(mine)[~finite], other.numpy()[~finite])
    # PyTorch multiplies cotangents with the padding, so an infinite one makes a NaN of it; here taps that see padding may be left out.
    finite, found = np.isfinite(theirs[1].grad.numpy()), np.isfinite(wide(grads[ours[1]]))
    odd = [torch.tensor((~np.isfinite(array)).astype(np.float64)) for array in (x.astype(np.float64), g)]
    one = [torch.ones_like(t) for t in odd]
    seen = sum(torch.nn.grad.conv2d_weight(i, theirs[1].shape, c, **shapes[2]).numpy() for i, c in ((odd[0], one[1]), (one[0], odd[1])))
    assert 0 < finite.sum() < finite.size and (finite <= found).all() and (found == (seen == 0))[found != finite].all()
    np.testing.assert_array_equal(found[seen > 0.5], False)


@pytest.mark.parametrize("shapes", [((30, 40, 9, 9), (40, 40, 3, 3), {"padding": 1}), ((3, 32, 30, 31), (35, 32, 2, 2), {})], ids=str)
def test_any_number_of_workers_gives_a_convolution_the_same_bits(shapes: Any, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for workers in (1, 2, 3, 4):
        monkeypatch.setattr(cpu, "threads", lambda workers=workers: workers)
        ours, _ = leaves_of_conv(shapes, way, BF)
        y = F.conv2d(*ours, **shapes[2])
        grads = y.backward(gradient=fp.tensor(draw(*y.shape, seed=4, dtype=np.float32)))
        found.append([y.numpy().tobytes(), *[grads[t].numpy().tobytes() for t in ours]])
    assert all(f == found[0] for f in found[1:])


def test_an_image_gives_the_same_bits_whatever_is_beside_it(way: str) -> None:
    (x, w, b), _ = leaves_of_conv(CONVS[4], way, BF)
    whole, some = F.conv2d(x, w, b), F.conv2d(x[5:12], w, b)
    np.testing.assert_array_equal(some.numpy(), whole.numpy()[5:12])


@pytest.mark.parametrize("dtype", [fp.bfloat16, fp.float16], ids=str)
@pytest.mark.parametrize(("operation", "x", "w"), [
    (F.conv2d, (32, 64, 64, 64), (32, 64, 1, 1)), (F.linear, (9000, 200), (40, 200)), (fp.matmul, (9000, 200), (200, 40)),
], ids=["conv2d", "linear", "matmul"])  # fmt: skip
def test_products_make_no_copy_of_their_operands(operation: Any, x: Any, w: Any, dtype: Any) -> None:
    operands = fp.zeros(*x, dtype=dtype), fp.zeros(*w, dtype=dtype)
    operation(*operands)
    before = allocator.peak = allocator.current
    y = operation(*operands)
    assert allocator.peak - before < 2 * y.size + 4 * operands[0].size


def test_small_gradients_pass_products_of_float16() -> None:
    """2^-30 times a cotangent gives 2^-30 times the gradient, to the bit: nothing of it is float16, whose least number is 2^-24."""
    x, w = (fp.tensor(draw(*shape, seed=i, dtype=HALF)).requires_grad_() for i, shape in enumerate(((5, 70), (33, 70))))
    g = draw(5, 33, seed=2, dtype=np.float32)
    for y in (F.linear(x, w), F.linear(x, w, activation="relu"), x @ w.T):
        whole = y.backward(gradient=fp.tensor(g), retain_graph=True)
        small = y.backward(gradient=fp.tensor(g * np.float32(2.0**-30)))
        for t in (x, w):
            np.testing.assert_array_equal(small[t].numpy(), whole[t].numpy() * np.float32(2.0**-30))
