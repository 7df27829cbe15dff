"""Optimizer state: plain data keyed by parameter name, checked before it is restored, complete to the last bit.

The gate is training 10 steps, saving, loading in a new process and training 10 more: it must equal 20 steps bit for bit, for every
optimizer and dtype, packed or not. 16-bit parameters train on float32 master copies. Oracles: the uninterrupted run, NumPy, hand.
Run as a program, this file is that new process.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from devices import default_device, has_gpu
from error_text import raises
from optimizer_tools import bits

import flamepy as fp

pytestmark = pytest.mark.usefixtures("device")

KINDS = {
    "sgd": lambda p: fp.SGD(p, lr=0.1, weight_decay=0.01),
    "momentum": lambda p: fp.SGD(p, lr=0.05, momentum=0.9, groups={"b": {"lr": 0.1}}),
    "adam": lambda p: fp.Adam(p, lr=0.05, weight_decay=0.1),
    "adamw": lambda p: fp.AdamW(p, lr=0.05, groups={"b": {"weight_decay": 0.0, "betas": (0.8, 0.9)}}),
}
SLOTS = {"sgd": set(), "momentum": {"m"}, "adam": {"m", "v"}, "adamw": {"m", "v"}}
DTYPES = ["float32", "float64", "float16", "bfloat16"]


def model(dtype="float32", seed=0, pack=False) -> fp.ParameterDict:
    rng = np.random.default_rng(seed)
    params = fp.ParameterDict({n: fp.Parameter(fp.tensor(rng.normal(size=s)).to(dtype)) for n, s in {"w": (3, 4), "b": (4,)}.items()})
    return params.pack() if pack else params


def train(params: fp.ParameterDict, optimizer: fp.optimizers.Optimizer, first: int, last: int) -> None:
    for step in range(first, last):
        x = fp.tensor(np.random.default_rng(step).normal(size=(5, 3))).to(params["w"].dtype)
        y = x @ params["w"] if step % 4 == 2 else x @ params["w"] + params["b"]  # b has no gradient now and then
        grads = (y.tanh() - 0.5).square().mean().backward()
        fp.clip_grad_norm(grads, 0.5)
        optimizer.step(grads)


# ---- the format -----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_it_is_plain_data_keyed_by_name(kind, dtype):
    params = model(dtype)
    optimizer = KINDS[kind](params)
    assert optimizer.state_dict()["state"] == {}
    train(params, optimizer, 0, 4)
    state = optimizer.get_state()
    assert set(state) == {"class", "order", "groups", "state"} and [n for g in state["groups"] for n in g["names"]] == ["w", "b"]
    json.dumps(state["groups"])
    half = dtype in ("float16", "bfloat16")
    for name, steps in (("w", 4), ("b", 3)):
        row = state["state"][name]
        assert row["step"] == steps and type(row["step"]) is int
        assert set(row) == {"step", *SLOTS[kind], *(["master"] if half else [])}
        for slot in set(row) - {"step"}:
            assert type(row[slot]) is np.ndarray and row[slot].shape == params[name].shape
            assert row[slot].dtype == ("float64" if dtype == "float64" else "float32")
    group = state["groups"][0]
    adam, sgd = {"betas", "eps", "amsgrad"}, {"momentum", "dampening", "nesterov"}
    assert set(group) == {"names", "lr", "weight_decay", "maximize"} | (adam if "adam" in kind else sgd) and group["lr"] == optimizer.lr


def test_it_is_a_copy_both_ways():
    params = model()
    optimizer = KINDS["adamw"](params)
    train(params, optimizer, 0, 2)
    state = optimizer.state_dict()
    kept = pickle.dumps(state)
    train(params, optimizer, 2, 4)
    assert pickle.dumps(state) == kept
    optimizer.load_state_dict(state)
    state["state"]["w"]["m"][:] = 0
    state["groups"][0]["lr"] = 9.0
    assert optimizer.state_dict()["state"]["w"]["m"].any() and optimizer.lr == 0.05


def test_the_moments_are_those_of_the_paper():
    params = fp.ParameterDict({"p": fp.Parameter(np.array([1.0]))})
    optimizer = fp.Adam(params, lr=0.1, betas=(0.9, 0.99))
    for g in (2.0, -1.0):
        params["p"].set_grad([g])
        optimizer.step()
    row = optimizer.state_dict()["state"]["p"]
    assert row["m"][0] == pytest.approx(0.9 * 0.2 - 0.1, rel=1e-14) and row["v"][0] == pytest.approx(0.99 * 0.04 + 0.01, rel=1e-14)


# ---- the gate -------------------------------------------------------------------------------------------------------------------
def second_half(path: str, kind: str, dtype: str, pack: bool, order: str) -> None:
    """In the new process: load, train steps 10 to 20, write the parameters."""
    with open(path, "rb") as file:
        saved = pickle.load(file)
    params = model(dtype, seed=99, pack=pack)
    optimizer = KINDS[kind](params)
    loads = [lambda: params.load_state_dict(saved["params"]), lambda: optimizer.load_state_dict(saved["optimizer"])]
    for load in loads if order == "params first" else loads[::-1]:
        load()
    train(params, optimizer, 10, 20)
    with open(path, "wb") as file:
        pickle.dump((bits(params), optimizer.state_dict()), file)


JOBS = [
    ("adamw", "float32", False, "params first"), ("adamw", "float32", True, "optimizer first"), ("adam", "float64", True, "params first"),
    ("momentum", "float32", True, "params first"), ("sgd", "float16", False, "params first"), ("adamw", "bfloat16", True, "params first"),
    ("adamw", "bfloat16", False, "optimizer first"), ("momentum", "float16", True, "optimizer first"),
]  # fmt: skip


def test_train_10_save_load_in_a_new_process_train_10_equals_train_20(tmp_path, device):
    expected = []
    for number, (kind, dtype, pack, _) in enumerate(JOBS):
        params = model(dtype, pack=pack)
        optimizer = KINDS[kind](params)
        train(params, optimizer, 0, 10)
        saved = {"params": params.state_dict(), "optimizer": optimizer.state_dict()}
        (tmp_path / str(number)).write_bytes(pickle.dumps(saved))
        train(params, optimizer, 10, 20)
        expected.append((bits(params), optimizer.state_dict()))
    emulated = {"FLAMEPY_CUDA": "emulator"} if device == "cuda" and not has_gpu() else {}
    subprocess.run([sys.executable, __file__, str(tmp_path), device], check=True, timeout=300, env={**os.environ, **emulated})
    for number, (job, (numbers, state)) in enumerate(zip(JOBS, expected, strict=True)):
        loaded, loaded_state = pickle.loads((tmp_path / str(number)).read_bytes())
        assert loaded == numbers, job
        assert loaded_state["groups"] == state["groups"], job
        for name, row in state["state"].items():
            other = loaded_state["state"][name]
            assert all(np.asarray(row[s]).tobytes() == np.asarray(other[s]).tobytes() for s in row) and set(row) == set(other), job


def test_json_turns_tuples_into_lists_and_that_is_fine():
    params = model()
    optimizer = KINDS["adamw"](params)
    train(params, optimizer, 0, 3)
    state = optimizer.state_dict()
    rows = {n: {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in row.items()} for n, row in state["state"].items()}
    again = json.loads(json.dumps({"groups": state["groups"], "state": rows}))
    other = model()
    other.load_state_dict(params.state_dict())
    fresh = KINDS["adamw"](other)
    fresh.restore_state(again)
    assert fresh.state_dict()["groups"] == state["groups"]
    train(params, optimizer, 3, 6)
    train(other, fresh, 3, 6)
    assert bits(params) == bits(other)


def test_restoring_before_the_first_step_in_flames_style():
    def triples(params, step):
        grads = (params["w"].square().sum() + (params["b"] * (step + 1.0)).sum()).backward()
        return [(p.id, p, grads[p]) for p in params.parameters()]

    runs = []
    for interrupted in (False, True):
        params, optimizer = model(), fp.Adam(fp.AdamConfig(lr=0.1))
        for step in range(6):
            if interrupted and step == 3:
                state, optimizer = optimizer.state_dict(), fp.Adam(fp.AdamConfig(lr=0.7))
                optimizer.load_state_dict(state)
                assert optimizer.state_dict()["state"].keys() == {"w", "b"}
            optimizer.step(triples(params, step))
        runs.append(bits(params))
    assert runs[0] == runs[1]


def test_restoring_forgets_what_came_after():
    params = model()
    optimizer = KINDS["adam"](params)
    empty = optimizer.state_dict()
    start = params.state_dict()
    train(params, optimizer, 0, 3)
    once = bits(params)
    params.load_state_dict(start)
    optimizer.load_state_dict(empty)
    assert optimizer.state_dict()["state"] == {}
    train(params, optimizer, 0, 3)
    assert bits(params) == once


def test_the_options_come_back_with_the_state():
    params = model()
    trained = fp.SGD(params, lr=0.3, momentum=0.9)
    train(params, trained, 0, 3)
    plain = fp.SGD(params, lr=0.1)  # no momentum: keeps no velocity, until a state with one is restored
    train(params, plain, 3, 4)
    plain.load_state_dict(trained.state_dict())
    assert plain.lr == 0.3 and plain.state_dict()["groups"][0]["momentum"] == 0.9
    copy = model()
    copy.load_state_dict(params.state_dict())
    other = fp.SGD(copy, lr=0.3, momentum=0.9)
    other.load_state_dict(trained.state_dict())
    train(params, plain, 4, 6)
    train(copy, other, 4, 6)
    assert bits(params) == bits(copy)


# ---- checks -----------------------------------------------------------------------------------------------------------------------
def rename(state):
    state["groups"][0]["names"] = ["w", "bias"]


WRONG = {
    "count": (lambda s: s["groups"][0]["names"].append("c"), ["AdamW: parameter count mismatch: state has 3, model has 2. "]),
    "names": (rename, ["names", "'b'", "'bias'"]),
    "other names": (lambda s: s["groups"][0].update(names=[1, 2]), ["groups with names"]),
    "rows": (lambda s: s["state"].update(x=s["state"]["w"]), ["names", "'x'"]),
    "shape": (lambda s: s["state"]["b"].update(m=np.zeros(3)), ["'b' m", "(3,)", "(4,)"]),
    "no moment": (lambda s: s["state"]["b"].pop("v"), ["'b' v", "nothing"]),
    "words": (lambda s: s["state"]["b"].update(v=np.array(["a"] * 4)), ["'b' v"]),
    "step": (lambda s: s["state"]["b"].update(step=1.5), ["'b'", "1.5"]),
    "no step": (lambda s: s["state"]["b"].pop("step"), ["'b'", "None"]),
    "master": (lambda s: s["state"]["b"].update(master=np.zeros(9)), ["'b' master", "(9,)"]),
    "options": (lambda s: s["groups"][0].update(momentum=0.9), ["options", "momentum"]),
    "hyperparameter": (lambda s: s["groups"][0].update(lr=-1.0), ["lr", "-1.0"]),
    "groups": (lambda s: s["groups"].append({**s["groups"][0], "names": []}), ["groups"]),
    "nothing": (lambda s: s.clear(), ["state_dict()"]),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_failed_restore_changes_nothing(wrong):
    params = model()
    optimizer = fp.AdamW(params, lr=0.05)
    train(params, optimizer, 0, 3)
    state = optimizer.state_dict()
    train(params, optimizer, 3, 5)
    before, numbers = pickle.dumps(optimizer.state_dict()), bits(params)
    edit, words = WRONG[wrong]
    edit(state)
    with raises(ValueError if wrong == "hyperparameter" else fp.StateError, "AdamW", *words):
        optimizer.load_state_dict(state)
    assert pickle.dumps(optimizer.state_dict()) == before and bits(params) == numbers


# ---- master copies, packing later --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_changes_below_the_last_bit_add_up(dtype):
    p = fp.Parameter(fp.ones(3).to(dtype))
    optimizer = fp.SGD([p], lr=1e-5)
    p.set_grad(np.ones(3))
    for _ in range(1000):
        optimizer.step()
    assert p.dtype == dtype and p.numpy().astype("f4") == pytest.approx(0.99, abs=0.004)  # each step alone rounds to nothing
    assert optimizer.state_dict()["state"]["0"]["master"] == pytest.approx(0.99, abs=1e-4)


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_what_is_written_into_a_16_bit_parameter_stays_written(dtype, pack):
    params = model(dtype, pack=pack)
    optimizer = fp.SGD(params, lr=0.5)
    train(params, optimizer, 0, 3)
    w = optimizer.state_dict()["state"]["w"]["master"]
    params["b"].set_data(np.full(4, 8.0))
    assert optimizer.state_dict()["state"]["b"]["master"].tolist() == [8.0] * 4
    assert np.array_equal(optimizer.state_dict()["state"]["w"]["master"], w)  # not rounded: nobody wrote there
    optimizer.step(params["b"].sum().backward())
    assert params["b"].tolist() == [7.5] * 4


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_packing_after_the_optimizer_was_made(kind, dtype):
    plain, late = model(dtype), model(dtype)
    a, b = KINDS[kind](plain), KINDS[kind](late)
    train(plain, a, 0, 8)
    train(late, b, 0, 4)
    late.pack()
    train(late, b, 4, 8)
    assert bits(plain) == bits(late)
    for name, row in a.state_dict()["state"].items():
        assert all(np.array_equal(v, b.state_dict()["state"][name][slot]) for slot, v in row.items())


@pytest.mark.parametrize("make", [lambda p: fp.SGD(p, lr=1e-3), fp.Adafactor], ids=["master", "factors"])
def test_a_captured_step_goes_on_from_a_state_that_is_loaded(make):
    """In place, before and after moments are there: the next replay has the bits of eager."""

    def story(wrap):
        params = model("bfloat16")
        optimizer = make(params)

        def step(x):
            optimizer.step(((params["w"] * x).sum() + params["b"].sum()).backward())

        run, found = wrap(step), []
        empty, saved = optimizer.state_dict(), None
        for i in range(12):
            run(fp.tensor(1.0 + i).to("bfloat16"))
            if i == 4:
                saved = optimizer.state_dict()
            elif i in (6, 8):
                optimizer.load_state_dict(saved if i == 6 else empty)
            found.append((bits(params), {name: row["step"] for name, row in optimizer.state_dict()["state"].items()}))
        return found

    captured = []
    wanted, got = story(lambda f: f), story(lambda f: captured.append(fp.capture(f)) or captured[0])
    assert got == wanted and captured[0].program is not None


if __name__ == "__main__":
    with default_device(sys.argv[2]):
        for number, job in enumerate(JOBS):
            second_half(f"{sys.argv[1]}/{number}", *job)
