"""Are the shipped rows in the database, as they are shipped now, beside a team's own?

What a team calls its own stays its own: a shipped row that would take one of its names is left out, and a GPU that is
no longer shipped stays as long as own rows speak of it. Both are said in the log; the start does not fail.
"""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime

from sqlalchemy import Connection, delete, insert, select

from service.catalogue import SHIPPED, Catalogue, GpuRow, PriceRow, Row, key_of
from service.catalogue.catalogue import gpus_of
from service.catalogue.indexes import names_of
from service.catalogue.names import forms_of
from service.store.changes import Rows, catalogue_at, newest_change, write_change
from service.store.tables import SEEDINGS

log = logging.getLogger(__name__)

Name = tuple[type, str]
"""A kind of row, and the key or the normal form of a name of one."""


def is_seeded(connection: Connection, shipped: Catalogue) -> bool:
    """Whether the database holds the shipped rows, as they are shipped now.

    Args:
        connection: the database, at the head revision
        shipped: the rows that come with this version

    Returns:
        true if nothing is to be seeded
    """
    return connection.execute(select(SEEDINGS.c.catalogue_revision)).scalars().all() == [shipped.revision]


def seed(connection: Connection, shipped: Catalogue) -> None:
    """Put the shipped rows in the place of those of another version; a team's own rows stay.

    Args:
        connection: the database, inside a writing transaction, alone
        shipped: the rows that come with this version
    """
    last = newest_change(connection)
    before = Catalogue.from_rows(()) if last is None else catalogue_at(connection, last.number)
    rows = _difference(before, shipped)
    if last is None or rows.put or rows.drop or before.revision != last.catalogue:
        write_change(connection, before, rows, SHIPPED)
    if not is_seeded(connection, shipped):
        connection.execute(delete(SEEDINGS))
        connection.execute(insert(SEEDINGS), {"catalogue_revision": shipped.revision, "seeded_at": datetime.now(UTC)})


def _difference(before: Catalogue, shipped: Catalogue) -> Rows:
    own = [row for row in before.rows() if row.owner != SHIPPED]
    held = {_key(row): row for row in before.rows() if row.owner == SHIPPED}
    needed = {gpu for row in own for gpu in gpus_of(row)} - shipped.gpus.keys()
    kept = [
        replace(row, name=row.slug, aliases=(), default_for=())
        for row in held.values()
        if isinstance(row, GpuRow) and row.slug in needed
    ]
    for gpu in kept:
        log.warning("gpu %s is no longer shipped and stays, because own rows speak of it", gpu.slug)
    wanted = {_key(row): row for row in (*_beside([*own, *kept], shipped.rows()), *kept)}
    return Rows(
        put=tuple(row for key, row in wanted.items() if held.get(key) != row),
        drop=tuple(row for key, row in held.items() if key not in wanted),
    )


def _beside(fixed: list[Row], shipped: Iterable[Row]) -> Iterator[Row]:
    """The shipped rows that contradict none of some rows that stay."""
    taken = {name for row in fixed for name in _taken(row)}
    claimed = {name for row in fixed for name in _claimed(row)}
    left_out: set[str] = set()
    for row in shipped:
        mentioned = left_out.intersection(gpus_of(row))
        if not mentioned and claimed.isdisjoint(_taken(row)) and taken.isdisjoint(_claimed(row)):
            yield row
            continue
        log.warning("shipped %s %s is left out: an own row has its name", type(row).__name__, key_of(row))
        if isinstance(row, GpuRow) and (GpuRow, row.slug) not in map(_key, fixed):
            left_out.add(row.slug)


def _key(row: Row) -> Name:
    return type(row), key_of(row)


def _claimed(row: Row) -> Iterator[Name]:
    """Names that mean this row alone: its key, and shared names of which it is the default."""
    yield from ((type(row), form) for form in forms_of(key_of(row), *getattr(row, "default_for", ())))


def _taken(row: Row) -> Iterator[Name]:
    """Every name of a row."""
    yield from _claimed(row)
    if not isinstance(row, PriceRow):
        yield from ((type(row), form) for names in names_of(row).values() for form in forms_of(*names))
