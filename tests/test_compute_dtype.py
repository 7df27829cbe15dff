"""A model's compute dtype: products from 16-bit operands, everything that is kept in float32.

Oracles: PyTorch's autocast for values and gradients, the same in float64 for how far off one may be; NumPy in float64 with rounded operands
for what a layer gives.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flamepy as fp
import flamepy.nn.functional as F
from flamepy import nn

HALVES = ["float16", "bfloat16"]
EPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7}


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# ---- values and gradients: PyTorch's autocast ------------------------------------------------------------------------------------
def torch_block(torch: Any, width: int, heads: int) -> Any:
    class Block(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
            self.qkv, self.proj = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
            self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            q, k, v = (t.unflatten(-1, (heads, -1)).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
            y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(y.transpose(1, 2).flatten(2))
            return x + self.down(torch.nn.functional.gelu(self.up(self.norm2(x))))

    return Block()


BLOCK = ["norm1", "attn.qkv", "attn.proj", "norm2", "mlp.0", "mlp.2"], ["norm1", "qkv", "proj", "norm2", "up", "down"]
ModelPair = tuple[Callable[[], nn.Module], Callable[[Any], Any], tuple[int, ...], str]
MODELS: dict[str, ModelPair] = {
    "linear": (lambda: nn.Sequential(nn.Linear(24, 40)), lambda t: t.nn.Sequential(t.nn.Linear(24, 40)), (16, 24), "half"),
    "mlp": (
        lambda: nn.Sequential(nn.Linear(24, 48), nn.GELU(), nn.Linear(48, 32), nn.ReLU(), nn.LayerNorm(32), nn.Linear(32, 8)),
        lambda t: t.nn.Sequential(
            t.nn.Linear(24, 48), t.nn.GELU(), t.nn.Linear(48, 32), t.nn.ReLU(), t.nn.LayerNorm(32), t.nn.Linear(32, 8)
        ),
        (16, 24),
        "half",
    ),
    "cnn": (
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 8)),
        lambda t: t.nn.Sequential(
            t.nn.Conv2d(3, 8, 3, padding=1), t.nn.ReLU(), t.nn.MaxPool2d(2), t.nn.Flatten(), t.nn.Linear(128, 8)
        ),
        (4, 3, 8, 8),
        "half",
    ),
    "block": (lambda: nn.TransformerBlock(32, 4, causal=True), lambda t: torch_block(t, 32, 4), (2, 12, 32), "float32"),
}  # fmt: skip


def torch_results(torch: Any, theirs: Any, ours: nn.Module, x: np.ndarray, g: np.ndarray, dtype: Any) -> list[np.ndarray]:
    """Result and gradients of PyTorch's model with our numbers: under autocast of that dtype, in float64 where it is None."""
    state = {name: torch.tensor(value) for name, value in ours.state_dict().items()}
    for mine, other in zip(*BLOCK, strict=True):
        state |= {f"{other}.{k}": state.pop(f"{mine}.{k}") for k in ("weight", "bias") if f"{mine}.{k}" in state and mine != other}
    theirs.load_state_dict(state)
    theirs = theirs.double() if dtype is None else theirs.float()
    xt = torch.tensor(x, dtype=torch.float64 if dtype is None else torch.float32, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype is not None):
        y = theirs(xt)
    y.backward(torch.tensor(g).to(y.dtype))
    order = [name for name, _ in ours.named_parameters()]
    renamed = dict(zip(*BLOCK, strict=True))
    names = [f"{renamed.get(n.rpartition('.')[0], n.rpartition('.')[0])}.{n.rpartition('.')[2]}" for n in order]
    found = dict(theirs.named_parameters())
    return [t.detach().double().numpy() for t in (y, xt.grad, *[found[n].grad for n in names])]


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("name", MODELS)
def test_values_and_gradients_are_those_of_autocast(name: str) -> None:
    """No further off than twice PyTorch under autocast, or two places of bfloat16; as it is, recorded, and as recorded the same bits."""
    torch = pytest.importorskip("torch")
    make, other, shape, gives = MODELS[name]
    fp.manual_seed(3)
    model = make()
    model.compute_dtype = fp.bfloat16
    x = fp.tensor(draw(*shape)).requires_grad_()
    results = []
    for _ in range(3):
        y = model(x)
        assert str(y.dtype) == ("bfloat16" if gives == "half" else "float32")
        g = fp.tensor(draw(*y.shape, seed=9)).to(fp.bfloat16).to(fp.float32).numpy()
        grads = y.backward(gradient=g)
        found = [grads[t] for t in (x, *model.parameters())]
        assert all(t.dtype == fp.float32 for t in found)
        results.append([y.to(fp.float32).numpy(), *[t.numpy() for t in found]])
    assert all(a.tobytes() == b.tobytes() for again in results[1:] for a, b in zip(results[0], again, strict=True))
    exact, cast = (torch_results(torch, other(torch), model, x.numpy(), g, dtype) for dtype in (None, torch.bfloat16))
    for mine, e, theirs in zip(results[0], exact, cast, strict=True):
        assert np.abs(mine - e).max() <= 2 * max(np.abs(theirs - e).max(), EPS["bfloat16"] * np.abs(e).max())
    assert np.abs(results[0][0] - exact[0]).max() > 1e-4 * np.abs(exact[0]).max()  # it did round


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("dtype", HALVES)
def test_operands_are_rounded_once_and_sums_are_float32(dtype: str) -> None:
    """A product of 16-bit numbers is exact in float32: with few of them so is the sum, and a residual of float32 loses no bit."""
    layer = nn.Linear(4, 3)
    layer.compute_dtype = getattr(fp, dtype)
    x, s = fp.tensor(draw(5, 4)).requires_grad_(), fp.tensor(draw(5, 3, seed=1)).requires_grad_()
    halves = [fp.tensor(t.numpy()).to(dtype).to(fp.float64).numpy() for t in (x, layer.weight, layer.bias)]
    # bfloat16's kernels add the bias as it is to sums of float32, those of float32 get what float16 leaves of it.
    exact = halves[0] @ halves[1].T + (layer.bias.numpy().astype(np.float64) if dtype == "bfloat16" else halves[2])
    y, added = layer(x), layer.add_to(s, x)
    assert str(y.dtype) == dtype and added.dtype == fp.float32
    np.testing.assert_array_equal(y.numpy(), fp.tensor(exact.astype(np.float32)).to(dtype).numpy())
    np.testing.assert_allclose(added.numpy(), exact + s.numpy(), 1e-6, 1e-6)
    g = draw(5, 3, seed=2)
    grads = added.backward(gradient=g)
    np.testing.assert_array_equal(grads[s].numpy(), g)
    # The gradient of a product is an operand too: bfloat16's kernels round it, once for both products. float16's are float32's.
    bound = (EPS[dtype] if dtype == "bfloat16" else 1e-6) * np.abs(g)
    g = g.astype(np.float64)
    assert (np.abs(grads[layer.weight].numpy() - g.T @ halves[0]) <= 1e-6 + bound.T @ np.abs(halves[0])).all()
    assert (np.abs(grads[x].numpy() - g @ halves[1]) <= 1e-6 + bound @ np.abs(halves[1])).all()


