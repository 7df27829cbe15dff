"""Every program of FLAME's autograd documentation, line by line in Python, with the numbers they must give.

Rust's `&x.id()` is `x.id`, an Option is a value or None, `for (id, g) in map.iter_mut()` assigns to the map. Oracle: NumPy in float64.
"""

from __future__ import annotations

import numpy as np
import pytest

import flamepy as fp
from flamepy import ParameterDict, Tensor, nn
from flamepy.autograd import AutogradContext, AutogradEngine, Op, TapeEntry
from flamepy.gradient import GradientMap
from flamepy.gradient_checkpointing import checkpoint
from flamepy.gradient_clip import clip_grad_norm, clip_grad_value
from flamepy.optimizers import Adam, AdamConfig
from flamepy.parameter import Parameter
from flamepy.tensor_grad import TensorGradExt

DEVICE = fp.device("plain")
RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((8, 3)).astype("f4"), RNG.standard_normal((8, 2)).astype("f4")


def tensor(data):
    return fp.tensor(np.asarray(data, "f4"), device=DEVICE)


class MSE:
    def forward(self, output, target):
        return (output - target).square().mean()


class Model:
    def __init__(self):
        fp.manual_seed(0)
        self.linear1, self.linear2 = nn.Linear(3, 4, device=DEVICE), nn.Linear(4, 2, bias=False, device=DEVICE)

    def forward(self, x):
        return self.linear2(self.linear1(x).tanh())

    def parameters(self):
        params = []
        params.append(self.linear1.weight)
        if self.linear1.bias is not None:
            params.append(self.linear1.bias)
        params.append(self.linear2.weight)
        return params

    def zero_grad(self):
        for param in self.parameters():
            param.zero_grad()

    def arrays(self):
        return [p.numpy().astype("f8") for p in self.parameters()]


def loss_and_gradients(arrays, x, y):
    """The model and its derivative by hand."""
    w, b, v = arrays
    h = np.tanh(x @ w.T + b)
    d = h @ v.T - y
    g = 2 * d / d.size
    back = (g @ v) * (1 - h * h)
    return (d * d).mean(), [back.T @ x, back.sum(0), g.T @ h]


def close(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=1e-6)


# ---- parameters ------------------------------------------------------------------------------------------------------------------
def test_creating_parameters():
    weight = Parameter.randn((400, 5), mean=0.0, std=0.02, device=DEVICE)
    bias = Parameter.zeros((400,), device=DEVICE)
    param = Parameter(Tensor.randn((2, 3), 0.0, 0.02, DEVICE))
    assert 0.018 < weight.numpy().std() < 0.022 and not bias.numpy().any() and param.shape == (2, 3)
    assert {p.device for p in (weight, bias, param)} == {DEVICE} and all(p.requires_grad for p in (weight, bias, param))


def test_parameter_operations():
    param = Parameter(tensor([1.0, 2.0]))
    value, number = param.tensor(), param.id
    assert value.tolist() == [1, 2] and param.requires_grad and param.grad is None
    param.set_grad(tensor([0.5, 1.0]))
    param.update(0.1)
    close(param.numpy(), [0.95, 1.9])
    param.apply_update(tensor([1.0, 1.0]))
    close(param.numpy(), [-0.05, 0.9])
    param.zero_grad()
    assert param.grad is None and param.id == number


def test_parameter_collections():
    weight, bias = Parameter.zeros((2, 3), device=DEVICE), Parameter.zeros((2,), device=DEVICE)
    params = ParameterDict()
    params.insert("weight", weight)
    params.insert("bias", bias)
    assert params.get("weight") is weight
    for param in params.parameters():
        param.zero_grad()
    assert [f"Parameter {name}: {param.shape}" for name, param in params.named_parameters()] == [
        "Parameter weight: (2, 3)", "Parameter bias: (2,)",
    ]  # fmt: skip


# ---- engine, recording, backward ---------------------------------------------------------------------------------------------------
def test_setting_up_and_recording():
    autograd, ctx = AutogradEngine(DEVICE), AutogradContext(DEVICE)
    x = Tensor.randn((4, 3), 0.0, 1.0, DEVICE).requires_grad_(True)
    w = Parameter.randn((3, 2), 0.0, 0.02, DEVICE)
    with autograd.record():
        loss = x.matmul(w.tensor()).relu().mean()
    assert [entry.op.title for entry in autograd.tape] == ["matmul", "relu", "mean"] and autograd.tape_len() == 3
    assert all(isinstance(entry, TapeEntry) and isinstance(entry.op, Op) for entry in autograd.tape)
    grads = autograd.backward(loss)
    a, b = x.numpy().astype("f8"), w.numpy().astype("f8")
    mask = (a @ b > 0) / 8
    close(grads.get(x.id).numpy(), mask @ b.T)
    close(grads.get(w.id).numpy(), a.T @ mask)
    with fp.no_grad():
        assert not (w * 2.0).requires_grad
        with ctx:
            assert (w * 2.0).requires_grad and fp.is_grad_enabled()
        assert not fp.is_grad_enabled()


