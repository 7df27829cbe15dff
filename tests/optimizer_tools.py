"""What the tests of optimizers share: cases of every kind, a small model for each, gradients known in closed form, training, oracles.

The oracles: torch.optim in float64 with the same gradients; for those that PyTorch lacks their papers in NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import flamepy as fp

SHAPES = {"w": (4, 3), "b": (3,), "v": (2, 2, 5), "s": ()}
MATRICES = {"w": (4, 3), "v": (2, 5), "u": (3, 3)}
Arrays = dict[str, np.ndarray]


def shapes_for(case: str) -> dict[str, tuple[int, ...]]:
    return MATRICES if case.startswith("muon") else SHAPES


def start(case: str) -> Arrays:
    rng = np.random.default_rng(0)
    return {n: np.asarray(rng.normal(size=s)) for n, s in shapes_for(case).items()}


def model(case: str, dtype: str = "float64", pack: bool = False) -> fp.ParameterDict:
    params = fp.ParameterDict({n: fp.Parameter(fp.tensor(a).to(dtype)) for n, a in start(case).items()})
    return params.pack() if pack else params


def gradient_of(arrays: Arrays, step: int) -> Arrays:
    """Of a bumpy bowl, known in closed form; some parameters, but never all, have none on some steps."""
    rng = np.random.default_rng(1000 + step)
    found = {n: 2 * a + np.sin(3 * a) + 0.3 * rng.normal(size=a.shape) for n, a in arrays.items()}
    return {n: g for i, (n, g) in enumerate(found.items()) if step % (i + 3) != i + 1} or found


def map_of(params: fp.ParameterDict, step: int) -> fp.GradientMap:
    grads = fp.GradientMap()
    for name, g in gradient_of({n: a.astype("f8") for n, a in params.state_dict().items()}, step).items():
        grads.insert(params[name], fp.tensor(g).to(params[name].dtype))
    return grads


def train(params: fp.ParameterDict, optimizer: Any, first: int, last: int) -> list[Arrays]:
    path = []
    for step in range(first, last):
        optimizer.step(map_of(params, step))
        path.append(params.state_dict())
    return path


def bits(params: fp.ParameterDict) -> dict[str, bytes]:
    return {n: a.tobytes() for n, a in params.state_dict().items()}


def state_bits(optimizer: Any) -> str:
    """Its state as a text that tells all bits apart."""

    def plainly(x: Any) -> Any:
        if isinstance(x, dict):
            return {key: plainly(value) for key, value in x.items()}
        return x.tobytes() if isinstance(x, np.ndarray) else x

    return repr(plainly(optimizer.state_dict()))


def stepping(optimizer: Any, params: fp.ParameterDict) -> Callable[[Any], Any]:
    def step(x: Any) -> Any:
        loss = sum((p * p * x + (3 * p).sin() * 0.3).sum() for p in params.parameters())
        return loss, optimizer.step(loss.backward())

    return step


# ---- what papers say of one parameter p with the state s, at its step t -------------------------------------------------------------
def lion(p, s, g, t, lr, betas=(0.9, 0.99), weight_decay=0.0):
    """Algorithm 2 of arXiv:2302.06675."""
    m = s.get("m", 0.0)
    c = betas[0] * m + (1 - betas[0]) * g
    s["m"] = betas[1] * m + (1 - betas[1]) * g
    return p - lr * (np.sign(c) + weight_decay * p)


def lamb(p, s, g, t, lr, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01):
    """Algorithm 2 of arXiv:1904.00962 with phi(z) = z."""
    m = s["m"] = betas[0] * s.get("m", 0.0) + (1 - betas[0]) * g
    v = s["v"] = betas[1] * s.get("v", 0.0) + (1 - betas[1]) * g**2
    r = m / (1 - betas[0] ** t) / (np.sqrt(v / (1 - betas[1] ** t)) + eps)
    return p - lr * np.linalg.norm(p) / np.linalg.norm(r + weight_decay * p) * (r + weight_decay * p)


def adabelief(p, s, g, t, lr, betas=(0.9, 0.999), eps=1e-16, weight_decay=0.0):
    """The algorithm of arXiv:2010.07468, with its authors' decoupled decay."""
    m = s["m"] = betas[0] * s.get("m", 0.0) + (1 - betas[0]) * g
    b = s["s"] = betas[1] * s.get("s", 0.0) + (1 - betas[1]) * (g - m) ** 2 + eps
    p = p * (1 - lr * weight_decay)
    return p - lr * m / (1 - betas[0] ** t) / (np.sqrt(b / (1 - betas[1] ** t)) + eps)


