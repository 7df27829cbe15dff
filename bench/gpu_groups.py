"""The first minutes of the wgmma kernels on an H100: right? the same bits each time? how fast beside mma.sync's?

    python -m bench.gpu_groups [--small]

Steps are in the order in which a wrong one explains those after it; one that is wrong says where, and the next goes on. `--small`: no
timings, few repeats, for the emulator (FLAMEPY_CUDA=emulator). What each step means: NOTES.md, "Warp groups: what each step".
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import flamepy as fp
from flamepy.backend.cuda.attention import warp_groups
from flamepy.backend.cuda.products import matmul
from flamepy.dtypes import bfloat16, float16, float32
from flamepy.ops.attention import apart as layout_of

SMALL = "--small" in sys.argv
REPEATS = 2 if SMALL else 50
LAYOUTS = (False, True), (False, False), (True, True), (True, False)  # (ta, tb): k lies together in both, in a alone, in b alone, in none
SIDES, HEADS = (4096, 8192), (4, 16, 4096)  # of what is timed: matrices; batch, heads, rows
WORK = 0.004, 0.03  # what a largest difference may be of the largest number: products of one factor of 16 bits, attention


def up(gpu: Any, x: np.ndarray | None) -> Any:
    return None if x is None else gpu.slot(gpu.upload(np.ascontiguousarray(x).reshape(-1)), 0, x.size, x.dtype)


def launch(gpu: Any, name: str, outs: Any, ins: Any, consts: Any) -> list[Any]:
    """What the outs, each (size, dtype) or None, hold afterwards: 7 where nothing was written."""
    made = [None if o is None else up(gpu, np.full(o[0], 7, np.float32).astype(o[1])) for o in outs]
    gpu.launch(name, None, made, [up(gpu, x) for x in ins], consts, float32)
    return [None if b is None else np.array(gpu.download(b)) for b in made]


def draw(sizes: tuple[int, ...]) -> list[np.ndarray]:
    """q, k, v and the gradient of y."""
    random, (batch, heads, rows, keys, d, e) = np.random.default_rng([*sizes]), sizes
    found = [random.standard_normal((batch, heads, *s), np.float32) for s in ((rows, d), (keys, d), (keys, e), (rows, e))]
    return [x.astype(bfloat16) for x in found[:3]] + [found[3]]


def exact(given: list[np.ndarray], scale: float, is_causal: bool) -> list[np.ndarray]:
    """y and the gradients of q, k and v in float64."""
    q, k, v, g = (x.astype(np.float64) for x in given)
    s = scale * q @ k.swapaxes(2, 3)
    s = np.where(np.tril(np.ones(s.shape[2:])) > 0, s, -np.inf) if is_causal else s
    p = np.exp(s - s.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    y, dp = p @ v, g @ v.swapaxes(2, 3)
    ds = p * (dp - (g * y).sum(-1, keepdims=True))
    return [y, scale * ds @ k, scale * ds.swapaxes(2, 3) @ q, p.swapaxes(2, 3) @ g]


def run(gpu: Any, given: list[np.ndarray], scale: float, is_causal: bool) -> list[np.ndarray]:
    """The same by the GPU."""
    q, k, v, g = given
    layout, sizes = layout_of(q.shape, v.shape, None)
    consts = layout, sizes, np.float32(scale), is_causal
    y, kept = launch(gpu, "attention", [(g.size, bfloat16), (2 * g.size // g.shape[3], float32)], [q, k, v, None], consts)
    outs = [*[(x.size, float32) for x in (q, k, v)], None]
    return [y, *launch(gpu, "attention_dx", outs, [g, y, kept, q, k, v, None], consts)[:3]]


def product(gpu: Any, a: np.ndarray, b: np.ndarray, sizes: tuple[int, int, int], ta: bool, tb: bool) -> np.ndarray:
    m, n, k = sizes
    return launch(gpu, "matmul", ((m * n, float32),), (a, b), ((0,), (0,), m, n, k, ta, tb))[0].reshape(m, n)


def apart(name: str, found: Any, right: Any, least: float) -> None:
    """Print how far a result is off, and where it begins to be."""
    found, right = (np.asarray(x, np.float64).reshape(np.shape(right)) for x in (found, right))
    off = np.abs(found - right) / max(1e-30, np.abs(right).max())
    wrong = ~(off <= least)
    where = f"  first at {tuple(int(i) for i in np.argwhere(wrong)[0])}, {wrong.mean():.1%} of all" if wrong.any() else ""
    print(f"{'WRONG' if where else 'right'}  {name}: {np.nanmax(off):.2g}{where}", flush=True)


def products(gpu: Any, random: np.random.Generator) -> None:
    for sizes in ((128, 128, 16), (128, 128, 64), (128, 128, 192), (200, 136, 328)):
        m, n, k = sizes
        for ta, tb in LAYOUTS:
            for dtype in (bfloat16, float16):
                a, b = random.standard_normal((m, k)).astype(dtype), random.standard_normal((k, n)).astype(dtype)
                found = product(gpu, a.T if ta else a, b.T if tb else b, sizes, ta, tb)
                apart(f"product {sizes} {ta=} {tb=} {dtype}", found, a.astype(np.float64) @ b.astype(np.float64), WORK[0])


def attention(gpu: Any) -> None:
    for keys in (128, 64):
        warp_groups.KEYS = keys
        for sizes, is_causal in (
            ((1, 1, 128, 64, 64, 64), False), ((1, 1, 128, 128, 64, 64), False), ((1, 1, 128, 320, 64, 64), False),
            ((1, 2, 150, 300, 64, 64), True), ((1, 1, 300, 150, 48, 64), True), ((1, 1, 128, 320, 128, 128), False),
            ((1, 1, 300, 300, 128, 120), True),
        ):  # fmt: skip
            arrays = draw(sizes)
            found, right = run(gpu, arrays, 0.3, is_causal), exact(arrays, 0.3, is_causal)
            for name, mine, theirs in zip(("y", "dq", "dk", "dv"), found, right, strict=True):
                apart(f"attention {sizes} causal={is_causal} keys={keys} {name}", mine, theirs, WORK[1])
    warp_groups.KEYS = 128


def steady(gpu: Any) -> None:
    """The same bits each time: what misses a fence or a barrier does not give them."""
    random, n = np.random.default_rng(1), 128 if SMALL else 2048
    a, b = (random.standard_normal((n, n)).astype(bfloat16) for _ in "ab")
    heads = (1, 1, 128, 192, 64, 64) if SMALL else (4, 16, 2048, 2048, 64, 64)
    x = draw(heads)
    for name, call in (
        ("product", lambda: [product(gpu, a, b, (n, n, n), False, False)]),
        ("attention", lambda: run(gpu, x, 0.1, True)),
    ):
        first = [r.tobytes() for r in call()]
        same = sum([r.tobytes() for r in call()] == first for _ in range(REPEATS))
        print(f"{'right' if same == REPEATS else 'WRONG'}  {name}: the same bits {same} times of {REPEATS}", flush=True)


def timed(gpu: Any, name: str, outs: list[Any], ins: list[Any], consts: Any, flops: float) -> Iterator[tuple[bool, float]]:
    """(by wgmma?, TFLOP/s), in turns."""
    made = [None if o is None else up(gpu, np.zeros(o[0], o[1])) for o in outs]
    given = [up(gpu, x) for x in ins]
    for wgmma in (False, True) * 3:
        gpu.driver.wgmma = wgmma
        call: Callable[[], None] = lambda: gpu.launch(name, None, made, given, consts, float32)
        call()
        yield wgmma, flops / gpu.driver.timed(call) / 1e9


def speed(gpu: Any) -> None:
    random = np.random.default_rng(2)
    cases: list[tuple[str, str, list[Any], list[Any], Any, float]] = []
    for n in SIDES:
        for ta, tb in LAYOUTS:
            ins = [random.standard_normal((n, n)).astype(bfloat16) for _ in "ab"]
            cases.append((f"product {n} {ta=} {tb=}", "matmul", [(n * n, bfloat16)], ins, ((0,), (0,), n, n, n, ta, tb), 2.0 * n**3))
    for width, causal in ((64, False), (64, True), (128, False), (128, True)):
        b, h, t = HEADS
        q, k, v, g = draw((b, h, t, t, width, width))
        layout, sizes = layout_of(q.shape, v.shape, None)
        consts, one = (layout, sizes, np.float32(width**-0.5), causal), t * width
        outs: list[Any] = [(q.size, bfloat16), (2 * b * h * t, float32)]
        flops = 4.0 * b * h * t * one / (1 + causal)
        cases.append((f"attention {width} {causal=}", "attention", outs, [q, k, v, None], consts, flops))
        y, kept = launch(gpu, "attention", outs, [q, k, v, None], consts)
        cases.append((
            f"attention's gradients {width} {causal=}", "attention_dx", [*[(q.size, float32)] * 3, None], [g, y, kept, q, k, v, None],
            consts, 2.5 * flops,
        ))  # fmt: skip
    for name, *case in cases:
        best = {True: 0.0, False: 0.0}
        for wgmma, rate in timed(gpu, *case):
            best[wgmma] = max(best[wgmma], rate)
        print(f"{name}: mma.sync {best[False]:.0f}, wgmma {best[True]:.0f} TFLOP/s", flush=True)


def main() -> None:
    try:
        gpu: Any = fp.device("cuda")
    except fp.FlameError as problem:
        sys.exit(f"bench.gpu_groups: {problem}")
    gpu.driver.cc, gpu.driver.wgmma, gpu.driver.blas, gpu.driver.cudnn, matmul.BUSY = (9, 0), True, None, None, 1
    products(gpu, np.random.default_rng(0))
    attention(gpu)
    steady(gpu)
    if not SMALL:
        speed(gpu)


if __name__ == "__main__":
    main()
