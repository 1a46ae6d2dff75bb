"""Which rows of a long table are read at once? Some behind those that were read before, by their keys or by age."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Engine, Select

BYTEWISE = {"postgresql": "C", "sqlite": "BINARY"}
"""By kind of database, how it compares texts as Python does, whatever the language of a database is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPart:
    """Some rows of a table."""

    most: int
    """How many of them."""
    newest_first: bool = False
    """Whether they are the newest; otherwise the first by their keys."""
    before: datetime | None = None
    """Of the newest, those of moments before this one; None for all."""
    behind: str | None = None
    """Of the first, those behind this key; None for all."""


def part_of(
    query: Select[Any], engine: Engine, part: RowPart | None, key: ColumnElement[str], moment: ColumnElement[datetime]
) -> Select[Any]:
    """A query of rows, for a part of them.

    Args:
        query: finds all of them
        engine: the database
        part: which part; None for all of them, in no order
        key: the column of their keys
        moment: the column that tells how old they are

    Returns:
        a query that finds no others
    """
    if part is None:
        return query
    if part.newest_first:
        older = query if part.before is None else query.where(moment < part.before)
        return older.order_by(moment.desc()).limit(part.most)
    text = key.collate(BYTEWISE[engine.dialect.name])
    later = query if part.behind is None else query.where(text > part.behind)
    return later.order_by(text).limit(part.most)
