"""Every kernel by size, forward and backward: a formula that four libraries run, see libraries.py.

    gelu             forward, inputs not tracked, 4096 x 256 float32 (of each family the first size has the plain name)
    gelu-backward    from the tape of one forward pass to the gradients of every float input
    gelu@128x128     another size
    cross-entropy    forward and backward together, as training needs them

`gelu` is the formula with tanh (GPT-2's); `gelu-erf` the exact one. Bytes are what must be moved at least: each input and output
once. Arithmetic of functions such as exp is an estimate; it places a kernel in the roofline picture. PyTorch answers some backward
passes (of add, sum, transpose) with a view: nothing moves, and no ratio means much.

Checked: outputs against NumPy in float64; gradients against numerical derivatives along random directions, then element for element
between contenders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from .libraries import Numpy, library
from .work import Job, Work, near

OURS = "flamepy"
AGAINST = ("torch", "torch-compile", "jax")
DEFAULT = ("torch",)
ALONE = False
TOLERANCE = 1e-4
BACKWARD = "-backward"


class Input(NamedTuple):
    """A float array, normal times `scale`, or with `classes` integer ids below that."""

    shape: tuple[int, ...]
    classes: int = 0
    scale: float = 1.0

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape)) * (8 if self.classes else 4)

    def draw(self, random: np.random.Generator) -> np.ndarray:
        if self.classes:
            return random.integers(0, self.classes, self.shape)
        return random.standard_normal(self.shape, np.float32) * np.float32(self.scale)


class Kernel(NamedTuple):
    """`out`: elements of the result; `flops`: arithmetic of one forward pass; `ways`: forward, backward, both; `read`: bytes read, where
    they are fewer than the inputs have."""

    formula: Callable[..., Any]
    inputs: tuple[Input, ...]
    out: int
    flops: float
    ways: tuple[str, ...] = ("forward", "backward")
    read: int | None = None


# m, k, n of products: layers of GPTs and MLPs, and squares.
SHAPES = (
    (768, 128, 384), (768, 128, 512), (768, 512, 128), (1024, 384, 1152), (1024, 384, 1536), (1024, 1536, 384), (256, 784, 1024),
    (4096, 256, 256), (512, 512, 512), (1024, 1024, 1024), (1536, 1536, 1536), (2048, 2048, 2048),
)  # fmt: skip
SIZES = ((4096, 256), (128, 128), (8192, 1024))
POINTWISE = {"relu": 1, "exp": 12, "tanh": 16, "silu": 15, "gelu": 22, "gelu_erf": 24}  # name -> arithmetic an element, about


def elementwise() -> Iterator[tuple[str, str, Kernel]]:
    """(name, size, kernel) of pointwise, row and reduce kernels."""
    for rows, cols in SIZES:
        n, size = rows * cols, f"{rows}x{cols}"
        x, w, ids = Input((rows, cols)), Input((cols,)), Input((rows,), classes=cols)
        for name, flops in POINTWISE.items():
            yield name, size, Kernel(lambda L, x, name=name: getattr(L, name)(x), (x,), n, flops * n)
        yield "add", size, Kernel(lambda L, x, y: x + y, (x, x), n, n)
        yield "mul", size, Kernel(lambda L, x, y: x * y, (x, x), n, n)
        yield "add-row", size, Kernel(lambda L, x, b: x + b, (x, w), n, n)
        yield "softmax", size, Kernel(lambda L, x: L.softmax(x), (x,), n, 16 * n)
        yield "log-softmax", size, Kernel(lambda L, x: L.log_softmax(x), (x,), n, 16 * n)
        yield "layer-norm", size, Kernel(lambda L, x, w, b: L.layer_norm(x, w, b), (x, w, w), n, 8 * n)
        yield "rms-norm", size, Kernel(lambda L, x, w: L.rms_norm(x, w), (x, w), n, 5 * n)
        yield "cross-entropy", size, Kernel(lambda L, x, ids: L.cross_entropy(x, ids), (x, ids), 1, 30 * n, ("both",))
        yield "sum", size, Kernel(lambda L, x: L.sum(x), (x,), 1, n)
        yield "sum-columns", size, Kernel(lambda L, x: L.sum(x, 0), (x,), cols, n)
        yield "sum-rows", size, Kernel(lambda L, x: L.sum(x, 1), (x,), rows, n)
        yield "max-rows", size, Kernel(lambda L, x: L.max(x, 1), (x,), rows, n)
        yield "transpose", size, Kernel(lambda L, x: L.transposed(x), (x,), n, 0)


def products() -> Iterator[tuple[str, str, Kernel]]:
    """(name, size, kernel) of matrix products, attention, embedding, convolution, pooling."""
    for m, k, n in dict.fromkeys(((1024, 1024, 1024), (256, 256, 256), (64, 64, 64), *SHAPES)):
        ab = (Input((m, k)), Input((k, n)))
        yield "matmul", f"{m}x{k}x{n}", Kernel(lambda L, a, b: a @ b, ab, m * n, 2 * m * k * n)
    for rows, n_in, n_out in dict.fromkeys(((768, 128, 512), (1024, 384, 1536), (256, 32, 128), *SHAPES)):
        xwb = (Input((rows, n_in)), Input((n_out, n_in)), Input((n_out,)))
        yield "linear", f"{rows}x{n_in}x{n_out}", Kernel(lambda L, *xwb: L.linear(*xwb), xwb, rows * n_out, 2 * rows * n_in * n_out)
    for batch, heads, rows, width in ((12, 4, 64, 32), (4, 6, 256, 64), (8, 2, 32, 16), (1, 4, 2048, 64)):
        qkv = (Input((batch, heads, rows, width)),) * 3
        flops = 2 * batch * heads * rows * rows * width  # two products, half of each under the mask
        kernel = Kernel(lambda L, q, k, v: L.attention(q, k, v), qkv, qkv[0].nbytes // 4, flops)
        yield "attention", f"{batch}x{heads}x{rows}x{width}", kernel
    for count, vocabulary, width in ((768, 65, 128), (4096, 50257, 256)):
        ids, w = Input((count,), classes=vocabulary), Input((vocabulary, width))
        out = count * width
        kernel = Kernel(lambda L, ids, w: L.embedding(ids, w), (ids, w), out, 0, read=ids.nbytes + 4 * out)
        yield "embedding", f"{count}x{vocabulary}x{width}", kernel
    for n, c_in, c_out, side in ((64, 32, 64, 8), (16, 64, 64, 32)):
        xwb = (Input((n, c_in, side, side)), Input((c_out, c_in, 3, 3), scale=0.1), Input((c_out,)))
        out = n * c_out * side * side
        yield "conv2d", f"{n}x{c_in}x{c_out}x{side}", Kernel(lambda L, *xwb: L.conv2d(*xwb, padding=1), xwb, out, 18 * out * c_in)
        yield "max-pool", f"{n}x{c_out}x{side}", Kernel(lambda L, x: L.max_pool(x), (Input((n, c_out, side, side)),), out // 4, out)


def table() -> dict[str, tuple[Kernel, str]]:
    """Work name -> (kernel, way)."""
    found: dict[str, tuple[Kernel, str]] = {}
    for name, size, kernel in (*elementwise(), *products()):
        for way in kernel.ways:
            plain = name.replace("_", "-") + (BACKWARD if way == "backward" else "")
            found[f"{plain}@{size}" if plain in found else plain] = (kernel, way)
    return found


KERNELS = table()


def work_of(name: str, kernel: Kernel, way: str) -> Work:
    """The least bytes and the arithmetic: a backward pass reads the inputs and g, writes a gradient for each float input."""
    read, floats = sum(i.nbytes for i in kernel.inputs), sum(i.nbytes for i in kernel.inputs if not i.classes)
    read = read if kernel.read is None else kernel.read
    passes = {"forward": 1, "backward": 2, "both": 1}[way]
    nbytes = {"forward": read + 4 * kernel.out, "backward": read + 4 * kernel.out + floats, "both": read + floats}[way]
    return Work(name, passes * kernel.flops, nbytes)


WORKS = {name: work_of(name, *entry) for name, entry in KERNELS.items()}


@lru_cache(maxsize=2)
def data(name: str) -> tuple[list[np.ndarray], np.ndarray]:
    """Inputs and cotangent: the same in every process."""
    kernel, _ = KERNELS[name]
    random = np.random.default_rng(1)
    xs = [i.draw(random) for i in kernel.inputs]
    shape = np.shape(kernel.formula(Numpy(), *xs))
    return xs, np.asarray(random.standard_normal(shape), np.float32)


def build(contender: str, work: str, mode: str) -> Job:
    kernel, way = KERNELS[work]
    lib = library(contender)
    arrays, g = data(work)
    xs = [lib.place(a, tracked=way != "forward" and a.dtype.kind == "f") for a in arrays]
    if way == "forward":
        return Job(lib.forward(kernel.formula, xs), lambda y: [lib.host(y)])
    return Job(getattr(lib, way)(kernel.formula, xs, g), lambda results: [lib.host(r) for r in results])


def verify(work: str, outputs: list[np.ndarray]) -> None:
    kernel, way = KERNELS[work]
    xs, g = data(work)
    wide = [x.astype(np.float64) if x.dtype.kind == "f" else x for x in xs]
    if way != "backward":
        near(work, outputs[0], kernel.formula(Numpy(), *wide), TOLERANCE)
    if way != "forward":
        check_gradients(kernel.formula, wide, g, outputs[1:] if way == "both" else outputs)


def check_gradients(formula: Callable[..., Any], xs: list[np.ndarray], g: np.ndarray, grads: list[np.ndarray]) -> None:
    """Raise Disagree unless every gradient, times a random direction, is the numerical derivative along it."""
    random, step = np.random.default_rng(2), 1e-7
    floats = [i for i, x in enumerate(xs) if x.dtype.kind == "f"]
    for i, dx in zip(floats, grads, strict=True):
        direction = random.standard_normal(xs[i].shape)
        ends = []
        for sign in (1, -1):
            moved = [x + sign * step * direction if i == j else x for j, x in enumerate(xs)]
            ends.append(np.sum(formula(Numpy(), *moved) * g))
        expected, size = (ends[0] - ends[1]) / (2 * step), float(np.linalg.norm(dx))
        near(f"gradient {i} (along a random direction)", [np.sum(dx * direction), size], [expected, size], TOLERANCE)
