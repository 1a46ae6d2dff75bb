"""The files that operators fetch, each run against a live service."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import httpx
import pytest
import yaml

from service.formats.launchers.manifests import KINDS
from service.formats.program import nodes_of
from tests.formats.tools import read_by, written
from tests.house.source import SERVICE
from tests.kubernetes_api import FAILING, ApiServer
from tests.live import bearer, serving

MEGATRON = (
    "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers {layers} --hidden-size 4096 --num-attention-heads 32 "
    "--ffn-hidden-size 14336 --vocab-size 128256 --swiglu --normalization RMSNorm --disable-bias-linear --bf16 "
    "--position-embedding-type rope --untie-embeddings-and-output-weights --seq-length 4096 --micro-batch-size 1 "
    "--global-batch-size 32 --tensor-model-parallel-size 8 --attention-backend flash"
)


SMALL, LARGE = MEGATRON.format(layers=32), MEGATRON.format(layers=320)
NOWHERE = "127.0.0.1:9"
"""An address where nobody listens."""


class Live(NamedTuple):
    """A live service that asks for keys."""

    address: str
    headers: dict[str, str]

    @property
    def key(self) -> str:
        """The key that the headers hold."""
        return self.headers["Authorization"].removeprefix("Bearer ")


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("service")
    headers = bearer(folder, "read")
    with serving(folder) as address:
        yield Live(address, headers)


def fetched(live: Live, name: str, folder: Path) -> Path:
    """A file as operators fetch it."""
    answer = httpx.get(f"http://{live.address}/v1/adapters/{name}", headers=live.headers, timeout=30)
    assert answer.status_code == 200, answer.text
    assert live.address in answer.text or name == "kueue/manifests.yaml"
    file = folder / Path(name).name
    file.write_text(answer.text, encoding="utf-8")
    return file


def judged_by_controller(controller: Path, **variables: str) -> tuple[dict[str, Any], str]:
    """What the controller puts into the API server in its first round, and what it says."""
    (controller.parent / "token").write_text("secret", encoding="utf-8")
    with ApiServer({**dict.fromkeys(FAILING, SMALL), "small": SMALL, "large": LARGE}) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        places = {
            "API_SERVER": f"http://127.0.0.1:{server.server_port}",
            "SERVICE_ACCOUNT": str(controller.parent),
            **variables,
        }
        command, environment = [sys.executable, str(controller)], {**os.environ, **places}
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        try:
            end = time.monotonic() + 60
            while len(server.put) < 3 and time.monotonic() < end:
                time.sleep(0.05)
        finally:
            process.terminate()
            said, _ = process.communicate(timeout=20)
            server.shutdown()
        return server.put, said


def checks_of(put: dict[str, Any], name: str) -> dict[str, Any]:
    """The checks of a workload by name."""
    account, whole = put[f"/namespaces/team/workloads/{name}/status"]
    assert account == "Bearer secret"
    assert whole["metadata"]["resourceVersion"] == "7"
    return {check["name"]: check for check in whole["status"]["admissionChecks"]}


def test_kueues_controller_judges_every_workload_whatever_happens_to_another(live: Live, tmp_path: Path) -> None:
    put, said = judged_by_controller(fetched(live, "kueue/controller.py", tmp_path), TRAINCOST_KEY=live.key)
    _, check = put["/admissionchecks/traincost/status"]
    assert [(one["type"], one["status"]) for one in check["status"]["conditions"]] == [("Active", "True")]
    small, large = checks_of(put, "small"), checks_of(put, "large")
    assert small["traincost"]["state"] == "Ready"
    assert "(est_" in small["traincost"]["message"]
    assert large["traincost"]["state"] == "Rejected"
    assert large["traincost"]["message"].startswith("out of memory: ")
    assert small["other"]["state"] == large["other"]["state"] == "Pending"
    refused, broken = said.splitlines()
    assert refused.startswith("namespaces/team/workloads/refused is looked at again: HTTPError: HTTP Error 422")
    assert broken.startswith("namespaces/team/workloads/broken is looked at again: BadStatusLine: what?")


def test_without_the_service_the_controller_lets_workloads_through(live: Live, tmp_path: Path) -> None:
    controller = fetched(live, "kueue/controller.py", tmp_path)
    for variables, why in (
        ({"TRAINCOST_URL": f"http://{NOWHERE}"}, "does not answer (URLError)"),
        ({"TRAINCOST_KEY": "tck_none.none"}, "answers 401"),
    ):
        put, _ = judged_by_controller(controller, **variables)
        for name in ("small", "large"):
            found = checks_of(put, name)["traincost"]
            assert (found["state"], found["message"]) == ("Ready", f"not checked: the service {why}")


@pytest.fixture
def submit(live: Live, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The checked submission with a Ray that says what reaches it."""
    program = fetched(live, "ray/checked_submit.py", tmp_path)
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "__init__.py").write_text("")
    (tmp_path / "ray" / "job_submission.py").write_text(
        "class JobSubmissionClient:\n"
        "    def __init__(self, address): pass\n"
        "    def submit_job(self, *, entrypoint, metadata): return f'submitted {metadata}'\n"
    )

    def submitted(
        entrypoint: str, address: str = live.address, key: str = live.key
    ) -> subprocess.CompletedProcess[str]:
        program.write_text(program.read_text(encoding="utf-8").replace(live.address, address), encoding="utf-8")
        command = [sys.executable, str(program), "a100", "8", entrypoint]
        environment = {**os.environ, "PYTHONPATH": str(tmp_path), "TRAINCOST_KEY": key}
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=60)

    return submitted


