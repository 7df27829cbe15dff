"""The driver on a GPU: memory, copies, launches and graphs through NVIDIA's cuda-bindings and cuda-core.

One stream of our own, which does not wait for the legacy one. Uploads go through page-locked memory that is used in turn, so they do not
wait either; numbers for the host come through such memory, many for one wait. Machine code is loaded, never PTX: a driver older than the
compiler takes it.
"""

from __future__ import annotations

import ctypes
import math
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from ....core.errors import DeviceError
from ..attention import cudnn
from ..products import blas
from . import build, fire
from .compat import cuda  # noqa: F401  (raises where numba-cuda is missing)
from .pages import Pages, page_of

RING = 1 << 20  # bytes of page-locked memory, each way
NUMBERS = 1 << 12  # bytes that come to the host through it, at most
STAGED = 1 << 26  # bytes that go to the GPU through pages, at most
LAUNCHES = 11000  # CUDA's release since which cuLaunchKernel is as it is called here, and older
CUDA = 2  # what DLPack calls a GPU
REMEDY = "FLAMEPY_CUDA=emulator runs without a GPU."
THREAD = threading.local()  # `driver`: to whose GPU this thread speaks


def checked(result: Sequence[Any], what: str) -> Any:
    """What a call of cuda-bindings gives, without its error code. Raises DeviceError for one."""
    code, *rest = result
    if int(code) != 0:
        raise DeviceError(f"cuda: {what} failed: {code.name}. {REMEDY}")
    return rest[0] if len(rest) == 1 else rest


def told(call: Callable[..., Any], *given: Any) -> None:
    """A call of cuda-core. Raises DeviceError for its errors."""
    try:
        call(*given)
    except Exception as error:
        raise DeviceError(f"cuda: a launch failed: {' '.join(str(error).split())}. Forked processes have none: spawn. {REMEDY}") from error


