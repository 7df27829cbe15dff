"""What the tests of capture() share: models, batches, ways to clip and to optimize, a whole training step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import flamepy as fp
import flamepy.nn.functional as F
from flamepy import nn


def batches(n: int, seed: int = 0) -> list[tuple[fp.Tensor, fp.Tensor]]:
    draw = np.random.default_rng(seed)
    return [(fp.tensor(draw.standard_normal((16, 12)).astype("f4")), fp.tensor(draw.integers(0, 5, 16))) for _ in range(n)]


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(12, 20), nn.GELU(), nn.LayerNorm(20), nn.Linear(20, 5))

    def forward(self, x: Any) -> Any:
        return self.net(x)


class Dropping(Plain):
    def forward(self, x: Any) -> Any:
        return self.net(F.dropout(x, 0.3, self.training))


class Checkpointed(Dropping):
    def forward(self, x: Any) -> Any:
        return self.net(fp.checkpoint(lambda x: F.dropout(x * x, 0.4).tanh(), x) + F.dropout(x, 0.2))


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.out = nn.Conv2d(1, 4, 3, padding=1), nn.Linear(4 * 3 * 1, 5)

    def forward(self, x: Any) -> Any:
        return self.out(F.max_pool2d(self.conv(x.reshape(16, 1, 6, 2)).relu(), 2).reshape(16, 12))


class Text(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.token, self.block = nn.Embedding(7, 16), nn.TransformerBlock(16, 2, causal=True)

    def forward(self, x: Any) -> Any:
        h = self.token((x > 0).to(fp.int64) + (x > 1).to(fp.int64)) + fp.arange(12).to(fp.float32).reshape(12, 1)
        return F.linear(self.block(h).mean(axis=1), self.token.weight)[:, :5]


def packed(model: nn.Module) -> nn.Module:
    model.params.pack()
    return model


def training(model: nn.Module, optimizer: Any, clip: Callable[[Any], Any]) -> Callable[..., Any]:
    def step(x: Any, y: Any) -> Any:
        loss = F.cross_entropy(model(x), y)
        grads = loss.backward()
        norm = clip(grads)
        optimizer.step(grads)
        return loss, norm

    return step


CLIPS: dict[str, Callable[[Any], Any]] = {
    "often": lambda g: fp.clip_grad_norm(g, 0.1),
    "never": lambda g: fp.clip_grad_norm(g, 1e6),
    "zero": lambda g: fp.clip_grad_norm(g, 0.5, norm_type=1, nonfinite="zero"),
    "value": lambda g: fp.clip_grad_value(g, 0.01),
    "none": lambda g: None,
}
OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "adamw": lambda m: fp.AdamW(m, lr=1e-2, groups={"*.bias": {"weight_decay": 0.0}}),
    "adam": lambda m: fp.Adam(m, lr=1e-2),
    "sgd": lambda m: fp.SGD(m, lr=1e-1, momentum=0.9, nesterov=True),
    "plain sgd": lambda m: fp.SGD(m, lr=1e-1),
}
