"""Clipping by norm and by value, line by line of the contract: one joint norm, a strict comparison, bits kept otherwise.

Oracles: torch.nn.utils.clip_grad_norm_ and clip_grad_value_ in float64, math.fsum, and numbers worked by hand. The same gradients
come in every form that is accepted: a map, a ParameterDict, a list, an iterator, packed or not.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from error_text import raises

import flamepy as fp

pytestmark = pytest.mark.usefixtures("device")

NAN, INF = math.nan, math.inf
SHAPES = {"w": (30, 40), "b": (40,), "s": (), "e": (0, 3), "long": (40000,)}


def gradients(seed=0, scale=1.0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {n: np.asarray(rng.normal(size=s) * scale) for n, s in SHAPES.items()}


def parameters(arrays: dict[str, np.ndarray], dtype="float64", pack=False) -> fp.ParameterDict:
    params = fp.ParameterDict({n: fp.Parameter(fp.zeros(a.shape, dtype=dtype)) for n, a in arrays.items()})
    return params.pack() if pack else params


def grads_of(arrays: dict[str, np.ndarray], dtype="float64", pack=False) -> tuple[fp.GradientMap, fp.ParameterDict]:
    """A map whose gradients are `arrays`, made by backward(): of sum(p * array)."""
    params = parameters(arrays, dtype, pack)
    loss = sum((p * fp.tensor(arrays[n]).to(dtype)).sum() for n, p in params.named_parameters())
    return loss.backward(), params


def maps(values: dict[str, list[float]], dtype="float64") -> tuple[fp.GradientMap, fp.ParameterDict]:
    params = parameters({n: np.array(v) for n, v in values.items()}, dtype)
    grads = fp.GradientMap()
    for n, p in params.named_parameters():
        grads.insert(p, fp.tensor(np.array(values[n])).to("float32" if dtype in ("float16", "bfloat16") else dtype))
    return grads, params


def numbers(grads: fp.GradientMap, params: fp.ParameterDict) -> dict[str, list[float]]:
    return {n: g.tolist() for n, g in grads.to_dict(params).items()}


def bits(grads: fp.GradientMap) -> dict[int, bytes]:
    return {k: g.numpy().tobytes() for k, g in grads.items()}


# ---- against torch ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("norm_type", [1, 2, 2.0, 3.5, 0.5, INF])
@pytest.mark.parametrize("max_norm", [0.5, 1e9])
def test_norm_matches_torch(norm_type, max_norm, pack):
    torch = pytest.importorskip("torch")
    arrays = gradients()
    leaves = []
    for array in (a for a in arrays.values() if a.size):  # torch has no inf norm of nothing
        leaves.append(torch.zeros(array.shape, dtype=torch.float64))
        leaves[-1].grad = torch.tensor(array)
    expected = float(torch.nn.utils.clip_grad_norm_(leaves, max_norm, norm_type))
    grads, params = grads_of(arrays, pack=pack)
    keys = set(grads)
    np.testing.assert_allclose(fp.grad_norm(grads, norm_type), expected, rtol=1e-10)
    np.testing.assert_allclose(fp.clip_grad_norm(grads, max_norm, norm_type), expected, rtol=1e-10)
    assert set(grads) == keys
    clipped = [g.numpy() for n, g in grads.to_dict(params).items() if n != "e"]
    for mine, theirs in zip(clipped, leaves, strict=True):
        np.testing.assert_allclose(mine, theirs.grad.numpy(), rtol=1e-10)


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("limit", [0.0, 0.7, 100.0])
def test_value_matches_torch(limit, pack):
    torch = pytest.importorskip("torch")
    arrays = gradients(1)
    leaf = torch.zeros(30, 40, dtype=torch.float64)
    leaf.grad = torch.tensor(arrays["w"])
    torch.nn.utils.clip_grad_value_([leaf], limit)
    grads, params = grads_of(arrays, pack=pack)
    largest = max(np.abs(a).max() for a in arrays.values() if a.size)
    assert fp.clip_grad_value(grads, limit) == largest and len(grads) == len(arrays)
    np.testing.assert_array_equal(grads[params["w"]].numpy(), leaf.grad.numpy())
    np.testing.assert_array_equal(grads[params["long"]].numpy(), np.clip(arrays["long"], -limit, limit))


# ---- by norm, by hand ---------------------------------------------------------------------------------------------------------
def test_one_joint_norm_over_all_gradients():
    grads, params = maps({"a": [3.0, 0.0], "b": [4.0]})
    assert fp.clip_grad_norm(grads, 1.0) == 5.0 and fp.clip_grad_norm_ is fp.clip_grad_norm
    factor = 1.0 / (5.0 + 1e-6)
    assert numbers(grads, params) == {"a": [3.0 * factor, 0.0], "b": [4.0 * factor]}
    assert fp.clip_grad_norm(grads, 1.0) < 1.0  # the 1e-6 leaves the norm below


def test_the_comparison_is_strict():
    grads, _ = maps({"a": [3.0], "b": [4.0]})
    before = bits(grads)
    assert fp.clip_grad_norm(grads, 5.0) == 5.0 and bits(grads) == before
    assert fp.clip_grad_norm(grads, math.nextafter(5.0, 0)) == 5.0 and bits(grads) != before


@pytest.mark.parametrize("max_norm", [1e6, 5.0, INF, 0, 0.0, None])
def test_otherwise_every_gradient_keeps_its_bits(max_norm):
    grads, _ = maps({"a": [3.0, -0.0], "b": [4.0]})
    before, versions = bits(grads), [g.buffer.version for _, g in grads.items()]
    assert fp.clip_grad_norm(grads, max_norm) == 5.0
    assert bits(grads) == before and [g.buffer.version for _, g in grads.items()] == versions


@pytest.mark.parametrize("max_norm", [-1, -1e-9, -INF, NAN])
def test_impossible_max_norm(max_norm):
    grads, params = maps({"a": [3.0]})
    with raises(ValueError, "clip_grad_norm", "max_norm", max_norm):
        fp.clip_grad_norm(grads, max_norm)
    assert numbers(grads, params) == {"a": [3.0]}


@pytest.mark.parametrize("norm_type", [0, -2, NAN])
def test_impossible_norm_type(norm_type):
    grads, _ = maps({"a": [3.0]})
    for call in (lambda: fp.grad_norm(grads, norm_type), lambda: fp.clip_grad_norm(grads, 1.0, norm_type)):
        with raises(ValueError, "norm_type", norm_type):
            call()


def test_parameters_without_gradients_warn():
    """PyTorch's habit: there backward() fills .grad, here it returns a map."""
    params = maps({"a": [1.0]})[1]
    for call in (lambda given: fp.clip_grad_norm(given, 1.0), lambda given: fp.clip_grad_value(given, 1.0), fp.grad_norm):
        for given in (params, params.parameters(), iter(params.parameters())):
            with pytest.warns(fp.FlameWarning, match="no parameter holds a gradient: 1 given. Pass the map"):
                assert call(given) == 0.0


