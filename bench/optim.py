"""The end of a step alone: joint norm, clip, AdamW over the parameters of GPT-2: 124,439,808 numbers in 148 tensors.

The limit falls by a thousandth a call, below the norm that the clip before has left: every call has to scale. The gradients are handed
over as `backward` leaves them. Checked: norms, and a sample of every tensor after some steps, against NumPy in float64.

PyTorch: clip_grad_norm_ and fused AdamW.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from .libraries import torch_module
from .oracle import adam
from .work import Job, Work, close

OURS = "flamepy"
AGAINST = DEFAULT = ("torch",)
ALONE = True
TOLERANCE = (2e-3, 1e-4)  # PyTorch sums 38.6 million squares in float32: its norm is off by 9e-4
STEPS = 3
DECAY = 0.01
SAMPLE = 500  # numbers of each tensor that are compared, at most
FALL = 0.999

WIDTH, LAYERS, VOCABULARY, CONTEXT = 768, 12, 50257, 1024
BLOCK = {
    "ln_1.weight": (WIDTH,), "ln_1.bias": (WIDTH,), "attn.c_attn.weight": (3 * WIDTH, WIDTH), "attn.c_attn.bias": (3 * WIDTH,),
    "attn.c_proj.weight": (WIDTH, WIDTH), "attn.c_proj.bias": (WIDTH,), "ln_2.weight": (WIDTH,), "ln_2.bias": (WIDTH,),
    "mlp.c_fc.weight": (4 * WIDTH, WIDTH), "mlp.c_fc.bias": (4 * WIDTH,), "mlp.c_proj.weight": (WIDTH, 4 * WIDTH),
    "mlp.c_proj.bias": (WIDTH,),
}  # fmt: skip
TENSORS: dict[str, tuple[int, ...]] = {
    "wte": (VOCABULARY, WIDTH),
    "wpe": (CONTEXT, WIDTH),
    **{f"h.{i}.{name}": shape for i in range(LAYERS) for name, shape in BLOCK.items()},
    "ln_f.weight": (WIDTH,),
    "ln_f.bias": (WIDTH,),
}
NUMBERS = sum(int(np.prod(shape)) for shape in TENSORS.values())
# The gradient is read for the norm; then p, m, v are read and written and the gradient is read again.
WORKS = {"optim-124m": Work("optim-124m", nbytes=8 * 4 * NUMBERS)}


def tensors() -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """(name, parameter, gradient): the same in every process."""
    random = np.random.default_rng(4)
    for name, shape in TENSORS.items():
        yield name, random.standard_normal(shape, np.float32), random.standard_normal(shape, np.float32)


def limits() -> Iterator[float]:
    """The largest norm allowed, call by call: below the first norm, which is near the root of NUMBERS, and then always falling."""
    return (0.5 * NUMBERS**0.5 * FALL**n for n in itertools.count())


def sample(flat: np.ndarray) -> np.ndarray:
    flat = flat.reshape(-1)
    return np.asarray(flat[:: max(1, flat.size // SAMPLE)], np.float64)


def build(contender: str, work: str, mode: str) -> Job:
    run, arrays = (flamepy_optim if contender == "flamepy" else torch_optim)()
    return Job(run, lambda norm: [np.float64(float(norm)), np.concatenate([sample(a) for a in arrays()])], STEPS)


Optim = tuple[Callable[[], Any], Callable[[], list[np.ndarray]]]


def packed_gradients(device: str | None = None) -> tuple[Any, Any]:
    """The parameters in one span, and the map of their gradients as backward() gives it."""
    import flamepy as fp

    params, gradients = fp.ParameterDict(), []
    for name, p, g in tensors():
        params.insert(name, fp.Parameter(fp.tensor(p, device=device)))
        gradients.append(fp.tensor(g, device=device))
    params.pack()
    loss: Any = 0.0
    for parameter, gradient in zip(params.parameters(), gradients, strict=True):
        loss = loss + (parameter * gradient).sum()
    return params, loss.backward()


def flamepy_optim(device: str | None = None) -> Optim:
    import flamepy as fp

    params, grads = packed_gradients(device)
    optimizer, limit = fp.AdamW(params, lr=1e-3, weight_decay=DECAY), limits()

    def run() -> float:
        norm = fp.clip_grad_norm(grads, next(limit))
        optimizer.step(grads)
        return norm

    return run, lambda: [p.numpy() for p in params.parameters()]


def torch_optim(device: str = "cpu") -> Optim:
    torch = torch_module()
    ps = []
    for _, p, g in tensors():
        ps.append(torch.nn.Parameter(torch.from_numpy(p).to(device)))
        ps[-1].grad = torch.from_numpy(g).to(device)
    optimizer, limit = torch.optim.AdamW(ps, lr=1e-3, weight_decay=DECAY, fused=True), limits()

    def run() -> Any:
        norm = torch.nn.utils.clip_grad_norm_(ps, next(limit))
        optimizer.step()
        return norm

    return run, lambda: [p.detach().cpu().numpy() for p in ps]


@lru_cache(maxsize=1)
def expected() -> list[np.ndarray]:
    """Norms, and the samples after each step. Only samples are updated; the norm follows from the clipping before."""
    samples, total = [], 0.0
    for _, p, g in tensors():
        samples.append((sample(p), sample(g)))
        total += np.sum(np.square(g, dtype=np.float64))
    p, g = (np.concatenate(parts) for parts in zip(*samples, strict=True))
    m, v, norm = np.zeros_like(p), np.zeros_like(p), np.sqrt(total)
    norms, after, limit = [], [], limits()
    for n in range(1, STEPS + 1):
        scale = next(limit) / (norm + 1e-6)
        g = g * scale
        adam(p, m, v, g, n, DECAY)
        norms.append(norm)
        after.append(p.copy())
        norm *= scale
    return [np.array(norms), np.stack(after)]


def verify(work: str, outputs: list[np.ndarray]) -> None:
    close(outputs, expected(), TOLERANCE)
