"""Rows of torch_adapters.py: what goes through, orders, picks and scatters the numbers of an array."""

from __future__ import annotations

from torch_adapters import Row

import flamepy as fp

ARRAYS: dict[str, Row] = {
    "cumsum": Row("cumsum", fp.cumsum),
    "cumprod": Row("cumprod", fp.cumprod),
    "logcumsumexp": Row("logcumsumexp", fp.logcumsumexp, rough=True),
    "cummax": Row("cummax", fp.cummax),
    "cummin": Row("cummin", fp.cummin),
    "diff": Row("diff", lambda x, n=1, dim=-1, prepend=None, append=None: fp.diff(x, n, dim, prepend, append)),
}
