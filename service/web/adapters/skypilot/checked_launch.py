"""Launches a SkyPilot task unless it would run out of memory: python checked_launch.py task.yaml.

Resources on which it would are left out. A task that cannot be checked, or a service that does not answer, does not
keep it from being launched.
"""

import json
import os
import sys
from http.client import HTTPException
from typing import Any
from urllib.request import Request, urlopen

SERVICE = "http://localhost:8000"
KEY = os.environ.get("TRAINCOST_KEY", "")


def job_of(task: Any, resources: Any) -> dict[str, Any] | None:
    """The job of one of the resources of a task, with its commands and GPUs; None without whole GPUs."""
    for gpu, gpus in (resources.accelerators or {}).items():
        if int(gpus) == gpus:
            return {
                "script": task.run or "",
                "gpu": gpu,
                "gpus": int(gpus) * task.num_nodes,
                "gpus_per_node": int(gpus),
            }
    return None


def check(job: dict[str, Any] | None) -> tuple[bool, str | None]:
    """Whether a task may be launched, and the id of its estimate; None where it was not checked."""
    if job is None:
        print("traincost: not checked: no accelerators, or a part of one", file=sys.stderr)
        return True, None
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {KEY}"} if KEY else {})}
    try:
        request = Request(f"{SERVICE}/v1/adapters/scripts/check", json.dumps(job).encode(), headers)
        with urlopen(request, timeout=10) as answer:
            found = json.load(answer)
        verdict, reason, estimate = found["verdict"], found["reason"], (found["check"] or {}).get("id")
        warnings = [f"traincost: {warning}" for warning in found["warnings"]]
    except (OSError, ValueError, TypeError, LookupError, AttributeError, HTTPException) as error:
        print("traincost: not checked:", *str(error).split(), file=sys.stderr)
        return True, None
    if verdict == "unknown":
        warnings.insert(0, f"traincost: {reason}")
    else:
        print(f"{verdict}: {reason}")
    for warning in warnings:
        print(warning, file=sys.stderr)
    return verdict != "deny", estimate


if __name__ == "__main__":
    import sky

    task = sky.Task.from_yaml(sys.argv[1])
    checked = [(resources, *check(job_of(task, resources))) for resources in task.resources]
    kept = [(resources, estimate) for resources, may_start, estimate in checked if may_start]
    if not kept:
        sys.exit(1)
    if len(kept) < len(checked):
        task.set_resources(type(task.resources)(resources for resources, _ in kept))
    estimates = [estimate for _, estimate in kept if estimate]
    if estimates:
        task.update_envs({"TRAINCOST_ESTIMATE": " ".join(estimates)})
    sky.stream_and_get(sky.launch(task))
