"""What one op costs beside its arithmetic: 16 elements, forward and forward + backward, errors and version checks on.

    python -m bench dispatch

May import: flamepy, NumPy, PyTorch when installed. Read next: NOTES.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import flamepy as fp

from .harness import agree, interleaved, report

REPEAT = 1000


def many(call: Callable[[], Any]) -> Callable[[], None]:
    def run() -> None:
        for _ in range(REPEAT):
            call()

    return run


def cases(a: Any, b: Any) -> dict[str, Callable[[], Any]]:
    return {"add": lambda: a + b, "mul": lambda: a * b, "tanh": a.tanh, "chain10": lambda: chain(a, b)}


def chain(a: Any, b: Any) -> Any:
    """Ten tracked ops, then backward: divide by ten for an op's forward and backward."""
    x = a
    for _ in range(9):
        x = x * b
    return x.sum().backward()


def main() -> None:
    """Milliseconds for 1,000 calls are microseconds a call."""
    values = np.linspace(0.5, 1.5, 16).astype("f4")
    ours = cases(fp.tensor(values, requires_grad=True), fp.tensor(values))
    try:
        import torch

        theirs = cases(torch.tensor(values, requires_grad=True), torch.tensor(values))
    except ImportError:
        theirs = {}
    for name, call in ours.items():
        contenders = {"flamepy": many(call)}
        if name in theirs:
            if name != "chain10":
                agree(name, call().numpy(), theirs[name]().detach().numpy())
            contenders["torch"] = many(theirs[name])
        report("dispatch", name, interleaved(contenders, 15))
