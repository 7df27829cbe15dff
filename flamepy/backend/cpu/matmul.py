"""Matrix products: tiles of the result are tasks, each one single-threaded `gemm`.

Two loops do everything. `matmul` is a batched product whose items sit anywhere (an offset for each, so
broadcasting and views cost nothing), with an optional bias; it is a linear layer's forward (tb: the weight is
(out, in)) and its input gradient too. `linear_dw` is the gradient of weight and bias. Tiles follow from sizes
alone: the same bits for any number of threads. A tile of 128 rows runs as fast as a threaded BLAS, one of 64
loses some 5 percent.

May import: words, this folder. FLAME counterpart: `flame_core::ops::gemm`. Read next: attention.py.
"""

from __future__ import annotations

from .blas import N, T, gemm
from .parallel import tasks

SPAN = 64  # rows and columns of a bias gradient's block


def matmul(part, c, a, b, bias, a_off, b_off, batch, terms, m, n, k, ta, tb, has_bias, tile_m, tile_n):
    """c[i] (m, n) = bias (n) + sum over t < terms of op(a)[i, t] (m, k) @ op(b)[i, t] (k, n), for i < batch.

    a_off and b_off: where each (i, t) starts. ta, tb: it is stored as (k, m), (n, k). Without has_bias, bias
    isn't read.
    """
    down = (m + tile_m - 1) // tile_m
    across = (n + tile_n - 1) // tile_n
    lda = m if ta else k
    ldb = k if tb else n
    for task in tasks(part, batch * down * across):
        item = task // (down * across)
        i = task // across % down * tile_m
        j = task % across * tile_n
        rows = min(tile_m, m - i)
        cols = min(tile_n, n - j)
        start = item * m * n + i * n + j
        beta = 0.0
        if has_bias:
            beta = 1.0
            for r in range(rows):
                copy_run(c[start + r * n : start + r * n + cols], bias[j : j + cols])
        for t in range(item * terms, item * terms + terms):
            a_at = a_off[t] + (i if ta else i * k)
            b_at = b_off[t] + (j * k if tb else j)
            gemm(ta, tb, rows, cols, k, 1.0, a, a_at, lda, b, b_at, ldb, beta, c, start, n)
            beta = 1.0


def linear_dw(part, dw, db, g, x, rows, n_out, n_in, has_bias, tile_m, tile_n):
    """dw (n_out, n_in) = g^T x and, with has_bias, db (n_out) = column sums of g.

    g is (rows, n_out), x (rows, n_in). Tiles are of dw. The column sums run over the rows in order, a block
    of columns for each further task.
    """
    down = (n_out + tile_m - 1) // tile_m
    across = (n_in + tile_n - 1) // tile_n
    products = down * across
    sums = (n_out + SPAN - 1) // SPAN if has_bias else 0
    for task in tasks(part, products + sums):
        if task < products:
            i = task // across * tile_m
            j = task % across * tile_n
            height, width = min(tile_m, n_out - i), min(tile_n, n_in - j)
            gemm(T, N, height, width, rows, 1.0, g, i, n_out, x, j, n_in, 0.0, dw, i * n_in + j, n_in)
        else:
            i = (task - products) * SPAN
            column_sums(db, g, rows, n_out, i, min(n_out, i + SPAN))


# Helpers take slices: an index counted from 0 needs no check for negative values, and the loop vectorises.


def copy_run(out, x):
    for i in range(out.size):
        out[i] = x[i]


def column_sums(out, x, rows, cols, start, stop):
    """out[j] = sum over r of x[r, j] for start <= j < stop, four rows at a time."""
    total = out[start:stop]
    for j in range(total.size):
        total[j] = 0.0
    for r in range(0, rows - 3, 4):
        four = x[r * cols + start : (r + 4) * cols]
        for j in range(total.size):
            total[j] += (four[j] + four[cols + j]) + (four[2 * cols + j] + four[3 * cols + j])
    for r in range(rows - rows % 4, rows):
        last = x[r * cols + start : r * cols + stop]
        for j in range(total.size):
            total[j] += last[j]
