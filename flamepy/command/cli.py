"""The `flamepy` command: train, sample, kernel, doctor, warmup, cache, bench, version.

This file reads the command line and turns every outcome into one line and an exit code; the work is beside it and in train/.

    exit codes   0 done   1 training failed, or doctor found a problem   2 unusable input   130, 143 Ctrl-C, SIGTERM
"""

from __future__ import annotations

import codecs
import importlib
import io
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from ..errors import FlameError, FlameWarning
from ..train.config import DigitsConfig, GptConfig, TrainConfig, resolve
from ..train.files import GONE, silence
from ..train.lines import fitted, say, whole
from ..train.problems import InputError, Interrupted
from ..train.signals import StopRequest
from .options import DIGITS_HELP, GPT_HELP, Commands, Jobs, job_command, wrong_usage

COMMAND = re.compile("(?<=: )(flamepy|echo) .*$")
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


def print_version(ctx: click.Context, option: click.Parameter, wanted: bool) -> None:
    if wanted:
        version.callback()  # type: ignore[misc]
        ctx.exit()


@click.group(cls=Commands, context_settings=CONTEXT)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=print_version, help="Print flamepy's version.")
def cli() -> None:
    """Train, sample and check: a tape autograd engine you can read in an evening.

    \b
    flamepy train              train a small GPT here; nothing is downloaded
    flamepy sample runs/gpt-1  let it write
    flamepy doctor             is this machine set up well?
    """


@cli.group(cls=Jobs, add_help_option=False, short_help="Train a GPT from scratch, or (train digits) a reader of digits.")
def train() -> None:
    """Train a model from scratch: a GPT on text, or (train digits) a digit reader."""


def train_job(name: str, kind: type[TrainConfig]) -> Callable[..., int]:
    """What runs when the command is called."""

    def run(
        out: str | None, resume: str | None, stop_after: int | None, find_lr: str | None, config: str | None, preset: str | None,
        **options: Any,
    ) -> int:  # fmt: skip
        from ..train import jobs

        given = {key: value for key, value in options.items() if value is not None}
        stop: StopRequest = click.get_current_context().obj
        if stop_after is not None and stop_after < 1:
            raise InputError(f"--stop-after must be at least 1: {stop_after}. Give a step number.")
        if find_lr is not None:
            for option, other in (("--out", out), ("--resume", resume), ("--stop-after", stop_after)):
                if other is not None:
                    raise InputError(f"{option} does not go with --find-lr: {other}. It makes no run folder.")
            jobs.try_rates(name, resolve(kind, given, None if config is None else Path(config), preset), find_lr, stop)
        elif resume is None:
            wanted = resolve(kind, given, None if config is None else Path(config), preset)
            jobs.start(name, wanted, out, stop_after, stop)
        else:
            for option, value in (("--out", out), ("--config", config), ("--preset", preset)):
                if value is not None:
                    raise InputError(f"{option} does not go with --resume: {value}. A resumed run keeps its folder and settings.")
            jobs.resume(name, Path(resume), given, stop_after, stop)
        return 0 if stop.number is None else 128 + stop.number

    return run


train.add_command(job_command("gpt", GptConfig, GPT_HELP, "flamepy train [OPTIONS]", train_job("gpt", GptConfig)))
train.add_command(job_command("digits", DigitsConfig, DIGITS_HELP, "flamepy train digits [OPTIONS]", train_job("digits", DigitsConfig)))


@cli.command(short_help="Let a trained GPT write text.")
@click.argument("run", metavar="RUN")
@click.option("--prompt", default="\n", help="Text to continue.")
@click.option("--tokens", type=int, default=400, metavar="N", help="How many bytes to write.  [400]")
@click.option("--temperature", type=float, default=0.8, metavar="X", help="0 always takes the most likely byte; higher is wilder.  [0.8]")
@click.option("--top-k", type=int, default=0, metavar="K", help="Choose among the K most likely bytes only; 0: all.  [0]")
@click.option("--seed", type=int, default=1337, metavar="N", help="Another seed, another text.  [1337]")
@click.option("--no-cache", is_flag=True, hidden=True, help="Compute every byte from the whole context again.")
def sample(run: str, prompt: str, tokens: int, temperature: float, top_k: int, seed: int, no_cache: bool) -> int:
    """Let the model of the run folder RUN write text."""
    from ..train import sample as sampling

    sampling.command(Path(run), prompt, tokens, temperature, top_k, seed, cached=not no_cache)
    return 0


