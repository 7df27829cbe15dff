"""Products under the names that vectors and matrices have in NumPy and PyTorch: dot, outer, kron, cross, mv, addmm and their like."""

from __future__ import annotations

from typing import Any

from ..backend.formula.row_words import lane, lanes
from ..core.custom import custom
from ..core.errors import DTypeError, ShapeError
from ..core.inputs import common_dtype
from ..core.op import like
from ..core.ops.axes import composed, one_axis, tensors_of
from ..core.ops.matrices import cotangents, matmul, product
from ..core.ops.pointwise import add, mul, sub, where
from ..core.ops.shape import reshape
from ..core.words import select
from ..dtypes import FLOATS, is_number
from ..engine.autocast import here
from .contractions import einsum
from .rearranging import roll
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
