"""Training steps of which only the kernels are wanted: each runs on a device that compiles, and computes nothing.

    python cuda_steps.py gpt cnn        a line of JSON for each kernel and GPU, then what was compiled anew

Kernels are compiled for sm_90. For sm_100 and, under its name, for sm_80 the PTX of one variant of each kernel function and formula's type
is assembled: all variants for all three would take minutes.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from cuda_tools import TARGETS, for_gpu, listings, name_of

import flamepy as fp
import flamepy.nn.functional as F
from flamepy.backend.formula.bind import on_compile
from flamepy.cuda.examples import CLIPS, OPTIMIZERS, prepared
from flamepy.cuda.kernels import OPCODE, CudaKernel
from flamepy.cuda.recording import Launch, recorded
from flamepy.train.config import GptConfig
from flamepy.train.digits import cnn as cnn_of
from flamepy.train.gpt import GPT

SMALL = {"context": 64, "width": 128, "heads": 4, "layers": 1, "batch": 2}
LARGE = {"context": 1024, "width": 768, "heads": 12, "layers": 1, "batch": 16, "dropout": 0.1}


def learn(model: Any, loss: Callable[[], Any]) -> None:
    optimizer = fp.AdamW(model, lr=1e-3)
    grads = loss().backward()
    fp.clip_grad_norm(grads, 1.0)
    optimizer.step(grads)


def gpt(device: Any, compute: str = "float32", sizes: tuple[dict, ...] = (SMALL, LARGE)) -> None:
    """A GPT's step: forward, backward, clip, AdamW; small, and as large as GPT-2's layers."""
    for size in sizes:
        config = GptConfig(**size, compute=compute, device=device)
        model = GPT(config)
        ids = np.arange(config.batch * config.context).reshape(config.batch, config.context) % 256
        x = fp.tensor(ids, device=device)
        learn(model, lambda: F.cross_entropy(model(x).reshape(ids.size, 256), x.reshape(ids.size)))


def cnn(device: Any) -> None:
    model = cnn_of((1, 28, 28), 10, 128, device)
    x = fp.tensor(np.zeros((8, 1, 28, 28), "f4"), device=device)
    learn(model, lambda: F.cross_entropy(model(x), fp.tensor(np.zeros(8, "i8"), device=device)))


def optimizers(device: Any) -> None:
    for name in (*OPTIMIZERS, *CLIPS):
        prepared(name, 1 << 16, "float32", device)()


def half_optimizers(device: Any) -> None:
    for name in ("adamw", "sgd", "clip_grad_norm"):
        prepared(name, 1 << 16, "bfloat16", device)()


STEPS: dict[str, Callable[[Any], None]] = {
    "gpt": gpt, "gpt_bfloat16": lambda device: gpt(device, "bfloat16"), "cnn": cnn, "optimizers": optimizers,
    "half_optimizers": half_optimizers,
}  # fmt: skip
ARCHS = {name_of(cc): cc for cc in TARGETS}


def assembled(launch: Launch, arch: str) -> CudaKernel:
    """The kernel for another GPU."""
    binary = for_gpu(launch.binary, ARCHS[arch])
    return replace(launch.kernel, arch=arch, ptx=binary.ptx, binary=binary)


def described(launch: Launch, k: CudaKernel, text: str) -> dict[str, Any]:
    """What the test looks at."""
    spans = [a for a in k.arguments if a.form == "span"]
    return {
        "name": k.name,
        "arch": k.arch,
        "source": launch.source.__name__,
        "extern": ".extern" in k.ptx.replace(".extern .shared", ""),
        "arrays": len(spans),
        "dtypes": sorted({str(d) for a in spans for d in a.dtypes}),
        "opcodes": sorted(set(OPCODE.findall(text))),
        "calls": sorted(set(re.findall(r"CALL\S*\s+`\((\w+)\)", text))),
        "registers": k.registers,
        "spills": k.spills,
        "local": k.local,
    }


def main(steps: list[str]) -> None:
    compiled: list[str] = []
    on_compile(lambda name, seconds: compiled.append(name))
    found: dict[str, Launch] = {}
    with recorded((9, 0)) as (device, launches):
        for step in steps:
            STEPS[step](device)
        found = {launch.binary.digest: launch for launch in launches}
    chosen = {(launch.source, launch.dtype, launch.kinds[0]): launch for launch in found.values()}.values()
    pairs = [(launch, arch) for launch in found.values() for arch in (ARCHS if launch in chosen else ("sm_90",))]
    kernels = [assembled(*pair) for pair in pairs]
    for (launch, _), kernel, (_, text) in zip(pairs, kernels, listings([k.binary for k in kernels]), strict=True):
        print(json.dumps(described(launch, kernel, text)))
    print(json.dumps({"compiled": compiled}))


if __name__ == "__main__":
    main(sys.argv[1:])
