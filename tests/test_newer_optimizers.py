"""What the optimizers of the last years have beside the step: estimates of the curvature, weights that are switched, a distance that is
found, a second gradient; and that the tests of their arithmetic reach what is special in them.

Oracles: NumPy from the papers; eager for what is captured, the uninterrupted run for what is saved.
"""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from devices import default_device
from error_text import raises
from optimizer_tools import CASES, adamp, bits, by_paper, gradient_of, made, map_of, model, start, state_bits, train

import flamepy as fp
import flamepy.nn.functional as F
from flamepy import nn
from flamepy.optimizers import gauss_newton_bartlett, hutchinson

pytestmark = pytest.mark.usefixtures("device")


@pytest.fixture
def plain() -> Any:
    with default_device("plain"):
        yield


def loss_of(params: fp.ParameterDict, x: float = 1.0) -> fp.Tensor:
    return sum((p * p * x + (3 * p).sin() * 0.3).sum() for p in params.parameters())


# ---- AdamP ---------------------------------------------------------------------------------------------------------------------------
def test_adamps_cases_project_and_do_not(plain: None) -> None:
    projected = {}
    for case in ("adamp", "adamp nesterov", "adamp up"):
        step, arrays = by_paper(case), start(case)
        for n in range(20):
            step(arrays, gradient_of(arrays, n))
        rows = step.states
        projected[case] = sum(s.get("projected", 0) for s in rows.values()), sum(s["t"] for n, s in rows.items() if n in "wv")
    assert 0 < projected["adamp"][0] < projected["adamp"][1] and 0 == projected["adamp up"][0] < projected["adamp nesterov"][0]


def test_adamp_projects_the_whole_where_one_row_does_not() -> None:
    p, g = np.eye(4) * 3.0, np.roll(np.eye(4), 1, axis=1)
    g[0] = p[0] * 0.1
    params = fp.ParameterDict({"w": fp.Parameter(p)})
    optimizer, grads, s = fp.AdamP(params, lr=0.1, weight_decay=0.5, delta=1.0), fp.GradientMap(), {"t": 1}
    grads.insert(params["w"], fp.tensor(g))
    optimizer.step(grads)
    want = adamp(p, s, g, 1, lr=0.1, weight_decay=0.5, delta=1.0)
    np.testing.assert_allclose(params["w"].numpy(), want, rtol=1e-12, atol=1e-14)
    assert s["projected"] == 1


# ---- Sophia --------------------------------------------------------------------------------------------------------------------------
def test_hutchinsons_estimate_is_exact_for_a_diagonal() -> None:
    """Where the Hessian is diagonal u * (Hu) / u^2 is its diagonal for every u: the mean over many u is."""
    params = fp.ParameterDict({"w": fp.Parameter(np.float64([0.5, -1.0, 2.0])), "b": fp.Parameter(np.float64([1.0]))})
    fp.manual_seed(0)
    found = []
    for _ in range(400):
        loss = (params["w"] ** 4).sum() + 3.0 * params["b"].sum()
        estimate = hutchinson(loss)
        found.append(estimate["w"].numpy())
        assert not estimate["w"].requires_grad and ("b" not in estimate or (estimate["b"].numpy() == 0).all())
    np.testing.assert_allclose(np.mean(found, axis=0), 12 * params["w"].numpy() ** 2, rtol=0.3)
    assert set(hutchinson(loss, [params["w"]])) == {params["w"].id} and loss.backward()["w"].shape == (3,)


def test_the_gauss_newton_estimate() -> None:
    """Its mean over many draws is the diagonal of J^T (diag(p) - pp^T) J / n, here with J from a linear layer."""
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(6, 3)), rng.normal(size=(4, 3))
    p = fp.Parameter(w)
    fp.manual_seed(1)
    found = np.mean([gauss_newton_bartlett(fp.tensor(x) @ p.T)[p].numpy() for _ in range(2000)], axis=0)
    s = np.exp(x @ w.T) / np.exp(x @ w.T).sum(1, keepdims=True)
    np.testing.assert_allclose(found, ((s * (1 - s)).T @ x**2) / 6, rtol=0.15)
    with raises(fp.ShapeError, "gauss_newton_bartlett", "(samples, classes)"):
        gauss_newton_bartlett(fp.ones(3))


@pytest.mark.parametrize("pack", [False, True])
def test_sophia_with_its_curvature(pack: bool) -> None:
    rng, params = np.random.default_rng(3), model("sophia", pack=pack)
    optimizer, step, arrays = made("sophia", params), by_paper("sophia"), start("sophia")
    states = step.states
    for n in range(12):
        step(arrays, gradient_of(arrays, n))
        optimizer.step(map_of(params, n))
        if n % 3 == 0:
            estimate = fp.GradientMap()
            for name, a in arrays.items():
                if name in states and name != "v":
                    h = np.asarray(rng.normal(size=a.shape)) * 5
                    beta2 = 0.9 if name == "b" else 0.99
                    states[name]["h"] = beta2 * states[name].get("h", 0.0) + (1 - beta2) * h
                    estimate.insert(params[name], fp.tensor(h))
            optimizer.update_hessian(estimate)
        for name, a in params.state_dict().items():
            np.testing.assert_allclose(a, arrays[name], rtol=1e-10, atol=1e-12)


