"""cuBLASLt's calls without a GPU: arguments are checked as the library checks them, products are computed by NumPy in emulated memory.

It takes what ctypes would hand over. A mistake that the library would answer with a status, or with a wrong number, is an EmulationError
here: sizes that do not fit together, a leading dimension below the column, memory outside of an allocation or less aligned than promised,
an epilogue without its pointer. Every problem has two proposals, which compute the same.
"""

from __future__ import annotations

import ctypes as C
from functools import partial
from typing import Any

import numpy as np

from flamepy.backend.cuda.products import blas
from flamepy.dtypes import bfloat16, float16, float32, float64
from flamepy.errors import EmulationError

DTYPES = {0: float32, 1: float64, 2: float16, 14: bfloat16}
KNOWN = {number: end for end, number in blas.ENDS.items()}
INVALID, UNSUPPORTED = 7, 15
SCALES = {blas.IN32: 0, blas.TF32: 0, blas.IN64: 1}  # the type of alpha and beta


def value_of(reference: Any) -> int:
    return int(reference._obj.value)


def address_of(handle: Any) -> int:
    return int(getattr(handle, "value", handle) or 0)


class Standin:
    """The library on an emulated GPU; `unsupported`: ends of a product for which it has no algorithm. `log`: how each product ended."""

    def __init__(self, driver: Any, unsupported: tuple[str, ...] = ()):
        self.driver, self.unsupported = driver, unsupported
        self.things: list[dict[Any, Any]] = []
        self.log: list[str] = []

    # ---- what is described -------------------------------------------------------------------------------------------------------
    def new(self, handle: Any, **facts: Any) -> int:
        self.things.append(facts)
        handle._obj.value = len(self.things)
        return 0

    def thing(self, handle: Any) -> dict[Any, Any]:
        number = address_of(handle)
        if not 0 < number <= len(self.things):
            raise EmulationError(f"cublasLt: no such handle: {number}. Create it first.")
        return self.things[number - 1]

    def attribute(self, handle: Any, name: Any, value: Any, size: Any) -> int:
        if C.sizeof(value._obj) != size.value:
            raise EmulationError(f"cublasLt: an attribute of another size: {size.value} bytes for {value._obj!r}. Give sizeof.")
        self.thing(handle)[name.value] = value_of(value)
        return 0

    cublasLtMatmulDescSetAttribute = cublasLtMatrixLayoutSetAttribute = cublasLtMatmulPreferenceSetAttribute = attribute

    def cublasLtCreate(self, handle: Any) -> int:
        return self.new(handle)

    def cublasLtGetVersion(self) -> int:
        return 0

    def cublasLtMatmulDescCreate(self, handle: Any, compute: Any, scale: Any) -> int:
        if SCALES.get(compute.value) != scale.value:
            return INVALID
        return self.new(handle, compute=compute.value)

    def cublasLtMatmulPreferenceCreate(self, handle: Any) -> int:
        return self.new(handle)

    def cublasLtMatrixLayoutCreate(self, handle: Any, dtype: Any, rows: Any, columns: Any, leading: Any) -> int:
        if leading.value < rows.value or not rows.value or not columns.value:
            return INVALID
        return self.new(handle, dtype=DTYPES[dtype.value], rows=rows.value, columns=columns.value, leading=leading.value)

    # ---- algorithms ----------------------------------------------------------------------------------------------------------------
    def cublasLtMatmulAlgoGetHeuristic(
        self, library: Any, product: Any, a: Any, b: Any, c: Any, d: Any, wanted: Any, most: Any, proposals: Any, count: Any
    ) -> int:
        self.thing(library)
        facts, wishes = self.thing(product), self.thing(wanted)
        status = self.fit(facts, *[self.thing(x) for x in (a, b, c, d)])
        if status:
            return status
        for n in range(min(2, most.value)):
            for k in range(4):
                proposals[n].algorithm[k] = wishes[blas.FIRST_ALIGNMENT + k]
            proposals[n].algorithm[4] = address_of(product)
            proposals[n].workspace = 4096 * n
            proposals[n].state = 0
        count._obj.value = min(2, most.value)
        return 0

    def fit(self, facts: Any, a: Any, b: Any, c: Any, d: Any) -> int:
        """Whether a problem is one: 0, or a status."""
        rows, inner = turned(a, facts[blas.TURN_A])
        inner_b, columns = turned(b, facts[blas.TURN_B])
        if inner != inner_b or (rows, columns) != (d["rows"], d["columns"]) or c is not d:
            return INVALID
        counts = {x.get(blas.COUNT, 1) for x in (a, b, d)}
        end = KNOWN[facts[blas.END]]
        if len(counts) > 1 or a["dtype"] != b["dtype"] or end in self.unsupported:
            return UNSUPPORTED
        if "aux" in end and (facts[blas.AUX_LD] < rows or facts[blas.AUX_LD] % 8 or d["dtype"].itemsize > 2):
            return UNSUPPORTED
        if ("bias" in end or end == "sums") and (blas.BIAS_TYPE not in facts or counts != {1}):
            return UNSUPPORTED
        wide = {float64} if facts["compute"] == blas.IN64 else {float32, float16, bfloat16}
        if a["dtype"] not in wide or d["dtype"] not in wide or (facts["compute"] == blas.TF32 and a["dtype"] != float32):
            return UNSUPPORTED
        return 0

    # ---- products ------------------------------------------------------------------------------------------------------------------
    def cublasLtMatmul(
        self, library: Any, product: Any, alpha: Any, a: int, a_is: Any, b: int, b_is: Any, beta: Any, c: int, c_is: Any, d: int, d_is: Any,
        algorithm: int, room: int, room_size: int, stream: Any,
    ) -> int:  # fmt: skip
        self.thing(library)
        facts, described = dict(self.thing(product)), [self.thing(x) for x in (a_is, b_is, c_is, d_is)]
        status = self.fit(facts, *described)
        chosen = (C.c_uint64 * 8).from_address(algorithm)
        number = C.c_double if facts["compute"] == blas.IN64 else C.c_float
        scale, adds = number.from_address(alpha).value, number.from_address(beta).value
        if status or chosen[4] != product or room_size < 4096 or stream != self.driver.handle:
            raise EmulationError(f"cublasLt: a product that does not fit its algorithm: status {status}. Ask for an algorithm first.")
        self.driver.memory.span("cublasLt: workspace", room, room_size)
        for place, promised, x in zip((a, b, c, d), chosen[:4], described, strict=True):
            if place % promised or place % x["dtype"].itemsize:
                raise EmulationError(
                    f"cublasLt: an operand at a worse place than promised: {place:#x}, no multiple of {promised}. Promise less."
                )
        end = KNOWN[facts[blas.END]]
        self.log.append(end)
        self.driver.enqueue(partial(self.compute, facts, described, (a, b, c, d), (scale, adds), end))
        return 0

    def compute(self, facts: Any, described: Any, places: Any, scales: Any, end: str) -> None:
        (a, b, c, d), wide = described, float64
        scale, adds = scales
        for n in range(d.get(blas.COUNT, 1)):
            left, right = [self.read(x, p, n, facts["compute"]) for x, p in zip((a, b), places[:2], strict=True)]
            left, right = left.T if facts[blas.TURN_A] else left, right.T if facts[blas.TURN_B] else right
            y = scale * (left @ right)
            if adds:
                y = y + adds * self.read(c, places[2], n, blas.IN32)
            if "bias" in end:
                y = y + self.line(facts, d["rows"]).astype(wide)[:, None]
            if "aux" in end:
                aux = np.zeros((facts[blas.AUX_LD], d["columns"]), d["dtype"], "F")
                aux[: d["rows"]] = y
                self.driver.memory.write(facts[blas.AUX], aux.reshape(-1, order="F").view(np.uint8))
            if "gelu" in end:
                y = 0.5 * y * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (y + 0.044715 * y**3)))
            self.write(d, places[3], n, y)
        if end == "sums":
            sums = right.sum(0).astype(DTYPES[facts[blas.BIAS_TYPE]])
            self.driver.memory.write(facts[blas.BIAS], sums.view(np.uint8))

    def line(self, facts: Any, size: int) -> np.ndarray:
        dtype = DTYPES[facts[blas.BIAS_TYPE]]
        return self.numbers(facts[blas.BIAS], size, dtype)

    def numbers(self, place: int, size: int, dtype: np.dtype) -> np.ndarray:
        memory, nbytes = self.driver.memory, size * dtype.itemsize
        memory.span("cublasLt", place, nbytes)
        if not memory.is_written(place, nbytes):
            raise EmulationError(f"cublasLt: memory that nobody has written: {nbytes} bytes at {place:#x}. Look at what should have.")
        return memory.read(place, nbytes).view(dtype)  # type: ignore[no-any-return]

    def read(self, x: Any, place: int, n: int, compute: int) -> np.ndarray:
        """Matrix n of a stack, in float64; of operands in TF32 ten bits count."""
        dtype, size = x["dtype"], x["leading"] * (x["columns"] - 1) + x["rows"]
        found = self.numbers(place + n * x.get(blas.APART, 0) * dtype.itemsize, size, dtype)
        if compute == blas.TF32:
            found = ((found.view(np.uint32) + 0x1000) & 0xFFFFE000).view(float32)
        found = np.concatenate([found, np.zeros(x["leading"] * x["columns"] - size, dtype)])
        return found.astype(float64).reshape(x["leading"], x["columns"], order="F")[: x["rows"]]

    def write(self, d: Any, place: int, n: int, y: np.ndarray) -> None:
        if d["leading"] != d["rows"]:
            raise EmulationError(f"cublasLt: a result with gaps: {d['leading']} for {d['rows']} rows. Make it whole.")
        at = place + n * d.get(blas.APART, 0) * d["dtype"].itemsize
        self.driver.memory.write(at, np.ascontiguousarray(y.astype(d["dtype"]).T).reshape(-1).view(np.uint8))


def turned(x: Any, turn: int) -> tuple[int, int]:
    return (x["columns"], x["rows"]) if turn else (x["rows"], x["columns"])
