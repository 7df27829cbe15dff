"""einsum and tensordot: sums of products over named axes, two tensors at a time, each pair as one stack of matrix products.

An axis has a label, any value. contracted() gives every operand each label once (repeated ones are a diagonal, a size of 1 beside a
larger one repeats), finds the order of the pairs that multiplies least, and makes of a pair

    labels in both and needed later   a stack            labels of one alone, needed later   rows, or columns
    labels in both, not needed        what is summed     labels of one alone, not needed     summed before
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

from ..core.errors import ShapeError
from ..core.inputs import common_dtype
from ..core.ops.axes import composed, one_axis, tensors_of
from ..core.ops.copy import cast
from ..core.ops.matrices import matmul, product
from ..core.ops.pointwise import mul
from ..core.ops.reduce import sum as sum_op
from ..core.ops.shape import contiguous_strides, permute, reshape
from ..core.tensor import Tensor
from ..dtypes import FLOATS, HALF, INTEGERS, checked_int
from .rearranging import strided
from .shape_more import shaped
from .widening import narrowed, widened

Labels = tuple[Any, ...]
EXACT = 6  # operands for which all orders are tried; more are paired greedily


class Named(NamedTuple):
    """A tensor and the label of each of its axes."""

    x: Any
    labels: Labels

    def moved(self, order: Labels) -> Any:
        """The tensor with its axes in this order."""
        return permute(self.x, tuple([self.labels.index(n) for n in order]))

    def kept(self, keep: set) -> Named:
        """Summed over the labels that nobody needs."""
        gone = tuple([i for i, n in enumerate(self.labels) if n not in keep])
        if not gone:
            return self
        return Named(summed_over(self.x, gone), tuple([n for n in self.labels if n in keep]))


# ---- a pair ------------------------------------------------------------------------------------------------------------------------
def pair(a: Named, b: Named, needed: set, out: Labels) -> Named:
    """The product of two, summed over the labels that are not needed; in the order of `out` where that is free."""
    a, b = a.kept({*b.labels} | needed), b.kept({*a.labels} | needed)
    rows, columns = ([n for n in x.labels if n not in y.labels] for x, y in ((a, b), (b, a)))
    if rows and columns and columns[0] in out and (rows[0] not in out or out.index(columns[0]) < out.index(rows[0])):
        a, b, rows, columns = b, a, columns, rows
    first = a if a.x.size >= b.x.size else b  # whose order the labels of both have
    stack = [n for n in first.labels if n in a.labels and n in b.labels and n in needed]
    summed = [n for n in first.labels if n in a.labels and n in b.labels and n not in needed]
    if not summed or (stack and not rows and not columns) or a.x.dtype not in FLOATS or b.x.dtype not in FLOATS:
        return multiplied(a, b, (*stack, *rows, *columns), summed)
    size = dict(zip((*a.labels, *b.labels), (*a.x.shape, *b.x.shape), strict=True))
    counts = [math.prod([size[n] for n in group]) for group in (stack, rows, summed, columns)]
    x, ta = matrix(a, stack, rows, summed, counts[: len(stack[:1])], counts[1], counts[2])
    w, tb = matrix(b, stack, summed, columns, counts[: len(stack[:1])], counts[2], counts[3])
    labels = (*stack, *rows, *columns)
    return Named(shaped(product(x, w, ta, tb), tuple([size[n] for n in labels])), labels)


def matrix(x: Named, stack: list, rows: list, columns: list, first: list, n: int, m: int) -> tuple[Any, bool]:
    """A stack of (n, m) matrices, or of their transposes where these lie there already; whether they are transposed."""
    turned = x.labels == (*stack, *columns, *rows) and x.labels != (*stack, *rows, *columns)
    moved = x.x if turned else x.moved((*stack, *rows, *columns))
    return shaped(moved, (*first, m, n) if turned else (*first, n, m)), turned


def multiplied(a: Named, b: Named, labels: Labels, summed: list) -> Named:
    """pair() element by element: nothing is summed, or too little for a product of matrices, or they are no floats."""
    order = (*labels, *summed)
    y = mul(*[spread(x, order) for x in (a, b)])
    return Named(summed_over(y, tuple(range(len(labels), len(order)))) if summed else y, labels)


def summed_over(x: Any, axes: tuple[int, ...]) -> Any:
    """The sum in x's type: products of integers keep theirs, as in NumPy, where sum() gives int64."""
    y = sum_op(x, axis=axes)
    return cast(y, x.dtype) if x.dtype in INTEGERS else y


