# Written by tools/make_stubs.py, not by hand.
# fmt: off
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..tensors import Tensor
from .copy import copy_into as copy_into
from .copy import filled as filled
from .copy import move as move
from .picking import getitem as getitem

TensorLike: TypeAlias = Tensor | NDArray[Any] | np.generic | float | list[Any]
Axis: TypeAlias = int | Sequence[int] | None
Pair: TypeAlias = int | Sequence[int]

# flamepy/core/ops/pointwise.py: "abs"
def abs(x: TensorLike, /) -> Tensor:
    """|x|; the derivative at 0 is 0.

    Shapes: any; the result has that of x.
    Types: floats and integers; bools are computed in int64.
    Formula: y = abs(x)
    Derivative from g, the cotangent of y: dx = g * sign(x)
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.abs(fp.tensor([-1.5, 1.5])).tolist()]
    [1.5, 1.5]
    """

# flamepy/core/ops/pointwise.py: "abs"
def absolute(x: TensorLike, /) -> Tensor:
    """|x|; the derivative at 0 is 0.

    Shapes: any; the result has that of x.
    Types: floats and integers; bools are computed in int64.
    Formula: y = abs(x)
    Derivative from g, the cotangent of y: dx = g * sign(x)
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.abs(fp.tensor([-1.5, 1.5])).tolist()]
    [1.5, 1.5]
    """

# flamepy/ops/trigonometry.py: "acos"
def acos(x: TensorLike, /) -> Tensor:
    """Angle in [0, pi] whose cosine is x; NaN outside [-1, 1].

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = acos_of(x)
    Derivative from g, the cotangent of y: dx = -g / root_of(x)
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.acos(fp.tensor([-1.5, 1.5])).tolist()]
    [nan, nan]
    """

# flamepy/ops/trigonometry.py: "acosh"
def acosh(x: TensorLike, /) -> Tensor:
    """The number, 0 or more, whose cosh is x; NaN below 1.

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = acosh_of(x)
    Derivative from g, the cotangent of y: dx = g / sqrt((x - 1.0) * (x + 1.0))
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.acosh(fp.tensor([-1.5, 1.5])).tolist()]
    [nan, 0.9624]
    """

# flamepy/ops/pools.py: adaptive_avg_pool
def adaptive_avg_pool1d(x: TensorLike, output_size: TensorLike) -> Tensor:
    """adaptive_avg_pool2d() of lines. Shapes: x (N, C, L) or (C, L).
    >>> F.adaptive_avg_pool1d(fp.tensor([[1.0, 2.0, 3.0]]), 2).tolist()
    [[1.5, 2.5]]
    """

# flamepy/ops/pools.py: adaptive_avg_pool
def adaptive_avg_pool2d(x: TensorLike, output_size: TensorLike) -> Tensor:
    """Means of as many windows as output_size says, which share each axis as evenly as may be: window i of m begins
    at i n // m. Of 1 it is the global average pool.
    Shapes: x (N, C, H, W) or (C, H, W); output_size an int, or one for each axis (None: as in x). Raises ShapeError.
    >>> F.adaptive_avg_pool2d(fp.tensor([[[1.0, 2.0], [3.0, 4.0]]]), 1).tolist()
    [[[2.5]]]
    """

# flamepy/ops/pools.py: adaptive_avg_pool
def adaptive_avg_pool3d(x: TensorLike, output_size: TensorLike) -> Tensor:
    """adaptive_avg_pool2d() of volumes. Shapes: x (N, C, D, H, W) or (C, D, H, W).
    >>> F.adaptive_avg_pool3d(fp.ones(1, 2, 2, 2), 1).tolist()
    [[[[1.0]]]]
    """

# flamepy/ops/pools.py: adaptive_max_pool
def adaptive_max_pool1d(x: TensorLike, output_size: TensorLike, return_indices: bool = False) -> Tensor:
    """adaptive_max_pool2d() of lines. Shapes: x (N, C, L) or (C, L).
    >>> F.adaptive_max_pool1d(fp.tensor([[1.0, 2.0, 3.0]]), 2).tolist()
    [[2.0, 3.0]]
    """

# flamepy/ops/pools.py: adaptive_max_pool
def adaptive_max_pool2d(x: TensorLike, output_size: TensorLike, return_indices: bool = False) -> Tensor:
    """The largest number of each of the windows of adaptive_avg_pool2d() (of 1: of all, the global max pool);
    return_indices as in max_pool2d(). Shapes: as there.
    >>> F.adaptive_max_pool2d(fp.tensor([[[1.0, 2.0], [3.0, 4.0]]]), 1).tolist()
    [[[4.0]]]
    """

# flamepy/ops/pools.py: adaptive_max_pool
def adaptive_max_pool3d(x: TensorLike, output_size: TensorLike, return_indices: bool = False) -> Tensor:
    """adaptive_max_pool2d() of volumes. Shapes: x (N, C, D, H, W) or (C, D, H, W).
    >>> F.adaptive_max_pool3d(fp.ones(1, 2, 2, 2), 1).tolist()
    [[[[1.0]]]]
    """

# flamepy/core/ops/pointwise.py: "add"
def add(a: TensorLike, b: TensorLike, /, *, alpha: float = 1.0) -> Tensor:
    """a + b.

    Shapes: those of the inputs broadcast.
    Types: floats and integers; bools are computed in int64.
    Formula: y = a + b
    Derivative from g, the cotangent of y: da = g
    Derivative from g, the cotangent of y: db = g
    Raises: DTypeError (two float types; no tensor, array or number), ShapeError (shapes that do not broadcast).
    >>> [round(v, 4) for v in fp.add(fp.tensor([-1.5, 1.5]), 0.5).tolist()]
    [-1.0, 2.0]
    """