@cli.command(short_help="Show an op's formula, kernels and machine code.")
@click.argument("name", metavar="NAME", required=False)
@click.option("--list", "listed", is_flag=True, help="Print every NAME there is.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", help="Machine code for which device; no GPU is needed.  [cpu]")
@click.option("--run", "elements", type=int, metavar="N", help="Run it on N elements, too, and measure; for cuda an emulated GPU counts.")
@click.option("--dtype", default="float32", metavar="NAME", help="float32, float64, bfloat16 (bf16), float16 (fp16), ...  [float32]")
@click.option("--arch", default="sm_90", metavar="NAME", help="With --device cuda: for which generation of GPUs.  [sm_90]")
def kernel(name: str | None, listed: bool, device: str, elements: int | None, dtype: str, arch: str) -> int:
    """Show the kernels of the op or optimizer NAME: formula, loop, LLVM or PTX, machine code, and what a run measures.

    Capitals in NAME do not count: gelu, GELU, AdamW.
    """
    from . import kernel as kernels

    if listed:
        return kernels.list_names()
    if name is None:
        raise InputError("no name given. Name an op or an optimizer, such as gelu; flamepy kernel --list prints all.")
    return kernels.command(name, device, elements, dtype, arch)


@cli.command(short_help="Is this machine set up well?")
@click.option("--gpu", is_flag=True, help="Check the GPU: each kernel against the reference, speeds, a short training. Takes minutes.")
@click.option("--json", "file", type=click.Path(path_type=Path), metavar="FILE", help="With --gpu: write all that was found, as JSON.")
@click.option("--cases", default="", metavar="NAME", help="With --gpu: only cases whose names begin with NAME.")
def doctor(gpu: bool, file: Path | None, cases: str) -> int:
    """Check this machine: versions, threads, kernels, kernel cache, GPU. Each problem comes with its remedy."""
    from . import doctor as checks
    from .gpu import report as gpu_report

    if not gpu and (file is not None or cases):
        raise InputError(f"{'--json' if file is not None else '--cases'} goes with --gpu: {file or cases}. Add --gpu.")
    return gpu_report.command(file, cases) if gpu else checks.command()


@cli.command(short_help="Compile the default runs' kernels now.")
def warmup() -> int:
    """Compile the kernels of the default training runs now, so that the first run starts at once."""
    from . import warmup as compiling

    return compiling.command()


@cli.group(cls=Commands, short_help="List or empty the cache of compiled kernels.")
def cache() -> None:
    """The kernel cache: compiled kernels, for the CPU and for GPUs, kept for the next run."""


@cache.command("ls", short_help="List what is in it.")
def cache_ls() -> int:
    """List what is in it: which kernels, how large, in which folder."""
    from . import cache as kernel_cache

    return kernel_cache.list_kernels()


@cache.command("clear", short_help="Empty it, or one half of it.")
@click.option("--cpu", is_flag=True, help="Only the kernels of the CPU.")
@click.option("--gpu", is_flag=True, help="Only what is kept for GPUs and for the emulated one.")
def cache_clear(cpu: bool, gpu: bool) -> int:
    """Say what is in it, and empty it; the next run compiles again."""
    from . import cache as kernel_cache

    return kernel_cache.clear(cpu or not gpu, gpu or not cpu)


def benchmarks() -> Any:
    """The benchmarks' command: installed with flamepy, or in the checkout this flamepy was imported from."""
    try:
        return importlib.import_module("flamepy.bench.command")
    except ModuleNotFoundError as error:
        if error.name != "flamepy.bench":
            raise
    checkout = Path(__file__).parents[2]
    if not (checkout / "bench" / "command.py").exists():
        raise InputError('the benchmarks are not installed. pip install "flamepy[bench]"')
    if str(checkout) not in sys.path:
        sys.path.insert(0, str(checkout))
    return importlib.import_module("bench.command")


