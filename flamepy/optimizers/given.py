"""What users give to an optimizer, checked: parameters in several forms, a config, lists of gradients, a class of their own; and the
model behind the parameters, into which others are put later.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable
from dataclasses import asdict, is_dataclass
from typing import Any

import numpy as np

from ..core.formula import ON_ARRAYS, typed
from ..definitions import FLOAT64, compilable, tried
from ..dtypes import is_number
from ..engine.named_map import check_device
from ..engine.spans import NUMBERS
from ..errors import DTypeError, GradientError, ShapeError, StateError, warn
from ..gradient import GradientMap
from ..parameter import Parameter, ParameterDict
from ..tensors import Tensor

MOST_SLOTS = 3  # that a launch takes beside the parameters
FORMS = "Pass a model, a ParameterDict or a list of Parameters"


# ---- parameters and options ----------------------------------------------------------------------------------------------------------
def list_of(name: str, params: Any) -> list[Parameter]:
    """Parameters from a ParameterDict, a Module, one Parameter or an iterable of them."""
    if params is None or is_dataclass(params):
        return []
    if hasattr(params, "params") and not isinstance(params, Parameter):  # a Module: its dictionary gives names
        params = params.params
    if not hasattr(params, "parameters") and (not hasattr(params, "__iter__") or isinstance(params, set | frozenset)):
        raise TypeError(f"{name}: not a Parameter: {type(params).__name__}. {FORMS}.")
    found = params.parameters() if hasattr(params, "parameters") else [params] if isinstance(params, Parameter) else list(params)
    if not found:
        raise StateError(f"{name}: no parameters: an empty {type(params).__name__}. {FORMS}.")
    for p in found:
        if isinstance(p, dict):
            what = f"PyTorch's list of groups: a dict with {', '.join(map(str, p))}"
            advice = "and groups={'*.bias': {'weight_decay': 0}} for options by name; add_param_group() takes such a dict"
            raise TypeError(f"{name}: {what}. Pass the parameters, {advice}.")
        if not isinstance(p, Parameter):
            raise TypeError(f"{name}: not a Parameter: {type(p).__name__}. {FORMS}.")
    return found


def name_of(p: Any) -> str:
    """The name that the user gave a parameter, or asked its model for; "" for none: states find such parameters by position."""
    return "" if p.passing else p.name


def options_of(name: str, config: Any, params: Any, options: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """Options from a config object given as the second or the only argument, else the keywords; never both.

    None in a config stands for the optimizer's own default; an option that it does not have is the keyword's."""
    chosen = config if is_dataclass(config) else params if is_dataclass(params) else None
    if chosen is None:
        return options
    given: dict[str, Any] = asdict(chosen)  # type: ignore[call-overload, arg-type]
    if not set(given) <= set(options):
        raise TypeError(f"{name}: not its config: {type(chosen).__name__}. Pass one with {', '.join(options)}.")
    twice = [key for key, value in options.items() if key in given and key != "lr" and value != defaults[key]]
    if twice:
        raise TypeError(f"{name}: options beside a config: {', '.join(twice)}. Put them into the config.")
    return {**options, **{key: defaults[key] if value is None else value for key, value in given.items()}}


# ---- gradients -----------------------------------------------------------------------------------------------------------------------
def triples(name: str, grads: Any) -> list[tuple[Any, Parameter, Any]]:
    """FLAME's list of (id, parameter, gradient), checked. Raises DTypeError for what is neither that nor a map: a loss, a closure;
    StateError for an id that is not the parameter's, or a parameter listed twice."""
    rows = [None] if isinstance(grads, Tensor) or not hasattr(grads, "__iter__") else list(grads)
    if not all([isinstance(row, tuple | list) and len(row) == 3 for row in rows]):
        what = f"a tensor of shape {grads.shape}" if isinstance(grads, Tensor) else f"a {type(grads).__name__}"
        raise DTypeError(f"{name}.step: not a map of gradients: {what}. Pass the map that loss.backward() returned: step(loss.backward()).")
    seen: set[int] = set()
    for key, p, _ in rows:  # type: ignore[misc]
        if not isinstance(p, Parameter):
            raise DTypeError(f"{name}.step: not a Parameter: {type(p).__name__}. Pass a list of (id, parameter, gradient).")
        if getattr(key, "id", key) != p.id:
            raise StateError(f"{name}.step: not the id of {p.label}: {key}. Pass (p.id, p, gradient).")
        if p.id in seen:
            raise StateError(f"{name}.step: a parameter is listed twice: {p.label}. Add its gradients first: grads.accumulate(p, g).")
        seen.add(p.id)
    return rows  # type: ignore[return-value]


