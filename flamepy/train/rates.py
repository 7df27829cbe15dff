"""`flamepy train --find-lr`: try a hundred learning rates on the job that would be trained, and suggest one.

No run folder is made: all that is written is the picture.
"""

from __future__ import annotations

import itertools
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..backend.formula import bind
from ..schedules.search import find_lr
from .config import DigitsConfig, TrainConfig
from .display import PlainDisplay
from .files import writing
from .job import CommandJob
from .lines import whole
from .loop import Loop
from .problems import InputError
from .run_folder import RunFolder
from .runs import make
from .signals import StopRequest

SHOWN = 10  # lines of the table


def command(kind: type[CommandJob], config: TrainConfig, picture: str, stop: StopRequest) -> None:
    """Sweep the rates for a job, or for each of its two models."""
    path = Path(os.path.abspath(os.path.expanduser(picture)))
    if not (isinstance(config, DigitsConfig) and config.model == "both"):
        sweep(kind, config, path, stop)
        return
    for model in ("mlp", "cnn"):
        sweep(kind, replace(config, model=model), path.with_name(f"{path.stem}-{model}{path.suffix}"), stop)


def sweep(kind: type[CommandJob], config: TrainConfig, path: Path, stop: StopRequest) -> None:
    """Sweep, draw, tell."""
    if os.path.lexists(path):
        raise InputError(f"there is a file in the place of the picture: {path}. Name another: --find-lr FILE.")
    if not path.parent.is_dir():
        raise InputError(f"no such folder: {path.parent}. Make it, or name another picture: --find-lr FILE.")
    job: Any = make(kind, config, config.data)
    display = PlainDisplay(sys.stdout, config.steps, job.unit, job.per_step)
    for line in (job.title, f"data      {job.data_line}", f"rates     a larger one at each step; {job.settings_line}"):
        display.line(line)
    loop = Loop(job, RunFolder.nowhere(), display, stop)
    steps = itertools.count()
    forget = bind.on_compile(display.compiled)
    try:
        found = find_lr(lambda: loop.update(*loop.batches(next(steps)))[0], job.optimizer)
    finally:
        forget()
        display.compile_summary()
    for i in range(0, len(found.rates), -(-len(found.rates) // SHOWN)):
        display.line(f"learning rate {found.rates[i]:.2e}  loss {found.losses[i]:.4f}  smoothed {found.smoothed[i]:.4f}")
    if found.exploded is not None:
        display.line(f"exploded    from {found.exploded:.2g} on: the loss is higher than it was before, or not finite")
    with writing(path):
        found.save(path)
    best = found.suggestion
    display.line(f"suggestion  --lr {best:.2g}" if best is not None else "suggestion  none: the loss did not fall at any rate")
    display.line(f"written   {whole(path)}")
