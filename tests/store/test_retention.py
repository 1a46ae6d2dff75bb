"""Old rows are removed, referenced ones stay, and no request waits."""

from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any

import pytest
from sqlalchemy import Engine, Table, delete, func, insert, select

from service.api.background import Retention
from service.settings import Settings
from service.store.engine import reading, writing
from service.store.retention import AT_ONCE, RetentionPeriods, remove_old
from service.store.tables import (
    AUDIT_LOG,
    CALIBRATIONS,
    ESTIMATES,
    JOB_EVENTS,
    JOB_FILES,
    JOBS,
    LAUNCH_CHECKS,
    MEASUREMENTS,
    REMEMBERED_ANSWERS,
    SCENARIO_REVISIONS,
    SCENARIOS,
    SHARE_LINKS,
    SWEEPS,
)
from tests.store.holding import row_of

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
FOR_EVER = RetentionPeriods(jobs_days=0, job_files_days=0, measurements_days=0, answers_days=0, audit_days=0)
TABLES = (
    LAUNCH_CHECKS, JOB_FILES, JOB_EVENTS, JOBS, SWEEPS, MEASUREMENTS, CALIBRATIONS, SCENARIO_REVISIONS, SHARE_LINKS,
    SCENARIOS, ESTIMATES, REMEMBERED_ANSWERS, AUDIT_LOG,
)  # fmt: skip


@pytest.fixture
def store(jobs_database: Engine) -> Engine:
    """A database that holds none of it, of either kind."""
    with writing(jobs_database) as connection:
        for table in TABLES:
            connection.execute(delete(table))
    return jobs_database


def _add(engine: Engine, table: Table, **values: Any) -> None:
    with writing(engine) as connection:
        connection.execute(insert(table), {**row_of(table, 1), **values})


def _add_job(engine: Engine, job_id: str, days: float | None, parent: str | None = None) -> None:
    """A job that ended some days ago, or still runs, with a file and three events."""
    ended: dict[str, Any] = {"status": "running", "finished_at": None}
    if days is not None:
        ended = {"status": "succeeded", "finished_at": NOW - timedelta(days=days)}
    _add(engine, JOBS, id=job_id, parent=parent, events=3, **ended)
    _add(engine, JOB_FILES, job_id=job_id)
    for number in (1, 2, 3):
        _add(engine, JOB_EVENTS, job_id=job_id, number=number)


def _add_check(engine: Engine, check_id: str, days: float, estimate_id: str) -> None:
    _add_job(engine, check_id, days)
    _add(engine, ESTIMATES, id=estimate_id, stored_at=NOW - timedelta(days=days))
    _add(engine, LAUNCH_CHECKS, id=check_id, estimate_id=estimate_id)


def _ids(engine: Engine, table: Table, column: str = "id") -> set[Any]:
    with reading(engine) as connection:
        return set(connection.execute(select(table.c[column])).scalars())


def _forget(engine: Engine, **days: float) -> dict[str, int]:
    keeping = RetentionPeriods(**{**dict.fromkeys(RetentionPeriods.__dataclass_fields__, 0.0), **days})
    found = remove_old(engine, keeping, NOW, lambda: False)
    assert remove_old(engine, keeping, NOW, lambda: False) == dict.fromkeys(found, 0)
    return found


def test_launch_checks_go_when_they_ended_long_ago_unless_their_measurements_are_kept(store: Engine) -> None:
    for check_id, days in (("old", 11), ("young", 9), ("measured", 11)):
        _add_check(store, check_id, days, f"est_{check_id}")
    _add_job(store, "running", None)
    _add(store, MEASUREMENTS, launch_check_id="measured")
    assert _forget(store, jobs_days=10)["jobs"] == 1
    assert _ids(store, JOBS) == {"young", "measured", "running"}
    assert _ids(store, LAUNCH_CHECKS) == {"young", "measured"}
    assert _ids(store, JOB_FILES, "job_id") == _ids(store, JOB_EVENTS, "job_id") == {"young", "measured", "running"}
    assert _ids(store, ESTIMATES) == {"est_old", "est_young", "est_measured"}


def test_a_sweep_goes_whole_and_only_when_all_of_it_ended_long_ago(store: Engine) -> None:
    for sweep, pieces in {"old": (11, 12), "mixed": (11, 9), "at work": (11, None)}.items():
        _add(store, SWEEPS, id=sweep, created_at=NOW - timedelta(days=20))
        for number, days in enumerate(pieces):
            _add_job(store, f"{sweep}-{number}", days, sweep)
    assert _forget(store, jobs_days=10, job_files_days=10) | {"job files": 0} == {
        "sweeps": 1, "jobs": 2, "job files": 0, "share links": 0, "remembered answers": 0,
    }  # fmt: skip
    assert _ids(store, SWEEPS) == {"mixed", "at work"}
    assert _ids(store, JOBS) == _ids(store, JOB_FILES, "job_id") == {"mixed-0", "mixed-1", "at work-0", "at work-1"}