def test_sophia_captured_and_refused(plain: None) -> None:
    found = []
    for capture in (False, True):
        fp.manual_seed(5)
        params = model("sophia", pack=True)
        optimizer = fp.Sophia(params, lr=0.01)

        def run(x: Any) -> Any:
            loss = loss_of(params, x)
            optimizer.update_hessian(hutchinson(loss))
            optimizer.step(loss.backward())
            return loss

        step = fp.capture(run) if capture else run
        for x in (1.0, 0.5, 2.0, 1.5, 1.0):
            step(fp.tensor(x, dtype="float64"))
        found.append((bits(params), state_bits(optimizer)))
    assert found[0] == found[1] and (optimizer.state_dict()["state"]["w"]["h"] != 0).all()
    before = state_bits(optimizer)
    wrong = fp.GradientMap()
    wrong.insert(fp.Parameter(np.ones(3)), fp.ones(3))
    for error, given, word in (
        (fp.GradientError, fp.ones(3), "not a map"), (fp.StateError, fp.GradientMap(), "no parameter"), (fp.StateError, wrong, "no param"),
    ):  # fmt: skip
        with raises(error, "Sophia.update_hessian", word):
            optimizer.update_hessian(given)
    assert state_bits(optimizer) == before


# ---- schedule-free -------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("case", ["schedule-free", "schedule-free sgd"])
@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_switching_to_the_average_and_back(case: str, dtype: str) -> None:
    params = model(case, dtype, pack=True)
    optimizer = made(case, params)
    train(params, optimizer, 0, 7)
    y = {n: a.astype("f8") for n, a in params.state_dict().items()}
    rows = optimizer.state_dict()["state"]
    optimizer.eval()
    optimizer.eval()
    beta = CASES[case][1].get("momentum", 0.9)
    for name, a in params.state_dict().items():  # y = beta x + (1 - beta) z
        tolerance = {"rtol": 1e-12} if dtype == "float64" else {"rtol": 4e-3, "atol": 1e-3}
        np.testing.assert_allclose(beta * a + (1 - beta) * rows[name]["z"], y[name], **tolerance)
    with raises(fp.StateError, "step() after eval()", "optimizer.train()"):
        optimizer.step(map_of(params, 7))
    saved = optimizer.state_dict()
    assert saved["training"] is False
    other = model(case, dtype)
    restored = made(case, other)
    other.load_state_dict(params.state_dict())
    restored.load_state_dict(saved)
    assert restored.training is False
    for one, its in ((optimizer, params), (restored, other), pickle.loads(pickle.dumps((optimizer, params)))):
        one.train()
        train(its, one, 7, 10)
    assert bits(other) == bits(params) and state_bits(restored) == state_bits(optimizer)
    with raises(fp.StateError, "training is no yes or no"):
        optimizer.load_state_dict({**saved, "training": 1})
    with raises(fp.StateError, "not the state of an optimizer"):
        optimizer.load_state_dict({key: value for key, value in saved.items() if key != "training"})


def test_schedule_free_learns_and_refuses(plain: None) -> None:
    fp.manual_seed(0)
    net, x = nn.Linear(4, 1), fp.randn(64, 4)
    y = x.sum(axis=1, keepdims=True)
    optimizer = fp.AdamWScheduleFree(net, lr=0.05, warmup_steps=10)
    step = fp.capture(lambda: optimizer.step(F.mse_loss(net(x), y).backward()))
    for _ in range(200):
        step()
    optimizer.eval()
    assert F.mse_loss(net(x), y).item() < 1e-3
    with raises(fp.StateError, "step() after eval()"):
        step()
    optimizer.train()
    step()
    with raises(fp.CaptureError, "AdamWScheduleFree: every replay", "eval()"):
        fp.capture(lambda: (net(x), optimizer.eval()))()
    for options, word in (({"warmup_steps": 1.5}, "warmup_steps"), ({"betas": (0.0, 0.9)}, "betas"), ({"r": -1.0}, "r out of range")):
        with raises(ValueError, f"AdamWScheduleFree: {word}"):
            fp.AdamWScheduleFree(net, **options)