def as_gradient(name: str, p: Parameter, gradient: Any) -> Tensor:
    """A gradient given as a Tensor or an array. Raises ShapeError, DTypeError or DeviceError unless it fits the parameter."""
    g = gradient if isinstance(gradient, Tensor) else Tensor.of(name, gradient, p.device)
    if g.shape != p.shape:
        raise ShapeError(f"{name}: gradient shape differs for {p.label}: expected {p.shape}, got {g.shape}. Pass this model's gradients.")
    check_device(name, p.label, p.device, g)
    if g.scaled is not None:
        raise GradientError(
            f"{name}: the gradient of a scaled loss: {p.label}. Call unscale() on its map first, or scaler.step(optimizer, map)."
        )
    return g


def check_unscaled(name: str, grads: GradientMap) -> None:
    """Raise GradientError for the gradients of a scaled loss."""
    if grads.scaled is not None:
        raise GradientError(f"{name}: these are the gradients of a scaled loss: {grads.scaled}. Use scaler.step(optimizer, grads).")


# ---- a model that changes -------------------------------------------------------------------------------------------------------------
class Model:
    """The model an optimizer was made from: a layer or Parameter put into it later is nobody's, and would never be trained.

    It is not kept alive, and looked at again after something was put into a module, not at each step. `params`: what the optimizer was
    made from; if that is no Module, and not a module's `params`, there is nothing to look at."""

    def __init__(self, params: Any):
        whole = not isinstance(params, Parameter) and hasattr(params, "params") and hasattr(params, "parameters")
        self.module: Callable[[], Any] = weakref.ref(params) if whole else lambda: None
        if isinstance(params, ParameterDict):
            self.module = params._module
        self.put_in, self.told, self.told_of_gone = Parameter.put_in, False, False
        self.new: list[Parameter] = []  # put in later, and no optimizer's

    def look(self, optimizer: Any, grads: GradientMap | None) -> None:
        """Warn, once, of a parameter that was put in later and has a gradient, in the map or in its `.grad`."""
        if self.put_in != Parameter.put_in:
            self.put_in, module = Parameter.put_in, self.module()
            replaced = any([p.replaced for p in optimizer.params])  # missed() tells of that
            self.new = [] if module is None or replaced else [p for p in module.parameters() if not p.held]
        for p in self.new:
            if p.requires_grad and not p.held and not self.told and (p.kept_grad() is not None if grads is None else p in grads):
                self.told = True
                advice = "It is not trained: make the optimizer afterwards, or call add_param_group({'params': [...]})"
                warn(f"{optimizer.name}: a parameter was put into its model later: {p.label}. {advice}.")

    def missed(self, optimizer: Any, found: dict[int, Tensor], grads: GradientMap) -> None:
        """Warn, once, if a parameter without a gradient was replaced in its model, and there are gradients of others."""
        gone = [p.label for p in optimizer.params if p.replaced and p.id not in found]
        if gone and not self.told_of_gone and any([key not in optimizer.names for key in grads]):
            self.told_of_gone = True
            advice = "What took its place is not trained: make the optimizer afterwards, or call add_param_group()"
            warn(f"{optimizer.name}: a parameter was replaced in its model: {gone[0]}. {advice}.")

    def __reduce__(self) -> Any:
        """A copy has a model of its own, which this does not know."""
        return Model, (None,)


