"""NVIDIA's library of matrix products, cuBLASLt, through ctypes: bias, GELU, sums and bias gradients end a product in the same launch.

Where the library is, it makes every product; else products.py does. A Problem is what the library has to know but for addresses; its
algorithm is one of eight that the library proposes, timed once on a GPU and remembered on disk, so that the next run takes the same.
Matrices are row by row here, column by column there: the library is asked for y.T = op(b).T @ op(a).T. Partial sums are added in float32
(float64), in an order that the algorithm fixes.
"""

from __future__ import annotations

import ctypes as C
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ....core.errors import DeviceError
from ....dtypes import bfloat16, float16, float32, float64
from ... import precision
from ..runtime import build
from ..runtime.chain import HostCall

NUMBERS = {float32: 0, float64: 1, float16: 2, bfloat16: 14}  # cudaDataType
IN32, IN64, TF32 = 68, 70, 77  # cublasComputeType
LEVELS = {"highest": IN32, "high": TF32, "medium": TF32}
ENDS = {"": 1, "bias": 4, "gelu": 32, "gelu_bias": 36, "gelu_aux": 160, "gelu_aux_bias": 164, "sums": 512}  # "sums": of a's columns
TURN_A, TURN_B, END, BIAS, AUX, AUX_LD, BIAS_TYPE = 3, 4, 7, 8, 11, 12, 26  # attributes of a product
COUNT, APART = 5, 6  # of a matrix: how many there are, how far apart
ROOM, SCHEMES, FIRST_ALIGNMENT = 1, 3, 5  # of what is wanted: bytes of workspace, how parts are added, alignment of each operand
IN_COMPUTE_TYPE = 2  # parts are added in the type of sums
UNSUPPORTED = (7, 15)
WORKSPACE = 32 << 20
PROPOSALS = 8
ALIGNED = 256
WORTH = 1 << 27  # multiplications from which proposals are timed


class Problem(NamedTuple):
    """y (m, n) = op(a) @ op(b) [+ c], `matrices` times, and how it ends."""

    m: int
    n: int
    k: int
    ta: bool
    tb: bool
    dtype: np.dtype  # of a and b
    out: np.dtype  # of y and c
    end: str = ""
    bias: np.dtype | None = None  # the bias's dtype, or that of the sums
    adds: bool = False
    matrices: int = 1
    a_step: int = 0
    b_step: int = 0


class Proposal(C.Structure):
    """What the library proposes."""

    _fields_ = (("algorithm", C.c_uint64 * 8), ("workspace", C.c_size_t), ("state", C.c_int), ("waves", C.c_float), ("more", C.c_int * 4))


def checked(status: int, what: str) -> None:
    if status:
        raise DeviceError(f"cuda: {what} failed: status {status} of cuBLASLt. Report it; without nvidia-cublas, own kernels multiply.")


class Blas(build.Chooser):
    """The library on one GPU. `lib` has its functions; the driver gives memory and says which stream. Choices: which proposal."""

    kind = int

    def __init__(self, lib: Any, driver: Any, path: str = ""):
        self.lib, self.driver, self.path = lib, driver, path
        handle = C.c_void_p()
        checked(lib.cublasLtCreate(C.byref(handle)), "opening cuBLASLt")
        self.handle = handle.value
        self.version = lib.cublasLtGetVersion()
        self.room = 0  # the workspace's address
        self.calls: dict[Problem, tuple[Product, Any]] = {}
        self.lock = threading.Lock()
        self.file = build.cache_folder() / f"products-{driver.name}-{self.version}.json".replace(" ", "_")

    def workspace(self) -> int:
        if not self.room:
            self.room = self.driver.allocate(WORKSPACE, last=True)
        return self.room

    def product(self, problem: Problem) -> Any:
        """What enqueues it, called with outs (y, aux or sums), ins (a, b, bias, c) and where a, b and y begin; None
        where the library cannot do it."""
        if problem not in self.calls:
            found = Product(self, problem)
            self.calls[problem] = found, HostCall(found)
        found, call = self.calls[problem]
        return call if found.plan((16,) * 4) is not None else None


