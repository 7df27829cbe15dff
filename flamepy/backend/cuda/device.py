"""NVIDIA GPUs: buffers are addresses, kernels are compiled for the types of their arguments, launches return at once.

A launcher (beside its kernels, in one file a family) turns what an op says into launches: which kernels, on how many blocks, with what
scratch. A driver does what cuda.h offers: driver.py on a GPU, emulated.py without one (FLAMEPY_CUDA=emulator). What a launch finds out
for the host (ids that are wrong, norms that are not finite) is looked at later: late.py.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from ...core.errors import DeviceError, DTypeError
from ...dtypes import FLOATS, INTEGERS, computed
from ..base import Buffer, Copied, Device, Kernel
from ..formula.bind import digest, making_kernel, reached, typed
from ..run import Required, Step
from .runtime import family
from .runtime.arguments import UNSIGNED
from .runtime.late import Late
from .runtime.memory import ALIGN, APART, Allocator
from .runtime.stream import CudaStream, Launch

MOVES = frozenset(("strided_get", "strided_put", "surround", "take_rows", "tri"))  # launches that move numbers without looking at them
FAMILIES = (
    "rows.channels",
    "loops.maps", "loops.moves", "loops.scatter", "loops.random", "rows.rows", "loops.reduce", "loops.scan", "loops.spans",
    "loops.order", "products.matmul", "attention.attention", "conv.conv", "conv.pooling", "conv.tables", "recurrent",
)  # fmt: skip


class CudaKernel:
    """A function of a family with one formula and dtype; compiled for each combination of its arguments' types."""

    def __init__(self, device: CudaDevice, function: Any, formula: Callable | None, dtype: np.dtype, raw: bool):
        self.device, self.function, self.formula, self.dtype, self.raw = device, function, formula, dtype, raw
        self.variants: dict[tuple[Any, ...], Any] = {}
        self.placed: dict[tuple[Any, Any], Launch] = {}

    def __repr__(self) -> str:
        return f"<cuda kernel {self.name}>"

    @property
    def name(self) -> str:
        return "_".join([f.__name__ for f in (self.function, self.formula) if f is not None])

    def on(self, grid: int | tuple[int, ...], per_block: int | Callable[[int], int] = 0) -> Launch:
        """This kernel on so many blocks."""
        found = self.placed.get((grid, per_block))
        if found is None:
            if len(self.placed) > 4096:  # sizes may change for ever
                self.placed.clear()
            found = self.placed[grid, per_block] = Launch(self, grid, per_block)
        return found

    def variant(self, kinds: tuple[Any, ...]) -> Any:
        """The driver's function for arguments of these kinds (build.py)."""
        found = self.variants.get(kinds)
        if found is None:
            with making_kernel():
                found = self.variants[kinds] = self.device.driver.load(self.binary(kinds))
        return found

    def binary(self, kinds: tuple[Any, ...]) -> Any:
        build, words = import_module(".runtime.build", __package__), import_module(".loops.words", __package__)
        functions = reached(self.function) + ([] if self.formula is None else reached(self.formula))
        files = sorted({f.__code__.co_filename for f in functions if str(f.__module__).startswith("flamepy.")})
        mark = digest((*files, *words.SOURCES), functions)
        threads = self.function.threads

        def make() -> Any:
            dialect = words.dialect(threads, self.function.lanes, self.function.wide)
            return typed(self.function, self.dtype, dialect, True, self.formula)

        try:
            bounds = threads, self.function.together
            return build.compiled(make, f"{self.name}_{self.dtype.name}", mark, kinds, self.device.driver.cc, bounds)
        except import_module(".runtime.compat", __package__).PROBLEMS as problem:
            raise DeviceError(
                f"{self.name}: cannot be compiled for CUDA: {str(problem).strip().splitlines()[0]}. Use numbers, the words of "
                'flamepy.words and row[i] alone, no lists, dicts or texts; device="plain" runs any Python.'
            ) from problem


