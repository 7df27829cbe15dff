"""What people met who came from PyTorch and NumPy with scripts of their own: it works as there, or the error says what to type.

Oracles: NumPy, Python.
"""

from __future__ import annotations

import copy
import json
import pickle
from collections import OrderedDict

import numpy as np
import pytest
from error_text import raises

import flamepy as fp
import flamepy.nn.functional as F
from flamepy import nn

pytestmark = pytest.mark.usefixtures("plain")
X = np.linspace(-1, 1, 6, dtype="f4").reshape(2, 3)


def test_matplotlib_draws_what_has_a_tape():
    from matplotlib.figure import Figure

    x = fp.tensor(X[0], requires_grad=True)
    y = x * 2.0
    axes = Figure().subplots()
    (line,) = axes.plot(x, y)
    axes.scatter(x, y)
    axes.imshow(fp.Parameter(X) * 1.0)
    assert line.get_xydata().tolist() == [[v, 2 * v] for v in X[0].tolist()]
    assert copy.copy(y) is y and copy.copy(y).sum().backward()[x].tolist() == [2, 2, 2]
    twin = copy.copy(x)
    assert twin is not x and twin.requires_grad and twin.tolist() == x.tolist()
    with raises(fp.GradientError, "deepcopy: only leaves can be copied: made by 'mul'. Use detach()"):
        copy.deepcopy(y)


def test_truth_and_in_are_numpys():
    t = fp.tensor(X)
    for call in (lambda: bool(t), lambda: not t, lambda: t and t, lambda: t in [fp.zeros(2, 3)], lambda: bool(fp.zeros(0))):
        with raises(fp.ShapeError, "bool: the truth of a tensor needs one element: shape (", "x.numpy().any() or .all()", "x is t"):
            call()
    assert t in [t] and bool(fp.tensor([[2]])) and not fp.tensor(0.0)
    for value in (X[0, 1], 5.0, X[1], [9, 9, 9], np.nan, fp.tensor(X[1, 2])):
        assert (value in t) is bool((np.asarray(value) == X).any())
    assert None not in t and True in fp.tensor([False, True]) and 2 not in fp.zeros(0)
    look = fp.capture(lambda x: x * (2.0 if 1.0 in x else 3.0))
    look(t)
    with raises(fp.CaptureError, "reads a number on the host while it is recorded: __contains__()"):
        look(t)


def test_sizes_are_asked_for_as_in_pytorch():
    t, p = fp.tensor(X), fp.Parameter(X)
    for x in (t, p, t * p):
        assert x.size == x.numel() == 6 and x.size() == (2, 3) and (x.size(0), x.size(-1), x.size(dim=1)) == (2, 3, 3) and x.dim() == 2
        assert (np.ones(2, np.float32) / x.size).dtype == np.float32  # an int for NumPy too
    assert fp.zeros(t.size).shape == (6,) and (t / t.size).tolist() == (X / 6).tolist() and json.dumps([t.size]) == "[6]"
    assert pickle.loads(pickle.dumps(t.size))(1) == 3 and fp.tensor(1.0).size() == () and fp.zeros(0).size == 0
    with raises(fp.IndexOutOfRange, "size: no such axis: 2, shape (2, 3)"):
        t.size(2)


EDGES = [0.0, -0.0, 1.0, 0.1, -3.0, 7.5, 1e30, np.inf, -np.inf, np.nan]


