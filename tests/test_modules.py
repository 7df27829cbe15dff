"""What a Module can do beside holding parameters: buffers, hooks, apply, to, ModuleDict, counting, freezing and unfreezing.

Oracles: PyTorch's rules as numbers in the tests; NumPy.
"""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from error_text import raises
from test_buffers import Scaled

import flamepy as fp
from flamepy import nn

X = np.linspace(-1, 1, 6, dtype="f4").reshape(2, 3)


def mlp():
    fp.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4, device="plain"), nn.ReLU(), nn.Linear(4, 2, device="plain"))


def given(dtype="float32"):
    return fp.tensor(X, device="plain", dtype=dtype)


def by_hand(m):
    w, b, v, c = (p.numpy().astype("f8") for p in m.parameters())
    return np.maximum(X @ w.T + b, 0) @ v.T + c


# ---- hooks -----------------------------------------------------------------------------------------------------------------------
def test_hooks_see_and_replace_what_goes_in_and_out():
    m, calls = mlp(), []
    want = by_hand(m)
    handles = [m[0].register_forward_hook(lambda layer, args, y: calls.append((layer, args, y.shape)))]  # the pair would be one launch
    assert np.allclose(m(given()).numpy(), want, atol=1e-6) and calls[0][0] is m[0] and calls[0][2] == (2, 4)
    assert len(fp.tape(m(given()).sum())) == len(fp.tape(mlp()(given()).sum())) + 1
    handles.append(m[1].register_forward_hook(lambda layer, args, y: y * 2.0))
    handles.append(m[2].register_forward_pre_hook(lambda layer, args: args[0] * 0.5))
    handles.append(m.register_forward_pre_hook(lambda layer, args: (args[0],)))
    assert np.allclose(m(given()).numpy(), want, atol=1e-6)
    for handle in handles:
        handle.remove()
        handle.remove()
    count = len(calls)
    with m.register_forward_hook(lambda layer, args, y: None):
        pass
    m(given())
    assert len(calls) == count and "_hooks" not in vars(m)
    with raises(fp.DTypeError, "hook: not a function: int"):
        m.register_forward_hook(3)


def test_hooks_go_along_with_copies():
    m = mlp()
    handle = m[0].register_forward_hook(doubled)
    want = m(given()).numpy()
    for twin in (copy.deepcopy(m), pickle.loads(pickle.dumps(m))):
        assert np.array_equal(twin(given()).numpy(), want)
        twin[0]._hooks[0].remove()
        assert np.allclose(twin(given()).numpy(), by_hand(m), atol=1e-6) and np.array_equal(m(given()).numpy(), want)
    handle.remove()
    handle = m[0].register_forward_hook(lambda layer, args, y: handle.remove() or y * 2.0)  # takes itself away
    assert np.array_equal(m(given()).numpy(), want) and np.allclose(m(given()).numpy(), by_hand(m), atol=1e-6)
    m[0].register_forward_hook(lambda layer, args, y: None)
    assert np.array_equal(copy.deepcopy(m)(given()).numpy(), m(given()).numpy())
    with raises(fp.StateError, "pickle: a hook cannot be pickled", "<lambda> of a Linear"):
        pickle.dumps(m)


def doubled(layer, args, y):
    return y * 2.0


def test_hooks_run_when_pytorchs_do():
    torch = pytest.importorskip("torch", reason="PyTorch is the judge here and is not installed")

    def told(m, x):
        log = []
        m.register_forward_hook(lambda m, args, y: log.append(("after all", len(args), tuple(y.shape))))
        m.register_forward_pre_hook(lambda m, args: log.append(("before all", len(args))))
        m[0].register_forward_hook(lambda m, args, y: log.append("first"))
        m[0].register_forward_hook(lambda m, args, y: log.append("second"))
        m[2].register_forward_pre_hook(lambda m, args: log.append("last"))
        m(x)
        return log

    theirs = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    assert told(mlp(), given()) == told(theirs, torch.tensor(X))


def test_no_fused_form_leaves_out_a_hook():
    fp.manual_seed(0)
    block = nn.TransformerBlock(4, 2, causal=True, device="plain")
    x = fp.randn((1, 3, 4), device="plain")
    want, calls = block(x).numpy(), []
    for m in block.modules():
        m.register_forward_hook(lambda m, args, y: calls.append(id(m)))
    assert np.allclose(block(x).numpy(), want, atol=1e-6)
    assert sorted(calls) == sorted([*map(id, block.modules()), id(block.dropout)])  # it is there twice
    block.norm1, block.norm2 = nn.Sequential(), nn.Sequential()  # any module may stand there
    block.mlp[2].weight.set_data(np.zeros((4, 16)))
    block.attn.proj.weight.set_data(np.zeros((4, 4)))
    for name in ("attn.proj", "mlp.2"):
        block.params[f"{name}.bias"].set_data([1, 2, 3, 4])
    assert np.allclose(block(x).numpy(), x.numpy() + [2, 4, 6, 8], atol=1e-6)


