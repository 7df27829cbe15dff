"""What an optimizer refuses, and what it leaves alone: states of another kind, lists that do not fit, frozen parameters, options set later.

Numbers are worked by hand.
"""

from __future__ import annotations

import gc
import warnings
import weakref

import numpy as np
import pytest
from error_text import raises

import flamepy as fp
from flamepy import nn

pytestmark = pytest.mark.usefixtures("device")


def two(names=("a", "b")) -> fp.ParameterDict:
    return fp.ParameterDict({n: fp.Parameter(np.ones(2 + i, "f4")) for i, n in enumerate(names)})


def grads_of(params, factor=1.0) -> fp.GradientMap:
    return sum((p * factor).sum() for p in params.parameters()).backward()


# ---- states -------------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("saved, other, words", [
    (fp.AdamW, fp.Adam, ("AdamW (order 'torch')", "Adam (order 'torch')")),
    (lambda p: fp.AdamW(p, order="flame"), fp.AdamW, ("order 'flame'", "order 'torch'")),
    (lambda p: fp.SGD(p, momentum=0.9), fp.Adam, ("SGD", "Adam")),
])  # fmt: skip
def test_the_state_of_another_class_or_order(saved, other, words):
    params = two()
    first, second = saved(params), other(params)
    for o in (first, second):
        o.step(grads_of(params))
    before = second.state_dict()
    with raises(fp.StateError, "the state of another optimizer", *words):
        second.load_state_dict(first.state_dict())
    after = second.state_dict()
    assert after["groups"] == before["groups"] and all(
        np.array_equal(after["state"]["a"][k], before["state"]["a"][k]) for k in before["state"]["a"]
    )
    with raises(fp.StateError, "not the state of an optimizer: one of PyTorch's"):
        second.load_state_dict({"state": {}, "param_groups": []})
    second.load_state_dict({key: before[key] for key in ("groups", "state")})  # one that says nothing is taken at its word


def test_unnamed_parameters_are_known_by_position():
    """FLAME's style: a config alone; parameters without names come with the steps, some of them later."""

    def step(optimizer, ps, factor=1.0):
        grads = sum((p * factor).sum() for p in ps).backward()
        optimizer.step([(p.id, p, grads[p]) for p in ps])

    def fresh():
        return [fp.Parameter(np.ones(n, "f4")) for n in (2, 3)]

    ps, optimizer = fresh(), fp.Adam(fp.AdamConfig(lr=0.1))
    step(optimizer, ps)
    step(optimizer, ps[:1], 2.0)
    saved, numbers = optimizer.state_dict(), [p.numpy().copy() for p in ps]
    assert list(saved["state"]) == ["0", "1"] and [saved["state"][n]["step"] for n in "01"] == [2, 1]
    step(optimizer, ps, 3.0)
    expected = [p.numpy().copy() for p in ps]
    for restore_after_first in (False, True):
        qs = [fp.Parameter(a) for a in numbers]
        again = fp.Adam(fp.AdamConfig(lr=0.1))
        if restore_after_first:
            step(again, qs[:1])
            for q, a in zip(qs, numbers, strict=True):
                q.set_data(a)
        again.load_state_dict(saved)
        kept = again.state_dict()
        assert [kept["state"][n]["step"] for n in "01"] == [2, 1] and kept["groups"] == saved["groups"]
        step(again, qs[:1], 3.0)  # lists fewer than the state: the other row waits
        assert again.state_dict()["state"]["1"]["step"] == 1
        step(again, qs[1:], 3.0)
        assert all(np.array_equal(q.numpy(), a) for q, a in zip(qs, expected, strict=True))
    again = fp.Adam(fp.AdamConfig(lr=0.1))
    again.load_state_dict(saved)
    qs = [fp.Parameter(a) for a in reversed(numbers)]  # another order: seen by the shapes
    with raises(fp.StateError, "shape mismatch for '0'", "(2,)", "(3,)"):
        step(again, qs, 3.0)
    assert not again.params and [q.tolist() for q in qs] == [a.tolist() for a in reversed(numbers)]
    step(fp.Adam(fp.AdamConfig()), qs)
    with raises(fp.StateError, "parameter count mismatch: state has 2, model has 1"):
        fp.Adam(qs[:1]).load_state_dict(saved)


