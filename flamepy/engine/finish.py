"""What follows a call's launches, written out once for each form of call: its results as Tensors, and its entry on the tape.

These lines run for every op of an eager program, so nothing in them was known before. A sum of a tracked and an untracked tensor is

    def finish(call, xs, memory, attributes, depth=2):
        call.used = True
        y = new(Tensor)
        y.buffer, y.spec, y.id = memory[2], call.outs[0], ids.next_id()
        entry = new(TapeEntry)
        entry.serial = next_serial()
        entry.call, entry.attributes, entry.output_ids = call, attributes, (y.id,)
        x0 = xs[0]
        entry.inputs = [x0.entry or x0, None]
        if x0.slot:
            entry.slots = slots(xs)
        entry.others = (xs[1].id,)
        frame = getframe(depth)                  # that of the user, or on the way there
        while inside[frame.f_code.co_filename] and (back := frame.f_back):
            frame = back
        entry.code = frame.f_code, frame.f_lasti
        y.entry = entry
        if heard:
            planned(call, xs, memory, y, attributes)
            heard(call.op, xs, y)
        return y
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from sys import _getframe
from typing import Any, NamedTuple

from ..bus import Topic, heard
from ..core import ids
from ..core.call import mark_broken
from ..core.modes import thread
from ..core.tape import TapeEntry, is_inside, next_serial
from ..core.tensor import Tensor
from .remade import let_go

Finish = Callable[..., Any]
FEW = 6  # numbers that are written out one by one; more are looped over
Places = tuple[int, ...] | None  # None: too many, or too high, to be written out

USER_FRAME = """\
try:
    frame = getframe(depth)
except ValueError:  # nobody called: it is the function of a thread
    frame = getframe(2)
while inside[frame.f_code.co_filename] and (back := frame.f_back):
    frame = back""".splitlines()
planned = Topic()  # (what finish() was given, and its result): a planned call is done; told only where somebody hears what ops do


class Inside(dict[str, bool]):
    """By the name of a file: whether its frames are no user's."""

    def __missing__(self, file: str) -> bool:
        self[file] = found = is_inside(file) is not None
        return found


inside = Inside()


def slots_of(xs: Sequence[Any]) -> list[int]:
    """Which output of its entry each is."""
    return [getattr(x, "slot", 0) for x in xs]


class Form(NamedTuple):
    """What calls have in common that are finished alike; the words are those of plan.Call. `inputs`: how many, 0 for many."""

    single: bool
    records: bool
    breaks: bool | str  # "first": the first tensor is tracked
    constants: bool
    inputs: int
    places: Places
    keeps: Places
    tensors: Places
    tracked: Places
    others: Places
    guarded: Places


def finisher(call: Any) -> Finish:
    """How calls of this one's form are finished: finish(call, inputs, memory, attributes) gives the results. `memory`: the buffers and
    numbers that the call was given, then those that it made; `depth`: how many calls up somebody may be who is not known to be flamepy."""
    lists = call.places, call.keeps, call.tensors, call.tracked, call.others, call.guarded
    count = call.inputs if call.inputs <= FEW else 0
    few = [tuple(places) if len(places) <= FEW and count else None for places in lists]
    breaks = call.breaks and ("first" if call.ins[call.tensors[0]].tracked else True)
    return written(Form(call.single, call.records, breaks, bool(call.constants), count, *few))


@lru_cache(4096)
def written(form: Form) -> Finish:
    lines = ["call.used = True", *(["memory += call.constants"] if form.constants else []), *results(form)]
    lines += recorded(form) if form.records else unrecorded(form)
    lines += ["if heard:", "    planned(call, xs, memory, y, attributes)", "    heard(call.op, xs, y)"]
    text = "def finish(call, xs, memory, attributes, depth=2):\n" + "".join([f"    {line}\n" for line in [*lines, "return y"]])
    known: dict[str, Any] = {
        **{"Tensor": Tensor, "TapeEntry": TapeEntry, "new": object.__new__, "ids": ids, "next_serial": next_serial},
        **{"heard": heard, "planned": planned, "let_go": let_go, "slots_of": slots_of},
        **{"mark_broken": mark_broken, "thread": thread, "getframe": _getframe, "inside": inside},
    }
    exec(compile(text, __file__, "exec"), known)  # under this name, so that a search for the user's line skips it
    return known["finish"]  # type: ignore[no-any-return]


