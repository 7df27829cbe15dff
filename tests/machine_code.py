"""What tests look for in machine code: packed instructions, under the names they have on this kind of processor.

x86-64: vectors of 32 bytes or more (AVX). 64-bit ARM: NEON's vectors, or SVE's.
"""

from __future__ import annotations

import platform
import re

import pytest

from flamepy.backend.cpu.runtime import processor

ARM = processor.arm()
WIDE = r"\s.*%[yz]mm"


def on_vectors(names: str, kinds: str = "[sd]") -> str:
    """ARM's instructions with these names on vectors of 32-bit (s) or 64-bit (d) numbers, 16-bit ones being h."""
    return rf"\t({names})\t(v\d+\.\d+{kinds}|z\d+\.{kinds})"


PATTERNS = {
    "arithmetic": on_vectors(r"f\w+") if ARM else rf"v\w+p[sd]{WIDE}",
    "products": on_vectors(r"fn?m(ul|la|ls|ad|sb)") if ARM else rf"v(mul|f[n]?m\w+)p[sd]{WIDE}",
    "extremes": on_vectors(r"f(max|min)(nm)?") if ARM else rf"v(max|min)p[sd]{WIDE}",
    "steps": on_vectors(r"fn?m(ul|la|ls|ad|sb)|f(max|min)(nm)?|f(add|sub)") if ARM else rf"v(mul|fn?ma?\w+|max|add|sub)ps{WIDE}",
    "moves": r"\t(ld[pr]|st[pr])\tq\d|\t(and|orr|eor|bi[cft]|bsl)\t[vz]\d" if ARM else rf"v(movup|xor|and|or)\w*{WIDE}",
    "any": r"\t\w+\t(v\d+\.\d+\w|z\d+\.)" if ARM else rf"v\w+{WIDE}",
    # Some processors add float16 numbers as they are, which gives the same bits.
    "read float16": rf"\tfcvtl2?\t|{on_vectors('fadd', 'h')}" if ARM else rf"v(cvtph2psx?|addph){WIDE}",
    "write float16": rf"\tfcvtn2?\t|{on_vectors('fadd', 'h')}" if ARM else rf"v(cvtps2phx?|addph){WIDE}",
    "read bfloat16": r"\t(u?shll2?|ushll2?|uxtl2?|zip[12])\t[vz]\d" if ARM else rf"vpmovzxwd{WIDE}",
    "write bfloat16": r"\t(u?shrn2?|xtn2?|uzp[12])\t[vz]\d" if ARM else r"vp(movdw|ackusdw|shufb)\s.*%[xyz]mm",
}
known = pytest.mark.skipif(not ARM and platform.machine() not in ("x86_64", "AMD64"), reason="looks for instructions of x86-64 and ARM")


def packed(kind: str, text: str) -> int:
    """How many packed instructions of a kind there are in a text of assembly."""
    return sum(1 for _ in re.finditer(PATTERNS[kind], text))
