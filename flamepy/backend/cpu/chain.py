"""Planned calls on the CPU: a chain of launches as one function, which makes its buffers and calls its kernels, and nothing else.

While some thread records, the stream of the device is another: then each launch goes through that, the slow way. These few lines run
for every op of an eager program; hence the two special cases. Read next: ../base.py (Stream.prepare).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from ..base import Buffer, Spot, Stream
from .threads import threads

Run = Callable[[list[Any]], None]


def no_launch(slow: Run, makers: Sequence[Callable[[], Buffer]]) -> Run:
    """A view: nothing to do."""
    return slow if makers else lambda memory: None


def one_launch(direct: Stream, slow: Run, make: Callable[[], Buffer], kernel: Any, consts: Sequence[Any], inputs: int) -> Run:
    """One kernel that makes one buffer of one or two others, and constants."""
    device, wide = direct.device, kernel.wide

    def unary(memory: list[Any]) -> None:
        if device.stream is not direct:
            return slow(memory)
        y = make()
        kernel.call(threads() if wide else 1, y.data, memory[0].data, *consts)
        memory.append(y)

    def binary(memory: list[Any]) -> None:
        if device.stream is not direct:
            return slow(memory)
        a, b = memory
        y = make()
        kernel.call(threads() if wide else 1, y.data, a.data, b.data, *consts)
        memory.append(y)

    return unary if inputs == 1 else binary


def any_size(direct: Stream, slow: Run, fresh: Sequence[Any], steps: Sequence[Any], inputs: Sequence[bool]) -> Run:
    """launches() whose buffers are as long as the first one given."""
    device, buffers, first = direct.device, [i for i, is_buffer in enumerate(inputs) if is_buffer], inputs.index(True)
    constants, picks = picked(steps, len(inputs) + len(fresh))
    calls = [(*s.kernel.ways, pick) for s, pick in zip(steps, picks, strict=True)]

    def run(memory: list[Any]) -> None:
        if device.stream is not direct:
            return slow(memory)
        size, arrays = memory[first].size, memory[:]
        for i in buffers:
            arrays[i] = memory[i].data
        for dtype in fresh:
            b = direct.empty(size, dtype)
            memory.append(b)
            arrays.append(b.data)
        arrays += constants
        for narrow, wide, grain, pick in calls:
            if size < grain:
                narrow.call(1, *pick(arrays))
            else:
                wide.call(threads(), *pick(arrays))

    return run


def picked(steps: Sequence[Any], count: int) -> tuple[list[Any], list[Any]]:
    """(the constants of all steps; for each step what picks its arguments from a list of `count` numbered ones, then these)."""
    constants = [a for s in steps for group in s[1:] for a in group if type(a) is not Spot]
    rest = iter(range(count, count + len(constants)))
    picks: list[Any] = []
    for s in steps:
        places = [a.number if type(a) is Spot else next(rest) for group in s[1:] for a in group]
        picks.append(itemgetter(*places) if len(places) > 1 else lambda m, i=places[0]: (m[i],))
    return constants, picks


def launches(direct: Stream, slow: Run, makers: Sequence[Callable[[], Buffer]], steps: Sequence[Any], inputs: Sequence[bool]) -> Run:
    """Any number of kernels, buffers and inputs. Each kernel picks its arguments from one list: inputs, made buffers, constants."""
    device, buffers = direct.device, [i for i, is_buffer in enumerate(inputs) if is_buffer]
    constants, picks = picked(steps, len(inputs) + len(makers))
    calls = [(s.kernel, s.kernel.wide, pick) for s, pick in zip(steps, picks, strict=True)]

    def run(memory: list[Any]) -> None:
        if device.stream is not direct:
            return slow(memory)
        arrays = memory[:]
        for i in buffers:
            arrays[i] = memory[i].data
        for make in makers:
            b = make()
            memory.append(b)
            arrays.append(b.data)
        arrays += constants
        for kernel, wide, pick in calls:
            kernel.call(threads() if wide else 1, *pick(arrays))

    return run
