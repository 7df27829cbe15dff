"""Numbers at the edge of pointwise ops, options that are refused, 16-bit floats, and captured steps of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from error_text import raises

import flamepy as fp
import flamepy.nn.functional as F

pytestmark = [pytest.mark.usefixtures("device"), pytest.mark.parametrize("device", ["plain", "cpu"], indirect=True)]
INF, NAN = math.inf, math.nan


def of(*numbers: float, dtype: str = "float32") -> fp.Tensor:
    return fp.tensor(numbers, dtype=dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_infinities_zeros_and_ends(dtype: str) -> None:
    far = 800.0 if dtype == "float64" else 300.0
    for name, at, want in (
        ("sinh", (far, -far, INF, -INF, -0.0), (INF, -INF, INF, -INF, -0.0)), ("cosh", (far, -far, INF, 0.0), (INF, INF, INF, 1.0)),
        ("asinh", (INF, -INF, 0.0), (INF, -INF, 0.0)), ("acosh", (1.0, 0.5, -3.0, INF), (0.0, NAN, NAN, INF)),
        ("atanh", (1.0, -1.0, 2.0), (INF, -INF, NAN)), ("asin", (2.0, 1.0), (NAN, math.pi / 2)), ("acos", (-1.0, 1.0), (math.pi, 0.0)),
        ("atan", (INF, -INF), (math.pi / 2, -math.pi / 2)), ("log2", (0.0, -1.0, INF, 8.0), (-INF, NAN, INF, 3.0)),
        ("log10", (0.0, 1000.0), (-INF, 3.0)), ("exp2", (-INF, INF, 10.0, -3.0), (0.0, INF, 1024.0, 0.125)), ("sinc", (0.0,), (1.0,)),
        ("erfc", (INF, -INF, 0.0), (0.0, 2.0, 1.0)), ("erfinv", (1.0, -1.0, 0.0, 1.5), (INF, -INF, 0.0, NAN)),
        ("lgamma", (0.0, -1.0, 1.0, 2.0, INF), (INF, INF, 0.0, 0.0, INF)), ("digamma", (0.0, -1.0), (-INF, NAN)),
        ("trunc", (-1.7, 1.7), (-1.0, 1.0)), ("logsigmoid", (-far, far), (-far, 0.0)), ("mish", (far, -far), (far, -0.0)),
    ):  # fmt: skip
        found = getattr(fp, name)(of(*at, dtype=dtype)).numpy()
        np.testing.assert_allclose(found, np.array(want, dtype), 3e-7 if dtype == "float32" else 1e-15, err_msg=name)
    zeros = fp.atan2(of(0.0, -0.0, 0.0, -0.0, dtype=dtype), of(1.0, 1.0, -0.0, -0.0, dtype=dtype)).numpy()
    assert np.array_equal(zeros, np.arctan2(np.array([0.0, -0.0, 0.0, -0.0], dtype), np.array([1.0, 1.0, -0.0, -0.0], dtype)))
    assert fp.hypot(of(INF, 0.0, 3e38 / 2), of(NAN, 0.0, 3e38 / 2)).isfinite().tolist() == [False, True, True]
    assert fp.logaddexp(of(-INF, INF, 1000.0), of(-INF, INF, 1000.0)).numpy().round(3).tolist() == [-INF, INF, np.float32(1000.693)]
    assert np.isnan(fp.pow(of(-2.0), 0.5).numpy()).all() and fp.pow(of(-2.0, -0.0, 0.0), of(3.0, -1.0, -0.7)).tolist() == [-8, -INF, INF]
    assert (of(0.0).log2() * -0.7).exp2().tolist() == [INF]
    assert np.array_equal(np.signbit(of(-0.0, 0.0, dtype=dtype).tanh().numpy()), [True, False])


def test_the_slope_of_sinc_near_zero() -> None:
    """Where the cosine and the sine that it is made of cancel: -pi^2 x / 3 and what follows."""
    at = np.array([0.0, 1e-9, -1e-5, 3e-3, 0.1, 0.2499, 0.2501])
    t = math.pi * at
    want = math.pi * sum((-1) ** k * 2 * k / math.factorial(2 * k + 1) * t ** (2 * k - 1) for k in range(1, 14))
    for dtype, rtol in (("float32", 3e-6), ("float64", 1e-14)):
        x = of(*at, dtype=dtype).requires_grad_()
        slope = fp.sinc(x).sum().backward(create_graph=True)[x]
        np.testing.assert_allclose(slope.numpy(), want, rtol)
        np.testing.assert_allclose(slope.sum().backward()[x].numpy()[:3], -(math.pi**2) / 3, 3e-6)


def test_second_slopes_where_a_formula_has_a_seam() -> None:
    """Where the two numbers are one, and at whole numbers, where the reflection that other numbers need is infinite."""
    basel, apery = math.pi**2 / 6, 1.2020569031595942
    for call, at, want in (
        (lambda x: fp.logaddexp(x, of(2.0, 0.0, dtype="float64")), (2.0, 0.0), (0.25, 0.25)),
        (lambda x: fp.logaddexp2(of(2.0, dtype="float64"), x), (2.0,), (math.log(2) / 4,)),
        (fp.lgamma, (1.0, 2.0, 3.0), (basel, basel - 1, basel - 1.25)), (fp.digamma, (1.0, 2.0), (-2 * apery, 2 - 2 * apery)),
    ):  # fmt: skip
        x = of(*at, dtype="float64").requires_grad_()
        slope = call(x).sum().backward(create_graph=True)[x]
        np.testing.assert_allclose(slope.sum().backward()[x].numpy(), want, 1e-11)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8"])
def test_fmod_of_the_least_integers(dtype: str) -> None:
    info = np.iinfo(dtype)
    a = np.array([info.min, info.min + 1, info.max - 1, info.max, 0, 1, 2, 7, *([-1, -2, -7] if info.min else [])], dtype)
    a, b = (x.reshape(-1) for x in np.meshgrid(a, a[a != 0]))
    np.testing.assert_array_equal(fp.fmod(fp.tensor(a), fp.tensor(b)).numpy(), np.fmod(a, b))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_divisions_leave_is_exact(dtype: str) -> None:
    """Beside NumPy; bit for bit the same in a broadcast, which has no packed form. First quotients of any size, then moderate ones."""
    rng, info, most = np.random.default_rng(4), np.finfo(dtype), 2.0 ** (22 if dtype == "float32" else 51)
    odd = [0.0, -0.0, INF, -INF, NAN, info.max, info.tiny, info.smallest_subnormal, -info.smallest_subnormal, info.eps, 1.0, -3.0, 0.1]
    a = np.array([*odd, *rng.standard_normal(40) * 10.0 ** rng.integers(-3, 7, 40), *rng.integers(-30, 30, 30)], dtype)
    a, b = (x.reshape(-1) for x in np.meshgrid(a, a))
    with np.errstate(all="ignore"):
        near = np.nextafter((a * rng.integers(0, 999, a.size)).astype(dtype), b)  # of multiples
        a, b = np.concatenate([a, np.where(np.isfinite(near), near, a)]), np.concatenate([b, a])
        moderate = np.isfinite(b) & (np.abs(a) < most * np.abs(b.astype("float64")))
        for x, y in ((a, b), (a[moderate], b[moderate])):
            for name in ("fmod", "remainder", "floor_divide"):
                found = getattr(fp, name)(fp.tensor(x), fp.tensor(y)).numpy()
                np.testing.assert_array_equal(found, getattr(np, name)(x, y), name)
                alone = getattr(fp, name)(fp.tensor(np.stack([x, x])), fp.tensor(y)).numpy()[0]
                assert np.array_equal(np.signbit(found) | np.isnan(found), np.signbit(alone) | np.isnan(alone)), name


def test_options_that_are_refused() -> None:
    x = fp.tensor([1, 2, 3])
    with raises(ValueError, "div: unknown rounding mode: 'typo'"):
        fp.div(x, 2, rounding_mode="typo")
    with raises(RuntimeError, "clamp: no bound"):
        x.clip(None, None)
    with raises(fp.ShapeError, "glu: no two halves"):
        F.glu(fp.ones(3))
    assert F.threshold(x, 1.5, 0.25).tolist() == [0.25, 2.0, 3.0] and fp.clamp(x, 1.5).tolist() == [1.5, 2.0, 3.0]


def test_16_bits_are_rounded_once() -> None:
    for dtype in ("float16", "bfloat16"):
        t = of(0.3, -0.7, 0.9, dtype=dtype)
        for name in ("mish", "erfinv", "asin", "logit", "expm1", "hardswish"):
            want = getattr(fp, name)(t.to("float32")).to(dtype)
            assert np.array_equal(getattr(fp, name)(t).numpy().view("u2"), want.numpy().view("u2"), equal_nan=False), name


def test_captured_steps() -> None:
    def step(x: fp.Tensor, y: fp.Tensor) -> fp.Tensor:
        return (fp.atan2(x, y) + F.hardswish(x) * fp.lerp(x, y, 0.3) + fp.clamp(x, min=y)).sum()

    captured, bits = fp.capture(step), fp.capture(lambda v: (v << 1) | 1)
    for i in range(4):
        x, y = of(0.5 + i, -1.0, 2.0), of(1.0, 0.5, -2.0)
        assert captured(x, y).item() == step(x, y).item()
        assert bits(fp.tensor([i, 2], dtype="uint8")).tolist() == [2 * i + 1, 5]


def test_alpha_of_add_and_sub() -> None:
    x = fp.tensor([1.0, 2.0], device="plain")
    for call, want in (
        (lambda: fp.add(x, [1.0, 2.0], alpha=2), [3.0, 6.0]), (lambda: x.sub(3, alpha=2), [-5.0, -4.0]),
        (lambda: fp.add(5.0, x, alpha=3), [8.0, 11.0]), (lambda: fp.subtract(x, np.ones(1, "f4"), alpha=0.5), [0.5, 1.5]),
    ):  # fmt: skip
        assert [call().tolist() for _ in range(3)] == [want] * 3
    assert fp.add(fp.tensor([1], device="plain"), 2, alpha=3).dtype == fp.int64
    for error, bad, word in (
        (fp.DTypeError, lambda: x.add(x, alpha="2"), "add: alpha is no number: '2'"),
        (TypeError, lambda: x.mul(x, alpha=2), "mul: unknown option: alpha=2"),
        (TypeError, lambda: fp.add(x, alpha=2), "add: wrong number of inputs"),
    ):  # fmt: skip
        with pytest.raises(error, match=word):
            bad()
