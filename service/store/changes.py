"""How does the catalogue change, and what was it after each change? A log without gaps over versions of rows."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import groupby

from sqlalchemy import Connection, and_, desc, func, insert, select

from service.catalogue import Catalogue, Row, key_of
from service.catalogue.indexes import Key
from service.store.audit import note_in
from service.store.kept import KEPT, holding_at
from service.store.tables import CHANGES

KINDS = {
    "models": "model",
    "gpus": "gpu",
    "clusters": "cluster",
    "prices": "price",
    "rate_cards": "rate card",
    "regions": "region",
    "promoted_calibrations": "calibration",
}
"""What one row of a table is called in a summary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change of the catalogue."""

    number: int
    """Its number, from 1 without a gap."""
    made_at: datetime
    """When it was made."""
    catalogue: str
    """Digest of the whole catalogue after it: what `rev` asks for and answers name."""
    owner: str
    """Who made it: catalogue for what a version of the service ships."""
    summary: str
    """What was changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows that a change writes."""

    put: tuple[Row, ...] = ()
    """Rows that are new or take the place of another version."""
    drop: tuple[Row, ...] = ()
    """Rows that go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What a change made."""

    change: Change
    """The change."""
    catalogue: Catalogue
    """The catalogue after it."""
    rows: tuple[Row, ...]
    """The rows that were put, with their revisions."""


def newest_change(connection: Connection) -> Change | None:
    """The last change of the catalogue.

    Args:
        connection: the database

    Returns:
        the change; None where nothing was seeded yet
    """
    return next(iter(read_changes(connection, 1)), None)


def read_changes(connection: Connection, most: int | None = None) -> list[Change]:
    """Changes of the catalogue, the newest first.

    Args:
        connection: the database
        most: how many at most; None for all of them

    Returns:
        the changes
    """
    found = connection.execute(select(CHANGES).order_by(desc(CHANGES.c.number)).limit(most))
    return [
        Change(
            number=row.number,
            made_at=row.made_at.replace(tzinfo=row.made_at.tzinfo or UTC),
            catalogue=row.catalogue_revision,
            owner=row.owner,
            summary=row.summary,
        )
        for row in found
    ]


def number_of(connection: Connection, revision: str) -> int | None:
    """The last change after which the catalogue had a digest.

    Args:
        connection: the database
        revision: the digest

    Returns:
        number of the change; None where the catalogue never had it
    """
    query = select(func.max(CHANGES.c.number)).where(CHANGES.c.catalogue_revision == revision)
    number: int | None = connection.execute(query).scalar_one()
    return number


def revision_after(connection: Connection, number: int) -> str | None:
    """The digest that the catalogue had right after a change.

    Args:
        connection: the database
        number: the change

    Returns:
        the digest; None where there was no such change
    """
    query = select(CHANGES.c.catalogue_revision).where(CHANGES.c.number == number)
    revision: str | None = connection.execute(query).scalar_one_or_none()
    return revision


def catalogue_at(connection: Connection, number: int) -> Catalogue:
    """The catalogue as it was right after a change.

    Args:
        connection: the database
        number: the change

    Returns:
        the catalogue

    Raises:
        UnsoundFact: rows contradict each other
    """
    return Catalogue.from_rows(
        row for kept in KEPT.values() for row in kept.read(connection, holding_at(kept.table, number))
    )


def catalogue_since(connection: Connection, before: Catalogue, since: int, number: int) -> Catalogue:
    """A catalogue with what later changes made of it; nothing else is read or made again.

    Args:
        connection: the database
        before: the catalogue right after a change
        since: that change
        number: the later change that is asked for

    Returns:
        the catalogue after the later change

    Raises:
        UnsoundFact: rows contradict each other
    """
    put: dict[Key, Row] = {}
    ended: dict[Key, Row] = {}
    for kind, kept in KEPT.items():
        begin, end = kept.table.c.since_change, kept.table.c.until_change
        made = kept.read(connection, and_(begin > since, holding_at(kept.table, number)))
        gone = kept.read(connection, and_(begin <= since, end > since, end <= number))
        put |= {(kind, key_of(row)): row for row in made}
        ended |= {(kind, key_of(row)): row for row in gone}
    return before.changed(put.values(), (row for key, row in ended.items() if key not in put))


def write_change(connection: Connection, before: Catalogue, rows: Rows, owner: str) -> Written:
    """Change the catalogue, all of it or nothing.

    Args:
        connection: the database, inside a writing transaction, alone
        before: the catalogue that the database holds
        rows: what is written
        owner: who changes it

    Returns:
        what the change made

    Raises:
        UnsoundFact: the catalogue would contradict itself; nothing must be committed then
        OtherVersions: the database does not hold what was there before; nothing must be committed then
    """
    last = newest_change(connection)
    number = 1 if last is None else last.number + 1
    ended = (before.held(type(row), key_of(row)) for row in (*rows.put, *rows.drop))
    for kind, held in _by_kind(row for row in ended if row is not None):
        KEPT[kind].close(connection, held, number)
    put = tuple(row for kind, held in _by_kind(rows.put) for row in KEPT[kind].add(connection, held, number))
    after = before.changed(put, rows.drop)
    change = Change(
        number=number,
        made_at=datetime.now(UTC),
        catalogue=after.revision,
        owner=owner,
        summary=summary_of(before, rows),
    )
    values = {"catalogue_revision" if name == "catalogue" else name: value for name, value in asdict(change).items()}
    connection.execute(insert(CHANGES), values)
    note_in(connection, _object_of(rows, number))
    return Written(change=change, catalogue=after, rows=put)


def summary_of(before: Catalogue, rows: Rows) -> str:
    """What a change writes, in words.

    Args:
        before: the catalogue before it
        rows: what is written

    Returns:
        one row by its name, several by their number
    """
    done = [(type(row), "changed" if before.held(type(row), key_of(row)) else "created", row) for row in rows.put]
    done += [(type(row), "deleted", row) for row in rows.drop]
    if len(done) == 1:
        ((kind, action, row),) = done
        return f"{KINDS[KEPT[kind].table.name]} {key_of(row)} {action}"
    counted = Counter((KEPT[kind].table.name, action) for kind, action, _ in done)
    said = (f"{count} {table.replace('_', ' ')} {action}" for (table, action), count in counted.items())
    return ", ".join(said) or "no row, only what their digest is made of"


def _object_of(rows: Rows, number: int) -> str:
    """What a change is about: its row, or the change itself, which lists several."""
    changed = (*rows.put, *rows.drop)
    if len(changed) != 1:
        return f"catalogue/revisions/{number}"
    return f"{KEPT[type(changed[0])].table.name.replace('_', '-')}/{key_of(changed[0])}"


def _by_kind(rows: Iterable[Row]) -> list[tuple[type, list[Row]]]:
    ordered = sorted(rows, key=lambda row: type(row).__name__)
    return [(kind, list(held)) for kind, held in groupby(ordered, key=type)]
