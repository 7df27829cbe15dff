"""Whole training steps: forward, cross-entropy, backward, clip to a joint norm of 1, AdamW (of GPTs, LSTMs), Adam or SGD; the loss is
read.

    eager     every op runs when it is called
    replay    flamepy.capture(step): the second call is recorded, later ones replay the record

Checked: loss and gradient norm of the first steps against oracle.py, up to TOLERANCE. A gradient jumps where what enters a ReLU crosses
zero; a ResNet has millions of such numbers, and those within rounding of zero fall on either side. So where a difference is larger, it is
compared with how far the oracle's own results move when the first weights do, by up to MOVED of themselves: that much is the network's,
whoever computes it. Which numbers cross zero is chance, so twice the farthest of DRAWS counts.

This file has flamepy's side, written as a user would.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from . import contenders, oracle, unets
from .networks import CLIP, LR, SHAPES, Gpt, Lstm, Shape, batch, flops, sequential, weights
from .resnets import MOMENTUM, ResNet
from .unets import UNet
from .work import MODES, Disagree, Job, Work, close, distance

OURS = "flamepy"
AGAINST = DEFAULT = ("torch", "torch-compile", "jax")
ALONE = True
TOLERANCE = 1e-4
MOVED = 2.0**-18  # 64 times what float32 rounds off, as there are some 40 layers one after the other
DRAWS = 3
STEPS = 5
TORCH = ("torch", "torch-compile")  # these two are written for modules
WORKS = {name: Work(name, flops(s), modes=MODES, against=TORCH if isinstance(s, ResNet | UNet) else ()) for name, s in SHAPES.items()}


def build(contender: str, work: str, mode: str) -> Job:
    """A job whose results are (loss, gradient norm)."""
    shape = SHAPES[work]
    if contender == "flamepy":
        run = flamepy_step(shape, mode)
    elif contender == "jax":
        run = contenders.jax_step(shape)
    else:
        run = contenders.torch_step(shape, compiled=contender == "torch-compile")
    return Job(run, lambda result: [np.float64(result[0]), np.float64(float(result[1]))], STEPS)


def flamepy_gpt(shape: Gpt, device: Any = None) -> Any:
    """A GPT, plainly, from flamepy.nn."""
    import flamepy as fp
    import flamepy.nn.functional as F
    from flamepy import nn

    class GPT(nn.Module):
        def __init__(self) -> None:
            self.token = nn.Embedding(shape.vocabulary, shape.width, device=device)
            self.position = nn.Embedding(shape.context, shape.width, device=device)
            blocks = [nn.TransformerBlock(shape.width, shape.heads, causal=True, device=device) for _ in range(shape.layers)]
            self.blocks, self.norm = nn.ModuleList(blocks), nn.LayerNorm(shape.width, device=device)
            for module in self.modules():
                if isinstance(module, nn.GELU):
                    module.approximate = "tanh"

        def forward(self, ids: Any) -> Any:
            x = self.token(ids) + self.position(fp.arange(ids.shape[1], device=device))
            for block in self.blocks:
                x = block(x)
            return F.linear(*self.operands(self.norm(x), self.token.weight)).reshape((ids.size, shape.vocabulary))

    return GPT()


def flamepy_lstm(shape: Lstm, device: Any = None) -> Any:
    """A language model of LSTM layers, plainly, from flamepy.nn."""
    from flamepy import nn

    class Model(nn.Module):
        def __init__(self) -> None:
            self.token = nn.Embedding(shape.vocabulary, shape.inputs, device=device)
            self.lstm = nn.LSTM(shape.inputs, shape.width, shape.layers, device=device)
            self.head = nn.Linear(shape.width, shape.vocabulary, device=device)

        def forward(self, ids: Any) -> Any:
            return self.head(self.lstm(self.token(ids))[0]).reshape((ids.size, shape.vocabulary))

    return Model()


def flamepy_model(shape: Shape, device: Any = None) -> Any:
    import flamepy as fp
    from flamepy import nn

    if isinstance(shape, Gpt):
        return flamepy_gpt(shape, device)
    if isinstance(shape, UNet):
        return unets.model(nn, fp.cat, shape)
    return flamepy_lstm(shape, device) if isinstance(shape, Lstm) else sequential(nn, shape)


def flamepy_step(shape: Shape, mode: str, device: Any = None, compute: str | None = None) -> Any:
    import flamepy as fp
    import flamepy.nn.functional as F

    model = flamepy_model(shape, device)
    model.load_state_dict(weights(shape), strict=not isinstance(shape, ResNet))
    model.params.pack()
    model.compute_dtype = compute
    optimizer: Any = fp.SGD(model, lr=LR, momentum=MOMENTUM)
    if not isinstance(shape, ResNet | UNet):
        optimizer = (fp.AdamW if shape.decay else fp.Adam)(model, lr=LR, weight_decay=shape.decay)
    x, y = (fp.tensor(a, device=device) for a in batch(shape))

    def step(x: Any, y: Any) -> tuple[Any, Any]:
        loss = F.cross_entropy(model(x), y)
        grads = loss.backward()
        norm = fp.clip_grad_norm(grads, CLIP)
        optimizer.step(grads)
        return loss, norm

    call = step if mode == "eager" else fp.capture(step)

    def run() -> tuple[float, Any]:
        loss, norm = call(x, y)
        return loss.item(), norm

    return run


@lru_cache(maxsize=1)
def expected(work: str) -> list[np.ndarray]:
    return oracle.first_steps(SHAPES[work], STEPS)


@lru_cache(maxsize=1)
def movable(work: str) -> tuple[float, ...]:
    """For each output twice the farthest that the oracle's own moves when the first weights do."""
    runs = [oracle.first_steps(SHAPES[work], STEPS, MOVED, draw) for draw in range(DRAWS)]
    return tuple([2 * max(map(distance, moved, [still] * DRAWS)) for *moved, still in zip(*runs, expected(work), strict=True)])


def agree(work: str, outputs: list[np.ndarray], others: list[np.ndarray]) -> None:
    try:
        close(outputs, others, TOLERANCE)
    except Disagree:
        close(outputs, others, tuple([max(TOLERANCE, far) for far in movable(work)]))


def verify(work: str, outputs: list[np.ndarray]) -> None:
    agree(work, outputs, expected(work))
