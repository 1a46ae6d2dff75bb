"""The command `traincost worker`: it claims jobs, runs them in processes of their own, reports progress and results."""

import argparse
import asyncio
import contextlib
import json
import logging
import os
import random
import secrets
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import quote

import httpx

from service import __version__
from service.answers.workers import ClaimedJob
from service.errors import StartupError, TraincostError
from service.logs import FORMATS, LogFormat, start_log
from service.worker.runners import LocalRunner, Runner, Running, Task, job_folder, remove_abandoned

Outcome = Literal["succeeded", "failed", "cancelled", "released"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    outcome: Outcome
    result: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None
    """Code and message, and `final` if another attempt would fail the same way."""


@dataclass(slots=True, kw_only=True)
class JobContext:
    job: ClaimedJob
    runner: Runner
    folder: Path
    """An empty folder, removed afterwards."""
    upload: Callable[[Path], Awaitable[str | None]]
    """Uploads a file; returns the reason of a refusal, or None."""
    read: Callable[[str], Awaitable[bytes]]
    """Downloads an input of the job, by its path at the service."""
    result: dict[str, Any] | None = None
    """The result so far, which a cancelled or late job returns too."""
    progress: dict[str, Any] | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def report(self, progress: dict[str, Any]) -> None:
        """Set the progress, which the next heartbeat reports."""
        if progress != self.progress:
            self.progress = progress
            self.changed.set()


Work = Callable[[JobContext], Awaitable[JobResult]]
"""A function that runs a job of one kind; when cancelled, it stops what it started and raises CancelledError again."""


POLL_SECONDS = 0.1
"""Time between two checks whether a process has ended. Source: a choice."""


async def record_of(runner: Runner, task: Task, report: Callable[[dict[str, Any]], None]) -> dict[str, Any] | None:
    """The record of a task; None if it did not end in time. All its processes have ended on return."""
    running = await _started(runner, task)
    try:
        while (record := await asyncio.to_thread(running.poll)) is None:
            began_seconds = running.began_seconds()
            if began_seconds is not None and time.monotonic() - began_seconds > task.most_seconds:
                break
            report(await asyncio.to_thread(running.progress))
            await asyncio.sleep(POLL_SECONDS)
        return record
    finally:
        await asyncio.shield(asyncio.to_thread(running.kill))


async def _started(runner: Runner, task: Task) -> Running:
    """The process of a task; a cancellation during its start ends it as soon as it has started."""
    starting = asyncio.ensure_future(asyncio.to_thread(runner.start, task))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        running = await starting
        await asyncio.to_thread(running.kill)
        raise


GRACE_SECONDS = 5.0
"""Time that a probe has after its timeout to write its record, before it is killed. Source: a choice."""
LONGEST_SHOWN = 300
"""Characters of a reason or a note in progress reports, so that heartbeats stay short; the record has all."""

WITHOUT_TORCH = "torch_missing"

Record = dict[str, Any]


async def run_launch_check(context: JobContext) -> JobResult:
    """Run the probes of a launch check in order. A cancelled job keeps the records so far."""
    tasks: list[Mapping[str, Any]] = list(context.job.payload["tasks"])
    shown = [_progress_of(task, status="queued") for task in tasks]
    records: list[Record] = []
    context.result = {"records": records}

    def show(number: int, **fields: Any) -> None:
        shown[number] = _progress_of(tasks[number], **fields)
        context.report({"probes": list(shown)})

    missing_reason = context.runner.lacking()
    for number, task in enumerate(tasks):
        if missing_reason is None:
            folder = context.folder / f"{number}"
            folder.mkdir()
            show(number, status="running")
            record = await _measured(context, task, folder, partial(show, number, status="running"))
            record = await _with_uploaded_files(context, record, folder)
        else:
            record = {"probe": task["probe"], "status": "skipped", "reason": missing_reason}
        records.append(record)
        show(number, status=record["status"], reason=record.get("reason"), done_fraction=1.0)
    if missing_reason is not None:
        return _failed(WITHOUT_TORCH, missing_reason, context.result, is_final=True)
    return JobResult(outcome="succeeded", result=context.result)


async def _measured(context: JobContext, task: Mapping[str, Any], folder: Path, show: Any) -> Record:
    seconds = float(task["timeout_seconds"])
    run = Task(task=task, folder=folder, most_seconds=seconds + GRACE_SECONDS, device=context.job.device)
    record = await record_of(context.runner, run, lambda progress: show(**progress))
    if record is None:
        reason = f"stopped after {run.most_seconds:.0f} s, {seconds:.0f} s allowed; set a larger time_budget_seconds"
        return {"probe": task["probe"], "status": "failed", "reason": reason, "seconds": run.most_seconds}
    return record


async def _with_uploaded_files(context: JobContext, record: Record, folder: Path) -> Record:
    """A record that lists only those of its files that were uploaded."""
    summary = record.get("summary") or {}
    uploaded, reasons = [], []
    for name in summary.get("files", ()):
        path = folder / name
        reason: str | None = "it does not exist"
        if path.parent == folder and path.is_file():
            reason = await context.upload(path)
        if reason is None:
            uploaded.append(name)
        else:
            reasons.append(f"the file {name} was not uploaded: {reason}")
    if not reasons:
        return record
    whole = "; ".join(filter(None, (record.get("reason"), *reasons)))
    return {**record, "reason": whole, "summary": {**summary, "files": uploaded}}


def _progress_of(task: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    shown = {name: value[:LONGEST_SHOWN] if isinstance(value, str) else value for name, value in fields.items()}
    return {"probe": task["probe"], "reason": None, "done_fraction": 0.0, "note": None, **shown}


SHARD_PROCESS = "service.features.sweeps.shards"
"""Module that computes a shard: it reads the sweep in its folder and writes the rows there."""

SWEEP_FILE, ROWS_FILE = "sweep.json", "rows.parquet"

MOST_CACHED_SWEEPS = 4
"""Most cached sweeps; each is downloaded once for all its shards. Source: a choice; some megabytes each."""

_sweeps: dict[str, bytes] = {}


async def run_sweep_shard(context: JobContext) -> JobResult:
    """Compute a shard of a sweep, and upload its rows."""
    folder = context.folder / "shard"
    folder.mkdir()
    sweep_id = str(context.job.payload["sweep"])
    if sweep_id not in _sweeps:
        content = await context.read(f"/v1/worker/sweeps/{sweep_id}")
        while len(_sweeps) >= MOST_CACHED_SWEEPS:
            del _sweeps[next(iter(_sweeps))]
        _sweeps[sweep_id] = content
    (folder / SWEEP_FILE).write_bytes(_sweeps[sweep_id])
    task = Task(task=context.job.payload, folder=folder, module=SHARD_PROCESS, most_seconds=context.job.timeout_seconds)
    record = await record_of(context.runner, task, lambda progress: context.report({"rows": progress.get("rows", 0)}))
    if record is None:
        return _failed("timed_out", f"the shard takes longer than {task.most_seconds:.0f} s")
    if record["status"] != "succeeded":
        return _failed("shard_failed", record["reason"], is_final=bool(record.get("final")))
    refused = await context.upload(folder / ROWS_FILE)
    if refused is not None:
        return _failed("file_refused", refused)
    return JobResult(outcome="succeeded", result=record["counts"])


def _failed(code: str, reason: str, result: Mapping[str, Any] | None = None, *, is_final: bool = False) -> JobResult:
    return JobResult(outcome="failed", result=result, error={"code": code, "message": reason, "final": is_final})


SWEEP = "sweep-shard"

WORK: dict[str, Work] = {
    "launch-check": run_launch_check,
    SWEEP: run_sweep_shard,
}


def work_of(capabilities: Mapping[str, Any]) -> dict[str, Work]:
    """The functions of the kinds of jobs that this worker can do.

    >>> sorted(work_of({"sweeps": True})), sorted(work_of({"sweeps": False}))
    (['launch-check', 'sweep-shard'], ['launch-check'])
    """
    return {kind: work for kind, work in WORK.items() if kind != SWEEP or capabilities.get("sweeps")}


CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 60.0
"""Longest wait for each part of a response, beyond the requested poll."""
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.25, 5.0
"""Shortest and longest wait before a retry; waits double. Source: a choice; a restart takes a few seconds."""
MOST_FAILURES = 5
"""Most 500 responses to one request. A restart causes one; more indicate a defect."""

MOST_RESULT_BYTES, MOST_FILE_BYTES = 8 << 20, 64 << 20
"""Limits of the service, repeated here because it closes the connection on longer bodies. A test compares them."""

MEDIA_TYPES: Mapping[str, str] = {
    ".gz": "application/gzip", ".json": "application/json", ".csv": "text/csv", ".txt": "text/plain",
    ".parquet": "application/vnd.apache.parquet",
}  # fmt: skip

LEASE_HEADER = "Traincost-Lease"

LOST = 409
LEASE_LOST = "the lease of the job is no longer valid"
REFUSED_WORKER = {401, 403, 404, 405}

State = Literal["run", "cancel", "lost"]

log = logging.getLogger(__name__)


class Unavailable(TraincostError):
    """No response, or a response that asks to retry."""


class ServerError(Unavailable):
    """The service responds with 500."""


class RequestRefused(TraincostError):
    """The service refuses the request, and would refuse it again."""


class ServiceClient:
    """Client of one service for one worker. Retries let a measurement survive a restart of the service."""

    def __init__(
        self, url: str, token: str | None, worker: str, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self.worker = worker
        self._is_unreachable = False
        headers = {"User-Agent": f"traincost-worker/{__version__}", "Accept": "application/json"}
        authorised = {} if token is None else {"Authorization": f"Bearer {token}"}
        timeout = httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS)
        try:
            self._http = httpx.AsyncClient(
                base_url=url, headers={**headers, **authorised}, timeout=timeout, transport=transport
            )
        except httpx.InvalidURL as error:
            raise StartupError(f"{url} is not the address of a service: {error}") from None
        if self._http.base_url.scheme not in {"http", "https"} or not self._http.base_url.host:
            raise StartupError(f"{url} is not the address of a service; it must begin with http:// or https://")

    async def close(self) -> None:
        await self._http.aclose()

    async def claim(
        self, kinds: Sequence[str], capabilities: Mapping[str, Any], wait_seconds: float
    ) -> ClaimedJob | None:
        """Claim a job; sent once."""
        body = {"worker": self.worker, "kinds": kinds, "capabilities": capabilities, "wait_seconds": wait_seconds}
        timeout = httpx.Timeout(ANSWER_SECONDS + wait_seconds, connect=CONNECT_SECONDS)
        try:
            answer = await self._request("POST", "/v1/worker/claim", content=json_body(body), timeout=timeout)
        except RequestRefused as error:
            raise StartupError(f"the service at {self._http.base_url} refuses this worker: {error}") from None
        if answer.status_code == httpx.codes.NO_CONTENT:
            return None
        job = answer.json()["job"]
        names = {one.name for one in fields(ClaimedJob)}
        return ClaimedJob(**{name: value for name, value in job.items() if name in names})

    async def heartbeat(self, job: ClaimedJob, progress: Mapping[str, Any] | None) -> State:
        """Renew the lease of a job; sent once."""
        body = {"lease": job.lease, "progress": progress}
        answer = await self._request("POST", f"{_job_path(job)}/heartbeat", content=json_body(body))
        state: State = "lost" if answer.status_code == LOST else answer.json()["state"]
        return state

    async def upload(self, job: ClaimedJob, file: Path) -> str | None:
        """Upload a file of a job, retried while the service is down; returns the reason of a refusal, or None."""
        headers = {"Content-Type": MEDIA_TYPES.get(file.suffix, "application/octet-stream"), LEASE_HEADER: job.lease}
        path = f"{_job_path(job)}/files/{quote(file.name, safe='')}"
        try:
            content = _bounded(MOST_FILE_BYTES, await asyncio.to_thread(file.read_bytes))
            await self._unless_lost("PUT", path, content=content, headers=headers)
        except RequestRefused as error:
            return str(error)
        return None

    async def read(self, job: ClaimedJob, path: str) -> bytes:
        """Download an input of a job, retried while the service is down."""
        return (await self._unless_lost("GET", path, headers={LEASE_HEADER: job.lease})).content

    async def _unless_lost(self, method: str, path: str, **sent: Any) -> httpx.Response:
        answer = await self._until_answered(method, path, **sent)
        if answer.status_code == LOST:
            raise RequestRefused(LEASE_LOST)
        return answer

    async def finish(self, job: ClaimedJob, result: JobResult) -> bool:
        """Upload the result of a job, retried while the service is down."""
        body = {"lease": job.lease, "outcome": result.outcome, "result": result.result, "error": result.error}
        answer = await self._until_answered("POST", f"{_job_path(job)}/finish", content=json_body(body))
        return answer.status_code != LOST

    async def _until_answered(self, method: str, path: str, **sent: Any) -> httpx.Response:
        wait_seconds, failures = 0.0, 0
        while True:
            try:
                return await self._request(method, path, **sent)
            except Unavailable as error:
                failures = failures + 1 if isinstance(error, ServerError) else 0
                if failures == MOST_FAILURES:
                    raise RequestRefused(f"the service failed {MOST_FAILURES} times: {error}") from error
                wait_seconds = backoff_seconds(wait_seconds)
                await asyncio.sleep(wait_seconds)

    async def _request(self, method: str, path: str, **sent: Any) -> httpx.Response:
        """Send a request; return a success or a lost lease, and raise for other responses."""
        try:
            headers = {"Content-Type": "application/json"} | sent.pop("headers", {})
            answer = await self._http.request(method, path, headers=headers, **sent)
        except httpx.RequestError as error:
            raise self._unreachable(repr(error)) from error
        if answer.status_code == httpx.codes.INTERNAL_SERVER_ERROR:
            raise ServerError(refusal_of(answer))
        if answer.is_server_error or answer.status_code == httpx.codes.TOO_MANY_REQUESTS:
            raise self._unreachable(f"status {answer.status_code}")
        if self._is_unreachable:
            log.warning("%s answers again", self._http.base_url)
            self._is_unreachable = False
        if answer.is_success or answer.status_code == LOST:
            return answer
        if answer.status_code in REFUSED_WORKER:
            raise StartupError(f"{self._http.base_url} refuses this worker: {refusal_of(answer)}")
        raise RequestRefused(refusal_of(answer))

    def _unreachable(self, reason: str) -> Unavailable:
        if not self._is_unreachable:
            log.warning("no answer from %s (%s); retrying, and running jobs continue", self._http.base_url, reason)
            self._is_unreachable = True
        return Unavailable(reason)


def json_body(body: Mapping[str, Any]) -> bytes:
    try:
        content = json.dumps(body, allow_nan=False).encode()
    except ValueError as error:
        raise RequestRefused(str(error)) from None
    return _bounded(MOST_RESULT_BYTES, content)


def refusal_of(answer: httpx.Response) -> str:
    """The service's reason for a refusal."""
    try:
        return str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return f"status {answer.status_code}"


def _bounded(most_bytes: int, content: bytes) -> bytes:
    if len(content) > most_bytes:
        raise RequestRefused(f"{len(content)} bytes are more than the {most_bytes} that the service accepts")
    return content


def _job_path(job: ClaimedJob) -> str:
    return f"/v1/worker/jobs/{quote(job.id, safe='')}"


def backoff_seconds(wait_seconds: float) -> float:
    """The wait after another failed attempt [s]: doubled within bounds, and randomized."""
    doubled = min(max(2.0 * wait_seconds, FIRST_WAIT_SECONDS), LONGEST_WAIT_SECONDS)
    return doubled * random.uniform(0.75, 1.0)  # noqa: S311 - no security use


MOST_WAIT_SECONDS = 20.0
"""Longest poll for a job."""
HEARTBEATS = 4
"""Heartbeats in the time of one lease. Source: a choice; three may be lost."""
PROGRESS_SECONDS = 1.0
"""Shortest time between two heartbeats with new progress. Source: a choice; people watch the progress."""
MOST_EVENTS = 600
"""Most heartbeats with new progress in a job's timeout; the service stores each as an event. Source: a choice."""
RELEASE_SECONDS = 5.0
"""Time in which a worker that has to stop releases its job. Source: a choice; schedulers allow half a minute."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ClaimLoop:
    """Runs one job after another: `once` ends after one, `most_idle_seconds` after that time without a job."""

    client: ServiceClient
    runner: Runner
    work: Mapping[str, Work]
    stopping: asyncio.Event
    once: bool = False
    most_idle_seconds: float | None = None

    async def run(self, capabilities: Mapping[str, Any]) -> None:
        """Claim and run jobs until there is a reason to end."""
        while not self.stopping.is_set():
            job = await self._next(capabilities)
            if job is None:
                return
            await self._run_job(job)
            if self.once:
                return

    async def _next(self, capabilities: Mapping[str, Any]) -> ClaimedJob | None:
        """The next job; None after the longest idle time, or if this worker has to stop."""
        idle_since, wait_seconds = time.monotonic(), 0.0
        most = self.most_idle_seconds
        while not self.stopping.is_set():
            left_seconds = MOST_WAIT_SECONDS if most is None else most - (time.monotonic() - idle_since)
            if left_seconds <= 0:
                log.info("no job in %.0f s", most)
                return None
            claim = self.client.claim(sorted(self.work), capabilities, min(left_seconds, MOST_WAIT_SECONDS))
            try:
                job = await self._unless_stopped(claim)
            except Unavailable:
                wait_seconds = backoff_seconds(wait_seconds)
                await self._unless_stopped(asyncio.sleep(wait_seconds))
                continue
            wait_seconds = 0.0
            if job is not None:
                return job
        return None

    async def _unless_stopped(self, work: Coroutine[Any, Any, Result], grace_seconds: float = 0.0) -> Result | None:
        """The result of some work; None if this worker has to stop first and the grace time has passed."""
        task, stop = asyncio.create_task(work), asyncio.create_task(self.stopping.wait())
        try:
            await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
            if grace_seconds:
                await asyncio.wait({task}, timeout=grace_seconds)
            return task.result() if task.done() else None
        finally:
            await _cancel(task, stop)

    async def _run_job(self, job: ClaimedJob) -> None:
        log.info("job %s (%s), attempt %d", job.id, job.kind, job.attempt)
        with job_folder() as folder:
            context = JobContext(
                job=job,
                runner=self.runner,
                folder=folder,
                upload=partial(self.client.upload, job),
                read=partial(self.client.read, job),
            )
            heartbeats = asyncio.create_task(self._heartbeats(context))
            try:
                result = await self._result_of(context, heartbeats)
                if result is None:
                    log.warning("job %s has a new worker; its result here is dropped", job.id)
                else:
                    await self._finish(job, result)
            finally:
                await _cancel(heartbeats)

    async def _result_of(
        self, context: JobContext, heartbeats: "asyncio.Task[Literal['cancel', 'lost']]"
    ) -> JobResult | None:
        work = asyncio.create_task(self._run_work(context))
        stop = asyncio.create_task(self.stopping.wait())
        waited = {work, heartbeats, stop}
        try:
            await asyncio.wait(waited, timeout=context.job.timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _cancel(stop, *(() if work.done() else (work,)))
        if heartbeats.done() and heartbeats.result() == "lost":
            return None
        if not work.cancelled() and work.done():
            return work.result()
        if heartbeats.done():
            return JobResult(outcome="cancelled", result=context.result)
        if self.stopping.is_set():
            return JobResult(outcome="released")
        reason = f"the job was stopped at its timeout of {context.job.timeout_seconds:.0f} s"
        return _failed("timed_out", reason, context.result, is_final=True)

    async def _run_work(self, context: JobContext) -> JobResult:
        """The result of a job; an exception of its function fails the job."""
        try:
            return await self.work[context.job.kind](context)
        except Exception as error:  # the service gets any error
            log.exception("job %s", context.job.id)
            body = {"code": "worker_failed", "message": f"{type(error).__name__}: {error}"}
            return JobResult(outcome="failed", result=context.result, error=body)

    async def _heartbeats(self, context: JobContext) -> Literal["cancel", "lost"]:
        pause_seconds, wait_seconds = context.job.lease_seconds / HEARTBEATS, 0.0
        while True:
            if wait_seconds:
                await asyncio.sleep(wait_seconds)
            else:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(context.changed.wait(), pause_seconds)
            context.changed.clear()
            try:
                state = await self._heartbeat(context)
            except Unavailable:
                wait_seconds = min(backoff_seconds(wait_seconds), pause_seconds)
                continue
            wait_seconds = 0.0
            if state != "run":
                return state
            await asyncio.sleep(min(max(PROGRESS_SECONDS, context.job.timeout_seconds / MOST_EVENTS), pause_seconds))

    async def _heartbeat(self, context: JobContext) -> Literal["run", "cancel", "lost"]:
        """Renew the lease, without the progress if the service refuses it, so that the lease is not lost."""
        try:
            return await self.client.heartbeat(context.job, context.progress)
        except RequestRefused as error:
            log.warning("the service refuses the progress of job %s: %s", context.job.id, error)
            context.progress = None
        try:
            return await self.client.heartbeat(context.job, None)
        except RequestRefused as error:
            raise Unavailable(str(error)) from error

    async def _finish(self, job: ClaimedJob, result: JobResult, *, is_refusal: bool = False) -> None:
        """Upload a result; if the service refuses it, fail the job. A worker that stops tries for RELEASE_SECONDS."""
        try:
            taken = await self._unless_stopped(self.client.finish(job, result), RELEASE_SECONDS)
        except RequestRefused as error:
            log.warning("the service refuses the result of job %s: %s", job.id, error)
            if not is_refusal:
                await self._finish(job, _failed("result_refused", str(error), is_final=True), is_refusal=True)
            return
        if taken:
            log.info("job %s %s", job.id, result.outcome)
        else:
            log.warning("job %s has a new worker, or the service is unreachable; its result here is dropped", job.id)


async def _cancel(*tasks: "asyncio.Task[Any] | asyncio.Future[Any]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


DEFAULT_URL = "http://127.0.0.1:8000"
LOCAL, RAY = "local", "ray"
"""Runners: this host, or a Ray cluster."""

WITHOUT_RAY = "the runner ray needs Ray: pip install '.[ray]' in the folder of traincost's source, or pip install ray"

HELP = "Run jobs of a service, such as measurements, on this machine."
MOST_SLOTS = 1024


def main(arguments: Sequence[str]) -> int:
    """Run jobs until there is a reason to end."""
    options = _parse_options(arguments)
    try:
        start_log(os.environ.get("TRAINCOST_LOG_LEVEL") or "info", _log_format())
        logging.getLogger("httpx").setLevel(logging.WARNING)
        asyncio.run(_work(options))
    except StartupError as error:
        print(f"traincost: {error}", file=sys.stderr)  # noqa: T201 - a command's complaint
        return 2
    return 0


def _log_format() -> LogFormat:
    name = os.environ.get("TRAINCOST_LOG_FORMAT") or "text"
    log_format = next((known for known in FORMATS if known == name), None)
    if log_format is None:
        raise StartupError(f"TRAINCOST_LOG_FORMAT: should be {' or '.join(FORMATS)}")
    return log_format


async def _work(options: argparse.Namespace) -> None:
    runner = await asyncio.to_thread(_runner, options)
    client = ServiceClient(options.url, options.token or None, options.name)
    stopping = asyncio.Event()
    _stop_on_signal(stopping, with_parent=options.with_parent)
    try:
        await asyncio.to_thread(remove_abandoned)
        reported = await asyncio.to_thread(runner.capabilities)
        capabilities = {**reported, "labels": {**reported.get("labels", {}), **dict(options.label)}}
        work = work_of(capabilities)
        slots = [
            ClaimLoop(client, runner, work, stopping, once=options.once, most_idle_seconds=options.max_idle)
            for _ in range(options.slots or runner.slots())
        ]
        devices = ", ".join(f"{one['count']} x {one['name']}" for one in reported["devices"])
        summary = devices or f"no GPU, {reported['cpu_threads']} processor threads"
        log.info("worker %s asks %s for jobs; %s", options.name, options.url, summary)
        async with asyncio.TaskGroup() as group:
            for slot in slots:
                group.create_task(slot.run(capabilities))
    except* StartupError as errors:
        raise errors.exceptions[0] from None
    finally:
        await client.close()
        await asyncio.to_thread(runner.close)


def _runner(options: argparse.Namespace) -> Runner:
    if options.runner == LOCAL:
        return LocalRunner()
    if find_spec("ray") is None:
        raise StartupError(WITHOUT_RAY)
    from service.worker.ray_runner import RayRunner

    return RayRunner(options.ray_address)


def _stop_on_signal(stopping: asyncio.Event, *, with_parent: bool) -> None:
    """Release jobs and end: at SIGTERM and SIGINT, and with the parent process where requested."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    if with_parent:

        def read() -> None:
            if not os.read(sys.stdin.fileno(), 1024):
                loop.remove_reader(sys.stdin.fileno())
                stopping.set()

        loop.add_reader(sys.stdin.fileno(), read)


def _parse_options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="traincost worker", description=HELP, allow_abbrev=False)
    url = os.environ.get("TRAINCOST_URL") or DEFAULT_URL
    parser.add_argument("--url", default=url, help=f"address of the service (TRAINCOST_URL, {DEFAULT_URL})")
    parser.add_argument(
        "--token", default=os.environ.get("TRAINCOST_TOKEN"),
        help="a key with the scope worker (safer in TRAINCOST_TOKEN: others can read a command line)",
    )  # fmt: skip
    name = f"{socket.gethostname()}-{secrets.token_hex(4)}"
    parser.add_argument("--name", default=name, help="name of the worker (host name and eight hexadecimal digits)")
    label_options: dict[str, Any] = {"action": "append", "default": [], "type": _label, "metavar": "NAME=VALUE"}
    parser.add_argument("--label", help="a label that jobs may require", **label_options)
    parser.add_argument("--runner", choices=(LOCAL, RAY), default=LOCAL, help="where jobs run (local)")
    parser.add_argument(
        "--ray-address", metavar="HOST:PORT", help="head of the Ray cluster (that of RAY_ADDRESS, or of this host)"
    )
    parser.add_argument(
        "--slots", type=_slots, help="jobs at the same time (1; with ray the processors of the cluster)"
    )
    parser.add_argument("--once", action="store_true", help="end after one job")
    parser.add_argument("--max-idle", type=_seconds, metavar="SECONDS", help="end after waiting this long for a job")
    parser.add_argument("--with-parent", action="store_true", help="end when standard input ends")
    return parser.parse_args(arguments)


def _label(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError("write a label as NAME=VALUE")
    return name, value


def _slots(text: str) -> int:
    if not (text.isdecimal() and 1 <= int(text) <= MOST_SLOTS):
        raise argparse.ArgumentTypeError(f"between 1 and {MOST_SLOTS}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not seconds >= 0:
        raise argparse.ArgumentTypeError("a number of seconds, 0 or more")
    return seconds
