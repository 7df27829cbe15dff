"""Running the same tests on several devices: another default device for a while, and the mark of tests that are about the CPU.

A module whose tests hold on every device says `pytestmark = pytest.mark.usefixtures("device")`; its tests then read as before,
because what names no device goes where the fixture says.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any
from unittest.mock import patch

import pytest

from flamepy.core import device as seam
from flamepy.core.errors import DeviceError

CPU_ONLY = pytest.mark.parametrize("device", ["cpu"], indirect=True)


@functools.cache
def emulated_gpu() -> seam.Device:
    """The emulated GPU of this process: one, so that its kernels are compiled once, and two devices of one name are never mixed."""
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: pip install 'flamepy[cuda-emulator]'")
    if os.environ.get("FLAMEPY_CUDA") == "emulator":
        return seam.device("cuda")
    with patch.dict(os.environ, {"FLAMEPY_CUDA": "emulator"}):
        return import_module("flamepy.backend.cuda.device").open("")  # type: ignore[no-any-return]


def has_gpu() -> bool:
    """Whether an NVIDIA driver is there."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


@functools.cache
def gpu() -> seam.Device:
    """The GPU of this machine, else the emulated one."""
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: pip install 'flamepy[cuda-emulator]'")
    try:
        return seam.device("cuda")
    except DeviceError:
        return emulated_gpu()


@contextmanager
def cuda_device() -> Iterator[seam.Device]:
    """In the block, "cuda" is the GPU of these tests; outside, the one that is there, or none."""
    device = gpu()
    for name in ("cpu", "plain"):  # opened in the block, they would be forgotten at its end
        seam.device(name)
    with patch.dict(seam._devices, {"cuda": device}):
        yield device


@contextmanager
def default_device(name: str) -> Iterator[None]:
    """In the block, what names no device goes to the device `name`; an explicit "cpu" stays the CPU."""
    find = seam.device

    @functools.wraps(find)
    def device(given: Any = None) -> seam.Device:
        return find(name if given is None else given)

    modules = [m for key, m in sys.modules.items() if key.startswith("flamepy")]
    places = [(m, key) for m in modules for key, value in vars(m).items() if value is find]
    patches = [patch.object(m, key, device) for m, key in places]
    for p in patches:
        p.start()
    try:
        yield
    finally:
        for p in patches:
            p.stop()
