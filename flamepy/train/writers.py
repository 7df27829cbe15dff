"""The metrics of a run in other forms: a picture, a CSV file, TensorBoard's event files.

The picture: loss above, gradient norm below, over the steps. It is drawn with matplotlib's Figure (no window, no global state), which is
imported only when a picture is drawn: it costs a second.
"""

from __future__ import annotations

import csv
import importlib
import io
import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..schedules.search import drawable, png
from .events import Events
from .files import replace_file
from .problems import InputError
from .run_folder import RunFolder

Rows = list[dict[str, Any]]
WRITERS = ("torch.utils.tensorboard", "tensorboardX")


def draw(rows: Rows, path: Path, title: str, unit: str = "loss") -> None:
    """Write the picture of `rows` (the lines of metrics.jsonl) to `path`."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # without a home it would recommend one, at length
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator

    figure = Figure(figsize=(9, 7), dpi=110, layout="constrained")
    loss, norm = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    steps = [row["step"] for row in rows]
    loss.plot(steps, [drawable(row["loss"]) for row in rows], color="#9db8d9", linewidth=0.7, label="training loss")
    loss.plot(steps, [drawable(row["smoothed"]) for row in rows], color="#1f4e9c", linewidth=1.6, label="smoothed")
    held_out = [(row["step"], row["val_loss"]) for row in rows if not math.isnan(drawable(row.get("val_loss", math.nan)))]
    if held_out:
        loss.plot(*zip(*held_out, strict=True), "o-", color="#c1440e", markersize=5, linewidth=1.0, label="validation loss")
        loss.annotate(f"{held_out[-1][1]:.3f}", held_out[-1], xytext=(0, 8), textcoords="offset points", ha="center")
    loss.set_ylabel(unit)
    loss.set_title(title)
    loss.legend(frameon=False)
    norms = [drawable(row["grad_norm"]) for row in rows]
    norm.plot(steps, norms, color="#5b7f3a", linewidth=0.7)
    norm.set_ylabel("gradient norm, before clipping")
    norm.set_xlabel("step")
    if any(n > 0 for n in norms):
        norm.set_yscale("log")
        norm.yaxis.set_major_formatter("{x:g}")
        norm.yaxis.set_minor_locator(LogLocator(subs=(2, 5)))
        norm.yaxis.set_minor_formatter("{x:g}")
    for axes in (loss, norm):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    replace_file(path, png(figure))


def write_csv(folder: RunFolder) -> None:
    """metrics.csv beside metrics.jsonl: a column for each name, empty where a step has none."""
    rows = folder.metrics.rows()
    columns = list(dict.fromkeys([key for row in rows for key in row]))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    replace_file(folder.path / "metrics.csv", text.getvalue().encode())


def tensorboard_kind() -> Any:
    """The class that writes for TensorBoard. Raises InputError where none is installed."""
    for name in WRITERS:
        try:
            return importlib.import_module(name).SummaryWriter
        except ImportError:
            continue
    raise InputError('there is no writer for TensorBoard: neither PyTorch\'s nor tensorboardX. Run pip install "flamepy[tensorboard]".')


def tensorboard_writer(folder: RunFolder, events: Events, step: int) -> Callable[[], None]:
    """Write scalars at each step and validation from now on; returns what ends it. Points after `step` are computed again."""
    writer = tensorboard_kind()(str(folder.path / "tensorboard"), purge_step=step + 1)

    def on_step(run: Any, row: Any) -> None:
        for name, value in row._asdict().items():
            if name != "step":
                writer.add_scalar(name, value, row.step)

    def on_validation(run: Any, found: dict[str, float]) -> None:
        for name, value in found.items():
            writer.add_scalar(name, value, run.step)

    hooks = (("step", on_step), ("validation", on_validation))
    for event, hook in hooks:
        events.on(event, hook)

    def close() -> None:
        for event, hook in hooks:
            events.callbacks[event].remove(hook)
        writer.close()

    return close
