"""Judges the workloads that wait for Kueue's AdmissionCheck: runs in a pod, needs the standard library alone.

A workload is ready unless it runs out of memory; while the service does not answer, workloads are let through.
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
"""No answer, a refusing one, and one that cannot be read."""


@contextmanager
def looked_at_again(what: str) -> Iterator[None]:
    """A failure here is logged, stops nothing else, and is retried in the next round.

    Args:
        what: is looked at
    """
    try:
        yield
    except FAILURES as error:
        print(f"{what} is looked at again: {type(error).__name__}:", *str(error).split(), flush=True)


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
        estimate = f" ({found['check']['id']})" if found["check"] else ""
        return STATES.get(found["verdict"], "Ready"), found["reason"] + estimate
    except HTTPError as error:
        return "Ready", f"not checked: the service answers {error.code}"
    except FAILURES as error:
        return "Ready", f"not checked: the service does not answer ({type(error).__name__})"


def judge_waiting(names: frozenset[str]) -> None:
    """Give every workload that waits for a check its state.

    Args:
        names: AdmissionChecks that this controller answers for
    """
    for workload in call("GET", f"{KUEUE}/workloads")["items"]:
        place = f"namespaces/{workload['metadata']['namespace']}/workloads/{workload['metadata']['name']}"
        with looked_at_again(place):
            judge(workload, f"{KUEUE}/{place}/status", names)


def judge(workload: Mapping[str, Any], path: str, names: frozenset[str]) -> None:
    """Give a workload its state where it waits for a check.

    Args:
        workload: as Kueue keeps it
        path: of its status
        names: AdmissionChecks that this controller answers for
    """
    checks = workload.get("status", {}).get("admissionChecks", [])
    waiting = [check for check in checks if check["name"] in names and check["state"] == "Pending"]
    if not waiting:
        return
    state, message = judged(workload)
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    for check in waiting:
        check.update(state=state, message=message, lastTransitionTime=now)
    call("PUT", path, {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload", **workload})


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
        with looked_at_again(check["metadata"]["name"]):
            call("PUT", f"{KUEUE}/admissionchecks/{check['metadata']['name']}/status", whole)
    return frozenset(names)


def main() -> None:
    """Look again and again; what changed meanwhile, or fails, is looked at in the next round."""
    while True:
        with looked_at_again("the cluster"):
            judge_waiting(take_up_checks())
        time.sleep(EVERY_SECONDS)


if __name__ == "__main__":
    main()
