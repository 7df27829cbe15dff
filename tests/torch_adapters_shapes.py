"""Rows of torch_adapters.py for rearranging.py, stacking.py and diagonals.py."""

from __future__ import annotations

from typing import Any

from torch_adapters import Row, given

import flamepy as fp


def named(name: str, op: str = "") -> Row:
    return Row(op or name, getattr(fp, name))


def listed(name: str) -> Row:
    return Row(name, lambda *xs: getattr(fp, name)(xs[0] if isinstance(xs[0], (list, tuple)) else list(xs)))


def tile(x: Any, *counts: Any) -> Any:
    return fp.tile(x, *counts)


def repeat(x: Any, repeats: Any, *rest: Any, **options: Any) -> Any:
    return fp.repeat_interleave(x, repeats, *rest, **options)


def pinv(x: Any, *factor: Any, rtol: Any = None, **options: Any) -> Any:
    """Of a product without full rank where two factors are given."""
    return L.pinv(x @ factor[0].mT if factor else x, rtol, **{k: v for k, v in options.items() if v})


def from_factors(results: Any) -> Any:
    """(S, U S Vh) of (U, S, Vh): the signs of vectors are left open."""
    u, s, vh = results
    k = s.shape[-1]
    return s, (u[..., :k] * s[..., None, :]) @ vh[..., :k, :]


def from_vectors(results: Any) -> Any:
    """(w, V w V.mT) of (w, V)."""
    w, v = results
    return w, (v * w[..., None, :]) @ v.mT


def uneven(x: Any, full: Any = None, **options: Any) -> bool:
    """flamepy has no gradient of square factors of what is not square."""
    return x.shape[-1] != x.shape[-2] and bool(options.get("full_matrices", not options.get("some", True)))


def svd(x: Any, some: bool = True, compute_uv: bool = True) -> Any:
    u, s, vh = L.svd(x, not some)
    return u, s, vh.mT


def triangular(b: Any, a: Any, upper: bool = True, transpose: bool = False, unitriangular: bool = False) -> Any:
    return L.solve_triangular(a.mT if transpose else a, b, upper=upper != transpose, unitriangular=unitriangular), a.clone()


def rank(x: Any, **options: Any) -> Any:
    return L.matrix_rank(x, **{name: value for name, value in options.items() if value is not None})


def other_rank(x: Any, **options: Any) -> bool:
    """By an absolute bound, by one for each matrix, or of what is said to be symmetric."""
    return given("atol", "hermitian")(x, **options) or hasattr(options.get("rtol"), "shape")


def split(x: Any, parts: Any, dim: int = 0) -> Any:
    return fp.tensor_split(x, parts, dim)


SAME = """flip fliplr flipud rot90 unflatten movedim diag_embed diagonal diag trace view_as expand_as unbind atleast_1d atleast_2d
    atleast_3d roll"""
PRODUCTS = "inner outer kron mm bmm mv addmm addmv addr baddbmm addbmm tensordot"
L = fp.linalg  # type: ignore[attr-defined]
LINALG = "inv det slogdet cholesky qr svdvals eigvalsh matrix_power vector_norm matrix_norm norm cond solve_triangular"
SHAPES: dict[str, Row] = {
    **{name: named(name) for name in SAME.split()},
    **{name: listed(name) for name in ("hstack", "vstack", "dstack", "column_stack")},
    "diagonal_copy": named("diagonal"), "unbind_copy": named("unbind"),
    "tile": Row("tile", tile), "repeat": Row("tile", tile), "repeat_interleave": Row("repeat_interleave", repeat),
    "unfold": Row("unfold", lambda x, *args: x.unfold(*args)), "unfold_copy": Row("unfold", lambda x, *args: x.unfold(*args)),
    "broadcast_tensors": Row("broadcast_tensors", fp.broadcast_tensors), "tensor_split": Row("tensor_split", split),
    **{name: named(name) for name in PRODUCTS.split()},
    **{f"linalg.{name}": Row(f"linalg.{name}", getattr(L, name)) for name in LINALG.split()},
    "linalg.pinv": Row("linalg.pinv", pinv),
    "linalg.svd": Row("linalg.svd", L.svd, uneven, seen=from_factors),
    "svd": Row("linalg.svd", svd, uneven, seen=lambda r: from_factors((r[0], r[1], r[2].mT))),
    "linalg.eigh": Row("linalg.eigh", L.eigh, seen=from_vectors),
    "qr": Row("linalg.qr", lambda x, some=True: L.qr(x, "reduced" if some else "complete")),
    "cholesky": Row("linalg.cholesky", lambda x, upper=False: L.cholesky(x, upper=upper)),
    "triangular_solve": Row("linalg.solve_triangular", triangular),
    "linalg.lstsq": Row("linalg.lstsq", lambda a, b, driver=None: L.lstsq(a, b), seen=lambda r: r[0]),
    "linalg.matrix_rank": Row("linalg.matrix_rank", rank, other_rank),
    "pinverse": Row("linalg.pinv", lambda x, rcond=1e-15: L.pinv(x, rcond)),
    "linalg.solve": Row("linalg.solve", L.solve, lambda a, b: a.ndim > 2 and b.shape == a.shape[:-1] and a.shape[-1] == b.shape[-2]),
    "cdist": Row("cdist", lambda x, y, p=2.0, how="": fp.cdist(x, y, p)),  # how PyTorch computes it changes nothing but rounding
    "dot": named("dot"), "vdot": named("vdot"), "einsum": Row("einsum", lambda xs, text: fp.einsum(text, xs)),
    "linalg.multi_dot": named("multi_dot"), "linalg.cross": Row("cross", lambda a, b, dim=-1: fp.cross(a, b, dim)),
    "meshgrid": Row("meshgrid", lambda *xs, indexing="ij": fp.meshgrid(*xs, indexing=indexing)),
}  # fmt: skip
