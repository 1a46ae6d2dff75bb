"""A database as a whole: prepared at the start, inspected for `traincost doctor` and metrics, shared with processes."""

import fcntl
import logging
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import IO, TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from service.answers.workers import SeenWorker
from service.catalogue import SHIPPED, Catalogue, GpuRow, Row, Snapshot, key_of
from service.catalogue.catalogue import adjusted_rows
from service.catalogue.indexes import Key, digest_of, gpus_of, revision_of
from service.errors import StartupError, TraincostError
from service.settings import DATABASE_CONNECTIONS
from service.store.engine import (
    alone,
    answering,
    in_utc,
    make_folder,
    moment_in,
    open_engine,
    place_of,
    reading,
    writing,
)
from service.store.history import ROW_TABLES, Rows, has_parts, newest_change, snapshot_at, write_change
from service.store.keys import ApiKey, keys_in
from service.store.tables import CALIBRATIONS, JOBS, SEEDINGS
from service.store.workers import read_workers

if TYPE_CHECKING:
    from alembic.config import Config

log = logging.getLogger(__name__)

HEAD = "0021"
"""Newest revision in migrations/, which this version expects."""


def seed(connection: sa.Connection, shipped: Catalogue) -> None:
    """Replace the shipped rows of another version; custom rows stay."""
    last = newest_change(connection)
    before = Snapshot.of(()) if last is None else snapshot_at(connection, last.number)
    target = _wanted(before, shipped)
    current = {_key(row): row for row in before.everyone.rows() if row.owner == SHIPPED}
    put = [row for key, row in target.items() if current.get(key) != row]
    drop = tuple(row for key, row in current.items() if key not in target)
    rows = Rows(put=(*put, *_orphaned_gpus(before, drop, shipped)), drop=drop)
    if last is None or rows.put or rows.drop or before.revision != last.catalogue or not has_parts(connection):
        write_change(connection, before, rows, SHIPPED)
    seeded = revision_of({key: digest_of(row) for key, row in target.items()})
    if connection.execute(sa.select(SEEDINGS.c.catalogue_revision)).scalars().all() != [seeded]:
        connection.execute(sa.delete(SEEDINGS))
        connection.execute(sa.insert(SEEDINGS), {"catalogue_revision": seeded, "seeded_at": datetime.now(UTC)})


def _orphaned_gpus(before: Snapshot, gone: Iterable[Row], shipped: Catalogue) -> Iterator[Row]:
    """GPUs that are no longer shipped, as private rows of the owners whose private rows refer to them."""
    gpus = {row.slug: row for row in gone if isinstance(row, GpuRow) and row.slug not in shipped.gpus}
    for owner, rows in before.private.items():
        for slug in sorted(gpus.keys() & {gpu for row in rows.rows.values() for gpu in gpus_of(row)}):
            if (GpuRow, slug) not in rows.rows:
                log.warning("gpu %s is no longer shipped and stays for %s, whose rows speak of it", slug, owner)
                yield replace(_nameless(gpus[slug]), owner=owner)


def _wanted(before: Snapshot, shipped: Catalogue) -> dict[Key, Row]:
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
    for row, adjusted, missing in adjusted_rows(fixed, shipped.rows()):
        kind, key = ROW_TABLES[type(row)].label, key_of(row)
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


def prepare_database(url: str, shipped: Catalogue, connections: int = DATABASE_CONNECTIONS) -> sa.Engine:
    """An engine on a database that has this version's tables and shipped rows."""
    engine = open_engine(url, connections=connections)
    seeded = sa.select(SEEDINGS.c.catalogue_revision)
    try:
        with reading(engine) as connection:
            is_ready = (
                revision_in(connection) == HEAD
                and connection.scalars(seeded).all() == [shipped.revision]
                and has_parts(connection)
            )
        if not is_ready:
            with writing(engine) as connection:
                alone(connection, patient=True)
                migrate(connection)
                seed(connection, shipped)
    except BaseException as error:
        engine.dispose()
        if isinstance(error, SQLAlchemyError):
            raise StartupError(complaint(engine, error)) from None
        raise
    return engine


