"""The door: the places where what stands above puts its own way of doing things in front of core's. The engine comes in here alone;
definitions.py and docstrings.py see to what users define.

Left as they are, ops are complete: each call runs its forward and records one entry, and each backward runs the entry's rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .spec import Spec


class Door:
    """`caller(op)`: the function by which users call an op; `composed(name, function)`: the same for one made of ops;
    `spoken(op, inputs, options)`: what a caller gave, by the names that it has here. `call(op, inputs, attributes, numbers)`: a call
    whose inputs are Tensors of fitting types, numbers or None; `numbers`: the attributes as kernels take them, where they are numbers.
    `rule(entry, gs, cotangents)`: cotangents of an entry's inputs. `form(op, inputs, dtype)`: the form of a custom op that takes these
    inputs, of this type together. `saves(op, names, tracked, attributes)`: of the values that its rule names, those that are saved.
    `backward(loss, gradient, retain_graph, create_graph)`: the gradients, a GradientMap.
    `checked(name, function)`: a part of a user's op, made independent of its module; `tried(name, formula, rules, inputs, attributes)`
    refuses what does not fit; `resulted(op, found)` and `derived(op, entry, found, shapes)` what a user's forward and rule returned.
    `explain(op, published)`: what help() says of an op. `tensor(data, dtype, device)`: data that is made a Tensor. `spec(shape, dtype,
    device, tracked)`: a Spec; `number(value, dtype)`: a number of Python's as kernels take it."""

    caller: Callable[[Any], Callable[..., Any]] = staticmethod(lambda op: op.general())
    spoken: Callable[[Any, tuple, dict[str, Any]], tuple[tuple, dict[str, Any]]] = staticmethod(lambda op, args, options: (args, options))
    composed: Callable[[str, Any], Any] = staticmethod(lambda name, function: function)
    call: Callable[..., Any]
    checked: Callable[[str, Any], Any] = staticmethod(lambda name, function: function)
    tried: Callable[..., None] = staticmethod(lambda *parts: None)
    resulted: Callable[[Any, Any], None] = staticmethod(lambda op, found: None)
    derived: Callable[..., Sequence[Any]] = staticmethod(lambda op, entry, found, shapes: found)
    explain: Callable[[Any, bool], str] = staticmethod(lambda op, published: op.__doc__ or op.name)
    saves: Callable[..., tuple[str, ...]] = staticmethod(lambda op, names, tracked, attributes: names)
    rule: Callable[[Any, Sequence[Any], Any], Sequence[Any]]
    backward: Callable[..., Any]
    tensor: Callable[[Any, Any, Any], Any]
    form: Callable[[Any, Sequence[Any], Any], Any] = staticmethod(lambda op, xs, dtype: op)
    spec: Callable[..., Any] = Spec
    number: Callable[[Any, Any], Any] = staticmethod(lambda value, dtype: dtype.type(value))
