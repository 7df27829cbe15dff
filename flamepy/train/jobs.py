"""The jobs by name, for the command line: to be trained, or their learning rates tried; `digits` with both models is two runs, in two
folders inside one."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..backend.formula import bind
from ..schedules.search import find_lr
from . import checkpoint, runs
from .config import DigitsConfig, TrainConfig, build, read_toml
from .digits import DigitsJob
from .display import PlainDisplay
from .files import writing
from .gpt_job import GptJob
from .images import load_images
from .job import CommandJob
from .keeping import check_data
from .lines import whole
from .loop import Loop
from .problems import InputError
from .run_folder import RunFolder, check_run
from .signals import StopRequest

KINDS: dict[str, type[CommandJob]] = {"gpt": GptJob, "digits": DigitsJob}
BOTH = ("mlp", "cnn")
SHOWN = 10  # lines of the table of rates


def start(name: str, config: TrainConfig, out: str | None, stop_after: int | None, stop: StopRequest) -> None:
    """Begin a run of the job `name`."""
    if not (isinstance(config, DigitsConfig) and config.model == "both"):
        runs.start(KINDS[name], config, out, stop_after, stop)
        return
    config = replace(config, data=load_images(config.data).source)
    with contextlib.closing(RunFolder.create(out, name, config)) as folder:
        both(folder, config, {}, stop_after, stop)


def resume(name: str, path: Path, given: dict[str, Any], stop_after: int | None, stop: StopRequest) -> None:
    """Go on with the run in `path`."""
    kind = KINDS[name]
    config = build(kind.settings, read_toml(kind.settings, check_run(path) / "config.toml"))
    if not (isinstance(config, DigitsConfig) and config.model == "both"):
        runs.resume(kind, path, given, stop_after, stop)
        return
    with contextlib.closing(RunFolder.reopen(path)) as folder:
        kept = runs.kept_config(kind, folder, given)
        if kept.data != config.data:
            check_images(path / BOTH[0], kept)
        if kept != config:
            folder.write_config(kept)
        both(folder, kept, given, stop_after, stop)


def check_images(path: Path, config: Any) -> None:
    """Refuse images that a run begun in `path` was not trained on, before the configuration of both names them."""
    saved = checkpoint.load(path / "checkpoints")
    if saved is not None:
        with contextlib.suppress(LookupError, TypeError):  # a damaged checkpoint is told when it is restored
            check_data(runs.make(DigitsJob, replace(config, model=path.name), config.data), saved.facts["data"])


def both(folder: RunFolder, config: Any, given: dict[str, Any], stop_after: int | None, stop: StopRequest) -> None:
    """One network after the other; each goes on if it was begun."""
    for model in BOTH:
        path = folder.path / model
        if (path / "config.toml").exists():
            done = runs.resume(DigitsJob, path, {k: v for k, v in given.items() if k != "model"}, stop_after, stop)
        else:
            done = runs.start(DigitsJob, replace(config, model=model), str(path), stop_after, stop)
        if stop or not done:
            return
        print()


# ---- --find-lr -------------------------------------------------------------------------------------------------------------------------
def try_rates(name: str, config: TrainConfig, picture: str, stop: StopRequest) -> None:
    """--find-lr: try a hundred learning rates on the job that would be trained, or on each of its two, and suggest one. No run folder is
    made: all that is written is the picture."""
    path = Path(os.path.abspath(os.path.expanduser(picture)))
    if not (isinstance(config, DigitsConfig) and config.model == "both"):
        sweep(KINDS[name], config, path, stop)
        return
    for model in BOTH:
        sweep(KINDS[name], replace(config, model=model), path.with_name(f"{path.stem}-{model}{path.suffix}"), stop)


def sweep(kind: type[CommandJob], config: TrainConfig, path: Path, stop: StopRequest) -> None:
    """Sweep, draw, tell."""
    if os.path.lexists(path):
        raise InputError(f"there is a file in the place of the picture: {path}. Name another: --find-lr FILE.")
    if not path.parent.is_dir():
        raise InputError(f"no such folder: {path.parent}. Make it, or name another picture: --find-lr FILE.")
    job: Any = runs.make(kind, config, config.data)
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
