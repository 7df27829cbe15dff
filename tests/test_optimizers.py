"""SGD, Adam, AdamW: trajectories against PyTorch, what a step leaves alone, what is refused.

Oracle: torch.optim in float64, stepped with the same gradients for 200 steps, with gradients missing on some of them. Saved state,
new processes and 16-bit parameters are in test_optimizer_state.py.
"""

from __future__ import annotations

import numpy as np
import pytest
from error_text import raises
from optimizer_tools import FIRST, SHAPES, bits, check, expected, gradient_of, made, model, train

import flamepy as fp
from flamepy import nn

pytestmark = pytest.mark.usefixtures("device")


@pytest.mark.parametrize("pack", [False, True], ids=["plain", "packed"])
@pytest.mark.parametrize("case", FIRST)
def test_200_steps_match_torch(case, pack):
    check(case, model(case, pack=pack), 200, 1e-13)


@pytest.mark.parametrize("case", ["sgd nesterov", "adam l2", "adamw groups"])
def test_float32_stays_close(case):
    params, theirs = model(case, "float32"), expected(case, 50)[-1]
    for name, a in train(params, made(case, params), 0, 50)[-1].items():
        assert a.dtype == np.float32
        np.testing.assert_allclose(a, theirs[name], rtol=1e-3, atol=1e-4)


def test_order_flame_decays_after_the_step():
    p, q = (fp.Parameter(np.array([2.0])) for _ in range(2))
    for leaf, order in ((p, "torch"), (q, "flame")):
        leaf.set_grad([4.0])
        fp.AdamW([leaf], lr=0.5, eps=0.0, weight_decay=0.2, order=order).step()
    assert p.item() == pytest.approx(2.0 * 0.9 - 0.5, rel=1e-14) and q.item() == pytest.approx((2.0 - 0.5) * 0.9, rel=1e-14)
    with raises(ValueError, "AdamW", "order", "'rust'"):
        fp.AdamW([p], order="rust")


# ---- what parameters and gradients may be -----------------------------------------------------------------------------------
def test_configs_in_place_of_keywords():
    adam, sgd = {"lr": 0.1, "betas": (0.5, 0.6), "eps": 1e-3, "weight_decay": 0.1}, {"lr": 0.1, "momentum": 0.9, "nesterov": True}
    for config, options, make in ((fp.AdamConfig, adam, fp.AdamW), (fp.AdamConfig, adam, fp.Adam), (fp.SGDConfig, sgd, fp.SGD)):
        a, b = model(""), model("")
        train(a, make(a, config(**options)), 0, 5)
        train(b, make(b, **options), 0, 5)
        assert bits(a) == bits(b)
    with raises(TypeError, "Adam", "SGDConfig"):
        fp.Adam(model(""), fp.SGDConfig())


@pytest.mark.parametrize("form", ["map", "triples", "grad", "config alone"])
def test_every_form_of_step_is_the_same_step(form):
    reference, params = model(""), model("")
    train(reference, fp.Adam(reference, lr=0.1), 0, 6)
    optimizer = fp.Adam(fp.AdamConfig(lr=0.1)) if form == "config alone" else fp.Adam(params, lr=0.1)
    for step in range(6):
        found = {n: fp.tensor(g) for n, g in gradient_of(params.state_dict(), step).items()}
        if form == "map":
            grads = fp.GradientMap()
            for name, g in found.items():
                grads.insert(params[name], g)
            optimizer.step(grads)
        elif form == "grad":
            for name, p in params.named_parameters():
                p.set_grad(found.get(name))
            optimizer.step()
        else:
            optimizer.step([(params[n].id, params[n], g) for n, g in found.items()])
    assert bits(params) == bits(reference)


def test_a_module_a_list_or_a_dict():
    linear = nn.Linear(3, 2)
    x = fp.ones(1, 3)
    for params in (linear, linear.params, linear.parameters(), iter(linear.parameters())):
        optimizer = fp.SGD(params, lr=1.0)
        before = linear.bias.numpy().copy()
        optimizer.step(linear(x).sum().backward())
        np.testing.assert_allclose(linear.bias.numpy(), before - 1, rtol=1e-6)
        assert optimizer.state_dict()["groups"][0]["names"] == ["weight", "bias"]
    for nothing in ([], fp.ParameterDict()):
        with raises(fp.StateError, "SGD", "no parameters"):
            fp.SGD(nothing, lr=1.0)
    with raises(TypeError, "SGD", "Tensor"):
        fp.SGD([fp.ones(2)], lr=1.0)
    with raises(fp.StateError, "SGD", "'w'"):
        fp.SGD([fp.ParameterDict({"w": fp.Parameter.ones(1)})["w"] for _ in range(2)], lr=1.0)


