"""Terms of a loss: their values, their gradients, and what happens at the edges (zeros, equal distributions, ties).

Oracles: formulas written with NumPy in float64 from the definitions, PyTorch where it has the function, numpy.linalg for singular
values, finite differences (gradcheck).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from error_text import raises

import flamepy as fp
from flamepy import regularizer as reg

RANDOM = np.random.default_rng(7)
X, T = RANDOM.normal(size=(4, 5)), RANDOM.normal(size=(4, 5))
W = RANDOM.normal(size=(3, 4))


pytestmark = pytest.mark.usefixtures("plain")


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def kl(p: np.ndarray, q: np.ndarray) -> float:
    return float(np.mean(np.sum(p * (np.log(p) - np.log(q)), -1)))


P, Q = softmax(X), softmax(T)
M = (P + Q) / 2
COSINES = np.sum(X * T, 1) / np.linalg.norm(X, axis=1) / np.linalg.norm(T, axis=1)
GRAM = W @ W.T - np.eye(3)

# name -> (term of one tensor, where, its value by the definition)
TERMS: dict[str, tuple[Callable[[Any], Any], np.ndarray, float]] = {
    "l1": (reg.l1, X, np.abs(X).sum()),
    "l2": (reg.l2, X, (X**2).sum()),
    "elastic_net": (partial(reg.elastic_net, l1_ratio=0.3), X, 0.3 * np.abs(X).sum() + 0.7 * (X**2).sum()),
    "entropy": (reg.entropy, X, -np.mean(np.sum(P * np.log(P), 1))),
    "entropy of probs": (partial(reg.entropy, of="probs"), P, -np.mean(np.sum(P * np.log(P), 1))),
    "entropy of logprobs, up": (partial(reg.entropy, of="logprobs", maximize=True), np.log(P), np.mean(np.sum(P * np.log(P), 1))),
    "entropy, first axis": (partial(reg.entropy, axis=0), X, -np.mean(np.sum(softmax(X.T) * np.log(softmax(X.T)), 1))),
    "kl": (lambda x: reg.kl(x, T), X, kl(Q, P)),
    "kl reverse": (lambda x: reg.kl(x, T, direction="reverse"), X, kl(P, Q)),
    "kl symmetric": (lambda x: reg.kl(x, Q, direction="symmetric", of="probs"), P, (kl(P, Q) + kl(Q, P)) / 2),
    "kl of logprobs": (lambda x: reg.kl(x, np.log(Q), of="logprobs"), np.log(P), kl(Q, P)),
    "js": (lambda x: reg.js(x, T), X, (kl(P, M) + kl(Q, M)) / 2),
    "js of probs": (lambda x: reg.js(x, Q, of="probs"), P, (kl(P, M) + kl(Q, M)) / 2),
    "consistency mse": (lambda x: reg.consistency(x, T), X, ((X - T) ** 2).mean()),
    "consistency kl": (lambda x: reg.consistency(x, T, kind="kl"), X, kl(Q, P)),
    "consistency cosine": (lambda x: reg.consistency(x, T, kind="cosine"), X, 1 - COSINES.mean()),
    "orthogonality": (reg.orthogonality, W, (GRAM**2).sum()),
    "group_lasso": (reg.group_lasso, W, np.linalg.norm(W, axis=1).sum()),
    "spectral_norm": (partial(reg.spectral_norm, iterations=60), W, np.linalg.svd(W)[1][0]),
    # fn(x) = sum of x^3 / 3: the gradient is x^2
    "gradient_penalty": (
        lambda x: reg.gradient_penalty(x, lambda z: z * z * z / 3), X, ((np.sqrt((X**4).sum(1)) - 1) ** 2).mean(),
    ),
    "gradient_penalty r1": (lambda x: reg.gradient_penalty(x, lambda z: z * z * z / 3, kind="r1"), X, (X**4).sum(1).mean() / 2),
}  # fmt: skip


def leaf(values: Any, dtype: str = "f8") -> Any:
    return fp.tensor(np.asarray(values, dtype), requires_grad=True)


@pytest.mark.parametrize("name", TERMS)
def test_value_and_gradient(name):
    term, at, wanted = TERMS[name]
    y = term(leaf(at))
    assert y.shape == () and y.dtype == fp.float64
    np.testing.assert_allclose(y.item(), wanted, rtol=1e-10)
    np.testing.assert_allclose(term(fp.tensor(at)).item(), wanted, rtol=1e-10)  # untracked
    if name != "spectral_norm":  # where u and v count as constants
        assert fp.gradcheck(term, (leaf(at),))


@pytest.mark.parametrize("name", ["kl", "spectral_norm", "gradient_penalty"])
def test_in_float32_on_both_devices(name, device):
    term, at, wanted = TERMS[name]
    loss = reg.kl(leaf(at, "f4"), T.astype("f4")) if name == "kl" else term(leaf(at, "f4"))
    assert loss.dtype == fp.float32
    np.testing.assert_allclose(loss.item(), wanted, rtol=1e-5)


def test_gradients_are_pytorchs():
    torch = pytest.importorskip("torch")
    F = torch.nn.functional
    pairs: list[tuple[Any, Any, np.ndarray]] = [
        (lambda x: reg.kl(x, T), lambda x: F.kl_div(x.log_softmax(1), torch.tensor(Q), reduction="batchmean"), X),
        (lambda x: reg.consistency(x, T, kind="cosine"), lambda x: 1 - F.cosine_similarity(x, torch.tensor(T)).mean(), X),
        (reg.entropy, lambda x: torch.distributions.Categorical(logits=x).entropy().mean(), X),
        (partial(reg.spectral_norm, iterations=60), lambda w: torch.linalg.matrix_norm(w, 2), W),
        (reg.group_lasso, lambda w: w.norm(dim=1).sum(), W),
        (reg.l1, lambda x: x.abs().sum(), np.array([1.0, 0.0, -2.0])),
    ]
    for ours, theirs, at in pairs:
        x, t = leaf(at), torch.tensor(at, requires_grad=True)
        theirs(t).backward()
        np.testing.assert_allclose(ours(x).backward()[x].numpy(), t.grad.numpy(), rtol=1e-9, atol=1e-12)


def test_the_gradient_of_the_spectral_norm_is_u_v():
    u, _, v = np.linalg.svd(W)
    w = leaf(W)
    found = reg.spectral_norm(w, iterations=60).backward()[w].numpy()
    np.testing.assert_allclose(found, np.outer(u[:, 0], v[0]), atol=1e-9)


def test_power_iteration_has_a_fixed_start_and_converges_as_stated():
    s = np.array([3.0, 2.0, 1.0])
    rows, cols = np.linalg.qr(RANDOM.normal(size=(3, 3)))[0], np.linalg.qr(RANDOM.normal(size=(3, 3)))[0]
    w = fp.tensor(rows * s @ cols)
    errors = [3 - reg.spectral_norm(w, iterations=n).item() for n in (4, 6, 8)]
    for before, after in pairwise(errors):  # per iteration (s2 / s1)^4
        assert (after / before) ** 0.5 == pytest.approx((2 / 3) ** 4, rel=0.05)
    assert reg.spectral_norm(w, 5).item() == reg.spectral_norm(w, 5).item()
    difference = fp.tensor([[1.0, -1.0]])  # what a start of ones could not see
    np.testing.assert_allclose(reg.spectral_norm(difference).item(), np.sqrt(2), rtol=1e-6)
    for scale in (1e-30, 1e30):
        np.testing.assert_allclose(reg.spectral_norm(difference * scale).item(), scale * np.sqrt(2), rtol=1e-6)


def test_a_filter_is_a_matrix_of_its_first_axis():
    filters = RANDOM.normal(size=(3, 2, 2, 1))
    flat = filters.reshape(3, 4)
    for term in (reg.orthogonality, reg.group_lasso, reg.spectral_norm):
        assert term(fp.tensor(filters)).item() == term(fp.tensor(flat)).item()


def test_zeros_have_gradients_that_are_numbers():
    zero = leaf(np.zeros((2, 3)))
    for term in (reg.l1, reg.group_lasso, reg.spectral_norm, partial(reg.consistency, kind="cosine", target=np.ones((2, 3)))):
        assert np.isfinite(term(zero).backward()[zero].numpy()).all()
    w = leaf(np.zeros(3))  # a critic whose gradient is 0: |g| has no derivative there
    penalty = reg.gradient_penalty(fp.tensor(np.ones((2, 3))), lambda x: x @ w)
    assert penalty.item() == 1.0 and penalty.backward()[w].tolist() == [0, 0, 0]


def test_probabilities_of_zero():
    p, q = leaf([[0.5, 0.5, 0.0]]), leaf([[0.25, 0.25, 0.5]])
    assert reg.entropy(p, of="probs").item() == pytest.approx(np.log(2), rel=1e-12)
    assert np.isfinite(reg.entropy(p, of="probs").backward()[p].numpy()).all()
    loss = reg.kl(q, p, of="probs")  # KL(p || q): 0 log 0 is 0
    assert loss.item() == pytest.approx(np.log(2), rel=1e-12) and np.isfinite(loss.backward()[p].numpy()).all()
    assert reg.kl(p, q, of="probs").item() == np.inf
    assert reg.js(fp.tensor([[1.0, 0.0]]), fp.tensor([[0.0, 1.0]]), of="probs").item() == pytest.approx(np.log(2), rel=1e-6)
    masked = leaf([[0.0, 0.0, -np.inf]])
    loss = reg.entropy(masked)
    assert loss.item() == pytest.approx(np.log(2), rel=1e-12) and loss.backward()[masked].tolist() == [[0, 0, 0]]
    assert reg.js(masked, leaf([[0.0, -np.inf, 0.0]])).item() == pytest.approx(0.5 * np.log(2), rel=1e-12)
    assert np.isnan(reg.entropy(fp.tensor([[np.nan, 0.5]]), of="probs").item())


def test_divergences_of_a_distribution_from_itself_are_zero():
    for term in (reg.kl, reg.js, partial(reg.kl, direction="symmetric"), partial(reg.consistency, kind="kl")):
        x = leaf(X)
        loss = term(x, X)
        assert abs(loss.item()) < 1e-15
        np.testing.assert_allclose(loss.backward()[x].numpy(), 0, atol=1e-15)


# ---- gradient_penalty ------------------------------------------------------------------------------------------------------------
def test_gradient_penalty_of_a_critic_reaches_its_parameters():
    """By hand for f(x) = v . tanh(x A): g = A (v (1 - tanh^2)), and finite differences in A."""
    a, v = RANDOM.normal(size=(5, 3)), RANDOM.normal(size=3)

    def by_hand(a: np.ndarray) -> float:
        g = (v * (1 - np.tanh(X @ a) ** 2)) @ a.T
        return float(((np.linalg.norm(g, axis=1) - 1) ** 2).mean())

    w = leaf(a)
    loss = reg.gradient_penalty(fp.tensor(X), lambda x: (x @ w).tanh() @ fp.tensor(v))
    assert loss.item() == pytest.approx(by_hand(a), rel=1e-12)
    grads = loss.backward()
    assert list(grads) == [w.id]
    step = np.zeros_like(a)
    step[1, 2] = 1e-6
    assert grads[w].numpy()[1, 2] == pytest.approx((by_hand(a + step) - by_hand(a - step)) / 2e-6, rel=1e-6)


def test_gradient_penalty_at_a_result_and_under_no_grad():
    w = fp.Parameter(np.ones(5))
    hidden = fp.tensor(X) * w
    loss = reg.gradient_penalty(hidden, lambda z: z * z, kind="r1")  # g = 2z: the mean of 2 z^2
    np.testing.assert_allclose(loss.backward()[w].numpy(), 4 * (X**2).mean(0), rtol=1e-12)
    wanted = loss.item()
    with fp.no_grad():
        quiet = reg.gradient_penalty(hidden, lambda z: z * z, kind="r1")
    assert quiet.item() == wanted and not quiet.requires_grad
    one = reg.gradient_penalty(fp.tensor([1.0, 2.0]), lambda z: z * z, kind="r1")  # one number a sample
    assert one.item() == pytest.approx((4 + 16) / 4)


@fp.custom
def cubed(x):
    """An op that can be differentiated once."""
    return x * x * x


@cubed.backward
def cubed_dx(g, x):
    return g * 3 * x * x


def test_gradient_penalty_needs_second_derivatives_only_where_it_is_recorded():
    with raises(fp.GradientError, "cubed: no second derivative"):
        reg.gradient_penalty(fp.tensor(X), cubed, kind="r1")
    with fp.no_grad():
        assert reg.gradient_penalty(fp.tensor(X), cubed, kind="r1").item() == pytest.approx((9 * X**4).sum(1).mean() / 2)


def test_gradient_penalty_says_when_no_gradient_arrives():
    x = fp.tensor(X)
    for cut in (lambda z: z.detach(), lambda z: fp.ones(3), lambda z: (z > 0).sum()):
        with raises(fp.GradientError, "gradient_penalty", "no gradient reaches the input"):
            reg.gradient_penalty(x, cut)


# ---- max_norm --------------------------------------------------------------------------------------------------------------------
def test_max_norm_scales_long_rows_and_leaves_others_their_bits():
    w, bias, frozen = fp.Parameter(W.astype("f4")), fp.Parameter(np.full(4, 3.0, "f4")), fp.Parameter(np.full((1, 2), 9.0, "f4"))
    frozen.requires_grad = False
    lengths = np.linalg.norm(W, axis=1)
    limit = float(np.sort(lengths)[1])
    before = w.numpy().copy()
    assert reg.max_norm([w, bias, frozen, w], limit * 0.999) is None
    rows = lengths <= limit * 0.999
    assert rows.any() and not rows.all() and (w.numpy()[rows] == before[rows]).all()
    wanted = np.where(rows[:, None], W, W / lengths[:, None] * limit * 0.999)
    np.testing.assert_allclose(w.numpy(), wanted, rtol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(bias.numpy()), limit * 0.999, rtol=1e-6)
    assert (frozen.numpy() == 9).all()
    params = fp.ParameterDict({"w": w})
    for given in (params, w):
        reg.max_norm(given, 0.5)
        assert (np.linalg.norm(w.numpy(), axis=1) <= 0.5 * (1 + 1e-6)).all()
    half = fp.Parameter(fp.ones(2, 8).to(fp.bfloat16))
    reg.max_norm(half, 1.0)
    assert half.dtype == fp.bfloat16 and half.numpy().astype("f4")[0, 0] == pytest.approx(8**-0.5, rel=1e-2)


# ---- wrong input -------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("call", "kind", "word"),
    [
        (lambda: reg.l1(fp.tensor([1, 2])), fp.DTypeError, "l1: needs floats"),
        (lambda: reg.l2("a"), fp.DTypeError, "l2"),
        (lambda: reg.elastic_net(X, 1.5), ValueError, "l1_ratio outside"),
        (lambda: reg.entropy(X, of="prob"), ValueError, "of='prob'"),
        (lambda: reg.entropy(1.0), fp.ShapeError, "no axis of classes"),
        (lambda: reg.entropy(X, axis=2), fp.IndexOutOfRange, "axis"),
        (lambda: reg.kl(X, T[:1]), fp.ShapeError, "shapes differ"),
        (lambda: reg.kl(X, T, direction="back"), ValueError, "'back'"),
        (lambda: reg.js(X, T, of="x"), ValueError, "js"),
        (lambda: reg.consistency(X, T, kind="l1"), ValueError, "'l1'"),
        (lambda: reg.consistency(1.0, 1.0, kind="cosine"), fp.ShapeError, "no axis of features"),
        (lambda: reg.orthogonality(X[0]), fp.ShapeError, "not a matrix"),
        (lambda: reg.spectral_norm(X, 0), ValueError, "at least one iteration"),
        (lambda: reg.gradient_penalty(X, abs, kind="gp"), ValueError, "'gp'"),
        (lambda: reg.gradient_penalty(1.0, abs), fp.ShapeError, "no axis of samples"),
        (lambda: reg.max_norm(fp.Parameter(X), 0), ValueError, "must be positive"),
        (lambda: reg.max_norm([X], 1.0), TypeError, "not a Parameter"),
    ],
)
def test_wrong_input_is_refused_by_name(call, kind, word):
    with raises(kind, word):
        call()
