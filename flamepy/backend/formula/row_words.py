"""The words in which row bodies (softmax, norms, cross-entropy) are written once for every backend.

A row is worked on by `lanes()` workers; worker `lane()` takes elements lane(), lane() + lanes(), ... A CPU row has one lane; a CUDA
row has a block of threads, where all_sum and all_max combine the lanes' values. These plain versions are what the CPU compiles
and what a notebook runs.

A sum over a row is a function that adds up a run of it, given to long_sum(); one after the other in float32, a million numbers
lose four digits. What is written is a function of a run, too: put_row() calls it. A run reads and writes its arrays at the elements of
run_at() alone, so that a GPU's lane may take some neighbours at once.
"""

import numpy as np

from ...core.words import INF, exp_down, real
from .words import fmax

LINE = 4096  # numbers that fit beside a row into the nearest cache; 0: what is needed twice is computed twice
TOGETHER = 16  # rows that a body takes at once where they are short
RUN = 256  # numbers of a row added up in its own type; vectors hold 16 of them, four at once


def wide(x):
    """x in the type that long sums are kept in: float64, for whole numbers int64."""
    return np.float64(x)


def lane():
    """This worker's number within the row."""
    return 0


def lanes():
    """How many workers share the row."""
    return 1


def run_at(first, cols):
    """The elements this worker takes of the run that starts at `first`; where that is None, of the whole row."""
    if first is None:
        return range(lane(), cols, lanes())
    return range(first + lane(), min(first + RUN, cols), lanes())


def element(n):
    """The number of an element, which is not negative, so that nothing has to be done for those that are."""
    return n


def long_sum(run, cols, *args):
    """The sum over a row: run(first, cols, *args) adds up the elements of run_at(first, cols), and the runs are added in wide()."""
    total = run(0, cols, *args)
    if cols > RUN:
        longer = wide(total)
        for first in range(RUN, cols, RUN):
            longer += wide(run(first, cols, *args))
        total = real(longer)
    return all_sum(total)


def long_sums(run, cols, *args):
    """The same for a `run` that adds up two things at once."""
    one, two = run(0, cols, *args)
    if cols > RUN:
        longer, other = wide(one), wide(two)
        for first in range(RUN, cols, RUN):
            a, b = run(first, cols, *args)
            longer += wide(a)
            other += wide(b)
        one, two = real(longer), real(other)
    return all_sum(one), all_sum(two)


def put_row(run, cols, out, *args):
    """Write a row of `out`: run(first, cols, out, *args) writes the elements of run_at(first, cols)."""
    run(None, cols, out, *args)


def top_and_sum(e, x, cols):
    """The maximum of the row x and the sum of exp(x - maximum); the exponentials go into e, unless it is None."""
    top = top_of(x, cols)
    return top, long_sum(exponentials, cols, e, x, top)


def top_of(x, cols):
    top = -INF
    for j in range(lane(), cols, lanes()):
        top = fmax(top, x[j])
    return all_max(top)


def exponentials(first, cols, e, x, top):
    total = 0.0
    for j in run_at(first, cols):
        value = exp_down(x[j] - top)
        if e is not None:
            e[j] = value
        total += value
    return total


def run_space(x):
    """Memory for the elements of one run, of x's type, until the row is done; not initialised."""
    return np.empty(RUN, x.dtype)


def line_space(x):
    """The same for the LINE first numbers of a row."""
    return np.empty(LINE, x.dtype)


def all_sum(value):
    """The sum of `value` over all lanes of the row."""
    return value


def all_max(value):
    """The maximum of `value` over all lanes of the row."""
    return value


def barrier():
    """Wait until every lane of the row has come here."""
    return None
