"""One million numbers through the ops that are in no other suite, forward and backward, each spelled as PyTorch spells it.

x is normal, u lies between -0.9 and 0.9, p between 0.1 and 3; PyTorch in float64 is the oracle.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from .kernels import BACKWARD
from .libraries import Torch, library
from .work import Disagree, Job, Work, missing, near

OURS = "flamepy"
AGAINST = ("torch", "torch-compile")
DEFAULT = ("torch",)
ALONE = False
TOLERANCE = 2e-4
FLAT, IMAGES, LINES = (1024, 1024), (16, 64, 32, 32), (4096, 256)

# Which numbers they are given -> names of ops. Activations are functions of nn.functional.
POINTWISE = {
    "x": "expm1 exp2 sin cos tan atan sinh cosh asinh erfc trunc frac nan_to_num sinc",
    "p": "log1p log2 log10 lgamma digamma",
    "u": "asin acos atanh erfinv",
    "xx": "atan2 hypot copysign logaddexp",
    "xp": "fmod remainder floor_divide",
}
ACTIVATIONS = "mish selu celu hardtanh hardsigmoid hardswish relu6 softsign logsigmoid softplus elu glu softmin"
NO_GRADIENT = {"trunc", "floor_divide", "argsort", "searchsorted", "bincount"}

# Name -> (numbers, their shape, the op).
OTHERS: dict[str, tuple[str, tuple[int, ...], Callable[..., Any]]] = {
    "pow": ("px", FLAT, lambda t, F, x, y: t.pow(x, y)),
    "lerp": ("xxp", FLAT, lambda t, F, x, y, w: t.lerp(x, y, w)),
    "cumsum": ("x", FLAT, lambda t, F, x: t.cumsum(x, 1)),
    "cumprod": ("u", FLAT, lambda t, F, x: t.cumprod(x, 1)),
    "logcumsumexp": ("x", FLAT, lambda t, F, x: t.logcumsumexp(x, 1)),
    "sort": ("x", FLAT, lambda t, F, x: t.sort(x, dim=1, stable=True)[0]),
    "argsort": ("x", FLAT, lambda t, F, x: t.argsort(x, dim=1, stable=True)),
    "topk": ("x", FLAT, lambda t, F, x: t.topk(x, 8, 1)[0]),
    "kthvalue": ("x", FLAT, lambda t, F, x: t.kthvalue(x, 100, 1)[0]),
    "quantile": ("x", FLAT, lambda t, F, x: t.quantile(x, 0.3, 1)),
    "prod": ("u", FLAT, lambda t, F, x: t.prod(x, 1)),
    "norm": ("x", FLAT, lambda t, F, x: t.linalg.norm(x, dim=1)),
    "flip": ("x", FLAT, lambda t, F, x: t.flip(x, (0, 1))),
    "roll": ("x", FLAT, lambda t, F, x: t.roll(x, 300, 1)),
    "tile": ("x", (512, 512), lambda t, F, x: t.tile(x, (2, 2))),
    "repeat-interleave": ("x", (512, 1024), lambda t, F, x: t.repeat_interleave(x, 2, 1)),
    "gather": ("xi", FLAT, lambda t, F, x, i: t.gather(x, 1, i)),
    "scatter-add": ("xix", FLAT, lambda t, F, x, i, y: t.scatter_add(x, 1, i, y)),
    "searchsorted": ("x", FLAT, lambda t, F, x: t.searchsorted(t.sort(x[0])[0], x)),
    "einsum": ("xx", (64, 128, 128), lambda t, F, x, y: t.einsum("bij,bjk->bik", x, y)),
    "outer": ("xx", (1024,), lambda t, F, x, y: t.outer(x, y)),
    "group-norm": ("x", IMAGES, lambda t, F, x: F.group_norm(x, 8)),
    "instance-norm": ("x", IMAGES, lambda t, F, x: F.instance_norm(x)),
    "batch-norm": ("x", IMAGES, lambda t, F, x: F.batch_norm(x, None, None, training=True)),
    "local-response-norm": ("x", IMAGES, lambda t, F, x: F.local_response_norm(x, 5)),
    "avg-pool": ("x", IMAGES, lambda t, F, x: F.avg_pool2d(x, 3, 2, 1)),
    "max-pool-1d": ("x", (16, 64, 1024), lambda t, F, x: F.max_pool1d(x, 2)),
    "max-pool-3d": ("x", (4, 16, 16, 32, 32), lambda t, F, x: F.max_pool3d(x, 2)),
    "adaptive-avg-pool": ("x", IMAGES, lambda t, F, x: F.adaptive_avg_pool2d(x, 7)),
    "nearest": ("x", IMAGES, lambda t, F, x: F.interpolate(x, scale_factor=2)),
    "bilinear": ("x", IMAGES, lambda t, F, x: F.interpolate(x, scale_factor=2, mode="bilinear")),
    "bicubic": ("x", IMAGES, lambda t, F, x: F.interpolate(x, scale_factor=2, mode="bicubic")),
    "pixel-shuffle": ("x", IMAGES, lambda t, F, x: F.pixel_shuffle(x, 2)),
    "unfold": ("x", (4, 32, 32, 32), lambda t, F, x: F.unfold(x, 3)),
    "reflect-pad": ("x", IMAGES, lambda t, F, x: F.pad(x, (1, 1, 1, 1), mode="reflect")),
    "kl-div": ("xp", FLAT, lambda t, F, x, y: F.kl_div(x, y, reduction="sum")),
    "poisson-nll": ("xp", FLAT, lambda t, F, x, y: F.poisson_nll_loss(x, y)),
    "cosine-similarity": ("xx", LINES, lambda t, F, x, y: F.cosine_similarity(x, y)),
    "triplet": ("xxx", LINES, lambda t, F, x, y, z: F.triplet_margin_loss(x, y, z)),
    "soft-targets": ("xp", LINES, lambda t, F, x, y: F.cross_entropy(x, y)),
}


def table() -> dict[str, tuple[str, tuple[int, ...], Callable[..., Any]]]:
    found = dict(OTHERS)
    for kinds, names in POINTWISE.items():
        found |= {name: (kinds, FLAT, lambda t, F, *xs, name=name: getattr(t, name)(*xs)) for name in names.split()}
    for name in ACTIVATIONS.split():
        found[name] = ("x", FLAT, lambda t, F, x, name=name: getattr(F, name)(x, *[1] * (name in ("glu", "softmin"))))
    return found


OPS = table()
WORKS = {name: Work(name) for name in OPS}
WORKS |= {name + BACKWARD: Work(name + BACKWARD) for name in OPS if name not in NO_GRADIENT}


@lru_cache(maxsize=2)
def data(op: str) -> list[np.ndarray]:
    kinds, shape, _ = OPS[op]
    random = np.random.default_rng(5)
    draw: dict[str, Callable[..., Any]] = {
        "x": random.standard_normal,
        "u": lambda s: random.uniform(-0.9, 0.9, s),
        "p": lambda s: random.uniform(0.1, 3.0, s),
    }
    return [random.integers(0, shape[-1], shape) if kind == "i" else draw[kind](shape).astype(np.float32) for kind in kinds]


def parts(work: str) -> tuple[str, bool]:
    """(op, whether the backward pass is meant)."""
    return work.removesuffix(BACKWARD), work.endswith(BACKWARD)


def formula(op: str) -> Callable[..., Any]:
    return lambda L, *xs: OPS[op][2](L.t, L.F, *xs)


def tracked(op: str) -> list[bool]:
    """Of a target PyTorch asks no gradient, as flamepy has none."""
    kinds = OPS[op][0]
    return [kind != "i" and not (n and op in ("kl-div", "poisson-nll", "soft-targets")) for n, kind in enumerate(kinds)]


def build(contender: str, work: str, mode: str) -> Job:
    op, back = parts(work)
    lib = library(contender)
    xs = [lib.place(a, tracked=back and wanted) for a, wanted in zip(data(op), tracked(op), strict=True)]
    if not back:
        return Job(lib.forward(formula(op), xs), lambda y: [lib.host(y)])
    return Job(lib.backward(formula(op), xs, cotangent(op)), lambda results: [lib.host(r) for r in results])


@lru_cache(maxsize=2)
def cotangent(op: str) -> np.ndarray:
    """One number for each of the result."""
    lib = library("flamepy")
    shape = formula(op)(lib, *[lib.place(a, tracked=False) for a in data(op)]).shape
    return np.random.default_rng(6).standard_normal(shape).astype(np.float32)


def verify(work: str, outputs: list[np.ndarray]) -> None:
    if said := missing("torch"):
        raise Disagree(said)
    op, back = parts(work)
    lib = Torch()
    wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in data(op)]
    xs = [lib.place(a, tracked=back and wanted) for a, wanted in zip(wide, tracked(op), strict=True)]
    run = lib.backward(formula(op), xs, cotangent(op).astype(np.float64)) if back else lib.forward(formula(op), xs)
    found = run() if back else [run()]
    for i, (got, expected) in enumerate(zip(outputs, found, strict=True)):
        near(f"{work} {i}", got, lib.host(expected), TOLERANCE)
