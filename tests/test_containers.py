"""The images, as far as they can be checked without an engine: instructions, files and commands."""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
import typer.main

from service.cli.application import app
from service.settings import PREFIX
from service.worker.command import _parse_options
from tests.containers import OF_WORKERS, SETTINGS, arguments, dockerfile, stages
from tests.house.source import ROOT

INSTRUCTIONS = {"ARG", "FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "VOLUME", "EXPOSE", "HEALTHCHECK", "CMD"}
IMAGES = ["api", "worker", "ray"]


def _command(stage: str = "api") -> list[str]:
    *_, command = arguments("CMD", stage)
    words = json.loads(command)
    assert all(isinstance(word, str) for word in words)
    return list(words)


def _project() -> dict[str, list[str]]:
    """What the package needs, and what its extras need."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {"": project["dependencies"], **project["optional-dependencies"]}


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
    assert {word for word, _ in dockerfile()} <= INSTRUCTIONS
    assert dockerfile()[0][0] == "ARG"  # before every stage, so for all of them
    assert [rest for word, rest in dockerfile() if word == "FROM"][-1].endswith(" AS api")  # what is built by default


def test_dockerfile_copies_files_that_exist_and_reach_the_build() -> None:
    let_through = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for copied in [rest for word, rest in dockerfile() if word == "COPY"]:
        *sources, _ = [word for word in copied.split() if not word.startswith("--")]
        if "--from=" not in copied:
            assert all((ROOT / source).exists() for source in sources)
            assert set(sources) <= let_through


def test_dockerfile_installs_hashed_dependencies_and_nothing_beside_them() -> None:
    installs = [run for run in arguments("RUN") if "install" in run and "pip" in run]
    assert len(installs) == 2
    assert "--require-hashes" in installs[0]
    assert "--no-deps" in installs[1]


def test_worker_adds_two_packages_to_an_image_that_has_torch() -> None:
    """And the package itself, with nothing that it needs elsewhere: no framework, no database driver."""
    installs = [run for run in arguments("RUN", "worker") if "install" in run]
    assert len(installs) == 2
    needed = [next(d for d in _project()[""] if d.startswith(name)) for name in ("httpx", "annotated-types")]
    assert json.loads(installs[0])[5:] == needed
    assert "--no-deps" in installs[1]
    assert _command("worker") == ["traincost", "worker"]


def test_a_ray_head_has_what_the_extra_asks_for_and_starts_a_worker_on_itself() -> None:
    assert json.loads(arguments("RUN", "ray")[-1])[3:] == _project()["ray"]
    shell, option, line = _command("ray")
    head, worker = line.split(" && exec ")
    assert (shell, option) == ("sh", "-c")
    (port,) = arguments("EXPOSE", "ray")
    assert head.startswith(f"ray start --head --port {port} ")
    assert _parse_options(worker.removeprefix("traincost worker ").split()).ray_address == f"127.0.0.1:{port}"


@pytest.mark.parametrize("stage", IMAGES)
def test_container_runs_as_a_user_that_exists_and_is_not_root(stage: str) -> None:
    *_, user = arguments("USER", stage)
    assert user.isdigit()
    assert int(user) > 0
    assert any(f"--uid {user}" in run for run in arguments("RUN", stage))
    made = [word for word, rest in stages()[stage] if word in {"RUN", "USER"}]
    assert made[-1] == "USER"  # nothing is made after it, and nothing before it by another user of the base image
    if stage == "worker":
        assert stages()[stage][1] == ("USER", "root")


def test_container_command_is_one_that_the_command_line_accepts() -> None:
    program, name, *options = _command()
    assert program == "traincost"
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]  # a group of commands
    parsed = commands[name].make_context(name, options)
    assert parsed.params["host"] == "0.0.0.0"  # noqa: S104 - inside its own network
    assert [parsed.params["port"]] == arguments("EXPOSE")


@pytest.mark.parametrize(("status", "healthy"), [(200, True), (503, False)])
def test_health_check_asks_the_service(status: int, healthy: bool) -> None:
    (check,) = arguments("HEALTHCHECK")
    _, python, code = json.loads(check[check.index("[") :])[0:3]
    assert f":{int(*arguments('EXPOSE'))}/" in code
    with _answering(status) as port:
        asked = re.sub(r":\d+/", f":{port}/", code)
        done = subprocess.run([sys.executable, python, asked], capture_output=True, check=False)
    assert (done.returncode == 0) is healthy


def test_environment_holds_settings_that_exist() -> None:
    docker = [name for word, line in dockerfile() if word == "ENV" for name in re.findall(r"(\w+)=", line)]
    given = {name for name in docker if name.startswith(PREFIX)}
    assert given
    assert given <= SETTINGS | OF_WORKERS
