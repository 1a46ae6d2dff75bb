"""Options and help that several commands share, tables and progress, the database and a running service."""

import gc
import os
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import typer
from typer.core import TyperCommand

from service.errors import StartupError, TraincostError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bar

    from service.client import Client
    from service.store import Engine

AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as the API returns it, in JSON.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print a table for a spreadsheet.")]
Url = Annotated[str, typer.Option(envvar="TRAINCOST_URL", help="Address of the service.")]
Key = Annotated[str | None, typer.Option(envvar="TRAINCOST_KEY", help="Key of the service; safer in the environment.")]
Body = Annotated[str, typer.Argument(help="JSON file with the request body; - for standard input.")]


Function = TypeVar("Function", bound=Callable[..., Any])

HELP_NAMES, HELP_ALL = ["-h", "--help"], "--help-all"

OUT_OF_MEMORY = 3
"""Exit code of --fail-if-oom."""

EXIT_CODES = (
    ("0", "Answered; a job that does not fit is an answer, too"),
    ("1", "The answer is no: check denies, launch-check ends in a no-go, doctor finds a fault"),
    ("2", "An option, a file or a field is wrong, or the service refuses; stderr names it"),
    (str(OUT_OF_MEMORY), "The job runs out of memory, and --fail-if-oom is given"),
    ("130", "Interrupted"),
)


class Completion(NamedTuple):
    """A word that a shell offers."""

    value: str
    help: str | None = None
    type: str = "plain"


def asks_for_all(context: Any, args: list[str] | None = None) -> Any:
    """Arguments with --help-all read as --help; without arguments, whether it was given."""
    if args is None:
        return context.meta.get(HELP_ALL, False)
    if HELP_ALL not in args:
        return args
    context.meta[HELP_ALL] = True
    return ["--help"]


def is_coloured(stream: Any) -> bool:
    """Whether a stream is a terminal that shows colours, and NO_COLOR is not set."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def heading(text: str) -> str:
    """The title of a section, bold on a terminal."""
    return typer.style(text, bold=True) if is_coloured(sys.stdout) else text


def write_examples(formatter: Any, examples: Sequence[str]) -> None:
    """Write commands that can be copied, long ones over several lines."""
    with formatter.section(heading("Examples")):
        for example in examples:
            lines = _folded(example, 76, indent="    ")
            formatter.write("".join(f"  {line} \\\n" for line in lines[:-1]) + f"  {lines[-1]}\n")


COLOURS = {
    **dict.fromkeys(("fits", "ok", "go"), "green"),
    **dict.fromkeys(("at_risk", "warn", "caution", "unknown"), "yellow"),
    **dict.fromkeys(("out_of_memory", "deny", "no-go"), "red"),
}
"""Colours of verdicts."""


def coloured(text: str, verdict: str) -> str:
    """A text in the colour of a verdict, on a terminal."""
    return typer.style(text, fg=COLOURS.get(verdict), bold=True) if is_coloured(sys.stdout) else text


class StrictCommand(TyperCommand):
    """A command whose error names an unexpected argument and says what to do."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options and arguments."""
        takes_any, ctx.allow_extra_args = ctx.allow_extra_args, True
        rest = super().parse_args(ctx, asks_for_all(ctx, args))
        if ctx.args and not takes_any:
            ctx.fail(f"Unexpected argument {ctx.args[0]!r}. Give the name of its option before it, or leave it out.")
        return rest


class CommandGroup(typer.Typer):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"rich_markup_mode": None, **settings})  # rich takes longer to load than most commands run

    def command(
        self, name: str | None = None, *, cls: type[TyperCommand] | None = None, **settings: Any
    ) -> Callable[[Function], Function]:
        return super().command(name, cls=cls or StrictCommand, **settings)


class _Unconverted:
    """A converter of an option that returns the value unchanged; flags and lists of strings need no other."""

    @staticmethod
    def coerce(value: Any, **_: object) -> Any:
        return value


UNCONVERTED = (bool, str, list[str])


def without_converters(options: list[Any]) -> list[Any]:
    """Options without typer's converters where they change nothing: they import pydantic, which takes 36 ms."""
    for option in options:
        if option.type_descriptor.annotation in UNCONVERTED:
            option._runtime_param = _Unconverted  # typer has no public way to set it
    return options


PATIENCE_SECONDS = 1.0
"""Shortest time between two progress lines. Source: a choice."""


