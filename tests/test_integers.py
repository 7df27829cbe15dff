"""Integers of every width: made, cast, indexed, computed with as NumPy does, their bits; bits read as another type's."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from error_text import raises

import flamepy as fp

pytestmark = pytest.mark.usefixtures("device")
NAMES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
ON = [*[("plain", n) for n in NAMES], *[(d, n) for d in ("cpu", "cuda") for n in ("int8", "uint8", "int16", "uint16", "int64")]]
each_type = pytest.mark.parametrize(("device", "name"), ON, indirect=["device"])
some_device = pytest.mark.parametrize("device", ["plain", "cpu"], indirect=True)


def pair(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of both ends, and small ones that may be divided by."""
    ends = np.iinfo(name)
    rng = np.random.default_rng(1)
    a = np.array([ends.min, ends.max, 0, 1, *rng.integers(ends.min, ends.max, 60, dtype=name, endpoint=True)], name)
    b = rng.integers(1, 8, 64).astype(name)
    return a, b


ARITHMETIC: list[Callable[..., Any]] = [
    operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.lt, operator.eq, operator.and_, operator.or_,
    operator.xor, operator.lshift, operator.rshift,
]  # fmt: skip


@each_type
def test_arithmetic_is_numpys(name: str) -> None:
    """What does not fit is cut off; an operation of one type has that type."""
    a, b = pair(name)
    for operation in ARITHMETIC:
        with np.errstate(all="ignore"):
            want = operation(a, b)
        found = operation(fp.tensor(a), fp.tensor(b))
        assert str(found.dtype) == str(want.dtype) and np.array_equal(found.numpy(), want), operation
    for one in (operator.neg, operator.abs, operator.invert):
        with np.errstate(all="ignore"):
            assert np.array_equal(one(fp.tensor(a)).numpy(), one(a)), one
    assert (fp.tensor(b) + 2).dtype == name and np.array_equal((fp.tensor(b) * 2).numpy(), b * 2)
    assert (fp.tensor(b) / 2).dtype == fp.float32 and (fp.tensor(b) * 0.5).dtype == fp.float32


@each_type
def test_reductions_and_indexing(name: str) -> None:
    a, b = pair(name)
    x, n = fp.tensor(a.reshape(8, 8)), fp.tensor(b)
    assert n.sum().dtype == fp.int64 and n.sum().item() == b.sum() and n.mean().item() == np.float32(b.mean())
    assert x.max().item() == a.max() and np.array_equal(x.min(axis=1).numpy(), a.reshape(8, 8).min(1)) and x.max().dtype == name
    assert x.argmax().item() == a.argmax() and x.argmin().item() == a.argmin() and np.array_equal(x.min(0).numpy(), a.reshape(8, 8).min(0))
    for key in (3, slice(1, 6, 2), (slice(None), 2), np.array([3, 0, 3])):
        assert np.array_equal(x[key].numpy(), a.reshape(8, 8)[key])
    assert np.array_equal(x.T.numpy(), a.reshape(8, 8).T) and np.array_equal(fp.cat([x, x]).numpy(), np.concatenate([a, a]).reshape(16, 8))
    rows = fp.tensor(np.arange(24, dtype="f4").reshape(8, 3))
    assert np.array_equal(rows[n[:5]].numpy(), rows.numpy()[b[:5]])  # as ids
    assert np.array_equal(fp.where(n > 3, n, 0).numpy(), np.where(b > 3, b, 0)) and np.array_equal(n.clone().numpy(), b)


@each_type
def test_casts(name: str) -> None:
    a, b = pair(name)
    for other in ["bool", "float32", "float16", "bfloat16", *(NAMES if name == "int16" else ["int64", "uint8"])]:
        want = fp.tensor(a.astype("f4") if other in ("float16", "bfloat16") else a, device="plain").to(other).numpy()
        assert np.array_equal(fp.tensor(a).to(other).numpy(), want), other
        assert other == "bool" or np.array_equal(fp.tensor(b).to(other).to(name).numpy(), b), other
    floats = np.float32([1.7, -1.7, 0.0, 100.5])
    for kind in ("float32", "float64", "float16", "bfloat16"):
        found = fp.tensor(floats).to(kind).to(name).numpy()
        assert np.array_equal(found, fp.tensor(floats).to(kind).numpy().astype("f8").astype("i8").astype(name)), kind
    assert fp.tensor([True, False]).to(name).tolist() == [1, 0]


@some_device
def test_types_of_two_integers_and_what_is_refused() -> None:
    made = {name: fp.tensor([1, 2], dtype=name) for name in NAMES}
    for one in NAMES:
        for other in NAMES:
            want = np.result_type(np.dtype(one), np.dtype(other))
            if want.kind == "f":
                with raises(fp.DTypeError, "add: no integer type holds both: ", "uint64"):
                    made[one] + made[other]
            else:
                assert (made[one] + made[other]).dtype == want
    for _ in range(3):  # planned at the second time
        assert (made["int8"] + 1).tolist() == [2, 3]
        with raises(fp.DTypeError, "add: a number does not fit int8"):
            made["int8"] + 300
    with raises(fp.DTypeError, "bitwise_and: not integers or bools: float32"):
        made["int8"] & fp.ones(2)
    for call in (lambda: made["int8"] << 1.0, lambda: fp.ones(2) << 1, lambda: ~fp.ones(2)):
        with pytest.raises(RuntimeError, match="not integers or bools"):
            call()
    with raises(fp.GradientError, "only float tensors have gradients: int8"):
        fp.tensor([1], dtype="int8", requires_grad=True)


