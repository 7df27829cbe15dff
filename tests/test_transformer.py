"""Transformers as PyTorch's, part by part, with its states; rotary embedding, grouped heads and normed queries in our own attention."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from devices import default_device

import flamepy as fp
import flamepy.nn.functional as F
from flamepy import nn

torch = pytest.importorskip("torch")
ON = pytest.mark.parametrize("device", ["plain", "cpu"], indirect=True)
TRIANGLE = np.triu(np.ones((5, 5), bool), 1)
PADDING = np.array([[False] * 5, [False, False, False, True, True]])


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype("float32")


def same(ours: Any, theirs: Any, call: Any, *xs: np.ndarray) -> None:
    """Equal results and gradients of call(module, make, *inputs), with PyTorch's numbers."""
    state = theirs.state_dict()
    assert sorted(ours.state_dict()) == sorted(state)
    ours.load_state_dict(state)
    tx, fx = [torch.tensor(x, requires_grad=True) for x in xs], [fp.tensor(x, requires_grad=True) for x in xs]
    y, z = call(theirs, torch.tensor, *tx), call(ours, fp.tensor, *fx)
    np.testing.assert_allclose(z.numpy(), y.detach().numpy(), 2e-5, 2e-5)
    g = numbers(*z.shape)
    theirs.zero_grad()
    (y * torch.tensor(g)).sum().backward()
    grads = (z * fp.tensor(g)).sum().backward()
    for a, b in zip(fx, tx, strict=True):
        np.testing.assert_allclose(grads[a].numpy(), b.grad.numpy(), 1e-4, 1e-4)
    for name, p in theirs.named_parameters():
        np.testing.assert_allclose(grads[name].numpy(), p.grad.numpy(), 1e-4, 2e-4, err_msg=name)


CALLS = {
    "plain": lambda m, t, x: m(x, x, x)[0],
    "causal": lambda m, t, x: m(x, x, x, attn_mask=t(TRIANGLE), is_causal=True, need_weights=False)[0],
    "padded": lambda m, t, x: m(x, x, x, key_padding_mask=t(PADDING), attn_mask=t(TRIANGLE))[0],
    "added": lambda m, t, x: m(x, x, x, attn_mask=t(numbers(4, 5, 5)))[0],
    "weights": lambda m, t, x: m(x, x, x, t(PADDING))[1],
    "each head": lambda m, t, x: m(x, x, x, average_attn_weights=False)[1],
}


@ON
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("batch_first", [True, False])
def test_attention_is_pytorchs(name: str, batch_first: bool, device: str) -> None:
    theirs, ours = (n.MultiheadAttention(8, 2, batch_first=batch_first) for n in (torch.nn, nn))
    x = numbers(2, 5, 8) if batch_first else numbers(5, 2, 8)
    if name in ("weights", "each head"):  # out_proj gets no gradient
        ours.load_state_dict(theirs.state_dict())
        y, z = CALLS[name](theirs, torch.tensor, torch.tensor(x)), CALLS[name](ours, fp.tensor, fp.tensor(x))
        np.testing.assert_allclose(z.numpy(), y.detach().numpy(), 2e-5, 2e-6)
    else:
        same(ours, theirs, CALLS[name], x)


@ON
def test_attention_to_others_and_of_one_row(device: str) -> None:
    theirs, ours = (n.MultiheadAttention(8, 2, bias=False) for n in (torch.nn, nn))
    same(ours, theirs, lambda m, t, q, k, v: m(q, k, v)[0], numbers(5, 2, 8), numbers(3, 2, 8), numbers(3, 2, 8))
    same(ours, theirs, lambda m, t, q, k: m(q, k, k, need_weights=False)[0], numbers(5, 8), numbers(3, 8))


def made(kind: str, where: Any, **options: Any) -> Any:
    layer = getattr(where, kind + "Layer")(8, 2, 16, 0.0, **options)
    quiet = {"enable_nested_tensor": False} if where is torch.nn and "Encoder" in kind else {}
    return layer, getattr(where, kind)(layer, 2, norm=where.LayerNorm(8), **quiet)


