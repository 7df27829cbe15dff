"""The jobs by name, for the command line; `digits` with both models is two runs, in two folders inside one."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from . import checkpoint, runs
from .config import DigitsConfig, TrainConfig, build, read_toml
from .digits import DigitsJob
from .gpt_job import GptJob
from .images import load_images
from .job import CommandJob
from .keeping import check_data
from .run_folder import RunFolder, check_run
from .signals import StopRequest

KINDS: dict[str, type[CommandJob]] = {"gpt": GptJob, "digits": DigitsJob}
BOTH = ("mlp", "cnn")


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
