"""Inverses, systems of equations, determinants. Derivatives: Giles 2008, "Collected matrix derivative results"."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..backend.formula.row_words import lane, lanes
from ..core.custom import custom
from ..core.dtypes import check_flag
from ..core.errors import ShapeError
from ..core.op import like
from ..core.ops.axes import composed, tensors_of
from ..core.ops.copy import filled
from ..core.ops.matrices import matmul, product
from ..core.ops.pointwise import mul, neg, where
from ..core.ops.reduce import sum as sum_op
from ..core.ops.shape import broadcast_to, reshape, transpose
from ..dtypes import checked_int, int64
from ..ops.diagonals import diag_embed
from ..ops.rows import over_rows
from ..ops.shape_more import tril, triu
from .host import ADVICE, LinAlgError, matrices, on_host, quiet


@custom(inputs=1, title="inv", internal=True)
def inverse(x):
    return on_host("inv", np.linalg.inv, (x,), (x.shape,))


inverse.differentiable(lambda g, y: neg(product(product(y, g, True, False), y, False, True)))


@composed(home="")
def inv(x: Any) -> Any:
    """The inverse of each matrix. Shapes: (..., n, n). Raises LinAlgError for a singular one, ShapeError.
    >>> fp.linalg.inv(fp.tensor([[2.0, 0.0], [0.0, 4.0]])).tolist()
    [[0.5, 0.0], [0.0, 0.25]]"""
    return inverse(matrices("inv", x, square=True))


# ---- systems of equations ----------------------------------------------------------------------------------------------------------
def lapack_solve(a: np.ndarray, b: np.ndarray, turned: bool) -> np.ndarray:
    return np.linalg.solve(a.mT if turned else a, b)


@custom(inputs=2, title="solve", internal=True)
def solved(a, b, turned=False):
    """turned: of the transposed matrix."""
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return on_host("solve", lapack_solve, (a, b), ((*batch, *b.shape[-2:]),), turned)


@solved.differentiable
def solved_dx(g, a, y, wanted, turned):
    db = solved(a, g, not turned)
    return neg(product(*((y, db) if turned else (db, y)), False, True)) if wanted[0] else None, db if wanted[1] else None


@composed(home="")
def solve(a: Any, b: Any) -> Any:
    """x with a @ x = b. Shapes: (..., n, n), and (..., n, m), or a vector (n,), or one vector for each matrix; x has that of b. Raises
    LinAlgError for a singular matrix, ShapeError.
    >>> fp.linalg.solve(fp.tensor([[2.0, 0.0], [0.0, 4.0]]), fp.tensor([2.0, 2.0])).tolist()
    [1.0, 0.5]"""
    return solved_for("solve", a, b, lambda a, b: solved(a, b, False))


def solved_for(name: str, a: Any, b: Any, how: Any, side: int = -2) -> Any:
    """What how(a, b) gives, where `side` of b is as long as a's sides."""
    a, b = tensors_of(name, a, b)
    a, b = matrices(name, a, square=True), matrices(name, b, least=1)
    n = a.shape[-1]
    vectors = side == -2 and a.ndim > 2 and b.shape == a.shape[:-1]
    if vectors and b.ndim > 1 and b.shape[-2] == n:
        raise ShapeError(f"{name}: a matrix, or a vector for each: {b.shape} for {a.shape}. Say which: b[..., None], or b[None].")
    vectors = vectors or b.ndim == 1
    x = reshape(b, (*b.shape, 1)) if vectors else b
    try:
        np.broadcast_shapes(a.shape[:-2], x.shape[:-2])
        fits = x.shape[side] == n
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(f"{name}: sizes differ: {a.shape} and {b.shape}. Use (..., n, n) and (..., n, m) or (n,).")
    y = how(a, x)
    return reshape(y, y.shape[:-1]) if vectors else y


# ---- triangles -----------------------------------------------------------------------------------------------------------------------
FEW = 1 << 15  # multiplications up to which plain substitution takes less time than LAPACK


