"""The optimizers beside SGD and Adam: each against an oracle, then what holds for all of them.

Oracles: torch.optim in float64 with the same gradients, some missing on some steps; for Lion and LAMB their papers in NumPy; eager
for what is captured; the uninterrupted run for what is saved.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from devices import default_device
from error_text import raises
from optimizer_tools import Arrays, bits, gradient_of, lamb, lion, map_of, model, start, state_bits, stepping, train

import flamepy as fp

CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "rmsprop": ("RMSprop", {"lr": 0.02, "weight_decay": 0.1}, {}),
    "rmsprop momentum": ("RMSprop", {"lr": 0.02, "momentum": 0.8, "alpha": 0.9}, {"b": {"momentum": 0.0, "lr": 0.1}}),
    "rmsprop centered": ("RMSprop", {"lr": 0.01, "centered": True, "maximize": True}, {"b": {"centered": False}}),
    "rmsprop both": ("RMSprop", {"lr": 0.01, "centered": True, "momentum": 0.5}, {"b": {"eps": 1e-3}}),
    "adagrad": ("Adagrad", {"lr": 0.1, "lr_decay": 0.05, "weight_decay": 0.1}, {"b": {"lr_decay": 0.2, "eps": 1e-3}}),
    "adagrad up": ("Adagrad", {"lr": 0.05, "maximize": True, "initial_accumulator_value": 0.1}, {}),
    "adadelta": ("Adadelta", {"weight_decay": 0.1}, {"b": {"rho": 0.8, "lr": 0.5}}),
    "adadelta up": ("Adadelta", {"eps": 1e-3, "maximize": True}, {}),
    "radam": ("RAdam", {"lr": 0.05, "weight_decay": 0.1}, {"b": {"betas": (0.8, 0.9)}}),
    "radam decoupled": ("RAdam", {"lr": 0.05, "weight_decay": 0.2, "decoupled_weight_decay": True, "betas": (0.9, 0.7)}, {}),
    "radam up": ("RAdam", {"lr": 0.05, "maximize": True}, {}),
    "nadam": ("NAdam", {"lr": 0.05, "weight_decay": 0.1}, {"b": {"momentum_decay": 0.1, "lr": 0.02}}),
    "nadam decoupled": ("NAdam", {"lr": 0.05, "weight_decay": 0.2, "decoupled_weight_decay": True, "maximize": True}, {}),
    "adamax": ("Adamax", {"lr": 0.05, "weight_decay": 0.1}, {"b": {"betas": (0.8, 0.9)}}),
    "adamax up": ("Adamax", {"lr": 0.05, "maximize": True}, {}),
    "lion": ("Lion", {"lr": 0.01, "weight_decay": 0.3}, {"b": {"betas": (0.8, 0.9), "lr": 0.02}}),
    "lion up": ("Lion", {"lr": 0.01, "maximize": True}, {}),
    "lamb": ("LAMB", {"lr": 0.05}, {"b": {"betas": (0.8, 0.9), "weight_decay": 0.5}}),
    "lamb up": ("LAMB", {"lr": 0.02, "maximize": True, "weight_decay": 0.0}, {}),
    "adafactor": ("Adafactor", {"lr": 0.05, "weight_decay": 0.1}, {"b": {"beta2_decay": -0.5, "d": 2.0, "lr": 0.2}}),
    "adafactor up": ("Adafactor", {"lr": 0.1, "eps": (1e-2, 0.5), "maximize": True}, {}),
    "muon": ("Muon", {"lr": 0.05}, {"b": {"nesterov": False, "weight_decay": 0.0}}),
    "muon long": ("Muon", {"lr": 0.02, "adjust_lr_fn": "match_rms_adamw", "momentum": 0.8, "ns_steps": 3}, {}),
}  # fmt: skip
ONCE = {kind: case for case, (kind, *_) in reversed(CASES.items())}  # one case of each


def made(case: str, params: fp.ParameterDict, **more: Any) -> fp.optimizers.Optimizer:
    kind, options, groups = CASES[case]
    hidden = {"lr"} if callable(more.get("lr")) else set()
    groups = {n if n in params else "v": {k: x for k, x in o.items() if k not in hidden} for n, o in groups.items()}
    return getattr(fp, kind)(params, groups=groups, **{**options, **more})


# ---- the oracles -----------------------------------------------------------------------------------------------------------------
PAPERS: dict[str, Callable[..., Any]] = {"Lion": lion, "LAMB": lamb}


def by_paper(case: str) -> Callable[[Arrays, Arrays], None]:
    kind, options, groups = CASES[case]
    states: dict[str, dict] = {}

    def step(arrays: Arrays, found: Arrays) -> None:
        for n, g in found.items():
            s, more = states.setdefault(n, {"t": 0}), {**options, **groups.get(n, {})}
            s["t"] += 1
            sign = -1.0 if more.pop("maximize", False) else 1.0
            arrays[n] = np.asarray(PAPERS[kind](arrays[n], s, sign * g, s["t"], **more))

    return step


@contextmanager
def wide_numbers(torch: Any) -> Iterator[None]:
    """In float64 what PyTorch would compute with fewer bits whatever the parameters are: NAdam's products, Muon's iterations."""
    torch.set_default_dtype(torch.float64)
    with patch.object(torch.Tensor, "bfloat16", lambda t: t.clone()):
        yield
    torch.set_default_dtype(torch.float32)


def by_torch(case: str) -> Callable[[Arrays, Arrays], None]:
    torch = pytest.importorskip("torch")
    kind, options, groups = CASES[case]
    leaves = {n: torch.tensor(a) for n, a in start(case).items()}
    apart = [{"params": [leaves[n if n in leaves else "v"]], **more} for n, more in groups.items()]
    rest = [t for t in leaves.values() if not any(t is g["params"][0] for g in apart)]
    optimizer = getattr(torch.optim, kind)([*apart, {"params": rest}], **options)

    def step(arrays: Arrays, found: Arrays) -> None:
        for n, leaf in leaves.items():
            leaf.grad = torch.tensor(found[n]) if n in found else None
        with wide_numbers(torch):
            optimizer.step()
        arrays.update({n: leaf.numpy().copy() for n, leaf in leaves.items()})

    return step


def expected(case: str, steps: int) -> list[Arrays]:
    step, arrays, path = (by_paper if CASES[case][0] in PAPERS else by_torch)(case), start(case), []
    for n in range(steps):
        step(arrays, gradient_of(arrays, n))
        path.append(dict(arrays))
    return path


def check(case: str, params: fp.ParameterDict, steps: int) -> None:
    for n, (mine, theirs) in enumerate(zip(train(params, made(case, params), 0, steps), expected(case, steps), strict=True)):
        for name, a in mine.items():
            np.testing.assert_allclose(a, theirs[name], rtol=1e-10, atol=1e-12, err_msg=f"step {n} {name}")


@pytest.mark.parametrize("pack", [False, True], ids=["plain", "packed"])
@pytest.mark.parametrize("case", CASES)
def test_55_steps_match_the_oracle(case: str, pack: bool) -> None:
    with default_device("plain"):
        check(case, model(case, pack=pack), 55)


@pytest.mark.parametrize("case", CASES)
def test_compiled_too(case: str) -> None:
    check(case, model(case, pack=True), 20)


@pytest.mark.parametrize("kind", [kind for kind in ONCE if kind not in PAPERS])
def test_defaults_are_pytorchs(kind: str) -> None:
    torch = pytest.importorskip("torch")
    mine = getattr(fp, kind)(model(kind.lower())).state_dict()["groups"][0]
    theirs = getattr(torch.optim, kind)([torch.zeros(1, 1)]).defaults
    left = {"foreach", "capturable", "differentiable", "fused"}
    assert {k: v for k, v in theirs.items() if k not in left} == {k: v for k, v in mine.items() if k != "names"}


# ---- what holds for all of them ----------------------------------------------------------------------------------------------------
@pytest.fixture
def plain() -> Iterator[None]:
    with default_device("plain"):
        yield


every_kind = pytest.mark.parametrize("case", ONCE.values(), ids=ONCE)


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


def captured_step(case: str, optimizer: Any, params: fp.ParameterDict) -> Callable[[Any], Any]:
    def step(x: Any) -> Any:
        loss = sum((p * p * x + (3 * p).sin() * 0.3).sum() for p in params.parameters())
        return loss, optimizer.step(loss.backward())

    return step


def scales(n: int) -> list[float]:
    return [1.0, 0.7, 1.3, np.nan, 0.9, 1.1, np.nan, 0.8][:n]


SEVERAL_LAUNCHES = ("LAMB", "Adafactor", "Muon")
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
    changes = {"Muon": {"ns_steps": 2, "momentum": 0.5}, "Adafactor": {"eps": (1e-3, 0.1), "d": 1.5}, "Lion": {"betas": (0.5, 0.6)}}
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
    for wrong, word in ((fp.AdamW(params, lr=0.1).state_dict(), "AdamW"), ({**optimizer.state_dict(), "state": {"w": {"step": 1}}}, "'w'")):
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
