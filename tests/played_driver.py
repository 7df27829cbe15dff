"""The driver of a GPU (backend/cuda/runtime/driver.py), launches in C included, over a played cuda.h: what is enqueued is done in its order
and as late as a GPU may, when somebody waits; kernels run in the emulator. What a capture forbids is refused, and so is a thread that has
not said which GPU it means."""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections import deque
from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np

from flamepy.emulator import Machine, Memory

LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3)
CODES = {0: "CUDA_SUCCESS", 201: "CUDA_ERROR_INVALID_CONTEXT", 600: "CUDA_ERROR_NOT_READY", 900: "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"}
UNSAFE = {"cuMemAlloc", "cuMemFree", "cuMemHostAlloc", "cuMemFreeHost", "cuMemcpyDtoH", "cuStreamSynchronize", "cuEventSynchronize", "load"}
ANYWHERE = {"cuEventQuery", "cuEventCreate", "cuGraphInstantiate", "cuGraphDestroy", "cuGraphExecDestroy"}  # need no GPU to be named


class Code(int):
    @property
    def name(self) -> str:
        return CODES[self]


class Cuda:
    """cuda.h, as cuda-bindings gives it."""

    CU_MEMHOSTALLOC_PORTABLE = 1
    CUevent_flags = SimpleNamespace(CU_EVENT_DISABLE_TIMING=2)
    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL=1)

    def __init__(self, folder: Any) -> None:
        self.memory = Memory()
        self.machine, self.host, self.named = Machine(self.memory, folder), dict[int, np.ndarray](), threading.local()
        self.queue, self.graph, self.who = deque[Callable[[], None]](), None, 0
        self.graphs, self.kernels = dict[int, Any](), dict[int, Any]()
        self.handles, self.begun, self.ended, self.captures, self.forbidden = itertools.count(1), 0, 0, 0, list[str]()

    def __getattribute__(self, name: str) -> Any:
        found = object.__getattribute__(self, name)
        if not name.startswith("cu") or name[2].islower():
            return found

        def call(*given: Any) -> tuple[Any, ...]:
            if name not in ANYWHERE and not self.named.__dict__.get("gpu"):
                return (Code(201),)
            if name in UNSAFE and self.who == threading.get_ident():
                self.forbidden.append(name)
                return (Code(900),)
            value = found(*given)
            return (Code(value if name == "cuEventQuery" else 0), *(() if value is None or name == "cuEventQuery" else (value,)))

        return call

    def enqueue(self, act: Callable[[], None]) -> None:
        if self.graph is not None:
            self.graph.append(act)
        else:
            self.queue.append(act)
            self.begun += 1

    def settle(self, until: int = 1 << 62) -> None:
        while self.queue and self.ended < until:
            self.queue.popleft()()
            self.ended += 1

    def cuMemAlloc(self, nbytes: int) -> int:
        return self.memory.allocate(nbytes)

    def cuMemFree(self, address: int) -> None:
        self.settle()
        self.memory.free(address)

    def cuMemHostAlloc(self, nbytes: int, flags: int) -> int:
        made = np.full(nbytes, 0xA5, np.uint8)
        self.host[made.ctypes.data] = made
        return made.ctypes.data

    def cuMemFreeHost(self, address: int) -> None:
        del self.host[address]

    def cuMemcpyHtoDAsync(self, to: int, address: int, nbytes: int, stream: int) -> None:
        there = lambda: np.array((ctypes.c_uint8 * nbytes).from_address(address))
        locked = any(start <= address < start + h.size for start, h in self.host.items())
        now = None if locked else there()  # other memory has been read when the call returns
        self.enqueue(lambda: self.memory.write(to, there() if now is None else now))

    def cuMemcpyDtoHAsync(self, to: int, address: int, nbytes: int, stream: int) -> None:
        self.enqueue(lambda: self.give(to, address, nbytes))

    def cuMemcpyDtoH(self, to: int, address: int, nbytes: int) -> None:
        assert not self.queue, "a copy that waits for no launch of the driver's stream"
        self.give(to, address, nbytes)

    def give(self, to: int, address: int, nbytes: int) -> None:
        ctypes.memmove(to, self.memory.read(address, nbytes).ctypes.data, nbytes)

    def cuMemcpyDtoDAsync(self, to: int, address: int, nbytes: int, stream: int) -> None:
        self.enqueue(lambda: self.memory.write(to, self.memory.read(address, nbytes)))

    def cuStreamSynchronize(self, stream: int) -> None:
        self.settle()

    def cuEventCreate(self, flags: int) -> Any:
        return SimpleNamespace(at=0)

    def cuEventRecord(self, event: Any, stream: int) -> None:
        event.at = self.begun

    def cuEventQuery(self, event: Any) -> int:
        return 600 * (event.at > self.ended)

    def cuEventSynchronize(self, event: Any) -> None:
        self.settle(event.at)

    def cuStreamBeginCapture(self, stream: int, mode: int) -> None:
        self.graph, self.who = [], threading.get_ident()

    def cuStreamEndCapture(self, stream: int) -> int:
        graph, self.graph, self.who = self.graph, None, 0
        self.captures += 1
        return self.kept(graph)

    def kept(self, graph: Any) -> int:
        number = next(self.handles)
        self.graphs[number] = graph
        return number

    def cuGraphInstantiate(self, graph: int, flags: int) -> int:
        return self.kept(self.graphs[graph])

    def cuGraphDestroy(self, graph: int) -> None:
        del self.graphs[graph]

    cuGraphExecDestroy = cuGraphDestroy

    def cuGraphLaunch(self, graph: int, stream: int) -> None:
        for act in self.graphs[graph]:
            self.enqueue(act)

    def launched(self, kernel: int, *given: Any) -> int:
        """cuLaunchKernel."""
        if not self.named.__dict__.get("gpu"):
            return 201
        (x, y, z, threads), shared, (_, parameters, _) = given[:4], given[6], given[7:]
        entry = self.kernels[kernel]
        places = (ctypes.c_void_p * len(entry.format)).from_address(parameters)
        values = [ctypes.string_at(place, size) for place, (_, size, _) in zip(places, entry.format, strict=True)]
        self.enqueue(lambda: self.machine.launch(entry, (x, y, z), threads, values, shared, "all", False, False))
        return 0


