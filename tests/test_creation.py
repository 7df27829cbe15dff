"""Making tensors, looking at them, operators with whatever stands on the other side, and handing memory to NumPy and PyTorch.

Oracles: NumPy, PyTorch (DLPack), numbers worked by hand, and moments of the distributions for random numbers. The ops themselves
are in test_ops.py.
"""

from __future__ import annotations

import threading

import numpy as np
import pytest
from devices import default_device
from error_text import raises

import flamepy as fp

DTYPES = {
    "float32": fp.float32, "float64": fp.float64, "float16": fp.float16, "bfloat16": fp.bfloat16,
    "int32": fp.int32, "int64": fp.int64, "uint8": fp.uint8, "bool": fp.bool_,
}  # fmt: skip
FLOATS = ["float32", "float64", "float16", "bfloat16"]
MAKERS = {
    "zeros": (lambda **o: fp.zeros((2, 3), **o), np.zeros((2, 3))),
    "zeros loose": (lambda **o: fp.zeros(2, 3, **o), np.zeros((2, 3))),
    "ones": (lambda **o: fp.ones((2, 3), **o), np.ones((2, 3))),
    "ones loose": (lambda **o: fp.ones(2, 3, **o), np.ones((2, 3))),
    "full": (lambda **o: fp.full((2, 2), 1, **o), np.full((2, 2), 1)),
    "eye": (lambda **o: fp.eye(3, **o), np.eye(3)),
    "eye wide": (lambda **o: fp.eye(2, 4, **o), np.eye(2, 4)),
    "scalar": (lambda **o: fp.ones((), **o), np.ones(())),
    "empty": (lambda **o: fp.zeros(0, 3, **o), np.zeros((0, 3))),
}


# ---- tensor() -----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("data, dtype, shape", [
    (1.5, "float32", ()), ([1.5, 2], "float32", (2,)), ([[1, 2], [3, 4]], "int64", (2, 2)), (3, "int64", ()), (True, "bool", ()),
    ([True, False], "bool", (2,)), ([], "float32", (0,)), ((1.0, 2.0), "float32", (2,)), (np.float64(2.0), "float64", ()),
    (np.ones(2, "f2"), "float16", (2,)), (np.ones(2, "i4"), "int32", (2,)), (np.ones(2, "u1"), "uint8", (2,)), (range(3), "int64", (3,)),
])  # fmt: skip
def test_what_tensor_makes_of_data(data, dtype, shape):
    t = fp.tensor(data)
    assert t.dtype == DTYPES[dtype] == np.dtype(t.dtype) and t.shape == shape and t.device == "cpu" and not t.requires_grad
    np.testing.assert_array_equal(t.numpy(), np.asarray(data))


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_array_keeps_its_dtype_and_any_dtype_can_be_asked_for(dtype):
    array = np.array([[0, 1], [1, 0]]).astype(DTYPES[dtype])
    assert fp.tensor(array).dtype == DTYPES[dtype] and fp.tensor(array).numpy().tobytes() == array.tobytes()
    for asked in (DTYPES[dtype], dtype):
        t = fp.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=asked, device="cpu")
        assert t.dtype == DTYPES[dtype] and t.numpy().tobytes() == array.tobytes()


def test_float64_keeps_every_digit():
    assert fp.tensor(0.1, dtype=fp.float64).item() == 0.1 and fp.tensor([0.1], dtype="float64").tolist() == [0.1]
    assert fp.tensor(0.1).item() == np.float32(0.1) and fp.full((1,), 0.1, dtype=fp.float64).item() == 0.1


def test_tensor_copies():
    array = np.ones(3)
    t = fp.tensor(array)
    copy = fp.tensor(t)
    array[:] = 7
    assert t.tolist() == [1, 1, 1] and copy.id != t.id and not np.shares_memory(copy.numpy(), t.numpy())


@pytest.mark.parametrize("data, kind", [
    ("a", fp.DTypeError), ([1j], fp.DTypeError), (None, fp.DTypeError), ({}, fp.DTypeError), (2**63, fp.DTypeError), (2**70, fp.DTypeError),
    ([[1, 2], [3]], fp.ShapeError), (np.array(["a"]), fp.DTypeError), (np.ones(1, complex), fp.DTypeError),
])  # fmt: skip
def test_what_is_no_tensor(data, kind):
    with raises(kind, "tensor"):
        fp.tensor(data)