@cli.command(
    context_settings={"ignore_unknown_options": True}, add_help_option=False, short_help="How fast it is here, beside PyTorch and JAX."
)  # fmt: skip
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def bench(arguments: tuple[str, ...]) -> int:
    """Time kernels and training steps beside PyTorch and JAX."""
    return invoke(benchmarks().command, list(arguments), "flamepy bench")


@cli.command(short_help="Print flamepy's version and where it is.")
def version() -> int:
    """Print flamepy's version, what it runs on and where it is."""
    from ..train.state import versions

    flamepy, *others = (f"{name} {number}" for name, number in versions().items())
    say(f"{flamepy} ({', '.join(others)}) in {whole(Path(__file__).parents[1])}")
    return 0


def run(args: list[str]) -> int:
    """Run one command; every foreseeable failure is one line on standard error and an exit code, also one of the output itself."""
    name = f"flamepy {args[0]}" if args and args[0] in cli.commands else "flamepy"
    if sys.stdout is None:
        complain(name, f"the output is closed. Send it to a file, or to {os.devnull}.")
        return 2
    try:
        code = attempt(name, args)
        sys.stdout.flush()  # what fails at exit fails unseen
        return code
    except OSError as error:
        if error.filename is not None:  # not the output but a file
            raise
        if isinstance(error, FileNotFoundError):
            complain(name, "the folder in which this runs is gone. Change to another one.")
            return 2
        silence(sys.stdout)
        if error.errno in GONE:
            return 141
        complain(name, f"cannot write to the output: {error.strerror}. Send it somewhere with room.")
        return 2


def attempt(name: str, args: list[str]) -> int:
    """Run one command; what it raises becomes a line and an exit code."""
    try:
        with StopRequest() as stop, plain_warnings(name):
            return invoke(cli, args, "flamepy", stop)
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.ctx.get_help() if error.ctx else error.format_message())
        return 2
    except click.UsageError as error:
        code, text = 2, f"{wrong_usage(error)} See {name} --help."
    except MemoryError:
        smaller = "Give --run fewer elements" if "kernel" in args[:1] else "Choose a smaller --batch, --context or --width"
        code, text = 2, f"not enough memory. {smaller}, or close other programs."
    except FlameError as error:
        code, text = 2 if isinstance(error, InputError) else 1, str(error)
    except Interrupted as error:
        what = "before training began; nothing to save" if name == "flamepy train" else "as you asked"
        code, text = error.exit_code, f"interrupted {what}."
    complain(name, text)
    return code


@contextmanager
def plain_warnings(name: str) -> Iterator[None]:
    """flamepy's warnings are lines of the command's: there is no line of the user's to show."""
    before = warnings.showwarning

    def show(message: Any, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, FlameWarning):
            complain(name, str(message))
        else:
            before(message, category, *where, **more)

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = before


def as_it_can(error: UnicodeError) -> tuple[bytes, int]:
    """What a stream's encoding lacks: a byte of a path as that byte, anything else as a question mark."""
    assert isinstance(error, UnicodeEncodeError)
    codes = [ord(c) - 0xDC00 for c in error.object[error.start : error.end]]
    return bytes(code if 0x80 <= code <= 0xFF else ord("?") for code in codes), error.end


def invoke(command: click.Command, args: list[str], name: str, stop: Any = None) -> int:
    """click's main() without its own ideas about broken pipes and exit codes."""
    try:
        with command.make_context(name, list(args), obj=stop) as context:
            return command.invoke(context) or 0
    except click.exceptions.Exit as error:  # --help
        return error.exit_code


def complain(name: str, text: str) -> None:
    """One line on standard error, if there is one; as many as it takes in a terminal, where the command at its end stays whole."""
    if sys.stderr is not None:
        line = f"{name}: {text}"
        shown = fitted(COMMAND.sub(lambda end: whole(end[0]), line)) if sys.stderr.isatty() else line
        try:
            print(shown, file=sys.stderr, flush=True)
        except OSError:
            silence(sys.stderr)


def main(args: list[str] | None = None) -> None:
    """Entry point of the `flamepy` script."""
    codecs.register_error("flamepy", as_it_can)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # None where it is closed
            stream.reconfigure(errors="flamepy")
    sys.exit(run(sys.argv[1:] if args is None else args))