@cache
def played_gpu() -> Any:
    """A device whose driver is that of a GPU, cuda:7: plans know devices by their names."""
    module, build = (import_module(f"flamepy.backend.cuda.runtime.{name}") for name in ("driver", "build"))
    driver, cuda = object.__new__(module.Driver), Cuda(build.cache_folder())
    names = lambda: cuda.named.__dict__.update(gpu=True)
    driver.cu, driver.gpu, driver.stream, driver.handle = cuda, SimpleNamespace(set_current=names, name="played", device_id=0), None, 9
    driver.cc, driver.name, driver.capturing, driver.blas, driver.cudnn = (9, 0), "played", False, None, None
    driver.lock, driver.config = threading.RLock(), lambda **sizes: sizes
    launch = LAUNCH(cuda.launched)
    driver.kept, driver.launching = launch, ctypes.cast(launch, ctypes.c_void_p).value

    def load(binary: Any) -> Any:
        if cuda.who:
            cuda.forbidden.append("load")
        number = next(cuda.handles)
        cuda.kernels[number] = cuda.machine.load(binary.ptx)[build.ENTRY]
        return SimpleNamespace(handle=number), binary.given

    def start(stream: Any, sizes: Any, kernel: Any, *values: Any) -> None:
        """cuda-core's launch, for a thread that has just said which GPU it means."""
        module.fire.starter(driver.launching, kernel.handle, sizes["grid"], sizes["block"], sizes["shmem_size"], 9, lambda *_: None)(
            *values
        )

    driver.load, driver.start = load, start
    driver.enter()
    driver.rings()
    return import_module("flamepy.backend.cuda.device").CudaDevice(driver, 7)
