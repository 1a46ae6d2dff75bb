"""As much of a Kubernetes API server as Kueue's controller asks, with workloads that wait for their check."""

import json
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KUEUE = "/apis/kueue.x-k8s.io/v1beta1"


def workload(name: str, command: str) -> dict[str, Any]:
    """A workload that waits for the check."""
    container = {
        "name": "pytorch",
        "command": ["bash", "-c", command],
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


FAILING = {"refused": b"HTTP/1.1 422 Unprocessable Content\r\n\r\n", "broken": b"what?\r\n"}
"""Workloads that cannot be put, and what the API server says then."""


class ApiServer(ThreadingHTTPServer):
    """As much of a Kubernetes API server as the controller asks."""

    def __init__(self, commands: Mapping[str, str]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        check = {"metadata": {"name": "traincost"}, "spec": {"controllerName": "traincost/check"}}
        other = {"metadata": {"name": "other"}, "spec": {"controllerName": "somebody/else"}}
        self.held: dict[str, Any] = {
            f"{KUEUE}/admissionchecks": {"items": [check, other]},
            f"{KUEUE}/workloads": {"items": [workload(*one) for one in commands.items()]},
        }
        self.put: dict[str, Any] = {}


class _Handler(BaseHTTPRequestHandler):
    server: ApiServer

    def do_GET(self) -> None:
        self._answer(self.server.held[self.path])

    def do_PUT(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        failure = FAILING.get(body["metadata"]["name"])
        if failure:
            self.wfile.write(failure)
            self.close_connection = True
            return
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