def test_backward_pass():
    model = Model()
    grads = MSE().forward(model.forward(tensor(X)), tensor(Y)).backward()
    assert isinstance(grads, GradientMap)
    params = ParameterDict({str(i): p for i, p in enumerate(model.parameters())})
    for _, param in params.named_parameters():
        assert param.grad is None if (grad := grads.get(param.id)) is None else param.set_grad(grad.clone()) is None
    for param, wanted in zip(model.parameters(), loss_and_gradients(model.arrays(), X, Y)[1], strict=True):
        close(param.grad.numpy(), wanted)


# ---- gradient management -------------------------------------------------------------------------------------------------------------
def test_gradient_map():
    t = tensor([1.0, 2.0])
    grad_map = GradientMap()
    grad_map.insert(t.id, tensor([3.0, 4.0]))
    assert grad_map.get(t.id).tolist() == [3, 4]
    grad_map.accumulate(t.id, tensor([1.0, 1.0]))
    assert grad_map.get(t.id).tolist() == [4, 5]


def test_tensor_grad_ext():
    x, other = tensor([1.0, 2.0]).requires_grad_(True), tensor([0.0])
    grads = (x * x).sum().backward()
    assert TensorGradExt.grad(x, grads) is grads.get(x) and TensorGradExt.grad(other, grads) is None
    assert x.has_grad(grads) and not other.has_grad(grads) and other.take_grad(grads) is None
    assert x.take_grad(grads).tolist() == [2, 4] and not x.has_grad(grads) and len(grads) == 0


def test_gradient_operations():
    p = Parameter(tensor([3.0, 4.0]))
    grads = (p.tensor() * tensor([3.0, 4.0])).sum().backward()
    assert clip_grad_norm(grads, max_norm=1.0) == pytest.approx(5.0)
    close(grads.get(p.id).numpy(), [0.6, 0.8])
    clip_grad_value(grads, 0.7)
    close(grads.get(p.id).numpy(), [0.6, 0.7])
    p.set_grad(p.detach() - tensor([1.0, 1.0]))  # a gradient computed by hand
    assert p.grad.tolist() == [2, 3]


# ---- training ------------------------------------------------------------------------------------------------------------------------
def adam_by_hand(arrays, steps, batch):
    """Kingma & Ba 2015, with the numbers of AdamConfig's defaults."""
    c = AdamConfig()
    ms, vs = [np.zeros_like(a) for a in arrays], [np.zeros_like(a) for a in arrays]
    for t in range(1, steps + 1):
        _, gs = loss_and_gradients(arrays, *batch)
        ms = [c.betas[0] * m + (1 - c.betas[0]) * g for m, g in zip(ms, gs, strict=True)]
        vs = [c.betas[1] * v + (1 - c.betas[1]) * g * g for v, g in zip(vs, gs, strict=True)]
        corrected = [(m / (1 - c.betas[0] ** t), v / (1 - c.betas[1] ** t)) for m, v in zip(ms, vs, strict=True)]
        arrays = [a - c.lr * m / (np.sqrt(v) + c.eps) for a, (m, v) in zip(arrays, corrected, strict=True)]
    return arrays


def test_basic_training_loop():
    model, criterion = Model(), MSE()
    start = model.arrays()
    optimizer = Adam(AdamConfig())
    for _epoch in range(3):
        for x, y in [(tensor(X), tensor(Y))]:
            model.zero_grad()
            loss = criterion.forward(model.forward(x), y)
            grads = loss.backward()
            param_updates = []
            for param in model.parameters():
                if (grad := grads.get(param.id)) is not None:
                    param.set_grad(grad.clone())
                    param_updates.append((param.id, param, grad))
            optimizer.step(param_updates)
    for found, wanted in zip(model.arrays(), adam_by_hand(start, 3, (X, Y)), strict=True):
        close(found, wanted)


def test_gradient_accumulation():
    model, criterion, accumulation_steps = Model(), MSE(), 4
    accumulated_grads = GradientMap()
    for step in range(accumulation_steps):
        part = slice(2 * step, 2 * step + 2)
        loss = criterion.forward(model.forward(tensor(X[part])), tensor(Y[part]))
        grads = loss.div_scalar(float(accumulation_steps)).backward()
        for tensor_id, grad in grads.items():
            accumulated_grads.accumulate(tensor_id, grad)
    param_updates = []
    for param in model.parameters():
        if (grad := accumulated_grads.get(param.id)) is not None:
            param.set_grad(grad.clone())
            param_updates.append((param.id, param, grad))
    start, wanted = model.arrays(), loss_and_gradients(model.arrays(), X, Y)[1]  # of the eight rows at once
    for (_, param, _), expected in zip(param_updates, wanted, strict=True):
        close(param.grad.numpy(), expected)
    Adam(AdamConfig()).step(param_updates)
    for found, expected in zip(model.arrays(), adam_by_hand(start, 1, (X, Y)), strict=True):
        close(found, expected)