def adamp(p, s, g, t, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, delta=0.1, wd_ratio=0.1, nesterov=False):
    """arXiv:2006.08217 as its authors' code has it: rows first, then the whole."""
    m = s["m"] = betas[0] * s.get("m", 0.0) + (1 - betas[0]) * g
    v = s["v"] = betas[1] * s.get("v", 0.0) + (1 - betas[1]) * g**2
    u = (betas[0] * m + (1 - betas[0]) * g if nesterov else m) / (np.sqrt(v / (1 - betas[1] ** t)) + eps)
    ratio = 1.0
    for rows in (len(p), 1) if p.ndim > 1 else ():
        w, h = p.reshape(rows, -1), g.reshape(rows, -1)
        norm = np.linalg.norm(w, axis=1)
        if (abs((w * h).sum(1)) / (norm * np.linalg.norm(h, axis=1))).max() < delta / w.shape[1] ** 0.5:
            n = w / (norm + eps)[:, None]
            u = u - (n * (n * u.reshape(rows, -1)).sum(1, keepdims=True)).reshape(p.shape)
            ratio, s["projected"] = wd_ratio, s.get("projected", 0) + 1
            break
    return p * (1 - lr * weight_decay * ratio) - lr / (1 - betas[0] ** t) * u


def lars(p, s, g, t, lr, momentum=0.9, weight_decay=0.0, trust_coefficient=1e-3):
    """Algorithm 1 of arXiv:1708.03888."""
    rate = trust_coefficient * np.linalg.norm(p) / (np.linalg.norm(g) + weight_decay * np.linalg.norm(p)) if trust_coefficient else 1.0
    s["v"] = momentum * s.get("v", 0.0) + lr * rate * (g + weight_decay * p)
    return p - s["v"]


def sophia(p, s, g, t, lr, betas=(0.965, 0.99), rho=0.04, eps=1e-12, weight_decay=0.1):
    """Algorithm 3 of arXiv:2305.14342 between two estimates; see test_newer_optimizers.py for these."""
    m = s["m"] = betas[0] * s.get("m", 0.0) + (1 - betas[0]) * g
    return p - lr * weight_decay * p - lr * np.clip(m / np.maximum(rho * s.get("h", 0.0), eps), -1, 1)


