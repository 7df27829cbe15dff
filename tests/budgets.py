"""How long the package may be: for each folder, without those inside it, its lines at most and what they buy.

A folder that needs more takes it from another, or says here what more it buys. Budgets follow the code down, to the next 50.
"""

from __future__ import annotations

TOTAL = 56900
BUDGETS = {
    "flamepy": (3300, "Tensor, Parameter, GradientMap, clipping, transforms, errors, creation, checkpointing"),
    "flamepy/accumulation": (700, "gradients summed over several backward passes"),
    "flamepy/autograd": (900, "the tape and its walk"),
    "flamepy/backend": (950, "the seam: Device, Stream, memory, recording"),
    "flamepy/backend/cpu": (9500, "compiled loops, threads, pooled memory"),
    "flamepy/backend/cuda": (9000, "kernels, libraries and streams of a GPU"),
    "flamepy/backend/cuda/emulator": (6450, "GPU kernels run and checked without a GPU"),
    "flamepy/backend/formula": (700, "one formula for all devices"),
    "flamepy/backend/plain": (750, "the engine in NumPy"),
    "flamepy/core": (250, "what flamepy is, without what makes it fast"),
    "flamepy/cuda": (1150, "emulation, placing, kernels shown"),
    "flamepy/engine": (1150, "calls planned once, 16-bit forms, results made again"),
    "flamepy/engine/capture": (2200, "capture and replay of whole steps"),
    "flamepy/gradients": (1450, "norms, clipping, edits, history, loss scaling, gradcheck"),
    "flamepy/nn": (1550, "modules and functional"),
    "flamepy/op": (1450, "what an op is: calls, plans, rules"),
    "flamepy/ops": (4400, "every op"),
    "flamepy/optimizers": (3300, "all optimizers and their state"),
    "flamepy/regularizer": (1350, "penalties on parameters and gradients"),
    "flamepy/saving": (400, "files of tensors"),
    "flamepy/schedules": (600, "learning rates over time"),
    "flamepy/train": (5950, "the command: runs, ledger, doctor, GPU reports"),
}
