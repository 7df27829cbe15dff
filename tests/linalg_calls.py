"""flamepy.linalg as the oracle's lines call it: on matrices far from singular ones, and without the signs that LAPACK is free to choose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import flamepy as fp

L: Any = fp.linalg  # type: ignore[attr-defined]


def regular(x: Any) -> Any:
    return x + fp.tensor(4.0 * np.eye(x.shape[-1], dtype=x.dtype), device=x.device)


def definite(x: Any) -> Any:
    return regular(x @ x.mT)


def eigh(x: Any, **options: Any) -> tuple:
    w, v = L.eigh(definite(x) * spread(x), **options)
    return w, v * v


def spread(x: Any) -> Any:
    """A factor that keeps eigenvalues apart."""
    n = np.arange(1.0, x.shape[-1] + 1, dtype=x.dtype)
    return fp.tensor(np.sqrt(n[:, None] * n), device=x.device)


def svd(x: Any) -> tuple:
    u, s, vh = L.svd(x, full_matrices=False)
    return u * u, s, vh * vh


CALLS: dict[str, Callable[..., Any]] = {
    "inv": lambda x: L.inv(regular(x)), "solve": lambda a, b: L.solve(regular(a), b), "det": lambda x: L.det(regular(x)),
    "solve_triangular": lambda a, b, **options: L.solve_triangular(regular(a), b, **options), "slogdet": lambda x: L.slogdet(regular(x))[1],
    "cholesky": lambda x, **options: L.cholesky(definite(x), **options), "matrix_power": lambda x, n: L.matrix_power(regular(x), n),
    "qr": L.qr, "eigh": eigh, "eigvalsh": lambda x: L.eigvalsh(definite(x) * spread(x)), "svd": svd, "svdvals": L.svdvals, "pinv": L.pinv,
    "matrix_rank": L.matrix_rank, "lstsq": lambda a, b: L.lstsq(a, b)[0], "vector_norm": L.vector_norm, "matrix_norm": L.matrix_norm,
    "norm": L.norm, "cond": lambda x, *p: L.cond(regular(x), *p),
}  # fmt: skip
