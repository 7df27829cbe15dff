"""Matrix products and linear layers of bfloat16: operands packed once for all workers, products summed in float32, rounded once.

A product is two launches. The first packs what must lie in another order (panels.py): the right operand, and a left one that is
transposed. The second multiplies 32 rows by 128 columns at a time into float32 scratch, which stays in the nearest cache while bias,
activation and residual are applied there, in float32; only then is it rounded. What is float32, gradients, is written in place. A
number is the same chain of sums in whichever block it falls: the same bits for any number of threads.

The launchers of matmul.py come here with bfloat16 operands.
"""

from __future__ import annotations

from typing import Any

from ....dtypes import bfloat16
from ..loops.maps import F, same
from ..loops.runs import add_columns, copy_run, fill_run, put_run
from ..products.finish import finish_row, flops, stands
from ..runtime.family import loop, table
from ..runtime.parallel import strips_of, tasks
from ..runtime.workspace import SIDE, WIDTH, block_space, wide_space
from .bfloat import load, multiply, pack_panels, pack_strips, packed_size, tiles_off, tiles_on

SPAN = 64  # rows or columns that one task packs


@loop
def pack_bfloat(part, left, right, a, b, a_off, b_off, batch, m, n, k, ta, tb):
    """op(a)[i] (m, k) in strips and op(b)[i] (k, n) in panels, for i < batch; m or n is 0 where that operand is not packed."""
    strips, panels = (m + SPAN - 1) // SPAN, (n + SPAN - 1) // SPAN
    for task in tasks(part, batch * (strips + panels)):
        item, at = task // (strips + panels), task % (strips + panels)
        if at < strips:
            i = at * SPAN
            start, place = a_off[item] + (i if ta else i * k), item * packed_size(k, m) + packed_size(k, i)
            pack_strips(ta, min(SPAN, m - i), k, a, start, m if ta else k, left, place)
        else:
            j = (at - strips) * SPAN
            start, place = b_off[item] + (j * k if tb else j), item * packed_size(k, n) + packed_size(k, j)
            pack_panels(tb, k, min(SPAN, n - j), b, start, k if tb else n, right, place)


@loop
def matmul_bfloat(part, c, a, b, a_off, batch, m, n, k, packed):
    """c[i] (m, n) = a[i] (m, k) @ b[i] (k, n) for i < batch; b is in panels, a lies row by row or with `packed` in strips."""
    down, across, z = (m + SIDE - 1) // SIDE, (n + WIDTH - 1) // WIDTH, block_space(c)
    tiles_on()
    for task in tasks(part, batch * across * down):
        item, panel, i = task // (down * across), task // down % across, task % down * SIDE
        high, j = min(SIDE, m - i), panel * WIDTH
        cols, b_at = min(WIDTH, n - j), item * packed_size(k, n) + packed_size(k, j)
        a_at = item * packed_size(k, m) + packed_size(k, i) if packed else a_off[item] + i * k
        multiply(high, cols, k, 1.0, a, a_at, 0 if packed else k, b, b_at, False, z, 0, WIDTH)
        for r in range(high):
            at = (item * m + i + r) * n + j
            copy_run(c[at : at + cols], z[r * WIDTH : r * WIDTH + cols])
    tiles_off()


@loop
def linear_bfloat(part, y, kept, x, w, bias, residual, rows, n, k, has_bias, has_residual, keep):
    """y (rows, n) = F(x (rows, k) @ w.T + bias (n)) + residual (rows, n); kept: what F gets or gives, as `keep` says (finish.py).

    w.T is in panels. What isn't there or isn't kept isn't read or written.
    """
    down, across, z = (rows + SIDE - 1) // SIDE, (n + WIDTH - 1) // WIDTH, block_space(y)
    tiles_on()
    for panel in range(across):
        first, last = strips_of(part, panel, down, across)
        j = panel * WIDTH
        cols = min(WIDTH, n - j)
        for i in range(first * SIDE, min(rows, last * SIDE), SIDE):
            high = min(SIDE, rows - i)
            multiply(high, cols, k, 1.0, x, i * k, k, w, packed_size(k, j), False, z, 0, WIDTH)
            for r in range(high):
                at, line = (i + r) * n + j, z[r * WIDTH : r * WIDTH + cols]
                finish_row(y, kept, line, bias[j : j + cols], residual, at, has_bias, has_residual, keep)
    tiles_off()


