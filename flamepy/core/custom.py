"""Custom ops: a forward function on Tensors and a backward rule, where one formula an element is not enough.

    @custom
    def softmax(x, axis=-1): ...           # allocate, launch, return an unrecorded Tensor (or Tensor, {"name": extra to save})
    @softmax.backward
    def softmax_dx(g, y, axis): ...        # what it names is saved; returns one Tensor for each input
    @softmax.graph
    def softmax_ddx(g, y, axis): ...       # the same in differentiable ops, for create_graph (not needed if the rule is ops already)

Arguments without default are inputs, the others attributes; `custom(inputs=n)` makes the first n inputs (None allowed). `*xs` takes any
number of inputs. Forward may also name `tracked` (which inputs a backward will want gradients of). A rule may name the WORDS below, too.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from .door import Door
from .dtypes import FULL
from .errors import DTypeError, GradientError
from .inputs import KINDS, coerce
from .op import Op, parameters_of, publish, signature_of
from .tape import TapeEntry
from .tensor import Tensor

VARIADIC = inspect.Parameter.VAR_POSITIONAL
# What a rule may name beside inputs, y, attributes and extras: the cotangent of the output, or of all; which inputs need a gradient; shapes
# of the inputs, dtype and device of the first. More words may join from above.
WORDS: dict[str, Callable[[TapeEntry, Sequence[Any], dict[str, Any]], Any]] = {
    "g": lambda entry, gs, values: gs[0],
    "gs": lambda entry, gs, values: tuple(gs),
    "wanted": lambda entry, gs, values: [node is not None for node in entry.inputs],
    "shapes": lambda entry, gs, values: [None if spec is None else spec.shape for spec in entry.call.ins],
    "source": lambda entry, gs, values: values.get("source", getattr(entry.call.ins[0], "dtype", None)),
    "origin": lambda entry, gs, values: getattr(entry.call.ins[0], "device", None),
}


class Custom(Op):
    """See custom()."""

    numbers = ()

    def __init__(self, forward: Any, name: str, inputs: int | None, kind: str, title: str, internal: bool):
        given = parameters_of(forward) if inspect.isfunction(forward) else {}
        if not given:
            raise TypeError(f"custom: not a function of Tensors: {forward!r}. Write it with def, inputs first.")
        parameters = [p for p in given.values() if p.name != "tracked"]
        self.variadic = parameters[0].kind is VARIADIC
        if not isinstance(kind, str) or kind not in KINDS:
            raise ValueError(f"custom: unknown kind: {kind!r}. Use one of {', '.join(KINDS)}.")
        if inputs is not None and (isinstance(inputs, bool) or not hasattr(inputs, "__index__") or inputs < 0):
            raise DTypeError(f"custom: inputs is no count: {inputs!r}. Say how many of the arguments are Tensors.")
        if inputs is None:
            inputs = sum(p.default is p.empty for p in parameters)
        names = tuple(p.name for p in parameters[:inputs])
        super().__init__(name, names, {p.name: p.default for p in parameters[inputs:]}, forward, title)
        self.required = sum(p.default is p.empty for p in parameters[:inputs])
        self.named = () if self.variadic else names
        self.body, self.kind, self.internal = forward, kind, internal
        self.trusted = is_own_code(forward)
        self.asks_tracked = "tracked" in given
        self.rule: Callable | None = None
        self.graph_rule: Callable | None = None
        self.names: tuple[str, ...] = ()  # what the rules take
        self.graph_names: tuple[str, ...] = ()
        self.saved: tuple[str, ...] = ()  # what of it an entry saves
        self.function = Door.caller(self)
        signature_of(self, parameters)

    # ---- the rules -------------------------------------------------------------------------------------------------------------------
    def backward(self, rule: Any, names: tuple[str, ...] = ()) -> Any:
        """Decorator: the backward rule. `names`: what it takes, if it does not say so itself."""
        self.rule, self.names = rule, names or rule.__code__.co_varnames[: rule.__code__.co_argcount]
        self.saved = tuple([n for n in self.names if n not in WORDS and n not in self.attributes])
        return rule

    def graph(self, rule: Any) -> Any:
        """Decorator: the rule in differentiable ops, used while a graph of the backward is recorded."""
        self.graph_rule, self.graph_names = rule, rule.__code__.co_varnames[: rule.__code__.co_argcount]
        extra = set(self.graph_names) - set(self.names) - set(self.attributes) - set(WORDS)
        if extra:
            raise ValueError(f"{self.name}: its graph rule names values that are not saved: {extra}. Name them in the backward rule.")
        return rule

    def differentiable(self, rule: Any = None) -> Any:
        """Decorator: the backward rule, made of differentiable ops, so that it serves create_graph too. Called without a rule, it says so
        of the one that is there."""
        if rule is not None:
            self.backward(rule)
        self.graph_rule, self.graph_names = self.rule, self.names
        return rule or self

    # ---- what a call asks -----------------------------------------------------------------------------------------------------------
    def forward(self, xs: Sequence[Any], attributes: dict[str, Any], tracked: Sequence[bool | None]) -> tuple[Any, dict[str, Any]]:
        y = self.body(*xs, **attributes, tracked=tracked) if self.asks_tracked else self.body(*xs, **attributes)
        found = y if type(y) is tuple and y and type(y[-1]) is dict else (y, {})
        if not self.trusted:
            Door.resulted(self, found)
        return found

    def needs(self, tracked: Sequence[bool | None], attributes: dict[str, Any]) -> tuple[str, ...] | None:
        return None if self.rule is None else Door.saves(self, self.saved, tracked, attributes)

    def rules(self, entry: TapeEntry, gs: Sequence[Any], values: dict[str, Any]) -> Sequence[Any]:
        return self.cotangents(self.rule, self.names, entry, gs, values)

    def graph_rules(self, entry: TapeEntry, gs: Sequence[Any], values: dict[str, Any]) -> Sequence[Any]:
        if self.graph_rule is None:
            raise GradientError(
                f"{self.title}: no second derivative: create_graph=True was asked for at {entry.where}. Use create_graph=False."
            )
        return self.cotangents(self.graph_rule, self.graph_names, entry, gs, values)

    def cotangents(self, rule: Any, names: Sequence[str], entry: TapeEntry, gs: Sequence[Any], values: dict[str, Any]) -> Sequence[Any]:
        """What a rule returns, called with the values it names; one that was not saved is None."""
        found = rule(*[WORDS[name](entry, gs, values) if name in WORDS else values.get(name) for name in names])
        found = found if type(found) is tuple else (found,)
        return found if self.trusted else Door.derived(self, entry, found, {g.shape for g in gs if g is not None})

    # ---- the call in general ---------------------------------------------------------------------------------------------------------
    def general(self) -> Callable[..., Any]:
        def function(*args: Any, **options: Any) -> Any:
            return self.of(*self.bound(args, options))

        return function

    def of(self, xs: Sequence[Any], attributes: dict[str, Any]) -> Any:
        """The call with these inputs. Raises DTypeError for a user's None where one has to be."""
        for name, x in zip(self.inputs[: self.required], xs, strict=False):
            if x is None and not self.internal:
                known = ", ".join((*self.inputs, *self.attributes))
                raise DTypeError(f"{self.name}: no tensor, array or number: {name}=None. Takes {known}.")
        op: Op = self
        kinds = {x.dtype if isinstance(x, Tensor) else None for x in xs if x is not None}
        fit = len(kinds) == 1 and kinds <= FULL
        if not fit and self.kind == "as is":
            device = next((x.device for x in xs if isinstance(x, Tensor)), None)
            xs = [x if x is None or isinstance(x, Tensor) else Tensor.of(self.title, x, device) for x in xs]
        elif not fit:
            present, dtype, device = coerce(self.title, [x for x in xs if x is not None], self.kind)
            rest = iter([x if isinstance(x, Tensor) else Tensor.of(self.title, x, device) for x in present])
            xs = [None if x is None else next(rest) for x in xs]
            op = Door.form(self, xs, dtype)
        return Door.call(op, xs, attributes)


def is_own_code(function: Any) -> bool:
    """Whether the function was written in flamepy, whoever's name it bears."""
    return str(function.__globals__.get("__name__")).split(".")[0] == __name__.split(".")[0]


def custom(
    forward: Any = None, *, name: str = "", inputs: int | None = None, kind: str = "float", home: str = "", title: str = "",
    internal: bool = False,
) -> Any:  # fmt: skip
    """Decorator: make an op of `forward`; what stands under its name afterwards is the op, which is called like a function. See the top
    of this file.
    kind: "float", "number" or "any" bring inputs to one dtype (inputs.coerce); "as is" leaves each as it came. title: what a tape shows.
    home: see op.publish(). internal: only flamepy's own functions call it, with every argument by position and attributes in a fixed
    form."""
    if forward is None:
        return partial(custom, name=name, inputs=inputs, kind=kind, home=home, title=title, internal=internal)
    op = Custom(forward, name or forward.__name__, inputs, kind, title, internal)
    op.function.__doc__ = Door.explain(op, bool(home))
    publish(op.name, op.function, home)
    return op
