"""Parameter and ParameterDict: identity, gradients set by hand, writes that count, saved state, packed memory.

Oracles: NumPy and numbers worked by hand. What must hold for packed parameters is that nothing but the place of the memory
changes: ids, names, numbers, and every bit of a training run.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from error_text import raises

import flamepy as fp

pytestmark = pytest.mark.usefixtures("device")

HALVES = [fp.float16, fp.bfloat16]
FLOATS = [fp.float32, fp.float64, *HALVES]


def parameter(*values: float, dtype="float64") -> fp.Parameter:
    return fp.Parameter(fp.tensor(np.array(values)).to(dtype))


def three(dtype="float32", seed=0) -> fp.ParameterDict:
    rng = np.random.default_rng(seed)
    shapes = {"w": (3, 4), "b": (4,), "s": ()}
    return fp.ParameterDict({n: fp.Parameter(fp.tensor(np.asarray(rng.normal(size=s))).to(dtype)) for n, s in shapes.items()})


def loss_of(params: fp.ParameterDict) -> fp.Tensor:
    x = fp.tensor(np.linspace(-1, 1, 15).reshape(5, 3)).to(params["w"].dtype)
    return ((x @ params["w"] + params["b"]).tanh() * params["s"]).square().mean()


def place(t: fp.Tensor) -> tuple[int, int]:
    """Where its numbers lie: the memory, and the byte in it."""
    return id(t.buffer.root or t.buffer), t.buffer.offset


def in_one_span(tensors: list[fp.Tensor]) -> bool:
    """Whether each begins where the one before ends."""
    sizes = [t.size * t.dtype.itemsize for t in tensors]
    return all((place(a)[0], place(a)[1] + n) == place(b) for (a, b), n in zip(itertools.pairwise(tensors), sizes, strict=False))


# ---- Parameter ------------------------------------------------------------------------------------------------------------
def test_it_is_a_tracked_tensor_with_an_id_for_life():
    p = parameter(1.0, 2.0)
    before = p.id
    assert isinstance(p, fp.Tensor) and isinstance(before, int) and p.requires_grad and p.is_leaf and p.name == ""
    p.set_grad([1.0, 1.0])
    for write in (lambda: p.set_data([3.0, 4.0]), lambda: p.apply_update([1.0, 1.0]), lambda: p.update(0.5), p.zero_grad):
        write()
        assert p.id == before
    assert parameter(1.0).id != parameter(1.0).id


@pytest.mark.parametrize("data", [np.ones((2, 3)), [[1.0] * 3] * 2, fp.ones(2, 3)], ids=["array", "list", "tensor"])
def test_made_from_a_copy(data):
    p = fp.Parameter(data)
    assert p.shape == (2, 3) and p.dtype == (fp.float64 if isinstance(data, np.ndarray) else fp.float32)
    if isinstance(data, np.ndarray):
        data[:] = 7
    p.set_data(np.zeros((2, 3)))
    assert np.asarray(data).max() in (1, 7) and p.numpy().max() == 0


@pytest.mark.parametrize("make, low, high", [
    (fp.Parameter.zeros, 0, 0), (fp.Parameter.ones, 1, 1), (fp.Parameter.uniform, 0, 1), (fp.Parameter.randn, -0.2, 0.2),
])  # fmt: skip
def test_makers(make, low, high):
    p = make((50, 4), device="cpu")
    assert isinstance(p, fp.Parameter) and p.shape == (50, 4) and p.dtype == fp.float32 and p.requires_grad
    assert low <= p.numpy().min() and p.numpy().max() <= high


def test_randn_defaults_are_flames():
    fp.manual_seed(0)
    x = fp.Parameter.randn((20000,)).numpy()
    assert abs(x.mean()) < 0.001 and abs(x.std() - 0.02) < 0.0005
    y = fp.Parameter.randn((20000,), 3.0, 2.0, device="cpu").numpy()
    assert abs(y.mean() - 3) < 0.06 and abs(y.std() - 2) < 0.05


def test_integers_are_refused():
    with raises(fp.DTypeError, "int64"):
        fp.Parameter([1, 2])


def test_usable_in_ops_and_tensor_is_the_tracked_value():
    p = parameter(2.0)
    grads = (3 * p + p.tensor() * np.array([2.0]) + p @ np.ones(1)).sum().backward()
    assert grads[p].tolist() == [6.0] and p.grad is None  # backward touches no .grad


def test_requires_grad_is_settable():
    p, q = parameter(2.0), parameter(3.0)
    q.requires_grad = False
    grads = (p * q).sum().backward()
    assert p in grads and q not in grads
    q.requires_grad = True
    assert (p * q).sum().backward()[q].item() == 2.0


def test_grad_is_what_was_set_and_zero_grad_forgets_it():
    p = parameter(1.0, 2.0)
    g = fp.tensor(np.array([0.5, 0.25]))
    p.set_grad(g)
    assert isinstance(p.grad, fp.Tensor) and p.grad.tolist() == [0.5, 0.25]
    p.zero_grad()
    assert p.grad is None
    p.set_grad(g)
    p.set_grad(None)
    assert p.grad is None
    with pytest.raises(AttributeError):
        p.grad = g  # a property without a setter: set_grad checks


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("given", FLOATS, ids=str)
def test_a_gradient_is_cast_to_float32_or_wider(dtype, given):
    p = parameter(1.0, 2.0, dtype=dtype)
    p.set_grad(fp.tensor(np.array([0.5, -0.5])).to(given))
    assert p.grad.dtype == (fp.float64 if dtype == fp.float64 else fp.float32) and p.grad.tolist() == [0.5, -0.5]


@pytest.mark.parametrize("call", ["set_grad", "set_data", "apply_update"])
def test_another_shape_is_refused_and_changes_nothing(call):
    p = fp.ParameterDict({"w": parameter(1.0, 2.0)})["w"]
    with raises(fp.ShapeError, call, "w", "(2,)", "(3,)"):
        getattr(p, call)([1.0, 2.0, 3.0])
    assert p.tolist() == [1.0, 2.0] and p.grad is None and p.buffer.version == 0


def test_update_and_apply_update():
    p = parameter(1.0, 2.0)
    p.update(10.0)
    assert p.tolist() == [1.0, 2.0] and p.buffer.version == 0  # no gradient: nothing
    p.set_grad([0.5, -0.25])
    p.update(2.0)
    assert p.tolist() == [0.0, 2.5]
    p.apply_update([1.0, 0.5])
    assert p.tolist() == [-1.0, 2.0] and p.entry is None and p.requires_grad


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_16_bit_updates_are_computed_in_float32(dtype):
    p = parameter(1.0, dtype=dtype)
    p.set_grad(np.array([1e6]))
    p.update(0.5e-6)  # the gradient overflows float16
    assert p.tolist() == [0.5] and p.dtype == dtype
    p.apply_update(np.array([1e-9]))
    assert p.tolist() == [0.5]


def test_lists_of_floats_keep_float64():
    p = parameter(1.0)
    p.set_data([0.1])
    assert p.item() == 0.1
    p.set_grad([0.1])
    p.update(1.0)
    assert p.item() == 0.0
    p.apply_update([0.1])
    assert p.item() == -0.1


# ---- versions ---------------------------------------------------------------------------------------------------------------
WRITES = {
    "set_data": lambda ps: ps["w"].set_data(np.ones((3, 4))),
    "update": lambda ps: (ps["w"].set_grad(np.ones((3, 4))), ps["w"].update(0.1)),
    "apply_update": lambda ps: ps["w"].apply_update(np.ones((3, 4))),
    "load_state_dict": lambda ps: ps.load_state_dict(ps.state_dict()),
    "SGD.step": lambda ps: fp.SGD(ps, lr=0.1).step(loss_of(ps).backward()),
    "AdamW.step": lambda ps: fp.AdamW(ps, lr=0.1).step(loss_of(ps).backward()),
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("write", WRITES)
def test_every_write_counts_and_is_named(write, packed):
    params = three()
    params = params.pack() if packed else params
    w = params["w"]
    loss = w.square().sum()
    before = w.buffer.version
    WRITES[write](params)
    assert w.buffer.version > before
    by = "set_data" if write == "load_state_dict" else write
    with raises(fp.VersionError, "w", "square", by, "test_parameters.py:"):
        loss.backward()


def test_items_cannot_be_assigned():
    with raises(fp.FlameError, "setitem", "set_data"):
        parameter(1.0)[0] = 2.0


# ---- ParameterDict --------------------------------------------------------------------------------------------------------------
def test_it_is_ordered_and_names_its_parameters():
    b, a = parameter(1.0), parameter(2.0)
    params = fp.ParameterDict()
    params.insert("b", b)
    params.insert("a", a)
    assert b.name == "b" and a.name == "a" and list(params) == ["b", "a"] and len(params) == 2
    assert "a" in params and "c" not in params and params["b"] is b and params.get("a") is a and params.get("c") is None
    assert type(params.parameters()) is list and all(x is y for x, y in zip(params.parameters(), [b, a], strict=True))
    assert type(params.named_parameters()) is list and [n for n, _ in params.named_parameters()] == ["b", "a"]
    with raises(KeyError, "'c'", "b, a"):
        params["c"]


def test_insert_refuses_a_name_twice_and_what_is_no_parameter():
    params = three()
    kept = params["w"]
    with raises(fp.StateError, "'w'"):
        params.insert("w", parameter(1.0))
    with raises(fp.DTypeError, "'x'", "Tensor"):
        params.insert("x", fp.ones(2))
    assert params["w"] is kept and list(params) == ["w", "b", "s"]


def test_zero_grad_and_set_grads():
    params = three()
    grads = (params["w"].sum() + params["b"].sum()).backward()
    params["s"].set_grad(fp.tensor(1.0))
    params.set_grads(grads)
    assert params["s"].grad is None  # no entry in the map
    assert params["w"].grad.tolist() == [[1.0] * 4] * 3 and params["b"].grad.tolist() == [1.0] * 4
    params.zero_grad()
    assert all(p.grad is None for p in params.parameters())


def test_freeze_takes_a_glob():
    params = fp.ParameterDict({n: parameter(1.0) for n in ("0.weight", "0.bias", "1.bias")})
    assert params.freeze("*.bias") == ["0.bias", "1.bias"]
    assert [p.requires_grad for p in params.parameters()] == [True, False, False]
    with raises(fp.StateError, "'*.gain'", "0.weight"):
        params.freeze("*.gain")


# ---- state ----------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_state_is_a_copy_and_goes_back_bit_for_bit(dtype):
    params, other = three(dtype), three(dtype, seed=1)
    state = params.state_dict()
    assert list(state) == ["w", "b", "s"] and all(isinstance(v, np.ndarray) and v.dtype == dtype for v in state.values())
    other.load_state_dict(state)
    for name, p in other.named_parameters():
        assert p.numpy().tobytes() == state[name].tobytes()
    params["b"].set_data(np.zeros(4))
    assert state["b"].astype("f4").any()


def test_strict_and_not():
    params = three()
    b = params["b"].tolist()
    state = {"w": np.full((3, 4), 2.0), "s": np.array(5.0), "extra": np.ones(1)}
    with raises(fp.StateError, "missing ['b']", "unknown ['extra']", "strict=False"):
        params.load_state_dict(state)
    assert params["s"].item() != 5.0
    params.load_state_dict(state, strict=False)
    assert params["s"].item() == 5.0 and params["w"].numpy().min() == 2.0 and params["b"].tolist() == b


@pytest.mark.parametrize("wrong, kind", [
    (np.ones(5), fp.ShapeError), (np.ones((1, 4)), fp.ShapeError), (np.ones(4, int), fp.DTypeError), (["x"] * 4, fp.DTypeError),
])  # fmt: skip
def test_a_failed_load_changes_nothing(wrong, kind):
    params = three()
    before, versions = params.state_dict(), [p.buffer.version for p in params.parameters()]
    state = {"w": np.zeros((3, 4)), "b": wrong, "s": np.array(0.0)}
    with raises(kind):
        params.load_state_dict(state)
    assert all(np.array_equal(p.numpy(), before[n]) for n, p in params.named_parameters())
    assert [p.buffer.version for p in params.parameters()] == versions


# ---- pack -------------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_pack_moves_the_memory_and_nothing_else(dtype):
    params = three(dtype)
    before, ids, objects = params.state_dict(), [p.id for p in params.parameters()], params.parameters()
    assert params.pack() is params
    assert list(params) == ["w", "b", "s"] and [p.id for p in params.parameters()] == ids
    assert all(p is q and p.name == n for (n, p), q in zip(params.named_parameters(), objects, strict=True))
    assert all(p.numpy().tobytes() == before[n].tobytes() and p.dtype == dtype for n, p in params.named_parameters())
    assert in_one_span(params.parameters())
    params["b"].set_data(np.arange(4.0))
    assert params["b"].tolist() == [0, 1, 2, 3] and params["w"].numpy().tobytes() == before["w"].tobytes()


def test_gradients_of_packed_parameters_lie_in_one_span():
    plain, packed = three(), three().pack()
    expected, grads = loss_of(plain).backward(), loss_of(packed).backward()
    assert in_one_span([grads[p] for p in packed.parameters()])
    for p, q in zip(plain.parameters(), packed.parameters(), strict=True):
        assert expected[p].numpy().tobytes() == grads[q].numpy().tobytes()


def test_mixed_dtypes_and_a_second_pack():
    params = three("float32")
    params.insert("d", parameter(1.0, 2.0))
    params.insert("e", parameter(3.0))
    before = params.state_dict()
    params.pack()
    places = [place(p) for p in params.parameters()]
    params.pack()
    assert [place(p) for p in params.parameters()] == places
    assert in_one_span([params["d"], params["e"]]) and places[3][0] != places[0][0]  # d and e: a span of their own
    assert all(p.numpy().tobytes() == before[n].tobytes() for n, p in params.named_parameters())
    with raises(fp.StateError, "pack", "'d'"):
        fp.ParameterDict({"d": params["d"]}).pack()


def test_a_refused_pack_moves_nothing():
    params = three().pack()
    mixed = fp.ParameterDict({"fresh": parameter(1.0), "b": params["b"]})
    before = place(mixed["fresh"])
    with raises(fp.StateError, "pack"):
        mixed.pack()
    assert place(mixed["fresh"]) == before


def test_tied_parameters_are_packed_once():
    w = parameter(1.0, 2.0)
    params = fp.ParameterDict({"embedding": w, "other": parameter(3.0), "head": w}).pack()
    assert params["embedding"] is params["head"] and in_one_span([w, params["other"]])
    grads = (params["embedding"] * params["head"]).sum().backward()
    assert grads[w].tolist() == [2.0, 4.0] and len(grads) == 1
    params.set_grads(grads)
    assert params["head"].grad.tolist() == [2.0, 4.0] and set(params.state_dict()) == {"embedding", "other", "head"}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("make", [lambda p: fp.AdamW(p, lr=0.05), lambda p: fp.SGD(p, lr=0.1, momentum=0.9)], ids=["adamw", "sgd"])
def test_training_packed_equals_unpacked_bit_for_bit(make, dtype):
    runs = []
    for params in (three(dtype), three(dtype).pack()):
        optimizer = make(params)
        for _ in range(12):
            optimizer.step(loss_of(params).backward())
        runs.append(params.state_dict())
    assert all(runs[0][n].tobytes() == runs[1][n].tobytes() for n in runs[0])
    assert any((runs[0][n] != three(dtype)[n].numpy()).any() for n in runs[0])
