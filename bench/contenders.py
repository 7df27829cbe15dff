"""The training steps of suite `step` in PyTorch and JAX, as their users write them.

PyTorch: modules, scaled_dot_product_attention(is_causal=True), fused optimizers; torch.compile gets model and loss.
JAX: the whole step is one jitted function whose state is donated; matrices are kept (inputs, outputs).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import unets
from .libraries import Jax, torch_module
from .networks import CLIP, LR, Gpt, Lstm, Row, Shape, batch, sequential, weights
from .resnets import MOMENTUM, ResNet
from .unets import UNet

Step = Callable[[], tuple[float, Any]]


# ---- PyTorch -------------------------------------------------------------------------------------------------------------------
def torch_gpt(shape: Gpt) -> Any:
    from torch import arange, nn
    from torch.nn import functional as F

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.proj = nn.Linear(shape.width, 3 * shape.width), nn.Linear(shape.width, shape.width)

        def forward(self, x: Any) -> Any:
            b, t, c = x.shape
            q, k, v = (z.view(b, t, shape.heads, c // shape.heads).transpose(1, 2) for z in self.qkv(x).split(c, 2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.proj(y.transpose(1, 2).contiguous().view(b, t, c))

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            width = shape.width
            self.norm1, self.attn, self.norm2 = nn.LayerNorm(width), Attention(), nn.LayerNorm(width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))

        def forward(self, x: Any) -> Any:
            x = x + self.attn(self.norm1(x))
            return x + self.mlp(self.norm2(x))

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token, self.position = nn.Embedding(shape.vocabulary, shape.width), nn.Embedding(shape.context, shape.width)
            self.blocks = nn.ModuleList([Block() for _ in range(shape.layers)])
            self.norm = nn.LayerNorm(shape.width)

        def forward(self, ids: Any) -> Any:
            x = self.token(ids) + self.position(arange(ids.shape[1], device=ids.device))
            for block in self.blocks:
                x = block(x)
            return F.linear(self.norm(x), self.token.weight).view(-1, shape.vocabulary)

    return GPT()


def torch_lstm(shape: Lstm) -> Any:
    from torch import nn

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token, self.head = nn.Embedding(shape.vocabulary, shape.inputs), nn.Linear(shape.width, shape.vocabulary)
            self.lstm = nn.LSTM(shape.inputs, shape.width, shape.layers)

        def forward(self, ids: Any) -> Any:
            return self.head(self.lstm(self.token(ids))[0]).view(-1, shape.vocabulary)

    return Model()


def torch_model(shape: Shape) -> Any:
    if isinstance(shape, Gpt):
        return torch_gpt(shape)
    torch = torch_module()
    if isinstance(shape, UNet):
        return unets.model(torch.nn, torch.cat, shape)
    return torch_lstm(shape) if isinstance(shape, Lstm) else sequential(torch.nn, shape)


def torch_step(shape: Shape, compiled: bool = False, device: str = "cpu", half: bool = False) -> Step:
    """half: products in bfloat16, by autocast."""
    torch = torch_module()
    model = torch_model(shape)
    # strict: but for running statistics, which are as they are made
    model.load_state_dict({name: torch.tensor(w) for name, w in weights(shape).items()}, strict=not isinstance(shape, ResNet))
    model.to(device)
    ps = list(model.parameters())
    optim = torch.optim
    if isinstance(shape, ResNet | UNet):
        optimizer = optim.SGD(ps, lr=LR, momentum=MOMENTUM, fused=True)
    else:
        optimizer = (optim.AdamW if shape.decay else optim.Adam)(ps, lr=LR, weight_decay=shape.decay, fused=True)
    x, y = (torch.tensor(a, device=device) for a in batch(shape))

    def loss_of(x: Any, y: Any) -> Any:
        with torch.autocast(device, torch.bfloat16, enabled=half):
            return torch.nn.functional.cross_entropy(model(x), y)

    loss_of = torch.compile(loss_of) if compiled else loss_of

    def step() -> tuple[float, Any]:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(x, y)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(ps, CLIP)
        optimizer.step()
        return loss.item(), norm

    return step


# ---- JAX -----------------------------------------------------------------------------------------------------------------------
def jax_gpt(L: Jax, shape: Gpt, p: dict[str, Any], ids: Any) -> Any:
    b, t = ids.shape
    width, heads = shape.width, shape.heads
    x = p["token.weight"][ids] + p["position.weight"]

    def linear(name: str, x: Any) -> Any:
        return x @ p[name + ".weight"] + p[name + ".bias"]

    def norm(name: str, x: Any) -> Any:
        return L.layer_norm(x, p[name + ".weight"], p[name + ".bias"])

    for i in range(shape.layers):
        at = f"blocks.{i}."
        qkv = L.jnp.split(linear(at + "attn.qkv", norm(at + "norm1", x)), 3, -1)
        q, k, v = (z.reshape(b, t, heads, width // heads).transpose(0, 2, 1, 3) for z in qkv)
        x = x + linear(at + "attn.proj", L.attention(q, k, v).transpose(0, 2, 1, 3).reshape(b, t, width))
        x = x + linear(at + "mlp.2", L.gelu(linear(at + "mlp.0", norm(at + "norm2", x))))
    return (norm("norm", x) @ p["token.weight"].T).reshape(-1, shape.vocabulary)


def jax_lstm(L: Jax, shape: Lstm, p: dict[str, Any], ids: Any) -> Any:
    x = p["token.weight"][ids]
    for i in range(shape.layers):
        w, b = p[f"lstm.weight_hh_l{i}"], p[f"lstm.bias_hh_l{i}"]

        def step(state: Any, gates: Any, w: Any = w, b: Any = b) -> Any:
            h, c = state
            i, f, g, o = L.jnp.split(gates + h @ w + b, 4, -1)
            c = L.jax.nn.sigmoid(f) * c + L.jax.nn.sigmoid(i) * L.jnp.tanh(g)
            h = L.jax.nn.sigmoid(o) * L.jnp.tanh(c)
            return (h, c), h

        zeros = L.jnp.zeros((ids.shape[1], shape.width))
        _, x = L.jax.lax.scan(step, (zeros, zeros), x @ p[f"lstm.weight_ih_l{i}"] + p[f"lstm.bias_ih_l{i}"])
    return (x @ p["head.weight"] + p["head.bias"]).reshape(-1, shape.vocabulary)


def jax_network(L: Jax, shape: Shape, p: dict[str, Any], x: Any) -> Any:
    if isinstance(shape, Gpt):
        return jax_gpt(L, shape, p, x)
    if isinstance(shape, Lstm):
        return jax_lstm(L, shape, p, x)
    assert isinstance(shape, Row)  # the residual network is written for modules
    return jax_row(L, shape, p, x)


def jax_row(L: Jax, shape: Row, p: dict[str, Any], x: Any) -> Any:
    for i, (kind, *_) in enumerate(shape.layers):
        if kind == "linear":
            x = x @ p[f"{i}.weight"] + p[f"{i}.bias"]
        elif kind == "conv":
            x = L.conv2d(x, p[f"{i}.weight"], p[f"{i}.bias"], 1)
        else:
            x = {"relu": L.relu, "pool": L.max_pool, "flatten": lambda x: x.reshape(len(x), -1)}[kind](x)
    return x


def jax_update(L: Jax, p: Any, m: Any, v: Any, g: Any, rises: Any, decay: float) -> tuple[Any, Any, Any]:
    """AdamW (Adam without decay) for one parameter."""
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    change = (m / rises[0]) / (L.jnp.sqrt(v / rises[1]) + 1e-8)
    return p * (1 - LR * decay) - LR * change, m, v


def jax_step(shape: Shape) -> Step:
    L = Jax()
    jax, jnp = L.jax, L.jnp
    turned = {n: w.T if w.ndim == 2 and not n.startswith(("token", "position")) else w for n, w in weights(shape).items()}
    p: Any = {name: jnp.asarray(np.ascontiguousarray(w)) for name, w in turned.items()}
    x, y = (jnp.asarray(a) for a in batch(shape))

    def loss_of(p: Any, x: Any, y: Any) -> Any:
        return L.cross_entropy(jax_network(L, shape, p, x), y)

    def whole(p: Any, m: Any, v: Any, rises: Any, x: Any, y: Any) -> Any:
        loss, g = jax.value_and_grad(loss_of)(p, x, y)
        norm = jnp.sqrt(sum(jnp.sum(d * d) for d in g.values()))
        scale = jnp.minimum(1.0, CLIP / (norm + 1e-6))
        new = {name: jax_update(L, p[name], m[name], v[name], g[name] * scale, rises, shape.decay) for name in p}
        return *({name: row[i] for name, row in new.items()} for i in range(3)), loss, norm

    jitted = jax.jit(whole, donate_argnums=(0, 1, 2))
    state: list[Any] = []
    count = 0

    def step() -> tuple[float, Any]:
        nonlocal count
        if not state:
            state.extend([p, *({name: jnp.zeros_like(w) for name, w in p.items()} for _ in range(2))])
        count += 1
        *state[:], loss, norm = jitted(*state, (1 - 0.9**count, 1 - 0.999**count), x, y)
        return float(loss), norm

    return step
