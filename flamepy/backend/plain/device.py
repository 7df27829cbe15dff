"""The device "plain" (core/plain.py) as one that may be recorded, and shares its memory with other libraries.

The kernels beside core's are in spans.py and networks.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ...core import plain
from ...core.kernels import KERNELS
from ...core.plain import bound as bound
from ...core.plain import convert as convert
from ...core.plain import memory_of as memory_of
from ..base import Buffer, Device
from ..host import HostStream
from . import networks, spans  # noqa: F401  (their kernels enter the list)


class PlainBuffer(plain.PlainBuffer, Buffer):
    """Memory of its own."""


class PlainDevice(plain.PlainDevice, Device):
    """`device("plain")`."""

    owned: ClassVar[type[Any]] = PlainBuffer
    part: ClassVar[type[Any]] = Buffer
    stream: HostStream

    def __init__(self) -> None:
        super().__init__("plain", HostStream())

    def memory(self) -> dict[str, int]:
        return {**super().memory(), "current": self.current, "peak": self.peak}

    def findings(self) -> Iterator[tuple[str, str, str]]:
        yield "plain", f"NumPy {np.__version__}, {len(KERNELS)} kernels in Python, nothing compiled", ""

    def dlpack(self, buffer: Buffer, shape: Sequence[int]) -> Any:
        return self.download(buffer).reshape(shape)


open = partial(plain.open, kind=PlainDevice)
