"""What comes before a launch: inputs of one dtype on one device, and a plan by their shapes.

coerce() brings inputs to one dtype. A plan says how one formula runs over inputs of certain shapes; it is made once and found
again by one look into a dictionary. Inputs of one shape take a map loop. Others broadcast without being copied: the common shape is
collapsed to outer dimensions and one inner run, and a table of sizes and strides tells the loop where each row of each input begins.

May import: errors, backend, op. FLAME counterpart: `flame_core::cuda_kernels` broadcast variants. Read next: op_pointwise.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import copysign
from typing import Any

import numpy as np

from ..backend.base import Buffer, Device
from ..dtypes import FLOATS, FULL, HALF, INTEGERS, bool_, float32, int64
from ..errors import DTypeError, ShapeError
from . import base as op
from .base import size_of


# ---- one dtype, one device ---------------------------------------------------------------------------------------------
def coerce(name: str, args: Sequence[Any], kind: str) -> tuple[Sequence[Any], np.dtype, Device]:
    """Inputs as Tensors of one dtype (Python scalars stay scalars of that dtype), that dtype, the device.

    kind: "float" turns integers into float32, "number" also computes integers as they are, "any" takes bools as well.
    """
    dtype: Any = None
    where: Any = None
    plain = True  # nothing but Tensors
    for x in args:
        if isinstance(x, op.Tensor):
            if x.dtype is not dtype:
                if dtype is not None and x.dtype != dtype:
                    return mixed(name, args, kind)
                dtype, where = x.dtype, x.device
        elif isinstance(x, op.SCALARS):
            plain = False
        else:
            return mixed(name, args, kind)
    if dtype not in FULL:
        return mixed(name, args, kind)
    if plain:
        return args, dtype, where
    xs = []
    try:
        for x in args:
            xs.append(x if isinstance(x, op.Tensor) else number(x, dtype))
    except OverflowError:
        raise too_large(name, args, dtype) from None
    return xs, dtype, where


MOST = 8192  # numbers, and plans, that are kept
NUMBERS: dict[tuple[np.dtype, Any], Any] = {}


def number(value: Any, dtype: np.dtype) -> Any:
    """A number as kernels take it, a scalar of `dtype`. NumPy needs 200 ns to make one, so they are kept."""
    if value == 0 and copysign(1, value) < 0:  # -0.0, which as a key equals 0.0
        return dtype.type(value)
    scalar = NUMBERS.get((dtype, value))
    if scalar is None:
        if len(NUMBERS) >= MOST:
            NUMBERS.clear()
        scalar = NUMBERS[dtype, value] = dtype.type(value)
    return scalar


def mixed(name: str, args: Sequence[Any], kind: str) -> tuple[list[Any], np.dtype, Device]:
    """coerce() for everything but tensors of one float type and scalars."""
    if not any(isinstance(x, op.Tensor) for x in args):
        args = [op.Tensor.of(name, args[0]), *args[1:]]
    xs = [x if isinstance(x, (op.Tensor, *op.SCALARS)) else op.Tensor.of(name, x) for x in args]
    dtype = common_dtype(name, xs, kind)
    where = next(x.device for x in xs if isinstance(x, op.Tensor))
    cast = op.REGISTRY["cast"]
    scalar = (lambda v: v) if dtype in HALF else dtype.type
    try:
        return [scalar(x) if not isinstance(x, op.Tensor) else x if x.dtype == dtype else cast(x, dtype) for x in xs], dtype, where
    except OverflowError:
        raise too_large(name, args, dtype) from None


def too_large(name: str, args: Sequence[Any], dtype: Any) -> DTypeError:
    numbers = [x for x in args if isinstance(x, op.SCALARS)]
    return DTypeError(f"{name}: a number does not fit {dtype}: one of {len(numbers)} given. Use smaller numbers or a wider dtype.")


def common_dtype(name: str, xs: Sequence[Any], kind: str) -> np.dtype:
    """The type to compute in: the one float type if any; two float types are an error, never a silent promotion."""
    tensors = [x.dtype for x in xs if isinstance(x, op.Tensor)]
    floats = {d for d in tensors if d in FLOATS}
    if len(floats) > 1:
        raise DTypeError(f"{name}: two different float types: {', '.join(sorted(map(str, floats)))}. Cast one, e.g. x.to(flamepy.float32).")
    if floats:
        return floats.pop()
    scalars = [x for x in xs if not isinstance(x, op.Tensor)]
    if kind == "float" or any(isinstance(s, float | np.floating) for s in scalars):
        return float32
    integers = [d for d in tensors if d in INTEGERS]
    if integers:
        return max(integers, key=lambda d: d.itemsize)
    if kind == "any" and all(isinstance(s, bool | np.bool_) for s in scalars):
        return bool_
    return int64


def in_float32(function: op.Op, xs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Run an op on 16-bit floats: computed in float32, the result rounded back."""
    half = next(x.dtype for x in xs if isinstance(x, op.Tensor) and x.dtype in HALF)
    cast = op.REGISTRY["cast"]
    y = function(*[cast(x, float32) if isinstance(x, op.Tensor) and x.dtype in HALF else x for x in xs], **attributes)
    outputs = [cast(t, half) if t.dtype == float32 else t for t in (y if type(y) is tuple else (y,))]
    return tuple(outputs) if type(y) is tuple else outputs[0]


# ---- one plan for inputs of the same shapes ----------------------------------------------------------------------------
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
        self.columns: tuple[int, ...] | None = None  # the inputs that repeat along the inner run; None when all have one shape
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
        if len(PLANS) >= MOST:  # shapes may change forever
            PLANS.clear()
        plan = PLANS[key] = Plan(formula, dtype, where, shapes, name)
    return plan


def run_map(plan: Plan, ins: Sequence[Any], consts: Sequence[Any], out: np.dtype, where: Device) -> Any:
    """One launch of a formula over buffers and numbers."""
    y = op.Tensor(where.empty(plan.size, out), plan.shape, out, where)
    if plan.size:
        if plan.columns is not None:
            consts = (*plan.consts, *consts) if consts else plan.consts
            if plan.columns:
                ins = list(ins)
                for i in plan.columns:
                    ins[i] = as_column(ins[i])
        where.stream.run(plan.kernel, plan.size, (y.buffer,), ins, consts)
    return y


def as_column(buffer: Buffer) -> Buffer:
    """The same memory with shape (size, 1): how broadcast loops know an input that repeats along the inner run."""
    return Buffer(buffer.data.reshape(-1, 1), buffer.size, buffer.dtype, buffer.device, buffer)


def plan_broadcast(shape: tuple[int, ...], shapes: tuple[tuple[int, ...] | None, ...]) -> tuple[tuple[int, ...], int, int, tuple[int, ...]]:
    """(table, k, inner, columns): neighbouring dimensions along which every input moves alike are one dimension."""
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
    return tuple(table), len(outer), inner[0], tuple([i for i, s in enumerate(shapes) if s is not None and not inner[i + 1]])
