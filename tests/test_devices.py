"""Two devices at once: operands that do not meet, numbers and arrays that follow a tensor, what moves from one to the other.

Devices are compared wherever dtypes are; what copies numbers into memory that is there (set_data, set_grad, load_state_dict, a saved
state) or says so (to) crosses over. Oracle: the same on one device.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from error_text import raises

import flamepy as fp
import flamepy.nn.functional as F
from flamepy import nn
from flamepy.backend import base
from flamepy.backend.plain.device import PlainDevice
from flamepy.core import device as seam
from flamepy.nn import init

rng = np.random.default_rng(0)
A, ROW, SQUARE = (rng.normal(size=s).astype("f4") for s in ((3, 4), (4,), (3, 3)))
IDS, MASK, IMAGE, TAPS = np.array([0, 2, 1]), A > 0, rng.normal(size=(1, 2, 5, 5)).astype("f4"), rng.normal(size=(3, 2, 2, 2)).astype("f4")
PROBABILITIES = rng.random((3, 4)).astype("f4")
PAIR = pytest.mark.parametrize(("here", "there"), [("cpu", "plain"), ("plain", "cpu")])


def on(device: str, array: Any, requires_grad: bool = False) -> fp.Tensor:
    return fp.tensor(array, device=device, requires_grad=requires_grad)


def parameter(device: str, *values: float) -> fp.Parameter:
    return fp.Parameter(on(device, np.array(values, np.float32)))


def layers(device: str) -> nn.Module:
    fp.manual_seed(5)
    return nn.Sequential(nn.Linear(4, 6, device=device), nn.GELU(), nn.LayerNorm(6, device=device), nn.Linear(6, 3, device=device))


def test_what_names_no_device_goes_to_the_fixtures(device):
    made = fp.zeros(1), fp.tensor([1.0]), fp.randn(2), fp.arange(3), nn.Linear(2, 2).weight, fp.Parameter([1.0])
    assert all(t.device == device for t in made) and fp.device() == device and fp.device("cpu") == "cpu"
    assert F.cross_entropy(np.zeros((2, 3), np.float32), np.array([0, 1])).device == device


# ---- operands on two devices: h makes a tensor here, t there --------------------------------------------------------------------
MIXED = {
    "add": lambda h, t: h(A) + t(A), "mul": lambda h, t: h(A) * t(ROW), "lt": lambda h, t: h(A) < t(A), "pow": lambda h, t: h(A) ** t(A),
    "logical_and": lambda h, t: fp.logical_and(h(MASK), t(MASK)), "maximum": lambda h, t: fp.maximum(h(IDS), t(ROW[:3])),
    "matmul": lambda h, t: h(A) @ t(A.T.copy()), "linear": lambda h, t: F.linear(h(A), t(A)),
    "linear, bias": lambda h, t: F.linear(h(A), h(A), t(ROW[:3])), "cat": lambda h, t: fp.cat([h(A), h(A), t(A)]),
    "where": lambda h, t: fp.where(t(MASK), h(A), h(A)), "where, a": lambda h, t: fp.where(h(MASK), h(A), t(A)),
    "layer_norm": lambda h, t: F.layer_norm(h(A), t(ROW), t(ROW)), "layer_norm, bias": lambda h, t: F.layer_norm(h(A), h(ROW), t(ROW)),
    "rms_norm": lambda h, t: F.rms_norm(h(A), t(ROW)), "cross_entropy": lambda h, t: F.cross_entropy(h(A), t(IDS)),
    "binary_cross_entropy": lambda h, t: F.binary_cross_entropy(h(PROBABILITIES), t(PROBABILITIES)),
    "binary_cross_entropy_with_logits": lambda h, t: F.binary_cross_entropy_with_logits(h(A), h(PROBABILITIES), pos_weight=t(ROW)),
    "scaled_dot_product_attention": lambda h, t: F.scaled_dot_product_attention(h(A), t(A), h(A)),
    "scaled_dot_product_attention, mask": lambda h, t: F.scaled_dot_product_attention(h(A), h(A), h(A), t(SQUARE)),
    "embedding": lambda h, t: F.embedding(t(IDS), h(A)), "index": lambda h, t: h(A)[t(IDS)],
    "gather": lambda h, t: fp.gather(h(A), 0, t(np.zeros((1, 4), int))), "index_select": lambda h, t: fp.index_select(h(A), 0, t(IDS)),
    "conv2d": lambda h, t: F.conv2d(h(IMAGE), t(TAPS)), "conv2d, bias": lambda h, t: F.conv2d(h(IMAGE), h(TAPS), t(ROW[:3])),
}  # fmt: skip
# Ops composed of others, where the error names the part that noticed.
COMPOSED = {
    "mse_loss": lambda h, t: F.mse_loss(h(A), t(A)), "nll_loss": lambda h, t: F.nll_loss(h(A), t(IDS)),
    "stack": lambda h, t: fp.stack([h(A), t(A)]), "masked_fill": lambda h, t: fp.masked_fill(h(A), t(MASK), 0.0),
    "attention, bool mask": lambda h, t: F.scaled_dot_product_attention(h(A), h(A), h(A), t(SQUARE > 0)),
    "16 bits": lambda h, t: h(A).to("float16") * t(A).to("float16"), "a layer": lambda h, t: layers("cpu")(on("plain", A)),
}  # fmt: skip


@PAIR
@pytest.mark.parametrize("call", MIXED)
def test_operands_on_two_devices_are_refused(call, here, there):
    for _ in range(3):  # a call is planned at its second time
        with raises(fp.errors.DeviceError, call.split(",")[0] + ":", "cpu, plain", ".to(device)"):
            MIXED[call](lambda a: on(here, a), lambda a: on(there, a))


@PAIR
@pytest.mark.parametrize("call", COMPOSED)
def test_composed_ops_refuse_them_too(call, here, there):
    with raises(fp.errors.DeviceError, "cpu, plain"):
        COMPOSED[call](lambda a: on(here, a), lambda a: on(there, a))


@PAIR
@pytest.mark.parametrize("call", ["mask", "arrays"])
def test_an_index_read_by_the_host_is_compared_too(call, here, there):
    with pytest.raises(fp.errors.DeviceError):
        on(here, A)[on(there, MASK) if call == "mask" else (on(there, IDS), on(there, IDS))]


# ---- numbers and arrays go where the tensor beside them is ------------------------------------------------------------------------
BESIDE = {
    "number": lambda h: h(A) + 1.5, "array": lambda h: h(A) * ROW, "array first": lambda h: A - h(A), "matmul": lambda h: A.T.copy() @ h(A),
    "maximum": lambda h: fp.maximum(A, h(A) * 0), "where, mask": lambda h: fp.where(MASK, h(A), h(A) * 2),
    "where, number": lambda h: fp.where(h(MASK), 1.0, h(A)), "masked_fill": lambda h: fp.masked_fill(h(A), MASK, 0.0),
    "linear": lambda h: F.linear(A, h(A), ROW[:3]), "mse_loss": lambda h: F.mse_loss(h(A), A),
    "cross_entropy": lambda h: F.cross_entropy(h(A), IDS),
    "pos_weight": lambda h: F.binary_cross_entropy_with_logits(h(A), PROBABILITIES, pos_weight=ROW),
    "attention": lambda h: F.scaled_dot_product_attention(h(A), A, A, SQUARE > 0), "embedding": lambda h: F.embedding([0, 2], h(A)),
    "index": lambda h: h(A)[IDS], "mask": lambda h: h(A)[MASK], "gather": lambda h: fp.gather(h(A), 0, np.zeros((1, 4), int)),
    "conv2d": lambda h: F.conv2d(h(IMAGE), TAPS, ROW[:3]),
    "cat": lambda h: fp.cat([h(A), A]), "stack": lambda h: fp.stack([A, h(A)]), "index_select": lambda h: fp.index_select(A, 0, h(IDS)),
    "embedding of an array": lambda h: F.embedding(h(IDS), A), "gather of an array": lambda h: fp.gather(A, 0, h(np.zeros((1, 4), int))),
    "where, two numbers": lambda h: fp.where(h(MASK), 1.0, 0.0), "cross_entropy of an array": lambda h: F.cross_entropy(A, h(IDS)),
    "nll_loss of an array": lambda h: F.nll_loss(A, h(IDS)), "layer_norm": lambda h: F.layer_norm(h(A), ROW, ROW),
}  # fmt: skip


@pytest.mark.parametrize("call", BESIDE)
def test_numbers_and_arrays_go_where_the_tensor_is(call):
    want, got = (BESIDE[call](lambda a: on(device, a)) for device in ("cpu", "plain"))
    assert want.device == "cpu" and got.device == "plain" and got.dtype == want.dtype
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-5, atol=1e-6)


# ---- from one device to another -----------------------------------------------------------------------------------------------------
@PAIR
def test_to_another_device_and_back(here, there):
    x = on(here, A)
    assert x.to(here) is x and x.to(fp.device(here)) is x
    y = x.to(there)
    assert y.device == there and y.to(here).device == here and np.array_equal(y.to(here).numpy(), A)
    assert x.to("float64", device=there).dtype == fp.float64
    half = x.to(fp.bfloat16).to(there)
    assert half.dtype == fp.bfloat16 and half.numpy().tobytes() == x.to(fp.bfloat16).numpy().tobytes()


@PAIR
def test_gradients_flow_through_a_move(here, there):
    x = on(here, ROW.astype("f8"), requires_grad=True)
    (g,) = [(x.to(there) ** 3).sum().to(here).backward(create_graph=True)[x]]
    np.testing.assert_allclose(g.numpy(), 3 * x.numpy() ** 2)
    second = g.sum().backward()[x]
    assert g.device == second.device == here
    np.testing.assert_allclose(second.numpy(), 6 * x.numpy())
    assert fp.gradcheck(lambda x, y: (x.to(there) * y).tanh().to(here), (x, on(there, ROW.astype("f8"), requires_grad=True)), order=2)
    assert fp.gradcheck(lambda x: (x.tanh(), x.to(there).exp()), (x,), order=2)  # outputs on two devices


@PAIR
def test_a_cotangent_and_what_a_hook_returns_are_refused(here, there):
    x = on(here, ROW, requires_grad=True)
    with raises(fp.DeviceError, f"backward: gradient= is on another device than the tensor: {there}, expected {here}", f".to('{here}')"):
        (x * 2).backward(on(there, ROW))
    y = x * 3
    hook = y.register_hook(lambda g: on(there, ROW))
    loss = y.sum()
    with raises(fp.DeviceError, f"hook: what it returned is on another device than the tensor: {there}, expected {here}"):
        loss.backward()
    hook.remove()
    y.register_hook(lambda g: ROW)  # an array goes where the tensor is
    grads = loss.backward()  # the failed one has freed nothing
    assert grads[x].device == here and np.array_equal(grads[x].numpy(), 3 * ROW)
    assert np.array_equal((x * 2).backward(ROW)[x].numpy(), 2 * ROW)


@PAIR
def test_copies_into_a_parameter_cross_over(here, there):
    p = parameter(here, 1, 2)
    for write in (
        p.set_data,
        lambda t: p.apply_update(p.detach() - t.to(here)),
        lambda t: fp.ParameterDict({"p": p}).load_state_dict({"p": t}),
    ):
        p.set_data(np.zeros(2))
        write(on(there, ROW[:2]))
        assert p.device == here and np.array_equal(p.numpy(), ROW[:2])
    p.set_grad(on(there, ROW[:2]))
    assert p.grad.device == here and np.array_equal(p.grad.numpy(), ROW[:2])
    assert copy.deepcopy(p).device == here and fp.Parameter(p).device == here


@pytest.mark.parametrize("name", [f.__name__ for f in (
    init.normal, init.uniform, init.zeros, init.ones, init.xavier_normal, init.xavier_uniform, init.kaiming_normal, init.kaiming_uniform,
    init.orthogonal,
)])  # fmt: skip
def test_first_numbers_are_the_same_on_every_device(name):
    drawn = []
    for device in ("cpu", "plain"):
        fp.manual_seed(3)
        p = getattr(init, name)(fp.Parameter.ones((4, 3), device=device))
        assert p.device == device
        drawn.append(p.numpy())
    np.testing.assert_allclose(*drawn, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("pack", [False, True])
def test_models_and_optimizers_are_saved_on_one_device_and_restored_on_the_other(pack):
    states = []
    for first, second in (("cpu", "cpu"), ("cpu", "plain"), ("plain", "cpu"), ("plain", "plain")):
        state = None
        for device in (first, second):
            model = layers(device)
            if pack:
                model.params.pack()
            optimizer = fp.AdamW(model, lr=0.05)
            if state is not None:
                model.load_state_dict(state[0])
                optimizer.load_state_dict(state[1])
            for _ in range(3):
                optimizer.step(F.cross_entropy(model(on(device, A)), IDS).backward())
            state = model.state_dict(), optimizer.state_dict()
        states.append(state)
    for parameters, moments in states[1:]:
        for name, array in states[0][0].items():
            np.testing.assert_allclose(parameters[name], array, rtol=1e-4, atol=1e-5, err_msg=name)
        assert {n: row["step"] for n, row in moments["state"].items()} == dict.fromkeys(states[0][0], 6)


# ---- gradients ------------------------------------------------------------------------------------------------------------------------
@PAIR
def test_gradients_of_another_device_are_refused_and_change_nothing(here, there):
    p, g = parameter(here, 1, 2), on(there, ROW[:2])
    params = fp.ParameterDict({"w": p})
    grads = (p * p).sum().backward()
    for call in (grads.insert, grads.accumulate, grads.__setitem__):
        with raises(fp.errors.DeviceError, "'w'", here, there, f".to('{here}')"):
            call(p, g)
    other = fp.GradientMap()
    other.insert(p.id, g)  # an id has no device
    with raises(fp.errors.DeviceError, "merge", here, there):
        grads.merge(other)
    assert grads[p].tolist() == [2, 4]
    for optimizer in (fp.SGD(params, lr=1.0), fp.SGD(params, lr=1.0, momentum=0.9), fp.AdamW(params)):
        for given in (other, [(p.id, p, g)]):
            with raises(fp.errors.DeviceError, optimizer.name, "w", here, there):
                optimizer.step(given)
        assert optimizer.state_dict()["state"] == {} and p.tolist() == [1, 2]


def both(pack: bool) -> tuple[fp.ParameterDict, Any]:
    params = fp.ParameterDict({"a": parameter("cpu", 3, 0), "b": parameter("plain", 4, 0)})
    if pack:
        params.pack()
    a, b = params.parameters()
    return params, ((a * a).sum() + (b * b).sum().to("cpu")).backward().scale_(0.5)


@pytest.mark.parametrize("pack", [False, True])
def test_clipping_takes_one_device_at_a_time(pack):
    params, grads = both(pack)
    for call in (lambda g: fp.clip_grad_norm(g, 1.0), lambda g: fp.clip_grad_value(g, 1.0), fp.grad_norm):
        with raises(fp.errors.DeviceError, "grad", "cpu, plain"):
            call(grads)
    assert [grads[p].tolist() for p in params.parameters()] == [[3, 0], [4, 0]]
    params.set_grads(grads)
    with raises(fp.errors.DeviceError, "clip_grad_norm", "cpu, plain"):
        fp.clip_grad_norm(params, 1.0)
    assert fp.clip_grad_norm([params["b"]], 1.0) == 4.0 and params["b"].grad.device == "plain"


@pytest.mark.parametrize("pack", [False, True])
def test_one_optimizer_steps_a_model_on_two_devices(pack):
    params, grads = both(pack)
    fp.SGD(params, lr=1.0).step(grads)
    assert [p.tolist() for p in params.parameters()] == [[0, 0], [0, 0]] and params["b"].device == "plain"


# ---- checkpoint and capture -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("device", ["cpu", "plain"])
def test_a_checkpoint_with_dropout_draws_the_same_numbers_again(device):
    w, x = fp.Parameter(on(device, SQUARE)), on(device, SQUARE)
    found = []
    for block in (lambda f, *xs: f(*xs), fp.checkpoint):
        fp.manual_seed(1)
        y = block(lambda x: F.dropout(x @ w, 0.5).tanh().to("cpu"), x)
        found.append((y.numpy(), y.sum().backward()[w].numpy()))
    assert found[0][1].any() and all(np.array_equal(a, b) for a, b in zip(*found, strict=True))


def test_a_step_on_two_devices_is_not_captured():
    captured = fp.capture(lambda x: (x * 2.0).to("cpu") + 1.0)
    for _ in range(2):
        with raises(fp.errors.CaptureError, "two devices", "cpu", "plain"):
            captured(on("plain", ROW))
    assert (on("plain", ROW) + on("plain", ROW)).device == "plain"  # no recorder is left behind


def test_arguments_of_a_captured_step_stay_on_their_device():
    captured = fp.capture(lambda x, y: x * 2.0 + y)
    for _ in range(3):
        assert captured(on("plain", A), ROW).device == "plain"  # an array goes where the tensors are
        assert captured(on("cpu", A), ROW).device == "cpu"


def test_arrays_alone_do_not_say_where_the_model_is():
    """They go to the default device; then the step says that there are two."""
    w = fp.Parameter(on("plain", ROW))
    captured = fp.capture(lambda x: w * x)
    with raises(fp.DeviceError, "mul: operands are on two devices", "cpu, plain"):
        captured(A)
    assert [captured(on("plain", A)).device for _ in range(3)] == [fp.device("plain")] * 3


# ---- a device of one's own --------------------------------------------------------------------------------------------------------------
@pytest.fixture
def own(monkeypatch):
    """A device that its user made, which nobody knows yet."""
    monkeypatch.setattr(seam, "_devices", dict(seam._devices))
    made = PlainDevice()
    made.name = "own"
    return made


def test_a_registered_device_is_known_by_its_name(own):
    with raises(fp.DeviceError, "no backend", "own"):
        fp.device("own")
    assert base.register(own) is own is fp.device("own") and base.register(own) is own
    assert (on("cpu", ROW).to("own") * 2.0).device == "own"
    for name in ("own", "cpu", "cuda:7"):
        taken = PlainDevice()
        taken.name = name
        with raises(fp.DeviceError, "taken", name):
            base.register(taken)


def test_a_captured_step_needs_a_registered_device(own):
    captured = fp.capture(lambda x: (x * 2.0).tanh())
    x = fp.tensor([[1.0, 2.0]], device=own)
    with raises(fp.errors.CaptureError, "own", "register"):
        captured(x)
    base.register(own)
    assert all(np.array_equal(captured(x).numpy(), (x * 2.0).tanh().numpy()) for _ in range(3)) and captured.program is not None
