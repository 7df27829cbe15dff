"""The stream of a GPU: each launch is enqueued at once; a recorded step is one CUDA graph.

A graph's launches are those of the step, with its own memory, so a run costs the host one call. What its checks look at is copied, a few
bytes each, so that the next run need not wait for the host; a step with another check, one that changes what the host knows, does wait.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import precision
from ...base import Buffer, Chain, Stream
from ...run import Action, Required, Run, Spot, Step
from . import chain
from .arguments import arguments
from .chain import HostCall

if TYPE_CHECKING:
    from ..device import CudaDevice, CudaKernel


class Launch:
    """A kernel on so many blocks: what a stream runs."""

    __slots__ = ("grid", "kernel", "per_block", "runs", "starters", "threads")

    def __init__(self, kernel: CudaKernel, grid: int | tuple[int, ...], per_block: int | Callable[[int], int]):
        self.kernel, self.per_block, self.threads = kernel, per_block, kernel.function.threads
        self.grid = (grid, 1, 1) if isinstance(grid, int) else (*grid, 1, 1)[:3]
        self.runs = all(self.grid)  # no blocks: there is nothing to do
        self.starters: dict[tuple[Any, ...], Callable[..., None]] = {}

    def starter(self, kinds: tuple[Any, ...]) -> Callable[..., None]:
        """What enqueues it, called with its parameters: arguments() says what they are."""
        found = self.starters.get(kinds)
        if found is None:
            found = self.starters[kinds] = self.kernel.device.driver.starter(self.kernel.variant(kinds), self.grid, self.threads)
        return found

    def __repr__(self) -> str:
        return f"{self.kernel} on {self.grid} blocks of {self.threads}"


class CudaStream(Stream):
    """Enqueues each launch at once."""

    device: CudaDevice

    def empty(self, size: int, dtype: np.dtype) -> Buffer:
        return self.device.allocator.maker(self.device, size, np.dtype(dtype))()

    def upload(self, array: np.ndarray) -> Buffer:
        buffer = self.empty(array.size, array.dtype)
        if array.size:
            self.device.driver.upload(buffer.data, np.ascontiguousarray(array))
        return buffer

    def download(self, buffer: Buffer) -> np.ndarray:
        device = self.device
        read = device.late.known(buffer)  # for the check that is being made
        if read is None:
            read = device.reading(buffer)
            device.synchronize()
        found: np.ndarray = read()
        found.flags.writeable = False
        return found

    def run(self, kernel: Any, outs: Sequence[Buffer | None], ins: Sequence[Any], consts: Sequence[Any]) -> None:
        if (call := called(kernel, outs, ins, consts)) is not None:
            call()
            self.device.launched += 1

    def prepare(self, fresh: Sequence[tuple[int, np.dtype]], steps: Sequence[Any], inputs: Sequence[bool], wanted: Any = None) -> Chain:
        slow = super().prepare(fresh, steps, inputs)
        return chain.launches(self, slow, fresh, steps, inputs) if all(map(is_plain, steps)) else slow

    def prepare_any_size(self, fresh: Sequence[np.dtype], steps: Sequence[Step], inputs: Sequence[bool]) -> Chain:
        return chain.launches(self, super().prepare_any_size(fresh, steps, inputs), fresh, steps, inputs, sized=True)

    def copy(self, out: Buffer, x: Buffer) -> None:
        if x.device is out.device and x.dtype == out.dtype:
            if out.size:
                self.device.driver.copy(out.data, x.data, out.size * out.dtype.itemsize)
        else:
            super().copy(out, x)

    def program(self, steps: Sequence[Step | Action]) -> Run:
        return Graph(self, steps)

    def before(self, values: Callable[[], Sequence[Any] | None], buffer: Buffer | None = None) -> None:
        self.device.remember(values)
        super().before(values, buffer)

    def after(self, check: Callable[..., None], *buffers: Buffer) -> None:
        self.device.late.add(check, buffers)


def called(kernel: Any, outs: Sequence[Buffer | None], ins: Sequence[Any], consts: Sequence[Any]) -> Callable[[], None] | None:
    """What enqueues a launch, its kernel loaded; None for one without blocks."""
    if type(kernel) is HostCall:
        return partial(kernel.call, outs, ins, consts)
    if not kernel.runs:
        return None
    kinds, values = arguments((*outs, *ins, *consts), kernel.kernel.raw)
    return partial(kernel.starter(kinds), *values)


def is_plain(s: Any) -> bool:
    """Whether a planned call's step can be a line of code (chain.py): whole buffers, and no numbers that change for a library."""
    if isinstance(s, Action):
        return isinstance(s.act, Required) and all([type(b) is Spot and b.size < 0 for b in s.buffers])
    if any([type(a) is Spot and a.size >= 0 for group in s[1:] for a in group]):
        return False
    return type(s.kernel) is Launch or not any([type(a) is Spot for a in s.consts])


class Graph(Run):
    """A recorded step: its launches as one CUDA graph, made at the first run; then the checks."""

    def __init__(self, stream: CudaStream, steps: Sequence[Step | Action]):
        super().__init__([])
        self.stream, self.steps, self.launches = stream, steps, 0
        self.graph: Any = None
        self.precision = ""  # of float32 products, which a graph cannot change
        self.checks = [(n, s) for n, s in enumerate(steps, 1) if isinstance(s, Action)]
        self.waits = not all([type(s.act) is Required for _, s in self.checks])

    def __call__(self, undo: Callable[[Any, int], Any] | None = None, states: Any = None) -> None:
        device = self.stream.device
        if self.precision != (wanted := precision.level()):
            calls = [call for s in self.steps if isinstance(s, Step) and (call := called(*s)) is not None]  # a graph may load no kernel
            self.graph, self.precision, self.launches = device.driver.capture(lambda: [call() for call in calls]), wanted, len(calls)
        device.driver.enter()
        self.graph()
        device.launched += self.launches
        for n, s in self.checks:
            buffers = s.buffers if self.waits else [self.stream.copied(b) for b in s.buffers]
            device.late.add(s.act, buffers, undo and partial(undo, states, n))
        self.begun.value = len(self.steps)
