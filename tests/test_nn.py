"""Layers: against torch.nn with the same weights, against NumPy, and as objects (names, state, modes, errors).

Two gates at the end: a small transformer must memorise one sequence with every parameter moving, and an MLP must lose 98 %
of its loss.

May import: flamepy, NumPy, PyTorch if it is there. FLAME counterpart: none. Read next: test_attention_conv.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flamepy as fp
import flamepy.nn.functional as F
from flamepy import nn
from flamepy.op import HOMES

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


@pytest.mark.parametrize("name", [n for n, (make, _, _) in LAYERS.items() if make().parameters()])
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
    ours = nn.TransformerBlock(8, 2, **F64)
    theirs = torch.nn.TransformerEncoderLayer(8, 2, 32, 0.0, "gelu", batch_first=True, norm_first=True).double()
    ours.load_state_dict({n: draw(*p.shape) * 0.3 for n, p in ours.named_parameters()})
    moved = {"attn.qkv.": "self_attn.in_proj_", "attn.proj": "self_attn.out_proj", "mlp.0": "linear1", "mlp.2": "linear2"}
    names = {n: n for n in ours.state_dict()}
    for a, b in moved.items():
        names = {n: t.replace(a, b) for n, t in names.items()}
    theirs.load_state_dict({t: torch.tensor(ours.state_dict()[n]) for n, t in names.items()})
    other, mask = dict(theirs.named_parameters()), torch.triu(torch.ones(5, 5), 1).bool()
    pairs = [(ours.params[n], lambda t=t: other[t].grad) for n, t in names.items()]
    same(ours, lambda x: theirs(x, mask), draw(2, 5, 8), pairs, is_causal=True)


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


# ---- names and state ----------------------------------------------------------------------------------------------------------------
class Tied(nn.Module):
    """A parameter of its own, a list of blocks, an output layer that shares the embedding's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.position = fp.Parameter.randn((6, 8))
        self.blocks = nn.ModuleList(nn.TransformerBlock(8, 2) for _ in range(2))
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: Any) -> Any:
        x = self.embed(ids) + self.position
        for block in self.blocks:
            x = block(x, is_causal=True)
        return self.head(x)


BLOCK = "norm1.weight norm1.bias attn.qkv.weight attn.qkv.bias attn.proj.weight attn.proj.bias norm2.weight norm2.bias".split()
BLOCK += "mlp.0.weight mlp.0.bias mlp.2.weight mlp.2.bias".split()


def test_names() -> None:
    m = Tied()
    names = [n for n, _ in m.named_parameters()]
    assert names == ["position", "embed.weight", *[f"blocks.{i}.{n}" for i in (0, 1) for n in BLOCK]]
    assert [p.name for p in m.parameters()] == names == list(m.params) == list(m.state_dict())
    assert m.params is m.params and isinstance(m.params, fp.ParameterDict)
    assert [n for n, _ in m.named_modules()][:4] == ["", "embed", "blocks", "blocks.0"]
    assert len(m.modules()) == len({id(x) for x in m.modules()}) == 26
    assert m.blocks[0].params["attn.qkv.weight"].name == "blocks.0.attn.qkv.weight"  # the longer path stays
    assert [n for n, _ in m.blocks[1].named_parameters()] == BLOCK


def test_params_follow_assignment() -> None:
    m = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    before = m.params
    m.append(nn.Linear(3, 1))
    assert m.params is not before and list(m.params) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    m[0].bias = None
    assert list(m.params) == ["0.weight", "2.weight", "2.bias"]
    m[0].weight = fp.Parameter.zeros((3, 2))
    assert m.params["0.weight"] is m[0].weight
    del m[0].weight
    assert list(m.params) == ["2.weight", "2.bias"]


def test_shared_modules_are_listed_once() -> None:
    layer = nn.Linear(3, 3)
    m = nn.Sequential(layer, nn.Tanh(), layer)
    assert list(m.params) == ["0.weight", "0.bias"] and len(m) == 3
    x = fp.randn(2, 3)
    assert np.array_equal(m(x).numpy(), layer(layer(x).tanh()).numpy())


