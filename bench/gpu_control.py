"""The ceilings of an NVIDIA GPU: the bandwidth of the driver's copy, the rates of large products; measured beside works of suite `gpu`.

copy@BYTES     BYTES are read and written together
bf16, tf32, float32     square products by what flamepy multiplies with: cuBLASLt where it is there
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .work import Job, Work, near

OURS = "flamepy"
AGAINST: tuple[str, ...] = ()
DEFAULT = AGAINST
ALONE = False
TOLERANCE = 1e-2
FULL = 2 << 30  # bytes of a copy, read and written
LEAST = 64 << 20
CALLS = 10  # of one timed call: waiting for the GPU must not count
SIDES = {"bf16": 8192, "tf32": 4096, "float32": 4096}


def copy_work(name: str) -> Work:
    """`copy@BYTES`, which one timed call does CALLS times; a small one would stay in the GPU's cache."""
    size = max(LEAST, int(name.partition("@")[2] or FULL))
    return Work(f"copy@{size}", 0, size * CALLS)


WORKS = {"copy": copy_work("copy"), **{name: Work(name, 2.0 * n**3 * CALLS) for name, n in SIDES.items()}}


def build(contender: str, work: str, mode: str) -> Job:
    import flamepy as fp

    gpu: Any = fp.device("cuda")
    if work.startswith("copy"):
        nbytes = int(copy_work(work).name.partition("@")[2]) // 2
        x, y = fp.ones(nbytes // 4, device="cuda"), fp.zeros(nbytes // 4, device="cuda")

        def copies() -> Any:
            for _ in range(CALLS):
                gpu.driver.copy(y.buffer.data, x.buffer.data, nbytes)
            gpu.synchronize()
            return y

        return Job(copies, lambda y: [y[:4].numpy()])
    fp.set_float32_matmul_precision("high" if work == "tf32" else "highest")
    n = SIDES[work]
    a, b = (fp.randn((n, n), device="cuda").to("bfloat16" if work == "bf16" else "float32") for _ in range(2))

    def products() -> Any:
        with fp.no_grad():
            for _ in range(CALLS):
                c = a @ b
        gpu.synchronize()
        return c

    return Job(products, lambda c: [c[:2, :2].to("float32").numpy()])


def verify(work: str, outputs: list[Any]) -> None:
    if work.startswith("copy"):
        near(work, outputs[0], np.ones(4), 0)
