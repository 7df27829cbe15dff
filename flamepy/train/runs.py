"""A run from beginning to end: check everything, make or reopen the folder, train, validate, leave picture and sample.

    start()   a new run; nothing is written before every input has been found good
    resume()  a run that goes on from its last checkpoint

Both return whether the run is complete.
"""

from __future__ import annotations

import contextlib
import math
import signal
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ..backend.formula import bind
from ..core.errors import DeviceError, NonFiniteError
from . import checkpoint, writers
from .config import LoopConfig, TrainConfig, build, job_name, read_toml, settings
from .display import PlainDisplay, duration, make_display
from .events import Events
from .job import CommandJob, Job, schedule_of
from .lines import amount, whole
from .loop import Loop
from .problems import InputError
from .run_folder import JsonLines, RunFolder
from .signals import StopRequest


def start(kind: type[CommandJob], config: TrainConfig, out: str | None, stop_after: int | None, stop: StopRequest) -> bool:
    """A new run; True when it ran to its end (False: --stop-after)."""
    check_stop_after(stop_after, 0)
    job = make(kind, config, config.data)
    with contextlib.closing(RunFolder.create(out, job.name, job.config)) as folder:
        return train(job, folder, None, stop_after, stop)


def resume(kind: type[CommandJob], path: Path, given: dict[str, Any], stop_after: int | None, stop: StopRequest) -> bool:
    """Go on with the run in `path`; `given` holds the options named on the command line."""
    with contextlib.closing(RunFolder.reopen(path)) as folder:
        saved = checkpoint.load(folder.checkpoints)
        if saved is not None and given.get("steps", saved.step) < saved.step:
            raise InputError(f"nothing to do: --steps {given['steps']}, the run is at step {saved.step}. Give a later step.")
        config = kept_config(kind, folder, given)
        if saved is None:  # it died before the first checkpoint: begin again
            folder.forget_after(0)
        else:
            same_run(config, saved)
            check_stop_after(stop_after, saved.step)
        job = make(kind, config, str(folder.data) if folder.data.exists() and "data" not in given else config.data)
        return train(job, folder, saved, stop_after, stop)


def check_stop_after(stop_after: int | None, step: int) -> None:
    if stop_after is not None and stop_after <= step:
        raise InputError(f"nothing to do: --stop-after {stop_after}, the run is at step {step}. Give a later step.")


def make(kind: Callable[[Any, str], Any], config: TrainConfig, source: str) -> Job:
    """The job; what its device or this machine's memory cannot do becomes an InputError."""
    try:
        return kind(config, source)
    except DeviceError as error:
        raise InputError(f"cannot use --device {config.device}: {error}") from error
    except MemoryError as error:
        raise InputError("not enough memory for the model. Choose a smaller --width or --batch, or close other programs.") from error


def kept_config(kind: type[CommandJob], folder: RunFolder, given: dict[str, Any]) -> TrainConfig:
    """The run's own configuration; an option may repeat it, or change what no finished step depends on."""
    config = build(kind.settings, read_toml(kind.settings, folder.config))
    for name, value in given.items():
        if value != getattr(config, name) and not settings(kind.settings)[name].metadata.get("free"):
            raise InputError(
                f"a resumed run keeps its settings: --{name} {value} was given, the run has {getattr(config, name)}. "
                f"Leave --{name} out, or start a new run."
            )
    return build(kind.settings, {**{n: getattr(config, n) for n in settings(kind.settings)}, **given})


def same_run(config: LoopConfig, saved: checkpoint.Checkpoint) -> None:
    """Refuse a checkpoint that was made with other settings than config.toml says."""
    there = saved.facts.get("config")
    there = there if isinstance(there, dict) else {}
    if saved.facts.get("job") != job_name(type(config)):
        raise InputError(f"the checkpoint is of another job: {saved.path}: {saved.facts.get('job')}. Start a new run.")
    for name, field in settings(type(config)).items():
        if not field.metadata.get("free") and there.get(name, field.default if there else None) != getattr(config, name):
            raise InputError(
                f"the checkpoint is of another run: {name} is {there.get(name)} in {saved.path}, {getattr(config, name)} in "
                "config.toml. Give the run folder its own config.toml back, or start a new run."
            )


def train(
    job: Job, folder: RunFolder, saved: checkpoint.Checkpoint | None, stop_after: int | None, stop: StopRequest,
    events: Events | None = None, display: PlainDisplay | None = None,
) -> bool:  # fmt: skip
    """Train, and leave everything behind that a run leaves."""
    steps = job.config.steps
    display = display or make_display(steps, job.unit, job.per_step)
    loop = Loop(job, folder, display, stop, events)
    if saved is not None:
        loop.keeper.restore(saved)
        if asdict(job.config) != saved.facts["config"]:
            folder.write_config(job.config)
    if job.copy is not None:
        folder.copy_data(job.copy)
    stop.last_words = lambda: quit_line(job, folder, loop)
    for line in (*introduction(job, folder, loop), *other_schedule(job.config, saved)):
        display.line(line)
    forget = bind.on_compile(display.compiled)
    try:
        with stop.gently():
            with display:
                loop.run(min(steps, stop_after or steps))
            finish(job, folder, loop, display)
    except NonFiniteError:
        with contextlib.suppress(InputError):  # the number that is not finite matters more than the picture
            draw(job, folder, display)
        raise
    except InputError as error:  # a full disk: say how to go on
        raise InputError(f"{error} Go on with: {job.going_on(folder)}") from error
    except MemoryError as error:
        raise InputError(
            f"not enough memory after step {loop.step}; the last checkpoint is untouched. Close other programs and go on with: "
            f"{job.going_on(folder)}, or start a new run with a smaller --width or --batch."
        ) from error
    finally:
        forget()
        if loop.ledger is not None:
            loop.ledger.file.close()
    return loop.step >= steps or loop.early


