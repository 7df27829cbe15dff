"""The Tensor object: what it shows of itself, its operators, and its memory in the hands of NumPy and PyTorch.

Operators take Tensors, Parameters, Python numbers and NumPy arrays on either side; Python numbers are weak. Oracles: NumPy, PyTorch
through DLPack, numbers worked by hand.
"""

from __future__ import annotations

import operator

import numpy as np
import pytest
from error_text import raises

import flamepy as fp

FLOATS = [fp.float32, fp.float64, fp.float16, fp.bfloat16]
ALL = [*FLOATS, fp.int32, fp.int64, fp.bool_]
HALVES = (fp.float16, fp.bfloat16)


# ---- looking at it ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_properties(dtype):
    x = fp.ones(2, 3).to(dtype)
    assert (x.shape, x.ndim, x.size, x.dtype, x.name, x.requires_grad) == ((2, 3), 2, 6, dtype, "", False)
    assert x.device == "cpu" and x.device == fp.device("cpu") and str(x.device) == "cpu" and isinstance(x.id, int)
    assert len(x) == 2 and [row.shape for row in x] == [(3,), (3,)] and all(isinstance(row, fp.Tensor) for row in x)
    assert x[1, 2].item() == 1 and x.tolist() == [[1] * 3] * 2


@pytest.mark.parametrize("dtype, kind", [(d, float) for d in FLOATS] + [(fp.int32, int), (fp.int64, int), (fp.bool_, bool)], ids=str)
def test_item_and_tolist_give_python_numbers(dtype, kind):
    x = fp.tensor([[1.0]]).to(dtype)
    assert type(x.item()) is kind and type(x.to_scalar()) is kind and type(x.tolist()[0][0]) is kind and x.item() == 1
    assert float(x) == 1.0 and int(x) == 1 and bool(x) is True and bool(x * 0) is False


@pytest.mark.parametrize("call", [fp.Tensor.item, fp.Tensor.to_scalar, float, int])
def test_one_element_is_needed(call):
    for x in (fp.ones(2), fp.ones(0)):
        with raises(fp.ShapeError, "item", x.shape):
            call(x)


def test_length_and_iteration_need_an_axis():
    for call in (len, list):
        with raises(TypeError, "len"):
            call(fp.tensor(1.0))
    assert [1, 2, 3][fp.tensor(1)] == 2 and "abc"[fp.tensor(2) :] == "c"
    with raises(fp.DTypeError, "index", "float32"):
        operator.index(fp.tensor(1.0))


def test_numpy_is_a_read_only_view_tracked_or_not():
    for x in (fp.ones(2, 2), fp.tensor([[1.0, 2.0]], requires_grad=True), fp.Parameter.ones(3), fp.ones(2, requires_grad=True) * 2):
        view = x.numpy()
        assert np.shares_memory(view, x.numpy()) and not view.flags.writeable and view.shape == x.shape and view.dtype == x.dtype
        with pytest.raises(ValueError):
            view[...] = 0
    p = fp.Parameter.ones(2)
    view = p.numpy()
    p.set_data([5.0, 6.0])
    assert view.tolist() == [5.0, 6.0]


def test_a_view_outlives_its_tensor():
    view = (fp.ones(1000) * 3).numpy()
    noise = [fp.ones(1000) * k for k in range(5)]
    assert len(noise) == 5 and (view == 3).all()


def test_as_array():
    x = fp.tensor([1.0, 2.0])
    assert not np.asarray(x).flags.writeable and np.shares_memory(np.asarray(x), x.numpy())
    copied = np.array(x)
    assert copied.flags.writeable and not np.shares_memory(copied, x.numpy())
    assert np.asarray(x, dtype="f8").dtype == np.float64 and np.asarray(x, dtype=int).tolist() == [1, 2]
    assert np.sum(np.asarray(x)) == 3.0 and np.stack([np.asarray(x)] * 2).shape == (2, 2)


def test_to_takes_a_dtype_or_a_device():
    x = fp.tensor([1.0, 2.5])
    assert x.to(fp.float64).dtype == fp.float64 and x.to("int64").tolist() == [1, 2] and x.to(dtype="bool").tolist() == [True, True]
    for wrong in ("gpu", 3):  # neither a dtype nor a device, as far as anybody can tell
        with pytest.raises(fp.errors.DTypeError, match=f"to: neither a dtype nor a device: {wrong!r}.*float32.*cpu, plain"):
            x.to(wrong)
    assert x.to("cpu") is x and x.to(fp.device("cpu")) is x and x.to(device="cpu") is x and x.to(fp.float32) is x
    assert x.to(dtype=fp.float64, device="cpu").dtype == fp.float64
    y = fp.tensor([1.0, 2.0], requires_grad=True)
    assert (y.to(fp.float64) * 3).sum().backward()[y].dtype == fp.float32


