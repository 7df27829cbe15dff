"""What flamepy would launch on a GPU: a device of which nothing is there but the compiler, and which writes down each launch.

    with recorded((9, 0)) as (device, launches):
        flamepy.gelu(flamepy.zeros(1000, device=device))
    launches[0].kernel.ptx

Its memory holds nothing: what is read from it is 0.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, cached_property
from typing import Any

import numpy as np

from ..backend.base import Device
from ..core.errors import DeviceError, DTypeError
from ..dtypes import FLOATS, as_dtype
from .examples import names, prepared
from .kernels import Argument, CudaKernel, backend

ALIGN = 256
busy = threading.Lock()


@dataclass(frozen=True)
class Launch:
    """A kernel that was launched: `source`, its function; `formula`, what it applies, or None; `dtype`, that of the formula's constants."""

    binary: Any
    kinds: tuple[Any, ...]
    source: Any
    formula: Any
    dtype: np.dtype
    grid: tuple[int, ...]
    threads: int

    @cached_property
    def kernel(self) -> CudaKernel:
        names = self.source.__code__.co_varnames
        given = self.source.__code__.co_argcount
        rest = names[given] if given < len(self.kinds) else ""
        arguments = [argument(names[i] if i < given else f"{rest}[{i - given}]", kind) for i, kind in enumerate(self.kinds)]
        arch = backend("runtime.build").arch(self.binary.cc)
        return CudaKernel(self.binary.name, arch, self.binary.ptx, tuple(arguments), self.binary, self.threads)


def argument(name: str, kind: Any) -> Argument:
    """What a kind (../backend/cuda/runtime/arguments.py) says of an argument."""
    if kind is None:
        return Argument(name, "none")
    if isinstance(kind, tuple):
        return Argument(name, "tuple", parts=tuple(argument(f"{name}[{k}]", kind[0]) for k in range(kind[1])))
    if isinstance(kind, str):
        return Argument(name, "number", np.dtype("bool" if kind == "boolean" else kind))
    return Argument(name, "span", kind)


class Recorder:
    """A driver (../backend/cuda/runtime/driver.py) that only compiles, and writes down who is launched."""

    watches = True  # each buffer has an address of its own
    blas = None
    wgmma = False
    cudnn = None

    def __init__(self, cc: tuple[Any, ...]):
        self.cc, self.at = cc, ALIGN
        self.launches: list[Launch] = []
        self.device: Any = None

    def allocate(self, nbytes: int, last: bool = False) -> int:
        self.at, address = self.at + -(-max(nbytes, 1) // ALIGN) * ALIGN, self.at
        return address

    def free(self, address: int) -> None:
        """Nothing is there."""

    def upload(self, address: int, array: np.ndarray) -> None:
        """Nothing is there."""

    def reading(self, address: int, size: int, dtype: np.dtype) -> Callable[[], np.ndarray]:
        return lambda: np.zeros(size, dtype)

    def download(self, array: np.ndarray, address: int) -> None:
        array.view(np.uint8)[...] = 0

    def copy(self, to: int, address: int, nbytes: int) -> None:
        """Nothing is there."""

    def synchronize(self) -> None:
        """Nothing runs."""

    def addressed(self, data: Any) -> None:
        """No other library has memory here."""

    def load(self, binary: Any) -> Any:
        return binary

    def starter(self, binary: Any, grid: tuple[int, ...], threads: int) -> Callable[..., None]:
        kernel, kinds = next((k, kinds) for k in self.device.kernels.values() for kinds, b in k.variants.items() if b is binary)
        launch = Launch(binary, kinds, kernel.function, kernel.formula, kernel.dtype, grid, threads)
        return lambda *values: self.launches.append(launch)

    def capture(self, enqueue: Callable[[], None]) -> Callable[[], None]:
        enqueue()
        return lambda: None


@cache
def recorder(cc: tuple[Any, ...]) -> Device:
    """The device that records for GPUs of this kind."""
    driver = Recorder(cc)
    device = backend("device").CudaDevice(driver, 0)
    device.name = f"cuda ({backend('runtime.build').arch(cc)}, compiled only)"
    driver.device = device
    device.look = device.late.waiting.clear  # what launches find out is not known
    return device  # type: ignore[no-any-return]


@contextmanager
def recorded(cc: tuple[Any, ...]) -> Iterator[tuple[Device, list[Launch]]]:
    """(a device, the list of what is launched on it in the block)."""
    with busy:
        device: Any = recorder(cc)
        launches = device.driver.launches = []
        yield device, launches


def launches_of(name: str, n: int, dtype: Any, cc: tuple[Any, ...]) -> list[Launch]:
    """What an op, or an optimizer's step, launches on n elements, each kernel once: forward, then backward."""
    if name not in names():
        near = get_close_matches(name, names(), 3)
        advice = f"Did you mean {' or '.join(near)}?" if near else "Name a public op or an optimizer."
        raise ValueError(f"kernel: no such name: '{name}'. {advice}")
    with recorded(cc) as (device, launches):
        run = prepared(name, n, dtype, device)
        launches.clear()
        run()
        device.synchronize()  # type: ignore[attr-defined]
        found = list({id(launch.binary): launch for launch in launches}.values())
    refuse_converted(name, as_dtype(dtype), [(launch.formula, launch.dtype) for launch in found])
    return found


def refuse_converted(name: str, dtype: np.dtype, launches: list[tuple[Any, np.dtype]]) -> None:
    """An op that has no kernel for whole numbers of this type makes others of them first. launches: formulas and what they compute in."""
    (first, of), (_, then) = [*launches, (None, dtype), (None, dtype)][:2]
    if dtype not in FLOATS and getattr(first, "__name__", "") == "same" and of == dtype != then:
        raise DTypeError(f"{name}: no kernel for {dtype}: it is converted to {then} first. Use {then}.")


def first_kernel(name: str, dtype: Any, cc: tuple[Any, ...]) -> CudaKernel:
    """The first kernel of an op that computes something."""
    found = launches_of(name, 1 << 20, dtype, cc)
    if not found:
        raise DeviceError(f"compile: nothing is launched: '{name}' on {dtype}. Name an op that computes.")
    return found[0].kernel
