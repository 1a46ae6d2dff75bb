"""Judges the workloads that wait for Kueue's AdmissionCheck: runs in a pod, needs the standard library alone.

A workload is ready unless it runs out of memory; while the service does not answer, workloads are let through.
"""

import json
import os
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
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


def call(method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
    """What the API server answers.

    Args:
        method: GET or PUT
        path: of the resource
        body: what to put

    Returns:
        the object
    """
    headers = {"Authorization": f"Bearer {(ACCOUNT / 'token').read_text()}", "Content-Type": "application/json"}
    authority = ACCOUNT / "ca.crt"
    trusted = ssl.create_default_context(cafile=str(authority)) if authority.exists() else None
    data = None if body is None else json.dumps(body).encode()
    request = Request(f"{API_SERVER}{path}", data, headers, method=method)
    with urlopen(request, timeout=LONGEST_WAIT_SECONDS, context=trusted) as answer:
        return json.load(answer)


def judged(workload: Mapping[str, Any]) -> tuple[str, str]:
    """State and message of a workload's check.

    Args:
        workload: as Kueue keeps it

    Returns:
        Rejected for what runs out of memory, Ready for all else, with the reason
    """
    metadata = workload["metadata"]
    kept = {"kind": "Workload", "metadata": {"annotations": metadata.get("annotations", {})}, "spec": workload["spec"]}
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {KEY}"} if KEY else {})}
    data = json.dumps(kept).encode()
    request = Request(f"{SERVICE}/v1/adapters/kubernetes/check", data, headers)
    try:
        with urlopen(request, timeout=LONGEST_WAIT_SECONDS) as answer:
            found = json.load(answer)
    except HTTPError as error:
        return "Ready", f"not checked: the service answers {error.code}"
    except (OSError, ValueError) as error:
        return "Ready", f"not checked: the service does not answer ({type(error).__name__})"
    estimate = f" ({found['check']['id']})" if found["check"] else ""
    return STATES.get(found["verdict"], "Ready"), found["reason"] + estimate


def judge_waiting(names: frozenset[str]) -> None:
    """Give every workload that waits for a check its state.

    Args:
        names: AdmissionChecks that this controller answers for
    """
    for workload in call("GET", f"{KUEUE}/workloads")["items"]:
        checks = workload.get("status", {}).get("admissionChecks", [])
        waiting = [check for check in checks if check["name"] in names and check["state"] == "Pending"]
        if not waiting:
            continue
        state, message = judged(workload)
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        for check in waiting:
            check.update(state=state, message=message, lastTransitionTime=now)
        metadata = workload["metadata"]
        whole = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload", **workload}
        call("PUT", f"{KUEUE}/namespaces/{metadata['namespace']}/workloads/{metadata['name']}/status", whole)


def take_up_checks() -> frozenset[str]:
    """Tell Kueue that the AdmissionChecks of this controller are looked after.

    Returns:
        their names
    """
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
        kept = [one for one in conditions if one["type"] != "Active"]
        whole = {
            "apiVersion": "kueue.x-k8s.io/v1beta1",
            "kind": "AdmissionCheck",
            **check,
            "status": {"conditions": [*kept, active]},
        }
        call("PUT", f"{KUEUE}/admissionchecks/{check['metadata']['name']}/status", whole)
    return frozenset(names)


def main() -> None:
    """Look again and again; what changed meanwhile, or fails, is looked at in the next round."""
    while True:
        try:
            judge_waiting(take_up_checks())
        except (URLError, OSError, ValueError) as error:
            print(f"trying again: {error}", flush=True)
        time.sleep(EVERY_SECONDS)


if __name__ == "__main__":
    main()
