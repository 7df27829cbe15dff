"""Rows of torch_adapters.py: what goes through, orders, picks and scatters the numbers of an array."""

from __future__ import annotations

from typing import Any

from torch_adapters import Row

import flamepy as fp


def unique(x: Any, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: Any = None) -> Any:
    return fp.unique(x, sorted=sorted, return_inverse=return_inverse, return_counts=return_counts, axis=dim)


ARRAYS: dict[str, Row] = {
    "cumsum": Row("cumsum", fp.cumsum),
    "cumprod": Row("cumprod", fp.cumprod),
    "logcumsumexp": Row("logcumsumexp", fp.logcumsumexp, rough="float32"),
    "cummax": Row("cummax", fp.cummax),
    "cummin": Row("cummin", fp.cummin),
    "sort": Row("sort", lambda x, *a, dim=-1, descending=False, stable=False: fp.sort(x, *a) if a else fp.sort(x, dim, descending)),
    "argsort": Row("argsort", lambda x, dim=-1, descending=False, stable=False: fp.argsort(x, dim, descending)),
    "msort": Row("msort", fp.msort),
    "topk": Row("topk", fp.topk),
    "kthvalue": Row("kthvalue", fp.kthvalue),
    "quantile": Row("quantile", fp.quantile),
    "nanquantile": Row("nanquantile", fp.nanquantile),
    "searchsorted": Row("searchsorted", fp.searchsorted),
    "bucketize": Row("bucketize", fp.bucketize),
    "unique": Row("unique", unique),
    "histc": Row("histc", fp.histc),
    "diff": Row("diff", lambda x, n=1, dim=-1, prepend=None, append=None: fp.diff(x, n, dim, prepend, append)),
}
