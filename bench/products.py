"""A matrix product on one core, stage by stage, in percent of what its multiply-add units can do: micro.py and gemm.py, measured.

    naive     loops over i, j, p: c[i, j] += a[i, p] * b[p, j], where each b[p, j] lies a row from the one before
    rows      loops over i, p, j: whole vectors of b and c, but each sum is loaded and stored for every p
    tile      a tile of c stays in registers (micro.py); b as it lies
    packed    each panel of b is copied before, so that tiles read it from front to end
    blocks    the sum is cut too, and what is packed stays in a near cache (gemm.py): what every op calls

    tile-float64@1024x384x1536      a (1024, 384) times b (384, 1536)
    tile-float32@1024x384x1536-ta   the same where a lies transposed
    naive-float32@32x384x1536       the first 32 rows of that a: enough for the loops without tiles, which take every row alike

Contenders multiply beside the last stage. Checked against NumPy in float64. Products on all threads are in suite `kernels`:
--work 'matmul*,linear*'.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import numpy as np

from .work import Job, Work, near

OURS = "flamepy"
AGAINST = ("torch",)
DEFAULT: tuple[str, ...] = ()
ALONE = False
THREADS = 1
TOLERANCE = 1e-5
TOLERANCES = {"float32": TOLERANCE, "float64": 1e-13}
STAGES = ("naive", "rows", "tile", "packed", "blocks")
SOME = 32  # rows of a for the loops without tiles
SHAPES = {
    f"{m}x{k}x{n}" + "-ta" * turned: (m, k, n, turned)
    for m, k, n, turned in (
        (256, 256, 256, False), (768, 128, 384, False), (1024, 384, 1536, False), (1024, 384, 1536, True), (1024, 1024, 1024, False),
    )
}  # fmt: skip


def rows_of(stage: str, m: int) -> int:
    return SOME if stage in ("naive", "rows") else m


def table() -> dict[str, tuple[str, str, str]]:
    """Work name -> stage, dtype, size of the whole product. The name says what is multiplied: SOME rows by the first stages."""
    found = {}
    for dtype in TOLERANCES:
        for size, (m, *_) in SHAPES.items():
            for stage in STAGES:
                found[f"{stage}-{dtype}@{rows_of(stage, m)}{size.removeprefix(str(m))}"] = stage, dtype, size
    return found


PARTS = table()


def work_of(name: str, stage: str, dtype: str, size: str) -> Work:
    m, k, n, _ = SHAPES[size]
    return Work(name, 2.0 * rows_of(stage, m) * k * n, ceiling=f"fma-{dtype}", shared=stage == STAGES[-1])


WORKS = {name: work_of(name, *three) for name, three in PARTS.items()}


@lru_cache(maxsize=2)
def data(work: str) -> tuple[np.ndarray, np.ndarray]:
    """a, with as many rows as are multiplied (a view where it lies transposed), and b."""
    stage, dtype, size = PARTS[work]
    m, k, n, turned = SHAPES[size]
    random = np.random.default_rng(4)
    a, b = (random.standard_normal(shape).astype(dtype) for shape in ((k, m) if turned else (m, k), (k, n)))
    return (a.T if turned else a)[: rows_of(stage, m)], b


def build(contender: str, work: str, mode: str) -> Job:
    a, b = data(work)
    c = np.zeros((len(a), b.shape[1]), b.dtype)
    if contender == "torch":
        from .libraries import torch_module

        x, y, z = (torch_module().from_numpy(array) for array in (a, b, c))
        return Job(lambda: torch_module().mm(x, y, out=z), lambda z: [z.numpy()])
    run = {"naive": by_numbers, "rows": by_rows, "tile": by_tiles, "packed": by_packed_tiles, "blocks": by_blocks}[PARTS[work][0]](a, b, c)
    run()  # compiles
    return Job(run, lambda _: [c])


def verify(work: str, outputs: list[np.ndarray]) -> None:
    a, b = (x.astype(np.float64) for x in data(work))
    near(work, outputs[0], a @ b, TOLERANCES[PARTS[work][1]])


# ---- the stages ------------------------------------------------------------------------------------------------------------------
Stage = Callable[[], Any]


def naive_loop(c, a, b):  # type: ignore[no-untyped-def]  # compiled, like the next one
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            c[i, j] = 0
            for p in range(a.shape[1]):
                c[i, j] += a[i, p] * b[p, j]


def rows_loop(c, a, b):  # type: ignore[no-untyped-def]
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            c[i, j] = 0
        for p in range(a.shape[1]):
            for j in range(b.shape[1]):
                c[i, j] += a[i, p] * b[p, j]


@cache
def jitted(loop: Callable[..., None]) -> Any:
    import numba

    return numba.njit(loop)


def by_numbers(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> Stage:
    return lambda: jitted(naive_loop)(c, a, b)


def by_rows(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> Stage:
    return lambda: jitted(rows_loop)(c, a, b)


def by_tiles(a: np.ndarray, b: np.ndarray, c: np.ndarray, packs: bool = False) -> Stage:
    space = np.empty(len(b) * 1024, np.uint8)  # a panel of b: wider than any
    sizes = (*c.shape, len(b))
    return lambda: tiled(b.itemsize)(c.ctypes.data, a.ctypes.data, *a.strides, b.ctypes.data, space.ctypes.data, *sizes, packs)


def by_packed_tiles(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> Stage:
    return by_tiles(a, b, c, packs=True)


@cache
def tiled(itemsize: int) -> Any:
    """Register tiles and nothing else, for m and n that tiles divide. Addresses and strides in bytes."""
    import numba

    from flamepy.backend.cpu.products import gemm as products
    from flamepy.backend.cpu.runtime import inner, processor

    own = processor.tile(itemsize)
    family, number = products.Family(itemsize, own), np.float32 if itemsize == 4 else np.float64
    pack, column, panel = family.packing.panel, family.tiles, own.lanes * own.across

    def product(c, a, row, step, b, space, m, n, k, packs):  # type: ignore[no-untyped-def]
        line = n * itemsize
        for j in range(0, line, panel * itemsize):
            source, deep = b + j, line
            if packs:
                pack(space, source, line, False, k, panel)
                source, deep = space, panel * itemsize
            column(c + j, line, a, row, step, source, deep, m, k, panel, number(1), False)

    return numba.njit(**inner.KERNEL)(product)


def by_blocks(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> Stage:
    from flamepy.backend.cpu.runtime import peak

    gemm, (m, n), k = peak.gemm_from_python(b.itemsize), c.shape, len(b)
    turned = a.strides[0] == a.itemsize
    lines = a.strides[turned], b.strides[0], c.strides[0]
    return lambda: gemm(turned, 0, m, n, k, 1.0, a.ctypes.data, lines[0], b.ctypes.data, lines[1], 0, c.ctypes.data, lines[2])
