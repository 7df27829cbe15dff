"""The oracle's lines of rearranging.py, stacking.py and diagonals.py; see reference.py."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from cases import IDS4, Case, R, case

# fmt: off
SOLID = [((2, 3, 4),)]


def windows(x: np.ndarray, axis: int, size: int, step: int) -> np.ndarray:
    axis = axis % x.ndim
    parts = [np.take(x, range(i, i + size), axis) for i in range(0, x.shape[axis] - size + 1, step)]
    return np.moveaxis(np.stack(parts, axis), axis + 1, -1)


def unflatten(x: np.ndarray, axis: int, sizes: Any) -> np.ndarray:
    axis = axis % x.ndim
    return x.reshape(*x.shape[:axis], *sizes, *x.shape[axis + 1:])


def embedded(x: np.ndarray, offset: int = 0, a: int = -2, b: int = -1) -> np.ndarray:
    n = x.shape[-1] + abs(offset)
    y = np.zeros((*x.shape[:-1], n, n))
    for i in range(x.shape[-1]):
        y[..., i + max(-offset, 0), i + max(offset, 0)] = x[..., i]
    return np.moveaxis(y, (-2, -1), (a, b))


MOVES = [(0, 2), (-1, 0), ((0, 1), (1, 2)), ((0, 2), (2, 0)), (1, 1)]
REARRANGING: dict[str, Case] = {
    "flip": case(np.flip, shapes=SOLID, args=[(), (0,), (-1,), ((0, 2),), ((),)], also=[(((),), (), {}), (((0, 3),), (1,), {})]),
    "fliplr": case(np.fliplr, shapes=SOLID), "flipud": case(np.flipud, shapes=[*SOLID, ((3,),)]),
    "roll": case(np.roll, shapes=SOLID, args=[(1,), (-5,), (1, 0), (-1, -1), (9, 1), (0, 1), ((1, 2), (0, 2)), ((2, 3), (1, 1))],
                 also=[(((0,),), (1, 0), {}), (((2, 0, 3),), (1,), {}), (((),), (2,), {})]),
    "rot90": case(np.rot90, shapes=SOLID, args=[(), (2,), (3,), (-1,), (4,), (1, (2, 0)), (3, (-1, 1)), (2, (1, 0))]),
    "tile": case(np.tile, shapes=SOLID, args=[(2,), ((2, 1, 3),), ((2, 2),), ((2, 1, 2, 1),), ((1, 0, 2),)],
                 also=[(((),), (3,), {}), (((),), ((2, 2),), {}), (((0, 3),), (2,), {}), (((3,),), ((),), {})]),
    "repeat": case(np.repeat, shapes=SOLID, args=[(2,), (2, 0), (3, -1), ([1, 0, 2], 1), ([2], 1), (0, 1)],
                   also=[(((),), (3,), {}), (((0, 3),), (2, 1), {}), (((3,),), (np.array([2, 0, 1]),), {})]),
    "repeat_interleave": case(np.repeat, shapes=SOLID, args=[(2,), (2, 0), (3, -2)]),
    "unfold": case(windows, shapes=SOLID, args=[(0, 1, 1), (1, 2, 1), (-1, 2, 2), (2, 3, 1), (2, 4, 1), (1, 2, 9), (2, 1, 2)],
                   also=[(((7, 2),), (0, 3, 2), {}), (((7, 0),), (0, 3, 2), {})]),
    "unflatten": case(unflatten, shapes=SOLID, args=[(2, (2, 2)), (-2, (3, 1)), (0, (1, 2, 1)), (2, (-1, 2))]),
    "moveaxis": case(np.moveaxis, shapes=SOLID, args=MOVES), "movedim": case(np.moveaxis, shapes=SOLID, args=MOVES),
    "swapaxes": case(np.swapaxes, shapes=SOLID, args=[(0, 2), (-1, 1), (1, 1)]),
        "swapdims": case(np.swapaxes, shapes=SOLID, args=[(0, 2)]),
    "t": case(np.transpose, shapes=[((2, 3),), ((3,),), ((),)]), "ravel": case(np.ravel, shapes=[*SOLID, ((),)]),
    "reshape_as": case(lambda x, y: x.reshape(y.shape), R, IDS4, shapes=[((2, 3), (3, 2)), ((), (1, 1))]),
    "view_as": case(lambda x, y: x.reshape(y.shape), R, IDS4, shapes=[((2, 3), (6,))]),
    "expand_as": case(lambda x, y: np.broadcast_to(x, y.shape), R, IDS4, shapes=[((3, 1), (2, 3, 4)), ((), (2,))]),
}
def padded(x: np.ndarray, widths: Any, value: float = 0.0, mode: str = "constant") -> np.ndarray:
    around = [[max(n, 0) for n in pair] for pair in widths]
    keep = tuple([slice(max(-b, 0), n - max(-a, 0)) for (b, a), n in zip(widths, x.shape, strict=True)])
    if mode == "circular":
        x = x[keep]
    y = np.pad(x, around, {"replicate": "edge", "circular": "wrap"}.get(mode, mode), **({"constant_values": value} if value else {}))
    cut = tuple([slice(max(-b, 0), n - max(-a, 0)) for (b, a), n in zip(widths, y.shape, strict=True)])
    return y if mode == "circular" else y[cut]


PAD = case(padded, shapes=[((2, 3),)], args=[
    (((1, 0), (2, 1)),), (((0, 0), (0, 2)), 1.5), (((0, 0), (0, 0)),), (((-1, 2), (1, -2)), 0.5)], also=[
    (((0, 2),), (((1, 1), (0, 0)),), {}),
    *[(((3, 4),), (w,), {"mode": mode}) for mode in ("reflect", "symmetric", "replicate", "circular")
      for w in (((2, 1), (0, 3)), ((0, 0), (-1, 2)), ((1, -2), (-3, 0)))],
    (((1, 4),), (((3, 0), (9, 2)),), {"mode": "replicate"}), (((2, 3, 3),), (((0, 0), (1, 1), (2, 2)),), {"mode": "reflect"})])
MIXED = [((2, 3), (2, 3)), ((3,), (3,)), ((2, 3),)]
STACKING: dict[str, Case] = {
    "atleast_1d": case(np.atleast_1d, shapes=[((),), ((3,),)]),
    "atleast_2d": case(np.atleast_2d, shapes=[((),), ((3,),), ((2, 3),)]),
    "atleast_3d": case(np.atleast_3d, shapes=[((),), ((3,),), ((2, 3),), *SOLID]),
    "hstack": case(np.hstack, listed=True, shapes=[*MIXED, ((2, 1), (2, 3)), ((), ())]),
    "vstack": case(np.vstack, listed=True, shapes=[*MIXED, ((3,), (2, 3)), ((), ())]),
    "dstack": case(np.dstack, listed=True, shapes=[*MIXED, ((2, 3, 1), (2, 3, 2)), ((), ())]),
    "column_stack": case(np.column_stack, listed=True, shapes=[*MIXED, ((2,), (2, 3)), ((), ())]),
    "broadcast_tensors": case(np.broadcast_arrays, R, R, shapes=[((3, 1), (4,)), ((), (2, 3)), ((2, 3), (2, 3))]),
    "meshgrid": case(np.meshgrid, R, R, R, shapes=[((3,), (4,), (2,)), ((3,), (), (1,)), ((3,), (4,)), ((3,),)], attrs=[
        {}, {"indexing": "ij"}]),
    "unbind": case(lambda x, axis=0: [np.take(x, i, axis) for i in range(x.shape[axis])], shapes=SOLID, args=[(), (1,), (-1,)]),
    "tensor_split": case(np.array_split, shapes=[((7, 3),)], args=[(3,), (2, 1), ([1, 4],), ([2, 2, 9], 0), (9,), ([-2],)]),
}
DIAGONALS: dict[str, Case] = {
    "diagonal": case(np.diagonal, shapes=SOLID, args=[(), (1,), (-1,), (0, 1, 2), (2, -1, 0), (9,), (-1, 0, 2)], also=[
        (((0, 3),), (), {}), (((3, 3),), (), {})]),
    "diag_embed": case(embedded, shapes=[((2, 3),), ((3,),)], args=[(), (1,), (-2,), (0, 0, 1)], also=[
        (((2, 3),), (1, 0, -1), {}), (((2, 3),), (-1, 2, 0), {}), (((0,),), (), {})]),
    "diag": case(np.diag, shapes=[((3,),), ((3, 4),)], args=[(), (1,), (-2,)]),
    "diagflat": case(np.diagflat, shapes=[((2, 2),), ((3,),), ((),)], args=[(), (1,)]),
    "trace": case(np.trace, shapes=SOLID, args=[(), (1,), (-1, 1, 2)], also=[(((3, 3),), (), {}), (((0, 3),), (), {})]),
    "one_hot": case(lambda ids, n: np.eye(n)[ids].astype(int), IDS4, shapes=[((3,),), ((2, 3),), ((),), ((0,),)], args=[(4,), (7,)],
                    smooth=False),
}


# ---- products
def einsum(*args: Any) -> np.ndarray:
    *xs, subscripts = args
    return np.einsum(subscripts, *(xs[0] if len(xs) == 1 and isinstance(xs[0], list) else xs))


def added(product: Any) -> Any:
    return lambda x, a, b, beta=1, alpha=1: (beta * x if beta else 0) + alpha * product(a, b)


def distance(a: np.ndarray, b: np.ndarray, p: float = 2.0) -> np.ndarray:
    return np.linalg.norm(a[..., :, None, :] - b[..., None, :, :], p, -1)


def sums(*rows: tuple) -> list[tuple]:
    """Samples of einsum: shapes, then subscripts."""
    return [(shapes, (text,), {}) for text, *shapes in rows]


VECTORS = [((4,), (4,)), ((2, 4), (3, 4)), ((), (3,)), ((), ()), ((2, 3, 4), (4,)), ((0,), (0,))]
SCALED: list[dict[str, Any]] = [{}, {"beta": 0.5, "alpha": -2.0}, {"beta": 0}]
PRODUCTS: dict[str, Case] = {
    "einsum": case(einsum, listed=True, shapes=[((4, 4),)], args=[("ij->ji",), ("ii",), ("ii->i",), ("ij->",), ("ji",), ("...->...",)],
        also=sums(
        ("ik,kj->ij", (3, 4), (4, 5)), ("ki,kj->ij", (4, 3), (4, 5)), ("ik,jk->ji", (3, 4), (5, 4)), ("i,j->ij", (3,), (4,)),
        ("ij,ij->i", (3, 4), (3, 4)), ("ij,ij->", (3, 4), (3, 4)), ("ijk,ikl->jil", (2, 4, 5), (2, 5, 3)),
        ("bnhd,bmhd->bhnm", (2, 3, 2, 4), (2, 5, 2, 4)),
        ("pqrs,tuqvr->pstuv", (2, 3, 4, 2), (2, 2, 3, 3, 4)), ("ik,jkl,il->ij", (2, 3), (5, 3, 4), (2, 4)), ("ij,jk,kl,lm", (2, 3),
        (3, 4), (4, 2), (2, 3)),
        ("...id,...jd->...ij", (3, 2, 4), (3, 5, 4)), ("i...j,ji...->...", (2, 3, 4, 5), (5, 2, 4)), ("...ij,j", (2, 3, 4), (4,)),
        ("...ii->...i", (2, 3, 3)), ("ij,j->i", (3, 1), (4,)), ("ij,jk->ik", (2, 1), (3, 4)), ("ij,k->ik", (2, 3), (4,)),
        ("i,i,i->i", (3,), (3,), (3,)),
        ("->", ()), (",ij->ij", (), (2, 3)), ("ij,jk->ik", (0, 3), (3, 2)), ("ij,jk->ik", (2, 0), (0, 3)), ("ii,ij->j", (3, 3),
        (3, 2)), ("a,b,c,d,e,f,g->", *[(2,)] * 7),
        ("ab,b->ab", (3, 4), (4,)), ("abc,cb->a", (2, 3, 4), (4, 3)), ("abc->ca", (2, 3, 4)))),
    "tensordot": case(np.tensordot, R, R, shapes=[((2, 3, 4), (3, 4, 5))], args=[(2,), ()], also=[
        (((2, 3), (3, 4)), (1,), {}), (((2, 3), (4, 2)), (0,), {}), (((2, 3, 4), (4, 2, 5)), ([[0, 2], [1, 0]],), {}),
        (((2, 3, 4), (5, 3)), ((1, 1),), {}), (((2, 3), (2, 3)), (2,), {})]),
    "inner": case(np.inner, R, R, shapes=VECTORS), "dot": case(np.dot, R, R, shapes=[*VECTORS[:1], *VECTORS[2:], ((2, 3), (3, 4)),
        ((2, 3), (3,))]),
    "vdot": case(np.vdot, R, R, shapes=[((4,), (4,)), ((2, 3), (3, 2)), ((), ())]),
    "outer": case(np.outer, R, R, shapes=[((3,), (3,)), ((2, 2), (3,)), ((), (2,))]),
    "kron": case(np.kron, R, R, shapes=[((2, 3), (3, 2)), ((2,), (2,)), ((3,), (2,)), ((2, 1, 2), (2, 3)), ((), (2,))]),
    "cross": case(np.cross, R, R, shapes=[((3,), (3,)), ((2, 3), (2, 3)), ((2, 1, 3), (4, 3))], also=[(((3, 2), (3, 2)), (),
        {"axis": 0})]),
    "mv": case(np.matmul, R, R, shapes=[((2, 3), (3,))]), "mm": case(np.matmul, R, R, shapes=[((2, 3), (3, 4)), ((2, 2), (2, 2))]),
    "bmm": case(np.matmul, R, R, shapes=[((2, 3, 4), (2, 4, 2)), ((2, 2, 2), (2, 2, 2))]),
    "addmm": case(added(np.matmul), R, R, R, shapes=[((2, 2),) * 3, ((4,), (2, 3), (3, 4)), ((), (2, 3), (3, 4))],
        attrs=SCALED),
    "addmv": case(added(np.matmul), R, R, R, shapes=[((2,), (2, 3), (3,))], attrs=SCALED),
    "addr": case(added(np.outer), R, R, R, shapes=[((2, 3), (2,), (3,))], attrs=SCALED),
    "baddbmm": case(added(np.matmul), R, R, R, shapes=[((2, 2, 2),) * 3, ((2, 3, 2), (2, 3, 4), (2, 4, 2))], attrs=SCALED),
    "addbmm": case(added(lambda a, b: (a @ b).sum(0)), R, R, R, shapes=[((3, 2), (2, 3, 4), (2, 4, 2))], attrs=SCALED),
    "multi_dot": case(np.linalg.multi_dot, listed=True, shapes=[((2, 3), (3, 4)), ((2, 5), (5, 3), (3, 2), (2, 4)), ((3,), (3, 4),
        (4,)), ((3,), (3, 4), (4, 2))]),
    "cdist": case(distance, R, R, shapes=[((3, 2), (4, 2)), ((2, 1, 3, 2), (5, 4, 2))],
        attrs=[{}, {"p": 1.0}, {"p": 3.0}, {"p": math.inf}, {"p": 1.5}]),
}
FAMILIES_OF_SHAPES: dict[str, dict[str, Case]] = {
    "rearranging": REARRANGING, "stacking": STACKING, "diagonals": DIAGONALS, "products": PRODUCTS}
INTERNAL_OF_SHAPES = {
    "taken_apart": "unbind",
    "around": "pad", "folded": "pad", "halved": "glu",
    "strided": "diagonal", "unstrided": "diag_embed", "rolled": "roll", "axis_windows": "unfold",
}
# fmt: on
