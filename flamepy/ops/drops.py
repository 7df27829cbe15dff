"""Dropout of more than single elements: stochastic depth drops branches of a residual network, DropBlock regions of images."""

from __future__ import annotations

from typing import Any

from ..core.creation import ones
from ..core.errors import DTypeError, ShapeError
from ..core.modes import no_grad
from ..core.ops.axes import composed
from ..core.ops.pointwise import mul, sub, where
from ..core.tensor import Tensor
from ..dtypes import FLOATS, checked_number, float32, is_count
from .pads import pad
from .pools import max_pool2d
from .random import dropped
from .spatial_sizes import published

MODES = ("batch", "row")


def checked_drop(name: str, x: Any, p: Any) -> tuple[Any, float]:
    """A float tensor and a probability."""
    x, p = Tensor.of(name, x), checked_number(name, "p", p)
    if x.dtype not in FLOATS:
        raise DTypeError(f"{name}: not a float tensor: {x.dtype}. Cast it to float32.")
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"{name}: p outside [0, 1]: {p}. Use a probability.")
    return x, p


def drawn(shape: tuple[int, ...], p: float, x: Any) -> Any:
    """Numbers of which each is 0 with probability p, else larger; x: says on what device."""
    with no_grad():
        return dropped(ones(shape, dtype=float32, device=x.device), p) if p > 0 else ones(shape, dtype=float32, device=x.device)


@composed(home="functional")
def stochastic_depth(x: Any, p: float, mode: str, training: bool = True) -> Any:
    """Zero whole samples with probability p and scale the others by 1 / (1 - p), each by itself with mode "row", all or none of the batch
    with mode "batch"; x itself when not training or p is 0.
    (Huang et al. 2016, arXiv:1603.09382; drop_path elsewhere.) For the branch of a residual block: x + stochastic_depth(branch(x), ...).
    The draws depend on the seed and the position alone, as dropout's. Shapes: x (N, ...); the result has that of x. Raises ValueError for p
    outside [0, 1] and another mode, ShapeError for a number.
    >>> F.stochastic_depth(fp.ones(2), 0.5, "row", training=False).tolist()
    [1.0, 1.0]"""
    x, p = checked_drop("stochastic_depth", x, p)
    if mode not in MODES:
        raise ValueError(f"stochastic_depth: unknown mode: {mode!r}. Use 'row' (each sample) or 'batch'.")
    if not x.ndim:
        raise ShapeError(f"stochastic_depth: no axis of samples: shape {x.shape}. Pass (N, ...).")
    if not training or p == 0:
        return x
    keeps = drawn((x.shape[0] if mode == "row" else 1, *[1] * (x.ndim - 1)), p, x)
    return where(keeps > 0.0, mul(x, 0.0 if p == 1 else 1.0 / (1.0 - p)), 0.0)


@composed(home="functional")
def drop_block2d(x: Any, p: float, block_size: int, training: bool = True) -> Any:
    """Zero square regions, of each channel by itself, so that about a share p of all elements is dropped, and scale the others so that
    their count does not matter; x itself when not training or p is 0.
    (Ghiasi et al. 2018, arXiv:1810.12890.) Blocks begin where draws say so and lie inside; one that would be larger than the image is as
    large as it. Shapes: x (N, C, H, W); the result has that of x. Raises ValueError for p outside [0, 1] and a size below 1, ShapeError.
    >>> F.drop_block2d(fp.ones(1, 1, 2, 2), 0.5, 1, training=False).tolist()
    [[[[1.0, 1.0], [1.0, 1.0]]]]"""
    x, p = checked_drop("drop_block2d", x, p)
    if not is_count(block_size, 1):
        raise ValueError(f"drop_block2d: block_size is no count: {block_size!r}. Use an int, 1 or more.")
    if x.ndim != 4:
        raise ShapeError(f"drop_block2d: not images: shape {x.shape}. Pass (N, C, H, W).")
    if not training or p == 0 or not x.size:
        return x
    n, channels, height, width = x.shape
    size = min(int(block_size), height, width)
    places = (height - size + 1) * (width - size + 1)
    begin = min(1.0, p * height * width / (size * size * places))  # how probably a block begins at a place
    with no_grad():
        begins = where(drawn((n, channels, height - size + 1, width - size + 1), 1.0 - begin, x) > 0.0, 1.0, 0.0)
        around = ((0, 0), (0, 0), (size - 1, size - 1), (size - 1, size - 1))
        keeps = sub(1.0, max_pool2d(pad(begins, around), size, 1))
        scale = float(x.size) / (keeps.sum() + 1e-6)
    return where(keeps > 0.0, mul(x, scale.to(x.dtype)), 0.0)


