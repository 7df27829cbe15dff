"""Digests of what flamepy computes, and its signatures: made before code is moved, compared after.

    python tools/digests.py make FILE        # a JSON object, one line per digest
    python tools/digests.py compare FILE     # which differ; exits with 1 if any does

A digest is the SHA-256 of the bits of results, so it holds for one machine and one set of library versions.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ["NUMBA_NUM_THREADS"] = "2"
ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import numpy as np  # noqa: E402
from cases import Case, Sample  # noqa: E402
from devices import default_device  # noqa: E402
from optimizer_tools import SHAPES, map_of, model, state_bits  # noqa: E402
from reference import REFERENCE  # noqa: E402

import flamepy as fp  # noqa: E402
import flamepy.nn.functional as F  # noqa: E402
from flamepy import nn  # noqa: E402
from flamepy.core.op import PUBLIC  # noqa: E402

Found = Iterator[tuple[str, str]]
DEVICES = ("cpu", "plain")
FLOATS = ("float32", "float64", "float16", "bfloat16")
WHOLE = ("int32", "int64", "bool")
OPTIMIZERS = [
    "SGD",
    "Adam",
    "AdamW",
    "Adagrad",
    "Adadelta",
    "Adafactor",
    "Adamax",
    "LAMB",
    "Lion",
    "NAdam",
    "RAdam",
    "RMSprop",
    "Muon",
    "LBFGS",
    "LARS",
    "AdaBelief",
    "AdamP",
    "Prodigy",
    "SGDScheduleFree",
    "AdamWScheduleFree",
    "Sophia",
]
ORDER: dict[str, Callable[..., Any]] = {  # where an op takes its arguments in another order than its oracle
    "gather": lambda x, index, axis: fp.gather(x, axis, index),
    "index_select": lambda x, index, axis: fp.index_select(x, axis, index),
    "getitem": lambda x, key: x[key],
}


def feed(into: Any, value: Any) -> None:
    if isinstance(value, (list, tuple)):
        for item in value:
            feed(into, item)
        return
    array = np.ascontiguousarray(value.numpy() if isinstance(value, fp.Tensor) else value)
    into.update(f"{value.dtype if isinstance(value, fp.Tensor) else array.dtype}{array.shape}".encode())
    into.update(array.tobytes())


def digest(make: Callable[[], Any]) -> str:
    """Of the arrays, tensors and nested lists that `make` gives; a refusal counts with its kind and words."""
    into = hashlib.sha256()
    try:
        fp.manual_seed(7)
        feed(into, make())
    except (fp.FlameError, TypeError, ValueError, RuntimeError, NotImplementedError, IndexError) as e:
        return f"{type(e).__name__}: {str(e).splitlines()[0][:160]}"
    return into.hexdigest()


# ---- ops


def function(name: str) -> Callable[..., Any]:
    return ORDER.get(name) or getattr(F, name, None) or getattr(fp, name)


def one_call(name: str, case: Case, sample: Sample, dtype: str, device: str) -> Any:
    """Results, then the gradients of all tracked inputs."""
    arrays, whole = case.draw(sample, "float64", 3), dtype in WHOLE
    kind = fp.Tensor
    xs: list[Any] = []
    for a, tracked in zip(arrays, case.tracked(arrays), strict=True):
        x = fp.tensor(a, device=device)
        if a.dtype.kind == "f":
            x = fp.tensor(np.round(a).astype(dtype), device=device) if whole else x.to(getattr(fp, dtype))
        xs.append(x.detach().requires_grad_() if tracked and not whole else x)

    def given(value: Any) -> Any:
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            return fp.tensor(value, device=device).to(xs[0].dtype)
        return value

    options = {k: given(v) for k, v in sample.kwargs.items()}
    y = function(name)(*([xs] if case.listed else xs), *map(given, sample.args), **options)
    ys = list(y) if isinstance(y, (list, tuple)) else [y]
    found: list[Any] = list(ys)
    for i, part in enumerate(ys):
        if isinstance(part, kind) and part.requires_grad:
            g = np.random.default_rng(i).normal(size=part.shape)
            grads = part.backward(gradient=fp.tensor(g, device=device).to(part.dtype), retain_graph=True)
            found += [grads[x] for x in xs if x.requires_grad and x in grads]
    return found


def ops() -> Found:
    for name in sorted(PUBLIC):
        if name not in REFERENCE:
            yield f"op {name}", "no line in reference.py"
    for name, case in REFERENCE.items():
        for device in DEVICES:
            for dtype in (*FLOATS, *WHOLE):
                with default_device(device):
                    found = [digest(lambda: one_call(name, case, s, dtype, device)) for s in case.samples]
                shown = found[0] if len(set(found)) == 1 else hashlib.sha256(repr(found).encode()).hexdigest()
                yield f"op {name} {dtype} {device}", shown


# ---- training


class Gpt(nn.Module):
    """Tokens, places, one block of attention and one of two layers, logits."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(17, 16), nn.Embedding(8, 16)
        self.before, self.between = nn.LayerNorm(16), nn.LayerNorm(16)
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.wide, self.back, self.head = nn.Linear(16, 64), nn.Linear(64, 16), nn.Linear(16, 17)

    def forward(self, ids: Any) -> Any:
        x = self.tokens(ids) + self.places(fp.arange(8, dtype=fp.int64, device=ids.device))
        parts = [t.reshape((-1, 8, 2, 8)).permute((0, 2, 1, 3)) for t in self.qkv(self.before(x)).chunk(3, -1)]
        a = F.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + F.dropout(self.out(a.permute((0, 2, 1, 3)).reshape((-1, 8, 16))), 0.1, training=True)
        return self.head(x + self.back(F.gelu(self.wide(self.between(x)))))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 5)
    )


