"""Factors of matrices: Cholesky, QR, eigenvalues of symmetric matrices, singular values, pseudo-inverses.

Derivatives: Murray 2016, arXiv:1602.07527 (Cholesky); Walter & Lehmann 2018, arXiv:1001.1654 (QR); Giles 2008 (eigh); Townsend 2016,
"Differentiating the singular value decomposition" (SVD); Golub & Pereyra 1973 (pinv). They are ops, so of any order. Those of vectors
that belong to equal values are infinite.
"""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import numpy as np

from ..backend.formula.row_words import barrier, lane, lanes
from ..core.custom import custom
from ..core.dtypes import check_flag
from ..core.errors import ShapeError
from ..core.op import like, share
from ..core.ops.axes import composed, tensors_of
from ..core.ops.copy import cast, filled
from ..core.ops.matrices import matmul, product
from ..core.ops.pointwise import abs_op, add, div, gt, maximum_op, mul, square, sub
from ..core.ops.reduce import sum as sum_op
from ..core.ops.reduce import sum_to
from ..core.ops.shape import reshape, transpose
from ..core.words import abs, maximum, sqrt
from ..dtypes import checked_number, int64
from ..ops.diagonals import diag_embed
from ..ops.joining import cat
from ..ops.rows import over_rows
from ..ops.shape_more import tril
from .host import matrices, on_host, quiet
from .solving import inverse, require_none, substituted


def lined(x: Any) -> Any:
    """A factor for each column of a matrix."""
    return reshape(x, (*x.shape[:-1], 1, x.shape[-1]))


def down(x: Any) -> Any:
    """A factor for each row of a matrix."""
    return reshape(x, (*x.shape, 1))


def mean_of_both(x: Any, share: float = 0.5) -> Any:
    return mul(add(x, transpose(x)), share)


def apart(values: Any, diagonal: float) -> Any:
    """By how much these numbers, a column for each, are larger than each of them."""
    return add(sub(lined(values), down(values)), diag_embed(filled(values.shape, diagonal, values.dtype, values.device)))


# ---- Cholesky ----------------------------------------------------------------------------------------------------------------------
SMALL = 1 << 12  # products of sides up to which plain loops take less time than LAPACK


def root_row(r, y, wrong, x, n, rows, cols):
    """Column by column; `wrong`: how many numbers are no squares."""
    x, y, found = x[r * cols : r * cols + cols], y[r * cols : r * cols + cols], 0
    for j in range(n):
        barrier()
        total = x[j * n + j]
        for k in range(j):
            total -= y[j * n + k] * y[j * n + k]
        found += total <= 0.0
        root = sqrt(total)
        for i in range(lane(), n, lanes()):
            total = x[i * n + j]
            for k in range(j if i > j else 0):
                total -= y[i * n + k] * y[j * n + k]
            y[i * n + j] = root if i == j else total / root if i > j else 0.0
    if lane() == 0:
        wrong[r] = found


@custom(inputs=1, title="cholesky", internal=True)
def root_of(x):
    if x.shape[-1] ** 3 > SMALL:
        return on_host("cholesky", np.linalg.cholesky, (x,), (x.shape,))
    y, wrong = like(x), like(x, x.shape[:-2], int64)
    over_rows(root_row, (y, wrong), (x,), math.prod(x.shape[-2:]), x.shape[-1:])
    require_none("cholesky", "Matrix is not positive definite", x, wrong)
    return y


@root_of.differentiable
def root_dx(g, y):
    turn = product(y, g, True, False)
    twice = add(tril(turn), tril(turn, diagonal=-1))
    if y.shape[-1] > 32:  # LAPACK inverts sooner than it solves two systems
        low = inverse(y)
        return mean_of_both(product(low, product(twice, low, False, False), True, False), 0.25)
    return mean_of_both(substituted(y, substituted(y, twice, False, False, True, False), False, False, False, True), 0.25)


@composed(home="")
def cholesky(x: Any, *, upper: bool = False) -> Any:
    """The lower triangle L with L @ L.mT = x of each symmetric, positive definite matrix, of which the lower triangle is read; upper:
    L.mT. The gradient is that of a symmetric matrix. Shapes: (..., n, n). Raises LinAlgError, ShapeError.
    >>> fp.linalg.cholesky(fp.tensor([[4.0, 2.0], [2.0, 5.0]])).tolist()
    [[2.0, 0.0], [1.0, 2.0]]"""
    x = matrices("cholesky", x, square=True)
    return transpose(root_of(transpose(x))) if upper else root_of(x)


