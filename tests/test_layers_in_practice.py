"""What people do with layers and optimizers who come from PyTorch: layers exchanged and taken out, options in the wrong place, a step that
was captured before something changed. Oracles: PyTorch; eager for what is captured.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from devices import default_device
from error_text import raises

import flamepy as fp
import flamepy.nn.functional as F
from flamepy import nn

RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 3)).astype("f4")


@pytest.fixture(autouse=True)
def plain() -> Iterator[None]:
    with default_device("plain"):
        yield


# ---- containers ------------------------------------------------------------------------------------------------------------------------
def surgery(of: Any, lib: Any) -> Iterator[Any]:
    of[1] = lib.Tanh()
    yield of
    of[-1] = lib.Linear(2, 5)
    yield of
    of.insert(0, lib.Linear(3, 3))
    yield of
    of.insert(-1, lib.Tanh())
    yield of
    del of[0]
    yield of
    of.extend([lib.ReLU(), lib.Linear(5, 1)])
    yield of
    del of[-2:]
    yield of


def test_layers_are_exchanged_put_in_and_taken_out() -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = [lib.Sequential(lib.Linear(3, 2), lib.ReLU(), lib.Linear(2, 2)) for lib in (nn, torch.nn)]
    captured = fp.capture(ours)
    for a, b in zip(surgery(ours, nn), surgery(theirs, torch.nn), strict=True):
        assert list(a.state_dict()) == list(b.state_dict())
        assert [p.name for p in a.parameters()] == [name for name, _ in b.named_parameters()]
        nn.from_torch(a, b.state_dict())
        for _ in range(3):
            assert np.allclose(captured(fp.tensor(X)).numpy(), b(torch.tensor(X)).detach().numpy(), atol=1e-6)


def test_what_containers_refuse_changes_nothing() -> None:
    layers = nn.ModuleList([nn.Tanh(), nn.ReLU()])
    before = list(layers)
    with raises(TypeError, "ModuleList: not a Module"):
        layers[0] = 3
    with raises(TypeError, "ModuleList: not a Module: int"):
        layers.insert(0, 3)
    with raises(TypeError, "ModuleList: not a list of Modules: int"):
        layers.extend(3)
    with raises(fp.IndexOutOfRange, "ModuleList: index out of range: 2 of 2 modules"):
        layers[2] = nn.ReLU()
    with raises(fp.IndexOutOfRange, "ModuleList: index out of range: -3 of 2 modules"):
        del layers[-3]
    assert list(layers) == before


# ---- arguments -------------------------------------------------------------------------------------------------------------------------
FLAGS: dict[str, tuple[Callable[[], Any], str]] = {
    "dropout in the place of batch_first": (lambda: nn.GRU(4, 5, 2, True, 0.5), "GRU: batch_first is no yes or no: 0.5"),
    "dtype in the place of bias": (lambda: nn.Linear(3, 3, fp.float32), "Linear: bias is no yes or no: dtype"),
    "affine": (lambda: nn.BatchNorm1d(3, 1e-5, 0.1, "no"), "BatchNorm1d: affine is no yes or no: 'no'"),
    "statistics": (lambda: nn.InstanceNorm1d(3, track_running_stats="no"), "InstanceNorm1d: track_running_stats is no yes or no"),
    "groups": (lambda: nn.GroupNorm(1, 3, affine=2), "GroupNorm: affine is no yes or no: 2"),
    "convolution": (lambda: nn.Conv1d(1, 1, 1, bias="x"), "Conv1d: bias is no yes or no: 'x'"),
    "cell": (lambda: nn.LSTMCell(1, 1, "x"), "LSTMCell: bias is no yes or no: 'x'"),
    "attention": (lambda: nn.MultiheadAttention(4, 2, 0.0, True, batch_first="x"), "MultiheadAttention: batch_first is no yes or no"),
    "norm first": (lambda: nn.TransformerEncoderLayer(4, 2, norm_first="no"), "TransformerEncoderLayer: norm_first is no yes or no"),
    "norm of queries": (lambda: nn.MultiHeadAttention(4, 2, qk_norm="x"), "MultiHeadAttention: qk_norm is no yes or no: 'x'"),
    "no iterations": (lambda: nn.utils.spectral_norm(nn.Linear(1, 1), n_power_iterations=0), "spectral_norm: n_power_iterations is not a"),
    "a module": (lambda: nn.utils.parameters_to_vector(nn.ModuleList([nn.ReLU()])), "parameters_to_vector: not a Parameter: ReLU"),
    "decay": (lambda: fp.Prodigy(nn.Linear(1, 1), decouple="no"), "Prodigy: decouple is no yes or no: 'no'"),
    "mode": (lambda: fp.SGDScheduleFree(nn.Linear(1, 1)).train("no"), "SGDScheduleFree.train: no yes or no: 'no'"),
    "numbers": (lambda: nn.utils.parameters_to_vector([1.0]), "parameters_to_vector: not a Parameter: float"),
    "use_reentrant": (lambda: fp.checkpoint(nn.ReLU(), fp.tensor(X), use_reentrant=False), "checkpoint: an option of PyTorch's: use_re"),
}


@pytest.mark.parametrize("case", FLAGS)
def test_arguments_that_are_of_another_place_are_refused(case: str) -> None:
    call, text = FLAGS[case]
    with raises((fp.DTypeError, fp.ShapeError, TypeError), text):
        call()
    assert nn.GRU(4, 5, 1, 1, np.True_).bias_ih_l0 is not None  # 0 and 1 do


def test_a_weight_that_is_made_is_not_set() -> None:
    layer = nn.utils.weight_norm(nn.Linear(3, 2))
    with raises(fp.StateError, "Linear: made of other parameters at each call, and not set: weight. Remove the norm first."):
        layer.weight = fp.Parameter.ones((2, 3))
    assert nn.utils.remove_weight_norm(layer).weight.shape == (2, 3)


def test_what_is_set_on_a_recurrent_layer_counts() -> None:
    for layer in (nn.RNN(3, 2), nn.RNNCell(3, 2)):
        first = layer(fp.tensor(X))
        layer.nonlinearity = "relu"
        y = layer(fp.tensor(X))
        y, first = (t[0] if isinstance(t, tuple) else t for t in (y, first))
        assert (y.numpy() != first.numpy()).any() and (y.numpy() >= 0).all()
        layer.nonlinearity = "sin"
        with raises(ValueError, "unknown nonlinearity: 'sin'"):
            layer(fp.tensor(X))


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool"])
@pytest.mark.parametrize("weights", [(True, True), (True, False), (False, True), (False, False)])
def test_norms_of_integers_are_those_of_floats(dtype: str, weights: tuple[bool, bool]) -> None:
    x = fp.tensor(np.arange(24).reshape(2, 4, 3).astype(dtype))
    weight, bias = [fp.tensor(np.arange(4.0) + 0.5) if given else None for given in weights]  # float64
    wide = fp.float64 if any(weights) else fp.float32
    for norm in (lambda x: F.group_norm(x, 2, weight, bias), lambda x: F.instance_norm(x, None, None, weight, bias)):
        assert norm(x).dtype == wide
        assert (norm(x).numpy() == norm(x.to(wide)).numpy()).all()


LAYERS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "GRUCell": (lambda: nn.GRUCell(3, 2), (4, 3)), "MultiHeadAttention": (lambda: nn.MultiHeadAttention(4, 2), (2, 3, 4)),
    "TransformerBlock": (lambda: nn.TransformerBlock(4, 2, causal=True), (2, 3, 4)),
    "RotaryEmbedding": (nn.RotaryEmbedding, (2, 3, 4)), "LSTM": (lambda: nn.LSTM(3, 2), (4, 2, 3)),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_layers_take_lists_and_refuse_none(name: str) -> None:
    make, shape = LAYERS[name]
    layer, x = make(), RNG.normal(size=shape).astype("f4")
    found, wanted = [y[0] if isinstance(y, tuple) else y for y in (layer(x.tolist()), layer(fp.tensor(x)))]
    assert (found.numpy() == wanted.numpy()).all()
    with raises((fp.DTypeError, fp.ShapeError), "None"):
        layer(None)


# ---- a captured step, and what changes -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("change", [{"rho": 0.5}, {"adaptive": True}])
def test_a_captured_step_goes_as_far_up_as_sam_says_now(change: dict[str, Any]) -> None:
    models = [nn.Linear(3, 1)]
    models.append(copy.deepcopy(models[0]))
    sams = [fp.SAM(fp.SGD(m, lr=0.1), 0.05) for m in models]

    def step_of(i: int) -> Callable[[], Any]:
        def loss() -> Any:
            return (models[i](fp.tensor(X)) ** 4).mean()

        return lambda: sams[i].step(loss)

    eager, captured = step_of(0), fp.capture(step_of(1))
    for step in range(6):
        if step == 3:
            for sam in sams:
                vars(sam).update(change)
        assert eager().item() == captured().item()
    assert (models[0].weight.numpy() == models[1].weight.numpy()).all()


@pytest.mark.parametrize("around", [False, True])
def test_find_lr_puts_running_statistics_back(around: bool) -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    optimizer = fp.SGD(model, lr=0.1)
    sam = fp.SAM(optimizer)
    before = model.state_dict()

    def loss() -> Any:
        return (model(fp.tensor(X)) ** 4).mean()

    def step() -> Any:
        y = loss()
        optimizer.step(y.backward())
        return y

    fp.find_lr((lambda: sam.step(loss)) if around else step, sam if around else optimizer, steps=5)
    for name, value in model.state_dict().items():
        assert (value == before[name]).all(), name


# ---- autocast --------------------------------------------------------------------------------------------------------------------------
def test_autocast_blocks_of_generators_end_in_any_order() -> None:
    def block() -> Iterator[Any]:
        with fp.autocast(fp.bfloat16):
            yield (fp.tensor(X) @ fp.tensor(X.T)).dtype

    first, second = block(), block()
    assert next(first) == next(second) == fp.bfloat16
    first.close()
    second.close()
    with fp.autocast(fp.float16, enabled=False), fp.autocast(fp.float16):  # somebody has a block open: what was left would be read
        third = block()
        next(third)
    assert fp.engine.autocast.here.dtype == fp.bfloat16  # the third one's, which is open
    third.close()
    assert fp.engine.autocast.here.dtype is None


def test_what_is_an_optimizers_or_a_layers_own_is_as_exact_in_autocast() -> None:
    inside, outside = [nn.utils.spectral_norm(nn.Linear(3, 4)) for _ in range(2)]
    outside.load_state_dict(inside.state_dict())
    steps = [fp.Muon([m.weight_orig], lr=0.1) for m in (inside, outside)]
    grads = [(m.weight_orig**3).sum().backward() for m in (inside, outside)]
    with fp.autocast(fp.bfloat16):
        inside(fp.tensor(X))
        steps[0].step(grads[0])
    outside(fp.tensor(X))
    steps[1].step(grads[1])
    for name, value in outside.state_dict().items():
        assert (inside.state_dict()[name] == value).all(), name


# ---- metrics, policies, privacy -------------------------------------------------------------------------------------------------------
def test_no_tokens_change_no_metric_and_nan_stays_nan() -> None:
    perplexity = fp.metrics.Perplexity()
    perplexity.update_loss(2.0, 10)
    perplexity.update_loss(math.nan, 0)  # the mean of no losses
    assert perplexity.compute() == math.exp(2.0)
    perplexity.update_loss(math.nan, 1)
    assert math.isnan(perplexity.compute())
    perplexity.reset()
    perplexity.update_loss(1e4, 1)
    assert perplexity.compute() == math.inf


def test_entropy_of_a_policy_that_may_not_do_all() -> None:
    torch = pytest.importorskip("torch")
    scores = np.where(np.eye(4, 6, dtype=bool), -np.inf, RNG.normal(size=(4, 6))).astype("f4")
    ours, theirs = fp.Parameter(fp.tensor(scores)), torch.tensor(scores, requires_grad=True)
    y = torch.distributions.Categorical(logits=theirs).entropy()
    y.sum().backward()
    assert np.allclose(F.entropy(ours).numpy(), y.detach().numpy(), atol=1e-6)
    assert np.allclose(F.entropy(ours).sum().backward()[ours].numpy(), theirs.grad.numpy(), atol=1e-6)


def test_batch_norm_that_trains_is_not_private() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    loss = lambda x: model(x).sum()
    with raises(fp.GradientError, "private_gradients: running statistics see all samples, without a bound: BatchNorm1d. Use GroupNorm"):
        fp.private_gradients(model, loss, fp.tensor(X))
    assert (model[1].running_mean.numpy() == 0).all()
    model[1].eval()
    assert len(fp.private_gradients(model, loss, fp.tensor(X))) == 4
