"""Would the containers start? All that can be checked without an engine: instructions, files, commands, settings."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import pytest
import typer.main
import yaml

from service.commands.application import app
from service.settings import PREFIX, Settings
from tests.house.source import ROOT

INSTRUCTIONS = {"FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "VOLUME", "EXPOSE", "HEALTHCHECK", "CMD"}
SETTINGS = {PREFIX + name.upper() for name in Settings.model_fields}


def _dockerfile() -> list[tuple[str, str]]:
    """Every instruction of the Dockerfile with its arguments, continued lines joined."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(word, " ".join(rest.split())) for word, _, rest in (line.partition(" ") for line in lines)]


def _arguments(instruction: str) -> list[str]:
    return [rest for word, rest in _dockerfile() if word == instruction]


def _command() -> list[str]:
    (command,) = _arguments("CMD")
    words = json.loads(command)
    assert all(isinstance(word, str) for word in words)
    return list(words)


def _compose() -> dict[str, Any]:
    read = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    assert isinstance(read, dict)
    return read


def _filled(value: str) -> str:
    """A compose value with the default of each ${NAME:-default}."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value)


@contextmanager
def _answering(status: int) -> Iterator[int]:
    """A server on a free port that answers every GET with one status."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/healthz" else 404)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_dockerfile_holds_known_instructions_only() -> None:
    assert {word for word, _ in _dockerfile()} <= INSTRUCTIONS
    assert _dockerfile()[0][0] == "FROM"


def test_dockerfile_copies_files_that_exist_and_reach_the_build() -> None:
    let_through = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for arguments in _arguments("COPY"):
        *sources, _ = [word for word in arguments.split() if not word.startswith("--")]
        if "--from=" not in arguments:
            assert all((ROOT / source).exists() for source in sources)
            assert set(sources) <= let_through


def test_dockerfile_installs_hashed_dependencies_and_nothing_beside_them() -> None:
    installs = [run for run in _arguments("RUN") if "install" in run and "pip" in run]
    assert len(installs) == 2
    assert "--require-hashes" in installs[0]
    assert "--no-deps" in installs[1]


def test_container_runs_as_a_user_that_exists_and_is_not_root() -> None:
    (user,) = _arguments("USER")
    assert user.isdigit()
    assert int(user) > 0
    assert any(f"--uid {user}" in run for run in _arguments("RUN"))


def test_container_command_is_one_that_the_command_line_accepts() -> None:
    program, name, *options = _command()
    assert program == "traincost"
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]  # a group of commands
    parsed = commands[name].make_context(name, options)
    assert parsed.params["host"] == "0.0.0.0"  # noqa: S104 - inside its own network
    assert [parsed.params["port"]] == _arguments("EXPOSE")


@pytest.mark.parametrize(("status", "healthy"), [(200, True), (503, False)])
def test_health_check_asks_the_service(status: int, healthy: bool) -> None:
    (check,) = _arguments("HEALTHCHECK")
    _, python, code = json.loads(check[check.index("[") :])[0:3]
    assert f":{int(*_arguments('EXPOSE'))}/" in code
    with _answering(status) as port:
        asked = re.sub(r":\d+/", f":{port}/", code)
        done = subprocess.run([sys.executable, python, asked], capture_output=True, check=False)
    assert (done.returncode == 0) is healthy


def test_environment_holds_settings_that_exist() -> None:
    compose = [name for service in _compose()["services"].values() for name in service.get("environment", {})]
    docker = [name for line in _arguments("ENV") for name in re.findall(r"(\w+)=", line)]
    given = {name for name in compose + docker if name.startswith(PREFIX)}
    assert given
    assert given <= SETTINGS


def test_compose_waits_for_a_database_that_says_when_it_is_ready() -> None:
    services = _compose()["services"]
    for service in services.values():
        for name, wait in service.get("depends_on", {}).items():
            assert wait["condition"] == "service_healthy"
            assert services[name]["healthcheck"]["test"]


def test_compose_gives_the_api_the_database_that_it_starts() -> None:
    services = _compose()["services"]
    url = urlsplit(_filled(services["api"]["environment"]["TRAINCOST_DATABASE_URL"]))
    database = {name: _filled(value) for name, value in services[str(url.hostname)]["environment"].items()}
    assert url.scheme == "postgresql"
    assert (url.username, url.password, url.path.lstrip("/")) == (
        database["POSTGRES_USER"],
        database["POSTGRES_PASSWORD"],
        database["POSTGRES_DB"],
    )


def test_compose_keeps_the_data_and_publishes_the_port_of_the_container() -> None:
    compose = _compose()
    named = {volume.partition(":")[0] for s in compose["services"].values() for volume in s.get("volumes", [])}
    assert named == compose["volumes"].keys()
    (port,) = compose["services"]["api"]["ports"]
    assert port.rpartition(":")[2] == _arguments("EXPOSE")[0]
