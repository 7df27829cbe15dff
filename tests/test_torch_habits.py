"""PyTorch's tensors, dtypes and devices are taken, slices of a Sequential and class axes are its, its pairs are refused where there are
none: with PyTorch as the judge.
"""

from __future__ import annotations

import copy

import numpy as np
import pytest
from error_text import raises
from habit_tools import X

import flamepy as fp
import flamepy.nn.functional as F
from flamepy import nn

torch = pytest.importorskip("torch", reason="PyTorch is the judge here and is not installed")


def test_slices_of_a_sequential_are_sequentials():
    theirs = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2), torch.nn.Tanh())
    ours = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2), nn.Tanh())
    ours.load_state_dict(theirs.state_dict())
    for part in (slice(1), slice(1, None), slice(0, 3), slice(-2, None), slice(0, 0)):
        mine, other = ours[part], theirs[part]
        assert type(mine) is nn.Sequential and list(mine.state_dict()) == list(other.state_dict())
        x = X[0, :, :1].repeat(4 if part.start else 3, axis=1)
        np.testing.assert_allclose(mine(fp.tensor(x)).numpy(), other(torch.tensor(x)).detach(), rtol=1e-5, atol=1e-6)
    assert ours[1:][1] is ours[2] and ours[-1] is ours[3]
    longer = ours[2:].append(nn.ReLU())
    assert list(longer.params) == ["2.weight", "2.bias"] and len(longer) == 3 and type(nn.ModuleList([nn.ReLU()])[:]) is nn.ModuleList
    with raises(fp.IndexOutOfRange, "Sequential", "4 of 4 modules"):
        ours[4]


def tied(lib):
    """A layer under two names, a weight under three, a buffer of a module under two."""

    class Tied(lib.Module):
        def __init__(self):
            super().__init__()
            self.emb, self.head = lib.Embedding(4, 3), lib.Linear(3, 4)
            self.head.weight = self.emb.weight
            self.norm = lib.Sequential(lib.LayerNorm(3))
            self.same, self.again = self.norm[0], self.norm

        def forward(self, x):
            return self.head(self.same(self.emb(x)))

    return Tied()


def test_states_of_pytorchs_models_that_share_weights_are_taken():
    theirs, ours, ids = tied(torch.nn), tied(nn), np.array([[0, 3, 1]])
    ours.norm[0].register_buffer("scale", np.ones(2))
    state = {**theirs.state_dict(), **{f"{at}.scale": torch.tensor([2.0, 3.0]) for at in ("norm.0", "same", "again.0")}}
    assert len(state) == 12 and len(ours.state_dict()) == 5
    want = theirs(torch.tensor(ids)).detach()
    for names in (list(state), ["head.weight", "head.bias", "again.0.scale", "same.weight", "norm.0.bias"], list(ours.state_dict())):
        ours.load_state_dict({name: np.zeros(a.shape) for name, a in ours.state_dict().items()})
        ours.load_state_dict({name: state[name] for name in names})
        np.testing.assert_allclose(ours(ids).numpy(), want, rtol=1e-5, atol=1e-6)
        assert ours.same.scale.tolist() == [2.0, 3.0]
    before = ours.state_dict()
    with raises(fp.StateError, "load_state_dict: one parameter here, two in the state: 'emb.weight' and 'head.weight'"):
        ours.load_state_dict({**state, "head.weight": state["head.weight"] + 1.0})
    with raises(fp.StateError, "names differ: missing ['emb.weight'], unknown ['head.other']"):
        ours.load_state_dict({"head.other" if name == "head.weight" else name: a for name, a in state.items() if name != "emb.weight"})
    assert all(np.array_equal(a, before[name]) for name, a in ours.state_dict().items())


@pytest.mark.parametrize("shape", [(2, 7, 5), (2, 3, 4, 5)])
def test_classes_on_the_last_axis_as_on_the_second(shape):
    draw = np.random.default_rng(1)
    x, ids = draw.standard_normal(shape), draw.integers(0, 5, shape[:-1])
    theirs = torch.tensor(np.moveaxis(x, -1, 1).copy(), requires_grad=True)
    mine = fp.tensor(x, requires_grad=True)
    for reduction in ("mean", "none"):
        want = torch.nn.functional.cross_entropy(theirs, torch.tensor(ids), reduction=reduction)
        np.testing.assert_allclose(F.cross_entropy(mine, ids, reduction=reduction).numpy(), want.detach(), rtol=1e-12)
        want = torch.nn.functional.nll_loss(theirs, torch.tensor(ids), reduction=reduction)
        np.testing.assert_allclose(F.nll_loss(mine, ids, reduction=reduction).numpy(), want.detach(), rtol=1e-12)
    torch.nn.functional.cross_entropy(theirs, torch.tensor(ids)).backward()
    want = theirs.grad.movedim(1, -1)
    np.testing.assert_allclose(F.cross_entropy(mine, ids).backward()[mine].numpy(), want, rtol=1e-10, atol=1e-15)


# How PyTorch's pair of values and indices is taken apart: x has two rows, so each of these could go wrong without a word.
PAIRS = {
    "_, ids = x.max(1)": lambda x: [*x.max(1)][1], "x.max(dim=1)[1]": lambda x: x.max(dim=1)[1], "x.min(0)[0]": lambda x: x.min(0)[0],
    "max(x, -1)": lambda x: [*fp.max(x, -1)], "keepdim": lambda x: x.min(dim=1, keepdim=True)[0],
    "values, ids = x.median(1)": lambda x: [*x.median(1)], "x.nanmedian(dim=1)[1]": lambda x: x.nanmedian(dim=1)[1],
    "replayed": lambda x: [fp.capture(lambda t: t.max(1)[0] * 1.0)(x)],
}  # fmt: skip


