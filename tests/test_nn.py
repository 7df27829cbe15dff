"""Layers as objects: names, state, modes, errors, initialisers. What they compute is in test_nn_layers.py.

Two gates at the end: a small transformer must memorise one sequence with every parameter moving, and an MLP must lose 98 %
of its loss.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flamepy as fp
import flamepy.nn.functional as F
from flamepy import nn
from flamepy.core.op import HOMES

pytestmark = pytest.mark.usefixtures("device")

Array = np.ndarray


def draw(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng((seed, *shape)).standard_normal(shape)


def close(got: Any, want: Any, tolerance: float = 1e-9, what: str = "") -> None:
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), tolerance, tolerance, err_msg=what)


# ---- names and state ----------------------------------------------------------------------------------------------------------------
class Tied(nn.Module):
    """A parameter of its own, a list of blocks, an output layer that shares the embedding's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.position = fp.Parameter.randn((6, 8))
        self.blocks = nn.ModuleList(nn.TransformerBlock(8, 2, causal=True) for _ in range(2))
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: Any) -> Any:
        x = self.embed(ids) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(x)


LAYERS = ("norm1", "attn.qkv", "attn.proj", "norm2", "mlp.0", "mlp.2")
BLOCK = [f"{layer}.{kind}" for layer in LAYERS for kind in ("weight", "bias")]


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
    with pytest.raises(fp.ShapeError, match=r"'1\.weight'"):
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
    m, x = nn.TransformerBlock(8, 2, causal=False, dropout=0.5), fp.randn(3, 8)
    assert not np.array_equal(m(x).numpy(), m(x).numpy())
    m.eval()
    assert np.array_equal(m(x).numpy(), m(x).numpy())


def test_a_causal_layer_sees_no_later_row() -> None:
    """Told in the constructor, and overridden in the call; a block must be told."""
    with pytest.raises(TypeError, match="causal"):
        nn.TransformerBlock(8, 2)  # type: ignore[call-arg]
    x = fp.randn(1, 5, 8)
    changed = fp.cat([x[:, :4], fp.randn(1, 1, 8)], axis=1)
    assert nn.MultiHeadAttention(8, 2).causal is False
    for make in (nn.MultiHeadAttention, nn.TransformerBlock):
        for causal in (True, False):
            m = make(8, 2, causal=causal)
            alike = [
                np.array_equal(m(x, **how)[:, :4].numpy(), m(changed, **how)[:, :4].numpy()) for how in ({}, {"is_causal": not causal})
            ]
            assert alike == [causal, not causal]
            assert f"causal={causal}" in repr(m)
    for wrong in (1, "no", None):
        with pytest.raises(fp.DTypeError, match="causal is neither True nor False"):
            nn.TransformerBlock(8, 2, causal=wrong)
    with pytest.raises(ValueError, match="a mask for a causal layer"):
        nn.TransformerBlock(8, 2, causal=True)(x, attn_mask=fp.zeros(5, 5))


def test_a_changed_choice_is_seen_by_a_captured_step() -> None:
    m, x = nn.TransformerBlock(8, 2, causal=True), fp.randn(1, 5, 8)
    step = fp.capture(lambda x: m(x).sum())
    for causal in (True, True, True, False, False, False):
        m.attn.causal = causal
        assert step(x).item() == m(x).sum().item()


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
    (fp.IndexOutOfRange, "embedding: .*3", lambda: nn.Embedding(3, 2)(fp.tensor(np.array([0, 3]))).numpy()),
    (fp.ShapeError, r"layer_norm: sizes differ: x is \(2, 3\)", lambda: nn.LayerNorm(4)(fp.ones(2, 3))),
    (fp.ShapeError, "width is not a multiple of heads: width 8, heads 3", lambda: nn.MultiHeadAttention(8, 3)),
    (fp.ShapeError, r"q does not end in \(rows, width\): \(2, 6\), width 8", lambda: nn.MultiHeadAttention(8, 2)(fp.ones(2, 6))),
    (fp.ShapeError, "only one of k and v", lambda: nn.MultiHeadAttention(8, 2)(fp.ones(2, 8), fp.ones(2, 8))),
    (fp.ShapeError, "groups 3", lambda: nn.Conv2d(4, 6, 3, groups=3)),
    (fp.ShapeError, "kernel_size is not an int or a pair", lambda: nn.MaxPool2d((1, 2, 3))),
    (ValueError, r"Dropout: p outside \[0, 1\]: 1.5", lambda: nn.Dropout(1.5)),
    (ValueError, "GELU: unknown approximation: 'fast'", lambda: nn.GELU("fast")),
    (TypeError, "Sequential: not a Module: function", lambda: nn.Sequential(nn.Linear(1, 1), F.relu)),
    (fp.IndexOutOfRange, "Embedding: padding_idx is no row: 3", lambda: nn.Embedding(3, 2, padding_idx=3)),
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
        assert hasattr(F, name) == (home != "flamepy" or name == "pad"), name  # F.pad is PyTorch's, flamepy.pad NumPy's


# ---- initialisers --------------------------------------------------------------------------------------------------------------------
INITS: list[tuple[Callable, float, float]] = [  # function, deviation, bound (0: none) for a (300, 200) weight
    (lambda p: nn.init.normal(p, 0.0, 0.3), 0.3, 0.0),
    (lambda p: nn.init.uniform(p, -2.0, 2.0), 4 / math.sqrt(12), 2.0),
    (lambda p: nn.init.uniform_(p, a=-2.0, b=2.0), 4 / math.sqrt(12), 2.0),
    (lambda p: nn.init.kaiming_normal_(p, nonlinearity="relu"), math.sqrt(2 / 200), 0.0),
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
    theirs = "constant_ dirac_ eye_ kaiming_normal_ kaiming_uniform_ normal_ ones_ orthogonal_ sparse_ trunc_normal_ uniform_ zeros_"
    for name in (*theirs.split(), "xavier_normal_", "xavier_uniform_"):
        own, other = [inspect.signature(getattr(nn.init, n)) for n in (name[:-1], name)]
        assert len(own.parameters) == len(other.parameters) and (nn.init.constant_(p, val=1.5).numpy() == 1.5).all()
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


def test_every_forward_says_what_shapes_it_takes_and_gives() -> None:
    layers = [m for m in vars(nn).values() if isinstance(m, type) and issubclass(m, nn.Module) and m not in (nn.ModuleList, nn.ModuleDict)]
    assert len(layers) > 12
    for layer in layers:
        text = layer.forward.__doc__
        assert text and (layer is nn.Module or "->" in text), layer