def spread(x: Named, order: Labels) -> Any:
    """The tensor with a size of 1 at labels that it does not have."""
    own = x.moved(tuple([n for n in order if n in x.labels]))
    sizes = iter(own.shape)
    return reshape(own, tuple([next(sizes) if n in x.labels else 1 for n in order]))


# ---- several -----------------------------------------------------------------------------------------------------------------------
@lru_cache(1024)
def best_order(terms: tuple[frozenset, ...], out: frozenset, sizes: tuple[tuple[Any, int], ...]) -> tuple[tuple[int, int], ...]:
    """Which two to contract, as places in a list that loses both and gets the result at its end, again and again."""
    size = dict(sizes)

    def result(left: Sequence[frozenset], i: int, j: int) -> list[frozenset]:
        rest = [t for k, t in enumerate(left) if k not in (i, j)]
        return [*rest, (left[i] | left[j]) & out.union(*rest)]

    def cost(left: Sequence[frozenset], i: int, j: int) -> int:
        return math.prod([size[n] for n in left[i] | left[j]])

    def search(left: Sequence[frozenset]) -> tuple[float, tuple[tuple[int, int], ...]]:
        pairs = [(i, j) for j in range(len(left)) for i in range(j)]
        if not pairs:
            return 0, ()
        if len(left) > EXACT:
            pairs = [min(pairs, key=lambda p: cost(left, *p))]
        found = []
        for p in pairs:
            more, later = search(result(left, *p))
            found.append((cost(left, *p) + more, (p, *later)))
        return min(found)

    return search(terms)[1]


def contracted(name: str, operands: Sequence[Named], out: Labels) -> Any:
    """The sum over all labels that are not in `out` of the product of the operands, its axes in the order of `out`. Raises ShapeError."""
    size: dict[Any, int] = {}
    for x in operands:
        for n, m in zip(x.labels, x.x.shape, strict=True):
            if size.setdefault(n, m) != m and 1 not in (m, size[n]):
                shapes = [x.x.shape for x in operands]
                raise ShapeError(f"{name}: sizes of an axis differ: '{n}' is {size[n]} and {m} in {shapes}. Make them equal, or 1.")
            size[n] = m if size[n] == 1 else size[n]
    left = [each_once(name, x, size) for x in operands]
    dtype = None if rounded_once(left, {*out}) else common_dtype(name, [x.x for x in left], "float")
    if dtype is not None:
        left = [Named(widened(x.x), x.labels) for x in left]
    for i, j in best_order(tuple([frozenset(x.labels) for x in left]), frozenset(out), tuple(size.items())):
        a, b = left[i], left[j]
        left = [x for k, x in enumerate(left) if k not in (i, j)]
        left.append(pair(a, b, {*out}.union(*[x.labels for x in left]), out))
    y = left[0].kept({*out}).moved(out)
    return y if dtype is None else narrowed(y, dtype)


def rounded_once(xs: Sequence[Named], out: set) -> bool:
    """Whether these are no 16-bit floats, or one op is all there is."""
    if len(xs) == 1 or not any([x.x.dtype in HALF for x in xs]):
        return True
    a, b = {*xs[0].labels}, {*xs[1].labels}
    both, alone = a & b, a ^ b
    return len(xs) == 2 and alone <= out and (both <= out or bool(alone) or not both & out)