def complaint(engine: sa.Engine, error: Exception) -> str:
    """The driver's error in one line, with the database but without its password."""
    return f"the database {place_of(engine)} cannot be used: {_reason(error)}"


def _reason(error: Exception) -> str:
    return " ".join(str(getattr(error, "orig", None) or error).split())


def revision_in(connection: sa.Connection) -> str | None:
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    revision: str | None = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
    return revision


def migrate(connection: sa.Connection, revision: str = HEAD) -> None:
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


def _config(connection: sa.Connection | None = None) -> "Config":
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    return config


def migrations_folder() -> Path:
    """Folder of the revisions: inside an installed package, else beside it in a checkout."""
    package = Path(__file__).parent.parent
    shipped = package / "_migrations"
    return shipped if shipped.is_dir() else package.parent / "migrations"


_KIND = 0x7472_6169
"""First key of these locks: "trai" in ASCII, distinct from other programs' locks."""

_LOCK = sa.text("SELECT pg_advisory_lock_shared(:kind, :number), pg_backend_pid()")
_UNLOCK = sa.text("SELECT pg_advisory_unlock_shared(:kind, :number)")
_LOCKS = (
    "FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database WHERE datname = current_database() "
    "AND locktype = 'advisory' AND objsubid = 2 AND classid = CAST(:kind AS oid)"
)
_IS_ANY_BEHIND = sa.text(f"SELECT EXISTS (SELECT 1 {_LOCKS} AND objid < CAST(:number AS oid) AND pid <> :own)")
_COUNT_REPLICAS = sa.text(f"SELECT count(DISTINCT pid) {_LOCKS}")
_ABOVE_ANY_CHANGE = (1 << 31) - 1
"""A number above that of any change; every replica is behind it."""


class Replicas:
    """The processes that serve from one PostgreSQL database; SQLite has no other process."""

    def __init__(self, engine: sa.Engine | None) -> None:
        self._engine = engine if engine is not None and engine.dialect.name == "postgresql" else None
        self._connection: sa.Connection | None = None
        self._number: int | None = None
        self._pid = 0
        self._lock = Lock()

    def announce(self, number: int) -> None:
        """Announce the last change that this process applied, in place of the earlier announcement."""
        if self._engine is None:
            return
        with self._lock, answering():
            try:
                self._announce(self._engine, number)
            except SQLAlchemyError:
                self._close()
                raise

    def are_behind(self, number: int) -> bool:
        """Whether another process has not applied a change yet."""
        if self._engine is None:
            return False
        with answering(), reading(self._engine) as connection:
            lock = {"kind": _KIND, "number": number, "own": self._pid}
            return bool(connection.execute(_IS_ANY_BEHIND, lock).scalar_one())

    def are_there(self) -> bool:
        """Whether other processes serve from this database."""
        return self.are_behind(_ABOVE_ANY_CHANGE)

    def leave(self) -> None:
        """Withdraw the announcement."""
        with self._lock:
            self._close()

    def _announce(self, engine: sa.Engine, number: int) -> None:
        if self._connection is None:
            self._connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            self._number = None
        lock: dict[str, Any] = {"kind": _KIND, "number": number}
        _, self._pid = self._connection.execute(_LOCK, lock).one()  # a connection may be replaced unnoticed
        if self._number is not None:
            self._connection.execute(_UNLOCK, {**lock, "number": self._number})
        self._number = number

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.invalidate()  # the server releases the lock, also if the connection hangs
            connection.close()


LONGEST_SECONDS = 30.0
"""Longest time between two reads of an unchanged database, in case the count misses a change. Source: a choice."""