def test_unnamed_parameters_never_take_moments_of_another():
    """Two of one shape: their places prove nothing, so they must be the very tensors, or hold the numbers, of the state."""

    def step(optimizer, ps):
        optimizer.step([(p.id, p, np.full(3, 10.0**i, "f4")) for i, p in enumerate(ps)])

    def restored(state, *, first=(), made=None):
        optimizer = fp.Adam(made or fp.AdamConfig())
        step(optimizer, first) if first else None
        optimizer.load_state_dict(state)
        return optimizer

    def copies(ps):
        return [fp.Parameter(p.numpy().copy()) for p in ps]

    ps, optimizer = [fp.Parameter(np.full(3, v, "f4")) for v in (1.0, 2.0)], fp.Adam(fp.AdamConfig())
    step(optimizer, ps)
    state = optimizer.state_dict()
    for here in (ps, copies(ps)):
        for listed in (here[::-1], here[1:]):
            with raises(fp.StateError, "parameters without names are not as in the restored state: '1' comes as '0'", "ParameterDict"):
                step(restored(state), listed)
    with raises(fp.StateError, "'1' comes as '0'"):
        restored(state, made=copies(ps)[::-1])
    other = [fp.Parameter(p.numpy() + 5.0) for p in ps]
    for attempt in (lambda: step(restored(state), other), lambda: restored(state, first=other)):
        with raises(fp.StateError, "'0' of shape (3,) may be '1'"):
            attempt()
    restored(state, made=other)  # a list has an order, as in PyTorch
    with raises(fp.StateError, "not in the restored state", "'w' of shape (3,), '0' waits"):
        step(restored(state), fp.ParameterDict({"w": other[0]}).parameters())
    with raises(fp.StateError, "'0' of shape (3,) may be '1'"):
        step(restored({key: state[key] for key in ("groups", "state")}), copies(ps))

    once = fp.Adam(fp.AdamConfig())
    once.step([(p.id, p, None if p is ps[0] else np.ones(3, "f4")) for p in ps])  # "0" is the second
    with raises(fp.StateError, "'0' of shape (3,) may be a new one"):
        step(restored(once.state_dict()), ps)
    again, theirs = restored(state), copies(ps)
    step(optimizer, ps)
    optimizer.load_state_dict(state)  # its own parameters again, whatever numbers they have now
    step(again, theirs[:1])
    again.load_state_dict(again.state_dict())  # the other row still waits
    again.step([(p.id, p, np.full(3, 10.0, "f4")) for p in theirs[1:]])
    step(optimizer, ps)
    assert all(np.array_equal(again.rows()[n][key], optimizer.rows()[n][key]) for n in "01" for key in ("step", "m", "v"))


# ---- what step() is given --------------------------------------------------------------------------------------------------------------
def test_a_list_may_hold_arrays_and_must_fit():
    params = two()
    a, b = params.parameters()
    optimizer = fp.SGD(params, lr=1.0)
    assert optimizer.step([(a.id, a, np.array([1.0, 2.0])), (b, b, [0.5] * 3)]) is True
    assert a.tolist() == [0.0, -1.0] and b.tolist() == [0.5] * 3
    for rows, kind, words in (
        ([(b.id, a, np.ones(2))], fp.StateError, ("not the id of a", b.id)),
        ([(a.id, a, np.ones(2)), (a.id, a, np.ones(2))], fp.StateError, ("listed twice", "a")),
        ([(a.id, a, np.ones(3))], fp.ShapeError, ("(2,)", "(3,)")),
        ([(a.id, a, "x")], fp.DTypeError, ("not a tensor", "str")),
        ([(a.id, a.detach(), np.ones(2))], fp.DTypeError, ("not a Parameter",)),
        ([(a.id, a, np.ones(2)), (b.id, b, np.ones(9))], fp.ShapeError, ("(3,)", "(9,)")),
    ):
        with raises(kind, "SGD", *words):
            optimizer.step(rows)
        assert a.tolist() == [0.0, -1.0] and b.tolist() == [0.5] * 3 and optimizer.rates.finished == 1


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("form", ["map", "grad", "list"])
def test_a_frozen_parameter_is_not_moved(pack, form):
    """Whatever the map or .grad holds, decay included, also when it was frozen after backward()."""
    params = two().pack() if pack else two()
    a, b = params.parameters()
    optimizer = fp.AdamW(params, lr=0.5, weight_decay=0.5)

    def step():
        grads = fp.GradientMap()
        for p in (a, b):
            grads.insert(p, np.ones(p.shape))
        if form == "map":
            return optimizer.step(grads if not pack else all_of())
        if form == "grad":
            params.set_grads(grads)
            return optimizer.step()
        return optimizer.step([(p.id, p, grads[p]) for p in (a, b)])

    def all_of():
        params["a"].requires_grad, flag = True, params["a"].requires_grad
        grads = grads_of(params)
        params["a"].requires_grad = flag
        return grads

    params.freeze("a")
    assert step() is True and a.tolist() == [1.0, 1.0] and b.tolist() != [1.0] * 3
    assert list(optimizer.state_dict()["state"]) == ["b"]
    a.requires_grad = True
    assert step() is True and a.tolist() != [1.0, 1.0]
    params.freeze("*")
    before = params.state_dict()
    with pytest.warns(fp.FlameWarning, match="nothing to update"):
        assert step() is False
    assert all(np.array_equal(before[n], params[n].numpy()) for n in "ab")


