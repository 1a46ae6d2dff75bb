"""Which commands does `traincost` have, and how does it say what is wrong?"""

from functools import cache
from typing import Annotated, Any

import typer
from typer.main import get_command

from service import __version__
from service.cli import data, keys, maintenance, questions, serve, writers
from service.errors import Refused, TraincostError

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)
for commands in (questions, serve, keys, maintenance, data, writers):
    app.add_typer(commands.app)


def main() -> None:
    """Run one command; whatever is wrong is said in a line on stderr, with exit code 2."""
    try:
        _command()()
    except TraincostError as error:
        for line in _lines(error):
            typer.echo(f"traincost: {' '.join(line.split())}", err=True)
        raise SystemExit(2) from None


@cache
def _command() -> Any:
    """The parser of the command line, built once: building it takes longer than most commands run."""
    return get_command(app)


def _lines(error: TraincostError) -> list[str]:
    if isinstance(error, Refused):
        return [f"{problem.field}: {problem.message}; {problem.fix}".removeprefix(": ") for problem in error.problems]
    return [str(error)]


def _say_version(wanted: object) -> None:
    if wanted:
        typer.echo(f"traincost {__version__}")
        raise typer.Exit


@app.callback()
def about(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Say the version.")
    ] = False,
) -> None:
    """What it takes to train a large language model: bytes, FLOP, seconds and money."""