@loop
def linear_dx_bfloat(part, dx, dz, g, kept, w, rows, n_out, n_in, has_kept):
    """dz (rows, n_out) = F(g, kept), rounded, or with has_kept not set g; and dx (rows, n_in) = dz @ w (n_out, n_in): a worker's rows.

    w is in panels.
    """
    mine = tasks(part, (rows + SIDE - 1) // SIDE)
    i, end = min(rows, mine.start * SIDE), min(rows, mine.stop * SIDE)
    for r in range(i, end, SIDE):  # by strips: where vectors end must not depend on how many workers there are
        first, last = r * n_out, min(rows, r + SIDE) * n_out
        if has_kept:
            derive(dz[first:last], g[first:last], kept[first:last])
        else:
            copy_run(dz[first:last], g[first:last])
    tiles_on()
    for j in range(0, n_in, WIDTH):
        multiply(end - i, min(WIDTH, n_in - j), n_out, 1.0, dz, i * n_out, n_out, w, packed_size(n_out, j), False, dx, i * n_in + j, n_in)
    tiles_off()


def derive(dz, g, kept):
    for c in range(dz.size):
        dz[c] = F(g[c], kept[c])


@loop
def linear_dw_bfloat(part, dw, db, left, right, g, rows, n_out, n_in, has_bias, add_w, add_b):
    """dw (n_out, n_in) = left @ right, which are g.T in strips and x in panels, and with has_bias db (n_out) = column sums of g.

    add_w, add_b: added to what is there. Who has a strip of the first panel also sums its columns of g.
    """
    down, across, sums = (n_out + SIDE - 1) // SIDE, max(1, (n_in + WIDTH - 1) // WIDTH), wide_space(g)
    tiles_on()
    for panel in range(across):
        first, last = strips_of(part, panel, down, across)
        i, end, j = min(n_out, first * SIDE), min(n_out, last * SIDE), panel * WIDTH
        if i < end:
            cols, a_at, b_at = min(WIDTH, n_in - j), packed_size(rows, i), packed_size(rows, j)
            multiply(end - i, cols, rows, 1.0, left, a_at, 0, right, b_at, add_w, dw, i * n_in + j, n_in)
            for low in range(i, end if has_bias and panel == 0 else i, SIDE):
                total = sums[: min(SIDE, n_out - low)]
                fill_run(total, 0.0)
                add_columns(total, g, 0, rows, n_out, low, same)
                put_run(db[low : low + total.size], total, add_b)
    tiles_off()


# ---- how they are launched ----
def pack(go: Any, a: Any, b: Any, a_at: Any, b_at: Any, m: int, n: int, k: int, ta: bool, tb: bool) -> tuple[Any, Any]:
    """Strips of `a` (with m = 0 it stays where it is) and panels of `b`. What is float32 is rounded on the way."""
    load()
    batch = len(b_at)
    right = go.empty(batch * packed_size(k, n), bfloat16)
    left = go.empty(batch * packed_size(k, m), bfloat16) if m else right
    consts = (table(a_at), table(b_at)), (batch, m, n, k, ta, tb)
    go(pack_bfloat, (left, right), (a if m else b, b, *consts[0]), consts[1], work=batch * k * (m + n) // 2, formula=None)
    return left if m else a, right


def matmul(go: Any, outs: Any, ins: Any, a_at: Any, b_at: Any, m: int, n: int, k: int, ta: bool, tb: bool) -> None:
    a, b = ins
    left, right = pack(go, a, b, a_at, b_at, m if ta else 0, n, k, ta, tb)
    go(matmul_bfloat, outs, (left, right, table(a_at)), (len(a_at), m, n, k, ta), work=work_of(len(a_at) * m * n, k))


def linear(go: Any, outs: Any, ins: Any, rows: int, n: int, k: int, flip: bool, keeps_result: bool) -> None:
    _, right = pack(go, ins[0], ins[1], (0,), (0,), 0, n, k, False, not flip)
    outs, given, flags = stands(go, outs, ins, right, keeps_result)
    go(linear_bfloat, outs, given, (rows, n, k, *flags), work=work_of(rows * n, k), formula=go.formula or same)


def linear_dx(go: Any, outs: Any, ins: Any, rows: int, n_out: int, n_in: int) -> None:
    g, kept, w = ins
    _, right = pack(go, w, w, (0,), (0,), 0, n_in, n_out, False, False)
    consts = (rows, n_out, n_in, go.formula is not None)
    go(
        linear_dx_bfloat,
        outs,
        (g, g if kept is None else kept, right),
        consts,
        work=work_of(rows * n_in, n_out),
        formula=go.formula or handed,
    )


def linear_dw(go: Any, outs: Any, ins: Any, rows: int, n_out: int, n_in: int, add_w: bool, add_b: bool) -> None:
    dw, db = outs
    g, x = ins
    left, right = pack(go, g, x, (0,), (0,), n_out, n_in, rows, True, False)
    consts = (rows, n_out, n_in, db is not None, add_w, add_b)
    go(linear_dw_bfloat, (dw, dw if db is None else db), (left, right, g), consts, work=work_of(rows * n_out, n_in))


def work_of(results: int, inner: int) -> int:
    return flops(results, inner) // 2


def handed(g, kept):
    """The rule of a layer without activation."""
    return g