# flamepy/ops/vectors.py: addbmm
def addbmm(x: TensorLike, a: TensorLike, b: TensorLike, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta x + alpha times the sum of the products of two stacks. Shapes: (s, n, k), (s, k, m) give (n, m), to which x broadcasts.
    >>> fp.addbmm(fp.tensor([1.0]), fp.ones(2, 1, 3), fp.ones(2, 3, 1)).tolist()
    [[7.0]]
    """

# flamepy/ops/spellings.py: "addcdiv"
def addcdiv(x: TensorLike, a: TensorLike, b: TensorLike, /, value: float = 1.0) -> Tensor:
    """x + value * a / b.

    Shapes: those of the inputs broadcast.
    Types: floats; integers and bools are computed in float32.
    Formula: y = x + value * (a / b)
    Derivative from g, the cotangent of y: dx = g
    Derivative from g, the cotangent of y: da = g * (value / b)
    Derivative from g, the cotangent of y: db = -g * (value * (a / b) / b)
    Raises: DTypeError (two float types; no tensor, array or number), ShapeError (shapes that do not broadcast).
    >>> [round(v, 4) for v in fp.addcdiv(fp.tensor([-1.5, 1.5]), 0.5, 2.0).tolist()]
    [-1.25, 1.75]
    """

# flamepy/ops/spellings.py: "addcmul"
def addcmul(x: TensorLike, a: TensorLike, b: TensorLike, /, value: float = 1.0) -> Tensor:
    """x + value * a * b.

    Shapes: those of the inputs broadcast.
    Types: floats; integers and bools are computed in float32.
    Formula: y = x + value * a * b
    Derivative from g, the cotangent of y: dx = g
    Derivative from g, the cotangent of y: da = g * (value * b)
    Derivative from g, the cotangent of y: db = g * (value * a)
    Raises: DTypeError (two float types; no tensor, array or number), ShapeError (shapes that do not broadcast).
    >>> [round(v, 4) for v in fp.addcmul(fp.tensor([-1.5, 1.5]), 0.5, 2.0).tolist()]
    [-0.5, 2.5]
    """

# flamepy/ops/vectors.py: addmm
def addmm(x: TensorLike, a: TensorLike, b: TensorLike, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta x + alpha a @ b. Shapes: (n, k), (k, m) give (n, m), to which x broadcasts, else ShapeError.
    >>> fp.addmm(fp.tensor([1.0]), fp.ones(1, 3), fp.ones(3, 2)).tolist()
    [[4.0, 4.0]]
    """

# flamepy/ops/vectors.py: addmv
def addmv(x: TensorLike, a: TensorLike, b: TensorLike, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta x + alpha a @ b, of a matrix and a vector. Shapes: (n, k), (k,) give (n,), to which x broadcasts, else ShapeError.
    >>> fp.addmv(fp.tensor([1.0]), fp.ones(2, 3), fp.ones(3)).tolist()
    [4.0, 4.0]
    """

# flamepy/ops/vectors.py: addr
def addr(x: TensorLike, a: TensorLike, b: TensorLike, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta x + alpha outer(a, b). Shapes: (n,), (m,) give (n, m), to which x broadcasts, else ShapeError.
    >>> fp.addr(fp.tensor([1.0]), fp.ones(2), fp.ones(1)).tolist()
    [[2.0], [2.0]]
    """

# flamepy/ops/grids.py: affine_grid
def affine_grid(theta: TensorLike, size: TensorLike, align_corners: bool = False) -> Tensor:
    """The grid for grid_sample() of an affine map of each image: places of the result, from -1 to 1, times theta.
    Shapes: theta (N, 2, 3) for size (N, C, H, W), the result (N, H, W, 2); (N, 3, 4) for (N, C, D, H, W). Raises ShapeError.
    >>> F.affine_grid(fp.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]), (1, 1, 1, 2)).tolist()
    [[[[-0.5, 0.0], [0.5, 0.0]]]]
    """

# flamepy/ops/reductions.py: all
@overload
def all(x: TensorLike, axis: Axis = None, keepdims: bool = False) -> Tensor: ...
@overload
def all(x: TensorLike, dim: Axis = None, keepdim: bool = False) -> Tensor:
    """Whether every element over the axes is not zero (bool); of none: True.
    Shapes: as sum.
    >>> fp.all(fp.tensor([[True, False], [True, True]]), axis=1).tolist()
    [False, True]
    """

# flamepy/ops/logic.py: allclose
def allclose(a: TensorLike, b: TensorLike, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Tensor:
    """Whether isclose() holds for all, as Python's True or False. Shapes: those of a and b broadcast.
    >>> fp.allclose(fp.tensor([1.0, 2.0]), 1.0)
    False
    """

# flamepy/ops/drops.py: alpha_dropout
def alpha_dropout(x: TensorLike, p: float = 0.5, training: bool = False) -> Tensor:
    """Set elements to the lowest value of selu with probability p, then scale and shift all so that mean 0 and variance 1 stay so.
    (Klambauer et al. 2017, arXiv:1706.02515.) Shapes: any, unchanged. Raises ValueError for p outside [0, 1].
    >>> F.alpha_dropout(fp.ones(2), 0.5, training=False).tolist()
    [1.0, 1.0]
    """

# flamepy/ops/reductions.py: amax
@overload
def amax(x: TensorLike, axis: Axis = None, keepdims: bool = False) -> Tensor: ...
@overload
def amax(x: TensorLike, dim: Axis = None, keepdim: bool = False) -> Tensor:
    """max(): the values alone, as NumPy's and PyTorch's amax. Ties share the gradient equally.
    Shapes: as sum. Raises ShapeError where there are no elements.
    >>> fp.amax(fp.tensor([[1.0, 2.0], [4.0, 3.0]]), axis=1).tolist()
    [2.0, 4.0]
    """

# flamepy/ops/reductions.py: amin
@overload
def amin(x: TensorLike, axis: Axis = None, keepdims: bool = False) -> Tensor: ...
@overload
def amin(x: TensorLike, dim: Axis = None, keepdim: bool = False) -> Tensor:
    """min(): the values alone, as NumPy's and PyTorch's amin. Ties share the gradient equally.
    Shapes: as sum. Raises ShapeError where there are no elements.
    >>> fp.amin(fp.tensor([[1.0, 2.0], [4.0, 3.0]]), axis=1).tolist()
    [1.0, 3.0]
    """

# flamepy/ops/reductions.py: aminmax
@overload
def aminmax(x: TensorLike, axis: Axis = None, keepdims: bool = False) -> Tensor: ...
@overload
def aminmax(x: TensorLike, dim: Axis = None, keepdim: bool = False) -> Tensor:
    """(min, max) over the axes.
    Shapes: as sum. Raises ShapeError where there are no elements.
    >>> [t.item() for t in fp.aminmax(fp.tensor([2.0, 1.0, 3.0]))]
    [1.0, 3.0]
    """

# flamepy/ops/reductions.py: any
@overload
def any(x: TensorLike, axis: Axis = None, keepdims: bool = False) -> Tensor: ...
@overload
def any(x: TensorLike, dim: Axis = None, keepdim: bool = False) -> Tensor:
    """Whether an element over the axes is not zero (bool); of none: False.
    Shapes: as sum.
    >>> fp.any(fp.tensor([[True, False], [False, False]]), axis=1).tolist()
    [True, False]
    """

# flamepy/ops/trigonometry.py: "acos"
def arccos(x: TensorLike, /) -> Tensor:
    """Angle in [0, pi] whose cosine is x; NaN outside [-1, 1].

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = acos_of(x)
    Derivative from g, the cotangent of y: dx = -g / root_of(x)
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.acos(fp.tensor([-1.5, 1.5])).tolist()]
    [nan, nan]
    """

# flamepy/ops/trigonometry.py: "acosh"
def arccosh(x: TensorLike, /) -> Tensor:
    """The number, 0 or more, whose cosh is x; NaN below 1.

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = acosh_of(x)
    Derivative from g, the cotangent of y: dx = g / sqrt((x - 1.0) * (x + 1.0))
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.acosh(fp.tensor([-1.5, 1.5])).tolist()]
    [nan, 0.9624]
    """

# flamepy/ops/trigonometry.py: "asin"
def arcsin(x: TensorLike, /) -> Tensor:
    """Angle in [-pi/2, pi/2] whose sine is x; NaN outside [-1, 1].

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = asin_of(x)
    Derivative from g, the cotangent of y: dx = g / root_of(x)
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.asin(fp.tensor([-1.5, 1.5])).tolist()]
    [nan, nan]
    """

# flamepy/ops/trigonometry.py: "asinh"
def arcsinh(x: TensorLike, /) -> Tensor:
    """The number whose sinh is x.

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = asinh_of(x)
    Derivative from g, the cotangent of y: dx = g / sqrt(x * x + 1.0)
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.asinh(fp.tensor([-1.5, 1.5])).tolist()]
    [-1.1948, 1.1948]
    """

# flamepy/ops/trigonometry.py: "atan"
def arctan(x: TensorLike, /) -> Tensor:
    """Angle in (-pi/2, pi/2) whose tangent is x.

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = atan_of(x)
    Derivative from g, the cotangent of y: dx = g / (1.0 + x * x)
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.atan(fp.tensor([-1.5, 1.5])).tolist()]
    [-0.9828, 0.9828]
    """

# flamepy/ops/trigonometry.py: "atan2"
def arctan2(a: TensorLike, b: TensorLike, /) -> Tensor:
    """Angle in [-pi, pi] of the point (b, a); signs of zeros count, as in C.

    Shapes: those of the inputs broadcast.
    Types: floats; integers and bools are computed in float32.
    Formula: y = atan2_of(a, b)
    Derivative from g, the cotangent of y: da = g * turned(a, b)
    Derivative from g, the cotangent of y: db = g * turned(b, -a)
    Raises: DTypeError (two float types; no tensor, array or number), ShapeError (shapes that do not broadcast).
    >>> [round(v, 4) for v in fp.atan2(fp.tensor([-1.5, 1.5]), 0.5).tolist()]
    [-1.249, 1.249]
    """

# flamepy/ops/trigonometry.py: "atanh"
def arctanh(x: TensorLike, /) -> Tensor:
    """The number whose tanh is x; NaN outside [-1, 1].

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = atanh_of(x)
    Derivative from g, the cotangent of y: dx = g / ((1.0 - x) * (1.0 + x))
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.atanh(fp.tensor([-1.5, 1.5])).tolist()]
    [nan, nan]
    """

# flamepy/ops/reduce_more.py: argmax
@overload
def argmax(x: TensorLike, axis: int | None = None, keepdims: bool = False) -> Tensor: ...
@overload
def argmax(x: TensorLike, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Index of the first largest element (int64) along an axis, or in the flattened tensor. Records nothing.
    Shapes: as sum. Raises ShapeError where there are no elements.
    Types: floats, integers and bools.
    >>> fp.argmax(fp.tensor([[1.0, 2.0], [4.0, 3.0]]), axis=1).tolist()
    [1, 0]
    """

# flamepy/ops/reduce_more.py: argmin
@overload
def argmin(x: TensorLike, axis: int | None = None, keepdims: bool = False) -> Tensor: ...
@overload
def argmin(x: TensorLike, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Index of the first smallest element (int64) along an axis, or in the flattened tensor. Records nothing.
    Shapes: as sum. Raises ShapeError where there are no elements.
    Types: floats, integers and bools.
    >>> fp.argmin(fp.tensor([[1.0, 2.0], [4.0, 3.0]]), axis=1).tolist()
    [0, 1]
    """

# flamepy/ops/sorting.py: argsort
@overload
def argsort(x: TensorLike, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor: ...
@overload
def argsort(x: TensorLike, dim: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The indices that sort() gives (int64). Records nothing.
    Shapes: x's.
    >>> fp.argsort(fp.tensor([3.0, 1.0, 2.0])).tolist()
    [1, 2, 0]
    """

# flamepy/ops/selecting.py: nonzero
def argwhere(x: TensorLike, as_tuple: bool = False, *, size: int | None = None, fill_value: int = 0) -> Tensor:
    """The indices of the elements that are not zero, a row for each (int64). Also called argwhere. as_tuple: as NumPy's nonzero, a 1-D
    tensor for each axis, which may stand in x[...]. size: how many rows, `fill_value` where there are fewer. Reads x on the host, so no
    captured step may call it. Shapes: (n, x.ndim), or (n,) for each axis.
    >>> [t.tolist() for t in fp.nonzero(fp.tensor([[0, 1], [2, 0]]), as_tuple=True)]
    [[0, 1], [1, 0]]
    """

# flamepy/ops/logic.py: array_equal
def array_equal(a: TensorLike, b: TensorLike) -> Tensor:
    """Whether a and b have the same shape and the same numbers, as Python's True or False (torch.equal). Shapes: any.
    >>> fp.array_equal(fp.tensor([1.0, 2.0]), [1.0, 2.0])
    True
    """

# flamepy/ops/trigonometry.py: "asin"
def asin(x: TensorLike, /) -> Tensor:
    """Angle in [-pi/2, pi/2] whose sine is x; NaN outside [-1, 1].

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = asin_of(x)
    Derivative from g, the cotangent of y: dx = g / root_of(x)
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.asin(fp.tensor([-1.5, 1.5])).tolist()]
    [nan, nan]
    """

# flamepy/ops/trigonometry.py: "asinh"
def asinh(x: TensorLike, /) -> Tensor:
    """The number whose sinh is x.

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = asinh_of(x)
    Derivative from g, the cotangent of y: dx = g / sqrt(x * x + 1.0)
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.asinh(fp.tensor([-1.5, 1.5])).tolist()]
    [-1.1948, 1.1948]
    """

# flamepy/ops/trigonometry.py: "atan"
def atan(x: TensorLike, /) -> Tensor:
    """Angle in (-pi/2, pi/2) whose tangent is x.

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = atan_of(x)
    Derivative from g, the cotangent of y: dx = g / (1.0 + x * x)
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.atan(fp.tensor([-1.5, 1.5])).tolist()]
    [-0.9828, 0.9828]
    """

# flamepy/ops/trigonometry.py: "atan2"
def atan2(a: TensorLike, b: TensorLike, /) -> Tensor:
    """Angle in [-pi, pi] of the point (b, a); signs of zeros count, as in C.

    Shapes: those of the inputs broadcast.
    Types: floats; integers and bools are computed in float32.
    Formula: y = atan2_of(a, b)
    Derivative from g, the cotangent of y: da = g * turned(a, b)
    Derivative from g, the cotangent of y: db = g * turned(b, -a)
    Raises: DTypeError (two float types; no tensor, array or number), ShapeError (shapes that do not broadcast).
    >>> [round(v, 4) for v in fp.atan2(fp.tensor([-1.5, 1.5]), 0.5).tolist()]
    [-1.249, 1.249]
    """

# flamepy/ops/trigonometry.py: "atanh"
def atanh(x: TensorLike, /) -> Tensor:
    """The number whose tanh is x; NaN outside [-1, 1].

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = atanh_of(x)
    Derivative from g, the cotangent of y: dx = g / ((1.0 - x) * (1.0 + x))
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.atanh(fp.tensor([-1.5, 1.5])).tolist()]
    [nan, nan]
    """

# flamepy/ops/stacking.py: atleast_1d
def atleast_1d(*xs: TensorLike) -> Tensor:
    """Tensors with an axis at least; several give a list. Shapes: () gives (1,).
    >>> fp.atleast_1d(fp.tensor(2.0)).tolist()
    [2.0]
    """

# flamepy/ops/stacking.py: atleast_2d
def atleast_2d(*xs: TensorLike) -> Tensor:
    """Tensors with two axes at least; several give a list. Shapes: (n,) gives (1, n).
    >>> fp.atleast_2d(fp.ones(3)).shape
    (1, 3)
    """

# flamepy/ops/stacking.py: atleast_3d
def atleast_3d(*xs: TensorLike) -> Tensor:
    """Tensors with three axes at least; several give a list. Shapes: (n,) gives (1, n, 1), (n, m) gives (n, m, 1).
    >>> fp.atleast_3d(fp.ones(2, 3)).shape
    (2, 3, 1)
    """

# flamepy/ops/pools.py: avg_pool1d
def avg_pool1d(
    x: TensorLike,
    kernel_size: Pair,
    stride: Pair | None = None,
    padding: Pair | str = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """avg_pool2d() of lines. Shapes: x (N, C, L) or (C, L).
    >>> F.avg_pool1d(fp.tensor([[1.0, 3.0, 2.0, 4.0]]), 2).tolist()
    [[2.0, 3.0]]
    """

# flamepy/ops/pools.py: avg_pool2d
def avg_pool2d(
    x: TensorLike,
    kernel_size: Pair,
    stride: Pair | None = None,
    padding: Pair | str = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: TensorLike | None = None,
) -> Tensor:
    """The mean of each window; the stride is the window's size unless given.
    Padding counts as zeros unless count_include_pad is False; it is given as for max_pool2d(). ceil_mode: the last window may end outside,
    where nothing counts. divisor_override: what sums are divided by.
    Shapes: x (N, C, H, W) or (C, H, W); the result has fewer rows and columns. Raises ShapeError.
    >>> F.avg_pool2d(fp.tensor([[[1.0, 2.0], [3.0, 4.0]]]), 2).tolist()
    [[[2.5]]]
    """

# flamepy/ops/pools.py: avg_pool3d
def avg_pool3d(
    x: TensorLike,
    kernel_size: Pair,
    stride: Pair | None = None,
    padding: Pair | str = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: TensorLike | None = None,
) -> Tensor:
    """avg_pool2d() of volumes. Shapes: x (N, C, D, H, W) or (C, D, H, W).
    >>> F.avg_pool3d(fp.ones(1, 2, 2, 2), 2).tolist()
    [[[[1.0]]]]
    """

# flamepy/ops/vectors.py: baddbmm
def baddbmm(x: TensorLike, a: TensorLike, b: TensorLike, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta x + alpha a @ b, of stacks. Shapes: (s, n, k), (s, k, m) give (s, n, m), to which x broadcasts, else ShapeError.
    >>> fp.baddbmm(fp.tensor([1.0]), fp.ones(2, 1, 3), fp.ones(2, 3, 1)).tolist()
    [[[4.0]], [[4.0]]]
    """

# flamepy/ops/channel_norms.py: batch_norm
def batch_norm(
    x: TensorLike,
    running_mean: TensorLike,
    running_var: TensorLike,
    weight: TensorLike | None = None,
    bias: TensorLike | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-05,
) -> Tensor:
    """(x - mean) / sqrt(var + eps) * weight + bias for each channel (Ioffe & Szegedy 2015, arXiv:1502.03167).
    In training mean and variance are the batch's, and running_mean and running_var, unless they are None, move towards them in place by
    `momentum` (the variance as n - 1 numbers of n show it); else they are what is normalised by, and are constants.
    Shapes: x (N, C) or (N, C, ...), the others (C,); the result has x's. Integers give float32. Raises ShapeError, in training for a
    single number a channel too, GradientError for running statistics that require grad.
    >>> F.batch_norm(fp.tensor([[1.0], [3.0]]), None, None, training=True).numpy().round(2).tolist()
    [[-1.0], [1.0]]
    """

# flamepy/ops/random.py: bernoulli
def bernoulli(p: TensorLike, generator: TensorLike | None = None) -> Tensor:
    """1 with probability p, else 0, for each number of p, in its type. Records a zero gradient.
    Shapes: p's. Raises ValueError for what is no probability.
    >>> fp.bernoulli(fp.tensor([0.0, 1.0])).tolist()
    [0.0, 1.0]
    """

# flamepy/ops/products.py: bilinear
def bilinear(x1: TensorLike, x2: TensorLike, weight: TensorLike, bias: TensorLike | None = None) -> Tensor:
    """y[..., o] = x1[..., :] @ weight[o] @ x2[..., :] + bias[o]. Shapes: (..., n), (..., m), (o, n, m), (o,); the result (..., o).
    >>> F.bilinear(fp.tensor([[2.0]]), fp.tensor([[3.0, 1.0]]), fp.ones(1, 1, 2)).tolist()
    [[8.0]]
    """

# flamepy/ops/losses.py: binary_cross_entropy
def binary_cross_entropy(
    x: TensorLike,
    target: TensorLike,
    weight: TensorLike | None = None,
    *,
    reduction: str = 'mean',
) -> Tensor:
    """-(t log x + (1 - t) log(1 - x)) for probabilities x in [0, 1]; `weight`, which broadcasts to x, multiplies each.
    Shapes and errors: as mse_loss; ValueError for x outside [0, 1]. No gradient reaches the target.
    >>> round(fp.binary_cross_entropy(fp.tensor([0.5]), [1.0]).item(), 4)
    0.6931
    """

# flamepy/ops/losses.py: binary_cross_entropy_with_logits
def binary_cross_entropy_with_logits(
    x: TensorLike,
    target: TensorLike,
    weight: TensorLike | None = None,
    *,
    pos_weight: TensorLike | None = None,
    reduction: str = 'mean',
) -> Tensor:
    """Binary cross-entropy of sigmoid(x); pos_weight (number or tensor that broadcasts) weighs the positives, `weight` each element.
    Shapes and errors: as mse_loss. No gradient reaches the target or a pos_weight.
    >>> round(fp.binary_cross_entropy_with_logits(fp.tensor([0.0]), [1.0]).item(), 4)
    0.6931
    """

# flamepy/ops/counting.py: bincount
def bincount(x: TensorLike, weights: TensorLike | None = None, minlength: int = 0) -> Tensor:
    """How often each whole number from 0 on occurs in x (int64), or the sum of its weights (float64 for integers).
    Shapes: (n,) gives (max(x) + 1,), or minlength if that is more. Gradients reach the weights. Reads x on the host, so no captured step
    may call it. Raises DTypeError unless x is of integers, ShapeError for other shapes, ValueError for a number below 0.
    >>> fp.bincount(fp.tensor([1, 3, 1])).tolist()
    [0, 2, 0, 1]
    """

# flamepy/ops/bits.py: bitcast
def bitcast(x: TensorLike, dtype: DTypeLike) -> Tensor:
    """The same bits as numbers of another type, as PyTorch's view(dtype) and NumPy's give them; there is no gradient.
    Shapes: x's; if the types differ in size, the last axis is longer or shorter by as much. Raises DTypeError for bools as the result,
    ShapeError where the last axis cannot be divided so.
    >>> fp.bitcast(fp.tensor([1.0, -1.0]), fp.int32).tolist()
    [1065353216, -1082130432]
    """

# flamepy/ops/bits.py: bitwise_and
def bitwise_and(a: TensorLike, b: TensorLike) -> Tensor:
    """a & b: the bits that both have; of bools whether both hold.
    Shapes: those of a and b broadcast. Types: integers and bools. Raises DTypeError for floats.
    >>> fp.bitwise_and(fp.tensor([6, 5]), 3).tolist()
    [2, 1]
    """

# flamepy/ops/bits.py: bitwise_not
def bitwise_invert(x: TensorLike) -> Tensor:
    """~x: the bits that x does not have; of bools whether x does not hold. Shapes: any. Types: as bitwise_and.
    >>> fp.bitwise_not(fp.tensor([6, -1])).tolist()
    [-7, 0]
    """

# flamepy/ops/bits.py: bitwise_left_shift
def bitwise_left_shift(a: TensorLike, b: TensorLike) -> Tensor:
    """a << b: a times 2**b; bits that do not fit are lost. By fewer than 0 bits, or more than there are, it is 0.
    Shapes: those of a and b broadcast. Types: integers. Raises DTypeError for floats.
    >>> fp.bitwise_left_shift(fp.tensor([1, 3]), 4).tolist()
    [16, 48]
    """

# flamepy/ops/bits.py: bitwise_not
def bitwise_not(x: TensorLike) -> Tensor:
    """~x: the bits that x does not have; of bools whether x does not hold. Shapes: any. Types: as bitwise_and.
    >>> fp.bitwise_not(fp.tensor([6, -1])).tolist()
    [-7, 0]
    """

# flamepy/ops/bits.py: bitwise_or
def bitwise_or(a: TensorLike, b: TensorLike) -> Tensor:
    """a | b: the bits that at least one has. Shapes and types: as bitwise_and.
    >>> fp.bitwise_or(fp.tensor([6, 5]), 3).tolist()
    [7, 7]
    """

# flamepy/ops/bits.py: bitwise_right_shift
def bitwise_right_shift(a: TensorLike, b: TensorLike) -> Tensor:
    """a >> b: a divided by 2**b and rounded down. Shapes and types: as bitwise_left_shift.
    >>> fp.bitwise_right_shift(fp.tensor([16, -3]), 1).tolist()
    [8, -2]
    """

# flamepy/ops/bits.py: bitwise_xor
def bitwise_xor(a: TensorLike, b: TensorLike) -> Tensor:
    """a ^ b: the bits that one of both has. Shapes and types: as bitwise_and.
    >>> fp.bitwise_xor(fp.tensor([6, 5]), 3).tolist()
    [5, 6]
    """

# flamepy/ops/vectors.py: bmm
def bmm(a: TensorLike, b: TensorLike) -> Tensor:
    """The products of two stacks of as many matrices. Shapes: (s, n, k), (s, k, m) give (s, n, m), else ShapeError.
    >>> fp.bmm(fp.ones(2, 1, 3), fp.ones(2, 3, 1)).tolist()
    [[[3.0]], [[3.0]]]
    """

# flamepy/ops/stacking.py: broadcast_tensors
def broadcast_tensors(*xs: TensorLike) -> list[Tensor]:
    """The tensors, each repeated to the shape that all broadcast to. Shapes: as there, else ShapeError.
    >>> [t.shape for t in fp.broadcast_tensors(fp.ones(3, 1), fp.ones(4))]
    [(3, 4), (3, 4)]
    """

# flamepy/core/ops/shape.py: broadcast_to
def broadcast_to(x: TensorLike, shape: int | Sequence[int], *rest: int) -> Tensor:
    """x repeated to `shape` by the broadcasting rule; -1 keeps a size. Also called expand.
    Shapes: to one that x's broadcasts to, else ShapeError.
    >>> fp.broadcast_to(fp.tensor([1, 2]), (2, 2)).tolist()
    [[1, 2], [1, 2]]
    """

# flamepy/ops/sorting.py: bucketize
def bucketize(x: TensorLike, boundaries: TensorLike, right: bool = False, out_int32: bool = False) -> Tensor:
    """For each number the index of its bucket between sorted boundaries: searchsorted(boundaries, x).
    Shapes: x's. right: what equals a boundary belongs behind it. Raises ShapeError unless boundaries is one row.
    >>> fp.bucketize(fp.tensor([0.5, 1.5, 9.0]), [1.0, 2.0]).tolist()
    [0, 1, 2]
    """

# flamepy/core/ops/copy.py: cast
def cast(x: TensorLike, dtype: DTypeLike = ...) -> Tensor:
    """The same numbers as another dtype; x itself if it has that dtype. Towards integers the fraction is cut off.
    Shapes: any; the result has that of x. Raises DTypeError for a dtype that is not supported.
    Types: any.
    >>> fp.cast(fp.tensor([1.7, -1.7]), fp.int64).tolist()
    [1, -1]
    """

# flamepy/ops/joining.py: cat
@overload
def cat(tensors: Iterable[TensorLike], axis: int = 0) -> Tensor: ...
@overload
def cat(tensors: Iterable[TensorLike], dim: int = 0) -> Tensor:
    """The tensors one after the other along `axis`; all other sizes must be equal. Shapes: (n, k), (m, k) give (n + m, k).
    >>> fp.cat([fp.tensor([1.0]), fp.tensor([2.0, 3.0])]).tolist()
    [1.0, 2.0, 3.0]
    """

# flamepy/ops/random.py: categorical
@overload
def categorical(logits: TensorLike, axis: int = -1, generator: TensorLike | None = None) -> Tensor: ...
@overload
def categorical(logits: TensorLike, dim: int = -1, generator: TensorLike | None = None) -> Tensor:
    """A class id (int64) for each row of logits along an axis, drawn with the probabilities softmax(logits). (By Gumbel's maximum.)
    Shapes: logits' without the axis.
    >>> fp.categorical(fp.tensor([[0.0, 99.0], [99.0, 0.0]])).tolist()
    [1, 0]
    """

# flamepy/ops/similarity.py: cdist
def cdist(a: TensorLike, b: TensorLike, p: float = 2.0) -> Tensor:
    """Distances of each point of a from each of b in the p-norm, p from 0 (how many numbers differ) to infinity; the gradient where two are
    equal is 0. Differences are made one by one: nothing cancels. Unless p is 1, 2 or infinity there are (..., n, m, d) of them at once.
    Shapes: (..., n, d), (..., m, d) give (..., n, m); leading axes broadcast. Raises ShapeError, ValueError for p below 0.
    >>> fp.cdist(fp.tensor([[0.0, 0.0]]), fp.tensor([[3.0, 4.0]])).tolist()
    [[5.0]]
    """

# flamepy/ops/rounding.py: "ceil"
def ceil(x: TensorLike, /) -> Tensor:
    """Smallest integer not below x. Records a zero gradient.

    Shapes: any; the result has that of x.
    Types: floats and integers; bools are computed in int64.
    Formula: y = ceil(x)
    Derivative from g, the cotangent of y: dx = 0
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.ceil(fp.tensor([-1.5, 1.5])).tolist()]
    [-1.0, 2.0]
    """

# flamepy/ops/more_activations.py: "celu"
def celu(x: TensorLike, /, alpha: float = 1.0) -> Tensor:
    """x above zero, alpha * (exp(x / alpha) - 1) below (Barron 2017, arXiv:1704.07483).

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = select(x > 0.0, x, alpha * expm1(x / alpha))
    Derivative from g, the cotangent of y: dx = select(x > 0.0, g, g * exp(select(x > 0.0, 0.0, x / alpha)))
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.celu(fp.tensor([-1.5, 1.5])).tolist()]
    [-0.7769, 1.5]
    """

# flamepy/ops/contractions.py: chain_matmul
def chain_matmul(*matrices: TensorLike) -> Tensor:
    """multi_dot() of matrices given one by one. Shapes: as there.
    >>> fp.chain_matmul(fp.ones(2, 3), fp.ones(3, 4)).shape
    (2, 4)
    """

# flamepy/ops/patches.py: channel_shuffle
def channel_shuffle(x: TensorLike, groups: int) -> Tensor:
    """Channels dealt out anew, one of each group after the other. Shapes: (N, C, ...) with C a multiple of groups, else ShapeError.
    >>> F.channel_shuffle(fp.tensor([[[1.0], [2.0], [3.0], [4.0]]]), 2).tolist()
    [[[1.0], [3.0], [2.0], [4.0]]]
    """

# flamepy/ops/joining.py: chunk
@overload
def chunk(x: TensorLike, pieces: int, axis: int = 0) -> list[Tensor]: ...
@overload
def chunk(x: TensorLike, pieces: int, dim: int = 0) -> list[Tensor]:
    """`pieces` pieces of equal size along `axis` (the last may be smaller, and there may be fewer). Shapes: x's elsewhere.
    >>> [t.tolist() for t in fp.chunk(fp.tensor([1, 2, 3]), 2)]
    [[1, 2], [3]]
    """

# flamepy/ops/rounding.py: clamp
def clamp(x: TensorLike, min: float | None = None, max: float | None = None) -> Tensor:
    """x limited to [min, max] (numbers or tensors; None is no limit, one of them has to be there). The gradient passes at the bounds.
    NaN stays NaN; its gradient is 0, as in PyTorch. A tensor as bound gets the gradient where x lies beyond it.
    Shapes: those of x and the bounds broadcast. Types: floats and integers. Raises DTypeError for bounds that are no numbers.
    >>> fp.clamp(fp.tensor([-2.0, 0.5, 9.0]), 0, 1).tolist()
    [0.0, 0.5, 1.0]
    """

# flamepy/ops/rounding.py: clamp
def clip(x: TensorLike, min: float | None = None, max: float | None = None) -> Tensor:
    """x limited to [min, max] (numbers or tensors; None is no limit, one of them has to be there). The gradient passes at the bounds.
    NaN stays NaN; its gradient is 0, as in PyTorch. A tensor as bound gets the gradient where x lies beyond it.
    Shapes: those of x and the bounds broadcast. Types: floats and integers. Raises DTypeError for bounds that are no numbers.
    >>> fp.clamp(fp.tensor([-2.0, 0.5, 9.0]), 0, 1).tolist()
    [0.0, 0.5, 1.0]
    """

# flamepy/core/ops/copy.py: clone
def clone(x: TensorLike) -> Tensor:
    """A copy.
    Shapes: any; the result has that of x.
    Types: any.
    >>> fp.clone(fp.tensor([1.0, 2.0])).tolist()
    [1.0, 2.0]
    """

# flamepy/ops/stacking.py: column_stack
def column_stack(tensors: Iterable[TensorLike]) -> Tensor:
    """Tensors side by side, those of one axis as columns. Shapes: (n,), (n, m) give (n, m + 1).
    >>> fp.column_stack([fp.tensor([1, 2]), fp.tensor([3, 4])]).tolist()
    [[1, 3], [2, 4]]
    """

# flamepy/ops/joining.py: cat
@overload
def concat(tensors: Iterable[TensorLike], axis: int = 0) -> Tensor: ...
@overload
def concat(tensors: Iterable[TensorLike], dim: int = 0) -> Tensor:
    """The tensors one after the other along `axis`; all other sizes must be equal. Shapes: (n, k), (m, k) give (n + m, k).
    >>> fp.cat([fp.tensor([1.0]), fp.tensor([2.0, 3.0])]).tolist()
    [1.0, 2.0, 3.0]
    """

# flamepy/ops/joining.py: cat
@overload
def concatenate(tensors: Iterable[TensorLike], axis: int = 0) -> Tensor: ...
@overload
def concatenate(tensors: Iterable[TensorLike], dim: int = 0) -> Tensor:
    """The tensors one after the other along `axis`; all other sizes must be equal. Shapes: (n, k), (m, k) give (n + m, k).
    >>> fp.cat([fp.tensor([1.0]), fp.tensor([2.0, 3.0])]).tolist()
    [1.0, 2.0, 3.0]
    """

# flamepy/ops/similarity.py: contrastive_loss
def contrastive_loss(
    x1: TensorLike,
    x2: TensorLike,
    target: TensorLike,
    *,
    margin: float = 1.0,
    reduction: str = 'mean',
) -> Tensor:
    """d^2 / 2 where the target is 1, a pair that belongs together; max(0, margin - d)^2 / 2 where it is 0. d = |x1 - x2|.
    Hadsell, Chopra & LeCun 2006, whose Y is 1 - target. Shapes: x1 and x2 (..., width), target (...).
    >>> F.contrastive_loss(fp.tensor([[0.0], [0.0]]), [[2.0], [0.5]], [1, 0], reduction="none").tolist()
    [2.0, 0.125]
    """

# flamepy/ops/conv.py: convolution
def conv1d(
    x: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None = None,
    stride: Pair | None = 1,
    padding: Pair | str = 0,
    dilation: Pair = 1,
    groups: int = 1,
) -> Tensor:
    """conv2d() of lines. Shapes: x (N, C, L) or (C, L), weight (O, C / groups, window); the result (N, O, positions).
    >>> F.conv1d(fp.tensor([[1.0, 2.0, 4.0]]), fp.tensor([[[-1.0, 1.0]]])).tolist()
    [[1.0, 2.0]]
    """

# flamepy/ops/conv.py: convolution
def conv2d(
    x: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None = None,
    stride: Pair | None = 1,
    padding: Pair | str = 0,
    dilation: Pair = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation of images with weight (O, C / groups, rows, columns), plus bias (O,).
    stride and dilation are ints or one for each axis. padding is that, too, or for each side: ((top, bottom), (left, right)), or flat
    (left, right, top, bottom); negative ones cut off. "valid" is none, "same" keeps the size (stride 1). A weight of three or five axes
    convolves lines or volumes.
    Shapes: x (N, C, H, W) or (C, H, W); the result (N, O, rows, columns) or (O, rows, columns). Raises ShapeError.
    >>> F.conv2d(fp.ones(1, 3, 3), fp.ones(1, 1, 2, 2)).tolist()
    [[[4.0, 4.0], [4.0, 4.0]]]
    """

# flamepy/ops/conv.py: convolution
def conv3d(
    x: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None = None,
    stride: Pair | None = 1,
    padding: Pair | str = 0,
    dilation: Pair = 1,
    groups: int = 1,
) -> Tensor:
    """conv2d() of volumes. Shapes: x (N, C, D, H, W) or (C, D, H, W), weight (O, C / groups, depth, rows, columns).
    >>> F.conv3d(fp.ones(1, 3, 3, 2), fp.ones(1, 1, 2, 2, 2)).tolist()
    [[[[8.0], [8.0]], [[8.0], [8.0]]]]
    """

# flamepy/ops/conv.py: conv_transpose
def conv_transpose1d(
    x: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None = None,
    stride: Pair | None = 1,
    padding: Pair | str = 0,
    output_padding: int = 0,
    groups: int = 1,
    dilation: Pair = 1,
) -> Tensor:
    """conv_transpose2d() of lines. Shapes: x (N, C, L) or (C, L), weight (C, O / groups, window).
    >>> F.conv_transpose1d(fp.tensor([[1.0, 2.0]]), fp.tensor([[[1.0, 10.0]]])).tolist()
    [[1.0, 12.0, 20.0]]
    """

# flamepy/ops/conv.py: conv_transpose
def conv_transpose2d(
    x: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None = None,
    stride: Pair | None = 1,
    padding: Pair | str = 0,
    output_padding: int = 0,
    groups: int = 1,
    dilation: Pair = 1,
) -> Tensor:
    """Each number of x times the window, added up where windows overlap: what the gradient of conv2d() is to its images.
    padding cuts off so much of each side, output_padding (less than stride or dilation) adds to the end. A weight of three or five axes
    is for lines or volumes.
    Shapes: x (N, C, H, W) or (C, H, W), weight (C, O / groups, rows, columns); of the result
    H' = (H - 1) stride - 2 padding + dilation (rows - 1) + output_padding + 1. Raises ShapeError.
    >>> F.conv_transpose2d(fp.ones(1, 1, 2), fp.ones(1, 1, 2, 2)).tolist()
    [[[1.0, 2.0, 1.0], [1.0, 2.0, 1.0]]]
    """

# flamepy/ops/conv.py: conv_transpose
def conv_transpose3d(
    x: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None = None,
    stride: Pair | None = 1,
    padding: Pair | str = 0,
    output_padding: int = 0,
    groups: int = 1,
    dilation: Pair = 1,
) -> Tensor:
    """conv_transpose2d() of volumes. Shapes: x (N, C, D, H, W) or (C, D, H, W), weight (C, O / groups, depth, rows,
    columns).
    >>> F.conv_transpose3d(fp.ones(1, 1, 1, 1), fp.ones(1, 1, 1, 1, 2)).tolist()
    [[[[1.0, 1.0]]]]
    """

# flamepy/ops/logarithms.py: "copysign"
def copysign(a: TensorLike, b: TensorLike, /) -> Tensor:
    """|a| with the sign of b, which zeros have, too; the derivative at a = 0 is 0.

    Shapes: those of the inputs broadcast.
    Types: floats; integers and bools are computed in float32.
    Formula: y = copysign(a, b)
    Derivative from g, the cotangent of y: da = select(a == 0.0, 0.0, g * copysign(1.0, a) * copysign(1.0, b))
    Derivative from g, the cotangent of y: db = 0
    Raises: DTypeError (two float types; no tensor, array or number), ShapeError (shapes that do not broadcast).
    >>> [round(v, 4) for v in fp.copysign(fp.tensor([-1.5, 1.5]), 0.5).tolist()]
    [1.5, 1.5]
    """

# flamepy/core/ops/pointwise.py: "cos"
def cos(x: TensorLike, /) -> Tensor:
    """Cosine of x in radians.

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = cos(x)
    Derivative from g, the cotangent of y: dx = -g * sin(x)
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.cos(fp.tensor([-1.5, 1.5])).tolist()]
    [0.0707, 0.0707]
    """

# flamepy/ops/trigonometry.py: "cosh"
def cosh(x: TensorLike, /) -> Tensor:
    """Hyperbolic cosine.

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = cosh_of(x)
    Derivative from g, the cotangent of y: dx = g * (0.5 * expm1(x) - 0.5 * expm1(-x))
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.cosh(fp.tensor([-1.5, 1.5])).tolist()]
    [2.3524, 2.3524]
    """

# flamepy/ops/similarity.py: cosine_embedding_loss
def cosine_embedding_loss(
    x1: TensorLike,
    x2: TensorLike,
    target: TensorLike,
    *,
    margin: float = 0.0,
    reduction: str = 'mean',
) -> Tensor:
    """1 - cos(x1, x2) where the target is 1, max(0, cos(x1, x2) - margin) where it is -1.
    Shapes: x1 and x2 (rows, width) or (width,), target (rows,) or ().
    >>> F.cosine_embedding_loss(fp.tensor([[1.0, 0.0]]), fp.tensor([[1.0, 0.0]]), [-1]).item()
    1.0
    """

# flamepy/ops/similarity.py: cosine_similarity
@overload
def cosine_similarity(x1: TensorLike, x2: TensorLike, axis: int = 1, eps: float = 1e-08) -> Tensor: ...
@overload
def cosine_similarity(x1: TensorLike, x2: TensorLike, dim: int = 1, eps: float = 1e-08) -> Tensor:
    """The sum of x1 x2 along an axis, divided by the length of each, which counts as eps at least.
    Shapes: any two that broadcast; the axis goes. Raises IndexOutOfRange for an axis that is not there.
    >>> round(F.cosine_similarity(fp.tensor([[1.0, 0.0]]), [[1.0, 1.0]]).item(), 4)
    0.7071
    """

# flamepy/ops/reductions.py: count_nonzero
@overload
def count_nonzero(x: TensorLike, axis: Axis = None, keepdims: bool = False) -> Tensor: ...
@overload
def count_nonzero(x: TensorLike, dim: Axis = None, keepdim: bool = False) -> Tensor:
    """How many elements over the axes are not zero (int64; NaN is not). Records nothing.
    Shapes: as sum.
    Types: any.
    >>> fp.count_nonzero(fp.tensor([1.0, 0.0, 2.0])).item()
    2
    """

# flamepy/ops/vectors.py: cross
@overload
def cross(a: TensorLike, b: TensorLike, axis: int = -1) -> Tensor: ...
@overload
def cross(a: TensorLike, b: TensorLike, dim: int = -1) -> Tensor:
    """The vector at right angles to two in space. Shapes: they broadcast, with 3 at the axis, else ShapeError.
    >>> fp.cross(fp.tensor([1.0, 0.0, 0.0]), fp.tensor([0.0, 1.0, 0.0])).tolist()
    [0.0, 0.0, 1.0]
    """

# flamepy/ops/cross_entropy.py: cross_entropy
def cross_entropy(
    x: TensorLike,
    target: TensorLike,
    weight: TensorLike | None = None,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    reduction: str = 'mean',
) -> Tensor:
    """-log softmax(x)[id], averaged over the ids that are not ignored; float32 for 16-bit logits too.
    Ignored rows have the gradient 0, whatever they hold. A float target of the logits' shape is a probability for each class: the loss
    is -sum(target * log_softmax(x)) over the classes, its mean over all of them, and the gradient reaches the target, too.
    Shapes: logits x (rows, classes), (classes,), (N, T, ..., classes) or (N, classes, d1, ...); ids: integers of that shape without
    classes. Where both of the last two would fit: ShapeError. Beside probabilities the classes are the second axis.
    `label_smoothing` in [0, 1] mixes in the mean over all classes (Szegedy et al. 2015, arXiv:1512.00567); `weight` (classes,): what
    each class counts, also in the mean; `z_loss` adds so much of logsumexp(x)^2 to each row's loss, which keeps logits near 0
    (Chowdhery et al. 2022, arXiv:2204.02311).
    Raises ShapeError for ids of another shape, DTypeError unless they are integers, IndexOutOfRange for an id that is no class.
    >>> round(fp.cross_entropy(fp.tensor([[0.0, 0.0]]), [1]).item(), 4)
    0.6931
    >>> round(fp.cross_entropy(fp.tensor([[0.0, 0.0]]), [[0.5, 0.5]]).item(), 4)
    0.6931
    """

# flamepy/ops/ctc.py: ctc_loss
def ctc_loss(
    log_probs: TensorLike,
    targets: TensorLike,
    input_lengths: TensorLike,
    target_lengths: TensorLike,
    blank: int = 0,
    reduction: str = 'mean',
    zero_infinity: bool = False,
) -> Tensor:
    """-log of the probability that classes emitted time by time are the labels, once repeats and blanks are left out.
    Graves et al. 2006. The gradient is that of log_probs themselves; behind log_softmax it is PyTorch's. "mean": each loss is divided by
    its number of labels first. `zero_infinity`: losses without any alignment count 0, and so do their gradients.
    Shapes: log_probs (T, N, C) or (T, C); targets (N, S), or all labels one after the other; lengths (N,) or (), of integers.
    Raises ShapeError, DTypeError, IndexOutOfRange for a length or label out of range; a label may not be the blank.
    >>> round(F.ctc_loss(fp.tensor([[0.5, 0.5]] * 2).log(), [1], 2, 1).item(), 4)
    0.2877
    """

# flamepy/ops/scans.py: cummax
@overload
def cummax(x: TensorLike, axis: int = 0) -> Tensor: ...
@overload
def cummax(x: TensorLike, dim: int = 0) -> Tensor:
    """(values, indices) of the largest element up to each one along an axis; of equal ones the last, NaN wins, as in PyTorch.
    Shapes: x's, both. The gradient goes to the elements that were taken.
    >>> [t.tolist() for t in fp.cummax(fp.tensor([1.0, 3.0, 2.0, 3.0]))]
    [[1.0, 3.0, 3.0, 3.0], [0, 1, 1, 3]]
    """

# flamepy/ops/scans.py: cummin
@overload
def cummin(x: TensorLike, axis: int = 0) -> Tensor: ...
@overload
def cummin(x: TensorLike, dim: int = 0) -> Tensor:
    """(values, indices) of the smallest element up to each one along an axis; of equal ones the last, NaN wins, as in PyTorch.
    Shapes: x's, both. The gradient goes to the elements that were taken.
    >>> [t.tolist() for t in fp.cummin(fp.tensor([3.0, 1.0, 2.0]))]
    [[3.0, 1.0, 1.0], [0, 1, 1]]
    """

# flamepy/ops/scans.py: cumprod
@overload
def cumprod(x: TensorLike, axis: int | None = None, dtype: DTypeLike | None = None) -> Tensor: ...
@overload
def cumprod(x: TensorLike, dim: int | None = None, dtype: DTypeLike | None = None) -> Tensor:
    """The product of the elements up to each one along an axis; without one, of the flattened x. Gradients are right at zeros, too.
    Shapes and types: as cumsum.
    >>> fp.cumprod(fp.tensor([1.0, 2.0, 3.0]), axis=0).tolist()
    [1.0, 2.0, 6.0]
    """

# flamepy/ops/scans.py: cumsum
@overload
def cumsum(x: TensorLike, axis: int | None = None, dtype: DTypeLike | None = None) -> Tensor: ...
@overload
def cumsum(x: TensorLike, dim: int | None = None, dtype: DTypeLike | None = None) -> Tensor:
    """The sum of the elements up to each one along an axis; without one, of the flattened x. Added up in float64, rounded to x's type.
    Shapes: x's, or (x.size,). Bools and small integers give int64; dtype: the type to cast to before. Raises IndexOutOfRange.
    >>> fp.cumsum(fp.tensor([1.0, 2.0, 3.0]), axis=0).tolist()
    [1.0, 3.0, 6.0]
    """

# flamepy/ops/mixing.py: cutmix
def cutmix(x: TensorLike, y: TensorLike, alpha: float = 1.0, num_classes: int | None = None, training: bool = True) -> Tensor:
    """(x, y) with a box of the sample before it put into each, the same box for a batch, and labels mixed by its area: about 1 - l, l from
    Beta(alpha, alpha). When not training x as it is, and the labels soft.
    (Yun et al. 2019, arXiv:1905.04899; the arithmetic of torchvision.) The draws are of flamepy's random numbers.
    Shapes: x (N, ..., H, W); else as mixup(). Raises what that does.
    >>> F.cutmix(fp.ones(2, 1, 4, 4), [0, 1], num_classes=2)[0].shape
    (2, 1, 4, 4)
    """

# flamepy/ops/trigonometry.py: "deg2rad"
def deg2rad(x: TensorLike, /) -> Tensor:
    """Degrees as radians.

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = x * 0.017453292519943295
    Derivative from g, the cotangent of y: dx = g * 0.017453292519943295
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.deg2rad(fp.tensor([-1.5, 1.5])).tolist()]
    [-0.0262, 0.0262]
    """

# flamepy/ops/diagonals.py: diag
def diag(x: TensorLike, k: int = 0) -> Tensor:
    """A vector as the k-th diagonal of a matrix of zeros, or that diagonal of a matrix. Shapes: (n,) gives (n + |k|, n + |k|). Raises
    ShapeError for other numbers of axes.
    >>> fp.diag(fp.tensor([1, 2])).tolist()
    [[1, 0], [0, 2]]
    """

# flamepy/ops/diagonals.py: diag_embed
def diag_embed(x: TensorLike, offset: int = 0, axis1: int = -2, axis2: int = -1) -> Tensor:
    """Matrices of zeros with the last axis of x on their diagonal, or beside it by `offset`; they lie along two axes of the result.
    Shapes: (..., n) gives (..., n + |offset|, n + |offset|). Raises ShapeError.
    >>> fp.diag_embed(fp.tensor([1, 2])).tolist()
    [[1, 0], [0, 2]]
    """

# flamepy/ops/diagonals.py: diagflat
def diagflat(x: TensorLike, k: int = 0) -> Tensor:
    """All elements of x as the k-th diagonal of a matrix of zeros. Shapes: n elements give (n + |k|, n + |k|).
    >>> fp.diagflat(fp.tensor([[1], [2]])).tolist()
    [[1, 0], [0, 2]]
    """

# flamepy/ops/diagonals.py: diagonal
def diagonal(x: TensorLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """The diagonal of the matrices along two axes, as a new last axis; offset above 0: one further right, below 0: further down.
    Shapes: (n, m, ...) gives (..., k), k the elements of that diagonal. Raises ShapeError.
    >>> fp.diagonal(fp.tensor([[1, 2], [3, 4]])).tolist()
    [1, 4]
    """

# flamepy/ops/overlap.py: dice_loss
@overload
def dice_loss(x: TensorLike, target: TensorLike, *, smooth: float = 1.0, axis: Axis = None, reduction: str = 'mean') -> Tensor: ...
@overload
def dice_loss(x: TensorLike, target: TensorLike, *, smooth: float = 1.0, dim: Axis = None, reduction: str = 'mean') -> Tensor:
    """1 - (2 overlap + smooth) / (sum of x + sum of target + smooth) for probabilities (Milletari et al. 2016, arXiv:1606.04797).
    Sums are over `axis`, see tversky_loss. Shapes and errors: as mse_loss.
    >>> round(F.dice_loss(fp.tensor([[1.0, 0.0]]), [[1.0, 1.0]], smooth=0).item(), 4)
    0.3333
    """

# flamepy/ops/scans.py: diff
@overload
def diff(
    x: TensorLike,
    n: int = 1,
    axis: int = -1,
    prepend: TensorLike | None = None,
    append: TensorLike | None = None,
) -> Tensor: ...
@overload
def diff(x: TensorLike, n: int = 1, dim: int = -1, prepend: TensorLike | None = None, append: TensorLike | None = None) -> Tensor:
    """Differences of neighbours along an axis, n times over; before that, `prepend` and `append` (numbers too) are put to its ends.
    Shapes: x's with n less at the axis. Of bools: whether neighbours differ. Raises ShapeError for a scalar, ValueError for n below 0.
    >>> fp.diff(fp.tensor([1.0, 4.0, 9.0])).tolist()
    [3.0, 5.0]
    """

# flamepy/ops/logarithms.py: "digamma"
def digamma(x: TensorLike, /) -> Tensor:
    """Derivative of lgamma; NaN at -1, -2, ...

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = digamma_of(x)
    Derivative from g, the cotangent of y: dx = g * trigamma_of(x)
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.digamma(fp.tensor([-1.5, 1.5])).tolist()]
    [0.7032, 0.0365]
    """

# flamepy/ops/rounding.py: div
def div(a: TensorLike, b: TensorLike, rounding_mode: str | None = None) -> Tensor:
    """a / b (integers give float32), or its whole part: rounding_mode "trunc" rounds towards 0 and "floor" down; integers stay integers.
    A rounded quotient records a zero gradient.
    Shapes: those of a and b broadcast. Raises ShapeError if they do not, DTypeError for two float types, ValueError for another mode.
    >>> fp.div(fp.tensor([7.0, -7.0]), 2.0, rounding_mode="trunc").tolist()
    [3.0, -3.0]
    """

# flamepy/ops/rounding.py: div
def divide(a: TensorLike, b: TensorLike, rounding_mode: str | None = None) -> Tensor:
    """a / b (integers give float32), or its whole part: rounding_mode "trunc" rounds towards 0 and "floor" down; integers stay integers.
    A rounded quotient records a zero gradient.
    Shapes: those of a and b broadcast. Raises ShapeError if they do not, DTypeError for two float types, ValueError for another mode.
    >>> fp.div(fp.tensor([7.0, -7.0]), 2.0, rounding_mode="trunc").tolist()
    [3.0, -3.0]
    """

# flamepy/ops/vectors.py: dot
def dot(a: TensorLike, b: TensorLike) -> Tensor:
    """The sum of products of two vectors, the product of two matrices, as in NumPy; a number multiplies, stacks of matrices are multiplied
    one by one: see matmul(). Shapes: (k,), (k,) give (). Raises ShapeError.
    >>> fp.dot(fp.tensor([1.0, 2.0]), fp.tensor([3.0, 4.0])).item()
    11.0
    """

# flamepy/ops/policy.py: dpo_loss
def dpo_loss(
    chosen: TensorLike,
    rejected: TensorLike,
    reference_chosen: TensorLike,
    reference_rejected: TensorLike,
    *,
    beta: float = 0.1,
    label_smoothing: float = 0.0,
    reduction: str = 'mean',
) -> Tensor:
    """-log sigmoid(beta ((chosen - rejected) - (reference_chosen - reference_rejected))): log-probabilities of the better and the worse
    answer, by the policy and by the model that it began as.
    (Rafailov et al. 2023, arXiv:2305.18290, equation 7; label_smoothing: how often a label is wrong, Mitchell 2023.) Shapes: all the same,
    else ShapeError. Raises ValueError for beta <= 0 and label_smoothing outside [0, 0.5).
    >>> round(F.dpo_loss(fp.tensor([0.0]), [0.0], [0.0], [0.0]).item(), 4)
    0.6931
    """

# flamepy/ops/drops.py: drop_block2d
def drop_block2d(x: TensorLike, p: float, block_size: int, training: bool = True) -> Tensor:
    """Zero square regions, of each channel by itself, so that about a share p of all elements is dropped, and scale the others so that
    their count does not matter; x itself when not training or p is 0.
    (Ghiasi et al. 2018, arXiv:1810.12890.) Blocks begin where draws say so and lie inside; one that would be larger than the image is as
    large as it. Shapes: x (N, C, H, W); the result has that of x. Raises ValueError for p outside [0, 1] and a size below 1, ShapeError.
    >>> F.drop_block2d(fp.ones(1, 1, 2, 2), 0.5, 1, training=False).tolist()
    [[[[1.0, 1.0], [1.0, 1.0]]]]
    """

# flamepy/ops/random.py: dropout
def dropout(x: TensorLike, p: float = 0.5, training: bool = True, generator: TensorLike | None = None) -> Tensor:
    """Zero each element, a NaN too, with probability p and scale the others by 1 / (1 - p); x itself when not training or p is 0.
    (Srivastava et al. 2014.) The mask depends on the seed and the position, not on threads; see rng.py.
    Shapes: any; the result has that of x. Integers give float32. Raises ValueError for p outside [0, 1].
    >>> fp.dropout(fp.ones(2), p=0.5, training=False).tolist()
    [1.0, 1.0]
    """

# flamepy/ops/drops.py: drop_channels
def dropout1d(x: TensorLike, p: float = 0.5, training: bool = True) -> Tensor:
    """Zero whole channels of lines with probability p, scale the others by 1 / (1 - p). Shapes: (N, C, L) or (C, L), unchanged.
    >>> F.dropout1d(fp.ones(1, 1, 2), 0.5, training=False).tolist()
    [[[1.0, 1.0]]]
    """

# flamepy/ops/drops.py: drop_channels
def dropout2d(x: TensorLike, p: float = 0.5, training: bool = True) -> Tensor:
    """Zero whole channels of images with probability p, scale the others by 1 / (1 - p) (Tompson et al. 2015, arXiv:1411.4280).
    Shapes: (N, C, H, W) or (C, H, W), unchanged. Raises ValueError for p outside [0, 1], ShapeError.
    >>> F.dropout2d(fp.ones(1, 1, 1, 2), 0.5, training=False).tolist()
    [[[[1.0, 1.0]]]]
    """

# flamepy/ops/drops.py: drop_channels
def dropout3d(x: TensorLike, p: float = 0.5, training: bool = True) -> Tensor:
    """Zero whole channels of volumes with probability p, scale the others by 1 / (1 - p).
    Shapes: (N, C, D, H, W) or (C, D, H, W), unchanged.
    >>> F.dropout3d(fp.ones(1, 1, 1, 1, 2), 0.5, training=False).shape
    (1, 1, 1, 1, 2)
    """

# flamepy/ops/stacking.py: dstack
def dstack(tensors: Iterable[TensorLike]) -> Tensor:
    """Tensors behind each other, along the third axis. Shapes: (n, m), (n, m) give (n, m, 2).
    >>> fp.dstack([fp.tensor([1, 2]), fp.tensor([3, 4])]).tolist()
    [[[1, 3], [2, 4]]]
    """

# flamepy/ops/contractions.py: einsum
def einsum(subscripts: str, *operands: TensorLike) -> Tensor:
    """The sum of products that the subscripts say: einsum("bij,bjk->bik", x, y) multiplies stacks of matrices.
    A letter names an axis; those that do not stand after "->" are summed over. "..." stands for further axes, which broadcast. Without "->"
    the result has the letters that come once, in the order of the alphabet, after those of "...". A letter twice in one operand: its
    diagonal. Operands may come as one list. The order of several is chosen so that little is multiplied.
    Shapes: sizes of one letter must be equal or 1. Raises ShapeError.
    >>> fp.einsum("ij,j->i", fp.tensor([[1.0, 2.0], [3.0, 4.0]]), fp.tensor([1.0, 10.0])).tolist()
    [21.0, 43.0]
    """

# flamepy/ops/activations.py: "elu"
def elu(x: TensorLike, /, alpha: float = 1.0) -> Tensor:
    """x above zero, alpha * (exp(x) - 1) below (Clevert et al. 2015, arXiv:1511.07289).

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = select(x > 0.0, x, alpha * expm1(x))
    Derivative from g, the cotangent of y: dx = select(x > 0.0, g, g * alpha * exp(select(x > 0.0, 0.0, x)))
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.elu(fp.tensor([-1.5, 1.5])).tolist()]
    [-0.7769, 1.5]
    """

# flamepy/core/ops/indexing.py: embedding
def embedding(ids: TensorLike, weight: TensorLike) -> Tensor:
    """Rows of weight at the integer ids; its gradient adds up over repeated ids. Raises DTypeError, IndexOutOfRange for an id of no row.
    Shapes: ids any, weight (n, width); the result (*ids.shape, width).
    >>> F.embedding([1, 0], fp.tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [[3.0, 4.0], [1.0, 2.0]]
    """

# flamepy/ops/policy.py: entropy
@overload
def entropy(logits: TensorLike, axis: int = -1) -> Tensor: ...
@overload
def entropy(logits: TensorLike, dim: int = -1) -> Tensor:
    """-sum p log p of the softmax of scores: how undecided a policy is; scores of -inf, what it may not do, add nothing. Shapes: without
    `axis`.
    >>> round(F.entropy(fp.zeros(4)).item(), 4)
    1.3863
    """

# flamepy/core/ops/pointwise.py: "eq"
def eq(a: TensorLike, b: TensorLike, /) -> Tensor:
    """a == b.

    Shapes: those of the inputs broadcast.
    Types: floats, integers and bools. The result is bool.
    Formula: y = a == b
    Derivative: none; nothing is recorded.
    Raises: DTypeError (two float types; no tensor, array or number), ShapeError (shapes that do not broadcast).
    >>> fp.eq(fp.tensor([-1.5, 1.5]), 0.5).tolist()
    [False, False]
    """

# flamepy/core/ops/pointwise.py: "erf"
def erf(x: TensorLike, /) -> Tensor:
    """Error function 2/sqrt(pi) * integral of exp(-t^2) from 0 to x.

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = erf(x)
    Derivative from g, the cotangent of y: dx = g * 1.1283791670955126 * exp_down(-x * x)
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.erf(fp.tensor([-1.5, 1.5])).tolist()]
    [-0.9661, 0.9661]
    """

# flamepy/ops/logarithms.py: "erfc"
def erfc(x: TensorLike, /) -> Tensor:
    """1 - erf(x), precise where that is small.

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = erfc_of(x)
    Derivative from g, the cotangent of y: dx = g * -1.1283791670955126 * exp_down(-x * x)
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.erfc(fp.tensor([-1.5, 1.5])).tolist()]
    [1.9661, 0.0339]
    """

# flamepy/ops/logarithms.py: "erfinv"
def erfinv(x: TensorLike, /) -> Tensor:
    """The number whose erf is x; NaN outside [-1, 1].

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = erfinv_of(x)
    Derivative from g, the cotangent of y: dx = g * 0.8862269254527580 * exp(y * y)
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.erfinv(fp.tensor([-1.5, 1.5])).tolist()]
    [nan, nan]
    """

# flamepy/core/ops/pointwise.py: "exp"
def exp(x: TensorLike, /) -> Tensor:
    """e to the power x.

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = exp(x)
    Derivative from g, the cotangent of y: dx = g * y
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.exp(fp.tensor([-1.5, 1.5])).tolist()]
    [0.2231, 4.4817]
    """

# flamepy/ops/logarithms.py: "exp2"
def exp2(x: TensorLike, /) -> Tensor:
    """2 to the power x.

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = exp2(x)
    Derivative from g, the cotangent of y: dx = g * y * LN2
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.exp2(fp.tensor([-1.5, 1.5])).tolist()]
    [0.3536, 2.8284]
    """

# flamepy/ops/shape_more.py: expand
def expand(x: TensorLike, shape: int | Sequence[int], *rest: int) -> Tensor:
    """broadcast_to(). Shapes: as there.
    >>> fp.expand(fp.tensor([[1], [2]]), -1, 2).tolist()
    [[1, 1], [2, 2]]
    """

# flamepy/ops/stacking.py: expand_as
def expand_as(x: TensorLike, other: TensorLike) -> Tensor:
    """broadcast_to() the shape of another tensor. Shapes: as there.
    >>> fp.expand_as(fp.ones(3), fp.ones(2, 3)).shape
    (2, 3)
    """

# flamepy/ops/logarithms.py: "expm1"
def expm1(x: TensorLike, /) -> Tensor:
    """exp(x) - 1, precise near 0.

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = expm1(x)
    Derivative from g, the cotangent of y: dx = g * (y + 1.0)
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.expm1(fp.tensor([-1.5, 1.5])).tolist()]
    [-0.7769, 3.4817]
    """

# flamepy/ops/drops.py: feature_alpha_dropout
def feature_alpha_dropout(x: TensorLike, p: float = 0.5, training: bool = False) -> Tensor:
    """alpha_dropout() of whole channels. Shapes: (N, C, ...), unchanged.
    >>> F.feature_alpha_dropout(fp.ones(1, 2), 0.5, training=False).tolist()
    [[1.0, 1.0]]
    """

# flamepy/ops/rounding.py: "trunc"
def fix(x: TensorLike, /) -> Tensor:
    """The whole number next to x towards 0. Records a zero gradient.

    Shapes: any; the result has that of x.
    Types: floats and integers; bools are computed in int64.
    Formula: y = trunc_of(x)
    Derivative from g, the cotangent of y: dx = 0
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.trunc(fp.tensor([-1.5, 1.5])).tolist()]
    [-1.0, 1.0]
    """

# flamepy/ops/shape_more.py: flatten
def flatten(x: TensorLike, start_axis: int = 0, end_axis: int = -1) -> Tensor:
    """Merge the axes from start_axis to end_axis into one. Shapes: (a, b, c) gives (a * b * c,). Raises ShapeError.
    >>> fp.flatten(fp.ones(2, 3, 4), start_axis=1).shape
    (2, 12)
    """

# flamepy/ops/rearranging.py: flip
@overload
def flip(x: TensorLike, axis: Axis = None, *rest: int) -> Tensor: ...
@overload
def flip(x: TensorLike, dim: Axis = None, *rest: int) -> Tensor:
    """The order of elements reversed along all axes, or the ones named: flip(x, (0, 1)) or flip(x, 0, 1). Shapes: x's.
    >>> fp.flip(fp.tensor([[1, 2], [3, 4]]), 1).tolist()
    [[2, 1], [4, 3]]
    """

# flamepy/ops/rearranging.py: fliplr
def fliplr(x: TensorLike) -> Tensor:
    """Columns in reverse order: flip(x, 1). Shapes: x's, of two axes or more, else IndexOutOfRange.
    >>> fp.fliplr(fp.tensor([[1, 2], [3, 4]])).tolist()
    [[2, 1], [4, 3]]
    """

# flamepy/ops/rearranging.py: flipud
def flipud(x: TensorLike) -> Tensor:
    """Rows in reverse order: flip(x, 0). Shapes: x's, of one axis or more, else IndexOutOfRange.
    >>> fp.flipud(fp.tensor([1, 2, 3])).tolist()
    [3, 2, 1]
    """

# flamepy/ops/spellings.py: float_power
def float_power(a: TensorLike, b: TensorLike) -> Tensor:
    """a to the power b, computed in float64, whatever their types.
    Shapes: those of a and b broadcast.
    >>> fp.float_power(fp.tensor([2, 3]), -1).numpy().round(4).tolist()
    [0.5, 0.3333]
    """

# flamepy/ops/rounding.py: "floor"
def floor(x: TensorLike, /) -> Tensor:
    """Largest integer not above x. Records a zero gradient.

    Shapes: any; the result has that of x.
    Types: floats and integers; bools are computed in int64.
    Formula: y = floor(x)
    Derivative from g, the cotangent of y: dx = 0
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.floor(fp.tensor([-1.5, 1.5])).tolist()]
    [-2.0, 1.0]
    """

# flamepy/ops/rounding.py: "floor_divide"
def floor_divide(a: TensorLike, b: TensorLike, /) -> Tensor:
    """The largest whole number not above a / b, as Python's and NumPy's a // b. It jumps and has no derivative: a tracked input raises.

    Shapes: those of the inputs broadcast.
    Types: floats and integers; bools are computed in int64.
    Formula: y = a // b
    Derivative: none; nothing is recorded.
    Raises: DTypeError (two float types; no tensor, array or number), ShapeError (shapes that do not broadcast).
    >>> [round(v, 4) for v in fp.floor_divide(fp.tensor([-1.5, 1.5]), 0.5).tolist()]
    [-3.0, 3.0]
    """

# flamepy/ops/rounding.py: "fmod"
def fmod(a: TensorLike, b: TensorLike, /) -> Tensor:
    """a - trunc(a / b) * b, with the sign of a, as C's fmod; the gradient takes trunc(a / b) for constant, as in PyTorch.

    Shapes: those of the inputs broadcast.
    Types: floats and integers; bools are computed in int64.
    Formula: p, s = abs(a), abs(b); r = p % s; y = select(a < 0, -1, 1) * select(r == 0, r, select(p < 0, s - r, select(s < 0, r - s, r)))
    Derivative from g, the cotangent of y: da = g
    Derivative from g, the cotangent of y: db = -g * trunc_of(a / b)
    Raises: DTypeError (two float types; no tensor, array or number), ShapeError (shapes that do not broadcast).
    >>> [round(v, 4) for v in fp.fmod(fp.tensor([-1.5, 1.5]), 0.5).tolist()]
    [-0.0, 0.0]
    """

# flamepy/ops/patches.py: fold
def fold(
    x: TensorLike,
    output_size: TensorLike,
    kernel_size: Pair,
    dilation: Pair = 1,
    padding: Pair | str = 0,
    stride: Pair | None = 1,
) -> Tensor:
    """Columns added up where they were in images of output_size, the transpose of unfold().
    Shapes: x (N, C * rows * columns, positions) or without N; the result (N, C, *output_size). Raises ShapeError.
    >>> F.fold(fp.ones(2, 2), (1, 3), (1, 2)).tolist()
    [[[1.0, 2.0, 1.0]]]
    """

# flamepy/ops/rounding.py: "frac"
def frac(x: TensorLike, /) -> Tensor:
    """x - trunc(x), with the sign of x.

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = x - trunc_of(x)
    Derivative from g, the cotangent of y: dx = g
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.frac(fp.tensor([-1.5, 1.5])).tolist()]
    [-0.5, 0.5]
    """

# flamepy/ops/picking.py: gather
@overload
def gather(x: TensorLike, axis: int, index: TensorLike) -> Tensor: ...
@overload
def gather(x: TensorLike, dim: int, index: TensorLike) -> Tensor:
    """y[i, j] = x[index[i, j], j] for axis 0, and so on. Shapes: that of index, as many axes as x, sizes at most x's elsewhere.
    >>> fp.gather(fp.tensor([[1, 2], [3, 4]]), 1, [[1], [0]]).tolist()
    [[2], [3]]
    """

# flamepy/ops/losses.py: gaussian_nll_loss
def gaussian_nll_loss(
    x: TensorLike,
    target: TensorLike,
    var: TensorLike,
    *,
    full: bool = False,
    eps: float = 1e-06,
    reduction: str = 'mean',
) -> Tensor:
    """Minus the logarithm of a normal density: 0.5 (log var + (x - t)^2 / var) (Nix & Weigend 1994).
    Variances below `eps` count as eps. `full` adds the constant log(2 pi) / 2.
    Shapes: target and var broadcast to x; var may be a number, or lack x's last axis. Raises ShapeError, ValueError for a variance below 0.
    >>> F.gaussian_nll_loss(fp.tensor([1.0]), [3.0], fp.tensor([1.0])).item()
    2.0
    """

# flamepy/core/ops/pointwise.py: "ge"
def ge(a: TensorLike, b: TensorLike, /) -> Tensor:
    """a >= b.

    Shapes: those of the inputs broadcast.
    Types: floats, integers and bools. The result is bool.
    Formula: y = a >= b
    Derivative: none; nothing is recorded.
    Raises: DTypeError (two float types; no tensor, array or number), ShapeError (shapes that do not broadcast).
    >>> fp.ge(fp.tensor([-1.5, 1.5]), 0.5).tolist()
    [False, True]
    """

# flamepy/ops/gated.py: geglu
@overload
def geglu(x: TensorLike, y: TensorLike | None = None, axis: int = -1) -> Tensor: ...
@overload
def geglu(x: TensorLike, y: TensorLike | None = None, dim: int = -1) -> Tensor:
    """gelu(x) * y; without y gelu of the first half of x along an axis times the second.
    Shapes and errors: as swiglu.
    >>> [round(v, 4) for v in F.geglu(fp.tensor([1.0, 2.0])).tolist()]
    [1.6827]
    """

# flamepy/ops/activations.py: gelu
def gelu(x: TensorLike, approximate: str = 'none') -> Tensor:
    """Gaussian error linear unit, exact ("none") or by tanh ("tanh").
    Shapes: any; the result has that of x. Integers give float32. Raises ValueError for another approximation.
    >>> [round(v, 4) for v in fp.gelu(fp.tensor([-1.5, 1.5])).tolist()]
    [-0.1002, 1.3998]
    """

# flamepy/ops/vectors.py: outer
def ger(a: TensorLike, b: TensorLike) -> Tensor:
    """All products of an element of a and one of b. Shapes: n and m elements give (n, m).
    >>> fp.outer(fp.tensor([1, 2]), fp.tensor([3, 4])).tolist()
    [[3, 4], [6, 8]]
    """

# flamepy/ops/more_activations.py: glu
@overload
def glu(x: TensorLike, axis: int = -1) -> Tensor: ...
@overload
def glu(x: TensorLike, dim: int = -1) -> Tensor:
    """The first half along an axis times the sigmoid of the second (Dauphin et al. 2016, arXiv:1612.08083).
    Shapes: x any with an even size along axis; the result has half of it. Raises ShapeError for an odd one.
    >>> F.glu(fp.tensor([2.0, 0.0])).tolist()
    [1.0]
    """

# flamepy/core/ops/pointwise.py: "gt"
def greater(a: TensorLike, b: TensorLike, /) -> Tensor:
    """a > b.

    Shapes: those of the inputs broadcast.
    Types: floats, integers and bools. The result is bool.
    Formula: y = a > b
    Derivative: none; nothing is recorded.
    Raises: DTypeError (two float types; no tensor, array or number), ShapeError (shapes that do not broadcast).
    >>> fp.gt(fp.tensor([-1.5, 1.5]), 0.5).tolist()
    [False, True]
    """

# flamepy/core/ops/pointwise.py: "ge"
def greater_equal(a: TensorLike, b: TensorLike, /) -> Tensor:
    """a >= b.

    Shapes: those of the inputs broadcast.
    Types: floats, integers and bools. The result is bool.
    Formula: y = a >= b
    Derivative: none; nothing is recorded.
    Raises: DTypeError (two float types; no tensor, array or number), ShapeError (shapes that do not broadcast).
    >>> fp.ge(fp.tensor([-1.5, 1.5]), 0.5).tolist()
    [False, True]
    """

# flamepy/ops/grids.py: grid_sample
def grid_sample(
    x: TensorLike,
    grid: TensorLike,
    mode: str = 'bilinear',
    padding_mode: str = 'zeros',
    align_corners: bool = False,
) -> Tensor:
    """x at the places of a grid, whose last axis is (column, row) or (column, row, depth), from -1 to 1 over an axis of x.
    mode: "bilinear" (also for volumes), "nearest" or "bicubic" (images). padding_mode says what is outside: "zeros", "border" (the
    nearest number inside) or "reflection". align_corners: -1 and 1 are the middles of the outermost numbers, not their outer ends. Unless
    it is zeros, or the mode "bicubic", a place of NaN is -1, and an infinite one an end, as in PyTorch.
    Shapes: x (N, C, H, W) and grid (N, H', W', 2) give (N, C, H', W'); x (N, C, D, H, W) and grid (N, D', H', W', 3) likewise.
    Of "nearest" no gradient reaches the grid. Raises ShapeError, ValueError.
    >>> F.grid_sample(fp.tensor([[[[1.0, 3.0]]]]), fp.zeros(1, 1, 1, 2)).tolist()
    [[[[2.0]]]]
    """

# flamepy/ops/channel_norms.py: group_norm
def group_norm(
    x: TensorLike,
    num_groups: int,
    weight: TensorLike | None = None,
    bias: TensorLike | None = None,
    eps: float = 1e-05,
) -> Tensor:
    """(x - mean) / sqrt(var + eps) * weight + bias, where mean and variance are those of `num_groups` groups of channels of each example
    (Wu & He 2018, arXiv:1803.08494).
    Shapes: x (N, C) or (N, C, ...), weight and bias (C,); the result has x's. Integers give float32. Raises ShapeError.
    >>> F.group_norm(fp.tensor([[1.0, 3.0, 4.0, 8.0]]), 2).numpy().round(2).tolist()
    [[-1.0, 1.0, -1.0, 1.0]]
    """

# flamepy/ops/recurrent.py: gru
def gru(
    x: TensorLike,
    w_ih: TensorLike,
    w_hh: TensorLike,
    b_ih: TensorLike | None = None,
    b_hh: TensorLike | None = None,
    h0: TensorLike | None = None,
    *,
    lengths: TensorLike | None = None,
    reverse: bool = False,
) -> Tensor:
    """One GRU layer (Cho et al. 2014, arXiv:1406.1078) over all time steps: (y (T, B, H), h_n (B, H)).
    Shapes and options: see lstm(), with 3 H for 4 H: gates in the order r, z, n. As in PyTorch r multiplies h @ w_hn.T + b_hn.
    >>> F.gru(fp.zeros(2, 1, 1), fp.zeros(3, 1), fp.zeros(3, 1), h0=fp.ones(1, 1))[0].tolist()
    [[[0.5]], [[0.25]]]
    """

# flamepy/ops/recurrent.py: gru_cell
def gru_cell(
    x: TensorLike,
    h: TensorLike,
    w_ih: TensorLike,
    w_hh: TensorLike,
    b_ih: TensorLike | None = None,
    b_hh: TensorLike | None = None,
) -> Tensor:
    """One step of gru(): h from x and that of the step before. It has derivatives of any order.
    Shapes: x (B, n_in) or (n_in,), h (B, H) or (H,), weights as gru() has them. Raises ShapeError.
    >>> F.gru_cell(fp.zeros(1, 1), fp.ones(1, 1), fp.zeros(3, 1), fp.zeros(3, 1)).tolist()
    [[0.5]]
    """

# flamepy/core/ops/pointwise.py: "gt"
def gt(a: TensorLike, b: TensorLike, /) -> Tensor:
    """a > b.

    Shapes: those of the inputs broadcast.
    Types: floats, integers and bools. The result is bool.
    Formula: y = a > b
    Derivative: none; nothing is recorded.
    Raises: DTypeError (two float types; no tensor, array or number), ShapeError (shapes that do not broadcast).
    >>> fp.gt(fp.tensor([-1.5, 1.5]), 0.5).tolist()
    [False, True]
    """

# flamepy/ops/more_activations.py: "hardshrink"
def hardshrink(x: TensorLike, /, lambd: float = 0.5) -> Tensor:
    """x, and 0 within lambd of 0.

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = select((x >= -lambd) & (x <= lambd), 0.0, x)
    Derivative from g, the cotangent of y: dx = select((x >= -lambd) & (x <= lambd), 0.0, g)
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.hardshrink(fp.tensor([-1.5, 1.5])).tolist()]
    [-1.5, 1.5]
    """

# flamepy/ops/more_activations.py: "hardsigmoid"
def hardsigmoid(x: TensorLike, /) -> Tensor:
    """x / 6 + 1/2 limited to [0, 1]; the derivative at both is 0.

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = select(x <= -3.0, 0.0, select(x >= 3.0, 1.0, (x + 3.0) / 6.0))
    Derivative from g, the cotangent of y: dx = select((x > -3.0) & (x < 3.0), g / 6.0, 0.0)
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.hardsigmoid(fp.tensor([-1.5, 1.5])).tolist()]
    [0.25, 0.75]
    """

# flamepy/ops/more_activations.py: "hardswish"
def hardswish(x: TensorLike, /) -> Tensor:
    """x * hardsigmoid(x) (Howard et al. 2019, arXiv:1905.02244).

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = x * select(x <= -3.0, 0.0, select(x >= 3.0, 6.0, x + 3.0)) / 6.0
    Derivative from g, the cotangent of y: dx = select(x <= -3.0, 0.0, select(x < 3.0, g * (x / 3.0 + 0.5), g))
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.hardswish(fp.tensor([-1.5, 1.5])).tolist()]
    [-0.375, 1.125]
    """

# flamepy/ops/more_activations.py: "hardtanh"
def hardtanh(x: TensorLike, /, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """x limited to [min_val, max_val]; the derivative at both is 0.

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = select(x <= min_val, min_val, select(x >= max_val, max_val, x))
    Derivative from g, the cotangent of y: dx = select((x <= min_val) | (x >= max_val), 0.0, g)
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.hardtanh(fp.tensor([-1.5, 1.5])).tolist()]
    [-1.0, 1.0]
    """

# flamepy/ops/logic.py: "heaviside"
def heaviside(a: TensorLike, b: TensorLike, /) -> Tensor:
    """0 below zero, 1 above, b where a is 0; NaN for NaN.

    Shapes: those of the inputs broadcast.
    Types: floats; integers and bools are computed in float32.
    Formula: y = select(a == 0.0, b, select(a > 0.0, 1.0, select(a < 0.0, 0.0, a)))
    Derivative from g, the cotangent of y: da = 0
    Derivative from g, the cotangent of y: db = select(a == 0.0, g, 0.0)
    Raises: DTypeError (two float types; no tensor, array or number), ShapeError (shapes that do not broadcast).
    >>> [round(v, 4) for v in fp.heaviside(fp.tensor([-1.5, 1.5]), 0.5).tolist()]
    [0.0, 1.0]
    """

# flamepy/ops/margins.py: hinge_embedding_loss
def hinge_embedding_loss(x: TensorLike, target: TensorLike, *, margin: float = 1.0, reduction: str = 'mean') -> Tensor:
    """x where the target is 1, max(0, margin - x) where it is -1; x is a distance.
    Shapes and errors: as mse_loss.
    >>> F.hinge_embedding_loss(fp.tensor([0.25, 0.25]), [1, -1], reduction="none").tolist()
    [0.25, 0.75]
    """

# flamepy/ops/counting.py: histc
def histc(x: TensorLike, bins: int = 100, min: float | None = 0, max: float | None = 0) -> Tensor:
    """How many numbers lie in each of `bins` equal parts from min to max, or where both are alike between x's own least and largest one.
    Shapes: (bins,), of x's type. Other numbers and NaN are left out; max belongs to the last part. Between a least and a largest number
    that are not finite there are no parts: NaN. Raises ValueError for bins below 1.
    Types: floats; integers and bools are computed in float32.
    >>> fp.histc(fp.tensor([1.0, 2.0, 1.0]), bins=2, min=0, max=3).tolist()
    [2.0, 1.0]
    """

# flamepy/ops/stacking.py: hstack
def hstack(tensors: Iterable[TensorLike]) -> Tensor:
    """Tensors side by side: along the second axis, those of one axis along it. Shapes: (n, a), (n, b) give (n, a + b).
    >>> fp.hstack([fp.ones(2, 1), fp.ones(2, 3)]).shape
    (2, 4)
    """

# flamepy/ops/losses.py: huber_loss
def huber_loss(x: TensorLike, target: TensorLike, *, delta: float = 1.0, reduction: str = 'mean') -> Tensor:
    """Quadratic up to |x - target| = delta, linear beyond, slope delta.
    Shapes and errors: as mse_loss; ValueError for delta <= 0.
    >>> fp.huber_loss(fp.tensor([1.0, 2.0]), [1.0, 4.0]).item()
    0.75
    """

# flamepy/ops/trigonometry.py: "hypot"
def hypot(a: TensorLike, b: TensorLike, /) -> Tensor:
    """sqrt(a * a + b * b), without overflow on the way.

    Shapes: those of the inputs broadcast.
    Types: floats; integers and bools are computed in float32.
    Formula: y = hypot_of(a, b)
    Derivative from g, the cotangent of y: da = g * (a / y)
    Derivative from g, the cotangent of y: db = g * (b / y)
    Raises: DTypeError (two float types; no tensor, array or number), ShapeError (shapes that do not broadcast).
    >>> [round(v, 4) for v in fp.hypot(fp.tensor([-1.5, 1.5]), 0.5).tolist()]
    [1.5811, 1.5811]
    """

# flamepy/ops/scattering.py: index_add
@overload
def index_add(x: TensorLike, axis: int, index: TensorLike, source: TensorLike, alpha: float = 1) -> Tensor: ...
@overload
def index_add(x: TensorLike, dim: int, index: TensorLike, source: TensorLike, alpha: float = 1) -> Tensor:
    """x with alpha times the slices of source added to its own along `axis` at the integers in the 1-D index, in order.
    Shapes: x's; source has index's size at the axis. Raises ShapeError, DTypeError, IndexOutOfRange.
    >>> fp.index_add(fp.zeros(3), 0, [2, 2], fp.tensor([5.0, 6.0])).tolist()
    [0.0, 0.0, 11.0]
    """

# flamepy/ops/scattering.py: index_copy
@overload
def index_copy(x: TensorLike, axis: int, index: TensorLike, source: TensorLike) -> Tensor: ...
@overload
def index_copy(x: TensorLike, dim: int, index: TensorLike, source: TensorLike) -> Tensor:
    """x with its slices along `axis` at the integers in the 1-D index replaced by those of source; of several the last one counts.
    Shapes and errors: as index_add.
    >>> fp.index_copy(fp.zeros(3), 0, [2, 0], fp.tensor([5.0, 6.0])).tolist()
    [6.0, 0.0, 5.0]
    """

# flamepy/ops/scattering.py: index_fill
@overload
def index_fill(x: TensorLike, axis: int, index: TensorLike, value: float) -> Tensor: ...
@overload
def index_fill(x: TensorLike, dim: int, index: TensorLike, value: float) -> Tensor:
    """x with a number in its slices along `axis` at the integers in the 1-D index.
    Shapes: x's. Raises ShapeError, IndexOutOfRange, DTypeError for what is no number.
    >>> fp.index_fill(fp.zeros(3), 0, [2, 0], 7.0).tolist()
    [7.0, 0.0, 7.0]
    """

# flamepy/ops/scattering.py: index_put
def index_put(x: TensorLike, indices: TensorLike, values: TensorLike, accumulate: bool = False) -> Tensor:
    """x with values at x[indices], which is a tuple of what may stand in x[...]; accumulate: added there, in order.
    Shapes: x's; values broadcast to the shape of x[indices]. Raises ShapeError, DTypeError, IndexOutOfRange.
    >>> fp.index_put(fp.zeros(3), ([2, 2],), fp.tensor([5.0, 6.0]), accumulate=True).tolist()
    [0.0, 0.0, 11.0]
    """

# flamepy/ops/picking.py: index_select
@overload
def index_select(x: TensorLike, axis: int, index: TensorLike) -> Tensor: ...
@overload
def index_select(x: TensorLike, dim: int, index: TensorLike) -> Tensor:
    """The slices of x along `axis` at the integers in the 1-D `index`. Shapes: x's with index's size at the axis.
    >>> fp.index_select(fp.tensor([1.0, 2.0, 3.0]), 0, [2, 0]).tolist()
    [3.0, 1.0]
    """

# flamepy/ops/contractions.py: inner
def inner(a: TensorLike, b: TensorLike) -> Tensor:
    """The sum of products over the last axes of both; a number multiplies. Shapes: (..., k), (*, k) give (..., *). Raises ShapeError.
    >>> fp.inner(fp.tensor([1.0, 2.0]), fp.tensor([3.0, 4.0])).item()
    11.0
    """

# flamepy/ops/channel_norms.py: instance_norm
def instance_norm(
    x: TensorLike,
    running_mean: TensorLike | None = None,
    running_var: TensorLike | None = None,
    weight: TensorLike | None = None,
    bias: TensorLike | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-05,
) -> Tensor:
    """batch_norm() of each example by itself (Ulyanov et al. 2016, arXiv:1607.08022).
    Running statistics, where they are given, move towards the mean of the examples' ones; use_input_stats=False normalises by them.
    Shapes: x (N, C, ...), the others (C,); the result has x's. Raises ShapeError, for a single number a channel of an example too.
    >>> F.instance_norm(fp.tensor([[[1.0, 3.0], [4.0, 8.0]]])).numpy().round(2).tolist()
    [[[-1.0, 1.0], [-1.0, 1.0]]]
    """

# flamepy/ops/resampling.py: interpolate
def interpolate(
    x: TensorLike,
    size: TensorLike | None = None,
    scale_factor: TensorLike | None = None,
    mode: str = 'nearest',
    align_corners: TensorLike | None = None,
    recompute_scale_factor: TensorLike | None = None,
    antialias: bool = False,
) -> Tensor:
    """x with other sizes of its last axes: `size`, or its own times scale_factor.
    mode: "nearest" (rounds down), "nearest-exact", "linear" along every axis ("bilinear" and "trilinear" are its names for images and
    volumes), "bicubic" (images), "area" (means). align_corners: the outermost numbers stay where they are. antialias (bilinear, bicubic):
    weights as wide as what a result covers. Integers are rounded. As in PyTorch a given scale_factor is the scale of places, too, unless
    recompute_scale_factor.
    Shapes: x (N, C, ...) with one to three more axes; the result has these of the wanted size. Raises ShapeError, ValueError.
    >>> F.interpolate(fp.tensor([[[1.0, 3.0]]]), scale_factor=2, mode="linear", align_corners=False).tolist()
    [[[1.0, 1.5, 2.5, 3.0]]]
    """

# flamepy/ops/logic.py: isclose
def isclose(a: TensorLike, b: TensorLike, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Tensor:
    """Whether |a - b| <= atol + rtol * |b|, or both are the same infinity, or NaN if equal_nan. Integers are compared in float64.
    Shapes: those of a and b broadcast. Raises ShapeError if they do not, DTypeError for two float types.
    >>> fp.isclose(fp.tensor([1.0, 1.1]), fp.tensor([1.000001, 1.0])).tolist()
    [True, False]
    """

# flamepy/ops/logic.py: isfinite
def isfinite(x: TensorLike) -> Tensor:
    """Whether each number is neither NaN nor infinite. Shapes: any to the same.
    >>> fp.isfinite(fp.tensor([1.0, float("nan"), float("inf")])).tolist()
    [True, False, False]
    """

# flamepy/ops/logic.py: isinf
def isinf(x: TensorLike, detect_positive: bool = True, detect_negative: bool = True) -> Tensor:
    """Whether each number is infinite, of either sign unless one is not asked for. Shapes: any to the same.
    >>> fp.isinf(fp.tensor([1.0, -float("inf")])).tolist()
    [False, True]
    """

# flamepy/ops/logic.py: isnan
def isnan(x: TensorLike) -> Tensor:
    """Whether each number is NaN. Shapes: any to the same.
    >>> fp.isnan(fp.tensor([1.0, float("nan")])).tolist()
    [False, True]
    """

# flamepy/ops/logic.py: isneginf
def isneginf(x: TensorLike) -> Tensor:
    """Whether each number is infinite and below zero. Shapes: any to the same.
    >>> fp.isneginf(fp.tensor([1.0, float("inf"), -float("inf")])).tolist()
    [False, False, True]
    """

# flamepy/ops/logic.py: isposinf
def isposinf(x: TensorLike) -> Tensor:
    """Whether each number is infinite and above zero. Shapes: any to the same.
    >>> fp.isposinf(fp.tensor([1.0, float("inf"), -float("inf")])).tolist()
    [False, True, False]
    """

# flamepy/ops/losses.py: kl_div
def kl_div(x: TensorLike, target: TensorLike, *, reduction: str = 'mean', log_target: bool = False) -> Tensor:
    """t (log t - x) for log-probabilities x and probabilities t (Kullback & Leibler 1951), or their logarithms with `log_target`.
    "mean" is over all elements, as in PyTorch; the divergence of distributions is "batchmean": the sum divided by the first size.
    Shapes and errors: as mse_loss.
    >>> round(F.kl_div(fp.tensor([[0.5, 0.5]]).log(), [[1.0, 0.0]], reduction="batchmean").item(), 4)
    0.6931
    """

# flamepy/ops/vectors.py: kron
def kron(a: TensorLike, b: TensorLike) -> Tensor:
    """Kronecker's product: each element of a times all of b. Shapes: (n, m), (p, q) give (n p, m q).
    >>> fp.kron(fp.tensor([1, 10]), fp.tensor([1, 2])).tolist()
    [1, 2, 10, 20]
    """

# flamepy/ops/sorting.py: kthvalue
@overload
def kthvalue(x: TensorLike, k: int, axis: int = -1, keepdims: bool = False) -> tuple[Tensor, Tensor]: ...
@overload
def kthvalue(x: TensorLike, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """(value, index) of the k-th smallest element along an axis, from 1. PyTorch's median is that of k = (n + 1) // 2.
    Shapes: x's without the axis, or 1 there with keepdims. Raises ShapeError for a k that there is not.
    >>> [t.item() for t in fp.kthvalue(fp.tensor([3.0, 1.0, 2.0]), 2)]
    [2.0, 2]
    """

# flamepy/ops/losses.py: l1_loss
def l1_loss(x: TensorLike, target: TensorLike, *, reduction: str = 'mean') -> Tensor:
    """|x - target|.
    Shapes and errors: as mse_loss.
    >>> fp.l1_loss(fp.tensor([1.0, 2.0]), [1.0, 4.0]).item()
    1.0
    """

# flamepy/ops/row_norms.py: layer_norm
def layer_norm(
    x: TensorLike,
    normalized_shape: int | Sequence[int] | Tensor | None = None,
    weight: TensorLike | None = None,
    bias: TensorLike | None = None,
    eps: float = 1e-05,
) -> Tensor:
    """(x - mean) / sqrt(var + eps) * weight + bias over the last axes (Ba et al. 2016, arXiv:1607.06450).
    normalized_shape: the sizes of those axes (default: the weight's, else the last). layer_norm(x, weight, bias) works too.
    Shapes: x (..., *normalized_shape), weight and bias normalized_shape; the result has x's. Integers give float32. Raises ShapeError.
    >>> [round(v, 2) for v in F.layer_norm(fp.tensor([1.0, 3.0])).tolist()]
    [-1.0, 1.0]
    """

# flamepy/core/ops/pointwise.py: "le"
def le(a: TensorLike, b: TensorLike, /) -> Tensor:
    """a <= b.

    Shapes: those of the inputs broadcast.
    Types: floats, integers and bools. The result is bool.
    Formula: y = a <= b
    Derivative: none; nothing is recorded.
    Raises: DTypeError (two float types; no tensor, array or number), ShapeError (shapes that do not broadcast).
    >>> fp.le(fp.tensor([-1.5, 1.5]), 0.5).tolist()
    [True, False]
    """

# flamepy/ops/activations.py: "leaky_relu"
def leaky_relu(x: TensorLike, /, negative_slope: float = 0.01) -> Tensor:
    """x above zero, negative_slope * x below (Maas et al. 2013).

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = select(x > 0.0, x, negative_slope * x)
    Derivative from g, the cotangent of y: dx = select(x > 0.0, g, negative_slope * g)
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.leaky_relu(fp.tensor([-1.5, 1.5])).tolist()]
    [-0.015, 1.5]
    """

# flamepy/ops/spellings.py: "lerp"
def lerp(a: TensorLike, b: TensorLike, weight: TensorLike, /) -> Tensor:
    """a + weight * (b - a), exact at both ends.

    Shapes: those of the inputs broadcast.
    Types: floats; integers and bools are computed in float32.
    Formula: y = select(abs(weight) < 0.5, a + weight * (b - a), b - (b - a) * (1.0 - weight))
    Derivative from g, the cotangent of y: da = g * (1.0 - weight)
    Derivative from g, the cotangent of y: db = g * weight
    Derivative from g, the cotangent of y: dweight = g * (b - a)
    Raises: DTypeError (two float types; no tensor, array or number), ShapeError (shapes that do not broadcast).
    >>> [round(v, 4) for v in fp.lerp(fp.tensor([-1.5, 1.5]), 0.5, 2.0).tolist()]
    [2.5, -0.5]
    """

# flamepy/core/ops/pointwise.py: "lt"
def less(a: TensorLike, b: TensorLike, /) -> Tensor:
    """a < b.

    Shapes: those of the inputs broadcast.
    Types: floats, integers and bools. The result is bool.
    Formula: y = a < b
    Derivative: none; nothing is recorded.
    Raises: DTypeError (two float types; no tensor, array or number), ShapeError (shapes that do not broadcast).
    >>> fp.lt(fp.tensor([-1.5, 1.5]), 0.5).tolist()
    [True, False]
    """

# flamepy/core/ops/pointwise.py: "le"
def less_equal(a: TensorLike, b: TensorLike, /) -> Tensor:
    """a <= b.

    Shapes: those of the inputs broadcast.
    Types: floats, integers and bools. The result is bool.
    Formula: y = a <= b
    Derivative: none; nothing is recorded.
    Raises: DTypeError (two float types; no tensor, array or number), ShapeError (shapes that do not broadcast).
    >>> fp.le(fp.tensor([-1.5, 1.5]), 0.5).tolist()
    [True, False]
    """

# flamepy/ops/logarithms.py: "lgamma"
def lgamma(x: TensorLike, /) -> Tensor:
    """Logarithm of |gamma(x)|.

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = lgamma_of(x)
    Derivative from g, the cotangent of y: dx = g * digamma_of(x)
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.lgamma(fp.tensor([-1.5, 1.5])).tolist()]
    [0.86, -0.1208]
    """

# flamepy/ops/products.py: linear
def linear(
    x: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None = None,
    residual: TensorLike | None = None,
    activation: str = '',
) -> Tensor:
    """activation(x @ weight.T + bias) + residual: x (..., n_in), weight (n_out, n_in), bias (n_out), residual as the result, or None.
    activation: the name of a pointwise op, e.g. "relu", "gelu_erf" (gelu), "gelu_tanh", "silu"; "" for none.
    Shapes: the result is (..., n_out). Raises ShapeError, ValueError for a name that is no activation.
    Types: floats; integers and bools are computed in float32.
    >>> F.linear(fp.tensor([-3.0, 2.0]), fp.tensor([[1.0, 1.0], [0.0, 1.0]]), activation="relu").tolist()
    [0.0, 2.0]
    """

# flamepy/ops/linear_loss.py: linear_cross_entropy
def linear_cross_entropy(
    x: TensorLike,
    weight: TensorLike,
    target: TensorLike,
    bias: TensorLike | None = None,
    *,
    chunk: int | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    reduction: str = 'mean',
) -> Tensor:
    """cross_entropy(linear(x, weight, bias), ids) that holds the logits of `chunk` rows at a time, and never all.
    By default a chunk's logits are about as many numbers as x has. Gradients are made in the forward pass.
    Shapes: x (..., width), weight (classes, width), bias (classes,), ids (...). Raises ShapeError, ValueError for a reduction other than
    "mean" and "sum" or a chunk that is no count, and what cross_entropy raises for ids. The options are cross_entropy's.
    >>> round(F.linear_cross_entropy(fp.zeros(3, 4), fp.ones(2, 4), [0, 1, 1]).item(), 4)
    0.6931
    """

# flamepy/ops/channel_norms.py: local_response_norm
def local_response_norm(x: TensorLike, size: int, alpha: float = 0.0001, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """x / (k + alpha * mean of x^2 over `size` neighbouring channels) ** beta (Krizhevsky et al. 2012).
    Shapes: x (N, C, ...) with three axes or more; the result has x's. Beyond the first and last channel are zeros. Raises ShapeError.
    >>> F.local_response_norm(fp.ones(1, 3, 1), 2, alpha=2.0, beta=1.0, k=0.0).numpy().round(2).ravel().tolist()
    [1.0, 0.5, 0.5]
    """

# flamepy/core/ops/pointwise.py: "log"
def log(x: TensorLike, /) -> Tensor:
    """Natural logarithm; -inf at zero, NaN below.

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = log(x)
    Derivative from g, the cotangent of y: dx = g / x
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.log(fp.tensor([-1.5, 1.5])).tolist()]
    [nan, 0.4055]
    """

# flamepy/ops/logarithms.py: "log10"
def log10(x: TensorLike, /) -> Tensor:
    """Logarithm to base 10; -inf at zero, NaN below.

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = log10(x)
    Derivative from g, the cotangent of y: dx = g / (x * LN10)
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.log10(fp.tensor([-1.5, 1.5])).tolist()]
    [nan, 0.1761]
    """

# flamepy/ops/logarithms.py: "log1p"
def log1p(x: TensorLike, /) -> Tensor:
    """log(1 + x), precise near 0.

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = log1p(x)
    Derivative from g, the cotangent of y: dx = g / (1.0 + x)
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.log1p(fp.tensor([-1.5, 1.5])).tolist()]
    [nan, 0.9163]
    """

# flamepy/ops/logarithms.py: "log2"
def log2(x: TensorLike, /) -> Tensor:
    """Logarithm to base 2; -inf at zero, NaN below.

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = log2(x)
    Derivative from g, the cotangent of y: dx = g / (x * LN2)
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.log2(fp.tensor([-1.5, 1.5])).tolist()]
    [nan, 0.585]
    """

# flamepy/ops/rows.py: log_softmax
@overload
def log_softmax(x: TensorLike, axis: int = -1, dtype: DTypeLike | None = None) -> Tensor: ...
@overload
def log_softmax(x: TensorLike, dim: int = -1, dtype: DTypeLike | None = None) -> Tensor:
    """log(softmax(x)) along one axis, accurate where softmax is tiny, of x in another dtype if one is given.
    Shapes: any; the result has that of x. Raises IndexOutOfRange for an axis that x does not have.
    Types: floats; integers and bools are computed in float32.
    >>> [round(v, 4) for v in fp.log_softmax(fp.tensor([0.0, 0.0])).tolist()]
    [-0.6931, -0.6931]
    """

# flamepy/ops/logarithms.py: "logaddexp"
def logaddexp(a: TensorLike, b: TensorLike, /) -> Tensor:
    """log(exp(a) + exp(b)), without overflow.

    Shapes: those of the inputs broadcast.
    Types: floats; integers and bools are computed in float32.
    Formula: y = maximum(a, b) + log1p(exp_down(-abs(apart(a, b))))
    Derivative from g, the cotangent of y: da = g * share(a, b)
    Derivative from g, the cotangent of y: db = g * share(b, a)
    Raises: DTypeError (two float types; no tensor, array or number), ShapeError (shapes that do not broadcast).
    >>> [round(v, 4) for v in fp.logaddexp(fp.tensor([-1.5, 1.5]), 0.5).tolist()]
    [0.6269, 1.8133]
    """

# flamepy/ops/logarithms.py: "logaddexp2"
def logaddexp2(a: TensorLike, b: TensorLike, /) -> Tensor:
    """log2(2**a + 2**b), without overflow.

    Shapes: those of the inputs broadcast.
    Types: floats; integers and bools are computed in float32.
    Formula: y = maximum(a, b) + log1p(exp2(-abs(apart(a, b)))) * 1.4426950408889634
    Derivative from g, the cotangent of y: da = g * share(a * LN2, b * LN2)
    Derivative from g, the cotangent of y: db = g * share(b * LN2, a * LN2)
    Raises: DTypeError (two float types; no tensor, array or number), ShapeError (shapes that do not broadcast).
    >>> [round(v, 4) for v in fp.logaddexp2(fp.tensor([-1.5, 1.5]), 0.5).tolist()]
    [0.8219, 2.085]
    """

# flamepy/ops/scans.py: logcumsumexp
@overload
def logcumsumexp(x: TensorLike, axis: int = 0) -> Tensor: ...
@overload
def logcumsumexp(x: TensorLike, dim: int = 0) -> Tensor:
    """log(cumsum(exp(x))) along an axis, without overflow; computed in float64.
    Shapes: x's. Raises DTypeError unless x is of floats.
    >>> [round(v, 4) for v in fp.logcumsumexp(fp.tensor([0.0, 0.0])).tolist()]
    [0.0, 0.6931]
    """

# flamepy/ops/logic.py: "logical_and"
def logical_and(a: TensorLike, b: TensorLike, /) -> Tensor:
    """Both hold.

    Shapes: those of the inputs broadcast.
    Types: floats, integers and bools. The result is bool.
    Formula: y = (a != 0) & (b != 0)
    Derivative: none; nothing is recorded.
    Raises: DTypeError (two float types; no tensor, array or number), ShapeError (shapes that do not broadcast).
    >>> fp.logical_and(fp.tensor([-1.5, 1.5]), 0.5).tolist()
    [True, True]
    """

# flamepy/ops/logic.py: "logical_not"
def logical_not(x: TensorLike, /) -> Tensor:
    """x does not hold.

    Shapes: any; the result has that of x.
    Types: floats, integers and bools. The result is bool.
    Formula: y = x == 0
    Derivative: none; nothing is recorded.
    Raises: DTypeError (no tensor, array or number).
    >>> fp.logical_not(fp.tensor([-1.5, 1.5])).tolist()
    [False, False]
    """

# flamepy/ops/logic.py: "logical_or"
def logical_or(a: TensorLike, b: TensorLike, /) -> Tensor:
    """At least one holds.

    Shapes: those of the inputs broadcast.
    Types: floats, integers and bools. The result is bool.
    Formula: y = (a != 0) | (b != 0)
    Derivative: none; nothing is recorded.
    Raises: DTypeError (two float types; no tensor, array or number), ShapeError (shapes that do not broadcast).
    >>> fp.logical_or(fp.tensor([-1.5, 1.5]), 0.5).tolist()
    [True, True]
    """

# flamepy/ops/logic.py: "logical_xor"
def logical_xor(a: TensorLike, b: TensorLike, /) -> Tensor:
    """Exactly one holds.

    Shapes: those of the inputs broadcast.
    Types: floats, integers and bools. The result is bool.
    Formula: y = (a != 0) != (b != 0)
    Derivative: none; nothing is recorded.
    Raises: DTypeError (two float types; no tensor, array or number), ShapeError (shapes that do not broadcast).
    >>> fp.logical_xor(fp.tensor([-1.5, 1.5]), 0.5).tolist()
    [False, False]
    """

# flamepy/ops/logarithms.py: logit
def logit(x: TensorLike, eps: TensorLike | None = None) -> Tensor:
    """log(x / (1 - x)), the inverse of sigmoid; with eps x is first limited to [eps, 1 - eps]. NaN outside [0, 1].
    Shapes: any; the result has that of x. Integers give float32.
    >>> [round(v, 4) for v in fp.logit(fp.tensor([0.5, 0.75])).tolist()]
    [0.0, 1.0986]
    """

# flamepy/ops/more_activations.py: "logsigmoid"
def logsigmoid(x: TensorLike, /) -> Tensor:
    """log(sigmoid(x)), without overflow.

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = minimum(x, 0.0) - log1p(exp_down(-abs(x)))
    Derivative from g, the cotangent of y: dx = g * sigmoid(-x)
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.logsigmoid(fp.tensor([-1.5, 1.5])).tolist()]
    [-1.7014, -0.2014]
    """

# flamepy/ops/reduce_more.py: logsumexp
@overload
def logsumexp(x: TensorLike, axis: Axis = None, keepdims: bool = False) -> Tensor: ...
@overload
def logsumexp(x: TensorLike, dim: Axis = None, keepdim: bool = False) -> Tensor:
    """log(sum(exp(x))) over the axes, without overflow.
    Shapes: as sum. Raises DTypeError unless x is of floats.
    >>> round(fp.logsumexp(fp.tensor([0.0, 0.0])).item(), 4)
    0.6931
    """

# flamepy/ops/pools.py: lp_pool
def lp_pool1d(x: TensorLike, norm_type: float, kernel_size: Pair, stride: Pair | None = None, ceil_mode: bool = False) -> Tensor:
    """lp_pool2d() of lines. Shapes: x (N, C, L) or (C, L).
    >>> F.lp_pool1d(fp.tensor([[3.0, 4.0]]), 2, 2).tolist()
    [[5.0]]
    """

# flamepy/ops/pools.py: lp_pool
def lp_pool2d(x: TensorLike, norm_type: float, kernel_size: Pair, stride: Pair | None = None, ceil_mode: bool = False) -> Tensor:
    """(the sum of x ** norm_type over each window) ** (1 / norm_type); where a window ends outside (ceil_mode), its mean
    counts as often as the window has numbers, as in PyTorch. Shapes: as max_pool2d().
    >>> F.lp_pool2d(fp.tensor([[[3.0, 4.0]]]), 2, (1, 2)).tolist()
    [[[5.0]]]
    """

# flamepy/ops/pools.py: lp_pool
def lp_pool3d(x: TensorLike, norm_type: float, kernel_size: Pair, stride: Pair | None = None, ceil_mode: bool = False) -> Tensor:
    """lp_pool2d() of volumes. Shapes: x (N, C, D, H, W) or (C, D, H, W).
    >>> F.lp_pool3d(fp.ones(1, 1, 1, 1), 2, 1).tolist()
    [[[[1.0]]]]
    """

# flamepy/ops/bits.py: bitwise_left_shift
def lshift(a: TensorLike, b: TensorLike) -> Tensor:
    """a << b: a times 2**b; bits that do not fit are lost. By fewer than 0 bits, or more than there are, it is 0.
    Shapes: those of a and b broadcast. Types: integers. Raises DTypeError for floats.
    >>> fp.bitwise_left_shift(fp.tensor([1, 3]), 4).tolist()
    [16, 48]
    """

# flamepy/ops/recurrent.py: lstm
def lstm(
    x: TensorLike,
    w_ih: TensorLike,
    w_hh: TensorLike,
    b_ih: TensorLike | None = None,
    b_hh: TensorLike | None = None,
    h0: TensorLike | None = None,
    c0: TensorLike | None = None,
    *,
    lengths: TensorLike | None = None,
    reverse: bool = False,
) -> Tensor:
    """One LSTM layer (Hochreiter & Schmidhuber 1997) over all time steps: (y (T, B, H), h_n (B, H), c_n (B, H)).
    Shapes: x (T, B, n_in), w_ih (4 H, n_in), w_hh (4 H, H), b_ih and b_hh (4 H,), gates in the order i, f, g, o; h0 and c0 (B, H), zeros
    if not given. `lengths` (B,): how many steps each row has; y is 0 beyond, h_n and c_n are those of its last step. `reverse`: from each
    row's last step to its first. 16-bit floats are computed in float32. Raises ShapeError, IndexOutOfRange for a length that x does not
    have.
    >>> [t.tolist() for t in F.lstm(fp.zeros(1, 1, 2), fp.zeros(4, 2), fp.zeros(4, 1))]
    [[[[0.0]]], [[0.0]], [[0.0]]]
    """

# flamepy/ops/recurrent.py: lstm_cell
def lstm_cell(
    x: TensorLike,
    h: TensorLike,
    c: TensorLike,
    w_ih: TensorLike,
    w_hh: TensorLike,
    b_ih: TensorLike | None = None,
    b_hh: TensorLike | None = None,
) -> Tensor:
    """One step of lstm(): (h, c) from x and those of the step before. It has derivatives of any order.
    Shapes: x (B, n_in) or (n_in,), h and c (B, H) or (H,), weights as lstm() has them. Raises ShapeError.
    >>> [s.tolist() for s in F.lstm_cell(fp.zeros(1, 1), fp.zeros(1, 1), fp.zeros(1, 1), fp.zeros(4, 1), fp.zeros(4, 1))]
    [[[0.0]], [[0.0]]]
    """

# flamepy/core/ops/pointwise.py: "lt"
def lt(a: TensorLike, b: TensorLike, /) -> Tensor:
    """a < b.

    Shapes: those of the inputs broadcast.
    Types: floats, integers and bools. The result is bool.
    Formula: y = a < b
    Derivative: none; nothing is recorded.
    Raises: DTypeError (two float types; no tensor, array or number), ShapeError (shapes that do not broadcast).
    >>> fp.lt(fp.tensor([-1.5, 1.5]), 0.5).tolist()
    [True, False]
    """

# flamepy/ops/margins.py: margin_ranking_loss
def margin_ranking_loss(
    x1: TensorLike,
    x2: TensorLike,
    target: TensorLike,
    *,
    margin: float = 0.0,
    reduction: str = 'mean',
) -> Tensor:
    """max(0, margin - t (x1 - x2)): t is 1 where x1 should be the larger one, -1 where x2 should.
    Shapes: any three that broadcast.
    >>> F.margin_ranking_loss(fp.tensor([1.0]), fp.tensor([3.0]), [1.0]).item()
    2.0
    """

# flamepy/ops/activations.py: masked_fill
def masked_fill(x: TensorLike, mask: TensorLike, value: float) -> Tensor:
    """x with `value`, a number or a tensor without axes, where the bool mask holds; mask broadcasts.
    Shapes: those of x and mask broadcast. Types: any x; a bool mask. Raises DTypeError for another mask or a value that is no number.
    >>> fp.masked_fill(fp.tensor([1.0, 2.0]), [False, True], 0.0).tolist()
    [1.0, 0.0]
    """

# flamepy/ops/selecting.py: masked_scatter
def masked_scatter(x: TensorLike, mask: TensorLike, source: TensorLike) -> Tensor:
    """x with its elements where the mask holds replaced by those of source, one after the other.
    Shapes: that x and mask broadcast to; source needs as many elements as the mask holds, else IndexOutOfRange.
    >>> fp.masked_scatter(fp.zeros(3), [True, False, True], fp.tensor([5.0, 6.0])).tolist()
    [5.0, 0.0, 6.0]
    """

# flamepy/ops/selecting.py: masked_select
def masked_select(x: TensorLike, mask: TensorLike, *, size: int | None = None, fill_value: float = 0) -> Tensor:
    """The elements of x where the mask holds, one after the other; x and mask broadcast. size: how many, `fill_value` where there are
    fewer. Reads the mask on the host, so no captured step may call it.
    Shapes: (n,), or (size,). Raises DTypeError for a mask that is not bool, ShapeError.
    >>> fp.masked_select(fp.tensor([1.0, 2.0, 3.0]), [True, False, True]).tolist()
    [1.0, 3.0]
    """

# flamepy/core/ops/matrices.py: matmul
def matmul(a: TensorLike, b: TensorLike) -> Tensor:
    """a @ b: vectors, matrices, and stacks of matrices that broadcast. Raises ShapeError, DTypeError for integers beside floats. Integers
    wrap around, as in NumPy; of truths it says whether any two are true.
    Shapes: (..., n, k) and (..., k, m) give (..., n, m); a vector (k,) stands for a row or a column and goes.
    >>> fp.matmul(fp.tensor([[1.0, 2.0], [3.0, 4.0]]), [1.0, 1.0]).tolist()
    [3.0, 7.0]
    """

# flamepy/core/ops/reduce.py: max
@overload
def max(x: TensorLike, axis: Axis = None, keepdims: bool = False) -> Tensor: ...
@overload
def max(x: TensorLike, dim: Axis = None, keepdim: bool = False) -> Tensor:
    """Largest element over the axes; NaN wins. Ties share the gradient equally; where NaN wins all gradients are NaN.
    The values alone: argmax() gives the indices. PyTorch's max(1) and max(dim=1) give pairs, so what these give here cannot be taken apart
    like one (FlameError); what max(axis=1) gives can.
    Shapes: as sum. Raises ShapeError where there are no elements.
    Types: floats, integers and bools.
    >>> fp.max(fp.tensor([[1.0, 2.0], [3.0, 4.0]]), axis=1).tolist()
    [2.0, 4.0]
    """

# flamepy/ops/pools.py: max_pool
def max_pool1d(
    x: TensorLike,
    kernel_size: Pair,
    stride: Pair | None = None,
    padding: Pair | str = 0,
    dilation: Pair = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor:
    """max_pool2d() of lines. Shapes: x (N, C, L) or (C, L).
    >>> F.max_pool1d(fp.tensor([[1.0, 3.0, 2.0, 4.0]]), 2).tolist()
    [[3.0, 4.0]]
    """

# flamepy/ops/pools.py: max_pool
def max_pool2d(
    x: TensorLike,
    kernel_size: Pair,
    stride: Pair | None = None,
    padding: Pair | str = 0,
    dilation: Pair = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor:
    """The largest number of each window (padding never wins); the stride is the window's size unless given.
    A NaN wins. Of equal numbers the first one gets the gradient, as in PyTorch. padding is an int, one for each axis, or for each side:
    ((top, bottom), (left, right)) or flat (left, right, top, bottom). ceil_mode: the last window may end outside. return_indices: a pair,
    with where in its image each number was, for max_unpool2d().
    Shapes: x (N, C, H, W) or (C, H, W); the result has fewer rows and columns. Raises ShapeError.
    >>> F.max_pool2d(fp.tensor([[[1.0, 2.0], [3.0, 4.0]]]), 2).tolist()
    [[[4.0]]]
    """

# flamepy/ops/pools.py: max_pool
def max_pool3d(
    x: TensorLike,
    kernel_size: Pair,
    stride: Pair | None = None,
    padding: Pair | str = 0,
    dilation: Pair = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor:
    """max_pool2d() of volumes. Shapes: x (N, C, D, H, W) or (C, D, H, W).
    >>> F.max_pool3d(fp.ones(1, 2, 2, 2), 2).tolist()
    [[[[1.0]]]]
    """

# flamepy/ops/pools.py: max_unpool
def max_unpool1d(
    x: TensorLike,
    indices: TensorLike,
    kernel_size: Pair,
    stride: Pair | None = None,
    padding: Pair | str = 0,
    output_size: TensorLike | None = None,
) -> Tensor:
    """max_unpool2d() of lines. Shapes: x and indices (N, C, L) or (C, L).
    >>> F.max_unpool1d(fp.tensor([[3.0, 4.0]]), fp.tensor([[1, 3]]), 2).tolist()
    [[0.0, 3.0, 0.0, 4.0]]
    """

# flamepy/ops/pools.py: max_unpool
def max_unpool2d(
    x: TensorLike,
    indices: TensorLike,
    kernel_size: Pair,
    stride: Pair | None = None,
    padding: Pair | str = 0,
    output_size: TensorLike | None = None,
) -> Tensor:
    """Numbers at their indices in images of zeros: what max_pool2d(..., return_indices=True) gave, put back.
    output_size: where several sizes pool to that of x. Numbers that meet (windows that overlap) give their mean.
    Shapes: x and indices (N, C, H, W) or (C, H, W); the result (..., *output_size). Raises ShapeError, IndexOutOfRange.
    >>> F.max_unpool2d(fp.tensor([[[4.0]]]), fp.tensor([[[3]]]), 2).tolist()
    [[[0.0, 0.0], [0.0, 4.0]]]
    """

# flamepy/ops/pools.py: max_unpool
def max_unpool3d(
    x: TensorLike,
    indices: TensorLike,
    kernel_size: Pair,
    stride: Pair | None = None,
    padding: Pair | str = 0,
    output_size: TensorLike | None = None,
) -> Tensor:
    """max_unpool2d() of volumes. Shapes: x and indices (N, C, D, H, W) or (C, D, H, W).
    >>> F.max_unpool3d(fp.ones(1, 1, 1, 1), fp.tensor([[[[1]]]]), (1, 1, 2)).tolist()
    [[[[0.0, 1.0]]]]
    """

# flamepy/core/ops/pointwise.py: "maximum"
def maximum(a: TensorLike, b: TensorLike, /) -> Tensor:
    """The larger of a and b; NaN if either is. Ties share the gradient equally; NaN passes it on to both, as in PyTorch.

    Shapes: those of the inputs broadcast.
    Types: floats, integers and bools.
    Formula: y = maximum(a, b)
    Derivative from g, the cotangent of y: da = select(a < b, 0.0, select(a == b, 0.5 * g, g))
    Derivative from g, the cotangent of y: db = select(b < a, 0.0, select(a == b, 0.5 * g, g))
    Raises: DTypeError (two float types; no tensor, array or number), ShapeError (shapes that do not broadcast).
    >>> [round(v, 4) for v in fp.maximum(fp.tensor([-1.5, 1.5]), 0.5).tolist()]
    [0.5, 1.5]
    """

# flamepy/core/ops/reduce.py: mean
@overload
def mean(x: TensorLike, axis: Axis = None, keepdims: bool = False, dtype: DTypeLike | None = None) -> Tensor: ...
@overload
def mean(x: TensorLike, dim: Axis = None, keepdim: bool = False, dtype: DTypeLike | None = None) -> Tensor:
    """Mean over the axes (integers give float32), in another dtype if one is given; NaN for no elements.
    Shapes: as sum. Raises IndexOutOfRange for an axis that x does not have.
    Types: floats; integers and bools are computed in float32.
    >>> fp.mean(fp.tensor([[1.0, 2.0], [3.0, 4.0]]), axis=1).tolist()
    [1.5, 3.5]
    """

# flamepy/ops/sorting.py: median
@overload
def median(x: TensorLike, axis: Axis = None, keepdims: bool = False) -> Tensor: ...
@overload
def median(x: TensorLike, dim: Axis = None, keepdim: bool = False) -> Tensor:
    """The middle number along the axes, of an even number of them the mean of two, as NumPy's; NaN where there is one.
    PyTorch's median is the lower of two, with its index: kthvalue(x, (n + 1) // 2).
    Shapes: as sum. Integers give float32. Raises ShapeError where there are no elements.
    >>> fp.median(fp.tensor([1.0, 4.0, 2.0, 3.0])).item()
    2.5
    """

# flamepy/ops/stacking.py: meshgrid
def meshgrid(*xs: TensorLike, indexing: str = 'xy') -> list[Tensor]:
    """Coordinates of the grid of these 1-D tensors, one tensor for each. indexing "xy", as in NumPy, has the first along columns, "ij"
    along rows. Shapes: (n,), (m,) give (m, n), with "ij" (n, m). Raises ShapeError.
    >>> [t.tolist() for t in fp.meshgrid(fp.tensor([1, 2]), fp.tensor([3, 4]), indexing="ij")]
    [[[1, 1], [2, 2]], [[3, 4], [3, 4]]]
    """

# flamepy/core/ops/reduce.py: min
@overload
def min(x: TensorLike, axis: Axis = None, keepdims: bool = False) -> Tensor: ...
@overload
def min(x: TensorLike, dim: Axis = None, keepdim: bool = False) -> Tensor:
    """Smallest element over the axes; NaN wins. Ties share the gradient equally; where NaN wins all gradients are NaN.
    The values alone: argmin() gives the indices. PyTorch's min(1) and min(dim=1) give pairs, so what these give here cannot be taken apart
    like one (FlameError); what min(axis=1) gives can.
    Shapes: as sum. Raises ShapeError where there are no elements.
    Types: floats, integers and bools.
    >>> fp.min(fp.tensor([[1.0, 2.0], [3.0, 4.0]]), axis=1).tolist()
    [1.0, 3.0]
    """

# flamepy/core/ops/pointwise.py: "minimum"
def minimum(a: TensorLike, b: TensorLike, /) -> Tensor:
    """The smaller of a and b; NaN if either is. Ties share the gradient equally; NaN passes it on to both, as in PyTorch.

    Shapes: those of the inputs broadcast.
    Types: floats, integers and bools.
    Formula: y = minimum(a, b)
    Derivative from g, the cotangent of y: da = select(b < a, 0.0, select(a == b, 0.5 * g, g))
    Derivative from g, the cotangent of y: db = select(a < b, 0.0, select(a == b, 0.5 * g, g))
    Raises: DTypeError (two float types; no tensor, array or number), ShapeError (shapes that do not broadcast).
    >>> [round(v, 4) for v in fp.minimum(fp.tensor([-1.5, 1.5]), 0.5).tolist()]
    [-1.5, 0.5]
    """

# flamepy/ops/more_activations.py: "mish"
def mish(x: TensorLike, /) -> Tensor:
    """x * tanh(log(1 + exp(x))) (Misra 2019, arXiv:1908.08681).

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: e = exp(minimum(x, 20.0)); n = e * (e + 2.0); y = select(x > 20.0, x, x * (n / (n + 2.0)))
    Derivative from g, the cotangent of y: dx = g * mish_slope(x)
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.mish(fp.tensor([-1.5, 1.5])).tolist()]
    [-0.2981, 1.4034]
    """

# flamepy/ops/mixing.py: mixup
def mixup(x: TensorLike, y: TensorLike, alpha: float = 1.0, num_classes: int | None = None, training: bool = True) -> Tensor:
    """(x, y) with each sample blended with the one before it in the batch, the first with the last, and their labels: shares l and 1 - l, l
    from Beta(alpha, alpha), one for a batch. When not training x as it is, and the labels soft.
    (Zhang et al. 2017, arXiv:1710.09412; the arithmetic of torchvision.) The draw is of flamepy's random numbers.
    Shapes: x (N, ...); labels y (N,), ids below num_classes, or (N, classes), soft; the results (N, ...) and (N, classes). Raises
    ShapeError, DTypeError, ValueError, IndexOutOfRange.
    >>> F.mixup(fp.ones(2, 1), [0, 1], num_classes=2, training=False)[1].tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

