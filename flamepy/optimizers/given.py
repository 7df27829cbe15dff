"""What a user hands to an optimizer: parameters in several forms, options or a config object, gradients in three forms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, is_dataclass
from typing import Any

from ..backend.base import Buffer
from ..backend.divert import active, aside, told
from ..backend.formula.clip import USE
from ..errors import DTypeError, GradientError, ShapeError, StateError, warn
from ..gradient import GradientMap
from ..gradient_memory import check_device
from ..parameter import Parameter
from ..tensors import Tensor


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


def as_map(found: dict[int, tuple[Parameter, Tensor]]) -> GradientMap:
    """Gradients as a map that holds these very tensors."""
    grads = GradientMap()
    for p, g in found.values():
        grads.insert(p, g)
    return grads


def list_of(name: str, params: Any) -> list[Parameter]:
    """Parameters from a ParameterDict, a Module, one Parameter or an iterable of them."""
    if params is None or is_dataclass(params):
        return []
    if hasattr(params, "params") and not isinstance(params, Parameter):  # a Module: its dictionary gives names
        params = params.params
    if not hasattr(params, "parameters") and not hasattr(params, "__iter__"):
        raise TypeError(f"{name}: not a Parameter: {type(params).__name__}. Pass a model, a ParameterDict or a list of Parameters.")
    found = params.parameters() if hasattr(params, "parameters") else [params] if isinstance(params, Parameter) else list(params)
    if not found:
        raise StateError(f"{name}: no parameters: an empty {type(params).__name__}. Pass a model, a ParameterDict or a list of Parameters.")
    for p in found:
        if isinstance(p, dict):
            advice = (
                "Pass the parameters, and groups={'*.bias': {'weight_decay': 0}} for options by name; add_param_group() takes such a dict"
            )
            raise TypeError(f"{name}: PyTorch's list of groups: a dict with {', '.join(map(str, p))}. {advice}.")
        if not isinstance(p, Parameter):
            raise TypeError(f"{name}: not a Parameter: {type(p).__name__}. Pass a model, a ParameterDict or a list of Parameters.")
    return found


def say_if_replaced(optimizer: Any, found: dict[int, Tensor], grads: GradientMap) -> None:
    """Warn, once, who assigned another layer or parameter to a model after its optimizer was made: the new one would never be trained."""
    gone = [p.label for p in optimizer.params if p.replaced and p.id not in found]
    if gone and not optimizer.told and any([key not in optimizer.names for key in grads]):
        optimizer.told = True
        advice = "What took its place is not trained: make the optimizer afterwards, or call add_param_group()"
        text = f"{optimizer.name}: a parameter was replaced in its model: {gone[0]}. {advice}."
        warn(text)


def options_of(name: str, config: Any, params: Any, options: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """Options from a config object given as the second or the only argument, else the keywords; never both.

    None in a config stands for the optimizer's own default; an option that it does not have is the keyword's.
    """
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


def recording() -> bool:
    """Whether this thread records a step."""
    return bool(active) and any(True for _ in told())


@contextmanager
def not_replayed(params: Iterable[Parameter]) -> Iterator[None]:
    """Whoever records a step does not see what is done in the block on the devices of these: it is done once."""
    with ExitStack() as stack:
        for device in {p.device for p in params}:
            stack.enter_context(aside(device))
        yield


def refused(mark: Buffer | None) -> bool:
    """Whether gradients are known to be marked as not to be used."""
    return mark is not None and not recording() and not mark.device.stream.number(mark, USE)


def mark_of(grads: Any) -> Buffer | None:
    return grads.mark if isinstance(grads, GradientMap) else None


def check_unscaled(name: str, grads: GradientMap) -> None:
    """Raise GradientError for the gradients of a scaled loss."""
    if grads.scaled is not None:
        raise GradientError(f"{name}: these are the gradients of a scaled loss: {grads.scaled}. Use scaler.step(optimizer, grads).")
