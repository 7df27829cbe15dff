"""What Buffer, Stream and Device (core/device.py) have more for recording, packing, late checks and the habits of other libraries.

A stream that records stands in a device's own stream's place, and nobody above can tell. A backend is a folder that implements the
three: plain/ (NumPy, to be read), cpu/ (Numba), cuda/ (Numba, for NVIDIA GPUs).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..bus import before
from ..core import device as core
from ..core.device import device as device
from ..core.device import is_device_name as is_device_name
from ..core.errors import DeviceError
from .run import Action, Required, Run, Step, resolve

Copied = tuple[Any, int, tuple[int, ...]]
Chain = Callable[[list[Any]], None]  # a planned call's launches: see prepare()
Kernel = Any  # what a stream can launch: only the streams of its device look inside


class Buffer(core.Buffer):
    """Memory of its own, or `offset` bytes into `root`. `retired` says who moved what lived here to another place: a recorded step that
    knows this memory must not be replayed."""

    device: Device
    written: str | Callable[[], str] = ""
    writes = 0
    root: Buffer | None = None
    offset = 0
    retired = ""
    owners: tuple[Callable[[], Any], ...] = ()  # weak references to the leaves that were told whether to require grad
    packed: Sequence[Any] = ()  # weak references to the parameters whose numbers were put here; layout: their ids, (start, size) of each
    layout: Any = None
    stands_for: Buffer | None = None  # while a call is planned: the buffer that was really given
    fixed = False  # whether nobody ever writes to it again: a plan may hold it

    def __init__(self, data: Any, size: int, dtype: np.dtype, device: Device, root: Buffer | None = None, offset: int = 0):
        self.data, self.size, self.dtype, self.device = data, size, dtype, device
        if root is not None:
            self.root, self.offset, self.__class__ = root, offset, Part

    version = property(attrgetter("writes"))

    @property
    def last_write(self) -> str:
        found = self.written or ("" if self.root is None else self.root.written)
        return found if isinstance(found, str) else found()

    @property
    def start(self) -> int:
        """Which element of the root is its first."""
        return self.offset // self.dtype.itemsize

    def part(self, start: int, size: int) -> Buffer:
        """Some of its elements, as a buffer that shares the memory and keeps it alive."""
        return self.device.slot(self, start * self.dtype.itemsize, size, self.dtype)

    def wrote(self, by: str | Callable[[], str]) -> None:
        """Core's; who wrote may be told by a function, where that takes a while."""
        self.writes += 1
        self.written = by
        if self.device.recorders:
            self.device.stream.wrote(self)

    def __reduce__(self) -> tuple:
        """Copied or pickled: its numbers in memory of their own, on the device of that name."""
        return uploaded, (self.device, self.device.direct.download(self))


class Part(Buffer):
    """A part of other memory: one write to the root moves all its parts."""

    root: Buffer
    version = property(lambda self: self.writes + self.root.writes)


FINITE = (-sys.float_info.max, sys.float_info.max)  # for require()


