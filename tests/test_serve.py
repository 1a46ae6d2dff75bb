"""`traincost serve` starts from nothing and prints its address, or an error in one line with exit code 2."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

import httpx
import pytest
from sqlalchemy import text

from service.api.access.key_rules import KeyRequest, make_key, revoke
from service.api.server import refuse_public_without_keys
from service.catalogue import Catalogue, shipped_catalogue
from service.settings import PREFIX, Settings
from service.store.database import prepare_database
from service.store.engine import reading, writing
from tests.databases import prepared
from tests.live import serving
from tests.prestarted import Process, Started, ran

ROOT = Path(__file__).parents[1]
SERVE = ["service", "serve", "--no-worker"]
EMPTY = Catalogue.of(models=(), gpus=(), clusters=(), prices=())


@pytest.fixture
def filled(environment: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """The same with a database that was prepared before."""
    url = f"sqlite:///{tmp_path / 'traincost.db'}"
    prepared(url, shipped_catalogue()).dispose()
    return {**environment, "TRAINCOST_DATABASE_URL": url}


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment without settings, whose user keeps data in the test's own folder."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    return {**bare, "PYTHONPATH": str(ROOT), "XDG_DATA_HOME": str(tmp_path / "data")}


def _new_python(words: list[str], folder: Path, environment: Mapping[str, str]) -> subprocess.Popen[str]:
    """A process that imports everything itself, as whoever installs the service starts it."""
    command = [sys.executable, "-m", *words]
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)


@contextmanager
def _serving(
    environment: Mapping[str, str],
    folder: Path,
    start: Callable[[list[str], Path, Mapping[str, str]], Process] = Started,
) -> Iterator[tuple[Process, str]]:
    """A running service and its URL."""
    with start([*SERVE, "--port", "0"], folder, environment) as process:
        try:
            line = process.stdout.readline() if process.stdout else ""
            assert line.startswith("traincost answers at http://"), line
            yield process, line.split()[3]
        finally:
            process.terminate()
            process.communicate(timeout=60)


def _refused(environment: Mapping[str, str], folder: Path, *options: str) -> str:
    """The one line that a service says which does not start."""
    done = ran([*SERVE, *options], folder, environment)
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert done.stderr.startswith("traincost: "), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def test_it_starts_from_nothing_and_again_on_what_it_left(environment: dict[str, str], tmp_path: Path) -> None:
    answers = []
    for _ in range(2):
        with _serving(environment, tmp_path) as (_, url):
            assert httpx.get(f"{url}/readyz").status_code == 200
            answers.append(httpx.get(f"{url}/v1/gpus").content)
    assert answers[0] == answers[1]
    assert (tmp_path / "data" / "traincost" / "traincost.db").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


@pytest.mark.parametrize(("stop", "start"), [(signal.SIGINT, _new_python), (signal.SIGTERM, Started)])
def test_it_stops_without_a_traceback(
    filled: dict[str, str], tmp_path: Path, stop: signal.Signals, start: Callable[..., Process]
) -> None:
    with _serving({**filled, "TRAINCOST_LOG_LEVEL": "critical"}, tmp_path, start) as (process, url):
        assert httpx.get(f"{url}/healthz").status_code == 200
        process.send_signal(stop)
        assert process.wait(timeout=60) in {0, -stop}
        assert process.stdout is not None
        assert process.stdout.read() == ""


def test_a_second_server_on_one_sqlite_file_does_not_start(filled: dict[str, str], tmp_path: Path) -> None:
    with _serving(filled, tmp_path) as (process, url):
        said = _refused(filled, tmp_path, "--port", "0")
        assert "another traincost serve" in said
        assert "PostgreSQL" in said
        assert httpx.get(f"{url}/readyz").status_code == 200
        listed = ran(["service", "keys", "list"], tmp_path, filled)
        assert (listed.returncode, listed.stdout[:7]) == (0, "no keys")
        process.kill()
        process.wait(20)
        with _serving(filled, tmp_path) as (_, again):
            assert httpx.get(f"{again}/readyz").status_code == 200


def test_a_connection_without_a_request_is_closed_in_time(filled: dict[str, str], tmp_path: Path) -> None:
    with _serving({**filled, "TRAINCOST_IDLE_SECONDS": "1"}, tmp_path) as (_, url):
        address = httpx.URL(url)
        with socket.create_connection((address.host, address.port or 0), timeout=60) as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            said = b"".join(iter(lambda: connection.recv(4096), b""))
    assert said.startswith(b"HTTP/1.1 200")


def test_requests_are_logged_at_debug_only(filled: dict[str, str], tmp_path: Path) -> None:
    for level, is_logged in (("info", False), ("debug", True)):
        with (tmp_path / level).open("w") as log:
            settings = {**filled, "TRAINCOST_LOG_LEVEL": level}
            with Started([*SERVE, "--port", "0"], env=settings, stderr=log) as process:
                url = process.stdout.readline().split()[3]
                httpx.get(f"{url}/healthz?marked")
                process.terminate()
        assert ("/healthz?marked" in (tmp_path / level).read_text()) is is_logged


def test_other_machines_are_served_with_keys_or_on_purpose(filled: dict[str, str], tmp_path: Path) -> None:
    everywhere = ("--host", "0.0.0.0", "--port", "0")  # noqa: S104 - that is what is tried
    assert "traincost keys create" in _refused(filled, tmp_path, *everywhere)
    for is_locked, insecure, host in ((True, False, "0.0.0.0"), (False, True, "0.0.0.0"), (False, False, "127.0.0.1")):  # noqa: S104
        with socket.create_server((host, 0)) as listener:
            refuse_public_without_keys(listener, Settings(insecure=insecure), is_locked=is_locked)


def test_a_locked_service_says_no_secret_in_its_log(environment: dict[str, str], tmp_path: Path) -> None:
    """One service on an address that other machines reach: keys, what is logged of them, and the end of one."""
    token = "the-secret-of-a-webhook"  # noqa: S105 - nothing real answers to it
    engine = prepared(f"sqlite:///{tmp_path / 'traincost.db'}", shipped_catalogue())
    sheet, reader = (make_key(engine, KeyRequest(name="x", scopes=[scope])) for scope in ("sheet", "read"))
    settings = {"DATABASE_URL": str(engine.url), "LOG_LEVEL": "debug", "ADMISSION_TOKEN": token}
    settings = {**environment, **{f"{PREFIX}{name}": value for name, value in settings.items()}}
    log = tmp_path / "log"
    with log.open("w") as written:
        words = [*SERVE, "--port", "0", "--host", "0.0.0.0"]  # noqa: S104 - with keys it may
        with Started(words, env=settings, stderr=written) as process:
            line = process.stdout.readline()
            assert "http://127.0.0.1:" in line
            assert "every other address" in line
            url = line.split()[3]
            bearing = {"Authorization": f"Bearer {reader.presented}"}
            assert httpx.get(f"{url}/v1/choices").status_code == 401
            assert httpx.get(f"{url}/v1/choices", headers=bearing).status_code == 200
            for query in (
                f"tp=1&key={sheet.presented}",
                f"k%65y={sheet.presented}&tp=2",
                f"tp=3&api_key={sheet.presented}",
            ):
                assert httpx.get(f"{url}/v1/cell/fits?{query}").status_code in {401, 422}
            webhook = f"{url}/v1/adapters/kubernetes/admission/"
            assert httpx.post(f"{webhook}{token}", json={}).status_code == 422
            assert httpx.post(f"{webhook}{token.replace('secret', '%73ecret')}?again", json={}).status_code == 422
            assert httpx.get(f"{url}/v1/scenarios/scn_x.ods?sh%61re={token}").status_code == 401
            begun = monotonic()
            revoke(engine, reader.key.id)
            while httpx.get(f"{url}/v1/choices", headers=bearing).status_code == 200:
                assert monotonic() - begun < 60
                sleep(0.05)
            process.terminate()
    engine.dispose()
    said = log.read_text()
    assert said.count("/v1/cell/fits?") == 3
    assert said.count("/admission/***") == 2
    for new in (sheet, reader):
        assert new.presented.partition(".")[2] not in said
        assert new.key.id not in said
    assert "secret-of" not in said


def test_a_variable_that_is_no_setting_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINCOST_WORKERS", "2")
    with serving(tmp_path, tmp_path / "log"):
        pass
    told = "WARNING service.cli.serve: TRAINCOST_WORKERS is no setting, and changes nothing"
    assert told in (tmp_path / "log").read_text(encoding="utf-8")


def test_a_wrong_setting(environment: dict[str, str], tmp_path: Path) -> None:
    assert "TRAINCOST_PORT" in _refused({**environment, "TRAINCOST_PORT": "eighty"}, tmp_path)
    assert "--port" in _refused(environment, tmp_path, "--port", "eighty")


def test_a_taken_port(environment: dict[str, str], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        said = _refused(environment, tmp_path, "--port", port)
    assert f"127.0.0.1:{port}: another program has it" in said
    assert "0 for any free one" in said
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid", "::ffff:192.0.2.1"])
def test_a_host_of_another_machine(environment: dict[str, str], tmp_path: Path, host: str) -> None:
    assert "cannot listen on" in _refused(environment, tmp_path, "--host", host, "--port", "0")


def test_an_unreachable_database(environment: dict[str, str], tmp_path: Path) -> None:
    url = "postgresql://somebody:secret@127.0.0.1:1/costs"
    said = _refused({**environment, "TRAINCOST_DATABASE_URL": url}, tmp_path, "--port", "0")
    assert "127.0.0.1" in said
    assert "secret" not in said


def test_a_newer_database(environment: dict[str, str], tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'traincost.db'}"
    engine = prepare_database(url, EMPTY)
    with writing(engine) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    engine.dispose()
    assert "newer" in _refused({**environment, "TRAINCOST_DATABASE_URL": url}, tmp_path, "--port", "0")


def test_an_unwritable_folder(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    assert "cannot be made" in _refused(environment, tmp_path, "--port", "0")


def test_an_own_row_under_a_shipped_name_holds_up_no_start(environment: dict[str, str], tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'traincost.db'}"
    engine = prepared(url, shipped_catalogue())
    with writing(engine) as connection:
        connection.execute(text("UPDATE models SET owner = 'team-a' WHERE slug = 'llama-3.1-8b'"))
        connection.execute(text("DELETE FROM seedings"))
    with _serving({**environment, "TRAINCOST_DATABASE_URL": url}, tmp_path) as (_, address):
        assert httpx.get(f"{address}/v1/models/llama-3.1-8b").json()["owner"] == "catalogue"
    with reading(engine) as connection:
        owners = connection.execute(text("SELECT owner FROM models WHERE slug = 'llama-3.1-8b'")).scalars().all()
    engine.dispose()
    assert set(owners) == {"catalogue", "team-a"}
