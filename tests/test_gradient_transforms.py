"""Transforms of gradients, one by one, against NumPy in float64: per layer, adaptive, centralised, noise, repair, decay, by group.

The same map comes packed, unpacked, beside the gradient of an input, and for chosen parameters.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from error_text import raises

import flamepy as fp

pytestmark = pytest.mark.usefixtures("device")

SHAPES = {"w": (6, 5), "b": (5,), "c": (3, 2, 2, 2), "s": (), "e": (0, 3)}


def setup(pack: bool, dtype="float32", seed=0, scale=1.0):
    """(map, parameters, gradients, weights) with an input's gradient in the map, which nothing may touch."""
    rng = np.random.default_rng(seed)
    weights = {n: rng.normal(size=s) for n, s in SHAPES.items()}
    gradients = {n: rng.normal(size=s) * scale for n, s in SHAPES.items()}
    params = fp.ParameterDict({n: fp.Parameter(fp.tensor(w).to(dtype)) for n, w in weights.items()})
    params = params.pack() if pack else params
    x = fp.ones(3, dtype=dtype, requires_grad=True)
    loss = sum((p * fp.tensor(gradients[n]).to(dtype)).sum() for n, p in params.named_parameters()) + (x * 1000).sum()
    return loss.backward(), params, gradients, weights, x


def check(grads, params, expected, x, atol=2e-6):
    for n, p in params.named_parameters():
        np.testing.assert_allclose(grads[p].numpy(), expected[n], rtol=2e-6, atol=atol, err_msg=n)
    assert grads[x].tolist() == [1000.0] * 3


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("chosen", [None, "[wc]"])
def test_per_layer(pack, chosen):
    grads, params, g, _, x = setup(pack)
    assert fp.clip_grad_per_layer(grads, 0.9, params=chosen) is grads
    norms = {n: np.sqrt((a**2).sum()) for n, a in g.items()}
    limited = {n: a * (0.9 / (norms[n] + 1e-6)) if norms[n] > 0.9 else a for n, a in g.items()}
    check(grads, params, {n: limited[n] if chosen is None or n in "wc" else g[n] for n in g}, x)


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_agc(pack, dtype):
    grads, params, _, _, x = setup(pack, dtype)
    g, w = [{n: t.numpy().astype("f8") for n, t in found.items()} for found in (grads.to_dict(params), dict(params.named_parameters()))]
    assert fp.clip_grad_agc(grads, params, clip=0.5, eps=0.7) is grads
    expected = {}
    for n, a in g.items():
        norm, limit = np.sqrt((a**2).sum()), 0.5 * max(np.sqrt((w[n] ** 2).sum()), 0.7)
        expected[n] = a * (limit / norm) if norm > limit else a
    assert any(not np.array_equal(expected[n], g[n]) for n in g)
    check(grads, params, expected, x)


@pytest.mark.parametrize("pack", [False, True])
def test_centralize(pack):
    grads, params, g, _, x = setup(pack)
    assert fp.centralize_gradients(grads) is grads
    several = {n: a - a.mean(axis=tuple(range(1, a.ndim)), keepdims=True) for n, a in g.items() if a.ndim > 1 and a.size}
    check(grads, params, {**g, **several}, x)


@pytest.mark.parametrize("pack", [False, True])
def test_repair(pack):
    grads, params, g, _, x = setup(pack)
    for n, bad in (("w", math.nan), ("c", math.inf), ("b", -math.inf)):
        a = grads[params[n]].numpy().copy()
        a.reshape(-1)[1] = bad
        g[n].reshape(-1)[1] = 0.0
        fp.ops.copy_into(grads[params[n]], fp.tensor(a))
    assert fp.repair_gradients(grads) is grads
    check(grads, params, g, x)


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("l1, l2", [(0.1, 0.0), (0.0, 0.2), (0.1, 0.2)])
def test_decay(pack, l1, l2):
    grads, params, g, w, x = setup(pack)
    assert fp.decay_gradients(grads, params, l1=l1, l2=l2) is grads
    check(grads, params, {n: g[n] + l2 * w[n] + l1 * np.sign(w[n]) for n in g}, x)


