"""Where faults are tried: a service on a database, and workers, each of which may be killed and started again."""

import os
import signal
import socket
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import httpx

from service.jobs.jobs import Job, read_job
from service.store.engine import open_engine
from service.store.workers import read_workers
from tests.house.source import ROOT
from tests.prestarted import Process, started
from tests.waiting import wait_until
from tests.worker.processes import JUMPING, RIGHT, SLEEP, noted

LEASE_SECONDS = 2.0
JOB_SECONDS = 1.2
LOOK_SECONDS = 0.05
"""Between two looks at the database or at a process; each costs those that are tried as much as them."""
MOST_BOOT_SECONDS = 180.0
"""Longest wait for a service to answer, on a machine that has much else to do."""


class Scene:
    """A service on a database, and workers, each of which may be killed and started again."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        self.lease_seconds = LEASE_SECONDS
        self._started: list[Process] = []
        self._workers: dict[str, Process] = {}
        self._stack = ExitStack()
        self.port = free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        self.engine, self.started = open_engine(url), 0
        self._http = httpx.Client(base_url=self.address, limits=httpx.Limits(max_keepalive_connections=0))

    def __enter__(self) -> Self:
        self._stack.callback(self.engine.dispose)
        self._stack.callback(self._http.close)
        self._stack.callback(self._end_all)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _end_all(self) -> None:
        for process in self._started:
            end(process)

    def service(self) -> Process:
        """A service that answers by now."""
        log = str(self.folder / "service.log")
        process = self._process("serve", self.url, str(self.port), str(self.lease_seconds), log)
        ends = time.monotonic() + MOST_BOOT_SECONDS
        while not self.is_answering():
            assert process.poll() is None, self._said()
            assert time.monotonic() < ends, self._said()
            time.sleep(LOOK_SECONDS)
        return process

    def _said(self) -> str:
        """What services wrote last."""
        log = self.folder / "service.log"
        return log.read_text(encoding="utf-8")[-2000:] if log.exists() else ""

    def worker(self, kind: str = SLEEP, *, has_jumping_clock: bool = False) -> str:
        """The name of a worker that is about to ask for jobs."""
        self.started += 1
        name = f"w{self.started}"
        log = str(self.folder / f"{name}.log")
        clock = JUMPING if has_jumping_clock else RIGHT
        self._workers[name] = self._process("work", self.address, name, kind, log, clock)
        return name

    def until_seen(self, name: str) -> None:
        """Wait until a worker has asked for a job."""
        wait_until(lambda: name in {worker.id for worker in read_workers(self.engine, 60.0)})

    def kill(self, name: str) -> None:
        """Kill a worker."""
        end(self._workers[name])

    def signal(self, name: str, number: signal.Signals) -> None:
        """Stop a worker, or let it go on."""
        os.kill(self._workers[name].pid, number)

    def is_answering(self) -> bool:
        try:
            return self._http.get("/readyz", timeout=2).is_success
        except httpx.RequestError:
            return False

    def add(self, job_id: str, kind: str = SLEEP, max_attempts: int = 100, **payload: Any) -> None:
        """A job that is acknowledged."""
        answer = self._http.post("/tests/jobs", json=wanted(job_id, kind, max_attempts, payload), timeout=30)
        assert answer.status_code == 201, answer.text

    def add_sleep(self, job_id: str, kind: str = SLEEP) -> None:
        """A job that is measured for a while, and whose processes are noted."""
        self.add(job_id, kind, seconds=JOB_SECONDS, pids=str(self.folder / f"{job_id}.pids"))

    def noted(self, job_id: str) -> list[int] | None:
        """Processes of the first measurement of a job; None where it had not begun."""
        file = self.folder / f"{job_id}.pids"
        return noted(file)[0] if file.exists() else None

    def job(self, job_id: str) -> Job:
        found = read_job(self.engine, job_id)
        assert found is not None, f"{job_id} is lost"
        return found

    def until(self, job_id: str, is_so: Any, most_seconds: float = 120.0) -> tuple[Job, float]:
        """The job once something is so, and how long that took."""
        started = time.monotonic()
        while not is_so(job := self.job(job_id)):
            assert time.monotonic() - started < most_seconds, job
            time.sleep(LOOK_SECONDS)
        return job, time.monotonic() - started

    def _process(self, *words: str) -> Process:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        process = started(["tests.worker.processes", *words], None, environment)
        self._started.append(process)
        return process


def end(process: Process) -> None:
    """Kill a process, unless it has ended."""
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def wanted(job_id: str, kind: str, max_attempts: int, payload: dict[str, Any]) -> dict[str, Any]:
    return {"id": job_id, "kind": kind, "payload": payload, "max_attempts": max_attempts}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port
