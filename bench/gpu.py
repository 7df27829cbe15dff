"""An NVIDIA GPU: kernels at sizes no cache holds, the products of GPT-2, the end of its step, whole steps; beside PyTorch.

    gelu@128M               forward; -dx: backward alone; sizes are numbers, not bytes
    up-bf16@16384x768x3072  a product of GPT-2 124M: 16 texts of 1024 tokens
    attention@16x12x1024x64 causal, half of its products counted; -dx: backward, -dkdv, -dq: of those inputs alone; conv alike
    add@16, number@16       an eager op, and one whose result the host reads: what the host takes
    adamw@124M              joint norm, clip, AdamW over the parameters of GPT-2
    gpt2-124m, gpt-small    training steps: bfloat16 products, cross-entropy, clip, AdamW
    ...-own..., -groups...  products by flamepy's own kernels, not cuBLASLt; these and attention by warp groups where the GPU is of sm_90

One timed call does a work CALLS times (a training step once) and then waits for the GPU. Checked: some rows against the plain device in
float64, products against NumPy, and everything against PyTorch's. Ceilings are a copy and a large product on this GPU (gpu_control.py).
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from . import optim
from .gpu_networks import NETWORKS, SMALL, SMALLS
from .gpu_works import KERNELS, PRODUCTS, Sides
from .networks import Gpt, flops
from .work import Disagree, Job, Work, close

OURS = "flamepy"
AGAINST = DEFAULT = ("torch", "torch-compile")
ALONE = False
CONTROL = "gpu_control"
TOLERANCE = 3e-2  # of contenders, who round to bfloat16 elsewhere; verify() is stricter
CALLS = 10
STEPS = 3
SINGLE: dict[str, Any] = {**KERNELS, **PRODUCTS, **NETWORKS, **SMALLS}
GPT2 = Gpt(12, 12, 768, 1024, 16, 50304)
GPTS = {"gpt2-124m": GPT2, "gpt2-124m-groups": GPT2, "gpt-small": Gpt(6, 6, 384, 256, 16)}


def works() -> dict[str, Work]:
    found = [Work(k.name, 0, k.nbytes * CALLS, per=CALLS, ceiling="float32", against=("torch",)) for k in KERNELS.values()]
    found += [Work(p.name, p.flops * CALLS, per=CALLS, ceiling=p.ceiling, against=("torch",)) for p in PRODUCTS.values()]
    found += [Work(n.name, n.flops * CALLS, per=CALLS, ceiling="bf16", against=("torch",)) for n in NETWORKS.values()]
    found += [Work(name, per=CALLS * SMALL, ceiling="float32", against=("torch",)) for name in SMALLS]
    # The gradient is read for the norm; then p, m, v are read and written and the gradient is read again.
    found.append(Work("adamw@124M", 0, 8 * 4 * optim.NUMBERS, ceiling="float32", against=("torch",)))
    found += [Work(name, flops(GPT2), modes=("replay",), ceiling="bf16") for name in GPTS if GPTS[name] is GPT2]
    found.append(Work("gpt-small", flops(GPTS["gpt-small"]), modes=("eager", "replay"), ceiling="bf16", against=("torch",)))
    return {work.name: work for work in found}


WORKS = works()


def missing() -> str:
    """Why no GPU can be timed here; empty if one can."""
    import flamepy as fp

    try:
        gpu: Any = fp.device("cuda")
    except fp.FlameError as problem:
        return f"no GPU to time: {problem}"
    return "an emulated GPU has no speed: unset FLAMEPY_CUDA." if gpu.driver.watches else ""


def about() -> dict[str, str]:
    """What a later reader must know besides: the GPU."""
    import flamepy as fp

    from .report import processor

    gpu: Any = fp.device("cuda")
    return {"cpu": f"{gpu.driver.name}, {processor()}"}


def build(contender: str, work: str, mode: str) -> Job:
    sides = Sides(contender)
    gc.collect()  # what the work before has left
    sides.forget()
    words = work.split("@")[0].split("-")
    sides.choose("own" in words, "groups" in words)
    if work in SINGLE:
        return repeated(sides, SINGLE[work].prepare(sides), SINGLE[work].shown)
    if work in GPTS:
        return gpt_job(contender, GPTS[work], mode)
    return adamw_job(sides)


def repeated(sides: Sides, run: Callable[[], Any], shown: Callable[[Sides, Any], list[Any]]) -> Job:
    def calls() -> Any:
        for _ in range(CALLS):
            found = run()
        sides.wait()
        return found

    return Job(calls, lambda found: shown(sides, found))


def gpt_job(contender: str, shape: Gpt, mode: str) -> Job:
    from . import contenders, step

    if contender == "flamepy":
        run = step.flamepy_step(shape, mode, "cuda", "bfloat16")
    else:
        run = contenders.torch_step(shape, contender == "torch-compile", "cuda", half=True)
    return Job(run, lambda result: [np.float64(result[0]), np.float64(float(result[1]))], STEPS)


def adamw_job(sides: Sides) -> Job:
    """As in suite `optim`, on the GPU."""
    run, arrays = optim.flamepy_optim("cuda") if sides.ours else optim.torch_optim("cuda")

    def step() -> Any:
        norm = run()
        sides.wait()
        return norm

    return Job(step, lambda norm: [np.float64(float(norm)), np.concatenate([optim.sample(a) for a in arrays()])], optim.STEPS)


def peak_mb(contender: str) -> float:
    return Sides(contender).peak_mb()


def verify(work: str, outputs: list[np.ndarray]) -> None:
    if work in SINGLE:
        close(outputs, SINGLE[work].expected(), SINGLE[work].tolerance)
    elif work in GPTS:
        losses, norms = outputs
        start = math.log(GPTS[work].vocabulary)
        if not (np.isfinite(losses).all() and np.isfinite(norms).all() and np.abs(losses - start).max() < 0.3):
            raise Disagree(f"{work}: losses {losses}, norms {norms}; they stay near {start:.2f}")
    else:
        optim.verify(work, outputs)
