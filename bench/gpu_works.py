"""The kernels and products of suite `gpu`: inputs, the call in flamepy and in PyTorch, how many bytes or multiplications, what is right.

Inputs are BLOCK rows of random numbers again and again, so that the first and the last rows of a result are known from a few.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

TOLERANCES = {"float32": 1e-5, "bfloat16": 1e-2, "tf32": 2e-3}
BLOCK = 64  # rows that repeat, of which every result is made: the oracle computes these
Call = Callable[["Sides", Any], Any]


class Sides:
    """flamepy or PyTorch on the GPU, or flamepy's plain device (`contender` "oracle"), with the same words."""

    def __init__(self, contender: str):
        self.lib: Any
        self.F: Any
        self.ours, self.oracle = not contender.startswith("torch"), contender == "oracle"
        if self.ours:
            import flamepy as fp
            import flamepy.nn.functional as F

            self.lib, self.F, self.device = fp, F, "plain" if self.oracle else "cuda"
        else:
            import torch

            if not torch.cuda.is_available():
                raise RuntimeError(f"PyTorch {torch.__version__} sees no GPU. Install its build for CUDA, or use --against none.")
            self.lib, self.F, self.device = torch, torch.nn.functional, "cuda"

    def put(self, array: np.ndarray, dtype: str = "float32", tracked: bool = False) -> Any:
        if self.oracle:
            return self.lib.tensor(rounded(array, dtype).astype(np.float64), device="plain", requires_grad=tracked)
        if self.ours:
            return self.lib.tensor(array, device="cuda").to(dtype).requires_grad_(tracked)
        found = self.lib.from_numpy(array).to("cuda")
        return (found.to(getattr(self.lib, dtype)) if dtype != "float32" else found).requires_grad_(tracked)

    def ids(self, array: np.ndarray) -> Any:
        return self.lib.tensor(array, device=self.device)

    def choose(self, own: bool, groups: bool) -> None:
        """Which of flamepy's kernels multiply from here on: cuBLASLt's or its `own`; of these, on sm_90, those by warp groups."""
        if self.ours and not self.oracle:
            from flamepy.engine.plan import every

            driver = self.lib.device("cuda").driver
            driver.wgmma = groups
            driver.__dict__.pop("blas", None)  # it is looked for again
            if own:
                driver.blas = None
            for plans in every():  # they hold the kernels that were chosen
                for calls in plans.calls:
                    calls.clear()

    def wait(self) -> None:
        if self.ours:
            self.lib.device("cuda").synchronize()
        else:
            self.lib.cuda.synchronize()

    def forget(self) -> None:
        """Give kept memory back, and count from here."""
        if self.ours:
            gpu = self.lib.device("cuda")
            gpu.synchronize()
            gpu.trim()
            gpu.allocator.peak = gpu.allocator.current
        else:
            self.lib.cuda.empty_cache()
            self.lib.cuda.reset_peak_memory_stats()

    def peak_mb(self) -> float:
        if self.ours:
            return float(self.lib.device("cuda").memory()["peak"]) / 1e6
        return float(self.lib.cuda.max_memory_allocated()) / 1e6

    def host(self, x: Any) -> np.ndarray:
        x = x.detach()
        if self.ours:
            return np.asarray(x.numpy(), np.float64)
        return x.double().cpu().numpy()  # type: ignore[no-any-return]

    def backward(self, y: Any, xs: list[Any], g: Any) -> list[Any]:
        if self.ours:
            grads = y.backward(g, retain_graph=True)
            return [grads[x] for x in xs]
        return list(self.lib.autograd.grad(y, xs, g, retain_graph=True))


def rounded(array: np.ndarray, dtype: str) -> np.ndarray:
    import flamepy as fp

    return array.astype(fp.bfloat16) if dtype == "bfloat16" else array


