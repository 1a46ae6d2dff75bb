"""Submits a job to Ray unless it would run out of memory: python checked_submit.py GPU GPUS COMMAND."""

import json
import os
import sys
from typing import Any
from urllib.request import Request, urlopen

SERVICE = "http://localhost:8000"
KEY = os.environ.get("TRAINCOST_KEY", "")
RAY = "http://127.0.0.1:8265"


def check(entrypoint: str, gpu: str, gpus: int) -> dict[str, Any]:
    """What the service says of a command on so many GPUs.

    Args:
        entrypoint: the command
        gpu: the GPU's name
        gpus: GPUs in all

    Returns:
        the check
    """
    question = {"launch": {"format": "script", "content": entrypoint}, "cluster": {"gpu": gpu, "gpus": gpus}}
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {KEY}"} if KEY else {})}
    request = Request(f"{SERVICE}/v1/check", json.dumps(question).encode(), headers)
    with urlopen(request, timeout=10) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


if __name__ == "__main__":
    gpu, gpus, entrypoint = sys.argv[1:]
    found = check(entrypoint, gpu, int(gpus))
    print(f"{found['verdict']}: {found['reason']}")
    if found["verdict"] == "deny":
        sys.exit(1)
    from ray.job_submission import JobSubmissionClient

    print(JobSubmissionClient(RAY).submit_job(entrypoint=entrypoint, metadata={"estimate": found["id"]}))
