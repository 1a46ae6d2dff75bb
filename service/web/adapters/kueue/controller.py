"""Controller of an AdmissionCheck of Kueue: runs in a pod, and needs only the standard library.

It rejects workloads that run out of memory. Without an answer of the service it lets workloads through.
"""

import json
import os
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

SERVICE = os.environ.get("TRAINCOST_URL", "http://localhost:8000")
KEY = os.environ.get("TRAINCOST_KEY", "")
API_SERVER = os.environ.get("API_SERVER", "https://kubernetes.default.svc")
ACCOUNT = Path(os.environ.get("SERVICE_ACCOUNT", "/var/run/secrets/kubernetes.io/serviceaccount"))
CONTROLLER = "traincost/check"
KUEUE = "/apis/kueue.x-k8s.io/v1beta1"
EVERY_SECONDS = 5.0
LONGEST_WAIT_SECONDS = 10.0
STATES = {"deny": "Rejected"}
FAILURES = (OSError, ValueError, TypeError, LookupError, HTTPException)
"""Errors of a request: no answer, a refusal, or an unreadable answer."""


@contextmanager
def logged_failures(what: str) -> Iterator[None]:
    """Log a failure of the block and go on; the next round retries it."""
    try:
        yield
    except FAILURES as error:
        print(f"{what} is looked at again: {type(error).__name__}:", *str(error).split(), flush=True)


def call(method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
    """Send a request to the API server."""
    headers = {"Authorization": f"Bearer {(ACCOUNT / 'token').read_text()}", "Content-Type": "application/json"}
    authority = ACCOUNT / "ca.crt"
    trusted = ssl.create_default_context(cafile=str(authority)) if authority.exists() else None
    data = None if body is None else json.dumps(body).encode()
    request = Request(f"{API_SERVER}{path}", data, headers, method=method)
    with urlopen(request, timeout=LONGEST_WAIT_SECONDS, context=trusted) as answer:
        return json.load(answer)


def check_result(workload: Mapping[str, Any]) -> tuple[str, str]:
    """The state of a workload (Rejected where it runs out of memory, else Ready), and the reason."""
    metadata = workload["metadata"]
    checked = {
        "kind": "Workload",
        "metadata": {"annotations": metadata.get("annotations", {})},
        "spec": workload["spec"],
    }
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {KEY}"} if KEY else {})}
    data = json.dumps(checked).encode()
    request = Request(f"{SERVICE}/v1/adapters/kubernetes/check", data, headers)
    try:
        with urlopen(request, timeout=LONGEST_WAIT_SECONDS) as answer:
            result = json.load(answer)
        estimate = f" ({result['check']['id']})" if result["check"] else ""
        return STATES.get(result["verdict"], "Ready"), "; ".join([result["reason"] + estimate, *result["warnings"]])
    except HTTPError as error:
        return "Ready", f"not checked: the service answers {error.code}"
    except FAILURES as error:
        return "Ready", f"not checked: the service does not answer ({type(error).__name__})"


def set_pending_states(names: frozenset[str]) -> None:
    """Set the check states of all pending workloads."""
    for workload in call("GET", f"{KUEUE}/workloads")["items"]:
        resource = f"namespaces/{workload['metadata']['namespace']}/workloads/{workload['metadata']['name']}"
        with logged_failures(resource):
            set_state(workload, f"{KUEUE}/{resource}/status", names)


def set_state(workload: Mapping[str, Any], path: str, names: frozenset[str]) -> None:
    """Set the check states of a workload, if any is pending."""
    checks = workload.get("status", {}).get("admissionChecks", [])
    waiting = [check for check in checks if check["name"] in names and check["state"] == "Pending"]
    if not waiting:
        return
    state, message = check_result(workload)
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    for check in waiting:
        check.update(state=state, message=message, lastTransitionTime=now)
    call("PUT", path, {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload", **workload})


def activate_checks() -> frozenset[str]:
    """Mark the AdmissionChecks of this controller as active, and return their names."""
    names = set()
    for check in call("GET", f"{KUEUE}/admissionchecks")["items"]:
        if check["spec"]["controllerName"] != CONTROLLER:
            continue
        names.add(check["metadata"]["name"])
        conditions = check.get("status", {}).get("conditions", [])
        if any(one["type"] == "Active" and one["status"] == "True" for one in conditions):
            continue
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        active = {"type": "Active", "status": "True", "reason": "Active", "message": "", "lastTransitionTime": now}
        others = [one for one in conditions if one["type"] != "Active"]
        updated = {
            "apiVersion": "kueue.x-k8s.io/v1beta1",
            "kind": "AdmissionCheck",
            **check,
            "status": {"conditions": [*others, active]},
        }
        with logged_failures(check["metadata"]["name"]):
            call("PUT", f"{KUEUE}/admissionchecks/{check['metadata']['name']}/status", updated)
    return frozenset(names)


def main() -> None:
    """Check pending workloads in rounds, without end."""
    while True:
        with logged_failures("the cluster"):
            set_pending_states(activate_checks())
        time.sleep(EVERY_SECONDS)


if __name__ == "__main__":
    main()