@ON
@pytest.mark.parametrize(
    "options", [{}, {"norm_first": True, "activation": "gelu"}, {"batch_first": True, "bias": False, "layer_norm_eps": 1e-3}]
)
def test_encoder_and_decoder_are_pytorchs(options: dict[str, Any], device: str) -> None:
    shape = (2, 5, 8) if options.get("batch_first") else (5, 2, 8)
    memory = (2, 3, 8) if options.get("batch_first") else (3, 2, 8)
    encoders = [made("TransformerEncoder", n, **options) for n in (nn, torch.nn)]
    for ours, theirs in zip(*encoders, strict=True):
        same(ours, theirs, lambda m, t, x: m(x, t(TRIANGLE), src_key_padding_mask=t(PADDING)), numbers(*shape))
    decoders = [made("TransformerDecoder", n, **options) for n in (nn, torch.nn)]
    for ours, theirs in zip(*decoders, strict=True):
        same(
            ours,
            theirs,
            lambda m, t, x, y: m(x, y, t(TRIANGLE), memory_key_padding_mask=t(PADDING[:, 2:])),
            numbers(*shape),
            numbers(*memory),
        )


@ON
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_encoder_and_decoder_together_are_pytorchs(device: str) -> None:
    options = {"num_encoder_layers": 1, "num_decoder_layers": 2, "dim_feedforward": 16, "dropout": 0.0}
    ours, theirs = (n.Transformer(8, 2, **options) for n in (nn, torch.nn))
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    np.testing.assert_array_equal(mask.numpy(), torch.nn.Transformer.generate_square_subsequent_mask(5).numpy())
    same(ours, theirs, lambda m, t, x, y: m(x, y, tgt_mask=t(mask.numpy()), tgt_is_causal=True), numbers(3, 2, 8), numbers(5, 2, 8))


def test_what_pytorch_has_and_is_not_here_is_refused() -> None:
    for options in ({"kdim": 4}, {"add_bias_kv": True}, {"add_zero_attn": True}, {"vdim": 3}):
        with pytest.raises(ValueError, match=next(iter(options))):
            nn.MultiheadAttention(8, 2, **options)
    with pytest.raises(ValueError, match="'swish'"):
        nn.TransformerEncoderLayer(8, 2, activation="swish")
    with default_device("plain"):
        layer = nn.MultiheadAttention(8, 2)
        for mask in (np.ones((4, 5), bool), np.ones((3, 5, 5), bool)):
            with pytest.raises(fp.errors.ShapeError, match="attn_mask"):
                layer(fp.ones(5, 2, 8), fp.ones(5, 2, 8), fp.ones(5, 2, 8), attn_mask=mask)
        with pytest.raises(fp.errors.DTypeError, match="int64"):
            layer(fp.ones(5, 2, 8), fp.ones(5, 2, 8), fp.ones(5, 2, 8), attn_mask=np.ones((5, 5), int))


def test_dropout_acts_on_weights_while_training() -> None:
    with default_device("plain"):
        layer, x = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.5), fp.randn(5, 2, 8)
        assert (layer(x).numpy() != layer(x).numpy()).any()
        layer.eval()
        np.testing.assert_array_equal(layer(x).numpy(), layer(x).numpy())


# ---- our own attention -------------------------------------------------------------------------------------------------------------
@ON
@pytest.mark.parametrize("mask", [None, (5, 5), (2, 1, 5, 5), (2, 4, 5, 5)])
def test_grouped_heads_are_repeated_keys_and_values(mask: Any, device: str) -> None:
    """kv_heads=2 is four heads whose keys and values are equal by pairs."""
    fp.manual_seed(0)
    few, many = nn.MultiHeadAttention(16, 4, kv_heads=2), nn.MultiHeadAttention(16, 4)
    state = few.state_dict()
    for part in ("qkv.weight", "qkv.bias"):
        q, k, v = np.split(state[part], (16, 24))
        twice = [np.repeat(w.reshape(2, 4, -1), 2, 0).reshape(16, *w.shape[1:]) for w in (k, v)]
        state[part] = np.concatenate([q, *twice])
    many.load_state_dict(state)
    x = fp.randn(2, 5, 16)
    options = {"is_causal": True} if mask is None else {"attn_mask": np.random.default_rng(0).random(mask) > 0.2}
    np.testing.assert_allclose(few(x, **options).numpy(), many(x, **options).numpy(), 1e-5, 1e-6)
    np.testing.assert_allclose(few(x, x[:, :3], x[:, :3]).numpy(), many(x, x[:, :3], x[:, :3]).numpy(), 1e-5, 1e-6)


