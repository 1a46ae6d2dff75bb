"""A fresh database for each test, on SQLite and on PostgreSQL."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest
from sqlalchemy import Engine, delete

from service.catalogue import Catalogue
from service.store.engine import open_engine, writing
from service.store.tables import JOBS, WORKERS
from tests.databases import new_database, prepared
from tests.store.small import SMALL


class Prepare(Protocol):
    """Prepares the test's database and closes it after the test."""

    def __call__(self, shipped: Catalogue = SMALL) -> Engine: ...


@pytest.fixture
def postgresql_url(postgresql_server: str) -> Iterator[str]:
    """The URL of an empty PostgreSQL database."""
    with new_database(postgresql_server) as url:
        yield url


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """The URL of an SQLite file that does not exist yet."""
    return f"sqlite:///{tmp_path / 'traincost.db'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """The URL of an empty database, of either kind."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """An engine on the test's database, which nobody has prepared."""
    opened = open_engine(database_url)
    yield opened
    opened.dispose()


@pytest.fixture
def prepare(database_url: str) -> Iterator[Prepare]:
    """Prepares the test's database, as a start of the service would; test_database.py starts from nothing."""
    with ExitStack() as stack:

        def prepare(shipped: Catalogue = SMALL) -> Engine:
            engine = prepared(database_url, shipped)
            stack.callback(engine.dispose)
            return engine

        yield prepare


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def jobs_database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """One database for all of these tests: none of them looks at more than jobs and workers."""
    with ExitStack() as stack:
        url = f"sqlite:///{tmp_path_factory.mktemp('jobs') / 'traincost.db'}"
        if request.param == "postgresql":
            url = stack.enter_context(new_database(request.getfixturevalue("postgresql_server")))
        engine = prepared(url, SMALL)
        stack.callback(engine.dispose)
        yield engine


@pytest.fixture
def queue(jobs_database: Engine) -> Engine:
    """A database without jobs and workers, of either kind."""
    with writing(jobs_database) as connection:
        for table in (JOBS, WORKERS):
            connection.execute(delete(table))
    return jobs_database
