"""The state of a database, for `traincost doctor` and for metrics; nothing is created, migrated or seeded."""

import fcntl
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from sqlalchemy import Connection, Engine, func, select, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from service.answers.workers import SeenWorker
from service.errors import StartupError
from service.store.engine import answering, in_utc, make_folder, moment_in, open_engine, place_of, reading, writing
from service.store.history import holdings_at, newest_change
from service.store.keys import ApiKey, keys_in
from service.store.prepare import HEAD, complaint, revision_in
from service.store.replicas import replicas_in
from service.store.tables import CALIBRATIONS, JOBS
from service.store.workers import read_workers

_CONNECTION_LIMITS = text(
    "SELECT current_setting('max_connections')::integer AS most, "
    "coalesce(current_setting('reserved_connections', true)::integer, 0) "
    "+ current_setting('superuser_reserved_connections')::integer AS reserved"
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
    """Every key that was ever created."""
    workers: Sequence[SeenWorker]
    """Live workers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Connections of a PostgreSQL server."""

    connections: int
    """Connections for users other than administrators."""
    replicas: int
    """Processes of the service that are connected now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseState:
    """The state of a database."""

    place: str
    """Address, without a password."""
    revision: str | None
    """Revision of its schema; None without tables."""
    expected: str
    """Revision that this version expects."""
    refusal: str | None
    """Reason why it cannot be written; None where it can."""
    clock_difference_seconds: float
    """How far its clock is ahead of this machine's."""
    room: ConnectionLimits | None
    """None for SQLite."""
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
    """The state of a database, from a connection of its own."""
    engine = open_engine(url, makes_folder=False)
    try:
        with reading(engine) as connection:
            ahead_seconds = (moment_in(connection) - datetime.now(UTC)).total_seconds()
            revision = revision_in(connection)
            room = _connection_limits(connection)
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


def _connection_limits(connection: Connection) -> ConnectionLimits | None:
    if connection.dialect.name != "postgresql":
        return None
    limits = connection.execute(_CONNECTION_LIMITS).one()
    return ConnectionLimits(connections=limits.most - limits.reserved, replicas=replicas_in(connection))


def _contents(engine: Engine, alive_seconds: float) -> DatabaseContents:
    with reading(engine) as connection:
        digest, is_whole = _catalogue(connection)
        keys = keys_in(connection)
    return DatabaseContents(catalogue=digest, is_whole=is_whole, keys=keys, workers=read_workers(engine, alive_seconds))


def _catalogue(connection: Connection) -> tuple[str | None, bool]:
    newest = newest_change(connection)
    if newest is None:
        return None, False
    return newest.catalogue, holdings_at(connection, newest.number).revision == newest.catalogue


class _RollBack(Exception):
    """Rolls back a transaction on purpose."""


def _refusal(engine: Engine) -> str | None:
    """The driver's reason why the database cannot be written."""
    try:
        with suppress(_RollBack), writing(engine) as connection:
            connection.execute(text(f"CREATE TABLE {PROBE} (number INTEGER)"))
            raise _RollBack
    except SQLAlchemyError as error:
        return " ".join(str(getattr(error, "orig", None) or error).split())
    return None


UNFINISHED = ("queued", "running")
"""Statuses of jobs that have not ended."""

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


def read_figures(engine: Engine, lease_seconds: float) -> Figures:
    """The current metrics."""
    with answering(), reading(engine) as connection:
        moment = moment_in(connection)
        return Figures(
            jobs=_jobs(connection),
            oldest_lease_age_seconds=_lease_age_seconds(connection, lease_seconds, moment),
            calibration_age_seconds=_calibration_ages(connection, moment),
        )


def _jobs(connection: Connection) -> dict[tuple[str, str], float]:
    kind, status = JOBS.c.kind, JOBS.c.status
    query = select(kind, status, func.count()).where(status.in_(UNFINISHED)).group_by(kind, status)
    return {(row[0], row[1]): float(row[2]) for row in connection.execute(query)}


def _lease_age_seconds(connection: Connection, lease_seconds: float, moment: datetime) -> float | None:
    query = select(func.min(JOBS.c.lease_until)).where(JOBS.c.status == "running")
    until = in_utc(connection.execute(query).scalar())
    return None if until is None else max(lease_seconds - (until - moment).total_seconds(), 0.0)


def _calibration_ages(connection: Connection, moment: datetime) -> dict[str, float]:
    gpu, fitted = CALIBRATIONS.c.gpu, func.max(CALIBRATIONS.c.created_at)
    query = select(gpu, fitted).where(CALIBRATIONS.c.status == "promoted", gpu.is_not(None)).group_by(gpu)
    rows = connection.execute(query.order_by(fitted.desc()).limit(MOST_CALIBRATIONS))
    fitted_at = {row[0]: in_utc(row[1]) for row in rows}
    return {
        slug: (moment - moment_fitted).total_seconds()
        for slug, moment_fitted in fitted_at.items()
        if moment_fitted is not None
    }


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
        message = (
            f"another traincost serve (process {holder}) answers from {path}; stop it first, or use PostgreSQL, which "
            "takes several"
        )
        raise StartupError(message) from None
    with suppress(OSError):  # the process id is for people only
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
    return lock