class Product:
    """One problem, for whatever addresses."""

    def __init__(self, blas: Blas, problem: Problem):
        self.blas, self.problem = blas, problem
        self.plans: dict[Any, Plan | None] = {}
        self.bytes = problem.dtype.itemsize, problem.dtype.itemsize, problem.out.itemsize

    def plan(self, alignment: tuple[int, ...]) -> Plan | None:
        dtype = self.problem.dtype
        compute = LEVELS[precision.level()] if dtype == float32 else IN64 if dtype == float64 else IN32
        try:
            return self.plans[compute, alignment]
        except KeyError:
            found = self.plans[compute, alignment] = planned(self.blas, self.problem, compute, alignment)
            return found

    def __call__(self, outs: Sequence[Any], ins: Sequence[Any], consts: Sequence[int]) -> None:
        (y, other), (a, b, bias, c) = outs, ins
        wide, narrow, out = self.bytes
        left, right, to = a.data + consts[0] * wide, b.data + consts[1] * narrow, y.data + consts[2] * out
        plus = to if c is None else c.data + consts[2] * out
        found = self.plan(tuple([(p | ALIGNED) & -(p | ALIGNED) for p in (right, left, plus, to)]))
        if found is None:
            raise DeviceError(f"matmul: cuBLASLt has no algorithm for operands at these addresses: {left:#x}, {right:#x}. Copy them.")
        found(left, right, plus, to, 0 if bias is None else bias.data, 0 if other is None else other.data)


def planned(blas: Blas, problem: Problem, compute: int, alignment: tuple[int, ...]) -> Plan | None:
    """The library's proposals, or None if it has none."""
    lib, p, number = blas.lib, problem, NUMBERS[problem.dtype]
    product = made(lib.cublasLtMatmulDescCreate, C.c_int(compute), C.c_int(1 if compute == IN64 else 0))
    attributes: list[tuple[int, Any]] = [(TURN_A, C.c_int32(p.tb)), (TURN_B, C.c_int32(p.ta)), (END, C.c_uint32(ENDS[p.end]))]
    if p.bias is not None:
        attributes += [(BIAS_TYPE, C.c_int32(NUMBERS[p.bias])), (BIAS, C.c_uint64(blas.workspace()))]  # some place, until it is known
    if "aux" in p.end:
        attributes += [(AUX_LD, C.c_int64(p.n)), (AUX, C.c_uint64(blas.workspace()))]
    for name, value in attributes:
        checked(lib.cublasLtMatmulDescSetAttribute(product, C.c_int(name), C.byref(value), C.c_size_t(C.sizeof(value))), "a product")
    right = matrix(lib, number, (p.k, p.n) if p.tb else (p.n, p.k), p.matrices, p.b_step)
    left = matrix(lib, number, (p.m, p.k) if p.ta else (p.k, p.m), p.matrices, p.a_step)
    result = matrix(lib, NUMBERS[p.out], (p.n, p.m), p.matrices, p.m * p.n)
    wanted = made(lib.cublasLtMatmulPreferenceCreate)
    wishes: list[tuple[int, Any]] = [(ROOM, C.c_uint64(WORKSPACE)), (SCHEMES, C.c_uint32(IN_COMPUTE_TYPE))]
    wishes += [(FIRST_ALIGNMENT + n, C.c_uint32(v)) for n, v in enumerate(alignment)]
    for name, value in wishes:
        status = lib.cublasLtMatmulPreferenceSetAttribute(wanted, C.c_int(name), C.byref(value), C.c_size_t(C.sizeof(value)))
        checked(status, "a product's wishes")
    proposals, count = (Proposal * PROPOSALS)(), C.c_int()
    status = lib.cublasLtMatmulAlgoGetHeuristic(
        C.c_void_p(blas.handle), product, right, left, result, result, wanted, C.c_int(PROPOSALS), proposals, C.byref(count)
    )
    if status not in UNSUPPORTED:
        checked(status, "looking for a product's algorithm")
    usable = [proposal for proposal in proposals[: count.value] if proposal.state == 0]
    return Plan(blas, problem, (product, left, right, result), usable, compute) if usable and not status else None


def made(create: Any, *arguments: Any) -> Any:
    handle = C.c_void_p()
    checked(create(C.byref(handle), *arguments), "describing a product")
    return handle


