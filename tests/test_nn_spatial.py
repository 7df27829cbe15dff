"""Layers of convolutions, pools and resampling beside PyTorch's: the same state dict, the same results, the same refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flamepy as fp
from flamepy import nn

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:Using padding=.same.:UserWarning")
LINES, IMAGES, VOLUMES = (2, 4, 9), (2, 4, 7, 6), (1, 4, 4, 5, 4)
LAYERS: list[tuple[str, tuple, dict[str, Any], tuple[int, ...]]] = [
    ("Conv1d", (4, 6, 3), {"stride": 2, "padding": 1}, LINES), ("Conv1d", (4, 6, 2), {"padding": "same", "bias": False}, LINES),
    ("Conv2d", (4, 6, (3, 2)), {"groups": 2, "dilation": 2}, IMAGES), ("Conv2d", (4, 6, 2), {"padding": "same"}, IMAGES),
    ("Conv3d", (4, 2, 2), {"padding": (1, 0, 1)}, VOLUMES),
    ("ConvTranspose1d", (4, 6, 3), {"stride": 2, "output_padding": 1}, LINES),
    ("ConvTranspose2d", (4, 6, (3, 2)), {"groups": 2, "dilation": 2, "bias": False}, IMAGES),
    ("ConvTranspose3d", (4, 2, 2), {"stride": 2, "padding": 1}, VOLUMES),
    ("MaxPool1d", (2,), {"ceil_mode": True}, LINES), ("MaxPool2d", (3, 2, 1), {}, IMAGES), ("MaxPool3d", (2,), {"dilation": 2}, VOLUMES),
    ("AvgPool1d", (2,), {"padding": 1, "count_include_pad": False}, LINES), ("AvgPool2d", (2,), {"divisor_override": 3}, IMAGES),
    ("AvgPool3d", (2, 1), {}, VOLUMES), ("LPPool1d", (2, 3), {}, LINES), ("LPPool2d", (2, 3), {}, IMAGES),
    ("LPPool3d", (2, 2), {}, VOLUMES),
    ("AdaptiveAvgPool1d", (4,), {}, LINES), ("AdaptiveAvgPool2d", ((3, None),), {}, IMAGES), ("AdaptiveAvgPool3d", (1,), {}, VOLUMES),
    ("AdaptiveMaxPool1d", (4,), {}, LINES), ("AdaptiveMaxPool2d", ((3, None),), {}, IMAGES), ("AdaptiveMaxPool3d", (1,), {}, VOLUMES),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args", "options", "shape"), LAYERS, ids=lambda value: str(value)[:24])
def test_layer_is_pytorchs(name: str, args: tuple, options: dict[str, Any], shape: tuple[int, ...]) -> None:
    theirs = getattr(torch.nn, name)(*args, **options).double()
    with_device = {"dtype": fp.float64} if list(theirs.parameters()) else {}
    ours = getattr(nn, name)(*args, **options, **with_device)
    ours.load_state_dict({key: value.numpy() for key, value in theirs.state_dict().items()})
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    for own in (shape, shape[1:]):
        x = np.random.default_rng(0).standard_normal(own)
        np.testing.assert_allclose(ours(fp.tensor(x)).numpy(), theirs(torch.tensor(x)).detach().numpy(), 1e-9, 1e-11)
    assert repr(ours).startswith(name)


def test_first_weights_have_pytorchs_bounds() -> None:
    for name in ("Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"):
        ours, theirs = getattr(nn, name)(16, 32, 3, groups=2), getattr(torch.nn, name)(16, 32, 3, groups=2)
        for key, value in theirs.state_dict().items():
            assert ours.state_dict()[key].shape == tuple(value.shape)
            np.testing.assert_allclose(abs(ours.state_dict()[key]).max(), abs(value.numpy()).max(), rtol=0.3)


def test_output_size_of_a_transposed_convolution() -> None:
    ours, theirs = nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1), torch.nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1)
    x = np.ones((1, 2, 4, 5), np.float32)
    for wanted in ((7, 10), (8, 9), (1, 3, 8, 10)):
        assert ours(x, output_size=wanted).shape == tuple(theirs(torch.tensor(x), output_size=wanted).shape)
    with pytest.raises(fp.ShapeError, match=r"output_size is out of reach: \(9, 9\)\. Use from \(7, 9\) to \(8, 10\)"):
        ours(x, output_size=(9, 9))


@pytest.mark.parametrize(("make", "text"), [
    (lambda: nn.Conv2d(3, 4, 3, groups=2), "not multiples of groups"), (lambda: nn.Conv1d(3, 4, (3, 3)), "kernel_size is not an int"),
    (lambda: nn.Conv2d(3, 4, 3, padding_mode="mirror"), "unknown padding_mode"),
    (lambda: nn.ConvTranspose2d(3, 4, 3, padding_mode="reflect"), "unknown padding_mode"),
    (lambda: nn.MaxPool2d((2, 2, 2)), "kernel_size is not an int or a pair"),
])  # fmt: skip
def test_what_is_refused(make: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        make()
