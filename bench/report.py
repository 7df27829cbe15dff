"""What is told: one JSON line for each pair of ours and theirs, and the same as a table for people."""

from __future__ import annotations

import datetime
import os
import platform
import statistics
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from flamepy.command.gpu.report import commit
from flamepy.train.display import columns_that_fit

from . import targets
from .harness import Outcome, Timing, percent
from .work import CONTENDERS

PACKAGES = ("flamepy", "numpy", "numba", "torch", "jax", "jaxlib")
WRONG = 110.0  # percent of a ceiling: above, the ceiling was wrong
BUSY = "busy"
UNJUDGED = "busy: not judged"
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
    line |= {"ours_ms": ours.min, "theirs_ms": None, "ratio": None}
    if theirs is not None:
        line |= {"theirs_ms": theirs.min, "ratio": ours.min / theirs.min}
    line["busy"] = any(found is not None and found.busy for found in (ours, theirs, ceilings))
    for side, timing in (("ours", ours), ("theirs", theirs)):
        for name in Timing._fields:
            unit = "_ms" if name in ("min", "median", "p90") else ""
            line[f"{side}_{name}{unit}"] = getattr(timing, name, None)
    line["first_call_s"] = ours.first_call_s
    for side, ms in (("", ours.min), ("theirs_", theirs.min if theirs else None)):
        line[side + "gflops"] = work.flops / work.per / ms / 1e6 if ms and work.flops else None
        line[side + "gbs"] = work.nbytes / work.per / ms / 1e6 if ms and work.nbytes else None
        line[side + "percent"] = percent(work, ms, ceilings) if ms and ceilings and not line["busy"] else None
    line["ceiling_gflops"], line["copy_gbs"] = ceilings[:2] if ceilings else (None, None)
    return line | verdict(line)


def verdict(line: Line) -> Line:
    """`target` (the ratio to reach, or None), `reached` (all that is asked of this line, or None) and `verdict` in words. A busy row is
    not judged, nor a percentage that shows its ceiling to be wrong."""
    key = (line["suite"], line["work"], line["mode"], line["contender"])
    said: list[tuple[bool, str]] = []
    goal, least, most = targets.RATIOS.get(key), targets.PERCENT.get(key[:3]), targets.MILLISECONDS.get(line["suite"])
    if goal is not None:
        said.append((line["ratio"] <= goal, f"{goal:.2f}"))
    if least and (line["percent"] or WRONG) < WRONG:
        said.append((line["percent"] >= least, f"{least:.0f}% of {'sgemm' if line['gflops'] else 'a copy'}"))
    if key in targets.MEMORY and line["ours_peak_mb"] and line["theirs_peak_mb"]:
        said.append((line["ours_peak_mb"] <= line["theirs_peak_mb"], memory(line["theirs_peak_mb"])))
    if most:
        said.append((line["ours_ms"] <= most, f"{most * 1e3:.0f} us"))
    if line["busy"]:
        return {"target": goal, "reached": None, "verdict": UNJUDGED if said or least else BUSY}
    words = "; ".join(f"{'reached' if good else 'missed'} {text}" for good, text in said)
    return {"target": goal, "reached": all(good for good, _ in said) if said else None, "verdict": words}


# ---- for people ----------------------------------------------------------------------------------------------------------------
def duration(ms: float | None) -> str:
    """Three digits and a unit."""
    if ms is None:
        return "-"
    value, unit = (ms * 1e3, "us") if ms < 1 else (ms, "ms") if ms < 1e3 else (ms / 1e3, "s")
    return f"{value:.{max(0, 2 - max(0, len(str(int(value))) - 1))}f} {unit}"


def memory(mb: float | None) -> str:
    """Megabytes with a unit: gigabytes where they would have five digits."""
    return "-" if mb is None else f"{mb:.0f} MB" if mb < 9999.5 else f"{mb / 1e3:.1f} GB"


def number(value: float | None, form: str = ".0f") -> str:
    return "-" if value is None else format(value, form)


def brief(lines: list[Line]) -> str:
    """What was measured of one work, on one line: every mode of ours, and how long the others took."""
    ours = {line["mode"]: f"{line['ours']} {line['mode']} {duration(line['ours_ms'])}" for line in lines}
    theirs = {c: f"{CONTENDERS[c].title} {duration(line['theirs_ms'])}" for line in lines if (c := line["contender"])}
    return (", ".join([*ours.values(), *theirs.values()]) or "not timed") + " (busy machine)" * any(line["busy"] for line in lines)


