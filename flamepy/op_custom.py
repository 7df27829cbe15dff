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

May import: errors, backend, autograd, op. FLAME counterpart: `flame_core::autograd::Op`. Read next: ops/reduce.py.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from . import op
from .backend.base import HALF, Buffer
from .entries import TapeEntry, state
from .errors import GradientError
from .op import ALIASES, Op, coerce, finish, in_float32, saved_tensor, untracked, watch, watchers

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

    def backward(self, rule: Any) -> Any:
        """Decorator: the backward rule."""
        self.rule = rule
        self.names = rule.__code__.co_varnames[: rule.__code__.co_argcount]
        return rule

    def graph(self, rule: Any) -> Any:
        """Decorator: the rule in differentiable ops, used while a graph of the backward is recorded."""
        self.graph_rule = rule
        self.graph_names = rule.__code__.co_varnames[: rule.__code__.co_argcount]
        extra = set(self.graph_names) - set(self.names) - set(self.attributes) - {"wanted"}
        if extra:
            raise ValueError(f"{self.name}: its graph rule names values that are not saved: {extra}. Name them in the backward rule.")
        return rule

    def differentiable(self) -> Custom:
        """Say that the backward rule is made of differentiable ops, and so serves create_graph too."""
        self.graph_rule, self.graph_names = self.rule, self.names
        return self

    def __call__(self, *args: Any, **options: Any) -> Any:
        xs, attributes = self.bind(args, options)
        if self.kind not in ("as is", "move"):
            present, dtype, _ = coerce(self.name, [x for x in xs if x is not None], self.kind)
            if len(present) == len(xs):
                xs = present
            else:
                fill = iter(present)
                xs = [None if x is None else next(fill) for x in xs]
            if dtype in HALF:
                return in_float32(self, xs, attributes)
        else:
            xs = [x if isinstance(x, op.Tensor) else op.Tensor.of(self.name, x) for x in xs]
            if self.kind == "move" and xs[0].dtype in HALF:
                return in_float32(self, xs, attributes)
        tracked = state.recording and any([x is not None and x.requires_grad for x in xs])
        if not tracked:
            y = self.forward(*xs, **attributes)
            y = y[0] if type(y) is tuple and type(y[-1]) is dict else y
            if watchers:
                watch(self.name, y)
            return untracked(self, xs, y)
        return self.record(xs, attributes)

    def bind(self, args: tuple, options: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Split the call into inputs and attributes; refuse what is unknown or missing."""
        attributes = dict(self.attributes)
        if self.variadic:
            return list(args), self.options(options) if options else attributes
        n = len(self.inputs)
        if len(args) > len(self.positional):
            raise TypeError(f"{self.name}: too many arguments: {len(args)}. Takes {', '.join(self.positional)}.")
        xs: list[Any] = list(args[:n])
        for name, value in zip(self.positional[n:], args[n:], strict=False):
            attributes[name] = value
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

    def record(self, xs: list[Any], attributes: dict[str, Any]) -> Any:
        before, state.recording = state.recording, False
        try:
            y = self.forward(*xs, **attributes)
        finally:
            state.recording = before
        extras: dict[str, Any] = {}
        if type(y) is tuple and type(y[-1]) is dict:
            y, extras = y
        if watchers:
            watch(self.name, y)
        first = y[0] if type(y) is tuple else y
        if first.dtype.kind not in "fV":  # "V": bfloat16
            return untracked(self, xs, y)
        if self.rule is None:
            if state.strict:
                raise self.no_rule()
            return untracked(self, xs, y)
        saved: dict[str, Any] = {}
        for name in self.names:
            if name in self.inputs:
                x = xs[self.inputs.index(name)]
                saved[name] = x.buffer if x is not None else None
            elif name == "y":
                saved["y"] = first.buffer
            elif name in extras:
                saved[name] = extras[name]
        versions = [(name, b, b.version) for name, b in saved.items() if isinstance(b, Buffer)]
        return finish(self, xs, y, attributes, saved, versions)

    def rules(self, entry: TapeEntry, gs: tuple, wanted: tuple[bool, ...], cotangents: Any) -> Sequence[Any]:
        rule, names = (self.graph_rule, self.graph_names) if state.creating_graph else (self.rule, self.names)
        if rule is None:
            raise GradientError(
                f"{self.name}: no second derivative: create_graph=True was asked for at {entry.where}. Use create_graph=False."
            )
        values = []
        for name in names:
            if name == "g":
                values.append(gs[0])
            elif name == "gs":
                values.append(gs)
            elif name == "wanted":
                values.append(wanted)
            elif name == "into":
                values.append(cotangents.into(entry))
            elif name == "shapes":
                values.append(entry.input_shapes)
            elif name == "source":
                values.append(entry.input_meta[0][2])
            elif name in entry.saved:
                values.append(saved_tensor(entry, name))
            else:
                values.append(entry.attributes[name])
        found = rule(*values)
        return found if type(found) is tuple else (found,)


def custom(forward: Any = None, *, inputs: int | None = None, kind: str = "float", home: str = "flamepy") -> Any:
    """Decorator: make an op of `forward`. See the top of this file.

    kind: "float", "number" or "any" bring inputs to one dtype (op.coerce); "move" and "as is" leave each as it came ("move" has
    no kernels for 16-bit floats and goes through float32). home: see op.publish().
    """
    if forward is None:
        return lambda function: Custom(function, inputs, kind, home)
    return Custom(forward, inputs, kind, home)
