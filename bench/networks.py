"""The networks of suite `step`: shapes, first weights and data (the same in every process), and how much arithmetic a step is.

GPTs are as GPT-2: layer norm first, gelu by tanh, the head tied to the token vectors; AdamW. The LSTM is a language model, too: token
vectors, layers over time (time comes first), a head; AdamW. The MLPs and the digits CNN are rows of
layers; Adam. Weights are named as flamepy and PyTorch both name them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from . import resnets, unets
from .resnets import ResNet
from .unets import UNet

LR = 1e-3
CLIP = 1.0


class Gpt(NamedTuple):
    layers: int
    heads: int
    width: int
    context: int
    batch: int
    vocabulary: int = 65
    decay: float = 0.01


class Lstm(NamedTuple):
    layers: int
    inputs: int
    width: int
    context: int
    batch: int
    vocabulary: int
    decay: float = 0.01


class Row(NamedTuple):
    """Layers one after the other: ("linear", n_in, n_out), ("conv", c_in, c_out) of 3 x 3 with a border, ("relu",), ("pool",) by 2,
    ("flatten",); `shape` is one example's."""

    layers: tuple[tuple, ...]
    shape: tuple[int, ...]
    batch: int
    classes: int = 10
    decay: float = 0.0


Shape = Gpt | Lstm | Row | ResNet | UNet


def mlp(batch: int, *sizes: int) -> Row:
    layers: list[tuple] = []
    for n_in, n_out in itertools.pairwise(sizes):
        layers += [("linear", n_in, n_out), ("relu",)]
    return Row(tuple(layers[:-1]), sizes[:1], batch)


CNN = (
    ("conv", 1, 32), ("relu",), ("conv", 32, 64), ("relu",), ("pool",), ("flatten",), ("linear", 1024, 128), ("relu",), ("linear", 128, 10),
)  # fmt: skip
SHAPES: dict[str, Shape] = {
    "gpt-a": Gpt(4, 4, 128, 64, 12),
    "gpt-b": Gpt(6, 6, 384, 256, 4),
    "gpt-c": Gpt(2, 2, 32, 32, 8),
    "mlp-tiny": mlp(64, 64, 32, 10),
    "mlp-small": mlp(64, 784, 256, 128, 10),
    "mlp-large": mlp(512, 784, 1024, 1024, 10),
    "resnet": ResNet(32, 16),  # half of its channels: the oracle takes a minute as it is
    "u-net": UNet(32, 4),
    "digits-cnn": Row(CNN, (1, 8, 8), 64),
    "lstm": Lstm(2, 128, 256, 64, 16, 2000),
}


def sizes(shape: Shape) -> Iterator[tuple[str, tuple[int, ...]]]:
    """(name, shape) of every parameter."""
    if isinstance(shape, ResNet):
        yield from resnets.sizes(shape)
        return
    if isinstance(shape, UNet):
        yield from unets.sizes(shape)
        return
    if isinstance(shape, Row):
        for i, (kind, *ends) in enumerate(shape.layers):
            if ends:
                yield f"{i}.weight", (ends[1], ends[0], 3, 3) if kind == "conv" else (ends[1], ends[0])
                yield f"{i}.bias", (ends[1],)
        return
    width = shape.width
    if isinstance(shape, Lstm):
        yield "token.weight", (shape.vocabulary, shape.inputs)
        for i in range(shape.layers):
            yield f"lstm.weight_ih_l{i}", (4 * width, width if i else shape.inputs)
            yield f"lstm.weight_hh_l{i}", (4 * width, width)
            yield f"lstm.bias_ih_l{i}", (4 * width,)
            yield f"lstm.bias_hh_l{i}", (4 * width,)
        yield "head.weight", (shape.vocabulary, width)
        yield "head.bias", (shape.vocabulary,)
        return
    yield "token.weight", (shape.vocabulary, width)
    yield "position.weight", (shape.context, width)
    for i in range(shape.layers):
        for name, n_out, n_in in (("attn.qkv", 3 * width, width), ("attn.proj", width, width), ("mlp.0", 4 * width, width)):
            yield f"blocks.{i}.{name}.weight", (n_out, n_in)
            yield f"blocks.{i}.{name}.bias", (n_out,)
        yield f"blocks.{i}.mlp.2.weight", (width, 4 * width)
        for name in ("mlp.2.bias", "norm1.weight", "norm1.bias", "norm2.weight", "norm2.bias"):
            yield f"blocks.{i}.{name}", (width,)
    yield "norm.weight", (width,)
    yield "norm.bias", (width,)


