"""linear: a matrix product with what may follow it in the same launch: bias, activation, residual.

Loops in backend/cpu/products, those of bfloat16 in bf16; float16 is widened block by block. The activation's formulas are
those of its own op, found in the registry.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ..core import op
from ..core.custom import custom
from ..core.errors import ShapeError
from ..core.op import launch, like, share
from ..core.ops.axes import composed, tensors_of
from ..core.ops.copy import cast
from ..core.ops.matrices import cotangents, matmul, multiplied, product
from ..core.ops.reduce import sum as sum_op
from ..core.ops.shape import permute, reshape
from ..core.pointwise import Pointwise, on_tensors
from ..dtypes import bfloat16, float16, float32
from ..engine.forms import form, remade, rounds
from ..engine.half import together
from .widening import narrowed, widened

# ---- matmul of 16-bit floats ------------------------------------------------------------------------------------------------------
form(only_for={"a": "b", "b": "a"})(product)


@form(only_for={"a": "b", "b": "a"})
@custom(inputs=2, title="matmul", internal=True)
def wide_product(a, b, ta=False, tb=False):
    """product() with a result in the type that its operands are computed in."""
    return multiplied(a, b, ta, tb, a.spec.computed)


def half_product_dx(g, a, b, wanted, shapes, ta, tb):
    """The cotangent of a 16-bit result is float32: rounded, unless float16 has no room for small gradients."""
    if (a if b is None else b).dtype == float16:
        return cotangents(wide_product.body, g, a, b, wanted, shapes, ta, tb)
    return half_product_ddx(g, a, b, wanted, shapes, ta, tb)


def half_product_ddx(g, a, b, wanted, shapes, ta, tb):
    return cotangents(wide_product, cast(g, (a if b is None else b).dtype), a, b, wanted, shapes, ta, tb)


for times in (product, wide_product):
    times.backward(half_product_dx)
    times.graph(half_product_ddx)


# ---- linear -----------------------------------------------------------------------------------------------------------------------
class Follower(NamedTuple):
    """An activation that linear() can compute: its formulas, and whether the derivative reads its result (else what it got)."""

    formula: Any = None
    derivative: Any = None
    keeps_result: bool = False


def follower(name: str) -> Follower:
    """The pointwise op of that name as a linear layer's activation, "" for none. Raises ValueError if it cannot be one."""
    if not name:
        return Follower()
    found = op.REGISTRY.get(name) if isinstance(name, str) else None
    if not isinstance(found, Pointwise) or found.attributes or [(n[0], len(n)) for n in found.names] != [("g", 2)]:
        known = [n for n in ("gelu_erf", "gelu_tanh", "relu", "sigmoid", "silu", "tanh") if n in op.REGISTRY]
        raise ValueError(f"linear: not an activation: {name!r}. Use one of {', '.join(known)}.")
    return Follower(found.formula, found.rule[0], "y" in found.names[0])


def check_linear(x: Any, weight: Any, bias: Any, residual: Any) -> None:
    """Raise ShapeError unless the sizes fit together."""
    if weight.ndim != 2 or not x.ndim or x.shape[-1] != weight.shape[1] or (bias is not None and bias.shape != weight.shape[:1]):
        given = f"x is {x.shape}, weight is {weight.shape}" + ("" if bias is None else f", bias is {bias.shape}")
        raise ShapeError(f"linear: sizes differ: {given}. Use x (..., n_in), weight (n_out, n_in), bias (n_out,).")
    shape = (*x.shape[:-1], weight.shape[0])
    if residual is not None and residual.shape != shape:
        raise ShapeError(f"linear: residual has another shape than the result: {residual.shape}, expected {shape}. Add it afterwards.")


# Of both forms of a layer: x is saved for dw and the weight for dx, both for a second derivative that makes the product again; `kept` is as
# large as the result.
KEPT: dict[str, Any] = {"only_for": {"x": "weight", "weight": "x"}, "unless": "activation", "large": "kept"}