class CudaDevice(Device):
    """`device("cuda")`. `launched` counts launches."""

    align, gap, near, checks_late = ALIGN, APART, ALIGN, True

    def __init__(self, driver: Any, index: int):
        super().__init__("cuda" if index == 0 else f"cuda:{index}", CudaStream())
        self.driver, self.allocator = driver, Allocator(driver)
        self.kernels: dict[tuple[Any, ...], CudaKernel] = {}
        self.launches: dict[tuple[str, Callable | None, np.dtype, bool], tuple[Callable[..., None], family.Go]] = {}
        self.late = Late(self)
        self.launched = 0
        self.tables: dict[Any, Buffer] = {}  # of spans: see loops/spans.py

    def launch(
        self, name: str, formula: Callable | None, outs: Sequence[Buffer | None], ins: Sequence[Any], consts: Sequence[Any],
        dtype: np.dtype,
    ) -> None:  # fmt: skip
        raw = name in MOVES and ins[0].dtype == outs[0].dtype  # type: ignore[union-attr]
        if raw:
            dtype = UNSIGNED[outs[0].dtype.itemsize]  # type: ignore[union-attr]
        try:
            found, go = self.launches[name, formula, dtype, raw]
        except KeyError:
            if name not in launchers():
                raise DeviceError(f"cuda: no such launch: '{name}'. This backend has {', '.join(sorted(launchers()))}.") from None
            found, go = self.launches[name, formula, dtype, raw] = launchers()[name], family.Go(self, formula, dtype, raw)
        found(go, outs, ins, *consts)

    def kernel(self, function: Any, formula: Callable | None, dtype: np.dtype, raw: bool = False) -> CudaKernel:
        """The function with the formula, for this dtype."""
        key = function, formula, dtype, raw
        found = self.kernels.get(key)
        if found is None:
            if dtype not in FLOATS and dtype not in INTEGERS and dtype.kind not in "bu":
                raise DTypeError(f"{function.__name__}: no kernel for this type: {dtype}. Cast to float32 or float64.")
            found = self.kernels.setdefault(key, CudaKernel(self, *key))  # the same for all threads
        return found

    def suited(self, kernel: Any, size: int) -> Any:
        each = kernel.per_block
        return kernel.kernel.on(each(size) if callable(each) else family.blocks(size, each), each)

    def copied(self, s: Step) -> Copied | None:
        return import_module(".loops.moves", __package__).copied(s)  # type: ignore[no-any-return]

    def copier(self, out: Buffer, x: Buffer) -> Kernel:
        return import_module(".loops.maps", __package__).copier(self, out, x)

    def write(self, buffer: Buffer, values: Sequence[Any]) -> None:
        with np.errstate(all="ignore"):
            self.driver.upload(buffer.data, np.asarray(values).astype(buffer.dtype))

    def slot(self, root: Buffer, offset: int, size: int, dtype: np.dtype) -> Buffer:
        if root.root is not None:
            root, offset = root.root, root.offset + offset
        return Buffer(root.data + offset, size, np.dtype(dtype), self, root, offset)

    def reading(self, buffer: Buffer) -> Callable[[], np.ndarray]:
        """What gives a buffer's numbers as they are now, once synchronize() has been called."""
        return self.driver.reading(buffer.data, buffer.size, buffer.dtype) if buffer.size else partial(np.empty, 0, buffer.dtype)

    def synchronize(self) -> None:
        """Wait for all launches, then look at what they found out; that may raise."""
        begun = self.late.begin()
        self.driver.synchronize()
        self.late.look(begun)

    def look(self) -> None:
        if self.late.waiting:
            self.synchronize()

    def locked(self, array: np.ndarray) -> np.ndarray:
        return self.driver.pages.copy(array)  # type: ignore[no-any-return]

    def require(self, check: Callable[..., None], *buffers: Buffer, within: Sequence[tuple[float, float]]) -> None:
        fault = self.late.fault()
        for buffer, (low, high) in zip(buffers, within, strict=False):
            self.late.compare(fault, buffer, low, high)
        self.stream.after(Required(check, within, fault), *buffers)

    def remember(self, act: Callable[..., Any]) -> None:
        self.late.remember(getattr(act, "__self__", None))

    def overwrite(self, out: Buffer, x: Buffer) -> None:
        if x.device is self:
            self.launch("overwrite", None, (out,), (x,), (), computed(out.dtype))
        else:
            self.stream.copy(out, x)

    def withheld(self, number: Buffer) -> Buffer:
        found = self.empty(1, number.dtype)
        self.launch("fill", None, (found,), (), (number.dtype.type(0),), number.dtype)
        self.overwrite(found, number)
        return found

    def trim(self) -> None:
        self.driver.synchronize()
        self.allocator.release()
        self.driver.pages.release()

    def memory(self) -> dict[str, int]:
        found = self.allocator
        return {"current": found.current, "peak": found.peak, "cached": found.cached, "limit": -1, "returned": found.returned}

    def cache_folder(self) -> Path:
        return import_module(".runtime.build", __package__).cache_folder()  # type: ignore[no-any-return]

    def findings(self) -> Iterator[tuple[str, str, str]]:
        yield from self.driver.findings()

    def dlpack(self, buffer: Buffer, shape: Sequence[int]) -> Any:
        self.driver.synchronize()  # the other library has streams of its own
        return self.driver.dlpack(buffer, shape)

    def adopted(self, data: Any) -> tuple[Buffer, tuple[int, ...]] | None:
        ours = data.__class__.__module__.startswith("flamepy.")  # asking one of ours for its address would wait for the GPU
        found = None if ours else self.driver.addressed(data)
        if found is None:
            return None
        address, shape, dtype = found
        buffer = self.empty(math.prod(shape), dtype)
        if buffer.size:
            self.driver.copy(buffer.data, address, buffer.size * dtype.itemsize)
            self.driver.synchronize()  # the other library may give the memory to others
        return buffer, shape

    def array_interface(self, buffer: Buffer, shape: Sequence[int]) -> dict[str, Any]:
        """Version 3 of Numba's CUDA array interface; bfloat16, which it does not know, as uint16."""
        self.driver.synchronize()
        kind = UNSIGNED[2] if buffer.dtype.kind == "V" else buffer.dtype
        return {"shape": tuple(shape), "typestr": kind.str, "data": (self.driver.lent(buffer.data), False), "strides": None, "version": 3}


def open(rest: str) -> CudaDevice:
    """The GPU of that index (default 0), or the emulated one where FLAMEPY_CUDA is "emulator"."""
    chosen = os.environ.get("FLAMEPY_CUDA", "")
    if chosen not in ("", "emulator"):
        raise DeviceError(f"cuda: no such driver: FLAMEPY_CUDA={chosen}. Use 'emulator', or unset it to use a GPU.")
    if not (rest or "0").isdecimal():
        raise DeviceError(f"device: not an index of a GPU: 'cuda:{rest}'. Use cuda, cuda:0, cuda:1, ...")
    index = int(rest or 0)
    module = import_module(".runtime.emulated" if chosen else ".runtime.driver", __package__)
    return CudaDevice(module.open(index), index)


@cache
def launchers() -> dict[str, Callable[..., None]]:
    """Every launcher, from all families."""
    for name in FAMILIES:
        import_module("." + name, __package__)
    return family.LAUNCHERS
