"""nn.utils and first numbers beside PyTorch's: vectors of parameters, normed weights, folded norms, dirac and its like."""

from __future__ import annotations

import copy
import pickle
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from devices import default_device

import flamepy as fp
from flamepy import nn
from flamepy.nn import init, utils

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True, params=["plain", "cpu"])
def on(request: Any) -> Any:
    with default_device(request.param):
        yield request.param


# ---- vectors -----------------------------------------------------------------------------------------------------------------------------
def test_parameters_as_a_vector_and_back() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    vector = utils.parameters_to_vector(model.parameters())
    np.testing.assert_array_equal(vector.numpy(), np.concatenate([p.numpy().ravel() for p in model.parameters()]))
    grads = (vector * vector).sum().backward()
    np.testing.assert_allclose(grads["1.weight"].numpy(), 2 * model[1].weight.numpy())
    utils.vector_to_parameters(np.arange(vector.size, dtype="float32"), model.parameters())
    np.testing.assert_array_equal(utils.parameters_to_vector(model.parameters()).numpy(), np.arange(vector.size))
    with pytest.raises(fp.errors.ShapeError, match=r"\(3,\)"):
        utils.vector_to_parameters(fp.ones(3), model.parameters())
    with pytest.raises(fp.errors.DTypeError, match="Tensor"):
        utils.vector_to_parameters(fp.ones(3), [fp.ones(3)])


def test_clipping_is_flamepys() -> None:
    w = fp.Parameter(fp.tensor([3.0, 4.0]))
    grads = (w * w).sum().backward()
    assert utils.clip_grad_norm_(grads, 1.0) == pytest.approx(10.0)
    assert np.linalg.norm(grads[w].numpy()) == pytest.approx(1.0, rel=1e-5)
    assert utils.clip_grad_value_(grads, 0.5) == pytest.approx(0.8, rel=1e-5)
    with pytest.raises(AttributeError, match="lengths="):
        utils.rnn  # noqa: B018


# ---- normed weights ---------------------------------------------------------------------------------------------------------------------
LAYERS = {
    "linear": lambda n: (n.Linear(3, 4), (5, 3)), "conv": lambda n: (n.Conv2d(3, 4, 3), (2, 3, 5, 5)),
    "transposed": lambda n: (n.ConvTranspose2d(3, 4, 3), (2, 3, 4, 4)),
}  # fmt: skip


def both(name: str, norm: Any, **options: Any) -> tuple[Any, Any, np.ndarray]:
    """(PyTorch's layer, ours with its state, an input)."""
    theirs, shape = LAYERS[name](torch.nn)
    ours, _ = LAYERS[name](nn)
    theirs, ours = norm(torch.nn.utils)(theirs, **options), norm(utils)(ours, **options)
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours, np.random.default_rng(0).normal(size=shape).astype("float32")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("dim", [0, 1, None])
def test_weight_norm_is_pytorchs(name: str, dim: Any) -> None:
    theirs, ours, x = both(name, lambda u: u.weight_norm, dim=dim)
    y, z = theirs(torch.tensor(x)), ours(fp.tensor(x))
    np.testing.assert_allclose(z.numpy(), y.detach().numpy(), 1e-4, 1e-5)
    (y * y).sum().backward()
    grads = (z * z).sum().backward()
    for key, p in theirs.named_parameters():
        np.testing.assert_allclose(grads[key].numpy(), p.grad.numpy(), 1e-3, 1e-3, err_msg=key)
    for twin in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        np.testing.assert_array_equal(twin(fp.tensor(x)).numpy(), z.numpy())
        assert repr(twin) == repr(ours)
    assert utils.remove_weight_norm(ours) is ours and sorted(ours.state_dict()) == ["bias", "weight"]
    np.testing.assert_allclose(ours(fp.tensor(x)).numpy(), z.numpy(), 1e-5, 1e-6)
    with pytest.raises(fp.errors.StateError, match="nothing to remove"):
        utils.remove_weight_norm(ours)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", LAYERS)
def test_spectral_norm_is_pytorchs(name: str) -> None:
    theirs, ours, x = both(name, lambda u: u.spectral_norm, n_power_iterations=2)
    assert sorted(ours.state_dict()) == sorted(theirs.state_dict())
    for _ in range(3):
        y, z = theirs(torch.tensor(x)), ours(fp.tensor(x))
    theirs.eval(), ours.eval()
    np.testing.assert_allclose(ours(fp.tensor(x)).numpy(), theirs(torch.tensor(x)).detach().numpy(), 1e-4, 1e-5)
    np.testing.assert_allclose(z.numpy(), y.detach().numpy(), 1e-4, 1e-5)
    (y * y).sum().backward()
    grads = (z * z).sum().backward()
    for key, p in theirs.named_parameters():
        np.testing.assert_allclose(grads[key].numpy(), p.grad.numpy(), 1e-3, 1e-3, err_msg=key)
    before = ours(fp.tensor(x)).numpy()
    utils.remove_spectral_norm(ours)
    np.testing.assert_allclose(ours(fp.tensor(x)).numpy(), before, 1e-5, 1e-6)
    assert not ours._hooks and sorted(ours.state_dict()) == ["bias", "weight"]