@pytest.mark.parametrize("empty", [fp.GradientMap(), [], fp.ParameterDict()], ids=["map", "list", "dict"])
def test_no_gradients_have_norm_zero(empty):
    for norm_type in (1, 2, 3.5, INF):
        assert fp.clip_grad_norm(empty, 1.0, norm_type) == 0.0 and fp.grad_norm(empty, norm_type) == 0.0
    assert fp.clip_grad_value(empty, 1.0) == 0.0


@pytest.mark.parametrize("norm_type, expected", [(1, 7.0), (2, 5.0), (3.5, (3**3.5 + 4**3.5) ** (1 / 3.5)), (INF, 4.0)])
def test_norm_types(norm_type, expected):
    grads, params = maps({"a": [3.0], "b": [-4.0]})
    norm = fp.clip_grad_norm(grads, 1.0, norm_type)
    assert isinstance(norm, float) and norm == pytest.approx(expected, rel=1e-14)
    assert grads[params["b"]].item() == pytest.approx(-4.0 / (norm + 1e-6), rel=1e-14)


def test_sums_are_in_float64():
    x = np.concatenate([[1e4], np.full(99999, 1e-4)]).astype("float32")
    grads, _ = maps({"a": x}, "float32")
    assert fp.grad_norm(grads) == pytest.approx(math.sqrt(math.fsum(float(v) ** 2 for v in x)), rel=1e-13)
    assert fp.grad_norm(grads, 1) == pytest.approx(math.fsum(map(float, x)), rel=1e-13)
    huge, _ = maps({"a": [3e30, 4e30]}, "float32")  # the squares overflow float32
    assert fp.clip_grad_norm(huge, 1.0) == pytest.approx(5e30, rel=1e-6)


