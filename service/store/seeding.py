"""The shipped rows in the database, as this version ships them, beside custom rows.

Custom rows for everyone stay as they are: a shipped row goes without the names that those have, is left out where its
slug is one of them, and a GPU that is no longer shipped stays as long as they speak of it. Private rows change nothing
of what others see; what their owner sees of a shipped row with the same name is decided by its view. All of it is
logged, the start does not fail, and the next one looks again: what stood in the way may be gone.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from sqlalchemy import Connection, delete, insert, select

from service.catalogue import SHIPPED, Catalogue, GpuRow, Holdings, Row, key_of
from service.catalogue.holdings import beside
from service.catalogue.indexes import Key, digest_of, gpus_of, revision_of
from service.store.changes import KINDS, Rows, has_parts, holdings_at, newest_change, write_change
from service.store.kept import KEPT
from service.store.tables import SEEDINGS

log = logging.getLogger(__name__)


def is_seeded(connection: Connection, shipped: Catalogue) -> bool:
    """Whether the database holds the shipped rows, all of them, as they are shipped now.

    Args:
        connection: the database, at the head revision
        shipped: the rows that come with this version

    Returns:
        true if nothing is to be seeded
    """
    seeded = connection.execute(select(SEEDINGS.c.catalogue_revision)).scalars().all()
    return seeded == [shipped.revision] and has_parts(connection)


def seed(connection: Connection, shipped: Catalogue) -> None:
    """Put the shipped rows in the place of those of another version; custom rows stay.

    Args:
        connection: the database, inside a writing transaction, alone
        shipped: the rows that come with this version
    """
    last = newest_change(connection)
    before = Holdings.of(()) if last is None else holdings_at(connection, last.number)
    wanted = _wanted(before, shipped)
    rows = _difference(before, wanted, shipped)
    if last is None or rows.put or rows.drop or before.revision != last.catalogue or not has_parts(connection):
        write_change(connection, before, rows, SHIPPED)
    seeded = revision_of({key: digest_of(row) for key, row in wanted.items()})
    if connection.execute(select(SEEDINGS.c.catalogue_revision)).scalars().all() != [seeded]:
        connection.execute(delete(SEEDINGS))
        connection.execute(insert(SEEDINGS), {"catalogue_revision": seeded, "seeded_at": datetime.now(UTC)})


def _difference(before: Holdings, wanted: Mapping[Key, Row], shipped: Catalogue) -> Rows:
    held = {_key(row): row for row in before.everyone.rows() if row.owner == SHIPPED}
    put = tuple(row for key, row in wanted.items() if held.get(key) != row)
    drop = tuple(row for key, row in held.items() if key not in wanted)
    return Rows(put=(*put, *_handed_on(before, drop, shipped)), drop=drop)


def _handed_on(before: Holdings, gone: Iterable[Row], shipped: Catalogue) -> Iterator[Row]:
    """GPUs that are no longer shipped, as private rows of the owners whose private rows speak of them."""
    gpus = {row.slug: row for row in gone if isinstance(row, GpuRow) and row.slug not in shipped.gpus}
    for owner, held in before.private.items():
        for slug in sorted(gpus.keys() & {gpu for row in held.rows.values() for gpu in gpus_of(row)}):
            if (GpuRow, slug) not in held.rows:
                log.warning("gpu %s is no longer shipped and stays for %s, whose rows speak of it", slug, owner)
                yield replace(_nameless(gpus[slug]), owner=owner)


def _wanted(before: Holdings, shipped: Catalogue) -> dict[Key, Row]:
    """The shipped rows that are to be beside custom rows for everyone, by key."""
    own = [row for row in before.everyone.rows() if row.owner != SHIPPED]
    needed = {gpu for row in own for gpu in gpus_of(row)} - shipped.gpus.keys()
    kept = [_nameless(gpu) for gpu in before.everyone.gpus.values() if gpu.owner == SHIPPED and gpu.slug in needed]
    for gpu in kept:
        log.warning("gpu %s is no longer shipped and stays, because custom rows for everyone speak of it", gpu.slug)
    return {_key(row): row for row in (*_beside([*own, *kept], shipped), *kept)}


def _nameless(gpu: GpuRow) -> GpuRow:
    return replace(gpu, name=gpu.slug, aliases=(), default_for=())


def _beside(fixed: list[Row], shipped: Catalogue) -> Iterator[Row]:
    """The shipped rows beside rows that stay, without the names that those have."""
    for row, kept, missing in beside(fixed, shipped.rows()):
        noun, key = KINDS[KEPT[type(row)].table.name], key_of(row)
        if missing is not None:
            log.warning("shipped %s %s is left out: gpu %s, of which it speaks, is", noun, key, missing)
        elif kept is None:
            log.warning("shipped %s %s is left out: a row that stays has its name", noun, key)
        elif kept is not row:
            log.warning("shipped %s %s goes without some of its names: rows that stay have them", noun, key)
        if kept is not None:
            yield kept


def _key(row: Row) -> Key:
    return type(row), key_of(row)