def substitute_row(r, y, zeros, a, b, back, unit, n, m, down, across, step, apart, rows, cols):
    """Each lane has equations of its own; `zeros` are counted on the diagonal. How far numbers lie apart: of a column and a row of a, of
    one equation, of two."""
    a, b, y = a[r * n * n : r * n * n + n * n], b[r * cols : r * cols + cols], y[r * cols : r * cols + cols]
    if lane() == 0:
        found = 0
        for i in range(n):
            found += a[i * n + i] == 0.0
        zeros[r] = 0 if unit else found
    for c in range(lane(), m, lanes()):
        for k in range(n):
            i = n - 1 - k if back else k
            total = b[i * step + c * apart]
            for s in range(k):
                j = n - 1 - s if back else s
                total -= a[i * down + j * across] * y[j * step + c * apart]
            y[i * step + c * apart] = total if unit else total / a[i * down + i * across]


def lapack_triangle(a: np.ndarray, b: np.ndarray, upper: bool, unit: bool, turned: bool, right: bool) -> np.ndarray:
    """Of an upper triangle LAPACK exchanges no rows: plain substitution, as exact as the numbers allow. A lower one is turned round."""
    a = (np.triu if upper else np.tril)(a, (1 if upper else -1) * unit) + unit * np.eye(a.shape[-1], dtype=a.dtype)
    a, b = a.mT if turned != right else a, b.mT if right else b
    if upper == (turned != right):
        y = np.linalg.solve(a[..., ::-1, ::-1], b[..., ::-1, :])[..., ::-1, :]
    else:
        y = np.linalg.solve(a, b)
    return y.mT if right else y


@custom(inputs=2, title="solve_triangular", internal=True)
def substituted(a, b, upper=False, unit=False, turned=False, right=False):
    """x with t @ x = b, or x @ t = b if `right`; t: this triangle of a, transposed if `turned`, with ones on the diagonal if `unit`."""
    n, y = a.shape[-1], like(b)
    m = b.shape[-2 if right else -1]
    if n * n * m > FEW:
        return on_host("solve_triangular", lapack_triangle, (a, b), (b.shape,), upper, unit, turned, right)
    zeros, strides = like(a, a.shape[:-2], int64), (*((1, n) if turned != right else (n, 1)), *((1, n) if right else (m, 1)))
    over_rows(substitute_row, (y, zeros), (a, b), n * m, (upper != (turned != right), unit, n, m, *strides))
    if y.size and not unit:
        require_none("solve_triangular", "Singular matrix", a, zeros)
    return y


def require_none(name: str, problem: str, x: Any, wrong: Any) -> None:
    """Refuse these matrices unless the counts of what is wrong with each are 0."""
    text = f"{name}: {problem}: shape {x.shape}. {ADVICE}."

    def check(count: Any) -> None:
        if count.device.download(count)[0]:
            raise LinAlgError(text)

    if x.size:
        x.device.require(check, (wrong if wrong.size == 1 else sum_op(wrong)).buffer, within=((0, 0),))


@substituted.differentiable
def substituted_dx(g, a, y, wanted, upper, unit, turned, right):
    db = substituted(a, g, upper, unit, not turned, right)
    if not wanted[0]:
        return None, db
    left, other = (y, db) if turned != right else (db, y)
    da = (triu if upper else tril)(product(left, other, right, not right), diagonal=(1 if upper else -1) * unit)
    return neg(da), db if wanted[1] else None


