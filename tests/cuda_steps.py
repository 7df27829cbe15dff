"""Training steps of which only the kernels are wanted: each runs on a device that compiles, and computes nothing.

    python cuda_steps.py sm_90 gpt cnn        a line of JSON for each kernel, then how many were compiled anew

Read next: test_cuda_machine_code.py.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import flamepy as fp
import flamepy.nn.functional as F
from flamepy.backend.formula.bind import on_compile
from flamepy.cuda.examples import CLIPS, OPTIMIZERS, prepared
from flamepy.cuda.kernels import architecture
from flamepy.cuda.recording import recorded
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
    "small_gpt": lambda device: gpt(device, sizes=(SMALL,)), "large_gpt_bfloat16": lambda device: gpt(device, "bfloat16", (LARGE,)),
}  # fmt: skip


def main(arch: str, steps: list[str]) -> None:
    compiled: list[str] = []
    on_compile(lambda name, seconds: compiled.append(name))
    found: dict[str, Any] = {}
    with recorded(architecture(arch)) as (device, launches):
        for step in steps:
            STEPS[step](device)
            found |= {launch.binary.digest: launch for launch in launches}
    for launch in found.values():
        kernel = launch.kernel
        line = {
            "name": kernel.name, "source": launch.source.__name__, "kinds": [str(a.dtypes[0]) for a in kernel.arguments if a.form == "span"],
            "registers": kernel.registers, "spills": kernel.spills, "local": kernel.local, "opcodes": kernel.opcodes,
            "extern": ".extern" in kernel.ptx, "threads": kernel.threads,
        }  # fmt: skip
        print(json.dumps(line))
    print(json.dumps({"compiled": compiled}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
