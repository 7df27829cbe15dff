"""How commands list their options, and what is said of a command line that is wrong: what was probably meant."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

import click

from .problems import meant, nearest


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
