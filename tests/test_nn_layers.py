"""Layers against torch.nn with the same weights, and against NumPy: forward, gradients, how they start."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from devices import default_device

import flamepy as fp
from flamepy import nn

pytestmark = pytest.mark.usefixtures("device")

Array = np.ndarray


def draw(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng((seed, *shape)).standard_normal(shape)


def close(got: Any, want: Any, tolerance: float = 1e-9, what: str = "") -> None:
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), tolerance, tolerance, err_msg=what)


# ---- against torch.nn ------------------------------------------------------------------------------------------------------------
F64 = {"dtype": fp.float64}
LAYERS: dict[str, tuple[Callable, Callable, tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(5, 3, **F64), lambda t: t.nn.Linear(5, 3), (2, 4, 5)),
    "linear without bias": (lambda: nn.Linear(5, 3, bias=False, **F64), lambda t: t.nn.Linear(5, 3, bias=False), (4, 5)),
    "layer norm": (lambda: nn.LayerNorm(6, **F64), lambda t: t.nn.LayerNorm(6), (2, 3, 6)),
    "layer norm of two axes": (lambda: nn.LayerNorm((3, 6), eps=0.1, **F64), lambda t: t.nn.LayerNorm((3, 6), eps=0.1), (2, 3, 6)),
    "plain layer norm": (
        lambda: nn.LayerNorm(6, elementwise_affine=False),
        lambda t: t.nn.LayerNorm(6, elementwise_affine=False),
        (2, 6),
    ),
    "rms norm": (lambda: nn.RMSNorm(6, **F64), lambda t: t.nn.RMSNorm(6, eps=1e-5), (2, 3, 6)),
    "relu": (nn.ReLU, lambda t: t.nn.ReLU(), (3, 4)),
    "gelu": (nn.GELU, lambda t: t.nn.GELU(), (3, 4)),
    "gelu tanh": (lambda: nn.GELU("tanh"), lambda t: t.nn.GELU(approximate="tanh"), (3, 4)),
    "silu": (nn.SiLU, lambda t: t.nn.SiLU(), (3, 4)),
    "tanh": (nn.Tanh, lambda t: t.nn.Tanh(), (3, 4)),
    "sigmoid": (nn.Sigmoid, lambda t: t.nn.Sigmoid(), (3, 4)),
    "flatten": (nn.Flatten, lambda t: t.nn.Flatten(), (2, 3, 4)),
    "conv": (
        lambda: nn.Conv2d(4, 6, (3, 2), stride=2, padding=1, groups=2, **F64),
        lambda t: t.nn.Conv2d(4, 6, (3, 2), stride=2, padding=1, groups=2),
        (2, 4, 7, 5),
    ),
    "max pool": (lambda: nn.MaxPool2d(3, 2, 1), lambda t: t.nn.MaxPool2d(3, 2, 1), (2, 3, 7, 6)),
    "sequence": (
        lambda: nn.Sequential(nn.Linear(5, 7, **F64), nn.ReLU(), nn.Linear(7, 2, **F64)),
        lambda t: t.nn.Sequential(t.nn.Linear(5, 7), t.nn.ReLU(), t.nn.Linear(7, 2)),
        (3, 5),
    ),
}


def same(ours: Any, theirs: Any, x: Array, pairs: list[tuple[Any, Any]], **options: Any) -> None:
    """Forward, gradient of the input, gradients of the parameters; pairs: (our parameter, their gradient())."""
    torch = pytest.importorskip("torch")
    a, b = fp.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    y, z = ours(a, **options), theirs(b)
    close(y, z.detach(), what="forward")
    g = draw(*y.shape, seed=9)
    grads = y.backward(fp.tensor(g))
    z.backward(torch.tensor(g))
    close(grads[a], b.grad, what="input")
    for p, gradient in pairs:
        close(grads[p], gradient(), what=p.name)


@pytest.mark.parametrize("name", LAYERS)
def test_layer_equals_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    make, make_theirs, shape = LAYERS[name]
    ours, theirs = make(), make_theirs(torch).double()
    mine, other = dict(ours.named_parameters()), dict(theirs.named_parameters())
    assert list(mine) == list(other)
    ours.load_state_dict({n: p.detach().numpy() + draw(*p.shape) * 0.1 for n, p in other.items()})
    theirs.load_state_dict({n: torch.tensor(v) for n, v in ours.state_dict().items()})
    same(ours, theirs, draw(*shape), [(p, lambda p=other[n]: p.grad) for n, p in mine.items()])


with default_device("plain"):
    WITH_NUMBERS = [n for n, (make, _, _) in LAYERS.items() if make().parameters()]


@pytest.mark.parametrize("name", WITH_NUMBERS)
def test_first_numbers_are_distributed_as_torchs(name: str) -> None:
    torch = pytest.importorskip("torch")
    fp.manual_seed(1)
    torch.manual_seed(1)
    make, make_theirs, _ = LAYERS[name]
    ours = [np.concatenate([make().state_dict()[n].ravel() for _ in range(200)]) for n in make().state_dict()]
    theirs = [torch.cat([make_theirs(torch).state_dict()[n].ravel() for _ in range(200)]) for n in make_theirs(torch).state_dict()]
    for a, b in zip(ours, theirs, strict=True):
        assert abs(a.mean() - b.mean()) <= 0.15 * b.std() and abs(a.std() - b.std()) <= 0.1 * b.std()
        assert abs(a.max() - b.max()) <= 0.1 * abs(b.max())


def test_embedding_equals_torch() -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = nn.Embedding(7, 4, **F64), torch.nn.Embedding(7, 4).double()
    theirs.load_state_dict({"weight": torch.tensor(ours.weight.numpy().copy())})
    ids, g = np.array([[0, 3, 3], [6, 0, 3]]), draw(2, 3, 4)
    y, z = ours(fp.tensor(ids)), theirs(torch.tensor(ids))
    close(y, z.detach())
    z.backward(torch.tensor(g))
    close(y.backward(fp.tensor(g))[ours.weight], theirs.weight.grad)


@pytest.mark.parametrize("is_causal", [False, True])
def test_multi_head_attention_equals_torch(is_causal: bool) -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = nn.MultiHeadAttention(12, 3, **F64), torch.nn.MultiheadAttention(12, 3, batch_first=True).double()
    ours.load_state_dict({n: draw(*p.shape) * 0.3 for n, p in ours.named_parameters()})
    names = {"in_proj_weight": "qkv.weight", "in_proj_bias": "qkv.bias", "out_proj.weight": "proj.weight", "out_proj.bias": "proj.bias"}
    theirs.load_state_dict({t: torch.tensor(ours.state_dict()[n]) for t, n in names.items()})
    other, mask = dict(theirs.named_parameters()), torch.triu(torch.ones(5, 5), 1).bool() if is_causal else None
    pairs = [(ours.params[n], lambda t=t: other[t].grad) for t, n in names.items()]
    same(ours, lambda x: theirs(x, x, x, attn_mask=mask, need_weights=False)[0], draw(2, 5, 12), pairs, is_causal=is_causal)
    theirs.zero_grad()
    three = [draw(2, n, 12, seed=n) for n in (5, 4, 4)]
    y = ours(*map(fp.tensor, three))
    z = theirs(*map(torch.tensor, three), need_weights=False)[0]
    close(y, z.detach())
    z.sum().backward()
    grads = y.sum().backward()
    for p, gradient in pairs:
        close(grads[p], gradient(), what=p.name)


def test_transformer_block_equals_torch() -> None:
    torch = pytest.importorskip("torch")
    ours = nn.TransformerBlock(8, 2, causal=True, **F64)
    theirs = torch.nn.TransformerEncoderLayer(8, 2, 32, 0.0, "gelu", batch_first=True, norm_first=True).double()
    ours.load_state_dict({n: draw(*p.shape) * 0.3 for n, p in ours.named_parameters()})
    moved = {"attn.qkv.": "self_attn.in_proj_", "attn.proj": "self_attn.out_proj", "mlp.0": "linear1", "mlp.2": "linear2"}
    names = {n: n for n in ours.state_dict()}
    for a, b in moved.items():
        names = {n: t.replace(a, b) for n, t in names.items()}
    theirs.load_state_dict({t: torch.tensor(ours.state_dict()[n]) for n, t in names.items()})
    other, mask = dict(theirs.named_parameters()), torch.triu(torch.ones(5, 5), 1).bool()
    pairs = [(ours.params[n], lambda t=t: other[t].grad) for n, t in names.items()]
    same(ours, lambda x: theirs(x, mask), draw(2, 5, 8), pairs)


# ---- against NumPy ---------------------------------------------------------------------------------------------------------------
def test_layers_equal_numpy() -> None:
    x = draw(2, 3, 6)
    a = fp.tensor(x)
    linear, norm, rms = nn.Linear(6, 4, **F64), nn.LayerNorm(6, **F64), nn.RMSNorm(6, **F64)
    close(linear(a), x @ linear.weight.numpy().T + linear.bias.numpy())
    centred = x - x.mean(-1, keepdims=True)
    close(norm(a), centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5))
    close(rms(a), x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5))
    close(nn.ReLU()(a), np.maximum(x, 0))
    close(nn.SiLU()(a), x / (1 + np.exp(-x)))
    close(nn.GELU()(a), 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))))
    embedding = nn.Embedding(5, 3)
    close(embedding(fp.tensor(np.array([4, 0]))), embedding.weight.numpy()[[4, 0]])


@pytest.mark.parametrize("is_causal", [False, True])
def test_attention_equals_numpy_and_all_paths_agree(is_causal: bool) -> None:
    m = nn.MultiHeadAttention(6, 2, **F64)
    m.load_state_dict({n: draw(*p.shape) for n, p in m.named_parameters()})
    x = draw(4, 6)
    q, k, v = np.split(x @ m.qkv.weight.numpy().T + m.qkv.bias.numpy(), 3, -1)
    heads = []
    for h in (slice(0, 3), slice(3, 6)):
        scores = q[:, h] @ k[:, h].T / math.sqrt(3)
        scores = np.where(np.tri(4) > 0, scores, -np.inf) if is_causal else scores
        p = np.exp(scores - scores.max(-1, keepdims=True))
        heads.append(p / p.sum(-1, keepdims=True) @ v[:, h])
    want = np.concatenate(heads, -1) @ m.proj.weight.numpy().T + m.proj.bias.numpy()
    a = fp.tensor(x)
    close(m(a, is_causal=is_causal), want)
    close(m(a, a, a, is_causal=is_causal), want)
    close(m(a.reshape(1, 1, 4, 6), is_causal=is_causal).reshape(4, 6), want)
    if is_causal:
        close(m(a, attn_mask=np.tri(4) > 0), want)