COLUMNS = (
    "work", "mode", "ours", "median .. p90", "GFLOP/s", "GB/s", "% ceiling", "first call", "memory",
    "against", "theirs", "their memory", "ratio", "target",
)  # fmt: skip
OURS = COLUMNS.index("against")  # the columns before say the same for every contender
LEFT = ("work", "mode", "against", "target")
# What gives way first in a narrow terminal.
LEAST = (
    "their memory", "first call", "median .. p90", "memory", "GB/s", "GFLOP/s", "% ceiling", "target", "theirs", "mode", "ratio", "against",
)  # fmt: skip
ONCE = ("mode", "against")  # said above the table where they are the same in all rows


def cells(line: Line) -> list[str]:
    return [
        line["work"],
        line["mode"],
        duration(line["ours_ms"]),
        f"{duration(line['ours_median_ms'])} .. {duration(line['ours_p90_ms'])}",
        number(line["gflops"], ".0f" if (line["gflops"] or 0) >= 10 else ".1f"),
        number(line["gbs"], ".1f"),
        number(line["percent"]) + "*" * over(line),
        duration(line["first_call_s"] * 1e3),
        memory(line["ours_peak_mb"]),
        CONTENDERS[line["contender"]].title if line["contender"] else "-",
        duration(line["theirs_ms"]),
        memory(line["theirs_peak_mb"]),
        number(line["ratio"], ".2f"),
        line["verdict"],
    ]


def over(line: Line) -> bool:
    """Whether it is faster than its ceiling, as shown."""
    return round(line["percent"] or 0) > 100


def summaries(lines: list[Line]) -> Iterator[str]:
    """The median of all ratios to each contender, and the worst; the targets; what the marks in the table mean."""
    for contender in dict.fromkeys(line["contender"] for line in lines if line["ratio"]):
        rows = [line for line in lines if line["contender"] == contender]
        quiet = sorted((line["ratio"], f"{line['work']} {line['mode']}".removesuffix(" eager")) for line in rows if not line["busy"])
        found, left = "no quiet row", len(rows) - len(quiet)
        if quiet:
            worst, where = quiet[-1]
            found = f"median ratio {statistics.median(ratio for ratio, _ in quiet):.2f}, worst {worst:.2f} ({where})"
        yield f"{CONTENDERS[contender].title}: {found}" + f"; {left} busy left out" * bool(left)
    judged = [line["reached"] for line in lines if line["reached"] is not None]
    left = sum(line["verdict"] == UNJUDGED for line in lines)
    if judged or left:
        yield "targets: " + "; ".join(
            [f"{sum(judged)} of {len(judged)} reached"] * bool(judged) + [f"{left} not judged, the machine was busy"] * bool(left)
        )
    if any(line["busy"] for line in lines):
        yield "busy: other programs had the processor meanwhile, or calls of one kind took very different times. Such times are too long."
    if any(over(line) for line in lines):
        yield "*: faster than the ceiling beside it, so the ceiling was measured too low or does not bound this work."


def heading(lines: list[Line], rows: list[list[str]]) -> str:
    """What is true of the whole table."""
    first = lines[0]
    threads = f"{first['threads']} thread{'s' * (first['threads'] != 1)}"
    where = f"{first['suite']}: {first['cpu']}, {threads}, {'commit ' + first['commit'] if first['commit'] else 'no checkout'}"
    mode, other = only(rows, "mode"), only(rows, "against")
    what = f"{first['ours']} {mode}".strip()
    if any(line["ratio"] for line in lines):
        what += f" (ours) against {other or 'the others'} (theirs); ratio: ours / theirs"
    return f"{where}. {what}. Times of the fastest call."


def only(rows: list[list[str]], name: str) -> str:
    """What all rows have in this column, where they have something; empty if they differ."""
    found = {row[COLUMNS.index(name)] for row in rows} - {"-"}
    return found.pop() if len(found) == 1 else ""


def show(lines: list[Line], console: Any) -> None:
    """The table of one suite: what was missed in red, columns without a number left out, what repeats said once."""
    from rich.table import Table

    if not lines:
        return
    table = Table(header_style="bold", box=None, pad_edge=False)
    rows = [cells(line) for line in lines]
    used = [i for i in range(len(COLUMNS)) if any(row[i] not in ("", "-") for row in rows)]
    used = [i for i in used if COLUMNS[i] not in ONCE or not only(rows, COLUMNS[i])]
    # The target's words may take several lines, a number may not.
    texts = [[COLUMNS[i], *(word for row in rows for word in (row[i].split() if COLUMNS[i] == "target" else [row[i]]))] for i in used]
    busy = any(line["busy"] for line in lines)  # its mark stays
    least = [used.index(COLUMNS.index(name)) for name in LEAST if COLUMNS.index(name) in used and not (busy and name == "target")]
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
    console.print(heading(lines, rows))
    console.print(table)
    for text in summaries(lines):
        console.print(text)
