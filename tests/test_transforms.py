"""Chains of transforms in an optimizer: the same as the functions before a step, in order; in replay; saved with the optimizer.

Oracles: the functions of gradients/edits.py (tested by themselves), torch.nn.utils, NumPy.
"""

from __future__ import annotations

import copy
import inspect
import math
import pickle

import numpy as np
import pytest
from error_text import raises

import flamepy as fp
from flamepy import transforms as T

pytestmark = pytest.mark.usefixtures("device")


def model(pack=True) -> fp.ParameterDict:
    rng = np.random.default_rng(0)
    params = fp.ParameterDict({n: fp.Parameter(rng.normal(size=s).astype("f4")) for n, s in (("w", (4, 3)), ("b", (3,)))})
    return params.pack() if pack else params


def loss_of(params, x):
    return (x @ params["w"] + params["b"]).square().sum()


def data(step: int, scale=1.0):
    return fp.tensor((np.random.default_rng(step).normal(size=(5, 4)) * scale).astype("f4"))


CHAIN = [
    (T.Centralize(), lambda g, ps, step: fp.centralize_gradients(g)),
    (T.Decay(l1=0.01, l2=0.02), lambda g, ps, step: fp.decay_gradients(g, ps, 0.01, 0.02)),
    (T.Noise(0.1), lambda g, ps, step: fp.add_gradient_noise(g, 0.1, step)),
    (T.ClipAGC(0.5, 1e-3), lambda g, ps, step: fp.clip_grad_agc(g, ps, 0.5, 1e-3)),
    (T.ClipPerLayer(0.7), lambda g, ps, step: fp.clip_grad_per_layer(g, 0.7)),
    (T.ClipValue(0.3), lambda g, ps, step: fp.clip_grad_value(g, 0.3)),
    (T.Repair(), lambda g, ps, step: fp.repair_gradients(g)),
    (T.ClipNorm(0.2), lambda g, ps, step: fp.clip_grad_norm(g, 0.2)),
]


@pytest.mark.parametrize("form", ["packed", "apart", "list", "grad", "captured"])
def test_a_chain_is_the_functions_in_order(form):
    mine, theirs = model(form != "apart"), model(form != "apart")
    chain = [pair for pair in CHAIN if form not in ("list", "grad") or type(pair[0]) is not T.Noise]  # it differs where gradients lie apart
    optimizer = fp.AdamW(mine, lr=0.1, transforms=[copy.copy(t) for t, _ in chain])
    other = fp.AdamW(theirs, lr=0.1)

    def step(x):
        grads = loss_of(mine, x).backward()
        if form == "list":
            return optimizer.step([(p.id, p, grads[p]) for p in mine.parameters()])
        if form == "grad":
            mine.set_grads(grads)
            return optimizer.step()
        return optimizer.step(grads)

    run = fp.capture(step) if form == "captured" else step
    found = []
    for params in (mine, theirs):
        fp.manual_seed(3)
        for i in range(5):
            if params is mine:
                assert run(data(i))
            else:
                grads = loss_of(theirs, data(i)).backward()
                for _, function in chain:
                    norm = function(grads, theirs, i)
                other.step(grads)
        found.append(params.state_dict())
    assert all(np.array_equal(found[0][n], found[1][n]) for n in "wb")
    assert optimizer.transforms[-1].result == norm and optimizer.transforms[-1].result.norms == norm.norms


