"""A false worker: claims jobs and hands in results that it made up."""

from collections.abc import Mapping
from typing import Any

import httpx
from attacks.service import Caller

H100 = {"name": "NVIDIA H100 80GB HBM3", "count": 8, "memory_bytes": 85_520_809_984}
ENVIRONMENT = {
    "kind": "cuda", "device": H100["name"], "devices": 8, "memory_bytes": H100["memory_bytes"], "torch": "2.13.0",
    "driver": "580.82", "power_limit_watts": 700.0,
}  # fmt: skip
LEASE = "Traincost-Lease"
KINDS = ("launch-check", "sweep-shard", "sweep")


class FalseWorker:
    """A worker of some name with eight H100."""

    def __init__(self, caller: Caller, name: str = "node-1") -> None:
        self.caller, self.name = caller, name

    def claim(self, *kinds: str) -> dict[str, Any] | None:
        """A job, or none."""
        capabilities = {"devices": [H100], "cpu_threads": 2, "measures": True, "sweeps": True}
        body = {"worker": self.name, "kinds": list(kinds or KINDS), "capabilities": capabilities}
        answer = self.caller.post("/v1/worker/claim", body)
        if answer.status_code == 204:
            return None
        if answer.status_code != 200:
            raise RuntimeError(f"claim was answered {answer.status_code}: {answer.text[:200]}")
        job: dict[str, Any] = answer.json()["job"]
        return job

    def proof(self, job: Mapping[str, Any]) -> dict[str, Any]:
        """What shows that the job is this worker's: its lease, or in old versions its name and attempt."""
        return {"lease": job["lease"]} if "lease" in job else {"worker": self.name, "attempt": job["attempt"]}

    def heartbeat(self, job: Mapping[str, Any], progress: Any = None, **changed: Any) -> httpx.Response:
        """Report progress."""
        body = {**self.proof(job), **changed, **({} if progress is None else {"progress": progress})}
        return self.caller.post(f"/v1/worker/jobs/{job['id']}/heartbeat", body)

    def finish(self, job: Mapping[str, Any], outcome: str = "succeeded", **parts: Any) -> httpx.Response:
        """Hand in a result."""
        body = {**self.proof(job), "outcome": outcome, **parts}
        return self.caller.post(f"/v1/worker/jobs/{job['id']}/finish", body)

    def upload(self, job: Mapping[str, Any], name: str, content: bytes) -> httpx.Response:
        """Hand in a file."""
        proof = self.proof(job)
        headers = {"content-type": "application/gzip"}
        query = {}
        if "lease" in proof:
            headers[LEASE] = proof["lease"]
        else:
            query = {"worker": self.name, "attempt": str(job["attempt"])}
        return self.caller.ask(
            "PUT", f"/v1/worker/jobs/{job['id']}/files/{name}", params=query, content=content, headers=headers
        )

    def records(self, job: Mapping[str, Any], value: float) -> dict[str, Any]:
        """A result in which everything that takes time took the same time [second]."""
        return {"records": [record(task, value) for task in job["payload"]["tasks"]]}


def record(task: Mapping[str, Any], value: float) -> dict[str, Any]:
    """A record of one task whose every time is a value [second]."""
    parameters = task["parameters"]
    entries = parameters.get("products" if task["probe"] == "gemm" else "kernels", [])
    measurements = [
        {
            "operation": one.get("operation", "forward"),
            "shape": {name: part for name, part in one.items() if name != "operation"},
            "quantity": "seconds", "value": value, "low": value, "high": value, "repeats": 20,
            "relative_error_fraction": 1e-4,
        }
        for one in entries
    ]  # fmt: skip
    return {
        "probe": task["probe"], "status": "succeeded", "seconds": 1.0, "environment": ENVIRONMENT,
        "measurements": measurements,
    }  # fmt: skip
