"""autocast(dtype): in a block, products read 16 bits whatever their inputs are. What model.compute_dtype does for a model's layers (see
nn/compute.py), done for a block's ops:

    NARROW  products, linear layers, convolutions, attention: float inputs are rounded to `dtype`, by a cast on the tape, and so is the
            result; bfloat16's linear layers round the float32 weight as they pack it
    WIDE    softmax, log_softmax, sum, mean, and losses and the like that are made of several ops: 16-bit inputs are widened, the result is
            float32; cross-entropy is float32 in any case
    others  follow their inputs; float64 is never touched

Where no thread is in such a block nobody asks for it: the first one that enters puts itself before the calls of these ops, and the last one
to leave takes that away.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Sequence
from contextlib import ContextDecorator
from functools import wraps
from typing import Any

import numpy as np

from ..core.device import is_device_name
from ..core.door import Door
from ..core.errors import DTypeError
from ..core.op import REGISTRY
from ..core.tensor import Tensor
from ..dtypes import FLOATS, HALF, as_dtype, bfloat16, float32, float64

NARROW = ("product", "linear", "attention", "fused_attention")  # and all whose name begins with "conv", transposed ones too
WIDE = ("softmax", "log_softmax", "sum", "mean")
ADVICE = "Use autocast(flamepy.bfloat16) or flamepy.float16: the device is that of the tensors"


class Here(threading.local):
    """`dtype`: what this thread's products read; None outside of such a block. `open`: its blocks, each with what it was before."""

    dtype: np.dtype | None = None

    def __init__(self) -> None:
        self.open: list[tuple[Any, np.dtype | None]] = []


here = Here()


class Watched:
    """Planned calls of an op that may have to cast: a thread in such a block does not find those with inputs to be cast."""

    def __init__(self, plain: dict[Any, Any], to: np.dtype | None):
        self.plain, self.to = plain, to  # None: to what the block says

    def get(self, key: Any) -> Any:
        if (dtype := here.dtype) is not None:
            specs = key if isinstance(key, tuple) else (key,)
            specs = specs[0] if specs and isinstance(specs[0], tuple) else specs  # attributes may come behind
            if casts({getattr(spec, "dtype", None) for spec in specs}, self.to or dtype):
                return None
        return self.plain.get(key)

    def __setitem__(self, key: Any, made: Any) -> None:
        self.plain[key] = made

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plain, name)

    def __len__(self) -> int:
        return len(self.plain)


def casts(kinds: set[Any], to: np.dtype) -> bool:
    """Whether inputs of these types are cast: to 16 bits where one is float32, so that layers with a compute dtype go by that."""
    return float64 not in kinds and (float32 in kinds if to in HALF else not kinds.isdisjoint(HALF))


def target(name: str) -> Any:
    """To what the op of this name casts: float32, "" for what the block says, None for nothing."""
    if name in WIDE:
        return float32
    return "" if name in NARROW or name.startswith("conv") else None


class Entrance:
    """How many blocks are open, in all threads, and what stands before their calls meanwhile."""

    def __init__(self) -> None:
        self.lock, self.open = threading.Lock(), 0
        self.call: Any = None

    def enter(self) -> None:
        with self.lock:
            self.open += 1
            if self.open == 1:
                self.call, Door.call = Door.call, staticmethod(casting)
                for op, to in self.ops():
                    op.plans.calls[:] = [Watched(calls, to or None) for calls in op.plans.calls]

    def leave(self) -> None:
        with self.lock:
            self.open -= 1
            if not self.open:
                Door.call = staticmethod(self.call)
                for op, _ in self.ops():
                    op.plans.calls[:] = [calls.plain if isinstance(calls, Watched) else calls for calls in op.plans.calls]

    def ops(self) -> list[tuple[Any, Any]]:
        """Those that cast and have plans, with their targets."""
        found = [(op, to) for name, op in REGISTRY.items() if (to := target(name)) is not None]
        return [(op, to) for op, to in found if hasattr(op, "plans")]


entrance = Entrance()


