"""What is a worker given, what does it have at hand for it, and what does it say at the end?"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from service.worker.running import PROBE_PROCESS, Runner, Running

Outcome = Literal["succeeded", "failed", "cancelled", "released"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedJob:
    """A job that the service gave."""

    id: str
    kind: str
    attempt: int
    lease: str = field(repr=False)
    """What the worker proves with that the job is its own; in no log."""
    payload: Mapping[str, Any]
    timeout_seconds: float
    """Longest time that it may take."""
    lease_seconds: float
    """Time after which the service gives it to somebody else if it does not hear of this worker."""
    device: str | None = None
    """Which of the worker's devices it is for, by the name that the worker told; None for any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """How an attempt ended."""

    outcome: Outcome
    result: Mapping[str, Any] | None = None
    """What came of it."""
    error: Mapping[str, Any] | None = None
    """Why it failed: code, message, and final where another attempt would fail the same way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFile:
    """A file that a job leaves."""

    name: str
    """What it is called."""
    path: Path
    """Where it is."""
    media_type: str
    """What it holds."""


@dataclass(slots=True, kw_only=True)
class JobContext:
    """What is at hand while a job is done."""

    job: ClaimedJob
    runner: Runner
    folder: Path
    """An empty folder, gone afterwards."""
    hand_in: Callable[[FoundFile], Awaitable[str | None]]
    """Gives a file to the service; tells why it was not taken, or None."""
    read: Callable[[str], Awaitable[bytes]]
    """Reads something that the job needs, by its path at the service."""
    result: dict[str, Any] | None = None
    """What was found so far: handed in with a cancelled or late job, too."""
    progress: dict[str, Any] | None = None
    """How far the job is."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when there is news of the progress."""

    def tell(self, progress: dict[str, Any]) -> None:
        """Say how far the job is; the service hears of it with the next heartbeat."""
        if progress != self.progress:
            self.progress = progress
            self.changed.set()


Work = Callable[[JobContext], Awaitable[JobResult]]
"""Does a job of one kind. When it is cancelled it ends what it started, then lets the cancellation through."""


POLL_SECONDS = 0.1
"""Between two looks at whether it has ended. Source: a choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Something to be run."""

    task: Mapping[str, Any]
    """What to do, as JSON."""
    folder: Path
    """An empty folder for what it leaves."""
    most_seconds: float
    """Time after which it is ended, from when it begins to run: waiting for a place does not count."""
    module: str = PROBE_PROCESS
    """What carries it out."""
    device: str | None = None
    """Name of the device that it is for, as the runner told it; None for any."""


async def record_of(runner: Runner, errand: Task, tell: Callable[[dict[str, Any]], None]) -> dict[str, Any] | None:
    """What comes of an errand."""
    running = await _started(runner, errand)
    try:
        while (record := await asyncio.to_thread(running.poll)) is None and not _is_late(running, errand):
            tell(await asyncio.to_thread(running.progress))
            await asyncio.sleep(POLL_SECONDS)
        return record
    finally:
        await asyncio.shield(asyncio.to_thread(running.kill))


def _is_late(running: Running, errand: Task) -> bool:
    began_seconds = running.began_seconds()
    return began_seconds is not None and time.monotonic() - began_seconds > errand.most_seconds