def test_decay_of_one_parameter_at_zero():
    p = fp.Parameter(np.array([0.0, -2.0, 3.0], "f4"))
    grads = (p * 1.0).sum().backward()
    assert fp.decay_gradients(grads, [p], l1=0.5)[p].tolist() == [1.0, 0.5, 1.5]


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("dtype, step", [("float32", 0), ("float64", 9)])
def test_noise(pack, dtype, step):
    """Its mean and variance: 0.3 / (1 + step)^0.55; other numbers each time, the same after manual_seed()."""
    params = fp.ParameterDict({"a": fp.Parameter(fp.zeros(30001, dtype=dtype)), "b": fp.Parameter(fp.zeros(101, dtype=dtype))})
    params = params.pack() if pack else params
    drawn = []
    for _ in range(2):
        fp.manual_seed(5)
        for _ in range(2):
            grads = (params["a"].sum() + params["b"].sum()).backward()
            assert fp.add_gradient_noise(grads, 0.3, step) is grads
            drawn.append({n: g.numpy() - 1.0 for n, g in grads.to_dict(params).items()})
    a = drawn[0]["a"].astype("f8")
    sigma = math.sqrt(0.3 / (1 + step) ** 0.55)
    assert abs(a.mean()) < 5 * sigma / math.sqrt(a.size) and abs(a.std() / sigma - 1) < 0.02 and len(np.unique(a)) > 0.9 * a.size
    assert all(np.array_equal(drawn[0][n], drawn[2][n]) and np.array_equal(drawn[1][n], drawn[3][n]) for n in "ab")
    assert not np.array_equal(drawn[0]["b"], drawn[1]["b"]) and not np.array_equal(drawn[0]["a"][:101], drawn[0]["b"])


def test_noise_is_the_same_wherever_gradients_lie():
    """Bit for bit, packed or not, also in another order, without some gradients, of two types, for chosen parameters, captured."""

    def noised(pack, names, captured):
        fp.manual_seed(3)
        params = fp.ParameterDict(dict(sorted(made().items(), key=lambda row: names.index(row[0]))))
        params = params.pack() if pack else params
        optimizer = fp.SGD(params, lr=1.0, transforms=[fp.transforms.Noise(0.1)])
        optimizer.transforms += (fp.transforms.Noise(0.2, params="?w"),)

        def step():
            optimizer.step(sum(params[n].sum().to(fp.float64) for n in names).backward())

        step = fp.capture(step) if captured else step
        for _ in range(3):
            step()
        params["b"].requires_grad = False
        grads = sum(params[n].sum().to(fp.float64) for n in names if n not in "bv").backward()
        found = fp.add_gradient_noise(grads, 0.3, 1).to_dict(params)
        return {n: a.tobytes() for n, a in params.state_dict().items()}, {n: found[n].numpy().tobytes() for n in sorted(found)}

    def made():
        sizes = {"aw": (31, 5), "b": (3,), "v": (7,), "bw": (4099,), "e": (0,), "s": ()}
        types = {"v": "float64", "s": "float64"}
        return {n: fp.Parameter(fp.zeros(size, dtype=types.get(n, "float32"))) for n, size in sizes.items()}

    wanted = noised(False, ["aw", "b", "v", "bw", "e", "s"], False)
    for pack, names, captured in ((True, "aw b v bw e s", False), (True, "s bw aw e v b", False), (True, "aw b v bw e s", True)):
        assert noised(pack, names.split(), captured) == wanted, (pack, names, captured)


# ---- a norm for each group, for chosen parameters, and what the result tells ---------------------------------------------------------
@pytest.mark.parametrize("pack", [False, True])
def test_a_norm_for_each_group(pack):
    grads, params, g, _, x = setup(pack)
    found = fp.clip_grad_norm_by_group(grads, {"w": 0.5, "?": 1.0})
    joint = {"w": ["w"], "?": ["b", "c", "s", "e"]}
    norms = {glob: math.sqrt(sum((g[n] ** 2).sum() for n in names)) for glob, names in joint.items()}
    assert found == pytest.approx(norms, rel=1e-6) and min(norms.values()) > 1
    limits = {"w": 0.5, "?": 1.0}
    check(grads, params, {n: g[n] * (limits[k] / (norms[k] + 1e-6)) for k, names in joint.items() for n in names}, x)
    with raises(fp.StateError, "clip_grad_norm_by_group", "no parameter matches: 'z*'", "Use a glob of"):
        fp.clip_grad_norm_by_group(grads, {"z*": 1.0})


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("choose", ["w", lambda p: [p["w"]], lambda p: fp.ParameterDict({"w": p["w"]})], ids=["glob", "list", "dict"])
def test_chosen_parameters(pack, choose):
    grads, params, g, _, x = setup(pack)
    chosen = choose if isinstance(choose, str) else choose(params)
    norm = fp.clip_grad_norm(grads, 0.5, params=chosen)
    expected = math.sqrt((g["w"] ** 2).sum())
    assert norm == pytest.approx(expected, rel=1e-6) and list(norm.norms) == ["w"]
    check(grads, params, {**g, "w": g["w"] * (0.5 / (expected + 1e-6))}, x)
    assert fp.grad_norm(grads, params="b") == pytest.approx(math.sqrt((g["b"] ** 2).sum()), rel=1e-6)
    fp.clip_grad_value(grads, 0.1, params="s")
    assert abs(grads[params["s"]].item()) == pytest.approx(0.1) and np.abs(grads[params["b"]].numpy()).max() > 0.1


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("norm_type", [1, 2, 3.5, math.inf])
def test_the_result_tells(pack, norm_type):
    grads, _, g, _, _ = setup(pack)
    norm = fp.clip_grad_norm(grads, 1.0, norm_type)
    each = {n: np.linalg.norm(a.reshape(-1), norm_type) if a.size else 0.0 for n, a in g.items()}
    assert norm.norms == pytest.approx(each, rel=1e-6)
    assert norm.factor == 1.0 / (norm + 1e-6) and norm.clipped and not norm.skipped and norm.nonfinite == []
    again = fp.clip_grad_norm(grads, 1.0, norm_type)  # a factor that waits is part of it
    assert (
        again.norms == pytest.approx({n: x * norm.factor for n, x in each.items()}, rel=1e-6) and again.factor == 1.0 and not again.clipped
    )


