"""ctc_loss: sequences of labels without an alignment (Graves et al. 2006), all alignments added up in log space, a row for each sample.

Between labels, before and after them may be blanks: a sample with n labels goes through 2 n + 1 states, the even ones blank. Forward keeps
the log-probability of every start that ends in a state at a time (alpha), backward goes back with that of every end (beta).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..backend.formula.row_words import barrier, lane, lanes
from ..backend.formula.words import fmax
from ..core.custom import custom
from ..core.errors import DTypeError, ShapeError
from ..core.inputs import common_dtype
from ..core.op import launch, like
from ..core.ops.axes import composed, tensors_of
from ..core.ops.copy import cast
from ..core.ops.indexing import check_ids
from ..core.ops.pointwise import div, eq, maximum_op, where
from ..core.ops.reduce import mean
from ..core.ops.reduce import sum as sum_op
from ..core.ops.shape import reshape
from ..core.tensor import Tensor
from ..core.words import INF, exp_down, log
from ..dtypes import FLOATS, INTEGERS, float64, is_count
from ..engine.routes import routed
from .class_ids import REDUCTIONS, unknown_reduction
from .picking import getitem, integers


# ---- one sample ------------------------------------------------------------------------------------------------------------------------
def label_of(ids, r, places, s, blank):
    """What state s of a sample emits."""
    return ids[r * places + s // 2] if s % 2 == 1 else blank


def log_sum(a, b, c):
    """log(exp(a) + exp(b) + exp(c))."""
    top = fmax(fmax(a, b), c)
    base = 0.0 if top == -INF else top
    return base + log(exp_down(a - base) + exp_down(b - base) + exp_down(c - base))


def skips(ids, r, places, s, n):
    """Whether state s may be reached from s - 2, past a blank: both are labels, and differ."""
    return s > 1 and s < n and s % 2 == 1 and ids[r * places + s // 2] != ids[r * places + s // 2 - 1]


def checked_labels(r, labels, wrong, ids, times, sizes, blank, steps, classes, places):
    """The labels of a sample, a class that is no blank for what does not count or is none. `wrong`: its lengths, then its labels, each 0
    if it may be so, else what it is, -1 for a blank."""
    line = r * (places + 2)
    if lane() == 0:
        wrong[line] = times[r] if times[r] < 0 or times[r] > steps else 0
        wrong[line + 1] = sizes[r] if sizes[r] < 0 or sizes[r] > places else 0
    for j in range(lane(), places, lanes()):
        label, counts = ids[r * places + j], j < sizes[r]
        fits = counts and label >= 0 and label < classes and label != blank
        labels[r * places + j] = label if fits else 0 if blank != 0 else min(1, classes - 1)
        wrong[line + 2 + j] = 0 if fits or not counts else -1 if label == blank else label
    barrier()


def ctc_row(r, loss, alpha, labels, wrong, x, ids, times, sizes, blank, steps, classes, places, rows, cols):
    """The loss of a sample, infinite where there is no alignment. x (steps, rows, classes), alpha (rows, steps, cols). Lengths are limited:
    a wrong one is reported, perhaps only later, and must do no harm before."""
    checked_labels(r, labels, wrong, ids, times, sizes, blank, steps, classes, places)
    n, end, at = 2 * max(0, min(sizes[r], places)) + 1, max(0, min(times[r], steps)), r * steps * cols
    for t in range(end):
        line, before, now = (t * rows + r) * classes, at + (t - 1) * cols, at + t * cols
        for s in range(lane(), n, lanes()):
            value = 0.0 if s < 2 else -INF
            if t > 0:
                one = alpha[before + s - 1] if s > 0 else -INF
                two = alpha[before + s - 2] if skips(labels, r, places, s, n) else -INF
                value = log_sum(alpha[before + s], one, two)
            alpha[now + s] = value + x[line + label_of(labels, r, places, s, blank)]
        barrier()
    if lane() == 0:
        if end == 0:
            loss[r] = 0.0 if n == 1 else INF
        else:
            last = at + (end - 1) * cols + n - 1
            loss[r] = -log_sum(alpha[last], alpha[last - 1] if n > 1 else -INF, -INF)


def ctc_dx_row(r, dx, beta, g, loss, alpha, x, ids, times, sizes, blank, steps, classes, places, rows, cols):
    """The gradient of a sample: minus what share of all alignments emits a class at a time. beta (rows, 2, cols): then, and after it."""
    n, end, scale = 2 * max(0, min(sizes[r], places)) + 1, max(0, min(times[r], steps)), g[r]
    for j in range(lane(), steps * classes, lanes()):
        dx[(j // classes * rows + r) * classes + j % classes] = 0.0
    barrier()
    for t in range(end - 1 if scale != 0.0 else -1, -1, -1):
        line, after = (t * rows + r) * classes, ((t + 1) * rows + r) * classes
        now, then = (2 * r + t % 2) * cols, (2 * r + 1 - t % 2) * cols
        for s in range(lane(), n, lanes()):
            value = 0.0 if s > n - 3 else -INF
            if t < end - 1:
                zero = beta[then + s] + x[after + label_of(ids, r, places, s, blank)]
                one = beta[then + s + 1] + x[after + label_of(ids, r, places, s + 1, blank)] if s + 1 < n else -INF
                two = beta[then + s + 2] + x[after + label_of(ids, r, places, s + 2, blank)] if skips(ids, r, places, s + 2, n) else -INF
                value = log_sum(zero, one, two)
            beta[now + s] = value
        barrier()
        if lane() == 0:  # one after the other: states may emit the same class
            for s in range(n):
                gap = alpha[(r * steps + t) * cols + s] + beta[now + s] + loss[r]
                dx[line + label_of(ids, r, places, s, blank)] -= scale * exp_down(gap if gap < 0.0 or gap != gap else 0.0)
        barrier()


@custom(inputs=4, kind="as is", title="ctc_loss", internal=True)
def row_ctc(x, ids, times, sizes, blank=0):
    """The losses of log-probabilities x (T, N, C) for the labels ids (N, S): of so many times and labels each, all of which are checked."""
    (steps, rows, classes), places, cols = x.shape, ids.shape[1], 2 * ids.shape[1] + 1
    labels, wrong, losses, alpha = like(ids), like(ids, (rows, places + 2)), like(x, (rows,)), like(x, (rows, max(1, steps), cols))
    if rows:
        launch("row", ctc_row, (losses, alpha, labels, wrong), (x, ids, times, sizes), (blank, steps, classes, places, rows, cols))

    def problem(value: int, at: Any) -> str:
        if at[1] < 2:
            what, most = (("input", steps), ("target", places))[at[1]]
            return f"ctc_loss: one of {what} lengths out of range: {value} at position {at[:1]}. Use 0 to {most}."
        use = f"Use 0 to {classes - 1}, but {blank}"
        return f"ctc_loss: a label that is the blank or no class: {value} at position {(at[0], at[1] - 2)}. {use}."

    check_ids(wrong, 0, 1, problem)
    return losses, {"alpha": alpha, "labels": labels}


@row_ctc.backward
def row_ctc_dx(g, x, y, alpha, labels, times, sizes, blank):
    (steps, rows, classes), places = x.shape, labels.shape[1]
    dx, beta = like(g, x.shape), like(g, (rows, 2, 2 * places + 1))
    if dx.size:
        ins = g, y, alpha, x, labels, times, sizes
        launch("row", ctc_dx_row, (dx, beta), ins, (blank, steps, classes, places, rows, 2 * places + 1))
    return dx, None, None, None


# ---- the loss ----------------------------------------------------------------------------------------------------------------------------
def lengths(name: str, what: str, given: Any, count: int, device: Any) -> Any:
    """A length for each sample as int64. Raises DTypeError, ShapeError."""
    found = Tensor.of(name, np.asarray(given, np.int64) if isinstance(given, list | tuple) and not given else given, device)
    if found.dtype not in INTEGERS:
        raise DTypeError(f"{name}: {what} are not integer: {found.dtype}. Cast them to int64.")
    if found.size != count or found.ndim > 1:
        raise ShapeError(f"{name}: not one of {what} for each sample: {found.shape}, samples {count}. Pass one for each.")
    return found if found.ndim else reshape(found, (1,))


def side_by_side(name: str, ids: Any, sizes: Any) -> Any:
    """Labels one after the other as rows, filled up. Reads the lengths, which a recorded step cannot do of tensors."""
    counts = np.asarray(sizes.numpy() if isinstance(sizes, Tensor) else sizes, np.int64).reshape(-1)
    if counts.size and (counts.min() < 0 or counts.sum() > ids.size):
        raise ShapeError(f"{name}: targets do not have as many labels as their lengths say: {ids.size}, lengths {counts.tolist()}.")
    starts, most = np.cumsum(counts) - counts, int(counts.max(initial=0))
    places = np.minimum(starts[:, None] + np.arange(most), max(0, ids.size - 1))
    return getitem(ids, places) if most else reshape(getitem(ids, slice(0, 0)), (counts.size, 0))


@composed(home="functional")
def ctc_loss(
    log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: int = 0, reduction: str = "mean",
    zero_infinity: bool = False,
) -> Any:  # fmt: skip
    """-log of the probability that classes emitted time by time are the labels, once repeats and blanks are left out.
    Graves et al. 2006. The gradient is that of log_probs themselves; behind log_softmax it is PyTorch's. "mean": each loss is divided by
    its number of labels first. `zero_infinity`: losses without any alignment count 0, and so do their gradients.
    Shapes: log_probs (T, N, C) or (T, C); targets (N, S), or all labels one after the other; lengths (N,) or (), of integers.
    Raises ShapeError, DTypeError, IndexOutOfRange for a length or label out of range; a label may not be the blank.
    >>> round(F.ctc_loss(fp.tensor([[0.5, 0.5]] * 2).log(), [1], 2, 1).item(), 4)
    0.2877"""
    name = "ctc_loss"
    x, ids = tensors_of(name, log_probs, targets)
    if reduction not in REDUCTIONS:
        raise unknown_reduction(name, reduction)
    if x.ndim not in (2, 3) or x.dtype not in FLOATS or ids.dtype not in INTEGERS:
        shown = f"log_probs {x.shape} of {x.dtype}, targets {ids.shape} of {ids.dtype}"
        kind: Any = ShapeError if x.ndim not in (2, 3) else DTypeError
        raise kind(f"{name}: not log-probabilities and labels: {shown}. Use floats (T, N, C) and integers (N, S).")
    batched, dtype = x.ndim == 3, common_dtype(name, (x,), "float")
    x = x if batched else reshape(x, (x.shape[0], 1, x.shape[1]))
    _, rows, classes = x.shape
    if not is_count(blank) or blank >= classes:
        raise ValueError(f"{name}: blank is no class: {blank!r}. Use 0 to {classes - 1}.")
    ids = side_by_side(name, ids, target_lengths) if batched and ids.ndim == 1 else ids if ids.ndim == 2 else reshape(ids, (1, ids.size))
    if ids.shape[0] != rows:
        raise ShapeError(f"{name}: sizes differ: targets {ids.shape}, samples {rows}. Give a row of labels for each.")
    times = lengths(name, "input lengths", input_lengths, rows, x.device)
    sizes = lengths(name, "target lengths", target_lengths, rows, x.device)
    y = reduced(x, ids, times, sizes, int(blank), reduction, bool(zero_infinity))
    return cast(y if batched or y.ndim == 0 else reshape(y, ()), dtype)


@routed
def reduced(x: Any, ids: Any, times: Any, sizes: Any, blank: int, reduction: str, zero_infinity: bool) -> Any:
    """The loss in float64: log-probabilities of long sequences are around -100, where float32 would lose what an exponential needs."""
    losses = row_ctc(cast(x, float64), *[integers("ctc_loss", n, x.device) for n in (ids, times, sizes)], blank)
    if zero_infinity:
        losses = where(eq(losses, np.inf), 0.0, losses)
    if reduction == "mean":
        return mean(div(losses, cast(maximum_op(sizes, 1), float64)))
    return sum_op(losses) if reduction == "sum" else losses