def each_once(name: str, x: Named, size: dict[Any, int]) -> Named:
    """The diagonal along labels that come twice; without axes of size 1 that stand beside larger ones. Raises ShapeError."""
    labels, own = tuple(dict.fromkeys(x.labels)), dict(zip(x.labels, x.x.shape, strict=True))
    if len(labels) < len(x.labels):
        if any([own[n] != m for n, m in zip(x.labels, x.x.shape, strict=True)]):
            raise ShapeError(f"{name}: no diagonal: {x.labels} of shape {x.x.shape}. Use one letter for axes of one size.")
        step = dict.fromkeys(labels, 0)
        for n, s in zip(x.labels, contiguous_strides(x.x.shape), strict=True):
            step[n] += s
        x = Named(strided(x.x, tuple([own[n] for n in labels]), tuple([step[n] for n in labels]), 0), labels)
    stay = tuple([n for n in labels if own[n] == size[n]])
    return Named(reshape(x.x, tuple([own[n] for n in stay])), stay) if len(stay) < len(labels) else x


# ---- einsum ------------------------------------------------------------------------------------------------------------------------
def labels_of(term: str, ndim: int, subscripts: str) -> Labels:
    """The labels of one operand, ints for the axes of an ellipsis, counted from the right. Raises ShapeError."""
    before, dots, after = term.partition("...")
    count = ndim - len(before) - len(after)
    letters = before + after
    if "." in letters or not (letters.isascii() and (letters.isalpha() or not letters)):
        raise ShapeError(f"einsum: not letters and one '...': '{term}' in '{subscripts}'. Write a letter for each axis.")
    if count < 0 or (count and not dots):
        raise ShapeError(f"einsum: not a letter for each axis: '{term}' in '{subscripts}' for {ndim} axes. Write as many.")
    return (*before, *range(-count, 0), *after)


@composed
def einsum(subscripts: str, *operands: Any) -> Any:
    """The sum of products that the subscripts say: einsum("bij,bjk->bik", x, y) multiplies stacks of matrices.
    A letter names an axis; those that do not stand after "->" are summed over. "..." stands for further axes, which broadcast. Without "->"
    the result has the letters that come once, in the order of the alphabet, after those of "...". A letter twice in one operand: its
    diagonal. Operands may come as one list. The order of several is chosen so that little is multiplied.
    Shapes: sizes of one letter must be equal or 1. Raises ShapeError.
    >>> fp.einsum("ij,j->i", fp.tensor([[1.0, 2.0], [3.0, 4.0]]), fp.tensor([1.0, 10.0])).tolist()
    [21.0, 43.0]"""
    if not isinstance(subscripts, str):
        raise ShapeError(f"einsum: subscripts come first, as text: {type(subscripts).__name__}. Write einsum('ij,jk->ik', x, y).")
    given = operands[0] if len(operands) == 1 and isinstance(operands[0], list | tuple) else operands
    xs = tensors_of("einsum", *given)
    inputs, arrow, output = subscripts.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if len(terms) != len(xs) or not xs:
        raise ShapeError(f"einsum: {len(terms)} operands in '{subscripts}', given: {len(xs)}. Give one for each part between commas.")
    named = [Named(x, labels_of(term, x.ndim, subscripts)) for term, x in zip(terms, xs, strict=True)]
    every = [n for x in named for n in x.labels]
    dots = tuple(sorted({n for n in every if isinstance(n, int)}))
    if not arrow:
        out: Labels = (*dots, *sorted([n for n in {*every} if isinstance(n, str) and every.count(n) == 1]))
    else:
        out = labels_of(output, len(output.replace("...", "")) + (len(dots) if "..." in output else 0), subscripts)
    if len({*out}) < len(out) or not {*out} <= {*every}:
        raise ShapeError(
            f"einsum: the result has a letter twice, or an unknown one: '{subscripts}'. Use letters of the operands, each once."
        )
    return contracted("einsum", named, out)