# ---- and of all parameters together: {name: p}, {name: gradient}, states by name, one for all of them, {name: options} ----------------
def prodigy(arrays, found, states, s, options):
    """Algorithm 4 of arXiv:2306.06101, as its authors' code has it."""
    o = {"betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0, "decouple": True, "d0": 1e-6, "d_coef": 1.0, "growth_rate": np.inf}
    o |= next(iter(options.values()))
    beta3 = o.get("beta3") or o["betas"][1] ** 0.5
    d, rates = s.setdefault("d", o["d0"]), {}
    above, below = s.get("above", 0.0) * beta3, 0.0
    for n, g in found.items():
        mine, k = {**o, **options[n]}, states[n]
        (b1, b2), p = mine["betas"], arrays[n]
        g = g + (0.0 if mine["decouple"] else mine["weight_decay"]) * p
        k["start"] = k.get("start", p)
        rates[n] = d * mine["lr"] * ((1 - b2 ** k["t"]) ** 0.5 / (1 - b1 ** k["t"]) if mine.get("use_bias_correction") else 1.0)
        above += d / o["d0"] * rates[n] * (g * (k["start"] - p)).sum()
        k["m"] = b1 * k.get("m", 0.0) + d * (1 - b1) * g
        k["v"] = b2 * k.get("v", 0.0) + d * d * (1 - b2) * g * g
        k["s"] = beta3 * k.get("s", 0.0) + d / o["d0"] * (d if mine.get("safeguard_warmup") else rates[n]) * g
        below += abs(k["s"]).sum()
    hat = o["d_coef"] * above / below
    s["above"], s["most"] = above, max(s.get("most", o["d0"]), hat)
    s["d"] = min(s["most"], (max(d, hat) if d == o["d0"] else d) * o["growth_rate"])
    for n in found:
        mine, k = {**o, **options[n]}, states[n]
        decay = mine["weight_decay"] * rates[n] if mine["decouple"] else 0.0
        arrays[n] = arrays[n] * (1 - decay) - rates[n] * k["m"] / (np.sqrt(k["v"]) + s["d"] * mine["eps"])


def schedule_free(arrays, found, states, s, options):
    """arXiv:2405.15682 as its authors' code has it: with betas of AdamW, without of SGD."""
    s["k"] = s.get("k", 0) + 1
    for n in arrays:
        o = {"weight_decay": 0.0, "warmup_steps": 0, "r": 0.0, "weight_lr_power": 2.0, "eps": 1e-8, **options[n]}
        group = s.setdefault(str(options[n]), {"most": 0.0, "sum": 0.0, "k": 0})  # the same options: one group
        lr = o["lr"] * min(1.0, s["k"] / o["warmup_steps"] if o["warmup_steps"] else 1.0)
        group["most"] = max(lr, group["most"])
        weight = s["k"] ** o["r"] * group["most"] ** o["weight_lr_power"]
        if group["k"] < s["k"]:
            group["k"], group["sum"] = s["k"], group["sum"] + weight
        if n not in found:
            continue
        k, y, g, share = states[n], arrays[n], found[n], weight / group["sum"]
        z, beta = k.get("z", y), o["betas"][0] if "betas" in o else o["momentum"]
        if "betas" in o:
            b2 = o["betas"][1]
            k["v"] = b2 * k.get("v", 0.0) + (1 - b2) * g * g
            g = g / (np.sqrt(k["v"] / (1 - b2 ** k["t"])) + o["eps"])
        g = g + o["weight_decay"] * y
        arrays[n] = y + share * (z - y) + g * lr * (beta * (1 - share) - 1)
        k["z"] = z - lr * g


# ---- one case of each kind and option: (class, options, groups) ------------------------------------------------------------------------
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "sgd momentum": ("SGD", {"lr": 0.02, "momentum": 0.9}, {}),
    "sgd": ("SGD", {"lr": 0.05}, {}),
    "sgd dampening": ("SGD", {"lr": 0.02, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1}, {}),
    "sgd nesterov": ("SGD", {"lr": 0.02, "momentum": 0.8, "nesterov": True, "weight_decay": 0.01}, {}),
    "sgd decay": ("SGD", {"lr": 0.05, "weight_decay": 0.2}, {}),
    "sgd up": ("SGD", {"lr": 0.01, "maximize": True, "weight_decay": 0.1}, {}),
    "sgd groups": ("SGD", {"lr": 0.02, "momentum": 0.9, "weight_decay": 0.1}, {"b": {"momentum": 0.0, "weight_decay": 0.0}}),
    "adam": ("Adam", {"lr": 0.03}, {}),
    "adam l2": ("Adam", {"lr": 0.03, "betas": (0.8, 0.99), "eps": 1e-3, "weight_decay": 0.1}, {}),
    "adam no momentum": ("Adam", {"lr": 0.03, "betas": (0.0, 0.9)}, {}),
    "adamw": ("AdamW", {"lr": 0.03}, {}),
    "adamw decay": ("AdamW", {"lr": 0.03, "weight_decay": 0.5, "eps": 1e-2}, {}),
    "adamw groups": ("AdamW", {"lr": 0.03, "weight_decay": 0.5}, {"b": {"weight_decay": 0.0, "lr": 0.1, "betas": (0.7, 0.9)}}),
    **{
        f"{kind.lower()} {' '.join(options)}": (kind, {"lr": 0.1, **options}, {})
        for kind in ("Adam", "AdamW")
        for options in ({"amsgrad": True}, {"maximize": True}, {"amsgrad": True, "maximize": True, "weight_decay": 0.1})
    },
    "rmsprop": ("RMSprop", {"lr": 0.02, "weight_decay": 0.1}, {}),
    "rmsprop momentum": ("RMSprop", {"lr": 0.02, "momentum": 0.8, "alpha": 0.9}, {"b": {"momentum": 0.0, "lr": 0.1}}),
    "rmsprop centered": ("RMSprop", {"lr": 0.01, "centered": True, "maximize": True}, {"b": {"centered": False}}),
    "rmsprop both": ("RMSprop", {"lr": 0.01, "centered": True, "momentum": 0.5}, {"b": {"eps": 1e-3}}),
    "adagrad": ("Adagrad", {"lr": 0.1, "lr_decay": 0.05, "weight_decay": 0.1}, {"b": {"lr_decay": 0.2, "eps": 1e-3}}),
    "adagrad up": ("Adagrad", {"lr": 0.05, "maximize": True, "initial_accumulator_value": 0.1}, {}),
    "adadelta": ("Adadelta", {"weight_decay": 0.1}, {"b": {"rho": 0.8, "lr": 0.5}}),
    "adadelta up": ("Adadelta", {"eps": 1e-3, "maximize": True}, {}),
    "radam": ("RAdam", {"lr": 0.05, "weight_decay": 0.1}, {"b": {"betas": (0.8, 0.9)}}),
    "radam decoupled": ("RAdam", {"lr": 0.05, "weight_decay": 0.2, "decoupled_weight_decay": True, "betas": (0.9, 0.7)}, {}),
    "radam up": ("RAdam", {"lr": 0.05, "maximize": True}, {}),
    "nadam": ("NAdam", {"lr": 0.05, "weight_decay": 0.1}, {"b": {"momentum_decay": 0.1, "lr": 0.02}}),
    "nadam decoupled": ("NAdam", {"lr": 0.05, "weight_decay": 0.2, "decoupled_weight_decay": True, "maximize": True}, {}),
    "adamax": ("Adamax", {"lr": 0.05, "weight_decay": 0.1}, {"b": {"betas": (0.8, 0.9)}}),
    "adamax up": ("Adamax", {"lr": 0.05, "maximize": True}, {}),
    "lion": ("Lion", {"lr": 0.01, "weight_decay": 0.3}, {"b": {"betas": (0.8, 0.9), "lr": 0.02}}),
    "lion up": ("Lion", {"lr": 0.01, "maximize": True}, {}),
    "lamb": ("LAMB", {"lr": 0.05}, {"b": {"betas": (0.8, 0.9), "weight_decay": 0.5}}),
    "lamb up": ("LAMB", {"lr": 0.02, "maximize": True, "weight_decay": 0.0}, {}),
    "adafactor": ("Adafactor", {"lr": 0.05, "weight_decay": 0.1}, {"b": {"beta2_decay": -0.5, "d": 2.0, "lr": 0.2}}),
    "adafactor up": ("Adafactor", {"lr": 0.1, "eps": (1e-2, 0.5), "maximize": True}, {}),
    "muon": ("Muon", {"lr": 0.05}, {"b": {"nesterov": False, "weight_decay": 0.0}}),
    "adabelief": ("AdaBelief", {"lr": 0.02, "weight_decay": 0.3}, {"b": {"betas": (0.8, 0.9), "eps": 1e-8}}),
    "adabelief up": ("AdaBelief", {"lr": 0.01, "maximize": True}, {}),
    "adamp": ("AdamP", {"lr": 0.05, "weight_decay": 0.2, "delta": 1.7}, {"b": {"betas": (0.8, 0.9), "weight_decay": 0.5}}),
    "adamp nesterov": ("AdamP", {"lr": 0.02, "nesterov": True, "weight_decay": 0.1, "wd_ratio": 0.0, "delta": 4.0}, {}),
    "adamp up": ("AdamP", {"lr": 0.02, "maximize": True}, {}),
    "lars": ("LARS", {"lr": 2.0, "weight_decay": 0.1, "trust_coefficient": 0.01}, {"b": {"trust_coefficient": 0.0, "lr": 0.05}}),
    "lars up": ("LARS", {"lr": 1.0, "momentum": 0.5, "maximize": True}, {}),
    "sophia": ("Sophia", {"lr": 0.01}, {"b": {"betas": (0.8, 0.9), "weight_decay": 0.5}}),
    "sophia up": ("Sophia", {"lr": 0.01, "maximize": True}, {}),
    "prodigy": ("Prodigy", {"lr": 1.0, "weight_decay": 0.1}, {"b": {"lr": 0.5, "betas": (0.8, 0.9)}}),
    "prodigy l2": ("Prodigy", {"lr": 0.5, "weight_decay": 0.1, "decouple": False, "use_bias_correction": True, "growth_rate": 1.5}, {}),
    "prodigy up": ("Prodigy", {"lr": 1.0, "maximize": True, "safeguard_warmup": True, "d0": 1e-4, "d_coef": 2.0, "beta3": 0.9}, {}),
    "schedule-free sgd": ("SGDScheduleFree", {"lr": 0.1, "momentum": 0.8, "weight_decay": 0.1}, {"b": {"lr": 0.02, "r": 1.0}}),
    "schedule-free": ("AdamWScheduleFree", {"lr": 0.05, "betas": (0.9, 0.99), "warmup_steps": 5}, {"b": {"weight_decay": 0.3, "lr": 0.1}}),
    "schedule-free up": ("AdamWScheduleFree", {"lr": 0.05, "betas": (0.8, 0.9), "maximize": True, "weight_lr_power": 0.0, "r": 1.0}, {}),
    "muon long": ("Muon", {"lr": 0.02, "adjust_lr_fn": "match_rms_adamw", "momentum": 0.8, "ns_steps": 3}, {}),
}  # fmt: skip
ONCE = {kind: case for case, (kind, *_) in reversed(CASES.items())}  # one case of each
FIRST = [case for case, (kind, *_) in CASES.items() if kind in ("SGD", "Adam", "AdamW")]


