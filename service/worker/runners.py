"""The interface of runners, the same for a host and a cluster; the runner of this host; and the folders of jobs."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from math import inf
from pathlib import Path
from typing import Any, NoReturn, Protocol

from service.worker.devices import can_sweep, counted, gpus_here, missing_torch, threads_here, visible_alone
from service.worker.supervisor import GONE_SECONDS, GRACE_SECONDS, STOP

PROBE_PROCESS = "service.worker.probe_process"
"""The module that runs a probe: it takes a task's file and a folder, and writes record.json there."""

RECORD, PROGRESS, TASK = "record.json", "progress.json", "task.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    task: Mapping[str, Any]
    """Its input, as JSON."""
    folder: Path
    """An empty folder for its files."""
    most_seconds: float = inf
    """Timeout from its start: waiting for a place does not count."""
    module: str = PROBE_PROCESS
    device: str | None = None
    """Name of the device that it is for, as the runner reports it; None for any."""

    def failed(self, reason: str, status: str = "failed") -> dict[str, Any]:
        """The record of a task that left none."""
        return {"probe": self.task.get("probe"), "status": status, "reason": reason, "seconds": 0.0}


class Running(Protocol):
    def poll(self) -> dict[str, Any] | None:
        """The record; None while it runs."""

    def began_seconds(self) -> float | None:
        """Start of the run, which may be later than the call, and changes where it runs again."""

    def progress(self) -> dict[str, Any]:
        """The last progress report."""

    def kill(self) -> None:
        """End it and everything that it started; returns once that has ended."""


class Runner(Protocol):
    """Runs processes. Its methods may block; several threads call them."""

    def capabilities(self) -> dict[str, Any]:
        """Capabilities for the service."""

    def slots(self) -> int:
        """Useful number of parallel jobs."""

    def lacking(self) -> str | None:
        """Reason why measurements cannot run; None where they can."""

    def start(self, task: Task) -> Running:
        """Start a process."""

    def close(self) -> None:
        """Release the runner's resources."""


PREFIX = "traincost-job-"
LOCK, WORK = "held-by-worker", "work"
"""Entries of such a folder: the lock, and the folder that the job sees."""


@contextmanager
def job_folder() -> Iterator[Path]:
    """An empty folder for one job, removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    try:
        with (folder / LOCK).open("w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            (folder / WORK).mkdir()
            yield folder / WORK
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned() -> int:
    """Remove folders of this user whose workers have ended, and count them."""
    removed = 0
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        lock = folder / LOCK
        with suppress(OSError):  # its worker runs, or another one removes it
            if not folder.is_symlink() and folder.stat().st_uid == os.getuid() and lock.is_file():
                with lock.open("r+", encoding="utf-8") as own:
                    fcntl.flock(own, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
                removed += 1
    return removed


LOG = "log.txt"
LAST_BYTES = 2_000
"""Length of the end of a log that is reported where there is no record. Source: a choice."""

SECRETS = ("TRAINCOST_TOKEN",)


class LocalRunner:
    """Runs processes on this host."""

    def __init__(self, variables: Mapping[str, str] | None = None) -> None:
        self._variables = variables or {}
        self._gpus: tuple[str, ...] = ()
        """Name of each GPU, in torch's order."""

    def capabilities(self) -> dict[str, Any]:
        gpus = gpus_here()
        self._gpus = tuple(name for name, _ in gpus)
        return {
            "devices": counted(gpus),
            "cpu_threads": threads_here(),
            "measures": find_spec("torch") is not None,
            "sweeps": can_sweep(),
            "runner": "local",
            "nodes": 1,
        }

    def start(self, task: Task) -> "LocalRunning":
        """Start a process that sees only the devices of one name."""
        visible = visible_alone(task.device, self._gpus, {**os.environ, **self._variables})
        return LocalRunning(task, {**self._variables, **visible})

    def slots(self) -> int:
        """One process at a time: two would disturb each other."""
        return 1

    def lacking(self) -> str | None:
        """Requirement of measurements that this host lacks."""
        return missing_torch()

    def close(self) -> None:
        """Nothing to release."""


class LocalRunning:
    """A process under its supervisor."""

    def __init__(self, task: Task, variables: Mapping[str, str]) -> None:
        self._task, self._folder, self._began_seconds = task, task.folder, time.monotonic()
        file = task.folder / TASK
        file.write_text(json.dumps(task.task), encoding="utf-8")
        words = (sys.executable, "-m", task.module, str(file), str(task.folder))
        environment = {name: value for name, value in {**os.environ, **variables}.items() if name not in SECRETS}
        with (task.folder / LOG).open("wb") as log:
            self._supervisor = subprocess.Popen(  # noqa: S603 - the worker's own command
                (sys.executable, "-m", "service.worker.supervisor", *words),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=environment,
            )

    def poll(self) -> dict[str, Any] | None:
        """The record, once the process has ended."""
        code = self._supervisor.poll()
        if code is None:
            return None
        self._let_go()
        try:
            text = (self._folder / RECORD).read_text(encoding="utf-8")
            record: dict[str, Any] = json.loads(text, parse_constant=_refuse)
        except FileNotFoundError:
            output = (self._folder / LOG).read_bytes()[-LAST_BYTES:].decode("utf-8", errors="replace").strip()
            return self._task.failed(f"{_end_of(code)}{f'; its last words: {output}' if output else ''}")
        except ValueError as error:
            return self._task.failed(f"what it measured is no JSON: {error}")
        return record

    def began_seconds(self) -> float | None:
        """Its start: nothing waits here."""
        return self._began_seconds

    def progress(self) -> dict[str, Any]:
        try:
            progress: dict[str, Any] = json.loads((self._folder / PROGRESS).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return progress

    def kill(self) -> None:
        """End the process and everything that it started."""
        if self._supervisor.poll() is None and self._supervisor.stdin is not None:
            with suppress(BrokenPipeError):
                self._supervisor.stdin.write(STOP)
                self._supervisor.stdin.flush()
            with suppress(subprocess.TimeoutExpired):
                self._supervisor.wait(GRACE_SECONDS + GONE_SECONDS)
        self._let_go()

    def _let_go(self) -> None:
        if self._supervisor.stdin is not None:
            with suppress(BrokenPipeError):
                self._supervisor.stdin.close()


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number")


def _end_of(code: int) -> str:
    number = -code if code < 0 else code - 128
    if number <= 0:
        return f"the process ended with code {code} and left no record"
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    killer = "; the system ends what takes too much memory so" if name == "SIGKILL" else ""
    return f"the process was ended by {name}{killer}"
