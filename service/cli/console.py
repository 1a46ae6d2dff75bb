"""Options that several commands share, tables and progress, the database of the settings and a running service."""

import gc
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand

from service.errors import StartupError, TraincostError

if TYPE_CHECKING:
    from rich.status import Status

    from service.client import Client
    from service.store import Engine

AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as the API returns it, in JSON.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print a table for a spreadsheet.")]
Url = Annotated[str, typer.Option(envvar="TRAINCOST_URL", help="Address of the service.")]
Key = Annotated[str | None, typer.Option(envvar="TRAINCOST_KEY", help="Key of the service; safer in the environment.")]
Body = Annotated[str, typer.Argument(help="JSON file with the request body; - for standard input.")]


Function = TypeVar("Function", bound=Callable[..., Any])


class StrictCommand(TyperCommand):
    """A command whose error names an unexpected argument and says what to do."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options and arguments."""
        takes_any, ctx.allow_extra_args = ctx.allow_extra_args, True
        rest = super().parse_args(ctx, args)
        if ctx.args and not takes_any:
            ctx.fail(f"Unexpected argument {ctx.args[0]!r}. Give the name of its option before it, or leave it out.")
        return rest


class CommandGroup(typer.Typer):
    def command(
        self, name: str | None = None, *, cls: type[TyperCommand] | None = None, **settings: Any
    ) -> Callable[[Function], Function]:
        return super().command(name, cls=cls or StrictCommand, **settings)


class _Unconverted:
    """A converter of an option that returns the value unchanged; flags and lists of strings need no other."""

    @staticmethod
    def coerce(value: Any, **_: object) -> Any:
        return value


def without_converters(options: list[Any]) -> list[Any]:
    """Options without typer's converters, which import pydantic; that takes longer than an estimate."""
    for option in options:
        option._runtime_param = _Unconverted  # typer has no public way to set it
    return options


PATIENCE_SECONDS = 1.0
"""Shortest time between two progress lines. Source: a choice."""


class Progress:
    """Progress of a command on stderr: one line that changes on a terminal, elsewhere a line a second at most."""

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._printed_at = now()
        self._status: Status | None = None

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def report(self, line: str) -> None:
        """Print a line, unless the last line or the start of the command is too recent."""
        now = self._now()
        if now - self._printed_at < PATIENCE_SECONDS:
            return
        self._printed_at = now
        if not sys.stderr.isatty():
            typer.echo(line, err=True)
            return
        from rich.console import Console
        from rich.markup import escape

        if self._status is None:
            self._status = Console(stderr=True).status(escape(line))
            self._status.start()
        else:
            self._status.update(escape(line))


def aligned(rows: Sequence[Sequence[str]], *, right: Collection[int] = (), indent: str = "") -> list[str]:
    """Rows of cells as lines with aligned columns; columns with an index in `right` are right-aligned.

    >>> aligned([("a", "bc"), ("def", "g")])
    ['a    bc', 'def  g']
    >>> aligned([("a", "bc"), ("def", "g")], right={1}, indent="  ")
    ['  a    bc', '  def   g']
    """
    aligners = [str.rjust if place in right else str.ljust for place in range(len(rows[0]))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        indent
        + "  ".join(align(*cell) for align, cell in zip(aligners, zip(row, widths, strict=True), strict=True)).rstrip()
        for row in rows
    ]


def table(
    rows: Sequence[Sequence[str]], *, has_header: bool = True, right: Collection[int] = (), indent: str = ""
) -> list[str]:
    """Rows of cells as aligned lines; on a terminal, rich adds a bold header and wraps cells to the width."""
    if not rows:
        return []
    if not sys.stdout.isatty():
        return aligned(rows, right=right, indent=indent)
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table

    grid = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=has_header)
    least_widths = [
        max((cell_len(word) for cell in column for word in cell.split()), default=0)
        for column in zip(*rows, strict=True)
    ]
    for place, (head, least) in enumerate(zip(rows[0], least_widths, strict=True)):
        grid.add_column(head if has_header else "", justify="right" if place in right else "left", min_width=least)
    for row in rows[has_header:]:
        grid.add_row(*row)
    console = Console(markup=False, highlight=False, emoji=False)
    console.width = max(console.width - len(indent), sum(least_widths) + 2 * len(least_widths))
    with console.capture() as captured:
        console.print(grid)
    return [f"{indent}{line.rstrip()}" for line in captured.get().splitlines()]


def print_answer(
    answer: Any,
    report: Callable[[Any], str],
    *,
    as_json: bool,
    as_csv: bool = False,
    csv: Callable[[Any], str] | None = None,
    json_form: Callable[[Any], Any] = lambda answer: answer,
) -> None:
    """Print an answer as JSON, as CSV, or else as a report."""
    from service.validation.reading import to_bytes

    if as_json:
        typer.echo(to_bytes(json_form(answer)))
    elif as_csv and csv is not None:
        typer.echo(csv(answer), nl=False)
    else:
        typer.echo(report(answer))


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Pause the garbage collector for imports and other short work, of which it takes a seventh."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def database(*, may_create: bool = True) -> Iterator["Engine"]:
    """The database of the settings; an SQLite file must exist if `may_create` is false."""
    from service.catalogue import checked_catalogue
    from service.settings import read_settings
    from service.store.database import file_of, prepare_database

    url = read_settings().database_url
    file = file_of(url)
    if file is not None and not may_create and not file.is_file():
        raise StartupError(f"there is no database at {file}; name the service's own in TRAINCOST_DATABASE_URL")
    engine = prepare_database(url, checked_catalogue())
    try:
        yield engine
    finally:
        engine.dispose()


class NotAnswered(TraincostError):
    """A running service refuses, or cannot be reached."""


@contextmanager
def connected(url: str, key: str | None) -> Iterator["Client"]:
    """A client of a running service, whose refusals become errors of the command."""
    from service.client import Client, ClientError, Problem

    try:
        with Client(url, key) as client:
            yield client
    except Problem as problem:
        texts = dict.fromkeys(
            f"{one.pointer or one.parameter or ''}: {one.message}; {one.fix}".removeprefix(": ")
            for one in problem.errors
        )
        raise NotAnswered(f"the service refuses: {'; '.join(texts) or problem.detail}") from None
    except ClientError as error:
        raise NotAnswered(f"{error}; check that it runs there, or set --url or TRAINCOST_URL") from None