@composed
def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    """The sum of products over several axes of both: the last `axes` of a with the first of b, or those that two lists name.
    Shapes: the others of a, then of b. Raises ShapeError, IndexOutOfRange.
    >>> fp.tensordot(fp.ones(2, 3), fp.ones(3, 4), 1).shape
    (2, 4)"""
    a, b = tensors_of("tensordot", a, b)
    if isinstance(axes, tuple | list) and len(axes) == 2:
        mine, others = ([one_axis("tensordot", d, x.ndim) for d in (g if isinstance(g, tuple | list) else (g,))]
                        for g, x in zip(axes, (a, b), strict=True))  # fmt: skip
    else:
        n = checked_int("tensordot", "axes", axes)
        if not 0 <= n <= min(a.ndim, b.ndim):
            raise ShapeError(f"tensordot: not so many axes: {n} of {a.shape} and {b.shape}. Use {min(a.ndim, b.ndim)} at most.")
        mine, others = [*range(a.ndim - n, a.ndim)], [*range(n)]
    if len(mine) != len(others) or len({*mine}) < len(mine) or len({*others}) < len(others):
        raise ShapeError(f"tensordot: axes do not fit: {mine} of {a.shape}, {others} of {b.shape}. Name as many, each once.")
    first = [("a", d) for d in range(a.ndim)]
    second = [first[mine[others.index(d)]] if d in others else ("b", d) for d in range(b.ndim)]
    out = [*[n for d, n in enumerate(first) if d not in mine], *[n for n in second if n[0] == "b"]]
    return contracted("tensordot", [Named(a, tuple(first)), Named(b, tuple(second))], tuple(out))


@composed
def inner(a: Any, b: Any) -> Any:
    """The sum of products over the last axes of both; a number multiplies. Shapes: (..., k), (*, k) give (..., *). Raises ShapeError.
    >>> fp.inner(fp.tensor([1.0, 2.0]), fp.tensor([3.0, 4.0])).item()
    11.0"""
    a, b = tensors_of("inner", a, b)
    return tensordot(a, b, ((-1,), (-1,))) if a.ndim and b.ndim else mul(a, b)


@composed
def multi_dot(tensors: Any) -> Any:
    """The product of two or more matrices in the order that multiplies least; the first and the last may be vectors. Also in linalg.
    Shapes: (n, k), (k, m), (m, p) give (n, p). Raises ShapeError.
    >>> fp.multi_dot([fp.ones(2, 3), fp.ones(3, 4), fp.ones(4)]).tolist()
    [12.0, 12.0]"""
    xs = tensors_of("multi_dot", *tensors)
    ends = {0, len(xs) - 1}
    if len(xs) < 2 or any([x.ndim not in ((1, 2) if i in ends else (2,)) for i, x in enumerate(xs)]):
        raise ShapeError(f"multi_dot: no chain of matrices: {[x.shape for x in xs]}. Pass two or more, only the ends may be vectors.")
    labels: list[tuple[int, ...]] = [(i, i + 1) for i in range(len(xs))]
    labels[0], labels[-1] = labels[0][-xs[0].ndim :], labels[-1][: xs[-1].ndim]
    for x, y in pairwise(xs):
        if x.shape[-1] != y.shape[0]:
            raise ShapeError(
                f"multi_dot: inner sizes differ: {[x.shape for x in xs]}. Each needs as many rows as the one before has columns."
            )
    out = [n for n in (0, len(xs)) if any([n in names for names in labels])]
    return matmul(*xs) if len(xs) == 2 else contracted("multi_dot", [Named(x, n) for x, n in zip(xs, labels, strict=True)], tuple(out))


@composed
def chain_matmul(*matrices: Any) -> Any:
    """multi_dot() of matrices given one by one. Shapes: as there.
    >>> fp.chain_matmul(fp.ones(2, 3), fp.ones(3, 4)).shape
    (2, 4)"""
    xs = tensors_of("chain_matmul", *matrices)
    return multi_dot(xs) if len(xs) > 1 else Tensor.of("chain_matmul", *xs)
