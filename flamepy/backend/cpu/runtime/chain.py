"""Planned calls on the CPU: a chain of launches as one function, which makes its buffers and calls its kernels, and nothing else.

These lines run for every op of an eager program, so they are written out for each kind of chain, once. A sum of two buffers is

    def run(memory):                       # the buffers and numbers given
        if device.stream is not direct:    # somebody records: then each launch goes through the stream
            return slow(memory)
        a0 = memory[0].data
        a1 = memory[1].data
        b0 = m0()                          # a new buffer
        d0 = b0.data
        e0 = e0 or k0.code(d0, a0, a1)     # the kernel's machine code: arguments have the same types at each call
        e0(1, (d0, a0, a1))                # on one thread
        memory += (b0,)

What no result or saved value is in is a block of memory without a buffer, taken from its pool and put back.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ...base import Buffer, Chain, Stream
from ...chains import written
from ...run import Action, Spot
from .memory import Pool
from .settings import threads


def launches(direct: Stream, slow: Chain, makers: Sequence[Any], steps: Sequence[Any], inputs: Sequence[bool]) -> Chain:
    """These steps as one function. `makers` make the new buffers, a Pool blocks without one; `inputs` says which given are buffers."""
    places, constants = placed(steps, len(inputs) + len(makers))
    calls = tuple(
        [("check" if isinstance(s, Action) else getattr(s.kernel, "wide", None), at) for s, at in zip(steps, places, strict=True)]
    )
    made = template(tuple(inputs), tuple([type(m) is Pool for m in makers]), calls, len(constants), False)
    whats = [s.act.check if isinstance(s, Action) else s.kernel for s in steps]
    return made(direct, slow, threads, *makers, *whats, *constants)  # type: ignore[no-any-return]


def any_size(direct: Stream, slow: Chain, fresh: Sequence[np.dtype], steps: Sequence[Any], inputs: Sequence[bool]) -> Chain:
    """launches() for new buffers of these types that are as long as the first one given."""
    places, constants = placed(steps, len(inputs) + len(fresh))
    made = template(tuple(inputs), (False,) * len(fresh), tuple([(False, at) for at in places]), len(constants), True)
    return made(direct, slow, threads, *fresh, *[s.kernel.ways for s in steps], *constants)  # type: ignore[no-any-return]


def known(a: Any) -> Any:
    """A constant of a type that Numba knows: to find out what x.size is, which is an int and can be called, takes it 30 us a launch."""
    return int(a) if isinstance(a, int) and type(a) is not bool else a


def placed(steps: Sequence[Any], count: int) -> tuple[list[tuple[int, ...]], list[Any]]:
    """(for each step the numbers of its arguments: below `count` those of spots, from there on of constants; the constants)."""
    constants: list[Any] = []
    places = []
    for s in steps:
        numbers = []
        for a in (*s.buffers, *s.act.within[0]) if isinstance(s, Action) else [a for group in s[1:] for a in group]:
            if type(a) is not Spot:
                constants.append(a.data if isinstance(a, Buffer) else known(a))
            numbers.append(a.number if type(a) is Spot else count + len(constants) - 1)
        places.append(tuple(numbers))
    return places, constants


@lru_cache(4096)
def template(
    inputs: tuple[bool, ...], fresh: tuple[bool, ...], calls: tuple[tuple[bool | str | None, tuple[int, ...]], ...], constants: int,
    sized: bool,
) -> Any:  # fmt: skip
    """What makes the functions of one kind. `calls`: for each kernel whether it runs on all threads (None: it is a function of
    Python's that takes arrays; "check": it is called if the first number of a new buffer lies outside), and the numbers of its arguments.
    `fresh`: for each new buffer whether it is a block without one. `sized`: the first buffer given says how long new ones are and which
    kernels run."""
    given = len(inputs)
    names = [f"a{i}" for i in range(given)] + [f"d{i}" for i in range(len(fresh))] + [f"c{i}" for i in range(constants)]
    used = sorted({i for _, places in calls for i in places if i < given})
    lines = [f"a{i} = memory[{i}]" + (".data" if inputs[i] else "") for i in used]
    if sized:
        lines.append(f"size = memory[{inputs.index(True)}].size")
    for i, passing in enumerate(fresh):
        if passing:
            lines += ["try:", f"    d{i} = m{i}.pop()", "except IndexError:", f"    d{i} = m{i}.allocator.make(m{i})"]
        else:
            lines += [f"b{i} = direct.empty(size, m{i})" if sized else f"b{i} = m{i}()", f"d{i} = b{i}.data"]
    start = len(lines)
    for i, (wide, places) in enumerate(calls):
        if wide == "check":
            first, low, high = [names[place] for place in places]
            looked = f"m{first[1:]}.shown({first})" if fresh[int(first[1:])] else f"b{first[1:]}"
            lines += [f"if not {low} <= {first}.item(0) <= {high}:", f"    k{i}({looked})"]
            continue
        arguments, workers = "".join([f"{names[place]}, " for place in places]), "threads()" if wide else "1"
        if sized:
            lines.append(f"narrow, wide, grain = k{i}")
            workers = "1 if size < grain else threads()"
        if wide is None:
            lines.append(f"k{i}({arguments})")
            continue
        lines += [f"e{i} = e{i} or {'narrow' if sized else f'k{i}'}.code({arguments})", f"e{i}({workers}, ({arguments}))"]
    if True in fresh:
        back = [f"    m{i}.append(d{i})" for i, passing in enumerate(fresh) if passing]
        lines[start:] = ["try:", *([f"    {line}" for line in lines[start:]] or ["    pass"]), "finally:", *back]
    lines.append(f"memory += ({''.join(['None, ' if passing else f'b{i}, ' for i, passing in enumerate(fresh)])})")
    values = [f"m{i}" for i in range(len(fresh))] + [f"k{i}" for i in range(len(calls))] + [f"c{i}" for i in range(constants)]
    return written(lines, ["threads", *values], [f"e{i}" for i in range(len(calls))])
