"""The five words in which row bodies (softmax, norms, cross-entropy) are written once for every backend.

A row is worked on by `lanes()` workers; worker `lane()` takes elements lane(), lane() + lanes(), ... A CPU row has one lane; a CUDA
row has a block of threads, where all_sum and all_max combine the lanes' values. These plain versions are what the CPU compiles
and what a notebook runs.

FLAME counterpart: warp reductions in its CUDA kernels. Read next: ../ops/rows.py.
"""

from __future__ import annotations


def lane():
    """This worker's number within the row."""
    return 0


def lanes():
    """How many workers share the row."""
    return 1


def all_sum(value):
    """The sum of `value` over all lanes of the row."""
    return value


def all_max(value):
    """The maximum of `value` over all lanes of the row."""
    return value


def barrier():
    """Wait until every lane of the row has come here."""
    return None
