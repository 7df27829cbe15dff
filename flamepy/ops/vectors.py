"""Products under the names that vectors and matrices have in NumPy and PyTorch: dot, outer, kron, cross, mv, addmm and their like;
distances of points."""

from __future__ import annotations

import math
from typing import Any

from ..backend.formula.row_words import lane, lanes
from ..core.custom import custom
from ..core.errors import DTypeError, ShapeError
from ..core.inputs import common_dtype, common_shape
from ..core.op import like
from ..core.ops.axes import composed, one_axis, tensors_of
from ..core.ops.matrices import cotangents, matmul, product
from ..core.ops.pointwise import abs_op, add, div, eq, mul, sub, where
from ..core.ops.reduce import max as max_op
from ..core.ops.reduce import sum as sum_op
from ..core.ops.shape import broadcast_to, reshape, transpose
from ..core.words import abs, select, sqrt
from ..dtypes import FLOATS, is_number
from ..engine.autocast import here
from .contractions import einsum
from .powers import pow as pow_op
from .rearranging import roll
from .reduce_more import floats_only
from .rows import over_rows
from .widening import narrowed, widened


# ---- vectors -----------------------------------------------------------------------------------------------------------------------
@composed
def dot(a: Any, b: Any) -> Any:
    """The sum of products of two vectors, the product of two matrices, as in NumPy; a number multiplies, stacks of matrices are multiplied
    one by one: see matmul(). Shapes: (k,), (k,) give (). Raises ShapeError.
    >>> fp.dot(fp.tensor([1.0, 2.0]), fp.tensor([3.0, 4.0])).item()
    11.0"""
    a, b = tensors_of("dot", a, b)
    if a.ndim and b.ndim:
        floats = a.dtype in FLOATS or b.dtype in FLOATS or a.ndim != 1 or b.ndim != 1
        return matmul(a, b) if floats else einsum("i,i", a, b)
    return mul(a, b)


@composed
def vdot(a: Any, b: Any) -> Any:
    """dot() of all elements of both. Shapes: as many elements, else ShapeError; gives ().
    >>> fp.vdot(fp.tensor([[1.0, 2.0]]), fp.tensor([[3.0], [4.0]])).item()
    11.0"""
    a, b = tensors_of("vdot", a, b)
    return dot(*[x if x.ndim == 1 else reshape(x, (x.size,)) for x in (a, b)])


@composed
def outer(a: Any, b: Any) -> Any:
    """All products of an element of a and one of b. Shapes: n and m elements give (n, m).
    >>> fp.outer(fp.tensor([1, 2]), fp.tensor([3, 4])).tolist()
    [[3, 4], [6, 8]]"""
    a, b = tensors_of("outer", a, b)
    return mul(reshape(a, (a.size, 1)), reshape(b, (1, b.size)))


@composed
def kron(a: Any, b: Any) -> Any:
    """Kronecker's product: each element of a times all of b. Shapes: (n, m), (p, q) give (n p, m q).
    >>> fp.kron(fp.tensor([1, 10]), fp.tensor([1, 2])).tolist()
    [1, 2, 10, 20]"""
    a, b = tensors_of("kron", a, b)
    n = max(a.ndim, b.ndim)
    one, two = [(1,) * (n - x.ndim) + x.shape for x in (a, b)]
    wide, narrow = sum([(m, 1) for m in one], ()), sum([(1, m) for m in two], ())
    return reshape(mul(reshape(a, wide), reshape(b, narrow)), tuple([p * q for p, q in zip(one, two, strict=True)]))


def cross_row(r, y, a, b, rows, cols):
    for j in range(lane(), 3, lanes()):
        p, q = 3 * r + (j + 1) % 3, 3 * r + (j + 2) % 3
        u, v = a[p] * b[q], a[q] * b[p]
        y[3 * r + j] = select(u == v, u * 0, u - v)  # exactly 0 for a x a, where products may be fused


@custom(inputs=2, kind="number", title="cross", internal=True)
def crossed(a, b):
    """cross() along the last axis, of one shape and type."""
    y = like(a)
    over_rows(cross_row, (y,), (a, b), 3)
    return y


crossed.differentiable(lambda g, a, b, wanted: (crossed(b, g) if wanted[0] else None, crossed(g, a) if wanted[1] else None))


