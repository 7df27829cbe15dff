"""Parameters, optimizers, gradient maps and what users keep beside them, copied together in any order and nesting: training goes on.

Oracle: the originals. What a copy does must be what the original does, bit for bit, and neither may touch the other. Ways: deepcopy,
pickle, both one after the other, and for shallow copies what they share.
"""

from __future__ import annotations

import copy
import gc
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flamepy as fp
from flamepy import ids, nn

DEVICE = "plain"
WAYS = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "pickle 2": lambda x: pickle.loads(pickle.dumps(x, 2)),
    "in Python": lambda x: pickle._loads(pickle._dumps(x)),
    "twice": lambda x: copy.deepcopy(pickle.loads(pickle.dumps(x))),
}
OPTIMIZERS = {
    "SGD": lambda params: fp.SGD(params, lr=0.5, momentum=0.9, groups={"b*": {"lr": 0.25}}),
    "AdamW": lambda params: fp.AdamW(params, lr=0.1, weight_decay=0.1),
    "of some": lambda params: fp.Adam([params["b"], params["a"]], lr=0.1),
}


def gradients(params, scale=100.0):
    """The map of a loss that every parameter but a frozen one takes part in."""
    return sum((p.to(fp.float32) * p.to(fp.float32)).sum() * scale for p in params.parameters() if p.requires_grad).backward()


class Training:
    """A user's object that holds everything."""

    def __init__(self, dtype, pack, make, steps, frozen):
        self.params = fp.ParameterDict()
        for i, name in enumerate(("a", "b", "bias")):
            values = np.arange(1.0, 3.0 + i) * (-1) ** i
            self.params.insert(name, fp.Parameter(fp.tensor(values, dtype=getattr(fp, dtype), device=DEVICE)))
        if pack:
            self.params.pack()
        if frozen:
            self.params["bias"].requires_grad = False
        self.optimizer = make(self.params)
        self.mean = {p: p.numpy().copy() for p in self.params.parameters()}  # kept beside each parameter
        for _ in range(steps):
            self.step(gradients(self.params))
        self.grads = None

    def step(self, grads):
        fp.clip_grad_norm(grads, 1.0)
        self.optimizer.step(grads)
        self.mean = {p: 0.5 * self.mean[p] + 0.5 * p.numpy() for p in self.params.parameters()}

    def bits(self):
        state = self.optimizer.state_dict()
        rows = {name: {k: np.asarray(v).tobytes() for k, v in row.items()} for name, row in state["state"].items()}
        numbers = {n: (p.numpy().tobytes(), self.mean[p].tobytes()) for n, p in self.params.named_parameters()}
        return numbers, rows, state["groups"]


def together(training, order, nested, way):
    """The parts of a training, copied in this order; put together again."""
    parts = [getattr(training, name) for name in order]
    box = [{"first": parts[:2]}, tuple(parts[2:])] if nested else parts
    back = way(box)
    back = [*back[0]["first"], *back[1]] if nested else back
    twin = Training.__new__(Training)
    vars(twin).update(dict(zip(order, back, strict=True)))
    return twin


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@settings(max_examples=60, deadline=None)
@given(
    pack=st.booleans(), way=st.sampled_from(sorted(WAYS)), make=st.sampled_from(sorted(OPTIMIZERS)), steps=st.integers(0, 2),
    order=st.permutations(["params", "optimizer", "grads", "mean"]), nested=st.booleans(), clipped=st.integers(0, 2),
    looked=st.booleans(), frozen=st.booleans(),
)  # fmt: skip
def test_what_is_copied_together_goes_on_together(dtype, pack, way, make, steps, order, nested, clipped, looked, frozen):
    training = Training(dtype, pack, OPTIMIZERS[make], steps, frozen)
    training.grads = gradients(training.params)
    for limit in (1.0, 0.25)[:clipped]:  # what a clipping leaves to be done goes along
        fp.clip_grad_norm(training.grads, limit)
    if looked:
        training.grads.get(training.params["a"])
    before = training.bits()
    twin = together(training, order, nested, WAYS[way])
    assert twin.bits() == before and list(twin.params) == list(training.params)
    assert not {p.id for p in twin.params.parameters()} & {p.id for p in training.params.parameters()}
    assert set(twin.grads) == {p.id for p in twin.params.parameters() if p.requires_grad}
    assert list(twin.grads.to_dict(twin.params)) == list(training.grads.to_dict(training.params))
    assert repr(twin.grads) == repr(training.grads)
    for mine, other in ((twin, training), (training, twin)):
        held = other.bits()
        mine.optimizer.step(mine.grads)
        for _ in range(2):
            mine.step(gradients(mine.params))
        assert other.bits() == held
    assert twin.bits() == training.bits()
    if clipped and steps == 0 and make != "AdamW":
        assert fp.grad_norm(twin.grads) == pytest.approx((1.0, 0.25)[clipped - 1], rel=1e-4)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("pack", [False, True])