class Stream:
    """An ordered queue of launches. This one, given run() by a device, does each at once."""

    device: Device

    def empty(self, size: int, dtype: np.dtype) -> Any:
        """Memory that nobody has written to."""
        raise NotImplementedError

    def upload(self, array: np.ndarray) -> Any:
        """A new buffer with the numbers of a host array."""
        raise NotImplementedError

    def download(self, buffer: Buffer) -> np.ndarray:
        """The numbers as a read-only, flat host array."""
        raise NotImplementedError

    def item(self, buffer: Buffer) -> Any:
        """The number of a buffer that has one."""
        return self.download(buffer).item()

    def equal(self, a: Buffer, b: Buffer) -> bool:
        """Whether two buffers of one size and type hold the same few numbers, looked at by the host."""
        return 0 not in (self.download(a) == self.download(b)).tobytes()  # in half the time of all()

    def run(self, kernel: Kernel, outs: Sequence[Buffer | None], ins: Sequence[Any], consts: Sequence[Any]) -> None:
        """Launch `kernel`: outs first, then ins (buffers, numbers, None), then constants."""
        raise NotImplementedError

    def copy(self, out: Buffer, x: Buffer) -> None:
        """Overwrite `out` with the numbers of `x`, of the same size; also converts to another dtype and crosses devices."""
        if x.device is not out.device:
            x = self.upload(x.device.download(x))
        if out.size:
            self.run(self.device.copier(out, x), (out,), (x,), ())

    def copied(self, x: Buffer, dtype: np.dtype | None = None) -> Buffer:
        """What it holds now, in a new buffer, of another type if one is given."""
        copy = self.empty(x.size, x.dtype if dtype is None else dtype)
        self.copy(copy, x)
        return copy

    # ---- what the host has to do -------------------------------------------------------------------------------------------
    def before(self, values: Callable[[], Sequence[Any] | None], buffer: Buffer | None = None) -> None:
        """Fill a small buffer with what values() returns, from host state alone."""
        found = values()
        if buffer is not None:
            buffer.device.write(buffer, found)  # type: ignore[arg-type]

    def after(self, check: Callable[..., None], *buffers: Buffer) -> None:
        """Call check(*buffers) when these results are known, at the latest before a host read; it may raise."""
        check(*buffers)

    def report(self, make: Callable[[np.ndarray], Any], buffer: Buffer) -> Any:
        """What make() makes of a small buffer's numbers."""
        return make(self.download(buffer))

    def number(self, buffer: Buffer, i: int = 0) -> Any:
        return self.report(lambda numbers: numbers[i].item(), buffer)

    def filler(self, out: Buffer) -> Callable[[Buffer], None]:
        """copy() into one buffer, always from its like: of its device, size and dtype."""
        return partial(self.copy, out)

    def writer(self, out: Buffer, values: Callable[[], Sequence[Any]]) -> Callable[[], None]:
        """A function that fills one small buffer with what values() returns."""
        write = self.device.write
        return lambda: write(out, values())

    def taker(self, x: Buffer) -> Callable[[], Buffer]:
        """A function that gives what one buffer holds by then, in a new one."""
        return partial(self.copied, x)

    def reporter(self, make: Callable[[np.ndarray], Any], x: Buffer) -> Callable[[], Any]:
        """A function that gives what make() makes of one small buffer's numbers by then."""
        return lambda: make(self.download(x))

    def prepare(self, fresh: Sequence[tuple[int, np.dtype]], steps: Sequence[Any], inputs: Sequence[bool], wanted: Any = None) -> Chain:
        """A chain of launches as one function. It gets a list of its inputs (buffers; numbers or None where `inputs` says False), makes
        the fresh buffers, launches, and appends these buffers to the list, or None for one whose place in it is not `wanted`. In the
        steps Spot(n) stands for input n, or for fresh buffer n - len(inputs)."""
        device = self.device

        def run(memory: list[Any]) -> None:
            stream = device.stream
            memory += [stream.empty(*f) for f in fresh]
            for s in steps:
                if isinstance(s, Action):
                    buffers = [resolve(b, memory) for b in s.buffers]
                    if isinstance(s.act, Required):
                        device.require(s.act.check, *buffers, within=s.act.within)
                    else:
                        (stream.before if s.early else stream.after)(s.act, *buffers)
                else:
                    stream.run(s.kernel, *[[resolve(a, memory) for a in group] for group in s[1:]])

        return run

    def prepare_any_size(self, fresh: Sequence[np.dtype], steps: Sequence[Step], inputs: Sequence[bool]) -> Chain:
        """prepare() for launches that do not depend on sizes: each buffer made is as long as the first one given."""
        device, first = self.device, inputs.index(True)

        def run(memory: list[Any]) -> None:
            stream, size = device.stream, memory[first].size
            memory += [stream.empty(size, dtype) for dtype in fresh]
            for s in steps:
                stream.run(device.suited(s.kernel, size), *[[resolve(a, memory) for a in group] for group in s[1:]])

        return run

    def program(self, steps: Sequence[Step | Action]) -> Run:
        """A recorded step, with buffers in the place of spots and without actions marked `early`, as one call."""
        return Run([(s.act, tuple(s.buffers)) if isinstance(s, Action) else (self.run, tuple(s)) for s in steps])

    def wrote(self, buffer: Buffer) -> None:
        """A write into existing memory was counted: a stream that records counts it again in each replay."""

    # ---- what is otherwise where a step is recorded --------------------------------------------------------------------------
    def flag(self, buffer: Buffer, i: int = 0) -> Any:
        """number() as yes or no; in a recorded step the number itself, by which each replay decides anew."""
        return bool(self.number(buffer, i))

    def kept(self, rooms: dict[int, Buffer], size: int, dtype: np.dtype) -> Buffer:
        """A small buffer for before(), from `rooms` or put there; in a recorded step a new one each time: a replay fills all at once."""
        found = rooms.get(size)
        if found is None:
            found = rooms[size] = self.device.direct.empty(size, dtype)
        return found

    def shared(self, buffer: Buffer) -> None:
        """Another library is about to get this memory."""

    def aside(self) -> AbstractContextManager[None]:
        """A block in which nobody records what this thread does on the device: it is done once, not in every replay."""
        return nullcontext()


