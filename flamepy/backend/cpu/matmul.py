"""Matrix products and linear layers: tiles of the result are tasks, each a few single-threaded `gemm` calls.

OpenBLAS copies its operands into an order of its own at each call, and so wants large ones. On processors with AVX-512 it has
other kernels for small matrices (m * n * k <= 100^3), which take them as they lie and run at 112 to 117 GFLOP/s where the large
ones reach 95 to 104. So a product is cut small: strips of up to 64 rows, panels of 64 columns, the sum in blocks of up to 240.
Only x @ w.T with w as (out, in) has no such kernel: there a worker turns a block of w in its workspace and uses it for all its
strips. How a product is cut follows from sizes alone, and which worker packs a block changes no number: the same bits for any
number of threads. Tasks are cheap, so that two workers get equal halves and sixteen still have work.

FLAME counterpart: `flame_core::ops::gemm`. Read next: attention.py.
"""

from __future__ import annotations

from numba import types

from .blas import SMALL_KERNELS, SPACE, N, T, copy_matrix, gemm, wide_space, workspace
from .family import launcher, loop, table
from .loops import F, same
from .parallel import tasks
from .plans import ALONE, NOTHING, RESULT, SUM, flops
from .runs import add_columns, fill_run, put_run

SHORT = 64  # below so long sums a b.T is packed by BLAS: its small tiles would be too small
FEW = 4  # with so many strips for each worker, workers share out rows, else panels: rows stay in a core's cache from op to op
WIDE = 1024  # from so many columns on, the rows of a block lie so far apart that packing it pays