# ---- whole channels, and units that keep mean and variance ---------------------------------------------------------------------------
def channel_drops(op: str) -> Any:
    def drop_channels(x: Any, p: float = 0.5, training: bool = True) -> Any:
        (x, p), axes = checked_drop(op, x, p), int(op[-2])
        if x.ndim not in (axes + 1, axes + 2):
            raise ShapeError(f"{op}: x is not (N, C, ...) or (C, ...) with {axes} more axes: {x.shape}. Reshape it.")
        if not training or p == 0:
            return x
        lead = x.ndim - axes
        keeps = drawn((*x.shape[:lead], *[1] * axes), p, x)
        return where(keeps > 0.0, mul(x, 0.0 if p == 1 else 1.0 / (1.0 - p)), 0.0)

    return drop_channels


dropout1d, dropout2d, dropout3d = published(
    channel_drops,
    dropout1d="""Zero whole channels of lines with probability p, scale the others by 1 / (1 - p). Shapes: (N, C, L) or (C, L), unchanged.
    >>> F.dropout1d(fp.ones(1, 1, 2), 0.5, training=False).tolist()
    [[[1.0, 1.0]]]""",
    dropout2d="""Zero whole channels of images with probability p, scale the others by 1 / (1 - p) (Tompson et al. 2015, arXiv:1411.4280).
    Shapes: (N, C, H, W) or (C, H, W), unchanged. Raises ValueError for p outside [0, 1], ShapeError.
    >>> F.dropout2d(fp.ones(1, 1, 1, 2), 0.5, training=False).tolist()
    [[[[1.0, 1.0]]]]""",
    dropout3d="""Zero whole channels of volumes with probability p, scale the others by 1 / (1 - p).
    Shapes: (N, C, D, H, W) or (C, D, H, W), unchanged.
    >>> F.dropout3d(fp.ones(1, 1, 1, 1, 2), 0.5, training=False).shape
    (1, 1, 1, 1, 2)""",
)


LOWEST = -1.7580993408473766  # of selu: -scale * alpha


def drop_to_lowest(name: str, x: Any, p: Any, training: bool, channels: bool) -> Any:
    x, p = checked_drop(name, x, p)
    if not training or p == 0:
        return x
    if p == 1:
        return mul(x, 0.0)
    if channels and x.ndim < 2:
        raise ShapeError(f"{name}: x is not (N, C, ...): {x.shape}. Reshape it.")
    keeps = drawn((*x.shape[:2], *[1] * (x.ndim - 2)) if channels else x.shape, p, x)
    scale = ((1.0 - p) * (1.0 + p * LOWEST * LOWEST)) ** -0.5
    return where(keeps > 0.0, mul(x, scale), scale * LOWEST) - scale * LOWEST * p


@composed(home="functional")
def alpha_dropout(x: Any, p: float = 0.5, training: bool = False) -> Any:
    """Set elements to the lowest value of selu with probability p, then scale and shift all so that mean 0 and variance 1 stay so.
    (Klambauer et al. 2017, arXiv:1706.02515.) Shapes: any, unchanged. Raises ValueError for p outside [0, 1].
    >>> F.alpha_dropout(fp.ones(2), 0.5, training=False).tolist()
    [1.0, 1.0]"""
    return drop_to_lowest("alpha_dropout", x, p, training, False)


@composed(home="functional")
def feature_alpha_dropout(x: Any, p: float = 0.5, training: bool = False) -> Any:
    """alpha_dropout() of whole channels. Shapes: (N, C, ...), unchanged.
    >>> F.feature_alpha_dropout(fp.ones(1, 2), 0.5, training=False).tolist()
    [[1.0, 1.0]]"""
    return drop_to_lowest("feature_alpha_dropout", x, p, training, True)
