"""The driver without a GPU: memory is the emulator's, a launch runs the kernel's PTX for every thread before it returns.

Nothing is cached between buffers: each has its own bytes, so that a kernel that leaves its operands is found out, and what was never
written cannot be read, by the host neither: that holds for each access of each launch. A copy from page-locked memory is done as late as a
GPU might do it, before the next launch: what overwrites that memory meanwhile is found out. Races, which take longer to look for, are
looked for in the first launch of a kernel with a size, and in each 32nd like it. A captured graph is the list of its launches and copies.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from ....emulator import Machine, Memory
from ....emulator.layout import DEVICE_BASE
from ....errors import DeviceError, EmulationError
from . import build
from .pages import Pages, page_of

CC = (9, 0)  # an H100's
MOST = {(8, 0): 163 << 10, (9, 0): 227 << 10, (10, 0): 227 << 10}  # bytes of shared memory that a block may ask for
LEAST = 99 << 10  # of other GPUs
AGAIN, KINDS = 32, 4096  # of so many launches that are alike one is watched for races; so many kinds are known at a time


class Driver:
    """An emulated GPU. `order`: in which order warps run (emulator/machine.py); `counts`: a list that gets the counts of each launch."""

    watches = True  # each buffer has an allocation of its own
    cc = CC
    wgmma = False  # as on a GPU
    name, handle, capturing = "emulated", 0, False
    blas: Any = None  # no library of products
    cudnn: Any = None
    enter = staticmethod(lambda: None)  # any thread may speak to it

    def __init__(self) -> None:
        self.memory = Memory()
        self.machine = Machine(self.memory, build.cache_folder())
        self.order = "all"
        self.times: dict[Any, int] = {}  # how often a launch like this one came
        self.counts: list[tuple[str, Any]] | None = None
        self.recorded: list[Callable[[], None]] | None = None  # of the graph that is being captured
        self.pages = Pages(self)
        self.begun: list[Callable[[], None]] = []  # copies from pages
        self.ended = 0  # how many of them there were
        self.host: dict[int, np.ndarray] = {}  # page-locked memory

    def uncaptured(self, what: str) -> None:
        """Raise DeviceError for what a GPU forbids while a graph is captured."""
        if self.recorded is not None:
            raise DeviceError(f"graph: {what} while a graph is captured. Do it before the step.")

    # ---- memory ----
    def allocate(self, nbytes: int, last: bool = False) -> int:
        self.uncaptured("memory asked for")
        return self.memory.allocate(nbytes)

    def free(self, address: int) -> None:
        self.settle()
        self.memory.free(address)

    def upload(self, address: int, array: np.ndarray) -> None:
        self.uncaptured("an upload")
        self.settle()
        page, start, nbytes = page_of(array), array.ctypes.data, array.nbytes
        if page is None:
            self.memory.write(address, array.reshape(-1).view(np.uint8))
        else:  # whatever lies there by then
            self.begun.append(lambda: self.memory.write(address, np.array((ctypes.c_uint8 * nbytes).from_address(start))))
            page.read_by(self)

    def reading(self, address: int, size: int, dtype: np.dtype) -> Callable[[], np.ndarray]:
        return lambda: self.download(np.empty(size, dtype), address)

    def download(self, array: np.ndarray, address: int) -> np.ndarray:
        if not self.memory.is_written(address, array.nbytes):
            raise EmulationError(
                f"download: memory that nobody has written: {array.nbytes} bytes at {address:#x}. Look at what should have."
            )
        array.view(np.uint8)[...] = self.memory.read(address, array.nbytes)
        return array

    def locked(self, nbytes: int, last: bool = False) -> int:
        memory = np.empty(nbytes, np.uint8)
        self.host[memory.ctypes.data] = memory
        return memory.ctypes.data

    def unlocked(self, address: int) -> None:
        del self.host[address]

    def mark(self, event: Any = None) -> int:
        return self.ended + len(self.begun)

    def passed(self, event: int) -> bool:
        return self.ended >= event

    def wait_for(self, event: int) -> None:
        self.settle()

    def copy(self, to: int, address: int, nbytes: int) -> None:
        self.enqueue(lambda: self.memory.write(to, self.memory.read(address, nbytes)))

    def synchronize(self) -> None:
        """Every launch has ended when it returns."""
        self.uncaptured("waiting")
        self.settle()

    def settle(self) -> None:
        """End the copies from pages."""
        while self.begun:
            self.begun.pop(0)()
            self.ended += 1

    # ---- launches ----
    def load(self, binary: build.Binary) -> Any:
        """(kernel, bytes of shared memory that a launch gives a block), within what the GPU has."""
        self.uncaptured("a kernel loaded")
        kernel, most = self.machine.load(binary.ptx)[build.ENTRY], MOST.get(self.cc[:2], LEAST)
        kernel.name = binary.name
        if kernel.shared_bytes > build.STATIC or kernel.shared_bytes + binary.given > most:
            raise DeviceError(
                f"{binary.name}: too much shared memory: {kernel.shared_bytes:,} bytes of its own, {binary.given:,} given by the launch; "
                f"{build.arch(self.cc)} has {build.STATIC:,} and {most:,} for a block. Use smaller tiles."
            )
        return kernel, binary.given

    def starter(self, loaded: tuple[Any, int], grid: tuple[int, ...], threads: int) -> Callable[..., None]:
        """What runs a kernel that load() gave on so many blocks, called with its parameters."""
        return lambda *values: self.enqueue(partial(self.run, loaded, grid, threads, values))

    def run(self, loaded: tuple[Any, int], grid: tuple[int, ...], threads: int, values: Sequence[Any]) -> None:
        function, given = loaded
        key = function, grid, threads, self.order, alike(values)
        times = self.times.pop(key, 0)
        races, counting = times % AGAIN == 0, self.counts is not None
        counts = self.machine.launch(function, grid, threads, values, given, self.order, counting, races)
        if len(self.times) == KINDS:
            self.times.pop(next(iter(self.times)))
        self.times[key] = times + 1  # not after an error
        if self.counts is not None:
            self.counts.append((function.name, counts))

    def enqueue(self, action: Callable[[], None]) -> None:
        self.settle()
        if self.recorded is None:
            action()
        else:
            self.recorded.append(action)

    def capture(self, enqueue: Callable[[], None]) -> Callable[[], None]:
        """What enqueue() enqueues, as one call."""
        actions = self.recorded = []
        try:
            enqueue()
        finally:
            self.recorded = None

        def graph() -> None:
            for action in actions:
                action()

        return graph

    def findings(self) -> Iterator[tuple[str, str, str]]:
        yield "cuda", f"emulated (FLAMEPY_CUDA=emulator): kernels for {build.arch(CC)} run on the CPU, every access checked", ""

    def dlpack(self, buffer: Any, shape: Sequence[int]) -> Any:
        raise DeviceError("dlpack: not on this device: an emulated GPU. Copy the tensor with .to('cpu') first.")

    def lent(self, address: int) -> int:
        raise AttributeError("__cuda_array_interface__: not of this device: an emulated GPU. Use .numpy().")

    def addressed(self, data: Any) -> None:
        """No other library has memory here."""


def alike(values: Sequence[Any]) -> tuple[Any, ...]:
    """What of a kernel's parameters may change who touches what: whole numbers, and which buffers are one."""
    buffers: dict[int, int] = {}
    whole = [v for v in values if not isinstance(v, np.floating)]
    return tuple([buffers.setdefault(v, len(buffers)) if isinstance(v, int) and v >= DEVICE_BASE else v for v in whole])


def open(index: int) -> Driver:
    if index:
        raise DeviceError(f"device: there is one emulated GPU: 'cuda:{index}'. Use 'cuda'.")
    return Driver()
