"""Layers of convolutions, pools and resampling beside PyTorch's: the same state dict, the same results, the same refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flamepy as fp
import flamepy.nn.functional as F
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
    ("Conv1d", (4, 6, 3), {"padding": 2, "padding_mode": "circular"}, LINES),
    ("Conv2d", (4, 6, (3, 2)), {"padding": "same", "padding_mode": "reflect", "dilation": 2}, IMAGES),
    ("Conv3d", (4, 2, 2), {"padding": (1, 0, 2), "padding_mode": "replicate", "stride": 2}, VOLUMES),
    ("Upsample", ((5, 9),), {}, IMAGES), ("Upsample", (), {"scale_factor": 1.5, "mode": "bilinear", "align_corners": True}, IMAGES),
    ("UpsamplingNearest2d", (), {"scale_factor": 2}, IMAGES), ("UpsamplingBilinear2d", (5,), {}, IMAGES),
    ("PixelShuffle", (2,), {}, IMAGES), ("PixelUnshuffle", (1,), {}, IMAGES), ("ChannelShuffle", (2,), {}, IMAGES),
    ("Unfold", (2,), {"padding": 1, "stride": (1, 2)}, IMAGES), ("Fold", ((4, 4), (2, 2)), {}, LINES),
    *[(f"{kind}Pad{n}d", ((1, 2, 0, 1, 2, 1)[:2 * n],), {}, (LINES, IMAGES, VOLUMES)[n - 1])
      for kind in ("Zero", "Reflection", "Replication", "Circular") for n in (1, 2, 3)],
    ("ConstantPad1d", (2, 1.5), {}, LINES), ("ConstantPad2d", ((1, -1, 0, 2), 1.5), {}, IMAGES), ("ConstantPad3d", (1, -2.0), {}, VOLUMES),
    ("Unflatten", (1, (2, 2)), {}, IMAGES), ("Identity", (3,), {"a": 1}, IMAGES),
    *[(name, (0.5,), {}, IMAGES) for name in ("Dropout2d", "AlphaDropout", "FeatureAlphaDropout")],
    ("AdaptiveMaxPool1d", (4,), {}, LINES), ("AdaptiveMaxPool2d", ((3, None),), {}, IMAGES), ("AdaptiveMaxPool3d", (1,), {}, VOLUMES),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args", "options", "shape"), LAYERS, ids=lambda value: str(value)[:24])
def test_layer_is_pytorchs(name: str, args: tuple, options: dict[str, Any], shape: tuple[int, ...]) -> None:
    theirs = getattr(torch.nn, name)(*args, **options).double().eval()
    with_device = {"dtype": fp.float64} if list(theirs.parameters()) else {}
    ours = getattr(nn, name)(*args, **options, **with_device)
    ours.eval().load_state_dict({key: value.numpy() for key, value in theirs.state_dict().items()})
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    whole = name in (
        "Upsample",
        "UpsamplingNearest2d",
        "UpsamplingBilinear2d",
        "ChannelShuffle",
        "Unflatten",
        "Dropout2d",
        "FeatureAlphaDropout",
    )
    for own in (shape,) if whole else (shape, shape[1:]):
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


@pytest.mark.parametrize("name", ["Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"])
def test_whole_channels_are_dropped(name: str) -> None:
    fp.manual_seed(3)
    layer, axes = getattr(nn, name)(0.25), 2 if name[0] == "F" else int(name[-2])
    x = fp.ones(200, 5, *[2] * axes, requires_grad=True)
    y = layer(x)
    numbers = y.numpy().reshape(1000, -1)
    assert (numbers == numbers[:, :1]).all() and abs((numbers[:, 0] == numbers.max()).mean() - 0.75) < 0.05
    slope = y.sum().backward()[x].numpy().reshape(1000, -1)
    assert ((slope != 0) == (numbers == numbers.max())).all()
    assert layer.eval()(x) is x


def test_alpha_dropout_keeps_mean_and_variance() -> None:
    fp.manual_seed(0)
    y = fp.nn.functional.alpha_dropout(fp.randn(200, 500), 0.3, training=True).numpy()
    assert abs(y.mean()) < 0.02 and abs(y.std() - 1) < 0.02
    assert not fp.nn.functional.alpha_dropout(fp.ones(3), 1.0, training=True).numpy().any()


def test_bilinear_is_pytorchs() -> None:
    ours, theirs = nn.Bilinear(3, 4, 2, dtype=fp.float64), torch.nn.Bilinear(3, 4, 2).double()
    ours.load_state_dict({key: value.numpy() for key, value in theirs.state_dict().items()})
    x, y = (np.random.default_rng(n).standard_normal((5, n)) for n in (3, 4))
    np.testing.assert_allclose(ours(x, y).numpy(), theirs(torch.tensor(x), torch.tensor(y)).detach().numpy(), 1e-12)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_what_was_pooled_is_put_back(axes: int) -> None:
    shape, options = (2, 3, *[7] * axes), {"kernel_size": 3, "stride": 2, "padding": 1}
    x = np.random.default_rng(axes).standard_normal(shape)
    ours = getattr(nn, f"MaxPool{axes}d")(**options, return_indices=True), getattr(nn, f"MaxUnpool{axes}d")(**options)
    theirs = (getattr(torch.nn, f"MaxPool{axes}d")(**options, return_indices=True), getattr(torch.nn, f"MaxUnpool{axes}d")(**options))
    for size in (None, (*shape[:2], *[8] * axes)):
        y, z = (un(*pool(t), output_size=size) for (pool, un), t in ((ours, fp.tensor(x)), (theirs, torch.tensor(x))))
        np.testing.assert_allclose(y.numpy(), z.numpy(), 1e-15)
    with pytest.raises(fp.ShapeError, match="output_size is out of reach"):
        ours[1](*ours[0](fp.tensor(x)), output_size=(9,) * axes)
    with pytest.raises(fp.IndexOutOfRange, match="index out of range"):
        ours[1](fp.ones(1, *[1] * axes), fp.full((1, *[1] * axes), 4**axes, dtype=fp.int64)).numpy()


class Everything(nn.Module):
    """Layers and functions whose matrices are on the device before a step is recorded."""

    def __init__(self) -> None:
        self.conv, self.turned = nn.Conv2d(2, 4, 3, padding=1, padding_mode="reflect"), nn.ConvTranspose1d(4, 3, 3, stride=2)
        self.deep = nn.Conv3d(1, 2, 2)

    def forward(self, x: Any) -> Any:
        y = F.interpolate(self.conv(x), scale_factor=1.5, mode="bilinear")
        y = F.avg_pool2d(y, 3, 2, 1, ceil_mode=True, count_include_pad=False)
        y = F.max_unpool2d(*F.max_pool2d(y, 2, 1, return_indices=True), 2, 1) + F.adaptive_avg_pool2d(y, y.shape[2:])
        n = len(y)
        grid = F.affine_grid(fp.tensor(np.tile(np.eye(2, 3, dtype=np.float32), (n, 1, 1))), (n, 1, 3, 3))
        parts = self.turned(y.reshape((n, 4, -1))), self.deep(y.reshape((n, 1, *y.shape[1:]))), F.grid_sample(y, grid)
        return sum([part.square().mean() for part in (*parts, F.fold(F.unfold(y, 2), y.shape[2:], 2))])


def test_a_captured_step_is_the_eager_one_bit_for_bit() -> None:
    found = []
    for capture in (lambda step: step, lambda step: fp.capture(step, verify=2)):
        fp.manual_seed(1)
        model, random = Everything(), np.random.default_rng(3)
        optimizer = fp.Adam(model, lr=1e-2)

        def step(x: Any, model: Any = model, optimizer: Any = optimizer) -> Any:
            loss = model(x)
            optimizer.step(loss.backward())
            return loss

        run = capture(step)
        batches = [random.standard_normal((2 if i % 4 else 3, 2, 6, 5), np.float32) for i in range(9)]
        found.append([run(fp.tensor(x)).item() for x in batches])
    assert found[0] == found[1]


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic"])
def test_bytes_are_resized_as_pytorchs(mode: str) -> None:
    x = np.random.default_rng(0).integers(0, 256, (2, 3, 24, 20)).astype(np.uint8)
    for size in ((10, 31), (24, 5), (48, 40)):
        ours, theirs = F.interpolate(fp.tensor(x), size, mode=mode), torch.nn.functional.interpolate(torch.tensor(x), size, mode=mode)
        assert ours.dtype == np.uint8
        apart = abs(ours.numpy().astype(int) - theirs.numpy())
        assert apart.max() <= (mode == "bicubic") and apart.mean() < 0.05


def test_integers_are_pooled_and_moved() -> None:
    x = np.arange(48).reshape(1, 2, 4, 6) % 7
    for ours, theirs in (
        (lambda t: F.max_pool2d(t, 2, padding=1), lambda t: torch.nn.functional.max_pool2d(t, 2, padding=1)),
        (lambda t: F.channel_shuffle(t, 2), lambda t: torch.nn.functional.channel_shuffle(t, 2)),
        (lambda t: F.pixel_unshuffle(t, 2), lambda t: torch.nn.functional.pixel_unshuffle(t, 2)),
    ):
        y = ours(fp.tensor(x))
        assert y.dtype == np.int64
        np.testing.assert_array_equal(y.numpy(), theirs(torch.tensor(x)).numpy())