# flamepy/ops/vectors.py: mm
def mm(a: TensorLike, b: TensorLike) -> Tensor:
    """The product of two matrices. Shapes: (n, k), (k, m) give (n, m), else ShapeError.
    >>> fp.mm(fp.ones(2, 3), fp.ones(3, 1)).tolist()
    [[3.0], [3.0]]
    """

# flamepy/ops/sorting.py: mode
@overload
def mode(x: TensorLike, axis: int = -1, keepdims: bool = False) -> tuple[Tensor, Tensor]: ...
@overload
def mode(x: TensorLike, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """(value, index) of the most frequent element along an axis: of several the smallest, and where it is last.
    Shapes: x's without the axis, or 1 there with keepdims. Raises ShapeError for an axis without elements.
    >>> [t.item() for t in fp.mode(fp.tensor([2.0, 1.0, 2.0]))]
    [2.0, 2]
    """

# flamepy/ops/rearranging.py: moveaxis
def moveaxis(x: TensorLike, source: TensorLike, destination: TensorLike) -> Tensor:
    """Axes moved to other places, the others in their order. Also called movedim. Shapes: (a, b, c), 0, 2 give (b, c, a).
    >>> fp.moveaxis(fp.ones(2, 3, 4), 0, -1).shape
    (3, 4, 2)
    """

# flamepy/ops/rearranging.py: moveaxis
def movedim(x: TensorLike, source: TensorLike, destination: TensorLike) -> Tensor:
    """Axes moved to other places, the others in their order. Also called movedim. Shapes: (a, b, c), 0, 2 give (b, c, a).
    >>> fp.moveaxis(fp.ones(2, 3, 4), 0, -1).shape
    (3, 4, 2)
    """

# flamepy/ops/losses.py: mse_loss
def mse_loss(x: TensorLike, target: TensorLike, *, reduction: str = 'mean') -> Tensor:
    """(x - target)^2.
    Shapes: x and target of one shape; the result is (), or theirs with "none". Raises ShapeError, ValueError for a reduction.
    >>> fp.mse_loss(fp.tensor([1.0, 2.0]), [1.0, 4.0]).item()
    2.0
    """

# flamepy/ops/sorting.py: msort
def msort(x: TensorLike) -> Tensor:
    """x in order along its first axis: the values alone.
    Shapes: x's.
    >>> fp.msort(fp.tensor([3.0, 1.0, 2.0])).tolist()
    [1.0, 2.0, 3.0]
    """

# flamepy/core/ops/pointwise.py: "mul"
def mul(a: TensorLike, b: TensorLike, /) -> Tensor:
    """a * b.

    Shapes: those of the inputs broadcast.
    Types: floats and integers; bools are computed in int64.
    Formula: y = a * b
    Derivative from g, the cotangent of y: da = g * b
    Derivative from g, the cotangent of y: db = g * a
    Raises: DTypeError (two float types; no tensor, array or number), ShapeError (shapes that do not broadcast).
    >>> [round(v, 4) for v in fp.mul(fp.tensor([-1.5, 1.5]), 0.5).tolist()]
    [-0.75, 0.75]
    """

# flamepy/ops/contractions.py: multi_dot
def multi_dot(tensors: Iterable[TensorLike]) -> Tensor:
    """The product of two or more matrices in the order that multiplies least; the first and the last may be vectors. Also in linalg.
    Shapes: (n, k), (k, m), (m, p) give (n, p). Raises ShapeError.
    >>> fp.multi_dot([fp.ones(2, 3), fp.ones(3, 4), fp.ones(4)]).tolist()
    [12.0, 12.0]
    """

# flamepy/ops/margins.py: multi_margin_loss
def multi_margin_loss(
    x: TensorLike,
    target: TensorLike,
    *,
    p: int = 1,
    margin: float = 1.0,
    weight: TensorLike | None = None,
    reduction: str = 'mean',
) -> Tensor:
    """The mean over the classes of max(0, margin - x[id] + x[j])^p, j not the id (Crammer & Singer 2001).
    Shapes: x (rows, classes) or (classes,), ids (rows,) or (); `weight` (classes,) multiplies the loss of a row by that of its id.
    Raises ValueError for a p that is neither 1 nor 2, and what cross_entropy raises for ids.
    >>> F.multi_margin_loss(fp.tensor([[0.0, 1.0]]), [0]).item()
    1.0
    """

# flamepy/ops/margins.py: multilabel_margin_loss
def multilabel_margin_loss(x: TensorLike, target: TensorLike, *, reduction: str = 'mean') -> Tensor:
    """The sum of max(0, 1 - (x[i] - x[j])) over the classes i that a row has and those j that it has not, divided by their number.
    Shapes: x (rows, classes) or (classes,); target as x, integers: the ids of a row's classes, then -1, then anything.
    Raises ShapeError, DTypeError unless ids are integers, IndexOutOfRange for an id before the -1 that is no class.
    >>> F.multilabel_margin_loss(fp.tensor([0.0, 0.5]), [1, -1]).item()
    0.25
    """

# flamepy/ops/margins.py: multilabel_soft_margin_loss
def multilabel_soft_margin_loss(
    x: TensorLike,
    target: TensorLike,
    weight: TensorLike | None = None,
    *,
    reduction: str = 'mean',
) -> Tensor:
    """The mean over the classes of the binary cross-entropy of sigmoid(x); `weight` (classes,) multiplies that of each class.
    Shapes: x and target (..., classes). Errors: as mse_loss. No gradient reaches the target.
    >>> round(F.multilabel_soft_margin_loss(fp.tensor([[0.0, 0.0]]), [[1.0, 0.0]]).item(), 4)
    0.6931
    """

# flamepy/ops/random.py: multinomial
def multinomial(probs: TensorLike, num_samples: int, replacement: bool = False, generator: TensorLike | None = None) -> Tensor:
    """Ids (int64) drawn with probabilities proportional to each row of `probs`, with or without putting them back. As PyTorch's.
    Shapes: (n,) or (rows, n) give (num_samples,) or (rows, num_samples). Raises ShapeError for more than n that are not put back,
    ValueError for numbers that are no probabilities, and rows with too few above 0.
    >>> fp.multinomial(fp.tensor([0.0, 1.0]), 3, replacement=True).tolist()
    [1, 1, 1]
    """

# flamepy/core/ops/pointwise.py: "mul"
def multiply(a: TensorLike, b: TensorLike, /) -> Tensor:
    """a * b.

    Shapes: those of the inputs broadcast.
    Types: floats and integers; bools are computed in int64.
    Formula: y = a * b
    Derivative from g, the cotangent of y: da = g * b
    Derivative from g, the cotangent of y: db = g * a
    Raises: DTypeError (two float types; no tensor, array or number), ShapeError (shapes that do not broadcast).
    >>> [round(v, 4) for v in fp.mul(fp.tensor([-1.5, 1.5]), 0.5).tolist()]
    [-0.75, 0.75]
    """

# flamepy/ops/vectors.py: mv
def mv(a: TensorLike, b: TensorLike) -> Tensor:
    """A matrix times a vector. Shapes: (n, k), (k,) give (n,), else ShapeError.
    >>> fp.mv(fp.ones(2, 3), fp.ones(3)).tolist()
    [3.0, 3.0]
    """

# flamepy/ops/logic.py: nan_to_num
def nan_to_num(x: TensorLike, nan: float = 0.0, posinf: TensorLike | None = None, neginf: TensorLike | None = None) -> Tensor:
    """x with `nan` in the place of NaN, `posinf` and `neginf` of infinity (None: the largest and the least number of the type).
    What was replaced gets the gradient 0.
    Shapes: any; the result has that of x. Types: any; integers and bools have nothing to replace.
    >>> fp.nan_to_num(fp.tensor([1.0, float("nan"), float("inf")]), posinf=9.0).tolist()
    [1.0, 0.0, 9.0]
    """

# flamepy/ops/reductions.py: nanmean
@overload
def nanmean(x: TensorLike, axis: Axis = None, keepdims: bool = False, dtype: DTypeLike | None = None) -> Tensor: ...
@overload
def nanmean(x: TensorLike, dim: Axis = None, keepdim: bool = False, dtype: DTypeLike | None = None) -> Tensor:
    """mean() of the numbers that are not NaN; NaN where there are none.
    Shapes: as sum.
    >>> fp.nanmean(fp.tensor([1.0, float("nan"), 2.0])).item()
    1.5
    """

# flamepy/ops/sorting.py: nanmedian
@overload
def nanmedian(x: TensorLike, axis: Axis = None, keepdims: bool = False) -> Tensor: ...
@overload
def nanmedian(x: TensorLike, dim: Axis = None, keepdim: bool = False) -> Tensor:
    """median() of the numbers that are not NaN; NaN where there are none.
    Shapes: as sum.
    >>> fp.nanmedian(fp.tensor([1.0, float("nan"), 3.0])).item()
    2.0
    """

# flamepy/ops/sorting.py: nanquantile
@overload
def nanquantile(
    x: TensorLike,
    q: TensorLike,
    axis: Axis = None,
    keepdims: bool = False,
    method: str = 'linear',
    interpolation: str | None = None,
) -> Tensor: ...
@overload
def nanquantile(
    x: TensorLike,
    q: TensorLike,
    dim: Axis = None,
    keepdim: bool = False,
    method: str = 'linear',
    interpolation: str | None = None,
) -> Tensor:
    """quantile() of the numbers that are not NaN; NaN where there are none.
    Shapes: as there.
    >>> fp.nanquantile(fp.tensor([1.0, float("nan"), 3.0]), 0.5).item()
    2.0
    """

# flamepy/ops/reductions.py: nansum
@overload
def nansum(x: TensorLike, axis: Axis = None, keepdims: bool = False, dtype: DTypeLike | None = None) -> Tensor: ...
@overload
def nansum(x: TensorLike, dim: Axis = None, keepdim: bool = False, dtype: DTypeLike | None = None) -> Tensor:
    """sum() of the numbers that are not NaN.
    Shapes: as sum.
    >>> fp.nansum(fp.tensor([1.0, float("nan"), 2.0])).item()
    3.0
    """

# flamepy/ops/shape_more.py: narrow
@overload
def narrow(x: TensorLike, axis: int, start: int, length: int) -> Tensor: ...
@overload
def narrow(x: TensorLike, dim: int, start: int, length: int) -> Tensor:
    """`length` elements of one axis, from `start`. Shapes: x's with `length` at that axis. Raises IndexOutOfRange.
    >>> fp.narrow(fp.tensor([1, 2, 3, 4]), 0, 1, 2).tolist()
    [2, 3]
    """

# flamepy/core/ops/pointwise.py: "ne"
def ne(a: TensorLike, b: TensorLike, /) -> Tensor:
    """a != b.

    Shapes: those of the inputs broadcast.
    Types: floats, integers and bools. The result is bool.
    Formula: y = a != b
    Derivative: none; nothing is recorded.
    Raises: DTypeError (two float types; no tensor, array or number), ShapeError (shapes that do not broadcast).
    >>> fp.ne(fp.tensor([-1.5, 1.5]), 0.5).tolist()
    [True, True]
    """

# flamepy/core/ops/pointwise.py: "neg"
def neg(x: TensorLike, /) -> Tensor:
    """-x.

    Shapes: any; the result has that of x.
    Types: floats and integers; bools are computed in int64.
    Formula: y = -x
    Derivative from g, the cotangent of y: dx = -g
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.neg(fp.tensor([-1.5, 1.5])).tolist()]
    [1.5, -1.5]
    """

# flamepy/core/ops/pointwise.py: "neg"
def negative(x: TensorLike, /) -> Tensor:
    """-x.

    Shapes: any; the result has that of x.
    Types: floats and integers; bools are computed in int64.
    Formula: y = -x
    Derivative from g, the cotangent of y: dx = -g
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.neg(fp.tensor([-1.5, 1.5])).tolist()]
    [1.5, -1.5]
    """

# flamepy/ops/cross_entropy.py: nll_loss
def nll_loss(
    x: TensorLike,
    target: TensorLike,
    weight: TensorLike | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = 'mean',
) -> Tensor:
    """-x[id] for log-probabilities x; shapes and `weight` as in cross_entropy.
    Shapes: x (rows, classes), ids (rows,); the others of cross_entropy too. Raises what it raises.
    >>> fp.nll_loss(fp.tensor([[-0.5, -1.5]]), [1]).item()
    1.5
    """

# flamepy/ops/selecting.py: nonzero
def nonzero(x: TensorLike, as_tuple: bool = False, *, size: int | None = None, fill_value: int = 0) -> Tensor:
    """The indices of the elements that are not zero, a row for each (int64). Also called argwhere. as_tuple: as NumPy's nonzero, a 1-D
    tensor for each axis, which may stand in x[...]. size: how many rows, `fill_value` where there are fewer. Reads x on the host, so no
    captured step may call it. Shapes: (n, x.ndim), or (n,) for each axis.
    >>> [t.tolist() for t in fp.nonzero(fp.tensor([[0, 1], [2, 0]]), as_tuple=True)]
    [[0, 1], [1, 0]]
    """

# flamepy/ops/reductions.py: norm
@overload
def norm(
    x: TensorLike,
    ord: TensorLike | None = None,
    axis: Axis = None,
    keepdims: bool = False,
    dtype: DTypeLike | None = None,
    p: TensorLike | None = None,
) -> Tensor: ...
@overload
def norm(
    x: TensorLike,
    ord: TensorLike | None = None,
    dim: Axis = None,
    keepdim: bool = False,
    dtype: DTypeLike | None = None,
    p: TensorLike | None = None,
) -> Tensor:
    """vector_norm(), as PyTorch's norm: ord (or p) 2 or "fro", any number, inf. flamepy.linalg.norm has matrix norms.
    Shapes: as sum. Raises ValueError for "nuc", which is a matrix norm.
    >>> fp.norm(fp.tensor([[3.0, 4.0], [0.0, 0.0]]), axis=1).tolist()
    [5.0, 0.0]
    """

# flamepy/ops/reductions.py: normalize
@overload
def normalize(x: TensorLike, p: float = 2.0, axis: Axis = 1, eps: float = 1e-12) -> Tensor: ...
@overload
def normalize(x: TensorLike, p: float = 2.0, dim: Axis = 1, eps: float = 1e-12) -> Tensor:
    """x divided by its norm along an axis, or by eps where that is larger.
    Shapes: x's. Raises IndexOutOfRange for an axis that x does not have.
    >>> F.normalize(fp.tensor([[3.0, 4.0]])).tolist()
    [[0.6000000238418579, 0.800000011920929]]
    """

# flamepy/core/ops/pointwise.py: "ne"
def not_equal(a: TensorLike, b: TensorLike, /) -> Tensor:
    """a != b.

    Shapes: those of the inputs broadcast.
    Types: floats, integers and bools. The result is bool.
    Formula: y = a != b
    Derivative: none; nothing is recorded.
    Raises: DTypeError (two float types; no tensor, array or number), ShapeError (shapes that do not broadcast).
    >>> fp.ne(fp.tensor([-1.5, 1.5]), 0.5).tolist()
    [True, True]
    """

# flamepy/ops/diagonals.py: one_hot
def one_hot(ids: TensorLike, num_classes: int | None = None) -> Tensor:
    """For each id a row of zeros with a one at its place, of the ids' type. Without num_classes there are as many as the largest id asks
    for, which the host has to read. Shapes: any; the result has one axis more. Raises DTypeError, IndexOutOfRange, ValueError.
    >>> fp.one_hot(fp.tensor([1, 0]), 3).tolist()
    [[0, 1, 0], [1, 0, 0]]
    """

# flamepy/ops/vectors.py: outer
def outer(a: TensorLike, b: TensorLike) -> Tensor:
    """All products of an element of a and one of b. Shapes: n and m elements give (n, m).
    >>> fp.outer(fp.tensor([1, 2]), fp.tensor([3, 4])).tolist()
    [[3, 4], [6, 8]]
    """

# flamepy/ops/pads.py: pad
def pad(x: TensorLike, widths: int | Iterable[Sequence[int]], mode: str = 'constant', value: float | None = None) -> Tensor:
    """x with more around it; widths is ((before, after), ...), a pair for each axis, or one number for all sides; below 0 they cut off.
    mode: "constant", "reflect" (at the ends, which are not repeated), "symmetric" (they are), "replicate" or "edge", "circular" or "wrap".
    value: what a constant is (0); pad(x, widths, 1.5) is short for it. x.pad() and F.pad() take PyTorch's flat widths, too.
    Shapes: before + n + after. Raises ShapeError, ValueError for an unknown mode.
    >>> fp.pad(fp.tensor([1.0, 2.0]), ((1, 2),)).tolist()
    [0.0, 1.0, 2.0, 0.0, 0.0]
    """

# flamepy/ops/similarity.py: pairwise_distance
def pairwise_distance(x1: TensorLike, x2: TensorLike, p: float = 2.0, eps: float = 1e-06, keepdim: bool = False) -> Tensor:
    """The p-norm of x1 - x2 + eps along the last axis.
    Shapes: any two that broadcast; the last axis goes unless keepdim. Raises ShapeError.
    >>> round(F.pairwise_distance(fp.tensor([[0.0, 0.0]]), [[3.0, 4.0]]).item(), 3)
    5.0
    """

# flamepy/ops/random.py: permutation
@overload
def permutation(x: TensorLike, axis: int = 0, generator: TensorLike | None = None) -> Tensor: ...
@overload
def permutation(x: TensorLike, dim: int = 0, generator: TensorLike | None = None) -> Tensor:
    """The slices of x along an axis in random order; of a whole number: randperm(). As NumPy's. Also called shuffle: x stays as it is.
    Shapes: x's.
    >>> sorted(fp.permutation(fp.tensor([1.0, 2.0])).tolist())
    [1.0, 2.0]
    """

# flamepy/core/ops/shape.py: permute
def permute(x: TensorLike, axes: int | Sequence[int], *rest: int) -> Tensor:
    """The axes in another order; permute(x, (1, 0)) or permute(x, 1, 0). Shapes: sizes in that order. Raises ShapeError.
    >>> fp.permute(fp.ones(2, 3, 4), (2, 0, 1)).shape
    (4, 2, 3)
    """

# flamepy/ops/patches.py: pixel_shuffle
def pixel_shuffle(x: TensorLike, upscale_factor: int) -> Tensor:
    """Channels as pixels. Shapes: (..., C r r, H, W) gives (..., C, H r, W r), else ShapeError (Shi et al. 2016).
    >>> F.pixel_shuffle(fp.tensor([[[1.0]], [[2.0]], [[3.0]], [[4.0]]]), 2).tolist()
    [[[1.0, 2.0], [3.0, 4.0]]]
    """

# flamepy/ops/patches.py: pixel_unshuffle
def pixel_unshuffle(x: TensorLike, downscale_factor: int) -> Tensor:
    """Pixels as channels, the reverse of pixel_shuffle(). Shapes: (..., C, H r, W r) gives (..., C r r, H, W), else ShapeError.
    >>> F.pixel_unshuffle(fp.tensor([[[1.0, 2.0], [3.0, 4.0]]]), 2).tolist()
    [[[1.0]], [[2.0]], [[3.0]], [[4.0]]]
    """

# flamepy/ops/losses.py: poisson_nll_loss
def poisson_nll_loss(
    x: TensorLike,
    target: TensorLike,
    *,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-08,
    reduction: str = 'mean',
) -> Tensor:
    """Minus the logarithm of a count's probability: exp(x) - t x for the logarithm x of the rate, else x - t log(x + eps).
    `full` adds Stirling's approximation of log(t!) where t > 1. Shapes and errors: as mse_loss.
    >>> F.poisson_nll_loss(fp.tensor([0.0]), [2.0]).item()
    1.0
    """

# flamepy/ops/spellings.py: positive
def positive(x: TensorLike) -> Tensor:
    """x itself. Shapes: any.
    >>> fp.positive(fp.tensor([-1.0])).tolist()
    [-1.0]
    """

# flamepy/ops/powers.py: pow
def pow(a: TensorLike, b: TensorLike) -> Tensor:
    """a to the power b, broadcasting. Integers to the power of integers are integers, exact where they fit; else float32 is computed.
    Shapes: those of a and b broadcast. Raises ShapeError if they do not, DTypeError for two float types, ValueError for a negative power
    of integers.
    >>> fp.pow(fp.tensor([2.0, 3.0]), 2).tolist()
    [4.0, 9.0]
    """

# flamepy/ops/policy.py: ppo_loss
def ppo_loss(
    log_probs: TensorLike,
    old_log_probs: TensorLike,
    advantages: TensorLike,
    *,
    clip: float = 0.2,
    reduction: str = 'mean',
) -> Tensor:
    """-min(r A, clamp(r, 1 - clip, 1 + clip) A) with r = exp(log_probs - old_log_probs), how much likelier an action became.
    (Schulman et al. 2017, arXiv:1707.06347, equation 7.) Add coefficients times ppo_value_loss() and subtract one of entropy() as you want
    them. Shapes: all the same, else ShapeError. Raises ValueError for clip outside (0, 1).
    >>> F.ppo_loss(fp.tensor([0.0]), [0.0], [2.0]).item()
    -2.0
    """

# flamepy/ops/policy.py: ppo_value_loss
def ppo_value_loss(
    values: TensorLike,
    returns: TensorLike,
    old_values: TensorLike | None = None,
    *,
    clip: float = 0.2,
    reduction: str = 'mean',
) -> Tensor:
    """(values - returns)^2 / 2; with `old_values` the larger one of that and of the same with values at most `clip` away from these.
    Shapes: all the same, else ShapeError. Raises ValueError for clip <= 0.
    >>> F.ppo_value_loss(fp.tensor([1.0]), [3.0]).item()
    2.0
    """

# flamepy/ops/more_activations.py: prelu
def prelu(x: TensorLike, weight: TensorLike) -> Tensor:
    """x above zero, weight * x below, with one weight or one for each channel: axis 1 (He et al. 2015, arXiv:1502.01852).
    Shapes: x any, weight (), (1,) or (channels,); the result has that of x. Raises ShapeError for another number of weights.
    >>> F.prelu(fp.tensor([[-1.0, 2.0], [3.0, -4.0]]), fp.tensor([0.5, 0.25])).tolist()
    [[-0.5, 2.0], [3.0, -1.0]]
    """

# flamepy/ops/reductions.py: prod
@overload
def prod(x: TensorLike, axis: Axis = None, keepdims: bool = False, dtype: DTypeLike | None = None) -> Tensor: ...
@overload
def prod(x: TensorLike, dim: Axis = None, keepdim: bool = False, dtype: DTypeLike | None = None) -> Tensor:
    """Product over the axes, in another dtype if one is given. The gradient of an element is the product of the others, without a
    division: zeros and higher derivatives are right, and so is an element that is NaN.
    Shapes and types: as sum.
    >>> fp.prod(fp.tensor([2.0, 3.0, 4.0])).item()
    24.0
    """

# flamepy/ops/selecting.py: put_along_axis
@overload
def put_along_axis(x: TensorLike, indices: TensorLike, values: TensorLike, axis: int | None) -> Tensor: ...
@overload
def put_along_axis(x: TensorLike, indices: TensorLike, values: TensorLike, dim: int | None) -> Tensor:
    """x with y[indices[i, j], j] = values[i, j] for axis 0, and so on, as a new tensor: scatter(), where all broadcast.
    Shapes: x's. Of several values the last one counts. Raises ShapeError, IndexOutOfRange, DTypeError.
    >>> fp.put_along_axis(fp.zeros(2, 2), [[1], [0]], 5.0, 1).tolist()
    [[0.0, 5.0], [5.0, 0.0]]
    """

# flamepy/ops/sorting.py: quantile
@overload
def quantile(
    x: TensorLike,
    q: TensorLike,
    axis: Axis = None,
    keepdims: bool = False,
    method: str = 'linear',
    interpolation: str | None = None,
) -> Tensor: ...
@overload
def quantile(
    x: TensorLike,
    q: TensorLike,
    dim: Axis = None,
    keepdim: bool = False,
    method: str = 'linear',
    interpolation: str | None = None,
) -> Tensor:
    """What a share q (0 to 1, or a list of such) of the numbers along the axes lies below; NaN where there is one.
    method (or interpolation): between two numbers "linear", "lower", "higher", "midpoint" or "nearest".
    Shapes: that of q, then x's without the axes (1 there with keepdims). Integers give float32. Raises ValueError, ShapeError.
    >>> fp.quantile(fp.tensor([1.0, 2.0, 4.0]), 0.75).item()
    3.0
    """

# flamepy/ops/more_activations.py: "quick_gelu"
def quick_gelu(x: TensorLike, /) -> Tensor:
    """x * sigmoid(1.702 x), an approximation of gelu (Hendrycks & Gimpel 2016, arXiv:1606.08415).

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = x / (1.0 + exp(-1.702 * x))
    Derivative from g, the cotangent of y: s = sigmoid(1.702 * x); dx = g * s * (1.0 + 1.702 * x * (1.0 - s))
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.quick_gelu(fp.tensor([-1.5, 1.5])).tolist()]
    [-0.1083, 1.3917]
    """

# flamepy/ops/trigonometry.py: "rad2deg"
def rad2deg(x: TensorLike, /) -> Tensor:
    """Radians as degrees.

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = x * 57.29577951308232
    Derivative from g, the cotangent of y: dx = g * 57.29577951308232
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.rad2deg(fp.tensor([-1.5, 1.5])).tolist()]
    [-85.9437, 85.9437]
    """

# flamepy/ops/rearranging.py: ravel
def ravel(x: TensorLike) -> Tensor:
    """All elements along one axis: flatten(). Shapes: (n, m) gives (n * m,).
    >>> fp.ravel(fp.ones(2, 3)).shape
    (6,)
    """

# flamepy/ops/powers.py: "reciprocal"
def reciprocal(x: TensorLike, /) -> Tensor:
    """1 / x.

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = 1.0 / x
    Derivative from g, the cotangent of y: dx = -g * y * y
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.reciprocal(fp.tensor([-1.5, 1.5])).tolist()]
    [-0.6667, 0.6667]
    """

# flamepy/ops/gated.py: reglu
@overload
def reglu(x: TensorLike, y: TensorLike | None = None, axis: int = -1) -> Tensor: ...
@overload
def reglu(x: TensorLike, y: TensorLike | None = None, dim: int = -1) -> Tensor:
    """relu(x) * y; without y relu of the first half of x along an axis times the second.
    Shapes and errors: as swiglu.
    >>> F.reglu(fp.tensor([1.0, 2.0])).tolist()
    [2.0]
    """

# flamepy/ops/activations.py: "relu"
def relu(x: TensorLike, /) -> Tensor:
    """max(x, 0); NaN passes; the derivative at 0 is 0 (Nair & Hinton 2010).

    Shapes: any; the result has that of x.
    Types: floats and integers; bools are computed in int64.
    Formula: y = select(x <= 0.0, 0.0, x)
    Derivative from g, the cotangent of y: dx = select(y <= 0.0, 0.0, g)
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.relu(fp.tensor([-1.5, 1.5])).tolist()]
    [0.0, 1.5]
    """

# flamepy/ops/more_activations.py: "relu6"
def relu6(x: TensorLike, /) -> Tensor:
    """x limited to [0, 6]; the derivative at both is 0.

    Shapes: any; the result has that of x.
    Types: floats and integers; bools are computed in int64.
    Formula: y = select(x <= 0, 0.0, select(x >= 6.0, 6.0, x))
    Derivative from g, the cotangent of y: dx = select((x <= 0.0) | (x >= 6.0), 0.0, g)
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.relu6(fp.tensor([-1.5, 1.5])).tolist()]
    [0.0, 1.5]
    """

# flamepy/ops/rounding.py: "remainder"
def remainder(a: TensorLike, b: TensorLike, /) -> Tensor:
    """a - (a // b) * b, with the sign of b, as Python's and NumPy's a % b; the gradient takes a // b for constant, as in PyTorch.

    Shapes: those of the inputs broadcast.
    Types: floats and integers; bools are computed in int64.
    Formula: y = a % b
    Derivative from g, the cotangent of y: da = g
    Derivative from g, the cotangent of y: db = -g * rint((a - y) / b)
    Raises: DTypeError (two float types; no tensor, array or number), ShapeError (shapes that do not broadcast).
    >>> [round(v, 4) for v in fp.remainder(fp.tensor([-1.5, 1.5]), 0.5).tolist()]
    [0.0, 0.0]
    """

# flamepy/ops/rearranging.py: repeat
@overload
def repeat(x: TensorLike, repeats: TensorLike, axis: Axis = None) -> Tensor: ...
@overload
def repeat(x: TensorLike, repeats: TensorLike, dim: Axis = None) -> Tensor:
    """Each element of x repeated: repeat_interleave(); NumPy's repeat. (PyTorch's is tile().) The method x.repeat() takes the forms of both
    where they cannot be confused. Shapes: n at the axis becomes n * repeats, or their sum.
    >>> fp.repeat(fp.tensor([[1, 2]]), 2, axis=0).tolist()
    [[1, 2], [1, 2]]
    """

# flamepy/ops/rearranging.py: repeat_interleave
@overload
def repeat_interleave(x: TensorLike, repeats: TensorLike, axis: Axis = None, *, output_size: int | None = None) -> Tensor: ...
@overload
def repeat_interleave(x: TensorLike, repeats: TensorLike, dim: Axis = None, *, output_size: int | None = None) -> Tensor:
    """Each element of x repeated, along `axis` or of x made flat; `repeats` is a count, or one for each element of the axis.
    Shapes: n at the axis becomes n * repeats, or their sum, which is `output_size` if one is given. Also called repeat, as in NumPy. Raises
    ShapeError.
    >>> fp.repeat_interleave(fp.tensor([1, 2]), 2).tolist()
    [1, 1, 2, 2]
    """

# flamepy/core/ops/shape.py: reshape
def reshape(x: TensorLike, shape: int | Sequence[int], *rest: int) -> Tensor:
    """Another shape on the same memory; one size may be -1. reshape(x, (2, 3)) or reshape(x, 2, 3).
    Shapes: any to any of as many elements, else ShapeError.
    >>> fp.reshape(fp.tensor([1, 2, 3, 4]), (2, -1)).tolist()
    [[1, 2], [3, 4]]
    """

# flamepy/ops/rearranging.py: reshape_as
def reshape_as(x: TensorLike, other: TensorLike) -> Tensor:
    """reshape() to the shape of another tensor. Also called view_as. Shapes: as there.
    >>> fp.reshape_as(fp.ones(6), fp.ones(2, 3)).shape
    (2, 3)
    """

# flamepy/ops/row_norms.py: rms_norm
def rms_norm(
    x: TensorLike,
    normalized_shape: int | Sequence[int] | Tensor | None = None,
    weight: TensorLike | None = None,
    eps: float = 1e-05,
) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last axes (Zhang & Sennrich 2019, arXiv:1910.07467).
    normalized_shape as in layer_norm; rms_norm(x, weight) works too. PyTorch's eps is finfo(x.dtype).eps where none is given.
    Shapes: x (..., *normalized_shape), weight normalized_shape; the result has x's. Integers give float32. Raises ShapeError.
    >>> [round(v, 2) for v in F.rms_norm(fp.tensor([1.0, 7.0])).tolist()]
    [0.2, 1.4]
    """

# flamepy/ops/recurrent.py: rnn
def rnn(
    x: TensorLike,
    w_ih: TensorLike,
    w_hh: TensorLike,
    b_ih: TensorLike | None = None,
    b_hh: TensorLike | None = None,
    h0: TensorLike | None = None,
    *,
    nonlinearity: str = 'tanh',
    lengths: TensorLike | None = None,
    reverse: bool = False,
) -> Tensor:
    """One layer of h = tanh(x @ w_ih.T + b_ih + h @ w_hh.T + b_hh) over all time steps (Elman 1990): (y (T, B, H), h_n (B, H)).
    Shapes and options: see lstm(), with H for 4 H. nonlinearity: "tanh" or "relu".
    >>> F.rnn(fp.ones(2, 1, 1), fp.ones(1, 1), fp.ones(1, 1), nonlinearity="relu")[0].tolist()
    [[[1.0]], [[2.0]]]
    """

# flamepy/ops/recurrent.py: rnn_cell
def rnn_cell(
    x: TensorLike,
    h: TensorLike,
    w_ih: TensorLike,
    w_hh: TensorLike,
    b_ih: TensorLike | None = None,
    b_hh: TensorLike | None = None,
    *,
    nonlinearity: str = 'tanh',
) -> Tensor:
    """One step of rnn(): h from x and that of the step before. It has derivatives of any order.
    Shapes: x (B, n_in) or (n_in,), h (B, H) or (H,), weights as rnn() has them. Raises ShapeError.
    >>> F.rnn_cell(fp.ones(1, 1), fp.ones(1, 1), fp.ones(1, 1), fp.ones(1, 1), nonlinearity="relu").tolist()
    [[2.0]]
    """

# flamepy/ops/rearranging.py: roll
@overload
def roll(x: TensorLike, shift: TensorLike, axis: Axis = None) -> Tensor: ...
@overload
def roll(x: TensorLike, shift: TensorLike, dim: Axis = None) -> Tensor:
    """Elements moved on by `shift` along each axis named, those that leave at the end come in at the start; without axes x is rolled flat.
    Shapes: x's. Raises ShapeError unless there is one shift for each axis.
    >>> fp.roll(fp.tensor([1, 2, 3]), 1).tolist()
    [3, 1, 2]
    """

# flamepy/ops/rotary.py: rope
@overload
def rope(
    x: TensorLike,
    positions: TensorLike | None = None,
    *,
    base: float = 10000.0,
    scale: float = 1.0,
    offset: int = 0,
    width: int | None = None,
    interleaved: bool = False,
    axis: int = -2,
) -> Tensor: ...
@overload
def rope(
    x: TensorLike,
    positions: TensorLike | None = None,
    *,
    base: float = 10000.0,
    scale: float = 1.0,
    offset: int = 0,
    width: int | None = None,
    interleaved: bool = False,
    dim: int = -2,
) -> Tensor:
    """Rows of x turned by their positions: rotary position embedding of queries or keys (Su et al. 2021, arXiv:2104.09864).
    Shapes: x (..., T, ..., D) with T at `axis`; the result has its shape. Position p turns pair i of the first `width` numbers (default:
    all) by p / scale * base^(-2 i / width). A pair is (i, i + width / 2), as in GPT-NeoX and Llama of Hugging Face, or with `interleaved`
    (2 i, 2 i + 1), as in the paper. Positions are offset, offset + 1, ... or `positions`: whole numbers of shape (T,), or of one that
    broadcasts to x.shape[:-1]. scale above 1 squeezes them (Chen et al. 2023, arXiv:2306.15595). 16-bit floats are computed in float32.
    Raises ShapeError, DTypeError.
    >>> [round(v, 4) for v in F.rope(fp.tensor([[1.0, 0.0], [1.0, 0.0]]))[1].tolist()]
    [0.5403, 0.8415]
    """

# flamepy/ops/rearranging.py: rot90
def rot90(x: TensorLike, k: int = 1, axes: int | Sequence[int] = ...) -> Tensor:
    """x turned by 90 degrees k times, from the first of two axes towards the second. Shapes: (n, m) gives (m, n) for odd k.
    >>> fp.rot90(fp.tensor([[1, 2], [3, 4]])).tolist()
    [[2, 4], [1, 3]]
    """

# flamepy/ops/rounding.py: round
def round(x: TensorLike, decimals: int = 0) -> Tensor:
    """The nearest whole number, halves to the even one; with decimals the nearest one with so many digits behind the point.
    Records a zero gradient.
    Shapes: any; the result has that of x. Types: floats and integers. Raises DTypeError for others.
    >>> fp.round(fp.tensor([0.52, 2.46]), decimals=1).tolist()
    [0.5, 2.5]
    """

# flamepy/ops/stacking.py: vstack
def row_stack(tensors: Iterable[TensorLike]) -> Tensor:
    """Tensors below each other, those of one axis as rows. Shapes: (n,), (m, n) give (m + 1, n).
    >>> fp.vstack([fp.tensor([1, 2]), fp.tensor([3, 4])]).tolist()
    [[1, 2], [3, 4]]
    """

# flamepy/ops/bits.py: bitwise_right_shift
def rshift(a: TensorLike, b: TensorLike) -> Tensor:
    """a >> b: a divided by 2**b and rounded down. Shapes and types: as bitwise_left_shift.
    >>> fp.bitwise_right_shift(fp.tensor([16, -3]), 1).tolist()
    [8, -2]
    """

# flamepy/core/ops/pointwise.py: "rsqrt"
def rsqrt(x: TensorLike, /) -> Tensor:
    """1 / sqrt(x).

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = 1.0 / sqrt(x)
    Derivative from g, the cotangent of y: dx = -0.5 * g * y * y * y
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.rsqrt(fp.tensor([-1.5, 1.5])).tolist()]
    [nan, 0.8165]
    """

# flamepy/ops/spellings.py: rsub
def rsub(a: TensorLike, b: TensorLike, alpha: int = 1) -> Tensor:
    """b - alpha * a. Shapes and types: as sub.
    >>> fp.rsub(fp.tensor([1.0, 2.0]), 10.0).tolist()
    [9.0, 8.0]
    """

# flamepy/ops/attention.py: scaled_dot_product_attention
def scaled_dot_product_attention(
    q: TensorLike,
    k: TensorLike,
    v: TensorLike,
    attn_mask: TensorLike | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    softcap: float | None = None,
    window: TensorLike | None = None,
    alibi: TensorLike | None = None,
) -> Tensor:
    """softmax(scale q k^T + mask) v for q (..., L, D), k (..., S, D), v (..., S, Dv): (..., L, Dv).
    Vaswani et al. 2017, arXiv:1706.03762. Shapes: leading axes broadcast. `attn_mask` broadcasts to (..., L, S): bool (True: this key may
    be seen) or float (added; it may require grad). `is_causal`: row i sees keys j <= i. `scale` defaults to 1 / sqrt(D). A row
    that sees no key is zero. `enable_gqa`: k and v may have fewer heads (axis -3), a divisor; neighbouring heads of q share them, which
    are read where they are (Ainslie et al. 2023, arXiv:2305.13245). `window`: n, only keys less than n away are seen, or (left, right).
    `alibi`: True, or a slope for each head: slope |i - j| is subtracted (Press et al. 2021, arXiv:2108.12409); window and alibi need
    memory for (L, S), alibi for each head. `softcap`: scores are softcap tanh(scores / softcap) (Gemma 2, arXiv:2408.00118) before any
    mask; `dropout_p`: weights are dropped. These two keep all weights in memory: they are composed of ops. Normed queries and keys are a
    norm of q and k before, such as F.rms_norm. Integers give float32.
    Raises ShapeError, also for a mask beside is_causal, DTypeError for another mask, ValueError for an option that makes no sense.
    >>> fp.scaled_dot_product_attention(fp.zeros(1, 2), fp.ones(2, 2), fp.tensor([[1.0], [3.0]])).tolist()
    [[2.0]]
    """

# flamepy/ops/scattering.py: scatter
@overload
def scatter(
    x: TensorLike,
    axis: int,
    index: TensorLike,
    src: TensorLike | None = None,
    reduce: str | None = None,
    value: float | None = None,
) -> Tensor: ...
@overload
def scatter(
    x: TensorLike,
    dim: int,
    index: TensorLike,
    src: TensorLike | None = None,
    reduce: str | None = None,
    value: float | None = None,
) -> Tensor:
    """x with y[index[i, j], j] = src[i, j] for axis 0, and so on; src (or value) may be a number. Of several the last one counts.
    reduce: "add" or "multiply", with what is there, as scatter_reduce() does.
    Shapes: x's; index has as many axes, sizes at most src's, and x's but at the axis. Raises ShapeError, DTypeError, IndexOutOfRange.
    >>> fp.scatter(fp.zeros(3), 0, [2, 0], fp.tensor([5.0, 6.0])).tolist()
    [6.0, 0.0, 5.0]
    """

# flamepy/ops/scattering.py: scatter_add
@overload
def scatter_add(x: TensorLike, axis: int, index: TensorLike, src: TensorLike) -> Tensor: ...
@overload
def scatter_add(x: TensorLike, dim: int, index: TensorLike, src: TensorLike) -> Tensor:
    """x with src[i, j] added to y[index[i, j], j] for axis 0, and so on; what comes to one place is added up in order.
    Shapes and errors: as scatter.
    >>> fp.scatter_add(fp.zeros(3), 0, [2, 2], fp.tensor([5.0, 6.0])).tolist()
    [0.0, 0.0, 11.0]
    """

# flamepy/ops/scattering.py: scatter_reduce
@overload
def scatter_reduce(
    x: TensorLike,
    axis: int,
    index: TensorLike,
    src: TensorLike,
    reduce: str,
    include_self: bool = True,
) -> Tensor: ...
@overload
def scatter_reduce(x: TensorLike, dim: int, index: TensorLike, src: TensorLike, reduce: str, include_self: bool = True) -> Tensor:
    """x with y[index[i, j], j] the "sum", "prod", "mean", "amax" or "amin" of all src[i, j] that come there, and unless include_self is
    False of what x has there. Of equal extremes each has an equal part of the gradient.
    Shapes and errors: as scatter; ValueError for another reduce.
    >>> fp.scatter_reduce(fp.ones(3), 0, [2, 2], fp.tensor([5.0, 6.0]), "amax").tolist()
    [1.0, 1.0, 6.0]
    """

# flamepy/ops/sorting.py: searchsorted
def searchsorted(
    x: TensorLike,
    values: TensorLike,
    side: str | None = None,
    sorter: TensorLike | None = None,
    right: bool = False,
    out_int32: bool = False,
) -> Tensor:
    """For each value the index (int64) at which it would keep the sorted x in order: before what is equal ("left")
    or behind it ("right", or right=True).
    x: one row, or rows (..., n) for values (..., m), each of which has a row of its own. sorter: the indices that sort x.
    Shapes: that of values. NaN is the largest. Raises ShapeError for rows that do not fit, ValueError for another
    side, and for "left" with right=True.
    >>> fp.searchsorted(fp.tensor([1.0, 2.0, 3.0]), [2.0, 5.0]).tolist()
    [1, 3]
    """

# flamepy/ops/more_activations.py: "selu"
def selu(x: TensorLike, /) -> Tensor:
    """scale * elu(x, alpha), with numbers that keep mean 0 and variance 1 (Klambauer et al. 2017, arXiv:1706.02515).

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = SCALE * select(x > 0.0, x, ALPHA * expm1(x))
    Derivative from g, the cotangent of y: dx = g * SCALE * select(x > 0.0, 1.0, ALPHA * exp(minimum(x, 0.0)))
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.selu(fp.tensor([-1.5, 1.5])).tolist()]
    [-1.3658, 1.5761]
    """

# flamepy/core/ops/pointwise.py: "sign"
def sgn(x: TensorLike, /) -> Tensor:
    """-1, 0 or 1; NaN for NaN. Records a zero gradient.

    Shapes: any; the result has that of x.
    Types: floats and integers; bools are computed in int64.
    Formula: y = sign(x)
    Derivative from g, the cotangent of y: dx = 0
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.sign(fp.tensor([-1.5, 1.5])).tolist()]
    [-1.0, 1.0]
    """

# flamepy/ops/random.py: permutation
@overload
def shuffle(x: TensorLike, axis: int = 0, generator: TensorLike | None = None) -> Tensor: ...
@overload
def shuffle(x: TensorLike, dim: int = 0, generator: TensorLike | None = None) -> Tensor:
    """The slices of x along an axis in random order; of a whole number: randperm(). As NumPy's. Also called shuffle: x stays as it is.
    Shapes: x's.
    >>> sorted(fp.permutation(fp.tensor([1.0, 2.0])).tolist())
    [1.0, 2.0]
    """

# flamepy/ops/activations.py: "sigmoid"
def sigmoid(x: TensorLike, /) -> Tensor:
    """1 / (1 + exp(-x)).

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = 1.0 / (1.0 + exp(-x))
    Derivative from g, the cotangent of y: dx = g * y * (1.0 - y)
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.sigmoid(fp.tensor([-1.5, 1.5])).tolist()]
    [0.1824, 0.8176]
    """

# flamepy/ops/overlap.py: sigmoid_focal_loss
def sigmoid_focal_loss(
    x: TensorLike,
    target: TensorLike,
    *,
    alpha: float = 0.25,
    gamma: float = 2.0,
    reduction: str = 'none',
) -> Tensor:
    """Binary cross-entropy of sigmoid(x) that counts (1 - p)^gamma, p what the right answer gets (Lin et al. 2017, arXiv:1708.02002).
    Positives count `alpha`, negatives 1 - alpha; a negative alpha: both count 1. As in torchvision nothing is averaged unless asked for.
    Shapes and errors: as mse_loss; ValueError for gamma < 0.
    >>> round(F.sigmoid_focal_loss(fp.tensor([0.0]), [1.0], alpha=-1, reduction="mean").item(), 4)
    0.1733
    """

# flamepy/core/ops/pointwise.py: "sign"
def sign(x: TensorLike, /) -> Tensor:
    """-1, 0 or 1; NaN for NaN. Records a zero gradient.

    Shapes: any; the result has that of x.
    Types: floats and integers; bools are computed in int64.
    Formula: y = sign(x)
    Derivative from g, the cotangent of y: dx = 0
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.sign(fp.tensor([-1.5, 1.5])).tolist()]
    [-1.0, 1.0]
    """

# flamepy/ops/logic.py: signbit
def signbit(x: TensorLike) -> Tensor:
    """Whether each number has a minus, which -0.0 has, too. Shapes: any to the same.
    >>> fp.signbit(fp.tensor([1.0, -0.0])).tolist()
    [False, True]
    """

# flamepy/ops/activations.py: "silu"
def silu(x: TensorLike, /) -> Tensor:
    """x * sigmoid(x) (Elfwing et al. 2017, arXiv:1702.03118).

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = x / (1.0 + exp(-x))
    Derivative from g, the cotangent of y: s = sigmoid(x); dx = g * s * (1.0 + x * (1.0 - s))
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.silu(fp.tensor([-1.5, 1.5])).tolist()]
    [-0.2736, 1.2264]
    """

# flamepy/core/ops/pointwise.py: "sin"
def sin(x: TensorLike, /) -> Tensor:
    """Sine of x in radians.

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = sin(x)
    Derivative from g, the cotangent of y: dx = g * cos(x)
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.sin(fp.tensor([-1.5, 1.5])).tolist()]
    [-0.9975, 0.9975]
    """

# flamepy/ops/trigonometry.py: "sinc"
def sinc(x: TensorLike, /) -> Tensor:
    """sin(pi * x) / (pi * x), and 1 at 0, as in NumPy.

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = select(x == 0.0, 1.0, sine_of_pi(x) / select(x == 0.0, 1.0, PI * x))
    Derivative from g, the cotangent of y: dx = g * select(abs(x) < 0.25, sinc_slope(x), (cos(PI * x) - y) / select(x == 0.0, 1.0, x))
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.sinc(fp.tensor([-1.5, 1.5])).tolist()]
    [-0.2122, -0.2122]
    """

# flamepy/ops/trigonometry.py: "sinh"
def sinh(x: TensorLike, /) -> Tensor:
    """Hyperbolic sine.

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = sinh_of(x)
    Derivative from g, the cotangent of y: dx = g * cosh_of(x)
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.sinh(fp.tensor([-1.5, 1.5])).tolist()]
    [-2.1293, 2.1293]
    """

# flamepy/ops/losses.py: smooth_l1_loss
def smooth_l1_loss(x: TensorLike, target: TensorLike, *, beta: float = 1.0, reduction: str = 'mean') -> Tensor:
    """huber_loss(delta=beta) / beta; beta 0 is l1_loss.
    Shapes and errors: as mse_loss; ValueError for beta < 0.
    >>> fp.smooth_l1_loss(fp.tensor([1.0, 2.0]), [1.0, 4.0]).item()
    0.75
    """

# flamepy/ops/margins.py: soft_margin_loss
def soft_margin_loss(x: TensorLike, target: TensorLike, *, reduction: str = 'mean') -> Tensor:
    """log(1 + exp(-t x)) for targets t of 1 and -1. No gradient reaches the target.
    Shapes and errors: as mse_loss.
    >>> round(F.soft_margin_loss(fp.tensor([0.0]), [1.0]).item(), 4)
    0.6931
    """

# flamepy/ops/rows.py: softmax
@overload
def softmax(x: TensorLike, axis: int = -1, dtype: DTypeLike | None = None) -> Tensor: ...
@overload
def softmax(x: TensorLike, dim: int = -1, dtype: DTypeLike | None = None) -> Tensor:
    """exp(x) / sum(exp(x)) along one axis, without overflow, of x in another dtype if one is given.
    Shapes: any; the result has that of x. Raises IndexOutOfRange for an axis that x does not have.
    Types: floats; integers and bools are computed in float32.
    >>> fp.softmax(fp.tensor([0.0, 0.0])).tolist()
    [0.5, 0.5]
    """

# flamepy/ops/more_activations.py: softmin
@overload
def softmin(x: TensorLike, axis: int = -1, dtype: DTypeLike | None = None) -> Tensor: ...
@overload
def softmin(x: TensorLike, dim: int = -1, dtype: DTypeLike | None = None) -> Tensor:
    """softmax(-x): the smaller, the likelier.
    Shapes and types: as softmax.
    >>> F.softmin(fp.tensor([0.0, 0.0])).tolist()
    [0.5, 0.5]
    """

# flamepy/ops/activations.py: "softplus"
def softplus(x: TensorLike, /, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta x)) / beta, and x itself where beta x > threshold.

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = select(x * beta > threshold, x, log1p(exp(x * beta)) / beta)
    Derivative from g, the cotangent of y: dx = select(x * beta > threshold, g, g * sigmoid(x * beta))
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.softplus(fp.tensor([-1.5, 1.5])).tolist()]
    [0.2014, 1.7014]
    """