# ---- not finite ---------------------------------------------------------------------------------------------------------------
BAD = {"inf": INF, "-inf": -INF, "nan": NAN}


@pytest.mark.parametrize("norm_type", [1, 2, 3.5, INF])
@pytest.mark.parametrize("bad", BAD)
def test_raise_names_the_parameters_and_touches_nothing(bad, norm_type):
    grads, _ = maps({"good": [1.0], "wrong": [2.0, BAD[bad]], "worse": [BAD[bad]]})
    before = bits(grads)
    with raises(fp.NonFiniteError, "'wrong'", "'worse'", "nonfinite=") as caught:
        fp.clip_grad_norm(grads, 1.0, norm_type)
    assert "'good'" not in str(caught.value) and bits(grads) == before and isinstance(caught.value, ArithmeticError)


@pytest.mark.parametrize("bad", BAD)
def test_skip_returns_the_norm_and_touches_nothing(bad):
    grads, _ = maps({"good": [1.0], "wrong": [2.0, BAD[bad]]})
    before = bits(grads)
    norm = fp.clip_grad_norm(grads, 1.0, nonfinite="skip")
    assert (math.isnan(norm) if bad == "nan" else norm == INF) and bits(grads) == before


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("bad", BAD)
def test_zero_makes_every_gradient_zero(bad, pack):
    arrays = gradients()
    arrays["b"][3] = BAD[bad]
    grads, _ = grads_of(arrays, pack=pack)
    norm = fp.clip_grad_norm(grads, 1.0, nonfinite="zero")
    assert math.isnan(norm) if bad == "nan" else norm == INF
    assert len(grads) == len(arrays) and all((g.numpy() == 0).all() for _, g in grads.items())


@pytest.mark.parametrize("max_norm", [0, None])
@pytest.mark.parametrize("mode", ["raise", "skip", "zero"])
def test_with_max_norm_off_the_norm_is_returned_as_it_is(mode, max_norm):
    grads, _ = maps({"a": [INF]})
    assert fp.clip_grad_norm(grads, max_norm, nonfinite=mode) == INF and next(iter(grads.items()))[1].tolist() == [INF]


def test_an_overflowing_sum_and_an_unknown_mode():
    grads, _ = maps({"a": [1e200, 1e200]})
    with raises(fp.NonFiniteError, "overflow"):
        fp.clip_grad_norm(grads, 1.0)
    assert fp.clip_grad_norm(grads, 1.0, INF) == 1e200
    with raises(ValueError, "nonfinite", "'ignore'"):
        fp.clip_grad_norm(grads, 1.0, nonfinite="ignore")


# ---- by value -----------------------------------------------------------------------------------------------------------------
def test_value_clamps_and_returns_the_largest_before():
    grads, params = maps({"a": [-3.0, 0.25, -0.0], "b": [0.5, INF]})
    assert fp.clip_grad_value_ is fp.clip_grad_value and fp.clip_grad_value(grads, 0.5) == INF
    assert numbers(grads, params) == {"a": [-0.5, 0.25, -0.0], "b": [0.5, 0.5]}
    assert fp.clip_grad_value(grads, 0.5) == 0.5


