"""What Numba compiles for on this machine, and the register tile of its products.

Features are asked of Numba's target, not of the system: NUMBA_CPU_NAME and NUMBA_CPU_FEATURES change what may be emitted. A tile's
sums and its operands must fit the registers: 24 vectors of sums where there are 32 registers, 12 where there are 16.
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


def arm() -> bool:
    """Whether Numba compiles for 64-bit ARM."""
    return binding.get_process_triple().startswith(("aarch64", "arm64"))


def fuses() -> bool:
    """Whether a multiplication and a sum are one instruction here, rounded once."""
    return "fma" in features() or arm()


def converts_float16() -> bool:
    """Whether the processor itself turns float16 into float32 and back."""
    return "f16c" in features() or arm()


@cache
def tile(itemsize: int) -> Tile:
    """The register tile for numbers of so many bytes: six rows, and as many vectors across as registers hold. Its 24 sums hide the latency
    of two multiply-add units; 8 x 3 and 12 x 2 need more instructions a sum and are 5 to 15 percent slower (Zen 4, Sapphire Rapids)."""
    if "avx512f" in features():
        size, across = 64, 4
    elif "avx" in features():
        size, across = 32, 2
    elif arm():
        size, across = 16, 4
    else:
        size, across = 16, 2
    return Tile(size // itemsize, 6, across)