# flamepy/ops/more_activations.py: "softshrink"
def softshrink(x: TensorLike, /, lambd: float = 0.5) -> Tensor:
    """x moved by lambd towards 0, and 0 within lambd of it.

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = select(x > lambd, x - lambd, select(x < -lambd, x + lambd, select(x == x, 0.0, x)))
    Derivative from g, the cotangent of y: dx = select((x >= -lambd) & (x <= lambd), 0.0, g)
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.softshrink(fp.tensor([-1.5, 1.5])).tolist()]
    [-1.0, 1.0]
    """

# flamepy/ops/more_activations.py: "softsign"
def softsign(x: TensorLike, /) -> Tensor:
    """x / (1 + |x|).

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = x / (1.0 + abs(x))
    Derivative from g, the cotangent of y: dx = g / ((1.0 + abs(x)) * (1.0 + abs(x)))
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.softsign(fp.tensor([-1.5, 1.5])).tolist()]
    [-0.6, 0.6]
    """

# flamepy/ops/sorting.py: sort
@overload
def sort(x: TensorLike, axis: int = -1, descending: bool = False, stable: bool = True) -> tuple[Tensor, Tensor]: ...
@overload
def sort(x: TensorLike, dim: int = -1, descending: bool = False, stable: bool = True) -> tuple[Tensor, Tensor]:
    """(values, indices) of x in order along an axis, as PyTorch's sort; what is equal keeps its order whatever `stable` says.
    Shapes: x's, both. NaN is the largest. Raises IndexOutOfRange.
    >>> [t.tolist() for t in fp.sort(fp.tensor([3.0, 1.0, 2.0]))]
    [[1.0, 2.0, 3.0], [1, 2, 0]]
    """