def test_value_leaves_nan():
    grads, params = maps({"a": [NAN, -9.0], "b": [9.0, 0.5]})
    assert math.isnan(fp.clip_grad_value(grads, 1.0))
    a = grads[params["a"]].numpy()
    assert math.isnan(a[0]) and a[1] == -1.0 and grads[params["b"]].tolist() == [1.0, 0.5]


def test_value_keeps_bits_when_nothing_is_too_large():
    grads, _ = maps({"a": [0.5, -0.5]})
    before = bits(grads)
    assert fp.clip_grad_value(grads, 0.5) == 0.5 and bits(grads) == before
    for wrong in (-1.0, NAN):
        with raises(ValueError, "clip_grad_value", wrong):
            fp.clip_grad_value(grads, wrong)


# ---- what is accepted -----------------------------------------------------------------------------------------------------------
FORMS = {
    "ParameterDict": lambda params: params,
    "list": lambda params: params.parameters(),
    "tuple": lambda params: tuple(params.parameters()),
    "iterator": lambda params: iter(params.parameters()),
    "generator": lambda params: (p for p in params.parameters()),
    "listed twice": lambda params: params.parameters() * 2,
}


@pytest.mark.parametrize("form", FORMS)
def test_parameters_stand_for_their_grad(form):
    grads, params = maps({"a": [3.0], "b": [4.0], "none": [0.0]})
    grads.take(params["none"])
    params.set_grads(grads)
    assert fp.grad_norm(FORMS[form](params)) == 5.0
    assert fp.clip_grad_norm(FORMS[form](params), 1.0) == 5.0
    assert params["a"].grad.item() == 3.0 / (5.0 + 1e-6) and params["none"].grad is None
    assert fp.clip_grad_value(FORMS[form](params), 0.1) == pytest.approx(0.8, rel=1e-5)
    assert params["a"].grad.item() == params["b"].grad.item() == 0.1


def test_one_parameter_alone_and_one_gradient_of_two():
    p, q = fp.Parameter(np.zeros(2)), fp.Parameter(np.zeros(2))
    p.set_grad([3.0, 4.0])
    assert fp.clip_grad_norm(p, 1.0) == 5.0 and p.grad.tolist() == [3.0 / (5.0 + 1e-6), 4.0 / (5.0 + 1e-6)]
    shared = fp.tensor(np.array([3.0, 4.0]))
    for each in (p, q):
        each.set_grad(shared)
    assert fp.clip_grad_norm([p, q], 1.0) == pytest.approx(math.sqrt(50))  # both are stepped along it, the memory is scaled once
    np.testing.assert_allclose(shared.numpy(), np.array([3.0, 4.0]) / math.sqrt(50), rtol=1e-6)


@pytest.mark.parametrize("call", [fp.grad_norm, lambda g: fp.clip_grad_norm(g, 1.0), lambda g: fp.clip_grad_value(g, 1.0)])
def test_an_exhausted_iterator_warns(call):
    _, params = maps({"a": [3.0]})
    iterator = iter(params.parameters())
    list(iterator)
    with pytest.warns(fp.FlameWarning, match=r"exhausted: .+\. Pass a list"):
        assert call(iterator) == 0.0
    with raises(TypeError, "not a Parameter", "Tensor"):
        call([fp.ones(2)])


# ---- packed, 16 bits ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_packed_equals_unpacked(dtype):
    results = []
    for pack in (False, True):
        grads, params = grads_of(gradients(), dtype, pack)
        norm = fp.clip_grad_norm(grads, 1.0)
        results.append((norm, grads.to_dict(params)))
    (norm, plain), (packed_norm, packed) = results
    assert packed_norm == pytest.approx(norm, rel=1e-14) and list(plain) == list(packed) == list(SHAPES)
    for name, g in plain.items():
        assert g.dtype == packed[name].dtype == (fp.float64 if dtype == "float64" else fp.float32)
        np.testing.assert_allclose(packed[name].numpy(), g.numpy(), rtol=1e-12 if dtype == "float64" else 2e-7)


