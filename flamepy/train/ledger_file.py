"""The file of a ledger, and its picture.

    {"step": 0, "parameters": [names]}
    {"step": 10, "norm": 1.23, "norms": [...], "ratios": [...], "zeros": [...], "spikes": [names]}

Four digits a number; null where there is none: a missing gradient, weights that were 0, an update that was not measured. Lines are
appended with one write each, so a crash can only cut the last one; damaged lines are left out when the file is read.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..schedules.search import png
from .files import replace_file
from .json_lines import JsonLines, is_number
from .problems import InputError

COLUMNS, LABELS = 600, 60  # of the picture, at most
NOTHING = "#d9d9d9"
LISTS = ("norms", "ratios", "zeros")


class Sheet(NamedTuple):
    """What a ledger says: arrays of (lines, parameters), NaN where nothing is known. `shares`: squares of the norms, divided by their sum.
    `spikes`: names at each line. `missing`: no gradient."""

    names: list[str]
    steps: np.ndarray
    total: np.ndarray
    norms: np.ndarray
    shares: np.ndarray
    ratios: np.ndarray
    zeros: np.ndarray
    spikes: list[list[str]]

    @property
    def missing(self) -> np.ndarray:
        return np.isnan(self.norms)


class LedgerFile(JsonLines):
    """Lines of a ledger; the first says whose they are."""

    def __init__(self, path: Path, names: list[str]):
        super().__init__(path)
        self.names = names
        self.begun = False

    def usable(self, row: dict[str, Any]) -> bool:
        norms, *others = [row.get(key) for key in LISTS]
        numbers = is_number(row.get("norm")) and is_list(norms) and all([x is None or is_list(x) for x in others])
        return is_list(row.get("parameters"), is_name) or (numbers and is_list(row.get("spikes", []), is_name))

    def begin(self, step: int) -> None:
        """Go on from this step in a file that may be there: later steps are computed again, a line that a crash has cut goes."""
        headers = [row for row in self.rows() if "parameters" in row]
        if headers and headers[0]["parameters"] != self.names:
            differ = sorted(set(headers[0]["parameters"]) ^ set(self.names)) or "their order"
            raise InputError(f"Ledger: the file is of other parameters: {self.path}: {differ}. Choose another path.")
        self.drop_after(step - 1)
        if not headers:
            self.append({"step": 0, "parameters": self.names})
        self.begun = True

    def add(
        self, step: int, norm: float, norms: np.ndarray, ratios: np.ndarray | None, zeros: np.ndarray | None, spikes: list[str]
    ) -> None:  # fmt: skip
        row: dict[str, Any] = {"step": step, "norm": norm, "norms": shortened(norms)}
        row |= {key: shortened(x) for key, x in (("ratios", ratios), ("zeros", zeros)) if x is not None}
        self.append(row | ({"spikes": spikes} if spikes else {}))

    def drop_after(self, step: int) -> None:
        super().drop_after(step)
        self.close()  # the handle is of the file that was replaced

    def sheet(self) -> Sheet:
        """All undamaged lines as arrays."""
        found = self.rows()
        names = next((row["parameters"] for row in found if "parameters" in row), self.names)
        rows = [r for r in found if "norms" in r and all([r.get(key) is None or len(r[key]) == len(names) for key in LISTS])]
        empty = [None] * len(names)
        tables = [np.array([r.get(key) or empty for r in rows], float).reshape(len(rows), len(names)) for key in LISTS]
        with np.errstate(over="ignore", invalid="ignore"):
            squares = np.where(np.isnan(tables[0]), 0.0, tables[0]) ** 2
            sums = squares.sum(1, keepdims=True)
            shares = np.divide(squares, sums, out=np.full(squares.shape, math.nan), where=sums > 0)
        steps, total = np.array([r["step"] for r in rows], int), np.array([r["norm"] for r in rows], float)
        return Sheet(names, steps, total, tables[0], shares, tables[1], tables[2], [r.get("spikes", []) for r in rows])


def is_name(value: Any) -> bool:
    return isinstance(value, str)


def is_list(values: Any, fits: Callable[[Any], bool] = lambda x: x is None or is_number(x)) -> bool:
    return isinstance(values, list) and all([fits(x) for x in values])


def shortened(values: np.ndarray) -> list[float | None]:
    return [None if math.isnan(x) else float(f"{x:.4g}") for x in values.tolist()]


def draw(sheet: Sheet, path: Path, title: str = "") -> None:
    """Write the picture of a ledger."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    replace_file(path, png(picture(sheet, title)))


def picture(sheet: Sheet, title: str = "") -> Any:
    """A figure of matplotlib's: norms, updates and zeros, parameters by steps, and what its marks mean."""
    from matplotlib.figure import Figure  # costs a second
    from matplotlib.patches import Patch

    lines, many = sheet.norms.shape
    figure = Figure(figsize=(15, min(30.0, 3.3 + 0.17 * min(many, LABELS))), dpi=100, layout="constrained")
    every, measured = np.arange(lines), np.flatnonzero(~np.isnan(sheet.ratios).all(1))
    panels: tuple[tuple[str, np.ndarray, np.ndarray, dict[str, float]], ...] = (
        ("norm of the gradient, log10", logarithm(sheet.norms), every, {}),
        ("size of the update / size of the weights, log10", logarithm(sheet.ratios), measured, {}),
        ("share of zeros in the gradient", sheet.zeros, every, {"vmin": 0.0, "vmax": 1.0}),
    )
    handles = [Patch(color=NOTHING, label="nothing to draw: no gradient, or a gradient or weights of zeros")]
    for i, (axes, (name, table, shown, colors)) in enumerate(zip(figure.subplots(1, 3, sharey=True), panels, strict=True)):
        axes.set_title(name, fontsize=10)
        axes.set_xlabel("step")
        axes.set_facecolor(NOTHING)
        groups = np.unique(np.arange(len(shown)) * min(COLUMNS, len(shown)) // max(len(shown), 1), return_index=True)[1]
        if len(shown) and many and not np.isnan(table).all():
            grouped = np.fmax.reduceat(table[shown], groups).T
            figure.colorbar(axes.imshow(grouped, aspect="auto", interpolation="nearest", cmap="viridis", **colors), ax=axes)
        ticks = np.unique(np.linspace(0, max(len(groups) - 1, 0), 5).astype(int)) if len(shown) else np.empty(0, int)
        axes.set_xticks(ticks, [f"{sheet.steps[shown[groups[t]]]:,}" for t in ticks])
        if i == 0 and many:
            labels = range(0, many, -(-many // LABELS))
            axes.set_yticks(list(labels), [sheet.names[k] for k in labels], fontsize=7)
            handles += mark_spikes(axes, sheet, groups)
    figure.suptitle(title)
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    return figure


def mark_spikes(axes: Any, sheet: Sheet, groups: np.ndarray) -> list[Any]:
    """A cross at each norm that is a spike; for the legend."""
    marks = [(line, sheet.names.index(n)) for line, names in enumerate(sheet.spikes) for n in names if n in sheet.names]
    if not marks:
        return []
    at = np.searchsorted(groups, [line for line, _ in marks], "right") - 1
    label = "spike: a norm far above those of the steps before"
    return axes.plot(at, [k for _, k in marks], "x", color="#e0301e", markersize=4, label=label)  # type: ignore[no-any-return]


def logarithm(table: np.ndarray) -> np.ndarray:
    usable = np.isfinite(table) & (table > 0)
    return np.log10(table, out=np.full(table.shape, math.nan), where=usable)