@ON
def test_rotary_attention_sees_distances_alone(device: str) -> None:
    fp.manual_seed(0)
    layer, x = nn.MultiHeadAttention(16, 2, causal=True, rope=True, qk_norm=True), fp.randn(2, 6, 16, requires_grad=True)
    y = layer(x)
    late = nn.MultiHeadAttention(16, 2, causal=True, rope=Later(), qk_norm=True)
    late.load_state_dict(layer.state_dict())
    np.testing.assert_allclose(late(x).numpy(), y.numpy(), 1e-4, 1e-5)
    grads = y.square().sum().backward()
    assert {"q_norm.weight", "k_norm.weight"} <= {name for name, _ in grads.named_items()}
    plain = nn.MultiHeadAttention(16, 2, causal=True, qk_norm=True)
    plain.load_state_dict(layer.state_dict())
    assert np.abs(plain(x).numpy() - y.numpy()).max() > 1e-3


class Later(nn.RotaryEmbedding):
    def forward(self, q: Any, k: Any = None, **options: Any) -> Any:
        return super().forward(q, k, offset=40, **options)


def test_a_rotary_block_trains_when_captured(device: str) -> None:
    def trained(step_of: Any) -> list[float]:
        fp.manual_seed(0)
        block = nn.TransformerBlock(8, 4, causal=True, kv_heads=2, rope=nn.RotaryEmbedding(interleaved=True), qk_norm=True)
        optimizer = fp.SGD(block, lr=0.1)

        def step(x: Any) -> Any:
            loss = block(x).square().mean()
            optimizer.step(loss.backward())
            return loss

        run = step_of(step)
        return [run(fp.tensor(numbers(2, 4 + i % 2, 8))).item() for i in range(6)]

    found = trained(lambda step: step)
    assert found == trained(fp.capture) and found[-1] < found[0]


def test_rotary_is_a_rotation_of_half_and_interleaved_pairs() -> None:
    with default_device("plain"):
        x = fp.randn(2, 3, 7, 8)
        order = [0, 2, 4, 6, 1, 3, 5, 7]
        inter, half = F.rope(x, interleaved=True).numpy(), F.rope(fp.tensor(x.numpy()[..., order])).numpy()
        np.testing.assert_allclose(inter[..., order], half, 1e-6, 1e-6)
        np.testing.assert_allclose(np.linalg.norm(inter, axis=-1), np.linalg.norm(x.numpy(), axis=-1), 1e-5)
        q, k = nn.RotaryEmbedding(4)(x, x, positions=np.arange(7)[::-1].copy())
        np.testing.assert_array_equal(q.numpy(), k.numpy())
        np.testing.assert_array_equal(q.numpy()[..., 4:], x.numpy()[..., 4:])
        far = F.rope(fp.ones(1, 2, dtype="float64"), offset=100_003).numpy()
        np.testing.assert_allclose(far[0], [np.cos(100_003) - np.sin(100_003), np.cos(100_003) + np.sin(100_003)], 1e-12)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: F.rope(x, width=3), fp.errors.ShapeError, "width 3"),
        (lambda x: F.rope(x, width=10), fp.errors.ShapeError, "width 10"),
        (lambda x: F.rope(x, axis=-1), fp.errors.ShapeError, "axis"),
        (lambda x: F.rope(x[0, 0]), fp.errors.ShapeError, r"\(8,\)"),
        (lambda x: F.rope(x, positions=[1.0, 2.0, 3.0]), fp.errors.DTypeError, "float32"),
        (lambda x: F.rope(x, positions=[1, 2]), fp.errors.ShapeError, r"\(2,\)"),
        (lambda x: F.rope(x, scale=0.0), ValueError, "0.0"),
        (lambda x: nn.MultiHeadAttention(8, 4, kv_heads=3), fp.errors.ShapeError, "kv_heads 3"),
        (lambda x: nn.MultiHeadAttention(8, 4, rope=10000.0), fp.errors.DTypeError, "10000.0"),
    ],
)
def test_what_does_not_fit_is_refused(call: Any, error: Any, text: str) -> None:
    with default_device("plain"), pytest.raises(error, match=text):
        call(fp.ones(2, 3, 8))


def test_stacks_take_pytorchs_names() -> None:
    encoder = nn.TransformerEncoderLayer(8, 2, 16, 0.0)
    stack = nn.TransformerEncoder(encoder_layer=encoder, num_layers=2, enable_nested_tensor=False, mask_check=False)
    x = fp.randn(3, 1, 8)
    np.testing.assert_array_equal(stack(x).numpy(), encoder(encoder(x)).numpy())
    decoder = nn.TransformerDecoderLayer(8, 2, 16, 0.0)
    np.testing.assert_array_equal(nn.TransformerDecoder(decoder_layer=decoder, num_layers=1)(x, x).numpy(), decoder(x, x).numpy())
