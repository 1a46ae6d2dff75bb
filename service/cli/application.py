"""The command `traincost`; a family of subcommands is imported when one of them runs."""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from os import environ
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from service import __version__
from service.cli.console import no_garbage_collection, without_converters
from service.errors import Refused, TraincostError

FAMILIES = {
    "questions": (
        *("estimate", "compare", "plan", "solve", "diagnose", "profile"),
        *("sensitivity", "sweep", "launch-check"),
    ),
    "serve": ("serve", "worker"),
    "maintenance": ("backup", "restore", "doctor", "keys", "shares"),
    "data": (
        *("import-measurements", "accuracy", "read-mlperf", "reconcile", "audit-jobs"),
        *("write-accuracy", "write-measurements", "write-held-out", "write-formulas", "write-openapi"),
    ),
}
"""Commands of each module of this package, in the order of the help."""


class Commands(Mapping[str, Any]):
    """Commands by name; looking one up imports its family."""

    def __init__(self) -> None:
        self._family = {name: family for family, names in FAMILIES.items() for name in names}

    def __getitem__(self, name: str) -> Any:
        return family_commands(self._family[name])[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._family)

    def __len__(self) -> int:
        return len(self._family)


@cache
def family_commands(family: str) -> Mapping[str, Any]:
    """The commands that a module of this package defines."""
    with no_garbage_collection():
        group: Any = get_command(import_module(f"service.cli.{family}").app)
    commands: Mapping[str, Any] = group.commands
    return commands


class LazyGroup(TyperGroup):
    """A group that imports a command on its first use."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**{**attributes, "commands": None})
        self.commands = Commands()  # type: ignore[assignment]  # the group only reads it

    def get_params(self, ctx: Any) -> list[Any]:
        """The options, which are flags."""
        return without_converters(super().get_params(ctx))


app = typer.Typer(cls=LazyGroup, add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


def main() -> None:
    """Run one command; errors are printed on stderr, with exit code 2."""
    environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")  # a search for them reads the metadata of all packages
    try:
        _command()()
    except TraincostError as error:
        problems = error.problems if isinstance(error, Refused) else ()
        lines = [f"{problem.field}: {problem.message}; {problem.fix}".removeprefix(": ") for problem in problems]
        for line in lines or [str(error)]:
            typer.echo(f"traincost: {' '.join(line.split())}", err=True)
        raise SystemExit(2) from None


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
