"""Names that are not here: what people know from PyTorch gets advice that is true, a slip of the keyboard the name that was meant."""

from __future__ import annotations

import copy
import pickle
import re

import numpy as np
import pytest
from safetensors.numpy import load, save

import flamepy as fp
import flamepy.nn.functional as F
from flamepy import nn
from flamepy.advice import ADVICE, WRITTEN_OUT

OWNERS = {"Tensor": fp.ones(2, device="plain"), "flamepy": fp, "nn": nn, "Module": nn.Tanh(), "autograd": fp.autograd, "functional": F}


@pytest.mark.parametrize("owner", OWNERS)
def test_each_name_has_advice_and_is_not_here(owner):
    for name, advice in ADVICE[owner].items():
        assert not hasattr(OWNERS[owner], name), f"{name} is there: no advice is needed"
        with pytest.raises(AttributeError, match=re.escape(f"{owner}: no such name: '{name}'. {advice}")):
            getattr(OWNERS[owner], name)


@pytest.mark.parametrize("owner", OWNERS)
def test_what_the_advice_names_exists(owner):
    for advice in ADVICE[owner].values():
        for path in re.findall(r"(?:flamepy|nn)(?:\.\w+)+", advice):
            found = OWNERS["nn" if path.startswith("nn") else "flamepy"]
            for part in path.split(".")[1:]:
                found = getattr(found, part)


def test_what_pytorch_has_in_another_module_gets_advice():
    torch = pytest.importorskip("torch")
    elsewhere = {*dir(F), *dir(fp.linalg)}
    for owner, theirs, ours in (("flamepy", torch, fp), ("Tensor", torch.Tensor, fp.Tensor)):
        names = [n for n in dir(theirs) if n in elsewhere and n[0] != "_" and callable(getattr(theirs, n)) and not hasattr(ours, n)]
        assert [n for n in names if n not in ADVICE[owner]] == [], owner


DRAW = np.random.default_rng(0)
SQUARE = {name: DRAW.uniform(0.1, 0.9, (3, 3)).astype("f4") for name in "xyz"}
LINES = {"x": np.array([0.5, np.nan, 2, 3], "f4"), "y": np.array([1, 2, np.nan, -1], "f4")}
WHOLE = {"x": np.array([0, 12, -18, 7]), "y": np.array([5, 8, 24, 7])}
GIVEN = {"fmax": LINES, "fmin": LINES, "gcd": WHOLE, "lcm": WHOLE}  # what stands for x and y; a line for these:
GIVEN |= {name: {name: SQUARE[name][0] for name in "xy"} for name in ("cartesian_prod", "trapezoid", "vander")}


@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_what_is_written_out_is_pytorchs(name):
    text, arrays = re.sub(r" \((for|along) .*\)$", "", WRITTEN_OUT[name]), GIVEN.get(name, SQUARE)
    torch = pytest.importorskip("torch")
    theirs = getattr(torch, name)
    two = "x, y" if re.search(r"\by\b", text) else "x"
    want = eval(f"theirs({two})", {"theirs": theirs, **{key: torch.tensor(v) for key, v in arrays.items()}})
    found = eval(text, {"flamepy": fp, "numpy": np, **{key: fp.tensor(v) for key, v in arrays.items()}})
    np.testing.assert_allclose(found, want, 1e-4, 1e-5)


def test_a_slip_gets_the_name_that_was_meant():
    with pytest.raises(AttributeError, match=r"flamepy: no such name: 'soft_max'. Did you mean 'softmax'\?"):
        fp.soft_max  # noqa: B018
    with pytest.raises(AttributeError, match=r"init: no such name: 'xavier_unifrom'. Did you mean 'xavier_uniform'\?"):
        nn.init.xavier_unifrom  # noqa: B018
    with pytest.raises(AttributeError, match=r"nn: no such name: 'quux'\. dir"):
        nn.quux  # noqa: B018


def test_nothing_is_changed_in_place():
    x = fp.ones(2)
    with pytest.raises(AttributeError, match=re.escape("'add_'. Tensors are not changed in place: x = x.add(...).")):
        x.add_(1)
    with pytest.raises(AttributeError, match=re.escape("'fill_'. Tensors are not changed in place; set_data()")):
        x.fill_(1)
    assert not {"add_", "fill_", "stride"} & {*dir(x)}


