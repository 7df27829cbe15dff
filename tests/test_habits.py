"""What someone types who comes from PyTorch or NumPy: it works as there, or a text says what to type instead.

Oracles: NumPy, Python's own formatting.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from error_text import raises
from habit_tools import B, Net, W, X

import flamepy as fp
import flamepy.nn.functional as F
from flamepy import nn, reading


# ---- modules -------------------------------------------------------------------------------------------------------------------
def test_nothing_but_a_parameter_replaces_a_parameter():
    layer = nn.Linear(2, 2)
    model = nn.Sequential(layer)
    for value in (fp.ones(2, 2), np.ones((2, 2), "f4"), 1.0, layer.bias.detach()):
        with raises(fp.DTypeError, "Linear: a ", type(value).__name__, "'weight'", "set_data", "Parameter"):
            layer.weight = value
    with raises(fp.DTypeError, "Sequential: a function", "'0'", "Assign a Module"):
        setattr(model, "0", lambda x: x)
    assert list(model.params) == ["0.weight", "0.bias"]
    layer.weight.set_data(fp.ones(2, 2))
    layer.bias = None
    assert list(model.params) == ["0.weight"] and layer(fp.ones(1, 2)).tolist() == [[2.0, 2.0]]


# ---- gradients -----------------------------------------------------------------------------------------------------------------
def test_gradients_by_name():
    net = Net()
    params = net.params
    grads = net(fp.tensor(X[0])).backward()
    y = X[0] @ W + B
    np.testing.assert_allclose(grads["weight"].numpy(), X[0].T @ y * (2 / y.size), rtol=1e-5)
    named = dict(grads.named_items())
    assert set(named) == {"weight", "bias"} and named["bias"] is grads["bias"]
    assert grads.get("bias") is grads[net.bias] and "weight" in grads and grads.contains("bias") and "nothing" not in grads
    assert grads.get("nothing") is None and grads.take("nothing") is None and not grads.scale_grad("nothing", 2.0)
    before = grads["bias"].numpy().copy()
    grads.accumulate("bias", fp.ones(2))
    assert grads.scale_grad("bias", 2.0) and grads["bias"].tolist() == ((before + 1) * 2).tolist()
    grads["bias"] = fp.zeros(2)
    assert grads[params["bias"]].tolist() == [0.0, 0.0] and grads.take("bias") is not None and "bias" not in grads
    with raises(KeyError, "'bias'", "Use one of: weight."):
        grads["bias"]
    for call in (lambda: grads.insert("bias", fp.ones(2)), lambda: grads.get_or_create("bias")):
        with raises(KeyError, "'bias'", "Pass the "):
            call()


def test_gradients_by_a_name_that_says_nothing():
    p, q = fp.Parameter(B), fp.Parameter(B)
    grads = (p * q).sum().backward()
    assert {name for name, _ in grads.named_items()} == {f"tensor {p.id}", f"tensor {q.id}"}
    with raises(KeyError, "'w'", "No gradient here has a name"):
        grads["w"]
    assert "" not in grads and grads.get("") is None
    p.name = q.name = "w"
    with raises(fp.StateError, "2 parameters have this name: 'w'"):
        (p * q).sum().backward()["w"]


@pytest.fixture
def hints() -> Iterator[None]:
    """As if nobody had been given a hint."""
    before = set(reading.hinted)
    reading.hinted.clear()
    yield
    reading.hinted.clear()
    reading.hinted.update(before)


@pytest.mark.usefixtures("hints")
def test_a_look_at_grad_is_told_once_where_gradients_are():
    net, other = Net(), Net()
    loss = net(fp.tensor(X[0]))
    assert loss.grad is None and net.weight.grad is None and fp.ones(2).grad is None
    loss.backward()
    assert other.weight.grad is None  # no backward has reached it
    with pytest.warns(fp.FlameWarning, match=r"backward\(\) fills no .grad, it returns the gradients: grads = loss.backward\(\)") as told:
        assert net.weight.grad is None
    assert told[0].filename == __file__
    assert net.bias.grad is None and loss.grad is None  # once


@pytest.mark.usefixtures("hints")
def test_a_look_at_the_grad_of_a_loss_is_told():
    net = Net()
    loss = net(fp.tensor(X[0]))
    grads = loss.backward()
    assert grads[net.weight] is not None and loss.grad is net.weight.grad is None  # who has looked into the map knows
    del grads
    with pytest.warns(fp.FlameWarning, match="fills no .grad"):
        assert loss.grad is None
    reading.hinted.clear()
    net.weight.set_grad(W)
    net.zero_grad()
    assert net.weight.grad is None  # who sets it knows, too
    net(fp.tensor(X[0])).backward()
    with pytest.warns(fp.FlameWarning) as told:
        fp.SGD(net, lr=1.0).step()
    assert len(told) == 1 and "nothing to update" in str(told[0].message)


# ---- optimizers ----------------------------------------------------------------------------------------------------------------
def test_a_step_wants_the_map():
    net = Net()
    optimizer, loss = fp.AdamW(net, lr=0.1), net(fp.tensor(X[0]))
    for given, word in (
        (loss, "a tensor of shape ()"),
        (lambda: loss, "a function"),
        (0.5, "a float"),
        ([loss], "a list"),
        ({"weight": W}, "a dict"),
    ):
        with raises(fp.DTypeError, "AdamW.step", word, "loss.backward() returned"):
            optimizer.step(given)
    assert net.weight.numpy().tobytes() == W.tobytes() and optimizer.state_dict()["state"] == {}


def test_zero_grad_of_an_optimizer():
    net = Net()
    optimizer = fp.SGD(net, lr=0.1)
    optimizer.zero_grad()
    net.weight.set_grad(W)
    optimizer.zero_grad()
    assert net.weight.grad is None


# ---- numbers of a tensor ---------------------------------------------------------------------------------------------------------
def test_a_loss_is_formatted_and_rounded_as_a_number():
    for value in (1.23456, -0.5, math.nan, math.inf):
        t = fp.tensor([[value]], dtype=fp.float64)
        for form in (".3f", "10.2e", "g", "+.1%"):
            assert format(t, form) == format(value, form) and f"{fp.tensor(value, dtype=fp.float64):{form}}" == f"{value:{form}}"
    assert round(fp.tensor(1.23456, dtype=fp.float64), 2) == 1.23 and round(fp.tensor(2.5)) == 2 and f"{fp.tensor(7):>4d}" == "   7"
    pair = fp.tensor([1.5, 2.0])
    assert f"{pair}" == str(pair)
    with raises(fp.ShapeError, "format: '.3f' needs one element", "(2,)"):
        f"{pair:.3f}"
    with raises(fp.ShapeError, "round: needs one element", "(2,)", "flamepy.round"):
        round(pair)


@pytest.mark.parametrize("read", ["format", "round", "repr"])
def test_a_captured_step_cannot_look_at_numbers_so(read):
    p = fp.Parameter(B)
    look = {"format": lambda x: f"{x.sum():.3f}", "round": lambda x: round(x.sum(), 2), "repr": lambda x: repr(p)}[read]
    captured = fp.capture(lambda x: (look(x), x * p)[1])
    captured(fp.ones(2))
    with pytest.raises(fp.CaptureError, match=rf"host while it is recorded: (__{read}__|shown)\(\) at .*test_habits.py"):
        captured(fp.ones(2))


def test_a_parameter_shows_its_name_and_numbers():
    params = fp.ParameterDict({"w": fp.Parameter(B)})
    assert repr(params["w"]) == "Parameter('w', [ 0.5 , -0.25])" and repr(fp.Parameter(B)) == "Parameter([ 0.5 , -0.25])"
    params.freeze()
    assert repr(params["w"]) == "Parameter('w', [ 0.5 , -0.25], requires_grad=False)"
    assert repr(fp.Parameter(fp.ones(1, dtype=fp.bfloat16))) == "Parameter([1.], dtype=bfloat16)"


def test_an_optimizer_shows_its_settings():
    net = Net()
    shown = repr(fp.AdamW(net, lr=0.25, groups={"bias": {"lr_scale": 0.5, "weight_decay": 0.0}})).split("\n")
    assert shown[0] == "AdamW(2 parameters: lr=0.25, betas=(0.9, 0.999), eps=1e-08, weight_decay=0.01)"
    assert shown[1].strip() == "'bias': lr=0.125, betas=(0.9, 0.999), eps=1e-08, weight_decay=0.0"
    shown = repr(fp.SGD(net, lr=fp.schedules.linear(0.5, end=0.0, n=4)))
    assert shown.startswith("SGD(2 parameters, lr by linear(0.5, end=0.0, n=4): lr=0.5, momentum=0.0, ")


# ---- NumPy -----------------------------------------------------------------------------------------------------------------------
def test_numpys_functions_are_refused_with_advice():
    t = fp.tensor([1.0, 2.0])
    for call, words in (
        (lambda: np.exp(t), ["numpy.exp: does not take a Tensor: shape (2,)", "fp.exp(...)", "t.numpy()"]),
        (lambda: np.maximum(t, 0), ["numpy.maximum", "fp.maximum(...)"]), (lambda: np.isnan(t), ["numpy.isnan", "fp.isnan(...)"]),
        (lambda: np.negative(t), ["fp.neg(...)"]), (lambda: np.add(t, t), ["fp.add(...)"]), (lambda: np.cbrt(t), ["Use t.numpy()"]),
        (lambda: np.add.reduce(t), ["numpy.add", "Use t.numpy()"]), (lambda: np.ones(2, "f4").__iadd__(t), ["Use t.numpy()"]),
    ):  # fmt: skip
        with raises(fp.DTypeError, *words):
            call()


def test_operators_with_an_array_on_the_left_are_the_tensors():
    a, x = np.float32([[2.0, 3.0], [0.5, -1.0]]), np.float32([[1.0, 3.0], [2.0, -4.0]])
    t = fp.tensor(x, requires_grad=True)
    table: dict[str, Callable[[Any, Any], Any]] = {
        "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": lambda a, b: a / b, "**": lambda a, b: a**b,
        "@": lambda a, b: a @ b, "<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
        "==": lambda a, b: a == b, "!=": lambda a, b: a != b,
    }  # fmt: skip
    for name, function in table.items():
        for left in (a, np.abs(a[0, 0])) if name != "@" else (a,):
            found, want = function(left, t), function(left, x)
            assert isinstance(found, fp.Tensor) and found.dtype == want.dtype and found.requires_grad == (want.dtype == "f4"), name
            np.testing.assert_allclose(found.numpy(), want, rtol=1e-6, err_msg=name)
    for reduce in (np.sum, np.mean, np.max, np.min, np.prod):  # they ask the tensor
        assert isinstance(reduce(t, axis=0), fp.Tensor) and reduce(t).requires_grad
        np.testing.assert_allclose(reduce(t, axis=0).numpy(), reduce(x, axis=0), rtol=1e-6)
    assert np.sum(t, dtype=np.float64).dtype == fp.float64
    with raises(TypeError, "sum: unknown option: where="):
        np.sum(t, where=x > 0)


# ---- names -----------------------------------------------------------------------------------------------------------------------
def test_pytorchs_and_numpys_names():
    x = fp.arange(6).reshape(2, 3)
    assert x.view(3, -1).tolist() == x.reshape(3, 2).tolist() and x.view((6,)).shape == (6,) and x.numel() == x.size == 6
    assert x.view(fp.int32).shape == (2, 6)
    for start, stop, num in ((0, 1, 5), (-2.5, 7, 4), (3, 3, 1), (0, 1, 0)):
        assert fp.linspace(start, stop, num).tolist() == np.linspace(start, stop, num, dtype="f4").tolist()
    assert fp.linspace(0, 1, 3, dtype=fp.float64).dtype == fp.float64
    for num in (-1, 2.5):
        with raises(ValueError, f"linspace: num is no count: {num}"):
            fp.linspace(0, 1, num)
    with raises(fp.DTypeError, "linspace: nothing lies between two truths"):
        fp.linspace(0, 1, 3, dtype=bool)
    for dtype in (fp.float16, fp.bfloat16, fp.float32, fp.float64):
        t = fp.tensor([0.0, -1.5, math.nan, math.inf, -math.inf, 6e4], dtype=dtype, requires_grad=True)
        for name in ("isnan", "isinf", "isfinite"):
            want = getattr(np, name)(np.array(t.tolist()))
            assert getattr(fp, name)(t).tolist() == getattr(t, name)().tolist() == want.tolist()
    assert fp.isfinite([2**62, -1]).tolist() == [True, True] and not fp.isnan(fp.tensor([True])).item()


# ---- cross-entropy -----------------------------------------------------------------------------------------------------------------
def test_logits_that_can_be_read_both_ways_are_refused():
    for loss in (F.cross_entropy, F.nll_loss):
        with raises(fp.ShapeError, f"{loss.__name__}: the classes may be the second or the last axis", "(2, 3, 3)", "(2, 3)", "reshape"):
            loss(fp.ones(2, 3, 3), np.zeros((2, 3), int))
        assert loss(fp.zeros(2, 1, 1), [[0], [0]]).item() == 0.0  # both say the same
        with raises(fp.ShapeError, "sizes differ: class ids (2, 4)"):
            loss(fp.ones(2, 3, 5), np.zeros((2, 4), int))


def test_what_pytorch_writes_in_place_is_refused_where_only_a_name_would_change():
    """`for p in ps: p -= lr * g` would change nothing and say nothing."""
    p, x = fp.Parameter.ones((2,)), fp.ones(2, requires_grad=True)
    for sign in ("+", "-", "*", "/", "**", "@"):
        with pytest.raises(fp.FlameError, match=rf"not changed in place: x {re.escape(sign)}= v.*apply_update"):
            exec(f"p {sign}= 2.0", {"p": p})
        with fp.no_grad(), pytest.raises(fp.FlameError, match="not changed in place"):
            exec(f"x {sign}= 2.0", {"x": x})
    y = x
    y *= 3  # recorded: y is another tensor
    assert x.tolist() == [1, 1] and y.sum().backward()[x].tolist() == [3, 3]


def test_options_of_an_optimizer_are_set_in_its_groups():
    p = fp.Parameter.ones((2,))
    for optimizer, names in ((fp.AdamW([p], lr=0.1), ("weight_decay", "betas", "eps")), (fp.SGD([p], lr=0.1), ("momentum", "nesterov"))):
        for name in names:
            with pytest.raises(AttributeError, match=rf"{name} is an option of groups.*groups\[i\]\['{name}'\]"):
                setattr(optimizer, name, optimizer.groups[0][name])
    optimizer.groups[0]["weight_decay"] = 0.5
    optimizer.lr = 1.0
    optimizer.step(p.sum().backward())
    assert p.tolist() == [-0.5, -0.5]


def test_requires_grad_is_set_where_requires_grad_sets_it():
    x = fp.ones(2, requires_grad=True)
    for change, error in (
        (lambda: setattr(fp.tensor([1]), "requires_grad", True), fp.GradientError),
        (lambda: setattr(x * 2, "requires_grad", False), fp.GradientError),
        (lambda: setattr(x, "requires_grad", "no"), fp.DTypeError),
    ):
        with pytest.raises(error, match="requires_grad"):
            change()
    with pytest.raises(fp.DTypeError, match="train: no yes or no: 'no'"):
        nn.ReLU().train("no")


def test_a_hook_is_removed_once_and_in_the_middle_of_a_walk():
    x, seen = fp.ones(2, requires_grad=True), []
    twice = lambda g: g * 2
    first, _ = x.register_hook(twice), x.register_hook(twice)
    once = x.register_hook(lambda g: (once.remove(), seen.append(g.tolist()))[1])
    x.register_hook(lambda g: g + 1)
    first.remove()
    first()  # the second time: nothing
    assert x.sum().backward()[x].tolist() == [3, 3] and seen == [[2, 2]]
    assert x.sum().backward()[x].tolist() == [3, 3] and len(seen) == 1
    with pytest.raises(fp.DTypeError, match="register_hook: not a function: int"):
        x.register_hook(3)


def test_add_names_the_option_that_it_takes():
    with pytest.raises(TypeError, match=r"add: unknown option: beta=2. Known: alpha\."):
        fp.add(fp.ones(2, device="plain"), 1, beta=2)


def test_a_padding_row_starts_at_zero_and_stays():
    embedding = nn.Embedding(5, 2, padding_idx=-1, device="plain")
    weight = embedding.weight
    assert weight[4].tolist() == [0.0, 0.0] and weight[0].tolist() != [0.0, 0.0] and "padding_idx=4" in repr(embedding)
    grads = embedding([[0, 4], [4, 1]]).sum().backward()
    assert grads[weight].tolist() == [[1.0, 1.0], [1.0, 1.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
    assert embedding(np.zeros((0,), np.int64)).shape == (0, 2) and embedding(4).tolist() == [0.0, 0.0]


def test_rows_that_are_there_already_are_frozen_unless_asked():
    rows = np.arange(6.0, dtype="f4").reshape(3, 2)
    layer = nn.Embedding.from_pretrained(fp.tensor(rows, device="plain"), padding_idx=1)
    assert layer([1]).tolist() == [[2.0, 3.0]] and not layer.weight.requires_grad and layer.padding_idx == 1
    assert nn.Embedding.from_pretrained(rows, freeze=False).weight.requires_grad
    with pytest.raises(fp.ShapeError, match="Embedding: not a matrix"):
        nn.Embedding.from_pretrained(rows[0])


def test_to_takes_a_device_and_a_dtype_and_each_once():
    x, layer = fp.ones(2, device="plain"), nn.Linear(1, 1, device="plain")
    assert x.to("plain", fp.float64).dtype == fp.float64 and layer.to("plain", fp.float64).weight.dtype == fp.float64
    for thing in (x, layer):
        for call in (lambda t: t.to(fp.float32, dtype=fp.float64), lambda t: t.to("cpu", device="plain")):
            with pytest.raises(TypeError, match=r"to: (dtype|device) is given twice"):
                call(thing)


def test_an_option_has_one_value_whatever_its_names():
    x = fp.tensor([1.0, 3.0], device="plain")
    assert x.var(unbiased=True).item() == 2.0 and fp.std(x, 0, unbiased=False, keepdim=True).tolist() == [1.0]
    assert x.var_mean(unbiased=True)[0].item() == 2.0
    for twice in (lambda: x.var(unbiased=True, correction=0), lambda: x.sum(dim=0, axis=0), lambda: x.flatten(start_dim=0, start_axis=0)):
        with pytest.raises(TypeError, match=r"is given twice: .* Give it once"):
            twice()


def test_pieces_and_queries_are_taken_by_pytorchs_names():
    x, q = fp.tensor(X[0], device="plain"), fp.tensor(X[None], device="plain")
    for name in ("split_size", "split_size_or_sections"):
        assert [y.shape for y in fp.split(x, **{name: 2}, dim=0)] == [y.shape for y in x.split(2)]
    assert [y.tolist() for y in x.chunk(chunks=2, dim=-1)] == [y.tolist() for y in x.chunk(2, -1)]
    found = F.scaled_dot_product_attention(query=q, key=q, value=q)
    assert found.tolist() == F.scaled_dot_product_attention(q, q, q).tolist()
    for twice in (lambda: x.split(2, split_size=2), lambda: F.scaled_dot_product_attention(q, q, q, value=q)):
        with pytest.raises(TypeError, match="multiple values"):
            twice()


def test_what_ports_of_training_loops_ask_for():
    x, layer = fp.ones(2, device="plain"), nn.Linear(1, 1, device="plain")
    layer.zero_grad(set_to_none=True)
    for forget in (layer.zero_grad, fp.SGD(layer.parameters(), lr=0.1).zero_grad):
        with pytest.raises(ValueError, match="set_to_none=False"):
            forget(set_to_none=False)
    with pytest.raises(TypeError, match=r"min: axis must be an int: .* Of two tensors: minimum\(a, b\)"):
        fp.min(x, x)
    with pytest.raises(AttributeError, match=r"schedule: no such name: 'step'\. Give it to the optimizer"):
        fp.schedules.cosine(0.1, 10).step()