def made(case: str, params: fp.ParameterDict, **more: Any) -> fp.optimizers.Optimizer:
    kind, options, groups = CASES[case]
    hidden = {"lr"} if callable(more.get("lr")) else set()
    groups = {n if n in params else "v": {k: x for k, x in o.items() if k not in hidden} for n, o in groups.items()}
    return getattr(fp, kind)(params, groups=groups, **{**options, **more})


# ---- the oracles -----------------------------------------------------------------------------------------------------------------
PAPERS: dict[str, Callable[..., Any]] = {
    "Lion": lion, "LAMB": lamb, "AdaBelief": adabelief, "AdamP": adamp, "LARS": lars, "Sophia": sophia,
}  # fmt: skip
TOGETHER = {"Prodigy": prodigy, "SGDScheduleFree": schedule_free, "AdamWScheduleFree": schedule_free}


def by_paper(case: str) -> Callable[[Arrays, Arrays], None]:
    kind, options, groups = CASES[case]
    states: dict[str, dict] = {}
    joint: dict[str, Any] = {}

    def together(arrays: Arrays, found: Arrays) -> None:
        for n in found:
            states.setdefault(n, {"t": 0})["t"] += 1
        sign = -1.0 if options.get("maximize") else 1.0
        TOGETHER[kind](
            arrays, {n: sign * g for n, g in found.items()}, states, joint, {n: {**options, **groups.get(n, {})} for n in arrays}
        )

    if kind in TOGETHER:
        return together

    def step(arrays: Arrays, found: Arrays) -> None:
        for n, g in found.items():
            s, more = states.setdefault(n, {"t": 0}), {**options, **groups.get(n, {})}
            s["t"] += 1
            sign = -1.0 if more.pop("maximize", False) else 1.0
            arrays[n] = np.asarray(PAPERS[kind](arrays[n], s, sign * g, s["t"], **more))

    step.states = states  # type: ignore[attr-defined]
    return step