# flamepy/ops/joining.py: split
@overload
def split(x: TensorLike, sizes: int | Sequence[int], axis: int = 0) -> list[Tensor]: ...
@overload
def split(x: TensorLike, sizes: int | Sequence[int], dim: int = 0) -> list[Tensor]:
    """Pieces of `sizes` (an int: equal pieces, the last may be smaller; a list: these sizes) along `axis`. Shapes: x's elsewhere.
    >>> [t.tolist() for t in fp.split(fp.tensor([1, 2, 3]), 2)]
    [[1, 2], [3]]
    """

# flamepy/core/ops/pointwise.py: "sqrt"
def sqrt(x: TensorLike, /) -> Tensor:
    """Square root; NaN below zero.

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = sqrt(x)
    Derivative from g, the cotangent of y: dx = 0.5 * g / y
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.sqrt(fp.tensor([-1.5, 1.5])).tolist()]
    [nan, 1.2247]
    """

# flamepy/core/ops/pointwise.py: "square"
def square(x: TensorLike, /) -> Tensor:
    """x * x.

    Shapes: any; the result has that of x.
    Types: floats and integers; bools are computed in int64.
    Formula: y = x * x
    Derivative from g, the cotangent of y: dx = 2.0 * g * x
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.square(fp.tensor([-1.5, 1.5])).tolist()]
    [2.25, 2.25]
    """

