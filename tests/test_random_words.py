"""The random loops: Philox as published, uniform and normal numbers, dropout, the same bits for any number of workers.

Reference: Random123's published vectors, and Philox written on Python integers.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from reference import philox

from flamepy.backend.cpu.loops import random as loops
from flamepy.backend.cpu.runtime.compiler import DIALECT
from flamepy.backend.formula.bind import bind

FLOATS = [np.dtype("float32"), np.dtype("float64")]


ONES = 0xFFFFFFFF
PI = [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0]
KNOWN = [  # Random123's published vectors: counter, key, result
    ([0] * 4, [0] * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ([ONES] * 4, [ONES] * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    (PI[:4], PI[4:], "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


@pytest.mark.parametrize("counter, key, words", KNOWN)
def test_philox_known_answers(counter, key, words):
    expected = [int(w, 16) for w in words.split()]
    assert philox(counter, key) == expected
    assert list(loops.philox4x32(*counter, *key)) == expected


KEY = np.array([7, 1, 2])  # seed, stream, step


@cache
def kernel(name: str, dtype: np.dtype) -> Any:
    return bind(getattr(loops, name), None, dtype, DIALECT)


def uniform(n, dtype, workers=1, low=0.0, high=1.0, seed=7, stream=1, step=2):
    out = np.empty(n, dtype)
    kernel("philox_uniform", dtype)(workers, out, np.array([seed, stream, step]), low, high)
    return out


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_uniform_elements_are_philox(dtype):
    """Element e comes from block e // lanes, whatever the size; the key has 64 bits."""
    seed, stream, step = 0x123456789ABCDEF, 5, 9
    got = uniform(4103, dtype, seed=seed, stream=stream, step=step).tolist()
    for e in (0, 1, 2, 3, 4, 1023, 4095, 4096, 4100, 4101, 4102):
        block, lane = divmod(e, 16 // dtype.itemsize)
        w = philox([block, 0, stream, step], [seed & ONES, seed >> 32])
        single, double = w[lane] >> 8, (w[lane * 2 % 4] >> 5) * 2**26 + (w[lane * 2 % 4 + 1] >> 6)
        assert got[e] == (single / 2**24 if dtype.itemsize == 4 else double / 2**53)
    assert got[:101] == uniform(101, dtype, seed=seed, stream=stream, step=step).tolist()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_uniform_range_and_moments(dtype):
    n = 200_001
    u = uniform(n, dtype, low=-1.0, high=3.0)
    assert u.min() >= -1.0 and u.max() < 3.0
    assert abs(u.mean() - 1.0) < 5 * math.sqrt(16 / 12 / n)
    assert abs(u.var() - 16 / 12) < 0.02
    narrow = uniform(n, dtype, low=1.0, high=1.0 + 3 * float(np.finfo(dtype).eps))
    assert narrow.min() >= 1.0 and narrow.max() < 1.0 + 3 * np.finfo(dtype).eps
    assert not np.array_equal(u[:100], uniform(100, dtype, low=-1.0, high=3.0, step=3))
    assert abs(np.corrcoef(u[:-1], u[1:])[0, 1]) < 5 / math.sqrt(n)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_normal_moments(dtype):
    n = 200_001
    z = np.empty(n, dtype)
    kernel("philox_normal", dtype)(1, z, KEY, 5.0, 2.0)
    z = (z - 5) / 2
    assert abs(z.mean()) < 5 / math.sqrt(n) and abs(z.std() - 1) < 0.01
    assert abs((z.astype(float) ** 4).mean() - 3) < 0.1 and abs((z.astype(float) ** 3).mean()) < 0.05
    assert abs(np.corrcoef(z[0::2][:-1], z[1::2])[0, 1]) < 5 / math.sqrt(n / 2)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_dropout(dtype):
    n = 100_003
    x = np.linspace(1, 2, n).astype(dtype)
    x[7] = math.inf
    out, mask = np.empty_like(x), np.empty(n, np.bool_)
    kernel("philox_dropout", dtype)(1, out, mask, x, KEY, 0.1, 1 / 0.9)
    assert abs(mask.mean() - 0.9) < 5 * math.sqrt(0.09 / n)
    np.testing.assert_array_equal(out, np.where(mask, x * dtype.type(1 / 0.9), dtype.type(0)))
    for e in (0, 1, 2, 3, n - 3, n - 2, n - 1):
        word = philox([e // 4, 0, 1, 2], [7, 0])[e % 4]
        assert mask[e] == ((word >> 8) / 2**24 >= 0.1)
    kernel("philox_dropout", dtype)(1, out, mask, x, KEY, 0.0, 1.0)
    assert mask.all()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_same_bits_for_any_number_of_workers(dtype):
    n = 50_003
    x, results = np.ones(n, dtype), set()
    for workers in (1, 2, 5):
        z, out, mask = np.empty_like(x), np.empty_like(x), np.empty(n, np.bool_)
        kernel("philox_normal", dtype)(workers, z, KEY, 0.0, 1.0)
        kernel("philox_dropout", dtype)(workers, out, mask, x, KEY, 0.5, 2.0)
        results.add(b"".join(a.tobytes() for a in (uniform(n, dtype, workers), z, out, mask)))
    assert len(results) == 1