@pytest.mark.parametrize("pack", [False, True])
def test_only_parameters_count(pack):
    """retain_grad() and an input that requires grad let one look, and change no clipping."""
    params = fp.ParameterDict({"w": fp.Parameter(np.zeros(2))})
    params = params.pack() if pack else params
    x = fp.tensor(np.array([30.0, 40.0]), requires_grad=True)
    hidden = (params["w"] * x).retain_grad()
    grads = hidden.sum().backward()
    assert set(grads) == {params["w"].id, x.id, hidden.id}
    norm = fp.clip_grad_norm(grads, 1.0)
    assert norm == 50.0 and list(norm.norms) == ["w"]
    assert grads[hidden].tolist() == [1.0, 1.0] and grads[x].tolist() == [0.0, 0.0]
    np.testing.assert_allclose(grads[params["w"]].numpy(), np.array([30.0, 40.0]) / (50.0 + 1e-6), rtol=1e-12)
    assert fp.clip_grad_value(grads, 0.5) == pytest.approx(0.8) and grads[hidden].tolist() == [1.0, 1.0]
    assert grads.scale_(2.0)[hidden].tolist() == [2.0, 2.0] and grads[params["w"]].tolist() == [1.0, 1.0]
    leaves = (x * 3.0).retain_grad().sum().backward()  # a map without any Parameter: over its leaves
    assert fp.grad_norm(leaves) == pytest.approx(math.sqrt(18.0))


def test_the_result_names_what_is_not_finite_and_skips():
    params = fp.ParameterDict({n: fp.Parameter(np.zeros(2, "f4")) for n in "ab"})
    grads = sum((p * fp.tensor([1.0, bad])).sum() for p, bad in zip(params.parameters(), (2.0, math.nan), strict=True)).backward()
    norm = fp.clip_grad_norm(grads, 1.0, nonfinite="skip")
    assert math.isnan(norm) and norm.nonfinite == ["b"] and norm.skipped and not norm.clipped
    optimizer = fp.AdamW(params)
    assert optimizer.step(grads) is False and optimizer.state_dict()["state"] == {} and optimizer.rates.finished == 0
    params["a"].set_grad([1.0, math.inf])
    assert fp.clip_grad_norm(params, 1.0, nonfinite="skip").skipped
    optimizer = fp.SGD(params, lr=1.0)
    assert optimizer.step() is False and params["a"].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("name, arguments", [
    ("clip_grad_per_layer", lambda p: (-1.0,)), ("clip_grad_agc", lambda p: (p, math.nan)), ("clip_grad_agc", lambda p: (p, 0.1, -1.0)),
    ("add_gradient_noise", lambda p: (-0.1, 3)), ("add_gradient_noise", lambda p: (0.1, -1)), ("decay_gradients", lambda p: (p, -0.1)),
])  # fmt: skip
def test_impossible_numbers_change_nothing(name, arguments):
    p = fp.Parameter(np.ones(3, "f4"))
    grads = (p * 2.0).sum().backward()
    with pytest.raises(ValueError, match=f"{name}: .*(negative|NaN)"):
        getattr(fp, name)(grads, *arguments([p]))
    assert grads[p].tolist() == [2.0] * 3
    with raises(fp.DTypeError, "not a Parameter"):
        fp.clip_grad_agc(grads, [fp.ones(3)])
    for wrong in ((p * 2.0).sum(), None, "w", 1.0):  # the loss in the place of its gradients, and other things
        with raises(fp.DTypeError, "clip_grad_norm", "no gradients", "loss.backward()"):
            fp.clip_grad_norm(wrong, 1.0)
    for call in (lambda chosen: fp.clip_grad_norm(grads, 1.0, params=chosen), lambda chosen: fp.clip_grad_agc(grads, chosen)):
        for chosen in ([], [fp.Parameter(np.ones(3, "f4"))]):
            with pytest.warns(fp.FlameWarning, match=f"none of these parameters has a gradient in the map: {len(chosen)} chosen"):
                call(chosen)
    assert grads[p].tolist() == [2.0] * 3