def test_a_checked_submission_reaches_ray_only_where_the_job_fits(
    submit: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    fits, large = submit(SMALL), submit(LARGE)
    assert fits.returncode == 0, fits.stderr
    assert fits.stdout.startswith("ok: fits: ")
    assert "\nsubmitted {'estimate': 'est_" in fits.stdout
    assert large.returncode == 1
    assert large.stdout.startswith("deny: out of memory: ")
    assert "submitted" not in large.stdout


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"address": NOWHERE}, "Connection refused"),
        ({"key": "tck_none.none"}, "401"),
        ({"entrypoint": "hostname"}, "the script starts no training"),
    ],
)
def test_what_is_not_checked_reaches_ray(
    submit: Callable[..., subprocess.CompletedProcess[str]], asked: dict[str, str], why: str
) -> None:
    done = submit(**{"entrypoint": LARGE, **asked})
    assert (done.returncode, done.stdout) == (0, "submitted {}\n")
    (line,) = done.stderr.splitlines()
    assert line.startswith("traincost: not checked: ")
    assert why in line


class _Garbled(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.wfile.write(self.headers["Authorization"].removeprefix("Bearer ").replace("|", "\r\n").encode())


@pytest.mark.parametrize("answer", ["what?|", "HTTP/1.1 200 OK||[]", "HTTP/1.1 200 OK||<html>", "HTTP/1.1 200 OK||{}"])
def test_an_answer_that_cannot_be_read_does_not_keep_a_job_from_ray(
    submit: Callable[..., subprocess.CompletedProcess[str]], answer: str
) -> None:
    with HTTPServer(("127.0.0.1", 0), _Garbled) as server:
        Thread(target=server.handle_request, daemon=True).start()
        done = submit(LARGE, f"127.0.0.1:{server.server_port}", answer)
    assert (done.returncode, done.stdout) == (0, "submitted {}\n")
    assert done.stderr.startswith("traincost: not checked: ")


def test_skypilots_own_task_becomes_the_question(live: Live) -> None:
    pairs = written("skypilot")
    program = str(SERVICE / "web" / "adapters" / "skypilot" / "checked_launch.py")
    asked = read_by("skypilot", "checked_launch", [file.content for _, file in pairs], program)
    assert len(asked) == len(pairs)
    for (question, file), (body,) in zip(pairs, asked, strict=True):
        assert body["gpus"] == question.cluster.gpus
        assert body["gpus_per_node"] == nodes_of(question).gpus_each
        assert body["script"] == yaml.safe_load(file.content)["run"]
    check = f"http://{live.address}/v1/adapters/scripts/check"
    answer = httpx.post(check, json=asked[0][0], headers=live.headers, timeout=30)
    assert answer.json()["verdict"] in {"ok", "warn", "deny"}, answer.text


def test_skypilot_launches_on_whatever_is_not_denied(
    live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = fetched(live, "skypilot/checked_launch.py", tmp_path)
    alone = tmp_path / "alone.py"
    alone.write_text(program.read_text(encoding="utf-8").replace(live.address, NOWHERE), encoding="utf-8")
    monkeypatch.setenv("TRAINCOST_KEY", live.key)
    either = {"any_of": [{"accelerators": "H200:8"}, {"accelerators": "A100-80GB:8"}]}
    both = [{"A100-80GB": 8}, {"H200": 8}]
    cases: list[tuple[Path, Any, str, int, list[dict[str, int]]]] = [
        (program, either, SMALL, 2, both),
        (program, either, MEGATRON.format(layers=120), 1, [{"H200": 8}]),
        (program, {"ordered": either["any_of"]}, MEGATRON.format(layers=120), 1, [{"H200": 8}]),
        (program, either, LARGE, 0, []),
        (program, {"cpus": "4+"}, LARGE, 0, [{}]),
        (program, either, "hostname", 0, both),
        (alone, either, LARGE, 0, both),
    ]
    tasks = [[str(path), yaml.safe_dump({"resources": gpus, "run": run})] for path, gpus, run, *_ in cases]
    for done, (*_, checked, gpus) in zip(read_by("skypilot", "launched", tasks), cases, strict=True):
        assert done["code"] == (0 if gpus else 1), done
        assert sorted(done["gpus"], key=str) == gpus
        assert "".join(env.get("TRAINCOST_ESTIMATE", "") for env in done["envs"]).count("est_") == checked
        unchecked = done["warned"].splitlines()
        assert len(unchecked) == (0 if checked or not gpus else len(gpus)), done
        assert all(line.startswith("traincost: not checked: ") for line in unchecked)


def test_kubernetes_knows_every_field_of_the_manifests(live: Live, tmp_path: Path) -> None:
    names = ("kubernetes/webhook.yaml", "kueue/manifests.yaml")
    contents = [fetched(live, name, tmp_path).read_text(encoding="utf-8") for name in names]
    (check,) = read_by("kubernetes", "manifests", contents)
    assert check == {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "AdmissionCheck",
        "metadata": {"name": "traincost"},
        "spec": {"controllerName": "traincost/check"},
    }


def test_the_webhook_never_stands_in_the_way(live: Live, tmp_path: Path) -> None:
    found = yaml.safe_load(fetched(live, "kubernetes/webhook.yaml", tmp_path).read_text(encoding="utf-8"))
    (webhook,) = found["webhooks"]
    assert webhook["clientConfig"]["url"] == f"https://{live.address}/v1/adapters/kubernetes/admission/TOKEN"
    assert (webhook["failurePolicy"], webhook["sideEffects"], webhook["timeoutSeconds"]) == ("Ignore", "None", 2)


def test_the_webhook_hears_of_every_kind_that_is_read_and_of_no_other(live: Live, tmp_path: Path) -> None:
    found = yaml.safe_load(fetched(live, "kubernetes/webhook.yaml", tmp_path).read_text(encoding="utf-8"))
    (webhook,) = found["webhooks"]
    resources = {resource for rule in webhook["rules"] for resource in rule["resources"]}
    assert resources == {f"{kind.lower()}s" for kind in KINDS if kind != "Workload"}
    assert {operation for rule in webhook["rules"] for operation in rule["operations"]} == {"CREATE"}
