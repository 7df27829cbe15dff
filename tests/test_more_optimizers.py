"""What holds for every kind of optimizer, compared with its oracle, with eager for what is captured, with the uninterrupted run for what is
saved.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from devices import default_device
from error_text import raises
from optimizer_tools import CASES, FIRST, ONCE, PAPERS, TOGETHER, bits, check, made, map_of, model, start, state_bits, stepping, train

import flamepy as fp

LATER = [case for case in CASES if case not in FIRST]  # test_optimizers.py has the others


@pytest.mark.parametrize("pack", [False, True], ids=["plain", "packed"])
@pytest.mark.parametrize("case", LATER)
def test_55_steps_match_the_oracle(case: str, pack: bool) -> None:
    with default_device("plain"):
        check(case, model(case, pack=pack), 55)


@pytest.mark.parametrize("case", LATER)
def test_compiled_too(case: str) -> None:
    check(case, model(case, pack=True), 20)


@pytest.mark.parametrize("kind", [kind for kind in ONCE if kind not in (*PAPERS, *TOGETHER)])
def test_defaults_are_pytorchs(kind: str) -> None:
    torch = pytest.importorskip("torch")
    mine = getattr(fp, kind)(model(kind.lower())).state_dict()["groups"][0]
    theirs = getattr(torch.optim, kind)([torch.zeros(1, 1)]).defaults
    left = {"foreach", "capturable", "differentiable", "fused", *(["decoupled_weight_decay"] if kind.startswith("Adam") else [])}
    assert {k: v for k, v in theirs.items() if k not in left} == {k: v for k, v in mine.items() if k != "names"}


# ---- what holds for all of them ----------------------------------------------------------------------------------------------------
@pytest.fixture
def plain() -> Iterator[None]:
    with default_device("plain"):
        yield


every_kind = pytest.mark.parametrize("case", ONCE.values(), ids=ONCE)


@every_kind
def test_parameter_by_parameter_has_the_same_bits(case: str, plain: None) -> None:
    """As all of packed memory at once; gradients are missing on some steps."""
    found = []
    for pack in (False, True):
        params = model(case, pack=pack)
        optimizer = made(case, params, lr=fp.schedules.warmup(0.05, 4))
        train(params, optimizer, 0, 6)
        optimizer.load_state_dict(optimizer.state_dict())
        params["v"].requires_grad = False
        train(params, optimizer, 6, 9)
        found.append((bits(params), state_bits(optimizer)))
    assert found[0] == found[1]


@every_kind
@pytest.mark.parametrize("pack", [False, True], ids=["plain", "packed"])
def test_float16_works_on_master_copies(case: str, pack: bool, plain: None) -> None:
    """Its numbers are those of float32 parameters that started from the same numbers."""
    half, wide = model(case, "float16", pack), model(case, "float32", pack)
    wide.load_state_dict({n: a.astype("f4") for n, a in half.state_dict().items()})
    a, b = made(case, half), made(case, wide)
    for step in range(6):
        grads = map_of(half, step)
        theirs = fp.GradientMap()
        for name, p in half.named_parameters():
            if p in grads:
                theirs.insert(wide[name], grads[p])
        a.step(grads)
        b.step(theirs)
    rows = a.state_dict()["state"]
    for name, p in wide.named_parameters():
        np.testing.assert_array_equal(rows[name]["master"], p.numpy())
        np.testing.assert_allclose(half[name].numpy(), p.numpy(), rtol=2e-3, atol=1e-4)


SEVERAL_LAUNCHES = ("LAMB", "Adafactor", "Muon", "AdamP", "LARS", "Prodigy")
PLACES = [(case, "plain") for case in ONCE.values()] + [(ONCE[kind], "cpu") for kind in (*SEVERAL_LAUNCHES, "NAdam")]


@pytest.mark.parametrize("case, where", PLACES)
def test_replay_is_eager_bit_for_bit_and_a_mark_stops_both(case: str, where: str) -> None:
    found = []
    for capture in (False, True):
        with default_device(where):
            params = model(case, pack=True)
            transforms = fp.transforms.ClipNorm(2.0, nonfinite="skip")
            optimizer = made(case, params, lr=fp.schedules.warmup(0.05, 4), transforms=transforms)
            run = stepping(optimizer, params)
            step, path = fp.capture(run) if capture else run, [(bits(params), state_bits(optimizer))]
            for x in (1.0, 0.7, 1.3, np.nan, 0.9, np.nan, 1.1, 0.8):
                _, done = step(fp.tensor(x, dtype="float64"))
                path.append((bits(params), state_bits(optimizer)))
                assert bool(done) == (x == x) == (path[-1] != path[-2]), x
        found.append(path)
    assert found[0] == found[1] and step.program is not None


@every_kind
def test_options_that_change_between_replays(case: str, plain: None) -> None:
    changes = {
        "SGD": {"weight_decay": 0.5, "momentum": 0.7},
        "Muon": {"ns_steps": 2, "momentum": 0.5},
        "Adafactor": {"eps": (1e-3, 0.1), "d": 1.5},
        "Lion": {"betas": (0.5, 0.6)},
        "LARS": {"weight_decay": 0.5, "trust_coefficient": 0.1},
        "SGDScheduleFree": {"weight_decay": 0.5, "momentum": 0.7},
    }
    found = []
    for capture in (False, True):
        params = model(case)
        optimizer = made(case, params)
        run = stepping(optimizer, params)
        step = fp.capture(run) if capture else run
        for n in range(8):
            if n == 4:
                optimizer.groups[0].update(changes.get(CASES[case][0], {"weight_decay": 0.5, "eps": 1e-2}))
                optimizer.lr = 0.013
            step(fp.tensor(1.0 + n, dtype="float64"))
        found.append((bits(params), state_bits(optimizer)))
    assert found[0] == found[1]


@every_kind
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_saved_and_restored_mid_way(case: str, dtype: str, plain: None) -> None:
    """Into another optimizer, by pickle and by copy: all go on bit for bit."""
    params = model(case, dtype)
    optimizer = made(case, params)
    train(params, optimizer, 0, 7)
    other = model(case, dtype, pack=True)
    restored = made(case, other, lr=0.7)
    train(other, restored, 0, 3)
    saved = pickle.loads(pickle.dumps((params.state_dict(), optimizer.state_dict())))
    other.load_state_dict(saved[0])
    restored.load_state_dict(saved[1])
    pickled, copied = pickle.loads(pickle.dumps((params, optimizer))), copy.deepcopy((params, optimizer))
    train(params, optimizer, 7, 14)
    for its, another in ((other, restored), pickled, copied):
        train(its, another, 7, 14)
        assert bits(its) == bits(params) and state_bits(another) == state_bits(optimizer)


@every_kind
def test_what_a_step_leaves_alone(case: str, plain: None) -> None:
    """Frozen parameters, those without a gradient, empty ones; another optimizer's, in the same memory."""
    params = model(case)
    params.insert("none", fp.Parameter(fp.zeros(0, 3, dtype="float64")))
    params.insert("other", fp.Parameter(fp.ones(2, 2, dtype="float64")))
    params.pack()
    mine = [p for n, p in params.named_parameters() if n != "other"]
    kind, options, _ = CASES[case]
    first, second = getattr(fp, kind)(mine, **options), fp.SGD([params["other"]], lr=0.5)
    alone = model(case)
    reference = getattr(fp, kind)(alone, **options)
    params["v"].requires_grad = alone["v"].requires_grad = False
    for _ in range(4):
        before = params.state_dict()
        grads = sum((p * p).sum() for p in params.parameters()).backward()
        assert first.step(grads) is True
        assert (params["other"].numpy() == before["other"]).all() and (params["v"].numpy() == before["v"]).all()
        reference.step(sum((p * p).sum() for p in alone.parameters()).backward())
        second.step(grads)
    for name, p in alone.named_parameters():
        np.testing.assert_allclose(params[name].numpy(), p.numpy(), rtol=1e-13)
    assert not set(first.state_dict()["state"]) & {"v", "other"}


