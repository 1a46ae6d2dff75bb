"""Rows survive the upgrade to versioned rows and back, and their catalogue is still answered."""

from datetime import UTC, datetime
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Engine, MetaData, insert, select

from service.store.database import migrations_folder
from service.store.engine import writing
from service.store.history import History, load_catalogue
from tests.store.conftest import Prepare
from tests.store.earlier import faults_of_upgrade, put_back, recording, recordings
from tests.store.holding import row_of
from tests.store.small import SMALL

ORIGIN = {"source": "made up", "as_of": "2026", "verified": "no", "note": ""}
FIRST: dict[str, list[dict[str, Any]]] = {
    "models": [
        {"owner": "catalogue", "slug": "linear", "name": "Linear", "family": "Tests", "aliases": ["l"], **ORIGIN,
         "not_estimated": "its layers are of no kind that is known", "published": {"total": 5, "source": "print"}},
        {"owner": "team-a", "revision": 7, "slug": "mine", "name": "Mine", "family": "Tests", "aliases": [], **ORIGIN,
         "model": {"vocab_size": 1000, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
                   "intermediate_size": 128}},
    ],
    "gpus": [
        {"owner": "catalogue", "slug": "gpu", "name": "GPU", "vendor": "v", "architecture": "Hopper",
         "release_year": 2022, "aliases": ["g"], "default_for": [], "memory_bytes": 8e10, "usable_bytes": 7.9e10,
         "usable_basis": "seen", "memory_bytes_per_s": 3e12, "bf16_flop_per_s": 9e14, "link_name": "link",
         "link_bytes_per_s": 4e11, "scale_up_gpus": 8, "inter_node_bytes_per_s": 5e10, "host_bytes_per_s": 6e10,
         "board_watts": 700.0, **ORIGIN},
    ],
    "clusters": [
        {"owner": owner, "slug": slug, "name": slug, "aliases": [], "gpu": "gpu", "gpus": 8, "gpus_per_node": 8,
         **ORIGIN}
        for owner, slug in (("catalogue", "box"), ("team-a", "our-box"))
    ],
    "prices": [
        {"owner": "catalogue", "provider": "p", "instance_type": "i", "gpu": "gpu", "gpu_count": 8, "region": "r",
         "price_model": "spot", "stat": "point", "usd_per_gpu_hour": 0.1, "usd_per_instance_hour": 0.8, **ORIGIN},
    ],
    "seedings": [{"catalogue_revision": "0123456789ab", "seeded_at": datetime(2026, 11, 21, tzinfo=UTC)}],
}  # fmt: skip
"""What a database of the first revision may hold."""


def _config(connection: Connection) -> Config:
    return Config(str(migrations_folder() / "alembic.ini"), attributes={"connection": connection})


def _fill(connection: Connection) -> None:
    command.upgrade(_config(connection), "0001")
    tables = _reflected(connection)
    for name, rows in FIRST.items():
        for row in rows:
            connection.execute(insert(tables.tables[name]), row)


def _reflected(connection: Connection) -> MetaData:
    found = MetaData()
    found.reflect(connection)
    return found


def _held(connection: Connection) -> dict[str, list[Any]]:
    tables = _reflected(connection).tables
    return {
        name: sorted(([*row.items()] for row in connection.execute(select(tables[name])).mappings()), key=repr)
        for name in FIRST
    }


def test_rows_survive_up_and_down(engine: Engine) -> None:
    with writing(engine) as connection:
        _fill(connection)
        before = _held(connection)
        for _ in range(2):
            command.upgrade(_config(connection), "head")
            tables = _reflected(connection).tables
            for name in FIRST.keys() - {"seedings"}:
                assert {row.since_change for row in connection.execute(select(tables[name]))} == {1}
                assert {row.until_change for row in connection.execute(select(tables[name]))} == {None}
            (change,) = connection.execute(select(tables["changes"]))
            assert (change.number, change.catalogue_revision, change.owner) == (1, "0123456789ab", "catalogue")
            command.downgrade(_config(connection), "0001")
            assert _held(connection) == before


def test_a_start_takes_an_older_database_over(engine: Engine, prepare: Prepare) -> None:
    with writing(engine) as connection:
        _fill(connection)
    loaded = load_catalogue(prepare(SMALL)).view("team-a")
    assert loaded.models.keys() == {"mine", "linear", "tiny"}
    assert (loaded.models["mine"].owner, loaded.models["mine"].revision) == ("team-a", 7)
    assert loaded.clusters["our-box"].cluster.gpu == "gpu"
    assert "gpu" in loaded.gpus
    old = History(engine, loaded).at("0123456789ab", "team")
    assert old.gpus.keys() == {"gpu"}
    assert old.clusters.keys() == {"box", "our-box"}


def test_only_the_versions_that_hold_go_back(prepare: Prepare) -> None:
    engine = prepare()
    shipped_again = prepare(SMALL.changed(drop=(SMALL.models["linear"],)))
    with writing(shipped_again) as connection:
        command.downgrade(_config(connection), "0001")
        tables = _reflected(connection).tables
        assert [row.slug for row in connection.execute(select(tables["models"]))] == ["tiny"]
        assert "rate_cards" not in tables
    assert load_catalogue(prepare()).view("team").revision == SMALL.revision
    engine.dispose()


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


EVERY = 25
"""One of so many rows of the former catalogue is asked about; `.ci/proof upgrades` asks about all."""


@pytest.mark.parametrize("revision", recordings())
def test_everything_that_an_earlier_version_wrote_is_kept(engine: Engine, database_url: str, revision: str) -> None:
    recorded = recording(revision)
    put_back(engine, recorded)
    assert faults_of_upgrade(engine, database_url, recorded, EVERY) == []


def test_what_is_missing_after_an_upgrade_is_found(engine: Engine, database_url: str) -> None:
    recorded = recording("0001")
    put_back(engine, recorded)
    recorded.rows["gpus"].insert(0, {**recorded.rows["gpus"][0], "slug": "lost"})
    recorded.answers.append(["/v1/gpus/lost", "", {"slug": "lost"}])
    assert len(faults_of_upgrade(engine, database_url, recorded, EVERY)) >= 2