def test_a_set_of_parameters_is_refused():
    """It has no order, by which states of parameters without names are restored."""
    for make in (lambda ps: fp.SGD(ps, lr=0.1), fp.EMA, fp.SWA):
        with raises(TypeError, "not ", ": set. Pass a model, a ParameterDict or a list of Parameters."):
            make({fp.Parameter.ones((2,)), fp.Parameter.ones((2,))})


# ---- options set later ----------------------------------------------------------------------------------------------------------------
def test_values_set_on_a_group_are_checked():
    params = two()
    optimizer = fp.SGD(params, lr=1.0, momentum=0.5, groups={"a": {"lr_scale": 0.5}})
    group = optimizer.groups[1]
    before = dict(group)
    for change in ({"lr": -5}, {"lr": float("nan")}, {"momentum": -1}, {"momentum": "x"}, {"nesterov": 1},
                   {"nesterov": True, "momentum": 0.0}, {"lr": 0.1, "weight_decay": -1}, {"lr": True}):  # fmt: skip
        with pytest.raises((ValueError, TypeError), match="SGD: "):
            group.update(change)
        assert dict(group) == before
    for call in (lambda: group.__setitem__("momentun", 0.9), lambda: group.pop("lr"), lambda: group.__delitem__("lr"), group.clear,
                 lambda: group.update(names=["b"]), lambda: group.setdefault("momentun", 0.9)):  # fmt: skip
        with pytest.raises(TypeError, match="SGD: "):
            call()
    assert group.setdefault("momentum", 0.9) == 0.5 and dict(group) == before
    group["lr"] = 0.25
    optimizer.lr = 2.0  # a group's own rate is kept as its share
    optimizer.step(grads_of(params))
    assert params["a"].tolist() == [0.5, 0.5] and params["b"].tolist() == [-1.0] * 3
    assert type(optimizer.state_dict()["groups"][0]) is dict


def test_groups_as_pytorch_has_them():
    params = two()
    optimizer = fp.SGD([params["a"]], lr=1.0)
    assert optimizer.param_groups is optimizer.groups and optimizer.param_groups[0]["params"] == [params["a"]]
    optimizer.add_param_group({"params": params["b"], "lr": 0.5, "weight_decay": 1.0})
    optimizer.step(grads_of(params))
    assert params["a"].tolist() == [0.0, 0.0] and params["b"].tolist() == [0.0] * 3  # 1 - 0.5 * (1 + 1)
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    optimizer.step(grads_of(params))
    assert params["b"].tolist() == [0.0] * 3 and [g["params"] for g in optimizer.param_groups] == [[params["a"]], [params["b"]]]
    again = fp.SGD([params["a"]], lr=1.0)
    again.add_param_group({"params": params["b"]})
    again.load_state_dict(optimizer.state_dict())
    assert again.groups[1]["weight_decay"] == 1.0
    new = [fp.Parameter(np.ones(1))]
    for group, error in (({"lr": 1.0}, TypeError), ({"params": [params["a"]]}, fp.StateError), ({"params": new, "x": 1}, TypeError),
                         ({"params": new, "lr": -1}, ValueError)):  # fmt: skip
        with pytest.raises(error, match="SGD: "):
            optimizer.add_param_group(group)
        assert len(optimizer.groups) == 2 and len(optimizer.params) == 2
    with pytest.raises(ValueError, match="set_to_none"):
        optimizer.zero_grad(set_to_none=False)


