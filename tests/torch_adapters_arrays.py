"""Rows of torch_adapters.py: what goes through, orders, picks and scatters the numbers of an array."""

from __future__ import annotations

from typing import Any

from torch_adapters import Row, reduce

import flamepy as fp
import flamepy.nn.functional as F


def unique(x: Any, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: Any = None) -> Any:
    return fp.unique(x, sorted=sorted, return_inverse=return_inverse, return_counts=return_counts, axis=dim)


def both(f: Any) -> Any:
    """A bool in the place of the axes is PyTorch's older `unbiased`."""

    def call(x: Any, dim: Any = None, unbiased: Any = None, keepdim: bool = False, correction: Any = 1) -> Any:
        dim, unbiased = (None, dim) if isinstance(dim, bool) else (dim, unbiased)
        return f(x, dim, unbiased if unbiased is not None else 1 if correction is None else correction, keepdim)

    return call


ARRAYS: dict[str, Row] = {
    "cumsum": Row("cumsum", fp.cumsum),
    "cumprod": Row("cumprod", fp.cumprod),
    "logcumsumexp": Row("logcumsumexp", fp.logcumsumexp),
    "cummax": Row("cummax", fp.cummax),
    "cummin": Row("cummin", fp.cummin),
    "any": Row("any", reduce(fp.any)),
    "all": Row("all", reduce(fp.all)),
    "count_nonzero": Row("count_nonzero", reduce(fp.count_nonzero)),
    "amax": Row("amax", reduce(fp.amax)),
    "amin": Row("amin", reduce(fp.amin)),
    "aminmax": Row("aminmax", reduce(fp.aminmax)),
    "norm": Row("norm", lambda x, p="fro", dim=None, keepdim=False, **k: fp.norm(x, p, dim, keepdim, **k), lambda x, *a, **k: "nuc" in a),
    "linalg.vector_norm": Row("vector_norm", lambda x, ord=2, dim=None, keepdim=False, **k: fp.vector_norm(x, ord, dim, keepdim, **k)),
    "nn.functional.normalize": Row("normalize", F.normalize),
    "std_mean": Row("std_mean", both(fp.std_mean)),
    "var_mean": Row("var_mean", both(fp.var_mean)),
    "nansum": Row("nansum", reduce(fp.nansum)),
    "nanmean": Row("nanmean", reduce(fp.nanmean)),
    "prod": Row("prod", reduce(fp.prod)),
    "scatter": Row("scatter", fp.scatter),
    "scatter_add": Row("scatter_add", fp.scatter_add),
    "scatter_reduce": Row("scatter_reduce", fp.scatter_reduce),
    "index_add": Row("index_add", fp.index_add),
    "index_copy": Row("index_copy", fp.index_copy, random=lambda x, dim, index, *a: index.numel() != len(set(index.ravel().tolist()))),
    "index_fill": Row("index_fill", fp.index_fill),
    "index_put": Row("index_put", fp.index_put),
    "take": Row("take", fp.take),
    "take_along_dim": Row("take_along_axis", lambda x, i, dim=None: fp.take_along_axis(x, i.flatten() if dim is None else i, dim)),
    "masked_scatter": Row("masked_scatter", fp.masked_scatter),
    "masked_select": Row("masked_select", fp.masked_select),
    "nonzero": Row("nonzero", fp.nonzero),
    "argwhere": Row("argwhere", fp.argwhere),
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