@pytest.mark.usefixtures("device")
def test_a_block_keeps_its_activations_in_16_bits_and_its_stream_in_32() -> None:
    block = nn.TransformerBlock(16, 2, causal=True)
    block.compute_dtype = fp.bfloat16
    x = fp.tensor(draw(2, 8, 16)).requires_grad_()
    y = block(x)
    entries = [e for e in fp.tape(y) if e.op.title != "cast"]
    assert [e.op.title for e in entries] == [
        "residual_layer_norm", "linear", "scaled_dot_product_attention", "linear", "residual_layer_norm", "linear", "linear",
    ]  # fmt: skip
    kinds = [{name: str(v.dtype) for name, v in e.saved.items() if v is not None and hasattr(v, "dtype")} for e in entries]
    linears = [(e, kind) for e, kind in zip(entries, kinds, strict=True) if e.op.title == "linear"]
    assert all(kind == "bfloat16" for _, saved in linears for name, kind in saved.items() if name not in ("weight", "bias"))
    own = {id(p.buffer) for p in block.parameters()}  # no rounded copies of weights: what is saved is the parameter
    assert all(id(e.saved[name]) in own for e, _ in linears for name in ("weight", "bias"))
    assert kinds[2] == {"y": "bfloat16", "kept": "float32", "qkv": "bfloat16"}
    norm = {"xn": "bfloat16", "mean": "float32", "rstd": "float32", "weight": "float32", "bias": "float32"}
    assert kinds[0] == kinds[4] == norm and y.dtype == fp.float32
    assert [str(e.call.outs[0].dtype) for e in entries[::4]] == ["float32"] * 2  # the stream, of which nothing is kept
    assert [str(e.call.outs[-1].dtype) for e in entries] == [
        "bfloat16",
        "bfloat16",
        "bfloat16",
        "float32",
        "bfloat16",
        "bfloat16",
        "float32",
    ]


