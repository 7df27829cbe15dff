"""The metrics of a run in other programs' forms: a CSV file, TensorBoard's event files."""

from __future__ import annotations

import csv
import importlib
import io
from collections.abc import Callable
from typing import Any

from .events import Events
from .files import replace_file
from .problems import InputError
from .run_folder import RunFolder

WRITERS = ("torch.utils.tensorboard", "tensorboardX")


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