def test_lists_of_modules() -> None:
    m = nn.ModuleList([nn.Linear(2, 2) for _ in range(12)])
    assert len(m) == 12 and m[-1] is list(m)[11] and list(m.params)[-1] == "11.bias"
    with pytest.raises(NotImplementedError, match="ModuleList: no forward"):
        m(fp.ones(2))


@pytest.mark.parametrize("packed", [False, True])
def test_state_round_trip(packed: bool) -> None:
    a, b = Tied(), Tied()
    if packed:
        a.params.pack()
        b.params.pack()
    ids = fp.tensor(np.arange(6))
    ids_before = [p.id for p in b.parameters()]
    assert not np.array_equal(a(ids).numpy(), b(ids).numpy())
    b.load_state_dict(a.state_dict())
    assert a(ids).numpy().tobytes() == b(ids).numpy().tobytes()
    assert b.head.weight is b.embed.weight and [p.id for p in b.parameters()] == ids_before
    state = a.state_dict()
    state["position"][:] = 0  # a copy: the model keeps its numbers
    assert a.position.numpy().any()


def test_state_that_does_not_fit_changes_nothing() -> None:
    m = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    before = m.state_dict()
    missing = {n: v + 1 for n, v in before.items() if n != "1.bias"}
    with pytest.raises(fp.StateError, match=r"missing \['1.bias'\]"):
        m.load_state_dict(missing)
    with pytest.raises(fp.StateError, match=r"unknown \['2.bias'\]"):
        m.load_state_dict({**before, "2.bias": np.zeros(1)})
    with pytest.raises(fp.ShapeError, match="'1.weight'"):
        m.load_state_dict({**{n: v + 1 for n, v in before.items()}, "1.weight": np.zeros((3, 1))})
    for n, v in m.state_dict().items():
        assert v.tobytes() == before[n].tobytes()
    m.load_state_dict(missing, strict=False)
    assert np.array_equal(m[0].bias.numpy(), before["0.bias"] + 1) and np.array_equal(m[1].bias.numpy(), before["1.bias"])


def test_tied_parameter_gets_both_gradients() -> None:
    m = Tied()
    ids = fp.tensor(np.arange(6))
    grads = m(ids).square().mean().backward()
    assert len(grads) == len(m.parameters())
    untied = Tied()
    untied.head.weight = fp.Parameter(untied.embed.weight)
    untied.load_state_dict({**m.state_dict(), "head.weight": m.embed.weight.numpy()})
    apart = untied(ids).square().mean().backward()
    close(grads[m.embed.weight], apart[untied.embed.weight].numpy() + apart[untied.head.weight].numpy(), 1e-4)


# ---- modes and gradients -------------------------------------------------------------------------------------------------------------
def test_dropout_in_both_modes() -> None:
    m = nn.Sequential(nn.Dropout(0.25), nn.Sequential(nn.Dropout(0.0)))
    x = fp.ones((200, 50), requires_grad=True)
    assert m.eval() is m and not any(s.training for s in m.modules())
    assert m(x) is x
    assert m.train() is m and all(s.training for s in m.modules())
    fp.manual_seed(3)
    y = m(x)
    assert set(np.unique(y.numpy())) == {np.float32(0), np.float32(4 / 3)}
    assert abs((y.numpy() == 0).mean() - 0.25) < 0.02
    assert np.array_equal(y.sum().backward()[x].numpy(), y.numpy())
    fp.manual_seed(3)
    assert np.array_equal(m(x).numpy(), y.numpy()) and not np.array_equal(m(x).numpy(), y.numpy())


def test_block_dropout() -> None:
    m, x = nn.TransformerBlock(8, 2, dropout=0.5), fp.randn(3, 8)
    assert not np.array_equal(m(x).numpy(), m(x).numpy())
    m.eval()
    assert np.array_equal(m(x).numpy(), m(x).numpy())


