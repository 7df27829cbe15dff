"""Losses and activations as modules beside PyTorch's; what losses promise beyond one number: memory, capture, buffers, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from error_text import raises

import flamepy as fp
import flamepy.nn.functional as F
from flamepy import nn

pytestmark = pytest.mark.usefixtures("plain")
RNG = np.random.default_rng(0)
X, Y, Z = RNG.uniform(-2, 2, (3, 6, 4))
P, SIGNS, SIGN = RNG.uniform(0.1, 0.9, (6, 4)), np.where(RNG.random((6, 4)) < 0.5, -1.0, 1.0), np.array([1.0, -1, 1, 1, -1, -1])
IDS, W = np.array([0, 3, 1, 2, 2, 0]), np.array([0.5, 1.0, 2.0, 0.25])
LISTED = np.array([[0, 3, -1, 0], [1, -1, 0, 0], [0, 1, 2, 3], [-1, 0, 0, 0], [2, 2, -1, -1], [3, -1, -1, -1]])
LOSSES: list[tuple[str, dict[str, Any], tuple]] = [
    ("CrossEntropyLoss", {"weight": W, "label_smoothing": 0.1, "ignore_index": 3}, (X, IDS)), ("NLLLoss", {"weight": W}, (X, IDS)),
    ("BCELoss", {}, (P, P)), ("BCEWithLogitsLoss", {"pos_weight": W, "reduction": "sum"}, (X, P)),
    ("MultiMarginLoss", {"p": 2, "margin": 0.5, "weight": W}, (X, IDS)), ("MultiLabelMarginLoss", {}, (X, LISTED)),
    ("MultiLabelSoftMarginLoss", {"weight": W}, (X, P)), ("SoftMarginLoss", {"reduction": "none"}, (X, SIGNS)),
    ("MSELoss", {"reduction": "sum"}, (X, Y)), ("L1Loss", {}, (X, Y)), ("SmoothL1Loss", {"beta": 0.5}, (X, Y)),
    ("HuberLoss", {"delta": 0.5}, (X, Y)), ("KLDivLoss", {"reduction": "batchmean", "log_target": True}, (X, Y)),
    ("PoissonNLLLoss", {"full": True}, (X, 3 * P)), ("GaussianNLLLoss", {"full": True}, (X, Y, P)),
    ("CosineSimilarity", {"dim": 0}, (X, Y)), ("PairwiseDistance", {"p": 1.0, "keepdim": True}, (X, Y)),
    ("CosineEmbeddingLoss", {"margin": 0.2}, (X, Y, SIGN)), ("MarginRankingLoss", {"margin": 0.2}, (X, Y, SIGNS)),
    ("HingeEmbeddingLoss", {"margin": 0.5}, (X, SIGNS)), ("TripletMarginLoss", {"swap": True, "p": 1.5}, (X, Y, Z)),
    ("CTCLoss", {"zero_infinity": True}, (X[:, None, :3], np.array([[1, 2]]), np.array([6]), np.array([2]))),
    ("TripletMarginWithDistanceLoss", {"margin": 0.5}, (X, Y, Z)),
]  # fmt: skip
ACTIVATIONS: list[tuple[str, tuple]] = [
    ("PReLU", ()), ("PReLU", (4, 0.5)), ("Mish", ()), ("Hardswish", ()), ("Hardsigmoid", ()), ("Hardtanh", (-0.5, 0.7)), ("ReLU6", ()),
    ("SELU", ()), ("CELU", (0.7,)), ("ELU", (0.7,)), ("LeakyReLU", (0.2,)), ("Softplus", (2.0,)), ("Softsign", ()), ("Softmin", (0,)),
    ("LogSigmoid", ()), ("Tanhshrink", ()), ("Softmax", (1,)), ("LogSoftmax", (0,)), ("GLU", (1,)), ("GLU", ()), ("Threshold", (0.1, 5.0)),
    ("Softshrink", ()), ("Hardshrink", (0.7,)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options", "args"), LOSSES, ids=[name for name, *_ in LOSSES])
def test_a_loss_is_pytorchs(name: str, options: dict[str, Any], args: tuple) -> None:
    torch = pytest.importorskip("torch")
    given = {k: torch.tensor(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
    theirs, ours = getattr(torch.nn, name)(**given), getattr(nn, name)(**options)
    np.testing.assert_allclose(ours(*map(fp.tensor, args)).numpy(), theirs(*map(torch.tensor, args)).numpy(), 1e-9, 1e-12)
    assert list(ours.state_dict()) == list(theirs.state_dict()) and repr(ours).startswith(name)


@pytest.mark.parametrize(("name", "args"), ACTIVATIONS, ids=str)
def test_an_activation_is_pytorchs(name: str, args: tuple) -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = getattr(nn, name)(*args).to(fp.float64), getattr(torch.nn, name)(*args).double()
    assert list(ours.state_dict()) == list(theirs.state_dict())
    np.testing.assert_allclose(ours(fp.tensor(X)).numpy(), theirs(torch.tensor(X)).detach().numpy(), 1e-9, 1e-12)


def test_other_activations() -> None:
    x = fp.tensor(X)
    for unit, act in ((nn.SwiGLU(), F.silu), (nn.GEGLU(), F.gelu), (nn.ReGLU(), F.relu)):
        np.testing.assert_allclose(unit(x).numpy(), (act(x[:, :2]) * x[:, 2:]).numpy(), 1e-12)
    images = x.reshape(2, 3, 2, 2)
    np.testing.assert_allclose(nn.Softmax2d()(images).sum(axis=1).numpy(), 1.0, 1e-12)
    random = nn.RReLU(0.1, 0.3)
    slopes = (random(x) / x).numpy()[X < 0]
    assert ((slopes >= 0.1) & (slopes <= 0.3)).all() and slopes.std() > 0
    np.testing.assert_allclose((random.eval()(x) / x).numpy()[X < 0], 0.2, 1e-12)
    with raises(ValueError, "nothing is changed in place"):
        nn.Hardtanh(inplace=True)
    with raises(fp.ShapeError, "swiglu: no two halves: shape (3,)"):
        F.swiglu(fp.ones(3))


def test_a_loss_moves_and_saves_its_weights() -> None:
    loss = nn.CrossEntropyLoss(weight=W)
    assert loss.to(fp.float32).weight.dtype == fp.float32
    other = nn.CrossEntropyLoss(weight=np.ones(4))
    other.load_state_dict(loss.state_dict())
    np.testing.assert_array_equal(other.weight.numpy(), W.astype("f4"))
    with raises(ValueError, "MSELoss: unknown reduction: 'average'"):
        nn.MSELoss(reduction="average")


def test_logits_of_a_chunk_alone_are_ever_in_memory() -> None:
    device: Any = fp.device("plain")
    x, w = (fp.tensor(RNG.standard_normal((n, 8)).astype("f4")).requires_grad_() for n in (256, 8192))
    ids, most, grads = RNG.integers(0, 8192, 256), {}, {}
    for name in ("chunk", "whole") * 3:  # what is planned and recorded at first goes
        device.peak = before = device.memory()["current"]
        loss = F.linear_cross_entropy(x, w, ids, chunk=16) if name == "chunk" else F.cross_entropy(F.linear(x, w), ids)
        grads[name] = loss.backward()[w].numpy()
        most[name] = device.memory()["peak"] - before
        del loss
    np.testing.assert_allclose(grads["chunk"], grads["whole"], 1e-4, 1e-7)
    logits = 4 * 16 * 8192
    assert most["chunk"] < 4 * logits and most["whole"] > 16 * logits


@pytest.mark.usefixtures("device")
def test_chunked_losses_and_ctc_in_captured_steps() -> None:
    x, w = fp.tensor(X.astype("f4")).requires_grad_(), fp.tensor(Y.astype("f4")).requires_grad_()

    @fp.capture
    def step(ids: Any, labels: Any) -> Any:
        loss = F.linear_cross_entropy(x, w, ids, chunk=4) + F.ctc_loss(x[:, None].log_softmax(-1), labels, [6], [2])
        return loss, loss.backward()[x]

    for seed in range(4):
        ids, labels = np.random.default_rng(seed).integers(0, 6, 6), np.random.default_rng(seed).integers(1, 4, (1, 2))
        loss, dx = step(fp.tensor(ids), fp.tensor(labels))
        eager = F.cross_entropy(F.linear(x, w), ids) + F.ctc_loss(x[:, None].log_softmax(-1), labels, [6], [2])
        np.testing.assert_allclose(loss.item(), eager.item(), 1e-5)
        np.testing.assert_allclose(dx.numpy(), eager.backward()[x].numpy(), 1e-4, 1e-6)


def test_options_of_attention_are_refused_by_name() -> None:
    x, name = fp.ones(1, 4, 5, 8), "scaled_dot_product_attention"
    for options, kind, text in (
        ({"window": 0}, ValueError, "not a window: 0"), ({"window": (1, -1)}, ValueError, "not a window: (1, -1)"),
        ({"alibi": [1.0]}, fp.ShapeError, "not a slope for each head: alibi (1,), heads 4"),
        ({"softcap": -1.0}, ValueError, "softcap must be positive: -1.0"), ({"dropout_p": 2.0}, ValueError, "p outside [0, 1]: 2.0"),
        ({"is_causal": True, "attn_mask": np.ones((5, 5), bool)}, ValueError, "both attn_mask and is_causal=True"),
    ):  # fmt: skip
        with raises(kind, text):
            F.scaled_dot_product_attention(x, x, x, **options)
    with raises(fp.ShapeError, f"{name}: heads do not group: q is (1, 4, 5, 8), k is (1, 3, 5, 8)"):
        F.scaled_dot_product_attention(x, x[:, :3], x[:, :3], enable_gqa=True)


def test_a_type_to_compute_in_and_a_number_of_a_tensor() -> None:
    for name in ("softmax", "log_softmax", "softmin"):
        x = fp.tensor(X[0], "float32").requires_grad_()
        y = getattr(F, name)(x, dim=0, dtype=fp.float64)
        slope = y.square().sum().backward(create_graph=True)[x]
        assert y.dtype == "float64" and slope.dtype == slope.sum().backward()[x].dtype == "float32"
        assert np.array_equal(y.numpy(), getattr(F, name)(x.to(fp.float64), 0).numpy())
    value = fp.tensor(5.0, requires_grad=True)
    y = fp.masked_fill(fp.tensor([1.0, 2.0, 3.0]), [True, False, True], value)
    assert y.tolist() == [5, 2, 5] and y.sum().backward()[value].item() == 2
    assert F.multi_margin_loss(fp.tensor([0.0, 1.0]), [0], reduction="none").tolist() == [1.0]
    assert F.multi_margin_loss(fp.tensor([0.0, 1.0]), 0, reduction="none").item() == 1.0


def test_what_losses_refuse() -> None:
    x, t = fp.tensor(X), fp.tensor(P)
    for call, kind, text in (
        (lambda: F.ctc_loss(x[:, None], [[0, 1]], [6], [2]).item(), fp.IndexOutOfRange, "ctc_loss: a label that is the blank or no class"),
        (lambda: F.ctc_loss(x[:, None], [[1, 1]], [7], [2]).item(), fp.IndexOutOfRange, "input lengths out of range: 7 at position (0,)"),
        (lambda: F.ctc_loss(x[:, None], [[1, 1]], [6], [-1]).item(), fp.IndexOutOfRange, "target lengths out of range: -1 at"),
        (lambda: F.ctc_loss(x[:, None], [[1, 9]], [6], [2]).item(), fp.IndexOutOfRange, "class: 9 at position (0, 1). Use 0 to 3, but 0"),
        (lambda: F.ctc_loss(x[:, None], [[1, 1]], [6], [2], blank=4), ValueError, "blank is no class: 4"),
        (lambda: F.linear_cross_entropy(x, t, IDS, reduction="none"), ValueError, "no losses of single rows"),
        (lambda: F.linear_cross_entropy(x, t, IDS, chunk=0), ValueError, "chunk is no number of rows: 0"),
        (lambda: F.linear_cross_entropy(x, t[:, :3], IDS), fp.ShapeError, "linear_cross_entropy: sizes differ"),
        (lambda: F.linear_cross_entropy(x, t, IDS + 5).item(), fp.IndexOutOfRange, "linear_cross_entropy: class id out of range: 8"),
        (lambda: F.gaussian_nll_loss(x, t, -t).item(), ValueError, "gaussian_nll_loss: a negative variance"),
        (lambda: F.multi_margin_loss(x, IDS, p=3), ValueError, "multi_margin_loss: p is neither 1 nor 2: 3"),
        (lambda: F.multi_margin_loss(x, IDS - 100).item(), fp.IndexOutOfRange, "multi_margin_loss: class id out of range: -100"),
        (lambda: F.cross_entropy(x, IDS, z_loss=-1.0), ValueError, "z_loss must not be negative"),
        (lambda: F.triplet_margin_loss(x, x, x, margin=0.0), ValueError, "margin must be positive"),
        (lambda: F.soft_margin_loss(x, t.requires_grad_()), fp.errors.GradientError, "no derivative for an input that requires grad"),
    ):  # fmt: skip
        with raises(kind, text):
            call()