def test_a_captured_step_sees_hooks_and_buffers_that_change():
    m, factor = Scaled(), [2.0]

    def step(x):
        return m(x).detach()

    def twice(layer, args, y):
        return y * factor[0]

    replay = fp.capture(step)
    plain = np.array(by_linear(m))
    for expected in (1, 1, 1):
        assert np.allclose(replay(given()).numpy(), plain * expected, atol=1e-6)
    handle = m.layer.register_forward_hook(twice)
    for expected in (2, 2, 2):
        assert np.allclose(replay(given()).numpy(), plain * expected, atol=1e-6)
    factor[0] = 3.0  # what a hook names counts
    assert np.allclose(replay(given()).numpy(), plain * 3, atol=1e-6)
    handle.remove()
    m.load_state_dict({**m.state_dict(), "scale": np.array([4.0, 6.0])})
    assert np.allclose(replay(given()).numpy(), plain * 2, atol=1e-6)


def by_linear(m):
    return (X @ m.layer.weight.numpy().T + m.layer.bias.numpy()) * m.scale.numpy()


# ---- apply, ModuleDict, counting -------------------------------------------------------------------------------------------------
def test_apply_reaches_each_module_once_children_first():
    shared = nn.ReLU()
    m, seen = nn.Sequential(nn.Sequential(nn.Flatten(), shared), shared), []
    assert m.apply(lambda module: seen.append(type(module).__name__)) is m
    assert seen == ["Flatten", "ReLU", "Sequential", "Sequential"]


def test_a_module_dict_names_its_modules():
    m = nn.ModuleDict({"out": nn.Linear(2, 1, device="plain"), "in": nn.Linear(3, 2, device="plain")})
    m["0"] = nn.ReLU()
    assert list(m) == m.keys() == ["out", "in", "0"] and len(m) == 3 and "in" in m and "training" not in m
    assert list(m.params) == ["out.weight", "out.bias", "in.weight", "in.bias"] and m.values()[2] is m["0"] is m.items()[2][1]
    assert m.pop("0") is not None and "0" not in m and copy.deepcopy(m).keys() == ["out", "in"]
    del m["in"]
    assert list(m.state_dict()) == ["out.weight", "out.bias"]
    for key in ("keys", "training", "a.b", "", 3):
        with raises(fp.StateError, "ModuleDict: not a name for a module", repr(key)):
            m[key] = nn.ReLU()
    assert list(nn.ModuleDict(zip(("a", "b"), (nn.ReLU(), nn.Tanh()), strict=True))) == ["a", "b"] and list(nn.ModuleDict(m)) == list(m)
    with raises(KeyError, "ModuleDict: no such module: 'x'. Use one of: out"):
        m["x"]
    with raises(TypeError, "ModuleDict: not a Module: 'f' is a function"):
        m["f"] = lambda x: x
    with raises(fp.StateError, "ModuleDict or Sequential"):
        m.held = {"a": nn.ReLU()}


def test_parameters_are_counted_once(capsys):
    m = mlp()
    m.tied = m[0].weight
    m.register_buffer("mask", [1, 0, 1])
    assert m.num_parameters() == 12 + 4 + 8 + 2 == m.num_parameters(trainable=True)
    assert m.freeze("0.*") == ["0.bias"] and m.unfreeze("0.*") == ["0.bias"]  # the weight has its first name
    m.freeze("*.bias")
    m.summary()
    rows = capsys.readouterr().out.splitlines()
    assert rows[0].split() == ["name", "shape", "dtype", "numbers", "trained"] and len(rows) == 7
    assert rows[1].split() == ["tied", "(4,", "3)", "float32", "12", "yes"] and rows[5].split()[-2:] == ["3", "no"]
    assert rows[6] == "26 parameters, 20 trained"


def test_a_parameter_unfrozen_later_joins_the_next_backward():
    m = mlp()
    m.params.freeze("0.*")
    optimizer = fp.SGD(m, lr=0.5)
    before = m.state_dict()
    optimizer.step(m(given()).sum().backward())
    assert [np.array_equal(v, before[n]) for n, v in m.state_dict().items()] == [True, True, False, False]
    assert m.params.unfreeze("0.*") == ["0.weight", "0.bias"]
    grads = m(given()).sum().backward()
    optimizer.step(grads)
    assert np.allclose(m[0].bias.numpy(), before["0.bias"] - 0.5 * grads[m[0].bias].numpy())
    with raises(fp.StateError, "unfreeze: no parameter matches: 'no*'"):
        m.unfreeze("no*")


def test_gradual_unfreezing_is_pytorchs():
    torch = pytest.importorskip("torch", reason="PyTorch is the judge here and is not installed")
    m, theirs = mlp(), torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    m.load_state_dict(theirs.state_dict())
    m.params.pack()
    ours, other = fp.AdamW(m, lr=0.1, weight_decay=0.1), torch.optim.AdamW(theirs.parameters(), lr=0.1, weight_decay=0.1)
    for frozen in (True, False, True):
        (m.freeze if frozen else m.unfreeze)("0.*")
        theirs[0].requires_grad_(not frozen)
        for _ in range(2):
            ours.step(m(given()).square().sum().backward())
            other.zero_grad()
            theirs(torch.tensor(X)).square().sum().backward()
            other.step()
        for p, q in zip(m.parameters(), theirs.parameters(), strict=True):
            np.testing.assert_allclose(p.numpy(), q.detach(), atol=2e-6)