@form(mixes=2, **KEPT)
@custom(inputs=4, home="functional")
def linear(x, weight, bias=None, residual=None, activation="", *, tracked=()):
    """activation(x @ weight.T + bias) + residual: x (..., n_in), weight (n_out, n_in), bias (n_out), residual as the result, or None.
    activation: the name of a pointwise op, e.g. "relu", "gelu_erf" (gelu), "gelu_tanh", "silu"; "" for none.
    Shapes: the result is (..., n_out). Raises ShapeError, ValueError for a name that is no activation.
    >>> F.linear(fp.tensor([-3.0, 2.0]), fp.tensor([[1.0, 1.0], [0.0, 1.0]]), activation="relu").tolist()
    [0.0, 2.0]"""
    return layer(together((x, weight, bias, residual)), x, weight, bias, residual, activation, tracked)


@form(**KEPT)
@custom(inputs=4, title="linear", internal=True, kind="as is")
def rounding_linear(x, weight, bias=None, residual=None, activation="", *, tracked=()):
    """linear() of a bfloat16 x where nothing else decides about the type: the weight may be float32 and is rounded as it is packed, the
    bias as it is. The result is bfloat16, beside a float32 residual float32."""
    return layer(together((x, residual)), x, weight, bias, residual, activation, tracked)


def layer(dtype: np.dtype, x: Any, weight: Any, bias: Any, residual: Any, activation: str, tracked: Any) -> tuple[Any, dict[str, Any]]:
    """linear() with a result of this type; the type of x is what the product reads."""
    check_linear(x, weight, bias, residual)
    act, (n_out, n_in) = follower(activation), weight.shape
    y = like(x, (*x.shape[:-1], n_out), dtype)
    kept = None
    if act.formula is not None and any(tracked[:3]):
        alone = act.keeps_result and residual is None  # then the result itself is what the derivative reads
        kept = share(y, y.shape) if alone else like(y)
    if y.size:
        outs = (y, kept if kept is not None and kept.buffer is not y.buffer else None)
        sizes = (math.prod(x.shape[:-1]), n_out, n_in)
        launch("linear", act.formula, outs, (x, weight, bias, residual), (*sizes, False, act.keeps_result, x.dtype))
    return y, {"kept": kept}


@linear.backward
def linear_dx(g, x, weight, bias, kept, wanted, into, narrow_dx, shapes, source, activation):
    n_out, n_in = shapes[1]
    rows, wide = math.prod(shapes[0][:-1]), g.spec.computed
    dx = like(g, shapes[0], bfloat16 if narrow_dx else wide) if wanted[0] else None
    # The type that products read: bfloat16 is rounded once for both that read it, float16 has no room for small gradients.
    dz, reads = g, bfloat16 if source == bfloat16 and not (x is None and weight is None) else wide
    apart = reads == bfloat16 and (narrow_dx or g.dtype == bfloat16)
    if apart:
        dz = bfloat_derived(g, kept, follower(activation).derivative)
    elif any(wanted[:3]) and (activation or reads == bfloat16):
        dz = derived(g, kept, weight, dx, rows, follower(activation).derivative, reads, shapes[1])
    elif dx is not None and dx.size:
        launch("linear", None, (dx, None), (g, weight, None, None), (rows, n_in, n_out, True, False, reads))
    dw = db = None
    if wanted[1]:
        dw, add_w = into[1] or (like(g, shapes[1], wide), False)
        db, add_b = (into[2] or (like(g, (n_out,), wide), False)) if wanted[2] else (None, False)
        launch("linear_dw", None, (dw, db), (dz, x), (rows, n_out, n_in, add_w, add_b))
    elif wanted[2]:
        db = sum_op(share(dz, (rows, n_out)), axis=0)
    if apart and dx is not None and dx.size:  # after dw: what was made again for that need not live any longer
        launch("linear", None, (dx, None), (dz, weight, None, None), (rows, n_in, n_out, True, False, reads))
    return dx, dw, db, g


def bfloat_derived(g: Any, kept: Any, derivative: Any) -> Any:
    """The cotangent before the activation in bfloat16; over g, if that is what it has. Nobody else reads such a g: Cotangents.narrow()."""
    dz = g if g.dtype == bfloat16 else like(g, dtype=bfloat16)
    if derivative is not None and dz.size:
        launch("map", derivative, (dz,), (g, kept))
    elif dz is not g and dz.size:
        dz.device.stream.copy(dz.buffer, g.buffer)
    return dz