# ---- QR ----------------------------------------------------------------------------------------------------------------------------
def reflect_row(r, q, y, h, taus, x, m, n, k, rows, cols):
    """As LAPACK does it: h is y, and below the diagonal the reflections, whose first number is 1."""
    x, h, y = x[r * m * n : r * m * n + m * n], h[r * m * n : r * m * n + m * n], y[r * k * n : r * k * n + k * n]
    q, taus = q[r * cols : r * cols + cols], taus[r * k : r * k + k]
    for j in range(lane(), n, lanes()):
        for t in range(m):
            h[t * n + j] = x[t * n + j]
    for i in range(k):
        barrier()
        first, big, total = h[i * n + i], abs(h[i * n + i]), 0.0
        for t in range(i + 1, m):
            big = maximum(big, abs(h[t * n + i]))
        for t in range(i + 1, m):
            total += (h[t * n + i] / big) * (h[t * n + i] / big) if big > 0.0 else big
        length = big * sqrt((first / big) * (first / big) + total) if total != 0.0 else first
        beta = length if first < 0.0 or total == 0.0 else -length
        tau, scale = (1.0 - first / beta, 1.0 / (first - beta)) if total != 0.0 else (0.0, 0.0)
        barrier()
        for j in range(i + 1 + lane(), n, lanes()):
            w = h[i * n + j]
            for t in range(i + 1, m):
                w += h[t * n + i] * scale * h[t * n + j]
            for t in range(i + 1, m):
                h[t * n + j] -= tau * w * (h[t * n + i] * scale)
            h[i * n + j] -= tau * w
        barrier()
        if lane() == 0:
            h[i * n + i], taus[i] = beta, tau
            for t in range(i + 1, m):
                h[t * n + i] *= scale
    barrier()
    for j in range(lane(), n, lanes()):
        for i in range(k):
            y[i * n + j] = h[i * n + j] if i <= j else 0.0
    put_reflections(q, h, taus, m, n, k)


def put_reflections(q, h, taus, m, n, k):
    """Their product: the last one is taken first, of each column of the identity."""
    for c in range(lane(), k, lanes()):
        for t in range(m):
            q[t * k + c] = 1.0 if t == c else 0.0
        for s in range(c + 1):  # the others leave it as it is
            i = c - s
            w = q[i * k + c]
            for t in range(i + 1, m):
                w += h[t * n + i] * q[t * k + c]
            q[i * k + c] -= taus[i] * w
            for t in range(i + 1, m):
                q[t * k + c] -= taus[i] * w * h[t * n + i]


@custom(inputs=1, title="qr", internal=True)
def thin_qr(x):
    *batch, m, n = x.shape
    k = min(m, n)
    if m * n * k > SMALL:
        q, r = on_host("qr", np.linalg.qr, (x,), ((*batch, m, k), (*batch, k, n)), "reduced")
    else:
        q, r, taus = like(x, (*batch, m, k)), like(x, (*batch, k, n)), like(x, (*batch, k))
        over_rows(reflect_row, (q, r, like(x), taus), (x,), m * k, (m, n, k))
    return (q, r), {"r": share(r, r.shape)}


@custom(inputs=1, title="qr", internal=True)
def full_qr(x):
    *batch, m, n = x.shape
    return on_host("qr", np.linalg.qr, (x,), ((*batch, m, m), (*batch, m, n)), "complete")


def qr_dx(gs: Any, x: Any, y: Any, r: Any) -> Any:
    m, n = x.shape[-2:]
    gq, gr = [filled(f.shape, 0, f.dtype, f.device) if g is None else g for g, f in zip(gs, (y, r), strict=True)]
    if m >= n:
        return tall_qr_dx(gq, gr, y, r)
    rest = gr[..., m:]
    first = tall_qr_dx(add(gq, matmul(x[..., m:], transpose(rest))), gr[..., :m], y, r[..., :m])
    return cat([first, matmul(y, rest)], -1)


def tall_qr_dx(gq: Any, gr: Any, q: Any, r: Any) -> Any:
    inside = sub(product(r, gr, False, True), product(gq, q, True, False))
    both = add(tril(inside), transpose(tril(inside, diagonal=-1)))
    return substituted(r, add(gq, product(q, both, False, False)), True, False, True, True)


thin_qr.backward(qr_dx)
thin_qr.graph(lambda gs, x: qr_dx(gs, x, *thin_qr(x)))