@contextmanager
def wide_numbers(torch: Any) -> Iterator[None]:
    """In float64 what PyTorch would compute with fewer bits whatever the parameters are: NAdam's products, Muon's iterations."""
    torch.set_default_dtype(torch.float64)
    with patch.object(torch.Tensor, "bfloat16", lambda t: t.clone()):
        yield
    torch.set_default_dtype(torch.float32)


def by_torch(case: str) -> Callable[[Arrays, Arrays], None]:
    torch = pytest.importorskip("torch")
    kind, options, groups = CASES[case]
    leaves = {n: torch.tensor(a) for n, a in start(case).items()}
    apart = [{"params": [leaves[n if n in leaves else "v"]], **more} for n, more in groups.items()]
    rest = [t for t in leaves.values() if not any(t is g["params"][0] for g in apart)]
    optimizer = getattr(torch.optim, kind)([*apart, {"params": rest}], **options)

    def step(arrays: Arrays, found: Arrays) -> None:
        for n, leaf in leaves.items():
            leaf.grad = torch.tensor(found[n]) if n in found else None
        with wide_numbers(torch):
            optimizer.step()
        arrays.update({n: leaf.numpy().copy() for n, leaf in leaves.items()})

    return step


def expected(case: str, steps: int) -> list[Arrays]:
    step, arrays, path = (by_paper if CASES[case][0] in (*PAPERS, *TOGETHER) else by_torch)(case), start(case), []
    for n in range(steps):
        step(arrays, gradient_of(arrays, n))
        path.append(dict(arrays))
    return path


def check(case: str, params: fp.ParameterDict, steps: int, atol: float = 1e-12) -> None:
    """Train as the oracle does. Prodigy's distance makes more of the last bits."""
    atol = 1e-10 if case.startswith("prodigy") else atol
    for n, (mine, theirs) in enumerate(zip(train(params, made(case, params), 0, steps), expected(case, steps), strict=True)):
        for name, a in mine.items():
            np.testing.assert_allclose(a, theirs[name], rtol=1e-10, atol=atol, err_msg=f"step {n} {name}")
