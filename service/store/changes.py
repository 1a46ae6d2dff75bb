"""How does the catalogue change, and what was it after each change? A log without gaps over versions of rows."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import groupby

from sqlalchemy import Connection, and_, desc, func, insert, select

from service.catalogue import EVERYONE, Catalogue, Holdings, Row, key_of
from service.catalogue.holdings import view_revision
from service.store.audit import note_in
from service.store.kept import KEPT, holding_at, in_part
from service.store.tables import CHANGED_PARTS, CHANGES

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
    holdings: Holdings
    """All rows after it."""
    rows: tuple[Row, ...]
    """The rows that were put, with their revisions."""

    @property
    def catalogue(self) -> Catalogue:
        """What the owner who made the change sees after it."""
        return self.holdings.view(self.change.owner)


def newest_change(connection: Connection) -> Change | None:
    """The last change of the catalogue.

    Args:
        connection: the database

    Returns:
        the change; None where nothing was seeded yet
    """
    return next(iter(read_changes(connection, 1)), None)


def read_changes(connection: Connection, most: int | None = None) -> list[Change]:
    """Changes of the catalogue, the newest first, each under the digest of all rows after it.

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


def changes_seen(connection: Connection, owner: str, *, of_all: bool) -> list[Change]:
    """The changes of what an owner sees, the newest first, each under the digest of a view after it.

    The view is the owner's; of a change of private rows of others alone it is theirs.

    Args:
        connection: the database
        owner: who sees them
        of_all: whether changes of other owners' private rows are listed too

    Returns:
        the changes
    """
    found = connection.execute(select(CHANGED_PARTS).order_by(CHANGED_PARTS.c.number))
    touched = {
        number: {row.part: row.digest for row in rows} for number, rows in groupby(found, lambda row: row.number)
    }
    digests: dict[str, str] = {EVERYONE: ""}
    seen: list[Change] = []
    for change in reversed(read_changes(connection)):
        parts = touched.get(change.number)
        digests |= parts or {}
        if parts is None:  # of the time when all rows were shared
            seen.append(change)
        elif of_all or parts.keys() & {EVERYONE, owner}:
            whose = owner if parts.keys() & {EVERYONE, owner} else min(parts)
            seen.append(replace(change, catalogue=view_revision(digests[EVERYONE], digests.get(whose, ""))))
    return seen[::-1]


def last_number_of(connection: Connection, part: str, digest: str) -> int | None:
    """The last change after which a part of all rows had a digest; None where it never had."""
    parts = CHANGED_PARTS.c
    query = select(func.max(parts.number)).where(parts.part == part, parts.digest == digest)
    number: int | None = connection.execute(query).scalar_one()
    return number


def last_number_with(connection: Connection, revision: str, owner: str) -> int | None:
    """The last change after which an owner with private rows saw a catalogue of a revision.

    Args:
        connection: the database
        revision: the digest of a view
        owner: whose view

    Returns:
        number of the change; None where the owner never saw such a catalogue
    """
    parts = CHANGED_PARTS.c
    query = select(parts.number, parts.part, parts.digest).where(parts.part.in_((EVERYONE, owner)))
    digests = {EVERYONE: "", owner: ""}
    found: int | None = None
    for number, changes in groupby(connection.execute(query.order_by(parts.number)), key=lambda row: row.number):
        digests |= {row.part: row.digest for row in changes}
        if view_revision(digests[EVERYONE], digests[owner]) == revision:
            found = number
    return found


def owners_with_parts(connection: Connection) -> list[str]:
    """Every owner who ever had private rows."""
    query = select(CHANGED_PARTS.c.part).where(CHANGED_PARTS.c.part != EVERYONE).distinct()
    return sorted(connection.execute(query).scalars())


def shared_number_of(connection: Connection, revision: str) -> int | None:
    """The last change after which everyone saw all rows of all owners, under a digest; None where none did."""
    changes = CHANGES.c
    has_parts = select(CHANGED_PARTS.c.number).where(CHANGED_PARTS.c.number == changes.number).exists()
    query = select(func.max(changes.number)).where(changes.catalogue_revision == revision, ~has_parts)
    number: int | None = connection.execute(query).scalar_one()
    return number