@composed(home="")
def qr(x: Any, mode: str = "reduced") -> Any:
    """(Q, R) with Q @ R = x, Q's columns at right angles, R an upper triangle. mode: "reduced"; "complete": Q is square, no gradient unless
    x is; "r": R alone. Shapes: (..., m, n) gives (..., m, k), (..., k, n), k the smaller. Raises ShapeError, ValueError.
    >>> [t.shape for t in fp.linalg.qr(fp.ones(3, 2))]
    [(3, 2), (2, 2)]"""
    x = matrices("qr", x)
    if mode not in ("reduced", "complete", "r"):
        raise ValueError(f"qr: unknown mode: {mode!r}. Use 'reduced', 'complete' or 'r'.")
    q, r = full_qr(x) if mode == "complete" and x.shape[-2] > x.shape[-1] else thin_qr(x)
    return r if mode == "r" else (q, r)


# ---- symmetric matrices --------------------------------------------------------------------------------------------------------------
@custom(inputs=1, title="eigh", internal=True)
def symmetric_eigen(x):
    w, v = on_host("eigh", np.linalg.eigh, (x,), (x.shape[:-1], x.shape))
    return (w, v), {"v": share(v, v.shape)}


symmetric_eigen.backward(lambda gs, x, y, v: eigen_dx(gs, y, v))
symmetric_eigen.graph(lambda gs, x: eigen_dx(gs, *symmetric_eigen(x)))


def eigen_dx(gs: Any, w: Any, v: Any) -> Any:
    gw, gv = gs
    parts = [] if gw is None else [mul(v, lined(gw))]
    if gv is not None:
        parts.append(product(v, div(product(v, gv, True, False), apart(w, math.inf)), False, False))
    return mean_of_both(product(reduce(add, parts), v, False, True))


def triangle_of(name: str, x: Any, UPLO: str) -> Any:
    """The symmetric matrices whose lower or upper triangle this is, stored below."""
    x = matrices(name, x, square=True)
    if UPLO not in ("L", "U"):
        raise ValueError(f"{name}: unknown triangle: {UPLO!r}. Use 'L' or 'U'.")
    return x if UPLO == "L" else transpose(x)


@composed(home="")
def eigh(x: Any, UPLO: str = "L") -> tuple[Any, Any]:
    """(eigenvalues in rising order, eigenvectors as columns) of symmetric matrices, of which the lower ("L") or upper triangle is read. The
    gradient is that of a symmetric matrix. Shapes: (..., n, n) gives (..., n), (..., n, n). Raises LinAlgError, ShapeError.
    >>> fp.linalg.eigh(fp.tensor([[2.0, 0.0], [0.0, 1.0]]))[0].tolist()
    [1.0, 2.0]"""
    w, v = symmetric_eigen(triangle_of("eigh", x, UPLO))
    return w, v


@composed(home="")
def eigvalsh(x: Any, UPLO: str = "L") -> Any:
    """eigh() without the vectors: its gradient is finite where values are equal, too. Shapes: (..., n, n) gives (..., n).
    >>> fp.linalg.eigvalsh(fp.tensor([[2.0, 0.0], [0.0, 1.0]])).tolist()
    [1.0, 2.0]"""
    return symmetric_eigen(triangle_of("eigvalsh", x, UPLO))[0]


# ---- singular values -----------------------------------------------------------------------------------------------------------------
@custom(inputs=1, title="svd", internal=True)
def thin_svd(x):
    *batch, m, n = x.shape
    k = min(m, n)
    u, s, vh = on_host("svd", np.linalg.svd, (x,), ((*batch, m, k), (*batch, k), (*batch, k, n)), False)
    return (u, s, vh), {"s": share(s, s.shape), "vh": share(vh, vh.shape)}


thin_svd.backward(lambda gs, x, y, s, vh: svd_dx(gs, y, s, vh))
thin_svd.graph(lambda gs, x: svd_dx(gs, *thin_svd(x)))


@custom(inputs=1, title="svd with full_matrices", internal=True)
def full_svd(x):
    *batch, m, n = x.shape
    return on_host("svd", np.linalg.svd, (x,), ((*batch, m, m), (*batch, min(m, n)), (*batch, n, n)), True)


def svd_dx(gs: Any, u: Any, s: Any, vh: Any) -> Any:
    gu, gs_, gvh = gs
    parts = [] if gs_ is None else [mul(u, lined(gs_))]  # of what is multiplied by vh
    gaps = None if gu is gvh is None else apart(square(s), 1.0)
    if gu is not None:
        turn = product(u, gu, True, False)
        parts.append(product(u, mul(div(sub(turn, transpose(turn)), gaps), lined(s)), False, False))
        if u.shape[-2] > u.shape[-1]:
            parts.append(div(sub(gu, product(u, turn, False, False)), lined(s)))
    if gvh is not None:
        turn = product(vh, gvh, False, True)
        parts.append(product(u, mul(down(s), div(sub(turn, transpose(turn)), gaps)), False, False))
    dx = product(reduce(add, parts), vh, False, False)
    if gvh is None or vh.shape[-1] == vh.shape[-2]:
        return dx
    return add(dx, product(u, div(sub(gvh, product(turn, vh, True, False)), down(s)), False, False))