# flamepy/ops/shape_more.py: squeeze
@overload
def squeeze(x: TensorLike, axis: Axis = None) -> Tensor: ...
@overload
def squeeze(x: TensorLike, dim: Axis = None) -> Tensor:
    """Without axes of size 1: all of them, or the ones named (which must have size 1). Shapes: (n, 1) gives (n,).
    >>> fp.squeeze(fp.ones(2, 1, 3)).shape
    (2, 3)
    """

# flamepy/ops/joining.py: stack
@overload
def stack(tensors: Iterable[TensorLike], axis: int = 0) -> Tensor: ...
@overload
def stack(tensors: Iterable[TensorLike], dim: int = 0) -> Tensor:
    """The tensors along a new axis; all shapes must be equal. Shapes: n of (m,) give (n, m). Raises ShapeError.
    >>> fp.stack([fp.tensor([1.0]), fp.tensor([2.0])]).tolist()
    [[1.0], [2.0]]
    """

# flamepy/ops/variance.py: std
@overload
def std(x: TensorLike, axis: Axis = None, correction: float = 0, keepdims: bool = False) -> Tensor: ...
@overload
def std(x: TensorLike, dim: Axis = None, correction: float = 0, keepdim: bool = False) -> Tensor:
    """Square root of var(); its gradient where the variance is zero is zero.
    Right also where the variance itself would be too large or too small for the type. The default is NumPy's and the array API's;
    PyTorch's is correction=1.
    Shapes: as sum. Raises DTypeError unless x is of floats.
    >>> fp.std(fp.tensor([1.0, 3.0])).item()
    1.0
    """