@every_kind
def test_parameters_without_names(case: str, plain: None) -> None:
    kind, options, _ = CASES[case]
    named, nameless = model(case), [fp.Parameter(fp.tensor(a)) for a in start(case).values()]
    a, b = getattr(fp, kind)(named, **options), getattr(fp, kind)(nameless, **options)
    for _ in range(3):
        a.step(sum((p * p).sum() for p in named.parameters()).backward())
        b.step(sum((p * p).sum() for p in nameless).backward())
    assert [p.numpy().tobytes() for p in nameless] == list(bits(named).values())
    assert list(b.state_dict()["state"]) == [str(i) for i in range(len(nameless))]


@every_kind
def test_the_state_of_another_class_is_refused(case: str, plain: None) -> None:
    params = model(case)
    optimizer = made(case, params)
    train(params, optimizer, 0, 2)
    before = state_bits(optimizer)
    other = (fp.RMSprop if optimizer.name == "AdamW" else fp.AdamW)(params, lr=0.1)
    for wrong, word in ((other.state_dict(), other.name), ({**optimizer.state_dict(), "state": {"w": {"step": 1}}}, "'w'")):
        with raises(fp.StateError, optimizer.name, word):
            optimizer.load_state_dict(wrong)
        assert state_bits(optimizer) == before