def test_files_and_events_go_before_their_launch_check_but_for_its_end(store: Engine) -> None:
    _add_job(store, "old", 11)
    _add_job(store, "young", 9)
    assert _forget(store, job_files_days=10)["job files"] == 1
    assert _ids(store, JOBS) == {"old", "young"}
    assert _ids(store, JOB_FILES, "job_id") == {"young"}
    with reading(store) as connection:
        query = select(JOB_EVENTS.c.number).where(JOB_EVENTS.c.job_id == "old")
        assert connection.execute(query).scalars().all() == [3]


def test_measurements_go_unless_a_calibration_was_fitted_on_them(store: Engine) -> None:
    for number, (row_id, days) in enumerate((("old", 11), ("fitted", 11), ("young", 9))):
        _add(store, MEASUREMENTS, id=row_id, run=str(number), measured_at=NOW - timedelta(days=days))
    _add(store, CALIBRATIONS, fitted_on=["fitted"], status="retired")
    assert _forget(store, measurements_days=10)["measurements"] == 1
    assert _ids(store, MEASUREMENTS) == {"fitted", "young"}


def test_answers_go_unless_a_scenario_or_a_launch_check_speaks_of_them(store: Engine) -> None:
    for answer, days in (("old", 11), ("young", 9), ("saved", 11)):
        _add(store, ESTIMATES, id=answer, stored_at=NOW - timedelta(days=days))
    _add(store, SCENARIOS, id="s")
    _add(store, SCENARIO_REVISIONS, id="s", estimate_id="saved")
    _add_check(store, "check", 11, "checked")
    assert _forget(store, answers_days=10)["answers"] == 1
    assert _ids(store, ESTIMATES) == {"young", "saved", "checked"}


def test_entries_of_the_audit_log_go_by_their_age(store: Engine) -> None:
    for number, days in ((1, 11), (2, 9), (3, 12)):
        _add(store, AUDIT_LOG, number=number, at=NOW - timedelta(days=days))
    assert _forget(store, audit_days=10)["audit entries"] == 2
    assert _ids(store, AUDIT_LOG, "number") == {2}


def test_share_links_go_thirty_days_after_they_ended(store: Engine) -> None:
    _add(store, SCENARIOS, id="scn", created_at=NOW)
    for name, expires, revoked in (
        ("holds", 9, None), ("ended", -29, None), ("over", -31, None), ("revoked", 9, -29),
        ("revoked long ago", 9, -31),
    ):  # fmt: skip
        moment = None if revoked is None else NOW + timedelta(days=revoked)
        _add(
            store, SHARE_LINKS, id=name, scenario_id="scn", expires_at=NOW + timedelta(days=expires), revoked_at=moment
        )
    assert _forget(store)["share links"] == 2
    assert _ids(store, SHARE_LINKS) == {"holds", "ended", "revoked"}


def test_remembered_answers_go_when_their_day_is_over_whatever_is_set(store: Engine) -> None:
    for key, hours in (("over", -1), ("holds", 1)):
        _add(store, REMEMBERED_ANSWERS, key=key, expires_at=NOW + timedelta(hours=hours))
    assert _forget(store) == {"share links": 0, "remembered answers": 1}
    assert _ids(store, REMEMBERED_ANSWERS, "key") == {"holds"}


def test_without_a_limit_all_of_it_stays(store: Engine) -> None:
    _add_check(store, "check", 40_000, "answer")
    _add(store, MEASUREMENTS, measured_at=NOW - timedelta(days=40_000))
    assert remove_old(store, FOR_EVER, NOW, lambda: False) == {"share links": 0, "remembered answers": 0}
    assert _ids(store, JOBS) == {"check"}


def test_a_few_go_at_a_time_and_others_write_between(store: Engine) -> None:
    with writing(store) as connection:
        old = {"stored_at": NOW - timedelta(days=11)}
        rows = [{**row_of(ESTIMATES, number), **old} for number in range(2 * AT_ONCE + 1)]
        connection.execute(insert(ESTIMATES), rows)
    left: list[int] = []

    def pause() -> bool:
        with writing(store) as connection:  # would not come to an end inside a removal
            left.append(connection.execute(select(func.count()).select_from(ESTIMATES)).scalar_one())
        return len(left) == 2

    keeping = RetentionPeriods(jobs_days=0, job_files_days=0, measurements_days=0, answers_days=10, audit_days=0)
    assert remove_old(store, keeping, NOW, pause)["answers"] == 2 * AT_ONCE
    assert left == [AT_ONCE + 1, 1]


def test_a_clock_that_jumps_makes_nothing_old(store: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    _add(store, ESTIMATES, id="young", stored_at=datetime.now(UTC))
    retention = Retention(store, Settings(database_url="sqlite:////x.db"), Event())
    jumped = datetime.now(UTC) + timedelta(days=3650)
    monkeypatch.setattr("service.jobs.leases.database_time", lambda _: jumped)
    assert retention.run()["answers"] == 0
    monkeypatch.setattr("service.jobs.leases.monotonic", lambda: 3650 * 86_400.0 * 2)
    assert retention.run()["answers"] == 1
