"""Processes for the tests of workers: which are alive, a service whose jobs sleep, and workers that do such jobs."""

import os
import random
import sys
import time
from pathlib import Path
from typing import Any

from service.worker.command import JobContext, JobResult, record_of
from service.worker.runners import Task

JUMPING, RIGHT = "jumping", "right"
"""Clocks of workers."""

SLEEP, NOTE = "sleep", "note"
"""Kinds of jobs that only tests have: one that measures nothing for a while, and one that is done at once."""


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that ended and waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def seconds_until_gone(pids: list[int], most_seconds: float = 60.0) -> float:
    """How long it takes until none of some processes runs."""
    started = time.monotonic()
    while any(map(is_alive, pids)):
        if time.monotonic() - started > most_seconds:
            raise AssertionError(f"still running: {[pid for pid in pids if is_alive(pid)]}")
        time.sleep(0.01)
    return time.monotonic() - started


def noted(file: Path, lines: int = 1, most_seconds: float = 60.0) -> list[list[int]]:
    """The pids that sleepers noted, once there are so many lines."""
    ends = time.monotonic() + most_seconds
    while True:
        found = file.read_text(encoding="utf-8").splitlines(keepends=True) if file.exists() else []
        whole = [[int(pid) for pid in line.split()] for line in found if line.endswith("\n")]
        if len(whole) >= lines:
            return whole
        assert time.monotonic() < ends, f"only {len(whole)} of {lines} started"
        time.sleep(0.01)


def serve(url: str, port: int, lease_seconds: float, log: str) -> None:
    """Be a service that makes jobs of the kinds of tests, too."""
    from fastapi import Request
    from fastapi.responses import Response

    from service.api.server import Lifecycle, listen, run
    from service.app import create_app
    from service.catalogue import shipped_catalogue
    from service.jobs.jobs import NewJob, create_jobs
    from service.settings import Settings
    from service.store.database import prepare_database
    from service.store.history import load_catalogue

    _write_to(log)
    settings = Settings(database_url=url, lease_seconds=lease_seconds, port=port)
    with listen(settings.host, settings.port) as listener:
        engine = prepare_database(url, shipped_catalogue())
        app = create_app(settings, load_catalogue(engine), engine)

        async def create(request: Request) -> Response:
            from starlette.concurrency import run_in_threadpool

            job: dict[str, Any] = await request.json()
            await run_in_threadpool(create_jobs, engine, [NewJob(timeout_seconds=60.0, **job)])
            return Response(status_code=201)

        app.add_api_route("/tests/jobs", create, methods=["POST"])
        state = app.state
        moments = Lifecycle(
            announce=lambda: None, drain=state.draining.set, end_beside=lambda: None, leave=state.leaving.set
        )
        run(app, listener, settings, moments)


MODULE = "tests.worker.sleeper"


async def sleep(desk: JobContext) -> JobResult:
    task: dict[str, Any] = {"probe": "sleep", **desk.job.payload}
    errand = Task(task=task, folder=desk.folder, module=MODULE, most_seconds=60.0)
    record = await record_of(desk.runner, errand, desk.report)
    return JobResult(outcome="succeeded", result={"record": record, "attempt": desk.job.attempt})


def work(address: str, name: str, kind: str, log: str, clock: str) -> None:
    """Be a worker that does jobs of one kind of tests."""
    from service.worker import command
    from service.worker.command import main

    async def note(desk: JobContext) -> JobResult:
        return JobResult(outcome="succeeded", result={"by": name, "attempt": desk.job.attempt})

    _write_to(log)
    if clock == JUMPING:
        time.time = jumping  # as if somebody set it, again and again
    command.WORK.clear()
    command.WORK[kind] = sleep if kind.startswith(SLEEP) else note
    sys.exit(main(["--url", address, "--name", name]))


def jumping(clock: Any = time.time) -> float:
    """A clock that is set wrong each time somebody looks, by up to a day."""
    return float(clock()) + random.uniform(-86_400.0, 86_400.0)  # noqa: S311 - nothing is secret here


def _write_to(log: str) -> None:
    os.setsid()
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        url, port, lease_seconds, log = sys.argv[2:]
        serve(url, int(port), float(lease_seconds), log)
    else:
        work(*sys.argv[2:])
