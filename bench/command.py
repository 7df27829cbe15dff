"""The command line of the benchmarks: which suites, works, contenders and modes; a table, JSON lines and pictures come out.

`flamepy bench` and `python -m bench` both end here; cli.py turns errors into one line and signals into an exit code.

    exit codes   0 done   1 flamepy failed or was wrong   2 unusable input   130, 143 Ctrl-C, SIGTERM
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import json
import os
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from flamepy.disk import TEMPORARY
from flamepy.train.files import replace_file
from flamepy.train.problems import InputError, meant

from . import gpu, report
from .harness import Plan, measure, present
from .work import CONTENDERS, MODES, SUITES, Work, suite_of

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
BUSY = 0.5  # programs that run besides this one
HELP = """Time flamepy beside PyTorch and JAX. Results are compared first: where they differ, no speed is shown.

\b
SUITE is one or more of
  kernels     each kernel at several sizes, forward and backward
  ops         one million numbers through every other op
  products    a matrix product on one core, from three loops to packed blocks
  dispatch    the overhead of one op: 16 numbers, tracked
  optim       norm, clip and AdamW over 124 million parameters
  transforms  what edits gradients: clipping, centring, decay, noise, ...
  step        training steps: GPTs, an LSTM, MLPs, CNNs; eager and replayed
  control     plain Python and NumPy: times that no change of flamepy touches
  gpu         an NVIDIA GPU: kernels, products, training steps of GPT-2
  all

\b
Examples:
  flamepy bench step --work gpt-a,gpt-c --against torch,jax
  flamepy bench kernels --work 'gelu*' --json gelu.jsonl --pictures pictures
  flamepy bench products --against torch --pictures pictures
  flamepy bench step --against none --mode replay
  flamepy bench gpu --json gpu.jsonl
