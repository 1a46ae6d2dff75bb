"""Are the shipped rows in the database, as they are shipped now, beside a team's own?

What a team calls its own stays its own: a shipped row goes without the names that own rows have, is left out where its
slug is one of them, and a GPU that is no longer shipped stays as long as own rows speak of it. All of it is said in the
log, the start does not fail, and the next one looks again: what stood in the way may be gone.
"""

import logging
from collections.abc import Container, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, delete, insert, select

from service.catalogue import SHIPPED, CalibrationRow, Catalogue, GpuRow, ModelRow, PriceRow, RegionRow, Row, key_of
from service.catalogue.indexes import Key, Named, digest_of, gpus_of, names_of, revision_of
from service.catalogue.names import forms_of
from service.store.changes import KINDS, Rows, catalogue_at, newest_change, write_change
from service.store.kept import KEPT
from service.store.tables import SEEDINGS

NAMELESS = PriceRow | RegionRow | CalibrationRow
"""Rows that are found by their key alone."""

log = logging.getLogger(__name__)


def is_seeded(connection: Connection, shipped: Catalogue) -> bool:
    """Whether the database holds the shipped rows, all of them, as they are shipped now.

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
    wanted = _wanted(before, shipped)
    rows = _difference(before, wanted)
    if last is None or rows.put or rows.drop or before.revision != last.catalogue:
        write_change(connection, before, rows, SHIPPED)
    seeded = revision_of({key: digest_of(row) for key, row in wanted.items()})
    if connection.execute(select(SEEDINGS.c.catalogue_revision)).scalars().all() != [seeded]:
        connection.execute(delete(SEEDINGS))
        connection.execute(insert(SEEDINGS), {"catalogue_revision": seeded, "seeded_at": datetime.now(UTC)})


def _difference(before: Catalogue, wanted: Mapping[Key, Row]) -> Rows:
    held = {_key(row): row for row in before.rows() if row.owner == SHIPPED}
    return Rows(
        put=tuple(row for key, row in wanted.items() if held.get(key) != row),
        drop=tuple(row for key, row in held.items() if key not in wanted),
    )


def _wanted(before: Catalogue, shipped: Catalogue) -> dict[Key, Row]:
    """The rows that are to be beside a team's own, by key."""
    own = [row for row in before.rows() if row.owner != SHIPPED]
    needed = {gpu for row in own for gpu in gpus_of(row)} - shipped.gpus.keys()
    kept = [
        replace(gpu, name=gpu.slug, aliases=(), default_for=())
        for gpu in before.gpus.values()
        if gpu.owner == SHIPPED and gpu.slug in needed
    ]
    for gpu in kept:
        log.warning("gpu %s is no longer shipped and stays, because own rows speak of it", gpu.slug)
    return {_key(row): row for row in (*_beside([*own, *kept], shipped), *kept)}


def _beside(fixed: list[Row], shipped: Catalogue) -> Iterator[Row]:
    """The shipped rows beside rows that stay, without the names that those have."""
    keys = {_key(row) for row in fixed}
    taken = {(type(row), form) for row in fixed for form in _forms(row)}
    left_out: set[str] = set()
    for row in shipped.rows():  # GPUs before what speaks of them
        noun, key = KINDS[KEPT[type(row)].table.name], key_of(row)
        missing = left_out.intersection(gpus_of(row))
        if missing:
            log.warning("shipped %s %s is left out: gpu %s, of which it speaks, is", noun, key, min(missing))
        elif _key(row) in keys or any((type(row), form) in taken for form in forms_of(key)):
            log.warning("shipped %s %s is left out: a row that stays has its name", noun, key)
            left_out |= {key} if isinstance(row, GpuRow) and _key(row) not in keys else set()
        else:
            free = row if isinstance(row, NAMELESS) else _without(row, taken)
            if free != row:
                log.warning("shipped %s %s goes without some of its names: rows that stay have them", noun, key)
            yield free


def _without(row: Named, taken: Container[tuple[type, str]]) -> Named:
    """A row without the names that other rows have."""

    def is_free(name: str) -> bool:
        return not any((type(row), form) in taken for form in forms_of(name))

    names: dict[str, Any] = {
        name: tuple(filter(is_free, getattr(row, name))) for name in ("aliases", "default_for") if hasattr(row, name)
    }
    if not is_free(row.name):
        names["name"] = row.slug
    if isinstance(row, ModelRow) and row.hugging_face_id and not is_free(row.hugging_face_id):
        names["hugging_face_id"] = None
    return replace(row, **names)


def _key(row: Row) -> Key:
    return type(row), key_of(row)


def _forms(row: Row) -> tuple[str, ...]:
    """Every name of a row, in the form in which names are compared; a price has its id alone, a region its slug."""
    if isinstance(row, NAMELESS):
        return ()
    named = (name for names in names_of(row).values() for name in names)
    return forms_of(row.slug, *named, *getattr(row, "default_for", ()))
