"""The catalogue over time: versions of its rows, a change log without gaps, and each owner's view after any change."""

import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from itertools import groupby
from operator import attrgetter
from threading import Lock
from typing import Any

import sqlalchemy as sa
from pydantic import TypeAdapter

from service.catalogue import (
    EVERYONE,
    SHIPPED,
    CalibrationRow,
    Catalogue,
    ClusterRow,
    GpuRow,
    ModelRow,
    PriceRow,
    RateCardRow,
    RegionRow,
    Row,
    Snapshot,
    UnsoundFact,
    key_of,
)
from service.catalogue.catalogue import view_revision
from service.catalogue.rows import TELLS_PRICES_APART, price_id
from service.errors import Conflict, Problem, TraincostError, UnknownRevision, Unreachable
from service.estimator import Cluster, Gpu
from service.store.engine import NO_ANSWER, afterwards, alone, answering, reading, row_as, writing
from service.store.requests import log_change_in
from service.store.tables import (
    CHANGED_PARTS,
    CHANGES,
    CLUSTERS,
    GPUS,
    MODELS,
    PRICES,
    PROMOTED_CALIBRATIONS,
    RATE_CARDS,
    REGIONS,
)

AT_ONCE = 2_000
"""Rows of one read; others are served between two reads."""
MOST_NAMED = 50
"""Rows that a query names; for more of them, a full read is faster."""

Record = dict[str, Any]


class OtherVersions(TraincostError):
    """The database does not hold exactly the versions that a change closes; nothing of the change may be committed."""


@dataclass(frozen=True, slots=True)
class RowTable:
    """One kind of row and the table of its versions."""

    rows: TypeAdapter[list[Any]]
    """Conversion of rows to plain values and back, checked."""
    table: sa.Table
    label: str
    spread: str = ""
    """Field of the rows whose own fields are columns."""
    spread_columns: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, ...]:
        """Key columns of a row, independent of its version."""
        return tuple(column.name for column in self.table.primary_key if column.name != "revision")

    def read(self, connection: sa.Connection, which: sa.ColumnElement[bool]) -> list[Any]:
        """Versions of rows, sorted by key here, because databases sort text differently."""
        records = connection.execute(sa.select(self.table).where(which).execution_options(yield_per=AT_ONCE))
        rows: list[Any] = []
        for part in records.mappings().partitions():  # a million rows at once would take three times the memory
            rows += self.rows.validate_python([self._gathered(dict(record)) for record in part])
        return sorted(rows, key=attrgetter(*self.key, "revision"))

    def close(self, connection: sa.Connection, rows: Iterable[Row], number: int) -> None:
        """Close the current versions."""
        identities = [dict(zip(map("{}_".format, self.key), self.identity(row), strict=True)) for row in rows]
        if not identities:
            return
        same = [self.table.c[name] == sa.bindparam(f"{name}_") for name in self.key]
        holds = self.table.c.until_change.is_(None)
        ended = connection.execute(
            sa.update(self.table).where(sa.and_(*same, holds)).values(until_change=number), identities
        )
        if ended.rowcount != len(identities):  # a unique index keeps two that hold from making up for one that does not
            raise OtherVersions(f"{len(identities)} versions of {self.table.name} were to end, {ended.rowcount} held")

    def add(self, connection: sa.Connection, rows: Iterable[Row], number: int) -> list[Any]:
        """Add a version of each row, with the next revision of the row."""
        stored = tuple(rows)
        key = [self.table.c[name] for name in self.key]
        latest = sa.select(*key, sa.func.max(self.table.c.revision)).group_by(*key)
        if len(stored) <= MOST_NAMED:
            latest = latest.where(sa.tuple_(*key).in_([self.identity(row) for row in stored]))
        last = {tuple(identity): revision for *identity, revision in connection.execute(latest)}
        added = [replace(row, revision=last.get(self.identity(row), 0) + 1) for row in stored]
        records = [self._spread(record) for record in self.rows.dump_python(added, mode="json")]
        if records:
            connection.execute(sa.insert(self.table), [{**record, "since_change": number} for record in records])
        return added

    def identity(self, row: Row) -> tuple[Any, ...]:
        """Identity of a row among those of its kind and owner."""
        return tuple(getattr(row, name) for name in self.key)

    def named(self, connection: sa.Connection, key: str, current: Row | None) -> sa.ColumnElement[bool] | None:
        """Condition for every version of a row, of any owner."""
        if "slug" in self.table.c:
            return self.table.c.slug == key
        columns = [self.table.c[name] for name in TELLS_PRICES_APART]
        if current is not None:
            identity: Sequence[str] | None = [getattr(current, name) for name in TELLS_PRICES_APART]
        else:
            ended = connection.execute(sa.select(*columns).where(self.table.c.until_change.is_not(None)))
            identity = next((row for row in ended if price_id(tuple(row)) == key), None)
        return None if identity is None else sa.and_(*(c == value for c, value in zip(columns, identity, strict=True)))

    def _spread(self, record: Record) -> Record:
        spread = record.pop(self.spread) if self.spread else {}
        return {**record, **spread}

    def _gathered(self, record: Record) -> Record:
        del record["since_change"], record["until_change"]
        spread = {name: record.pop(name) for name in self.spread_columns}
        return {**record, self.spread: spread} if self.spread else record