@some_device
def test_bits_of_bools_and_numbers() -> None:
    mask, ids = fp.tensor([True, False, True]), fp.tensor([1, 2, 3])
    assert (mask ^ True).tolist() == [False, True, False] and (mask ^ mask).dtype == fp.bool_ and (~mask).tolist() == [False, True, False]
    assert (ids & 1).tolist() == (1 & ids).tolist() == [1, 0, 1] and (mask | ids).tolist() == [1, 2, 3]
    assert (fp.tensor([0], dtype="int32") | 0xFFFFFFFF).tolist() == [-1] and (fp.tensor([255], dtype="uint8") & -2).tolist() == [254]
    assert (1 << ids).tolist() == [2, 4, 8] and (ids << 64).tolist() == [0, 0, 0] and (-ids >> 99).tolist() == [-1, -1, -1]
    ids &= 1
    assert ids.tolist() == [1, 0, 1]


@some_device
def test_numbers_are_made_of_data_and_ranges() -> None:
    assert fp.tensor(np.uint8([200])).dtype == fp.uint8 and fp.tensor([2**40]).dtype == fp.int64
    assert fp.tensor(2**64 - 1, dtype="uint64").item() == 2**64 - 1 and fp.ones((2,), dtype=fp.int16).tolist() == [1, 1]
    assert fp.arange(-128, 128, dtype="int8").tolist() == [*range(-128, 128)] and fp.arange(127, -129, -1, dtype="int8").size == 256
    for call in (
        lambda: fp.arange(129, dtype="int8"), lambda: fp.arange(-129, 128, dtype="int8"), lambda: fp.arange(128, 0, -1, dtype="int8"),
        lambda: fp.arange(127, -130, -1, dtype="int8"), lambda: fp.arange(2**50, dtype="int32"), lambda: fp.tensor([-1], dtype="uint8"),
        lambda: fp.tensor([2**63]),
    ):  # fmt: skip
        with pytest.raises(OverflowError, match="a number does not fit"):
            call()
    assert fp.tensor(3, dtype="uint8").__index__() == 3 and [10, 20, 30, 40][fp.tensor(3, dtype="uint8")] == 40


@pytest.mark.parametrize("device", ["plain", "cpu", "cuda"], indirect=True)
def test_bits_are_read_as_another_types() -> None:
    x = np.array([[1.0, -2.5, np.nan, 0.0]], "f4")
    for kind in ("int32", "uint32", "uint8", "int16", "int64", "float64", "float16", "bfloat16"):
        want = x.view(kind if kind != "bfloat16" else "uint16")
        for _ in range(3):
            found = fp.bitcast(fp.tensor(x), kind)
            back = fp.bitcast(found, "float32")
        assert found.shape == want.shape and str(found.dtype) == kind
        assert np.array_equal(back.numpy().view("i4"), x.view("i4"))
        assert np.array_equal(np.ascontiguousarray(found.numpy()).view(want.dtype).view("u1"), x.view("u1"))
    assert fp.tensor(x).view(fp.int32).tolist() == x.view("i4").tolist() and fp.tensor([True]).view(fp.uint8).tolist() == [1]
    with raises(fp.ShapeError, "bitcast: the last axis does not fit: shape (1, 3)"):
        fp.bitcast(fp.tensor(x[:, :3]), "int64")
    with raises(fp.DTypeError, "bitcast: to bools"):
        fp.tensor(x).view(fp.bool_)
    tracked = fp.tensor(x, requires_grad=True)
    assert not tracked.view(fp.int32).requires_grad
    with raises(fp.GradientError, "view: no derivative"):
        fp.bitcast(tracked, "float64")


@pytest.mark.parametrize("most", [1 << 22, 30])
@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "int64", "uint64", "bool"])
def test_products_of_integers_wrap_around(dtype: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flamepy.core.ops.matrices.MOST", most)  # small: the sum is split
    rng, low, high = np.random.default_rng(0), 0, 1
    if dtype != "bool":
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    for shapes in (((3, 4), (4, 5)), ((4,), (4,)), ((4,), (2, 4, 3)), ((2, 1, 3, 4), (5, 4, 2)), ((3, 0), (0, 4)), ((2, 3, 9), (9,))):
        a, b = (rng.integers(low, high, s, "int64" if dtype == "bool" else dtype, endpoint=True).astype(dtype) for s in shapes)
        y, want = fp.tensor(a, device="plain") @ fp.tensor(b, device="plain"), np.matmul(a, b)
        assert y.dtype == want.dtype and y.shape == want.shape
        np.testing.assert_array_equal(y.numpy(), want)
    with pytest.raises(fp.DTypeError, match="matmul: integers beside floats"):
        fp.tensor(a, device="plain") @ fp.ones(9, device="plain")