# ---- Prodigy -------------------------------------------------------------------------------------------------------------------------
def test_prodigy_finds_a_rate() -> None:
    fp.manual_seed(0)
    net, x = nn.Linear(4, 1), fp.randn(64, 4)
    y = x.sum(axis=1, keepdims=True)
    optimizer = fp.Prodigy(net)
    assert optimizer.d == 1e-6
    step = fp.capture(lambda: optimizer.step(F.mse_loss(net(x), y).backward()))
    for _ in range(150):
        step()
    assert 1e-3 < optimizer.d < 10 and F.mse_loss(net(x), y).item() < 1e-2
    saved = optimizer.state_dict()
    assert saved["distance"][0] == optimizer.d
    with raises(fp.StateError, "Prodigy: not three numbers"):
        optimizer.load_state_dict({**saved, "distance": [1.0, "a", 2.0]})
    assert copy.deepcopy(optimizer).d == optimizer.d
    for options, word in (({"d0": 0.0}, "d0"), ({"growth_rate": 0.5}, "growth_rate"), ({"beta3": 1.0}, "beta3")):
        with raises(ValueError, f"Prodigy: {word}"):
            fp.Prodigy(net, **options)


# ---- SAM -----------------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize("pack", [False, True])
def test_sam_against_its_paper(pack: bool, adaptive: bool) -> None:
    params, arrays = model("sgd", pack=pack), start("sgd")
    sam = fp.SAM(fp.SGD(params, lr=0.05, momentum=0.9), rho=0.1, adaptive=adaptive)
    v = dict.fromkeys(arrays, 0.0)

    def gradient(at: Any) -> Any:
        return {n: 2 * a + 0.9 * np.cos(3 * a) for n, a in at.items()}

    for _ in range(6):
        g = gradient(arrays)
        size = {n: abs(a) if adaptive else np.ones_like(a) for n, a in arrays.items()}
        norm = sum(((size[n] * g[n]) ** 2).sum() for n in g) ** 0.5
        g = gradient({n: a + 0.1 * size[n] ** 2 * g[n] / norm for n, a in arrays.items()})
        v = {n: 0.9 * v[n] + g[n] for n in g}
        arrays = {n: a - 0.05 * v[n] for n, a in arrays.items()}
        loss = sam.step(lambda: loss_of(params))
        assert not loss.requires_grad
        for n, a in params.state_dict().items():
            np.testing.assert_allclose(a, arrays[n], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_sam_by_hand_captured_and_saved(dtype: str, plain: None) -> None:
    found = []
    for capture in (False, True):
        params = model("sgd", dtype, pack=True)
        sam = fp.SAM(fp.AdamW(params, lr=0.01), rho=0.2)

        def run(x: Any) -> Any:
            sam.first_step(loss_of(params, x).backward())
            return sam.second_step(loss_of(params, x).backward())

        step = fp.capture(run) if capture else run
        for x in (1.0, 0.5, 2.0, 1.5, 1.0):
            step(fp.tensor(x, dtype=dtype))
        found.append((bits(params), state_bits(sam)))
    assert found[0] == found[1]
    before = bits(params)
    sam.first_step(loss_of(params).backward())
    assert bits(params) != before
    for call, what in (
        (lambda: sam.first_step(loss_of(params).backward()), "first_step() twice"), (sam.state_dict, "state_dict()"),
        (lambda: sam.load_state_dict({}), "load_state_dict()"),
    ):  # fmt: skip
        with raises(fp.StateError, f"SAM: {what}"):
            call()
    sam.back()
    assert bits(params) == before


def test_sam_refuses(plain: None) -> None:
    params = model("sgd")
    sam = fp.SAM(fp.SGD(params, lr=0.1))
    before, calls = bits(params), []

    def closure() -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise KeyError("mine")
        return loss_of(params)

    with pytest.raises(KeyError):
        sam.step(closure)
    assert bits(params) == before and not sam.left
    for error, call, word in (
        (fp.StateError, lambda: sam.second_step(fp.GradientMap()), "second_step() before"), (fp.DTypeError, lambda: sam.step(3), "int"),
        (fp.DTypeError, lambda: sam.step(loss_of(params)), "not a function"), (fp.DTypeError, lambda: sam.first_step(None), "not a map"),
        (fp.DTypeError, lambda: sam.step(lambda: 3.0), "gave no loss"), (fp.DTypeError, lambda: fp.SAM(params), "not an optimizer"),
        (ValueError, lambda: fp.SAM(fp.SGD(params, lr=0.1), rho=-1.0), "rho"),
    ):  # fmt: skip
        with raises(error, "SAM", word):
            call()
    params["v"].requires_grad = False
    frozen = params["v"].numpy().tobytes()
    sam.step(lambda: loss_of(params))
    assert params["v"].numpy().tobytes() == frozen and bits(params) != before
    sam.lr = 0.5
    assert sam.optimizer.lr == sam.lr == 0.5 and sam.params is sam.optimizer.params