def test_a_map_alone_names_the_parameters_that_are_there(way, pack):
    training = Training("float32", pack, OPTIMIZERS["SGD"], 0, False)
    grads = gradients(training.params)
    norm = fp.clip_grad_norm(grads, 1.0)
    back = WAYS[way](grads)
    assert norm > 100.0 and fp.grad_norm(back) == pytest.approx(1.0, rel=1e-4) == pytest.approx(fp.grad_norm(grads), rel=1e-6)
    assert list(back) == list(grads) and "'bias'" in repr(back)
    back.scale_(0.0)
    assert fp.grad_norm(grads) > 0.9


@pytest.mark.parametrize("pack", [False, True])
def test_a_shallow_copy_of_a_map_shares_gradients_and_not_the_set_of_them(pack):
    training = Training("float32", pack, OPTIMIZERS["SGD"], 0, False)
    grads, a = gradients(training.params), training.params["a"]
    back = copy.copy(grads)
    fp.clip_grad_norm(grads, 1.0)
    assert back[a] is grads[a] and fp.grad_norm(back) == pytest.approx(1.0, rel=1e-4)
    back.take(a)
    assert a in grads and a not in back
    grads.scale_(2.0)
    assert fp.grad_norm(grads) == pytest.approx(2.0, rel=1e-4)


@pytest.mark.parametrize("pack", [False, True])
def test_a_shallow_copy_of_a_dictionary_or_an_optimizer_shares_parameters_alone(pack):
    training = Training("float32", pack, OPTIMIZERS["AdamW"], 1, False)
    params, optimizer = copy.copy(training.params), copy.copy(training.optimizer)
    params.insert("new", fp.Parameter.ones(2))
    assert "new" not in training.params and params["a"] is training.params["a"]
    held = training.optimizer.state_dict()["state"]["a"]
    optimizer.step(gradients(training.params))
    now = training.optimizer.state_dict()["state"]["a"]
    assert now["step"] == held["step"] and np.array_equal(now["m"], held["m"]) and optimizer.state_dict()["state"]["a"]["step"] == 2


def test_two_models_and_their_maps_do_not_mix():
    """Two maps of one model, one of another, tied parameters, a leaf that is no parameter; all in one copy."""
    one, two = (Training("float32", pack, OPTIMIZERS["SGD"], 1, False) for pack in (True, False))
    x = fp.tensor([1.0, 2.0], device=DEVICE, requires_grad=True)
    maps = [gradients(one.params, 1.0), (x * one.params["a"]).sum().backward(), gradients(two.params, 3.0)]
    for way in WAYS.values():
        (first, second, third), mine, other, y = way((maps, one.params, two.params, x))
        assert set(first) == {p.id for p in mine.parameters()} and set(third) == {p.id for p in other.parameters()}
        assert set(second) == {y.id, mine["a"].id} and second[y].tolist() == mine["a"].tolist()
        for p in mine.parameters():
            assert first[p].tolist() == (2.0 * p.numpy()).tolist()


def step_there(grads, optimizer, params):
    """A step with a map that came before its parameters; the copies go back with theirs."""
    optimizer.step(grads)
    return params, grads, {p.id for p in params.parameters()} == set(grads)


def test_a_worker_steps_with_a_map_that_came_along():
    params = fp.ParameterDict({"a": fp.Parameter([1.0, 2.0]), "b": fp.Parameter([3.0])}).pack()
    optimizer, size = fp.SGD(params, lr=1.0), np.sqrt(2 * 30.0**2 + 40.0**2) + 1e-6
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        for _ in range(2):  # the second time the worker has copies of them already
            grads = (params["a"].sum() * 30.0 + params["b"].sum() * 40.0).backward()
            fp.clip_grad_norm(grads, 1.0)
            back, same, fits = pool.submit(step_there, grads, optimizer, params).result(timeout=120)
            np.testing.assert_allclose(back["a"].numpy(), [1.0 - 30.0 / size, 2.0 - 30.0 / size], 1e-6)
            np.testing.assert_allclose(back["b"].numpy(), [3.0 - 40.0 / size], 1e-6)
            assert fits and set(same) == {p.id for p in back.parameters()} and params["a"].tolist() == [1.0, 2.0]


def test_no_key_stays_when_the_copying_is_done():
    training = Training("float32", True, OPTIMIZERS["SGD"], 1, False)
    training.grads = gradients(training.params)
    for way in WAYS.values():
        way(vars(training))
    gc.collect()
    assert not len(ids.keys) and not [o for o in gc.get_objects() if issubclass(type(o), ids.Key | ids.ArrivedKey)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("usable", [True, False])
def test_a_mark_on_a_parameters_gradient_goes_along(way, usable):
    """clip_grad_norm(nonfinite="skip") marks `.grad`: a copied model has a mark of its own on this device (not a copy of the device), and
    its optimizer obeys it."""
    model = nn.Linear(3, 2)
    x = fp.ones(1, 3) if usable else fp.full((1, 3), float("nan"))
    model.params.set_grads((model(x).sum()).backward())
    fp.clip_grad_norm(model.params, 1.0, nonfinite="skip")
    twin = WAYS[way](model)
    mark = twin.weight.grad.mark
    assert mark is not model.weight.grad.mark and mark.device is fp.device() and mark is twin.bias.grad.mark
    before = twin.weight.numpy().copy()
    assert (fp.SGD(twin, lr=0.1).step() is False) != usable
    assert np.array_equal(twin.weight.numpy(), before) != usable
