"""How a command line is read: commands and their options, what `flamepy train --help` says, and what was probably meant by a wrong one.

The options of settings are made from train/config.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, get_type_hints

import click

from ..train.config import PRESETS, TrainConfig, settings, spelled
from ..train.problems import meant, nearest

PICTURE = "find-lr.png"
GPT_HELP = """Train a small GPT from scratch, on this machine, one byte of text after another.

Without options it learns from the text of Python's standard library (nothing is downloaded), takes a minute or two,
shows its progress and leaves a run folder, runs/gpt-1, with settings, metrics, a picture of the curves, checkpoints and
a sample of what it writes. Ctrl-C saves a checkpoint and stops; --resume goes on as if nothing had happened.

\b
Examples:
  flamepy train                                 the whole thing
  flamepy train --preset tiny                   a first try, some seconds
  flamepy train --data book.txt --steps 5000    your own text, longer
  flamepy train --resume runs/gpt-1             go on with a stopped run
  flamepy train --preset tiny --find-lr         which learning rate?
  flamepy train digits --help                   the other job: read digits
"""
DIGITS_HELP = """Train two small networks to read handwritten digits: an MLP and a CNN.

Without options they learn from the 1,797 digits that come with scikit-learn (pip install "flamepy[data]"): 1,290 to train on,
143 for validation meanwhile, 364 for the test at the end, which nothing sees before. Of other images every tenth given for
training is for validation. A run folder, runs/digits-1, keeps everything, as with flamepy train.

\b
Examples:
  flamepy train digits
  flamepy train digits --model cnn
  flamepy train digits --preset mnist --data mnist/    MNIST's four idx files,
                                                       compressed (.gz) or not
"""


class Sections(click.Command):
    """A command whose options are listed under headings: Data, Model, Training, Run; after them what only --config takes."""

    usage = ""
    headings: Mapping[str, str] = MappingProxyType({})
    only_config: Mapping[str, dataclasses.Field] = MappingProxyType({})

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write(f"Usage: {self.usage}\n")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        grouped: dict[str, list] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record:
                grouped.setdefault(self.headings.get(str(parameter.name), "Run"), []).append(record)
        for heading, records in grouped.items():
            with formatter.section(heading):
                formatter.write_dl(records, col_max=24)
        with formatter.section("Only in a file given with --config, a line `name = value` for each"):
            formatter.write_dl([(name, f"{f.metadata['help']}  [{f.default}]") for name, f in self.only_config.items()], col_max=24)


class Commands(click.Group):
    """A group that says which command was probably meant."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.commands:
            raise click.UsageError(f"no such command: {args[0]!r}. {meant(args[0], self.commands)}", ctx)
        return super().resolve_command(ctx, args)


class Jobs(click.Group):
    """`flamepy train` alone means `flamepy train gpt`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or args[0].startswith("-"):
            args = ["gpt", *args]
        elif args[0] not in self.commands:
            advice = meant(args[0], self.commands, f"{' or '.join(self.commands)}; give a text with --data")
            raise click.UsageError(f"no such job: {args[0]!r}. {advice}")
        return super().parse_args(ctx, args)


def wrong_usage(error: click.UsageError) -> str:
    """What is wrong with the command line, and what was probably meant; the same words with every version of click."""
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        text = error.format_message().rstrip(".")
        return text[:1].lower() + text[1:] + "." * (text[-1:] not in "?!")
    command = error.ctx.command
    only_config = getattr(command, "only_config", {})
    known = [name for p in command.params if not getattr(p, "hidden", False) for name in (*p.opts, *p.secondary_opts)]
    near = nearest(error.option_name, [*known, *only_config])
    if near in only_config:
        advice = f" {near} is set in a file: --config FILE, with a line such as `{near} = {only_config[near].default}`."
    else:
        advice = f" Did you mean {near}?" if near else ""
    return f"no such option: {error.option_name!r}.{advice}"


class Words(click.Choice):
    """A choice that may be written in other ways, too: see spelled()."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(spelled(value) if spelled(value) in self.choices else value, param, ctx)


def run_options(kind: type[TrainConfig]) -> list[click.Option]:
    """The options that are not settings of the model or its training."""
    presets = Words(list(PRESETS[kind.__name__]))
    rates = f"Train nothing: try rates, suggest one, and draw them into FILE.  [{PICTURE}]"
    return [
        click.Option(
            ["--out"], metavar="DIR", help="Run folder for everything the run writes; new or empty. Default: the next free one in runs/."
        ),
        click.Option(["--resume"], metavar="DIR", help="Go on with the run in this run folder, from its last checkpoint."),
        click.Option(["--stop-after"], type=int, metavar="K", help="Stop after step K as Ctrl-C would; --resume goes on."),
        click.Option(["--find-lr"], metavar="FILE", is_flag=False, flag_value=PICTURE, help=rates),
        click.Option(["--config"], metavar="FILE", help="Settings from a TOML file, such as a run's config.toml."),
        click.Option(["--preset"], type=presets, help="Ready-made settings. Command line beats --config beats --preset."),
    ]


def job_command(name: str, kind: type[TrainConfig], text: str, usage: str, run: Callable[..., int]) -> click.Command:
    """The command for one job, with an option for each setting that is marked as one."""
    hints = get_type_hints(kind)
    options, headings, only_config = [], {}, {}
    for setting, field in settings(kind).items():
        if "section" in field.metadata:
            wanted: Any = Words(field.metadata["choices"]) if "choices" in field.metadata else hints[setting]
            metavar = {int: "N", float: "X", str: "NAME"}.get(wanted)
            switch = wanted is bool
            default = ("on" if field.default else "off") if switch else field.default
            shown = field.metadata["help"] + ("" if setting == "data" else f"  [{default}]")
            flag = f"--{setting}/--no-{setting}" if switch else f"--{setting}"
            options.append(click.Option([flag], type=wanted, default=None, metavar=metavar, help=shown))
            headings[setting] = field.metadata["section"]
        else:
            only_config[setting] = field
    command = Sections(name, params=[*options, *run_options(kind)], help=text, callback=run, short_help=text.split(".")[0])
    command.usage, command.headings, command.only_config = usage, headings, only_config
    return command