@pytest.mark.parametrize("dtype", ["f4", "f8", "i8"])
def test_whole_division_and_its_remainder_are_numpys(dtype, device):
    """To the bit, of floats and integers, zeros and infinities among them."""
    a = np.array(EDGES if dtype[0] == "f" else [-7, -3, 2, 3, 5, 2**30]).astype(dtype)
    a = np.concatenate([a, np.random.default_rng(0).normal(0, 9, 50).astype(dtype)])
    b, t = a[:, None], fp.tensor(a)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal((t // fp.tensor(b)).numpy(), a // b)
        np.testing.assert_array_equal((t % fp.tensor(b)).numpy(), a % b)


def test_whole_division_beside_numbers_and_arrays_and_where_it_is_no_derivative():
    a = np.array([-7, 3, 2])
    t = fp.tensor(a)
    for found, want in ((t // 2, a // 2), (7 % t, 7 % a), (a[:, None] // t, a[:, None] // a), (t // 0.5, a // np.float32(0.5))):
        assert found.tolist() == want.tolist() and found.dtype.kind == want.dtype.kind
    x, y = fp.tensor([5.5, -5.5], requires_grad=True), fp.tensor([2.0, 3.0], requires_grad=True)
    grads = (x % y).sum().backward(create_graph=True)
    assert grads[x].tolist() == [1, 1] and grads[y].tolist() == [-2, 2]  # a // b is constant
    for call in (lambda: x // 2, lambda: 2 // x, lambda: x.floor_divide(y)):
        with raises(fp.GradientError, "floor_divide: no derivative for an input that requires grad", "detach()"):
            call()
    p = fp.Parameter(X)
    with pytest.raises(fp.FlameError, match="remainder: not changed in place: x %= v"):
        p %= 2


def test_float32_is_the_compute_dtype_of_float32():
    m = nn.Sequential(nn.Linear(3, 2))
    m.compute_dtype = fp.float16
    m.compute_dtype = fp.float32
    assert m[0].compute_dtype is None and m.compute_dtype is None and "compute_dtype" not in vars(m)
    with raises(fp.DTypeError, "Sequential: not a compute dtype: dtype('float32')"):
        m.to(fp.float64).compute_dtype = fp.float32


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_classes_count_differently_as_in_pytorch(reduction, smoothing):
    torch = pytest.importorskip("torch", reason="PyTorch is the judge here and is not installed")
    rng, weight = np.random.default_rng(0), [0.5, 2.0, 0.0, 1.0]
    for shape, ids in (((4,), np.array(3)), ((5, 4), [1, 3, 0, 0, 2]), ((2, 4, 3), [[0, 1, 2], [3, 3, 1]])):
        a = rng.standard_normal(shape).astype("f4")
        x, t = fp.tensor(a, requires_grad=True), torch.tensor(a, requires_grad=True)
        options = {"ignore_index": 0, "reduction": reduction}
        want = torch.nn.functional.cross_entropy(t, torch.tensor(ids), weight=torch.tensor(weight), label_smoothing=smoothing, **options)
        loss = F.cross_entropy(x, ids, weight=weight, label_smoothing=smoothing, **options)
        np.testing.assert_allclose(loss.numpy(), want.detach(), rtol=1e-5, atol=1e-6)
        (want * 2).sum().backward()
        np.testing.assert_allclose((loss * 2).sum().backward()[x].numpy(), t.grad, rtol=1e-4, atol=1e-6)
        logs, theirs = x.log_softmax(1 if len(shape) == 3 else -1), t.log_softmax(1 if len(shape) == 3 else -1)
        want = torch.nn.functional.nll_loss(theirs, torch.tensor(ids), weight=torch.tensor(weight), **options)
        np.testing.assert_allclose(F.nll_loss(logs, ids, weight=weight, **options).numpy(), want.detach(), rtol=1e-5, atol=1e-6)
    assert F.cross_entropy(fp.zeros(2, 4, dtype=fp.bfloat16), [1, 3], weight=weight).dtype == fp.float32
    with raises(fp.ShapeError, "cross_entropy: not a weight for each class: weight (3,), classes (4,)"):
        F.cross_entropy(fp.zeros(2, 4), [1, 3], weight=weight[:3])


def test_a_sequential_of_a_dict_has_its_names():
    parts = OrderedDict([("hidden", nn.Linear(3, 4)), ("act", nn.ReLU()), ("out", nn.Linear(4, 2))])
    m, plain = nn.Sequential(parts), nn.Sequential(*parts.values())
    assert list(m.state_dict()) == ["hidden.weight", "hidden.bias", "out.weight", "out.bias"] and m.hidden is parts["hidden"] is m[0]
    assert m(fp.tensor(X)).tolist() == plain(fp.tensor(X)).tolist() and [n for n, _ in m[1:].named_modules()] == ["", "act", "out"]
    for given, words in (({"0.a": nn.ReLU()}, "not a name for a module: '0.a'"), ({"append": nn.ReLU()}, "'append'")):
        with raises(fp.StateError, "Sequential: ", words):
            nn.Sequential(given)
    with raises(TypeError, "Sequential: not a Module: 'a' is a function"):
        nn.Sequential({"a": lambda x: x})


def test_what_would_not_be_trained_is_refused():
    m = nn.Module()
    with raises(fp.StateError, "Module: parameters in a ParameterDict would not be found: attribute 'ps'"):
        m.ps = fp.ParameterDict({"w": fp.Parameter(X)})
    m.ps = fp.ParameterDict()  # nothing is lost
    for make in (nn.ReLU, nn.Tanh, nn.SiLU, nn.Sigmoid, nn.Dropout):
        assert repr(make(inplace=False)) == repr(make())
        with raises(ValueError, f"{make.__name__}: nothing is changed in place: inplace=True"):
            make(inplace=True)
