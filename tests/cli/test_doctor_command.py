"""`traincost doctor`: each thing that may be wrong is named, with what to do, and only a fault fails the command."""

import json
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from service.api.access.key_rules import KeyRequest, make_key, revoke
from service.catalogue import shipped_catalogue
from service.cli.doctor import examined
from service.settings import PREFIX
from service.store.database import Replicas
from service.store.engine import open_engine, writing
from tests.commands import Command, Commands
from tests.databases import new_database, prepared
from tests.live import serving
from tests.redis_server import running


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commands: Commands) -> Command:
    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TRAINCOST_DATABASE_URL", f"sqlite:///{tmp_path / 'traincost.db'}")
    monkeypatch.setenv("TRAINCOST_PORT", "0")
    return commands("doctor")


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A database that holds what the first start leaves."""
    found = f"sqlite:///{tmp_path / 'traincost.db'}"
    prepared(found, shipped_catalogue()).dispose()
    return found


def findings(run: Command, code: int = 0) -> dict[str, dict[str, Any]]:
    with ThreadPoolExecutor(1) as apart:  # a browser's event loop may be running in the thread of the tests
        ran = apart.submit(run, "--json").result()
    assert ran.code == code, ran.out
    return {one["name"]: one for one in json.loads(ran.out)["findings"]}


def changed(url: str, statement: str) -> None:
    engine = open_engine(url)
    with writing(engine) as connection:
        connection.execute(text(statement))
    engine.dispose()


def test_before_the_first_start_nothing_is_made(run: Command, tmp_path: Path) -> None:
    found = findings(run)
    assert found["database"]["state"] == "warning"
    assert "traincost serve" in found["database"]["fix"]
    assert list(tmp_path.iterdir()) == []


def test_all_is_well_but_for_workers(run: Command, url: str) -> None:
    assert url
    ran = run()
    lines = dict(line.split(": ", 1) for line in ran.out.splitlines())
    assert ran.code == 0
    assert {name.split()[0] for name in lines} == {"ok", "warning"}
    assert [name.split()[1] for name in lines if name.startswith("warning")] == ["workers"]
    for name in ("settings", "facts", "database", "migrations", "writing", "clock", "catalogue", "keys", "address"):
        assert f"ok       {name}" in lines, ran.out
    assert {"ok       torch", "ok       ray", "ok       disk of the database"} <= lines.keys()
    assert shipped_catalogue().revision in lines["ok       catalogue"]


def test_a_look_leaves_the_database_as_it_is(run: Command, url: str) -> None:
    file = Path(url.removeprefix("sqlite:///"))
    before = file.read_bytes()
    findings(run)
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("statement", "name", "state", "said"),
    [
        ("UPDATE alembic_version SET version_num = '0001'", "migrations", "warning", "revision 0001"),
        ("UPDATE alembic_version SET version_num = '9999'", "migrations", "fault", "does not know"),
        ("UPDATE prices SET usd_per_gpu_hour = 0.01", "catalogue", "fault", "do not make the digest"),
    ],
)
def test_what_is_wrong_in_the_database_is_named(
    run: Command, url: str, statement: str, name: str, state: str, said: str
) -> None:
    changed(url, statement)
    found = findings(run, code=int(state == "fault"))[name]
    assert (found["state"], said in found["said"]) == (state, True)
    assert found["fix"]


def test_a_database_that_cannot_be_read_or_written_is_a_fault(run: Command, tmp_path: Path, url: str) -> None:
    file = Path(url.removeprefix("sqlite:///"))
    file.write_bytes(b"this is no database" * 100)
    assert findings(run, code=1)["database"]["state"] == "fault"
    file.unlink()
    tmp_path.joinpath("traincost.db").mkdir()
    assert findings(run, code=1)["database"]["state"] == "fault"


def test_postgresql_is_looked_at_too_and_its_password_kept(
    run: Command, postgresql_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with new_database(postgresql_server) as server:
        prepared(server, shipped_catalogue()).dispose()
        monkeypatch.setenv("TRAINCOST_DATABASE_URL", server)
        found = findings(run)
        assert (found["migrations"]["state"], found["writing"]["state"], found["clock"]["state"]) == ("ok",) * 3
    monkeypatch.setenv("TRAINCOST_DATABASE_URL", "postgresql://somebody:very-secret@127.0.0.1:9/none")
    ran = run()
    assert (ran.code, "fault    database" in ran.out, "very-secret" in ran.out) == (1, True, False)


def test_connections_of_replicas_are_held_against_what_the_server_takes(
    run: Command, postgresql_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with new_database(postgresql_server) as server:
        engine = prepared(server, shipped_catalogue())
        monkeypatch.setenv("TRAINCOST_DATABASE_URL", server)
        with engine.connect() as connection:
            most = int(connection.exec_driver_sql("SHOW max_connections").scalar_one())
        one = findings(run)["connections"]
        assert (one["state"], "2 x 10 = 20" in one["said"]) == ("ok", True)
        taken = int(one["said"].rpartition(" ")[2])
        assert most - 10 < taken < most
        others = [Replicas(engine) for _ in range(3)]
        for other in others:
            other.announce(1)
        monkeypatch.setenv("TRAINCOST_DATABASE_CONNECTIONS", str(taken // 4 + 1))
        several = findings(run)["connections"]
        assert (several["state"], several["said"].startswith("4 replicas")) == ("warning", True)
        assert f"to {taken // 4} or less" in several["fix"]
        monkeypatch.setenv("TRAINCOST_DATABASE_CONNECTIONS", str(taken // 4))
        assert findings(run)["connections"]["state"] == "ok"
        for other in others:
            other.leave()
        engine.dispose()


def test_keys_and_the_address_are_judged_together(run: Command, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINCOST_HOST", "0.0.0.0")  # noqa: S104 - that is what is tried
    assert findings(run, code=1)["keys"]["state"] == "fault"
    monkeypatch.setenv("TRAINCOST_INSECURE", "true")
    assert findings(run)["keys"]["state"] == "warning"
    monkeypatch.delenv("TRAINCOST_INSECURE")
    issuer = {"ISSUER": "https://id.example.org", "AUDIENCE": "traincost", "JWKS": "https://id.example.org/keys"}
    for name, value in issuer.items():
        monkeypatch.setenv(f"TRAINCOST_OIDC_{name}", value)
    assert findings(run)["keys"]["state"] == "ok"
    for name in issuer:
        monkeypatch.delenv(f"TRAINCOST_OIDC_{name}")
    engine = prepared(url, shipped_catalogue())
    made = make_key(engine, KeyRequest(name="one", scopes=["read"]))
    assert findings(run)["keys"]["state"] == "ok"
    revoke(engine, made.key.id)
    engine.dispose()
    assert findings(run)["keys"]["state"] == "warning"


def test_a_taken_port_and_a_wrong_setting_are_named(
    run: Command, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert url
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setenv("TRAINCOST_PORT", str(taken.getsockname()[1]))
        assert findings(run)["address"]["state"] == "warning"
    with serving(tmp_path) as address:
        monkeypatch.setenv("TRAINCOST_PORT", address.rpartition(":")[2])
        found = findings(run)["address"]
        assert (found["state"], "traincost" in found["said"]) == ("ok", True)
    monkeypatch.setenv("TRAINCOST_WORKERS", "2")
    assert findings(run)["variables"]["state"] == "warning"
    monkeypatch.setenv("TRAINCOST_PORT", "eighty")
    found = findings(run, code=1)
    assert list(found) == ["settings"]
    assert f"{PREFIX}PORT" in found["settings"]["said"]


def test_redis_and_the_collector_are_looked_for_where_they_are_set(
    run: Command, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert url
    assert not {"redis", "collector"} & findings(run).keys()
    monkeypatch.setenv("TRAINCOST_OTLP_ENDPOINT", "http://127.0.0.1:9")
    with running(tmp_path) as server:
        monkeypatch.setenv("TRAINCOST_REDIS_URL", server.url)
        found = findings(run)
        assert (found["redis"]["state"], found["collector"]["state"]) == ("ok", "warning")
        server.stop()
        assert findings(run)["redis"]["state"] == "warning"
    monkeypatch.setattr("service.api.limits.rate_limits.find_spec", lambda _: None)
    assert findings(run, code=1)["redis"]["state"] == "fault"


def test_a_full_disk_and_clocks_apart_are_named(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from service.settings import Settings

    class Late(datetime):
        @classmethod
        def now(cls, _zone: Any = None) -> Any:
            return datetime.now(UTC) + timedelta(seconds=60)

    monkeypatch.setattr("service.store.database.datetime", Late)
    for free, state in ((10, "fault"), (5e8, "warning"), (5e9, "ok")):
        monkeypatch.setattr(
            "service.cli.doctor.shutil.disk_usage", lambda _, free=free: type("Usage", (), {"free": free})
        )
        found = {one.name: one for one in examined(Settings(database_url=url, port=0))}
        assert found["disk of the database"].state == found["disk of temporary files"].state == state
        assert found["clock"].state == "warning"
        assert found["clock"].fix