def test_clone_and_detach():
    x = fp.tensor([1.0, 2.0], requires_grad=True)
    c, d = x.clone(), x.detach()
    assert not np.shares_memory(c.numpy(), x.numpy()) and c.sum().backward()[x].tolist() == [1.0, 1.0]
    assert np.shares_memory(d.numpy(), x.numpy()) and not d.requires_grad and len({x.id, c.id, d.id}) == 3


def test_flames_methods():
    x = fp.tensor([1.0, -2.0])
    assert x.mul_scalar(3).tolist() == [3.0, -6.0] and x.add_scalar(0.5).tolist() == [1.5, -1.5]
    assert x.div_scalar(4).tolist() == [0.25, -0.5] and x.square().tolist() == [1.0, 4.0] and x.sum().to_scalar() == -1.0


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "prod", "var", "std", "argmax", "argmin", "logsumexp"])
def test_axis_and_dim_are_the_same_word(name):
    x = fp.tensor(np.array([[1.0, 5.0, 2.0], [4.0, 3.0, 7.0]]))
    method = getattr(x, name)
    expected = method(axis=1, keepdims=True)
    for options in ({"dim": 1, "keepdim": True}, {"axis": 1, "keepdim": True}, {"dim": -1, "keepdims": True}):
        assert method(**options).shape == (2, 1) and method(**options).tolist() == expected.tolist()
    if hasattr(np, name):
        np.testing.assert_allclose(expected.numpy(), getattr(np, name)(x.numpy(), axis=1, keepdims=True))
    with pytest.raises(TypeError, match=f"{name}.+axes"):
        method(axes=1)


def test_setitem_is_refused_with_advice():
    x = fp.ones(3)
    for key in (0, slice(None), x > 0):
        with raises(fp.FlameError, "setitem", "where", "set_data"):
            x[key] = 1.0


