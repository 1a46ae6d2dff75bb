"""What earlier releases kept belongs to owners afterwards, where the rows tell whose it is."""

from datetime import UTC, datetime
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Engine, MetaData, insert, select

from service.store.engine import writing
from service.store.prepare import migrations_folder
from tests.store.holding import row_of

MOMENT = datetime(2026, 11, 23, tzinfo=UTC)
JOB = {
    "requires": "{}", "payload": {}, "status": "succeeded", "priority": 0, "attempt": 1, "given_back": 0,
    "max_attempts": 2, "timeout_seconds": 1.0, "available_at": MOMENT, "created_at": MOMENT, "cancel_requested": False,
    "events": 1,
}  # fmt: skip
MEASUREMENT = {
    "owner": "team", "run": "r", "source": "s", "probe": "gemm", "operation": "forward", "shape": {}, "value": 1.0,
    "quantity": "seconds", "low": 1.0, "high": 1.0, "repeats": 1, "kind": "cuda", "device": "d", "environment": {},
    "fingerprint": "f", "formulas": "1", "measured_at": MOMENT,
}  # fmt: skip
KEY = {"id": "tck_a", "digest": b"", "name": "a", "owner": "vision", "scopes": ["write"], "created_at": MOMENT}

JOBS = {"lch_a": "tck_a", "lch_none": "", "lch_gone": "tck_gone", "swp_a-0": "team"}
"""Owners as the release before kept them: of a launch check the key that asked, empty where there was none."""


def _config(connection: Connection) -> Config:
    return Config(str(migrations_folder() / "alembic.ini"), attributes={"connection": connection})


def _rows(connection: Connection, name: str, column: str) -> dict[str, Any]:
    found = MetaData()
    found.reflect(connection, only=[name])
    table = found.tables[name]
    return {row[0]: row[1] for row in connection.execute(select(table.c[column], table.c.owner))}


def test_owners_follow_keys(engine: Engine) -> None:
    with writing(engine) as connection:
        command.upgrade(_config(connection), "0013")
        found = MetaData()
        found.reflect(connection)
        connection.execute(insert(found.tables["api_keys"]), KEY)
        kinds = [{"id": name, "owner": owner, "kind": "sweep-shard" if name[0] == "s" else "launch-check", **JOB}
                 for name, owner in JOBS.items()]  # fmt: skip
        connection.execute(insert(found.tables["jobs"]), kinds)
        measured = [
            {"id": f"msr_{check}", "launch_check_id": check, **MEASUREMENT} for check in ("lch_a", "lch_none", "x")
        ]
        connection.execute(insert(found.tables["measurements"]), measured)
    with writing(engine) as connection:
        command.upgrade(_config(connection), "0014")
        jobs, owners = _rows(connection, "jobs", "id"), _rows(connection, "measurements", "id")
    assert jobs == {"lch_a": "vision", "lch_none": "team", "lch_gone": "team", "swp_a-0": "team"}
    assert owners == {"msr_lch_a": "vision", "msr_lch_none": "team", "msr_x": "team"}


@pytest.mark.parametrize(
    ("owners", "of_others"), [(("vision",), {"vision"}), (("vision", "speech"), set())], ids=["one owner", "several"]
)
def test_stored_answers_become_their_scenarios_owners(
    engine: Engine, owners: tuple[str, ...], of_others: set[str]
) -> None:
    with writing(engine) as connection:
        command.upgrade(_config(connection), "0020")
        found = MetaData()
        found.reflect(connection)
        tables = found.tables
        for place, owner in enumerate(owners):
            own = {"estimates": {"id": f"est_{owner}"}, "scenarios": {"id": f"scn_{owner}", "owner": owner}}
            own["scenario_revisions"] = {"id": f"scn_{owner}", "estimate_id": f"est_{owner}"}
            for name, values in own.items():
                connection.execute(insert(tables[name]), {**row_of(tables[name], place), **values})
        connection.execute(insert(tables["estimates"]), {**row_of(tables["estimates"], 8), "id": "est_deleted"})
        checked = {**row_of(tables["checked_questions"], 9), "estimate_id": "est_checked"}
        connection.execute(insert(tables["checked_questions"]), checked)
    with writing(engine) as connection:
        command.upgrade(_config(connection), "0021")
        after = MetaData()
        after.reflect(connection, only=["estimate_owners", "estimates", "checked_questions"])
        whose = {(row.estimate_id, row.owner) for row in connection.execute(select(after.tables["estimate_owners"]))}
        assert len(connection.execute(select(after.tables["estimates"].c.id)).all()) == len(owners) + 1
    others = {(estimate_id, owner) for owner in of_others for estimate_id in ("est_deleted", "est_checked")}
    assert whose == {(f"est_{owner}", owner) for owner in owners} | others