def test_zero_grad() -> None:
    m = nn.Linear(2, 3)
    m.params.set_grads(m(fp.ones(2)).sum().backward())
    assert m.weight.grad is not None
    m.zero_grad()
    assert m.weight.grad is None and m.bias.grad is None


def test_frozen_parameters_get_no_gradient() -> None:
    m = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    assert m.params.freeze("0.*") == ["0.weight", "0.bias"]
    grads = m(fp.ones(4, 2)).sum().backward()
    assert set(grads.to_dict(m.params)) == {"1.weight", "1.bias"}


# ---- text ------------------------------------------------------------------------------------------------------------------------------
ERRORS: list[tuple[type[Exception], str, Callable]] = [
    (fp.ShapeError, r"linear: sizes differ: x is \(4, 3\), weight is \(2, 5\)", lambda: nn.Linear(5, 2)(fp.ones(4, 3))),
    (fp.ShapeError, "Linear: in_features is not a size: -1", lambda: nn.Linear(-1, 2)),
    (fp.ShapeError, "Embedding: embedding_dim is not a size: 2.5", lambda: nn.Embedding(3, 2.5)),
    (fp.IndexOutOfRange, "embedding: .*3", lambda: nn.Embedding(3, 2)(fp.tensor(np.array([0, 3])))),
    (fp.ShapeError, r"layer_norm: sizes differ: x is \(2, 3\)", lambda: nn.LayerNorm(4)(fp.ones(2, 3))),
    (fp.ShapeError, "width is not a multiple of heads: width 8, heads 3", lambda: nn.MultiHeadAttention(8, 3)),
    (fp.ShapeError, r"q does not end in \(rows, width\): \(2, 6\), width 8", lambda: nn.MultiHeadAttention(8, 2)(fp.ones(2, 6))),
    (fp.ShapeError, "only one of k and v", lambda: nn.MultiHeadAttention(8, 2)(fp.ones(2, 8), fp.ones(2, 8))),
    (fp.ShapeError, "groups 3", lambda: nn.Conv2d(4, 6, 3, groups=3)),
    (fp.ShapeError, "kernel_size is not a pair", lambda: nn.MaxPool2d((1, 2, 3))),
    (ValueError, r"Dropout: p outside \[0, 1\]: 1.5", lambda: nn.Dropout(1.5)),
    (ValueError, "GELU: unknown approximation: 'fast'", lambda: nn.GELU("fast")),
    (TypeError, "Sequential: not a Module: Pointwise", lambda: nn.Sequential(nn.Linear(1, 1), F.relu)),
    (TypeError, "padding_idx", lambda: nn.Embedding(3, 2, padding_idx=0)),
    (fp.StateError, "Use ModuleList", lambda: setattr(nn.Module(), "layers", [nn.ReLU()])),
    (fp.StateError, "Use ModuleList", lambda: setattr(nn.Module(), "layers", {"a": fp.Parameter.zeros(2)})),
    (fp.ShapeError, "fan_in and fan_out need two axes", lambda: nn.init.xavier_normal(fp.Parameter.zeros(3))),
    (ValueError, "unknown nonlinearity: 'mish'", lambda: nn.init.kaiming_normal(fp.Parameter.zeros((2, 2)), nonlinearity="mish")),
]


@pytest.mark.parametrize("kind, text, call", ERRORS, ids=[text[:40] for _, text, _ in ERRORS])
def test_errors(kind: type[Exception], text: str, call: Callable) -> None:
    with pytest.raises(kind, match=text):
        call()


def test_repr_is_a_tree() -> None:
    m = nn.Sequential(nn.Linear(2, 3, bias=False), nn.Sequential(nn.GELU()))
    assert repr(m) == (
        "Sequential(\n  (0): Linear(in_features=2, out_features=3, bias=False)\n"
        "  (1): Sequential(\n    (0): GELU(approximate='none')\n  )\n)"
    )
    assert repr(nn.Conv2d(1, 2, 3)).startswith("Conv2d(1, 2, kernel_size=(3, 3)") and repr(nn.LayerNorm(4)) == "LayerNorm((4,), eps=1e-05)"


