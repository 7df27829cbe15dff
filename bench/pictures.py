"""Pictures: stages.png (a product on one core, from three loops to packed blocks), ratios.png (bars against each contender) and
roofline.png (roofline.py).
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from flamepy.train.files import replace_file

from .products import PARTS, SOME, STAGES, rows_of
from .report import Line
from .roofline import COLORS, roofline
from .work import CONTENDERS


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


def stages(lines: list[Line]) -> Any:
    """GFLOP/s of every stage of a product, a group of bars for each size, under what the core can do; a dot is another library."""
    told = [(*PARTS[line["work"]], line) for line in lines if line["suite"] == "products"]
    if not told:
        return None
    types = list(dict.fromkeys(dtype for _, dtype, _, _ in told))
    names = [name for name in STAGES if any(name == stage for stage, *_ in told)]
    width = 0.8 / len(names)
    figure, several = new_figure(8 * len(types), 5, len(types))
    for axes, dtype in zip(several if len(types) > 1 else [several], types, strict=True):
        rows = [(stage, size, line) for stage, own, size, line in told if own == dtype]
        sizes = list(dict.fromkeys(size for _, size, _ in rows))
        for n, name in enumerate(names):
            bars = [(sizes.index(size) + (n - (len(names) - 1) / 2) * width, line) for stage, size, line in rows if stage == name]
            some = f" ({SOME} rows of the first matrix)" if rows_of(name, 0) else ""
            at, rates = [x for x, _ in bars], [line["gflops"] for _, line in bars]
            axes.bar(at, rates, width, label=name + some, color=[light(f"C{n}", line) for _, line in bars])
            if theirs := [(x, line["theirs_gflops"]) for x, line in bars if line["contender"]]:
                axes.plot(*zip(*theirs, strict=True), "ko", ms=4, mec="white", label=CONTENDERS[bars[-1][1]["contender"]].title)
        peak = max(line["ceiling_gflops"] for _, _, line in rows)
        axes.axhline(peak, color="black", lw=1)
        axes.annotate(
            f"multiply-adds on registers: {peak:.0f}", (0.01, peak), (0, 2), axes.get_yaxis_transform(), "offset points", fontsize=7
        )
        axes.set_ylim(0, 1.08 * max(peak, *(line["gflops"] for _, _, line in rows)))
        axes.set_xticks(range(len(sizes)), [size.replace("-ta", "\nfirst one transposed") for size in sizes], fontsize=7)
        axes.set_ylabel("GFLOP/s of one core")
        axes.set_title(f"{dtype}, {rows[0][2]['cpu']}", fontsize=9)
    under(figure, several if len(types) == 1 else several[0], [line for *_, line in told])
    return figure


def light(color: str, line: Line) -> tuple[str, float]:
    """Paler where the machine was busy."""
    return color, 0.35 if line["busy"] else 1.0


def under(figure: Any, axes: Any, lines: list[Line]) -> None:
    """One legend below the whole figure."""
    handles, labels = axes.get_legend_handles_labels()
    pale = "pale: the machine was busy" if any(line["busy"] for line in lines) else None
    figure.legend(
        handles, labels, fontsize=7, loc="upper center", bbox_to_anchor=(0.5, 0.03), ncols=len(labels), title=pale, title_fontsize=7
    )


def ratios(lines: list[Line]) -> Any:
    """Our time / theirs for each work and mode, from 1 to the left where ours is faster; a mark shows the target."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    compared = [line for line in lines if line["ratio"]]
    if not compared:
        return None
    works = list(dict.fromkeys((line["work"], line["mode"]) for line in compared))
    contenders = list(dict.fromkeys(line["contender"] for line in compared))
    figure, axes = new_figure(8, 1 + len(works) * (0.06 + 0.12 * len(contenders)))
    height = 0.8 / len(contenders)
    for i, contender in enumerate(contenders):
        rows = [line for line in compared if line["contender"] == contender]
        at = [works.index((line["work"], line["mode"])) + (i - (len(contenders) - 1) / 2) * height for line in rows]
        widths = [line["ratio"] - 1 for line in rows]
        colors = [light(COLORS[contender], line) for line in rows]
        axes.barh(at, widths, height, left=1, color=colors, label=CONTENDERS[contender].title)
        for y, line in zip(at, rows, strict=True):
            if line["target"]:
                axes.plot([line["target"]] * 2, [y - height / 2, y + height / 2], color="black", lw=2)
    axes.axvline(1, color="black", lw=1)
    axes.set_xscale("log")
    axes.margins(y=0.01)
    several = len({mode for _, mode in works}) > 1
    axes.set_yticks(range(len(works)), [f"{work} {mode}" if several else work for work, mode in works], fontsize=7)
    axes.invert_yaxis()
    values = [1.0, *(line[name] for line in compared for name in ("ratio", "target") if line[name])]
    digits = (1, 2, 5) if max(values) / min(values) > 10 else (1, 1.5, 2, 3, 5, 7)
    axes.xaxis.set_major_locator(LogLocator(subs=digits))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.tick_params(axis="x", top=True, labeltop=True, labelsize=7)
    axes.set_xlabel("flamepy time / other time; marks: target" + "; pale: the machine was busy" * any(line["busy"] for line in compared))
    axes.legend(fontsize=7)
    return figure
