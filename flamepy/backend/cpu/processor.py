"""What Numba compiles for on this machine, and the register tile of its products.

Features are asked of Numba's target, not of the system: NUMBA_CPU_NAME and NUMBA_CPU_FEATURES change what may be emitted. A tile's
sums and its operands must fit the registers: 24 vectors of sums where there are 32 registers, 12 where there are 16.

FLAME counterpart: `cudaDeviceProp`. Read next: micro.py.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from llvmlite import binding
from numba.core import config
from numba.core.codegen import get_host_cpu_features


class Tile(NamedTuple):
    """A product's register tile: `rows` by `across` vectors of `lanes` numbers."""

    lanes: int
    rows: int
    across: int


# Processors on which kernels use 512-bit vectors though LLVM prefers 256: measured on Sapphire Rapids. Older ones lower their clock.
WHOLE_VECTORS = ("icelake-server", "sapphirerapids", "emeraldrapids", "graniterapids", "graniterapids-d", "diamondrapids")


@cache
def features() -> frozenset[str]:
    """Names of the processor's features that Numba compiles for."""
    given = config.CPU_FEATURES  # type: ignore[attr-defined]
    listed = get_host_cpu_features() if given is None else given
    return frozenset([name[1:] for name in listed.split(",") if name.startswith("+")])


def cpu_name() -> str:
    """LLVM's name of the processor that Numba compiles for, such as znver4."""
    return str(config.CPU_NAME or binding.get_host_cpu_name())  # type: ignore[attr-defined]


def fuses() -> bool:
    """Whether a multiplication and a sum are one instruction here, rounded once."""
    return "fma" in features() or binding.get_process_triple().startswith(("aarch64", "arm64"))


@cache
def tile(itemsize: int) -> Tile:
    """The register tile for numbers of so many bytes: two vectors across, so that a panel of B is narrow and comes from the second-level
    cache at a third of what that can give (four across: two thirds, and 5 to 10 percent slower on Sapphire Rapids)."""
    size, rows = 16, 6
    if "avx512f" in features():
        size, rows = 64, 12
    elif "avx" in features():
        size = 32
    elif binding.get_process_triple().startswith(("aarch64", "arm64")):
        rows = 12
    return Tile(size // itemsize, rows, 2)