def test_parameters_and_probes():
    """A Parameter is a Tensor; libraries look for names that are not there, and copies have attributes before they are made."""
    p = fp.Parameter(np.ones(2, "f4"))
    with pytest.raises(AttributeError, match="set_data"):
        p.data  # noqa: B018
    with pytest.raises(fp.FlameError, match=re.escape("data: cannot be set: x.data = v. Use set_data(v)")):
        p.data = fp.zeros(2)
    with pytest.raises(AttributeError, match=re.escape("grad: cannot be assigned: p.grad = g. Use p.set_grad(g)")):
        p.grad = None
    for t in (p, fp.ones(2)):
        assert not hasattr(t, "__array_interface__") and not hasattr(t, "_no_such") and getattr(t, "nothing", 3) == 3
        assert np.array_equal(copy.deepcopy(t).numpy(), t.numpy()) and np.array_equal(pickle.loads(pickle.dumps(t)).numpy(), t.numpy())


def test_values_of_a_state_are_arrays_and_answer_as_tensors():
    m = nn.Linear(3, 2)
    state = m.state_dict()
    w = state["weight"]
    assert isinstance(w, np.ndarray) and type(w.numpy()) is np.ndarray and w.numel() == w.size == 6
    copied = w.detach().cpu().clone()
    copied[0, 0] = 7
    assert w[0, 0] != 7 and np.array_equal(copied.numpy()[1:], w[1:])
    assert type(w + 1) is np.ndarray and isinstance(w.mean(), np.float32) and isinstance(np.exp(w)[0, 0], np.float32)
    for back in (pickle.loads(pickle.dumps(state)), copy.deepcopy(state), load(save(dict(state)))):
        m.load_state_dict({name: v * 2 for name, v in back.items()})
        assert np.array_equal(m.weight.numpy(), 2 * w)
    assert np.array_equal(fp.tensor(w).numpy(), w)


def test_pytorchs_other_names_mean_what_they_mean_there():
    torch = pytest.importorskip("torch")
    data = np.array([[1.5, -2.5], [0.5, 3.0]], "f4")
    x, theirs = fp.tensor(data, requires_grad=True), torch.tensor(data)
    for name in ("float", "double", "half", "bfloat16", "long", "int", "short", "char", "byte", "bool", "contiguous"):
        found, want = getattr(x.abs(), name)(), getattr(theirs.abs(), name)()
        assert str(found.dtype) == str(want.dtype).removeprefix("torch.") and found.tolist() == want.tolist(), name
    assert x.double().contiguous().clamp_min(0.0).sum().backward()[x].tolist() == [[1, 0], [1, 1]]
    for call in (
        lambda t, lib: t.clamp_max(1), lambda t, lib: t.new_zeros(2, 3), lambda t, lib: t.new_ones((3,)),
        lambda t, lib: t.new_full((2,), 3.5), lambda t, lib: t.type_as(lib.ones(2, dtype=lib.float64)),
        lambda t, lib: lib.concat([t, t]), lambda t, lib: lib.ger(t[0], t[1]),
        lambda t, lib: lib.concatenate([t, t], 1), lambda t, lib: lib.row_stack([t, t]), lambda t, lib: t.cpu(),
    ):  # fmt: skip
        found, want = call(x.detach(), fp), call(theirs, torch)
        assert found.tolist() == want.tolist() and str(found.dtype) == str(want.dtype).removeprefix("torch.")
    assert x.is_contiguous() and x.nelement() == 4 and x.ndimension() == 2


def test_a_module_takes_pytorchs_names_of_to():
    model = nn.Linear(2, 2)
    assert model.double() is model and model.weight.dtype == fp.float64 and model.half().float().cpu().bias.dtype == fp.float32
    assert not any(p.requires_grad for p in model.requires_grad_(False).parameters())
    assert all(p.requires_grad for p in model.requires_grad_().parameters())
    assert nn.Parameter is fp.Parameter
