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


def question_of(task: Any, resources: Any) -> dict[str, Any] | None:
    """Body of POST /v1/check for one of the resources of a task: its commands and GPUs; None without GPUs."""
    for gpu, gpus in (resources.accelerators or {}).items():
        cluster = {"gpu": gpu, "gpus": int(gpus) * task.num_nodes, "gpus_per_node": int(gpus)}
        return {"launch": {"format": "script", "content": task.run}, "cluster": cluster}
    return None


def check(question: dict[str, Any] | None) -> tuple[bool, str | None]:
    """Whether a task may be launched, and the id of its estimate; None where it was not checked."""
    if question is None:
        print("traincost: not checked: no accelerators", file=sys.stderr)
        return True, None
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {KEY}"} if KEY else {})}
    try:
        request = Request(f"{SERVICE}/v1/check", json.dumps(question).encode(), headers)
        with urlopen(request, timeout=10) as answer:
            found = json.load(answer)
        verdict, reason, estimate = found["verdict"], found["reason"], found["id"]
    except (OSError, ValueError, TypeError, LookupError, HTTPException) as error:
        print("traincost: not checked:", *str(error).split(), file=sys.stderr)
        return True, None
    print(f"{verdict}: {reason}")
    return verdict != "deny", estimate


if __name__ == "__main__":
    import sky

    task = sky.Task.from_yaml(sys.argv[1])
    checked = [(resources, *check(question_of(task, resources))) for resources in task.resources]
    kept = [(resources, estimate) for resources, may_start, estimate in checked if may_start]
    if not kept:
        sys.exit(1)
    if len(kept) < len(checked):
        task.set_resources(type(task.resources)(resources for resources, _ in kept))
    estimates = [estimate for _, estimate in kept if estimate]
    if estimates:
        task.update_envs({"TRAINCOST_ESTIMATE": " ".join(estimates)})
    sky.stream_and_get(sky.launch(task))
