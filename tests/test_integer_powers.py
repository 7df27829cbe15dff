"""Integers to the power of integers are exact; the powers of floats that are products and roots.

Oracles: NumPy, and Python's own integers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from error_text import raises
from hypothesis import given, settings
from hypothesis import strategies as st

import flamepy as fp

pytestmark = pytest.mark.usefixtures("device")
BASES = [2**24 + 1, -3, 0, 1, -1, 7, 1290, -(2**15)]


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 7, 31, 64, 1000])
def test_numbers_as_powers(dtype: str, n: int) -> None:
    x = np.array(BASES, dtype)
    for y in (fp.tensor(x) ** n, fp.pow(fp.tensor(x), np.int64(n))):
        assert y.dtype == dtype and (y.numpy() == x**n).all()
    assert (fp.tensor(x[:1]) ** 1).numpy() is not x


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_tensors_as_powers(dtype: str) -> None:
    x, e = np.array(BASES, dtype), np.array([0, 1, 2, 3, 5, 20, 40, 62], dtype)
    for y, want in (
        (fp.tensor(x) ** fp.tensor(e), x**e), (2 ** fp.tensor(e), 2**e), (fp.tensor(x) ** e, x**e),
        (fp.tensor(x).to(fp.int64) ** fp.tensor(e), x.astype("i8") ** e), (fp.tensor(x[:, None]) ** fp.tensor(e), x[:, None] ** e),
    ):  # fmt: skip
        assert y.dtype == want.dtype and (y.numpy() == want).all()
    assert (fp.tensor([2, 3]) ** [3, 2]).tolist() == [8, 9] and (fp.tensor([2, 3]) ** [3, 2]).dtype == fp.int64
    assert (fp.tensor(2**24 + 1) ** fp.tensor(2)).item() == (2**24 + 1) ** 2


@settings(max_examples=40, deadline=None)
@given(st.integers(-(2**31), 2**31 - 1), st.integers(0, 70))
def test_as_python_modulo(base: int, n: int) -> None:
    want = (pow(base, n) + 2**63) % 2**64 - 2**63
    assert (fp.tensor([base]) ** n).tolist() == (fp.tensor([base]) ** fp.tensor([n])).tolist() == [want]


def test_negative_powers() -> None:
    x, e = fp.tensor([[2, 3], [4, 5]]), fp.tensor([[1, 0], [2, -3]])
    for call, words in (
        (lambda: x**-1, ["-1"]), (lambda: x**-2, ["-2"]), (lambda: x**e, ["-3 at position (1, 1)"]), (lambda: 2**e, ["-3", "(1, 1)"]),
    ):  # fmt: skip
        with raises(ValueError, "pow: a negative power of integers", *words):
            call().numpy()  # what a GPU finds out is told when something is read
    with pytest.raises(ValueError):
        np.array([2]) ** -1


def test_floats_stay_floats() -> None:
    x: Any = fp.tensor([2, 3])
    for y in (x**2.0, x**0.5, 2.0**x, x ** fp.tensor([1.0, 2.0]), fp.tensor([2.0, 3.0]) ** x):
        assert y.dtype == fp.float32
    assert (fp.tensor([2.0]) ** -1).tolist() == [0.5]


@pytest.mark.parametrize("n", [3, 3.0, np.float32(3), 0.5, -0.5, -1])
def test_powers_that_are_products_and_roots(n: Any) -> None:
    x = fp.tensor([0.25, 1.5, 7.0, 0.0, np.inf], dtype=fp.float64, requires_grad=True)
    y, numbers = x**n, x.numpy()
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(y.numpy(), numbers ** float(n), 1e-15)
        np.testing.assert_allclose(y.sum().backward()[x].numpy(), n * numbers ** (float(n) - 1), 1e-15)
    assert y.entry.op.title == "pow" if n == 3 else y.entry.op.name in ("sqrt", "rsqrt", "reciprocal")
    assert fp.gradcheck(lambda x: x**n, (fp.tensor([0.3, 1.1, 2.0], dtype=fp.float64),), order=2)