# ---- operators ----------------------------------------------------------------------------------------------------------------------
BINARY = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv, "pow": operator.pow,
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip
SIDES = {
    "tensor": fp.tensor, "parameter": fp.Parameter, "array": lambda a: a, "NumPy scalar": lambda a: a[0, 0],
    "float": lambda a: float(a[0, 0]), "int": lambda a: 2, "bool": lambda a: True,
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("other", SIDES)
@pytest.mark.parametrize("name", BINARY)
def test_operators_take_anything_on_either_side(name, other, dtype):
    a, b = np.array([[1.5, 2.0, 0.5]], dtype), np.array([[2.0], [1.5]], dtype)
    x, y = fp.tensor(a), SIDES[other](b)
    raw = np.asarray(y) if isinstance(y, fp.Tensor) else y
    for left, right, expected in ((x, y, BINARY[name](a, raw)), (y, x, BINARY[name](raw, a))):
        z = BINARY[name](left, right)
        assert type(z) is fp.Tensor and z.dtype == expected.dtype and z.shape == expected.shape
        np.testing.assert_allclose(z.numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("make", [fp.tensor, fp.Parameter, np.asarray])
def test_matmul_on_either_side(make):
    a, b = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)
    for z in (fp.tensor(a) @ make(b), make(a) @ fp.tensor(b)):
        assert type(z) is fp.Tensor and z.tolist() == (a @ b).tolist()


def test_unary_and_augmented():
    x = fp.tensor([1.0, -2.0])
    assert (-x).tolist() == [-1.0, 2.0] and abs(x).tolist() == [1.0, 2.0] and (~(x > 0)).tolist() == [False, True]
    before = x
    x += 1  # a new tensor: there is no arithmetic in place
    assert x.tolist() == [2.0, -1.0] and before.tolist() == [1.0, -2.0] and x is not before


def test_gradients_flow_from_either_side():
    x = fp.tensor(np.array([2.0, 4.0]), requires_grad=True)
    array = np.array([3.0, 5.0])
    assert (array * x).sum().backward()[x].tolist() == [3.0, 5.0] and (8 / x).sum().backward()[x].tolist() == [-2.0, -0.5]
    assert (1 - x).sum().backward()[x].tolist() == [-1.0, -1.0] and (array - x).sum().backward()[x].tolist() == [-1.0, -1.0]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("number", [2, 2.5, True, np.float64(2.5), np.float32(2.5), np.int64(2)], ids=repr)
def test_numbers_are_weak(dtype, number):
    x = fp.ones(2).to(dtype)
    for z in (x * number, number * x, x + number, number - x, x / number):
        assert z.dtype == dtype


def test_integers_and_bools_take_the_floats_dtype_and_two_floats_do_not_mix():
    ints, mask = fp.tensor([1, 2]), fp.tensor([True, False])
    for dtype in FLOATS:
        x = fp.ones(2).to(dtype)
        assert (x + ints).dtype == (ints * x).dtype == (mask * x).dtype == (x + np.array([1, 2])).dtype == dtype
    assert (ints + 2).dtype == fp.int64 and (ints + 2.5).dtype == fp.float32 and (ints / 2).tolist() == [0.5, 1.0]
    assert (fp.ones(2) - fp.ones(2).to(fp.bfloat16)).dtype == fp.float32
    for call in (lambda: fp.ones(2) + np.ones(2), lambda: np.ones(2) * fp.ones(2), lambda: fp.ones(2).to(fp.bfloat16) + np.ones(2)):
        with raises(fp.DTypeError, "float32", "Cast"):
            call()


@pytest.mark.parametrize("name, call", [
    ("add", lambda x: x + fp.ones(3)), ("add", lambda x: np.ones(3, "f4") + x), ("sub", lambda x: x - fp.ones(3)),
    ("mul", lambda x: x * np.ones((3, 3), "f4")), ("div", lambda x: x / fp.ones(5)), ("matmul", lambda x: x @ fp.ones(3)),
    ("matmul", lambda x: np.ones((4, 3), "f4") @ x), ("lt", lambda x: x < fp.ones(3)), ("eq", lambda x: x == fp.ones(3)),
])  # fmt: skip
def test_a_failing_operator_names_its_op_and_the_shapes(name, call):
    with raises(fp.ShapeError, name + ":", "(2,)"):
        call(fp.ones(2))


@pytest.mark.parametrize("call, name", [
    (lambda x: x + "a", "add"), (lambda x: "a" * x, "mul"), (lambda x: x - None, "sub"), (lambda x: x @ 2j, "matmul"),
])  # fmt: skip
def test_what_is_no_number_is_refused_by_the_op(call, name):
    with raises(fp.DTypeError, name + ":"):
        call(fp.ones(2))


def test_comparing_with_none():
    x = fp.ones(2)
    assert (x == None) is False and (x != None) is True  # noqa: E711


# ---- memory in other hands ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [fp.float32, fp.float64, fp.float16, fp.int32, fp.int64, fp.bool_], ids=str)
def test_dlpack_both_ways_with_torch(dtype):
    torch = pytest.importorskip("torch")
    x = fp.tensor([[0.0, 1.0], [1.0, 1.0]]).to(dtype)
    t = torch.from_dlpack(x)
    assert t.shape == (2, 2) and str(t.dtype) == f"torch.{dtype}" and t.tolist() == x.tolist() and t.data_ptr() == x.numpy().ctypes.data
    back = fp.tensor(t)
    assert back.dtype == dtype and back.tolist() == x.tolist() and not np.shares_memory(back.numpy(), x.numpy())
    assert x.__dlpack_device__() == (1, 0)


def test_dlpack_with_numpy_and_without_array():
    class Foreign:
        """Knows DLPack only."""

        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    x = fp.tensor([1.0, 2.0])
    assert np.from_dlpack(x).tolist() == [1.0, 2.0] and np.from_dlpack(x).ctypes.data == x.numpy().ctypes.data
    assert fp.tensor(Foreign(np.array([3.0, 4.0]))).tolist() == [3.0, 4.0]


def test_torch_keeps_the_memory_alive():
    torch = pytest.importorskip("torch")
    t = torch.from_dlpack(fp.ones(1000) * 3)
    noise = [fp.ones(1000) * k for k in range(5)]
    assert len(noise) == 5 and bool((t == 3).all())


def test_there_is_no_cuda_interface_on_the_cpu():
    assert not hasattr(fp.ones(2), "__cuda_array_interface__") and not hasattr(fp.Parameter.ones(2), "__cuda_array_interface__")