def casting(op: Any, xs: Sequence[Any], attributes: dict[str, Any], numbers: Sequence[Any] = ()) -> Any:
    """Door.call() while a block is open in some thread."""
    if (dtype := here.dtype) is not None:
        base: Any = getattr(op, "wide", op)
        known, to = REGISTRY.get(base.name), target(base.name)
        to = dtype if to == "" else to
        if to is not None and base is known and casts({x.dtype for x in xs if isinstance(x, Tensor)}, to):
            linear = op.name == "linear"
            rounds = linear and to == bfloat16 and not any([x is not None and x.dtype not in (float32, bfloat16) for x in xs])
            operands = 1 if rounds else 3 if linear else len(xs)  # a residual stays as it is
            xs = [cast(x, to) if i < operands else x for i, x in enumerate(xs)]
            op = REGISTRY["rounding_linear"] if rounds else Door.form(base, xs, float32 if linear else to)
    return entrance.call(op, xs, attributes, numbers)


def cast(x: Any, dtype: np.dtype) -> Any:
    return REGISTRY["cast"](x, dtype) if isinstance(x, Tensor) and x.dtype in FLOATS and x.dtype != dtype else x


def reading(dtype: Any) -> autocast:
    """The block for what `here` said once."""
    return autocast(bfloat16 if dtype is None else dtype, dtype is not None)


def without_device(init: Any) -> Any:
    """An __init__ that says what to do to those who name a device, as PyTorch's asks for."""

    @wraps(init)
    def checked(self: Any, *args: Any, **options: Any) -> None:
        if "device_type" in options or (args and is_device_name(args[0])):
            given = options.get("device_type", args[0] if args else None)
            raise DTypeError(f"autocast: not a dtype: {given!r}. {ADVICE}.")
        init(self, *args, **options)

    return checked


class autocast(ContextDecorator):
    """autocast(dtype=bfloat16, enabled=True): a context, and a decorator, in which products of float32 numbers are computed from 16 bits.
    matmul, linear layers, convolutions and attention round their inputs to `dtype` (bfloat16 or float16) and give it; softmax,
    log_softmax, sums, means and losses of 16-bit inputs give float32; everything else follows its inputs. Parameters stay float32, and so
    do their gradients, so nothing needs a GradScaler. Call backward() inside or outside: it does what the forward pass asked for. Blocks
    nest; autocast(enabled=False) goes back to the inputs' own types. It holds for this thread. A captured step follows the block that it
    is called in. A layer with a compute_dtype of its own goes by that. Raises DTypeError for another dtype."""

    @without_device
    def __init__(self, dtype: Any = bfloat16, enabled: bool = True):
        try:
            found = as_dtype(dtype)
        except DTypeError:
            raise DTypeError(f"autocast: not a dtype: {dtype!r}. {ADVICE}.") from None
        if found not in HALF:
            raise DTypeError(f"autocast: not a 16-bit float: {found}. {ADVICE}.")
        if not isinstance(enabled, bool | np.bool_):
            raise DTypeError(f"autocast: enabled is no yes or no: {enabled!r}. Use True or False.")
        self.dtype, self.enabled = found, bool(enabled)

    def __enter__(self) -> autocast:
        here.open.append((self, here.dtype))
        if self.enabled:
            entrance.enter()
        here.dtype = self.dtype if self.enabled else None
        return self

    def __exit__(self, *exc: object) -> None:
        for i in [i for i, (block, _) in enumerate(here.open) if block is self][-1:]:
            _, before = here.open.pop(i)
            if i == len(here.open):
                here.dtype = before
            else:  # generators end in any order: the block that was opened next goes back to where this one would have
                here.open[i] = here.open[i][0], before
        if self.enabled:
            entrance.leave()

    def __call__(self, function: Any) -> Any:
        """As a decorator. Raises TypeError for a generator or coroutine, whose body runs after the call."""
        if any([kind(function) for kind in (inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction)]):
            raise TypeError(f"autocast: a generator or coroutine cannot be decorated: {function.__name__}. Use the block inside it.")
        return super().__call__(function)

    def _recreate_cm(self) -> autocast:
        return type(self)(self.dtype, self.enabled)

    def __repr__(self) -> str:
        return f"autocast({self.dtype}{'' if self.enabled else ', enabled=False'})"