@pytest.mark.parametrize("array", [
    np.full(2, 1j), np.array(["1", "2"]), np.array([b"1", b"2"]), np.array([None, 1]), np.array(["2026-01-01"] * 2, "M8[D]")
], ids=["complex", "text", "bytes", "objects", "dates"])  # fmt: skip
def test_a_dtype_makes_no_numbers_of_what_is_none(array):
    p = fp.Parameter(fp.zeros(2))
    for call in (lambda: fp.tensor(array, dtype="float32"), lambda: p.set_data(array), lambda: p.set_grad(array)):
        with raises(fp.DTypeError, "tensor: not cast to float", str(array.dtype)):
            call()
    assert p.tolist() == [0, 0] and p.grad is None


def test_requires_grad_is_yes_or_no():
    for flag in ("no", [False], 2):
        for make in (fp.tensor, fp.Parameter):
            with raises(fp.DTypeError, "requires_grad", "no yes or no", str(flag)):
                make([1.0], requires_grad=flag)
        for make in (fp.zeros, fp.rand, fp.randn):
            with raises(fp.DTypeError, "requires_grad", "no yes or no", str(flag)):
                make(2, requires_grad=flag)
    assert not fp.Parameter([1.0], requires_grad=False).requires_grad and fp.Parameter([1.0]).requires_grad


def test_requires_grad_is_for_floats():
    assert fp.tensor([1.0], requires_grad=True).requires_grad and fp.zeros(2, requires_grad=True).requires_grad
    t = fp.ones(2)
    assert t.requires_grad_() is t and t.requires_grad and not t.requires_grad_(False).requires_grad
    ints = {"dtype": "int32", "requires_grad": True}
    for call in (fp.tensor([1, 2]).requires_grad_, lambda: fp.tensor([1], requires_grad=True), lambda: fp.ones(1, **ints)):
        with raises(fp.GradientError, "int"):
            call()


def test_devices_and_dtypes_that_are_not_there():
    for call in (lambda: fp.tensor([1.0], device="cuda"), lambda: fp.zeros(1, device="cuda:0"), lambda: fp.ones(1).to("cuda")):
        with raises(fp.DeviceError, "device", "cuda"):
            call()
    for call in (lambda: fp.tensor([1.0], dtype="complex64"), lambda: fp.ones(1).to("nonsense"), lambda: fp.zeros(1, dtype="int128")):
        with raises(fp.DTypeError, "dtype", "float32"):
            call()