def results(form: Form) -> list[str]:
    """y: a Tensor, or a tuple of them. Few are made without the call of a class."""
    if form.single:
        place = form.places[0] if form.places else "call.places[0]"
        return ["y = new(Tensor)", f"y.buffer, y.spec, y.id = memory[{place}], call.outs[0], ids.next_id()"]
    lines = []
    for k, place in enumerate(form.places or ()):
        lines += [f"y{k} = new(Tensor)", f"y{k}.buffer, y{k}.spec, y{k}.id = memory[{place}], call.outs[{k}], ids.next_id()"]
    if lines:
        return [*lines, f"y = {''.join([f'y{k}, ' for k in range(len(lines) // 2)])}"]
    return ["y = tuple([Tensor(memory[i], spec) for i, spec in zip(call.places, call.outs, strict=True)])"]


def recorded(form: Form) -> list[str]:
    """The entry of y."""
    lines = ["entry = new(TapeEntry)", "entry.serial = next_serial()"]
    lines += ["entry.call, entry.attributes = call, attributes"]
    lines += [f"entry.output_ids = {'(y.id,)' if form.single else '[t.id for t in y]'}"]
    lines += [*kept(form), *inputs(form), *USER_FRAME, "entry.code = frame.f_code, frame.f_lasti"]
    if form.single:
        return [*lines, "y.entry = entry"]
    each = [f"y{k}.entry, y{k}.slot = entry, {k}" for k in range(len(form.places or ()))]
    return [*lines, *(each or ["for slot, t in enumerate(y):", "    t.entry, t.slot = entry, slot"])]


def kept(form: Form) -> list[str]:
    """The saved values, and how often those were written that somebody else may overwrite."""
    if form.keeps == ():
        return []
    values = "[memory[i] for i in call.keeps]" if form.keeps is None else f"[{', '.join([f'memory[{i}]' for i in form.keeps])}]"
    lines = [f"entry.values = values = {values}", "if call.lets_go:", "    let_go(call.lets_go, xs, values)"]
    version = "b{0}.writes if b{0}.root is None else b{0}.version"
    if form.guarded is None or form.keeps is None:
        lines += ["versions = entry.versions = [None] * len(values)", "for i in call.guarded:", "    b = values[i]"]
        return [*lines, f"    versions[i] = {version.format('')}"]
    versions = ["None"] * len(form.keeps)
    for i in form.guarded:
        lines.append(f"b{i} = values[{i}]")
        versions[i] = version.format(i)
    return [*lines, f"entry.versions = [{', '.join(versions)}]"] if form.guarded else lines


def inputs(form: Form) -> list[str]:
    """Where gradients flow on to, and what the other inputs are: ids of tensors, numbers."""
    if form.tracked is None or form.others is None:
        lines = ["nodes = entry.inputs = [None] * len(xs)", "for i in call.tracked:", "    nodes[i] = xs[i].entry or xs[i]"]
        lines += ["    if xs[i].slot:", "        entry.slots = slots_of(xs)"]
        return [*lines, "entry.others = [getattr(xs[i], 'id', xs[i]) for i in call.others]"]
    nodes = [f"x{i}.entry or x{i}" if i in form.tracked else "None" for i in range(form.inputs)]
    lines = [f"x{i} = xs[{i}]" for i in form.tracked] + [f"entry.inputs = [{', '.join(nodes)}]"]
    lines += [f"if {' or '.join([f'x{i}.slot' for i in form.tracked])}:", "    entry.slots = slots_of(xs)"]
    others = "".join([f"xs[{i}]{'.id' if i in form.tensors else ''}, " for i in form.others])  # type: ignore[operator]
    return [*lines, f"entry.others = ({others})"] if others else lines


def unrecorded(form: Form) -> list[str]:
    """Remember in y where the chain from a tracked tensor broke."""
    if form.breaks == "first" and form.single:  # the most usual such call, as mark_broken() does it
        why = "'its result has no gradient' if thread.modes.recording else 'under no_grad()'"
        return [*USER_FRAME, f"y.broken = call.op.title, {why}, (frame.f_code, frame.f_lasti)"]
    if form.breaks:
        return ["mark_broken(call.op, xs, y)"]
    if form.tensors is None:
        broken = "any([xs[i].broken is not None for i in call.tensors])"
    else:
        broken = " or ".join([f"xs[{i}].broken is not None" for i in form.tensors])
    return [f"if {broken}:", "    mark_broken(call.op, xs, y)"] if broken else []