# flamepy/ops/reductions.py: std_mean
@overload
def std_mean(x: TensorLike, axis: Axis = None, correction: float = 1, keepdims: bool = False) -> Tensor: ...
@overload
def std_mean(x: TensorLike, dim: Axis = None, correction: float = 1, keepdim: bool = False) -> Tensor:
    """(standard deviation, mean) over the axes. The default correction is PyTorch's, 1 (that of std() is 0, as NumPy's).
    Shapes: as sum. Raises DTypeError unless x is of floats.
    >>> [t.item() for t in fp.std_mean(fp.tensor([1.0, 3.0]), correction=0)]
    [1.0, 2.0]
    """

# flamepy/ops/drops.py: stochastic_depth
def stochastic_depth(x: TensorLike, p: float, mode: str, training: bool = True) -> Tensor:
    """Zero whole samples with probability p and scale the others by 1 / (1 - p), each by itself with mode "row", all or none of the batch
    with mode "batch"; x itself when not training or p is 0.
    (Huang et al. 2016, arXiv:1603.09382; drop_path elsewhere.) For the branch of a residual block: x + stochastic_depth(branch(x), ...).
    The draws depend on the seed and the position alone, as dropout's. Shapes: x (N, ...); the result has that of x. Raises ValueError for p
    outside [0, 1] and another mode, ShapeError for a number.
    >>> F.stochastic_depth(fp.ones(2), 0.5, "row", training=False).tolist()
    [1.0, 1.0]
    """

