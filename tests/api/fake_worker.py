"""A worker that speaks to the service as a real one does, and makes up what it measures."""

from collections.abc import Callable, Mapping
from typing import Any

import httpx

H100 = {"name": "NVIDIA H100 80GB HBM3", "count": 8, "memory_bytes": 85_520_809_984}

GPU_ENVIRONMENT = {
    "kind": "cuda", "device": H100["name"], "devices": 8, "memory_bytes": H100["memory_bytes"], "torch": "2.13.0",
    "driver": "580.82", "power_limit_watts": 700.0,
}  # fmt: skip
CPU_ENVIRONMENT = {"kind": "cpu", "device": "AMD EPYC 9454", "devices": 1, "memory_bytes": 64e9, "threads": 2}


class FakeWorker:
    """A worker of some name and hardware."""

    def __init__(
        self, ask: Callable[..., httpx.Response], name: str = "lab", *, gpu: bool = False, measures: bool = True
    ) -> None:
        self.ask, self.name = ask, name
        self.capabilities = {"devices": [H100] if gpu else [], "cpu_threads": 2, "measures": measures, "sweeps": True}
        self.environment: Mapping[str, Any] = GPU_ENVIRONMENT if gpu else CPU_ENVIRONMENT

    def claim(self, *kinds: str) -> dict[str, Any] | None:
        """A job of some kinds, launch checks where none is said; or none."""
        said = {"worker": self.name, "kinds": kinds or ["launch-check"], "capabilities": self.capabilities}
        answer = self.ask("POST", "/v1/worker/claim", json=said)
        assert answer.status_code in (200, 204), answer.text
        found: dict[str, Any] | None = answer.json()["job"] if answer.status_code == 200 else None
        return found

    def claimed(self) -> dict[str, Any]:
        """A launch check, of which there is one."""
        job = self.claim()
        assert job is not None
        return job

    def tell(self, job: Mapping[str, Any], progress: Mapping[str, Any]) -> str:
        """How far the job is; answers what to do."""
        said = {"lease": job["lease"], "progress": progress}
        state: str = self.ask("POST", f"/v1/worker/jobs/{job['id']}/heartbeat", json=said).json()["state"]
        return state

    def finish(self, job: Mapping[str, Any], outcome: str = "succeeded", **said: Any) -> int:
        """Hand a result in; answers the status."""
        body = {"lease": job["lease"], "outcome": outcome, **said}
        return self.ask("POST", f"/v1/worker/jobs/{job['id']}/finish", json=body).status_code

    def upload(self, job: Mapping[str, Any], name: str, content: bytes) -> None:
        """Leave a file."""
        path = f"/v1/worker/jobs/{job['id']}/files/{name}"
        headers = {"content-type": "application/gzip", "traincost-lease": job["lease"]}
        assert self.ask("PUT", path, content=content, headers=headers).status_code == 204

    def record(self, task: Mapping[str, Any], scale: float = 1.0, **changed: Any) -> dict[str, Any]:
        """What came of a task: whatever takes a second or a byte, times a scale."""
        measured = [_measured(operation, shape, quantity, scale) for operation, shape, quantity in _wanted(task)]
        return {
            "probe": task["probe"], "status": "succeeded", "seconds": 1.0, "environment": self.environment,
            "measurements": measured, **changed,
        }  # fmt: skip


def _wanted(task: Mapping[str, Any]) -> list[tuple[str, dict[str, Any], str]]:
    parameters = task["parameters"]
    found: list[tuple[str, dict[str, Any], str]] = []
    if task["probe"] in ("gemm", "elementwise"):
        entries = parameters["products" if task["probe"] == "gemm" else "kernels"]
        found = [(one["operation"], _without(one), "seconds") for one in entries]
    elif task["probe"] == "attention":
        found = [(way, dict(one), "seconds") for one in parameters["kernels"] for way in ("forward", "backward")]
    elif task["probe"] == "bandwidth":
        sizes = [{"size_bytes": size} for size in parameters["sizes_bytes"]]
        found = [(way, size, "bytes_per_s") for size in sizes for way in ("copy", "read")]
    elif task["probe"] == "collective":
        shapes = [{"size_bytes": size, "ranks": task["ranks"]} for size in parameters["sizes_bytes"]]
        found = [(name, shape, "seconds") for shape in shapes for name in parameters["operations"]]
    elif task["probe"] == "step":
        peak = "live_bytes_peak" if parameters["device"] == "cpu" else "allocated_peak"
        found = [(peak, {"depth": depth, "step": 3}, "bytes") for depth in parameters["depths"]]
        found += [("step", {"depth": depth}, "seconds") for depth in parameters["depths"]]
    elif task["probe"] == "context":
        found = [("context", {}, "bytes")]
    return found


def _without(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name != "operation"}


def _measured(operation: str, shape: dict[str, Any], quantity: str, scale: float) -> dict[str, Any]:
    value = scale * shape.get("depth", 1) * (1e9 if quantity != "seconds" else 1e-3)
    return {
        "operation": operation, "shape": shape, "quantity": quantity, "value": value, "low": 0.9 * value,
        "high": 1.1 * value, "repeats": 20, "relative_error_fraction": 1e-4,
    }  # fmt: skip