@composed(home="")
def solve_triangular(a: Any, b: Any, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Any:
    """x with a @ x = b, of a only the upper or lower triangle is read; unitriangular: its diagonal counts as ones; left=False: x @ a = b.
    Shapes: as solve(). Raises LinAlgError, ShapeError.
    >>> fp.linalg.solve_triangular(fp.tensor([[2.0, 0.0], [2.0, 4.0]]), fp.tensor([[2.0], [2.0]]), upper=False).tolist()
    [[1.0], [0.0]]"""
    for name, flag in (("upper", upper), ("left", left), ("unitriangular", unitriangular)):
        check_flag("solve_triangular", name, flag)

    def how(a: Any, b: Any) -> Any:
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        a, b = broadcast_to(a, (*batch, *a.shape[-2:])), broadcast_to(b, (*batch, *b.shape[-2:]))
        return substituted(a, b, bool(upper), bool(unitriangular), False, not left)

    return solved_for("solve_triangular", a, b, how, -2 if left else -1)


# ---- determinants ------------------------------------------------------------------------------------------------------------------
@quiet
def determinant_change(g: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The derivative of the determinant y; of a singular matrix by singular values, each product without its own."""
    try:
        return (g * y)[..., None, None] * np.linalg.inv(x).mT
    except np.linalg.LinAlgError:
        u, s, vh = np.linalg.svd(x)
    others = np.stack([np.prod(np.delete(s, i, -1), -1) for i in range(s.shape[-1])], -1)
    turn = g * np.linalg.det(u) * np.linalg.det(vh)
    return turn[..., None, None] * (u * others[..., None, :]) @ vh


lapack_det, lapack_slogdet = quiet(np.linalg.det), quiet(np.linalg.slogdet)


@custom(inputs=1, title="det", internal=True)
def determinant(x):
    return on_host("det", lapack_det, (x,), (x.shape[:-2],))


determinant.backward(lambda g, x, y: on_host("det", determinant_change, (g, x, y), (x.shape,)))


@determinant.graph
def determinant_ddx(g, x, y):
    return mul(reshape(mul(g, y), (*g.shape, 1, 1)), transpose(inverse(x)))


@composed(home="")
def det(x: Any) -> Any:
    """The determinant of each matrix. Shapes: (..., n, n) gives (...). Raises ShapeError.
    >>> round(fp.linalg.det(fp.tensor([[1.0, 2.0], [3.0, 4.0]])).item(), 4)
    -2.0"""
    return determinant(matrices("det", x, square=True))


@custom(inputs=1, title="slogdet", internal=True)
def sign_and_log(x):
    return on_host("slogdet", lapack_slogdet, (x,), (x.shape[:-2], x.shape[:-2]))


sign_and_log.differentiable(lambda gs, x: None if gs[1] is None else mul(reshape(gs[1], (*gs[1].shape, 1, 1)), transpose(inverse(x))))


@composed(home="")
def slogdet(x: Any) -> tuple[Any, Any]:
    """(sign, logarithm of the absolute value) of the determinant of each matrix; the sign has no gradient. Shapes: (..., n, n) gives twice
    (...). Raises ShapeError.
    >>> [round(t.item(), 4) for t in fp.linalg.slogdet(fp.tensor([[2.0, 0.0], [0.0, -1.0]]))]
    [-1.0, 0.6931]"""
    sign, log = sign_and_log(matrices("slogdet", x, square=True))
    return sign.detach(), log


@composed(home="")
def matrix_power(x: Any, n: int) -> Any:
    """Each matrix n times multiplied with itself, by squares; below 0 its inverse. Shapes: (..., k, k). Raises LinAlgError, ShapeError.
    >>> fp.linalg.matrix_power(fp.tensor([[1.0, 1.0], [0.0, 1.0]]), 3).tolist()
    [[1.0, 3.0], [0.0, 1.0]]"""
    x, n = matrices("matrix_power", x, square=True), checked_int("matrix_power", "n", n)
    if n < 0:
        return matrix_power(inverse(x), -n)
    result = None
    while n:
        if n & 1:
            result = x if result is None else matmul(result, x)
        n >>= 1
        x = matmul(x, x) if n else x
    return where(False, x, diag_embed(filled(x.shape[:-1], 1, x.dtype, x.device))) if result is None else result
