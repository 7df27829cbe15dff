"""What the benchmarks print: in 80 columns, of a busy machine, in plain words; and what their pictures say.

The timings are made up. Oracles: what a person would read off them.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import time
from importlib import import_module

import pytest
from rich.console import Console

from flamepy.command.cli import benchmarks, run
from flamepy.errors import FlameWarning

command = benchmarks()
busy, harness, pictures, products, report, roofline, worker = (
    import_module(f"{command.__package__}.{name}") for name in ("busy", "harness", "pictures", "products", "report", "roofline", "worker")
)
ABOUT = {
    "commit": "abc",
    "cpu": "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz",
    "threads": 2,
    "load": 0.0,
    "versions": {},
    "date": "today",
}
QUIET = harness.Ceilings(200.0, 50.0)


def timing(ms: float, others: float | None = 0.0, spread: float = 1.1, peak: float | None = None):
    return harness.Timing(ms, ms * spread, ms * spread * 1.1, 10, 0.5, peak, others)


def measured(suite: str, name: str, ours=None, ceilings=QUIET, peak=13370.0, **theirs):
    """As if measured: a Timing of ours, and e.g. torch=timing(2.0)."""
    item = import_module(f"{command.__package__}.{suite}").WORKS[name]
    timings = {("flamepy", mode): ours or timing(1.0, peak=peak) for mode in item.modes}
    timings |= {(c.replace("_", "-"), ""): found for c, found in theirs.items()}
    return harness.Outcome(suite, item, "flamepy", timings, ceilings)


def lines_of(*outcomes) -> list[dict]:
    return [line for outcome in outcomes for line in report.lines_of(outcome, ABOUT)]


def shown(lines: list[dict], width: int) -> str:
    out = io.StringIO()
    report.show(lines, Console(file=out, width=width))
    return out.getvalue()


def rows(text: str) -> list[dict[str, str]]:
    """The table as it is read: names of columns -> cells, cut where the names end or begin."""
    found = text.splitlines()
    at = next(i for i, line in enumerate(found) if line.startswith("work "))
    return [dict(zip(*(re.split("  +", line.strip()) for line in (found[at], row)), strict=False)) for row in found[at + 1 :]]


# ---- verdicts --------------------------------------------------------------------------------------------------------------------
def test_verdicts_say_what_was_to_be_reached():
    (line,) = lines_of(measured("kernels", "softmax", timing(0.6), torch=timing(1.0)))
    assert line["reached"] is True and line["verdict"] == "reached 0.75" and line["target"] == 0.75
    (line,) = lines_of(measured("kernels", "softmax", timing(0.9), torch=timing(1.0)))
    assert line["reached"] is False and line["verdict"] == "missed 0.75"
    (line,) = lines_of(measured("kernels", "softmax", timing(0.6), jax=timing(1.0)))
    assert (line["reached"], line["verdict"]) == (None, "")
    big = measured("step", "gpt-b", timing(3000.0, peak=13370.0), torch=timing(4000.0, peak=12000.0))
    line = next(line for line in lines_of(big) if line["mode"] == "replay")
    assert line["reached"] is False and line["verdict"] == "reached 0.80; missed 85% of sgemm; missed 12.0 GB"
    (line,) = lines_of(measured("dispatch", "softmax", timing(0.002), torch=timing(0.001)))
    assert line["reached"] is True and line["verdict"] == "reached 2.00; reached 3 us"


# ---- narrow terminals ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("width, gone", [(40, ["theirs", "target"]), (80, ["first call", "memory"]), (240, [])])
def test_a_narrow_terminal_drops_columns_never_digits(width, gone):
    lines = lines_of(measured("kernels", "softmax-backward", timing(1234.5), torch=timing(1.25)))
    lines += lines_of(measured("kernels", "softmax", timing(1234.5, peak=1.0), torch=timing(1.25, peak=1.0)))
    whole = dict(zip(report.COLUMNS, report.cells(lines[0]), strict=True))
    found = rows(shown(lines, width))[0]
    assert {"work", "ours", "ratio"} <= set(found) <= set(whole) - set(gone)
    assert (width < 240) or set(whole) - set(found) == {"mode", "against", "target"}  # said above the table; none in this row
    assert all(value == whole[name] for name, value in found.items())


SUITES = {
    "kernels": (["embedding-backward@4096x50257x256", "gelu", "gelu-backward"], {"ours", "% ceiling", "theirs", "ratio", "target"}),
    "products": (list(products.WORKS)[-10:], {"ours", "GFLOP/s", "% ceiling", "theirs", "ratio"}),
    "dispatch": (["add-number-backward", "add"], {"ours", "theirs", "ratio", "target"}),
    "optim": (["optim-124m"], {"ours", "GB/s", "% ceiling", "theirs", "ratio", "target"}),
    "transforms": (["centralize", "noise"], {"ours", "GB/s", "% ceiling", "target"}),
    "step": (["gpt-b", "digits-cnn"], {"mode", "ours", "% ceiling", "against", "theirs", "ratio", "target"}),
    "gpu": (["gpt2-124m", "cross-entropy-dx-bf16@824M"], {"ours", "% ceiling", "theirs", "ratio"}),
}


@pytest.mark.parametrize("crowded", [False, True], ids=["quiet", "busy"])
@pytest.mark.parametrize("suite", SUITES)
def test_eighty_columns_keep_what_matters_and_break_between_words(suite, crowded):
    names, important = SUITES[suite]
    known = import_module(f"{command.__package__}.{suite}").WORKS
    names = [name for name in names if name in known] or list(known)[:3]
    others = {"torch": timing(1234.5, peak=13370.0)} | ({"torch_compile": timing(0.5), "jax": timing(9.0)} if suite == "step" else {})
    others = {} if suite == "transforms" else others
    lines = lines_of(*[measured(suite, name, timing(23.45, 0.9 * crowded, peak=9000.0), **others) for name in names])
    if suite == "products":
        lines = [
            line if line["work"].startswith("blocks") else line | {"contender": None, "theirs_ms": None, "ratio": None} for line in lines
        ]
    text = shown(lines, 80)
    important = important - {"% ceiling"} | {"target"} if crowded else important
    assert important <= set(re.split("  +", re.search("^work .*$", text, re.M)[0].strip())), text
    assert all(len(line.rstrip()) <= 80 for line in text.splitlines())
    words = set(shown(lines, 1000).split())
    assert set(text.split()) <= words, set(text.split()) - words
    for name in names:
        assert f"{name} " in text


def test_what_all_rows_share_is_said_once_above():
    text = shown(lines_of(measured("kernels", "gelu", torch=timing(2.0))), 240)
    first = text.splitlines()[0]
    assert "flamepy eager (ours) against PyTorch eager (theirs); ratio: ours / theirs. Times of the fastest call." in first
    assert "2 threads, commit abc" in first and text.count("eager") == 3 and " mode " not in text


def test_gigabytes_where_megabytes_had_five_digits():
    assert [report.memory(mb) for mb in (None, 0.4, 950.0, 9999.0, 9999.6, 13370.0)] == [
        "-",
        "0 MB",
        "950 MB",
        "9999 MB",
        "10.0 GB",
        "13.4 GB",
    ]
    assert "13.4 GB" in shown(lines_of(measured("step", "gpt-b")), 240)


# ---- a busy machine --------------------------------------------------------------------------------------------------------------
FAST = timing(0.001)  # as if the ceilings had been measured beside something else: 176 percent and more of them
DISTURBED = {
    "other programs": measured("kernels", "softmax", timing(0.6, others=0.9), torch=timing(1.0)),
    "theirs": measured("kernels", "softmax", timing(0.6), torch=timing(1.0, others=0.9)),
    "spread": measured("kernels", "softmax", timing(0.6, None, spread=3.0), torch=timing(1.0)),
    "ceilings": measured("kernels", "softmax", timing(0.6), ceilings=harness.Ceilings(200.0, 50.0, True), torch=timing(1.0)),
    "all": measured("kernels", "softmax", timing(0.01, others=1.5), torch=timing(1.0, others=0.3)),
}


@pytest.mark.parametrize("kind", DISTURBED)
def test_a_busy_row_is_marked_and_nothing_is_judged(kind):
    lines = lines_of(DISTURBED[kind])
    assert [(line["busy"], line["reached"], line["percent"], line["theirs_percent"]) for line in lines] == [(True, None, None, None)]
    for width in (40, 80, 240):
        text = shown(lines, width)
        joined = " ".join(text.split())
        assert "busy" in rows(text)[0].get("target", ""), text
        assert "reached" not in joined and "missed" not in joined and "median ratio" not in joined and "% ceiling" not in joined
        assert "1 not judged, the machine was busy" in joined and "busy: other programs" in joined and "1 busy left out" in joined
    assert report.brief(lines).endswith("(busy machine)")


def test_quiet_rows_beside_busy_ones_are_judged():
    quiet = [measured("kernels", name, timing(0.5), torch=timing(1.0)) for name in ("softmax", "gelu", "relu")]
    text = shown(lines_of(*quiet, measured("kernels", "layer-norm", timing(9.0, others=2.0), torch=timing(1.0))), 240)
    assert "PyTorch eager: median ratio 0.50, worst 0.50 (softmax); 1 busy left out" in text
    assert "targets: 1 of 2 reached; 1 not judged, the machine was busy" in text


def test_no_percentage_over_a_hundred_is_without_a_mark_or_judged():
    lines = lines_of(measured("kernels", "softmax", timing(0.1)), measured("transforms", "decay", timing(1.0)))
    assert all(line["percent"] > 110 and not line["busy"] for line in lines)
    assert lines[1]["reached"] is None and lines[1]["verdict"] == ""
    text = shown(lines, 240)
    assert all(re.fullmatch(r"\d{3,}\*", row["% ceiling"]) for row in rows(text)[:2])
    assert "*: faster than the ceiling beside it" in text and "reached" not in text


def test_the_fastest_call_counts_for_work_and_ceiling():
    """Others make calls slower, never faster: 0.9 of the calls may be disturbed."""
    calls = [1e-3] + [5e-3] * 9
    assert harness.summary([worker.Turn(calls, 0.05, 0.0)], 1, worker.Built(0.1, [], None, 1)).min == 1.0

    class Seat:
        build, close, slow = (lambda self, name, mode: None), (lambda self: None), 3.0

        def block(self):
            self.slow -= 0.5
            return worker.Turn([1e-3 * max(self.slow, 1.0)], 0.1, 0.0)

    with harness.Plan("kernels", [], ["eager"], 1, 1, print, print, lambda *who: Seat()) as plan:
        item = import_module(f"{command.__package__}.kernels").WORKS["matmul"]
        before, after = (harness.measure_ceilings(plan, item) for _ in range(2))
    found = harness.best(before, after)
    assert found == harness.Ceilings(after.flops, after.copy, False) and after.flops > before.flops and after.copy > before.copy


@pytest.mark.skipif(not os.path.exists("/proc/stat"), reason="only Linux counts what every core did")
def test_another_process_on_the_same_cores_is_seen():
    """Oracle: a program that does nothing but count, beside this process, which sleeps."""
    spin = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        time.sleep(0.1)
        before, start = busy.other_seconds(), time.perf_counter()
        time.sleep(0.5)
        others = (busy.other_seconds() - before) / (time.perf_counter() - start)
    finally:
        spin.kill()
        spin.wait()
    assert others > 0.3 and busy.disturbed(others, 1.0, 1.0)


def test_own_work_is_not_taken_for_others(monkeypatch, tmp_path):
    stat = tmp_path / "stat"
    monkeypatch.setattr(busy, "STAT", stat)
    monkeypatch.setattr(busy.os, "sched_getaffinity", lambda pid: {1}, raising=False)
    monkeypatch.setattr(busy.os, "sysconf", lambda name: 100, raising=False)
    monkeypatch.setattr(busy.time, "process_time", lambda: 2.0)
    stat.write_text("cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 500 0 500 0 0 0 0 0 0 0\ncpu1 100 20 50 7000 60 1 2 27 90 0\nintr 5\n")
    assert busy.other_seconds() == 0.0  # 100 + 20 + 50 + 1 + 2 + 27 ticks of core 1; idle, waiting and guests do not count
    for text in ("", "cpu1 one\n", "cpu1 1 2\n"):
        stat.write_text(text)
        assert busy.other_seconds() in (None, -2.0)
    stat.unlink()
    assert busy.other_seconds() is None and not busy.disturbed(None, 1.0, 1.2)


# ---- pictures --------------------------------------------------------------------------------------------------------------------
def boxes(figure, texts):
    figure.canvas.draw()
    return [text.get_window_extent() for text in texts]


def apart(found) -> bool:
    return not any(a.overlaps(b) for i, a in enumerate(found) for b in found[:i])


def test_labels_of_the_stages_do_not_overlap_and_name_what_is_multiplied():
    figure = pictures.stages(lines_of(*[measured("products", name, torch=timing(1.0)) for name in products.WORKS]))
    for axes in figure.axes:
        assert apart(boxes(figure, axes.get_xticklabels())) and [text.get_text() for text in axes.get_xticklabels()][3].endswith(
            "transposed"
        )
    (legend,) = figure.legends
    assert apart([box.get_window_extent() for box in (legend, *figure.axes)])
    assert "naive (32 rows of the first matrix)" in [text.get_text() for text in legend.get_texts()]


def test_every_point_of_the_roofline_is_named_with_its_size():
    kernels = import_module(f"{command.__package__}.kernels").WORKS
    lines = lines_of(*[measured("kernels", name, timing(0.1 + i % 7), torch=timing(1.0)) for i, name in enumerate(kernels)])
    figure = roofline.roofline(lines)
    (axes,) = figure.axes
    drawn = [line["work"] for line in lines if line["gflops"] and line["gbs"]]
    numbers = [text for text in axes.texts if text.get_text().isdigit()]
    words = " ".join(text.get_text() for text in axes.texts if not text.get_text().isdigit()).split()
    assert words == [word for n, work in enumerate(drawn, 1) for word in (str(n), work)]
    assert [text.get_text() for text in numbers] == [str(n) for n in range(1, len(drawn) + 1)]
    assert axes.get_xlabel() == "arithmetic intensity (FLOP / byte)"


def test_pictures_of_a_busy_machine_say_so(tmp_path):
    lines = lines_of(*DISTURBED.values(), measured("products", "tile-float32@256x256x256", timing(1.0, 0.9)))
    assert "flamepy, machine busy" in [text.get_text() for text in roofline.roofline(lines).axes[0].get_legend().get_texts()]
    assert pictures.ratios(lines).axes[0].get_xlabel() == "flamepy time / other time; marks: target; pale: the machine was busy"
    assert pictures.stages(lines).legends[0].get_title().get_text() == "pale: the machine was busy"
    assert {path.name for path in pictures.draw(lines, tmp_path)} == {"roofline.png", "stages.png", "ratios.png"}


# ---- words -----------------------------------------------------------------------------------------------------------------------
def test_the_help_says_what_each_option_is_for(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["bench", "--help"]) == 0
    out = capsys.readouterr().out
    assert all(len(line) <= 79 for line in out.splitlines())
    for text in (
        "Compare with: torch, torch-compile, jax, or none.",
        "How many times each library is timed",
        "Threads for each library.",
    ):
        assert text in " ".join(out.split())


def test_notes_end_between_words_in_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(command.shutil, "get_terminal_size", lambda: os.terminal_size((40, 24)))
    text = "other programs are running (load 4.56): rows that they disturb are marked busy and not judged."
    command.note(text)
    command.progress(200 * "x")
    err = capsys.readouterr().err
    said = [part for part in re.split(r"[\r\n]+", err) if part.strip()]
    assert " ".join(said[:-1]) == f"bench: {text}" and all(len(part) <= 40 for part in said) and said[-1] == 39 * "x"


def test_a_warning_of_a_worker_is_a_line_without_code(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    worker.told(FlameWarning("kernels are compiled"), FlameWarning, "bench/libraries.py", 40)
    assert capsys.readouterr().err == "bench: kernels are compiled\n"
