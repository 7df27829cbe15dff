"""Targets, in one place: our time / theirs, of the fastest calls in the same run, two threads each.

Where they come from: a hand-driven prototype of each technique; they are known to be possible. Dispatch: microseconds an op as well.
Imports nothing.
"""

from __future__ import annotations

# (suite, work, mode, contender) -> largest ratio
RATIOS = {
    ("step", "gpt-a", "replay", "torch"): 0.55,
    ("step", "gpt-a", "replay", "torch-compile"): 0.77,
    ("step", "gpt-a", "replay", "jax"): 0.40,
    ("step", "gpt-a", "eager", "torch"): 0.60,
    ("step", "gpt-b", "replay", "torch"): 0.80,
    ("step", "gpt-b", "replay", "torch-compile"): 0.87,
    ("step", "gpt-b", "replay", "jax"): 0.45,
    ("step", "gpt-c", "replay", "torch"): 0.20,
    ("step", "gpt-c", "replay", "torch-compile"): 0.33,
    ("step", "gpt-c", "replay", "jax"): 0.40,
    ("step", "gpt-c", "eager", "torch"): 0.35,
    ("step", "lstm", "replay", "torch"): 0.60,
    ("step", "resnet", "replay", "torch"): 0.85,
    ("step", "u-net", "replay", "torch"): 0.90,
    ("step", "mlp-tiny", "eager", "torch"): 0.45,
    ("step", "mlp-tiny", "replay", "torch"): 0.25,
    ("step", "mlp-tiny", "replay", "torch-compile"): 0.20,
    ("step", "mlp-tiny", "replay", "jax"): 1.00,
    ("step", "mlp-small", "replay", "torch"): 0.60,
    ("step", "mlp-small", "replay", "torch-compile"): 0.50,
    ("step", "mlp-small", "replay", "jax"): 0.90,
    ("step", "mlp-large", "replay", "torch"): 0.92,
    ("step", "mlp-large", "replay", "torch-compile"): 0.97,
    ("step", "mlp-large", "replay", "jax"): 1.00,
    ("optim", "optim-124m", "eager", "torch"): 0.80,
    ("kernels", "gelu", "eager", "torch"): 0.30,
    ("kernels", "gelu-backward", "eager", "torch"): 0.40,
    ("kernels", "softmax", "eager", "torch"): 0.75,
    ("kernels", "layer-norm", "eager", "torch"): 0.70,
    ("kernels", "layer-norm-backward", "eager", "torch"): 0.80,
    ("kernels", "cross-entropy", "eager", "torch"): 0.50,
}

# (suite, work, mode) -> smallest percentage of the ceiling
PERCENT = {("step", "gpt-b", "replay"): 85.0}
# 1.15 of the time of a copy of as many bytes.
PERCENT |= {("transforms", name, "eager"): 87.0 for name in ("value", "per-layer", "agc", "centralize", "decay", "repair", "noise")}

# (suite, work, mode, contender): our memory is to be theirs at most
MEMORY = {("step", "gpt-b", "replay", "torch")}

# An op on 16 numbers, forward and backward.
CALLS = ("add", "mul", "add-number", "tanh", "reshape", "softmax", "matmul", "linear", "sum")
RATIOS |= {("dispatch", name, "eager", "torch"): 2.0 for name in CALLS}
RATIOS |= {("dispatch", f"{name}-backward", "eager", "torch"): 1.2 for name in CALLS if name not in ("softmax", "sum")}

# suite -> most milliseconds an op
MILLISECONDS = {"dispatch": 0.003}
