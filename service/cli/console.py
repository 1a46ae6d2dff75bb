"""Options that several commands share, progress on stderr, and the database of the settings."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer

from service.errors import StartupError

AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as the API gives it.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print a table for a spreadsheet.")]
Url = Annotated[str, typer.Option(envvar="TRAINCOST_URL", help="Address of the service.")]
Key = Annotated[str | None, typer.Option(envvar="TRAINCOST_KEY", help="Key of the service; better in the environment.")]
Body = Annotated[str, typer.Argument(help="JSON file that holds what POST takes; - for standard input.")]


PATIENCE_SECONDS = 1.0
"""Shortest time between two progress lines. Source: a choice."""


class Progress:
    """Progress of a search on stderr."""

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._printed_at = now()

    def tell(self, line: str) -> None:
        """Print a line, unless the last line or the start of the search is too recent."""
        now = self._now()
        if now - self._printed_at >= PATIENCE_SECONDS:
            self._printed_at = now
            typer.echo(line, err=True)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Pause the cycle collector, for imports and other short work: it takes a seventh of their time and finds nothing.

    Used as a decorator of a short command too.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


if TYPE_CHECKING:
    from service.store import Engine


@contextmanager
def database(*, is_made: bool = True) -> Iterator["Engine"]:
    """The database of the settings; an SQLite file must exist where `is_made` is false."""
    from service.catalogue import shipped_catalogue
    from service.settings import read_settings
    from service.store import file_of, prepare_database

    url = read_settings().database_url
    file = file_of(url)
    if file is not None and not is_made and not file.is_file():
        raise StartupError(f"there is no database at {file}; name the service's own in TRAINCOST_DATABASE_URL")
    engine = prepare_database(url, shipped_catalogue())
    try:
        yield engine
    finally:
        engine.dispose()