def holding_at(table: sa.Table, number: int) -> sa.ColumnElement[bool]:
    """Condition for the versions that were valid right after a change."""
    ended_later = sa.or_(table.c.until_change.is_(None), table.c.until_change > number)
    return sa.and_(table.c.since_change <= number, ended_later)


def _names(kind: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


ROW_TABLES: Mapping[type, RowTable] = {
    ModelRow: RowTable(TypeAdapter(list[ModelRow]), MODELS, "model"),
    GpuRow: RowTable(TypeAdapter(list[GpuRow]), GPUS, "gpu", "gpu", _names(Gpu)),
    ClusterRow: RowTable(TypeAdapter(list[ClusterRow]), CLUSTERS, "cluster", "cluster", _names(Cluster)),
    PriceRow: RowTable(TypeAdapter(list[PriceRow]), PRICES, "price"),
    RateCardRow: RowTable(TypeAdapter(list[RateCardRow]), RATE_CARDS, "rate card"),
    RegionRow: RowTable(TypeAdapter(list[RegionRow]), REGIONS, "region"),
    CalibrationRow: RowTable(TypeAdapter(list[CalibrationRow]), PROMOTED_CALIBRATIONS, "calibration"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change of the catalogue."""

    number: int
    """Its number, from 1 without a gap."""
    made_at: datetime
    catalogue: str
    """Digest of the whole catalogue after it: what `rev` asks for and answers name."""
    owner: str
    """Who made it: catalogue for what a version of the service ships."""
    summary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    put: tuple[Row, ...] = ()
    drop: tuple[Row, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    change: Change
    snapshot: Snapshot
    rows: tuple[Row, ...]

    @property
    def catalogue(self) -> Catalogue:
        """The catalogue of the change's owner after it."""
        return self.snapshot.view(self.change.owner)


def newest_change(connection: sa.Connection) -> Change | None:
    """The last change of the catalogue."""
    return next(iter(read_changes(connection, 1)), None)


def read_changes(connection: sa.Connection, most: int | None = None) -> list[Change]:
    """Changes of the catalogue, newest first, each with the digest of all rows after it."""
    rows = connection.execute(sa.select(CHANGES).order_by(sa.desc(CHANGES.c.number)).limit(most)).mappings()
    return [row_as(Change, row, catalogue=row["catalogue_revision"]) for row in rows]


def changes_seen(connection: sa.Connection, owner: str, *, of_all: bool) -> list[Change]:
    """Changes of an owner's view without those of others' private rows, newest first, each with the view's digest."""
    rows_read = connection.execute(sa.select(CHANGED_PARTS).order_by(CHANGED_PARTS.c.number))
    touched = {
        number: {row.part: row.digest for row in rows} for number, rows in groupby(rows_read, lambda row: row.number)
    }
    digests: dict[str, str] = {EVERYONE: ""}
    seen: list[Change] = []
    for change in reversed(read_changes(connection)):
        parts = touched.get(change.number)
        digests |= parts or {}
        if parts is None:  # of the time when all rows were shared
            seen.append(change)
        elif of_all or parts.keys() & {EVERYONE, owner}:
            viewer = owner if parts.keys() & {EVERYONE, owner} else min(parts)
            seen.append(replace(change, catalogue=view_revision(digests[EVERYONE], digests.get(viewer, ""))))
    return seen[::-1]


def _last_number_with(connection: sa.Connection, revision: str, owner: str) -> int | None:
    """Number of the last change after which an owner with private rows had a view with a digest."""
    parts = CHANGED_PARTS.c
    query = sa.select(parts.number, parts.part, parts.digest).where(parts.part.in_((EVERYONE, owner)))
    digests = {EVERYONE: "", owner: ""}
    last: int | None = None
    for number, changes in groupby(connection.execute(query.order_by(parts.number)), key=lambda row: row.number):
        digests |= {row.part: row.digest for row in changes}
        if view_revision(digests[EVERYONE], digests[owner]) == revision:
            last = number
    return last


def has_parts(connection: sa.Connection) -> bool:
    """Whether the parts of all rows are recorded: since then each owner sees only its own private rows."""
    return connection.execute(sa.select(CHANGED_PARTS.c.number).limit(1)).first() is not None


def snapshot_at(connection: sa.Connection, number: int) -> Snapshot:
    """All rows right after a change."""
    return Snapshot.of(rows_at(connection, number))


def rows_at(connection: sa.Connection, number: int, part: str | None = None) -> Iterator[Row]:
    """The valid rows right after a change: of everyone, of one owner, or all."""
    for kind in ROW_TABLES.values():
        columns = kind.table.c
        is_for_everyone = sa.or_(columns.owner == SHIPPED, columns.scope == "everyone")
        of_part = is_for_everyone if part == EVERYONE else sa.and_(columns.owner == part, sa.not_(is_for_everyone))
        yield from kind.read(
            connection, sa.and_(holding_at(kind.table, number), sa.true() if part is None else of_part)
        )


def view_at(connection: sa.Connection, number: int, owner: str) -> Catalogue:
    """The view of an owner right after a change."""
    parts = dict.fromkeys((EVERYONE, owner))
    return Snapshot.of(row for part in parts for row in rows_at(connection, number, part)).view(owner)


def write_change(connection: sa.Connection, before: Snapshot, rows: Rows, owner: str) -> Written:
    """Write a change of the catalogue, all of it or nothing."""
    last = newest_change(connection)
    number = 1 if last is None else last.number + 1
    for kind, ended in _by_kind(before.rows_closed_by(rows.put, rows.drop)):
        ROW_TABLES[kind].close(connection, ended, number)
    put = tuple(row for kind, new in _by_kind(rows.put) for row in ROW_TABLES[kind].add(connection, new, number))
    after = before.changed(put, rows.drop, is_strict=True)
    touched = _touched(connection, before, after)
    made_at, summary = datetime.now(UTC), _summary_of(before, rows)
    change = Change(number=number, made_at=made_at, catalogue=after.revision, owner=owner, summary=summary)
    values = asdict(change)
    values["catalogue_revision"] = values.pop("catalogue")
    connection.execute(sa.insert(CHANGES), values)
    parts = [{"part": part, "number": number, "digest": digest} for part, digest in touched.items()]
    if parts:
        connection.execute(sa.insert(CHANGED_PARTS), parts)
    named = f"catalogue/revisions/{number}"
    if len(changed := (*rows.put, *rows.drop)) == 1:
        named = f"{ROW_TABLES[type(changed[0])].table.name.replace('_', '-')}/{key_of(changed[0])}"
    log_change_in(connection, named)
    return Written(change=change, snapshot=after, rows=put)


def _touched(connection: sa.Connection, before: Snapshot, after: Snapshot) -> dict[str, str]:
    """Digests of the parts that a change touched, empty for a part without rows; of all where none are recorded."""
    if not has_parts(connection):
        return dict(after.parts)
    now, then = after.parts, before.parts
    changed = {part: now.get(part, "") for part in now.keys() | then.keys() if now.get(part) != then.get(part)}
    return changed or {EVERYONE: after.everyone.revision}


def _summary_of(before: Snapshot, rows: Rows) -> str:
    done = [(type(row), "changed" if before.rows_closed_by((row,), ()) else "created", row) for row in rows.put]
    done += [(type(row), "deleted", row) for row in rows.drop]
    if len(done) == 1:
        ((kind, action, row),) = done
        return f"{ROW_TABLES[kind].label} {key_of(row)} {action}"
    counted = Counter((ROW_TABLES[kind].table.name, action) for kind, action, _ in done)
    parts = (f"{count} {table.replace('_', ' ')} {action}" for (table, action), count in counted.items())
    return ", ".join(parts) or "no row, only what their digest is made of"


def _by_kind(rows: Iterable[Row]) -> list[tuple[type, list[Row]]]:
    ordered = sorted(rows, key=lambda row: type(row).__name__)
    return [(kind, list(same)) for kind, same in groupby(ordered, key=type)]


MOST_CACHED = 8
MOST_CACHED_ROWS = 1_000_000
"""Rows of the earlier catalogues in memory but for the last one; an index takes 150 bytes a row. Source: measured."""

REVISION = re.compile(r"[0-9a-f]{12}")

Also = Callable[[sa.Connection, Snapshot], None]

NO_SUCH_REVISION = "no catalogue of this revision is kept; GET /v1/catalogue/revisions lists those that are"


class History:
    """The catalogue over time."""

    def __init__(
        self,
        engine: sa.Engine | None,
        snapshot: Snapshot | Catalogue,
        publish: Callable[[Catalogue], None] = lambda _: None,
        number: int = 0,
    ) -> None:
        self._engine = engine
        self._publish = publish
        self._number = number
        self._cached: OrderedDict[tuple[str, str], Catalogue] = OrderedDict()
        self._lock = Lock()
        self.snapshot = snapshot if isinstance(snapshot, Snapshot) else Snapshot(snapshot)

    @property
    def number(self) -> int:
        """Number of the newest change in memory; 0 before the first refresh."""
        return self._number

    def view(self, owner: str) -> Catalogue:
        """An owner's view now: the rows for everyone and its private ones."""
        return self.snapshot.view(owner).viewed_by(owner)

    def refresh(self) -> None:
        """Read changes of other processes, and of a restored backup."""
        with self._lock:
            number, current = self._number, self.snapshot
        with self._reading() as connection:  # it sees at least what was in memory, so a lower number is a restored one
            newest = newest_change(connection)
            if newest is None or (newest.number, newest.catalogue) == (number, current.revision):
                return
            snapshot = _brought_up(connection, current, number, newest)
        self._take(newest.number, snapshot, instead_of=number)

    def cached(self, revision: str, owner: str) -> Catalogue | None:
        """The catalogue of a revision, as far as an owner may see it, if it is in memory."""
        now = self.snapshot
        for made in (now.everyone, now.cached_view(owner)):
            if made is not None and made.revision == revision:
                return made.viewed_by(owner)
        with self._lock:
            for key in ((revision, EVERYONE), (revision, owner)):
                if key in self._cached:
                    self._cached.move_to_end(key)
                    return self._cached[key].viewed_by(owner)
        return None

    def at(self, revision: str, owner: str, *, of_all: bool = False) -> Catalogue:
        """The catalogue of a revision, as far as an owner may see it, from memory or from the database."""
        view = self.cached(revision, owner)
        if view is not None:
            return view
        if self._engine is None or not REVISION.fullmatch(revision):
            raise UnknownRevision(NO_SUCH_REVISION)
        with self._reading() as connection:
            private = sa.select(CHANGED_PARTS.c.part).where(CHANGED_PARTS.c.part != EVERYONE).distinct()
            owners = [owner, *(sorted(connection.scalars(private)) if of_all else ())]
            read = _read_view(connection, revision, owners)
        if read is None:
            raise UnknownRevision(NO_SUCH_REVISION)
        viewer, view = read
        with self._lock:
            self._cache(view, viewer)
        return view.viewed_by(owner)

    def changes(self, owner: str, *, of_all: bool = False) -> list[Change]:
        """Changes of an owner's view, newest first, each with the digest of the view after it."""
        with self._reading() as connection:
            return changes_seen(connection, owner, of_all=of_all)

    def version(self, kind: type, key: str, revision: int, may_see: Callable[[Row], bool]) -> Row | None:
        row_table = ROW_TABLES[kind]
        current_rows = [row for row in (self.snapshot.everyone.row(kind, key),) if row is not None]
        current_rows += [row for row in self.snapshot.rows_of_kind(kind) if key_of(row) == key and may_see(row)]
        current = current_rows[-1] if current_rows else None
        with self._reading() as connection:
            named, numbered = row_table.named(connection, key, current), row_table.table.c.revision == revision
            versions = [] if named is None else row_table.read(connection, sa.and_(named, numbered))
        seen = [row for row in versions if may_see(row)]
        mine = [row for row in seen if current is not None and row.owner == current.owner]
        return next(reversed(mine or seen), None)

    def change(self, owner: str, decide: Callable[[Snapshot], Rows], also: Also | None = None) -> Written:
        """Change the catalogue, all of it or nothing, while no other process changes it."""
        with answering(), writing(self._connected()) as connection:
            alone(connection)
            newest = newest_change(connection)
            before = self.snapshot if newest is None else self._before(connection, newest)
            rows = decide(before)
            try:
                written = write_change(connection, before, rows, owner)
            except UnsoundFact:
                raise Conflict(CONTRADICTION) from None
            if also is not None:
                also(connection, before)
        afterwards(lambda: self._take(written.change.number, written.snapshot))
        return written

    def _before(self, connection: sa.Connection, newest: Change) -> Snapshot:
        with self._lock:
            number, current = self._number, self.snapshot
        if (newest.number, newest.catalogue) == (number, current.revision):
            return current
        snapshot = _brought_up(connection, current, number, newest)
        if newest.number < number or number == 0:  # restored from a backup, or read for the first time
            self._take(newest.number, snapshot, instead_of=number)
        return snapshot

    def _take(self, number: int, snapshot: Snapshot, *, instead_of: int = 0) -> None:
        """Set the current rows, unless a later change has set them since a given number."""
        with self._lock:
            if number < self._number != instead_of:
                return
            if snapshot is not self.snapshot:
                self._cache_former(self.snapshot, snapshot)
            self._number, self.snapshot = number, snapshot
            self._publish(snapshot.everyone)

    def _cache_former(self, former: Snapshot, now: Snapshot) -> None:
        """Cache the former views: the rows for everyone, and the views that change."""
        if former.everyone is not now.everyone:
            self._cache(former.everyone, EVERYONE)
        for owner in former.private:
            view = former.cached_view(owner)
            if view is not None and view is not now.cached_view(owner):
                self._cache(view, owner)

    def _cache(self, catalogue: Catalogue, owner: str) -> None:
        self._cached[catalogue.revision, owner] = catalogue
        self._cached.move_to_end((catalogue.revision, owner))
        rows = sum(len(cached.digests) for cached in self._cached.values())
        while len(self._cached) > 1 and (len(self._cached) > MOST_CACHED or rows > MOST_CACHED_ROWS):
            _, former = self._cached.popitem(last=False)
            rows -= len(former.digests)

    def _connected(self) -> sa.Engine:
        if self._engine is None:
            raise Unreachable(NO_ANSWER)
        return self._engine

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        with answering(), reading(self._connected()) as connection:
            yield connection


def load_catalogue(engine: sa.Engine) -> Snapshot:
    """All rows in the database."""
    return load_numbered(engine)[1]


def load_numbered(engine: sa.Engine) -> tuple[int, Snapshot]:
    """All rows in the database, with the number of the newest change."""
    with reading(engine) as connection:
        newest = newest_change(connection)
        return (0, Snapshot.of(())) if newest is None else (newest.number, snapshot_at(connection, newest.number))


def _read_view(connection: sa.Connection, revision: str, owners: Iterable[str]) -> tuple[str, Catalogue] | None:
    """A view with a digest that everyone or one of some owners had, and its owner; None where there is none."""
    parts, changes = CHANGED_PARTS.c, CHANGES.c
    of_everyone = sa.select(sa.func.max(parts.number)).where(parts.part == EVERYONE, parts.digest == revision)
    number: int | None = connection.scalar(of_everyone)
    if number is not None:
        return EVERYONE, view_at(connection, number, EVERYONE)
    of_all = sa.select(sa.func.max(changes.number)).where(changes.catalogue_revision == revision)
    number = connection.scalar(of_all.where(~sa.exists().where(parts.number == changes.number)))
    if number is not None:  # of the time when all rows of all owners were visible to everyone
        return EVERYONE, replace(Catalogue.from_rows(rows_at(connection, number)), revision=revision)
    for owner in dict.fromkeys(owners):
        number = _last_number_with(connection, revision, owner)
        if number is not None:
            return owner, view_at(connection, number, owner)
    return None


def _brought_up(connection: sa.Connection, current: Snapshot, number: int, newest: Change) -> Snapshot:
    """The rows after the newest change, from those in memory where the change lists its rows."""
    then = sa.select(CHANGES.c.catalogue_revision).where(CHANGES.c.number == number)
    if 0 < number < newest.number and connection.scalar(then) == current.revision:
        put: list[Row] = []
        ended: list[Row] = []
        with suppress(UnsoundFact):
            for kind in ROW_TABLES.values():
                begin, end = kind.table.c.since_change, kind.table.c.until_change
                put += kind.read(connection, sa.and_(begin > number, holding_at(kind.table, newest.number)))
                ended += kind.read(connection, sa.and_(begin <= number, end > number, end <= newest.number))
            snapshot = current.changed(put, ended)
            if snapshot.revision == newest.catalogue:
                return snapshot
    return snapshot_at(connection, newest.number)


CONTRADICTION = Problem(
    field="",
    code="contradiction",
    message="with this change the catalogue would contradict itself: a name would mean two rows",
    fix="choose names that no other row has",
)