async def _started(runner: Runner, errand: Task) -> Running:
    """What runs; where the wait for its start ends early, it is ended as soon as it has started."""
    starting = asyncio.ensure_future(
        asyncio.to_thread(runner.start, errand.task, errand.folder, errand.module, errand.device)
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        running = await starting
        await asyncio.to_thread(running.kill)
        raise


LATE_SECONDS = 5.0
"""How long after its time a probe is ended: it may just be writing down what it has. Source: a choice."""

MEDIA_TYPES: Mapping[str, str] = {
    ".gz": "application/gzip", ".json": "application/json", ".csv": "text/csv", ".txt": "text/plain",
}  # fmt: skip
"""What a file holds, by the end of its name."""

LONGEST_SHOWN = 300
"""Characters of a reason or a note that are shown on the way, so that heartbeats stay short; the record has all."""

WITHOUT_TORCH = "torch_missing"

Record = dict[str, Any]
"""A ProbeRecord as JSON."""


async def run_launch_check(desk: JobContext) -> JobResult:
    """Do a launch check."""
    tasks: list[Mapping[str, Any]] = list(desk.job.payload["tasks"])
    shown = [_shown(task, status="queued") for task in tasks]
    records: list[Record] = []
    desk.result = {"records": records}

    def show(number: int, **told: Any) -> None:
        shown[number] = _shown(tasks[number], **told)
        desk.tell({"probes": list(shown)})

    lacking = desk.runner.lacking()
    for number, task in enumerate(tasks):
        if lacking is None:
            folder = desk.folder / f"{number}"
            folder.mkdir()
            show(number, status="running")
            record = await _measured(desk, task, folder, partial(show, number, status="running"))
            record = await _handed_in(desk, record, folder)
        else:
            record = {"probe": task["probe"], "status": "skipped", "reason": lacking}
        records.append(record)
        show(number, status=record["status"], reason=record.get("reason"), done_fraction=1.0)
    if lacking is not None:
        error = {"code": WITHOUT_TORCH, "message": lacking, "final": True}
        return JobResult(outcome="failed", result=desk.result, error=error)
    return JobResult(outcome="succeeded", result=desk.result)


async def _measured(desk: JobContext, task: Mapping[str, Any], folder: Path, show: Any) -> Record:
    """The record of one probe."""
    seconds = float(task["timeout_seconds"])
    errand = Task(task=task, folder=folder, most_seconds=seconds + LATE_SECONDS, device=desk.job.device)
    record = await record_of(desk.runner, errand, lambda told: show(**told))
    if record is None:
        reason = f"ended after {errand.most_seconds:.0f} s: it may take {seconds:.0f} s; ask for a larger time budget"
        return {"probe": task["probe"], "status": "failed", "reason": reason, "seconds": errand.most_seconds}
    return record


async def _handed_in(desk: JobContext, record: Record, folder: Path) -> Record:
    """A record that names those of its files that the service has."""
    summary = record.get("summary") or {}
    kept, reasons = [], []
    for name in summary.get("files", ()):
        reason = await _upload(desk, folder, name)
        if reason is None:
            kept.append(name)
        else:
            reasons.append(f"the file {name} is not kept: {reason}")
    if not reasons:
        return record
    doubts = "; ".join(filter(None, (record.get("reason"), *reasons)))
    return {**record, "reason": doubts, "summary": {**summary, "files": kept}}


async def _upload(desk: JobContext, folder: Path, name: str) -> str | None:
    """Why the service has not got a file; None where it has."""
    path = folder / name
    if path.parent != folder or not path.is_file():
        return "it is not there"
    media_type = MEDIA_TYPES.get(path.suffix, "application/octet-stream")
    return await desk.hand_in(FoundFile(name=name, path=path, media_type=media_type))


def _shown(task: Mapping[str, Any], **told: Any) -> dict[str, Any]:
    """What callers are shown of a probe."""
    shown = {name: value[:LONGEST_SHOWN] if isinstance(value, str) else value for name, value in told.items()}
    return {"probe": task["probe"], "reason": None, "done_fraction": 0.0, "note": None, **shown}


SHARD_PROCESS = "service.features.sweeps.shard_process"
"""The module that works out a piece: it reads the sweep in its folder, and leaves the rows there."""

SWEEP_FILE, ROWS_FILE = "sweep.json", "rows.parquet"
"""What it reads, and what it leaves."""

PARQUET = "application/vnd.apache.parquet"

MOST_KEPT = 4
"""Sweeps that are remembered, so that each is read once for all its pieces. Source: a choice; some megabytes each."""

_sweeps: dict[str, bytes] = {}


async def run_sweep_shard(desk: JobContext) -> JobResult:
    """Work out a piece of a sweep."""
    folder = desk.folder / "shard"
    folder.mkdir()
    (folder / SWEEP_FILE).write_bytes(await _sweep(desk))
    errand = Task(task=desk.job.payload, folder=folder, module=SHARD_PROCESS, most_seconds=desk.job.timeout_seconds)
    record = await record_of(desk.runner, errand, lambda told: desk.tell({"rows": told.get("rows", 0)}))
    if record is None:
        return _failed("timed_out", f"the piece takes longer than {errand.most_seconds:.0f} s")
    if record["status"] != "succeeded":
        return _failed("shard_failed", record["reason"], is_final=bool(record.get("final")))
    refused = await desk.hand_in(FoundFile(name=ROWS_FILE, path=folder / ROWS_FILE, media_type=PARQUET))
    if refused is not None:
        return _failed("file_refused", refused)
    return JobResult(outcome="succeeded", result=record["counts"])


def _failed(code: str, reason: str, *, is_final: bool = False) -> JobResult:
    error: dict[str, Any] = {"code": code, "message": reason, "final": is_final}
    return JobResult(outcome="failed", error=error)


async def _sweep(desk: JobContext) -> bytes:
    """What the rows of the sweep are made of; a sweep never changes."""
    sweep_id = str(desk.job.payload["sweep"])
    if sweep_id not in _sweeps:
        content = await desk.read(f"/v1/worker/sweeps/{sweep_id}")
        while len(_sweeps) >= MOST_KEPT:
            del _sweeps[next(iter(_sweeps))]
        _sweeps[sweep_id] = content
    return _sweeps[sweep_id]


SWEEP = "sweep-shard"

WORK: dict[str, Work] = {
    "launch-check": run_launch_check,
    SWEEP: run_sweep_shard,
}
"""What does a job, by its kind."""


def work_of(capabilities: Mapping[str, Any]) -> dict[str, Work]:
    """What a worker asks for.

    >>> sorted(work_of({"sweeps": True})), sorted(work_of({"sweeps": False}))
    (['launch-check', 'sweep-shard'], ['launch-check'])
    """
    return {kind: work for kind, work in WORK.items() if kind != SWEEP or capabilities.get("sweeps")}