@pytest.mark.usefixtures("device")
def test_arrays_and_lists_are_rounded_as_tensors_are() -> None:
    """What a step is called with: a captured one makes tensors of arrays, and both give the same."""
    low_rank = nn.Sequential(nn.Linear(6, 6))
    nn.lora(low_rank, "*", rank=2)
    low_rank[0].B.set_data(draw(6, 2))
    shapes: list[tuple[nn.Module, tuple[int, ...], int]] = [
        *[(m, (3, 6), 1) for m in (nn.Linear(6, 4), nn.Sequential(nn.Linear(6, 4), nn.GELU()), low_rank, nn.RMSNorm(6))],
        *[(nn.Conv2d(2, 3, 3), (1, 2, 5, 5), 1), (nn.MultiHeadAttention(6, 2, causal=False), (4, 6), 3)],
    ]
    for model, shape, count in shapes:
        model.compute_dtype = fp.bfloat16
        for dtype in ("f4", "i8") if isinstance(model, nn.RMSNorm) else ("f4", "f8", "i8"):
            arrays = [(3 * draw(*shape, seed=n)).astype(dtype) for n in range(count)]
            want = model(*[fp.tensor(a) for a in arrays])
            assert want.dtype == fp.bfloat16
            for form in (arrays, [a.tolist() for a in arrays])[: 2 if count == 1 else 1]:
                got = model(*form)
                assert got.dtype == fp.bfloat16 and got.numpy().tobytes() == want.numpy().tobytes()
    elsewhere = nn.Linear(6, 4, device="plain")
    elsewhere.compute_dtype = fp.bfloat16
    assert str(elsewhere(draw(3, 6)).device) == "plain"


@pytest.mark.usefixtures("device")
def test_layers_that_are_not_products_follow_their_inputs() -> None:
    model = nn.Sequential(nn.Embedding(8, 16), nn.Linear(16, 16), nn.Dropout(0.5), nn.ReLU(), nn.RMSNorm(16))
    model.compute_dtype = fp.float16
    x, kinds = fp.tensor(np.arange(8)), []
    for layer in model:
        x = layer(x)
        kinds.append(str(x.dtype))
    assert kinds == ["float32", "float16", "float16", "float16", "float16"]
    wide = nn.RMSNorm(16)
    wide.load_state_dict(model[4].state_dict())
    z = fp.tensor(draw(8, 16))
    np.testing.assert_array_equal(model[4](z).numpy(), wide(z).to(fp.float16).numpy())


# ---- the attribute ------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("value", ["float64", "int64", "half precision", 16, np.zeros(2, np.float16), True])
def test_other_values_are_refused(value: Any) -> None:
    model = nn.Linear(2, 2)
    with pytest.raises(fp.DTypeError, match=r"Linear: not a compute dtype: .* Use flamepy.bfloat16, flamepy.float16, or None"):
        model.compute_dtype = value
    assert model.compute_dtype is None


