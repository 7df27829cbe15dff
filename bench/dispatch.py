"""What one op costs beside its arithmetic: 16 elements, tracked, errors and version checks on.

add            one call of the op, input tracked; the loop around it is part of the time (0.03 us)
add-backward   one op's share of a backward pass through a chain of 50
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .kernels import BACKWARD, check_gradients
from .libraries import Numpy, library
from .work import Job, Work, near

OURS = "flamepy"
AGAINST = DEFAULT = ("torch",)
ALONE = False
TOLERANCE = 1e-4
REPEAT = 50

# Name -> op of x (4, 4), tracked, and b (4, 4) or w (4, 4).
OPS: dict[str, Callable[..., Any]] = {
    "add": lambda L, x, b: x + b,
    "mul": lambda L, x, b: x * b,
    "add-number": lambda L, x, b: x + 0.5,
    "tanh": lambda L, x, b: L.tanh(x),
    "reshape": lambda L, x, b: L.reshape(x, (4, 4)),
    "softmax": lambda L, x, b: L.softmax(x),
    "matmul": lambda L, x, b: x @ b,
    "linear": lambda L, x, b: L.linear(x, b, None),
    "sum": lambda L, x, b: L.sum(x),
}
# Those that can follow themselves; gradients through many softmaxes become denormal, which is slow on any machine.
CHAINS = tuple(name for name in OPS if name not in ("sum", "softmax"))
WORKS = {name: Work(name, per=REPEAT) for name in (*OPS, *[name + BACKWARD for name in CHAINS])}


def data() -> tuple[np.ndarray, np.ndarray]:
    x = np.linspace(0.5, 1.5, 16, dtype=np.float32).reshape(4, 4)
    return x, np.eye(4, dtype=np.float32) + x / 100


def chain(work: str) -> Callable[..., Any]:
    op = OPS[work.removesuffix(BACKWARD)]

    def formula(L: Any, x: Any, b: Any) -> Any:
        for _ in range(REPEAT):
            x = op(L, x, b)
        return x

    return formula


def build(contender: str, work: str, mode: str) -> Job:
    lib = library(contender)
    x, b = data()
    xs = [lib.place(x, tracked=True), lib.place(b, tracked=False)]
    if work.endswith(BACKWARD):
        run = lib.backward(chain(work), xs, np.ones((4, 4), np.float32))
        return Job(run, lambda grads: [lib.host(g) for g in grads])
    op, many = OPS[work], range(REPEAT)

    def calls() -> Any:
        for _ in many:
            y = op(lib, *xs)
        return y

    return Job(calls, lambda y: [lib.host(y)])


def verify(work: str, outputs: list[np.ndarray]) -> None:
    x, b = (a.astype(np.float64) for a in data())
    if work.endswith(BACKWARD):
        check_gradients(lambda L, x: chain(work)(L, x, b), [x], np.ones((4, 4)), outputs)
    else:
        near(work, outputs[0], OPS[work](Numpy(), x, b), TOLERANCE)