# ---- a class of a user's --------------------------------------------------------------------------------------------------------------
def check_class(cls: Any) -> None:
    """Give a class of optimizers its name, and check formula and slots as soon as Python has read it: a slot that was forgotten would
    make another argument of each. Raises TypeError or ValueError for a formula that does not go with them, or cannot be compiled."""
    new = {"formula", "slots"} & vars(cls).keys()
    if "name" not in vars(cls) and (new or cls.name == "optimizer"):
        cls.name = cls.__name__
    name, slots, formula = cls.name, cls.slots, inspect.getattr_static(cls, "formula", None)
    if not isinstance(slots, tuple) or not all([isinstance(s, str) and s not in ("step", "master") for s in slots]):
        raise TypeError(f"{name}: slots are no names: {slots!r}. Write slots = ('m',), one name for each moment.")
    if not new or formula is None or isinstance(formula, property):
        return
    formula = compilable(name, formula.__func__ if isinstance(formula, staticmethod) else formula, rest=True)  # as it is now
    cls.formula = staticmethod(formula)
    given = inspect.signature(formula)
    names = [key for key, p in given.parameters.items() if p.kind is not p.VAR_POSITIONAL]
    asked, form = asked_for(formula), form_of(slots)
    if "g" not in names or names.index("g") < 1 or names[0] == "self":
        raise TypeError(f"{name}: the formula is not one of p, the slots and the gradient g: {given}. Write {form}.")
    if (taken := names[1 : names.index("g")]) != list(slots):
        both = f"it takes {taken} between p and g, slots are {list(slots)}"
        raise TypeError(f"{name}: the formula and the slots differ: {both}. Write slots = {tuple(taken)}, or {form}.")
    if len(slots) > MOST_SLOTS:
        raise TypeError(f"{name}: too many slots: {len(slots)}. Keep at most {MOST_SLOTS}.")
    if len(asked) > NUMBERS or (len(asked) < NUMBERS and len(names) == len(given.parameters)):
        raise TypeError(f"{name}: the formula gets {NUMBERS} numbers: {given}. Name those you need, then *_ for the rest.")
    values = [*[np.full(2, 0.5) for _ in range(len(slots) + 2)], *[np.float64(0.5)] * NUMBERS]
    found = tried(name, formula, typed(formula, FLOAT64, ON_ARRAYS), values, "arrays")
    got = len(found) if isinstance(found, tuple) else 0
    if got != (len(slots) + 1 if slots else 0):
        wanted = ", ".join(("p", *slots))
        raise TypeError(f"{name}: the formula returns {got or 1} of {len(slots) + 1} results: {wanted}. Return {wanted}.")


def check_numbers(optimizer: Any, group: Any) -> None:
    """Raise TypeError where a user's numbers() does not give what the formula asks for, or there is no formula."""
    name = optimizer.name
    if not hasattr(optimizer, "formula"):
        raise TypeError(f"{name}: no formula: the class has none. Write {form_of(optimizer.slots)}.")
    wanted, found = asked_for(optimizer.formula), optimizer.numbers(group, 1)
    if not isinstance(found, tuple | list) or not all([is_number(x) for x in found]):
        raise TypeError(f"{name}: numbers() gives no tuple of numbers: {found!r}. Return one, such as (group['lr'],).")
    if not len(wanted) <= len(found) <= NUMBERS:
        asked = f"{len(found)}, the formula asks for {', '.join(wanted)}"
        raise TypeError(f"{name}: numbers() gives another count of numbers: {asked}. Return one for each, at most {NUMBERS}.")


def form_of(slots: tuple[str, ...]) -> str:
    """How a formula with these slots begins."""
    return f"formula({', '.join(('p', *slots, 'g', 'lr', '*_'))})"


def asked_for(formula: Any) -> list[str]:
    """The names of a formula's arguments behind g."""
    names = [name for name, p in inspect.signature(formula).parameters.items() if p.kind is not p.VAR_POSITIONAL]
    return names[names.index("g") + 1 :] if "g" in names else []