def test_it_is_set_for_everything_inside_and_for_what_comes_later() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ModuleList([nn.Linear(2, 2)]))
    assert [m.compute_dtype for m in model.modules()] == [None] * 4
    model.compute_dtype = "bfloat16"
    model.append(nn.Sequential(nn.ReLU()))
    model[1].append(nn.Linear(2, 2))
    assert [m.compute_dtype for m in model.modules()] == [fp.bfloat16] * 7
    model[0].compute_dtype = None  # a part may differ
    assert model[0].compute_dtype is None and model.compute_dtype == fp.bfloat16
    assert repr(model[1][0]) == "Linear(in_features=2, out_features=2, bias=True, compute_dtype=bfloat16)"
    assert repr(model[0]) == "Linear(in_features=2, out_features=2, bias=True)"
    model.compute_dtype = None
    assert not any("compute_dtype" in vars(m) for m in model.modules())
    model.compute_dtype = "bfloat16"
    del model.compute_dtype
    assert [m.compute_dtype for m in model.modules()] == [None] * 7


def test_summary_says_it(capsys: pytest.CaptureFixture[str]) -> None:
    model = nn.Linear(2, 2)
    model.summary()
    model.compute_dtype = fp.float16
    model.summary()
    before, after = capsys.readouterr().out.splitlines()[3::4]
    assert after == before + ", products computed from float16"


def test_copies_and_pickles_have_it_and_state_dicts_do_not() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3))
    names, x = list(model.state_dict()), fp.tensor(draw(2, 3))
    model.compute_dtype = fp.bfloat16
    assert list(model.state_dict()) == names and all(v.dtype == np.float32 for v in model.state_dict().values())
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert [m.compute_dtype for m in twin.modules()] == [fp.bfloat16] * 3
        np.testing.assert_array_equal(twin(x).numpy(), model(x).numpy())
    plain = nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3))
    plain.load_state_dict(model.state_dict())
    assert plain.compute_dtype is None and plain(x).dtype == fp.float32


def test_lora_rounds_its_four_operands_and_keeps_the_setting() -> None:
    model = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 4))
    model.compute_dtype = fp.bfloat16
    model[1].compute_dtype = None
    nn.lora(model, "*", rank=2)
    assert [m.compute_dtype for m in model] == [fp.bfloat16, None]
    first = model[0]
    first.B.set_data(draw(5, 2))
    x = fp.tensor(draw(3, 6))
    x16, w, b, a, up = (np.asarray(t.to(fp.bfloat16).numpy(), np.float64) for t in (x, first.weight, first.bias, first.A, first.B))
    y = first(x)
    exact = x16 @ w.T + b + x16 @ a.T @ up.T
    assert y.dtype == fp.bfloat16 and np.abs(y.numpy().astype(np.float64) - exact).max() <= 3 * EPS["bfloat16"] * np.abs(exact).max()
    grads = (y * y).sum().backward()
    assert {grads[p].dtype for p in (first.A, first.B)} == {np.dtype("float32")} and first.weight not in grads
    nn.merge_lora(model)
    assert [m.compute_dtype for m in model] == [fp.bfloat16, None]


@pytest.mark.usefixtures("device")
def test_two_rounded_copies_of_a_packed_weight_add_up() -> None:
    """Both are made before either is used: the first gradient waits in the weight's place while the second one is made."""
    layer, x, g = nn.Linear(4, 4, bias=False), draw(3, 4), draw(3, 4, seed=1)
    layer.params.pack()
    for _ in range(3):
        x16 = fp.tensor(x).to(fp.bfloat16)
        a, b = layer.weight.to(fp.bfloat16), layer.weight.to(fp.bfloat16)
        h = F.linear(x16, a)
        found = F.linear(h, b).backward(gradient=g)[layer.weight].numpy()
        w, x64, h64 = (np.asarray(t.numpy(), np.float64) for t in (a, x16, h))
        # Gradients that products read are rounded: g once, and g @ w, made of it, once more.
        bound = EPS["bfloat16"] * ((np.abs(g) @ np.abs(w)).T @ np.abs(x64) + np.abs(g).T @ np.abs(h64))
        assert (np.abs(found - ((g @ w).T @ x64 + g.T @ h64)) <= bound).all()
