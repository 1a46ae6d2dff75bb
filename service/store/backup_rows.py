"""Which rows does a database hold, whatever its kind? Copied and counted table by table, in any revision of the schema.

Tables are taken as the database itself describes them, not as this version has them: a backup is made before an upgrade
above all. A digest is that of what rows mean, so that SQLite and PostgreSQL, which write dates and JSON each in
their own way, give the same one.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from typing import Any

from sqlalchemy import JSON, Connection, LargeBinary, MetaData, Table, func, insert, inspect, select

from service.store.tables import METADATA

REVISION_TABLE = "alembic_version"
"""Where the database says which revision of the schema it is at."""

FORMER_TABLES: frozenset[str] = frozenset()
"""Tables that earlier revisions had and a contraction dropped: what is still in them belongs into a backup."""

ROWS_AT_ONCE, LARGE_ROWS_AT_ONCE = 1_000, 16
"""Rows that are in memory at a time; fewer of tables that hold files."""

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Tally:
    """What a table holds, in short."""

    rows: int
    """How many rows."""
    digest: str
    """Sum of the SHA-256 of all rows modulo 2^256, in whatever order they are read."""


def our_tables(connection: Connection) -> list[str]:
    """Names of the tables in a database that are this program's, whatever revision it is at.

    Args:
        connection: the database

    Returns:
        names, in order
    """
    return sorted((METADATA.tables.keys() | FORMER_TABLES).intersection(inspect(connection).get_table_names()))


def described_tables(connection: Connection) -> list[Table]:
    """The tables as the database describes them.

    Args:
        connection: the database

    Returns:
        the tables, each after those that it refers to
    """
    found = MetaData()
    found.reflect(connection, only=our_tables(connection))
    for table in found.sorted_tables:
        for column in table.columns:
            if isinstance(column.type, JSON):
                column.type.none_as_null = bool(column.nullable)
    return found.sorted_tables


def drop_tables(connection: Connection) -> None:
    """Take away everything of this program's that a database holds.

    Args:
        connection: the database, inside a writing transaction
    """
    found = MetaData()
    found.reflect(connection, only=[*our_tables(connection), *_revision_table(connection)])
    found.drop_all(connection)


def copy_rows(source: Connection, target: Connection, tables: Sequence[Table] | None = None) -> dict[str, Tally]:
    """Copy every row of a database into another that has the same tables, empty.

    Args:
        source: the one database
        target: the other, inside a writing transaction
        tables: those of the other as it describes them, where that is known

    Returns:
        what was read of each table
    """
    into = {table.name: table for table in (described_tables(target) if tables is None else tables)}
    copied = {
        table.name: _tally(source, table, partial(target.execute, insert(into[table.name])))
        for table in described_tables(source)
    }
    if target.dialect.name == "postgresql":
        for table in into.values():
            _count_on(target, table)
    return copied


def tally_rows(connection: Connection, tables: Sequence[Table] | None = None) -> dict[str, Tally]:
    """Count every row of a database.

    Args:
        connection: the database
        tables: its tables as it describes them, where that is known

    Returns:
        what each table holds, by its name
    """
    found = described_tables(connection) if tables is None else tables
    return {table.name: _tally(connection, table, lambda _: None) for table in found}


def _count_on(connection: Connection, table: Table) -> None:
    """Have numbers that the database gives out itself go on after those that are there."""
    for column in table.primary_key:
        sequence = connection.execute(select(func.pg_get_serial_sequence(f'"{table.name}"', column.name))).scalar()
        last = connection.execute(select(func.max(column))).scalar() if sequence else None
        if last is not None:
            connection.execute(select(func.setval(sequence, last)))


def _tally(connection: Connection, table: Table, write: Callable[[Sequence[Record]], object]) -> Tally:
    names = sorted(table.columns.keys())
    count, total = 0, 0
    for rows in _read(connection, table):
        write(rows)
        count += len(rows)
        for row in rows:
            total += int.from_bytes(sha256(_written([row[name] for name in names])).digest())
    return Tally(count, f"{total % (1 << 256):064x}")


def _read(connection: Connection, table: Table) -> Iterator[list[Record]]:
    is_large = any(isinstance(column.type, LargeBinary) for column in table.columns)
    at_once = LARGE_ROWS_AT_ONCE if is_large else ROWS_AT_ONCE
    found = connection.execute(select(table), execution_options={"yield_per": at_once}).mappings()
    for part in found.partitions():
        yield [{name: _in_utc(value) for name, value in row.items()} for row in part]


def _in_utc(value: Any) -> Any:
    """Moments with their zone: SQLite keeps them in UTC and says so nowhere."""
    if not isinstance(value, datetime):
        return value
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _written(values: Sequence[Any]) -> bytes:
    return json.dumps([_plain(value) for value in values], sort_keys=True, separators=(",", ":")).encode()


def _plain(value: Any) -> Any:
    """What a value means: PostgreSQL sorts the keys of some JSON and writes whole numbers without a point."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds")
    return sha256(value).hexdigest() if isinstance(value, bytes) else value


def _revision_table(connection: Connection) -> list[str]:
    return [REVISION_TABLE] if inspect(connection).has_table(REVISION_TABLE) else []
