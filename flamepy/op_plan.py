"""Plans: how one formula runs over inputs of certain shapes. Made once, found again by one look into a dictionary.

Inputs of one shape take a map loop. Others broadcast without being copied: the common shape is collapsed to outer dimensions
and one inner run, and a table of sizes and strides tells the loop where each row of each input begins.

May import: errors, backend, op. FLAME counterpart: `flame_core::cuda_kernels` broadcast variants. Read next: op_pointwise.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from . import op
from .backend.base import Buffer, Device
from .errors import ShapeError
from .op import size_of


def common_shape(name: str, shapes: Sequence[tuple[int, ...] | None]) -> tuple[int, ...]:
    """The shape these broadcast to, by NumPy's rule (None: a number). Raises ShapeError."""
    found: tuple[int, ...] | None = None
    for shape in shapes:
        if shape is not None and shape != found:
            found = shape if found is None else combine(name, found, shape)
    return found or ()


def combine(name: str, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(a, b)
    except ValueError:
        raise ShapeError(f"{name}: shapes do not broadcast: {a} and {b}. Sizes must be equal or 1, counted from the right.") from None


class Plan:
    """How to launch one formula on inputs of certain shapes."""

    __slots__ = ("columns", "consts", "kernel", "shape", "size")

    def __init__(self, formula: Any, dtype: np.dtype, where: Device, shapes: tuple, name: str):
        self.shape = common_shape(name, shapes)
        self.size = size_of(self.shape)
        self.columns: tuple[bool, ...] | None = None  # which inputs repeat along the inner run; None when all have one shape
        self.consts: tuple = ()
        loop = "map"
        if self.size and any([s is not None and s != self.shape for s in shapes]):
            table, k, inner, self.columns = plan_broadcast(self.shape, shapes)
            loop, self.consts = "broadcast", (where.table(table), k, inner, 4096)
        self.kernel = where.kernel(loop + str(len(shapes)), formula, dtype)


PLANS: dict[tuple, Plan] = {}


def plan_for(formula: Any, dtype: np.dtype, where: Device, shapes: tuple, name: str) -> Plan:
    """The plan, made once for the same formula, dtype, device and shapes. Raises ShapeError."""
    key = (formula, dtype, where.name, shapes)
    plan = PLANS.get(key)
    if plan is None:
        if len(PLANS) >= 8192:  # shapes may change forever
            PLANS.clear()
        plan = PLANS[key] = Plan(formula, dtype, where, shapes, name)
    return plan


def run_map(plan: Plan, ins: list[Any], consts: Sequence[Any], out: np.dtype, where: Device) -> Any:
    """One launch of a formula over buffers and numbers."""
    y = op.Tensor(where.empty(plan.size, out), plan.shape, out, where)
    if plan.size:
        if plan.columns is not None:
            ins = [as_column(x) if c else x for x, c in zip(ins, plan.columns, strict=True)]
            consts = (*plan.consts, *consts)
        where.stream.run(plan.kernel, plan.size, (y.buffer,), ins, consts)
    return y


def as_column(buffer: Buffer) -> Buffer:
    """The same memory with shape (size, 1): how broadcast loops know an input that repeats along the inner run."""
    return Buffer(buffer.data.reshape(-1, 1), buffer.size, buffer.dtype, buffer.device, buffer)


def plan_broadcast(
    shape: tuple[int, ...], shapes: tuple[tuple[int, ...] | None, ...]
) -> tuple[tuple[int, ...], int, int, tuple[bool, ...]]:
    """(table, k, inner, repeats): neighbouring dimensions along which every input moves alike are one dimension."""
    rows: list[list[int]] = []  # [size, moves in input 0?, moves in input 1? ...] from the innermost outwards
    for d in range(1, len(shape) + 1):
        moves = [int(s is not None and d <= len(s) and s[-d] != 1) for s in shapes]
        if shape[-d] == 1:
            continue
        if rows and rows[-1][1:] == moves:
            rows[-1][0] *= shape[-d]
        else:
            rows.append([shape[-d], *moves])
    rows = rows or [[1] + [1] * len(shapes)]
    inner, outer = rows[0], rows[:0:-1]
    table = [r[0] for r in outer]
    for i in range(1, len(shapes) + 1):
        strides, step = [], inner[0] if inner[i] else 1
        for r in rows[1:]:
            strides.append(step if r[i] else 0)
            step *= r[0] if r[i] else 1
        table += strides[::-1]
    return tuple(table), len(outer), inner[0], tuple(s is not None and not inner[i + 1] for i, s in enumerate(shapes))