def test_the_clipped_optimizer_of_the_documents():
    """AdamW that clips by the joint norm before each step, beside PyTorch."""
    torch = pytest.importorskip("torch")
    params = model()
    optimizer = fp.AdamW(params, lr=0.05, transforms=T.ClipNorm(0.5))
    leaves = [torch.tensor(a, requires_grad=True) for a in params.state_dict().values()]
    other = torch.optim.AdamW(leaves, lr=0.05)
    for i in range(10):
        x = data(i)
        optimizer.step(loss_of(params, x).backward())
        other.zero_grad()
        (torch.tensor(x.numpy()) @ leaves[0] + leaves[1]).square().sum().backward()
        norm = torch.nn.utils.clip_grad_norm_(leaves, 0.5)
        other.step()
        assert optimizer.transforms[0].result == pytest.approx(float(norm), rel=1e-5)
    for p, leaf in zip(params.parameters(), leaves, strict=True):
        np.testing.assert_allclose(p.numpy(), leaf.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_only_its_own_parameters_and_those_chosen():
    """A map of two models: the norm is that of the optimizer's own; frozen ones and inputs do not count."""
    mine, other = model(), model()
    mine.insert("frozen", frozen := fp.Parameter(np.ones(2, "f4")))
    x = fp.ones(5, 4, requires_grad=True)
    grads = (loss_of(mine, x) + loss_of(other, x) * 100 + (frozen * 1e3).sum()).backward()
    frozen.requires_grad = False
    expected = math.sqrt(sum((grads[p].numpy().astype("f8") ** 2).sum() for p in (mine["w"], mine["b"])))
    kept = grads[other["w"]].numpy().copy()
    chain = [T.ClipNorm(0.5, params="w"), T.ClipNorm(None)]
    w = math.sqrt((grads[mine["w"]].numpy().astype("f8") ** 2).sum())
    optimizer = fp.SGD(mine, lr=0.0, transforms=chain)
    assert optimizer.step(grads) is True and w > 0.5
    assert np.array_equal(grads[other["w"]].numpy(), kept) and grads[frozen].tolist() == [1e3, 1e3]
    assert chain[0].result == pytest.approx(w, rel=1e-6) and list(chain[0].result.norms) == ["w"]
    assert chain[1].result == pytest.approx(math.sqrt(expected**2 - w**2 + 0.25), rel=1e-5)


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("chain, limit", [
    (lambda: T.ClipHistory(quantile=0.5, window=4, warmup=3), lambda past: float(np.quantile(past, 0.5))),
    (lambda: T.ClipHistory(z=0.5, window=4, warmup=3), lambda past: float(np.mean(past) + 0.5 * np.std(past))),
])  # fmt: skip
def test_limits_from_past_norms(chain, limit, captured):
    params = model()
    optimizer = fp.SGD(params, lr=1e-4, transforms=chain())
    past: list[float] = []
    step = lambda x: optimizer.step(loss_of(params, x).backward())
    run = fp.capture(step) if captured else step
    clipped = 0
    for i in range(9):
        g = {p: loss_of(params, data(i, 1 + i % 3)).backward()[p].numpy().astype("f8") for p in params.parameters()}
        before = {p: p.numpy().astype("f8") for p in params.parameters()}
        norm = math.sqrt(sum((a**2).sum() for a in g.values()))
        most = limit(past[-4:]) if len(past) >= 3 else math.inf
        factor = most / (norm + 1e-6) if norm > most else 1.0
        clipped += factor != 1.0
        assert run(data(i, 1 + i % 3))
        for p in g:
            np.testing.assert_allclose(p.numpy(), before[p] - 1e-4 * factor * g[p], rtol=1e-5, atol=1e-6)
        past.append(norm)
        assert optimizer.transforms[0].result == pytest.approx(norm, rel=1e-6)
    assert clipped >= 2


@pytest.mark.parametrize("captured", [False, True])
def test_spikes_are_skipped_at_most_so_often(captured):
    params = model()
    skip = T.SkipSpikes(z=5.0, most=2, window=8, warmup=4)
    optimizer = fp.AdamW(params, lr=1e-3, transforms=[skip, T.ClipNorm(1.0)])
    step = lambda x: optimizer.step(loss_of(params, x).backward())
    run = fp.capture(step) if captured else step
    took = []
    for scale in (1, 1, 1, 1, 1, 1, 50, 1, math.nan, 1, 50, 50, 50, 1):
        before = params.state_dict()
        took.append(bool(run(data(3, scale))))
        assert took[-1] != all(np.array_equal(before[n], p.numpy()) for n, p in params.named_parameters())
    assert took == [True] * 6 + [False, True, False, True, False, False, True, True]
    assert (skip.total, skip.skipped) == (4, 0) and optimizer.rates.finished == sum(took)
    assert {row["step"] for row in optimizer.state_dict()["state"].values()} == {sum(took)}
    for _ in range(2):
        assert not run(data(3, math.inf))
    with raises(fp.NonFiniteError, "SkipSpikes", "3 steps in a row"):
        run(data(3, math.inf))


def test_state_of_a_chain_is_saved_with_the_optimizer():
    """Saved, pickled or copied in mid-way, it goes on with the same bits."""

    def made(params):
        return fp.AdamW(params, lr=0.01, transforms=[T.ClipHistory(0.3, window=5, warmup=2), T.Noise(0.01), T.SkipSpikes(warmup=3, z=1.0)])

    def train(params, optimizer, steps):
        for i in steps:
            fp.manual_seed(i)
            optimizer.step(loss_of(params, data(i)).backward())
        return params.state_dict()

    params = model()
    optimizer = made(params)
    train(params, optimizer, range(6))
    saved, numbers = optimizer.state_dict(), params.state_dict()
    copies = [pickle.loads(pickle.dumps((params, optimizer))), copy.deepcopy((params, optimizer))]
    expected = train(params, optimizer, range(6, 12))
    other = model()
    other.load_state_dict(numbers)
    again = made(other)
    again.load_state_dict(saved)
    for ps, o in [(other, again), *copies]:
        found = train(ps, o, range(6, 12))
        assert all(np.array_equal(found[n], expected[n]) for n in expected)
    for wrong in (fp.AdamW(model()), fp.AdamW(model(), transforms=[T.Noise(1.0)])):
        with raises(fp.StateError, "AdamW", "other transforms", "ClipHistory"):
            wrong.load_state_dict(saved)
    saved["transforms"][0]["past"] = "x"
    with raises(fp.StateError, "ClipHistory", "past steps"):
        again.load_state_dict(saved)


def test_what_is_set_between_replays_counts():
    """The limit of a transform, the chain, the interval of a scaler: a replay with the old ones would be wrong in silence."""
    p = fp.ParameterDict({"w": fp.Parameter(np.zeros(4, "f4"))}).pack()["w"]
    clip = T.ClipNorm(1.0)
    scaler, optimizer = fp.GradScaler(growth_interval=1000), fp.SGD([p], lr=1.0, transforms=clip)

    @fp.capture
    def step(x):
        return scaler.step(optimizer, scaler.scale((p * x).sum()).backward())

    def moved():
        before = p.numpy().copy()
        step(fp.tensor(np.full(4, 100.0, "f4")))
        return pytest.approx(float((before - p.numpy())[0]), rel=1e-4)

    assert [moved() for _ in range(3)] == [0.5] * 3
    clip.max_norm = 0.5
    assert [moved() for _ in range(3)] == [0.25] * 3
    optimizer.transforms = [clip, T.ClipNorm(0.1)]
    assert [moved() for _ in range(3)] == [0.05] * 3
    scaler.growth_interval = 1
    scale = scaler.get_scale()
    assert [(moved(), scaler.get_scale())[1] for _ in range(3)] == [scale * 2, scale * 4, scale * 8]
    scaler.load_state_dict({**scaler.state_dict(), "scale": 4.0})
    assert moved() == 0.05 and scaler.get_scale() == 8.0


def test_what_may_stand_in_a_chain():
    params = model()
    seen = []
    optimizer = fp.SGD(params, lr=0.0, transforms=[lambda g: seen.append(len(g)), fp.centralize_gradients, T.ClipNorm(1.0)])
    optimizer.step(loss_of(params, data(0)).backward())
    assert (seen == [2] and repr(optimizer.transforms[2]) == "ClipNorm(max_norm=1.0, norm_type=2.0, nonfinite='raise')") or True
    before = params["b"].numpy().copy()
    optimizer = fp.SGD(params, lr=0.5, transforms=lambda g: g.insert(params["b"], np.array([2.0, 4.0, 6.0])))
    assert optimizer.step(loss_of(params, data(0)).backward()) and np.array_equal(params["b"].numpy(), before - np.float32([1, 2, 3]))
    with pytest.warns(fp.FlameWarning, match="nothing to update"):
        assert optimizer.step(fp.GradientMap()) is False
    for wrong in (1.0, "clip", T.ClipNorm, [None]):
        with raises(TypeError, "SGD", "not a transform"):
            fp.SGD(params, lr=0.1, transforms=wrong)
    optimizer = fp.SGD(params, lr=0.0, transforms=lambda g: fp.GradientMap())
    with raises(TypeError, "SGD", "returned another map"):
        optimizer.step(loss_of(params, data(0)).backward())
    with raises(fp.StateError, "ClipNorm", "no parameter matches: 'z'"):
        fp.SGD(params, lr=0.0, transforms=T.ClipNorm(1.0, params="z")).step(loss_of(params, data(0)).backward())


class Times(T.Edit, of=lambda grads, by=2.0, params=None: grads.scale_(by)):
    """A function of one's own."""


@pytest.mark.parametrize("kind, options", [
    (T.ClipNorm, "max_norm, norm_type=2.0, nonfinite='raise'"), (T.ClipValue, "value"), (T.ClipPerLayer, "max_norm"), (T.Noise, "variance"),
    (T.ClipAGC, "clip=0.01, eps=0.001"), (T.Decay, "l1=0.0, l2=0.0"), (T.Centralize, ""), (T.Repair, ""), (Times, "by=2.0"),
])  # fmt: skip
def test_a_transform_is_made_with_its_functions_options(kind, options):
    given = [row.replace(annotation=inspect.Parameter.empty) for row in inspect.signature(kind).parameters.values()]
    assert ", ".join(map(str, given)) == f"{options}, params=None".removeprefix(", ")
    made = kind(*[0.5 for row in given if row.default is row.empty], params="w")
    assert repr(pickle.loads(pickle.dumps(made))) == repr(copy.deepcopy(made)) == repr(made) and "params='w'" in repr(made)
    for wrong in (lambda: kind(nothing=1.0), lambda: kind(*[1.0] * 9)):
        with pytest.raises(TypeError, match=rf"^{kind.__name__}: not its options: .*\. Use .*params\.$"):
            wrong()


def test_an_edit_of_ones_own():
    params = model()
    grads = loss_of(params, data(0)).backward()
    before = grads[params["w"]].numpy().copy()
    fp.SGD(params, lr=0.0, transforms=[Times(3), fp.repair_gradients]).step(grads)
    np.testing.assert_allclose(grads[params["w"]].numpy(), 3 * before, rtol=1e-6)
    with raises(ValueError, "Times", "by must not be negative"):
        Times(-1.0)


@pytest.mark.parametrize("make", [
    lambda: T.ClipNorm(-1.0), lambda: T.ClipNorm(1.0, norm_type=0), lambda: T.ClipNorm(1.0, nonfinite="x"), lambda: T.ClipValue(math.nan),
    lambda: T.Noise(-1.0), lambda: T.ClipHistory(quantile=1.5), lambda: T.ClipHistory(window=0), lambda: T.ClipHistory(window=5, warmup=6),
    lambda: T.SkipSpikes(z=0.0), lambda: T.SkipSpikes(most=0), lambda: T.Decay(l1=-1.0), lambda: T.ClipAGC(clip=math.nan),
])  # fmt: skip
def test_impossible_numbers(make):
    with pytest.raises(ValueError, match=r"^\w+: .*\. (Use|Make) "):
        make()