def test_loss_scaling_by_hand():
    model, loss_scale = Model(), 1024.0
    loss = MSE().forward(model.forward(tensor(X)), tensor(Y))
    grads = loss.mul_scalar(loss_scale).backward()
    wanted = loss_and_gradients(model.arrays(), X, Y)[1]
    close(grads[model.linear1.bias].numpy() / 1024, wanted[1])
    for tensor_id, grad in grads.items():  # iter_mut: *grad = grad / loss_scale
        grads[tensor_id] = grad.div_scalar(loss_scale)
    for param, expected in zip(model.parameters(), wanted, strict=True):
        close(grads.get(param.id).numpy(), expected)


# ---- notes ---------------------------------------------------------------------------------------------------------------------------
def test_availability_and_detach():
    x, unused = tensor([2.0]).requires_grad_(True), tensor([1.0]).requires_grad_(True)
    detached = (x * x).detach()
    grads = (detached * x).sum().backward()
    assert grads.get(x.id).tolist() == [4.0] and grads.get(unused.id) is None  # x * x counts as the number 4


def test_gradient_checkpointing():
    model, x = Model(), tensor(X).requires_grad_(True)
    runs = []

    def expensive_forward_pass(given):
        runs.append(1)
        return model.forward(given)

    for closure in (lambda: expensive_forward_pass(x), expensive_forward_pass):
        runs.clear()
        grads = MSE().forward(checkpoint(closure, x), tensor(Y)).backward()
        assert len(runs) == 2 and x in grads
        for param, expected in zip(model.parameters(), loss_and_gradients(model.arrays(), X, Y)[1], strict=True):
            close(grads.get(param.id).numpy(), expected)


# ---- the trainer -----------------------------------------------------------------------------------------------------------------------
class Flux(nn.Module):
    """Stands in for the model: two layers, the time added in between."""

    def __init__(self):
        fp.manual_seed(1)
        self.first, self.second = nn.Linear(3, 4, device=DEVICE), nn.Linear(4, 3, device=DEVICE)

    def forward(self, latents, timesteps):
        return self.second((self.first(latents) + timesteps).tanh())

    def lora_parameters(self):
        return nn.lora_parameters(self)


class FluxLoRATrainer:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def train_step(self, latents, timesteps, noise):
        self.model.zero_grad()
        noise_pred = self.model.forward(latents, timesteps)
        loss = (noise_pred.sub(noise)).square().mean()
        grads = loss.backward()
        param_updates = []
        for _name, param in self.model.lora_parameters():
            if (grad := grads.get(param.id)) is not None:
                param.set_grad(grad.clone())
                param_updates.append((param.id, param, grad))
        self.optimizer.step(param_updates)
        return loss.to_scalar()


def test_lora_trainer_on_a_frozen_base():
    model = Flux()
    base = model.state_dict()
    batch = X, RNG.standard_normal((8, 1)).astype("f4"), RNG.standard_normal((8, 3)).astype("f4")
    nn.lora(model, "*", rank=2)
    start = model.state_dict()
    trainer = FluxLoRATrainer(model, Adam(AdamConfig(lr=0.05)))
    losses = [trainer.train_step(*map(tensor, batch)) for _ in range(20)]
    w, b, v, c = (base[name].astype("f8") for name in ("first.weight", "first.bias", "second.weight", "second.bias"))
    h = np.tanh(batch[0] @ w.T + b + batch[1])
    d = h @ v.T + c - batch[2]
    assert losses[0] == pytest.approx((d * d).mean(), rel=1e-5) and losses[-1] < 0.7 * losses[0]
    now = model.state_dict()
    assert {n for n in now if not np.array_equal(now[n], start[n])} == {"first.A", "first.B", "second.A", "second.B"}
    assert all(np.array_equal(now[n], base[n]) for n in base)
    # the first step of Adam is lr * sign(gradient), here of B by hand
    again = Flux()
    nn.lora(again, "*", rank=2)
    FluxLoRATrainer(again, Adam(AdamConfig(lr=0.05))).train_step(*map(tensor, batch))
    gradient = (2 * d / d.size).T @ (h @ start["second.A"].T.astype("f8"))
    close(again.second.B.numpy(), -0.05 * np.sign(gradient))