@pytest.mark.parametrize("habit", PAIRS)
def test_the_pair_of_max_and_min_is_not_unpacked_into_rows(habit):
    x = fp.tensor(X[0, :2], requires_grad=True)
    with raises(fp.FlameError, "taken apart as a pair of values and indices: shape (", "() for the indices"):
        PAIRS[habit](x)
    for name in ("values", "indices"):
        with raises(AttributeError, f"no such name: '{name}'", "argmax() and argmin()"):
            getattr(x.max(1), name)


def test_what_max_and_min_give_is_a_tensor_like_others():
    x, theirs = fp.tensor(X[0, :2], requires_grad=True), torch.tensor(X[0, :2])
    assert [v.item() for v in x.max(axis=1)] == theirs.max(1).values.tolist() == [x.max(axis=1)[i].item() for i in (0, 1)]
    assert x.min(0)[1:].tolist() == theirs.min(0).values[1:].tolist() and (x.max(1) * 1.0)[0].item() == theirs.max(1).values[0]
    first, second = x.max((1,))
    assert [first.item(), second.item()] == theirs.amax(1).tolist() and np.max(x, 0)[0].item() == theirs.amax(0)[0]
    assert copy.deepcopy(x.detach().max(1))[0].item() == theirs.amax(1)[0]


@pytest.mark.parametrize("name", ["var", "std"])
def test_variance_takes_unbiased(name):
    x, theirs = fp.tensor(X[0], dtype=fp.float64), torch.tensor(X[0], dtype=torch.float64)
    for args, options in (((1,), {"unbiased": False}), ((1, True), {}), ((1, False, True), {}), ((), {"dim": 0, "unbiased": True})):
        want = getattr(theirs, name)(*args, **options).numpy()
        np.testing.assert_allclose(getattr(x, name)(*args, **options).numpy(), want, rtol=1e-12)
    with raises(fp.DTypeError, "var: correction is no number: 'no'"):
        x.var(unbiased="no")


# ---- PyTorch's tensors and names -------------------------------------------------------------------------------------------------
THEIRS = {
    "float32": torch.arange(6.0).reshape(2, 3).T, "bfloat16": torch.tensor([1.0, -2.5, 1e30]).to(torch.bfloat16),
    "float16": torch.tensor([1.0, -2.5]).half(), "int64": torch.arange(3), "bool": torch.tensor([True, False]),
    "requires grad": torch.nn.Parameter(torch.ones(2, dtype=torch.float64)), "negative bit": torch._neg_view(torch.ones(2)),
}  # fmt: skip


@pytest.mark.parametrize("name", THEIRS)
def test_pytorchs_tensors_are_taken(name):
    t = THEIRS[name]
    for take in (fp.tensor, fp.from_dlpack):
        found = take(t)
        assert found.shape == tuple(t.shape) and str(found.dtype) == str(t.dtype).removeprefix("torch.") and not found.requires_grad
        assert found.tolist() == t.tolist()
    assert str((found := fp.tensor([t, t])).dtype) == str(t.dtype).removeprefix("torch.") and found.tolist() == [t.tolist()] * 2
    if t.is_floating_point():
        p = fp.Parameter(t)
        p.set_data(t * 2)
        assert p.tolist() == (t * 2).tolist() and fp.tensor(t, dtype=torch.float64).tolist() == t.double().tolist()


def test_what_pytorch_gives_no_array_of_is_refused():
    with raises(fp.DTypeError, "tensor: PyTorch gives no array: torch.float32, torch.sparse_coo. Convert it with .to_dense()."):
        fp.tensor(torch.eye(2).to_sparse())
    with raises(fp.DTypeError, "not supported: complex64"):
        fp.tensor(torch.ones(2, dtype=torch.complex64))
    with raises(fp.DTypeError, "from_dlpack: nothing with __dlpack__: list", "flamepy.tensor"):
        fp.from_dlpack([1.0])
    assert fp.from_dlpack(np.arange(3.0)[::-1]).tolist() == [2.0, 1.0, 0.0] and fp.from_dlpack(fp.ones(2)).tolist() == [1.0, 1.0]


def test_pytorchs_dtypes_and_devices_are_taken_by_name():
    for name in ("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int16", "int32", "int64", "bool"):
        dtype = getattr(torch, name)
        assert {fp.zeros(2, dtype=dtype).dtype, fp.tensor([1], dtype=dtype).dtype, fp.ones(1).to(dtype).dtype} == {
            fp.zeros(1, dtype=name).dtype
        }
    assert nn.Linear(2, 3, dtype=torch.float64).weight.dtype == fp.float64 and fp.ones(1).to(torch.device("cpu")).device == "cpu"
    assert fp.ones(2).view(torch.int32).tolist() == [0x3F800000] * 2
    with raises(fp.DTypeError, "dtype: not supported: complex64", "float32"):
        fp.zeros(2, dtype=torch.complex64)
    with raises(fp.DTypeError, "to: neither a dtype nor a device", "bfloat16"):
        fp.ones(2).to(torch.ones(1))


def test_a_captured_step_takes_pytorch_tensors_as_it_takes_arrays():
    calls = []
    step = fp.capture(lambda x, y: calls.append(0) or (x * y).sum())
    with pytest.warns(fp.FlameWarning, match="also adds to calls"):
        found = [step(torch.full((3,), float(i)), torch.ones(3)).item() for i in range(12)]
    assert found == [3.0 * i for i in range(12)] and len(calls) == 4  # eager, recorded, checked at calls 4 and 8