class ReadOnChange:
    """A read that is skipped while the database is unchanged, by SQLite's count of the changes of other connections.

    Reading the count takes some microseconds, a query some hundred; databases without a count are read each time.
    Source: https://www.sqlite.org/pragma.html#pragma_data_version
    """

    def __init__(
        self, engine: sa.Engine | None, read: Callable[[], float | None], longest_seconds: float = LONGEST_SECONDS
    ) -> None:
        file = None if engine is None or engine.dialect.name != "sqlite" else engine.url.database
        self._file = None if file in {None, "", ":memory:"} else file
        self._read = read
        self._longest_seconds = longest_seconds
        self._connection: sqlite3.Connection | None = None
        self._seen: int | None = None
        self._due = 0.0

    def __call__(self) -> None:
        """Read, if the database has changed since the last read."""
        version = self._version()
        if not self._is_due(version):
            return
        self._seen = None
        seconds = self._read()
        longest_seconds = self._longest_seconds if seconds is None else min(seconds, self._longest_seconds)
        self._seen, self._due = version, monotonic() + longest_seconds

    def is_due(self) -> bool:
        """Whether the next call reads. This does not wait for the database."""
        return self._is_due(self._version())

    def expire(self) -> None:
        """Make the next call read, even an unchanged database."""
        self._seen = None

    def close(self) -> None:
        """Close the connection that reads the count."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _is_due(self, version: int | None) -> bool:
        return version is None or version != self._seen or monotonic() >= self._due

    def _version(self) -> int | None:
        """The count of changes; None where it is unknown."""
        if self._file is None:
            return None
        try:
            if self._connection is None:
                self._connection = sqlite3.connect(self._file, timeout=0.0, check_same_thread=False)
            version: int = self._connection.execute("PRAGMA data_version").fetchone()[0]
        except sqlite3.Error:
            with suppress(sqlite3.Error):
                self.close()
            return None
        return version


_MOST_CONNECTIONS = sa.text(
    "SELECT current_setting('max_connections')::integer "
    "- coalesce(current_setting('reserved_connections', true)::integer, 0) "
    "- current_setting('superuser_reserved_connections')::integer"
)
PROBE = "traincost_doctor"
"""Table that a check creates and rolls back, to find out whether the database can be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseContents:
    """Contents of a database of this version."""

    catalogue: str | None
    """Digest of the catalogue in its last change; None without shipped rows."""
    is_whole: bool
    """Whether the stored rows have that digest."""
    keys: Sequence[ApiKey]
    workers: Sequence[SeenWorker]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Connections of a PostgreSQL server."""

    connections: int
    """Connections for users other than administrators."""
    replicas: int
    """Processes of the service that are connected now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseState:
    place: str
    """Address, without a password."""
    revision: str | None
    """Revision of its schema; None without tables."""
    expected: str
    refusal: str | None
    """Reason why it cannot be written; None where it can."""
    clock_difference_seconds: float
    """How far its clock is ahead of this machine's."""
    room: ConnectionLimits | None
    contents: DatabaseContents | None
    """None where the schema has another revision."""


def file_of(url: str) -> Path | None:
    """The file of an SQLite database; None for a server, or for an invalid address."""
    with suppress(ValueError, SQLAlchemyError):
        parsed = make_url(url)
        if parsed.drivername.startswith("sqlite") and parsed.database:
            return Path(parsed.database)
    return None


def inspect_database(url: str, alive_seconds: float) -> DatabaseState:
    """The state of a database, from a connection of its own; nothing is created, migrated or seeded."""
    engine, room = open_engine(url, makes_folder=False), None
    try:
        with reading(engine) as connection:
            ahead_seconds = (moment_in(connection) - datetime.now(UTC)).total_seconds()
            revision = revision_in(connection)
            if connection.dialect.name == "postgresql":
                most = connection.execute(_MOST_CONNECTIONS).scalar_one()
                replicas = connection.execute(_COUNT_REPLICAS, {"kind": _KIND}).scalar_one()
                room = ConnectionLimits(connections=most, replicas=replicas)
        return DatabaseState(
            place=place_of(engine),
            revision=revision,
            expected=HEAD,
            refusal=_refusal(engine),
            clock_difference_seconds=ahead_seconds,
            room=room,
            contents=_contents(engine, alive_seconds) if revision == HEAD else None,
        )
    except SQLAlchemyError as error:
        raise StartupError(complaint(engine, error)) from None
    finally:
        engine.dispose()