def cut(m, n, turned):
    """(height, width, down, across): tiles of an (m, n) product and how many there are. The last panel takes what is left, up to
    half a width more. `turned`: op(b) is b.T, read where it lies; small kernels for that make at most 1,200 numbers at once."""
    if SMALL_KERNELS:
        most, width = (24, 32) if turned else (64, 64)
    else:
        most, width = (192, 512) if m >= 256 else (256, 128)
    count = 1 if 2 * m <= most else 2 * ((m + 2 * most - 1) // (2 * most))  # even: halves for two
    height = max(4, (m + 4 * count - 1) // (4 * count) * 4)
    return height, width, (m + height - 1) // height, max(1, (n + width // 2 - 1) // width)


def depth(k, cols, turned):
    """In how long blocks to sum over k: equal ones, such that a block of (depth, cols) fits a workspace."""
    if not SMALL_KERNELS:
        return max(1, k)
    most = 960 if turned else SPACE // (16 * max(64, cols)) * 16
    count = max(1, (k + most - 1) // most)
    return max(16, (k + 16 * count - 1) // (16 * count) * 16)


@loop
def matmul(part, c, a, b, a_off, b_off, batch, m, n, k, ta, tb):
    """c[i] (m, n) = op(a)[i] (m, k) @ op(b)[i] (k, n) for i < batch.

    a_off and b_off: where each matrix starts. ta, tb: it is stored as (k, m), (n, k).
    """
    turned = tb and not ta and k >= SHORT
    height, width, down, across = cut(m, n, turned)
    for task in tasks(part, batch * down * across):
        item = task // (down * across)
        i = task % down * height
        j = task // down % across
        cols = width if j + 1 < across else n - j * width
        j *= width
        deep = depth(k, cols, turned)
        for p in range(0, max(k, 1), deep):
            a_at = a_off[item] + (p * m + i if ta else i * k + p)
            b_at = b_off[item] + (j * k + p if tb else p * n + j)
            rows, inner, beta = min(height, m - i), min(deep, k - p), 0.0 if p == 0 else 1.0
            lda, ldb = m if ta else k, k if tb else n
            gemm(ta, tb, rows, cols, inner, 1.0, a, a_at, lda, b, b_at, ldb, beta, c, (item * m + i) * n + j, n)


@loop
def linear(part, y, kept, x, w, bias, residual, rows, n, k, flip, has_bias, has_residual, keep):
    """y (rows, n) = F(x (rows, k) @ w.T + bias (n)) + residual (rows, n); kept: what F gets or gives, as `keep` says (plans.py).

    w is (n, k), or with flip (k, n): then it is an input gradient. What isn't there or isn't kept isn't read or written.
    """
    pack = packs(rows, n, k, flip)
    height, width, down, across = cut(rows, n, not flip and not pack)
    space = workspace(y)
    z = kept if keep == SUM or keep == RESULT else y  # noqa: SIM109  (a tuple in a kernel is slower to compile)
    mine = tasks(part, down * across)
    by_rows = down >= FEW * part[1]
    for panel in range(across):  # its strips that are mine
        if by_rows:
            first, last = (mine.start - panel + across - 1) // across, (mine.stop - panel + across - 1) // across
        else:
            first, last = max(0, mine.start - panel * down), min(down, mine.stop - panel * down)
        if first < last:
            i, end, j = first * height, min(rows, last * height), panel * width
            cols = width if panel + 1 < across else n - j
            strips(z, x, w, space, i, end, height, j, cols, n, k, flip, pack)
            finish(y, z, bias, residual, i, end, j, cols, n, has_bias, has_residual, keep)


def packs(rows, n, k, flip):
    """Whether blocks of w are packed: turned where enough rows use them, copied where they are scattered."""
    return SMALL_KERNELS and (n >= WIDE if flip else rows >= 96 or (rows >= 32 and k <= 256))


def strips(y, x, w, space, i, end, height, j, cols, n, k, flip, pack):
    """Rows i to end, columns j to j + cols of y = x @ op(w), strip by strip."""
    turned = not flip and not pack  # read w as it lies, as w.T
    deep = depth(k, cols, turned)
    source = space if pack else w
    for p in range(0, max(k, 1), deep):
        inner = min(deep, k - p)
        at, ld = (p * n + j, n) if flip else (j * k + p, k)
        if pack:
            copy_matrix(not flip, inner if flip else cols, cols if flip else inner, w, at, ld, space, 0, cols)
            at, ld = 0, cols
        beta = 0.0 if p == 0 else 1.0
        for r in range(i, end, height):
            gemm(N, turned, min(height, end - r), cols, inner, 1.0, x, r * k + p, k, source, at, ld, beta, y, r * n + j, n)


@loop
def linear_dx(part, dx, dz, g, kept, w, rows, n_out, n_in):
    """dz (rows, n_out) = F(g, kept), the activation's derivative, and dx (rows, n_in) = dz @ w (n_out, n_in): a worker's rows."""
    height, width, down, across = cut(rows, n_in, False)
    space = workspace(dx)
    mine = tasks(part, down)
    i, end = mine.start * height, min(rows, mine.stop * height)
    for r in range(i, end, height):  # by strips: where vectors end must not depend on how many workers there are
        piece = run(r * n_out, min(height, end - r) * n_out)
        derive(dz, g, kept, piece)
    for j in range(across if i < end else 0):
        cols = width if j + 1 < across else n_in - j * width
        strips(dx, dz, w, space, i, end, height, j * width, cols, n_in, n_out, True, packs(rows, n_in, n_out, True))


@loop
def linear_dw(part, dw, db, g, x, rows, n_out, n_in, has_bias, add_w, add_b):
    """dw (n_out, n_in) = g.T @ x and, with has_bias, db (n_out) = column sums of g; add_w, add_b: added to what is there.

    g is (rows, n_out), x (rows, n_in). A task is a tile of dw; who has the first of a strip also sums its columns of g.
    """
    height, width, down, across = cut(n_out, n_in, False)
    mine, sums = tasks(part, down * across), wide_space(g)
    first, last = mine.start, mine.stop
    while first < last:  # one strip at a time, all its panels that are mine
        strip = first // across
        i, stop = strip * height, min(last, strip * across + across)
        high = min(height, n_out - i)
        deep = depth(rows, n_in - (across - 1) * width, False)
        bias = has_bias and first == strip * across
        fill_run(sums[:high], 0.0)
        for p in range(0, max(rows, 1), deep):
            inner = min(deep, rows - p)
            beta = 1.0 if p > 0 or add_w else 0.0
            for task in range(first, stop):
                j = (task - strip * across) * width
                cols = width if task + 1 < strip * across + across else n_in - j
                gemm(T, N, high, cols, inner, 1.0, g, p * n_out + i, n_out, x, p * n_in + j, n_in, beta, dw, i * n_in + j, n_in)
            if bias:
                add_columns(sums[:high], g, p, p + inner, n_out, i, same)
        if bias:
            put_run(db[i : i + high], sums[:high], add_b)
        first = stop


def finish(y, z, bias, residual, i, end, j, cols, n, has_bias, has_residual, keep):
    """F(z + bias) + residual on rows i to end, columns j to j + cols; a strip at a time stays in the nearest cache.

    Where two arrays may be one, the loops differ: what is written in place must be seen to be, or LLVM takes the scalar loop.
    """
    for top in range(i, end, 64):
        bottom = min(end, top + 64)
        if has_bias:
            for r in range(top, bottom):
                for c in run(r * n + j, cols):
                    z[c] += bias[c - types.uint64(r * n)]
        if keep == SUM:
            for r in range(top, bottom):
                for c in run(r * n + j, cols):
                    y[c] = F(z[c])
        elif keep != NOTHING:
            for r in range(top, bottom):
                for c in run(r * n + j, cols):
                    z[c] = F(z[c])
        if has_residual:
            add_residual(y, z, residual, top, bottom, j, cols, n, keep == RESULT)


def add_residual(y, z, residual, top, bottom, j, cols, n, apart):
    for r in range(top, bottom):
        if apart:
            for c in run(r * n + j, cols):
                y[c] = z[c] + residual[c]
        else:
            for c in run(r * n + j, cols):
                y[c] += residual[c]


def run(start, size):
    """Element numbers from `start`, as unsigned numbers: no check for negative ones, so that the loop vectorises."""
    return range(types.uint64(start), types.uint64(start + size))


def derive(dz, g, kept, piece):
    for c in piece:
        dz[c] = F(g[c], kept[c])


# ---- launchers ----
@launcher(name="matmul")
def matmul_launcher(go, outs, ins, a_at, b_at, m, n, k, ta, tb):
    work = flops(len(a_at) * m * n, k)
    go(matmul, outs, (*ins, table(a_at), table(b_at)), (len(a_at), m, n, k, ta, tb), work=work)


@launcher(name="linear")
def linear_launcher(go, outs, ins, rows, n, k, flip, keeps_result):
    """One compiled loop for a layer with and without bias, residual, kept values: what is absent has a stand-in that isn't read."""
    y, kept = outs
    x, w, bias, residual = ins
    keep = NOTHING if go.formula is None else ALONE if kept is None else RESULT if keeps_result else SUM
    stands = (y, y if kept is None else kept), (x, w, x if bias is None else bias, x if residual is None else residual)
    flags = (flip, bias is not None, residual is not None, keep)
    go(linear, *stands, (rows, n, k, *flags), work=flops(rows * n, k), formula=go.formula or same)


@launcher(name="linear_dx")
def dx_launcher(go, outs, ins, rows, n_out, n_in):
    go(linear_dx, outs, ins, (rows, n_out, n_in), work=flops(rows * n_in, n_out))


@launcher(name="linear_dw")
def dw_launcher(go, outs, ins, rows, n_out, n_in, add_w, add_b):
    dw, db = outs
    consts = (rows, n_out, n_in, db is not None, add_w, add_b)
    go(linear_dw, (dw, dw if db is None else db), ins, consts, work=flops(rows * n_out, n_in))
