"""Options and help that several commands share, tables and progress, the database and a running service."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import typer
from typer.core import TyperCommand

from service.cli.tables import fitted, heading
from service.errors import StartupError, TraincostError

if TYPE_CHECKING:
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


def write_examples(formatter: Any, examples: Sequence[str]) -> None:
    """Write commands that can be copied, long ones over several lines."""
    from textwrap import wrap

    with formatter.section(heading("Examples")):
        for example in examples:
            lines = wrap(example, 76, break_long_words=False, break_on_hyphens=False, subsequent_indent="    ")
            formatter.write("".join(f"  {line} \\\n" for line in lines[:-1]) + f"  {lines[-1]}\n")


class StrictCommand(TyperCommand):
    """A command whose error names an unexpected argument and says what to do."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options and arguments."""
        takes_any, ctx.allow_extra_args = ctx.allow_extra_args, True
        rest = super().parse_args(ctx, asks_for_all(ctx, args))
        if ctx.args and not takes_any and not ctx.resilient_parsing:  # a shell completes what stands there
            ctx.fail(f"Unexpected argument {ctx.args[0]!r}. Give the name of its option before it, or leave it out.")
        return rest

    def get_params(self, ctx: Any) -> list[Any]:
        """The options and arguments."""
        return without_converters(super().get_params(ctx))


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
        self._first: tuple[float, float] | None = None
        """What was done before this run, and its share of the whole, at the first report."""
        self._bar: Bar | None = None

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def report(self, line: str, done: float = 0.0, share: float | None = None, unit: str = "") -> None:
        """Print a line with the rate of what is done and, from the share of the whole, the time that is left."""
        now = self._now()
        if self._first is None:
            self._first = (done, share or 0.0)
        if now - self._printed_at < PATIENCE_SECONDS:
            return
        self._printed_at = now
        text = ", ".join([line, *self._pace(now, done, share, unit)])
        if not sys.stderr.isatty():
            typer.echo(text, err=True)
            return
        if self._bar is None:
            self._bar = _bar()
            self._bar.start()
        task = self._bar.task_ids[0]
        self._bar.update(task, description=text, completed=share or 0.0, total=None if share is None else 1.0)
        self._bar.refresh()

    def _pace(self, now: float, done: float, share: float | None, unit: str) -> Iterator[str]:
        from service.units import SECONDS, in_units, readable

        seconds, (done_before, share_before) = now - self._started, self._first or (0.0, 0.0)
        if unit and done > done_before:
            yield f"{readable(float(f'{(done - done_before) / seconds:.3g}'))} {unit}/s"
        if share is not None and share > share_before:
            left = (1.0 - share) * seconds / (share - share_before)
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
        typer.echo(fitted(report(answer)))


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
