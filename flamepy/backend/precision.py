"""How exactly float32 matrices are multiplied: set_float32_matmul_precision(), with PyTorch's names.

    "highest"    in float32 (the default)
    "high"       as sums of two bf16 numbers each: 16 bits of 24 count
    "medium"     rounded to bf16: 8 bits count; sums stay float32

Lower levels change something only where that is faster: with AMX, "medium" also with full-rate vdpbf16ps (Zen 4 and 5), and for large
enough matrices. Else they are "highest", as on the plain device. `flamepy doctor` says what they are here.
"""

from __future__ import annotations

from collections.abc import Callable

from ..bus import outside, seen
from ..core.errors import StateError

LEVELS = ("highest", "high", "medium")
_level = LEVELS[0]
listeners: list[Callable[[], None]] = []  # backends that multiply in float32: told of a change


def level() -> str:
    return _level


def get_float32_matmul_precision() -> str:
    """The level set: "highest", "high" or "medium"."""
    seen(LEVELS, "float32_matmul_precision", level, True)
    return _level


def set_float32_matmul_precision(precision: str) -> None:
    """Choose how exactly products of float32 are computed in this process: "highest" (default), "high" or "medium".

    It holds for matmul, linear and attention, forward and backward, in all threads from their next product on; recorded steps follow it
    too, but cannot set it. Convolutions stay float32 unless their windows are 1 x 1, and so does the gradient of any weight of theirs:
    `model.compute_dtype = flamepy.bfloat16` is faster there. float64 is never changed, nor are small products (a side under 32, fewer than
    12 rows). Where "medium" is bf16, operands from 3.3962e38 on count as infinity and those below 1.2e-38 as 0; where "high" is two parts,
    infinity and operands from 3.3962e38 on give NaN, and parts below 1.2e-38 are 0. The same bits for any number of threads.
    """
    global _level
    if not isinstance(precision, str) or precision not in LEVELS:
        raise StateError(f'set_float32_matmul_precision: no such precision: {precision!r}. Use "highest", "high" or "medium".')
    outside(f"set_float32_matmul_precision: inside a captured step: '{precision}'. Set it before the call: replays follow it.")
    before, _level = _level, LEVELS[LEVELS.index(precision)]
    try:
        for tell in listeners:
            tell()
    except BaseException:
        _level = before
        raise
