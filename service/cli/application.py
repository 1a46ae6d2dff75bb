"""The command `traincost`; a subcommand is imported when it runs."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from os import environ
from types import ModuleType
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from service import __version__
from service.cli.console import (
    EXIT_CODES,
    HELP_ALL,
    HELP_NAMES,
    Completion,
    asks_for_all,
    without_converters,
    write_examples,
)
from service.cli.tables import heading
from service.errors import Refused, TraincostError

OWN_WORK = "To work on traincost itself"

COMMANDS: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    "Questions, answered here": {
        "sentences": {"ask": "One sentence, as you would say it"},
        "questions": {
            "estimate": "Memory, FLOP, time, cost and energy of a training job",
            "memory": "Whether a job fits, and every byte of its fullest GPU",
            "check": "Whether a job may start, in one line; exit code 1 if not",
            "plan": "The best layouts of a job",
            "solve": "The largest batch, the fewest GPUs, the longest sequence",
            "compare": "A job on several clusters and at several prices",
            "sensitivity": "What changes with each field",
            "sweep": "Every combination of many values, as a Parquet or CSV file",
        },
        "files": {
            "export": "A question as the file of a launcher or framework",
            "import": "The file of a launcher or framework as a question",
            "diagnose": "Why a job ran out of memory, and what helps",
            "profile": "Where the time of a step goes, by its profiler's trace",
        },
    },
    "Catalogue": {
        "catalogue": {
            "models": "Models by name",
            "gpus": "GPUs by name",
            "clusters": "Clusters by name",
            "prices": "Prices by GPU, provider or region",
        },
    },
    "Service": {
        "serve": {"serve": "Answer over HTTP", "worker": "Run measurements for a service on this machine"},
        "files": {"launch-check": "Measure parts of a job on a worker before it starts"},
        "maintenance": {
            "doctor": "Check settings, database, keys, address and disk",
            "backup": "Write a backup of the database",
            "restore": "Restore a backup",
            "keys": "Create, list, limit and revoke keys of callers",
            "shares": "List and revoke links that show scenarios",
        },
    },
    "Measurements": {
        "data": {
            "accuracy": "Predictions beside published measurements",
            "import-measurements": "Store measurements of another tool",
            "read-mlperf": "A submission to MLPerf Training as a table of steps",
            "reconcile": "Finished jobs beside their estimates",
            "audit-jobs": "Recorded jobs that a check would have denied",
        },
    },
    OWN_WORK: {
        "data": {
            "write-accuracy": "Score the shipped measurements anew",
            "write-measurements": "Trim a table of measurements and ship it",
            "write-held-out": "Fit step times without each source",
            "write-formulas": "Write the index of formulas",
            "write-openapi": "Write the contract",
        },
    },
}
"""Commands by the section of the help and the module of this package, in the order of the help."""

SHORT_HELP = ("Questions, answered here", "Catalogue", "Service")
"""Sections of the one-screen help."""

EXAMPLES = (
    'traincost "llama 3.1 8b, 200B tokens, 64xH100, $2.50/h"',
    "traincost estimate llama-3.1-8b --seq 8192 --gpu h100 --gpus 8",
    "traincost plan llama-3.1-70b --seq 8192 --gbs 1024 --gpu h100 --gpus 64",
    "traincost estimate question.yaml --json",
)


class Commands(Mapping[str, Any]):
    """Commands by name; looking one up imports its module."""

    def __init__(self) -> None:
        self._module = {
            name: module for modules in COMMANDS.values() for module, names in modules.items() for name in names
        }

    def __getitem__(self, name: str) -> Any:
        return command_named(self._module[name], name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._module)

    def __len__(self) -> int:
        return len(self._module)


@cache
def command_named(module: str, name: str) -> Any:
    """One command of a module of this package; building the others would take longer than an answer."""
    family, alone = import_module(f"service.cli.{module}").app, typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.registered_commands = [one for one in family.registered_commands if _name_of(one) == name]
    alone.registered_groups = [one for one in family.registered_groups if one.name == name]
    found: Any = get_command(alone)
    return found.commands[name] if alone.registered_groups else found


def _name_of(command: Any) -> str:
    return str(command.name or command.callback.__name__.replace("_", "-"))


class LazyGroup(TyperGroup):
    """A group that imports a command on its first use."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**{**attributes, "commands": None})
        self.commands = Commands()  # type: ignore[assignment]  # the group only reads it

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command of the arguments; a sentence in place of a command is asked."""
        return super().resolve_command(ctx, ["ask", *args] if " " in args[0].strip() else args)

    def get_params(self, ctx: Any) -> list[Any]:
        """The options, which are flags."""
        return without_converters(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options before the command."""
        return super().parse_args(ctx, asks_for_all(ctx, args) if args[:1] == [HELP_ALL] else args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print examples and the commands by section; all of them with --help-all."""
        is_whole = asks_for_all(ctx)
        formatter.write_text(self.help)
        formatter.write_paragraph()
        formatter.write_usage(ctx.command_path, "COMMAND [OPTIONS]")
        write_examples(formatter, EXAMPLES)
        for title, modules in COMMANDS.items():
            if is_whole or title in SHORT_HELP:
                with formatter.section(heading(title)):
                    formatter.write_dl([row for names in modules.values() for row in names.items()])
        if is_whole:
            with formatter.section(heading("Exit codes")):
                formatter.write_dl(EXIT_CODES)
        with formatter.section(heading("More")):
            more = [("COMMAND -h", "Options and examples of a command")]
            more += [] if is_whole else [("--help-all", "All commands and exit codes")]
            more += [("--install-completion", "Complete commands, options and names in this shell")]
            formatter.write_dl([*more, ("--version", "Version")])

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:  # noqa: ARG002 - typer's interface
        """Commands that begin so, without importing them."""
        offered = (names for title, modules in COMMANDS.items() if title != OWN_WORK for names in modules.values())
        rows = [row for names in offered for row in names.items()]
        return [Completion(name, text) for name, text in rows if name.startswith(incomplete)]


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": HELP_NAMES},
)


def main() -> None:
    """Run one command; errors are printed on stderr, with exit code 2."""
    _have_no_plugins()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure") and "utf" not in (stream.encoding or "").lower():
            stream.reconfigure(errors="backslashreplace")
    try:
        _command()()
    except TraincostError as error:
        for line in lines_of(error):
            typer.echo(f"traincost: {' '.join(line.split())}", err=True)
        raise SystemExit(2) from None


def _have_no_plugins() -> None:
    """Disable pydantic's plugins, and stand in for the module that searches them: its import takes 12 ms."""
    environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")
    loader = ModuleType("pydantic.plugin._loader")
    loader.__dict__["get_plugins"] = tuple
    sys.modules.setdefault(loader.__name__, loader)


def lines_of(error: TraincostError) -> Sequence[str]:
    """A line for each problem of a refusal, or the text of another error."""
    problems = error.problems if isinstance(error, Refused) else ()
    return [f"{one.field}: {one.message}; {one.fix}".removeprefix(": ") for one in problems] or [str(error)]


@cache
def _command() -> Any:
    """The parser of the command line, built once: building it takes longer than most commands run."""
    return get_command(app)


def _print_version(is_given: object) -> None:
    if is_given:
        typer.echo(f"traincost {__version__}")
        raise typer.Exit


@app.callback()
def about(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """What it takes to train a large language model: bytes, FLOP, seconds and money."""