@composed
def cross(a: Any, b: Any, axis: int = -1) -> Any:
    """The vector at right angles to two in space. Shapes: they broadcast, with 3 at the axis, else ShapeError.
    >>> fp.cross(fp.tensor([1.0, 0.0, 0.0]), fp.tensor([0.0, 1.0, 0.0])).tolist()
    [0.0, 0.0, 1.0]"""
    a, b = tensors_of("cross", a, b)
    dtype, (a, b) = common_dtype("cross", (a, b), "number"), [widened(x) for x in (a, b)]
    places = [one_axis("cross", axis, x.ndim) for x in (a, b)]
    if any([not x.ndim or x.shape[d] != 3 for x, d in zip((a, b), places, strict=True)]):
        raise ShapeError(f"cross: not 3 numbers along the axis: {a.shape} and {b.shape}, axis {axis}. Pass vectors in space.")
    if a.shape == b.shape and places[0] == a.ndim - 1 and a.dtype == b.dtype:
        return narrowed(crossed(a, b), dtype)
    (a1, a2), (b1, b2) = [[roll(x, -k, d) for k in (1, 2)] for x, d in zip((a, b), places, strict=True)]
    return narrowed(sub(mul(a1, b2), mul(a2, b1)), dtype)


# ---- matrices, by name -------------------------------------------------------------------------------------------------------------
def of_axes(name: str, *pairs: tuple[Any, int]) -> list[Any]:
    """The tensors, if each has so many axes. Raises ShapeError."""
    xs = tensors_of(name, *[x for x, _ in pairs])
    if any([x.ndim != n for x, (_, n) in zip(xs, pairs, strict=True)]):
        raise ShapeError(f"{name}: takes tensors of {[n for _, n in pairs]} axes: {[x.shape for x in xs]}. Use matmul() for others.")
    return xs


@composed
def mv(a: Any, b: Any) -> Any:
    """A matrix times a vector. Shapes: (n, k), (k,) give (n,), else ShapeError.
    >>> fp.mv(fp.ones(2, 3), fp.ones(3)).tolist()
    [3.0, 3.0]"""
    return matmul(*of_axes("mv", (a, 2), (b, 1)))


@composed
def mm(a: Any, b: Any) -> Any:
    """The product of two matrices. Shapes: (n, k), (k, m) give (n, m), else ShapeError.
    >>> fp.mm(fp.ones(2, 3), fp.ones(3, 1)).tolist()
    [[3.0], [3.0]]"""
    return matmul(*of_axes("mm", (a, 2), (b, 2)))


@composed
def bmm(a: Any, b: Any) -> Any:
    """The products of two stacks of as many matrices. Shapes: (s, n, k), (s, k, m) give (s, n, m), else ShapeError.
    >>> fp.bmm(fp.ones(2, 1, 3), fp.ones(2, 3, 1)).tolist()
    [[[3.0]], [[3.0]]]"""
    a, b = of_axes("bmm", (a, 3), (b, 3))
    if a.shape[0] != b.shape[0]:
        raise ShapeError(f"bmm: not as many matrices: {a.shape} and {b.shape}. Use matmul(), which broadcasts.")
    return matmul(a, b)


@custom(inputs=3, kind="as is", title="matmul", internal=True)
def added_product(x, a, b, name="", beta=1, alpha=1):
    """beta x + alpha times the product of that name; with beta 0 x is not looked at."""
    y = scaled(TIMES[name](a, b), alpha)
    if y.shape != (found := add(scaled(x, beta), y)).shape:
        raise ShapeError(f"{name}: what is added has another shape than the product: {x.shape}, {y.shape}. It must broadcast to that.")
    return found


def scaled(x: Any, factor: float) -> Any:
    return where(False, x, 0) if factor == 0 else x if factor == 1 else mul(x, factor)


@added_product.differentiable
def added_product_dx(g, a, b, wanted, shapes, name, beta, alpha):
    dy = mul(g, alpha) if alpha != 1 and any(wanted[1:]) else g
    if name != "addr":
        return scaled(g, beta), *cotangents(product, dy, a, b, wanted[1:], shapes[1:], False, False)
    return scaled(g, beta), product(dy, b, False, False) if wanted[1] else None, product(dy, a, True, False) if wanted[2] else None


def added(name: str, x: Any, a: Any, b: Any, beta: float, alpha: float) -> Any:
    """added_product() of what has been checked. 16-bit floats are rounded once."""
    for what, value in (("beta", beta), ("alpha", alpha)):
        if not is_number(value):
            raise DTypeError(f"{name}: {what} is no number: {value!r}. Use a float.")
    x, a, b = tensors_of(name, x, a, b)
    dtype, (x, a, b) = common_dtype(name, (x, a, b), "number"), [widened(t) for t in (x, a, b)]
    run = added_product if here.dtype is None else added_product.body  # of which autocast() sees the parts
    return narrowed(run(x, a, b, name, beta, alpha), dtype)