def has_parts(connection: Connection) -> bool:
    """Whether it is on record which parts the database holds: since then each owner sees only its own of them."""
    return connection.execute(select(CHANGED_PARTS.c.number).limit(1)).first() is not None


def revision_after(connection: Connection, number: int) -> str | None:
    """The digest of all rows right after a change; None where there was no such change."""
    query = select(CHANGES.c.catalogue_revision).where(CHANGES.c.number == number)
    revision: str | None = connection.execute(query).scalar_one_or_none()
    return revision


def holdings_at(connection: Connection, number: int) -> Holdings:
    """All rows as they were right after a change.

    Raises:
        UnsoundFact: rows for everyone contradict each other
    """
    return Holdings.of(rows_at(connection, number))


def rows_at(connection: Connection, number: int, part: str | None = None) -> Iterator[Row]:
    """The rows that held right after a change.

    Args:
        connection: the database
        number: the change
        part: the part of them to read; None for all
    """
    for kept in KEPT.values():
        yield from kept.read(connection, and_(holding_at(kept.table, number), *in_part(kept.table, part)))


def view_at(connection: Connection, number: int, owner: str) -> Catalogue:
    """What an owner saw right after a change."""
    parts = dict.fromkeys((EVERYONE, owner))
    return Holdings.of(row for part in parts for row in rows_at(connection, number, part)).view(owner)


def shared_at(connection: Connection, change_number: int, revision: str) -> Catalogue:
    """What everyone saw right after a change of the time when all rows were shared, under the digest of then."""
    return replace(Catalogue.from_rows(rows_at(connection, change_number)), revision=revision)


def holdings_since(connection: Connection, before: Holdings, since: int, number: int) -> Holdings:
    """All rows with what later changes made of them; nothing else is read or made again.

    Args:
        connection: the database
        before: the rows right after a change
        since: that change
        number: the later change that is asked for

    Returns:
        the rows after the later change

    Raises:
        UnsoundFact: rows contradict each other
    """
    put: list[Row] = []
    ended: list[Row] = []
    for kept in KEPT.values():
        begin, end = kept.table.c.since_change, kept.table.c.until_change
        put += kept.read(connection, and_(begin > since, holding_at(kept.table, number)))
        ended += kept.read(connection, and_(begin <= since, end > since, end <= number))
    return before.changed(put, ended)


def write_change(connection: Connection, before: Holdings, rows: Rows, owner: str) -> Written:
    """Change the catalogue, all of it or nothing.

    Args:
        connection: the database, inside a writing transaction, alone
        before: the rows that the database holds
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
    for kind, held in _by_kind(before.ended_by(rows.put, rows.drop)):
        KEPT[kind].close(connection, held, number)
    put = tuple(row for kind, held in _by_kind(rows.put) for row in KEPT[kind].add(connection, held, number))
    after = before.changed(put, rows.drop, is_strict=True)
    touched = _touched(connection, before, after)
    change = Change(
        number=number,
        made_at=datetime.now(UTC),
        catalogue=after.revision,
        owner=owner,
        summary=summary_of(before, rows),
    )
    values = {"catalogue_revision" if name == "catalogue" else name: value for name, value in asdict(change).items()}
    connection.execute(insert(CHANGES), values)
    parts = [{"part": part, "number": number, "digest": digest} for part, digest in touched.items()]
    if parts:
        connection.execute(insert(CHANGED_PARTS), parts)
    note_in(connection, _object_of(rows, number))
    return Written(change=change, holdings=after, rows=put)


def _touched(connection: Connection, before: Holdings, after: Holdings) -> dict[str, str]:
    """Digests of the parts that a change touched, empty for a part without rows; of all where none are on record."""
    if not has_parts(connection):
        return dict(after.parts)
    now, then = after.parts, before.parts
    changed = {part: now.get(part, "") for part in now.keys() | then.keys() if now.get(part) != then.get(part)}
    return changed or {EVERYONE: after.everyone.revision}


def summary_of(before: Holdings, rows: Rows) -> str:
    """What a change writes, in words.

    Args:
        before: the catalogue before it
        rows: what is written

    Returns:
        one row by its name, several by their number
    """
    done = [(type(row), "changed" if before.ended_by((row,), ()) else "created", row) for row in rows.put]
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