@composed(home="")
def svd(x: Any, full_matrices: bool = True) -> tuple[Any, Any, Any]:
    """(U, S, Vh) with U @ diag(S) @ Vh = x, S in falling order. full_matrices: U and Vh are square; of others than square matrices there is
    no gradient then. Shapes: (..., m, n) gives (..., m, k), (..., k), (..., k, n), k the smaller. Raises LinAlgError, ShapeError.
    >>> fp.linalg.svd(fp.tensor([[3.0, 0.0], [0.0, 4.0]]))[1].tolist()
    [4.0, 3.0]"""
    x = matrices("svd", x)
    u, s, vh = full_svd(x) if full_matrices and x.shape[-1] != x.shape[-2] else thin_svd(x)
    return u, s, vh


@custom(inputs=1, title="svdvals", internal=True)
def singular_values(x):
    return on_host("svdvals", np.linalg.svdvals, (x,), ((*x.shape[:-2], min(x.shape[-2:])),))


@composed(home="")
def svdvals(x: Any) -> Any:
    """The singular values in falling order. Shapes: (..., m, n) gives (..., k), k the smaller. Raises LinAlgError, ShapeError.
    >>> fp.linalg.svdvals(fp.tensor([[3.0, 0.0], [0.0, 4.0]])).tolist()
    [4.0, 3.0]"""
    x = matrices("svdvals", x)
    return thin_svd(x)[1] if x.requires_grad else singular_values(x)


# ---- what is made of them --------------------------------------------------------------------------------------------------------------
@quiet
def lapack_pinv(x: np.ndarray, rtol: float, atol: float, hermitian: bool) -> np.ndarray:
    if not atol:
        return np.linalg.pinv(x, rtol, hermitian=hermitian)
    largest = np.linalg.norm(x, 2, (-2, -1)) if x.size else np.ones(x.shape[:-2], x.dtype)
    return np.linalg.pinv(x, np.maximum(rtol, atol / np.maximum(largest, np.finfo(x.dtype).tiny)), hermitian=hermitian)


@custom(inputs=1, title="pinv", internal=True)
def pseudo_inverse(x, rtol=0.0, atol=0.0, hermitian=False):
    return on_host("pinv", lapack_pinv, (x,), ((*x.shape[:-2], *x.shape[:-3:-1]),), rtol, atol, hermitian)


@pseudo_inverse.differentiable
def pseudo_inverse_dx(g, x, y):
    k = product(g, y, True, False)
    ky = product(k, y, False, True)
    first = sub(sub(ky, product(k, y, True, True)), matmul(matmul(x, y), ky))
    return add(first, matmul(product(y, y, True, False), sub(transpose(g), matmul(k, x))))


@composed(home="")
def pinv(x: Any, rtol: Any = None, hermitian: bool = False, *, atol: float = 0.0) -> Any:
    """The pseudo-inverse (Moore & Penrose); singular values up to rtol of the largest, or up to atol, count as zero (rtol: the larger size
    times what rounds 1; 0 where atol is given). hermitian: x is symmetric, of which the lower triangle is read, and its eigenvalues are
    looked at. The gradient is that of matrices of the same rank, symmetric ones if hermitian.

    Shapes: (..., m, n) gives (..., n, m). Raises LinAlgError, ShapeError.
    >>> fp.linalg.pinv(fp.tensor([[2.0], [0.0]])).tolist()
    [[0.5, 0.0]]"""
    check_flag("pinv", "hermitian", hermitian)
    x, atol = matrices("pinv", x, square=bool(hermitian)), checked_number("pinv", "atol", 0.0 if atol is None else atol)
    rtol = 0.0 if rtol is None and atol > 0.0 else relative("pinv", x, rtol)
    return pseudo_inverse(x, rtol, atol, bool(hermitian))


def relative(name: str, x: Any, rtol: Any) -> float:
    return max(x.shape[-2:]) * float(np.finfo(x.dtype).eps) if rtol is None else checked_number(name, "rtol", rtol)


