"""Two pictures: roofline.png (each kernel a point under the measured ceilings) and ratios.png (bars against each contender).

Read next: command.py.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from flamepy.train.files import replace_file

from .report import Line
from .work import CONTENDERS

COLORS = {"torch": "tab:orange", "torch-compile": "tab:red", "jax": "tab:green"}


def draw(lines: list[Line], folder: Path) -> list[Path]:
    """Write the pictures there are numbers for; returns their paths."""
    import matplotlib

    matplotlib.use("Agg")
    drawn = []
    for name, make in (("roofline.png", roofline), ("ratios.png", ratios)):
        figure = make(lines)
        if figure is not None:
            content = io.BytesIO()
            figure.savefig(content, format="png", dpi=150, bbox_inches="tight")
            replace_file(folder / name, content.getvalue())
            drawn.append(folder / name)
    return drawn


def new_figure(width: float, height: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    return figure, figure.add_subplot()


def roofline(lines: list[Line]) -> Any:
    """Arithmetic by bytes moved, ours and theirs; None without kernels that have both."""
    points = [line for line in lines if line["gflops"] and line["gbs"]]
    if not points:
        return None
    figure, axes = new_figure(12, 8)
    sides = [("", "flamepy", "tab:blue", list({p["work"]: p for p in points}.values()))]
    for contender in dict.fromkeys(line["contender"] for line in points if line["contender"]):
        sides.append(("theirs_", CONTENDERS[contender].title, COLORS[contender], [p for p in points if p["contender"] == contender]))
    for side, label, color, rows in sides:
        intensity = [line["gflops"] / line["gbs"] for line in rows]
        look = {"s": 8, "alpha": 0.4} if side else {"s": 18}
        axes.scatter(intensity, [line[side + "gflops"] for line in rows], color=color, label=label, **look)
    for line in sides[0][3]:
        if "@" not in line["work"]:  # one size of each kernel has room for its name
            axes.annotate(
                line["work"], (line["gflops"] / line["gbs"], line["gflops"]), fontsize=6, xytext=(3, 2), textcoords="offset points"
            )
    roofs(axes, points)
    axes.set(xscale="log", yscale="log", xlabel="arithmetic by bytes moved at least (FLOP/B)", ylabel="GFLOP/s")
    axes.set_title(f"{points[0]['cpu']}, {points[0]['threads']} threads", fontsize=9)
    axes.legend(fontsize=7, loc="lower right")
    return figure


def roofs(axes: Any, points: list[Line]) -> None:
    """sgemm's rate, and the fastest (in cache) and slowest (from memory) copies that were measured."""
    peak = max(p["sgemm_gflops"] for p in points)
    left, right = (f(p["gflops"] / p["gbs"] for p in points) for f in (min, max))
    bandwidths = [p["copy_gbs"] for p in points]
    for bandwidth, style in ((max(bandwidths), "--"), (min(bandwidths), ":")):
        ridge = peak / bandwidth
        start = min(left / 2, ridge)
        axes.plot([start, ridge], [start * bandwidth, peak], f"k{style}", lw=1, label=f"copy {bandwidth:.0f} GB/s")
    axes.plot([peak / max(bandwidths), max(right * 2, peak / min(bandwidths))], [peak, peak], "k-", lw=1, label=f"sgemm {peak:.0f} GFLOP/s")


def ratios(lines: list[Line]) -> Any:
    """Time of ours by theirs for each work and mode, from 1 to the left where ours is faster; a mark shows what is to be reached."""
    compared = [line for line in lines if line["ratio"]]
    if not compared:
        return None
    works = list(dict.fromkeys((line["work"], line["mode"]) for line in compared))
    contenders = list(dict.fromkeys(line["contender"] for line in compared))
    figure, axes = new_figure(8, 1 + 0.16 * len(works) * (1 + len(contenders)))
    height = 0.8 / len(contenders)
    for i, contender in enumerate(contenders):
        rows = [line for line in compared if line["contender"] == contender]
        at = [works.index((line["work"], line["mode"])) + (i - (len(contenders) - 1) / 2) * height for line in rows]
        widths = [line["ratio"] - 1 for line in rows]
        axes.barh(at, widths, height, left=1, color=COLORS[contender], label=CONTENDERS[contender].title)
        for y, line in zip(at, rows, strict=True):
            if line["target"]:
                axes.plot([line["target"]] * 2, [y - height / 2, y + height / 2], color="black", lw=2)
    axes.axvline(1, color="black", lw=1)
    axes.set_xscale("log")
    axes.margins(y=0.01)
    axes.set_yticks(range(len(works)), [f"{work} {mode}" for work, mode in works], fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("time of flamepy by time of the other (marks: to be reached)")
    axes.legend(fontsize=7)
    return figure
