"""`flamepy warmup`: compile what the default runs need, so that the first real run starts at once.

Kernels are chosen by shapes and sizes, so nothing is guessed: two steps of each default run are taken, and thrown away.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from ..backend.formula import bind
from ..train import data, sample
from ..train.config import DigitsConfig, GptConfig, resolve
from ..train.digits import DigitsJob
from ..train.display import PlainDisplay
from ..train.gpt_job import GptJob
from ..train.lines import whole
from ..train.loop import Loop
from ..train.problems import InputError
from ..train.run_folder import RunFolder
from ..train.signals import StopRequest
from .cache import cache_folder


def command() -> int:
    """Rehearse every default job; tell each kernel as it is compiled."""
    folder = cache_folder()  # before a minute's work: without one nothing could be kept
    display = PlainDisplay(sys.stdout, 2, "steps", 1)
    forget = bind.on_compile(display.compiled)
    started = time.perf_counter()
    try:
        gpt = GptJob(resolve(GptConfig, {"steps": 2, "validation_batches": 1}), "stdlib")
        rehearse(gpt, display)
        list(sample.generate(gpt.model, data.encode("\n"), 3, 1.0, 0, 0))
        for model in ("mlp", "cnn"):
            rehearse(DigitsJob(resolve(DigitsConfig, {"steps": 2, "model": model}), "digits"), display)
    except InputError as error:  # scikit-learn is an extra
        display.line(f"left out: {error}")
    finally:
        forget()
    count = display.kernels
    display.line(
        f"{count} kernels compiled in {time.perf_counter() - started:.1f} s" if count else "every kernel was in the kernel cache already"
    )
    display.line(f"the kernel cache is {whole(folder)}")
    return 141 if display.broken else 0


def rehearse(job: Any, display: PlainDisplay) -> None:
    """Two steps and a validation, without a run folder."""
    loop = Loop(job, RunFolder.nowhere(), display, StopRequest())
    for _ in range(2):
        loop.one_step()
    job.validate()
