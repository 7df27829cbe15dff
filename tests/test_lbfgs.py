"""L-BFGS: where it goes, step by step, against PyTorch; what it leaves alone; what it saves.

Oracle: torch.optim.LBFGS in float64.
"""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from devices import default_device
from error_text import raises

import flamepy as fp

START = {"x": np.linspace(-1.3, 1.2, 6).reshape(2, 3), "y": np.linspace(0.9, -0.4, 6).reshape(2, 3), "z": np.array(0.3)}


@pytest.fixture(autouse=True)
def plain() -> Iterator[None]:
    with default_device("plain"):
        yield


def model(dtype: str = "float64", pack: bool = False) -> fp.ParameterDict:
    params = fp.ParameterDict({n: fp.Parameter(fp.tensor(a).to(dtype)) for n, a in START.items()})
    return params.pack() if pack else params


def valley(x: Any, y: Any, z: Any) -> Any:
    """Rosenbrock's, six times, and a bowl."""
    return (((1 - x) ** 2).sum() + 5 * ((y - x * x) ** 2).sum()) + (z - 2) ** 2 * 3 + 0.1 * (x.sum() - z) ** 2


def loss_of(params: fp.ParameterDict) -> Callable[[], Any]:
    return lambda: valley(*params.parameters())


OPTIONS: dict[str, dict[str, Any]] = {
    "fixed": {"lr": 0.1, "max_iter": 4},
    "fixed, short history": {"lr": 0.2, "max_iter": 7, "history_size": 3},
    "search": {"line_search_fn": "strong_wolfe", "max_iter": 3},
    "search, long first step": {"line_search_fn": "strong_wolfe", "lr": 30.0, "max_iter": 4, "max_eval": 9, "history_size": 2},
    "search to the end": {"line_search_fn": "strong_wolfe", "max_iter": 200, "tolerance_grad": 1e-5},
    "one": {"max_iter": 1, "lr": 0.01},
}


def torch_path(options: dict[str, Any], steps: int) -> list[tuple[float, list[np.ndarray], int]]:
    torch = pytest.importorskip("torch")
    leaves = [torch.tensor(a, requires_grad=True) for a in START.values()]
    optimizer = torch.optim.LBFGS(leaves, **options)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = valley(*leaves)
        loss.backward()
        return loss

    path = []
    for _ in range(steps):
        loss = optimizer.step(closure).item()
        path.append((loss, [t.detach().numpy().copy() for t in leaves], optimizer.state[leaves[0]]["func_evals"]))
    return path


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("pack", [False, True], ids=["plain", "packed"])
def test_it_goes_where_pytorch_goes(options: dict[str, Any], pack: bool) -> None:
    params = model(pack=pack)
    optimizer = fp.LBFGS(params, **options)
    for n, (loss, leaves, evaluations) in enumerate(torch_path(options, 12)):
        assert optimizer.step(loss_of(params)).item() == pytest.approx(loss, rel=1e-10, abs=1e-12), n
        for p, leaf in zip(params.parameters(), leaves, strict=True):
            np.testing.assert_allclose(p.numpy(), leaf, rtol=1e-10, atol=1e-11, err_msg=str(n))
        assert optimizer.history.evaluations == evaluations


def test_compiled_and_in_float32_it_arrives() -> None:
    with default_device("cpu"):
        params = model("float32")
        optimizer = fp.LBFGS(params, line_search_fn="strong_wolfe")
        for _ in range(6):
            optimizer.step(loss_of(params))
        best = model()
        wide = fp.LBFGS(best, line_search_fn="strong_wolfe")
        for _ in range(6):
            wide.step(loss_of(best))
        assert all(np.allclose(p.numpy(), best[n].numpy(), atol=1e-2) for n, p in params.named_parameters())


def test_saved_and_restored_mid_way() -> None:
    for options in OPTIONS.values():
        params = model()
        optimizer = fp.LBFGS(params, **options)
        for _ in range(3):
            optimizer.step(loss_of(params))
        other = model(pack=True)
        restored = fp.LBFGS(other, lr=0.7)
        other.load_state_dict(params.state_dict())
        restored.load_state_dict(pickle.loads(pickle.dumps(optimizer.state_dict())))
        runs = [(other, restored), pickle.loads(pickle.dumps((params, optimizer))), copy.deepcopy((params, optimizer))]
        wanted = [optimizer.step(loss_of(params)).item() for _ in range(3)]
        for its, another in runs:
            assert [another.step(loss_of(its)).item() for _ in range(3)] == wanted
            assert [p.tolist() for p in its.parameters()] == [p.tolist() for p in params.parameters()]
            assert repr(another.state_dict()) == repr(optimizer.state_dict())


