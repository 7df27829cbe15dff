"""Matrix products and linear layers: strips of rows by panels of columns are tasks, neighbouring ones one call of `gemm`.

A panel is as wide as the block of B that gemm packs, so a worker packs each block once for all its rows. In a layer with many strips
workers share out rows, and a row stays in one core's cache from op to op; with few, panels. What ends a layer (bias, activation,
residual) follows each panel while it is in the nearest caches. Elsewhere workers share out the longer side: all of them pack the other.
A number is the same chain of sums in whichever tile it is computed, and strips follow from sizes: the same bits for any number of
threads.
"""

from ....dtypes import bfloat16, float16
from ..bf16 import matmul as bfloat_matmul
from ..loops.maps import F, same
from ..loops.runs import add_columns, fill_run, put_run
from ..runtime.family import launcher, loop, table
from ..runtime.parallel import elements, many, strips_of, tasks
from ..runtime.workspace import COLUMNS, SIDE, WIDTH, block_space, wide_space
from . import half_products
from .finish import RESULT, SUM, finish, finish_row, flops, run, stands
from .gemm import PANEL, SINGLE, N, T, gemm

STRIP = 48  # rows of a strip, at most: enough that packing a block of B for one strip costs a tenth of multiplying with it


def cut(m, n):
    """(strips, panels) of an (m, n) product, each of about equal size."""
    most = STRIP if m >= 8 * STRIP else STRIP // 2
    return (m + most - 1) // most, max(1, (n + PANEL - 1) // PANEL)


