"""Launches a SkyPilot task unless it would run out of memory: python checked_launch.py task.yaml."""

import json
import os
import sys
from typing import Any
from urllib.request import Request, urlopen

SERVICE = "http://localhost:8000"
KEY = os.environ.get("TRAINCOST_KEY", "")


def question_of(task: Any) -> dict[str, Any]:
    """What POST /v1/check is asked of a task.

    Args:
        task: a sky.Task that starts one kind of GPU

    Returns:
        the body: its commands, and the GPUs of all its nodes
    """
    resources = next(iter(task.resources))
    ((gpu, gpus),) = resources.accelerators.items()
    cluster = {"gpu": gpu, "gpus": int(gpus) * task.num_nodes, "gpus_per_node": int(gpus)}
    return {"launch": {"format": "script", "content": task.run}, "cluster": cluster}


def check(question: dict[str, Any]) -> dict[str, Any]:
    """What the service says.

    Args:
        question: of a task

    Returns:
        the check
    """
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {KEY}"} if KEY else {})}
    request = Request(f"{SERVICE}/v1/check", json.dumps(question).encode(), headers)
    with urlopen(request, timeout=10) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


if __name__ == "__main__":
    import sky

    task = sky.Task.from_yaml(sys.argv[1])
    found = check(question_of(task))
    print(f"{found['verdict']}: {found['reason']}")
    if found["verdict"] == "deny":
        sys.exit(1)
    task.update_envs({"TRAINCOST_ESTIMATE": found["id"]})
    sky.stream_and_get(sky.launch(task))
