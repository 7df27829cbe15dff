"""GradientMap: what backward() returns. Every method, whatever stands for a key, and who owns the memory.

`get` hands out the stored gradient itself, so editing it edits the map; no two gradients of a map that backward() made share
memory, so editing one leaves the others alone. Oracle: numbers worked by hand.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from devices import CPU_ONLY
from error_text import raises

import flamepy as fp
import flamepy.nn.functional as F

pytestmark = pytest.mark.usefixtures("device")


def tensor(*values: float, dtype="float64") -> fp.Tensor:
    return fp.tensor(np.array(values)).to(dtype)


def named(**values: list[float]) -> fp.ParameterDict:
    return fp.ParameterDict({name: fp.Parameter(np.array(v)) for name, v in values.items()})


@pytest.fixture
def params() -> fp.ParameterDict:
    return named(a=[1.0, 2.0], b=[3.0, 4.0], c=[5.0])


@pytest.fixture
def grads(params) -> fp.GradientMap:
    """d/da = 2a, d/db = 3; c takes no part."""
    return (params["a"].square() + 3 * params["b"]).sum().backward()


def overlap(grads: fp.GradientMap) -> bool:
    return any(np.shares_memory(a.numpy(), b.numpy()) for (_, a), (_, b) in itertools.combinations(grads.items(), 2))


# ---- keys and reading ---------------------------------------------------------------------------------------------------------
def test_keys_are_ids_and_tensors_and_parameters_stand_for_them(grads, params):
    a, b, c = params.parameters()
    assert isinstance(grads, fp.GradientMap) and sorted(grads) == [a.id, b.id] and len(grads) == 2
    for key in (a, a.id, a.tensor()):
        assert grads.get(key) is grads[key] is grads.get(a.id)
        assert key in grads and grads.contains(key) is True
    assert grads.get(c) is None and c not in grads and c.id not in grads and grads.contains(c) is False
    assert grads[a].tolist() == [2.0, 4.0] and grads[b].tolist() == [3.0, 3.0]
    assert {key: g.tolist() for key, g in grads.items()} == {a.id: [2.0, 4.0], b.id: [3.0, 3.0]}


def test_a_plain_leaf_is_a_key_too():
    x = tensor(1.0, 2.0).requires_grad_()
    assert x.square().sum().backward()[x].tolist() == [2.0, 4.0]


def test_key_errors_name_the_parameter(grads, params):
    with raises(KeyError, "'c'"):
        grads[params["c"]]
    with raises(KeyError, str(params["c"].id)):
        grads[params["c"].id]
    nameless = tensor(1.0)
    with raises(KeyError, f"tensor {nameless.id}"):
        grads[nameless]
    removed = grads.take(params["a"])
    with raises(KeyError, "'a'"):
        grads[params["a"].id]  # an id keeps the name it came with
    assert removed.tolist() == [2.0, 4.0]


def test_to_dict_is_by_name(grads, params):
    found = grads.to_dict(params)
    assert list(found) == ["a", "b"] and found["a"] is grads[params["a"]]


def test_repr_names_the_parameters(grads):
    assert "'a': (2,)" in repr(grads) and "'b': (2,)" in repr(grads)


# ---- ownership ------------------------------------------------------------------------------------------------------------------
def test_editing_what_get_returns_edits_the_map(grads, params):
    a, b = params["a"], params["b"]
    held = grads.get(a)
    assert grads.scale_grad(a, 10.0) is True
    assert held.tolist() == [20.0, 40.0] and grads[b].tolist() == [3.0, 3.0]


@CPU_ONLY  # plain hands out read-only memory
def test_what_get_returns_is_writable_memory(grads, params):
    a = params["a"]
    np.from_dlpack(grads.get(a))[0] = 7.0
    assert grads[a].tolist() == [7.0, 4.0]


GRAPHS = {
    "y = a + b": lambda a, b: (a + b).sum(),
    "y = a - b": lambda a, b: (a - b).sum(),
    "y = a + a + b": lambda a, b: (a + a + b).sum(),
    "views": lambda a, b: (a.reshape(2, 1) + b.reshape(2, 1)).sum(),
    "transposed": lambda a, b: (a.reshape(1, 2).T + b.reshape(2, 1)).sum(),
    "cat": lambda a, b: fp.cat([a, b]).sum(),
    "where": lambda a, b: fp.where(fp.tensor([True, True]), a, b).sum() + b.sum(),
    "broadcast": lambda a, b: (a.broadcast_to((3, 2)) + b).sum(),
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("graph", GRAPHS)
def test_no_two_gradients_share_memory(graph, packed):
    params = named(a=[1.0, 2.0], b=[3.0, 4.0])
    params = params.pack() if packed else params
    a, b = params.parameters()
    grads = GRAPHS[graph](a, b).backward()
    assert len(grads) == 2 and not overlap(grads)
    before = grads[b].tolist()
    grads.scale_grad(a, 100.0)
    assert grads[b].tolist() == before


def test_the_given_cotangent_and_the_values_stay_apart():
    a, given = tensor(1.0, 2.0).requires_grad_(), tensor(1.0, 1.0)
    grads = (a + 0.0).backward(gradient=given)
    grads.scale_(5.0)
    assert given.tolist() == [1.0, 1.0] and a.tolist() == [1.0, 2.0] and grads[a].tolist() == [5.0, 5.0]
    kept = tensor(1.0, 2.0).requires_grad_()
    assert not np.shares_memory((kept * kept).sum().backward()[kept].numpy(), kept.numpy())


def test_two_backwards_give_two_maps(params):
    first, second = (params["a"].sum().backward() for _ in range(2))
    first.scale_(2.0)
    assert second[params["a"]].tolist() == [1.0, 1.0]


# ---- writing ----------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("call", ["insert", "set_grad", "__setitem__"])
def test_insert_replaces_and_keeps_the_tensor_given(grads, params, call):
    g = tensor(8.0, 9.0)
    getattr(grads, call)(params["a"], g)
    assert grads[params["a"]] is g and len(grads) == 2
    getattr(grads, call)(params["b"].id, g)
    assert grads[params["b"]] is g


@pytest.mark.parametrize("call", ["insert", "accumulate", "__setitem__"])
def test_gradients_may_be_arrays_of_the_right_shape(grads, params, call):
    edit = getattr(grads, call)
    for wrong, error in ((tensor(1.0, 2.0, 3.0), fp.ShapeError), (np.ones(3), fp.ShapeError), ([[1.0, 2.0]], fp.ShapeError),
                         ("no", fp.DTypeError), (None, fp.DTypeError), (fp.arange(2), fp.DTypeError)):  # fmt: skip
        with pytest.raises(error, match=r"'a'|not a tensor"):
            edit(params["a"], wrong)
    assert grads[params["a"]].tolist() == [2.0, 4.0]
    before = np.array([2.0, 4.0] if call == "accumulate" else [0.0, 0.0])
    for given in (np.array([1.0, 2.0]), [1.0, 2.0], np.array([1, 2])):
        for key in (params["a"], params["a"].id, "a"):
            edit(key, given)
            before = before + [1.0, 2.0] if call == "accumulate" else np.array([1.0, 2.0])
            found = grads[params["a"]]
            assert found.tolist() == before.tolist() and found.dtype == fp.float64 and found.device is params["a"].device


@pytest.mark.parametrize("dtype", [fp.float16, fp.bfloat16], ids=str)
def test_16_bit_gradients_become_float32_from_the_first_insertion(dtype):
    p = fp.Parameter(tensor(1.0, 2.0, dtype=dtype))
    assert (p * p).sum().backward()[p].dtype == fp.float32
    grads = fp.GradientMap()
    grads.insert(p, tensor(0.5, 0.25, dtype=dtype))
    grads.accumulate(p, tensor(0.5, 0.25, dtype=dtype))
    assert grads[p].dtype == fp.float32 and grads[p].tolist() == [1.0, 0.5]
    assert fp.GradientMap().get_or_create(p).dtype == fp.float32


def test_accumulate_adds_and_copies_the_first(params):
    grads, g = fp.GradientMap(), tensor(1.0, 2.0)
    grads.accumulate(params["a"], g)
    grads.accumulate(params["a"].id, tensor(0.5, 0.5))
    assert grads[params["a"]].tolist() == [1.5, 2.5] and g.tolist() == [1.0, 2.0]
    with raises(fp.ShapeError, "accumulate", "'a'", "(2,)", "(1,)"):
        grads.accumulate(params["a"].id, tensor(1.0))
    assert grads[params["a"]].tolist() == [1.5, 2.5]


def test_get_or_create_gives_zeros_of_the_parameters_shape(grads, params):
    a, c = params["a"], params["c"]
    assert grads.get_or_create(a) is grads[a] and grads[a].tolist() == [2.0, 4.0]
    made = grads.get_or_create(c)
    assert made.tolist() == [0.0] and made.dtype == fp.float64 and grads[c] is made and len(grads) == 3
    grads.accumulate(c, tensor(4.0))
    assert made.tolist() == [4.0]
    with raises(KeyError, "get_or_create"):
        grads.get_or_create(10**9)


def test_take_removes(grads, params):
    g = grads.get(params["a"])
    assert grads.take(params["a"]) is g and params["a"] not in grads and len(grads) == 1
    assert grads.take(params["a"]) is None and grads.take(params["c"].id) is None


def test_clear(grads, params):
    grads.clear()
    assert len(grads) == 0 and list(grads) == [] and grads.get(params["a"]) is None


def test_scaling(grads, params):
    a, b, c = params.parameters()
    assert grads.scale_grad(a.id, 0.5) is True and grads.scale_grad(c, 2.0) is False
    assert grads[a].tolist() == [1.0, 2.0] and c not in grads
    grads.scale_(-2.0)
    assert grads[a].tolist() == [-2.0, -4.0] and grads[b].tolist() == [-6.0, -6.0]


def test_one_gradient_under_two_keys_is_scaled_once(params):
    grads, g = fp.GradientMap(), tensor(1.0, 2.0)
    grads.insert(params["a"], g)
    grads.insert(params["b"], g)
    grads.scale_(3.0)
    assert g.tolist() == [3.0, 6.0]


@pytest.mark.parametrize("key", [1.5, None, (1, 2)])
def test_what_is_no_key(grads, key):
    for use in (
        grads.get, grads.contains, grads.take, lambda k: grads[k], lambda k: grads.insert(k, tensor(1.0)),
        lambda k: grads.accumulate(k, tensor(1.0)), grads.get_or_create, lambda k: grads.scale_grad(k, 2.0),
    ):  # fmt: skip
        with raises(fp.DTypeError, "not a key", type(key).__name__):
            use(key)
    assert len(grads) == 2


def test_merge_adds_and_shares_nothing(params):
    a, b, c = params.parameters()
    left, right = (2 * a + b).sum().backward(), (10 * b.sum() + 7 * c.sum()).backward()
    left.merge(right)
    assert [left[p].tolist() for p in (a, b, c)] == [[2.0, 2.0], [11.0, 11.0], [7.0]] and len(left) == 3
    assert right[b].tolist() == [10.0, 10.0] and len(right) == 2
    left.scale_(0.0)
    assert right[c].tolist() == [7.0]
    with raises(KeyError, "'c'"):
        left.clear()
        left[c.id]  # names came along


def test_a_failed_merge_changes_nothing(params):
    a, b = params["a"], params["b"]
    left, right = a.sum().backward(), (b.sum() + a.sum()).backward()
    right.insert(a.id, tensor(1.0, 2.0, 3.0))
    with raises(fp.ShapeError, "merge", "'a'", "(2,)", "(3,)"):
        left.merge(right)
    assert list(left) == [a.id] and left[a].tolist() == [1.0, 1.0]


def test_empty_gradients_do_nothing():
    p = fp.Parameter(np.zeros((0, 3)))
    grads = (p * 2).sum().backward()
    grads.accumulate(p, grads[p])
    assert grads.scale_grad(p, 2.0) is True and grads.scale_(3.0)[p].shape == (0, 3)


# ---- packed ---------------------------------------------------------------------------------------------------------------------------
EDITS = {
    "insert": (lambda grads, p: grads.insert(p, tensor(9.0, 9.0)), [9.0, 9.0]),
    "accumulate": (lambda grads, p: grads.accumulate(p, tensor(1.0, 1.0)), [3.0, 5.0]),
    "scale_grad": (lambda grads, p: grads.scale_grad(p, 2.0), [4.0, 8.0]),
    "take": (lambda grads, p: grads.take(p), None),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_map_of_packed_parameters_is_what_the_step_sees(edit):
    params = named(a=[1.0, 2.0], b=[3.0, 4.0]).pack()
    a, b = params.parameters()
    grads = (a.square() + 3 * b).sum().backward()
    change, expected = EDITS[edit]
    change(grads, a)
    fp.SGD(params, lr=1.0).step(grads)
    moved = [1.0, 2.0] if expected is None else [1.0 - expected[0], 2.0 - expected[1]]
    assert a.tolist() == moved and b.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("uses", ["copy and weight", "two copies"])
def test_a_packed_weight_that_is_used_in_two_ways_in_16_bits_gets_both_gradients(uses):
    rng = np.random.default_rng(0)
    numbers, x = rng.standard_normal((8, 8), np.float32), fp.tensor(rng.standard_normal((4, 8), np.float32)).to(fp.bfloat16)

    def gradient(pack: bool) -> np.ndarray:
        params = fp.ParameterDict({"w": fp.Parameter(numbers), "b": fp.Parameter(np.ones(3, np.float32))})
        if pack:
            params.pack()
        w = params["w"]
        copy = w.to(fp.bfloat16)
        if uses == "copy and weight":
            loss = (w * w).sum() + F.linear(x, copy).to(fp.float32).sum()
        else:
            loss = F.linear(x, copy).to(fp.float32).sum() + F.linear(x * 2.0, copy).to(fp.float32).sum()
            loss = loss + F.linear(x, w.to(fp.bfloat16)).to(fp.float32).sum()
        return (loss + params["b"].sum()).backward()[w].numpy()

    for _ in range(3):  # as it is, recorded, as planned
        np.testing.assert_array_equal(gradient(True), gradient(False))
