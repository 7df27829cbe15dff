"""ByName: several optimizers under one step; which parameter is whose, joint transforms, rates, saving, replay.

Oracles: the same optimizers side by side, each with its own parameters; eager for what is captured.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from devices import default_device
from error_text import raises
from optimizer_tools import bits, map_of, model, state_bits, stepping, train

import flamepy as fp
from flamepy import nn
from flamepy.transforms import ClipNorm, Noise

SPEC: dict[str, Any] = {"w": (fp.Muon, {"lr": 0.05}), "[bs]": (fp.Lion, {"lr": 0.01}), "*": (fp.AdamW, {"lr": 0.02, "eps": 1e-3})}


@pytest.fixture(autouse=True)
def plain() -> Iterator[None]:
    with default_device("plain"):
        yield


@pytest.mark.parametrize("pack", [False, True], ids=["plain", "packed"])
@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_it_is_its_optimizers_side_by_side(pack: bool, dtype: str) -> None:
    params, other = model("", dtype, pack), model("", dtype)
    optimizer = fp.ByName(params, SPEC, transforms=ClipNorm(1.0))
    parts = [
        fp.Muon([other["w"]], lr=0.05), fp.Lion([other["b"], other["s"]], lr=0.01), fp.AdamW([other["v"]], lr=0.02, eps=1e-3),
    ]  # fmt: skip
    for step in range(12):
        grads, theirs = map_of(params, step), map_of(other, step)
        assert optimizer.step(grads) is True
        fp.clip_grad_norm(theirs, 1.0)
        for part in parts:
            if any(p in theirs for p in part.params):
                part.step(theirs)
        assert bits(params) == bits(other), step
    assert {n for part in optimizer.state_dict()["parts"].values() for n in part["state"]} == set(params)


def test_whose_a_parameter_is() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    optimizer = fp.ByName(net, {"1.*": (fp.SGD, {"lr": 0.1}), "*.weight": (fp.Muon, {}), "*": (fp.AdamW, {})})
    mine = {key: list(part.names.values()) for key, part in optimizer.parts.items()}
    assert mine == {"1.*": ["1.weight", "1.bias"], "*.weight": ["0.weight", "2.weight"], "*": ["0.bias", "2.bias"]}
    assert [sorted(group["names"]) for group in optimizer.param_groups] == [sorted(names) for names in mine.values()]
    assert "Muon" in repr(optimizer) and "'1.*'" in repr(optimizer)
    tied = fp.ParameterDict({"in": net[0].weight, "out": net[0].weight, "b": net[0].bias})
    optimizer = fp.ByName(tied, {"out": (fp.SGD, {"lr": 1.0}), "*": (fp.AdamW, {})})  # a tied parameter has the last of its names
    before = net[0].weight.numpy().copy()
    optimizer.step(((tied["in"] + tied["out"]) * 0.5).sum().backward())
    np.testing.assert_allclose(net[0].weight.numpy(), before - 1, rtol=1e-6)
    nameless = [fp.Parameter(np.ones((2, 2))), fp.Parameter(np.ones(2))]
    optimizer = fp.ByName(nameless, {"0": (fp.Muon, {}), "1": (fp.SGD, {"lr": 0.5})})
    optimizer.step([(p.id, p, np.ones(p.shape)) for p in nameless])
    assert nameless[1].tolist() == [0.5, 0.5] and nameless[0].tolist() != [[1.0, 1.0]] * 2


def test_what_is_refused() -> None:
    params = model("")
    for parts, kind, words in (
        ({"w": (fp.SGD, {})}, fp.StateError, ["no pattern for: b, v, s"]), ({}, fp.StateError, ["no pattern for: w, b, v, s"]),
        ({"*": (fp.SGD, {}), "w": (fp.SGD, {})}, fp.StateError, ["no parameter left for the pattern 'w'", "order"]),
        ({"x.*": (fp.SGD, {}), "*": (fp.SGD, {})}, fp.StateError, ["'x.*'", "w, b, v, s"]),
        ({"*": fp.SGD(params)}, fp.DTypeError, ["'*'", "(fp.AdamW"]), ({"*": (fp.LBFGS, {})}, fp.DTypeError, ["LBFGS"]),
        ({"*": (fp.ByName, {})}, fp.DTypeError, ["ByName"]), ({0: (fp.SGD, {})}, fp.DTypeError, ["by pattern"]),
        ([("*", fp.SGD)], fp.DTypeError, ["by pattern", "(fp.AdamW"]),
        ({"*": (fp.SGD, {"transforms": ClipNorm(1.0)})}, fp.DTypeError, ["transforms of one pattern: '*'", "params="]),
    ):  # fmt: skip
        with raises(kind, "ByName", *words):
            fp.ByName(params, parts)
    with raises(fp.ShapeError, "Muon: not a matrix: b"):
        fp.ByName(params, {"*": (fp.Muon, {})})
    optimizer, stranger = fp.ByName(params, SPEC), fp.Parameter(np.ones(2))
    with raises(fp.StateError, "ByName.step: not one of its parameters"):
        optimizer.step([(stranger.id, stranger, np.ones(2))])
    grads, before = map_of(params, 0), bits(params)
    grads.insert(params["s"].id, fp.tensor(np.ones(3)))
    with raises(fp.ShapeError, "(3,)"):
        optimizer.step(grads)
    with pytest.warns(fp.FlameWarning, match=r"ByName: .+nothing to update") as caught:
        assert optimizer.step(fp.GradientMap()) is False
    assert caught[0].filename == __file__ and bits(params) == before and optimizer.rates.finished == 0


def test_one_rate_moves_all_of_them() -> None:
    params = model("")
    optimizer = fp.ByName(params, {"w": (fp.Muon, {"lr": 0.04}), "*": (fp.AdamW, {"lr": 0.01, "groups": {"s": {"lr": 0.02}}})})

    def rates() -> list[float]:
        return [g["lr"] for part in optimizer.parts.values() for g in part.state_dict()["groups"]]

    assert rates() == [0.04, 0.01, 0.02] and optimizer.lr == 0.04
    optimizer.lr = 0.4
    np.testing.assert_allclose(rates(), [0.4, 0.1, 0.2])
    optimizer.lr = 0.0
    optimizer.lr = fp.schedules.linear(0.0, 0.4, 4)
    for step in range(4):  # w has no gradient in the second of them
        np.testing.assert_allclose(rates(), np.array([0.4, 0.1, 0.2]) * step / 4)
        optimizer.step(map_of(params, step))
    optimizer.lr = 0.4
    optimizer.parts["*"].lr = 0.2  # its share from now on
    optimizer.lr = 0.04
    np.testing.assert_allclose(rates(), [0.04, 0.02, 0.04])
    with raises(ValueError, "Muon: lr out of range: -1"):
        optimizer.lr = -1.0
    np.testing.assert_allclose(rates(), [0.04, 0.02, 0.04])
    given = fp.ByName(params, SPEC, lr=fp.schedules.constant(0.1))
    assert [part.lr for part in given.parts.values()] == pytest.approx([0.1, 0.02, 0.04])


@pytest.mark.parametrize("where", ["plain", "cpu"])
@pytest.mark.parametrize("pack", [False, True], ids=["apart", "packed"])
def test_replay_is_eager_and_a_mark_stops_all_of_them(pack: bool, where: str) -> None:
    found = []
    for capture in (False, True):
        with default_device(where):
            fp.manual_seed(3)
            params = model("", pack=pack)
            transforms = [ClipNorm(2.0, nonfinite="skip"), Noise(0.01)]
            optimizer = fp.ByName(params, SPEC, transforms, lr=fp.schedules.warmup(0.05, 4))
            run = stepping(optimizer, params)
            step, path = fp.capture(run) if capture else run, [(bits(params), state_bits(optimizer))]
            for x in (1.0, 0.7, 1.3, np.nan, 0.9, np.nan, 1.1):
                _, done = step(fp.tensor(x, dtype="float64"))
                path.append((bits(params), state_bits(optimizer)))
                assert bool(done) == (x == x) == (path[-1] != path[-2]), x
        found.append(path)
    assert found[0] == found[1] and step.program is not None


def test_saved_copied_and_restored_mid_way() -> None:
    def made(params: fp.ParameterDict) -> fp.ByName:
        return fp.ByName(params, SPEC, transforms=fp.transforms.ClipHistory(warmup=2), lr=fp.schedules.warmup(0.05, 9))

    params = model("")
    optimizer = made(params)
    train(params, optimizer, 0, 7)
    other = model("", pack=True)
    restored = made(other)
    train(other, restored, 0, 2)
    saved = pickle.loads(pickle.dumps((params.state_dict(), optimizer.state_dict())))
    other.load_state_dict(saved[0])
    restored.load_state_dict(saved[1])
    runs = [(other, restored), pickle.loads(pickle.dumps((params, optimizer))), copy.deepcopy((params, optimizer))]
    train(params, optimizer, 7, 14)
    for its, another in runs:
        train(its, another, 7, 14)
        assert bits(its) == bits(params) and state_bits(another) == state_bits(optimizer)


def test_a_failed_restore_changes_no_part() -> None:
    params = model("")
    optimizer = fp.ByName(params, SPEC, transforms=ClipNorm(1.0))
    train(params, optimizer, 0, 3)
    state = optimizer.state_dict()
    train(params, optimizer, 3, 5)
    before = state_bits(optimizer)
    edits: list[tuple[Any, str]] = [
        (lambda s: s.update({"class": "AdamW"}), "AdamW"), (lambda s: s.pop("parts"), "state_dict()"),
        (lambda s: s["parts"].update(w=s["parts"].pop("w")), "patterns differ"), (lambda s: s["parts"].pop("*"), "patterns differ"),
        (lambda s: s["parts"].update({"*": {**s["parts"]["*"], "class": "Adam"}}), "Adam (order"),
        (lambda s: s["parts"]["*"]["state"]["v"].update(m=np.zeros(2)), "'v' m"), (lambda s: s.pop("transforms"), "transforms"),
    ]  # fmt: skip
    for edit, word in edits:
        wrong = copy.deepcopy(state)
        edit(wrong)
        with raises(fp.StateError, word):
            optimizer.load_state_dict(wrong)
        assert state_bits(optimizer) == before
    with raises(fp.StateError, "AdamW", "ByName"):
        fp.AdamW(params).load_state_dict(state)
    with raises(fp.StateError, "ByName", "SGD"):
        optimizer.load_state_dict(fp.SGD(params).state_dict())


@pytest.mark.parametrize("kind", ["one", "by name"])
def test_a_transform_may_put_other_tensors_into_the_map(kind: str) -> None:
    """Also where the gradients are one span."""
    params = model("", pack=True)

    def ones(grads: fp.GradientMap) -> None:
        grads.insert(params["b"], fp.ones(3, dtype="float64"))

    if kind == "one":
        optimizer: Any = fp.SGD(params, lr=0.5, transforms=ones)
    else:
        optimizer = fp.ByName(params, {"w": (fp.Muon, {}), "*": (fp.SGD, {"lr": 0.5})}, transforms=ones)
    before = params.state_dict()
    assert optimizer.step(sum((p * p).sum() for p in params.parameters()).backward()) is True
    np.testing.assert_allclose(params["b"].numpy(), before["b"] - 0.5)
    assert (params["w"].numpy() != before["w"]).all()


# ---- beside other parts of flamepy -----------------------------------------------------------------------------------------------------
CHANGES: dict[str, Any] = {
    "a part is frozen": lambda params, o: params.freeze("[bs]"), "rate": lambda params, o: setattr(o, "lr", 0.5),
    "schedule": lambda params, o: setattr(o, "lr", fp.schedules.linear(0.1, 0.01, 9)),
    "transforms": lambda params, o: setattr(o, "transforms", [fp.transforms.Centralize(), ClipNorm(0.1)]),
    "options": lambda params, o: o.groups[0].update(ns_steps=2, lr=0.3),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_changes_between_replays(change: Any) -> None:
    found = []
    for capture in (False, True):
        params = model("", pack=True)
        optimizer = fp.ByName(params, SPEC, transforms=ClipNorm(0.5))
        run = stepping(optimizer, params)
        step = fp.capture(run) if capture else run
        for n in range(8):
            if n == 4:
                change(params, optimizer)
            step(fp.tensor(1.0 + n, dtype="float64"))
        copies = pickle.loads(pickle.dumps((params, optimizer))), copy.deepcopy((params, optimizer))
        step(fp.tensor(0.5, dtype="float64"))
        for its, another in copies:
            stepping(another, its)(fp.tensor(0.5, dtype="float64"))
            assert bits(its) == bits(params) and another.lr == optimizer.lr
        found.append((bits(params), state_bits(optimizer)))
    assert found[0] == found[1]


def test_lookahead_a_scaler_and_a_sweep_take_it_for_an_optimizer() -> None:
    params, other = model(""), model("")
    optimizer = fp.ByName(params, {"w": (fp.AdamW, {"lr": 0.1}), "*": (fp.SGD, {"lr": fp.schedules.linear(0.1, 0.0, 10)})})
    train(params, optimizer, 0, 3)
    before = bits(params), state_bits(optimizer), [part.rates.schedule for part in optimizer.parts.values()]
    fp.find_lr(lambda: (optimizer.step(map_of(params, 0)), fp.ones(()))[1], optimizer, steps=4)
    assert (bits(params), state_bits(optimizer), [part.rates.schedule for part in optimizer.parts.values()]) == before
    slow, fast = fp.ByName(other, SPEC), fp.ByName(params, SPEC)
    params.load_state_dict(other.state_dict())
    ahead = fp.Lookahead(slow, k=100)
    for step in range(3):
        ahead.step(map_of(other, step))
        fast.step(map_of(params, step))
    assert bits(other) == bits(params)
    scaler = fp.GradScaler()
    for x, took in ((1.0, True), (np.inf, False)):
        now = bits(params), state_bits(fast)
        loss = scaler.scale(sum((p * p).sum() for p in params.parameters()) * x)
        assert scaler.step(fast, loss.backward()) is took and (now != (bits(params), state_bits(fast))) == took


def test_packing_later_changes_no_number() -> None:
    params, late = model(""), model("")
    a, b = fp.ByName(params, SPEC), fp.ByName(late, SPEC)
    train(params, a, 0, 3)
    train(late, b, 0, 3)
    late.pack()
    train(params, a, 3, 6)
    train(late, b, 3, 6)
    assert bits(params) == bits(late) and state_bits(a) == state_bits(b)


def test_packed_gradients_are_read_where_they_lie() -> None:
    """One launch for each optimizer, whichever parameters it has."""
    params = model("", pack=True)
    optimizer = fp.ByName(params, {"b": (fp.Lion, {}), "[ws]": (fp.SGD, {"lr": 0.1}), "*": (fp.AdamW, {})})
    grads = sum((p * p).sum() for p in params.parameters()).backward()
    optimizer.step(grads)
    stream = fp.device("plain").direct
    with patch.object(stream, "run", wraps=stream.run) as run, patch.object(stream, "copy", wraps=stream.copy) as copies:
        optimizer.step(grads)
    assert (run.call_count, copies.call_count) == (3, 0)


def test_groups_are_not_replaced_by_hand() -> None:
    """PyTorch's lists of groups take anything; what is put there here would be read by nobody."""
    w = fp.Parameter(np.ones(3, np.float32))
    params = fp.ParameterDict({"w": w})
    for optimizer in (fp.Adam([w], lr=0.1), fp.ByName(params, {"*": (fp.SGD, {"lr": 0.1})})):
        for change in (
            lambda groups: groups.__setitem__(0, {**groups[0], "lr": 0.5}),
            lambda groups: groups.append({"params": [w], "lr": 0.5}),
            lambda groups: groups.pop(),
        ):
            with pytest.raises(TypeError, match="groups are not replaced"):
                change(optimizer.param_groups)
        optimizer.groups[0]["lr"] = 0.5
        assert len(optimizer.groups) == 1 and optimizer.param_groups[0]["lr"] == 0.5