def edge(strip, down, m):
    """The first row of a strip: even, and no strip is so short that gemm takes it for a single row."""
    return min(m, (m * strip // max(1, down) + 5) // 6 * 6) if m > 2 * STRIP else m * strip // max(1, down)


def side(panel, across, n):
    """The first column of a panel: a multiple of what register tiles have."""
    return min(n, (n * panel // across + 63) // 64 * 64)


def neighbours(left, first, down, panels):
    """(last, panels) of what one call multiplies, of `left` tasks from strip `first` on: strips of a panel, or panels that are all mine."""
    return min(down, first + left), min(panels, max(1, left // down)) if first == 0 else 1


@loop
def matmul(part, c, a, b, a_off, b_off, batch, m, n, k, ta, tb):
    """c[i] (m, n) = op(a)[i] (m, k) @ op(b)[i] (k, n) for i < batch.

    a_off and b_off: where each matrix starts. ta, tb: it is stored as (k, m), (n, k).
    """
    down, across = cut(m, n)
    if m > n and many(part, batch * down):
        across = 1
    mine = tasks(part, batch * across * down)
    task = mine.start
    while task < mine.stop:
        item, panel, first = task // (down * across), task // down % across, task % down
        last, panels = neighbours(mine.stop - task, first, down, across - panel)
        i, end, j = edge(first, down, m), edge(last, down, m), side(panel, across, n)
        cols = side(panel + panels, across, n) - j
        a_at, b_at = a_off[item] + (i if ta else i * k), b_off[item] + (j * k if tb else j)
        lda, ldb = m if ta else k, k if tb else n
        gemm(ta, tb, end - i, cols, k, 1.0, a, a_at, lda, b, b_at, ldb, False, c, (item * m + i) * n + j, n)
        task += (last - first) * panels


@loop
def linear(part, y, kept, x, w, bias, residual, rows, n, k, flip, has_bias, has_residual, keep):
    """y (rows, n) = F(x (rows, k) @ w.T + bias (n)) + residual (rows, n); kept: what F gets or gives, as `keep` says (finish.py).

    w is (n, k), or with flip (k, n): then it is an input gradient. What isn't there or isn't kept isn't read or written.
    """
    down, across = cut(rows, n)
    z = kept if keep == SUM or keep == RESULT else y  # noqa: SIM109  (a tuple in a kernel is slower to compile)
    for panel in range(across):
        first, last = strips_of(part, panel, down, across)
        if first < last:
            i, end, j = edge(first, down, rows), edge(last, down, rows), side(panel, across, n)
            cols = side(panel + 1, across, n) - j
            w_at, ld = (j, n) if flip else (j * k, k)
            gemm(N, not flip, end - i, cols, k, 1.0, x, i * k, k, w, w_at, ld, False, z, i * n + j, n)
            finish(y, z, bias, residual, i, end, j, cols, n, has_bias, has_residual, keep)


@loop
def linear_half(part, y, kept, x, w, bias, residual, rows, n, k, has_bias, has_residual, keep):
    """The same for float16: blocks of the result stay float32, in the nearest cache, until all that follows the product is done."""
    down, across, z = (rows + SIDE - 1) // SIDE, (n + WIDTH - 1) // WIDTH, block_space(y)
    for task in tasks(part, down * across):
        i, j = task % down * SIDE, task // down * WIDTH
        high, cols = min(SIDE, rows - i), min(WIDTH, n - j)
        gemm(N, T, high, cols, k, 1.0, x, i * k, k, w, j * k, k, False, z, 0, WIDTH)
        for r in range(high):
            at, line = (i + r) * n + j, z[r * WIDTH : r * WIDTH + cols]
            finish_row(y, kept, line, bias[j : j + cols], residual, at, has_bias, has_residual, keep)


@loop
def linear_dx(part, dx, dz, g, kept, w, rows, n_out, n_in):
    """dz (rows, n_out) = F(g, kept), the activation's derivative, and dx (rows, n_in) = dz @ w (n_out, n_in): a worker's rows."""
    down, across = cut(rows, n_in)
    mine = tasks(part, down)
    i, end = edge(mine.start, down, rows), edge(mine.stop, down, rows)
    for strip in mine:  # by strips: where vectors end must not depend on how many workers there are
        r = edge(strip, down, rows)
        derive(dz, g, kept, run(r * n_out, (edge(strip + 1, down, rows) - r) * n_out))
    for panel in range(across if i < end else 0):
        j = side(panel, across, n_in)
        cols = side(panel + 1, across, n_in) - j
        gemm(N, N, end - i, cols, n_out, 1.0, dz, i * n_out, n_out, w, j, n_in, False, dx, i * n_in + j, n_in)


@loop
def linear_dw(part, dw, db, g, x, rows, n_out, n_in, has_bias, add_w, add_b):
    """dw (n_out, n_in) = g.T @ x and, with has_bias, db (n_out) = column sums of g; add_w, add_b: added to what is there.

    g is (rows, n_out), x (rows, n_in).
    """
    down, across = cut(n_out, n_in)
    if n_out > n_in and many(part, down):
        across = 1
    mine, sums = tasks(part, down * across), wide_space(g)
    task = mine.start
    while task < mine.stop:
        panel, first = task // down, task % down
        last, panels = neighbours(mine.stop - task, first, down, across - panel)
        i, end, j = edge(first, down, n_out), edge(last, down, n_out), side(panel, across, n_in)
        cols = side(panel + panels, across, n_in) - j
        gemm(T, N, end - i, cols, rows, 1.0, g, i, n_out, x, j, n_in, add_w, dw, i * n_in + j, n_in)
        task += (last - first) * panels
    own = elements(part, n_out if has_bias else 0)
    for low in range(own.start, own.stop, COLUMNS):
        high = min(own.stop, low + COLUMNS)
        total = sums[: high - low]
        fill_run(total, 0.0)
        add_columns(total, g, 0, rows, n_out, low, same)
        put_run(db[low:high], total, add_b)


def derive(dz, g, kept, piece):
    for c in piece:
        dz[c] = F(g[c], kept[c])


def turned(s, places, sides):
    """Device.rewritten(): sums over k are the same chain either way, but for products of few rows."""
    if s.kernel.loop is matmul and s.consts[1] > SINGLE:
        batch, m, n, k, *ways = s.consts
        stored = (k, m) if ways[0] else (m, k), (n, k) if ways[1] else (k, n)
        if any([i > 1 or stored[i] != sides or (s.ins[2 + i] % (sides[0] * sides[1])).any() for i in places]):
            return None
        return s._replace(consts=(batch, m, n, k, *[way != (i in places) for i, way in enumerate(ways)]))
    if s.kernel.loop is linear and s.consts[0] > SINGLE and places == [1]:
        rows, n, k, flip, *ends = s.consts
        return s._replace(consts=(rows, n, k, not flip, *ends)) if sides == ((k, n) if flip else (n, k)) else None
    return None


# ---- launchers ----
def load_halves(*operands):
    """Have what multiplies float16 numbers, before a kernel needs it."""
    if any([x.dtype == float16 for x in operands]):
        half_products.load()


@launcher(name="matmul")
def matmul_launcher(go, outs, ins, a_at, b_at, m, n, k, ta, tb):
    if ins[0].dtype == bfloat16:
        return bfloat_matmul.matmul(go, outs, ins, a_at, b_at, m, n, k, ta, tb)
    load_halves(*ins)
    work, (a, b) = flops(len(a_at) * m * n, k), ins
    if n == 1 < m:  # a column is the same memory as a row, and a row reads the matrix as it lies
        a, a_at, b, b_at, m, n, ta, tb = b, b_at, a, a_at, 1, m, False, not ta
    go(matmul, outs, (a, b, table(a_at), table(b_at)), (len(a_at), m, n, k, ta, tb), work=work)


@launcher(name="linear")
def linear_launcher(go, outs, ins, rows, n, k, flip, keeps_result, reads):
    if reads == bfloat16:
        return bfloat_matmul.linear(go, outs, ins, rows, n, k, flip, keeps_result)
    load_halves(ins[1])
    outs, given, flags = stands(go, outs, ins, ins[1], keeps_result)
    if ins[0].dtype == float16:
        return go(linear_half, outs, given, (rows, n, k, *flags), work=flops(rows * n, k), formula=go.formula or same)
    go(linear, outs, given, (rows, n, k, flip, *flags), work=flops(rows * n, k), formula=go.formula or same)


@launcher(name="linear_dx")
def dx_launcher(go, outs, ins, rows, n_out, n_in, reads):
    if reads == bfloat16:
        return bfloat_matmul.linear_dx(go, outs, ins, rows, n_out, n_in)
    load_halves(ins[2])
    go(linear_dx, outs, ins, (rows, n_out, n_in), work=flops(rows * n_in, n_out))


@launcher(name="linear_dw")
def dw_launcher(go, outs, ins, rows, n_out, n_in, add_w, add_b):
    if ins[1].dtype == bfloat16:
        return bfloat_matmul.linear_dw(go, outs, ins, rows, n_out, n_in, add_w, add_b)
    load_halves(ins[1])
    dw, db = outs
    consts = (rows, n_out, n_in, db is not None, add_w, add_b)
    go(linear_dw, (dw, dw if db is None else db), ins, consts, work=flops(rows * n_out, n_in))
