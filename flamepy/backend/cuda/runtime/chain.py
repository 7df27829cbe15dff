"""Planned calls on a GPU: a chain of launches as one function, which makes its buffers and enqueues its kernels, and nothing else.

These lines run for every op of an eager program, so they are written out for each kind of chain, once. A sum of two buffers is

    def run(memory):                       # the buffers and numbers given
        if device.stream is not direct:    # somebody records: then each launch goes through the stream
            return slow(memory)
        a0 = memory[0]
        a1 = memory[1]
        b0 = m0()                          # a new buffer
        k0(b0.data, b0.size, a0.data, a0.size, a1.data, a1.size)
        device.launched += 1
        memory.append(b0)

The first call goes the slow way: by its arguments the kernels' variants are chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

from ...base import Buffer
from ...chains import written
from ...run import Action, Spot
from .arguments import NUMBER, arguments

Run = Callable[[list[Any]], None]


class HostCall:
    """Something else than a kernel that enqueues work, such as a library's product: call(outs, ins, consts)."""

    runs = True

    def __init__(self, call: Callable[..., None]):
        self.call = call


def launches(stream: Any, slow: Run, fresh: Sequence[Any], steps: Sequence[Any], inputs: Sequence[bool], sized: bool = False) -> Run:
    """These steps as one function. `fresh`: (size, dtype) of each new buffer, or with `sized` its dtype: then it is as long as the first
    buffer given. `inputs` says which of those given are buffers."""
    made: list[Run] = []

    def run(memory: list[Any]) -> None:
        if made:
            made[0](memory)
            return
        slow(memory)
        if stream.device.stream is stream:
            made.append(chosen(stream, slow, fresh, steps, inputs, sized, memory))

    return run


def chosen(
    stream: Any, slow: Run, fresh: Sequence[Any], steps: Sequence[Any], inputs: Sequence[bool], sized: bool, memory: list[Any],
) -> Run:  # fmt: skip
    """The function for arguments of the kinds that `memory`, after a run, holds."""
    starts: list[Any] = []
    constants: list[Any] = []
    calls: list[tuple[Any, ...]] = []
    for s in [s for s in steps if isinstance(s, Action) or s.kernel.runs or sized]:
        if isinstance(s, Action):
            starts.append(partial(stream.device.require, s.act.check, within=s.act.within))
            calls.append(Buffers([b.number for b in s.buffers]))
            continue
        if isinstance(s.kernel, HostCall):
            starts.append(s.kernel.call)
            groups = [buffers_of(group, constants) for group in s[1:3]]
            calls.append((*groups, (None, len(constants))))
            constants.append(tuple(s.consts))
            continue
        given = [a for group in s[1:] for a in group]
        kinds, _ = arguments([memory[a.number] if type(a) is Spot else a for a in given], s.kernel.kernel.raw)
        starts.append(for_sizes(stream.device, s.kernel, kinds) if sized else s.kernel.starter(kinds))
        places: list[Any] = []
        for a in given:
            if type(a) is Spot and isinstance(memory[a.number], Buffer):
                places.append(a.number)
            elif type(a) is Spot:
                places.append((a.number, len(constants)))
                constants.append(NUMBER[arguments([memory[a.number]], False)[0][0]])
            else:
                _, values = arguments([a], False)
                places += [(None, len(constants) + i) for i in range(len(values))]
                constants += values
        calls.append(tuple(places))
    makers = stream.device.allocator.maker
    made = template(tuple(inputs), len(fresh), tuple(calls), len(constants), sized)
    new = fresh if sized else [makers(stream.device, *f) for f in fresh]
    return made(stream, slow, makers, *new, *starts, *constants)  # type: ignore[no-any-return]


class Buffers(tuple[Any, ...]):
    """The places of a host call's outs or ins, which it gets as one tuple. In the place of a call: of what is required."""


def buffers_of(group: Sequence[Any], constants: list[Any]) -> Buffers:
    places: list[Any] = []
    for a in group:
        places.append(a.number if type(a) is Spot else (None, len(constants)))
        if type(a) is not Spot:
            constants.append(a)
    return Buffers(places)


def for_sizes(device: Any, kernel: Any, kinds: tuple[Any, ...]) -> Callable[[int], Callable[..., None]]:
    """What finds the kernel's starter for a number of elements."""
    known: dict[int, Any] = {}

    def starter(size: int) -> Callable[..., None]:
        found = known.get(size)
        if found is None:
            if len(known) > 4096:  # sizes may change for ever
                known.clear()
            suited = device.suited(kernel, size)
            found = known[size] = suited.starter(kinds) if suited.runs else lambda *parameters: None
        return found  # type: ignore[no-any-return]

    return starter


@lru_cache(4096)
def template(inputs: tuple[bool, ...], fresh: int, calls: tuple[tuple[Any, ...], ...], constants: int, sized: bool) -> Any:
    """What makes the functions of one kind. `calls`: for each kernel its parameters: the number of a buffer, (number of an input that is
    a number, which constant turns it into a parameter) or (None, which constant it is). Of a host call: outs, ins, its constants."""
    given = len(inputs)
    flat = [p for call in calls for each in call for p in (each if type(each) is Buffers else (each,))]
    lines = [f"a{i} = memory[{i}]" for i in sorted({p for p in flat if isinstance(p, int) and p < given})]
    if sized:
        lines.append(f"size = memory[{inputs.index(True)}].size")
    lines += [f"a{given + i} = makers(device, size, m{i})()" if sized else f"a{given + i} = m{i}()" for i in range(fresh)]
    for n, call in enumerate(calls):
        parameters = []
        for p in call:
            if type(call) is Buffers:
                parameters.append(f"a{p}")
            elif isinstance(p, int):
                parameters += [f"a{p}.data", f"a{p}.size"]
            elif type(p) is Buffers:
                parameters.append(f"({''.join([f'a{q}, ' if isinstance(q, int) else f'c{q[1]}, ' for q in p])})")
            else:
                parameters.append(f"c{p[1]}" if p[0] is None else f"c{p[1]}(memory[{p[0]}])")
        lines.append(f"k{n}{'(size)' if sized else ''}({', '.join(parameters)})")
    lines.append(f"device.launched += {len([call for call in calls if type(call) is not Buffers])}")
    lines += [f"memory.append(a{given + i})" for i in range(fresh)]
    values = [f"m{i}" for i in range(fresh)] + [f"k{i}" for i in range(len(calls))] + [f"c{i}" for i in range(constants)]
    return written(lines, ["makers", *values])