def trained(which: str, captured: bool, device: str) -> Any:
    """Losses and norms of 20 steps, and all parameters after them."""
    rng = np.random.default_rng(1)
    fp.manual_seed(1)
    net = Gpt() if which == "gpt" else cnn()
    optimizer = fp.AdamW(net.parameters(), lr=1e-2)

    def step(x: Any, t: Any) -> Any:
        y = net(x)
        loss = F.cross_entropy(y.reshape((-1, y.shape[-1])), t)
        grads = loss.backward()
        norm = fp.clip_grad_norm(grads, 1.0)
        optimizer.step(grads)
        return loss, norm

    run = fp.capture(step) if captured else step
    found: list[Any] = []
    for _ in range(20):
        if which == "gpt":
            x, t = rng.integers(0, 17, (4, 8)), rng.integers(0, 17, (32,))
        else:
            x, t = rng.normal(size=(6, 1, 8, 8)).astype("f4"), rng.integers(0, 5, (6,))
        loss, norm = run(fp.tensor(x, device=device), fp.tensor(t, device=device))
        found += [loss.numpy().copy(), np.float64(norm)]
    return [*found, *[p.numpy() for _, p in sorted(net.named_parameters())]]


def training() -> Found:
    for device in DEVICES:
        for which in ("gpt", "cnn"):
            for captured in (False, True):
                with default_device(device):
                    found = digest(lambda: trained(which, captured, device))
                yield f"train {which} {'captured' if captured else 'eager'} {device}", found


def optimized(name: str, dtype: str, pack: bool) -> Any:
    case = "muon" if name == "Muon" else "other"
    params = model(case, dtype, pack)
    optimizer = getattr(fp, name)(params, lr=1e-2)
    if name == "LBFGS":
        for _ in range(3):
            optimizer.step(lambda: sum((p * p).sum() + (3 * p).sin().sum() for p in params.parameters()))
    else:
        for step in range(3):
            optimizer.step(map_of(params, step))
    kept = repr(optimizer.state_dict() if name == "LBFGS" else state_bits(optimizer))  # whose state has no rows by parameter
    state = np.frombuffer(kept.encode(), "u1")
    return [state, *[p.numpy() for p in params.parameters()]]


