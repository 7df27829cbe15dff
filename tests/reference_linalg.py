"""The oracle's lines of flamepy.linalg; see reference.py, and linalg_calls.py for how matrices are kept far from singular ones."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from cases import Case, R, case

# fmt: off
N = np.linalg


def regular(x: np.ndarray) -> np.ndarray:
    return x + 4.0 * np.eye(x.shape[-1])


def definite(x: np.ndarray) -> np.ndarray:
    return regular(x @ np.swapaxes(x, -1, -2))


def apart(x: np.ndarray) -> np.ndarray:
    n = np.arange(1.0, x.shape[-1] + 1)
    return definite(x) * np.sqrt(n[:, None] * n)


def triangular(a: np.ndarray, b: np.ndarray, upper: bool, left: bool = True, unitriangular: bool = False) -> np.ndarray:
    a = np.triu(regular(a)) if upper else np.tril(regular(a))
    if unitriangular:
        a = a * (1 - np.eye(a.shape[-1])) + np.eye(a.shape[-1])
    return N.solve(a, b) if left else b @ N.inv(a)


def eigh(x: np.ndarray) -> tuple:
    w, v = N.eigh(apart(x))
    return w, v * v


def svd(x: np.ndarray) -> tuple:
    u, s, vh = N.svd(x, full_matrices=False)
    return u * u, s, vh * vh


def vector_norm(x: np.ndarray, ord: Any = 2, axis: Any = None, keepdims: bool = False) -> np.ndarray:
    return N.vector_norm(x, ord=ord, axis=axis, keepdims=keepdims)


SQUARES = [((3, 3),), ((2, 3, 3),)]
ANY = [((3, 3),), ((4, 3),), ((2, 3, 4),)]
ORDERS = (1, 0.5, 3, -2, math.inf, -math.inf)
LINALG: dict[str, Case] = {
    "inv": case(lambda x: N.inv(regular(x)), shapes=SQUARES), "det": case(lambda x: N.det(regular(x)), shapes=SQUARES),
    "solve": case(lambda a, b: N.solve(regular(a), b), R, R, shapes=[
        ((3, 3), (3, 2)), ((3, 3), (3, 3)), ((3, 3), (3,)), ((2, 1, 3, 3), (4, 3, 2))]),
    "solve_triangular": case(triangular, R, R, shapes=[((3, 3), (3, 3))], attrs=[
        {"upper": True}, {"upper": False, "unitriangular": True}, {"upper": True, "left": False}]),
    "slogdet": case(lambda x: N.slogdet(regular(x))[1], shapes=SQUARES),
    "cholesky": case(lambda x, upper=False: N.cholesky(definite(x), upper=upper), shapes=SQUARES, attrs=[{}, {"upper": True}]),
    "matrix_power": case(lambda x, n: N.matrix_power(regular(x), n), shapes=SQUARES[:1], args=[(3,), (-2,), (1,)]),
    "qr": case(N.qr, shapes=ANY), "eigh": case(eigh, shapes=SQUARES), "eigvalsh": case(lambda x: N.eigvalsh(apart(x)), shapes=SQUARES),
    "svd": case(svd, shapes=ANY), "svdvals": case(N.svdvals, shapes=ANY), "pinv": case(

        lambda x, atol=0.0: N.pinv(x), shapes=ANY[1:], also=[(((3, 2),), (), {"atol": 1e-9})]),
    "matrix_rank": case(N.matrix_rank, shapes=ANY, smooth=False),
    "lstsq": case(lambda a, b: N.lstsq(a, b)[0], R, R, shapes=[((4, 3), (4, 2)), ((4, 2), (4,)), ((3, 4), (3, 4)), ((4, 3), (4, 3))]),
    "vector_norm": case(vector_norm, shapes=[((2, 3, 4),)], attrs=[
        {}, {"axis": 1}, {"axis": (0, 2), "keepdims": True}, *[{"ord": ord, "axis": -1} for ord in ORDERS]]),
    "matrix_norm": case(lambda x, ord="fro", keepdims=False: N.matrix_norm(x, ord=ord, keepdims=keepdims), shapes=ANY[1:], args=[
        (), ("nuc",), (2,), (-2,), (1,), (-1,), (math.inf,), (-math.inf,)], also=[(((2, 3, 3),), ("fro",), {"keepdims": True})]),
    "norm": case(N.norm, shapes=[((3, 4),)], attrs=[
        {}, {"ord": 1}, {"axis": 1}, {"ord": 2, "axis": (1, 0)}, {"ord": 3, "axis": 0, "keepdims": True}],
                 also=[(((4,),), (1,), {}), (((2, 3, 2),), (), {})]),
    "cond": case(lambda x, *p: N.cond(regular(x), *p), shapes=SQUARES, args=[(), (1,), ("fro",), (-2,)]),
}
INTERNAL_OF_LINALG = {
    "inverse": "inv", "solved": "solve", "determinant": "det", "sign_and_log": "slogdet", "root_of": "cholesky", "thin_qr": "qr",
    "full_qr": "qr", "substituted": "solve_triangular", "least_squares": "lstsq",
    "symmetric_eigen": "eigh", "thin_svd": "svd", "full_svd": "svd", "singular_values": "svdvals", "pseudo_inverse": "pinv",
}
# fmt: on
