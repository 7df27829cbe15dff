"""Op: a named record of a forward computation and its backward rules; the registry of ops; what forward functions are written with.

Two builders make ops: `pointwise` (pointwise.py) from scalar formulas, `custom` (custom.py) from functions on Tensors. In both, the
names in a backward rule's signature are the contract: `g` is the cotangent of the output, `y` the output, the others are inputs and
attributes; what a rule names is what the tape saves, nothing else. A call goes through call.py: check, allocate, launch, record.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .device import Buffer, Device
from .door import Door
from .dtypes import check_flag, computed
from .errors import GradientError
from .tape import TapeEntry
from .tensor import Tensor

REGISTRY: dict[str, Op] = {}  # flamepy's own ops
USERS: dict[str, Op] = {}  # the last op that users defined under each name
PUBLIC: dict[str, Callable] = {}  # what users call: functions of ops, and functions composed of them
HOMES: dict[str, str] = {}  # where: "flamepy", "functional" (flamepy.nn.functional) or "both"
SCALARS = (int, float, bool, np.integer, np.floating, np.bool_)


# ---- what forward functions and rules are written with -------------------------------------------------------------------------
def new(shape: Sequence[int], dtype: np.dtype, device: Device) -> Any:
    """An uninitialised, unrecorded Tensor."""
    spec = Door.spec(tuple(shape), dtype, device)
    return Tensor(device.empty(spec.size, dtype), spec)


def like(x: Any, shape: Sequence[int] | None = None, dtype: np.dtype | None = None) -> Any:
    """An uninitialised Tensor on x's device, of x's dtype and shape unless others are given."""
    return new(x.shape if shape is None else shape, dtype or x.dtype, x.device)


def share(x: Any, shape: Sequence[int]) -> Any:
    """A Tensor of another shape on the same memory."""
    return over(x.buffer, shape)


def over(buffer: Buffer, shape: Sequence[int]) -> Any:
    """A Tensor on this memory."""
    return Tensor(buffer, Door.spec(tuple(shape), buffer.dtype, buffer.device))


def launch(
    name: str, formula: Callable | None, outs: Sequence[Any], ins: Sequence[Any] = (), consts: Sequence[Any] = (),
    dtype: np.dtype | None = None,
) -> None:  # fmt: skip
    """Have the device do what `name` says, on Tensors: outs first, then ins (Tensors, numbers, None), then constants.
    What `dtype`, by default that of the first out, is computed in types the formula's constants."""
    first = outs[0]
    buffers = [None if t is None else t.buffer for t in outs]
    taken = [t.buffer if isinstance(t, Tensor) else t for t in ins]
    first.device.launch(name, formula, buffers, taken, consts, first.spec.computed if dtype is None else computed(dtype))


