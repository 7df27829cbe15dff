"""A small model and numbers for it, which tests of habits and of rates share."""

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
