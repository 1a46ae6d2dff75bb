"""SQLite's data version: whether the database changed, without a query."""

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from time import monotonic

from sqlalchemy import Engine

LONGEST_SECONDS = 5.0
"""Longest time between two reads of a database that does not change. Source: a choice; a guard against a version that
misses a change."""


class ReadOnChange:
    """A read that is left out while the database is unchanged.

    SQLite counts the changes that other connections commit; asking for the count takes some microseconds, a query some
    hundred. Databases without such a count are read each time.
    Source: https://www.sqlite.org/pragma.html#pragma_data_version
    """

    def __init__(
        self, engine: Engine | None, read: Callable[[], object], longest_seconds: float = LONGEST_SECONDS
    ) -> None:
        file = None if engine is None or engine.dialect.name != "sqlite" else engine.url.database
        self._file = None if file in {None, "", ":memory:"} else file
        self._read = read
        self._longest_seconds = longest_seconds
        self._connection: sqlite3.Connection | None = None
        self._seen: int | None = None
        self._due = 0.0

    def __call__(self) -> None:
        """Read, unless nothing has changed since the last read."""
        version = self._version()
        if not self._is_due(version):
            return
        self._seen = None
        self._read()
        self._seen, self._due = version, monotonic() + self._longest_seconds

    def is_due(self) -> bool:
        """Whether the next call reads; this never waits for the database."""
        return self._is_due(self._version())

    def expire(self) -> None:
        """Have the next call read, whether anything has changed or not."""
        self._seen = None

    def close(self) -> None:
        """Close the connection that asks for the count."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _is_due(self, version: int | None) -> bool:
        return version is None or version != self._seen or monotonic() >= self._due

    def _version(self) -> int | None:
        """The count of changes; None where it is not known."""
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
