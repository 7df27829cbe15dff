"""Forms of an op: what flamepy's ops say to the engine, each where it is defined. Core's ops know nothing of it.

    @form(mixes=2, large="kept", only_for={"x": "weight", "weight": "x"}, unless="activation")
    @custom(inputs=4)
    def linear(x, weight, bias=None, residual=None, activation=""): ...

half.py reads which floats an op takes, remade.py what it makes again, rules.py what its rule may be given beside what was saved.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from ..core.custom import WORDS
from ..core.op import REGISTRY
from ..core.tape import TapeEntry
from ..dtypes import FLOATS


def never(entry: Any) -> bool:
    return False


class Forms:
    """What one op has said; see form(), rounds() and remade()."""

    def __init__(
        self, takes: Collection[Any] = FLOATS, mixes: int | None = None, large: str = "", only_for: dict[str, str] | None = None,
        unless: str = "",
    ):  # fmt: skip
        self.takes, self.mixes, self.large, self.only_for, self.unless = takes, mixes, large, only_for or {}, unless
        self.rounds: Callable[[Any], bool] = never
        self.again: Any = None
        self.slot, self.when = -1, never
        self.names: tuple[str, ...] = ()  # what `again` takes
        self.saved: tuple[str, ...] = ()  # of this, what is saved


USUAL = Forms()


def forms_of(op: Any) -> Forms:
    return getattr(op, "forms", USUAL)


def form(**said: Any) -> Callable[[Any], Any]:
    """Decorator of a custom op. takes: the floats that its kernels take; other ones go through half.py, as users' ops do. mixes: they
    take several of these types at once, but the first so many inputs, which are multiplied, have to have one. large: the extra that is
    as large as the result, and like it kept in 16 bits. only_for: {"x": "weight"} says that x is saved only where weight needs a
    gradient, `unless` the attribute of that name is set."""

    def decorate(op: Any) -> Any:
        op.forms = Forms(**said)
        return op

    return decorate


def rounds(op: Any) -> Callable[[Any], Any]:
    """Decorator: says of an entry of this op whether a cotangent that arrives at its result, and goes nowhere else, may be bfloat16: its
    rule rounds it anyway."""

    def decorate(when: Any) -> Any:
        op.forms.rounds = when
        return when

    return decorate


def remade(op: Any, slot: int, when: Callable[[Any], bool] = lambda entry: True) -> Callable[[Any], Any]:
    """Decorator: makes result number `slot` of this op again, where when(entry) says so, from saved values and attributes that it names."""

    def decorate(again: Any) -> Any:
        names = again.__code__.co_varnames[: again.__code__.co_argcount]
        op.forms.again, op.forms.slot, op.forms.when, op.forms.names = again, slot, when, names
        op.forms.saved = tuple([n for n in names if n not in op.attributes])
        return again

    return decorate


def saves(op: Any, names: tuple[str, ...], tracked: Sequence[bool | None], attributes: dict[str, Any]) -> tuple[str, ...]:
    """Of the values that the rule of an op names, those that an entry keeps; with them what makes a result again."""
    forms = getattr(op, "forms", USUAL)
    named = tuple(dict.fromkeys(names + forms.saved))
    if not forms.only_for or (forms.unless and attributes[forms.unless]):
        return named
    wanted = {name for name, want in zip(op.inputs, tracked, strict=False) if want}
    return tuple([n for n in named if n not in forms.only_for or forms.only_for[n] in wanted])


def as_result(entry: Any, t: Any) -> Any:
    """A tensor with the numbers of an entry's first result, tracked as that is: where the result itself was not saved."""
    t.spec, t.entry, t.slot = t.spec.as_tracked(True), entry, 0
    return t


def as_input(entry: Any, t: Any) -> Any:
    """A tensor with numbers that do as those of an entry's first input, tracked as that is: where the input itself was not saved."""
    node, slot = entry.inputs[0], entry.slots[0]
    if type(node) is not TapeEntry:  # a leaf has its own numbers
        node = REGISTRY["clone"](node).entry
    t.spec, t.entry, t.slot = t.spec.as_tracked(True), node, slot
    return t


# `into`: for each input None, or (tensor where its gradient belongs, whether to add to what is there); a rule that writes there returns
# that tensor. `narrow_dx`: whether dx of the first input may be bfloat16. `as_x`, `as_y`: what makes a tensor one with the tape of the
# first input, or result.
WORDS["into"] = lambda entry, gs, values: values.get("into") or (None,) * len(entry.inputs)
WORDS["narrow_dx"] = lambda entry, gs, values: values.get("narrow_dx", False)
WORDS["as_x"] = lambda entry, gs, values: partial(as_input, entry)
WORDS["as_y"] = lambda entry, gs, values: partial(as_result, entry)