# ---- filled and counted ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [None, *DTYPES])
@pytest.mark.parametrize("maker", MAKERS)
def test_makers(maker, dtype):
    make, expected = MAKERS[maker]
    t = make(dtype=dtype, device="cpu") if dtype else make()
    assert t.dtype == DTYPES[dtype or "float32"] and t.shape == expected.shape and t.device == "cpu"
    np.testing.assert_array_equal(t.numpy().astype("f8"), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_likes_keep_shape_and_dtype(dtype):
    x = fp.zeros(2, 3).to(dtype)
    makers = [fp.zeros_like, fp.ones_like, lambda t: fp.full_like(t, 1)]
    for make in [*makers, fp.rand_like, fp.randn_like, fp.uniform_like] if dtype in FLOATS else makers:
        assert make(x).shape == (2, 3) and make(x).dtype == DTYPES[dtype] and make(x).id != x.id
    assert fp.zeros_like(x, dtype=fp.float64).dtype == fp.float64
    assert fp.full_like(x, 1).numpy().astype("f8").tolist() == [[1.0] * 3] * 2


@pytest.mark.parametrize("args, expected, dtype", [
    ((5,), [0, 1, 2, 3, 4], "int64"), ((2, 5), [2, 3, 4], "int64"), ((1, 8, 3), [1, 4, 7], "int64"), ((5, 1, -2), [5, 3], "int64"),
    ((0.0, 1.0, 0.25), [0, 0.25, 0.5, 0.75], "float32"), ((3.0,), [0, 1, 2], "float32"), ((0,), [], "int64"), ((3, 1), [], "int64"),
])  # fmt: skip
def test_arange(args, expected, dtype):
    t = fp.arange(*args)
    assert t.dtype == DTYPES[dtype] and t.tolist() == expected
    assert fp.arange(*args, dtype="float64").dtype == fp.float64
    with raises(ValueError, "arange"):
        fp.arange(1, 2, 0)


@pytest.mark.parametrize("make", [fp.zeros, fp.ones, fp.rand, fp.randn, fp.uniform, lambda s: fp.full(s, 1.0), fp.Tensor.randn])
@pytest.mark.parametrize("shape", [-1, (2, -1), (2, -3), (2.5,), "ab"])
def test_impossible_shapes(make, shape):
    with raises(fp.ShapeError, "sizes"):
        make(shape)


# ---- random ---------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", FLOATS)
def test_random_numbers_have_their_moments(dtype):
    fp.manual_seed(0)
    n = 40000
    u, z = fp.rand(n, dtype=dtype), fp.randn(200, 200, mean=2.0, std=3.0, dtype=dtype)
    v = fp.uniform((n,), -3.0, 5.0, dtype=dtype)
    assert (u.dtype, u.shape, z.shape, v.shape) == (DTYPES[dtype], (n,), (200, 200), (n,))
    u, z, v = (t.numpy().astype("f8") for t in (u, z, v))
    assert u.min() >= 0 and u.max() <= 1 and abs(u.mean() - 0.5) < 0.01 and abs(u.var() - 1 / 12) < 0.003
    assert abs(z.mean() - 2) < 0.06 and abs(z.std() - 3) < 0.05 and abs(((z - 2) ** 3).mean()) < 1.0
    assert v.min() >= -3 and v.max() <= 5 and abs(v.mean() - 1) < 0.05
    assert dtype in ("float16", "bfloat16") or (u.max() < 1 and v.max() < 5 and len(np.unique(u)) > 0.99 * n)


def test_flames_randn():
    fp.manual_seed(1)
    x = fp.Tensor.randn((100, 100), 1.0, 0.1, device="cpu")
    assert type(x) is fp.Tensor and x.shape == (100, 100) and abs(x.numpy().mean() - 1) < 0.01 and abs(x.numpy().std() - 0.1) < 0.01
    assert abs(fp.Tensor.randn((50, 50)).numpy().std() - 1) < 0.1 and fp.randn(2, requires_grad=True).requires_grad


def test_a_seed_is_a_whole_number():
    for seed in (1.5, "7", None):
        with pytest.raises(fp.DTypeError, match="manual_seed: not a whole number"):
            fp.manual_seed(seed)
    fp.manual_seed(np.int64(3))


def test_manual_seed_makes_it_reproducible():
    def draw(seed):
        fp.manual_seed(seed)
        return [t.tolist() for t in (fp.randn(3, 3), fp.rand(4), fp.uniform((2,), 1.0, 2.0), fp.Parameter.randn((2,)))]

    assert draw(7) == draw(7) and draw(7) != draw(8)
    first, second = fp.randn(5).tolist(), fp.randn(5).tolist()
    assert first != second
    state = fp.get_rng_state()
    assert all(type(v) is int for v in state.values())
    ahead = fp.rand(3).tolist()
    fp.set_rng_state(state)
    assert fp.rand(3).tolist() == ahead


def test_threads_do_not_repeat_each_other():
    found = []
    threads = [threading.Thread(target=lambda: found.append(fp.randn(4).tolist())) for _ in range(2)]
    for thread in threads:
        thread.start()
        thread.join()
    assert found[0] != found[1]


@pytest.mark.parametrize("make", [fp.rand, fp.randn, lambda n, dtype: fp.uniform((n,), dtype=dtype)])
def test_random_integers_are_refused(make):
    with raises(fp.DTypeError, "int64"):
        make(2, dtype="int64")


@pytest.mark.parametrize("make", [
    lambda: fp.uniform((2,), 1.0, 0.0), lambda: fp.uniform((2,), 0.0, np.nan), lambda: fp.Parameter.uniform((2,), -np.inf, 0.0),
    lambda: fp.randn(2, std=-1.0), lambda: fp.randn(2, std=np.nan), lambda: fp.Parameter.randn((2,), mean=np.inf),
])  # fmt: skip
def test_what_is_no_distribution_is_refused(make):
    with raises(ValueError, "no such distribution: "):
        make()
    assert fp.uniform((2,), 3.0, 3.0).tolist() == fp.randn(2, mean=3.0, std=0.0).tolist() == [3.0, 3.0]


@pytest.mark.parametrize("data", [
    [2**40], [-(2**31) - 1], [np.nan], [0.0, np.inf], [-3e9], [2.0**63], np.float32([2**31]), np.uint64([2**63]),
])  # fmt: skip
def test_numbers_that_an_integer_type_cannot_hold_are_refused_as_by_numpy(data):
    """NumPy refuses them in lists, where PyTorch does, too; its cast of an array wraps them round."""
    for dtype, size in (("int32", 2**31), ("int64", 2**63)):
        if all(-size - 1 < float(x) < size for x in data):
            assert fp.tensor(data, dtype=dtype).tolist() == np.array(data).astype(dtype).tolist()
        else:
            with pytest.raises((OverflowError, ValueError)):
                np.array([x.item() if isinstance(x, np.generic) else x for x in data], dtype)
            with raises(fp.DTypeError, f"tensor: a number does not fit {dtype}: "):
                fp.tensor(data, dtype=dtype)
    with raises(fp.DTypeError, "a number does not fit int32: 2147483648"):
        fp.arange(2**31 - 1, 2**31 + 1, dtype=fp.int32)
    assert fp.tensor([-(2**31) - 0.5, 2**31 - 0.5], dtype=fp.int32).tolist() == [-(2**31), 2**31 - 1]


def test_operators_between_bits_are_those_of_bools():
    a, ids = np.array([True, True, False]), fp.tensor([1, 2, 3])  # test_integers.py has their bits
    mask = fp.tensor([True, False, False])
    for found, want in (
        (mask & fp.tensor(a), [True, False, False]), (a & mask, [True, False, False]), (mask | a, [True, True, False]),
        (True & mask, [True, False, False]), (~mask, [False, True, True]), ((ids > 1) & (ids != 3), [False, True, False]),
    ):  # fmt: skip
        assert found.tolist() == want and found.dtype == fp.bool_


@pytest.mark.parametrize(
    "make",
    [
        lambda: fp.zeros(2, 3), lambda: fp.ones((2, 3), dtype=fp.int64), lambda: fp.full([3], -0.0), lambda: fp.full((3,), 0.0),
        lambda: fp.full(3, True), lambda: fp.full(3, 1.5, fp.float16), lambda: fp.arange(3), lambda: fp.arange(3.0), lambda: fp.eye(2, 3),
        lambda: fp.linspace(0, 1, 3), lambda: fp.tri(2), lambda: fp.zeros_like(fp.tensor([1, 2])), lambda: fp.full_like(fp.ones(2), 2.5),
        lambda: fp.tril_indices(2)[1], lambda: fp.reshape([1.0, 2.0], (2, 1)),
    ],
)  # fmt: skip
def test_what_is_made_often_is_memory_of_its_own(make):
    first, *others = [make() for _ in range(6)]
    bits = np.copy(first.numpy()).tobytes()
    for t in others:
        assert (t.numpy().tobytes(), t.shape, t.dtype, t.requires_grad) == (bits, first.shape, first.dtype, False)
        fp.Parameter(t).set_data(t + 1) if t.dtype == fp.float32 else None
        t.buffer.data[...] = 7  # not even the memory of others is seen
    assert len({t.id for t in (first, *others)}) == 6
    assert make().numpy().tobytes() == bits


def test_the_default_device_may_be_another_one_by_then():
    made = []
    for name in ("plain", "cpu", "plain"):
        with default_device(name):
            made += [fp.eye(2).device.name for _ in range(4)]
    assert made == ["plain"] * 4 + ["cpu"] * 4 + ["plain"] * 4


def test_numbers_that_tensors_hold_are_looked_at_each_time():
    assert [fp.full((2,), v).tolist() for v in map(fp.tensor, (1.0, 1.0, 1.0, 2.0))] == [[1, 1]] * 3 + [[2, 2]]
