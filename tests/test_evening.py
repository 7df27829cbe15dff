"""core/ alone, where nothing else of flamepy is on disk: it trains a small GPT, is twice differentiable and strict, takes users' ops."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import flamepy

HEAD = """
import sys
import numpy as np
import core.evening as fp

def others():
    return sorted({m.partition(".")[0] for m in sys.modules} & {"flamepy", "numba", "llvmlite", "ml_dtypes", "safetensors"})
"""

GPT = """
class GPT:
    def __init__(self, classes, width, heads, context):
        draw, P = np.random.default_rng(0).standard_normal, fp.Parameter
        weight = lambda *shape: P((0.1 * draw(shape)).astype("f4"))
        self.heads = heads
        self.params = fp.ParameterDict({
            "tokens": weight(classes, width), "places": weight(context, width), "qkv": weight(width, 3 * width),
            "out": weight(width, width),
            "up": weight(width, 4 * width), "down": weight(4 * width, width), "head": weight(width, classes),
            "norm1": P(fp.ones(width)), "norm2": P(fp.ones(width)),
        })

    def attention(self, x):
        p, (n, t, width) = self.params, x.shape
        qkv = (x @ p["qkv"]).reshape(n, t, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        scores = q @ k.transpose(-2, -1) / (width // self.heads) ** 0.5
        seen = fp.tensor(np.tri(t, dtype=bool))
        y = fp.softmax(fp.where(seen, scores, -1e9), axis=-1) @ v
        return y.permute(0, 2, 1, 3).reshape(n, t, width) @ p["out"]

    def __call__(self, ids):
        p, (n, t) = self.params, ids.shape
        x = fp.embedding(ids, p["tokens"]) + p["places"][:t]
        x = x + self.attention(fp.layer_norm(x, p["norm1"]))
        x = x + fp.gelu(fp.layer_norm(x, p["norm2"]) @ p["up"]) @ p["down"]
        return (x @ p["head"]).reshape(n * t, -1)

text = np.frombuffer(b"a tape, a walk back, and gradients are values. " * 8, np.uint8).astype(np.int64) % 32
model = GPT(32, 16, 2, 12)
optimizer = fp.AdamW(model.params, lr=1e-2)
losses = []
for step in range(60):
    at = np.random.default_rng(step).integers(0, len(text) - 13, 6)
    rows = np.stack([text[i : i + 13] for i in at])
    loss = fp.cross_entropy(model(fp.tensor(rows[:, :-1])), fp.tensor(rows[:, 1:].reshape(-1)))
    grads = loss.backward()
    assert set(grads.to_dict(model.params)) == set(model.params)
    fp.clip_grad_norm(grads, 1.0)
    assert optimizer.step(grads)
    losses.append(loss.item())
print(others(), losses[0] > 3.3, losses[-1] < 1.5, fp.device())
"""

CALCULUS = """
x = fp.tensor([0.3, -0.8], dtype=fp.float64, requires_grad=True)
w = fp.tensor([[1.5], [2.0]], dtype=fp.float64, requires_grad=True)
first = (x * x * x).sum().backward(create_graph=True)[x]
second = first.sum().backward()[x]
assert np.allclose(second.numpy(), 6 * x.numpy())
penalty = ((x @ w).tanh().sum().backward(create_graph=True)[x] ** 2).sum()  # |dy/dx|^2
h, slope = 1e-6, penalty.backward()[w].numpy()
for i in range(2):
    def at(d):
        v = w.numpy().copy()
        v[i] += d
        s = 1 - np.tanh(x.numpy() @ v) ** 2
        return ((s * v.ravel()) ** 2).sum()
    assert np.isclose(slope[i, 0], (at(h) - at(-h)) / (2 * h), rtol=1e-5), i

from core.words import exp, log, rint

def softplus_y(x): return log(1.0 + exp(x))
def softplus_dx(g, x): return g / (1.0 + exp(-x))
softplus = fp.pointwise("softplus", softplus_y, softplus_dx)
g = softplus(x).sum().backward(create_graph=True)[x]
s = 1 / (1 + np.exp(-x.numpy()))
assert np.allclose(g.numpy(), s) and np.allclose(g.sum().backward()[x].numpy(), s * (1 - s))
def twice_y(x): return x + x
twice = fp.pointwise("twice", twice_y)  # without a derivative

loss = (x * x).sum()
loss.backward(retain_graph=True)
loss.backward()
wrong = []
g = fp.tensor([1.0, 2.0])
for act in (loss.backward, (x > 0).backward, lambda: twice(x), lambda: (x @ w).backward(gradient=g)):
    try:
        act()
    except (fp.FlameError, AttributeError) as error:
        wrong.append(type(error).__name__)
with fp.no_grad():
    assert not (x * 2).requires_grad
seen = []
y = x * 2.0
y.register_hook(lambda g: seen.append(g.tolist()))
(y * 3.0).sum().backward()
p = fp.Parameter([1.0, 2.0])
z = (p * p).sum()
p.device.copy(p.buffer, fp.tensor([5.0, 6.0]).buffer)
p.buffer.wrote("a test")
try:
    z.backward()
except fp.FlameError as error:
    wrong.append(type(error).__name__)
absent, n = [], fp.tensor([1, 2])  # what flamepy adds: nothing here gives other numbers than there
def steps():
    yield (x * 2).requires_grad

for act in (
    lambda: x // 2, lambda: 5 % x, lambda: n**2, lambda: 2**n, lambda: x.floor(), lambda: fp.isnan(x), lambda: x[n],
    lambda: x[x > 0], lambda: fp.no_grad(steps),
):
    try:
        act()
    except (TypeError, fp.FlameError, AttributeError) as error:
        absent.append(type(error).__name__)
assert absent == [*["TypeError"] * 2, *["DTypeError"] * 2, *["AttributeError"] * 2, *["DTypeError"] * 2, "GradientError"], absent
def steps_y(x): return x * rint(x)
def steps_dx(g, x): return g * rint(x)
wave = fp.pointwise("wave", steps_y, steps_dx)
try:
    wave(x).sum().backward(create_graph=True)
except fp.FlameError as error:
    assert "its word rint() is no op" in str(error), error
third = (x**3 + x**-1).sum().backward(create_graph=True)[x]
assert np.allclose(third.sum().backward()[x].numpy(), 6 * x.numpy() + 2 / x.numpy() ** 3)
assert np.array_equal((x.detach() ** 0.5).numpy(), x.detach().sqrt().numpy(), equal_nan=True)
both, g = fp.GradientMap(), fp.tensor([3.0, 4.0])
both[1] = both[2] = g
fp.clip_grad_norm(both, 1.0)
assert np.allclose(g.numpy(), np.array([3.0, 4.0]) / 50**0.5, rtol=1e-5), g  # one gradient under two keys is scaled once
print(others(), wrong, seen, fp.tape((x * 2.0).sum()).__class__.__name__)
"""


def alone(folder: Path, code: str) -> str:
    shutil.copytree(Path(flamepy.__file__).parent / "core", folder / "core", ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run([sys.executable, "-c", HEAD + code], cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_core_alone_trains_a_gpt(tmp_path: Path) -> None:
    assert alone(tmp_path, GPT) == "[] True True plain\n"


@pytest.mark.quick
def test_core_alone_is_twice_differentiable_strict_and_open(tmp_path: Path) -> None:
    wrong = ["GradientError", "GradientError", "GradientError", "ShapeError", "VersionError"]
    assert alone(tmp_path, CALCULUS) == f"[] {wrong} [[3.0, 3.0]] Tape\n"
