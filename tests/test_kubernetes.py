"""The manifests, checked against the schema of Kubernetes, the images and the settings."""

import json
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main
import yaml

from service import __version__
from service.api.pages import CHECK_SECONDS, GUIDE, MANIFESTS
from service.api.server import STOP_SECONDS
from service.cli.application import app
from service.cli.serve import END_SECONDS
from service.settings import PREFIX
from service.worker.command import _parse_options
from tests.containers import OF_WORKERS, SETTINGS, arguments
from tests.formats.tools import read_by
from tests.guide_pages import blocks_of
from tests.house.source import ROOT

PAGE = GUIDE / "kubernetes.html"
OBJECTS: list[dict[str, Any]] = [
    found for path in MANIFESTS.values() for found in yaml.safe_load_all(path.read_text(encoding="utf-8"))
]
PODS = {
    found["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"] + "-" + found["kind"]: found["spec"][
        "template"
    ]
    for found in OBJECTS
    if "template" in found.get("spec", {})
}
"""Templates of pods, by component and kind of what makes them."""

each_pod = pytest.mark.parametrize("pod", PODS.values(), ids=PODS)


def one(kind: str, name: str) -> dict[str, Any]:
    (found,) = [
        each for each in OBJECTS if each["kind"] == kind and each["metadata"].get("name", "traincost-measure") == name
    ]
    return found


def container(pod: dict[str, Any]) -> dict[str, Any]:
    (found,) = pod["spec"]["containers"]
    return dict(found)


def stage(pod: dict[str, Any]) -> str:
    """The stage of the Dockerfile that makes the pod's image."""
    matched = re.fullmatch(rf"registry\.example\.org/traincost-(\w+):{re.escape(__version__)}", container(pod)["image"])
    assert matched
    return matched[1]


def test_kubernetes_knows_every_field() -> None:
    assert read_by("kubernetes", "manifests", [path.read_text(encoding="utf-8") for path in MANIFESTS.values()]) == []


def test_kubernetes_would_notice_a_mistake_in_each_kind() -> None:
    """A field that no version of the kind has, and a number in the place of a list, an object or a text."""
    for found in OBJECTS:
        for broken in ({**found, "spek": {}}, {**found, "metadata": {**found["metadata"], "labels": 7}}):
            with pytest.raises(pytest.fail.Exception, match="manifests"):
                read_by("kubernetes", "manifests", [yaml.safe_dump(broken)])


@pytest.mark.parametrize(
    ("kind", "changed"),
    [
        ("HorizontalPodAutoscaler", {"maxReplica": 4}),
        ("HorizontalPodAutoscaler", {"metrics": {"type": "Resource"}}),
        ("PodDisruptionBudget", {"minAvailible": 1}),
        ("PodDisruptionBudget", {"maxUnavailable": [1]}),
    ],
)
def test_kubernetes_would_notice_a_mistake_in_what_scales_and_what_protects(kind: str, changed: dict[str, Any]) -> None:
    found = one(kind, "traincost")
    with pytest.raises(pytest.fail.Exception, match="manifests"):
        read_by("kubernetes", "manifests", [yaml.safe_dump({**found, "spec": {**found["spec"], **changed}})])


def test_there_is_one_of_each() -> None:
    kinds = sorted(found["kind"] for found in OBJECTS)
    twice = ["Deployment", "NetworkPolicy", "Secret"]
    assert kinds == sorted(
        [*twice, *twice, "HorizontalPodAutoscaler", "Job", "PodDisruptionBudget", "Service", "ServiceAccount"]
    )


@each_pod
def test_a_pod_can_do_no_more_than_it_has_to(pod: dict[str, Any]) -> None:
    spec, only = pod["spec"], container(pod)
    (*_, user) = arguments("USER", stage(pod))
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] == int(user)
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert only["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False  # a Service called traincost would set TRAINCOST_PORT
    assert {"cpu", "memory"} <= only["resources"]["requests"].keys()
    assert "memory" in only["resources"]["limits"]
    mounted = {mount["name"]: mount["mountPath"] for mount in only["volumeMounts"]}
    assert mounted.keys() == {volume["name"] for volume in spec["volumes"]}
    assert mounted["scratch"] == "/tmp"  # noqa: S108 - inside the pod


@each_pod
def test_a_command_is_one_that_the_command_line_accepts(pod: dict[str, Any]) -> None:
    program, name, *options = container(pod)["args"]
    assert program == "traincost"
    if name == "worker":
        given = _parse_options(options)
        assert (given.once, given.max_idle) == ((True, 600) if pod["spec"].get("restartPolicy") else (False, None))
        return
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]  # a group of commands
    parsed = commands[name].make_context(name, options)
    (port,) = container(pod)["ports"]
    assert [parsed.params["port"]] == [str(port["containerPort"])] == arguments("EXPOSE")


@each_pod
def test_the_environment_holds_settings_that_exist_and_secrets_that_are_made(pod: dict[str, Any]) -> None:
    named = {variable["name"] for variable in container(pod)["env"]}
    assert {name for name in named if name.startswith(PREFIX)} <= SETTINGS | OF_WORKERS
    (source,) = container(pod)["envFrom"]
    secret = one("Secret", source["secretRef"]["name"])
    assert secret["stringData"].keys() <= SETTINGS | OF_WORKERS


def test_secrets_hold_none() -> None:
    values = [value for found in OBJECTS if found["kind"] == "Secret" for value in found["stringData"].values()]
    assert sorted(values) == ["KEY", "postgresql://USER:PASSWORD@HOST:5432/NAME"]
    assert not any("data" in found for found in OBJECTS)


