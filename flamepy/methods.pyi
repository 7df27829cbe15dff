# Written by tools/make_stubs.py, not by hand.
# fmt: off
# ruff: noqa: E501, F401
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .core.parameter import Stored
from .core.tensor import Tensor as Tensor
from .habits import Count as Count
from .ops import Axis, Pair, TensorLike
from .parameter import ParameterMethods
from .tensors import TensorMethods

class Trained(ParameterMethods, Stored): ...  # type: ignore[misc]

class Methods(TensorMethods):
    # flamepy/core/ops/pointwise.py: "abs"
    def abs(self) -> Tensor:
        """|x|; the derivative at 0 is 0. See flamepy.abs."""
    # flamepy/core/ops/pointwise.py: "abs"
    def absolute(self) -> Tensor:
        """|x|; the derivative at 0 is 0. See flamepy.absolute."""
    # flamepy/ops/trigonometry.py: "acos"
    def acos(self) -> Tensor:
        """Angle in [0, pi] whose cosine is x; NaN outside [-1, 1]. See flamepy.acos."""
    # flamepy/ops/trigonometry.py: "acosh"
    def acosh(self) -> Tensor:
        """The number, 0 or more, whose cosh is x; NaN below 1. See flamepy.acosh."""
    # flamepy/core/ops/pointwise.py: "add"
    def add(self, b: TensorLike, /, *, alpha: float = 1.0) -> Tensor:
        """a + b. See flamepy.add."""
    # flamepy/ops/vectors.py: addbmm
    def addbmm(self, a: TensorLike, b: TensorLike, *, beta: float = 1, alpha: float = 1) -> Tensor:
        """beta x + alpha times the sum of the products of two stacks. See flamepy.addbmm."""
    # flamepy/ops/spellings.py: "addcdiv"
    def addcdiv(self, a: TensorLike, b: TensorLike, /, value: float = 1.0) -> Tensor:
        """x + value * a / b. See flamepy.addcdiv."""
    # flamepy/ops/spellings.py: "addcmul"
    def addcmul(self, a: TensorLike, b: TensorLike, /, value: float = 1.0) -> Tensor:
        """x + value * a * b. See flamepy.addcmul."""
    # flamepy/ops/vectors.py: addmm
    def addmm(self, a: TensorLike, b: TensorLike, *, beta: float = 1, alpha: float = 1) -> Tensor:
        """beta x + alpha a @ b. See flamepy.addmm."""
    # flamepy/ops/vectors.py: addmv
    def addmv(self, a: TensorLike, b: TensorLike, *, beta: float = 1, alpha: float = 1) -> Tensor:
        """beta x + alpha a @ b, of a matrix and a vector. See flamepy.addmv."""
    # flamepy/ops/vectors.py: addr
    def addr(self, a: TensorLike, b: TensorLike, *, beta: float = 1, alpha: float = 1) -> Tensor:
        """beta x + alpha outer(a, b). See flamepy.addr."""
    # flamepy/ops/reductions.py: all
    @overload
    def all(self, axis: Axis = None, keepdims: bool = False) -> Tensor: ...
    @overload
    def all(self, dim: Axis = None, keepdim: bool = False) -> Tensor:
        """Whether every element over the axes is not zero (bool); of none: True. See flamepy.all."""
    # flamepy/ops/logic.py: allclose
    def allclose(self, b: TensorLike, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Tensor:
        """Whether isclose() holds for all, as Python's True or False. See flamepy.allclose."""
    # flamepy/ops/reductions.py: amax
    @overload
    def amax(self, axis: Axis = None, keepdims: bool = False) -> Tensor: ...
    @overload
    def amax(self, dim: Axis = None, keepdim: bool = False) -> Tensor:
        """max(): the values alone, as NumPy's and PyTorch's amax. Ties share the gradient equally. See flamepy.amax."""
    # flamepy/ops/reductions.py: amin
    @overload
    def amin(self, axis: Axis = None, keepdims: bool = False) -> Tensor: ...
    @overload
    def amin(self, dim: Axis = None, keepdim: bool = False) -> Tensor:
        """min(): the values alone, as NumPy's and PyTorch's amin. Ties share the gradient equally. See flamepy.amin."""
    # flamepy/ops/reductions.py: aminmax
    @overload
    def aminmax(self, axis: Axis = None, keepdims: bool = False) -> Tensor: ...
    @overload
    def aminmax(self, dim: Axis = None, keepdim: bool = False) -> Tensor:
        """(min, max) over the axes. See flamepy.aminmax."""
    # flamepy/ops/reductions.py: any
    @overload
    def any(self, axis: Axis = None, keepdims: bool = False) -> Tensor: ...
    @overload
    def any(self, dim: Axis = None, keepdim: bool = False) -> Tensor:
        """Whether an element over the axes is not zero (bool); of none: False. See flamepy.any."""
    # flamepy/ops/trigonometry.py: "acos"
    def arccos(self) -> Tensor:
        """Angle in [0, pi] whose cosine is x; NaN outside [-1, 1]. See flamepy.arccos."""
    # flamepy/ops/trigonometry.py: "acosh"
    def arccosh(self) -> Tensor:
        """The number, 0 or more, whose cosh is x; NaN below 1. See flamepy.arccosh."""
    # flamepy/ops/trigonometry.py: "asin"
    def arcsin(self) -> Tensor:
        """Angle in [-pi/2, pi/2] whose sine is x; NaN outside [-1, 1]. See flamepy.arcsin."""
    # flamepy/ops/trigonometry.py: "asinh"
    def arcsinh(self) -> Tensor:
        """The number whose sinh is x. See flamepy.arcsinh."""
    # flamepy/ops/trigonometry.py: "atan"
    def arctan(self) -> Tensor:
        """Angle in (-pi/2, pi/2) whose tangent is x. See flamepy.arctan."""
    # flamepy/ops/trigonometry.py: "atan2"
    def arctan2(self, b: TensorLike, /) -> Tensor:
        """Angle in [-pi, pi] of the point (b, a); signs of zeros count, as in C. See flamepy.arctan2."""
    # flamepy/ops/trigonometry.py: "atanh"
    def arctanh(self) -> Tensor:
        """The number whose tanh is x; NaN outside [-1, 1]. See flamepy.arctanh."""
    # flamepy/ops/reduce_more.py: argmax
    @overload
    def argmax(self, axis: int | None = None, keepdims: bool = False) -> Tensor: ...
    @overload
    def argmax(self, dim: int | None = None, keepdim: bool = False) -> Tensor:
        """Index of the first largest element (int64) along an axis, or in the flattened tensor. Records nothing. See flamepy.argmax."""
    # flamepy/ops/reduce_more.py: argmin
    @overload
    def argmin(self, axis: int | None = None, keepdims: bool = False) -> Tensor: ...
    @overload
    def argmin(self, dim: int | None = None, keepdim: bool = False) -> Tensor:
        """Index of the first smallest element (int64) along an axis, or in the flattened tensor. Records nothing. See flamepy.argmin."""
    # flamepy/ops/sorting.py: argsort
    @overload
    def argsort(self, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor: ...
    @overload
    def argsort(self, dim: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
        """The indices that sort() gives (int64). Records nothing. See flamepy.argsort."""
    # flamepy/ops/selecting.py: nonzero
    def argwhere(self, as_tuple: bool = False, *, size: int | None = None, fill_value: int = 0) -> Tensor:
        """The indices of the elements that are not zero, a row for each (int64). Also called argwhere. as_tuple: as NumPy's nonzero, a 1-D See flamepy.argwhere."""
    # flamepy/ops/logic.py: array_equal
    def array_equal(self, b: TensorLike) -> Tensor:
        """Whether a and b have the same shape and the same numbers, as Python's True or False (torch.equal). See flamepy.array_equal."""
    # flamepy/ops/trigonometry.py: "asin"
    def asin(self) -> Tensor:
        """Angle in [-pi/2, pi/2] whose sine is x; NaN outside [-1, 1]. See flamepy.asin."""
    # flamepy/ops/trigonometry.py: "asinh"
    def asinh(self) -> Tensor:
        """The number whose sinh is x. See flamepy.asinh."""
    # flamepy/ops/trigonometry.py: "atan"
    def atan(self) -> Tensor:
        """Angle in (-pi/2, pi/2) whose tangent is x. See flamepy.atan."""
    # flamepy/ops/trigonometry.py: "atan2"
    def atan2(self, b: TensorLike, /) -> Tensor:
        """Angle in [-pi, pi] of the point (b, a); signs of zeros count, as in C. See flamepy.atan2."""
    # flamepy/ops/trigonometry.py: "atanh"
    def atanh(self) -> Tensor:
        """The number whose tanh is x; NaN outside [-1, 1]. See flamepy.atanh."""
    # flamepy/ops/stacking.py: atleast_1d
    def atleast_1d(self, *xs: TensorLike) -> Tensor:
        """Tensors with an axis at least; several give a list. See flamepy.atleast_1d."""
    # flamepy/ops/stacking.py: atleast_2d
    def atleast_2d(self, *xs: TensorLike) -> Tensor:
        """Tensors with two axes at least; several give a list. See flamepy.atleast_2d."""
    # flamepy/ops/stacking.py: atleast_3d
    def atleast_3d(self, *xs: TensorLike) -> Tensor:
        """Tensors with three axes at least; several give a list. See flamepy.atleast_3d."""
    # flamepy/ops/vectors.py: baddbmm
    def baddbmm(self, a: TensorLike, b: TensorLike, *, beta: float = 1, alpha: float = 1) -> Tensor:
        """beta x + alpha a @ b, of stacks. See flamepy.baddbmm."""
    # flamepy/ops/random.py: bernoulli
    def bernoulli(self, generator: TensorLike | None = None) -> Tensor:
        """1 with probability p, else 0, for each number of p, in its type. Records a zero gradient. See flamepy.bernoulli."""
    # flamepy/ops/losses.py: binary_cross_entropy
    def binary_cross_entropy(self, target: TensorLike, weight: TensorLike | None = None, *, reduction: str = 'mean') -> Tensor:
        """-(t log x + (1 - t) log(1 - x)) for probabilities x in [0, 1]; `weight`, which broadcasts to x, multiplies each. See flamepy.binary_cross_entropy."""
    # flamepy/ops/losses.py: binary_cross_entropy_with_logits
    def binary_cross_entropy_with_logits(
        self,
        target: TensorLike,
        weight: TensorLike | None = None,
        *,
        pos_weight: TensorLike | None = None,
        reduction: str = 'mean',
    ) -> Tensor:
        """Binary cross-entropy of sigmoid(x); pos_weight (number or tensor that broadcasts) weighs the positives, `weight` each element. See flamepy.binary_cross_entropy_with_logits."""
    # flamepy/ops/counting.py: bincount
    def bincount(self, weights: TensorLike | None = None, minlength: int = 0) -> Tensor:
        """How often each whole number from 0 on occurs in x (int64), or the sum of its weights (float64 for integers). See flamepy.bincount."""
    # flamepy/ops/bits.py: bitcast
    def bitcast(self, dtype: DTypeLike) -> Tensor:
        """The same bits as numbers of another type, as PyTorch's view(dtype) and NumPy's give them; there is no gradient. See flamepy.bitcast."""
    # flamepy/ops/bits.py: bitwise_and
    def bitwise_and(self, b: TensorLike) -> Tensor:
        """a & b: the bits that both have; of bools whether both hold. See flamepy.bitwise_and."""
    # flamepy/ops/bits.py: bitwise_not
    def bitwise_invert(self) -> Tensor:
        """~x: the bits that x does not have; of bools whether x does not hold. See flamepy.bitwise_invert."""
    # flamepy/ops/bits.py: bitwise_left_shift
    def bitwise_left_shift(self, b: TensorLike) -> Tensor:
        """a << b: a times 2**b; bits that do not fit are lost. By fewer than 0 bits, or more than there are, it is 0. See flamepy.bitwise_left_shift."""
    # flamepy/ops/bits.py: bitwise_not
    def bitwise_not(self) -> Tensor:
        """~x: the bits that x does not have; of bools whether x does not hold. See flamepy.bitwise_not."""
    # flamepy/ops/bits.py: bitwise_or
    def bitwise_or(self, b: TensorLike) -> Tensor:
        """a | b: the bits that at least one has. Shapes and types: as bitwise_and. See flamepy.bitwise_or."""
    # flamepy/ops/bits.py: bitwise_right_shift
    def bitwise_right_shift(self, b: TensorLike) -> Tensor:
        """a >> b: a divided by 2**b and rounded down. Shapes and types: as bitwise_left_shift. See flamepy.bitwise_right_shift."""
    # flamepy/ops/bits.py: bitwise_xor
    def bitwise_xor(self, b: TensorLike) -> Tensor:
        """a ^ b: the bits that one of both has. Shapes and types: as bitwise_and. See flamepy.bitwise_xor."""
    # flamepy/ops/vectors.py: bmm
    def bmm(self, b: TensorLike) -> Tensor:
        """The products of two stacks of as many matrices. See flamepy.bmm."""
    # flamepy/ops/stacking.py: broadcast_tensors
    def broadcast_tensors(self, *xs: TensorLike) -> list[Tensor]:
        """The tensors, each repeated to the shape that all broadcast to. See flamepy.broadcast_tensors."""
    # flamepy/core/ops/shape.py: broadcast_to
    def broadcast_to(self, shape: int | Sequence[int], *rest: int) -> Tensor:
        """x repeated to `shape` by the broadcasting rule; -1 keeps a size. Also called expand. See flamepy.broadcast_to."""
    # flamepy/ops/sorting.py: bucketize
    def bucketize(self, boundaries: TensorLike, right: bool = False, out_int32: bool = False) -> Tensor:
        """For each number the index of its bucket between sorted boundaries: searchsorted(boundaries, x). See flamepy.bucketize."""
    # flamepy/core/ops/copy.py: cast
    def cast(self, dtype: DTypeLike = ...) -> Tensor:
        """The same numbers as another dtype; x itself if it has that dtype. Towards integers the fraction is cut off. See flamepy.cast."""
    # flamepy/ops/joining.py: cat
    @overload
    def cat(self, axis: int = 0) -> Tensor: ...
    @overload
    def cat(self, dim: int = 0) -> Tensor:
        """The tensors one after the other along `axis`; all other sizes must be equal. See flamepy.cat."""
    # flamepy/ops/random.py: categorical
    @overload
    def categorical(self, axis: int = -1, generator: TensorLike | None = None) -> Tensor: ...
    @overload
    def categorical(self, dim: int = -1, generator: TensorLike | None = None) -> Tensor:
        """A class id (int64) for each row of logits along an axis, drawn with the probabilities softmax(logits). (By Gumbel's maximum.) See flamepy.categorical."""
    # flamepy/ops/similarity.py: cdist
    def cdist(self, b: TensorLike, p: float = 2.0) -> Tensor:
        """Distances of each point of a from each of b in the p-norm, p from 0 (how many numbers differ) to infinity; the gradient where two are See flamepy.cdist."""
    # flamepy/ops/rounding.py: "ceil"
    def ceil(self) -> Tensor:
        """Smallest integer not below x. Records a zero gradient. See flamepy.ceil."""
    # flamepy/ops/more_activations.py: "celu"
    def celu(self, alpha: float = 1.0) -> Tensor:
        """x above zero, alpha * (exp(x / alpha) - 1) below (Barron 2017, arXiv:1704.07483). See flamepy.celu."""
    # flamepy/ops/contractions.py: chain_matmul
    def chain_matmul(self, *matrices: TensorLike) -> Tensor:
        """multi_dot() of matrices given one by one. See flamepy.chain_matmul."""
    # flamepy/ops/joining.py: chunk
    @overload
    def chunk(self, pieces: int, axis: int = 0) -> list[Tensor]: ...
    @overload
    def chunk(self, pieces: int, dim: int = 0) -> list[Tensor]:
        """`pieces` pieces of equal size along `axis` (the last may be smaller, and there may be fewer). See flamepy.chunk."""
    # flamepy/ops/rounding.py: clamp
    def clamp(self, min: float | None = None, max: float | None = None) -> Tensor:
        """x limited to [min, max] (numbers or tensors; None is no limit, one of them has to be there). The gradient passes at the bounds. See flamepy.clamp."""
    # flamepy/ops/rounding.py: clamp
    def clip(self, min: float | None = None, max: float | None = None) -> Tensor:
        """x limited to [min, max] (numbers or tensors; None is no limit, one of them has to be there). The gradient passes at the bounds. See flamepy.clip."""
    # flamepy/ops/stacking.py: column_stack
    def column_stack(self) -> Tensor:
        """Tensors side by side, those of one axis as columns. See flamepy.column_stack."""
    # flamepy/ops/joining.py: cat
    @overload
    def concat(self, axis: int = 0) -> Tensor: ...
    @overload
    def concat(self, dim: int = 0) -> Tensor:
        """The tensors one after the other along `axis`; all other sizes must be equal. See flamepy.concat."""
    # flamepy/ops/joining.py: cat
    @overload
    def concatenate(self, axis: int = 0) -> Tensor: ...
    @overload
    def concatenate(self, dim: int = 0) -> Tensor:
        """The tensors one after the other along `axis`; all other sizes must be equal. See flamepy.concatenate."""
    # flamepy/ops/logarithms.py: "copysign"
    def copysign(self, b: TensorLike, /) -> Tensor:
        """|a| with the sign of b, which zeros have, too; the derivative at a = 0 is 0. See flamepy.copysign."""
    # flamepy/core/ops/pointwise.py: "cos"
    def cos(self) -> Tensor:
        """Cosine of x in radians. See flamepy.cos."""
    # flamepy/ops/trigonometry.py: "cosh"
    def cosh(self) -> Tensor:
        """Hyperbolic cosine. See flamepy.cosh."""
    # flamepy/ops/reductions.py: count_nonzero
    @overload
    def count_nonzero(self, axis: Axis = None, keepdims: bool = False) -> Tensor: ...
    @overload
    def count_nonzero(self, dim: Axis = None, keepdim: bool = False) -> Tensor:
        """How many elements over the axes are not zero (int64; NaN is not). Records nothing. See flamepy.count_nonzero."""
    # flamepy/ops/vectors.py: cross
    @overload
    def cross(self, b: TensorLike, axis: int = -1) -> Tensor: ...
    @overload
    def cross(self, b: TensorLike, dim: int = -1) -> Tensor:
        """The vector at right angles to two in space. See flamepy.cross."""
    # flamepy/ops/cross_entropy.py: cross_entropy
    def cross_entropy(
        self,
        target: TensorLike,
        weight: TensorLike | None = None,
        *,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
        reduction: str = 'mean',
    ) -> Tensor:
        """-log softmax(x)[id], averaged over the ids that are not ignored; float32 for 16-bit logits too. See flamepy.cross_entropy."""
    # flamepy/ops/scans.py: cummax
    @overload
    def cummax(self, axis: int = 0) -> Tensor: ...
    @overload
    def cummax(self, dim: int = 0) -> Tensor:
        """(values, indices) of the largest element up to each one along an axis; of equal ones the last, NaN wins, as in PyTorch. See flamepy.cummax."""
    # flamepy/ops/scans.py: cummin
    @overload
    def cummin(self, axis: int = 0) -> Tensor: ...
    @overload
    def cummin(self, dim: int = 0) -> Tensor:
        """(values, indices) of the smallest element up to each one along an axis; of equal ones the last, NaN wins, as in PyTorch. See flamepy.cummin."""
    # flamepy/ops/scans.py: cumprod
    @overload
    def cumprod(self, axis: int | None = None, dtype: DTypeLike | None = None) -> Tensor: ...
    @overload
    def cumprod(self, dim: int | None = None, dtype: DTypeLike | None = None) -> Tensor:
        """The product of the elements up to each one along an axis; without one, of the flattened x. Gradients are right at zeros, too. See flamepy.cumprod."""
    # flamepy/ops/scans.py: cumsum
    @overload
    def cumsum(self, axis: int | None = None, dtype: DTypeLike | None = None) -> Tensor: ...
    @overload
    def cumsum(self, dim: int | None = None, dtype: DTypeLike | None = None) -> Tensor:
        """The sum of the elements up to each one along an axis; without one, of the flattened x. Added up in float64, rounded to x's type. See flamepy.cumsum."""
    # flamepy/ops/trigonometry.py: "deg2rad"
    def deg2rad(self) -> Tensor:
        """Degrees as radians. See flamepy.deg2rad."""
    # flamepy/ops/diagonals.py: diag
    def diag(self, k: int = 0) -> Tensor:
        """A vector as the k-th diagonal of a matrix of zeros, or that diagonal of a matrix. See flamepy.diag."""
    # flamepy/ops/diagonals.py: diag_embed
    def diag_embed(self, offset: int = 0, axis1: int = -2, axis2: int = -1) -> Tensor:
        """Matrices of zeros with the last axis of x on their diagonal, or beside it by `offset`; they lie along two axes of the result. See flamepy.diag_embed."""
    # flamepy/ops/diagonals.py: diagflat
    def diagflat(self, k: int = 0) -> Tensor:
        """All elements of x as the k-th diagonal of a matrix of zeros. See flamepy.diagflat."""
    # flamepy/ops/diagonals.py: diagonal
    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
        """The diagonal of the matrices along two axes, as a new last axis; offset above 0: one further right, below 0: further down. See flamepy.diagonal."""
    # flamepy/ops/scans.py: diff
    @overload
    def diff(self, n: int = 1, axis: int = -1, prepend: TensorLike | None = None, append: TensorLike | None = None) -> Tensor: ...
    @overload
    def diff(self, n: int = 1, dim: int = -1, prepend: TensorLike | None = None, append: TensorLike | None = None) -> Tensor:
        """Differences of neighbours along an axis, n times over; before that, `prepend` and `append` (numbers too) are put to its ends. See flamepy.diff."""
    # flamepy/ops/logarithms.py: "digamma"
    def digamma(self) -> Tensor:
        """Derivative of lgamma; NaN at -1, -2, ... See flamepy.digamma."""
    # flamepy/ops/rounding.py: div
    def div(self, b: TensorLike, rounding_mode: str | None = None) -> Tensor:
        """a / b (integers give float32), or its whole part: rounding_mode "trunc" rounds towards 0 and "floor" down; integers stay integers. See flamepy.div."""
    # flamepy/ops/rounding.py: div
    def divide(self, b: TensorLike, rounding_mode: str | None = None) -> Tensor:
        """a / b (integers give float32), or its whole part: rounding_mode "trunc" rounds towards 0 and "floor" down; integers stay integers. See flamepy.divide."""
    # flamepy/ops/vectors.py: dot
    def dot(self, b: TensorLike) -> Tensor:
        """The sum of products of two vectors, the product of two matrices, as in NumPy; a number multiplies, stacks of matrices are multiplied See flamepy.dot."""
    # flamepy/ops/random.py: dropout
    def dropout(self, p: float = 0.5, training: bool = True, generator: TensorLike | None = None) -> Tensor:
        """Zero each element, a NaN too, with probability p and scale the others by 1 / (1 - p); x itself when not training or p is 0. See flamepy.dropout."""
    # flamepy/ops/stacking.py: dstack
    def dstack(self) -> Tensor:
        """Tensors behind each other, along the third axis. See flamepy.dstack."""
    # flamepy/ops/contractions.py: einsum
    def einsum(self, *operands: TensorLike) -> Tensor:
        """The sum of products that the subscripts say: einsum("bij,bjk->bik", x, y) multiplies stacks of matrices. See flamepy.einsum."""
    # flamepy/ops/activations.py: "elu"
    def elu(self, alpha: float = 1.0) -> Tensor:
        """x above zero, alpha * (exp(x) - 1) below (Clevert et al. 2015, arXiv:1511.07289). See flamepy.elu."""
    # flamepy/core/ops/pointwise.py: "eq"
    def eq(self, b: TensorLike, /) -> Tensor:
        """a == b. See flamepy.eq."""
    # flamepy/core/ops/pointwise.py: "erf"
    def erf(self) -> Tensor:
        """Error function 2/sqrt(pi) * integral of exp(-t^2) from 0 to x. See flamepy.erf."""
    # flamepy/ops/logarithms.py: "erfc"
    def erfc(self) -> Tensor:
        """1 - erf(x), precise where that is small. See flamepy.erfc."""
    # flamepy/ops/logarithms.py: "erfinv"
    def erfinv(self) -> Tensor:
        """The number whose erf is x; NaN outside [-1, 1]. See flamepy.erfinv."""
    # flamepy/core/ops/pointwise.py: "exp"
    def exp(self) -> Tensor:
        """e to the power x. See flamepy.exp."""
    # flamepy/ops/logarithms.py: "exp2"
    def exp2(self) -> Tensor:
        """2 to the power x. See flamepy.exp2."""
    # flamepy/ops/shape_more.py: expand
    def expand(self, shape: int | Sequence[int], *rest: int) -> Tensor:
        """broadcast_to(). See flamepy.expand."""
    # flamepy/ops/stacking.py: expand_as
    def expand_as(self, other: TensorLike) -> Tensor:
        """broadcast_to() the shape of another tensor. See flamepy.expand_as."""
    # flamepy/ops/logarithms.py: "expm1"
    def expm1(self) -> Tensor:
        """exp(x) - 1, precise near 0. See flamepy.expm1."""
    # flamepy/ops/rounding.py: "trunc"
    def fix(self) -> Tensor:
        """The whole number next to x towards 0. Records a zero gradient. See flamepy.fix."""
    # flamepy/ops/shape_more.py: flatten
    def flatten(self, start_axis: int = 0, end_axis: int = -1) -> Tensor:
        """Merge the axes from start_axis to end_axis into one. See flamepy.flatten."""
    # flamepy/ops/rearranging.py: flip
    @overload
    def flip(self, axis: Axis = None, *rest: int) -> Tensor: ...
    @overload
    def flip(self, dim: Axis = None, *rest: int) -> Tensor:
        """The order of elements reversed along all axes, or the ones named: flip(x, (0, 1)) or flip(x, 0, 1). See flamepy.flip."""
    # flamepy/ops/rearranging.py: fliplr
    def fliplr(self) -> Tensor:
        """Columns in reverse order: flip(x, 1). See flamepy.fliplr."""
    # flamepy/ops/rearranging.py: flipud
    def flipud(self) -> Tensor:
        """Rows in reverse order: flip(x, 0). See flamepy.flipud."""
    # flamepy/ops/spellings.py: float_power
    def float_power(self, b: TensorLike) -> Tensor:
        """a to the power b, computed in float64, whatever their types. See flamepy.float_power."""
    # flamepy/ops/rounding.py: "floor"
    def floor(self) -> Tensor:
        """Largest integer not above x. Records a zero gradient. See flamepy.floor."""
    # flamepy/ops/rounding.py: "floor_divide"
    def floor_divide(self, b: TensorLike, /) -> Tensor:
        """The largest whole number not above a / b, as Python's and NumPy's a // b. It jumps and has no derivative: a tracked input raises. See flamepy.floor_divide."""
    # flamepy/ops/rounding.py: "fmod"
    def fmod(self, b: TensorLike, /) -> Tensor:
        """a - trunc(a / b) * b, with the sign of a, as C's fmod; the gradient takes trunc(a / b) for constant, as in PyTorch. See flamepy.fmod."""
    # flamepy/ops/rounding.py: "frac"
    def frac(self) -> Tensor:
        """x - trunc(x), with the sign of x. See flamepy.frac."""
    # flamepy/ops/picking.py: gather
    @overload
    def gather(self, axis: int, index: TensorLike) -> Tensor: ...
    @overload
    def gather(self, dim: int, index: TensorLike) -> Tensor:
        """y[i, j] = x[index[i, j], j] for axis 0, and so on. See flamepy.gather."""
    # flamepy/core/ops/pointwise.py: "ge"
    def ge(self, b: TensorLike, /) -> Tensor:
        """a >= b. See flamepy.ge."""
    # flamepy/ops/activations.py: gelu
    def gelu(self, approximate: str = 'none') -> Tensor:
        """Gaussian error linear unit, exact ("none") or by tanh ("tanh"). See flamepy.gelu."""
    # flamepy/ops/vectors.py: outer
    def ger(self, b: TensorLike) -> Tensor:
        """All products of an element of a and one of b. See flamepy.ger."""
    # flamepy/ops/more_activations.py: glu
    @overload
    def glu(self, axis: int = -1) -> Tensor: ...
    @overload
    def glu(self, dim: int = -1) -> Tensor:
        """The first half along an axis times the sigmoid of the second (Dauphin et al. 2016, arXiv:1612.08083). See flamepy.glu."""
    # flamepy/core/ops/pointwise.py: "gt"
    def greater(self, b: TensorLike, /) -> Tensor:
        """a > b. See flamepy.greater."""
    # flamepy/core/ops/pointwise.py: "ge"
    def greater_equal(self, b: TensorLike, /) -> Tensor:
        """a >= b. See flamepy.greater_equal."""
    # flamepy/core/ops/pointwise.py: "gt"
    def gt(self, b: TensorLike, /) -> Tensor:
        """a > b. See flamepy.gt."""
    # flamepy/ops/more_activations.py: "hardshrink"
    def hardshrink(self, lambd: float = 0.5) -> Tensor:
        """x, and 0 within lambd of 0. See flamepy.hardshrink."""
    # flamepy/ops/more_activations.py: "hardsigmoid"
    def hardsigmoid(self) -> Tensor:
        """x / 6 + 1/2 limited to [0, 1]; the derivative at both is 0. See flamepy.hardsigmoid."""
    # flamepy/ops/more_activations.py: "hardswish"
    def hardswish(self) -> Tensor:
        """x * hardsigmoid(x) (Howard et al. 2019, arXiv:1905.02244). See flamepy.hardswish."""
    # flamepy/ops/more_activations.py: "hardtanh"
    def hardtanh(self, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
        """x limited to [min_val, max_val]; the derivative at both is 0. See flamepy.hardtanh."""
    # flamepy/ops/logic.py: "heaviside"
    def heaviside(self, b: TensorLike, /) -> Tensor:
        """0 below zero, 1 above, b where a is 0; NaN for NaN. See flamepy.heaviside."""
    # flamepy/ops/counting.py: histc
    def histc(self, bins: int = 100, min: float | None = 0, max: float | None = 0) -> Tensor:
        """How many numbers lie in each of `bins` equal parts from min to max, or where both are alike between x's own least and largest one. See flamepy.histc."""
    # flamepy/ops/stacking.py: hstack
    def hstack(self) -> Tensor:
        """Tensors side by side: along the second axis, those of one axis along it. See flamepy.hstack."""
    # flamepy/ops/losses.py: huber_loss
    def huber_loss(self, target: TensorLike, *, delta: float = 1.0, reduction: str = 'mean') -> Tensor:
        """Quadratic up to |x - target| = delta, linear beyond, slope delta. See flamepy.huber_loss."""
    # flamepy/ops/trigonometry.py: "hypot"
    def hypot(self, b: TensorLike, /) -> Tensor:
        """sqrt(a * a + b * b), without overflow on the way. See flamepy.hypot."""
    # flamepy/ops/scattering.py: index_add
    @overload
    def index_add(self, axis: int, index: TensorLike, source: TensorLike, alpha: float = 1) -> Tensor: ...
    @overload
    def index_add(self, dim: int, index: TensorLike, source: TensorLike, alpha: float = 1) -> Tensor:
        """x with alpha times the slices of source added to its own along `axis` at the integers in the 1-D index, in order. See flamepy.index_add."""
    # flamepy/ops/scattering.py: index_copy
    @overload
    def index_copy(self, axis: int, index: TensorLike, source: TensorLike) -> Tensor: ...
    @overload
    def index_copy(self, dim: int, index: TensorLike, source: TensorLike) -> Tensor:
        """x with its slices along `axis` at the integers in the 1-D index replaced by those of source; of several the last one counts. See flamepy.index_copy."""
    # flamepy/ops/scattering.py: index_fill
    @overload
    def index_fill(self, axis: int, index: TensorLike, value: float) -> Tensor: ...
    @overload
    def index_fill(self, dim: int, index: TensorLike, value: float) -> Tensor:
        """x with a number in its slices along `axis` at the integers in the 1-D index. See flamepy.index_fill."""
    # flamepy/ops/scattering.py: index_put
    def index_put(self, indices: TensorLike, values: TensorLike, accumulate: bool = False) -> Tensor:
        """x with values at x[indices], which is a tuple of what may stand in x[...]; accumulate: added there, in order. See flamepy.index_put."""
    # flamepy/ops/picking.py: index_select
    @overload
    def index_select(self, axis: int, index: TensorLike) -> Tensor: ...
    @overload
    def index_select(self, dim: int, index: TensorLike) -> Tensor:
        """The slices of x along `axis` at the integers in the 1-D `index`. See flamepy.index_select."""
    # flamepy/ops/contractions.py: inner
    def inner(self, b: TensorLike) -> Tensor:
        """The sum of products over the last axes of both; a number multiplies. See flamepy.inner."""
    # flamepy/ops/logic.py: isclose
    def isclose(self, b: TensorLike, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Tensor:
        """Whether |a - b| <= atol + rtol * |b|, or both are the same infinity, or NaN if equal_nan. Integers are compared in float64. See flamepy.isclose."""
    # flamepy/ops/logic.py: isfinite
    def isfinite(self) -> Tensor:
        """Whether each number is neither NaN nor infinite. See flamepy.isfinite."""
    # flamepy/ops/logic.py: isinf
    def isinf(self, detect_positive: bool = True, detect_negative: bool = True) -> Tensor:
        """Whether each number is infinite, of either sign unless one is not asked for. See flamepy.isinf."""
    # flamepy/ops/logic.py: isnan
    def isnan(self) -> Tensor:
        """Whether each number is NaN. See flamepy.isnan."""
    # flamepy/ops/logic.py: isneginf
    def isneginf(self) -> Tensor:
        """Whether each number is infinite and below zero. See flamepy.isneginf."""
    # flamepy/ops/logic.py: isposinf
    def isposinf(self) -> Tensor:
        """Whether each number is infinite and above zero. See flamepy.isposinf."""
    # flamepy/ops/vectors.py: kron
    def kron(self, b: TensorLike) -> Tensor:
        """Kronecker's product: each element of a times all of b. See flamepy.kron."""
    # flamepy/ops/sorting.py: kthvalue
    @overload
    def kthvalue(self, k: int, axis: int = -1, keepdims: bool = False) -> tuple[Tensor, Tensor]: ...
    @overload
    def kthvalue(self, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
        """(value, index) of the k-th smallest element along an axis, from 1. PyTorch's median is that of k = (n + 1) // 2. See flamepy.kthvalue."""
    # flamepy/ops/losses.py: l1_loss
    def l1_loss(self, target: TensorLike, *, reduction: str = 'mean') -> Tensor:
        """|x - target|. See flamepy.l1_loss."""
    # flamepy/core/ops/pointwise.py: "le"
    def le(self, b: TensorLike, /) -> Tensor:
        """a <= b. See flamepy.le."""
    # flamepy/ops/activations.py: "leaky_relu"
    def leaky_relu(self, negative_slope: float = 0.01) -> Tensor:
        """x above zero, negative_slope * x below (Maas et al. 2013). See flamepy.leaky_relu."""
    # flamepy/ops/spellings.py: "lerp"
    def lerp(self, b: TensorLike, weight: TensorLike, /) -> Tensor:
        """a + weight * (b - a), exact at both ends. See flamepy.lerp."""
    # flamepy/core/ops/pointwise.py: "lt"
    def less(self, b: TensorLike, /) -> Tensor:
        """a < b. See flamepy.less."""
    # flamepy/core/ops/pointwise.py: "le"
    def less_equal(self, b: TensorLike, /) -> Tensor:
        """a <= b. See flamepy.less_equal."""
    # flamepy/ops/logarithms.py: "lgamma"
    def lgamma(self) -> Tensor:
        """Logarithm of |gamma(x)|. See flamepy.lgamma."""
    # flamepy/core/ops/pointwise.py: "log"
    def log(self) -> Tensor:
        """Natural logarithm; -inf at zero, NaN below. See flamepy.log."""
    # flamepy/ops/logarithms.py: "log10"
    def log10(self) -> Tensor:
        """Logarithm to base 10; -inf at zero, NaN below. See flamepy.log10."""
    # flamepy/ops/logarithms.py: "log1p"
    def log1p(self) -> Tensor:
        """log(1 + x), precise near 0. See flamepy.log1p."""
    # flamepy/ops/logarithms.py: "log2"
    def log2(self) -> Tensor:
        """Logarithm to base 2; -inf at zero, NaN below. See flamepy.log2."""
    # flamepy/ops/rows.py: log_softmax
    @overload
    def log_softmax(self, axis: int = -1, dtype: DTypeLike | None = None) -> Tensor: ...
    @overload
    def log_softmax(self, dim: int = -1, dtype: DTypeLike | None = None) -> Tensor:
        """log(softmax(x)) along one axis, accurate where softmax is tiny, of x in another dtype if one is given. See flamepy.log_softmax."""
    # flamepy/ops/logarithms.py: "logaddexp"
    def logaddexp(self, b: TensorLike, /) -> Tensor:
        """log(exp(a) + exp(b)), without overflow. See flamepy.logaddexp."""
    # flamepy/ops/logarithms.py: "logaddexp2"
    def logaddexp2(self, b: TensorLike, /) -> Tensor:
        """log2(2**a + 2**b), without overflow. See flamepy.logaddexp2."""
    # flamepy/ops/scans.py: logcumsumexp
    @overload
    def logcumsumexp(self, axis: int = 0) -> Tensor: ...
    @overload
    def logcumsumexp(self, dim: int = 0) -> Tensor:
        """log(cumsum(exp(x))) along an axis, without overflow; computed in float64. See flamepy.logcumsumexp."""
    # flamepy/ops/logic.py: "logical_and"
    def logical_and(self, b: TensorLike, /) -> Tensor:
        """Both hold. See flamepy.logical_and."""
    # flamepy/ops/logic.py: "logical_not"
    def logical_not(self) -> Tensor:
        """x does not hold. See flamepy.logical_not."""
    # flamepy/ops/logic.py: "logical_or"
    def logical_or(self, b: TensorLike, /) -> Tensor:
        """At least one holds. See flamepy.logical_or."""
    # flamepy/ops/logic.py: "logical_xor"
    def logical_xor(self, b: TensorLike, /) -> Tensor:
        """Exactly one holds. See flamepy.logical_xor."""
    # flamepy/ops/logarithms.py: logit
    def logit(self, eps: TensorLike | None = None) -> Tensor:
        """log(x / (1 - x)), the inverse of sigmoid; with eps x is first limited to [eps, 1 - eps]. NaN outside [0, 1]. See flamepy.logit."""
    # flamepy/ops/more_activations.py: "logsigmoid"
    def logsigmoid(self) -> Tensor:
        """log(sigmoid(x)), without overflow. See flamepy.logsigmoid."""
    # flamepy/ops/reduce_more.py: logsumexp
    @overload
    def logsumexp(self, axis: Axis = None, keepdims: bool = False) -> Tensor: ...
    @overload
    def logsumexp(self, dim: Axis = None, keepdim: bool = False) -> Tensor:
        """log(sum(exp(x))) over the axes, without overflow. See flamepy.logsumexp."""
    # flamepy/ops/bits.py: bitwise_left_shift
    def lshift(self, b: TensorLike) -> Tensor:
        """a << b: a times 2**b; bits that do not fit are lost. By fewer than 0 bits, or more than there are, it is 0. See flamepy.lshift."""
    # flamepy/core/ops/pointwise.py: "lt"
    def lt(self, b: TensorLike, /) -> Tensor:
        """a < b. See flamepy.lt."""
    # flamepy/ops/activations.py: masked_fill
    def masked_fill(self, mask: TensorLike, value: float) -> Tensor:
        """x with `value`, a number or a tensor without axes, where the bool mask holds; mask broadcasts. See flamepy.masked_fill."""
    # flamepy/ops/selecting.py: masked_scatter
    def masked_scatter(self, mask: TensorLike, source: TensorLike) -> Tensor:
        """x with its elements where the mask holds replaced by those of source, one after the other. See flamepy.masked_scatter."""
    # flamepy/ops/selecting.py: masked_select
    def masked_select(self, mask: TensorLike, *, size: int | None = None, fill_value: float = 0) -> Tensor:
        """The elements of x where the mask holds, one after the other; x and mask broadcast. size: how many, `fill_value` where there are See flamepy.masked_select."""
    # flamepy/core/ops/matrices.py: matmul
    def matmul(self, b: TensorLike) -> Tensor:
        """a @ b: vectors, matrices, and stacks of matrices that broadcast. Raises ShapeError, DTypeError for integers beside floats. Integers See flamepy.matmul."""
    # flamepy/core/ops/reduce.py: max
    @overload
    def max(self, axis: Axis = None, keepdims: bool = False) -> Tensor: ...
    @overload
    def max(self, dim: Axis = None, keepdim: bool = False) -> Tensor:
        """Largest element over the axes; NaN wins. Ties share the gradient equally; where NaN wins all gradients are NaN. See flamepy.max."""
    # flamepy/core/ops/pointwise.py: "maximum"
    def maximum(self, b: TensorLike, /) -> Tensor:
        """The larger of a and b; NaN if either is. Ties share the gradient equally; NaN passes it on to both, as in PyTorch. See flamepy.maximum."""
    # flamepy/core/ops/reduce.py: mean
    @overload
    def mean(self, axis: Axis = None, keepdims: bool = False, dtype: DTypeLike | None = None) -> Tensor: ...
    @overload
    def mean(self, dim: Axis = None, keepdim: bool = False, dtype: DTypeLike | None = None) -> Tensor:
        """Mean over the axes (integers give float32), in another dtype if one is given; NaN for no elements. See flamepy.mean."""
    # flamepy/ops/sorting.py: median
    @overload
    def median(self, axis: Axis = None, keepdims: bool = False) -> Tensor: ...
    @overload
    def median(self, dim: Axis = None, keepdim: bool = False) -> Tensor:
        """The middle number along the axes, of an even number of them the mean of two, as NumPy's; NaN where there is one. See flamepy.median."""
    # flamepy/ops/stacking.py: meshgrid
    def meshgrid(self, *xs: TensorLike, indexing: str = 'xy') -> list[Tensor]:
        """Coordinates of the grid of these 1-D tensors, one tensor for each. indexing "xy", as in NumPy, has the first along columns, "ij" See flamepy.meshgrid."""
    # flamepy/core/ops/reduce.py: min
    @overload
    def min(self, axis: Axis = None, keepdims: bool = False) -> Tensor: ...
    @overload
    def min(self, dim: Axis = None, keepdim: bool = False) -> Tensor:
        """Smallest element over the axes; NaN wins. Ties share the gradient equally; where NaN wins all gradients are NaN. See flamepy.min."""
    # flamepy/core/ops/pointwise.py: "minimum"
    def minimum(self, b: TensorLike, /) -> Tensor:
        """The smaller of a and b; NaN if either is. Ties share the gradient equally; NaN passes it on to both, as in PyTorch. See flamepy.minimum."""
    # flamepy/ops/more_activations.py: "mish"
    def mish(self) -> Tensor:
        """x * tanh(log(1 + exp(x))) (Misra 2019, arXiv:1908.08681). See flamepy.mish."""
    # flamepy/ops/vectors.py: mm
    def mm(self, b: TensorLike) -> Tensor:
        """The product of two matrices. See flamepy.mm."""
    # flamepy/ops/sorting.py: mode
    @overload
    def mode(self, axis: int = -1, keepdims: bool = False) -> tuple[Tensor, Tensor]: ...
    @overload
    def mode(self, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
        """(value, index) of the most frequent element along an axis: of several the smallest, and where it is last. See flamepy.mode."""
    # flamepy/ops/rearranging.py: moveaxis
    def moveaxis(self, source: TensorLike, destination: TensorLike) -> Tensor:
        """Axes moved to other places, the others in their order. Also called movedim. See flamepy.moveaxis."""
    # flamepy/ops/rearranging.py: moveaxis
    def movedim(self, source: TensorLike, destination: TensorLike) -> Tensor:
        """Axes moved to other places, the others in their order. Also called movedim. See flamepy.movedim."""
    # flamepy/ops/losses.py: mse_loss
    def mse_loss(self, target: TensorLike, *, reduction: str = 'mean') -> Tensor:
        """(x - target)^2. See flamepy.mse_loss."""
    # flamepy/ops/sorting.py: msort
    def msort(self) -> Tensor:
        """x in order along its first axis: the values alone. See flamepy.msort."""
    # flamepy/core/ops/pointwise.py: "mul"
    def mul(self, b: TensorLike, /) -> Tensor:
        """a * b. See flamepy.mul."""
    # flamepy/ops/contractions.py: multi_dot
    def multi_dot(self) -> Tensor:
        """The product of two or more matrices in the order that multiplies least; the first and the last may be vectors. Also in linalg. See flamepy.multi_dot."""
    # flamepy/ops/random.py: multinomial
    def multinomial(self, num_samples: int, replacement: bool = False, generator: TensorLike | None = None) -> Tensor:
        """Ids (int64) drawn with probabilities proportional to each row of `probs`, with or without putting them back. As PyTorch's. See flamepy.multinomial."""
    # flamepy/core/ops/pointwise.py: "mul"
    def multiply(self, b: TensorLike, /) -> Tensor:
        """a * b. See flamepy.multiply."""
    # flamepy/ops/vectors.py: mv
    def mv(self, b: TensorLike) -> Tensor:
        """A matrix times a vector. See flamepy.mv."""
    # flamepy/ops/logic.py: nan_to_num
    def nan_to_num(self, nan: float = 0.0, posinf: TensorLike | None = None, neginf: TensorLike | None = None) -> Tensor:
        """x with `nan` in the place of NaN, `posinf` and `neginf` of infinity (None: the largest and the least number of the type). See flamepy.nan_to_num."""
    # flamepy/ops/reductions.py: nanmean
    @overload
    def nanmean(self, axis: Axis = None, keepdims: bool = False, dtype: DTypeLike | None = None) -> Tensor: ...
    @overload
    def nanmean(self, dim: Axis = None, keepdim: bool = False, dtype: DTypeLike | None = None) -> Tensor:
        """mean() of the numbers that are not NaN; NaN where there are none. See flamepy.nanmean."""
    # flamepy/ops/sorting.py: nanmedian
    @overload
    def nanmedian(self, axis: Axis = None, keepdims: bool = False) -> Tensor: ...
    @overload
    def nanmedian(self, dim: Axis = None, keepdim: bool = False) -> Tensor:
        """median() of the numbers that are not NaN; NaN where there are none. See flamepy.nanmedian."""
    # flamepy/ops/sorting.py: nanquantile
    @overload
    def nanquantile(
        self,
        q: TensorLike,
        axis: Axis = None,
        keepdims: bool = False,
        method: str = 'linear',
        interpolation: str | None = None,
    ) -> Tensor: ...
    @overload
    def nanquantile(
        self,
        q: TensorLike,
        dim: Axis = None,
        keepdim: bool = False,
        method: str = 'linear',
        interpolation: str | None = None,
    ) -> Tensor:
        """quantile() of the numbers that are not NaN; NaN where there are none. See flamepy.nanquantile."""
    # flamepy/ops/reductions.py: nansum
    @overload
    def nansum(self, axis: Axis = None, keepdims: bool = False, dtype: DTypeLike | None = None) -> Tensor: ...
    @overload
    def nansum(self, dim: Axis = None, keepdim: bool = False, dtype: DTypeLike | None = None) -> Tensor:
        """sum() of the numbers that are not NaN. See flamepy.nansum."""
    # flamepy/ops/shape_more.py: narrow
    @overload
    def narrow(self, axis: int, start: int, length: int) -> Tensor: ...
    @overload
    def narrow(self, dim: int, start: int, length: int) -> Tensor:
        """`length` elements of one axis, from `start`. See flamepy.narrow."""
    # flamepy/core/ops/pointwise.py: "ne"
    def ne(self, b: TensorLike, /) -> Tensor:
        """a != b. See flamepy.ne."""
    # flamepy/core/ops/pointwise.py: "neg"
    def neg(self) -> Tensor:
        """-x. See flamepy.neg."""
    # flamepy/core/ops/pointwise.py: "neg"
    def negative(self) -> Tensor:
        """-x. See flamepy.negative."""
    # flamepy/ops/cross_entropy.py: nll_loss
    def nll_loss(
        self,
        target: TensorLike,
        weight: TensorLike | None = None,
        *,
        ignore_index: int = -100,
        reduction: str = 'mean',
    ) -> Tensor:
        """-x[id] for log-probabilities x; shapes and `weight` as in cross_entropy. See flamepy.nll_loss."""
    # flamepy/ops/selecting.py: nonzero
    def nonzero(self, as_tuple: bool = False, *, size: int | None = None, fill_value: int = 0) -> Tensor:
        """The indices of the elements that are not zero, a row for each (int64). Also called argwhere. as_tuple: as NumPy's nonzero, a 1-D See flamepy.nonzero."""
    # flamepy/ops/reductions.py: norm
    @overload
    def norm(
        self,
        ord: TensorLike | None = None,
        axis: Axis = None,
        keepdims: bool = False,
        dtype: DTypeLike | None = None,
        p: TensorLike | None = None,
    ) -> Tensor: ...
    @overload
    def norm(
        self,
        ord: TensorLike | None = None,
        dim: Axis = None,
        keepdim: bool = False,
        dtype: DTypeLike | None = None,
        p: TensorLike | None = None,
    ) -> Tensor:
        """vector_norm(), as PyTorch's norm: ord (or p) 2 or "fro", any number, inf. flamepy.linalg.norm has matrix norms. See flamepy.norm."""
    # flamepy/ops/reductions.py: normalize
    @overload
    def normalize(self, p: float = 2.0, axis: Axis = 1, eps: float = 1e-12) -> Tensor: ...
    @overload
    def normalize(self, p: float = 2.0, dim: Axis = 1, eps: float = 1e-12) -> Tensor:
        """x divided by its norm along an axis, or by eps where that is larger. See flamepy.normalize."""
    # flamepy/core/ops/pointwise.py: "ne"
    def not_equal(self, b: TensorLike, /) -> Tensor:
        """a != b. See flamepy.not_equal."""
    # flamepy/ops/diagonals.py: one_hot
    def one_hot(self, num_classes: int | None = None) -> Tensor:
        """For each id a row of zeros with a one at its place, of the ids' type. Without num_classes there are as many as the largest id asks See flamepy.one_hot."""
    # flamepy/ops/vectors.py: outer
    def outer(self, b: TensorLike) -> Tensor:
        """All products of an element of a and one of b. See flamepy.outer."""
    # flamepy/ops/random.py: permutation
    @overload
    def permutation(self, axis: int = 0, generator: TensorLike | None = None) -> Tensor: ...
    @overload
    def permutation(self, dim: int = 0, generator: TensorLike | None = None) -> Tensor:
        """The slices of x along an axis in random order; of a whole number: randperm(). As NumPy's. Also called shuffle: x stays as it is. See flamepy.permutation."""
    # flamepy/core/ops/shape.py: permute
    def permute(self, axes: int | Sequence[int], *rest: int) -> Tensor:
        """The axes in another order; permute(x, (1, 0)) or permute(x, 1, 0). See flamepy.permute."""
    # flamepy/ops/spellings.py: positive
    def positive(self) -> Tensor:
        """x itself. See flamepy.positive."""
    # flamepy/ops/powers.py: pow
    def pow(self, b: TensorLike) -> Tensor:
        """a to the power b, broadcasting. Integers to the power of integers are integers, exact where they fit; else float32 is computed. See flamepy.pow."""
    # flamepy/ops/more_activations.py: prelu
    def prelu(self, weight: TensorLike) -> Tensor:
        """x above zero, weight * x below, with one weight or one for each channel: axis 1 (He et al. 2015, arXiv:1502.01852). See flamepy.prelu."""
    # flamepy/ops/reductions.py: prod
    @overload
    def prod(self, axis: Axis = None, keepdims: bool = False, dtype: DTypeLike | None = None) -> Tensor: ...
    @overload
    def prod(self, dim: Axis = None, keepdim: bool = False, dtype: DTypeLike | None = None) -> Tensor:
        """Product over the axes, in another dtype if one is given. The gradient of an element is the product of the others, without a See flamepy.prod."""
    # flamepy/ops/selecting.py: put_along_axis
    @overload
    def put_along_axis(self, indices: TensorLike, values: TensorLike, axis: int | None) -> Tensor: ...
    @overload
    def put_along_axis(self, indices: TensorLike, values: TensorLike, dim: int | None) -> Tensor:
        """x with y[indices[i, j], j] = values[i, j] for axis 0, and so on, as a new tensor: scatter(), where all broadcast. See flamepy.put_along_axis."""
    # flamepy/ops/sorting.py: quantile
    @overload
    def quantile(
        self,
        q: TensorLike,
        axis: Axis = None,
        keepdims: bool = False,
        method: str = 'linear',
        interpolation: str | None = None,
    ) -> Tensor: ...
    @overload
    def quantile(
        self,
        q: TensorLike,
        dim: Axis = None,
        keepdim: bool = False,
        method: str = 'linear',
        interpolation: str | None = None,
    ) -> Tensor:
        """What a share q (0 to 1, or a list of such) of the numbers along the axes lies below; NaN where there is one. See flamepy.quantile."""
    # flamepy/ops/more_activations.py: "quick_gelu"
    def quick_gelu(self) -> Tensor:
        """x * sigmoid(1.702 x), an approximation of gelu (Hendrycks & Gimpel 2016, arXiv:1606.08415). See flamepy.quick_gelu."""
    # flamepy/ops/trigonometry.py: "rad2deg"
    def rad2deg(self) -> Tensor:
        """Radians as degrees. See flamepy.rad2deg."""
    # flamepy/ops/rearranging.py: ravel
    def ravel(self) -> Tensor:
        """All elements along one axis: flatten(). See flamepy.ravel."""
    # flamepy/ops/powers.py: "reciprocal"
    def reciprocal(self) -> Tensor:
        """1 / x. See flamepy.reciprocal."""
    # flamepy/ops/activations.py: "relu"
    def relu(self) -> Tensor:
        """max(x, 0); NaN passes; the derivative at 0 is 0 (Nair & Hinton 2010). See flamepy.relu."""
    # flamepy/ops/more_activations.py: "relu6"
    def relu6(self) -> Tensor:
        """x limited to [0, 6]; the derivative at both is 0. See flamepy.relu6."""
    # flamepy/ops/rounding.py: "remainder"
    def remainder(self, b: TensorLike, /) -> Tensor:
        """a - (a // b) * b, with the sign of b, as Python's and NumPy's a % b; the gradient takes a // b for constant, as in PyTorch. See flamepy.remainder."""
    # flamepy/ops/rearranging.py: repeat_interleave
    @overload
    def repeat_interleave(self, repeats: TensorLike, axis: Axis = None, *, output_size: int | None = None) -> Tensor: ...
    @overload
    def repeat_interleave(self, repeats: TensorLike, dim: Axis = None, *, output_size: int | None = None) -> Tensor:
        """Each element of x repeated, along `axis` or of x made flat; `repeats` is a count, or one for each element of the axis. See flamepy.repeat_interleave."""
    # flamepy/core/ops/shape.py: reshape
    def reshape(self, shape: int | Sequence[int], *rest: int) -> Tensor:
        """Another shape on the same memory; one size may be -1. reshape(x, (2, 3)) or reshape(x, 2, 3). See flamepy.reshape."""
    # flamepy/ops/rearranging.py: reshape_as
    def reshape_as(self, other: TensorLike) -> Tensor:
        """reshape() to the shape of another tensor. Also called view_as. See flamepy.reshape_as."""
    # flamepy/ops/rearranging.py: roll
    @overload
    def roll(self, shift: TensorLike, axis: Axis = None) -> Tensor: ...
    @overload
    def roll(self, shift: TensorLike, dim: Axis = None) -> Tensor:
        """Elements moved on by `shift` along each axis named, those that leave at the end come in at the start; without axes x is rolled flat. See flamepy.roll."""
    # flamepy/ops/rearranging.py: rot90
    def rot90(self, k: int = 1, axes: int | Sequence[int] = ...) -> Tensor:
        """x turned by 90 degrees k times, from the first of two axes towards the second. See flamepy.rot90."""
    # flamepy/ops/rounding.py: round
    def round(self, decimals: int = 0) -> Tensor:
        """The nearest whole number, halves to the even one; with decimals the nearest one with so many digits behind the point. See flamepy.round."""
    # flamepy/ops/stacking.py: vstack
    def row_stack(self) -> Tensor:
        """Tensors below each other, those of one axis as rows. See flamepy.row_stack."""
    # flamepy/ops/bits.py: bitwise_right_shift
    def rshift(self, b: TensorLike) -> Tensor:
        """a >> b: a divided by 2**b and rounded down. Shapes and types: as bitwise_left_shift. See flamepy.rshift."""
    # flamepy/core/ops/pointwise.py: "rsqrt"
    def rsqrt(self) -> Tensor:
        """1 / sqrt(x). See flamepy.rsqrt."""
    # flamepy/ops/spellings.py: rsub
    def rsub(self, b: TensorLike, alpha: int = 1) -> Tensor:
        """b - alpha * a. Shapes and types: as sub. See flamepy.rsub."""
    # flamepy/ops/attention.py: scaled_dot_product_attention
    def scaled_dot_product_attention(
        self,
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
        """softmax(scale q k^T + mask) v for q (..., L, D), k (..., S, D), v (..., S, Dv): (..., L, Dv). See flamepy.scaled_dot_product_attention."""
    # flamepy/ops/scattering.py: scatter
    @overload
    def scatter(
        self,
        axis: int,
        index: TensorLike,
        src: TensorLike | None = None,
        reduce: str | None = None,
        value: float | None = None,
    ) -> Tensor: ...
    @overload
    def scatter(
        self,
        dim: int,
        index: TensorLike,
        src: TensorLike | None = None,
        reduce: str | None = None,
        value: float | None = None,
    ) -> Tensor:
        """x with y[index[i, j], j] = src[i, j] for axis 0, and so on; src (or value) may be a number. Of several the last one counts. See flamepy.scatter."""
    # flamepy/ops/scattering.py: scatter_add
    @overload
    def scatter_add(self, axis: int, index: TensorLike, src: TensorLike) -> Tensor: ...
    @overload
    def scatter_add(self, dim: int, index: TensorLike, src: TensorLike) -> Tensor:
        """x with src[i, j] added to y[index[i, j], j] for axis 0, and so on; what comes to one place is added up in order. See flamepy.scatter_add."""
    # flamepy/ops/scattering.py: scatter_reduce
    @overload
    def scatter_reduce(self, axis: int, index: TensorLike, src: TensorLike, reduce: str, include_self: bool = True) -> Tensor: ...
    @overload
    def scatter_reduce(self, dim: int, index: TensorLike, src: TensorLike, reduce: str, include_self: bool = True) -> Tensor:
        """x with y[index[i, j], j] the "sum", "prod", "mean", "amax" or "amin" of all src[i, j] that come there, and unless include_self is See flamepy.scatter_reduce."""
    # flamepy/ops/sorting.py: searchsorted
    def searchsorted(
        self,
        values: TensorLike,
        side: str | None = None,
        sorter: TensorLike | None = None,
        right: bool = False,
        out_int32: bool = False,
    ) -> Tensor:
        """For each value the index (int64) at which it would keep the sorted x in order: before what is equal ("left") See flamepy.searchsorted."""
    # flamepy/ops/more_activations.py: "selu"
    def selu(self) -> Tensor:
        """scale * elu(x, alpha), with numbers that keep mean 0 and variance 1 (Klambauer et al. 2017, arXiv:1706.02515). See flamepy.selu."""
    # flamepy/core/ops/pointwise.py: "sign"
    def sgn(self) -> Tensor:
        """-1, 0 or 1; NaN for NaN. Records a zero gradient. See flamepy.sgn."""
    # flamepy/ops/random.py: permutation
    @overload
    def shuffle(self, axis: int = 0, generator: TensorLike | None = None) -> Tensor: ...
    @overload
    def shuffle(self, dim: int = 0, generator: TensorLike | None = None) -> Tensor:
        """The slices of x along an axis in random order; of a whole number: randperm(). As NumPy's. Also called shuffle: x stays as it is. See flamepy.shuffle."""
    # flamepy/ops/activations.py: "sigmoid"
    def sigmoid(self) -> Tensor:
        """1 / (1 + exp(-x)). See flamepy.sigmoid."""
    # flamepy/core/ops/pointwise.py: "sign"
    def sign(self) -> Tensor:
        """-1, 0 or 1; NaN for NaN. Records a zero gradient. See flamepy.sign."""
    # flamepy/ops/logic.py: signbit
    def signbit(self) -> Tensor:
        """Whether each number has a minus, which -0.0 has, too. See flamepy.signbit."""
    # flamepy/ops/activations.py: "silu"
    def silu(self) -> Tensor:
        """x * sigmoid(x) (Elfwing et al. 2017, arXiv:1702.03118). See flamepy.silu."""
    # flamepy/core/ops/pointwise.py: "sin"
    def sin(self) -> Tensor:
        """Sine of x in radians. See flamepy.sin."""
    # flamepy/ops/trigonometry.py: "sinc"
    def sinc(self) -> Tensor:
        """sin(pi * x) / (pi * x), and 1 at 0, as in NumPy. See flamepy.sinc."""
    # flamepy/ops/trigonometry.py: "sinh"
    def sinh(self) -> Tensor:
        """Hyperbolic sine. See flamepy.sinh."""
    # flamepy/ops/losses.py: smooth_l1_loss
    def smooth_l1_loss(self, target: TensorLike, *, beta: float = 1.0, reduction: str = 'mean') -> Tensor:
        """huber_loss(delta=beta) / beta; beta 0 is l1_loss. See flamepy.smooth_l1_loss."""
    # flamepy/ops/rows.py: softmax
    @overload
    def softmax(self, axis: int = -1, dtype: DTypeLike | None = None) -> Tensor: ...
    @overload
    def softmax(self, dim: int = -1, dtype: DTypeLike | None = None) -> Tensor:
        """exp(x) / sum(exp(x)) along one axis, without overflow, of x in another dtype if one is given. See flamepy.softmax."""
    # flamepy/ops/more_activations.py: softmin
    @overload
    def softmin(self, axis: int = -1, dtype: DTypeLike | None = None) -> Tensor: ...
    @overload
    def softmin(self, dim: int = -1, dtype: DTypeLike | None = None) -> Tensor:
        """softmax(-x): the smaller, the likelier. See flamepy.softmin."""
    # flamepy/ops/activations.py: "softplus"
    def softplus(self, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
        """log(1 + exp(beta x)) / beta, and x itself where beta x > threshold. See flamepy.softplus."""
    # flamepy/ops/more_activations.py: "softshrink"
    def softshrink(self, lambd: float = 0.5) -> Tensor:
        """x moved by lambd towards 0, and 0 within lambd of it. See flamepy.softshrink."""
    # flamepy/ops/more_activations.py: "softsign"
    def softsign(self) -> Tensor:
        """x / (1 + |x|). See flamepy.softsign."""
    # flamepy/ops/sorting.py: sort
    @overload
    def sort(self, axis: int = -1, descending: bool = False, stable: bool = True) -> tuple[Tensor, Tensor]: ...
    @overload
    def sort(self, dim: int = -1, descending: bool = False, stable: bool = True) -> tuple[Tensor, Tensor]:
        """(values, indices) of x in order along an axis, as PyTorch's sort; what is equal keeps its order whatever `stable` says. See flamepy.sort."""
    # flamepy/ops/joining.py: split
    @overload
    def split(self, sizes: int | Sequence[int], axis: int = 0) -> list[Tensor]: ...
    @overload
    def split(self, sizes: int | Sequence[int], dim: int = 0) -> list[Tensor]:
        """Pieces of `sizes` (an int: equal pieces, the last may be smaller; a list: these sizes) along `axis`. See flamepy.split."""
    # flamepy/core/ops/pointwise.py: "sqrt"
    def sqrt(self) -> Tensor:
        """Square root; NaN below zero. See flamepy.sqrt."""
    # flamepy/core/ops/pointwise.py: "square"
    def square(self) -> Tensor:
        """x * x. See flamepy.square."""
    # flamepy/ops/shape_more.py: squeeze
    @overload
    def squeeze(self, axis: Axis = None) -> Tensor: ...
    @overload
    def squeeze(self, dim: Axis = None) -> Tensor:
        """Without axes of size 1: all of them, or the ones named (which must have size 1). See flamepy.squeeze."""
    # flamepy/ops/joining.py: stack
    @overload
    def stack(self, axis: int = 0) -> Tensor: ...
    @overload
    def stack(self, dim: int = 0) -> Tensor:
        """The tensors along a new axis; all shapes must be equal. See flamepy.stack."""
    # flamepy/ops/variance.py: std
    @overload
    def std(self, axis: Axis = None, correction: float = 0, keepdims: bool = False) -> Tensor: ...
    @overload
    def std(self, dim: Axis = None, correction: float = 0, keepdim: bool = False) -> Tensor:
        """Square root of var(); its gradient where the variance is zero is zero. See flamepy.std."""
    # flamepy/ops/reductions.py: std_mean
    @overload
    def std_mean(self, axis: Axis = None, correction: float = 1, keepdims: bool = False) -> Tensor: ...
    @overload
    def std_mean(self, dim: Axis = None, correction: float = 1, keepdim: bool = False) -> Tensor:
        """(standard deviation, mean) over the axes. The default correction is PyTorch's, 1 (that of std() is 0, as NumPy's). See flamepy.std_mean."""
    # flamepy/core/ops/pointwise.py: "sub"
    def sub(self, b: TensorLike, /, *, alpha: float = 1.0) -> Tensor:
        """a - b. See flamepy.sub."""
    # flamepy/core/ops/pointwise.py: "sub"
    def subtract(self, b: TensorLike, /, *, alpha: float = 1.0) -> Tensor:
        """a - b. See flamepy.subtract."""
    # flamepy/core/ops/reduce.py: sum
    @overload
    def sum(self, axis: Axis = None, keepdims: bool = False, dtype: DTypeLike | None = None) -> Tensor: ...
    @overload
    def sum(self, dim: Axis = None, keepdim: bool = False, dtype: DTypeLike | None = None) -> Tensor:
        """Sum over the axes, in another dtype if one is given. See flamepy.sum."""
    # flamepy/ops/rearranging.py: swapaxes
    def swapaxes(self, axis0: int, axis1: int) -> Tensor:
        """Two axes swapped: transpose(). Also called swapdims. See flamepy.swapaxes."""
    # flamepy/ops/rearranging.py: swapaxes
    def swapdims(self, axis0: int, axis1: int) -> Tensor:
        """Two axes swapped: transpose(). Also called swapdims. See flamepy.swapdims."""
    # flamepy/ops/activations.py: "silu"
    def swish(self) -> Tensor:
        """x * sigmoid(x) (Elfwing et al. 2017, arXiv:1702.03118). See flamepy.swish."""
    # flamepy/ops/rearranging.py: t
    def t(self) -> Tensor:
        """A matrix transposed; a vector or number is itself. See flamepy.t."""
    # flamepy/ops/selecting.py: take
    @overload
    def take(self, indices: TensorLike, axis: int | None = None, mode: str = 'raise') -> Tensor: ...
    @overload
    def take(self, indices: TensorLike, dim: int | None = None, mode: str = 'raise') -> Tensor:
        """Elements of the flattened x at integer indices, or slices of it along an axis. Negative ones count from the end. See flamepy.take."""
    # flamepy/ops/selecting.py: take_along_axis
    @overload
    def take_along_axis(self, indices: TensorLike, axis: int | None = -1) -> Tensor: ...
    @overload
    def take_along_axis(self, indices: TensorLike, dim: int | None = -1) -> Tensor:
        """y[i, j] = x[indices[i, j], j] for axis 0, and so on: gather(), where x and indices broadcast at the other axes. None: x flattened. See flamepy.take_along_axis."""
    # flamepy/ops/trigonometry.py: "tan"
    def tan(self) -> Tensor:
        """Tangent of x in radians. See flamepy.tan."""
    # flamepy/core/ops/pointwise.py: "tanh"
    def tanh(self) -> Tensor:
        """Hyperbolic tangent. See flamepy.tanh."""
    # flamepy/ops/more_activations.py: "tanhshrink"
    def tanhshrink(self) -> Tensor:
        """x - tanh(x). See flamepy.tanhshrink."""
    # flamepy/ops/stacking.py: tensor_split
    @overload
    def tensor_split(self, indices_or_sections: TensorLike, axis: int = 0) -> list[Tensor]: ...
    @overload
    def tensor_split(self, indices_or_sections: TensorLike, dim: int = 0) -> list[Tensor]:
        """x in so many parts of nearly one size, the first ones larger, or cut before each of these places. (NumPy's array_split.) See flamepy.tensor_split."""
    # flamepy/ops/contractions.py: tensordot
    def tensordot(self, b: TensorLike, axes: int | Sequence[int] = 2) -> Tensor:
        """The sum of products over several axes of both: the last `axes` of a with the first of b, or those that two lists name. See flamepy.tensordot."""
    # flamepy/ops/more_activations.py: threshold
    def threshold(self, threshold: float, value: float) -> Tensor:
        """x where it is above the threshold, `value` elsewhere. See flamepy.threshold."""
    # flamepy/ops/rearranging.py: tile
    def tile(self, reps: TensorLike, *rest: int) -> Tensor:
        """All of x repeated along each axis: tile(x, (2, 3)) or tile(x, 2, 3), the last count for the last axis. See flamepy.tile."""
    # flamepy/ops/sorting.py: topk
    @overload
    def topk(self, k: int, axis: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Tensor, Tensor]: ...
    @overload
    def topk(self, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Tensor, Tensor]:
        """(values, indices) of the k largest elements along an axis, the largest first (largest=False: smallest); of equal ones the first. See flamepy.topk."""
    # flamepy/ops/diagonals.py: trace
    def trace(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
        """The sum of the diagonal(). See flamepy.trace."""
    # flamepy/core/ops/shape.py: transpose
    def transpose(self, axis0: int = -2, axis1: int = -1) -> Tensor:
        """Two axes swapped. See flamepy.transpose."""
    # flamepy/ops/shape_more.py: tril
    def tril(self, diagonal: int = 0) -> Tensor:
        """The matrix on and below the diagonal, zeros above. See flamepy.tril."""
    # flamepy/ops/shape_more.py: triu
    def triu(self, diagonal: int = 0) -> Tensor:
        """The matrix on and above the diagonal, zeros below. See flamepy.triu."""
    # flamepy/ops/rounding.py: div
    def true_divide(self, b: TensorLike, rounding_mode: str | None = None) -> Tensor:
        """a / b (integers give float32), or its whole part: rounding_mode "trunc" rounds towards 0 and "floor" down; integers stay integers. See flamepy.true_divide."""
    # flamepy/ops/rounding.py: "trunc"
    def trunc(self) -> Tensor:
        """The whole number next to x towards 0. Records a zero gradient. See flamepy.trunc."""
    # flamepy/ops/stacking.py: unbind
    @overload
    def unbind(self, axis: int = 0) -> list[Tensor]: ...
    @overload
    def unbind(self, dim: int = 0) -> list[Tensor]:
        """The parts of x along an axis, each without it. See flamepy.unbind."""
    # flamepy/ops/rearranging.py: unflatten
    @overload
    def unflatten(self, axis: int, sizes: int | Sequence[int]) -> Tensor: ...
    @overload
    def unflatten(self, dim: int, sizes: int | Sequence[int]) -> Tensor:
        """One axis as several, one of whose sizes may be -1. See flamepy.unflatten."""
    # flamepy/ops/counting.py: unique
    @overload
    def unique(
        self,
        *,
        return_index: bool = False,
        return_inverse: bool = False,
        return_counts: bool = False,
        axis: int | None = None,
        sorted: bool = True,
    ) -> Tensor: ...
    @overload
    def unique(
        self,
        *,
        return_index: bool = False,
        return_inverse: bool = False,
        return_counts: bool = False,
        dim: int | None = None,
        sorted: bool = True,
    ) -> Tensor:
        """The different numbers of x, or slices along an axis, in order whatever `sorted` says; as asked for also, in this order: where each See flamepy.unique."""
    # flamepy/ops/shape_more.py: unsqueeze
    @overload
    def unsqueeze(self, axis: int) -> Tensor: ...
    @overload
    def unsqueeze(self, dim: int) -> Tensor:
        """A new axis of size 1 at `axis` of the result. See flamepy.unsqueeze."""
    # flamepy/ops/variance.py: var
    @overload
    def var(self, axis: Axis = None, correction: float = 0, keepdims: bool = False) -> Tensor: ...
    @overload
    def var(self, dim: Axis = None, correction: float = 0, keepdim: bool = False) -> Tensor:
        """Variance over the axes: sum of squared deviations / (n - correction). Accurate far from zero too. See flamepy.var."""
    # flamepy/ops/reductions.py: var_mean
    @overload
    def var_mean(self, axis: Axis = None, correction: float = 1, keepdims: bool = False) -> Tensor: ...
    @overload
    def var_mean(self, dim: Axis = None, correction: float = 1, keepdim: bool = False) -> Tensor:
        """(variance, mean) over the axes. The default correction is PyTorch's, 1 (that of var() is 0, as NumPy's). See flamepy.var_mean."""
    # flamepy/ops/vectors.py: vdot
    def vdot(self, b: TensorLike) -> Tensor:
        """dot() of all elements of both. See flamepy.vdot."""
    # flamepy/ops/reductions.py: vector_norm
    @overload
    def vector_norm(self, ord: float = 2, axis: Axis = None, keepdims: bool = False, dtype: DTypeLike | None = None) -> Tensor: ...
    @overload
    def vector_norm(self, ord: float = 2, dim: Axis = None, keepdim: bool = False, dtype: DTypeLike | None = None) -> Tensor:
        """(sum of |x|^ord)^(1 / ord) over the axes; inf: the largest |x|, -inf: the smallest, 0: how many are not zero. Its gradient at zero See flamepy.vector_norm."""
    # flamepy/ops/rearranging.py: reshape_as
    def view_as(self, other: TensorLike) -> Tensor:
        """reshape() to the shape of another tensor. Also called view_as. See flamepy.view_as."""
    # flamepy/ops/stacking.py: vstack
    def vstack(self) -> Tensor:
        """Tensors below each other, those of one axis as rows. See flamepy.vstack."""
    # flamepy/core/ops/pointwise.py: "where"
    def where(self, a: TensorLike, b: TensorLike, /) -> Tensor:
        """a where the condition holds, b elsewhere. See flamepy.where."""
    # flamepy/ops/logarithms.py: "xlogy"
    def xlogy(self, b: TensorLike, /) -> Tensor:
        """a * log(b), and 0 where a is 0 unless b is NaN. See flamepy.xlogy."""
    @staticmethod
    def randn(shape: Any, mean: float = 0.0, std: float = 1.0, device: Any = None, dtype: Any = None) -> Tensor: ...
    def __add__(self, other: TensorLike, /) -> Tensor: ...
    def __sub__(self, other: TensorLike, /) -> Tensor: ...
    def __mul__(self, other: TensorLike, /) -> Tensor: ...
    def __truediv__(self, other: TensorLike, /) -> Tensor: ...
    def __floordiv__(self, other: TensorLike, /) -> Tensor: ...
    def __mod__(self, other: TensorLike, /) -> Tensor: ...
    def __pow__(self, other: TensorLike, /) -> Tensor: ...
    def __matmul__(self, other: TensorLike, /) -> Tensor: ...
    def __radd__(self, other: TensorLike, /) -> Tensor: ...
    def __rsub__(self, other: TensorLike, /) -> Tensor: ...
    def __rmul__(self, other: TensorLike, /) -> Tensor: ...
    def __rtruediv__(self, other: TensorLike, /) -> Tensor: ...
    def __rfloordiv__(self, other: TensorLike, /) -> Tensor: ...
    def __rmod__(self, other: TensorLike, /) -> Tensor: ...
    def __rpow__(self, other: TensorLike, /) -> Tensor: ...
    def __rmatmul__(self, other: TensorLike, /) -> Tensor: ...
    def __and__(self, other: TensorLike, /) -> Tensor: ...
    def __or__(self, other: TensorLike, /) -> Tensor: ...
    def __rand__(self, other: TensorLike, /) -> Tensor: ...
    def __ror__(self, other: TensorLike, /) -> Tensor: ...
    def __xor__(self, other: TensorLike, /) -> Tensor: ...
    def __rxor__(self, other: TensorLike, /) -> Tensor: ...
    def __lshift__(self, other: TensorLike, /) -> Tensor: ...
    def __rshift__(self, other: TensorLike, /) -> Tensor: ...
    def __rlshift__(self, other: TensorLike, /) -> Tensor: ...
    def __rrshift__(self, other: TensorLike, /) -> Tensor: ...
    def __lt__(self, other: TensorLike, /) -> Tensor: ...
    def __le__(self, other: TensorLike, /) -> Tensor: ...
    def __gt__(self, other: TensorLike, /) -> Tensor: ...
    def __ge__(self, other: TensorLike, /) -> Tensor: ...
    def __neg__(self) -> Tensor: ...
    def __abs__(self) -> Tensor: ...
    def __invert__(self) -> Tensor: ...
    def __eq__(self, other: object, /) -> Tensor: ...  # type: ignore[override]
    def __ne__(self, other: object, /) -> Tensor: ...  # type: ignore[override]
    def __getitem__(self, key: Any, /) -> Tensor: ...
