"""What a person sees: plain lines in a pipe, a live line in a terminal, and speeds that leave compilation out."""

import io
import os
import re

import pytest

from flamepy.train import writers
from flamepy.train.display import Clock, LiveDisplay, PlainDisplay, Row, duration, kernel_title, make_display
from flamepy.train.problems import InputError


class Terminal(io.StringIO):
    def isatty(self):
        return True


def rows(count):
    return [Row(s, 5.0 / s, 5.0 / s + 0.1, 1e-3, 0.5) for s in range(1, count + 1)]


def test_plain_lines_outside_a_terminal(monkeypatch):
    stream = io.StringIO()
    display = make_display(100, "tokens", 768, stream)
    assert type(display) is PlainDisplay
    with display:
        display.compiled("map2_add_y_float32_0123456789", 0.26)
        for row in rows(100):
            display.step(row)
    lines = stream.getvalue().splitlines()
    assert re.match(r"compiled  map2_add_y float32 +0\.26 s$", lines[0])
    assert re.match(r"compiled  1 kernel in 0\.3 s", lines[1])
    names, *steps = [re.split("  +", line.strip()) for line in lines[2:]]
    assert names == ["step", "loss", "smoothed", "learning rate", "grad norm", "tokens/s", "left"]
    assert len(steps) == 21 and "\x1b" not in stream.getvalue()
    assert steps[-1][:5] == ["100/100", "0.0500", "0.1500", "1.00e-03", "0.5000"] and steps[-1][6] == "0:00"
    ends = {line.rstrip().find(word) + len(word) for line, word in ((lines[2], "loss"), (lines[3], "5.0000"), (lines[-1], "0.0500"))}
    assert len(ends) == 1  # numbers stand below their names


def test_names_of_columns_come_again_after_another_line():
    stream = io.StringIO()
    display = PlainDisplay(stream, 3, "tokens", 1)
    for row in rows(3):
        display.step(row)
        if row.step == 2:
            display.line("step 2/3  validation loss 1")
    assert [line.split()[0] for line in stream.getvalue().splitlines()] == ["step", "1/3", "2/3", "step", "step", "3/3"]


@pytest.mark.parametrize("variable, value, live", [("TERM", "dumb", False), ("NO_COLOR", "1", False), ("TERM", "xterm", True)])
def test_a_terminal_gets_the_live_display_unless_it_says_no(monkeypatch, variable, value, live):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv(variable, value)
    assert isinstance(make_display(10, "tokens", 1, Terminal()), LiveDisplay) is live


def test_live_display_shows_everything(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    stream = Terminal()
    with LiveDisplay(stream, 50, "tokens", 768) as display:
        display.compiled("gemm_nt_float32_0123456789", 1.5)
        for row in rows(20):
            display.step(row)
        display.live.refresh()
        shown = stream.getvalue()
    for word in ("step", "20/50", "0.2500", "smoothed", "learning rate", "1.00e-03", "grad norm", "tokens/s", "left", "40 %"):
        assert word in shown, word
    assert "compiled  gemm_nt float32" in shown
    assert "\x1b[?25h" in stream.getvalue()  # the cursor is back


@pytest.mark.parametrize("width", [20, 40, 60, 80])
def test_a_narrow_terminal_drops_columns_never_digits(monkeypatch, width):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(width))
    stream = Terminal()
    display = LiveDisplay(stream, 1_000_000, "tokens", 768)
    display.clock.steps, display.row = 20, Row(999_999, 1.234567, 2.345678, 1e-3, 3.456789)
    display.clock.recent.extend([0.01] * 18)
    display.console.print(display.render())
    lines = [re.sub(r"\x1b\[[\d;]*m", "", line).rstrip() for line in stream.getvalue().splitlines()]
    names, values, bar = (re.split("  +", line.strip()) for line in lines)
    whole = {
        "step": "999,999/1,000,000", "loss": "1.2346", "smoothed": "2.3457", "learning rate": "1.00e-03", "grad norm": "3.4568",
        "tokens/s": "76,800", "left": "0:00",
    }  # fmt: skip
    kept = {20: ["step"], 40: ["step", "loss", "left"], 60: ["step", "loss", "smoothed", "tokens/s", "left"], 80: list(whole)}[width]
    assert dict(zip(names, values, strict=True)) == {name: whole[name] for name in kept}
    assert all(len(line) <= width for line in lines) and any("99 %" in cell for cell in bar)


def test_the_time_left_is_told_only_when_it_is_known(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    stream = io.StringIO()
    with PlainDisplay(stream, 14, "tokens", 1) as display:
        for row, took in zip(rows(14), (60.0, 9.0, 0.5, *[0.1] * 11), strict=True):  # kernels are loaded, a step is recorded
            now[0] += took
            display.step(row)
    cells = [re.split("  +", line.strip()) for line in stream.getvalue().splitlines()[1:]]
    told = [(int(step.split("/")[0]), more[5] if more[5:] else "") for step, *more in cells]
    assert told == [(s, "") for s in range(1, 10)] + [(s, "0:00") for s in range(10, 15)]
    slow = Clock(1)
    for _ in range(4):
        now[0] += 6.0
        slow.step()
    assert slow.left(10) == "1:00"  # a few seconds are enough when steps are long


def test_compilation_is_not_counted_in_the_speed(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    clock = Clock(100)
    now[0] = 5.1
    clock.compiled(5.0)
    assert clock.step() == pytest.approx(0.1) and clock.seconds == pytest.approx(0.1)
    now[0] = 9.0
    clock.pause()  # a validation
    now[0] = 9.1
    assert clock.step() == pytest.approx(0.1)
    for _ in range(8):
        now[0] += 0.1
        clock.step()
    assert clock.left(20) == "0:02"


def test_small_texts():
    assert (duration(59.6), duration(3725)) == ("1:00", "1:02:05")
    assert kernel_title("softmax_float32_0123456789") == "softmax float32"
    assert kernel_title("other") == "other"


def test_a_reader_that_goes_away_is_noticed_not_fatal():
    read, write = os.pipe()
    with os.fdopen(write, "w") as stream:
        display = PlainDisplay(stream, 10, "tokens", 1)
        display.line("hello")
        os.close(read)
        display.line("world")
        assert display.broken
        display.line("and on")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_an_output_without_room_is_one_clear_line():
    with open("/dev/full", "w") as stream, pytest.raises(InputError, match="cannot write to the output: No space left"):
        PlainDisplay(stream, 10, "tokens", 1).line("hello")


def test_curves(tmp_path):
    lines = [{"step": s, "loss": 5 / s, "smoothed": 5 / s, "grad_norm": float(s != 3)} for s in range(1, 6)]
    lines[-1]["val_loss"] = 1.25
    for name in ("a.png", "b.png"):
        writers.draw(lines, tmp_path / name, "title", "nats")
    content = (tmp_path / "a.png").read_bytes()
    assert content.startswith(b"\x89PNG") and len(content) > 10_000
    assert content == (tmp_path / "b.png").read_bytes()