# flamepy/core/ops/pointwise.py: "sub"
def sub(a: TensorLike, b: TensorLike, /, *, alpha: float = 1.0) -> Tensor:
    """a - b.

    Shapes: those of the inputs broadcast.
    Types: floats and integers; bools are computed in int64.
    Formula: y = a - b
    Derivative from g, the cotangent of y: da = g
    Derivative from g, the cotangent of y: db = -g
    Raises: DTypeError (two float types; no tensor, array or number), ShapeError (shapes that do not broadcast).
    >>> [round(v, 4) for v in fp.sub(fp.tensor([-1.5, 1.5]), 0.5).tolist()]
    [-2.0, 1.0]
    """

# flamepy/core/ops/pointwise.py: "sub"
def subtract(a: TensorLike, b: TensorLike, /, *, alpha: float = 1.0) -> Tensor:
    """a - b.

    Shapes: those of the inputs broadcast.
    Types: floats and integers; bools are computed in int64.
    Formula: y = a - b
    Derivative from g, the cotangent of y: da = g
    Derivative from g, the cotangent of y: db = -g
    Raises: DTypeError (two float types; no tensor, array or number), ShapeError (shapes that do not broadcast).
    >>> [round(v, 4) for v in fp.sub(fp.tensor([-1.5, 1.5]), 0.5).tolist()]
    [-2.0, 1.0]
    """

# flamepy/core/ops/reduce.py: sum
@overload
def sum(x: TensorLike, axis: Axis = None, keepdims: bool = False, dtype: DTypeLike | None = None) -> Tensor: ...
@overload
def sum(x: TensorLike, dim: Axis = None, keepdim: bool = False, dtype: DTypeLike | None = None) -> Tensor:
    """Sum over the axes, in another dtype if one is given.
    Shapes: x any; the result is without the axes, or has 1 there with keepdims. Bools and int32 are summed in int64.
    Types: floats, integers and bools.
    >>> fp.sum(fp.tensor([[1.0, 2.0], [3.0, 4.0]]), axis=0).tolist()
    [4.0, 6.0]
    """

# flamepy/ops/rearranging.py: swapaxes
def swapaxes(x: TensorLike, axis0: int, axis1: int) -> Tensor:
    """Two axes swapped: transpose(). Also called swapdims. Shapes: (n, m) gives (m, n).
    >>> fp.swapaxes(fp.ones(2, 3, 4), 0, 2).shape
    (4, 3, 2)
    """

# flamepy/ops/rearranging.py: swapaxes
def swapdims(x: TensorLike, axis0: int, axis1: int) -> Tensor:
    """Two axes swapped: transpose(). Also called swapdims. Shapes: (n, m) gives (m, n).
    >>> fp.swapaxes(fp.ones(2, 3, 4), 0, 2).shape
    (4, 3, 2)
    """

# flamepy/ops/gated.py: swiglu
@overload
def swiglu(x: TensorLike, y: TensorLike | None = None, axis: int = -1) -> Tensor: ...
@overload
def swiglu(x: TensorLike, y: TensorLike | None = None, dim: int = -1) -> Tensor:
    """silu(x) * y; without y silu of the first half of x along an axis times the second.
    Shapes: x and y broadcast; or x with an even size along axis, the result has half of it. Raises ShapeError for an odd one.
    >>> [round(v, 4) for v in F.swiglu(fp.tensor([1.0, 2.0])).tolist()]
    [1.4621]
    """

# flamepy/ops/activations.py: "silu"
def swish(x: TensorLike, /) -> Tensor:
    """x * sigmoid(x) (Elfwing et al. 2017, arXiv:1702.03118).

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = x / (1.0 + exp(-x))
    Derivative from g, the cotangent of y: s = sigmoid(x); dx = g * s * (1.0 + x * (1.0 - s))
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.silu(fp.tensor([-1.5, 1.5])).tolist()]
    [-0.2736, 1.2264]
    """

# flamepy/ops/rearranging.py: t
def t(x: TensorLike) -> Tensor:
    """A matrix transposed; a vector or number is itself. Shapes: (n, m) gives (m, n); more axes are a ShapeError.
    >>> fp.t(fp.ones(2, 3)).shape
    (3, 2)
    """

# flamepy/ops/selecting.py: take
@overload
def take(x: TensorLike, indices: TensorLike, axis: int | None = None, mode: str = 'raise') -> Tensor: ...
@overload
def take(x: TensorLike, indices: TensorLike, dim: int | None = None, mode: str = 'raise') -> Tensor:
    """Elements of the flattened x at integer indices, or slices of it along an axis. Negative ones count from the end.
    mode: what is done with an index out of range: "raise", "wrap" or "clip" (then negative ones become 0), as NumPy's.
    Shapes: that of indices, in the place of the axis. Raises IndexOutOfRange, DTypeError, ValueError for another mode.
    >>> fp.take(fp.tensor([[1, 2], [3, 4]]), [3, 0]).tolist()
    [4, 1]
    """

# flamepy/ops/selecting.py: take_along_axis
@overload
def take_along_axis(x: TensorLike, indices: TensorLike, axis: int | None = -1) -> Tensor: ...
@overload
def take_along_axis(x: TensorLike, indices: TensorLike, dim: int | None = -1) -> Tensor:
    """y[i, j] = x[indices[i, j], j] for axis 0, and so on: gather(), where x and indices broadcast at the other axes. None: x flattened.
    Shapes: as many axes as x. Raises ShapeError, IndexOutOfRange, DTypeError.
    >>> fp.take_along_axis(fp.tensor([[1, 2], [3, 4]]), [[1], [0]], axis=1).tolist()
    [[2], [3]]
    """

# flamepy/ops/trigonometry.py: "tan"
def tan(x: TensorLike, /) -> Tensor:
    """Tangent of x in radians.

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = sin(x) / cos(x)
    Derivative from g, the cotangent of y: dx = g * (1.0 + y * y)
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.tan(fp.tensor([-1.5, 1.5])).tolist()]
    [-14.1014, 14.1014]
    """

# flamepy/core/ops/pointwise.py: "tanh"
def tanh(x: TensorLike, /) -> Tensor:
    """Hyperbolic tangent.

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = tanh(x)
    Derivative from g, the cotangent of y: dx = g * (1.0 - y * y)
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.tanh(fp.tensor([-1.5, 1.5])).tolist()]
    [-0.9051, 0.9051]
    """

# flamepy/ops/more_activations.py: "tanhshrink"
def tanhshrink(x: TensorLike, /) -> Tensor:
    """x - tanh(x).

    Shapes: any; the result has that of x.
    Types: floats; integers and bools are computed in float32.
    Formula: y = x - tanh(x)
    Derivative from g, the cotangent of y: dx = g * tanh(x) * tanh(x)
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.tanhshrink(fp.tensor([-1.5, 1.5])).tolist()]
    [-0.5949, 0.5949]
    """

# flamepy/ops/stacking.py: tensor_split
@overload
def tensor_split(x: TensorLike, indices_or_sections: TensorLike, axis: int = 0) -> list[Tensor]: ...
@overload
def tensor_split(x: TensorLike, indices_or_sections: TensorLike, dim: int = 0) -> list[Tensor]:
    """x in so many parts of nearly one size, the first ones larger, or cut before each of these places. (NumPy's array_split.) Shapes: x's
    elsewhere. Raises ShapeError.
    >>> [t.tolist() for t in fp.tensor_split(fp.tensor([1, 2, 3]), 2)]
    [[1, 2], [3]]
    """

# flamepy/ops/contractions.py: tensordot
def tensordot(a: TensorLike, b: TensorLike, axes: int | Sequence[int] = 2) -> Tensor:
    """The sum of products over several axes of both: the last `axes` of a with the first of b, or those that two lists name.
    Shapes: the others of a, then of b. Raises ShapeError, IndexOutOfRange.
    >>> fp.tensordot(fp.ones(2, 3), fp.ones(3, 4), 1).shape
    (2, 4)
    """

# flamepy/ops/more_activations.py: threshold
def threshold(x: TensorLike, threshold: float, value: float) -> Tensor:
    """x where it is above the threshold, `value` elsewhere.
    Shapes: any; the result has that of x.
    >>> F.threshold(fp.tensor([-1.0, 0.5, 2.0]), 1.0, 0.0).tolist()
    [0.0, 0.0, 2.0]
    """

# flamepy/ops/rearranging.py: tile
def tile(x: TensorLike, reps: TensorLike, *rest: int) -> Tensor:
    """All of x repeated along each axis: tile(x, (2, 3)) or tile(x, 2, 3), the last count for the last axis. Shapes: (n, m) gives
    (2 n, 3 m); more counts than axes make new ones in front. Raises ShapeError.
    >>> fp.tile(fp.tensor([1, 2]), 2).tolist()
    [1, 2, 1, 2]
    """

# flamepy/ops/sorting.py: topk
@overload
def topk(x: TensorLike, k: int, axis: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Tensor, Tensor]: ...
@overload
def topk(x: TensorLike, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Tensor, Tensor]:
    """(values, indices) of the k largest elements along an axis, the largest first (largest=False: smallest); of equal ones the first.
    Shapes: x's with k at the axis. They are in order whatever `sorted` says. Raises ShapeError for more than there are.
    >>> [t.tolist() for t in fp.topk(fp.tensor([1.0, 3.0, 2.0]), 2)]
    [[3.0, 2.0], [1, 2]]
    """

# flamepy/ops/diagonals.py: trace
def trace(x: TensorLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """The sum of the diagonal(). Shapes: (n, m, ...) gives (...). Raises ShapeError.
    >>> fp.trace(fp.tensor([[1.0, 2.0], [3.0, 4.0]])).item()
    5.0
    """

# flamepy/core/ops/shape.py: transpose
def transpose(x: TensorLike, axis0: int = -2, axis1: int = -1) -> Tensor:
    """Two axes swapped. Shapes: (..., n, m) gives (..., m, n).
    >>> fp.transpose(fp.tensor([[1, 2], [3, 4]])).tolist()
    [[1, 3], [2, 4]]
    """

# flamepy/ops/shape_more.py: tril
def tril(x: TensorLike, diagonal: int = 0) -> Tensor:
    """The matrix on and below the diagonal, zeros above. Shapes: (..., n, m), else ShapeError; the result has x's.
    Types: any.
    >>> fp.tril(fp.tensor([[1, 2], [3, 4]])).tolist()
    [[1, 0], [3, 4]]
    """

# flamepy/ops/similarity.py: triplet_margin_loss
def triplet_margin_loss(
    anchor: TensorLike,
    positive: TensorLike,
    negative: TensorLike,
    *,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-06,
    swap: bool = False,
    reduction: str = 'mean',
) -> Tensor:
    """max(0, margin + d(anchor, positive) - d(anchor, negative)), d as in pairwise_distance (Schroff et al. 2015, arXiv:1503.03832).
    `swap`: the negative is as near as it is to the anchor or to the positive (Balntas et al. 2016).
    Shapes: three of (..., width) that broadcast.
    >>> round(F.triplet_margin_loss(fp.tensor([[0.0]]), [[1.0]], [[1.5]]).item(), 3)
    0.5
    """

# flamepy/ops/similarity.py: triplet_margin_with_distance_loss
def triplet_margin_with_distance_loss(
    anchor: TensorLike,
    positive: TensorLike,
    negative: TensorLike,
    *,
    distance_function: TensorLike | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = 'mean',
) -> Tensor:
    """triplet_margin_loss with a distance of your own, a function of two tensors.
    Shapes: what the function takes.
    >>> F.triplet_margin_with_distance_loss(fp.tensor([0.0]), [1.0], [1.5], distance_function=lambda a, b: (a - b).abs()).item()
    0.5
    """

# flamepy/ops/shape_more.py: triu
def triu(x: TensorLike, diagonal: int = 0) -> Tensor:
    """The matrix on and above the diagonal, zeros below. Shapes: (..., n, m), else ShapeError; the result has x's.
    Types: any.
    >>> fp.triu(fp.tensor([[1, 2], [3, 4]])).tolist()
    [[1, 2], [0, 4]]
    """

# flamepy/ops/rounding.py: div
def true_divide(a: TensorLike, b: TensorLike, rounding_mode: str | None = None) -> Tensor:
    """a / b (integers give float32), or its whole part: rounding_mode "trunc" rounds towards 0 and "floor" down; integers stay integers.
    A rounded quotient records a zero gradient.
    Shapes: those of a and b broadcast. Raises ShapeError if they do not, DTypeError for two float types, ValueError for another mode.
    >>> fp.div(fp.tensor([7.0, -7.0]), 2.0, rounding_mode="trunc").tolist()
    [3.0, -3.0]
    """

# flamepy/ops/rounding.py: "trunc"
def trunc(x: TensorLike, /) -> Tensor:
    """The whole number next to x towards 0. Records a zero gradient.

    Shapes: any; the result has that of x.
    Types: floats and integers; bools are computed in int64.
    Formula: y = trunc_of(x)
    Derivative from g, the cotangent of y: dx = 0
    Raises: DTypeError (no tensor, array or number).
    >>> [round(v, 4) for v in fp.trunc(fp.tensor([-1.5, 1.5])).tolist()]
    [-1.0, 1.0]
    """

# flamepy/ops/overlap.py: tversky_loss
@overload
def tversky_loss(
    x: TensorLike,
    target: TensorLike,
    alpha: float = 0.5,
    beta: float = 0.5,
    *,
    smooth: float = 1.0,
    axis: Axis = None,
    reduction: str = 'mean',
) -> Tensor: ...
@overload
def tversky_loss(
    x: TensorLike,
    target: TensorLike,
    alpha: float = 0.5,
    beta: float = 0.5,
    *,
    smooth: float = 1.0,
    dim: Axis = None,
    reduction: str = 'mean',
) -> Tensor:
    """1 - (overlap + smooth) / (overlap + alpha only x + beta only target + smooth) for probabilities (Salehi et al. 2017,
    arXiv:1706.05721).
    overlap: the sum of x t, only x: that of x (1 - t), only target: that of (1 - x) t. They are over `axis`, by default all but the
    first two, of (N, classes, d1, ...), or the last one where there is no third; `reduction` is over what is left.
    Shapes and errors: as mse_loss; IndexOutOfRange for an axis that is not there.
    >>> round(F.tversky_loss(fp.tensor([[1.0, 0.0]]), [[1.0, 1.0]], 0.3, 0.7, smooth=0).item(), 4)
    0.4118
    """

# flamepy/ops/stacking.py: unbind
@overload
def unbind(x: TensorLike, axis: int = 0) -> list[Tensor]: ...
@overload
def unbind(x: TensorLike, dim: int = 0) -> list[Tensor]:
    """The parts of x along an axis, each without it. Shapes: (n, m) gives n of (m,). Raises ShapeError for a tensor without axes.
    >>> [t.tolist() for t in fp.unbind(fp.tensor([[1, 2], [3, 4]]), 1)]
    [[1, 3], [2, 4]]
    """

# flamepy/ops/rearranging.py: unflatten
@overload
def unflatten(x: TensorLike, axis: int, sizes: int | Sequence[int]) -> Tensor: ...
@overload
def unflatten(x: TensorLike, dim: int, sizes: int | Sequence[int]) -> Tensor:
    """One axis as several, one of whose sizes may be -1. Shapes: (6, n), axis 0, sizes (2, 3) give (2, 3, n). Raises ShapeError.
    >>> fp.unflatten(fp.ones(6, 4), 0, (2, -1)).shape
    (2, 3, 4)
    """

# flamepy/ops/patches.py: unfold
def unfold(x: TensorLike, kernel_size: Pair, dilation: Pair = 1, padding: Pair | str = 0, stride: Pair | None = 1) -> Tensor:
    """Each window of images as a column (im2col). Shapes: x (N, C, H, W) gives (N, C * rows * columns, positions); without N likewise.
    >>> F.unfold(fp.tensor([[[1.0, 2.0], [3.0, 4.0]]]), (2, 1)).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """

# flamepy/ops/counting.py: unique
@overload
def unique(
    x: TensorLike,
    *,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    sorted: bool = True,
) -> Tensor: ...
@overload
def unique(
    x: TensorLike,
    *,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
    sorted: bool = True,
) -> Tensor:
    """The different numbers of x, or slices along an axis, in order whatever `sorted` says; as asked for also, in this order: where each
    is first, where each element of x is among them, how often each occurs (all int64).
    Shapes: (n,), or x's with n at the axis. The gradient goes to the first of each. Reads x on the host, so no captured step may call it.
    >>> [t.tolist() for t in fp.unique(fp.tensor([2, 1, 2]), return_counts=True)]
    [[1, 2], [1, 2]]
    """

# flamepy/ops/shape_more.py: unsqueeze
@overload
def unsqueeze(x: TensorLike, axis: int) -> Tensor: ...
@overload
def unsqueeze(x: TensorLike, dim: int) -> Tensor:
    """A new axis of size 1 at `axis` of the result. Shapes: (n,) gives (1, n) or (n, 1).
    >>> fp.unsqueeze(fp.ones(3), -1).shape
    (3, 1)
    """

# flamepy/ops/resampling.py: upsample
def upsample(
    x: TensorLike,
    size: TensorLike | None = None,
    scale_factor: TensorLike | None = None,
    mode: str = 'nearest',
    align_corners: TensorLike | None = None,
) -> Tensor:
    """interpolate() by its older name. Shapes: as there.
    >>> F.upsample(fp.tensor([[[1.0, 3.0]]]), scale_factor=2).tolist()
    [[[1.0, 1.0, 3.0, 3.0]]]
    """

# flamepy/ops/variance.py: var
@overload
def var(x: TensorLike, axis: Axis = None, correction: float = 0, keepdims: bool = False) -> Tensor: ...
@overload
def var(x: TensorLike, dim: Axis = None, correction: float = 0, keepdim: bool = False) -> Tensor:
    """Variance over the axes: sum of squared deviations / (n - correction). Accurate far from zero too.
    The default is NumPy's and the array API's; PyTorch's is correction=1, which unbiased=True is another name of.
    Shapes: as sum. Raises DTypeError unless x is of floats.
    >>> fp.var(fp.tensor([1.0, 3.0])).item()
    1.0
    """

# flamepy/ops/reductions.py: var_mean
@overload
def var_mean(x: TensorLike, axis: Axis = None, correction: float = 1, keepdims: bool = False) -> Tensor: ...
@overload
def var_mean(x: TensorLike, dim: Axis = None, correction: float = 1, keepdim: bool = False) -> Tensor:
    """(variance, mean) over the axes. The default correction is PyTorch's, 1 (that of var() is 0, as NumPy's).
    Shapes: as sum. Raises DTypeError unless x is of floats.
    >>> [t.item() for t in fp.var_mean(fp.tensor([1.0, 3.0]))]
    [2.0, 2.0]
    """

# flamepy/ops/vectors.py: vdot
def vdot(a: TensorLike, b: TensorLike) -> Tensor:
    """dot() of all elements of both. Shapes: as many elements, else ShapeError; gives ().
    >>> fp.vdot(fp.tensor([[1.0, 2.0]]), fp.tensor([[3.0], [4.0]])).item()
    11.0
    """

# flamepy/ops/reductions.py: vector_norm
@overload
def vector_norm(
    x: TensorLike,
    ord: float = 2,
    axis: Axis = None,
    keepdims: bool = False,
    dtype: DTypeLike | None = None,
) -> Tensor: ...
@overload
def vector_norm(x: TensorLike, ord: float = 2, dim: Axis = None, keepdim: bool = False, dtype: DTypeLike | None = None) -> Tensor:
    """(sum of |x|^ord)^(1 / ord) over the axes; inf: the largest |x|, -inf: the smallest, 0: how many are not zero. Its gradient at zero
    vectors is zero.
    Shapes: as sum. dtype: the type to cast to before. Integers give float32. Raises DTypeError for an order that is no number.
    >>> fp.vector_norm(fp.tensor([3.0, 4.0])).item()
    5.0
    """

# flamepy/ops/rearranging.py: reshape_as
def view_as(x: TensorLike, other: TensorLike) -> Tensor:
    """reshape() to the shape of another tensor. Also called view_as. Shapes: as there.
    >>> fp.reshape_as(fp.ones(6), fp.ones(2, 3)).shape
    (2, 3)
    """

# flamepy/ops/stacking.py: vstack
def vstack(tensors: Iterable[TensorLike]) -> Tensor:
    """Tensors below each other, those of one axis as rows. Shapes: (n,), (m, n) give (m + 1, n).
    >>> fp.vstack([fp.tensor([1, 2]), fp.tensor([3, 4])]).tolist()
    [[1, 2], [3, 4]]
    """

# flamepy/ops/channel_norms.py: weight_standardize
def weight_standardize(weight: TensorLike, eps: float = 1e-05) -> Tensor:
    """(weight - mean) / sqrt(var + eps) for each output channel, over all other axes (Qiao et al. 2019, arXiv:1903.10520); for use as
    F.conv2d(x, F.weight_standardize(conv.weight)).
    Shapes: weight (O, ...), with two axes or more; the result has the same. Raises ShapeError.
    >>> F.weight_standardize(fp.tensor([[1.0, 3.0], [4.0, 8.0]])).numpy().round(2).tolist()
    [[-1.0, 1.0], [-1.0, 1.0]]
    """

# flamepy/core/ops/pointwise.py: "where"
def where(condition: TensorLike, a: TensorLike, b: TensorLike, /) -> Tensor:
    """a where the condition holds, b elsewhere.

    Shapes: those of the inputs broadcast.
    Types: condition bool, the others floats, integers and bools.
    Formula: y = select(condition, a, b)
    Derivative from g, the cotangent of y: da = select(condition, g, 0.0)
    Derivative from g, the cotangent of y: db = select(condition, 0.0, g)
    Raises: DTypeError (two float types; no tensor, array or number), ShapeError (shapes that do not broadcast).
    >>> [round(v, 4) for v in fp.where(fp.tensor([True, False]), fp.tensor([-1.5, 1.5]), 0.5).tolist()]
    [-1.5, 0.5]
    """

# flamepy/ops/logarithms.py: "xlogy"
def xlogy(a: TensorLike, b: TensorLike, /) -> Tensor:
    """a * log(b), and 0 where a is 0 unless b is NaN.

    Shapes: those of the inputs broadcast.
    Types: floats; integers and bools are computed in float32.
    Formula: y = select((a == 0.0) & (b == b), 0.0, a * log(b))
    Derivative from g, the cotangent of y: da = select((a == 0.0) & (b <= 0.0), 0.0, g * log(b))
    Derivative from g, the cotangent of y: db = g * a / b
    Raises: DTypeError (two float types; no tensor, array or number), ShapeError (shapes that do not broadcast).
    >>> [round(v, 4) for v in fp.xlogy(fp.tensor([-1.5, 1.5]), 0.5).tolist()]
    [1.0397, -1.0397]
    """
