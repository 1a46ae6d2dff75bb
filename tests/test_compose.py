"""docker compose's file, checked against the specification, the Dockerfile, the settings and the proxy itself."""

import json
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from service.settings import PREFIX
from tests.containers import OF_WORKERS, SETTINGS, arguments, compose, dockerfile, filled, stages
from tests.house.source import ROOT
from tests.replicas import configuration, program

BUILT = {name: service for name, service in compose()["services"].items() if "build" in service}
OWN = {*BUILT, "proxy", "redis"}
"""Services that need no more than they are given; the database's image sets itself up as root."""


def _read_by_the_specification(file: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_it_is_what_the_specification_says() -> None:
    done = _read_by_the_specification(ROOT / "docker-compose.yml")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("changed", [{"read_onli": True}, {"depends_on": {"api": {"condition": "service_well"}}}])
def test_the_specification_would_notice_a_mistake(tmp_path: Path, changed: dict[str, object]) -> None:
    read = compose()
    read["services"]["proxy"].update(changed)
    file = tmp_path / "docker-compose.yml"
    file.write_text(yaml.safe_dump(read), encoding="utf-8")
    done = _read_by_the_specification(file)
    assert done.returncode == 1
    assert "$.services.proxy" in done.stdout


def test_environment_holds_settings_that_exist() -> None:
    given = {name for service in compose()["services"].values() for name in service.get("environment", {})}
    named = {name for name in given if name.startswith(PREFIX)}
    assert named
    assert named <= SETTINGS | OF_WORKERS


def test_services_wait_for_others_that_say_when_they_are_ready() -> None:
    services = compose()["services"]
    for service in services.values():
        for name, wait in service.get("depends_on", {}).items():
            assert wait["condition"] == "service_healthy"
            target = services[name].get("build", {}).get("target")
            assert services[name]["healthcheck"]["test"] if target is None else arguments("HEALTHCHECK", target)


def test_the_api_is_given_the_database_that_is_started() -> None:
    services = compose()["services"]
    url = urlsplit(filled(services["api"]["environment"]["TRAINCOST_DATABASE_URL"]))
    database = {name: filled(value) for name, value in services[str(url.hostname)]["environment"].items()}
    assert url.scheme == "postgresql"
    assert (url.username, url.password, url.path.lstrip("/")) == (
        database["POSTGRES_USER"],
        database["POSTGRES_PASSWORD"],
        database["POSTGRES_DB"],
    )


def test_every_image_is_built_from_the_stage_of_its_name() -> None:
    targets = {service["build"]["target"] for service in BUILT.values()}
    assert targets == stages().keys() - {"build", "packages"}
    for service in BUILT.values():
        for name, value in service["build"].get("args", {}).items():
            assert ("ARG", f"{name}={filled(value)}") in dockerfile()


def test_commands_are_those_of_the_images() -> None:
    given = [service["command"] for service in BUILT.values() if "command" in service]
    assert given == [json.loads(arguments("CMD", "worker")[0])]


@pytest.mark.parametrize("name", sorted(OWN))
def test_a_container_can_do_no_more_than_it_has_to(name: str) -> None:
    service = compose()["services"][name]
    assert service["read_only"] is True
    assert service["tmpfs"] == ["/tmp"]  # noqa: S108 - inside the container
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]


def test_what_is_optional_waits_for_its_profile() -> None:
    services = compose()["services"]
    profiles = {name: service["profiles"] for name, service in services.items() if "profiles" in service}
    assert profiles == {"worker-cpu": ["cpu"], "worker-gpu": ["gpu"], "ray-head": ["ray"], "redis": ["redis"]}
    (device,) = services["worker-gpu"]["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["capabilities"]) == ("nvidia", ["gpu"])


def test_data_is_kept_and_the_proxy_alone_is_reached_from_this_machine_alone() -> None:
    services = compose()["services"]
    named = {volume.partition(":")[0] for s in services.values() for volume in s.get("volumes", [])}
    assert named == compose()["volumes"].keys()
    assert {name for name, service in services.items() if "ports" in service} == {"proxy"}
    (port,) = services["proxy"]["ports"]
    assert port.startswith("127.0.0.1:")
    assert f"bind :{port.rpartition(':')[2]}\n" in compose()["configs"]["proxy"]["content"]
    (mounted,) = services["proxy"]["configs"]
    assert mounted["source"] in compose()["configs"]


def test_the_proxy_knows_every_replica_at_its_port() -> None:
    lines = [line.split() for line in compose()["configs"]["proxy"]["content"].splitlines()]
    (template,) = [words for words in lines if words[:1] == ["server-template"]]
    assert template[3] == f"api:{arguments('EXPOSE')[0]}"
    assert compose()["services"]["api"]["deploy"]["replicas"] <= int(template[2].partition("-")[2])


@pytest.mark.parametrize("text", ["compose", "tests"])
def test_the_proxy_accepts_its_configuration(text: str) -> None:
    content = compose()["configs"]["proxy"]["content"]
    given = content if text == "compose" else configuration("127.0.0.1:8000", ["127.0.0.1:8001", "127.0.0.1:8002"])
    done = subprocess.run(
        [program(), "-c", "-f", "/dev/stdin"], input=given, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
