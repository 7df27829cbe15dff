"""Inverses, systems of equations, determinants. Derivatives: Giles 2008, "Collected matrix derivative results"."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.custom import custom
from ..core.errors import ShapeError
from ..core.ops.axes import tensors_of
from ..core.ops.matrices import matmul
from ..core.ops.pointwise import mul, neg, where
from ..core.ops.shape import reshape, transpose
from ..dtypes import checked_int
from ..ops.shape_more import tril, triu
from .host import matrices, on_host


@custom(inputs=1, title="inv", internal=True)
def inverse(x):
    return on_host("inv", np.linalg.inv, (x,), (x.shape,))


inverse.differentiable(lambda g, y: neg(matmul(matmul(transpose(y), g), transpose(y))))


def inv(x: Any) -> Any:
    """The inverse of each matrix. Shapes: (..., n, n). Raises LinAlgError for a singular one, ShapeError.
    >>> fp.linalg.inv(fp.tensor([[2.0, 0.0], [0.0, 4.0]])).tolist()
    [[0.5, 0.0], [0.0, 0.25]]"""
    return inverse(matrices("inv", x, square=True))


def lapack_lower(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Turned round it is an upper triangle, of which LAPACK exchanges no rows: plain substitution, as exact as the numbers allow."""
    return np.linalg.solve(a[..., ::-1, ::-1], b[..., ::-1, :])[..., ::-1, :]


@custom(inputs=2, title="solve", internal=True)
def solved(a, b, triangle=0):
    """triangle: 1 where a is an upper one, -1 for a lower one."""
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    compute = lapack_lower if triangle < 0 else np.linalg.solve
    return on_host("solve_triangular" if triangle else "solve", compute, (a, b), ((*batch, *b.shape[-2:]),))


@solved.differentiable
def solved_dx(g, a, y, triangle, wanted):
    db = solved(transpose(a), g, triangle=-triangle)
    return neg(matmul(db, transpose(y))) if wanted[0] else None, db if wanted[1] else None


def solve(a: Any, b: Any) -> Any:
    """x with a @ x = b. Shapes: (..., n, n), and (..., n, m), or a vector (n,), or one vector for each matrix; x has that of b. Raises
    LinAlgError for a singular matrix, ShapeError.
    >>> fp.linalg.solve(fp.tensor([[2.0, 0.0], [0.0, 4.0]]), fp.tensor([2.0, 2.0])).tolist()
    [1.0, 0.5]"""
    return solved_for("solve", a, b, lambda x: x, 0)


def solved_for(name: str, a: Any, b: Any, prepared: Any, triangle: int) -> Any:
    a, b = tensors_of(name, a, b)
    a, b = matrices(name, a, square=True), matrices(name, b, least=1)
    n = a.shape[-1]
    vectors = a.ndim > 2 and b.ndim == a.ndim - 1 and b.shape == a.shape[:-1]
    if vectors and b.ndim > 1 and b.shape[-2] == n:
        raise ShapeError(f"{name}: a matrix, or a vector for each: {b.shape} for {a.shape}. Say which: b[..., None], or b[None].")
    vectors = vectors or b.ndim == 1
    x = reshape(b, (*b.shape, 1)) if vectors else b
    try:
        np.broadcast_shapes(a.shape[:-2], x.shape[:-2])
        fits = x.shape[-2] == n
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(f"{name}: sizes differ: {a.shape} and {b.shape}. Use (..., n, n) and (..., n, m) or (n,).")
    y = solved(prepared(a), x, triangle)
    return reshape(y, y.shape[:-1]) if vectors else y


def solve_triangular(a: Any, b: Any, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Any:
    """x with a @ x = b, of a only the upper or lower triangle is read; unitriangular: its diagonal counts as ones; left=False: x @ a = b.
    Shapes: as solve(). Raises LinAlgError, ShapeError.
    >>> fp.linalg.solve_triangular(fp.tensor([[2.0, 0.0], [2.0, 4.0]]), fp.tensor([[2.0], [2.0]]), upper=False).tolist()
    [[1.0], [0.0]]"""

    def triangle(x: Any) -> Any:
        y = (triu if upper else tril)(x, diagonal=(1 if upper else -1) if unitriangular else 0)
        return y + identity(x) if unitriangular else y

    if not left:
        a, b = tensors_of("solve_triangular", a, b)
        return transpose(solve_triangular(transpose(a), transpose(b), upper=not upper, unitriangular=unitriangular))
    return solved_for("solve_triangular", a, b, triangle, 1 if upper else -1)


def identity(x: Any) -> Any:
    """The identity that fits x."""
    return tensors_of("eye", x, np.eye(x.shape[-1], dtype=x.dtype))[1]


# ---- determinants ------------------------------------------------------------------------------------------------------------------
def cofactors(x: np.ndarray) -> np.ndarray:
    """The derivative of the determinant, of singular matrices too: by singular values, each product without its own."""
    u, s, vh = np.linalg.svd(x)
    n = s.shape[-1]
    others = np.stack([np.prod(np.delete(s, i, -1), -1) for i in range(n)], -1) if n else s
    turn = np.linalg.det(u) * np.linalg.det(vh)
    return turn[..., None, None] * (u * others[..., None, :]) @ vh


@custom(inputs=1, title="det", internal=True)
def determinant(x):
    return on_host("det", np.linalg.det, (x,), (x.shape[:-2],))


@determinant.backward
def determinant_dx(g, x, y):
    return mul(reshape(g, (*g.shape, 1, 1)), on_host("det", cofactors, (x,), (x.shape,)))


@determinant.graph
def determinant_ddx(g, x, y):
    return mul(reshape(mul(g, y), (*g.shape, 1, 1)), transpose(inverse(x)))


def det(x: Any) -> Any:
    """The determinant of each matrix. Shapes: (..., n, n) gives (...). Raises ShapeError.
    >>> round(fp.linalg.det(fp.tensor([[1.0, 2.0], [3.0, 4.0]])).item(), 4)
    -2.0"""
    return determinant(matrices("det", x, square=True))


@custom(inputs=1, title="slogdet", internal=True)
def sign_and_log(x):
    return on_host("slogdet", lapack_slogdet, (x,), (x.shape[:-2], x.shape[:-2]))


def lapack_slogdet(x: np.ndarray) -> tuple:
    return tuple(np.linalg.slogdet(x))


sign_and_log.differentiable(lambda gs, x: None if gs[1] is None else mul(reshape(gs[1], (*gs[1].shape, 1, 1)), transpose(inverse(x))))


def slogdet(x: Any) -> tuple[Any, Any]:
    """(sign, logarithm of the absolute value) of the determinant of each matrix; the sign has no gradient. Shapes: (..., n, n) gives twice
    (...). Raises ShapeError.
    >>> [round(t.item(), 4) for t in fp.linalg.slogdet(fp.tensor([[2.0, 0.0], [0.0, -1.0]]))]
    [-1.0, 0.6931]"""
    sign, log = sign_and_log(matrices("slogdet", x, square=True))
    return sign.detach(), log


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
    return where(False, x, identity(x)) if result is None else result
