"""Whether a GPU agrees with the plain device: every public op, optimizers, norms, clips, random numbers, and the comparison.

A case is a function of a Draw, which makes its inputs: the same numbers on the GPU, in the type that is looked at, and on the plain
device. Outputs and gradients of both are compared, each relative to its largest number. An op's reference is computed in float64; that of
a whole step in the same type.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ... import accumulation, creation, gradient_clip, ops, optimizers, rng
from ...dtypes import FLOATS, as_dtype, float64
from ...engine.capture import capture
from ...gradients import edits as gradient_transforms
from ...nn import functional as F
from ...optimizers import averages
from ...parameter import Parameter, ParameterDict
from ...tensors import Tensor, tensor

ROWS, COLUMNS = 37, 261  # odd: blocks and 16-byte loads end within a row
Call = Callable[["Draw"], Any]


class Draw:
    """Makes a case's inputs on a device: drawn by the case's name, rounded to `dtype`, then `wide` if wanted."""

    def __init__(self, name: str, device: str, dtype: str, wide: bool):
        self.random, self.device, self.dtype, self.wide = np.random.default_rng(zlib.crc32(name.encode())), device, dtype, wide
        self.tracked: list[Any] = []

    def put(self, array: np.ndarray) -> Any:
        given = array.astype(as_dtype(self.dtype))
        return tensor(given.astype(float64) if self.wide else given, device=self.device)

    def x(self, *shape: int, low: float = -2.0, high: float = 2.0) -> Any:
        """Numbers in [low, high), which get a gradient."""
        found = self.put(self.random.uniform(low, high, shape or (ROWS, COLUMNS))).requires_grad_()
        self.tracked.append(found)
        return found

    def ids(self, high: int, *shape: int) -> Any:
        return tensor(self.random.integers(0, high, shape), device=self.device)

    def mask(self, *shape: int) -> Any:
        return tensor(self.random.random(shape or (ROWS, COLUMNS)) < 0.6, device=self.device)

    def params(self, *shapes: tuple[int, ...]) -> ParameterDict:
        shapes = shapes or ((COLUMNS, 3), (19,), (8, 4, 5), ())
        return ParameterDict({f"p{n}": Parameter(self.put(self.random.uniform(-1, 1, shape))) for n, shape in enumerate(shapes)})


# ---- ops --------------------------------------------------------------------------------------------------------------------------
POSITIVE = {"low": 0.3, "high": 3.0}
NAMES = """neg abs sign exp square sin cos tanh sigmoid erf relu isnan isinf isfinite clone leaky_relu elu gelu silu softplus floor ceil
    round sum mean max min argmax argmin logsumexp var std softmax log_softmax tril triu flatten transpose logical_not"""
ALONG = "sum mean max min argmax argmin var std logsumexp prod softmax log_softmax"
UNARY: dict[str, dict[str, float]] = {name: {} for name in NAMES.split()}
UNARY |= dict.fromkeys(("log", "sqrt", "rsqrt", "reciprocal"), POSITIVE)
BINARY = ["add", "sub", "mul", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge"]


def found(name: str) -> Callable[..., Any]:
    return getattr(F, name, None) or getattr(ops, name)


def unary(name: str, limits: dict[str, float]) -> Call:
    return lambda w: found(name)(w.x(**limits))


def binary(name: str) -> Call:
    return lambda w: [found(name)(a := w.x(), w.x()), found(name)(a, w.x(COLUMNS)), found(name)(w.x(ROWS, 1), a), found(name)(a, 0.5)]


def folded(name: str, **options: Any) -> Call:
    """Over the rows, the columns, and the middle of three dimensions."""
    f = found(name)
    return lambda w: [f(x := w.x(9, 33, 65), axis=2, **options), f(x, axis=0, **options), f(x, axis=1, **options)]


def pairwise(name: str) -> Call:
    return lambda w: [found(name)(x := w.x(), y := w.x()), found(name)(x, y, reduction="none")]


OPS: dict[str, Call] = {
    **{name: unary(name, limits) for name, limits in UNARY.items()},
    **{name: binary(name) for name in BINARY},
    **{f"{name} along axes": folded(name) for name in ALONG.split()},
    **{name: pairwise(name) for name in ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"]},
    "div": lambda w: w.x() / w.x(**POSITIVE),
    "pow": lambda w: [ops.pow(w.x(**POSITIVE), w.x()), w.x() ** 3],
    "logical": lambda w: [ops.logical_and(w.mask(), w.mask()), ops.logical_or(w.mask(), w.mask())],
    "gelu by tanh": lambda w: F.gelu(w.x(), approximate="tanh"),
    "clamp": lambda w: ops.clamp(w.x(), min=-0.5, max=0.7),
    "where": lambda w: ops.where(w.mask(), w.x(), w.x(COLUMNS)),
    "masked_fill": lambda w: ops.masked_fill(w.x(), w.mask(), -7.5),
    "sum of a million": lambda w: ops.mean(w.x(1013, 1031)),
    "prod": lambda w: ops.prod(w.x(7, 9, low=0.8, high=1.2)),
    "matmul": lambda w: [w.x(ROWS, 65) @ w.x(65, 129), w.x(5, 33, 17) @ w.x(5, 17, 40), w.x(3, 33, 17) @ w.x(17, 40), w.x(64) @ w.x(64)],
    "matmul of aligned sides": lambda w: w.x(256, 128) @ w.x(128, 512),
    "matmul transposed": lambda w: ops.transpose(w.x(72, 40)) @ ops.transpose(w.x(136, 72)),
    "matmul with a long sum": lambda w: w.x(24, 4096, low=-1, high=1) @ w.x(4096, 40, low=-1, high=1),
    "linear": lambda w: F.linear(w.x(6, ROWS, 72), w.x(129, 72), w.x(129)),
    "linear of aligned sides": lambda w: F.linear(w.x(256, 128), w.x(384, 128), w.x(384)),
    "linear then gelu": lambda w: F.gelu(F.linear(w.x(128, 64), w.x(256, 64), w.x(256)), approximate="tanh"),
    "linear without bias": lambda w: F.linear(w.x(ROWS, 72), w.x(129, 72)),
    "reshape": lambda w: ops.reshape(w.x(12, 35), (21, 20)),
    "permute": lambda w: ops.permute(w.x(9, 33, 20), (2, 0, 1)),
    "squeeze, unsqueeze": lambda w: ops.unsqueeze(ops.squeeze(w.x(9, 1, 20)), 0),
    "broadcast_to": lambda w: ops.broadcast_to(w.x(33, 1), (9, 33, 20)),
    "narrow, slices": lambda w: [ops.narrow(x := w.x(), 1, 3, 200), x[::2, 5:], x[3], x[:, -7]],
    "rows by ids": lambda w: [w.x()[w.ids(ROWS, 90)], ops.index_select(w.x(), 1, w.ids(COLUMNS, 70))],
    "gather": lambda w: ops.gather(w.x(), 1, w.ids(COLUMNS, ROWS, 50)),
    "cat, stack": lambda w: [ops.cat([w.x(), w.x(5, COLUMNS)]), ops.stack([w.x(), w.x()], 1)],
    "split, chunk": lambda w: [*ops.split(w.x(), 100, 1), *ops.chunk(w.x(), 4)],
    "pad": lambda w: ops.pad(w.x(), ((1, 0), (2, 3)), value=1.5),
    "cast": lambda w: [ops.cast(w.x(), name) for name in ("float32", "bfloat16", "float16")],
    "layer_norm": lambda w: [F.layer_norm(w.x(ROWS, n), (n,), w.x(n), w.x(n)) for n in (40, 261, 768, 4099)],
    "layer_norm plain": lambda w: F.layer_norm(w.x(), (COLUMNS,)),
    "rms_norm": lambda w: [F.rms_norm(w.x(ROWS, n), (n,), w.x(n)) for n in (40, 261, 768)],
    "residual then layer_norm": lambda w: F.layer_norm(w.x() + w.x(), (COLUMNS,), w.x(COLUMNS), w.x(COLUMNS)),
    "long rows": lambda w: [F.softmax(w.x(3, 20001), -1), ops.logsumexp(w.x(3, 20001), axis=1)],
    "embedding": lambda w: F.embedding(w.ids(50, 6, ROWS), w.x(50, 72)),
    "cross_entropy": lambda w: [F.cross_entropy(w.x(64, n), w.ids(n, 64)) for n in (10, 261, 5003)],
    "cross_entropy, smoothed": lambda w: F.cross_entropy(w.x(64, 33), w.ids(33, 64), label_smoothing=0.1, ignore_index=3),
    "nll_loss": lambda w: F.nll_loss(w.x(64, 33), w.ids(33, 64)),
    "binary_cross_entropy": lambda w: F.binary_cross_entropy(w.x(low=0.05, high=0.95), w.x(low=0.05, high=0.95).detach()),
    "binary_cross_entropy_with_logits": lambda w: F.binary_cross_entropy_with_logits(w.x(), w.x(low=0.05, high=0.95).detach()),
    "attention": lambda w: F.scaled_dot_product_attention(w.x(2, 3, 65, 32), w.x(2, 3, 97, 32), w.x(2, 3, 97, 32)),
    "attention, causal": lambda w: [
        F.scaled_dot_product_attention(w.x(2, 3, t, d), w.x(2, 3, t, d), w.x(2, 3, t, d), is_causal=True)
        for t, d in ((33, 32), (128, 64), (130, 24))
    ],
    "attention, heads of 128": lambda w: F.scaled_dot_product_attention(
        w.x(1, 2, 96, 128), w.x(1, 2, 96, 128), w.x(1, 2, 96, 128), is_causal=True
    ),
    "attention, masked": lambda w: masked_attention(w, *[w.x(2, 2, 40, 16) for _ in range(3)]),
    "conv2d": lambda w: F.conv2d(w.x(4, 3, 14, 13), w.x(8, 3, 3, 3), w.x(8), padding=1),
    "conv2d, strided, in groups": lambda w: F.conv2d(w.x(2, 4, 15, 16), w.x(6, 2, 3, 2), w.x(6), stride=2, dilation=(1, 2), groups=2),
    "max_pool2d": lambda w: [F.max_pool2d(w.x(3, 4, 13, 14), 2), F.max_pool2d(w.x(3, 4, 13, 14), 3, 2, 1)],
    "avg_pool2d": lambda w: [F.avg_pool2d(w.x(3, 4, 13, 14), 2), F.avg_pool2d(w.x(3, 4, 13, 14), 3, 2, 1)],
}  # fmt: skip


def masked_attention(w: Draw, q: Any, k: Any, v: Any) -> Any:
    """Each position sees itself, at least."""
    mask = (w.random.random((40, 40)) < 0.6) | np.eye(40, dtype=bool)
    return F.scaled_dot_product_attention(q, k, v, tensor(mask, device=w.device))


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
        ["SGD", "Adam", "AdamW", "Adagrad", "Adadelta", "Adamax", "Lion", "LAMB", "LARS", "NAdam", "RAdam", "RMSprop", "Adafactor"])},
    **{name: stepped(getattr(optimizers, name), lr=0.01) for name in ("AdaBelief", "AdamP", "SGDScheduleFree", "AdamWScheduleFree")},
    "Prodigy": stepped(optimizers.Prodigy),
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