@composed(home="")
def matrix_rank(x: Any, rtol: Any = None, hermitian: bool = False, *, atol: Any = None) -> Any:
    """How many singular values are larger than rtol times the largest, and than atol, int64 (rtol, atol, hermitian: as in pinv). Shapes:
    (..., m, n) gives (...).
    >>> fp.linalg.matrix_rank(fp.tensor([[1.0, 2.0], [2.0, 4.0]])).item()
    1"""
    check_flag("matrix_rank", "hermitian", hermitian)
    x = matrices("matrix_rank", x, square=bool(hermitian)).detach()
    atol = checked_number("matrix_rank", "atol", 0.0 if atol is None else atol)
    rtol = 0.0 if rtol is None and atol > 0.0 else relative("matrix_rank", x, rtol)
    s = abs_op(eigvalsh(x)) if hermitian else singular_values(x)  # the largest comes first or last
    return sum_op(gt(s, maximum_op(mul(maximum_op(s[..., :1], s[..., -1:]), rtol), atol)), axis=-1)


@quiet
def lapack_lstsq(a: np.ndarray, b: np.ndarray, rtol: float, inverts: bool) -> tuple:
    if not inverts and a.ndim == b.ndim == 2:
        x, _, rank, s = np.linalg.lstsq(a, b, rtol)
        return x, s, rank
    u, s, vh = np.linalg.svd(a, full_matrices=False)
    counts = s > rtol * s[..., :1]
    scaled, rank = vh.mT * (counts / (s + ~counts))[..., None, :], np.add.reduce(counts, -1)
    return (scaled @ u.mT @ b, s, rank, scaled @ u.mT) if inverts else (scaled @ (u.mT @ b), s, rank)


@custom(inputs=2, title="lstsq", internal=True)
def least_squares(a, b, rtol=0.0, *, tracked=()):
    """(x, singular values, rank as a float); p: the pseudo-inverse of a."""
    *batch, m, n = a.shape
    every, inverts = np.broadcast_shapes(tuple(batch), b.shape[:-2]), any(tracked)
    shapes = ((*every, n, b.shape[-1]), (*batch, min(m, n)), batch, (*batch, n, m))
    *found, last = on_host("lstsq", lapack_lstsq, (a, b), shapes if inverts else shapes[:3], rtol, inverts)
    return (tuple(found), {"p": last}) if inverts else (*found, last)


@least_squares.backward
def least_squares_dx(gs, a, b, p, wanted):
    gx, gs_, _ = gs
    da = None
    if gx is not None and wanted[0]:
        da = sum_to(pseudo_inverse_dx(product(gx, b, False, True), a, p), a.shape)
    if gs_ is not None:
        u, _, vh = thin_svd(a)
        ds = product(mul(u, lined(gs_)), vh, False, False)
        da = ds if da is None else add(da, ds)
    return da, None if gx is None else product(p, gx, True, False)


@least_squares.graph
def least_squares_ddx(gs, a, b, wanted, rtol):
    return least_squares_dx(gs, a, b, pseudo_inverse(a, rtol, 0.0, False), wanted)


@composed(home="")
def lstsq(a: Any, b: Any, rcond: Any = None) -> tuple[Any, Any, Any, Any]:
    """(x, residuals, rank, singular values): the x of least length among those with the least sum of squares of a @ x - b, through pinv().
    residuals: these sums, or nothing where a has no full rank of columns. Shapes: (..., m, n), and (..., m, k) or (m,). Raises ShapeError.
    >>> round(fp.linalg.lstsq(fp.tensor([[1.0], [1.0]]), fp.tensor([1.0, 3.0]))[0].item(), 4)
    2.0"""
    a, b = tensors_of("lstsq", a, b)
    a, b = matrices("lstsq", a), matrices("lstsq", b, least=1)
    if a.shape[-2] != b.shape[-1 if b.ndim == 1 else -2]:
        raise ShapeError(f"lstsq: sizes differ: {a.shape} and {b.shape}. Use (..., m, n) and (..., m, k) or (m,).")
    solution, s, rank = least_squares(a, reshape(b, (*b.shape, 1)) if b.ndim == 1 else b, relative("lstsq", a, rcond))
    solution, rank = reshape(solution, solution.shape[:-1]) if b.ndim == 1 else solution, cast(rank.detach(), int64)
    if a.shape[-2] <= a.shape[-1] or np.minimum.reduce(rank.numpy(), None, initial=a.shape[-1]) < a.shape[-1]:
        return solution, filled((0,), 0, a.dtype, a.device), rank, s
    return solution, sum_op(square(sub(matmul(a, solution), b)), axis=-1 if b.ndim == 1 else -2), rank, s
