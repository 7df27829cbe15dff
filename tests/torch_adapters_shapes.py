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
    "tile": Row("tile", tile), "repeat": Row("tile", tile), "repeat_interleave": Row("repeat_interleave", repeat, given("output_size")),
    "unfold": Row("unfold", lambda x, *args: x.unfold(*args)), "unfold_copy": Row("unfold", lambda x, *args: x.unfold(*args)),
    "broadcast_tensors": Row("broadcast_tensors", fp.broadcast_tensors), "tensor_split": Row("tensor_split", split),
    **{name: named(name) for name in PRODUCTS.split()},
    **{f"linalg.{name}": Row(f"linalg.{name}", getattr(L, name)) for name in LINALG.split()},
    "linalg.pinv": Row("linalg.pinv", pinv, given("atol", "hermitian")),
    "linalg.solve": Row("linalg.solve", L.solve, lambda a, b: a.ndim > 2 and b.shape == a.shape[:-1] and a.shape[-1] == b.shape[-2]),
    "cdist": Row("cdist", lambda x, y, p=2.0, how="": fp.cdist(x, y, p)),  # how PyTorch computes it changes nothing but rounding
    "dot": named("dot"), "vdot": named("vdot"), "einsum": Row("einsum", lambda xs, text: fp.einsum(text, xs)),
    "linalg.multi_dot": named("multi_dot"), "linalg.cross": Row("cross", lambda a, b, dim=-1: fp.cross(a, b, dim)),
    "meshgrid": Row("meshgrid", lambda *xs, indexing="ij": fp.meshgrid(*xs, indexing=indexing)),
}  # fmt: skip
