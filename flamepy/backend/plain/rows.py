"""Row bodies (softmax, norms, losses) as they are written, and what is made of rows beside.

A body goes through its row number by number, so its words are those of single numbers.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...core.formula import ARRAY_WORDS, Dialect
from ...core.kernels import kernel, total_of
from ...core.words import VOCABULARY
from ..formula import row_words

# Python's own comparisons are ten times faster than NumPy's. What computes stays NumPy's: 1 / 0 is infinite, not an error.
COMPARING = ("abs", "fmax", "maximum", "minimum", "select", "sign")


def number_words(dtype: np.dtype) -> dict[str, Any]:
    """The words on single numbers, and the memory that a body may have beside its row."""
    found = ARRAY_WORDS[dtype] | {word: VOCABULARY[word].scalar for word in COMPARING}
    spaces = {"run_space": lambda x: np.empty(row_words.RUN, dtype), "line_space": lambda x: np.empty(row_words.LINE, dtype)}
    return found | {"wide": np.float64, **spaces} if dtype.kind == "f" else found | {"wide": np.int64}


ON_NUMBERS = Dialect(number_words, (row_words.__name__,))


def put(out, value, add):
    """Overwrite `out`, or add to it; None: nobody wants it."""
    if out is not None:
        out[...] = out + value if add else value


@partial(kernel, words=ON_NUMBERS)
def row(F, outs, ins, consts):
    """F(r, *outs, *ins, *consts) for each row r: a body as it is written, one number at a time."""
    rows, ins = consts[-2], [exact(x) for x in ins]
    for r in range(rows):
        F(r, *outs, *ins, *consts)


@partial(kernel, words=ON_NUMBERS)
def row_sums(F, outs, ins, consts):
    """The same for a body that also adds to `total`, common to all rows: the gradients of a norm's weights."""
    (dx, dw, db), (parts, add_w, add_b, rows, cols) = outs, consts
    total, ins = np.zeros(parts * cols), [exact(x) for x in ins]
    for r in range(rows):
        F(r, dx, total, *ins, rows, cols)
    put(dw, total[:cols], add_w)
    put(db, total[cols:], add_b)


def exact(x):
    """Floats in float64, in which a body then computes; what it stores is rounded. Integers, numbers and None as they are."""
    return x.astype(np.float64) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x


@kernel
def batch_loss(F, outs, ins, consts):
    """y = the sum of the losses; for the mean divided by found's last number, how many ids count: NaN if there are none."""
    (y,), (losses, found), (mean,) = outs, ins, consts
    total = total_of(losses)
    y[...] = total / np.float64(found[-1]) if mean else total


@kernel
def argmax(F, outs, ins, consts):
    """y[o, j] = the first index of the largest x[o, :, j], or with scale -1 of the smallest; the first NaN wins."""
    (y,), (x,), (outer, n, inner, scale) = outs, ins, consts
    if y.size:
        y[...] = (np.argmax if scale > 0 else np.argmin)(x.reshape(outer, n, inner), axis=1).reshape(-1)


@kernel
def fold_prod(F, outs, ins, consts):
    """y[o, j] = the product of x[o, :, j]."""
    (y,), (x,), (outer, n, inner, _) = outs, ins, consts
    y[...] = np.prod(x.reshape(outer, n, inner), axis=1, dtype=np.float64 if x.dtype.kind == "f" else np.int64).reshape(-1)
