"""What the command prints fits the window: no line is wider, no word is broken, paths and commands stay whole."""

from __future__ import annotations

import io
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from train_tools import flamepy, prepare, train

from flamepy.command import cli
from flamepy.command.gpu import report as gpu_report
from flamepy.train.lines import amount, fitted, say, verbatim, whole


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    prepare(tmp_path, monkeypatch)


def too_wide(text: str, columns: int = 80) -> list[str]:
    """Lines that could have been broken."""
    return [line for line in text.splitlines() if len(line) > columns and len(line.split()) > 1]


def test_lines_are_broken_between_words(monkeypatch) -> None:
    draw = random.Random(0)
    for _ in range(300):
        columns = draw.choice([1, 20, 40, 80])
        monkeypatch.setenv("COLUMNS", str(columns))
        words = ["x" * draw.randint(1, 50) + draw.choice(["", "-y", "/z", ",", "\N{EM DASH}"]) for _ in range(draw.randint(0, 30))]
        text = draw.choice(["", "  ", "label  ", "two words     "]) + draw.choice([" ", "  "]).join(words)
        lines = fitted(text)
        assert lines.split() == text.split() and (columns < 20 or not [x for x in too_wide(lines, columns) if len(x.split()) > 2])


def test_what_follows_a_label_continues_below_it(monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    assert fitted("data      one two three four five") == "data      one two three four\n          five"
    assert fitted("  holds   one two three four five") == "  holds   one two three four\n          five"
    assert fitted("plain words that go on and on and on") == "plain words that go on and on\n  and on"
    assert fitted("a\n\n  b") == "a\n\n  b" and fitted("") == ""
    assert fitted("a label that is long itself  " + "x" * 9) == "a label that is long itself\n  xxxxxxxxx"


def test_paths_and_commands_stay_whole(monkeypatch, capsys) -> None:
    monkeypatch.setenv("COLUMNS", "24")
    path = "/home/anna maria/runs/gpt-1 \N{NO-BREAK SPACE}x"
    say(f"go on     {whole('flamepy train --resume ' + path)} now")
    assert capsys.readouterr().out == f"go on\n          flamepy train --resume {path}\n          now\n"


def test_other_peoples_text_is_all_there(monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    text = "def f(x):\n    return x\n\n" + "y" * 37 + " and  more - of it\n"
    lines = list(verbatim(text))
    assert all(len(line) <= 20 for line in lines)
    joined = "".join(("\n" if line.startswith("  | ") else "") + line[4:] for line in lines)
    assert joined == "\n" + text


def test_amounts() -> None:
    told = [amount(n) for n in (0, 999, 43e6, 82072.2e6, 999_960_000, 5e15)]
    assert told == ["0.0 kB", "1.0 kB", "43.0 MB", "82.1 GB", "1.0 GB", "5,000,000.0 GB"]


def commands(group: click.Group, *before: str) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, *before, name)
        elif name != "bench":
            yield (*before, name)
    yield before


@pytest.mark.parametrize("command", [words for words in commands(cli.cli) if words != ("train",)], ids=" ".join)
def test_help_fits_and_no_summary_is_cut(capsys, command) -> None:
    code, out, err = flamepy(capsys, *command, "--help")
    assert (code, err) == (0, "") and [line for line in out.splitlines() if len(line) > 80 or re.search(r"\w-$", line)] == []
    assert "..." not in out.partition("Commands:")[2]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_errors_are_one_line_but_in_a_terminal(capsys, monkeypatch) -> None:
    """There they are broken between words, and what is to be typed is not."""
    prepared = ["--device", "plain", "--steps", "2", "--out", "run"]
    assert train(capsys, *prepared)[0] == 0
    (Path("run") / "checkpoints" / "last").write_text("step-00000009")
    code, _, line = flamepy(capsys, "sample", "run")
    monkeypatch.setattr("sys.stderr", Terminal())
    assert cli.run(["sample", "run"]) == code == 2
    shown = sys.stderr.getvalue()
    assert line.count("\n") == 1 and shown.split() == line.split() and too_wide(shown.partition("  echo")[0]) == []
    assert re.search(r": *\n? *(echo step-\d+ > \S+)\n$", shown), shown


def test_lists_fit(capsys) -> None:
    for command in (["kernel", "--list"], ["cache", "ls"], ["version"]):
        code, out, _ = flamepy(capsys, *command)
        assert code == 0 and too_wide(out) == [], out


def test_a_run_fits(capsys) -> None:
    _, out, _ = train(capsys, "--device", "plain", "--steps", "8", "--stop-after", "4", "--out", "a run")
    code, more, err = flamepy(capsys, "train", "--resume", "a run", "--steps", "12")
    assert (code, err) == (0, "") and "schedule  " in more
    assert too_wide(re.sub(r"\S*(/| run)\S*", "path", out + more)) == [], out + more
    assert re.search(r"^go on\s+flamepy train --resume '/.*/a run'\n", out, re.M)


def test_a_report_of_a_gpu_fits(capsys, monkeypatch) -> None:
    found = {"ok": True, "packages": {}, "findings": [], "compile_ms": 1.0, "link_ms": 2.0, "load_ms": 3.0}
    losses = {"ok": True, "losses": [5.4, 5.3], "norms": [1.0, 1.0], "step_ms": 1.0, "grown_bytes": 0, "launched": 1_000_000,
              "memory": {"peak": 10**9}, "settings": "4 layers, width 128, context 64, batch 12"}  # fmt: skip
    report = gpu_report.Report(None)
    report.emulated = False
    monkeypatch.setattr(report, "task", lambda name, seconds: found if name == "facts" else losses)
    monkeypatch.setattr(report, "judged", lambda name, answer: {**losses, "losses": [5.5, 5.3]})
    monkeypatch.setattr(gpu_report, "finish", lambda process, seconds: {})
    assert gpu_report.there(report)
    gpu_report.training(report, None, 1.0)
    worst = {"case": "scaled_dot_product_attention, heads of 128", "dtype": "bfloat16", "ok": True, "forward": 1e-3, "backward": 2e-3}
    for line in gpu_report.tables([worst]):
        say(line)
    gpu_report.summary(report)
    out = capsys.readouterr().out
    words = " ".join(out.split())
    assert too_wide(out) == [] and "1.0 GB at most" in words and "PROBLEM" in out and "losses differ by 1.8e-02" in words
