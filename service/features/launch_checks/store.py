"""Launch checks in the database: the question, the prediction before the run, and the findings."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, Engine, insert, select, update

from service.answers.launch_checks import LaunchCheckRow
from service.jobs.jobs import NewJob, create_jobs_in
from service.store.engine import RowPart, answering, part_of, reading, row_as, writing
from service.store.requests import log_change_in
from service.store.scenarios import store_answer_in
from service.store.tables import JOBS, LAUNCH_CHECKS


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCheck:
    """A launch check without the columns of its job."""

    id: str
    question: Mapping[str, Any]
    """A request body of POST /v1/estimates, as the caller sent it."""
    estimate_id: str
    gpu: str
    gpus: int
    probes: tuple[str, ...]
    time_budget_seconds: float
    on_workers: str
    plan: Mapping[str, Any]
    """The prediction before the run, and what scoring the result needs."""
    found: Mapping[str, Any] | None = None
    """The findings; None until the check ends."""


def create_launch_check(engine: Engine, check: StoredCheck, estimate: bytes, job: NewJob) -> None:
    """Store a launch check, the estimate of its question, and its job."""
    row = {name: value for name, value in asdict(check).items() if name != "found"}
    with answering(), writing(engine) as connection:
        store_answer_in(connection, check.estimate_id, estimate, job.owner)
        create_jobs_in(connection, [job])
        connection.execute(insert(LAUNCH_CHECKS), {**row, "probes": list(check.probes)})
        log_change_in(connection, check.id)


def read_launch_check(engine: Engine, check_id: str) -> StoredCheck | None:
    """One launch check, without its job."""
    with answering(), reading(engine) as connection:
        return launch_check_in(connection, check_id)


def launch_check_in(connection: Connection, check_id: str) -> StoredCheck | None:
    """One launch check, in the caller's transaction."""
    columns = [LAUNCH_CHECKS.c[name] for name in StoredCheck.__dataclass_fields__]
    row = connection.execute(select(*columns).where(LAUNCH_CHECKS.c.id == check_id)).mappings().one_or_none()
    return None if row is None else row_as(StoredCheck, row)


def store_findings_in(
    connection: Connection, check_id: str, found: Mapping[str, Any], *, comparable: bool | None, device: str | None
) -> None:
    """Store the findings of a launch check, in the transaction that ends its job."""
    values = {"found": found, "verdict": found.get("verdict"), "comparable": comparable, "device": device}
    connection.execute(update(LAUNCH_CHECKS).where(LAUNCH_CHECKS.c.id == check_id).values(**values))


def read_launch_checks(engine: Engine, owner: str | None = None, part: RowPart | None = None) -> list[LaunchCheckRow]:
    """Rows of launch checks, of one owner or of all."""
    check_columns = ("verdict", "comparable", "gpu", "gpus", "device", "probes", "estimate_id")
    job_columns = ("id", "status", "worker", "owner", "created_at", "finished_at")
    columns = [*(LAUNCH_CHECKS.c[name] for name in check_columns), *(JOBS.c[name] for name in job_columns)]
    query = select(*columns, LAUNCH_CHECKS.c.on_workers.label("on"))
    query = query.join_from(LAUNCH_CHECKS, JOBS, LAUNCH_CHECKS.c.id == JOBS.c.id)
    query = query if owner is None else query.where(JOBS.c.owner == owner)
    query = part_of(query, engine, part, JOBS.c.id, JOBS.c.created_at)
    with answering(), reading(engine) as connection:
        return [row_as(LaunchCheckRow, row) for row in connection.execute(query).mappings()]