def derived(g: Any, kept: Any, weight: Any, dx: Any, rows: int, derivative: Any, reads: np.dtype, sizes: tuple[int, ...]) -> Any:
    """The cotangent before the activation, of the type that products read; with a dx, that too in the same launch."""
    dz = like(g, dtype=reads)
    if dx is not None and dx.size:
        launch("linear_dx", derivative, (dx, dz), (g, kept, weight), (rows, *sizes, reads))
    elif derivative is None:
        return g
    elif dz.size:
        launch("map", derivative, (dz,), (g, kept))
    return dz


@linear.graph
def linear_ddx(g, x, weight, bias, kept, wanted, shapes, activation, as_y):
    n_out, n_in = shapes[1]
    rows = math.prod(shapes[0][:-1])
    dz = g
    if activation:
        act, z, y = op.REGISTRY[activation], None, None
        if follower(activation).keeps_result and shapes[3] is None and kept is not None:
            y = as_y(share(kept, kept.shape))  # the result itself: it may have hooks
        else:
            z = linear(x, weight, bias)
            y = act(z) if "y" in act.names[0] else None
        values = {"g": g, act.inputs[0]: z, "y": y}
        dz = on_tensors(act.rule[0], g.dtype)(*[values[name] for name in act.names[0]])
    g2 = reshape(dz, (rows, n_out))
    dx = reshape(matmul(g2, weight), shapes[0]) if wanted[0] else None
    dw = product(g2, reshape(x, (rows, n_in)), True, False) if wanted[1] else None
    return dx, dw, sum_op(g2, axis=0) if wanted[2] else None, g


rounding_linear.backward(linear_dx)


@rounds(rounding_linear)
def reads_rounded(entry: Any) -> bool:
    """Whether its rule rounds the cotangent of its result, and does not hand it on: there is no residual. For a layer that gives no dx a
    cotangent is rounded while it is packed, and the bias gets sums of float32."""
    return entry.call.ins[3] is None and entry.inputs[0] is not None


@rounds(linear)
def reads_bfloat16(entry: Any) -> bool:
    """The same of a linear whose input is bfloat16: without an activation nothing reads the cotangent before it is rounded."""
    return reads_rounded(entry) and entry.call.ins[0].dtype == bfloat16 and not entry.attributes["activation"]


def keeps_product(entry: Any) -> bool:
    """Whether the result is the activation of what is kept: there is no residual, and the derivative does not read the result."""
    name = entry.attributes["activation"]
    return bool(name) and entry.call.ins[3] is None and not follower(name).keeps_result


@remade(rounding_linear, 0, keeps_product)
def activated(kept, activation):
    y = like(kept)
    launch("map", follower(activation).formula, (y,), (kept,))
    return y


@rounding_linear.graph
def rounding_linear_ddx(g, x, weight, bias, wanted, shapes, activation):
    read = None if weight is None else cast(cast(weight, bfloat16), float32)  # what the product read
    return linear_ddx(g, x, read, bias, None, wanted, shapes, activation, None)


@composed(home="functional")
def bilinear(x1: Any, x2: Any, weight: Any, bias: Any = None) -> Any:
    """y[..., o] = x1[..., :] @ weight[o] @ x2[..., :] + bias[o]. Shapes: (..., n), (..., m), (o, n, m), (o,); the result (..., o).
    >>> F.bilinear(fp.tensor([[2.0]]), fp.tensor([[3.0, 1.0]]), fp.ones(1, 1, 2)).tolist()
    [[8.0]]"""
    x1, x2, weight = tensors_of("bilinear", x1, x2, weight)
    if weight.ndim != 3 or not x1.ndim or x1.shape[:-1] != x2.shape[:-1] or weight.shape[1:] != (x1.shape[-1], x2.shape[-1]):
        raise ShapeError(f"bilinear: sizes differ: {x1.shape}, {x2.shape}, weight {weight.shape}. Use (..., n), (..., m), (o, n, m).")
    outs, n, m = weight.shape
    dtype, x1, x2, weight = x1.dtype, widened(x1), widened(x2), widened(weight)
    turned = permute(weight, (1, 0, 2)).reshape((n, outs * m))
    y = ((x1 @ turned).reshape((*x1.shape[:-1], outs, m)) * x2.reshape((*x2.shape[:-1], 1, m))).sum(axis=-1)
    return narrowed(y if bias is None else y + widened(bias), dtype)