def test_some_packed_some_not():
    arrays = {n: np.full(s, 2.0) for n, s in SHAPES.items()}
    packed, plain = parameters(arrays, pack=True), parameters({"x": np.zeros(3)})
    loss = sum((p * 2.0).sum() for p in [*packed.parameters(), plain["x"]])
    total = math.sqrt(4.0 * (sum(a.size for a in arrays.values()) + 3))
    grads = loss.backward()
    assert fp.clip_grad_norm(grads, 1.0) == pytest.approx(total, rel=1e-14)
    assert fp.grad_norm(grads) == pytest.approx(1.0, rel=1e-6)
    grads.take(plain["x"])
    grads.take(packed["s"])
    assert fp.grad_norm(grads) == pytest.approx(math.sqrt(4.0 * (sum(a.size for a in arrays.values()) - 1)) / total, rel=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_leaves(dtype):
    grads, params = maps({"a": [3.0, 0.0], "b": [4.0]}, dtype)
    params.set_grads(grads)
    for form in (grads, params):
        assert params["a"].dtype == dtype and fp.clip_grad_norm(form, 5.0) == 5.0
    assert fp.clip_grad_norm(grads, 1.0) == 5.0
    np.testing.assert_allclose(grads[params["a"]].numpy(), [0.6, 0.0], rtol=1e-6)
    half = fp.GradientMap()
    half.insert(params["b"], fp.tensor([6.0]).to(dtype))
    assert fp.clip_grad_norm(half, 3.0) == 6.0 and half[params["b"]].item() == pytest.approx(3.0, rel=1e-6)
    assert fp.clip_grad_value(half, 0.1) == pytest.approx(3.0, rel=1e-6)


@pytest.mark.parametrize("look", [False, True], ids=["waiting", "applied"])
def test_clipping_again_counts_the_factor_that_is_waiting(look):
    params = fp.ParameterDict({"a": fp.Parameter(np.array([3.0, 0.0], np.float32)), "b": fp.Parameter(np.array([4.0], np.float32))})
    params.pack()
    a, b = params.parameters()
    grads = ((a * a).sum() * 0.5 + (b * b).sum() * 0.5).backward()  # gradients 3, 0 and 4
    assert fp.clip_grad_norm(grads, 2.5) == 5.0
    if look:
        np.testing.assert_allclose(grads[a].numpy(), [1.5, 0.0], rtol=1e-6)
    assert fp.grad_norm(grads) == pytest.approx(2.5, rel=1e-6)
    assert fp.clip_grad_norm(grads, None) == pytest.approx(2.5, rel=1e-6)
    assert fp.clip_grad_norm(grads, 100.0) == pytest.approx(2.5, rel=1e-6)
    assert fp.clip_grad_norm(grads, 1.0, norm_type=1) == pytest.approx(3.5, rel=1e-6)
    assert fp.clip_grad_norm(grads, 0.5, norm_type=math.inf) == pytest.approx(4 / 7, rel=1e-6)
    np.testing.assert_allclose([*grads[a].numpy(), *grads[b].numpy()], [0.375, 0.0, 0.5], rtol=1e-5)


def test_a_glob_on_parameters_without_names_says_that_they_have_none():
    p = fp.Parameter([3.0, 4.0])
    grads = (p * p).sum().backward()
    with raises(fp.StateError, "no parameter matches: 'w*'", "They have no names yet: put them into a Module or ParameterDict"):
        fp.clip_grad_norm(grads, 1.0, params="w*")
    assert grads[p].tolist() == [6.0, 8.0]