# ---- to --------------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("packed", [False, True])
def test_to_another_type_and_device_keeps_ids_and_the_optimizers_state(packed):
    m = mlp()
    m.register_buffer("halves", fp.ones(2, device="plain"))
    m.register_buffer("ids", [1, 2])
    if packed:
        m.params.pack()
    optimizer = fp.SGD(m, lr=0.1, momentum=0.9)
    optimizer.step(m(given()).sum().backward())
    m[0].bias.set_grad(np.ones(4))
    ids, moment, want = [p.id for p in m.parameters()], optimizer.state_dict()["state"]["2.bias"], by_hand(m)
    old = m(given()).sum()
    assert m.to(fp.float64) is m and {p.dtype for p in m.parameters()} == {fp.float64} == {m.halves.dtype, m[0].bias.grad.dtype}
    assert [p.id for p in m.parameters()] == ids and m.ids.dtype == fp.int64
    assert len({id(p.buffer.root) for p in m.parameters()}) == 1 and (m[0].weight.buffer.root is not None) == packed
    assert np.allclose(m(given(dtype="float64")).numpy(), want, rtol=1e-12)
    with raises(fp.VersionError, "backward: a saved value was overwritten", "written by to()"):
        old.backward()
    m.to(device="cpu").to("cpu")
    assert {p.device.name for p in [*m.parameters(), *m.buffers()]} == {"cpu"} == {m[0].bias.grad.device.name}
    m.to("plain")
    grads = m(given(dtype="float64")).sum().backward()
    optimizer.step(grads)
    found = optimizer.state_dict()["state"]["2.bias"]
    assert found["step"] == 2 and found["momentum" if "momentum" in found else "m"].dtype == np.float64
    np.testing.assert_allclose(list(found.values())[1], 0.9 * list(moment.values())[1] + grads[m[2].bias].numpy(), rtol=1e-6)
    assert m.to(fp.bfloat16).params["0.weight"].dtype == fp.bfloat16


def test_to_refuses_and_tells():
    m = mlp()
    buffer = m[0].weight.buffer
    assert m.to("plain", dtype=fp.float32)[0].weight.buffer is buffer  # nothing to do
    for target, error in (("int64", fp.DTypeError), ("nowhere", fp.DTypeError), (fp.ones(1), fp.DTypeError)):
        with raises(error, "to: "):
            m.to(target)
    replay = fp.capture(m)
    for _ in range(3):
        replay(given())
    m.to(fp.float64)
    with raises(fp.CaptureError, "memory was moved", "to()"):
        replay(given())


def test_a_gradient_recorded_before_a_packed_model_changed_its_type():
    """The bias is not saved: backward() runs, in the type of then."""
    p = fp.Parameter(fp.tensor([1.0, 2.0], device="plain"))
    net = nn.Sequential()
    net.b = p
    net.params.pack()
    loss = (p + fp.tensor([1.0, 1.0], device="plain")).sum()
    net.to(fp.float64)
    grads = loss.backward()
    assert grads[p].tolist() == [1, 1]


class Tied(nn.Module):
    """Predicts with its embedding, as language models do: tied inside, or by layers that were tied before."""

    def __init__(self, before: bool):
        token, head = nn.Embedding(5, 4), nn.Linear(4, 5, bias=False)
        if before:
            head.weight = token.weight
        self.layers = nn.ModuleList([token])
        self.head = head
        if not before:
            self.head.weight = token.weight
        self.again = self.layers[0]

    def forward(self, ids):
        return self.head(self.again(ids))


@pytest.mark.parametrize("before", [False, True])
def test_what_is_shared_goes_by_its_first_path_before_anyone_asks_for_names(before):
    for model, name in ((Tied(before), "layers.0.weight"), (nn.Sequential(Tied(before)), "0.layers.0.weight")):
        assert [n for n, _ in model(np.array([1])).sum().backward().named_items()] == [name] == list(model.state_dict())
    model = nn.Module()
    model.w = fp.Parameter([1.0])
    model.v = model.w
    assert model.w.name == "w"


def test_gradients_are_found_by_path_before_anyone_asks_for_names():
    model = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 1)))
    grads = model(fp.ones(4, 2)).sum().backward()
    assert grads["0.weight"].shape == (3, 2) and grads["1.0.bias"].shape == (1,)
    moved = nn.Sequential(nn.Linear(2, 2), model[0])  # in another place there
    assert moved(fp.ones(4, 2)).sum().backward()["1.weight"].shape == (3, 2)
    two = [nn.Linear(1, 1), nn.Linear(1, 1)]
    optimizer = fp.SGD([layer.weight for layer in two], lr=0.1)  # names given in passing are no names of a state
    optimizer.step((two[0].weight + two[1].weight).sum().backward())
    assert sorted(optimizer.state_dict()["groups"][0]["names"]) == ["0", "1"]
