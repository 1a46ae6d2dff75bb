"""Which database does a command work on? That of the settings, made where there is none."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from service.store import Engine


@contextmanager
def database() -> Iterator["Engine"]:
    """The database of the settings, made where there is none.

    Yields:
        the database, closed afterwards
    """
    from service.catalogue import shipped_catalogue
    from service.settings import read_settings
    from service.store import prepare_database

    engine = prepare_database(read_settings().database_url, shipped_catalogue())
    try:
        yield engine
    finally:
        engine.dispose()