NO_NUMBERS: list[tuple[str, dict[str, Any], str]] = [
    ("Adafactor", {"eps": ("a", 1e-3)}, "eps"), ("Adafactor", {"d": None}, "d"), ("Adafactor", {"beta2_decay": "x"}, "beta2_decay"),
    ("Muon", {"ns_coefficients": ("a", 1, 2)}, "ns_coefficients"), ("Adagrad", {"lr_decay": None}, "lr_decay"),
]  # fmt: skip
WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("RMSprop", {"alpha": 1.5}, "alpha"), ("RMSprop", {"momentum": -1}, "momentum"), ("RMSprop", {"eps": -1.0}, "eps"),
    ("Adagrad", {"lr_decay": -1}, "lr_decay"), ("Adagrad", {"initial_accumulator_value": -1}, "initial_accumulator_value"),
    ("Adadelta", {"rho": 1.5}, "rho"), ("RAdam", {"betas": (0.9, 1.0)}, "betas"), ("NAdam", {"momentum_decay": -1}, "momentum_decay"),
    ("Adamax", {"weight_decay": -1}, "weight_decay"), ("Lion", {"betas": (0.9,)}, "betas"), ("LAMB", {"lr": float("nan")}, "lr"),
    ("Adafactor", {"eps": (-1.0, 0.1)}, "eps"), ("Adafactor", {"eps": 0.1}, "eps"), ("Adafactor", {"d": 0.5}, "d"),
    ("Adafactor", {"beta2_decay": 0.5}, "beta2_decay"), ("Muon", {"ns_steps": 100}, "ns_steps"), ("Muon", {"ns_steps": 1.5}, "ns_steps"),
    ("Muon", {"ns_coefficients": (1.0, 2.0)}, "ns_coefficients"), ("Muon", {"momentum": 1.0}, "momentum"),
    ("Muon", {"adjust_lr_fn": "half"}, "adjust_lr_fn"), ("Muon", {"adjust_lr_fn": ["original"]}, "adjust_lr_fn"),

]  # fmt: skip


@pytest.mark.parametrize("kind, options, word", WRONG)
def test_impossible_options(kind: str, options: dict[str, Any], word: str, plain: None) -> None:
    params = model(kind.lower())
    with raises(ValueError, f"{kind}: {word}"):
        getattr(fp, kind)(params, **options)
    optimizer = getattr(fp, kind)(params)
    with raises(ValueError, f"{kind}: {word}"):
        optimizer.groups[0].update(options)
    for flag in {"centered", "maximize", "decoupled_weight_decay", "nesterov"} & set(optimizer.groups[0]):
        with raises(fp.DTypeError, f"{kind}: {flag}"):
            getattr(fp, kind)(params, **{flag: 1})


@pytest.mark.parametrize("kind, options, word", NO_NUMBERS)
def test_options_that_are_no_numbers(kind: str, options: dict[str, Any], word: str, plain: None) -> None:
    with raises(fp.DTypeError, f"{kind}: {word} is no number"):
        getattr(fp, kind)(model(kind.lower()), **options)


def test_muon_takes_matrices_alone(plain: None) -> None:
    with raises(fp.ShapeError, "Muon: not a matrix: b has shape (3,)", "ByName"):
        fp.Muon(model("adam"))
    optimizer = fp.Muon(model("muon"))
    with raises(fp.ShapeError, "Muon: not a matrix"):
        optimizer.add_param_group({"params": [fp.Parameter(np.ones(2))]})
    assert len(optimizer.groups) == 1


def test_muon_is_close_to_pytorchs_own(plain: None) -> None:
    """Which does its iterations in bfloat16."""
    torch = pytest.importorskip("torch")
    params, leaves = model("muon"), [torch.tensor(a) for a in start("muon").values()]
    mine, theirs = fp.Muon(params, lr=0.1), torch.optim.Muon(leaves, lr=0.1)
    for n in range(5):
        grads = map_of(params, n)
        for leaf, p in zip(leaves, params.parameters(), strict=True):
            leaf.grad = torch.tensor(grads[p].numpy()) if p in grads else None
        mine.step(grads)
        theirs.step()
    for leaf, p in zip(leaves, params.parameters(), strict=True):
        np.testing.assert_allclose(p.numpy(), leaf.numpy(), atol=0.02)
