"""Three pictures: roofline.png (each kernel a point under the measured ceilings), stages.png (a product on one core, from three loops to
packed blocks) and ratios.png (bars against each contender).

Read next: command.py.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from flamepy.train.files import replace_file

from .products import parts
from .report import Line
from .work import CONTENDERS

COLORS = {"torch": "tab:orange", "torch-compile": "tab:red", "jax": "tab:green"}


def draw(lines: list[Line], folder: Path) -> list[Path]:
    """Write the pictures there are numbers for; returns their paths."""
    import matplotlib

    matplotlib.use("Agg")
    drawn = []
    for name, make in (("roofline.png", roofline), ("stages.png", stages), ("ratios.png", ratios)):
        figure = make(lines)
        if figure is not None:
            content = io.BytesIO()
            figure.savefig(content, format="png", dpi=150, bbox_inches="tight")
            replace_file(folder / name, content.getvalue())
            drawn.append(folder / name)
    return drawn


def new_figure(width: float, height: float, columns: int = 1) -> tuple[Any, Any]:
    """A figure, and its axes: as an array where there are several columns."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    return figure, figure.subplots(1, columns)


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
    peak = max(p["ceiling_gflops"] for p in points)
    left, right = (f(p["gflops"] / p["gbs"] for p in points) for f in (min, max))
    bandwidths = [p["copy_gbs"] for p in points]
    for bandwidth, style in ((max(bandwidths), "--"), (min(bandwidths), ":")):
        ridge = peak / bandwidth
        start = min(left / 2, ridge)
        axes.plot([start, ridge], [start * bandwidth, peak], f"k{style}", lw=1, label=f"copy {bandwidth:.0f} GB/s")
    axes.plot([peak / max(bandwidths), max(right * 2, peak / min(bandwidths))], [peak, peak], "k-", lw=1, label=f"sgemm {peak:.0f} GFLOP/s")


def stages(lines: list[Line]) -> Any:
    """GFLOP/s of every stage of a product, a group of bars for each size, under what the core can do; a dot is another library."""
    told = [(*parts(line["work"]), line) for line in lines if line["suite"] == "products"]
    if not told:
        return None
    types = list(dict.fromkeys(dtype for _, dtype, _, _ in told))
    figure, several = new_figure(7 * len(types), 5, len(types))
    for axes, dtype in zip(several if len(types) > 1 else [several], types, strict=True):
        rows = [(stage, size, line) for stage, own, size, line in told if own == dtype]
        names, sizes = (list(dict.fromkeys(row[i] for row in rows)) for i in (0, 1))
        width = 0.8 / len(names)
        for n, name in enumerate(names):
            bars = [(sizes.index(size) + (n - (len(names) - 1) / 2) * width, line) for stage, size, line in rows if stage == name]
            axes.bar([x for x, _ in bars], [line["gflops"] for _, line in bars], width, label=name, color=f"C{n}")
            if theirs := [(x, line["theirs_gflops"]) for x, line in bars if line["contender"]]:
                axes.plot(*zip(*theirs, strict=True), "k.", ms=4, label=None if n else CONTENDERS[bars[0][1]["contender"]].title)
        peak = max(line["ceiling_gflops"] for _, _, line in rows)
        axes.axhline(peak, color="black", lw=1, label=f"multiply-adds on registers {peak:.0f}")
        axes.set_xticks(range(len(sizes)), sizes, fontsize=7)
        axes.set_ylabel("GFLOP/s of one core")
        axes.set_title(f"{dtype}, {rows[0][2]['cpu']}", fontsize=9)
        axes.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=len(names) + 2)
    return figure


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
