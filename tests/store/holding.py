"""Rows for every table of the store, as many as are asked for, with every kind of value that a column holds."""

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Connection,
    DateTime,
    Double,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    insert,
    select,
)

from service.store.backups import described_tables

START = datetime(2026, 11, 21, 8, 30, 0, 123_456, tzinfo=UTC)
OURS = "team-a"
JSON_VALUES: tuple[Any, ...] = (
    {"b": 1, "a": [1.5, None, True, "größer"], "": {}},
    [1e20, -0.25, 6e14, 2**53 + 1],
    {"nested": {"z": {"y": "\n\"'"}}},
)


def fill(connection: Connection, rows: int, skipped: frozenset[str] = frozenset()) -> None:
    """Put rows into every table, those that a row refers to before it; `connection` writes, at any revision."""
    for table in described_tables(connection):
        if table.name not in skipped:
            for start in range(0, rows, 1_000):
                part = range(start, min(start + 1_000, rows))
                connection.execute(insert(table), [row_of(table, number) for number in part])


def row_of(table: Table, number: int) -> dict[str, Any]:
    """One row of a table, the same for the same number."""
    return {column.name: _value(column, number) for column in table.columns}


def _value(column: Column[Any], number: int) -> Any:
    if column.foreign_keys:
        (key,) = column.foreign_keys
        return _value(key.column, number)
    if column.name == "until_change" or (column.nullable and number % 3 == 0):
        return None
    if column.name == "revision" and column.table.name in {"scenario_revisions", "scenarios"}:
        return 1
    if column.name == "expires_at":
        return START + timedelta(days=36_500)
    made = next((make for kind, make in _MADE.items() if isinstance(column.type, kind)), None)
    is_shared = column.name == "owner" and not column.primary_key
    return made(number) if made else OURS if is_shared else f"{column.name} ü {number}"


_MADE: dict[Any, Callable[[int], Any]] = {
    JSON: lambda number: JSON_VALUES[number % len(JSON_VALUES)],
    Boolean: lambda number: number % 2 == 0,
    Integer: lambda number: number + 2,
    Double: lambda number: number + 1 / 3,
    DateTime: lambda number: START + timedelta(seconds=number, microseconds=number % 7),
    LargeBinary: lambda number: bytes(range(256)) + str(number).encode(),
}


def read(connection: Connection) -> Mapping[str, list[str]]:
    """Every row of every table as text, key order of plain JSON included; for comparing databases of one kind."""
    found = MetaData()
    found.reflect(connection)
    return {name: sorted(_texts(connection, table)) for name, table in found.tables.items()}


def _texts(connection: Connection, table: Table) -> Iterator[str]:
    for row in connection.execute(select(table)).mappings():
        yield json.dumps([str(value) for value in row.values()])
