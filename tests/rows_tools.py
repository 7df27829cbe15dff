"""What the tests of fused kernels share: random arrays, leaves, launched loops, kernels with several workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import flamepy as fp
from flamepy.backend.cpu.device import loop_named
from flamepy.backend.cpu.runtime.compiler import DIALECT
from flamepy.backend.formula.bind import bind
from flamepy.backend.recorder import Recorder, divert

F32, F64, I64 = np.dtype("float32"), np.dtype("float64"), np.dtype("int64")
Array = np.ndarray


def draw(*shape: int, seed: int = 0, dtype: Any = F64) -> Array:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(dtype)


def ids_of(n: int, *shape: int, seed: int = 0) -> Array:
    return np.random.default_rng((seed, *shape)).integers(0, n, shape)


def leaf(array: Array, tracked: bool = True) -> Any:
    return fp.tensor(array, requires_grad=tracked)


def close(got: Any, want: Any, tolerance: float = 1e-11) -> None:
    np.testing.assert_allclose(got.numpy() if isinstance(got, fp.Tensor) else got, want, tolerance, tolerance)


class Spy(Recorder):
    """Stands in the place of the CPU's stream and notes the names of the loops that are launched; of maps also the formula's."""

    def __init__(self, formulas: bool):
        super().__init__()
        self.formulas, self.names = formulas, []

    def run(self, kernel: Any, outs: Any, ins: Any, consts: Any) -> None:
        super().run(kernel, outs, ins, consts)
        name, formula = kernel.loop.__name__, kernel.formula
        self.names.append(f"{name} {formula.__name__}" if formula is not None and (self.formulas or name.startswith("map")) else name)


@contextmanager
def launches(formulas: bool = False) -> Iterator[list[str]]:
    """The names of the loops that are launched in the block."""
    with divert(fp.device("cpu"), Spy(formulas)) as spy:
        yield spy.names


def same_for_any_workers(loop: str, formula: Callable | None, dtype: np.dtype, outs: list[Array], *args: Any) -> list[Array]:
    """Run a kernel with 1, 2 and 5 workers, each twice, from the same outs; returns the outs."""
    kernel = bind(loop_named(loop), formula, dtype, DIALECT)
    results = []
    for workers in (1, 2, 5, 2, 5, 1):
        mine = [None if a is None else a.copy() for a in outs]
        kernel(workers, *mine, *args)
        results.append(mine)
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            assert a is None or a.tobytes() == b.tobytes()
    return results[0]
