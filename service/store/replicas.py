"""Processes on one database: the last change that each has applied, and reads that are skipped without a change.

A replica announces the last change that it applied by a shared advisory lock of PostgreSQL on the number of the change,
which blocks nothing. The server releases the lock when the connection ends, so no writer waits for a dead process.
"""

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from time import monotonic
from typing import Any

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import SQLAlchemyError

from service.store.engine import answering, reading

_KIND = 0x7472_6169
"""First key of these locks: "trai" in ASCII, distinct from other programs' locks."""

_LOCK = text("SELECT pg_advisory_lock_shared(:kind, :number), pg_backend_pid()")
_UNLOCK = text("SELECT pg_advisory_unlock_shared(:kind, :number)")
_IS_ANY_BEHIND = text(
    "SELECT EXISTS (SELECT 1 FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database "
    "WHERE datname = current_database() AND locktype = 'advisory' AND objsubid = 2 AND classid = CAST(:kind AS oid) "
    "AND objid < CAST(:number AS oid) AND pid <> :own)"
)
_ABOVE_ANY_CHANGE = (1 << 31) - 1
"""A number above that of any change; every replica is behind it."""
_COUNT_REPLICAS = text(
    "SELECT count(DISTINCT pid) FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database "
    "WHERE datname = current_database() AND locktype = 'advisory' AND objsubid = 2 AND classid = CAST(:kind AS oid)"
)


def replicas_in(connection: Connection) -> int:
    """Number of processes of the service that are connected to a PostgreSQL database."""
    return int(connection.execute(_COUNT_REPLICAS, {"kind": _KIND}).scalar_one())


class Replicas:
    """The processes that serve from one PostgreSQL database; SQLite has no other process."""

    def __init__(self, engine: Engine | None) -> None:
        self._engine = engine if engine is not None and engine.dialect.name == "postgresql" else None
        self._connection: Connection | None = None
        self._number: int | None = None
        self._pid = 0
        self._lock = Lock()

    def announce(self, number: int) -> None:
        """Announce the last change that this process applied, in place of the earlier announcement."""
        if self._engine is None:
            return
        with self._lock, answering():
            try:
                self._announce(self._engine, number)
            except SQLAlchemyError:
                self._close()
                raise

    def are_behind(self, number: int) -> bool:
        """Whether another process has not applied a change yet."""
        if self._engine is None:
            return False
        with answering(), reading(self._engine) as connection:
            lock = {"kind": _KIND, "number": number, "own": self._pid}
            return bool(connection.execute(_IS_ANY_BEHIND, lock).scalar_one())

    def are_there(self) -> bool:
        """Whether other processes serve from this database."""
        return self.are_behind(_ABOVE_ANY_CHANGE)

    def leave(self) -> None:
        """Withdraw the announcement."""
        with self._lock:
            self._close()

    def _announce(self, engine: Engine, number: int) -> None:
        if self._connection is None:
            self._connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            self._number = None
        lock: dict[str, Any] = {"kind": _KIND, "number": number}
        self._pid = self._connection.execute(_LOCK, lock).one()[
            1
        ]  # read each time, because a connection may be replaced unnoticed
        if self._number is not None:
            self._connection.execute(_UNLOCK, {**lock, "number": self._number})
        self._number = number

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.invalidate()  # the server releases the lock, also if the connection hangs
            connection.close()


LONGEST_SECONDS = 30.0
"""Longest time between two reads of an unchanged database. Source: a choice; a guard against a change that the count
misses."""


class ReadOnChange:
    """A read that is skipped while the database is unchanged.

    SQLite counts the changes that other connections commit; reading the count takes some microseconds, a query some
    hundred. Databases without such a count are read each time. Source:
    https://www.sqlite.org/pragma.html#pragma_data_version
    """

    def __init__(
        self, engine: Engine | None, read: Callable[[], float | None], longest_seconds: float = LONGEST_SECONDS
    ) -> None:
        file = None if engine is None or engine.dialect.name != "sqlite" else engine.url.database
        self._file = None if file in {None, "", ":memory:"} else file
        self._read = read
        self._longest_seconds = longest_seconds
        self._connection: sqlite3.Connection | None = None
        self._seen: int | None = None
        self._due = 0.0

    def __call__(self) -> None:
        """Read, if the database has changed since the last read."""
        version = self._version()
        if not self._is_due(version):
            return
        self._seen = None
        seconds = self._read()
        longest_seconds = self._longest_seconds if seconds is None else min(seconds, self._longest_seconds)
        self._seen, self._due = version, monotonic() + longest_seconds

    def is_due(self) -> bool:
        """Whether the next call reads. This does not wait for the database."""
        return self._is_due(self._version())

    def expire(self) -> None:
        """Make the next call read, even an unchanged database."""
        self._seen = None

    def close(self) -> None:
        """Close the connection that reads the count."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _is_due(self, version: int | None) -> bool:
        return version is None or version != self._seen or monotonic() >= self._due

    def _version(self) -> int | None:
        """The count of changes; None where it is unknown."""
        if self._file is None:
            return None
        try:
            if self._connection is None:
                self._connection = sqlite3.connect(self._file, timeout=0.0, check_same_thread=False)
            version: int = self._connection.execute("PRAGMA data_version").fetchone()[0]
        except sqlite3.Error:
            with suppress(sqlite3.Error):
                self.close()
            return None
        return version