def weights(shape: Shape) -> dict[str, np.ndarray]:
    """Norms start at 1, biases at 0, a GPT's matrices normal with deviation 0.02, others uniform in +-1 / sqrt(inputs)."""
    random, found = np.random.default_rng(0), {}
    for name, size in sizes(shape):
        if len(size) == 1:
            found[name] = np.full(size, float("norm" in name and name.endswith("weight")), np.float32)
        elif isinstance(shape, Gpt):
            found[name] = random.standard_normal(size, np.float32) * np.float32(0.02)
        else:
            bound = 1 / math.sqrt(math.prod(size[1:]))
            found[name] = random.uniform(-bound, bound, size).astype(np.float32)
    return found


def batch(shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and class ids; a GPT's inputs are ids (batch, context), an LSTM's (context, batch), their classes are flat."""
    random = np.random.default_rng(1)
    if isinstance(shape, Gpt):
        ids = random.integers(0, shape.vocabulary, (2, shape.batch, shape.context))
        return ids[0], ids[1].reshape(-1)
    if isinstance(shape, Lstm):
        ids = random.integers(0, shape.vocabulary, (2, shape.context, shape.batch))
        return ids[0], ids[1].reshape(-1)
    if isinstance(shape, UNet):  # a class for each pixel
        pixels = shape.batch * shape.size**2
        return random.standard_normal((shape.batch, *shape.shape), np.float32), random.integers(0, shape.classes, pixels)
    return random.standard_normal((shape.batch, *shape.shape), np.float32), random.integers(0, shape.classes, shape.batch)


def flops(shape: Shape) -> float:
    """Of the matrix products of a step: forward once, backward twice (no gradient for the data; half the scores are masked)."""
    if isinstance(shape, ResNet):
        return resnets.flops(shape)
    if isinstance(shape, UNet):
        return unets.flops(shape)
    if isinstance(shape, Gpt):
        products = shape.layers * 12 * shape.width**2 + shape.vocabulary * shape.width
        scores = shape.layers * shape.context * shape.width
        return 6.0 * shape.batch * shape.context * (products + scores)
    if isinstance(shape, Lstm):
        each = [4 * shape.width * (shape.width + (shape.width if i else shape.inputs)) for i in range(shape.layers)]
        return 6.0 * shape.batch * shape.context * (sum(each) + shape.vocabulary * shape.width)
    total, places = 0.0, math.prod(shape.shape[1:])
    for i, (kind, *ends) in enumerate(shape.layers):
        if kind == "pool":
            places //= 4
        if ends:
            passes = 4 if i == 0 else 6
            total += passes * shape.batch * ends[0] * ends[1] * (9 * places if kind == "conv" else 1)
    return total


def sequential(nn: Any, shape: Row | ResNet) -> Any:
    """The row of layers, or the residual network, from flamepy.nn or torch.nn, which agree on the names."""
    if isinstance(shape, ResNet):
        return resnets.model(nn, shape)
    make = {
        "linear": nn.Linear, "relu": nn.ReLU, "flatten": nn.Flatten, "pool": lambda: nn.MaxPool2d(2),
        "conv": lambda c_in, c_out: nn.Conv2d(c_in, c_out, 3, padding=1),
    }  # fmt: skip
    return nn.Sequential(*[make[kind](*ends) for kind, *ends in shape.layers])
