"""Which database does a command work on? That of the settings; it is made where something is put into it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from service.errors import StartupError

if TYPE_CHECKING:
    from service.store import Engine


@contextmanager
def database(*, is_made: bool = True) -> Iterator["Engine"]:
    """The database of the settings.

    Args:
        is_made: whether an SQLite file is made where there is none

    Yields:
        the database, closed afterwards

    Raises:
        StartupError: it cannot be used, or has to be there and is not
    """
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