class Progress:
    """Progress of a command on stderr, with rate and time left: a bar on a terminal, elsewhere a line a second."""

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._started = self._printed_at = now()
        self._first: float | None = None
        """What was done before this run, at its first report."""
        self._bar: Bar | None = None

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def report(self, line: str, done: float | None = None, total: float | None = None, unit: str = "") -> None:
        """Print a line with its rate and the time left, unless the last one or the start is too recent."""
        now = self._now()
        if self._first is None:
            self._first = done or 0.0
        if now - self._printed_at < PATIENCE_SECONDS:
            return
        self._printed_at = now
        text = ", ".join([line, *self._pace(now, done, total, unit)])
        if not sys.stderr.isatty():
            typer.echo(text, err=True)
            return
        if self._bar is None:
            self._bar = _bar()
            self._bar.start()
        share = None if done is None or not total else done / total
        self._bar.update(self._bar.task_ids[0], description=text, completed=share or 0.0, total=share and 1.0)
        self._bar.refresh()

    def _pace(self, now: float, done: float | None, total: float | None, unit: str) -> Iterator[str]:
        from service.units import SECONDS, in_units, readable

        seconds, recent = now - self._started, (done or 0.0) - (self._first or 0.0)
        if recent <= 0.0 or seconds <= 0.0:
            return
        if unit:
            yield f"{readable(float(f'{recent / seconds:.3g}'))} {unit}/s"
        if total:
            left = max(total - (done or 0.0), 0.0) * seconds / recent
            yield f"{in_units(float(f'{left:.2g}'), SECONDS)} left"


def _bar() -> "Bar":
    """A bar that goes when the command ends."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    bar = Bar(
        BarColumn(bar_width=20),
        TextColumn("{task.description}", markup=False),
        console=Console(stderr=True),
        transient=True,
    )
    bar.add_task("", total=None)
    return bar


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
    """Rows of cells as aligned lines; on a terminal, under a bold header and fitted to the width.

    Numbers, which are right-aligned or without spaces, are never cut or folded: names and sentences fold between words.
    Where that does not suffice, columns with one value stand above the table, and else each row becomes a block.
    """
    if not rows:
        return []
    if not sys.stdout.isatty():
        return aligned(rows, right=right, indent=indent)
    from rich.console import Console

    console = Console(markup=False, highlight=False, emoji=False)
    room = console.width - len(indent)
    if not has_header:
        return _grid(console, None, rows, right, indent)
    header, body = rows[0], rows[1:]
    if _least_width(_least_widths(header, body, right)) <= room:
        return _grid(console, header, body, right, indent)
    apart = [place for place in range(len(header)) if len({row[place] for row in body}) > 1]
    alike = [f"{header[place]} {body[0][place]}" for place in range(len(header)) if place not in apart and body]
    head, *narrow = [[row[place] for place in apart] for row in rows]
    narrow_right = [apart.index(place) for place in right if place in apart]
    if not apart or _least_width(_least_widths(head, narrow, narrow_right)) > room:
        return _blocks(header, body, room, indent)
    lines = _folded(f"in each row: {', '.join(alike)}", room) if alike else []
    return [*(f"{indent}{line}" for line in lines), *_grid(console, head, narrow, narrow_right, indent)]


def _least_widths(header: Sequence[str] | None, body: Sequence[Sequence[str]], right: Collection[int]) -> list[int]:
    """The least width of each column: all of a number, else the longest word."""
    columns = [*zip(*body, strict=True)] or [()] * len(header or ())
    heads = [""] * len(columns) if header is None else header
    return [
        max([*map(len, head.split()), *(len(cell) if place in right else _longest(cell) for cell in column)], default=0)
        for place, (head, column) in enumerate(zip(heads, columns, strict=True))
    ]


def _longest(text: str) -> int:
    """Letters of the longest word of a cell; all of a number with its unit."""
    return len(text) if text[:1].isdigit() and text.count(" ") == 1 else max(map(len, text.split()), default=0)


def _least_width(widths: Sequence[int]) -> int:
    return sum(widths) + 2 * (len(widths) - 1)


def _folded(text: str, room: int, indent: str = "  ") -> list[str]:
    from textwrap import wrap

    return wrap(text, max(room, 1), break_long_words=False, break_on_hyphens=False, subsequent_indent=indent)


def _blocks(header: Sequence[str], body: Sequence[Sequence[str]], room: int, indent: str) -> list[str]:
    """Each row as a block of lines, a line for each cell that is not empty."""
    width = max(map(len, header))
    lines: list[str] = []
    for row in body:
        lines += [""] if lines else []
        for name, cell in zip(header, row, strict=True):
            first, *more = _folded(cell, room - width - 2) if cell else [""]
            lines += [f"{indent}{heading(name.ljust(width))}  {first}"] if cell else []
            lines += [f"{indent}{' ' * (width + 2)}{line}" for line in more]
    return lines


def _grid(
    console: "Console",
    header: Sequence[str] | None,
    body: Sequence[Sequence[str]],
    right: Collection[int],
    indent: str,
) -> list[str]:
    from rich.table import Table

    grid = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=header is not None)
    least_widths = _least_widths(header, body, right)
    for place, least in enumerate(least_widths):
        head = "" if header is None else header[place]
        grid.add_column(head, justify="right" if place in right else "left", min_width=least)
    for row in body:
        grid.add_row(*row)
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