def _contents(engine: sa.Engine, alive_seconds: float) -> DatabaseContents:
    with reading(engine) as connection:
        newest, keys = newest_change(connection), keys_in(connection)
        is_whole = newest is not None and snapshot_at(connection, newest.number).revision == newest.catalogue
    catalogue, workers = None if newest is None else newest.catalogue, read_workers(engine, alive_seconds)
    return DatabaseContents(catalogue=catalogue, is_whole=is_whole, keys=keys, workers=workers)


class _RollBack(Exception):
    """Rolls back a transaction on purpose."""


def _refusal(engine: sa.Engine) -> str | None:
    try:
        with suppress(_RollBack), writing(engine) as connection:
            connection.execute(sa.text(f"CREATE TABLE {PROBE} (number INTEGER)"))
            raise _RollBack
    except SQLAlchemyError as error:
        return _reason(error)
    return None


UNFINISHED = ("queued", "running")

MOST_CALIBRATIONS = 100
"""GPUs whose calibration age is reported, the latest calibrated ones. Source: a choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Metrics by the database's clock."""

    jobs: Mapping[tuple[str, str], float]
    """Queued and running jobs, by kind and status; absent kinds have none."""
    oldest_lease_age_seconds: float | None
    """Longest time since a running job's last heartbeat; None where none runs."""
    calibration_age_seconds: Mapping[str, float]
    """Age of the promoted calibration, by GPU slug."""


def read_figures(engine: sa.Engine, lease_seconds: float) -> Figures:
    kind, status, gpu, fitted = JOBS.c.kind, JOBS.c.status, CALIBRATIONS.c.gpu, sa.func.max(CALIBRATIONS.c.created_at)
    unfinished = sa.select(kind, status, sa.func.count()).where(status.in_(UNFINISHED)).group_by(kind, status)
    leased = sa.select(sa.func.min(JOBS.c.lease_until)).where(status == "running")
    promoted = sa.select(gpu, fitted).where(CALIBRATIONS.c.status == "promoted", gpu.is_not(None)).group_by(gpu)
    with answering(), reading(engine) as connection:
        moment = moment_in(connection)
        until = in_utc(connection.execute(leased).scalar())
        calibrated = connection.execute(promoted.order_by(fitted.desc()).limit(MOST_CALIBRATIONS))
        return Figures(
            jobs={(row[0], row[1]): float(row[2]) for row in connection.execute(unfinished)},
            oldest_lease_age_seconds=None
            if until is None
            else max(lease_seconds - (until - moment).total_seconds(), 0.0),
            calibration_age_seconds={slug: (moment - in_utc(at)).total_seconds() for slug, at in calibrated},
        )


def lock_database_file(url: str) -> IO[str] | None:
    """Lock an SQLite file for one server, until the returned file is closed; None where no lock is possible."""
    file = file_of(url)
    if file is None or file.name == ":memory:":
        return None
    make_folder(make_url(url))
    path = file.resolve()
    try:
        lock = path.with_name(f"{path.name}.serving").open("a+")
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.seek(0)
        holder = lock.read(20).strip() or "unknown"
        lock.close()
        raise StartupError(
            f"another traincost serve (process {holder}) answers from {path}; stop it first, or use PostgreSQL, which "
            "takes several"
        ) from None
    with suppress(OSError):  # the process id is for people only
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
    return lock
