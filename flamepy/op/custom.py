"""Custom ops: a forward function on Tensors and a backward rule, where one formula an element is not enough.

    @custom
    def softmax(x, axis=-1): ...           # allocate, launch, return an unrecorded Tensor (or Tensor, {"name": extra to save})
    @softmax.backward
    def softmax_dx(g, y, axis): ...        # what it names is saved; returns one Tensor for each input
    @softmax.graph
    def softmax_ddx(g, y, axis): ...       # the same in differentiable ops, for create_graph (not needed if the rule is ops already)

Arguments without default are inputs, the others attributes; `custom(inputs=n)` makes the first n inputs (None allowed).
`*xs` takes any number of inputs. A rule may also name `wanted` (which inputs need a gradient), `shapes` (of the inputs), `source`
(dtype of the first input), `gs` (cotangents of all outputs) and `into`: for each input None, or (tensor where its gradient belongs,
whether to add to what is there); a rule that writes there returns that tensor.

May import: errors, backend, autograd, op, op_inputs. FLAME counterpart: `flame_core::autograd::Op`. Read next: ops/reduce.py.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from ..autograd.entries import TapeEntry, state
from ..backend.base import Buffer
from ..dtypes import FLOATS, FULL, HALF, float32
from ..errors import GradientError
from . import base as op
from .base import ALIASES, Op, finish, saved_tensor, untracked, watch, watchers
from .inputs import coerce, in_float32

OUTPUT = -1
VARIADIC = inspect.Parameter.VAR_POSITIONAL


class Custom(Op):
    """See custom()."""

    def __init__(self, forward: Any, inputs: int | None, kind: str, home: str):
        parameters = list(inspect.signature(forward).parameters.values())
        self.variadic = parameters[0].kind is VARIADIC
        if inputs is None:
            inputs = sum(p.default is p.empty for p in parameters)
        names = tuple(p.name for p in parameters[:inputs])
        super().__init__(forward.__name__, names, {p.name: p.default for p in parameters[inputs:]}, forward.__doc__, home)
        self.required = sum(p.default is p.empty for p in parameters[:inputs])
        self.positional = [p.name for p in parameters]
        self.forward, self.kind = forward, kind
        self.rule: Callable | None = None
        self.graph_rule: Callable | None = None
        self.names: tuple[str, ...] = ()
        self.graph_names: tuple[str, ...] = ()
        self.takes: list[Any] = []  # what finds each argument of the rule
        self.graph_takes: list[Any] = []
        self.keeps: list[tuple[str, int]] = []  # what the rule takes of inputs (by number) and the output (-1)
        self.count = -1 if self.variadic else inputs
        self.short = lambda *args, **options: self(*args, **options)  # noqa: PLW0108  (as a method it binds; an Op does so slowly)

    def backward(self, rule: Any) -> Any:
        """Decorator: the backward rule."""
        self.rule = rule
        self.names = rule.__code__.co_varnames[: rule.__code__.co_argcount]
        self.takes = [finder(self, name) for name in self.names]
        places = {"y": OUTPUT, **{name: i for i, name in enumerate(self.inputs)}}
        self.keeps = [(name, places[name]) for name in self.names if name in places]
        return rule

    def graph(self, rule: Any) -> Any:
        """Decorator: the rule in differentiable ops, used while a graph of the backward is recorded."""
        self.graph_rule = rule
        self.graph_names = rule.__code__.co_varnames[: rule.__code__.co_argcount]
        self.graph_takes = [finder(self, name) for name in self.graph_names]
        extra = set(self.graph_names) - set(self.names) - set(self.attributes) - {"wanted"}
        if extra:
            raise ValueError(f"{self.name}: its graph rule names values that are not saved: {extra}. Name them in the backward rule.")
        return rule

    def differentiable(self) -> Custom:
        """Say that the backward rule is made of differentiable ops, and so serves create_graph too."""
        self.graph_rule, self.graph_names, self.graph_takes = self.rule, self.names, self.takes
        return self

    def __call__(self, *args: Any, **options: Any) -> Any:
        xs, attributes = self.bind(args, options) if options or len(args) != self.count else (args, self.attributes)
        dtype, tracked, tensor = None, False, op.Tensor
        for x in xs:
            if x is not None:
                if not isinstance(x, tensor) or (x.dtype is not dtype and dtype is not None):
                    return self.other_types(xs, attributes)
                dtype = x.dtype
                tracked = tracked or x.requires_grad
        if dtype is not float32 and dtype not in FULL:
            return self.other_types(xs, attributes)
        return self.record(xs, attributes) if tracked and state.recording else self.run(xs, attributes)

    def other_types(self, xs: Sequence[Any], attributes: dict[str, Any]) -> Any:
        """The call with inputs that are not all Tensors of one full-width float type."""
        if self.kind in ("as is", "move"):
            xs = [x if isinstance(x, op.Tensor) else op.Tensor.of(self.name, x) for x in xs]
            if self.kind == "move" and xs[0].dtype in HALF:
                return in_float32(self, xs, attributes)
        else:
            present, dtype, _ = coerce(self.name, [x for x in xs if x is not None], self.kind)
            fill = iter(present)
            xs = [None if x is None else next(fill) for x in xs]
            if dtype in HALF:
                return in_float32(self, xs, attributes)
        tracked = state.recording and any([x is not None and x.requires_grad for x in xs])
        return self.record(xs, attributes) if tracked else self.run(xs, attributes)

    def run(self, xs: Sequence[Any], attributes: dict[str, Any]) -> Any:
        """The result, not recorded."""
        y = self.forward(*xs, **attributes)
        if type(y) is tuple and type(y[-1]) is dict:
            y = y[0]
        if watchers:
            watch(self.name, y)
        return untracked(self, xs, y)

    def bind(self, args: tuple, options: dict[str, Any]) -> tuple[Sequence[Any], dict[str, Any]]:
        """Split the call into inputs and attributes; refuse what is unknown or missing."""
        if self.variadic:
            return args, self.options(options) if options else self.attributes
        n, given = self.count, len(args)
        if given > len(self.positional):
            raise TypeError(f"{self.name}: too many arguments: {given}. Takes {', '.join(self.positional)}.")
        attributes = self.attributes | dict(zip(self.attributes, args[n:], strict=False))
        if not options and given >= self.required:
            return args[:n] if given >= n else args + (None,) * (n - given), attributes
        xs: list[Any] = list(args[:n])
        for key, value in options.items():
            name = ALIASES.get(key, key)
            if name in attributes:
                attributes[name] = value
            elif name in self.inputs[len(xs) :]:
                continue
            else:
                raise TypeError(f"{self.name}: unknown option: {key}={value!r}. Known: {', '.join(self.positional)}.")
        for name in self.inputs[len(xs) :]:
            if name not in options and len(xs) < self.required:
                raise TypeError(f"{self.name}: missing input: '{name}'. Takes {', '.join(self.positional)}.")
            xs.append(options.get(name))
        return xs, attributes

    def record(self, xs: Sequence[Any], attributes: dict[str, Any]) -> Any:
        """The result, on the tape: at least one of xs requires grad."""
        state.recording = False
        try:
            y = self.forward(*xs, **attributes)
        finally:
            state.recording = True
        extras: dict[str, Any] = {}
        if type(y) is tuple and type(y[-1]) is dict:
            y, extras = y
        if watchers:
            watch(self.name, y)
        first = y[0] if type(y) is tuple else y
        if self.rule is None or (first.dtype is not float32 and first.dtype not in FLOATS):
            if first.dtype in FLOATS and state.strict:
                raise self.no_rule()
            return untracked(self, xs, y)
        saved: dict[str, Any] = {}
        versions = []
        for name, k in self.keeps:
            x = first if k == OUTPUT else xs[k]
            if x is None:
                saved[name] = None
            else:
                saved[name] = b = x.buffer
                versions.append((name, b, b.writes if b.span is None else b.version))
        for name in extras:
            if name in self.names:
                saved[name] = extras[name]
        return finish(self, xs, y, attributes, saved, versions)

    def rules(self, entry: TapeEntry, gs: tuple, wanted: tuple[bool, ...], cotangents: Any) -> Sequence[Any]:
        if state.creating_graph:
            return self.graph_rules(entry, gs, wanted, cotangents)
        values, saved = [], entry.saved
        for take in self.takes:
            if type(take) is tuple:  # a saved value, looked up here: a call for each costs as much again
                name, i = take
                value = saved[name]
                if isinstance(value, Buffer):
                    shape = entry.output_meta[0][1] if i < 0 else entry.input_meta[i][1]
                    value = op.Tensor(value, shape, value.dtype, value.device)
                values.append(value)
            else:
                values.append(take(entry, gs, wanted, cotangents))
        found = self.rule(*values)  # type: ignore[misc]
        return found if type(found) is tuple else (found,)

    def graph_rules(self, entry: TapeEntry, gs: tuple, wanted: tuple[bool, ...], cotangents: Any) -> Sequence[Any]:
        """The same while a graph of the backward is made: saved values are tracked as the originals were."""
        if self.graph_rule is None:
            raise GradientError(
                f"{self.name}: no second derivative: create_graph=True was asked for at {entry.where}. Use create_graph=False."
            )
        values = []
        for take in self.graph_takes:
            values.append(saved_tensor(entry, take[0]) if type(take) is tuple else take(entry, gs, wanted, cotangents))
        found = self.graph_rule(*values)
        return found if type(found) is tuple else (found,)


# What a rule may name beside inputs, y, attributes and extras; each gets (entry, cotangents of the outputs, wanted, all cotangents).
FINDERS: dict[str, Callable] = {
    "g": lambda entry, gs, wanted, cotangents: gs[0],
    "gs": lambda entry, gs, wanted, cotangents: gs,
    "wanted": lambda entry, gs, wanted, cotangents: wanted,
    "into": lambda entry, gs, wanted, cotangents: cotangents.into(entry),
    "shapes": lambda entry, gs, wanted, cotangents: entry.input_shapes,
    "source": lambda entry, gs, wanted, cotangents: entry.input_meta[0][2],
}


def finder(op: Custom, name: str) -> Callable | tuple[str, int]:
    """What finds the value of a rule's argument; for a saved value its name and which input it is (OUTPUT for y)."""
    if name in FINDERS:
        return FINDERS[name]
    if name in op.attributes:
        return lambda entry, gs, wanted, cotangents: entry.attributes[name]
    return name, op.inputs.index(name) if name in op.inputs else OUTPUT


def custom(forward: Any = None, *, inputs: int | None = None, kind: str = "float", home: str = "flamepy") -> Any:
    """Decorator: make an op of `forward`. See the top of this file.

    kind: "float", "number" or "any" bring inputs to one dtype (op.coerce); "move" and "as is" leave each as it came ("move" has
    no kernels for 16-bit floats and goes through float32). home: see op.publish().
    """
    if forward is None:
        return lambda function: Custom(function, inputs, kind, home)
    return Custom(forward, inputs, kind, home)
