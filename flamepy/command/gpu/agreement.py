"""Whether a GPU agrees with the plain device: the cases of gpu_cases.py, optimizers, norms, clips, random numbers, and the comparison.

Outputs and gradients of both devices are compared, each relative to its largest number. An op's reference is computed in float64 from the
same inputs; that of a whole step in the same type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ... import accumulation, averages, creation, gradient_clip, gradient_transforms, ops, optimizers, rng
from ...dtypes import FLOATS, float64
from ...nn import functional as F
from ...parameter import ParameterDict
from ...replay import capture
from ...tensors import Tensor
from .cases import COLUMNS, OPS, ROWS, Call, Draw

TOLERANCE = {"float32": 1e-5, "float64": 1e-11, "bfloat16": 3e-2, "float16": 4e-3}  # of the largest number: sums are a few thousand long
FLOOR = 1e-2  # a result whose numbers are all smaller is compared with this


class Case(NamedTuple):
    """`dtypes`: those it is for. `exact`: the other device computes in the same type, as the arithmetic is of that type."""

    call: Call
    dtypes: tuple[str, ...] = ("float32", "float64", "bfloat16", "float16")
    exact: bool = False


# ---- steps ------------------------------------------------------------------------------------------------------------------------
def bowl(params: ParameterDict) -> Any:
    """A loss with a gradient for every number."""
    total: Any = 0.0
    for n, p in enumerate(params.parameters()):
        total = total + (p * p * (0.5 + n) + ops.sin(p * 3.0)).sum()
    return total


def stepped(make: Callable[..., Any], pack: bool = True, *shapes: tuple[int, ...], **options: Any) -> Call:
    """Three steps of an optimizer, clipped."""

    def call(w: Draw) -> list[Any]:
        params = w.params(*shapes)
        if pack:
            params.pack()
        optimizer, norms = make(params, **options), []
        for _ in range(3):
            grads = bowl(params).backward()
            norms.append(float(gradient_clip.clip_grad_norm(grads, 1.0)))
            optimizer.step(grads)
        return [*params.parameters(), np.array(norms)]

    return call


def descended(w: Draw) -> list[Any]:
    params = w.params()
    optimizer = optimizers.LBFGS(params, lr=0.1)

    def closure() -> Any:
        return bowl(params)

    return [optimizer.step(closure), *params.parameters()]


def edited(edit: Callable[[Any, ParameterDict], Any], pack: bool = True) -> Call:
    """What becomes of gradients."""

    def call(w: Draw) -> list[Any]:
        params = w.params()
        if pack:
            params.pack()
        grads = bowl(params).backward()
        number = edit(grads, params)
        more = [np.array(float(number))] if hasattr(number, "__float__") else []
        return [*[grads[p] for p in params.parameters()], *more]

    return call


def accumulated(w: Draw) -> list[Any]:
    params = w.params()
    params.pack()
    accumulator = accumulation.GradientAccumulator(3)
    grads: Any = None
    for n in range(3):
        grads = accumulator.add((bowl(params) * (n + 1.0)).backward())
    return [grads[p] for p in params.parameters()]


def averaged(w: Draw) -> list[Any]:
    params = w.params()
    params.pack()
    optimizer, average = optimizers.SGD(params, lr=0.1), averages.EMA(params, decay=0.9)
    for _ in range(3):
        optimizer.step(bowl(params).backward())
        average.update()
    with average.applied():
        averages_then = [p.clone().detach() for p in params.parameters()]
    return [*params.parameters(), *averages_then]


def by_hand(w: Draw) -> list[Any]:
    """Parameters moved without an optimizer."""
    params = w.params()
    params.set_grads(bowl(params).backward())
    for p in params.parameters():
        p.update(0.1)
        p.apply_update(p.detach() * 0.25)
    return list(params.parameters())


def drawn(w: Draw) -> list[Any]:
    """The same random numbers on every device."""
    rng.manual_seed(7)
    on = w.device
    return [creation.randn((ROWS, COLUMNS), device=on), creation.rand((1001,), device=on), creation.uniform((99,), -1.0, 2.0, device=on)]


def dropped(w: Draw) -> Any:
    rng.manual_seed(7)
    return F.dropout(w.x(), 0.4)


def replayed(w: Draw) -> list[Any]:
    """Recorded steps give the bits of others."""
    ends = []
    for record in (False, True):
        w.random = np.random.default_rng(5)
        params = w.params()
        params.pack()
        optimizer, x = optimizers.AdamW(params, lr=0.01), w.put(np.linspace(-1, 1, COLUMNS))

        def step(x: Any) -> Any:
            grads = (loss := bowl(params) + (x @ params["p0"]).sum()).backward()
            gradient_clip.clip_grad_norm(grads, 1.0)
            optimizer.step(grads)
            return loss

        run = capture(step) if record else step
        losses = np.array([run(x).item() for _ in range(5)])
        ends.append([losses, *[p.numpy() for p in params.parameters()]])
    if any(a.tobytes() != b.tobytes() for a, b in zip(*ends, strict=True)):
        raise ArithmeticError("replayed steps and others differ in their bits")
    return ends[1]


MATRICES = ((24, 40), (33, 17))
STEPS: dict[str, Call] = {
    **{name: stepped(getattr(optimizers, name), lr=0.01) for name in (
        ["SGD", "Adam", "AdamW", "Adagrad", "Adadelta", "Adamax", "Lion", "LAMB", "NAdam", "RAdam", "RMSprop", "Adafactor"])},
    "SGD with momentum": stepped(optimizers.SGD, lr=0.01, momentum=0.9, nesterov=True),
    "Adam with amsgrad": stepped(optimizers.Adam, lr=0.01, amsgrad=True),
    "RMSprop, centered": stepped(optimizers.RMSprop, lr=0.01, momentum=0.9, centered=True),
    "Muon": stepped(optimizers.Muon, True, *MATRICES, lr=0.01),
    "AdamW, not packed": stepped(optimizers.AdamW, False, lr=0.01),
    "LBFGS": descended,
    "grad_norm": edited(lambda g, p: gradient_clip.grad_norm(g)),
    "grad_norm, not packed": edited(lambda g, p: gradient_clip.grad_norm(g), False),
    "largest gradient": edited(lambda g, p: gradient_clip.grad_norm(g, float("inf"))),
    "clip_grad_norm": edited(lambda g, p: gradient_clip.clip_grad_norm(g, 1.0)),
    "clip_grad_norm, not packed": edited(lambda g, p: gradient_clip.clip_grad_norm(g, 1.0), False),
    "clip_grad_value": edited(lambda g, p: gradient_clip.clip_grad_value(g, 0.5)),
    "clip_grad_per_layer": edited(lambda g, p: gradient_transforms.clip_grad_per_layer(g, 0.5)),
    "clip_grad_agc": edited(gradient_transforms.clip_grad_agc),
    "centralize_gradients": edited(lambda g, p: gradient_transforms.centralize_gradients(g)),
    "repair_gradients": edited(lambda g, p: gradient_transforms.repair_gradients(g)),
    "decay_gradients": edited(lambda g, p: gradient_transforms.decay_gradients(g, p, 0.01, 0.1)),
    "accumulation": accumulated,
    "EMA": averaged,
    "parameters moved by hand": by_hand,
    "replay": replayed,
    "random numbers": drawn,
    "dropout": dropped,
}  # fmt: skip

CASES: dict[str, Case] = {
    **{name: Case(call) for name, call in OPS.items()},
    **{name: Case(call, ("float32",), exact=True) for name, call in STEPS.items()},
}
BRIEF = (
    "add", "exp", "gelu by tanh", "where", "sum along axes", "argmax", "matmul", "linear", "permute", "rows by ids", "softmax",
    "layer_norm plain", "embedding", "cross_entropy, smoothed", "attention, heads of 128", "conv2d", "max_pool2d", "AdamW", "SGD",
    "clip_grad_norm", "accumulation", "parameters moved by hand", "EMA", "replay", "random numbers", "dropout",
)  # fmt: skip  # where every instruction is emulated


# ---- comparing --------------------------------------------------------------------------------------------------------------------
def results(name: str, device: str, dtype: str, wide: bool) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """(outputs, gradients) of a case on a device."""
    w = Draw(name, device, dtype, wide)
    parts = CASES[name].call(w)
    parts = list(parts) if isinstance(parts, Sequence) else [parts]
    smooth = [y for y in parts if isinstance(y, Tensor) and y.requires_grad and not y.is_parameter]
    gradients: list[np.ndarray] = []
    found: list[Any]
    if smooth and w.tracked:
        ends = [w.put(w.random.uniform(-1, 1, y.shape)).to(y.dtype) for y in smooth]
        found = [y.backward(g, retain_graph=True) for y, g in zip(smooth, ends, strict=True)]
        gradients = [array(part[t]) for part in found for t in w.tracked if t in part]
    return [array(y) for y in parts], gradients


def array(y: Any) -> np.ndarray:
    found = y if isinstance(y, np.ndarray) else y.numpy()
    return found.astype(np.float64) if found.dtype in FLOATS else np.asarray(found)


def difference(got: list[np.ndarray], wanted: list[np.ndarray]) -> float:
    """The largest difference of all, each relative to its array's largest number; infinite where shapes or what is finite differ."""
    if [a.shape for a in got] != [b.shape for b in wanted]:
        return float("inf")
    worst = 0.0
    for a, b in zip(got, wanted, strict=True):
        a, b = a.astype(np.float64), b.astype(np.float64)
        finite = np.isfinite(b)
        if not (finite == np.isfinite(a)).all():
            return float("inf")
        a, b = a[finite], b[finite]
        worst = max(worst, float(np.abs(a - b).max(initial=0.0) / max(np.abs(b).max(initial=0.0), FLOOR)))
    return worst


def compared(name: str, dtype: str) -> dict[str, Any]:
    """One case, on the GPU and beside it: {"forward", "backward"}: differences; "ok"."""
    exact = CASES[name].exact
    got, got_gradients = results(name, "cuda", dtype, False)
    wanted, wanted_gradients = results(name, "plain", dtype, not exact and dtype != float64.name)
    forward, backward = difference(got, wanted), difference(got_gradients, wanted_gradients)
    allowed = TOLERANCE[dtype]
    return {"forward": forward, "backward": backward, "allowed": allowed, "ok": max(forward, backward) <= allowed}
