"""How long the package may be: for each folder, without those inside it, its lines at most and what they buy.

A folder that needs more takes it from another, or says here what more it buys. Budgets follow the code down, to the next 50.
"""

from __future__ import annotations

TOTAL = 56650
BUDGETS = {
    "flamepy": (5300, "Tensor, Parameter, GradientMap, clipping, transforms, errors, creation, checkpointing"),
    "flamepy/accumulation": (700, "gradients summed over several backward passes"),
    "flamepy/autograd": (900, "the tape and its walk"),
    "flamepy/backend": (850, "the seam: Device, Stream, memory, recording"),
    "flamepy/backend/cpu": (9500, "compiled loops, threads, pooled memory"),
    "flamepy/backend/cuda": (9000, "kernels, libraries and streams of a GPU"),
    "flamepy/backend/cuda/emulator": (6300, "GPU kernels run and checked without a GPU"),
    "flamepy/backend/formula": (700, "one formula for all devices"),
    "flamepy/backend/plain": (750, "the engine in NumPy"),
    "flamepy/cuda": (1150, "emulation, placing, kernels shown"),
    "flamepy/nn": (1500, "modules and functional"),
    "flamepy/op": (2500, "what an op is: calls, plans, rules"),
    "flamepy/ops": (4400, "every op"),
    "flamepy/optimizers": (2950, "all optimizers and their state"),
    "flamepy/regularizer": (1500, "penalties on parameters and gradients"),
    "flamepy/replay": (2300, "capture and replay of whole steps"),
    "flamepy/saving": (400, "files of tensors"),
    "flamepy/schedules": (450, "learning rates over time"),
    "flamepy/train": (5950, "the command: runs, ledger, doctor, GPU reports"),
}
