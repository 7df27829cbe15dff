"""What a person sees while a model trains: a live line in a terminal, plain lines in a file or pipe.

PlainDisplay prints lines; those of steps are rows of a table: step, loss, smoothed loss, learning rate, gradient norm, tokens per second,
time left. LiveDisplay keeps one such row below the other lines. Compilation is told kernel by kernel, on lines of its own, and never
counted in the speed.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import statistics
import sys
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple, TextIO

from ..backend.base import device
from ..core.errors import DeviceError
from .files import GONE, silence
from .lines import fitted, width
from .problems import InputError


class Row(NamedTuple):
    """What one training step has to say. `step` counts finished steps."""

    step: int
    loss: float
    smoothed: float
    lr: float
    grad_norm: float


WIDTHS = (0, 7, 8, 0, 0, 8, 7)  # columns of the table, at least
LEAST = (3, 4, 5, 2, 6, 1)  # which of them give way in a narrow window, the first first


def short(x: float) -> str:
    """Four decimals, unless the number is huge."""
    return f"{x:.4f}" if abs(x) < 1e6 else f"{x:.3e}"


class Clock:
    """Speed and time left from the last hundred steps, without the time spent compiling."""

    COLD = 2  # the first steps load kernels from disk and fill the allocator
    ENOUGH, LONG = 8, 5.0  # after so many more steps, or seconds of them, the time left is known
    WINDOW, SLOW = 20, 4  # every so many steps: does half of them take so many times as long as the fastest of all?

    def __init__(self, per_step: int):
        self.per_step = per_step
        self.recent: deque[float] = deque(maxlen=100)
        self.steps = 0
        self.fastest = math.inf
        self.last = time.perf_counter()
        self.compiling = 0.0

    def compiled(self, seconds: float) -> None:
        self.compiling += seconds

    def pause(self) -> None:
        """What happened since the last step (a validation, a checkpoint) was not training."""
        self.last, self.compiling = time.perf_counter(), 0.0

    def step(self) -> float:
        """One step is done; how long it took."""
        now = time.perf_counter()
        took = max(now - self.last - self.compiling, 1e-9)
        self.steps += 1
        if self.steps <= self.COLD + 1:
            self.recent.clear()
            self.fastest = math.inf
        self.recent.append(took)
        self.fastest = min(self.fastest, took)
        self.last, self.compiling = now, 0.0
        return took

    def slowdown(self) -> float:
        """How many times as long as the fastest step the last ones took; 1 unless they are many and it is much."""
        if self.steps % self.WINDOW or len(self.recent) < self.WINDOW:
            return 1.0
        ratio = statistics.median(list(self.recent)[-self.WINDOW :]) / self.fastest
        return ratio if ratio > self.SLOW else 1.0

    @property
    def seconds(self) -> float:
        """Of one step."""
        return sum(self.recent) / len(self.recent) if self.recent else math.nan

    def left(self, steps: int) -> str:
        """The time for so many steps; empty while too few were measured to know it."""
        warm = self.steps > self.COLD and (len(self.recent) >= self.ENOUGH or sum(self.recent) >= self.LONG)
        return duration(steps * statistics.median(self.recent)) if warm else "" if steps else duration(0)


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def columns_that_fit(widths: Sequence[int], room: int, least: Sequence[int]) -> list[int]:
    """Which columns, two spaces apart, fit side by side into `room`; those in `least` give way, in that order, and no other."""
    kept = list(range(len(widths)))
    for column in least:
        if sum(widths[i] + 2 for i in kept) - 2 <= room:
            break
        kept.remove(column)
    return kept


def kernel_title(name: str) -> str:
    """map1_gelu_y_float32_0a1b2c3d4e -> map1_gelu_y float32; turn_matrix4_0a1b2c3d4e -> turn_matrix4."""
    return re.sub(r"(_(b?float\d+|u?int\d+|bool))?_[0-9a-f]{10}$", lambda found: f" {found[2]}" * bool(found[2]), name)


def are_kept() -> bool:
    """Whether compiled kernels find a place on disk."""
    try:
        return bool(device("cpu").cache_folder())
    except DeviceError:
        return False


class PlainDisplay:
    """Lines on a stream."""

    EVERY_SECONDS = 15.0

    def __init__(self, stream: TextIO, steps: int, unit: str, per_step: int):
        self.stream, self.steps, self.unit = stream, steps, unit
        self.clock = Clock(per_step)
        self.kernels, self.kernel_seconds = 0, 0.0
        self.told = 0.0
        self.told_busy = False
        self.under_names = False  # whether the last line was a row of the table, or the names above it
        self.broken = False  # whoever read our lines has gone, as in `flamepy train | head`

    def __enter__(self) -> PlainDisplay:
        self.clock.pause()
        return self

    def __exit__(self, *exc: Any) -> None:
        self.compile_summary()

    def line(self, text: str = "") -> None:
        self.under_names = False
        if self.broken:
            return
        try:
            self.write(fitted(text))
        except OSError as error:
            silence(self.stream)
            if error.errno in GONE:
                self.broken = True
                return
            raise InputError(f"cannot write to the output: {error.strerror}. Send it somewhere with room.") from error

    def write(self, text: str) -> None:
        print(text, file=self.stream, flush=True)

    def compiled(self, kernel: str, seconds: float) -> None:
        """Listener for bind.on_compile."""
        self.clock.compiled(seconds)
        self.kernels += 1
        self.kernel_seconds += seconds
        self.line(f"compiled  {kernel_title(kernel):<44} {seconds:6.2f} s")

    def compile_summary(self) -> None:
        """One line for all that was compiled since the last summary."""
        if self.kernels:
            many = f"{self.kernels} kernel{'s' * (self.kernels > 1)}"
            kept = "; the kernel cache keeps them for the next run" if are_kept() else ""
            self.line(f"compiled  {many} in {self.kernel_seconds:.1f} s{kept}")
            self.kernels, self.kernel_seconds = 0, 0.0

    def step(self, row: Row) -> float:
        """Show one finished step; its seconds."""
        took = self.clock.step()
        self.show(row)
        slowdown = self.clock.slowdown()
        if slowdown > 1 and not self.told_busy:
            self.told_busy = True
            self.line(f"busy machine: steps take {slowdown:.0f} times as long as the fastest did; flamepy doctor measures how busy")
        return took

    def show(self, row: Row) -> None:
        every = max(1, self.steps // 20)
        now = time.perf_counter()
        if row.step % every == 0 or row.step in (1, self.steps) or now - self.told > self.EVERY_SECONDS:
            self.compile_summary()
            self.told = now
            self.tell(row)

    def tell(self, row: Row) -> None:
        """A row of a table; the names of its columns, where they are not just above."""
        names, values = zip(*self.cells(row), strict=True)
        widths = [max(len(name), len(value), least) for name, value, least in zip(names, values, WIDTHS, strict=True)]
        shown = columns_that_fit(widths, width(), LEAST)
        for cells in (values,) if self.under_names else (names, values):
            self.line("  ".join([cells[i].rjust(widths[i]) for i in shown]).rstrip())
        self.under_names = True

    def cells(self, row: Row) -> list[tuple[str, str]]:
        """What is shown of a step, by its name."""
        speed, left = f"{self.clock.per_step / self.clock.seconds:,.0f}", self.clock.left(self.steps - row.step)
        values = (f"{row.step:,}/{self.steps:,}".rjust(2 * len(f"{self.steps:,}") + 1), short(row.loss), short(row.smoothed))
        names = "step", "loss", "smoothed", "learning rate", "grad norm", f"{self.unit}/s", "left"
        return list(zip(names, (*values, f"{row.lr:.2e}", short(row.grad_norm), speed, left), strict=True))

    def busy(self, what: str) -> None:
        """Something other than a step begins."""

    def pause(self) -> None:
        """Something other than a step ended."""
        self.clock.pause()


class LiveDisplay(PlainDisplay):
    """The same lines, and a progress line that stays at the bottom of the terminal."""

    def __init__(self, stream: TextIO, steps: int, unit: str, per_step: int):
        super().__init__(stream, steps, unit, per_step)
        from rich.console import Console
        from rich.live import Live

        self.console = Console(file=stream, highlight=False)
        self.row: Row | None = None
        self.activity = "starting"
        self.live = Live(console=self.console, get_renderable=self.render, refresh_per_second=8, transient=True)

    def __enter__(self) -> LiveDisplay:
        self.live.start()
        self.clock.pause()
        return self

    def __exit__(self, *exc: Any) -> None:
        with contextlib.suppress(OSError):  # the terminal may be gone
            self.live.stop()
        if self.row is not None:
            self.tell(self.row)
        super().__exit__(*exc)

    def write(self, text: str) -> None:
        self.console.print(text, markup=False, soft_wrap=True)

    def show(self, row: Row) -> None:
        if self.kernels and row.step > 1:
            self.compile_summary()
        self.row, self.activity = row, "training"

    def busy(self, what: str) -> None:
        self.activity = what

    def pause(self) -> None:
        super().pause()
        self.activity = "training" if self.row is not None else "first step (compiles the kernels that the kernel cache lacks)"

    def render(self) -> Any:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        row = self.row
        if row is None:
            return Text(f"{self.activity} ...", style="dim")
        styles = ("bold", "bold green", "green", "", "", "", "cyan")
        cells = [(name, value.strip(), style) for (name, value), style in zip(self.cells(row), styles, strict=True)]
        widths, room = [max(len(name), len(value)) for name, value, _ in cells], self.console.width
        shown = [cells[i] for i in columns_that_fit(widths, room, LEAST) if cells[i][1]]
        table, bar = Table.grid(padding=(0, 2)), Table.grid(padding=(0, 2))
        for _ in shown:
            table.add_column(overflow="fold")
        table.add_row(*[Text(name, style="dim") for name, *_ in shown])
        table.add_row(*[Text(value, style=style) for _, value, style in shown])
        share = f"{100 * row.step // self.steps} %"
        long = max(1, min(40, room - len(share) - 2))
        ends = [Text(share), Text(self.activity, style="dim")]
        bar.add_row(ProgressBar(self.steps, row.step, width=long), *ends[: len(columns_that_fit((long, *map(len, ends)), room, (2,))) - 1])
        return Group(table, bar)


def make_display(steps: int, unit: str, per_step: int, stream: TextIO | None = None) -> PlainDisplay:
    """Live in a terminal that can do it; NO_COLOR and TERM=dumb are respected."""
    stream = stream or sys.stdout
    capable = stream.isatty() and os.environ.get("TERM", "") not in ("dumb", "") and not os.environ.get("NO_COLOR")
    return (LiveDisplay if capable else PlainDisplay)(stream, steps, unit, per_step)
