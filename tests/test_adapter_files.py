"""Do the files that operators fetch do what they say? Each is run against a live service."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import httpx
import pytest
import yaml

from service.exports.program import nodes_of
from tests.exports.tools import read_by, written
from tests.house.source import SERVICE
from tests.live import bearer, serving

KUEUE = "/apis/kueue.x-k8s.io/v1beta1"
MEGATRON = (
    "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers {layers} --hidden-size 4096 --num-attention-heads 32 "
    "--ffn-hidden-size 14336 --vocab-size 128256 --swiglu --normalization RMSNorm --disable-bias-linear --bf16 "
    "--position-embedding-type rope --untie-embeddings-and-output-weights --seq-length 4096 --micro-batch-size 1 "
    "--global-batch-size 32 --tensor-model-parallel-size 8 --attention-backend flash"
)


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


def workload(name: str, layers: int) -> dict[str, Any]:
    """A workload that waits for the check."""
    container = {
        "name": "pytorch",
        "command": ["bash", "-c", MEGATRON.format(layers=layers)],
        "resources": {"requests": {"nvidia.com/gpu": "8"}},
    }
    spec = {"containers": [container], "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}}
    return {
        "metadata": {"name": name, "namespace": "team", "resourceVersion": "7"},
        "spec": {"podSets": [{"name": "main", "count": 1, "template": {"spec": spec}}]},
        "status": {
            "admissionChecks": [
                {"name": "other", "state": "Pending", "message": ""},
                {"name": "traincost", "state": "Pending", "message": ""},
            ]
        },
    }


class ApiServer(ThreadingHTTPServer):
    """As much of a Kubernetes API server as the controller asks."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        check = {"metadata": {"name": "traincost"}, "spec": {"controllerName": "traincost/check"}}
        other = {"metadata": {"name": "other"}, "spec": {"controllerName": "somebody/else"}}
        self.held: dict[str, Any] = {
            f"{KUEUE}/admissionchecks": {"items": [check, other]},
            f"{KUEUE}/workloads": {"items": [workload("small", 32), workload("large", 320)]},
        }
        self.put: dict[str, Any] = {}


class _Handler(BaseHTTPRequestHandler):
    server: ApiServer

    def do_GET(self) -> None:
        self._answer(self.server.held[self.path])

    def do_PUT(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.put[self.path.removeprefix(KUEUE)] = (self.headers["Authorization"], body)
        self._answer(body)

    def _answer(self, body: Any) -> None:
        content = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def judged_by_controller(controller: Path, **variables: str) -> dict[str, Any]:
    """What the controller puts into the API server in its first round."""
    (controller.parent / "token").write_text("secret", encoding="utf-8")
    with ApiServer() as server:
        Thread(target=server.serve_forever, daemon=True).start()
        places = {
            "API_SERVER": f"http://127.0.0.1:{server.server_port}",
            "SERVICE_ACCOUNT": str(controller.parent),
            **variables,
        }
        process = subprocess.Popen([sys.executable, str(controller)], env={**os.environ, **places})
        try:
            end = time.monotonic() + 60
            while len(server.put) < 3 and time.monotonic() < end:
                time.sleep(0.05)
        finally:
            process.terminate()
            process.wait(timeout=20)
            server.shutdown()
        return server.put


def checks_of(put: dict[str, Any], name: str) -> dict[str, Any]:
    """The checks of a workload by name."""
    account, whole = put[f"/namespaces/team/workloads/{name}/status"]
    assert account == "Bearer secret"
    assert whole["metadata"]["resourceVersion"] == "7"
    return {check["name"]: check for check in whole["status"]["admissionChecks"]}


def test_kueues_controller_readies_what_fits_and_rejects_what_does_not(live: Live, tmp_path: Path) -> None:
    put = judged_by_controller(fetched(live, "kueue/controller.py", tmp_path), TRAINCOST_KEY=live.key)
    _, check = put["/admissionchecks/traincost/status"]
    assert [(one["type"], one["status"]) for one in check["status"]["conditions"]] == [("Active", "True")]
    small, large = checks_of(put, "small"), checks_of(put, "large")
    assert small["traincost"]["state"] == "Ready"
    assert "(est_" in small["traincost"]["message"]
    assert large["traincost"]["state"] == "Rejected"
    assert large["traincost"]["message"].startswith("out of memory: ")
    assert small["other"]["state"] == large["other"]["state"] == "Pending"


def test_without_the_service_the_controller_lets_workloads_through(live: Live, tmp_path: Path) -> None:
    controller = fetched(live, "kueue/controller.py", tmp_path)
    for variables, why in (
        ({"TRAINCOST_URL": "http://127.0.0.1:9"}, "does not answer (URLError)"),
        ({"TRAINCOST_KEY": "tck_none.none"}, "answers 401"),
    ):
        put = judged_by_controller(controller, **variables)
        for name in ("small", "large"):
            found = checks_of(put, name)["traincost"]
            assert (found["state"], found["message"]) == ("Ready", f"not checked: the service {why}")


def test_a_checked_submission_reaches_ray_only_where_the_job_fits(live: Live, tmp_path: Path) -> None:
    program = fetched(live, "ray/checked_submit.py", tmp_path)
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "__init__.py").write_text("")
    (tmp_path / "ray" / "job_submission.py").write_text(
        "class JobSubmissionClient:\n"
        "    def __init__(self, address): pass\n"
        "    def submit_job(self, *, entrypoint, metadata): return 'submitted ' + metadata['estimate']\n"
    )

    def submitted(layers: int) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(program), "a100", "8", MEGATRON.format(layers=layers)]
        environment = {**os.environ, "PYTHONPATH": str(tmp_path), "TRAINCOST_KEY": live.key}
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=60)

    fits, large = submitted(32), submitted(320)
    assert fits.returncode == 0, fits.stderr
    assert fits.stdout.startswith("ok: fits: ")
    assert "\nsubmitted est_" in fits.stdout
    assert large.returncode == 1
    assert large.stdout.startswith("deny: out of memory: ")
    assert "submitted" not in large.stdout


def test_skypilots_own_task_becomes_the_question(live: Live) -> None:
    pairs = written("skypilot")
    program = str(SERVICE / "web" / "adapters" / "skypilot" / "checked_launch.py")
    asked = read_by("skypilot", "checked_launch", [file.content for _, file in pairs], program)
    assert len(asked) == len(pairs)
    for (question, file), body in zip(pairs, asked, strict=True):
        assert body["cluster"]["gpus"] == question.cluster.gpus
        assert body["cluster"]["gpus_per_node"] == nodes_of(question).gpus_each
        assert body["launch"] == {"format": "script", "content": yaml.safe_load(file.content)["run"]}
    answer = httpx.post(f"http://{live.address}/v1/check", json=asked[0], headers=live.headers, timeout=30)
    assert answer.status_code in {200, 422}
    assert answer.status_code == 200 or "launch" not in answer.text


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
