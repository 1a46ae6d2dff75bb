"""Submits a job to Ray unless it would run out of memory: python checked_submit.py GPU GPUS COMMAND.

A job that cannot be checked, or a service that does not answer, does not keep it from being submitted.
"""

import json
import os
import sys
from http.client import HTTPException
from urllib.request import Request, urlopen

SERVICE = "http://localhost:8000"
KEY = os.environ.get("TRAINCOST_KEY", "")
RAY = "http://127.0.0.1:8265"


def check(entrypoint: str, gpu: str, gpus: int) -> tuple[bool, str | None]:
    """Whether a command may be submitted on these GPUs, and the id of its estimate; None where it was not checked."""
    job = {"script": entrypoint, "gpu": gpu, "gpus": gpus}
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
    gpu, gpus, entrypoint = sys.argv[1:]
    may_start, estimate = check(entrypoint, gpu, int(gpus))
    if not may_start:
        sys.exit(1)
    from ray.job_submission import JobSubmissionClient

    metadata = {"estimate": estimate} if estimate else {}
    print(JobSubmissionClient(RAY).submit_job(entrypoint=entrypoint, metadata=metadata))