def test_probes_ask_what_the_service_answers() -> None:
    only = container(PODS["api-Deployment"])
    paths = {name: only[f"{name}Probe"]["httpGet"] for name in ("startup", "readiness", "liveness")}
    assert paths == {
        "startup": {"path": "/readyz", "port": "http"},
        "readiness": {"path": "/readyz", "port": "http"},
        "liveness": {"path": "/healthz", "port": "http"},
    }
    liveness, readiness = only["livenessProbe"], only["readinessProbe"]
    assert liveness["periodSeconds"] * liveness["failureThreshold"] >= 30  # busy is not dead
    assert (
        readiness["periodSeconds"] * readiness["failureThreshold"] <= only["lifecycle"]["preStop"]["sleep"]["seconds"]
    )


def test_whoever_asks_whether_a_replica_is_ready_waits_until_it_says_so() -> None:
    only = container(PODS["api-Deployment"])
    waits = [only[f"{name}Probe"]["timeoutSeconds"] for name in ("startup", "readiness")]
    compose = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    waits += [int(seconds) for seconds in re.findall(r"timeout check (\d+)s", compose)]
    assert len(waits) == 3
    assert min(waits) >= CHECK_SECONDS + 1  # a look at the database, and the way there and back
    assert f"says so after {CHECK_SECONDS:g} s" in "".join(
        path.read_text(encoding="utf-8") for path in MANIFESTS.values()
    )


def test_a_replica_has_the_time_that_it_takes_to_end() -> None:
    spec = PODS["api-Deployment"]["spec"]
    wait_seconds = container(PODS["api-Deployment"])["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert spec["terminationGracePeriodSeconds"] >= wait_seconds + STOP_SECONDS + END_SECONDS + 5


def test_a_rolling_update_takes_no_replica_before_another_is_there() -> None:
    deployment = one("Deployment", "traincost")
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert "replicas" not in deployment["spec"]  # else each apply would undo what the autoscaler chose
    scaler = one("HorizontalPodAutoscaler", "traincost")["spec"]
    assert scaler["minReplicas"] >= 2
    assert scaler["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    for spread in deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]:
        assert spread["labelSelector"] == deployment["spec"]["selector"]


def test_everything_that_selects_pods_finds_them() -> None:
    api = PODS["api-Deployment"]["metadata"]["labels"]
    worker = PODS["worker-Deployment"]["metadata"]["labels"]
    assert PODS["worker-Job"]["metadata"]["labels"] == worker
    assert one("Service", "traincost")["spec"]["selector"] == api
    assert one("PodDisruptionBudget", "traincost")["spec"]["selector"]["matchLabels"] == api
    assert one("NetworkPolicy", "traincost")["spec"]["podSelector"]["matchLabels"] == api
    assert one("NetworkPolicy", "traincost-worker")["spec"]["podSelector"]["matchLabels"] == worker
    for found in OBJECTS:
        if found["kind"] == "Deployment":
            assert found["spec"]["selector"]["matchLabels"] == found["spec"]["template"]["metadata"]["labels"]


def test_workers_reach_the_service_by_its_name_and_the_network_lets_them() -> None:
    (port,) = one("Service", "traincost")["spec"]["ports"]
    for kind in ("worker-Deployment", "worker-Job"):
        (url,) = container(PODS[kind])["env"]
        assert url == {"name": "TRAINCOST_URL", "value": f"http://traincost:{port['port']}"}
        assert container(PODS[kind])["resources"]["limits"]["nvidia.com/gpu"] == "1"
    egress = one("NetworkPolicy", "traincost-worker")["spec"]["egress"]
    assert egress[-1]["ports"] == [{"port": port["port"], "protocol": "TCP"}]
    assert egress[-1]["to"][0]["podSelector"]["matchLabels"] == PODS["api-Deployment"]["metadata"]["labels"]


def _shell_lines() -> Iterator[list[str]]:
    for block in blocks_of(PAGE):
        if block.kind == "shell":
            yield from (shlex.split(line) for line in block.text.splitlines())


def test_the_page_fetches_every_manifest_and_applies_it() -> None:
    commands = [block.text for block in blocks_of(PAGE) if block.kind == "command"]
    assert sorted(command.rpartition("/guide/kubernetes/")[2] for command in commands) == sorted(MANIFESTS)
    words = {word for line in _shell_lines() if line[0] == "kubectl" for word in line}
    assert MANIFESTS.keys() <= words


def test_the_first_key_is_made_with_the_secret_of_the_database() -> None:
    (line,) = [line for line in _shell_lines() if "first-key" in line]
    (told,) = [word.partition("=")[2] for word in line if word.startswith("--overrides=")]
    (changed,) = json.loads(told)["spec"]["containers"]
    assert changed == {"name": "first-key", "envFrom": container(PODS["api-Deployment"])["envFrom"]}
    assert not any("PASSWORD" in word for line in _shell_lines() for word in line)


def test_the_page_builds_the_images_and_makes_keys_as_the_command_line_takes_them() -> None:
    builds = [line for line in _shell_lines() if line[:2] == ["docker", "build"]]
    tags = {line[line.index("--target") + 1]: line[line.index("--tag") + 1] for line in builds}
    assert tags == {stage(pod): container(pod)["image"] for pod in PODS.values()}
    made = [line[line.index("--") + 1 :] for line in _shell_lines() if "create" in line and "keys" in line]
    assert len(made) == 2
    keys = typer.main.get_command(app).commands["keys"].commands  # type: ignore[attr-defined]  # a group of commands
    for program, group, name, *options in made:
        assert (program, group) == ("traincost", "keys")
        assert keys[name].make_context(name, options).params["name"]