def introduction(job: Job, folder: RunFolder, loop: Loop) -> list[str]:
    from .. import __version__

    config = job.config
    size = sum(p.size for _, p in job.model.named_parameters())
    begin = f"goes on from step {loop.step}" if loop.step else f"{config.steps:,} steps"
    on, off = ("--capture", "--no-capture") if isinstance(config, TrainConfig) else ("capture=True", "capture=False")
    how = f"step 2 is recorded and then replayed ({off} turns this off)" if config.capture else f"off ({on} records step 2 and replays it)"
    if loop.events.inside:
        how = "off: a callback runs inside of each step"
    return [
        f"flamepy   {__version__}",
        f"model     {job.title}; {size / 1e6:.2f} million parameters",
        f"data      {job.data_line}",
        f"capture   {how}",
        f"run       {whole(folder.path)} ({begin}, {job.settings_line})",
    ]


def other_schedule(config: LoopConfig, saved: checkpoint.Checkpoint | None) -> Iterator[str]:
    """What other --steps do to the learning rate of a resumed run: its curve is that of a run with these steps from the start."""
    if isinstance(config, TrainConfig) and saved is not None and (steps := saved.facts["config"]["steps"]) != config.steps:
        rate, before = (f"{schedule_of(c)(saved.step):.2e}" for c in (config, replace(config, steps=steps)))
        what = "stretched" if config.steps > steps else "shortened"
        rate += f", not {before}" * (rate != before)
        yield f"schedule  {what} from {steps:,} to {config.steps:,} steps: the learning rate goes on at {rate}"


def finish(job: Job, folder: RunFolder, loop: Loop, display: PlainDisplay) -> None:
    """The end of a run, complete or not: how to go on; picture, results, where things are."""
    complete = (loop.step >= job.config.steps or loop.early) and not stop_number(loop)
    if not complete:  # how to go on comes first: the picture takes a while, and somebody may press Ctrl-C again
        number = stop_number(loop)
        why = f"{signal.Signals(number).name}: " if number else f"{loop.stop_reason}: " if loop.stop_reason else ""
        display.line(f"stopped   {why}after step {loop.saved or 0:,} of {job.config.steps:,}; the checkpoint is saved")
        display.line(f"go on     {whole(job.going_on(folder))}")
        loop.stop.told = True
    try:
        draw(job, folder, display)
        if loop.ledger is not None:
            display.busy("drawing")
            loop.ledger.draw(folder.ledger_picture, job.title)
    finally:  # a picture that cannot be written must not cost the results
        if complete:
            tell_results(job, folder, loop, display)


def tell_results(job: Job, folder: RunFolder, loop: Loop, display: PlainDisplay) -> None:
    """What a complete run has found, and the files it leaves."""
    seconds = sum(row["seconds"] for row in readable(folder.timing, display))
    took = f" in {duration(seconds)}" if math.isfinite(seconds) and seconds else ""
    display.line(f"finished  {loop.step:,} steps{took}")
    if loop.early:
        display.line(f"early     {loop.stop_reason}")
    display.line(memory_line(job))
    if hasattr(job.device, "launched"):
        display.line(f"launched  {job.device.launched:,} kernels on {job.device.name}")
    # A run that was resumed at its end validates once more: the same number, as nothing of it is random.
    for line in job.results(loop.validated or job.validate(), folder):
        display.compile_summary()
        display.line(line)
    display.line("written")
    files = (folder.config, folder.metrics.path, folder.timing.path, folder.ledger, folder.checkpoints, folder.curves,
             folder.ledger_picture, folder.sample)  # fmt: skip
    for path in files:
        if path.is_file() or path == folder.checkpoints:
            display.line(f"  {whole(path)}")


def readable(file: JsonLines, display: PlainDisplay) -> list[dict[str, Any]]:
    """The rows of a file, none if it cannot be read; tells what is damaged."""
    try:
        rows, lines = file.rows(), len(file.lines())
    except InputError as error:
        display.line(f"damaged   {error}")
        return []
    if len(rows) < lines:
        display.line(f"damaged   {file.path}: {lines - len(rows)} of {lines} lines cannot be read and are left out")
    return rows


def memory_line(job: Job) -> str:
    """How much memory tensors took."""
    found = job.device.memory()
    peak, current, cached = (amount(found[key]) for key in ("peak", "current", "cached"))
    return f"memory    tensors took {peak} at most and take {current} now; {cached} more are kept for reuse"


def quit_line(job: Job, folder: RunFolder, loop: Loop) -> str:
    """What is left to say when a second signal ends the process."""
    if loop.saved is None:
        return f"{job.who}: quit at once; there is no checkpoint yet"
    place = f"the checkpoint of step {loop.saved} is in {folder.checkpoints}"
    return f"{job.who}: quit at once; {place}. Go on with: {job.going_on(folder)}"


def stop_number(loop: Loop) -> int | None:
    """The signal that asks to stop, if any; a reader that went away counts as SIGPIPE."""
    if loop.stop.number is None and loop.display.broken:
        loop.stop.number = getattr(signal, "SIGPIPE", signal.SIGTERM)
    return loop.stop.number


def draw(job: Job, folder: RunFolder, display: PlainDisplay) -> None:
    rows = readable(folder.metrics, display)
    if rows:
        writers.draw(rows, folder.curves, job.title, job.loss_unit)