def test_amsgrad_in_one_group_only():
    params, alone = two(), [two(("a",)), fp.ParameterDict({"b": fp.Parameter(np.ones(3, "f4"))})]
    both = fp.Adam(params.pack(), lr=0.1, groups={"a": {"amsgrad": True}})
    apart = [fp.Adam(alone[0], lr=0.1, amsgrad=True), fp.Adam(alone[1], lr=0.1)]
    for factor in (5.0, 0.1, 0.1, 0.1):
        both.step(grads_of(params, factor))
        for optimizer, ps in zip(apart, alone, strict=True):
            optimizer.step(grads_of(ps, factor))
    assert np.array_equal(params["a"].numpy(), alone[0]["a"].numpy()) and np.array_equal(params["b"].numpy(), alone[1]["b"].numpy())


# ---- a model that changes after its optimizer was made ---------------------------------------------------------------------------------
OF_A_MODEL = {
    "a model": fp.AdamW, "a list": lambda m: fp.SGD(m.parameters(), lr=0.1), "packed": lambda m: m.params.pack() and fp.Adam(m, lr=0.1),
    "by name": lambda m: fp.ByName(m, {"*": (fp.SGD, {})}),
}  # fmt: skip


def steps_after(make, change, capture=False):
    """What steps say after a change of a model, and the model."""
    model = nn.ModuleDict({"body": nn.Linear(2, 2), "head": nn.Linear(2, 2)})
    optimizer = make(model)
    step = lambda x: optimizer.step(model["head"](model["body"](x)).sum().backward())
    run = fp.capture(step) if capture else step
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for i in range(8):
            if i == 3:
                change(model, optimizer)
            run(fp.ones(1, 2))
    return [str(warning.message) for warning in told], model


@pytest.mark.parametrize("capture", [False, True])
@pytest.mark.parametrize("form", OF_A_MODEL)
def test_a_layer_that_was_replaced_after_the_optimizer_was_made_is_told_once(form, capture):
    new = nn.Linear(2, 3)
    for name, change in (
        ("head.weight", lambda m, o: setattr(m, "head", new)),
        ("body.bias", lambda m, o: setattr(m["body"], "bias", fp.Parameter([1.0, 1.0]))),
    ):
        told, _ = steps_after(OF_A_MODEL[form], change, capture)
        assert len(told) == 1 and f"replaced in its model: {name}. What took its place is not trained" in told[0], told


def test_changes_that_an_optimizer_follows_are_not_told():
    def there_and_back(model, optimizer):
        old = model["head"]
        model["head"] = nn.Linear(2, 2)
        model["head"] = old

    def with_its_parameters(model, optimizer):
        model["head"] = nn.Linear(2, 2)
        optimizer.add_param_group({"params": model["head"].parameters()})

    for change in (there_and_back, with_its_parameters, lambda m, o: setattr(m["head"], "bias", None)):
        told, model = steps_after(fp.AdamW, change)
        before = model["head"].weight.numpy().copy()
        fp.AdamW(model).step(model["head"].weight.sum().backward())
        assert told == [] and not np.array_equal(before, model["head"].weight.numpy())


@pytest.mark.parametrize("make", [fp.AdamW, lambda p: fp.SGD(p, momentum=0.9, groups={"a": {"lr_scale": 0.5}}), fp.EMA,
                                  lambda p: fp.ByName(p, {"*": (fp.Adam, {})}), lambda p: fp.Lookahead(fp.AdamW(p))])  # fmt: skip
def test_its_memory_is_freed_when_nobody_has_it(make):
    """At once: the garbage collector may be long in coming, and moments are large."""
    params = two()
    grads = grads_of(params)
    if hasattr(first := make(params), "step"):
        first.step(grads)  # compiled here: after that Numba's frames wait for the collector
    del first
    gc.collect()
    gc.disable()
    try:
        optimizer = make(params)
        if hasattr(optimizer, "step"):
            optimizer.step(grads)
        seen, groups = weakref.ref(optimizer), getattr(optimizer, "groups", [])
        del optimizer
        assert seen() is None
        for group in groups[:1]:
            with raises(fp.StateError, "Group", "its optimizer is gone"):
                group["lr"] = 1.0
    finally:
        gc.enable()
