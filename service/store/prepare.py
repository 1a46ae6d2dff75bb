"""Preparation of a database at the start: created, migrated and seeded by the process that comes first.

The check takes two queries; Alembic, which takes a second to import, is loaded only where a migration is due. Migration
and seeding are one transaction under one lock: a killed process leaves nothing half done. Custom rows keep their names,
and the rows that they refer to stay.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, delete, insert, inspect, select, text
from sqlalchemy.exc import SQLAlchemyError

from service.catalogue import SHIPPED, Catalogue, GpuRow, Holdings, Row, key_of
from service.catalogue.holdings import beside
from service.catalogue.indexes import Key, digest_of, gpus_of, revision_of
from service.errors import StartupError, TraincostError
from service.settings import DATABASE_CONNECTIONS
from service.store.engine import alone, open_engine, place_of, reading, writing
from service.store.history import KINDS, ROW_TABLES, Rows, has_parts, holdings_at, newest_change, write_change
from service.store.tables import SEEDINGS

log = logging.getLogger(__name__)


def is_seeded(connection: Connection, shipped: Catalogue) -> bool:
    """Whether the database holds all shipped rows of this version."""
    seeded = connection.execute(select(SEEDINGS.c.catalogue_revision)).scalars().all()
    return seeded == [shipped.revision] and has_parts(connection)


def seed(connection: Connection, shipped: Catalogue) -> None:
    """Replace the shipped rows of another version; custom rows stay."""
    last = newest_change(connection)
    before = Holdings.of(()) if last is None else holdings_at(connection, last.number)
    target = _wanted(before, shipped)
    rows = _difference(before, target, shipped)
    if last is None or rows.put or rows.drop or before.revision != last.catalogue or not has_parts(connection):
        write_change(connection, before, rows, SHIPPED)
    seeded = revision_of({key: digest_of(row) for key, row in target.items()})
    if connection.execute(select(SEEDINGS.c.catalogue_revision)).scalars().all() != [seeded]:
        connection.execute(delete(SEEDINGS))
        connection.execute(insert(SEEDINGS), {"catalogue_revision": seeded, "seeded_at": datetime.now(UTC)})


def _difference(before: Holdings, target: Mapping[Key, Row], shipped: Catalogue) -> Rows:
    current = {_key(row): row for row in before.everyone.rows() if row.owner == SHIPPED}
    put = tuple(row for key, row in target.items() if current.get(key) != row)
    drop = tuple(row for key, row in current.items() if key not in target)
    return Rows(put=(*put, *_orphaned_gpus(before, drop, shipped)), drop=drop)


def _orphaned_gpus(before: Holdings, gone: Iterable[Row], shipped: Catalogue) -> Iterator[Row]:
    """GPUs that are no longer shipped, as private rows of the owners whose private rows refer to them."""
    gpus = {row.slug: row for row in gone if isinstance(row, GpuRow) and row.slug not in shipped.gpus}
    for owner, rows in before.private.items():
        for slug in sorted(gpus.keys() & {gpu for row in rows.rows.values() for gpu in gpus_of(row)}):
            if (GpuRow, slug) not in rows.rows:
                log.warning("gpu %s is no longer shipped and stays for %s, whose rows speak of it", slug, owner)
                yield replace(_nameless(gpus[slug]), owner=owner)


def _wanted(before: Holdings, shipped: Catalogue) -> dict[Key, Row]:
    """The shipped rows, adjusted to custom rows for everyone, by key."""
    own = [row for row in before.everyone.rows() if row.owner != SHIPPED]
    needed = {gpu for row in own for gpu in gpus_of(row)} - shipped.gpus.keys()
    kept_gpus = [_nameless(gpu) for gpu in before.everyone.gpus.values() if gpu.owner == SHIPPED and gpu.slug in needed]
    for gpu in kept_gpus:
        log.warning("gpu %s is no longer shipped and stays, because custom rows for everyone speak of it", gpu.slug)
    return {_key(row): row for row in (*_beside([*own, *kept_gpus], shipped), *kept_gpus)}


def _nameless(gpu: GpuRow) -> GpuRow:
    return replace(gpu, name=gpu.slug, aliases=(), default_for=())


def _beside(fixed: list[Row], shipped: Catalogue) -> Iterator[Row]:
    """The shipped rows beside other rows, without the names that those have."""
    for row, adjusted, missing in beside(fixed, shipped.rows()):
        kind, key = KINDS[ROW_TABLES[type(row)].table.name], key_of(row)
        if missing is not None:
            log.warning("shipped %s %s is left out: gpu %s, of which it speaks, is", kind, key, missing)
        elif adjusted is None:
            log.warning("shipped %s %s is left out: a row that stays has its name", kind, key)
        elif adjusted is not row:
            log.warning("shipped %s %s goes without some of its names: rows that stay have them", kind, key)
        if adjusted is not None:
            yield adjusted


def _key(row: Row) -> Key:
    return type(row), key_of(row)


if TYPE_CHECKING:
    from alembic.config import Config

HEAD = "0021"
"""Newest revision in migrations/, which this version expects."""


def prepare_database(url: str, shipped: Catalogue, connections: int = DATABASE_CONNECTIONS) -> Engine:
    """An engine on a database that has this version's tables and shipped rows."""
    engine = open_engine(url, connections=connections)
    try:
        _prepare(engine, shipped)
    except BaseException as error:
        engine.dispose()
        if isinstance(error, SQLAlchemyError):
            raise StartupError(complaint(engine, error)) from None
        raise
    return engine


def _prepare(engine: Engine, shipped: Catalogue) -> None:
    with reading(engine) as connection:
        is_ready = revision_in(connection) == HEAD and is_seeded(connection, shipped)
    if not is_ready:
        with writing(engine) as connection:
            alone(connection, patient=True)
            migrate(connection)
            seed(connection, shipped)


def complaint(engine: Engine, error: Exception) -> str:
    """The driver's error in one line, with the database but without its password."""
    reason = " ".join(str(getattr(error, "orig", None) or error).split())
    return f"the database {place_of(engine)} cannot be used: {reason}"


def revision_in(connection: Connection) -> str | None:
    """The revision of a database."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    revision: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return revision


def migrate(connection: Connection, revision: str = HEAD) -> None:
    """Migrate a database up to a revision; a database at that revision stays as it is."""
    current = revision_in(connection)
    if current == revision:
        return
    if current is not None:
        refuse_unknown(current, "the database", StartupError)
    from alembic import command

    command.upgrade(_config(connection), revision)


def refuse_unknown(revision: str, what: str, error: type[TraincostError]) -> None:
    """Refuse a database of a newer version."""
    from alembic.script import ScriptDirectory

    known = {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}
    if revision not in known:
        raise error(
            f"{what} is at revision {revision}, which this version does not know; "
            "it was made by a newer traincost: install that, or name another one"
        )


def _config(connection: Connection | None = None) -> "Config":
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    return config


def migrations_folder() -> Path:
    """Folder of the revisions: inside an installed package, else beside it in a checkout."""
    package = Path(__file__).parent.parent
    shipped = package / "_migrations"
    return shipped if shipped.is_dir() else package.parent / "migrations"
