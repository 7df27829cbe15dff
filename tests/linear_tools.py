"""What the tests of fused linear layers share: how near results must be."""

from __future__ import annotations

from typing import Any

import numpy as np
from rows_tools import F32, F64

import flamepy as fp


def close(got: Any, want: Any, dtype: Any = F64, what: str = "") -> None:
    tolerance = 2e-5 if dtype == F32 else 1e-11
    got = got.numpy() if isinstance(got, fp.Tensor) else got
    want = want.numpy() if isinstance(want, fp.Tensor) else want
    np.testing.assert_allclose(got, np.asarray(want).reshape(got.shape), tolerance, tolerance, err_msg=what)
