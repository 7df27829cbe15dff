"""What is told: one JSON line for each pair of ours and theirs, and the same as a table for people.

Read next: pictures.py.
"""

from __future__ import annotations

import datetime
import os
import platform
import statistics
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from flamepy.train.display import columns_that_fit
from flamepy.train.gpu_report import commit

from . import targets
from .harness import Outcome, Timing, percent
from .work import CONTENDERS

PACKAGES = ("flamepy", "numpy", "numba", "torch", "jax", "jaxlib")
Line = dict[str, Any]


def facts(threads: int) -> Line:
    """What a later reader must know about this run."""
    return {
        "commit": commit(),
        "cpu": processor(),
        "threads": threads,
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "versions": {"python": platform.python_version(), **{name: v for name in PACKAGES if (v := version_of(name))}},
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def version_of(package: str) -> str | None:
    if package == "flamepy":
        import flamepy

        return flamepy.__version__
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def lines_of(outcome: Outcome, about: Line) -> list[Line]:
    """A line for each of our modes and each contender; for ours alone, one without theirs."""
    ours = {row: t for row, t in outcome.timings.items() if row[0] == outcome.ours}
    theirs = {row: t for row, t in outcome.timings.items() if row[0] != outcome.ours}
    pairs = [(mode, mine, contender, other) for (_, mode), mine in ours.items() for (contender, _), other in theirs.items()]
    pairs = pairs or [(mode, mine, None, None) for (_, mode), mine in ours.items()]  # type: ignore[misc]
    return [line_of(outcome, *pair) | about for pair in pairs]


def line_of(outcome: Outcome, mode: str, ours: Timing, contender: str | None, theirs: Timing | None) -> Line:
    work, ceilings = outcome.work, outcome.ceilings
    line: Line = {"suite": outcome.suite, "work": work.name, "mode": mode, "contender": contender, "ours": outcome.ours}
    line |= {"ours_ms": ours.median, "theirs_ms": None, "ratio": None}
    if theirs is not None:
        line |= {"theirs_ms": theirs.median, "ratio": ours.median / theirs.median}
    for side, timing in (("ours", ours), ("theirs", theirs)):
        for name in Timing._fields:
            unit = "_ms" if name in ("min", "median", "p90") else ""
            line[f"{side}_{name}{unit}"] = getattr(timing, name, None)
    line["first_call_s"] = ours.first_call_s
    for side, ms in (("", ours.median), ("theirs_", theirs.median if theirs else None)):
        line[side + "gflops"] = work.flops / work.per / ms / 1e6 if ms and work.flops else None
        line[side + "gbs"] = work.nbytes / work.per / ms / 1e6 if ms and work.nbytes else None
        line[side + "percent"] = percent(work, ms, ceilings) if ms and ceilings else None
    line["ceiling_gflops"], line["copy_gbs"] = ceilings or (None, None)
    return line | verdict(line)


def verdict(line: Line) -> Line:
    """`target` (the ratio to reach, or None), `reached` (all that is asked of this line, or None) and `verdict` in words."""
    key = (line["suite"], line["work"], line["mode"], line["contender"])
    said: list[tuple[bool, str]] = []
    goal = targets.RATIOS.get(key)
    if goal is not None:
        off = 100 * (line["ratio"] / goal - 1)
        said.append((line["ratio"] <= goal, f"{line['ratio']:.2f} of {goal:.2f}: {abs(off):.0f} % {'over' if off > 0 else 'under'}"))
    if (least := targets.PERCENT.get(key[:3])) and line["percent"]:
        said.append((line["percent"] >= least, f"{line['percent']:.0f} of {least:.0f} % of {'sgemm' if line['gflops'] else 'a copy'}"))
    if key in targets.MEMORY and line["ours_peak_mb"] and line["theirs_peak_mb"]:
        said.append((line["ours_peak_mb"] <= line["theirs_peak_mb"], f"{line['ours_peak_mb']:.0f} of {line['theirs_peak_mb']:.0f} MB"))
    if most := targets.MILLISECONDS.get(line["suite"]):
        said.append((line["ours_ms"] <= most, f"{line['ours_ms'] * 1e3:.1f} of {most * 1e3:.0f} us"))
    words = "; ".join(f"{'reached' if good else 'missed'} {text}" for good, text in said)
    return {"target": goal, "reached": all(good for good, _ in said) if said else None, "verdict": words}


# ---- for people ----------------------------------------------------------------------------------------------------------------
def duration(ms: float | None) -> str:
    """Three digits and a unit."""
    if ms is None:
        return "-"
    value, unit = (ms * 1e3, "us") if ms < 1 else (ms, "ms") if ms < 1e3 else (ms / 1e3, "s")
    return f"{value:.{max(0, 2 - max(0, len(str(int(value))) - 1))}f} {unit}"


def number(value: float | None, form: str = ".0f") -> str:
    return "-" if value is None else format(value, form)


def brief(lines: list[Line]) -> str:
    """What was measured of one work, on one line: every mode of ours, and how long the others took."""
    ours = {line["mode"]: f"{line['ours']} {line['mode']} {duration(line['ours_ms'])}" for line in lines}
    theirs = {c: f"{CONTENDERS[c].title} {duration(line['theirs_ms'])}" for line in lines if (c := line["contender"])}
    return ", ".join([*ours.values(), *theirs.values()]) or "not timed"


COLUMNS = (
    "work", "mode", "ours", "min .. p90", "GFLOP/s", "GB/s", "% ceiling", "first call", "MB",
    "against", "theirs", "their MB", "ratio", "target",
)  # fmt: skip
OURS = COLUMNS.index("against")  # the columns before say the same for every contender
LEFT = ("work", "mode", "against", "target")
LEAST = ("their MB", "MB", "first call", "GB/s", "GFLOP/s", "min .. p90", "% ceiling", "target", "theirs", "mode", "ratio", "against")


def cells(line: Line) -> list[str]:
    theirs = CONTENDERS[line["contender"]].title if line["contender"] else "-"
    return [
        line["work"],
        line["mode"],
        duration(line["ours_ms"]),
        f"{duration(line['ours_min_ms'])} .. {duration(line['ours_p90_ms'])}",
        number(line["gflops"], ".0f" if (line["gflops"] or 0) >= 10 else ".1f"),
        number(line["gbs"], ".1f"),
        number(line["percent"]),
        duration(line["first_call_s"] * 1e3),
        number(line["ours_peak_mb"]),
        theirs,
        duration(line["theirs_ms"]),
        number(line["theirs_peak_mb"]),
        number(line["ratio"], ".2f"),
        line["verdict"],
    ]


def summaries(lines: list[Line]) -> Iterator[str]:
    """The median of all ratios to each contender, and the worst."""
    for contender in dict.fromkeys(line["contender"] for line in lines if line["ratio"]):
        compared = sorted((line["ratio"], f"{line['work']} {line['mode']}") for line in lines if line["contender"] == contender)
        middle, (worst, where) = statistics.median(ratio for ratio, _ in compared), compared[-1]
        yield f"{CONTENDERS[contender].title}: ratio {middle:.2f} in the median of {len(compared)}, {worst:.2f} at worst: {where}"


def show(lines: list[Line], console: Any) -> None:
    """The table of one suite: what was missed in red, columns without a number left out, what repeats said once."""
    from rich.table import Table

    if not lines:
        return
    first = lines[0]
    threads = f"{first['threads']} thread{'s' * (first['threads'] != 1)}"
    title = f"{first['suite']}: {first['cpu']}, {threads}, {first['commit'] or 'no checkout'}, medians"
    table = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    rows = [cells(line) for line in lines]
    used = [i for i in range(len(COLUMNS)) if any(row[i] not in ("", "-") for row in rows)]
    # The verdict in words may take several lines, a number may not.
    texts = [[COLUMNS[i], *(word for row in rows for word in (row[i].split() if COLUMNS[i] == "target" else [row[i]]))] for i in used]
    least = [used.index(COLUMNS.index(name)) for name in LEAST if COLUMNS.index(name) in used]
    used = [used[i] for i in columns_that_fit([max(map(len, text)) for text in texts], console.width, least)]
    for i in used:
        name = COLUMNS[i]
        table.add_column(name, justify="left" if name in LEFT else "right", no_wrap=name != "target")
    before: list[str] = []
    for line, row in zip(lines, rows, strict=True):
        style = {True: "green", False: "red", None: ""}[line["reached"]]
        shown = [""] * OURS + row[OURS:] if row[:OURS] == before else row
        before = row[:OURS]
        if any(shown[i] for i in used):
            table.add_row(*[f"[{style}]{shown[i]}[/]" if style and COLUMNS[i] == "target" else shown[i] for i in used])
    console.print(table)
    for text in summaries(lines):
        console.print(text, soft_wrap=True)
    judged = [line["reached"] for line in lines if line["reached"] is not None]
    if judged:
        console.print(f"targets: {sum(judged)} of {len(judged)} reached")
