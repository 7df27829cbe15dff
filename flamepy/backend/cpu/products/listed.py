"""Products whose second operand has its rows anywhere in memory, listed by their distance from the first. The word `gemm_listed`.

    gemm_listed(m, n, k, a, a_off, lda, b, b_off, places, add, c, c_off, ldc)
    c[m, n] = (or +=, with add) a[m, k] @ b[k, n]     row-major float32; row p of b begins places[p] bytes after b[b_off]

What a window's tap sees of an image is such a row: lines of the padded image, shifted. So a convolution needs no columns (im2col): the
register tiles read the image itself. They read whole vectors: up to VECTOR numbers after a row's last must be readable memory.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit, types

from ..runtime.inner import INNER
from ..runtime.processor import Tile, tile
from . import micro
from .gemm import SOURCES, Family, own_name, publish

VECTOR = 16  # numbers, of the longest vectors
FLOAT = np.dtype("float32")


class ListedFamily(Family):
    """The tiles of gemm.py with a list in the place of a distance from row to row of b."""

    def by_place(self, tile: Tile) -> Any:
        kernel = micro.micro_kernel(self.size, tile, True, listed=True)

        def tiles(apart, *others):
            kernel(*others)

        return njit(**INNER)(tiles)

    def listing(self) -> Any:
        size, column, panel, one = self.size, self.tiles, self.tile.lanes * self.tile.across, np.float32(1)

        def gemm_listed_at(m, n, k, a, lda, b, places, add, c, ldc):
            for j in range(0, n, panel):
                column(c + j * size, ldc, a, lda, size, b + j * size, places, m, k, min(panel, n - j), one, add != 0)

        return gemm_listed_at


SIGNATURE = (types.int64,) * 10


@cache
def load() -> None:
    """Make the function behind the word known to compiled code."""
    function = ListedFamily(FLOAT.itemsize, tile(FLOAT.itemsize)).listing()
    publish("gemm_listed", FLOAT.itemsize, own_name(function, FLOAT.itemsize, [Path(__file__), *SOURCES]), SIGNATURE)


def gemm_listed(m, n, k, a, a_off, lda, b, b_off, places, add, c, c_off, ldc):
    """The word in plain Python, so that loops also run without being compiled."""
    for i in range(m):
        total = c[c_off + i * ldc : c_off + i * ldc + n]
        if not add:
            total[:] = 0
        for p in range(k):
            row = b_off + places[p] // b.itemsize
            total += a[a_off + i * lda + p] * b[row : row + n]


def compiled() -> Any:
    call = types.ExternalFunction("flamepy_gemm_listed4", types.void(*SIGNATURE))

    def gemm_listed_word(m, n, k, a, a_off, lda, b, b_off, places, add, c, c_off, ldc):
        call(
            np.int64(m), np.int64(n), np.int64(k), np.int64(a.ctypes.data) + a_off * 4, lda * 4, np.int64(b.ctypes.data) + b_off * 4,
            np.int64(places.ctypes.data), np.int64(add), np.int64(c.ctypes.data) + c_off * 4, ldc * 4,
        )  # fmt: skip

    return njit(**INNER)(gemm_listed_word)


WORDS = {FLOAT: {"gemm_listed": compiled()}}
NEEDS = [(WORDS[FLOAT]["gemm_listed"], load)]
