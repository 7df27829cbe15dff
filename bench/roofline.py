"""roofline.png: each kernel a numbered point, GFLOP/s over arithmetic intensity, under the measured ceilings; a key below names them.

Many kernels have the same intensity, so every number looks for a free place near its point.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

from .report import Line
from .work import CONTENDERS

COLORS = {"torch": "tab:orange", "torch-compile": "tab:red", "jax": "tab:green"}
SIZE = 6.5  # points: numbers and the key
WIDE = 0.62 * SIZE  # points: a digit, a letter of the key
DOT = 2.5  # points: half a dot
RINGS = (7, 11, 16, 22, 30, 40)  # points from a dot to its number

Box = tuple[float, float, float, float]  # left, bottom, right, top


def roofline(lines: list[Line]) -> Any:
    """The figure; None without kernels that have both arithmetic and bytes."""
    from matplotlib.figure import Figure

    points = [line for line in lines if line["gflops"] and line["gbs"]]
    if not points:
        return None
    figure = Figure(figsize=(12, 8))
    axes: Any = figure.subplots()
    ours = list({p["work"]: p for p in points}.values())
    for contender in dict.fromkeys(line["contender"] for line in points if line["contender"]):
        rows = [p for p in points if p["contender"] == contender]
        xy = [intensity(p) for p in rows], [p["theirs_gflops"] for p in rows]
        axes.scatter(*xy, s=8, alpha=0.4, color=COLORS[contender], label=CONTENDERS[contender].title)
    for busy, inside in ((False, "tab:blue"), (True, "none")):
        if rows := [p for p in ours if p["busy"] is busy]:
            xy = [intensity(p) for p in rows], [p["gflops"] for p in rows]
            label = "flamepy" + ", machine busy" * busy
            axes.scatter(*xy, s=(2 * DOT) ** 2, facecolors=inside, edgecolors="tab:blue", label=label)
    roofs(axes, points)
    axes.set(xscale="log", yscale="log", xlabel="arithmetic intensity (FLOP / byte)", ylabel="GFLOP/s")
    axes.set_title(f"{points[0]['cpu']}, {points[0]['threads']} threads, fastest calls", fontsize=9)
    axes.legend(fontsize=7, loc="lower right")
    numbers(axes, ours)
    key(axes, [p["work"] for p in ours])
    return figure


def intensity(line: Line) -> float:
    return float(line["gflops"] / line["gbs"])


def roofs(axes: Any, points: list[Line]) -> None:
    """sgemm's rate, and the fastest (in cache) and slowest (from memory) copies that were measured."""
    peak = max(p["ceiling_gflops"] for p in points)
    left, right = (f(map(intensity, points)) for f in (min, max))
    bandwidths = [p["copy_gbs"] for p in points]
    for bandwidth, style in ((max(bandwidths), "--"), (min(bandwidths), ":")):
        ridge = peak / bandwidth
        start = min(left / 2, ridge)
        axes.plot([start, ridge], [start * bandwidth, peak], f"k{style}", lw=1, label=f"copy {bandwidth:.0f} GB/s")
    axes.plot([peak / max(bandwidths), max(right * 2, peak / min(bandwidths))], [peak, peak], "k-", lw=1, label=f"sgemm {peak:.0f} GFLOP/s")


def numbers(axes: Any, rows: list[Line]) -> None:
    """1, 2, ... beside the points, none over another or over a point; with a line to its point where it lies further off."""
    scale = 72 / axes.figure.dpi
    at = [tuple(scale * axes.transData.transform((intensity(p), p["gflops"]))) for p in rows]
    taken: list[Box] = [(x - DOT, y - DOT, x + DOT, y + DOT) for x, y in at]
    for n, (x, y) in enumerate(at, 1):
        wide = WIDE * len(str(n)) / 2 + 0.5
        places = [(r * math.cos(a), r * math.sin(a)) for r, a in itertools.product(RINGS, [i * math.tau / 16 for i in range(16)])]
        boxes = [(x + dx - wide, y + dy - SIZE / 2, x + dx + wide, y + dy + SIZE / 2) for dx, dy in places]
        free = [i for i, box in enumerate(boxes) if not any(overlap(box, other) for other in taken)]
        best = free[0] if free else 0
        taken.append(boxes[best])
        line = {"arrowstyle": "-", "lw": 0.3, "shrinkA": 0, "shrinkB": 0} if best >= 16 else None
        axes.annotate(
            str(n), (intensity(rows[n - 1]), rows[n - 1]["gflops"]), xytext=places[best], textcoords="offset points", fontsize=SIZE,
            ha="center", va="center", arrowprops=line,
        )  # fmt: skip


def overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def key(axes: Any, works: list[str]) -> None:
    """Which number is which work, in columns below the axes."""
    words = [f"{n:>{len(str(len(works)))}} {work}" for n, work in enumerate(works, 1)]
    room = 72 * axes.get_window_extent().width / axes.figure.dpi
    columns = max(1, int(room // (WIDE * (max(map(len, words)) + 2))))
    each = math.ceil(len(words) / columns)
    for i in range(0, len(words), each):
        text = "\n".join(words[i : i + each])
        axes.annotate(
            text, (i / each / columns, 0), (0, -40), xycoords="axes fraction", textcoords="offset points", va="top", fontsize=SIZE,
            family="monospace", annotation_clip=False,
        )  # fmt: skip