class Driver:
    """One GPU."""

    watches = False  # nobody asks which bytes are in use
    wgmma = False  # whether own products are made by it on sm_90: no GPU has run it yet

    def __init__(self, index: int):
        from cuda.bindings import driver
        from cuda.core import Device, LaunchConfig, launch

        self.cu, self.start, self.config = driver, launch, LaunchConfig
        self.gpu = Device(index)
        self.gpu.set_current()
        self.cc = tuple(self.gpu.compute_capability)
        self.stream = self.gpu.create_stream()
        self.handle = int(self.stream.handle)
        self.name, self.capturing = str(self.gpu.name), False
        self.lock = threading.RLock()  # copies of other threads wait for who captures a graph: they would be part of it
        self.rings()

    def enter(self) -> None:
        """Let this thread speak to this GPU: CUDA asks for it in each thread, and again after another GPU."""
        if THREAD.__dict__.get("driver") is not self:
            told(self.gpu.set_current)
            THREAD.driver = self

    # ---- memory ----
    def rings(self) -> None:
        """Ask for page-locked memory: for what goes to the GPU, for what comes back, and batches."""
        self.ring, self.results = (int(checked(self.cu.cuMemHostAlloc(RING, 0), "page-locked memory")) for _ in range(2))
        self.found = np.asarray((ctypes.c_uint8 * RING).from_address(self.results))
        self.at = self.next = 0  # in the one and the other
        self.pages = Pages(self)

    def allocate(self, nbytes: int, last: bool = False) -> int | None:
        self.enter()
        code, address = self.cu.cuMemAlloc(nbytes)
        if int(code) == 0:
            return int(address)
        if code.name != "CUDA_ERROR_OUT_OF_MEMORY":
            checked((code,), "asking for memory")
        if last:
            free, total = checked(self.cu.cuMemGetInfo(), "memory")
            raise DeviceError(f"cuda: out of memory: {nbytes:,} bytes asked, {free:,} of {total:,} free. Use smaller batches, or bfloat16.")
        return None

    def free(self, address: int) -> None:
        checked(self.cu.cuMemFree(address), "free")

    def upload(self, address: int, array: np.ndarray) -> None:
        """From host to device; the array may change as soon as this returns."""
        self.enter()
        nbytes, page = array.nbytes, page_of(array)
        if page is None and RING // 4 < nbytes <= STAGED:
            array = self.pages.copy(array)
            page = page_of(array)
        with self.lock:
            start = array.ctypes.data
            if page is None and nbytes <= STAGED:
                room = -(-nbytes // 64) * 64
                if self.at + room > RING:
                    self.synchronize()  # everything in the ring has been copied
                    self.at = 0
                start, self.at = self.ring + self.at, self.at + room
                ctypes.memmove(start, array.ctypes.data, nbytes)
            # Not cuMemcpyHtoD, which may return before the numbers are there and does not hold back launches on this stream.
            checked(self.cu.cuMemcpyHtoDAsync(address, start, nbytes, self.handle), "upload")
            if page is not None:
                page.read_by(self)
        if page is None and nbytes > STAGED:
            self.synchronize()

    def reading(self, address: int, size: int, dtype: np.dtype) -> Callable[[], np.ndarray]:
        """Begin to copy so many numbers to the host: what it returns gives them once synchronize() has been called."""
        nbytes = size * dtype.itemsize
        if nbytes > NUMBERS:
            return lambda: self.download(np.empty(size, dtype), address)
        self.enter()
        with self.lock:
            at = self.next if self.next + nbytes <= RING else 0
            self.next = at + -(-nbytes // 64) * 64
            checked(self.cu.cuMemcpyDtoHAsync(self.results + at, address, nbytes, self.handle), "download")
        return lambda: self.found[at : at + nbytes].view(dtype).copy()

    def download(self, array: np.ndarray, address: int) -> np.ndarray:
        """Fill an array with what every launch before synchronize() left there."""
        checked(self.cu.cuMemcpyDtoH(array.ctypes.data, address, array.nbytes), "download")
        return array

    def locked(self, nbytes: int, last: bool = False) -> int | None:
        """Page-locked memory of the host, for all GPUs."""
        self.enter()
        code, address = self.cu.cuMemHostAlloc(nbytes, self.cu.CU_MEMHOSTALLOC_PORTABLE)
        if int(code) == 0:
            return int(address)
        if last or code.name != "CUDA_ERROR_OUT_OF_MEMORY":
            checked((code,), f"asking for {nbytes:,} bytes of page-locked memory")
        return None

    def unlocked(self, address: int) -> None:
        checked(self.cu.cuMemFreeHost(address), "free")

    def mark(self, event: Any = None) -> Any:
        """What passed() and wait_for() ask about: everything enqueued so far. `event`: an older one, used again."""
        event = event or checked(self.cu.cuEventCreate(self.cu.CUevent_flags.CU_EVENT_DISABLE_TIMING), "an event")
        checked(self.cu.cuEventRecord(event, self.handle), "an event")
        return event

    def passed(self, event: Any) -> bool:
        code = self.cu.cuEventQuery(event)[0]
        return code.name != "CUDA_ERROR_NOT_READY" and checked((code,), "a launch before this") is not False

    def wait_for(self, event: Any) -> None:
        checked(self.cu.cuEventSynchronize(event), "a launch before this")

    def copy(self, to: int, address: int, nbytes: int) -> None:
        self.enter()
        checked(self.cu.cuMemcpyDtoDAsync(to, address, nbytes, self.handle), "copy")

    def synchronize(self) -> None:
        self.enter()
        with self.lock:  # who captures has ended
            pass
        checked(self.cu.cuStreamSynchronize(self.handle), "a launch before this")

    # ---- launches ----
    def load(self, binary: build.Binary) -> Any:
        """(kernel, bytes of shared memory that a launch gives a block)."""
        from cuda.core import ObjectCode

        function, given = ObjectCode.from_cubin(binary.cubin()[0]).get_kernel(build.ENTRY), binary.given
        if given:  # more than a block has unless it is asked for
            most = self.cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            code = self.cu.cuKernelSetAttribute(most, given, function.handle, self.gpu.device_id)
            checked(code, f"asking for {given:,} bytes of shared memory for {binary.name}")
        return function, given

    def starter(self, loaded: tuple[Any, int], grid: tuple[int, ...], threads: int) -> Callable[..., None]:
        """What launches a kernel that load() gave on so many blocks, called with its parameters."""
        function, given = loaded
        start, stream, config, enter = self.start, self.stream, self.config(grid=grid, block=threads, shmem_size=given), self.enter

        def enqueue(*values: Any) -> None:
            enter()
            told(start, stream, config, function, *values)

        return fire.starter(self.launching, int(function.handle), grid, threads, given, self.handle, enqueue)

    @cached_property
    def launching(self) -> int:
        """Where cuLaunchKernel is."""
        flags = self.cu.CUdriverProcAddress_flags.CU_GET_PROC_ADDRESS_DEFAULT
        return int(checked(self.cu.cuGetProcAddress(b"cuLaunchKernel", LAUNCHES, flags), "cuLaunchKernel")[0])

    def capture(self, enqueue: Callable[[], None]) -> Callable[[], None]:
        """What enqueue() enqueues, as one graph that is launched by a call. Nothing may be loaded or allocated meanwhile."""
        self.enter()
        cu = self.cu
        with self.lock:
            checked(cu.cuStreamBeginCapture(self.handle, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "capture")
            self.capturing = True
            try:
                enqueue()
            finally:
                self.capturing, ended = False, cu.cuStreamEndCapture(self.handle)
        graph = checked(ended, "capture")
        made = checked(cu.cuGraphInstantiate(graph, 0), "a graph")
        checked(cu.cuGraphDestroy(graph), "a graph")
        launch = lambda: checked(cu.cuGraphLaunch(made, self.handle), "a graph's launch")
        weakref.finalize(launch, cu.cuGraphExecDestroy, made).atexit = False
        return launch

    @cached_property
    def blas(self) -> blas.Blas | None:
        """NVIDIA's library of products, if it is there."""
        return blas.opened(self)

    @cached_property
    def cudnn(self) -> cudnn.Library | None:
        """NVIDIA's library of networks, if it is there."""
        return cudnn.opened(self)

    def timed(self, enqueue: Callable[[], Any]) -> float:
        """Milliseconds that the GPU takes for what enqueue() enqueues: the least of three runs."""
        marks = [checked(self.cu.cuEventCreate(0), "an event") for _ in range(4)]
        for mark in marks:
            checked(self.cu.cuEventRecord(mark, self.handle), "an event")
            enqueue()
        self.synchronize()
        found = min([checked(self.cu.cuEventElapsedTime(a, b), "an event") for a, b in pairwise(marks)])
        for mark in marks:
            checked(self.cu.cuEventDestroy(mark), "an event")
        return float(found)

    def findings(self) -> Iterator[tuple[str, str, str]]:
        version = checked(self.cu.cuDriverGetVersion(), "version")
        yield "cuda", f"{self.gpu.name}, compute capability {'.'.join(map(str, self.cc))}, driver for CUDA {version // 1000}", ""
        yield blas.finding(self.blas)
        yield cudnn.finding(self.cudnn)

    def dlpack(self, buffer: Any, shape: Sequence[int]) -> Any:
        from cuda.core import Buffer
        from cuda.core.utils import StridedMemoryView

        memory = Buffer.from_handle(buffer.data, buffer.size * buffer.dtype.itemsize, owner=buffer)
        return StridedMemoryView.from_buffer(memory, shape=tuple(shape), dtype=buffer.dtype)

    def lent(self, address: int) -> int:
        """The address for another library."""
        return address

    def addressed(self, data: Any) -> tuple[int, tuple[int, ...], np.dtype] | None:
        """(address, shape, dtype) of another library's contiguous array in this GPU's memory; None for anything else."""
        from cuda.core.utils import StridedMemoryView

        if not hasattr(data, "__cuda_array_interface__") and getattr(data, "__dlpack_device__", lambda: (1, 0))()[0] != CUDA:
            return None
        view = StridedMemoryView.from_any_interface(data, stream_ptr=self.handle)
        steps = [math.prod(view.shape[i + 1 :]) for i in range(len(view.shape))]  # of a contiguous array
        if view.strides is not None and any([n > 1 and s != step for n, s, step in zip(view.shape, view.strides, steps, strict=True)]):
            raise DeviceError(f"tensor: not contiguous: strides {view.strides} of shape {view.shape}. Make it contiguous first.")
        return view.ptr, tuple(view.shape), np.dtype(view.dtype)


def open(index: int) -> Driver:
    """The GPU of this index. Raises DeviceError where there is none, or no library to speak to it."""
    try:
        from cuda.bindings import driver
    except ImportError:
        raise DeviceError("cuda: a package is not installed: cuda-bindings. Use pip install 'flamepy[cuda]'.") from None
    try:
        started = driver.cuInit(0)
    except RuntimeError:  # libcuda.so.1 cannot be loaded
        raise DeviceError(f"device: no NVIDIA driver for 'cuda': libcuda.so.1 cannot be loaded. Use 'cpu'; {REMEDY}") from None
    checked(started, "starting the driver")
    count = checked(driver.cuDeviceGetCount(), "counting GPUs")
    if index >= count:
        raise DeviceError(f"device: no such GPU: 'cuda:{index}'; there are {count}. Use a smaller index.")
    check_version(checked(driver.cuDriverGetVersion(), "version") // 1000, build.installed("nvidia-nvjitlink"))
    found = Driver(index)
    if found.cc < (8, 0):
        raise DeviceError(f"cuda: the GPU is too old: {found.name}, capability {found.cc}: kernels need (8, 0). Use 'cpu'; {REMEDY}")
    return found


def check_version(driver: int, linker: str) -> None:
    """Raise DeviceError for a driver older than CUDA's release that machine code is made by: it does not load that."""
    made = linker.partition(".")[0]
    if made.isdecimal() and driver < int(made):
        raise DeviceError(f"cuda: the NVIDIA driver is too old: for CUDA {driver}, kernels for CUDA {made}. Update the driver. {REMEDY}")
