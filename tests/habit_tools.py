"""A small model, numbers for it and what tests of habits, rates, accumulation and averages do with it."""

from __future__ import annotations

from typing import Any

import numpy as np

import flamepy as fp
from flamepy import nn

W, B = np.linspace(-1, 1, 6, dtype="f4").reshape(3, 2), np.float32([0.5, -0.25])
X = np.random.default_rng(0).standard_normal((6, 5, 3)).astype("f4")


class Net(nn.Module):
    def __init__(self) -> None:
        self.weight, self.bias = fp.Parameter(W), fp.Parameter(B)

    def forward(self, x: Any) -> Any:
        return (x @ self.weight + self.bias).square().mean()


def micro(net: Net, packed: bool = False) -> list[fp.GradientMap]:
    if packed:
        net.params.pack()
    return [net(fp.tensor(x)).backward() for x in X[:4]]


def bits(net: Net) -> list[bytes]:
    return [p.numpy().tobytes() for p in net.parameters()]