"""


def words(kind: str, given: str | None, known: Sequence[str]) -> list[str] | None:
    """A list with commas, of known words; None if the option was not given."""
    if given is None:
        return None
    found = [word.strip() for word in given.split(",") if word.strip() not in ("", "none")]
    for word in found:
        if word not in known:
            raise InputError(f"no such {kind}: '{word}'. {meant(word, known)}")
    return list(dict.fromkeys(found))


def works_of(suites: list[str], patterns: str | None) -> dict[str, list[Work]]:
    """The works of each suite whose names match; every pattern must match something."""
    everything = {name: list(suite_of(name).WORKS.values()) for name in suites}
    if patterns is None:
        return everything
    wanted = [p.strip() for p in patterns.split(",") if p.strip()]
    names = [work.name for works in everything.values() for work in works]
    for pattern in wanted:
        if not fnmatch.filter(names, pattern):
            some = ", ".join(names[:12]) + (f", ... ({len(names)} in all)" if len(names) > 12 else "")
            raise InputError(f"no such work in {', '.join(suites)}: '{pattern}'. {meant(pattern, names, some)}")
    chosen = {name: [w for w in works if any(fnmatch.fnmatchcase(w.name, p) for p in wanted)] for name, works in everything.items()}
    return {name: works for name, works in chosen.items() if works}


def make_places(file: Path | None, pictures: Path | None) -> None:
    """Make the folders that are written into when all is measured; refuse at once what could not be written an hour later."""
    for option, path, folder in (("--json", file, file and file.parent), ("--pictures", pictures, pictures)):
        if path is None or folder is None:
            continue
        try:
            if path is file and path.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder), contextlib.suppress(FileNotFoundError):
                os.stat(folder / (TEMPORARY + path.name))  # its name may be too long
        except (OSError, ValueError) as error:
            reason = "its folder is a file" if isinstance(error, FileExistsError) else getattr(error, "strerror", error)
            raise InputError(f"cannot write {option}: {path}: {reason}. Give another place.") from error


def progress(text: str) -> None:
    """What is going on, on one line that is overwritten, in a terminal only."""
    if sys.stderr is not None and sys.stderr.isatty():
        width = shutil.get_terminal_size().columns - 1
        print(f"\r{text[:width]:<{width}}\r", end="", file=sys.stderr, flush=True)


def done(text: str) -> None:
    """That a work is done, where the output goes into a file or pipe: the table is minutes away."""
    if not sys.stdout.isatty():
        print(text, flush=True)


def stop_here() -> None:
    """A reader that has gone ends the benchmarks as it ends every command."""
    raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def note(text: str) -> None:
    """What the user must know; in a terminal its lines end between words."""
    progress("")
    if sys.stderr is not None:
        width = shutil.get_terminal_size().columns if sys.stderr.isatty() else len(text) + len("bench: ")
        print(textwrap.fill(f"bench: {text}", width, break_long_words=False, break_on_hyphens=False), file=sys.stderr, flush=True)


@click.command(help=HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.argument("suite", nargs=-1, required=True)
@click.option("--against", metavar="NAMES", help=f"Compare with: {', '.join(CONTENDERS)}, or none. The default depends on the suite.")
@click.option("--work", metavar="NAMES", help="Time only these rows; * stands for any characters. Default: all of the suite.")
@click.option("--mode", metavar="NAMES", help="How flamepy runs training steps: eager, replay. Default: both.")
@click.option("--json", "file", type=click.Path(path_type=Path), metavar="FILE", help="Write one JSON line for each comparison.")
@click.option(
    "--pictures",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Draw roofline.png, stages.png and ratios.png, as far as there are numbers for them.",
)
@click.option("--threads", type=click.IntRange(1, CORES), default=CORES, metavar="N", help=f"Threads for each library.  [{CORES}]")
@click.option("--rounds", type=click.IntRange(1), default=20, metavar="N", help="How many times each library is timed, 0.15 s each.  [20]")
def command(
    suite: tuple[str, ...], against: str | None, work: str | None, mode: str | None, file: Path | None, pictures: Path | None,
    threads: int, rounds: int,
) -> int:  # fmt: skip
    suites = list(SUITES) if suite == ("all",) else words("suite", ",".join(suite), SUITES) or []
    modes = words("mode", mode, MODES) or list(MODES)
    wanted = words("contender", against, list(CONTENDERS))
    works = works_of(suites, work)
    if not any(set(w.modes) & set(modes) for chosen in works.values() for w in chosen):
        raise InputError(f"nothing to time: none of these works has the mode {', '.join(modes)}. Use --mode eager.")
    if without := "gpu" in works and gpu.missing():
        if len(works) == 1:
            raise InputError(f"gpu: {without}")
        note(f"gpu skipped: {without}")
        works.pop("gpu")
    make_places(file, pictures)

    def keep(lines: list[report.Line]) -> None:
        if file is not None:
            replace_file(file, "".join(json.dumps(line) + "\n" for line in lines).encode())

    lines, wrong = run(works, wanted, modes, threads, rounds, keep)
    if pictures is not None:
        from .pictures import draw

        for path in draw(lines, pictures):
            print(path)
    return 1 if wrong else 0


def run(
    works: dict[str, list[Work]], wanted: list[str] | None, modes: list[str], threads: int, rounds: int,
    keep: Callable[[list[report.Line]], None] = lambda lines: None,
) -> tuple[list[Any], bool]:  # fmt: skip
    """Measure suite after suite and show each table; all JSON lines, and whether something went wrong. `keep` gets all lines so far."""
    from rich.console import Console

    about, wrong = report.facts(threads), False
    lines: list[report.Line] = []
    if (about["load"] or 0) > BUSY:
        note(f"other programs are running (load {about['load']}): rows that they disturb are marked busy and not judged.")
    asked = [c for name in works for c in (suite_of(name).DEFAULT if wanted is None else wanted)]
    here = present(list(dict.fromkeys(asked)), note)
    console = Console(width=None if sys.stdout.isatty() else 240)
    console.on_broken_pipe = stop_here  # type: ignore[method-assign]  # rich would exit with 1
    for name, chosen in works.items():
        suite = suite_of(name)
        against = [c for c in here if c in (suite.DEFAULT if wanted is None else suite.AGAINST)]
        found: list[report.Line] = []
        own = about | {"threads": min(threads, getattr(suite, "THREADS", threads))} | getattr(suite, "about", dict)()
        with Plan(name, against, modes, own["threads"], rounds, note, progress) as plan:
            for number, work in enumerate(chosen, 1):
                outcome = measure(plan, work)
                told = report.lines_of(outcome, own)
                done(f"{name} {number}/{len(chosen)} {work.name}: {report.brief(told)}")
                found += told
                keep(lines + found)
                wrong = wrong or outcome.wrong
        progress("")
        report.show(found, console)
        lines += found
    keep(lines)
    return lines, wrong