# ---- kernels ----------------------------------------------------------------------------------------------------------------------
class Kernel(NamedTuple):
    """`call(sides, x)` on rows x columns; `backward`: its backward alone. `moved`: bytes of a number of x, at least."""

    name: str
    rows: int
    columns: int
    call: Call
    moved: int
    dtype: str = "float32"
    backward: bool = False
    apart: bool = True  # rows of the result belong to rows of x

    @property
    def nbytes(self) -> int:
        return self.moved * self.rows * self.columns

    @property
    def tolerance(self) -> float:
        return TOLERANCES[self.dtype]

    def x(self, rows: int) -> np.ndarray:
        return np.tile(block(self.columns, 0), (rows // BLOCK, 1))

    def prepare(self, sides: Sides, rows: int = 0) -> Callable[[], Any]:
        rows = rows or self.rows
        x = sides.put(self.x(rows), self.dtype, tracked=self.backward)
        if not self.backward:
            return lambda: self.call(sides, x)
        y = self.call(sides, x)
        g = np.tile(block(self.columns, 1), (rows // BLOCK, 1)) if self.apart else np.ones((), np.float32)
        g = sides.put(g, self.dtype).to(y.dtype)
        return lambda: sides.backward(y, [x], g)[0]

    def shown(self, sides: Sides, y: Any) -> list[np.ndarray]:
        """The first and the last rows."""
        if not len(y.shape):
            return [sides.host(y)]
        return [sides.host(y[:8]), sides.host(y[-8:])]

    def expected(self) -> list[np.ndarray]:
        sides = Sides("oracle")
        y = sides.host(self.prepare(sides, BLOCK)())
        if not len(y.shape):  # a mean: the same for any number of equal blocks
            return [y]
        y = y if self.apart else y * (BLOCK / self.rows)  # the gradient of a mean is shared by all
        return [y[:8], y[-8:]]


@cache
def block(columns: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((BLOCK, columns), np.float32)


def plus(s: Sides, x: Any) -> Any:
    return x + x


def gelu(s: Sides, x: Any) -> Any:
    return s.F.gelu(x, approximate="tanh")


def softmax(s: Sides, x: Any) -> Any:
    return s.F.softmax(x, -1)


def layer_norm(s: Sides, x: Any) -> Any:
    return s.F.layer_norm(x, (x.shape[-1],))


def rms_norm(s: Sides, x: Any) -> Any:
    return s.F.rms_norm(x, (x.shape[-1],)) if s.ours else s.F.rms_norm(x, (x.shape[-1],), eps=1e-5)


def cross_entropy(s: Sides, x: Any) -> Any:
    return s.F.cross_entropy(x, targets(s, x.shape[0], x.shape[1]))


@cache
def targets(s: Sides, rows: int, classes: int) -> Any:
    return s.ids(np.tile(np.random.default_rng(2).integers(0, classes, BLOCK), rows // BLOCK))


def mean(s: Sides, x: Any) -> Any:
    return x.mean()


M = 1 << 20
ROWS = M // 8
KERNELS = {
    kernel.name: kernel
    for kernel in (
        Kernel("add@128M", ROWS, 1024, plus, 8),
        Kernel("gelu@128M", ROWS, 1024, gelu, 8),
        Kernel("gelu-bf16@256M", 2 * ROWS, 1024, gelu, 4, "bfloat16"),
        Kernel("gelu-dx@128M", ROWS, 1024, gelu, 12, backward=True),
        Kernel("softmax@4096x1024", 4096, 1024, softmax, 8),
        Kernel("softmax@131072x1024", ROWS, 1024, softmax, 8),
        Kernel("softmax-dx@131072x1024", ROWS, 1024, softmax, 12, backward=True),
        Kernel("layer_norm@131072x1024", ROWS, 1024, layer_norm, 8),
        Kernel("layer_norm-bf16@262144x768", 2 * ROWS, 768, layer_norm, 4, "bfloat16"),
        Kernel("layer_norm-dx@131072x1024", ROWS, 1024, layer_norm, 12, backward=True),
        Kernel("rms_norm@131072x1024", ROWS, 1024, rms_norm, 8),
        Kernel("cross_entropy-bf16@16384x50304", 16384, 50304, cross_entropy, 2, "bfloat16", apart=False),
        # The gradient of a leaf is float32; below a layer in bfloat16, which rounds it, it is bfloat16 as in PyTorch: see gpt2-124m.
        Kernel("cross_entropy-dx-bf16@16384x50304", 16384, 50304, cross_entropy, 6, "bfloat16", backward=True, apart=False),
        Kernel("mean@256M", 2 * ROWS, 1024, mean, 4, apart=False),
    )
}


# ---- products ---------------------------------------------------------------------------------------------------------------------
class Product(NamedTuple):
    """a (m, k) times b (k, n), which with `tb` is stored (n, k)."""

    name: str
    m: int
    k: int
    n: int
    tb: bool = False
    dtype: str = "bfloat16"
    ceiling: str = "bf16"

    @property
    def flops(self) -> float:
        return 2.0 * self.m * self.k * self.n

    @property
    def tolerance(self) -> float:
        return TOLERANCES["tf32" if self.ceiling == "tf32" else self.dtype]

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        random = np.random.default_rng(6)
        a = random.standard_normal((self.m, self.k), np.float32)
        return a, random.standard_normal((self.n, self.k) if self.tb else (self.k, self.n), np.float32)

    def prepare(self, sides: Sides) -> Callable[[], Any]:
        a, b = (sides.put(x, self.dtype) for x in self.arrays())
        sides.lib.set_float32_matmul_precision("high" if self.ceiling == "tf32" else "highest")
        return (lambda: sides.F.linear(a, b)) if self.tb else (lambda: a @ b)

    def shown(self, sides: Sides, y: Any) -> list[np.ndarray]:
        return [sides.host(y[:8])]

    def expected(self) -> list[np.ndarray]:
        a, b = (rounded(x, self.dtype).astype(np.float32) for x in self.arrays())
        return [np.asarray(a[:8].astype(np.float64) @ (b.T if self.tb else b).astype(np.float64))]


TOKENS, WIDTH = 16384, 768
PRODUCTS = {
    product.name: product
    for product in (
        Product("qkv-bf16@16384x768x2304", TOKENS, WIDTH, 3 * WIDTH, tb=True),
        Product("up-bf16@16384x768x3072", TOKENS, WIDTH, 4 * WIDTH, tb=True),
        Product("down-bf16@16384x3072x768", TOKENS, 4 * WIDTH, WIDTH, tb=True),
        Product("head-bf16@16384x768x50304", TOKENS, WIDTH, 50304, tb=True),
        Product("up-dx-bf16@16384x3072x768", TOKENS, 4 * WIDTH, WIDTH),
        Product("square-bf16@8192", 8192, 8192, 8192),
        Product("square-own-bf16@8192", 8192, 8192, 8192),
        Product("square-own-groups-bf16@8192", 8192, 8192, 8192),
        Product("up-own-bf16@16384x768x3072", TOKENS, WIDTH, 4 * WIDTH, tb=True),
        Product("up-own-groups-bf16@16384x768x3072", TOKENS, WIDTH, 4 * WIDTH, tb=True),
        Product("square-tf32@4096", 4096, 4096, 4096, dtype="float32", ceiling="tf32"),
        Product("square-float32@4096", 4096, 4096, 4096, dtype="float32", ceiling="float32"),
    )
}