def test_a_tied_parameter_is_stepped_once():
    w = fp.Parameter(np.array([2.0]))
    params = fp.ParameterDict({"in": w, "out": w})
    fp.SGD(params, lr=0.5).step((params["in"] * params["out"]).sum().backward())
    assert w.tolist() == [0.0]


# ---- what a step leaves alone ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("pack", [False, True], ids=["plain", "packed"])
@pytest.mark.parametrize("make", [
    lambda p: fp.AdamW(p, lr=0.1, weight_decay=0.5), lambda p: fp.Adam(p, lr=0.1, weight_decay=0.5),
    lambda p: fp.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.5),
], ids=["adamw", "adam", "sgd"])  # fmt: skip
def test_without_an_entry_untouched_bit_for_bit(make, pack, dtype):
    params = model("", dtype, pack)
    optimizer = make(params)
    everything = sum(p.square().sum() for p in params.parameters()).backward()
    optimizer.step(everything)  # moments are not zero any more
    before = params.state_dict()
    some = (params["b"].square().sum() + params["s"].square()).backward()
    optimizer.step(some)
    changed = [n for n, p in params.named_parameters() if p.numpy().tobytes() != before[n].tobytes()]
    assert changed == ["b", "s"]
    assert {n: row["step"] for n, row in optimizer.state_dict()["state"].items()} == {n: 1 + (n in changed) for n in SHAPES}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_optimizer_of_some_packed_parameters_leaves_the_others_alone(dtype):
    params = model("", dtype, pack=True)
    first, rest = fp.SGD([params["b"]], lr=0.5), fp.Adam([p for n, p in params.named_parameters() if n != "b"], lr=0.1)
    for _ in range(3):
        before = params.state_dict()
        grads = sum(p.sum() for p in params.parameters()).backward()
        first.step(grads)
        assert [n for n, p in params.named_parameters() if (p.numpy() != before[n]).any()] == ["b"]
        middle = params.state_dict()
        rest.step(grads)
        assert [n for n, p in params.named_parameters() if (p.numpy() == middle[n]).all()] == ["b"]


@pytest.mark.parametrize("grads", [fp.GradientMap(), [], None], ids=["map", "list", "grad"])
def test_nothing_to_update_warns_and_counts_no_step(grads):
    params = model("")
    optimizer, before = fp.AdamW(params, lr=0.1, weight_decay=0.5), params.state_dict()
    with pytest.warns(fp.FlameWarning, match=r"AdamW: .+nothing to update: .+\. Pass loss\.backward") as caught:
        optimizer.step(grads)
    assert caught[0].filename == __file__
    assert optimizer.state_dict()["state"] == {} and all(np.array_equal(p.numpy(), before[n]) for n, p in params.named_parameters())


def test_a_gradient_of_another_shape_changes_nothing():
    params = model("")
    before = params.state_dict()
    optimizer = fp.SGD(params, lr=0.1)
    grads = sum(p.sum() for p in params.parameters()).backward()
    grads.insert(params["b"].id, fp.tensor(np.ones(4)))
    with raises(fp.ShapeError, "SGD", "b", "(3,)", "(4,)"):
        optimizer.step(grads)
    assert all(np.array_equal(p.numpy(), before[n]) for n, p in params.named_parameters()) and not optimizer.state_dict()["state"]


def test_the_gradients_are_not_edited_and_empty_parameters_do_no_harm():
    params = model("")
    params.insert("empty", fp.Parameter(np.zeros((0, 3))))
    grads = sum(p.square().sum() for p in params.parameters()).backward()
    before = {k: g.numpy().tobytes() for k, g in grads.items()}
    fp.AdamW(params.pack(), lr=0.1).step(grads)
    assert {k: g.numpy().tobytes() for k, g in grads.items()} == before


# ---- options --------------------------------------------------------------------------------------------------------------------
CHANGES = [
    {}, {}, {}, {"lr": 0.1}, {"betas": [0.5, 0.9]}, {"eps": 1e-2}, {}, {"weight_decay": 0.3}, {"maximize": True},
    {"lr": 0.02, "betas": (0.9, 0.99), "maximize": False}, {},
]  # fmt: skip


