"""Removal of rows past their retention period, a few in each transaction, so that no writer waits long."""

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from service.store.engine import answering, reading, writing
from service.store.tables import (
    AUDIT_LOG,
    CALIBRATIONS,
    ENDED,
    ESTIMATES,
    JOB_EVENTS,
    JOB_FILES,
    JOBS,
    LAUNCH_CHECKS,
    MEASUREMENTS,
    REMEMBERED_ANSWERS,
    SCENARIO_REVISIONS,
    SHARE_LINKS,
    SWEEPS,
)

AT_ONCE = 50
"""Rows that one transaction removes. Source: a choice; some milliseconds on either database."""
LINKS_DAYS = 30.0
"""Days for which an ended share link stays listed. Source: a choice."""

Key = tuple[Any, ...]
Pause = Callable[[], bool]
"""Lets other writers run, and returns whether to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPeriods:
    """Retention periods in days; 0 keeps rows for ever."""

    jobs_days: float
    """Launch checks and sweeps, with their jobs, after they ended."""
    job_files_days: float
    """Files and events of launch checks, after they ended."""
    measurements_days: float
    """Measurements that no calibration was fitted on, after they were taken."""
    answers_days: float
    """Stored answers that no scenario and no launch check refers to, after they were stored last."""
    audit_days: float


@dataclass(frozen=True, slots=True)
class _OldRows:
    name: str
    table: sa.Table
    key: tuple[str, ...]
    conditions: tuple[sa.ColumnElement[bool], ...]
    referenced: Callable[[sa.Connection], Set[Key]] = lambda _: frozenset()
    """Keys of rows that stay because others refer to them."""


def remove_old(engine: sa.Engine, periods: RetentionPeriods, moment: datetime, pause: Pause) -> dict[str, int]:
    """Remove rows past their retention period that nothing refers to."""
    removed: dict[str, int] = {}
    for old in _kinds(periods, moment):
        removed[old.name] = _remove_rows(engine, old, pause)
    if periods.job_files_days:
        removed["job files"] = _remove_files(engine, _before(moment, periods.job_files_days), pause)
    return removed


def _kinds(periods: RetentionPeriods, moment: datetime) -> Iterator[_OldRows]:
    """Old rows in removal order: a measurement keeps its launch check, that its answer, and a sweep its parts."""
    if periods.measurements_days:
        cutoff = _before(moment, periods.measurements_days)
        yield _OldRows("measurements", MEASUREMENTS, ("id",), (MEASUREMENTS.c.measured_at < cutoff,), _fitted_on)
    if periods.jobs_days:
        cutoff = _before(moment, periods.jobs_days)
        has_later_parts = sa.exists().where(
            JOBS.c.parent == SWEEPS.c.id, sa.or_(JOBS.c.status.not_in(ENDED), JOBS.c.finished_at >= cutoff)
        )
        yield _OldRows("sweeps", SWEEPS, ("id",), (SWEEPS.c.created_at < cutoff, ~has_later_parts))
        is_alone = sa.or_(JOBS.c.parent.is_(None), ~sa.exists().where(SWEEPS.c.id == JOBS.c.parent))
        has_measurements = sa.exists().where(MEASUREMENTS.c.launch_check_id == JOBS.c.id)
        yield _OldRows("jobs", JOBS, ("id",), (*_ended(cutoff), is_alone, ~has_measurements))
    if periods.answers_days:
        cutoff = _before(moment, periods.answers_days)
        references: tuple[Any, ...] = (SCENARIO_REVISIONS.c.estimate_id, LAUNCH_CHECKS.c.estimate_id)
        unreferenced = (~sa.exists().where(estimate_id == ESTIMATES.c.id) for estimate_id in references)
        yield _OldRows("answers", ESTIMATES, ("id",), (ESTIMATES.c.stored_at < cutoff, *unreferenced))
    if periods.audit_days:
        cutoff = _before(moment, periods.audit_days)
        yield _OldRows("audit entries", AUDIT_LOG, ("number",), (AUDIT_LOG.c.at < cutoff,))
    cutoff = _before(moment, LINKS_DAYS)
    ended = sa.or_(SHARE_LINKS.c.expires_at < cutoff, SHARE_LINKS.c.revoked_at < cutoff)
    yield _OldRows("share links", SHARE_LINKS, ("id",), (ended,))
    key = ("caller", "operation", "key")
    yield _OldRows("remembered answers", REMEMBERED_ANSWERS, key, (REMEMBERED_ANSWERS.c.expires_at < moment,))


def _remove_rows(engine: sa.Engine, old: _OldRows, pause: Pause) -> int:
    columns = [old.table.c[name] for name in old.key]
    query, key = sa.select(*columns).where(*old.conditions), sa.tuple_(*columns)
    with answering(), reading(engine) as connection:
        keys = _removable(connection, query, old)

    def remove(connection: sa.Connection, batch: Sequence[Key]) -> int:
        removable = _removable(connection, query.where(key.in_(batch)).with_for_update(skip_locked=True), old)
        if removable:
            connection.execute(sa.delete(old.table).where(key.in_(removable)))
        return len(removable)

    return _in_batches(engine, keys, remove, pause)


def _removable(connection: sa.Connection, query: sa.Select[Any], old: _OldRows) -> list[Key]:
    referenced = old.referenced(connection)
    return [key for row in connection.execute(query) if (key := tuple(row)) not in referenced]


def _in_batches(
    engine: sa.Engine, keys: Sequence[Any], remove: Callable[[sa.Connection, Sequence[Any]], int], pause: Pause
) -> int:
    """Remove a few rows in each transaction."""
    removed = 0
    for place in range(0, len(keys), AT_ONCE):
        with answering(), writing(engine) as connection:
            removed += remove(connection, keys[place : place + AT_ONCE])
        if pause():
            break
    return removed


def _remove_files(engine: sa.Engine, cutoff: datetime, pause: Pause) -> int:
    """Remove files of single jobs, and their events but the last. Files of sweeps stay: they are the sweep's table."""
    files, events = JOB_FILES.c.job_id == JOBS.c.id, JOB_EVENTS.c.job_id == JOBS.c.id
    earlier_events = sa.and_(events, JOB_EVENTS.c.number < JOBS.c.events)
    has_any = sa.or_(sa.exists().where(files), sa.exists().where(earlier_events))
    query = sa.select(JOBS.c.id).where(*_ended(cutoff), JOBS.c.parent.is_(None), has_any)
    with answering(), reading(engine) as connection:
        job_ids = connection.execute(query).scalars().all()

    def remove(connection: sa.Connection, batch: Sequence[str]) -> int:
        files = connection.execute(sa.delete(JOB_FILES).where(JOB_FILES.c.job_id.in_(batch))).rowcount
        last = sa.select(JOBS.c.events).where(JOBS.c.id == JOB_EVENTS.c.job_id).scalar_subquery()
        connection.execute(sa.update(JOBS).where(JOBS.c.id.in_(batch)).values(file_bytes=0))
        connection.execute(sa.delete(JOB_EVENTS).where(JOB_EVENTS.c.job_id.in_(batch), JOB_EVENTS.c.number < last))
        return files

    return _in_batches(engine, job_ids, remove, pause)


def _before(moment: datetime, days: float) -> datetime:
    return moment - timedelta(days=days)


def _ended(cutoff: datetime) -> list[sa.ColumnElement[bool]]:
    return [JOBS.c.status.in_(ENDED), JOBS.c.finished_at < cutoff]


def _fitted_on(connection: sa.Connection) -> Set[Key]:
    """Measurements of any calibration, promoted or not."""
    return {(one,) for ids in connection.execute(sa.select(CALIBRATIONS.c.fitted_on)).scalars() for one in ids}
