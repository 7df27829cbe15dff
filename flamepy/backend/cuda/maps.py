"""Maps: a formula applied to every element, copies with conversion, filling.

Outs first, flat arrays, then constants; an input that is a number stands for the same number everywhere.

FLAME counterpart: `flame_core::cuda_kernels` elementwise. Read next: rows.py.
"""

from __future__ import annotations

from typing import Any

from ...dtypes import computed
from .family import THREADS, F, blocks, kernel, launcher
from .words import index


@kernel
def map1(out, x, *c):
    i = index()
    if i < out.size:
        out[i] = F(x[i], *c)


@kernel
def fill_all(out, value):
    i = index()
    if i < out.size:
        out[i] = value


def same(x):
    return x


def nonzero(x):
    return x != 0


# ---- launchers ----
@launcher(name="map")
def map_launcher(go, outs, ins, *numbers):
    go(map1, outs, ins, numbers, grid=blocks(outs[0].size), per_block=THREADS)


@launcher(name="fill")
def fill_launcher(go, outs, ins, value):
    go(fill_all, outs, (), (value,), grid=blocks(outs[0].size), per_block=THREADS)


def copier(device: Any, out: Any, x: Any) -> Any:
    """The kernel that converts x to out's dtype."""
    formula = nonzero if out.dtype.kind == "b" else same
    return device.kernel(map1, formula, computed(x.dtype)).on(blocks(out.size), THREADS)
