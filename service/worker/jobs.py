"""Kinds of jobs, each in processes of its own: launch checks run probe after probe, parts of sweeps compute rows."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from service.worker.runners import Runner, Running, Task

Outcome = Literal["succeeded", "failed", "cancelled", "released"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedJob:
    """A job that this worker has claimed."""

    id: str
    kind: str
    attempt: int
    lease: str = field(repr=False)
    """Token of the lease; never logged."""
    payload: Mapping[str, Any]
    timeout_seconds: float
    lease_seconds: float
    """Time without a heartbeat after which the lease expires."""
    device: str | None = None
    """Name of the device that the job is for; None for any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """The result of an attempt."""

    outcome: Outcome
    result: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None
    """Code, message, and final where another attempt would fail the same way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFile:
    """A file of a job."""

    name: str
    path: Path
    media_type: str


@dataclass(slots=True, kw_only=True)
class JobContext:
    """The context of a running job."""

    job: ClaimedJob
    runner: Runner
    folder: Path
    """An empty folder, removed afterwards."""
    upload: Callable[[JobFile], Awaitable[str | None]]
    """Uploads a file; returns the reason of a refusal, or None."""
    read: Callable[[str], Awaitable[bytes]]
    """Downloads an input of the job, by its path at the service."""
    result: dict[str, Any] | None = None
    """The result so far, which a cancelled or late job returns too."""
    progress: dict[str, Any] | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the progress changes."""

    def report(self, progress: dict[str, Any]) -> None:
        """Set the progress, which the next heartbeat reports."""
        if progress != self.progress:
            self.progress = progress
            self.changed.set()


Work = Callable[[JobContext], Awaitable[JobResult]]
"""Runs a job of one kind. When it is cancelled, it ends what it started, then lets the cancellation through."""


POLL_SECONDS = 0.1
"""Period of checks whether a process has ended. Source: a choice."""


async def record_of(runner: Runner, task: Task, report: Callable[[dict[str, Any]], None]) -> dict[str, Any] | None:
    """The record of a task; None where it did not end in time. Nothing that it started is left running."""
    running = await _started(runner, task)
    try:
        while (record := await asyncio.to_thread(running.poll)) is None and not _is_late(running, task):
            report(await asyncio.to_thread(running.progress))
            await asyncio.sleep(POLL_SECONDS)
        return record
    finally:
        await asyncio.shield(asyncio.to_thread(running.kill))


def _is_late(running: Running, task: Task) -> bool:
    began_seconds = running.began_seconds()
    return began_seconds is not None and time.monotonic() - began_seconds > task.most_seconds


async def _started(runner: Runner, task: Task) -> Running:
    """The process of a task; a cancellation during its start ends it as soon as it has started."""
    starting = asyncio.ensure_future(asyncio.to_thread(runner.start, task))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        running = await starting
        await asyncio.to_thread(running.kill)
        raise


LATE_SECONDS = 5.0
"""Time beyond its timeout after which a probe is killed: it may be writing its record. Source: a choice."""

MEDIA_TYPES: Mapping[str, str] = {
    ".gz": "application/gzip", ".json": "application/json", ".csv": "text/csv", ".txt": "text/plain",
}  # fmt: skip
"""Media types by suffix."""

LONGEST_SHOWN = 300
"""Characters of a reason or a note in progress reports, so that heartbeats stay short; the record has all."""

WITHOUT_TORCH = "torch_missing"

Record = dict[str, Any]
"""A ProbeRecord as JSON."""


async def run_launch_check(context: JobContext) -> JobResult:
    """Run the probes of a launch check in order. The records so far are never lost."""
    tasks: list[Mapping[str, Any]] = list(context.job.payload["tasks"])
    shown = [_progress_of(task, status="queued") for task in tasks]
    records: list[Record] = []
    context.result = {"records": records}

    def show(number: int, **fields: Any) -> None:
        shown[number] = _progress_of(tasks[number], **fields)
        context.report({"probes": list(shown)})

    lacking = context.runner.lacking()
    for number, task in enumerate(tasks):
        if lacking is None:
            folder = context.folder / f"{number}"
            folder.mkdir()
            show(number, status="running")
            record = await _measured(context, task, folder, partial(show, number, status="running"))
            record = await _with_uploaded_files(context, record, folder)
        else:
            record = {"probe": task["probe"], "status": "skipped", "reason": lacking}
        records.append(record)
        show(number, status=record["status"], reason=record.get("reason"), done_fraction=1.0)
    if lacking is not None:
        error = {"code": WITHOUT_TORCH, "message": lacking, "final": True}
        return JobResult(outcome="failed", result=context.result, error=error)
    return JobResult(outcome="succeeded", result=context.result)