def test_a_frozen_parameter_stays_and_one_parameter_is_enough() -> None:
    params = model()
    optimizer = fp.LBFGS(params, line_search_fn="strong_wolfe", max_iter=5)
    optimizer.step(loss_of(params))
    params["y"].requires_grad = False
    before = params["y"].numpy().copy()
    for _ in range(3):
        optimizer.step(loss_of(params))
    assert (params["y"].numpy() == before).all()
    p = fp.Parameter(np.array([3.0, -4.0]))
    single = fp.LBFGS(p, line_search_fn="strong_wolfe")
    assert single.step(lambda: p.square().sum()).item() == 25.0 and np.abs(p.numpy()).max() < 1e-8


def test_a_step_that_fails_changes_nothing() -> None:
    for options in ({"lr": 0.1}, {"line_search_fn": "strong_wolfe"}):
        params = model()
        optimizer = fp.LBFGS(params, **options)
        optimizer.step(loss_of(params))
        before, state = params.state_dict(), repr(optimizer.state_dict())
        left = iter(range(3))

        def broken(left: Any = left, params: Any = params) -> Any:
            return valley(*params.parameters()) if next(left) < 2 else {}["key"]

        with pytest.raises(KeyError):
            optimizer.step(broken)
        for wrong in (math.nan, math.inf):
            with raises(fp.NonFiniteError, "LBFGS", str(wrong)):
                optimizer.step(lambda wrong=wrong: valley(*params.parameters()) * wrong)
        assert all((params[n].numpy() == a).all() for n, a in before.items()) and repr(optimizer.state_dict()) == state
    diverging = fp.LBFGS(params, lr=1e6, max_iter=100, max_eval=500)
    with raises(fp.NonFiniteError, "LBFGS: the loss became", "strong_wolfe"):
        diverging.step(lambda: params["x"].square().sum().square() + params["x"].exp().sum())
    assert all((params[n].numpy() == a).all() for n, a in before.items())


def test_what_is_refused() -> None:
    params = model()
    for options, word in (
        ({"lr": -1.0}, "lr"), ({"max_iter": 0}, "max_iter"), ({"history_size": 1.5}, "history_size"), ({"max_eval": True}, "max_eval"),
        ({"max_iter": "3"}, "max_iter"), ({"tolerance_grad": -1}, "tolerance_grad"), ({"line_search_fn": "armijo"}, "line_search_fn"),
    ):  # fmt: skip
        with raises(ValueError, "LBFGS", word):
            fp.LBFGS(params, **options)
    with raises(fp.DTypeError, "LBFGS: x is float16"):
        fp.LBFGS(model("float16"))
    optimizer = fp.LBFGS(params)
    with raises(fp.DTypeError, "LBFGS.step: not a function: GradientMap"):
        optimizer.step(loss_of(params)().backward())
    with raises(fp.DTypeError, "LBFGS.step: closure() gave no loss: float"):
        optimizer.step(lambda: 1.0)
    scaler = fp.GradScaler()
    with raises(fp.GradientError, "LBFGS: these are the gradients of a scaled loss"):
        optimizer.step(lambda: scaler.scale(loss_of(params)()))
    with raises(fp.CaptureError, "reads a number on the host"):
        step = fp.capture(lambda x: optimizer.step(lambda: loss_of(params)() * x))
        for _ in range(3):
            step(fp.ones((), dtype="float64"))
    optimizer.step(loss_of(params))
    state = optimizer.state_dict()
    edits: list[tuple[Callable[[dict], Any], str]] = [
        (lambda s: s.update({"class": "SGD"}), "SGD"), (lambda s: s["groups"][0].update(names=["a", "b", "c"]), "names"),
        (lambda s: s["groups"][0].update(shapes=[[1], [2], [3]]), "shapes"), (lambda s: s["groups"][0].pop("lr"), "options"),
        (lambda s: s["state"].update(moves=np.zeros((1, 2))), "moves"), (lambda s: s["state"].update(direction=np.zeros(4)), "direction"),
    ]  # fmt: skip
    for edit, word in edits:
        wrong = copy.deepcopy(state)
        edit(wrong)
        with raises(fp.StateError, "LBFGS", word):
            optimizer.load_state_dict(wrong)
        assert repr(optimizer.state_dict()) == repr(state)
