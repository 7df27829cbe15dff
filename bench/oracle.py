"""The training steps of suite `step` in NumPy, float64: what every contender's first losses and gradient norms must be.

A layer is a function x -> (y, back); back(g) adds the gradients of the layer's weights to `d` and returns the gradient of x.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .libraries import Numpy
from .networks import CLIP, LR, Gpt, Lstm, Shape, batch, weights
from .resnets import MOMENTUM, ResNet, blocks_of
from .unets import UNet

Back = Callable[[Any], Any]
Layer = Callable[[Any], tuple[Any, Back]]
Arrays = dict[str, np.ndarray]
L = Numpy()


def chain(*layers: Layer) -> Layer:
    def run(x: Any) -> tuple[Any, Back]:
        backs = []
        for layer in layers:
            x, back = layer(x)
            backs.append(back)

        def all_back(g: Any) -> Any:
            for back in reversed(backs):
                g = back(g)
            return g

        return x, all_back

    return run


def residual(*layers: Layer) -> Layer:
    def run(x: Any) -> tuple[Any, Back]:
        y, back = chain(*layers)(x)
        return x + y, lambda g: g + back(g)

    return run


def linear(w: Arrays, d: Arrays, name: str, bias: bool = True) -> Layer:
    def run(x: Any) -> tuple[Any, Back]:
        weight = w[name + ".weight"]

        def back(g: Any) -> Any:
            rows = g.reshape(-1, g.shape[-1])
            d[name + ".weight"] += rows.T @ x.reshape(-1, x.shape[-1])
            if bias:
                d[name + ".bias"] += rows.sum(0)
            return g @ weight

        return x @ weight.T + (w[name + ".bias"] if bias else 0), back

    return run


def layer_norm(w: Arrays, d: Arrays, name: str) -> Layer:
    def run(x: Any) -> tuple[Any, Back]:
        weight = w[name + ".weight"]
        scale = 1 / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
        unit = (x - x.mean(-1, keepdims=True)) * scale

        def back(g: Any) -> Any:
            d[name + ".weight"] += (g * unit).reshape(-1, x.shape[-1]).sum(0)
            d[name + ".bias"] += g.reshape(-1, x.shape[-1]).sum(0)
            h = g * weight
            return scale * (h - h.mean(-1, keepdims=True) - unit * (h * unit).mean(-1, keepdims=True))

        return unit * weight + w[name + ".bias"], back

    return run


def gelu(x: Any) -> tuple[Any, Back]:
    c = math.sqrt(2 / math.pi)
    t = np.tanh(c * (x + 0.044715 * x * x * x))
    slope = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x)
    return 0.5 * x * (1 + t), lambda g: g * slope


def relu(x: Any) -> tuple[Any, Back]:
    return np.maximum(x, 0), lambda g: g * (x > 0)


def flatten(x: Any) -> tuple[Any, Back]:
    return x.reshape(len(x), -1), lambda g: g.reshape(x.shape)


def pool(x: Any) -> tuple[Any, Back]:
    y = L.max_pool(x)

    def back(g: Any) -> Any:
        wide = [a.repeat(2, 2).repeat(2, 3) for a in (y, g)]
        return wide[1] * (x == wide[0])

    return y, back


def conv(w: Arrays, d: Arrays, name: str) -> Layer:
    def run(x: Any) -> tuple[Any, Back]:
        weight = w[name + ".weight"]

        def back(g: Any) -> Any:
            if name + ".bias" in d:
                d[name + ".bias"] += g.sum((0, 2, 3))
            d[name + ".weight"] += np.tensordot(g, windows(x), ((0, 2, 3), (0, 2, 3)))
            turned = weight[:, :, ::-1, ::-1].transpose(1, 0, 2, 3)
            return L.conv2d(g, turned, np.zeros(len(turned)), 1)

        return L.conv2d(x, weight, w.get(name + ".bias", np.zeros(len(weight))), 1), back

    return run


def windows(x: Any) -> Any:
    """(n, c, h, w, 3, 3): what the kernel sees at every place."""
    return np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3))


def every(step: int) -> Layer:
    """Each step-th line and column: after it, or before a window of one number, a convolution takes such steps."""

    def run(x: Any) -> tuple[Any, Back]:
        def back(g: Any) -> Any:
            dx = np.zeros_like(x)
            dx[:, :, ::step, ::step] = g
            return dx

        return x[:, :, ::step, ::step], back

    return run


def mixed(w: Arrays, d: Arrays, name: str) -> Layer:
    """A convolution whose window is one number."""

    def run(x: Any) -> tuple[Any, Back]:
        weight = w[name + ".weight"][:, :, 0, 0]

        def back(g: Any) -> Any:
            d[name + ".weight"][:, :, 0, 0] += np.einsum("nohw,nchw->oc", g, x, optimize=True)
            if name + ".bias" in d:
                d[name + ".bias"] += g.sum((0, 2, 3))
            return np.einsum("nohw,oc->nchw", g, weight, optimize=True)

        return np.einsum("nchw,oc->nohw", x, weight, optimize=True) + w.get(name + ".bias", np.zeros(len(weight)))[:, None, None], back

    return run


def wider(w: Arrays, d: Arrays, name: str) -> Layer:
    """A transposed convolution whose windows of 2 x 2 lie side by side."""

    def run(x: Any) -> tuple[Any, Back]:
        weight, (n, _, lines, columns) = w[name + ".weight"], x.shape

        def back(g: Any) -> Any:
            g = g.reshape(n, -1, lines, 2, columns, 2)
            d[name + ".weight"] += np.einsum("nchw,nohiwj->coij", x, g, optimize=True)
            d[name + ".bias"] += g.sum((0, 2, 3, 4, 5))
            return np.einsum("nohiwj,coij->nchw", g, weight, optimize=True)

        y = np.einsum("nchw,coij->nohiwj", x, weight, optimize=True).reshape(n, -1, 2 * lines, 2 * columns)
        return y + w[name + ".bias"][:, None, None], back

    return run


def unet(shape: UNet, w: Arrays, d: Arrays) -> Layer:
    """One level, and what is below it between its ways down and up."""

    def two(name: str) -> Layer:
        return chain(conv(w, d, name + "0"), relu, conv(w, d, name + "2"), relu)

    def level(i: int) -> Layer:
        if i == shape.levels - 1:
            return two(f"down.{i}.")
        below = chain(pool, level(i + 1), wider(w, d, f"wider.{i}"))

        def run(x: Any) -> tuple[Any, Back]:
            seen, back_seen = two(f"down.{i}.")(x)
            deep, back_deep = below(seen)
            y, back_up = two(f"up.{i}.")(np.concatenate([seen, deep], 1))

            def back(g: Any) -> Any:
                g = back_up(g)
                channels = seen.shape[1]
                return back_seen(g[:, :channels] + back_deep(g[:, channels:]))

            return y, back

        return run

    return chain(level(0), mixed(w, d, "head"), pixels)


def pixels(x: Any) -> tuple[Any, Back]:
    """(pixels, classes)."""
    n, classes, lines, columns = x.shape
    turned = (0, 2, 3, 1)
    return x.transpose(turned).reshape(-1, classes), lambda g: g.reshape(n, lines, columns, classes).transpose(0, 3, 1, 2)


def batch_norm(w: Arrays, d: Arrays, name: str) -> Layer:
    def run(x: Any) -> tuple[Any, Back]:
        weight, bias = (w[f"{name}.{part}"][:, None, None] for part in ("weight", "bias"))
        axes = (0, 2, 3)
        scale = 1 / np.sqrt(x.var(axes, keepdims=True) + 1e-5)
        unit = (x - x.mean(axes, keepdims=True)) * scale

        def back(g: Any) -> Any:
            d[name + ".weight"] += (g * unit).sum(axes)
            d[name + ".bias"] += g.sum(axes)
            h = g * weight
            return scale * (h - h.mean(axes, keepdims=True) - unit * (h * unit).mean(axes, keepdims=True))

        return unit * weight + bias, back

    return run


def mean_of_places(x: Any) -> tuple[Any, Back]:
    places = x.shape[2] * x.shape[3]
    return x.mean((2, 3)), lambda g: np.broadcast_to(g[:, :, None, None] / places, x.shape)


def resnet(shape: ResNet, w: Arrays, d: Arrays) -> Layer:
    layers: list[Layer] = [conv(w, d, "conv"), batch_norm(w, d, "norm"), relu]
    for at, n_in, n_out, step in blocks_of(shape):
        first = [conv(w, d, at + "conv1"), every(step), batch_norm(w, d, at + "norm1"), relu]
        path = chain(*first, conv(w, d, at + "conv2"), batch_norm(w, d, at + "norm2"))
        skip = chain(every(step), mixed(w, d, at + "skip"), batch_norm(w, d, at + "skip_norm")) if n_in != n_out else chain()
        layers += [both(path, skip), relu]
    return chain(*layers, mean_of_places, linear(w, d, "head"))


def both(one: Layer, other: Layer) -> Layer:
    """The sum of what two make of x."""

    def run(x: Any) -> tuple[Any, Back]:
        (a, back_a), (b, back_b) = one(x), other(x)
        return a + b, lambda g: back_a(g) + back_b(g)

    return run


def attention(heads: int) -> Layer:
    def run(qkv: Any) -> tuple[Any, Back]:
        b, t, width = qkv.shape
        each = width // (3 * heads)
        q, k, v = qkv.reshape(b, t, 3, heads, each).transpose(2, 0, 3, 1, 4)
        p = L.softmax(np.where(np.tri(t, dtype=bool), q @ k.swapaxes(2, 3) / math.sqrt(each), -np.inf))

        def back(g: Any) -> Any:
            g = g.reshape(b, t, heads, each).transpose(0, 2, 1, 3)
            dp = g @ v.swapaxes(2, 3)
            ds = p * (dp - (dp * p).sum(-1, keepdims=True)) / math.sqrt(each)
            parts = np.stack([ds @ k, ds.swapaxes(2, 3) @ q, p.swapaxes(2, 3) @ g])
            return parts.transpose(1, 3, 0, 2, 4).reshape(qkv.shape)

        return (p @ v).transpose(0, 2, 1, 3).reshape(b, t, heads * each), back

    return run


def embedding(w: Arrays, d: Arrays) -> Layer:
    def run(ids: Any) -> tuple[Any, Back]:
        def back(g: Any) -> None:
            np.add.at(d["token.weight"], ids, g)
            if "position.weight" in d:
                d["position.weight"] += g.sum(0)

        return w["token.weight"][ids] + w.get("position.weight", 0), back

    return run


def lstm(w: Arrays, d: Arrays, i: int) -> Layer:
    """Layer i over time, which is the first axis."""

    def sigmoid(z: Any) -> Any:
        return 1 / (1 + np.exp(-z))

    names = [f"lstm.{part}_l{i}" for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    w_ih, w_hh, b_ih, b_hh = (w[name] for name in names)

    def run(x: Any) -> tuple[Any, Back]:
        h = c = np.zeros((x.shape[1], w_hh.shape[1]))
        kept, y = [], []
        for now in x:
            a, f, b, o = np.split(now @ w_ih.T + b_ih + h @ w_hh.T + b_hh, 4, -1)
            a, f, b, o, before = sigmoid(a), sigmoid(f), np.tanh(b), sigmoid(o), (h, c)
            c = f * c + a * b
            h = o * np.tanh(c)
            kept.append((a, f, b, o, np.tanh(c), before))
            y.append(h)

        def back(g: Any) -> Any:
            dx, dh, dc = np.zeros_like(x), np.zeros_like(h), np.zeros_like(c)
            for t in range(len(x))[::-1]:
                a, f, b, o, top, (past, last) = kept[t]
                dh = dh + g[t]
                dc = dc + dh * o * (1 - top * top)
                dz = np.concatenate([dc * b * a * (1 - a), dc * last * f * (1 - f), dc * a * (1 - b * b), dh * top * o * (1 - o)], -1)
                for name, part in zip(names, (dz.T @ x[t], dz.T @ past, dz.sum(0), dz.sum(0)), strict=True):
                    d[name] += part
                dx[t], dh, dc = dz @ w_ih, dz @ w_hh, dc * f
            return dx

        return np.array(y), back

    return run


def network(shape: Shape, w: Arrays, d: Arrays) -> Layer:
    """The whole network, up to the logits."""
    if isinstance(shape, ResNet):
        return resnet(shape, w, d)
    if isinstance(shape, UNet):
        return unet(shape, w, d)
    if isinstance(shape, Lstm):
        return chain(embedding(w, d), *[lstm(w, d, i) for i in range(shape.layers)], linear(w, d, "head"))
    if not isinstance(shape, Gpt):
        plain = {"relu": relu, "flatten": flatten, "pool": pool}
        wide = {"linear": linear, "conv": conv}
        return chain(*[wide[kind](w, d, str(i)) if ends else plain[kind] for i, (kind, *ends) in enumerate(shape.layers)])
    layers: list[Layer] = [embedding(w, d)]
    for i in range(shape.layers):
        at = f"blocks.{i}."
        norms = [layer_norm(w, d, at + f"norm{n}") for n in (1, 2)]
        layers += [
            residual(norms[0], linear(w, d, at + "attn.qkv"), attention(shape.heads), linear(w, d, at + "attn.proj")),
            residual(norms[1], linear(w, d, at + "mlp.0"), gelu, linear(w, d, at + "mlp.2")),
        ]
    return chain(*layers, layer_norm(w, d, "norm"), linear(w, d, "token", bias=False))


def first_steps(shape: Shape, steps: int, moved: float = 0.0, draw: int = 0) -> list[np.ndarray]:
    """Losses and gradient norms (before clipping) of the first steps. moved: every first weight is off by up to so much of itself, as
    random numbers say, others for each `draw`."""
    random = np.random.default_rng(draw)
    w = {name: a.astype(np.float64) * (1 + moved * random.uniform(-1, 1, a.shape)) for name, a in weights(shape).items()}
    m, v = ({name: np.zeros_like(a) for name, a in w.items()} for _ in range(2))
    x, ids = batch(shape)
    rows, losses, norms = np.arange(len(ids)), [], []
    for n in range(1, steps + 1):
        d = {name: np.zeros_like(a) for name, a in w.items()}
        logits, back = network(shape, w, d)(x)
        logs = L.log_softmax(logits.reshape(len(ids), -1))
        g = np.exp(logs)
        g[rows, ids] -= 1
        back((g / len(ids)).reshape(logits.shape))
        losses.append(-logs[rows, ids].mean())
        norms.append(math.sqrt(sum(np.sum(a * a) for a in d.values())))
        scale = min(1.0, CLIP / (norms[-1] + 1e-6))
        for name, p in w.items():
            if isinstance(shape, ResNet | UNet):
                m[name] = MOMENTUM * m[name] + d[name] * scale
                p -= LR * m[name]
                continue
            adam(p, m[name], v[name], d[name] * scale, n, shape.decay)
    return [np.array(losses), np.array(norms)]


def adam(p: np.ndarray, m: np.ndarray, v: np.ndarray, g: np.ndarray, n: int, decay: float) -> None:
    """AdamW in place (Kingma & Ba 2014; Loshchilov & Hutter 2017)."""
    m += 0.1 * (g - m)
    v += 0.001 * (g * g - v)
    p *= 1 - LR * decay
    p -= LR * (m / (1 - 0.9**n)) / (np.sqrt(v / (1 - 0.999**n)) + 1e-8)