@composed
def addmm(x: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    """beta x + alpha a @ b. Shapes: (n, k), (k, m) give (n, m), to which x broadcasts, else ShapeError.
    >>> fp.addmm(fp.tensor([1.0]), fp.ones(1, 3), fp.ones(3, 2)).tolist()
    [[4.0, 4.0]]"""
    return added("addmm", x, a, b, beta, alpha)


@composed
def addmv(x: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    """beta x + alpha a @ b, of a matrix and a vector. Shapes: (n, k), (k,) give (n,), to which x broadcasts, else ShapeError.
    >>> fp.addmv(fp.tensor([1.0]), fp.ones(2, 3), fp.ones(3)).tolist()
    [4.0, 4.0]"""
    return added("addmv", x, a, b, beta, alpha)


@composed
def addr(x: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    """beta x + alpha outer(a, b). Shapes: (n,), (m,) give (n, m), to which x broadcasts, else ShapeError.
    >>> fp.addr(fp.tensor([1.0]), fp.ones(2), fp.ones(1)).tolist()
    [[2.0], [2.0]]"""
    a, b = of_axes("addr", (a, 1), (b, 1))
    return added("addr", x, a, b, beta, alpha)


@composed
def baddbmm(x: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    """beta x + alpha a @ b, of stacks. Shapes: (s, n, k), (s, k, m) give (s, n, m), to which x broadcasts, else ShapeError.
    >>> fp.baddbmm(fp.tensor([1.0]), fp.ones(2, 1, 3), fp.ones(2, 3, 1)).tolist()
    [[[4.0]], [[4.0]]]"""
    return added("baddbmm", x, a, b, beta, alpha)


@composed
def addbmm(x: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    """beta x + alpha times the sum of the products of two stacks. Shapes: (s, n, k), (s, k, m) give (n, m), to which x broadcasts.
    >>> fp.addbmm(fp.tensor([1.0]), fp.ones(2, 1, 3), fp.ones(2, 3, 1)).tolist()
    [[7.0]]"""
    a, b = of_axes("addbmm", (a, 3), (b, 3))
    return added("addbmm", x, a, b, beta, alpha)


TIMES = {"addmm": mm, "addmv": mv, "addr": outer, "baddbmm": bmm, "addbmm": lambda a, b: einsum("snk,skm->nm", a, b)}


# ---- distances ---------------------------------------------------------------------------------------------------------------------
def distance_row(r, y, a, b, one, n, d, rows, cols):
    """Distances of one point from `cols` others, which lie turned, (d, cols), as many for each n points; four numbers of each at once."""
    y, a, b = y[r * cols : r * cols + cols], a[r * d : r * d + d], b[r // n * d * cols : (r // n + 1) * d * cols]
    for j in range(lane(), cols, lanes()):
        y[j] = 0.0
    for k in range(0, d // 4 * 4, 4):
        b0, b1, b2, b3 = b[k * cols :], b[(k + 1) * cols :], b[(k + 2) * cols :], b[(k + 3) * cols :]
        for j in range(lane(), cols, lanes()):
            two, more = gap(a[k] - b0[j], one) + gap(a[k + 1] - b1[j], one), gap(a[k + 2] - b2[j], one) + gap(a[k + 3] - b3[j], one)
            y[j] += two + more
    for k in range(d // 4 * 4, d):
        b0 = b[k * cols :]
        for j in range(lane(), cols, lanes()):
            y[j] += gap(a[k] - b0[j], one)
    for j in range(lane(), cols if one is None else 0, lanes()):
        y[j] = sqrt(y[j])


def distance_dx_row(r, dx, a, b, w, one, n, m, rows, cols):
    """The sum of w[j] times the slope of the distance from each of m points b[j], for one of n points."""
    dx, a, w = dx[r * cols : r * cols + cols], a[r * cols : r * cols + cols], w[r * m : r * m + m]
    b = b[r // n * m * cols : (r // n + 1) * m * cols]
    for k in range(lane(), cols, lanes()):
        dx[k] = 0.0
    for j in range(0, m // 4 * 4, 4):
        b0, b1, b2, b3 = b[j * cols :], b[(j + 1) * cols :], b[(j + 2) * cols :], b[(j + 3) * cols :]
        for k in range(lane(), cols, lanes()):
            two = w[j] * slope(a[k] - b0[k], one) + w[j + 1] * slope(a[k] - b1[k], one)
            dx[k] += two + (w[j + 2] * slope(a[k] - b2[k], one) + w[j + 3] * slope(a[k] - b3[k], one))
    for j in range(m // 4 * 4, m):
        b0 = b[j * cols :]
        for k in range(lane(), cols, lanes()):
            dx[k] += w[j] * slope(a[k] - b0[k], one)


def gap(v, one):
    return v * v if one is None else abs(v)


def slope(v, one):
    return v if one is None else select(v > 0.0, 1.0, select(v < 0.0, -1.0, v))


@custom(inputs=2, kind="as is", title="cdist", internal=True)
def distances(a, b, one=None):
    """cdist() of (s, n, d) and (s, m, d) in the 2-norm, or where `one` is a number the 1-norm."""
    y = like(a, (*a.shape[:2], b.shape[1]))
    over_rows(distance_row, (y,), (a, transpose(b), one), y.shape[2], a.shape[1:])
    return y


@distances.backward
def distances_dx(g, a, b, y, wanted, one):
    w, (n, m) = g if one else div(g, where(eq(y, 0.0), 1.0, y)), y.shape[1:]
    dx = [like(x) if want else None for x, want in zip((a, b), wanted, strict=True)]
    if wanted[0]:
        over_rows(distance_dx_row, dx[:1], (a, b, w, one), a.shape[2], (n, m))
    if wanted[1]:
        over_rows(distance_dx_row, dx[1:], (b, a, transpose(w), one), a.shape[2], (m, n))
    return tuple(dx)


@distances.graph
def distances_ddx(g, a, b, y, one):
    w, (s, m, size) = g if one else div(g, where(eq(y, 0.0), 1.0, y)), b.shape
    d = sub(reshape(a, (s, -1, 1, size)), reshape(b, (s, 1, m, size)))
    each = mul(reshape(w, (*w.shape, 1)), d.sign() if one else d)
    return sum_op(each, axis=2), mul(sum_op(each, axis=1), -1.0)


@composed
def cdist(a: Any, b: Any, p: float = 2.0) -> Any:
    """Distances of each point of a from each of b in the p-norm, p from 0 (how many numbers differ) to infinity; the gradient where two are
    equal is 0. Differences are made one by one: nothing cancels. For other p than 1 and 2 there are (..., n, m, d) of them at once.
    Shapes: (..., n, d), (..., m, d) give (..., n, m); leading axes broadcast. Raises ShapeError, ValueError for p below 0.
    >>> fp.cdist(fp.tensor([[0.0, 0.0]]), fp.tensor([[3.0, 4.0]])).tolist()
    [[5.0]]"""
    a, b = [floats_only("cdist", x) for x in tensors_of("cdist", a, b)]
    if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-1]:
        raise ShapeError(f"cdist: points do not fit: {a.shape} and {b.shape}. Use (..., n, d) and (..., m, d).")
    if not is_number(p) or not p >= 0:
        raise ValueError(f"cdist: no norm: p={p!r}. Use a number of 0 or more, or infinity.")
    dtype, (a, b) = common_dtype("cdist", (a, b), "float"), [widened(x) for x in (a, b)]
    if p in (1, 2) and a.size and b.size:
        lead = common_shape("cdist", (a.shape[:-2], b.shape[:-2]))
        stacks = [reshape(broadcast_to(x, (*lead, *x.shape[-2:])), (-1, *x.shape[-2:])) for x in (a, b)]
        y = distances(*stacks, 1.0 if p == 1 else None)
        return narrowed(reshape(y, (*lead, *y.shape[1:])), dtype)
    d = sub(reshape(a, (*a.shape[:-1], 1, a.shape[-1])), reshape(b, (*b.shape[:-2], 1, *b.shape[-2:])))
    d = abs_op(d)
    if p == 0:
        return narrowed(sum_op(d.sign(), axis=-1), dtype)
    if p in (1, math.inf):
        return narrowed(max_op(d, axis=-1) if p != 1 and d.shape[-1] else sum_op(d, axis=-1), dtype)
    apart = d > 0
    total = sum_op(where(apart, pow_op(where(apart, d, 1.0), p), 0.0), axis=-1)
    some = total > 0
    return narrowed(where(some, pow_op(where(some, total, 1.0), 1.0 / p), 0.0), dtype)
