"""A whole training step (forward, backward, norm clip, AdamW) of a GPT, beside PyTorch eager with the same weights and data.

    python -m bench step

Shapes A and C of the design notes. Checked before timing: the loss, and the gradient norm, of the first step.
May import: flamepy, NumPy, PyTorch when installed. Read next: dispatch.py.
"""

from __future__ import annotations

import importlib.util
import math
from typing import Any

import numpy as np

import flamepy as fp
import flamepy.nn.functional as F
from flamepy import nn

from .harness import Elsewhere, agree, interleaved, report

SHAPES = {"gpt-a": (65, 64, 4, 4, 128, 12), "gpt-c": (65, 32, 2, 2, 32, 8)}  # vocabulary, context, layers, heads, width, batch


class GPT(nn.Module):
    def __init__(self, vocabulary: int, context: int, layers: int, heads: int, width: int):
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(context, width)
        self.blocks = nn.ModuleList([nn.TransformerBlock(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        for p in self.parameters():
            if p.ndim == 2:
                nn.init.normal(p, 0.0, 0.02)

    def forward(self, ids: Any) -> Any:
        x = self.token(ids) + self.position(fp.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x, is_causal=True)
        return F.linear(self.norm(x), self.token.weight)


def torch_gpt(shape: tuple, weights: dict[str, np.ndarray]) -> Any:
    """The same network in PyTorch, as one function of the token ids and a dictionary of parameters."""
    import torch
    from torch.nn import functional as T

    _, _, layers, heads, width, _ = shape
    p = {name: torch.nn.Parameter(torch.tensor(value)) for name, value in weights.items()}

    def forward(ids: Any) -> Any:
        x = p["token.weight"][ids] + p["position.weight"]
        for i in range(layers):
            b = f"blocks.{i}."
            h = T.layer_norm(x, (width,), p[b + "norm1.weight"], p[b + "norm1.bias"])
            qkv = T.linear(h, p[b + "attn.qkv.weight"], p[b + "attn.qkv.bias"])
            q, k, v = (t.view(*ids.shape, heads, width // heads).transpose(1, 2) for t in qkv.split(width, dim=2))
            a = T.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(*ids.shape, width)
            x = x + T.linear(a, p[b + "attn.proj.weight"], p[b + "attn.proj.bias"])
            h = T.layer_norm(x, (width,), p[b + "norm2.weight"], p[b + "norm2.bias"])
            h = T.gelu(T.linear(h, p[b + "mlp.0.weight"], p[b + "mlp.0.bias"]))
            x = x + T.linear(h, p[b + "mlp.2.weight"], p[b + "mlp.2.bias"])
        return T.linear(T.layer_norm(x, (width,), p["norm.weight"], p["norm.bias"]), p["token.weight"])

    return forward, list(p.values())


def run(work: str, rounds: int = 30) -> None:
    shape = SHAPES[work]
    vocabulary, context, layers, heads, width, batch = shape
    fp.manual_seed(0)
    model = GPT(vocabulary, context, layers, heads, width)
    model.params.pack()
    optimizer = fp.AdamW(model, lr=1e-3)
    random = np.random.default_rng(0)
    ids, targets = random.integers(0, vocabulary, (batch, context)), random.integers(0, vocabulary, batch * context)
    x, y = fp.tensor(ids), fp.tensor(targets)

    def ours() -> tuple[float, float]:
        loss = F.cross_entropy(model(x).reshape(batch * context, vocabulary), y)
        grads = loss.backward()
        norm = fp.clip_grad_norm(grads, 1.0)
        optimizer.step(grads)
        return loss.item(), norm

    contenders: dict[str, Any] = {"flamepy": ours}
    if importlib.util.find_spec("torch") is None:
        print("bench: PyTorch is not installed: only flamepy is timed. pip install torch==2.13.0")
    else:
        theirs = contenders["torch"] = Elsewhere(torch_step, shape, model.state_dict(), ids, targets)
        first, second = ours(), theirs()
        agree(f"{work}: loss", first[0], second[0])
        agree(f"{work}: gradient norm", first[1], second[1])
    report("step", work, interleaved(contenders, rounds if math.prod(shape[1:]) > 1e6 else rounds * 10))
    if "torch" in contenders:
        theirs.close()


def torch_step(shape: tuple, weights: dict[str, np.ndarray], ids: np.ndarray, targets: np.ndarray) -> Any:
    import torch

    forward, parameters = torch_gpt(shape, weights)
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, fused=True)
    x, y = torch.tensor(ids), torch.tensor(targets)

    def step() -> tuple[float, float]:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(forward(x).reshape(-1, shape[0]), y)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        return loss.item(), float(norm)

    return step


def main() -> None:
    for work in SHAPES:
        run(work)