def matrix(lib: Any, number: int, sizes: tuple[int, int], count: int, apart: int) -> Any:
    """A matrix whose columns, of sizes[0] numbers, lie one after the other."""
    rows, columns = sizes
    found = made(lib.cublasLtMatrixLayoutCreate, C.c_int(number), C.c_uint64(rows), C.c_uint64(columns), C.c_int64(rows))
    for name, value in ((COUNT, C.c_int32(count)), (APART, C.c_int64(apart))) if count > 1 else ():
        checked(lib.cublasLtMatrixLayoutSetAttribute(found, C.c_int(name), C.byref(value), C.c_size_t(C.sizeof(value))), "a stack")
    return found


class Plan:
    """A problem whose algorithm is known."""

    def __init__(self, blas: Blas, problem: Problem, described: Any, proposals: list[Any], compute: int):
        self.blas, self.problem, self.proposals, self.compute = blas, problem, proposals, compute
        self.product, self.left, self.right, self.result = [d.value for d in described]
        number = C.c_double if compute == IN64 else C.c_float
        self.numbers = number(1), number(float(problem.adds))
        self.one, self.adds = [C.addressof(n) for n in self.numbers]
        self.room, self.places = blas.workspace(), (0, 0)
        self.pick(0)
        size = problem.m * problem.n * problem.k * problem.matrices
        self.timed = len(proposals) == 1 or size < WORTH or not hasattr(blas.driver, "timed")

    def pick(self, number: int) -> None:
        self.algorithm = C.addressof(self.proposals[number].algorithm)

    def __call__(self, a: int, b: int, c: int, y: int, bias: int, aux: int) -> None:
        if self.problem.end == "sums":
            bias, aux = aux, 0
        self.blas.driver.enter()
        with self.blas.lock:  # addresses of bias and aux are part of what the library keeps
            if (bias, aux) != self.places:
                self.place(bias, aux)
            if not self.timed and not self.blas.driver.capturing:
                self.tune(a, b, c, y)
            checked(self.enqueue(a, b, c, y), "a product")

    def enqueue(self, a: int, b: int, c: int, y: int) -> int:
        blas = self.blas
        return blas.lib.cublasLtMatmul(  # type: ignore[no-any-return]
            blas.handle, self.product, self.one, b, self.right, a, self.left, self.adds, c, self.result, y, self.result, self.algorithm,
            self.room, WORKSPACE, blas.driver.handle,
        )  # fmt: skip

    def place(self, bias: int, aux: int) -> None:
        self.places = bias, aux
        for name, address in ((BIAS, bias), (AUX, aux)):
            if address:
                value, product = C.c_uint64(address), C.c_void_p(self.product)
                checked(self.blas.lib.cublasLtMatmulDescSetAttribute(product, C.c_int(name), C.byref(value), C.c_size_t(8)), "a product")

    def tune(self, a: int, b: int, c: int, y: int) -> None:
        """Take the fastest proposal: the one found earlier, or by timing each."""
        self.timed = True
        key, driver = f"{self.problem}, {self.compute}", self.blas.driver
        known = self.blas.choices().get(key, -1)
        if 0 <= known < len(self.proposals):
            self.pick(known)
            return
        p, aside = self.problem, None
        if p.adds and c == y:  # what is there may be added to once only
            aside = driver.allocate(p.matrices * p.m * p.n * p.out.itemsize)
            if aside is None:
                return
        best = (float("inf"), 0)
        for number in range(len(self.proposals)):
            self.pick(number)
            if not self.enqueue(a, b, c, aside or y):
                best = min(best, (driver.timed(lambda: self.enqueue(a, b, c, aside or y)), number))
        self.pick(best[1])
        self.blas.choose(key, best[1])
        if aside is not None:
            driver.free(aside)


def opened(driver: Any) -> Blas | None:
    """The library for this GPU, wherever cuda.pathfinder finds it; None if it isn't there."""
    try:
        from cuda import pathfinder

        path = pathfinder.load_nvidia_dynamic_lib("cublasLt").abs_path
    except (ImportError, RuntimeError):
        return None
    lib = C.CDLL(path)
    lib.cublasLtGetVersion.restype = C.c_size_t
    lib.cublasLtMatmul.argtypes = [C.c_void_p] * 14 + [C.c_size_t, C.c_void_p]
    return Blas(lib, driver, path)


def finding(blas: Blas | None) -> tuple[str, str, str]:
    """What `flamepy doctor` says of it."""
    if blas is None:
        return "products", "by flamepy's own kernels, as cuBLASLt is not installed", "pip install nvidia-cublas"
    return "products", f"by cuBLASLt {blas.version} ({blas.path})", ""