async def _measured(context: JobContext, task: Mapping[str, Any], folder: Path, show: Any) -> Record:
    """The record of one probe."""
    seconds = float(task["timeout_seconds"])
    run = Task(task=task, folder=folder, most_seconds=seconds + LATE_SECONDS, device=context.job.device)
    record = await record_of(context.runner, run, lambda progress: show(**progress))
    if record is None:
        reason = f"ended after {run.most_seconds:.0f} s: it may take {seconds:.0f} s; ask for a larger time budget"
        return {"probe": task["probe"], "status": "failed", "reason": reason, "seconds": run.most_seconds}
    return record


async def _with_uploaded_files(context: JobContext, record: Record, folder: Path) -> Record:
    """A record that lists the uploaded ones of its files."""
    summary = record.get("summary") or {}
    uploaded, reasons = [], []
    for name in summary.get("files", ()):
        reason = await _upload(context, folder, name)
        if reason is None:
            uploaded.append(name)
        else:
            reasons.append(f"the file {name} is not kept: {reason}")
    if not reasons:
        return record
    reason = "; ".join(filter(None, (record.get("reason"), *reasons)))
    return {**record, "reason": reason, "summary": {**summary, "files": uploaded}}


async def _upload(context: JobContext, folder: Path, name: str) -> str | None:
    """The reason why a file is not uploaded; None where it is."""
    path = folder / name
    if path.parent != folder or not path.is_file():
        return "it is not there"
    media_type = MEDIA_TYPES.get(path.suffix, "application/octet-stream")
    return await context.upload(JobFile(name=name, path=path, media_type=media_type))


def _progress_of(task: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    """The progress report of a probe."""
    shown = {name: value[:LONGEST_SHOWN] if isinstance(value, str) else value for name, value in fields.items()}
    return {"probe": task["probe"], "reason": None, "done_fraction": 0.0, "note": None, **shown}


SHARD_PROCESS = "service.features.sweeps.shards"
"""The module that computes a part: it reads the sweep in its folder, and writes the rows there."""

SWEEP_FILE, ROWS_FILE = "sweep.json", "rows.parquet"
"""Its input and its output."""

PARQUET = "application/vnd.apache.parquet"

MOST_CACHED_SWEEPS = 4
"""Sweeps in the cache, so that each is read once for all its parts. Source: a choice; some megabytes each."""

_sweeps: dict[str, bytes] = {}


async def run_sweep_shard(context: JobContext) -> JobResult:
    """Compute a part of a sweep, and upload its rows."""
    folder = context.folder / "shard"
    folder.mkdir()
    (folder / SWEEP_FILE).write_bytes(await _sweep(context))
    task = Task(task=context.job.payload, folder=folder, module=SHARD_PROCESS, most_seconds=context.job.timeout_seconds)
    record = await record_of(context.runner, task, lambda progress: context.report({"rows": progress.get("rows", 0)}))
    if record is None:
        return _failed("timed_out", f"the piece takes longer than {task.most_seconds:.0f} s")
    if record["status"] != "succeeded":
        return _failed("shard_failed", record["reason"], is_final=bool(record.get("final")))
    refused = await context.upload(JobFile(name=ROWS_FILE, path=folder / ROWS_FILE, media_type=PARQUET))
    if refused is not None:
        return _failed("file_refused", refused)
    return JobResult(outcome="succeeded", result=record["counts"])


def _failed(code: str, reason: str, *, is_final: bool = False) -> JobResult:
    error: dict[str, Any] = {"code": code, "message": reason, "final": is_final}
    return JobResult(outcome="failed", error=error)


async def _sweep(context: JobContext) -> bytes:
    """The inputs of the rows of a sweep, cached: a sweep never changes."""
    sweep_id = str(context.job.payload["sweep"])
    if sweep_id not in _sweeps:
        content = await context.read(f"/v1/worker/sweeps/{sweep_id}")
        while len(_sweeps) >= MOST_CACHED_SWEEPS:
            del _sweeps[next(iter(_sweeps))]
        _sweeps[sweep_id] = content
    return _sweeps[sweep_id]


SWEEP = "sweep-shard"

WORK: dict[str, Work] = {
    "launch-check": run_launch_check,
    SWEEP: run_sweep_shard,
}
"""The function of each kind of job."""


def work_of(capabilities: Mapping[str, Any]) -> dict[str, Work]:
    """The functions of the kinds of jobs that this worker can do.

    >>> sorted(work_of({"sweeps": True})), sorted(work_of({"sweeps": False}))
    (['launch-check', 'sweep-shard'], ['launch-check'])
    """
    return {kind: work for kind, work in WORK.items() if kind != SWEEP or capabilities.get("sweeps")}
