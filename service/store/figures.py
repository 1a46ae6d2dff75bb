"""Which figures does the database know of what goes on? A few, read in one look, for whoever watches the service."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, Engine, func, select

from service.store.database_clock import moment_in
from service.store.engine import answering, reading
from service.store.job_tables import JOBS
from service.store.jobs import in_utc
from service.store.measurement_tables import CALIBRATIONS

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
    """The figures as they are now.

    Args:
        engine: the database
        lease_seconds: time after which a worker that is not heard of loses its job [second]

    Returns:
        the figures

    Raises:
        Unreachable: the database does not answer
    """
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