EDITS: dict[str, Callable[[Any], Any]] = {
    "clip_grad_norm": lambda g: fp.clip_grad_norm(g, 0.5),
    "clip_grad_norm inf": lambda g: fp.clip_grad_norm(g, 0.5, float("inf")),
    "clip_grad_norm 3": lambda g: fp.clip_grad_norm(g, 0.5, 3.0),
    "clip_grad_value": lambda g: fp.clip_grad_value(g, 0.25),
    "grad_norm": fp.grad_norm,
    "grad_norm 1": lambda g: fp.grad_norm(g, 1.0),
}


def edited(edit: Callable[[Any], Any], dtype: str) -> Any:
    params = model("other", dtype)
    grads = map_of(params, 0)
    result = edit(grads)
    return [np.float64(result), *[grads[p] for p in params.parameters() if p in grads]]


def steps() -> Found:
    assert SHAPES
    for device in DEVICES:
        for dtype in FLOATS[:2]:
            with default_device(device):
                for name, edit in EDITS.items():
                    yield f"edit {name} {dtype} {device}", digest(lambda: edited(edit, dtype))
                for name in OPTIMIZERS:
                    for pack in (False, True):
                        key = f"optimizer {name} {dtype} {'packed' if pack else 'apart'} {device}"
                        yield key, digest(lambda: optimized(name, dtype, pack))


DRAWS: dict[str, Callable[..., Any]] = {
    "randn": lambda **o: fp.randn(1001, **o),
    "rand": lambda **o: fp.rand(7, 11, **o),
    "uniform": lambda **o: fp.uniform((1003,), -2.0, 3.0, **o),
    "dropout": lambda **o: F.dropout(fp.ones(1003, **o), 0.3, training=True),
}


def draws() -> Found:
    for device in DEVICES:
        for dtype in FLOATS:
            for name, draw in DRAWS.items():
                yield f"draw {name} {dtype} {device}", digest(lambda: [draw(dtype=getattr(fp, dtype), device=device) for _ in "ab"])


# ---- signatures


def signatures() -> Found:
    classes = [fp.Tensor, fp.Parameter, fp.ParameterDict, fp.GradientMap, *[getattr(fp, n) for n in (*OPTIMIZERS, "ByName")]]
    spaces = [("flamepy", fp), ("nn", nn), ("F", F), *[(c.__name__, c) for c in classes]]
    for title, space in spaces:
        for name in dir(space):
            if name.startswith("_") and name not in ("__init__", "__getitem__", "__setitem__", "__call__"):
                continue
            value = inspect.getattr_static(space, name) if inspect.isclass(space) else getattr(space, name)
            yield f"name {title}.{name}", signature(value)


def signature(value: Any) -> str:
    value = getattr(value, "__func__", value)
    if isinstance(value, property) or not callable(value):
        return type(value).__name__
    try:
        return str(inspect.signature(value))
    except (TypeError, ValueError):
        return type(value).__name__


# ---- the command


def everything() -> dict[str, str]:
    warnings.simplefilter("ignore")
    found: dict[str, str] = {}
    with np.errstate(all="ignore"):
        for part in (ops, training, steps, draws, signatures):
            found.update(part())
    return found


def main(command: str, file: str) -> int:
    now = everything()
    if command == "make":
        Path(file).write_text(json.dumps(now, indent=0, sort_keys=True) + "\n")
        print(f"{len(now)} digests in {file}")
        return 0
    before = json.loads(Path(file).read_text())
    differ = sorted(k for k in {**before, **now} if before.get(k) != now.get(k))
    for key in differ:
        print(f"{key}\n  before: {before.get(key, 'not there')}\n  now:    {now.get(key, 'not there')}")
    print(f"{len(differ)} of {len(before)} differ")
    return 1 if differ else 0


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("make", "compare"):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
