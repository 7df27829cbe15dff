"""What a kernel is given: the kinds of its arguments, by which it is compiled, and its parameters.

A buffer is two parameters, address and size; a tuple of integers one for each; None is one, 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...base import Buffer


def arguments(given: Sequence[Any], raw: bool) -> tuple[tuple[Any, ...], list[Any]]:
    """(kinds of the arguments, their values as a kernel's parameters)."""
    kinds: list[Any] = []
    values: list[Any] = []
    for a in given:
        if isinstance(a, Buffer):
            kinds.append(UNSIGNED[a.dtype.itemsize] if raw else a.dtype)
            values += (a.data, a.size)
        elif a is None:
            kinds.append(None)
            values.append(0)
        else:
            kind = KINDS.get(type(a)) or kind_of(a)
            kinds.append(kind)
            if isinstance(kind, tuple):
                values += map(NUMBER[kind[0]], a)
            else:
                values.append(NUMBER[kind](a))
    return tuple(kinds), values


UNSIGNED = {size: np.dtype(f"uint{8 * size}") for size in (1, 2, 4, 8)}
NUMBER: dict[str, Any] = {name: getattr(np, name) for name in ("int32", "int64", "uint64", "float32", "float64")} | {"boolean": np.bool_}
KINDS: dict[type, str] = {
    float: "float64",  # of norms, which are float64
    np.float32: "float32",
    np.float64: "float64",
    bool: "boolean",
    np.bool_: "boolean",
    **dict.fromkeys((np.int8, np.uint8, np.int16, np.uint16, np.int32), "int32"),
    **dict.fromkeys((np.uint32, np.int64), "int64"),
    np.uint64: "uint64",
}


def kind_of(value: Any) -> Any:
    """The kind of an integer, a tuple of integers (a small table), or another NumPy scalar."""
    if isinstance(value, tuple):
        return ("int32" if all([fits(v) for v in value]) else "int64"), len(value)
    if isinstance(value, int):
        return "int32" if fits(value) else "int64"
    raise TypeError(f"cuda: no kernel takes this: {value!r} ({type(value).__name__})")


def fits(value: int) -> bool:
    return -(1 << 31) <= value < 1 << 31