@pytest.mark.parametrize("wrap", [lambda f: f, fp.capture], ids=["eager", "captured"])
@pytest.mark.parametrize("kind", ["Adam", "AdamW"])
def test_options_may_change_between_steps(kind, wrap):
    torch = pytest.importorskip("torch")
    p, leaf = fp.Parameter(np.array([1.0, -2.0])), torch.tensor([1.0, -2.0], dtype=torch.float64, requires_grad=True)
    mine, theirs = getattr(fp, kind)([p], lr=0.01), getattr(torch.optim, kind)([leaf], lr=0.01)

    def check(step, what):
        theirs.zero_grad()
        (leaf**3).sum().backward()
        theirs.step()
        assert step()
        np.testing.assert_allclose(p.numpy(), leaf.detach().numpy(), 1e-12, err_msg=what)

    def step():
        return mine.step((p * p * p).sum().backward())

    once, group = wrap(step), mine.groups[0]
    for change in CHANGES:
        group.update(change)
        theirs.param_groups[0].update(change)
        check(once, str(change))
    with pytest.raises(TypeError):
        group["betas"][0] = 0.5  # a list became a tuple: nobody would notice that it changes
    saved = mine.state_dict()
    mine.lr = theirs.param_groups[0]["lr"] = 0.05
    check(once, "lr of the optimizer")
    mine.load_state_dict({**mine.state_dict(), "groups": saved["groups"]})
    theirs.param_groups[0]["lr"] = 0.02
    check(wrap(step), "loaded")


def test_an_option_that_another_thread_sets_while_a_step_looks_at_it(monkeypatch):
    p = fp.Parameter(np.array([1.0]))
    optimizer, rule = fp.Adam([p], lr=0.5, eps=0.0), fp.Adam.rule

    def meanwhile(self, group):
        found = rule(self, group)
        monkeypatch.setattr(fp.Adam, "rule", rule)
        group["lr"] = 0.25
        return found

    monkeypatch.setattr(fp.Adam, "rule", meanwhile)
    for wanted in (0.5, 0.25, 0.0):  # each step of Adam under a constant gradient is as long as the rate
        p.set_grad([1.0])
        optimizer.step()
        np.testing.assert_allclose(p.item(), wanted, atol=1e-12)


@pytest.mark.filterwarnings("ignore:overflow")
def test_a_step_too_long_for_float32_is_infinite():
    p = fp.Parameter(fp.tensor([1.0, 2.0], dtype=fp.float32))
    optimizer = fp.Adam([p], lr=1e-3)
    step = fp.capture(lambda: optimizer.step((p * p).sum().backward()))
    for rate in (1e-3, 1e-3, 1e-3, 1e300):
        optimizer.lr = rate
        step()
    assert p.tolist() == [-np.inf, -np.inf]


def test_lr_is_readable_and_settable():
    p = fp.Parameter(np.array([1.0]))
    optimizer = fp.SGD([p], lr=0.5)
    assert optimizer.lr == 0.5
    optimizer.lr = 0.25
    p.set_grad([1.0])
    optimizer.step()
    assert optimizer.lr == 0.25 and p.item() == 0.75 and optimizer.state_dict()["groups"][0]["lr"] == 0.25
    with raises(ValueError, "SGD", "lr", "-1"):
        optimizer.lr = -1
    assert optimizer.lr == 0.25


@pytest.mark.parametrize("make, word", [
    (lambda p: fp.SGD(p, lr=-0.1), "lr"), (lambda p: fp.AdamW(p, lr=float("nan")), "lr"), (lambda p: fp.Adam(p, eps=-1e-8), "eps"),
    (lambda p: fp.Adam(p, betas=(1.0, 0.9)), "betas"), (lambda p: fp.AdamW(p, betas=(0.9, 1.5)), "betas"),
    (lambda p: fp.Adam(p, betas=(-0.1, 0.9)), "betas"), (lambda p: fp.Adam(p, betas=(0.9,)), "betas"),
    (lambda p: fp.AdamW(p, weight_decay=-1), "weight_decay"), (lambda p: fp.SGD(p, lr=0.1, momentum=-0.5), "momentum"),
    (lambda p: fp.SGD(p, lr=0.1, nesterov=True), "nesterov"),
    (lambda p: fp.SGD(p, lr=0.1, momentum=0.9, dampening=0.1, nesterov=True), "nesterov"),
    (lambda p: fp.Adam(p, fp.AdamConfig(lr=-1)), "lr"), (lambda p: fp.SGD(p, fp.SGDConfig(nesterov=True)), "nesterov"),
    (lambda p: fp.AdamW(p, groups={"b": {"lr": -1}}), "lr"),
])  # fmt: skip
def test_impossible_hyperparameters(make, word):
    with raises(ValueError, word):
        make(model(""))


def test_groups_that_match_nothing_or_change_nothing_known():
    with raises(fp.StateError, "AdamW", "'*.gain'"):
        fp.AdamW(model(""), groups={"*.gain": {"lr": 0.1}})
    with raises(TypeError, "AdamW", "momentum"):
        fp.AdamW(model(""), groups={"b": {"momentum": 0.1}})