class Device(core.Device):
    """`direct` is its own stream; everybody uses `stream`, which is another while a thread records. In launch(), `dtype` is float32 beside
    16-bit buffers, which are read as float32 and rounded as they are written."""

    align = 64  # bytes: where a buffer may begin in a root
    gap = 0  # bytes between buffers that share a root, at least
    near = 1  # bytes: at a multiple of it begins a part of a buffer that a launch may read in the place of a copy
    checks_late = False  # whether a program's checks look at their buffers after all its launches
    samples = False  # whether it has launches for the places of a grid
    beside = False  # whether it has one for rows side by side
    hands_out = False  # whether a program's launch may be called by Python, for a buffer that is another one each time

    def __init__(self, name: str, stream: Stream):
        super().__init__(name)
        self.stream = self.direct = stream
        stream.device = self
        self.recorders = 0  # how many threads' recorders stand in the stream's place; see recorder.py

    if not TYPE_CHECKING:  # the stream's, whichever stands there
        empty, upload, download = (property(attrgetter(f"stream.{name}")) for name in ("empty", "upload", "download"))
        item, copy, equal = (property(attrgetter(f"stream.{name}")) for name in ("item", "copy", "equal"))

    def fill(self, buffer: Buffer, values: Callable[[], Sequence[Any]]) -> None:
        self.stream.before(values, buffer)

    def copier(self, out: Buffer, x: Buffer) -> Kernel:
        """The kernel that copies x to out, both on this device, and converts as NumPy's astype does."""
        raise NotImplementedError

    def write(self, buffer: Buffer, values: Sequence[Any]) -> None:
        """Overwrite a small buffer with numbers of the host."""
        raise NotImplementedError

    def slot(self, root: Buffer, offset: int, size: int, dtype: np.dtype) -> Buffer:
        """`size` elements of `dtype`, `offset` bytes into `root`, as a buffer that shares the memory and keeps it alive."""
        raise NotImplementedError

    def suited(self, kernel: Any, size: int) -> Any:
        """The kernel that does the same as this one for so many elements."""
        return kernel

    def copied(self, s: Step) -> Copied | None:
        """(memory, from which element on, how it lies) where all that a launch does is to copy numbers of it as they are. How: () for
        neighbours, (rows, length, distance) for rows of them, (m, n) for the transposes of the matrices of these sides that lie there."""
        return None

    def rewritten(self, s: Step, places: Sequence[int], lies: tuple[int, ...]) -> Step | None:
        """The launch with the same result, bit for bit, of float32 or float64 operands of which those at these places of its ins lie as
        copied() says; None where there is none."""
        return None

    def require(self, check: Callable[..., None], *buffers: Buffer, within: Sequence[tuple[float, float]]) -> None:
        """Where it raises late, no parameter is updated from here on until it has raised."""
        self.stream.after(Required(check, within), *buffers)

    def remember(self, act: Callable[..., Any]) -> None:
        """act() is about to change the state of its object: restore() it to what saved() is now if something required before turns out
        wrong after. Here: nothing does."""

    def withheld(self, number: Buffer) -> Buffer:
        """The number, or 0 where something required has failed and will raise: for what takes in a share. Here it has raised."""
        return number

    def look(self) -> None:
        """Make the checks that wait for launches to end. Here: none waits."""

    def locked(self, array: np.ndarray) -> np.ndarray:
        """A read-only copy of a host array, in memory that upload() need not wait for. Here: any memory."""
        found = array.copy()
        found.flags.writeable = False
        return found

    def trim(self) -> None:
        """Give kept blocks back to the system."""

    def memory(self) -> dict[str, int]:
        """Bytes: `current` in tensors, `peak` the most of that, `cached` in freed blocks that are kept, `limit` of them at most (-1: all,
        until the device has no more), `returned` to the system so far."""
        return {"current": 0, "peak": 0, "cached": 0, "limit": 0, "returned": 0}

    def why_widened(self, dtype: np.dtype) -> str:
        """Why products of numbers of this type are no faster here than those of float32; "" if they are, or nobody expects it."""
        return ""

    def findings(self) -> Iterator[tuple[str, str, str]]:
        """What `flamepy doctor` prints of this backend: (label, value, remedy or "")."""
        return iter(())

    def cache_folder(self) -> Path:
        """Where its compiled kernels are kept."""
        raise DeviceError(f"cache: nothing is compiled for this device: {self.name}. Ask another.")

    def dlpack(self, buffer: Buffer, shape: Sequence[int]) -> Any:
        """Something with __dlpack__ and __dlpack_device__ that shares the memory."""
        raise DeviceError(f"dlpack: not on this device: {self.name}. Copy the tensor with .to('cpu') first.")

    def adopted(self, data: Any) -> tuple[Buffer, tuple[int, ...]] | None:
        """(a copy, shape) of another library's array in this device's memory; None for anything else, which goes through the host."""
        return None

    def array_interface(self, buffer: Buffer, shape: Sequence[int]) -> dict[str, Any]:
        """What __cuda_array_interface__ says of the memory. Raises AttributeError where it is not a GPU's."""
        raise AttributeError(f"__cuda_array_interface__: the tensor is on {self.name}. Use .numpy() or DLPack.")

    def __reduce__(self) -> tuple:
        return device, (self.name,)


def uploaded(device: Device, array: np.ndarray) -> Buffer:
    return device.upload(array)


def register(made: Any) -> Any:
    """Make a device of your own known by its name, also to captured steps. Raises DeviceError for a name that is taken."""
    if made.name.partition(":")[0] in core.openers or core._devices.setdefault(made.name, made) is not made:
        raise DeviceError(f"device: this name is taken: '{made.name}'. Choose another.")
    return made


def opened() -> list[Any]:
    """The devices in use, the default one first."""
    device()
    return list({id(found): found for found in core._devices.values()}.values())  # one may have two names: cuda, cuda:0


BACKENDS = ("cpu", "plain", "cuda")  # each a folder here whose device.py has open(rest of the name) -> Device


def opened_by(kind: str, rest: str) -> Device:
    return import_module(f".{kind}.device", __package__).open(rest)  # type: ignore[no-any-return]


core.openers.clear()  # what core has is opened as one of these
core.openers.update({kind: partial(opened_by, kind) for kind in BACKENDS})


def remembered(act: Callable[[], Any]) -> None:
    """Tell those whose checks may fail later what is done to host state now."""
    for found in list(core._devices.values()):
        if isinstance(found, Device) and found.checks_late:
            found.remember(act)


before.append(remembered)
