"""How long the package may be: for each folder, without those inside it, its lines at most and what they buy.

A folder that needs more takes it from another, or says here what more it buys. Budgets follow the code down, to the next 50.
"""

from __future__ import annotations

TOTAL = 75420
BUDGETS = {
    "flamepy": (4000, "Tensor, Parameter, PyTorch's names, clipping, transforms, errors, creation, checkpointing, compiled code of others"),
    "flamepy/accumulation": (700, "gradients summed over several backward passes"),
    "flamepy/backend": (850, "what Device, Stream and Buffer have for recording, packing, late checks"),
    "flamepy/backend/cpu": (650, "the device: its list of kernels; recurrent layers"),
    "flamepy/backend/cpu/attention": (500, "attention on the CPU, forward and backward"),
    "flamepy/backend/cpu/bf16": (1550, "bfloat16 products, attention and convolution, AMX too"),
    "flamepy/backend/cpu/conv": (1600, "convolution, pooling, places of a grid"),
    "flamepy/backend/cpu/loops": (3200, "maps, remainders, broadcasts, moves, edges, folds, rows, spans, sine and cosine"),
    "flamepy/backend/cpu/products": (1550, "matrix products from registers to panels"),
    "flamepy/backend/cpu/runtime": (2600, "device memory, threads, compiler, disk cache, replay in compiled code"),
    "flamepy/backend/cuda": (400, "the device: its list of kernels; recurrent layers"),
    "flamepy/backend/cuda/attention": (1600, "attention on tensor cores, by warps and by groups of four, cuDNN"),
    "flamepy/backend/cuda/conv": (900, "convolution and pooling"),
    "flamepy/emulator": (6200, "GPU kernels run and checked without a GPU"),
    "flamepy/backend/cuda/loops": (2750, "maps, moves, folds, spans"),
    "flamepy/backend/cuda/products": (1800, "products on tensor cores, by warps and by groups of four, cuBLASLt"),
    "flamepy/backend/cuda/rows": (950, "one block for each row"),
    "flamepy/backend/cuda/runtime": (2250, "driver, streams, graphs, launches in C, memory, page-locked too, compiling"),
    "flamepy/backend/formula": (500, "one formula for all devices"),
    "flamepy/backend/plain": (800, "what the plain device has beside core's: networks, gradients and parameters"),
    "flamepy/command": (950, "the flamepy command: doctor, caches, kernel viewer"),
    "flamepy/command/gpu": (1050, "agreement and reports on GPUs"),
    "flamepy/core": (3200, "what flamepy is, without what makes it fast"),
    "flamepy/core/ops": (950, "the basic ops"),
    "flamepy/cuda": (1200, "emulation, placing, kernels shown"),
    "flamepy/engine": (3300, "calls planned once, functions made of ops, small tensors, 16-bit forms, gradients in spans and by name"),
    "flamepy/engine/capture": (2650, "capture and replay of whole steps, without what they do twice or for nothing"),
    "flamepy/gradients": (1550, "norms, clipping, edits, history, loss scaling, gradcheck"),
    "flamepy/linalg": (900, "factors, inverses, determinants and norms by LAPACK, small factors by kernels, with derivatives"),
    "flamepy/nn": (3800, "modules and functional"),
    "flamepy/ops": (11450, "every op"),
    "flamepy/optimizers": (3500, "all optimizers and their state; since 2,700: the newer ones, SAM"),
    "flamepy/regularizer": (1200, "penalties on parameters and gradients"),
    "flamepy/saving": (400, "files of tensors"),
    "flamepy/schedules": (600, "learning rates over time"),
    "flamepy/train": (4200, "runs: the loop, data, checkpoints, ledger, display"),
}
