"""What to do where a name is not here that people know from PyTorch or NumPy, or that is misspelt.

An attribute that is missing raises AttributeError, as everywhere; its text says what takes the name's place, or which name is near.
Nothing is accepted that would do less than the name promises.

Read next: reading.py.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import Any

from .errors import FlameError

MOVES = "Use .to(device), with a name that flamepy.device() knows"
TYPES = {
    "float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16", "long": "int64", "int": "int32", "bool": "bool_",
}  # fmt: skip
LOSSES = {
    "CrossEntropyLoss": "cross_entropy", "NLLLoss": "nll_loss", "MSELoss": "mse_loss", "L1Loss": "l1_loss", "HuberLoss": "huber_loss",
    "SmoothL1Loss": "smooth_l1_loss", "BCELoss": "binary_cross_entropy", "BCEWithLogitsLoss": "binary_cross_entropy_with_logits",
}  # fmt: skip
NORMS = "It would mix the rows of a batch; use nn.LayerNorm or nn.RMSNorm"
ADVICE = {
    "Tensor": {
        "cuda": MOVES, "cpu": f"{MOVES}; .numpy() reads the numbers",
        **{name: f"Use .to(flamepy.{dtype})" for name, dtype in TYPES.items()}, "type": "Use .dtype, or .to(dtype)",
        "data": "Use .detach() to read without the tape, set_data() to write into a Parameter",
        "norm": "Use (x * x).sum().sqrt(); flamepy.grad_norm() for gradients",
        "all": "Use .numpy().all()", "any": "Use .numpy().any()",
        "dim": "Use .ndim", "contiguous": "Every tensor is contiguous",
        "repeat": "Use flamepy.cat([x] * n)", "sort": "Use .numpy().sort()", "topk": "Use .numpy().argsort()",
        "scatter_add": "The gradient of flamepy.gather does it", "t": "Use .T", "swapaxes": "Use .transpose(a, b)",
        **dict.fromkeys(("values", "indices"), "Use argmax() and argmin() for indices; max() and min() give the values"),
        "amax": "Use .max(axis=...)", "amin": "Use .min(axis=...)",
        "detach_": "Use x = x.detach()", "clamp_min": "Use .clamp(min=value)", "clamp_max": "Use .clamp(max=value)",
    },
    "flamepy": {
        "optim": "Optimizers are flamepy.SGD, flamepy.AdamW and the others in flamepy.optimizers",
        "compile": "Use flamepy.capture(step)", "jit": "Use flamepy.capture(step)", "as_tensor": "Use flamepy.tensor(data)",
        "from_numpy": "Use flamepy.tensor(array)", "Module": "Use flamepy.nn.Module", "einsum": "Use matmul, permute and sum",
        "set_grad_enabled": "Use flamepy.no_grad() or flamepy.enable_grad()", "randint": "Use flamepy.tensor(numpy's integers)",
        "concat": "Use flamepy.cat", "concatenate": "Use flamepy.cat", "float": "Use flamepy.float32", "long": "Use flamepy.int64",
        "int": "Use flamepy.int32", "bool": "Use flamepy.bool_", "double": "Use flamepy.float64", "half": "Use flamepy.float16",
        "utils": "Batches are slices of an array; see README, 'A model of your own'", "inference_mode": "Use flamepy.no_grad()",
    },
    "autograd": {
        "grad": "Use grads = y.backward(), then grads[x]", "Function": "Use flamepy.custom",
        "Variable": "Use flamepy.tensor(data, requires_grad=True)", "gradcheck": "Use flamepy.gradcheck",
    },
    "init": {},
    "cuda": {
        **dict.fromkeys(("is_available", "device_count", "current_device"),
    "Ask flamepy.device('cuda'), which raises where there is no GPU"),
        "synchronize": "Reading a result waits for it", "memory_allocated": "Use flamepy.device('cuda').memory()",
        "grid": "Kernels are written with numba.cuda: from numba import cuda", "jit": "Kernels are written with numba.cuda",
    },
    "Module": {
        **dict.fromkeys(("cuda", "cpu"), MOVES),
        **{name: f"Use .to(flamepy.{dtype})" for name, dtype in TYPES.items() if dtype.endswith(("16", "32", "64")) and dtype[0] != "i"},
        "requires_grad_": "Use .freeze(pattern of names) and .unfreeze(pattern)",
        "register_parameter": "Assign a Parameter: self.w = flamepy.Parameter(...)", "add_module": "Assign it: self.name = module",
        "named_children": "Use .children()", "register_full_backward_hook": "Use register_hook() of a tensor in a forward hook",
    },
    "schedules": {
        "StepLR": "Use step(lr, every, gamma)", "MultiStepLR": "Use multistep(lr, milestones, gamma)",
        "ExponentialLR": "Use exponential(lr, gamma)", "LinearLR": "Use linear(start, end, n) or warmup(lr, n)",
        "CosineAnnealingLR": "Use cosine(lr, n, end)", "CosineAnnealingWarmRestarts": "Use cosine_restarts(lr, n, factor, end)",
        "CyclicLR": "Use cyclic(low, high, up, down, mode, gamma)", "OneCycleLR": "Use one_cycle(lr, n)",
        "SequentialLR": "Use sequence(schedules, milestones)", "ReduceLROnPlateau": "Use ReduceOnPlateau(lr, factor, patience)",
        "LambdaLR": "Any function of the step number is a schedule: lr=lambda n: ...",
        **dict.fromkeys(("ChainedScheduler", "scaled"), "Use product(schedule, schedule or number)"),
        **dict.fromkeys(("PolynomialLR", "polynomial"), "Use poly(lr, n, end, power)"),
    },
    "nn": {
        **{name: f"Use nn.functional.{function}(...)" for name, function in LOSSES.items()},
        "Parameter": "Use flamepy.Parameter", "Softmax": "Use x.softmax(axis=-1)", "LogSoftmax": "Use x.log_softmax(axis=-1)",
        "MultiheadAttention": "Use nn.MultiHeadAttention(width, heads, causal=...)", "utils": "Use flamepy.clip_grad_norm(grads, max_norm)",
        **dict.fromkeys(("BatchNorm1d", "BatchNorm2d"), NORMS),
        "TransformerEncoderLayer": "Use nn.TransformerBlock(width, heads, causal=...)",
        "Identity": "Use nn.Sequential()", "AvgPool2d": "Use nn.functional.avg_pool2d(x, kernel_size)",
    },
}  # fmt: skip


IN_PLACE = "add", "sub", "mul", "div", "pow", "neg", "abs", "exp", "log", "sqrt", "clamp", "relu"
WRITTEN = "fill", "zero", "copy", "normal", "uniform"
ADVICE["Tensor"].update({f"{name}_": f"Tensors are not changed in place: x = x.{name}(...)" for name in IN_PLACE})
ADVICE["Tensor"].update({f"{name}_": "Tensors are not changed in place; set_data() writes into a Parameter" for name in WRITTEN})


def missing(owner: str, name: str, known: Iterable[str] = ()) -> AttributeError:
    """The error for a name that `owner` (a key of ADVICE) does not have, among those that it has."""
    text = ADVICE[owner].get(name)
    if text is None:
        near = difflib.get_close_matches(name, [n for n in known if n[0] != "_"], 1, 0.75)
        text = f"Did you mean '{near[0]}'?" if near else "dir() lists what there is"
    return AttributeError(f"{owner}: no such name: '{name}'. {text}{'' if text[-1] in '.?' else '.'}")


def missing_in(owner: str, known: Iterable[str]) -> Callable[[str], object]:
    """A module's __getattr__, which Python calls only for names that are not there."""

    def unknown(name: str) -> object:
        raise missing(owner, name, known)

    return unknown


class NotHere:
    """Stands in a class where such a name would be. (With a __getattr__ every attribute that is there would be slower.)"""

    def __init__(self, owner: str, name: str):
        self.owner, self.name = owner, name

    def __get__(self, instance: Any, kind: Any = None) -> Any:
        raise missing(self.owner, self.name)


class NotData(NotHere):
    """PyTorch's `data`: as an attribute it would take what is assigned, and nothing would come of it."""

    def __set__(self, instance: Any, value: Any) -> None:
        raise FlameError("data: cannot be set: x.data = v. Use set_data(v) of a Parameter, or build a new tensor.")


def advise(kind: type, owner: str) -> None:
    """Put advice into a class for each name of PyTorch's that it does not have."""
    for name in ADVICE[owner]:
        setattr(kind, name, (NotData if name == "data" else NotHere)(owner, name))
