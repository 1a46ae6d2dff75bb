"""What condition is a database in? Looked at from outside, without making, migrating or filling anything."""

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
from service.store.changes import holdings_at, newest_change
from service.store.engine import answering, make_folder, open_engine, place_of, reading, writing
from service.store.keys import ApiKey, keys_in
from service.store.prepare import HEAD, complaint, revision_in
from service.store.queries import in_utc, moment_in
from service.store.replicas import replicas_in
from service.store.tables import CALIBRATIONS, JOBS
from service.store.workers import read_workers

_TAKEN = text(
    "SELECT current_setting('max_connections')::integer AS most, "
    "coalesce(current_setting('reserved_connections', true)::integer, 0) "
    "+ current_setting('superuser_reserved_connections')::integer AS reserved"
)
PROBE = "traincost_doctor"
"""A table that is made and undone in one transaction, to learn whether anything can be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What a database of this version holds."""

    catalogue: str | None
    """Digest of the catalogue, as its last change wrote it; None where nothing was seeded."""
    is_whole: bool
    """Whether the rows are those that the digest was made of."""
    keys: Sequence[ApiKey]
    """Every key that was ever made."""
    workers: Sequence[SeenWorker]
    """Workers that were heard of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """How many connections a PostgreSQL server takes."""

    connections: int
    """What it takes of anybody but its administrators."""
    replicas: int
    """Processes of the service that answer from the database now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What a look at a database finds."""

    place: str
    """Its address, without a password."""
    revision: str | None
    """Version of its tables; None where there are none."""
    expected: str
    """The version that this program speaks."""
    refusal: str | None
    """Why nothing can be written; None where it can."""
    clock_difference_seconds: float
    """How far its clock is ahead of this machine's."""
    room: Room | None
    """How many connections its server takes; None for a file."""
    contents: Contents | None
    """What it holds; None where its tables are of another version."""


def file_of(url: str) -> Path | None:
    """The file that an SQLite database is."""
    with suppress(ValueError, SQLAlchemyError):
        parsed = make_url(url)
        if parsed.drivername.startswith("sqlite") and parsed.database:
            return Path(parsed.database)
    return None


def look_at(url: str, alive_seconds: float) -> Condition:
    """The condition of a database."""
    engine = open_engine(url, makes_folder=False)
    try:
        with reading(engine) as connection:
            ahead_seconds = (moment_in(connection) - datetime.now(UTC)).total_seconds()
            revision = revision_in(connection)
            room = _room(connection)
        return Condition(
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


def _room(connection: Connection) -> Room | None:
    if connection.dialect.name != "postgresql":
        return None
    found = connection.execute(_TAKEN).one()
    return Room(connections=found.most - found.reserved, replicas=replicas_in(connection))


def _contents(engine: Engine, alive_seconds: float) -> Contents:
    with reading(engine) as connection:
        told, is_whole = _catalogue(connection)
        keys = keys_in(connection)
    return Contents(catalogue=told, is_whole=is_whole, keys=keys, workers=read_workers(engine, alive_seconds))


def _catalogue(connection: Connection) -> tuple[str | None, bool]:
    newest = newest_change(connection)
    if newest is None:
        return None, False
    return newest.catalogue, holdings_at(connection, newest.number).revision == newest.catalogue


class _Undone(Exception):
    """Ends a transaction that nobody wants to keep."""


def _refusal(engine: Engine) -> str | None:
    """Why nothing can be written, in the words of the driver."""
    try:
        with suppress(_Undone), writing(engine) as connection:
            connection.execute(text(f"CREATE TABLE {PROBE} (number INTEGER)"))
            raise _Undone
    except SQLAlchemyError as error:
        return " ".join(str(getattr(error, "orig", None) or error).split())
    return None


WAITING = ("queued", "running")
"""Where a job is not at its end."""

MOST_CALIBRATIONS = 100
"""GPUs whose calibration is told, those that were calibrated last. Source: a choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What goes on, by the database's clock."""

    jobs: Mapping[tuple[str, str], float]
    """Jobs that wait or run, by kind and status; a kind that has none is not there."""
    oldest_lease_age_seconds: float | None
    """Time since the worker of a running job was last heard of, the longest one; None where none runs."""
    calibration_age_seconds: Mapping[str, float]
    """Time since the calibration that holds for a GPU was fitted, by the GPU's slug."""


def read_figures(engine: Engine, lease_seconds: float) -> Figures:
    """The figures as they are now."""
    with answering(), reading(engine) as connection:
        moment = moment_in(connection)
        return Figures(
            jobs=_jobs(connection),
            oldest_lease_age_seconds=_lease_age_seconds(connection, lease_seconds, moment),
            calibration_age_seconds=_calibration_ages(connection, moment),
        )


def _jobs(connection: Connection) -> dict[tuple[str, str], float]:
    kind, status = JOBS.c.kind, JOBS.c.status
    query = select(kind, status, func.count()).where(status.in_(WAITING)).group_by(kind, status)
    return {(row[0], row[1]): float(row[2]) for row in connection.execute(query)}


def _lease_age_seconds(connection: Connection, lease_seconds: float, moment: datetime) -> float | None:
    query = select(func.min(JOBS.c.lease_until)).where(JOBS.c.status == "running")
    until = in_utc(connection.execute(query).scalar())
    return None if until is None else max(lease_seconds - (until - moment).total_seconds(), 0.0)


def _calibration_ages(connection: Connection, moment: datetime) -> dict[str, float]:
    gpu, fitted = CALIBRATIONS.c.gpu, func.max(CALIBRATIONS.c.created_at)
    query = select(gpu, fitted).where(CALIBRATIONS.c.status == "promoted", gpu.is_not(None)).group_by(gpu)
    found = connection.execute(query.order_by(fitted.desc()).limit(MOST_CALIBRATIONS))
    fitted_at = {row[0]: in_utc(row[1]) for row in found}
    return {slug: (moment - told).total_seconds() for slug, told in fitted_at.items() if told is not None}


def hold_alone(url: str) -> IO[str] | None:
    """Take the lock of an SQLite file for as long as the answer is kept open."""
    file = file_of(url)
    if file is None or file.name == ":memory:":
        return None
    make_folder(make_url(url))
    place = file.resolve()
    try:
        held = place.with_name(f"{place.name}.serving").open("a+")
    except OSError:
        return None
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        held.seek(0)
        other = held.read(20).strip() or "unknown"
        held.close()
        message = (
            f"another traincost serve (process {other}) answers from {place}; stop it first, or use PostgreSQL, which "
            "takes several"
        )
        raise StartupError(message) from None
    with suppress(OSError):  # who holds it is told to people only
        held.truncate(0)
        held.write(str(os.getpid()))
        held.flush()
    return held