def test_functional_has_what_says_so() -> None:
    for name, home in HOMES.items():
        assert hasattr(F, name) == (home != "flamepy"), name


# ---- initialisers --------------------------------------------------------------------------------------------------------------------
INITS: list[tuple[Callable, float, float]] = [  # function, deviation, bound (0: none) for a (300, 200) weight
    (lambda p: nn.init.normal(p, 0.0, 0.3), 0.3, 0.0),
    (lambda p: nn.init.uniform(p, -2.0, 2.0), 4 / math.sqrt(12), 2.0),
    (nn.init.xavier_normal, math.sqrt(2 / 500), 0.0),
    (nn.init.xavier_uniform, math.sqrt(2 / 500), math.sqrt(6 / 500)),
    (lambda p: nn.init.kaiming_normal(p, nonlinearity="relu"), math.sqrt(2 / 200), 0.0),
    (lambda p: nn.init.kaiming_normal(p, mode="fan_out"), math.sqrt(2 / 300), 0.0),
    (lambda p: nn.init.kaiming_uniform(p, a=math.sqrt(5)), math.sqrt(1 / 600), math.sqrt(1 / 200)),
]


@pytest.mark.parametrize("fill, deviation, bound", INITS)
def test_random_initialisers(fill: Callable, deviation: float, bound: float) -> None:
    fp.manual_seed(0)
    p = fp.Parameter.zeros((300, 200), dtype=fp.float64)
    identity, version = p.id, p.buffer.version
    assert fill(p) is p and p.id == identity and p.buffer.version > version
    x = p.numpy()
    assert abs(x.std() / deviation - 1) < 0.01 and abs(x.mean()) < 0.02 * deviation
    if bound:
        assert 0.99 * bound < np.abs(x).max() <= bound


def test_plain_initialisers() -> None:
    p = fp.Parameter.randn((3, 4))
    assert (nn.init.zeros(p).numpy() == 0).all() and (nn.init.ones(p).numpy() == 1).all()
    assert (nn.init.constant(p, 2.5).numpy() == 2.5).all()
    for shape in [(3, 8), (8, 3), (4, 2, 2)]:
        x = nn.init.orthogonal(fp.Parameter.zeros(shape, dtype=fp.float64), gain=2.0).numpy().reshape(shape[0], -1)
        x = x if x.shape[0] <= x.shape[1] else x.T
        close(x @ x.T, 4 * np.eye(len(x)), 1e-6)
    first = nn.init.normal(p).numpy().copy()
    assert not np.array_equal(first, nn.init.normal(p).numpy())


# ---- gates ---------------------------------------------------------------------------------------------------------------------------
def test_z1_a_transformer_memorises_one_sequence() -> None:
    fp.manual_seed(0)
    m = Tied()
    sequence = np.array([3, 1, 4, 1, 5, 9, 2])
    x, y = fp.tensor(sequence[:-1]), fp.tensor(sequence[1:])
    before, seen = m.state_dict(), set()
    optimizer = fp.AdamW(m, lr=0.01)
    for _ in range(120):
        loss = F.cross_entropy(m(x), y)
        grads = loss.backward()
        for name, g in grads.to_dict(m.params).items():
            assert np.isfinite(g.numpy()).all(), name
            if g.numpy().any():
                seen.add(name)
        optimizer.step(grads)
    assert F.cross_entropy(m(x), y).item() < 0.02
    assert m(x).numpy().argmax(-1).tolist() == sequence[1:].tolist()
    assert seen == set(m.params)
    for name, value in m.state_dict().items():
        assert not np.array_equal(value, before[name]), name


def test_z2_an_mlp_loses_its_loss() -> None:
    fp.manual_seed(0)
    x = fp.randn(64, 4)
    y = fp.tensor(np.sin(x.numpy().sum(1, keepdims=True)))
    m = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = fp.Adam(m, lr=0.02)
    first = F.mse_loss(m(x), y).item()
    for _ in range(300):
        optimizer.step(F.mse_loss(m(x), y).backward())
    assert F.mse_loss(m(x), y).item() < 0.02 * first