@pytest.mark.parametrize("norm", ["weight_norm", "spectral_norm"])
def test_normed_layers_train_when_captured(norm: str) -> None:
    def trained(step_of: Any) -> list[float]:
        fp.manual_seed(0)
        model = nn.Sequential(getattr(utils, norm)(nn.Linear(3, 8)), nn.ReLU(), getattr(utils, norm)(nn.Linear(8, 1)))
        optimizer = fp.SGD(model, lr=0.1)

        def step(x: Any) -> Any:
            loss = (model(x) - x.sum(axis=1, keepdims=True)).square().mean()
            optimizer.step(loss.backward())
            return loss

        run = step_of(step)
        return [run(fp.tensor(np.random.default_rng(i).normal(size=(4, 3)).astype("float32"))).item() for i in range(7)]

    assert trained(lambda step: step) == trained(fp.capture)


def test_two_calls_before_backward_and_what_is_refused() -> None:
    layer, x = utils.spectral_norm(nn.Linear(3, 4)), fp.randn(2, 3)
    (layer(x) + layer(x * 2)).sum().backward()
    for norm in (utils.spectral_norm, utils.weight_norm):
        with pytest.raises(fp.errors.StateError, match="'weight' of a Linear"):
            norm(layer)
        with pytest.raises(fp.errors.StateError, match="'kernel'"):
            norm(nn.Linear(3, 4), "kernel")
        with pytest.raises(fp.errors.DTypeError, match="list"):
            norm([])


def test_several_weights_of_a_layer_are_normed() -> None:
    layer, x = nn.LSTM(3, 4), fp.randn(5, 2, 3)
    before = layer(x)[0].numpy()
    names = ("weight_hh_l0", "weight_ih_l0")
    for name in names:
        utils.weight_norm(layer, name)
    y, _ = layer(x)
    np.testing.assert_allclose(y.numpy(), before, 1e-5, 1e-6)
    assert {"weight_hh_l0_g", "weight_ih_l0_v"} <= {name for name, _ in y.sum().backward().named_items()}
    utils.remove_weight_norm(layer, names[0])
    utils.spectral_norm(layer, names[0])
    u = layer.weight_hh_l0_u.numpy().copy()
    layer(x)
    assert (layer.weight_hh_l0_u.numpy() != u).any()
    utils.remove_weight_norm(layer, names[1])
    utils.spectral_norm(layer, names[1])
    utils.remove_spectral_norm(layer, names[0])
    assert len(layer._hooks) == 1
    utils.remove_spectral_norm(layer, names[1])
    assert not layer._hooks and type(layer) is nn.LSTM and layer(x)[0].shape == (5, 2, 4)


def test_a_norm_is_folded_into_what_is_before_it() -> None:
    fp.manual_seed(0)
    for layer, norm, fuse, options, shape in (
        (nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), utils.fuse_conv_bn_eval, {}, (2, 3, 5, 5)),
        (nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4, affine=False), utils.fuse_conv_bn_eval, {}, (2, 3, 5, 5)),
        (nn.ConvTranspose2d(3, 4, 3), nn.BatchNorm2d(4), utils.fuse_conv_bn_eval, {"transpose": True}, (2, 3, 5, 5)),
        (nn.Linear(3, 4), nn.BatchNorm1d(4), utils.fuse_linear_bn_eval, {}, (5, 3)),
    ):
        x = fp.randn(*shape)
        norm(layer(x * 2 + 1))
        with pytest.raises(fp.errors.StateError, match="training"):
            fuse(layer, norm, **options)
        layer.eval(), norm.eval()
        np.testing.assert_allclose(fuse(layer, norm, **options)(x).numpy(), norm(layer(x)).numpy(), 1e-4, 1e-5)


# ---- first numbers ------------------------------------------------------------------------------------------------------------------
def test_dirac_eye_and_gains_are_pytorchs() -> None:
    for shape, groups in (((4, 3, 3), 1), ((4, 2, 3, 5), 2), ((2, 3, 1, 2, 3), 1)):
        expected = torch.nn.init.dirac_(torch.empty(shape), groups).numpy()
        np.testing.assert_array_equal(init.dirac(fp.Parameter.zeros(shape), groups).numpy(), expected)
    np.testing.assert_array_equal(init.eye(fp.Parameter.zeros((2, 3))).numpy(), np.eye(2, 3))
    for name in ("linear", "conv1d", "conv_transpose3d", "sigmoid", "tanh", "relu", "leaky_relu", "selu"):
        assert init.calculate_gain(name) == pytest.approx(torch.nn.init.calculate_gain(name))
    assert init.calculate_gain("leaky_relu", 0.3) == pytest.approx(torch.nn.init.calculate_gain("leaky_relu", 0.3))


def test_truncated_and_sparse_numbers() -> None:
    fp.manual_seed(0)
    x = init.trunc_normal(fp.Parameter.zeros((200, 100)), 1.0, 2.0, 0.0, 2.5).numpy()
    assert x.min() >= 0 and x.max() <= 2.5
    normal = NormalDist(1, 2)
    inside = normal.cdf(2.5) - normal.cdf(0)
    for at in (0.5, 1.0, 2.0):
        assert np.mean(x < at) == pytest.approx((normal.cdf(at) - normal.cdf(0)) / inside, abs=0.02)
    y = init.sparse(fp.Parameter.zeros((20, 30)), 0.3).numpy()
    assert ((y == 0).sum(axis=0) == 6).all() and 0.008 < y[y != 0].std() < 0.012
    for call in (lambda p: init.trunc_normal(p, std=0.0), lambda p: init.sparse(p, 1.5)):
        with pytest.raises(ValueError, match="0"):
            call(fp.Parameter.zeros((3, 3)))
    for call in (init.eye, init.dirac, lambda p: init.sparse(p, 0.1)):
        with pytest.raises(fp.errors.ShapeError, match=r"\(3,\)"):
            call(fp.Parameter.zeros((3,)))