class Op:
    """What both kinds of op have: a name, input names, attributes, rules. `function` is what users call; `title` what a tape shows."""

    function: Callable[..., Any]
    takes_numbers = False  # whether an input may be a number (of the others, one that is no tensor is absent)
    variadic = False  # whether there may be any number of inputs
    required = 0  # how many of the inputs have to be given
    named: Sequence[str] = ()  # those that may be given by name
    names: Sequence[Any] = ()  # what its rules take
    trusted = True  # whether flamepy's own code runs: what it returns is as it should be

    def __init__(self, name: str, inputs: tuple[str, ...], attributes: dict[str, Any], source: Any, title: str = ""):
        """`source`: the function the user of a builder wrote, for its module and documentation."""
        if not isinstance(name, str) or not name.isidentifier():
            raise ValueError(f"op: not a name: {name!r}. Use a Python name, such as 'swish'.")
        self.own = own = is_own(source)
        if name in REGISTRY or (name in PUBLIC and not own):
            whose = "own" if name in PUBLIC else "own, of an internal op"
            raise ValueError(f"op: name used twice: '{name}' is flamepy's {whose}. Give the op another name.")
        self.name, self.title = name, title or name
        self.inputs, self.attributes = inputs, attributes
        self.__doc__, self.__name__, self.__module__ = source.__doc__, name, source.__module__
        (REGISTRY if own else USERS)[name] = self

    def general(self) -> Callable[..., Any]:
        """A new function that calls the op in any way, on anything that can be made a Tensor."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<op {self.name}({', '.join((*self.inputs, *self.attributes))})>"

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.function(*args, **options)

    def bound(self, args: tuple, options: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        """(inputs, attributes) of a call, None for an input that was left out; refuses what is unknown or missing."""
        args, options = Door.spoken(self, args, options) if options else (args, options)
        n, known = len(args) if self.variadic else len(self.inputs), ", ".join((*self.inputs, *self.attributes))
        if len(args) > n + len(self.attributes):
            raise TypeError(f"{self.name}: too many arguments: {len(args)}. Takes {known}.")
        if not self.named and len(args) < n:
            raise TypeError(f"{self.name}: wrong number of inputs: {len(args)}. Expected {', '.join(self.inputs)}.")
        xs, given = args[:n], dict(zip(self.attributes, args[n:], strict=False))
        for key, value in options.items():
            if key in self.attributes:
                given[key] = value
            elif key not in self.named[len(xs) :]:
                shown = ", ".join((*self.named, *self.attributes)) or "none"
                raise TypeError(f"{self.name}: unknown option: {key}={value!r}. Known: {shown}.")
        for key, value in given.items():
            if type(default := self.attributes[key]) is bool and type(value) is not bool and (value is not None or default):
                check_flag(self.name, key, value)
        for name in self.named[len(xs) :]:
            if name not in options and len(xs) < self.required:
                raise TypeError(f"{self.name}: missing input: '{name}'. Takes {known}.")
            xs += (options.get(name),)
        return xs, self.attributes | given if given else self.attributes

    def forward(self, xs: Sequence[Any], attributes: dict[str, Any], tracked: Sequence[bool | None]) -> tuple[Any, dict[str, Any]]:
        """(unrecorded result: a Tensor or a tuple of them, what may be saved beside inputs and y). `tracked`: the inputs a backward
        will want gradients of."""
        raise NotImplementedError

    def needs(self, tracked: Sequence[bool | None], attributes: dict[str, Any]) -> tuple[str, ...] | None:
        """The names saved when these inputs are tracked; None when there is no rule for one of them."""
        raise NotImplementedError

    def rules(self, entry: TapeEntry, gs: Sequence[Any], values: dict[str, Any]) -> Sequence[Any]:
        """Cotangents of the inputs from those of the outputs, where shapes may still be broadcast; None for those nobody wants. `values`:
        what was saved, and attributes."""
        raise NotImplementedError

    def graph_rules(self, entry: TapeEntry, gs: Sequence[Any], values: dict[str, Any]) -> Sequence[Any]:
        """The same in differentiable ops."""
        raise NotImplementedError

    def no_rule(self, tracked: Sequence[bool | None]) -> GradientError:
        rules = rules if isinstance(rules := getattr(self, "rule", None), tuple) else ()
        found = [n for i, (n, t) in enumerate(zip(self.inputs, tracked, strict=False)) if t and (not rules or rules[i] is None)]
        return GradientError(
            f"{self.title}: no derivative for an input that requires grad: '{', '.join(found)}'. Use detach(), no_grad(), or "
            "strict_mode(False) if the gradient may stop here."
        )


def is_own(function: Any) -> bool:
    """Whether a function is flamepy's, not one of its users'."""
    return str(function.__module__).split(".")[0] == __name__.split(".")[0]


# ---- publishing ----------------------------------------------------------------------------------------------------------------
def publish(name: str, function: Callable, home: str) -> None:
    """Make a function part of flamepy (and a Tensor method), of flamepy.nn.functional, of both, or of neither (home "")."""
    if home:
        PUBLIC[name], HOMES[name] = function, home
        if home != "functional" and is_own(function):
            setattr(Tensor, name, function)


def arguments(function: Any) -> tuple[tuple[str, ...], dict[str, Any]]:
    """(names without default, {name: default})."""
    code, defaults = function.__code__, function.__defaults__ or ()
    names = code.co_varnames[: code.co_argcount]
    split = len(names) - len(defaults)
    return names[:split], dict(zip(names[split:], defaults, strict=True))


def parameters_of(function: Any) -> dict[str, inspect.Parameter]:
    """What inspect.signature() finds of a plain function, in a tenth of its time: each op is asked when flamepy is imported."""
    if hasattr(function, "__wrapped__") or hasattr(function, "__signature__"):  # it says itself what it takes
        return dict(inspect.signature(function).parameters)
    code, defaults, notes = function.__code__, dict(function.__kwdefaults__ or {}), function.__annotations__
    n, flags = code.co_argcount, code.co_flags
    defaults |= zip(code.co_varnames[:n][::-1], (function.__defaults__ or ())[::-1], strict=False)
    p = inspect.Parameter
    rest = iter(code.co_varnames[n + code.co_kwonlyargcount :])
    kinds = dict.fromkeys(code.co_varnames[:n], p.POSITIONAL_OR_KEYWORD) | dict.fromkeys(
        code.co_varnames[: code.co_posonlyargcount], p.POSITIONAL_ONLY
    )
    kinds |= {next(rest): p.VAR_POSITIONAL} if flags & inspect.CO_VARARGS else {}
    kinds |= dict.fromkeys(code.co_varnames[n : n + code.co_kwonlyargcount], p.KEYWORD_ONLY)
    kinds |= {next(rest): p.VAR_KEYWORD} if flags & inspect.CO_VARKEYWORDS else {}
    return {k: p(k, kind, default=defaults.get(k, p.empty), annotation=notes.get(k, p.empty)) for k, kind in kinds.items()}


def signature_of(op: Op, parameters: Sequence[inspect.Parameter]) -> None:
    """Give the function of an op the name, documentation and signature that editors and help() show."""
    function: Any = op.function
    function.__name__ = function.__qualname__ = op.name
    function.__doc__, function.__module__, function.op = op.__doc__, op.__module__, op
    function.__signature__ = inspect.Signature(parameters)
