"""The command `traincost worker`, which needs only the standard library and httpx; `supported.py` annotated-types too.

Its loop claims a job, runs it, reports progress and uploads the result. One event loop runs all of this, and nothing
blocks it: runners are called on threads, and measurements are processes. So heartbeats go out whatever a measurement
does.
"""

import argparse
import asyncio
import contextlib
import logging
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any, Literal, TypeVar

from service.errors import StartupError
from service.logs import FORMATS, LogFormat, start_log
from service.worker.jobs import ClaimedJob, JobContext, JobFile, JobResult, Work, work_of
from service.worker.runners import Runner, job_folder, remove_abandoned
from service.worker.runners.local import LocalRunner
from service.worker.service_client import Address, RequestRefused, ServiceClient, Unavailable, longer_seconds

MOST_WAIT_SECONDS = 20.0
"""Longest poll for a job."""

HEARTBEATS = 4
"""Heartbeats in the time of one lease. Source: a choice; three may be lost."""

NEWS_SECONDS = 1.0
"""Shortest time between two heartbeats with new progress. Source: a choice; people watch them."""

MOST_NEWS = 600
"""Heartbeats with new progress in the timeout of a job: the service stores so many events. Source: a choice; a job
of ten minutes reports every second, one of an hour every six."""

RELEASE_SECONDS = 5.0
"""Time in which a worker that has to stop releases its job. Source: a choice; schedulers allow half a minute."""

Result = TypeVar("Result")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """Options of a worker."""

    once: bool = False
    """End after one job."""
    most_idle_seconds: float | None = None
    """Longest time without a job before it ends; None for ever."""


class ClaimLoop:
    """Runs one job after another."""

    def __init__(
        self,
        client: ServiceClient,
        runner: Runner,
        work: Mapping[str, Work],
        options: WorkerOptions,
        stopping: asyncio.Event,
    ) -> None:
        self._client, self._runner, self._work, self._options = client, runner, work, options
        self.stopping = stopping

    async def run(self, capabilities: Mapping[str, Any]) -> None:
        """Claim and run jobs until there is a reason to end."""
        while not self.stopping.is_set():
            job = await self._next(capabilities)
            if job is None:
                return
            await self._do(job)
            if self._options.once:
                return

    async def _next(self, capabilities: Mapping[str, Any]) -> ClaimedJob | None:
        """The next job; None after the longest idle time, or where this worker has to stop."""
        idle_since, wait_seconds = time.monotonic(), 0.0
        most = self._options.most_idle_seconds
        while not self.stopping.is_set():
            left_seconds = MOST_WAIT_SECONDS if most is None else most - (time.monotonic() - idle_since)
            if left_seconds <= 0:
                log.info("no job in %.0f s", most)
                return None
            claim = self._client.claim(sorted(self._work), capabilities, min(left_seconds, MOST_WAIT_SECONDS))
            try:
                job = await self._unless_stopped(claim)
            except Unavailable:
                wait_seconds = longer_seconds(wait_seconds)
                await self._unless_stopped(asyncio.sleep(wait_seconds))
                continue
            wait_seconds = 0.0
            if job is not None:
                return job
        return None

    async def _unless_stopped(self, work: Coroutine[Any, Any, Result], grace_seconds: float = 0.0) -> Result | None:
        """The result of some work; None where this worker has to stop first, and the grace time is over."""
        task, stop = asyncio.create_task(work), asyncio.create_task(self.stopping.wait())
        try:
            await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
            if grace_seconds:
                await asyncio.wait({task}, timeout=grace_seconds)
            return task.result() if task.done() else None
        finally:
            await _cancelled(task, stop)

    async def _do(self, job: ClaimedJob) -> None:
        log.info("job %s (%s), attempt %d", job.id, job.kind, job.attempt)
        with job_folder() as folder:
            context = JobContext(
                job=job,
                runner=self._runner,
                folder=folder,
                upload=partial(self._upload, job),
                read=partial(self._client.read, job),
            )
            beats = asyncio.create_task(self._heartbeats(context))
            try:
                result = await self._result_of(context, beats)
                if result is None:
                    log.warning("job %s is another's now; nothing of it is handed in", job.id)
                else:
                    await self._finish(job, result)
            finally:
                await _cancelled(beats)

    async def _result_of(
        self, context: JobContext, beats: "asyncio.Task[Literal['cancel', 'lost']]"
    ) -> JobResult | None:
        """The result of a job; None where the lease is lost first."""
        work = asyncio.create_task(self._uninterrupted(context))
        stop = asyncio.create_task(self.stopping.wait())
        waited = {work, beats, stop}
        try:
            await asyncio.wait(waited, timeout=context.job.timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _cancelled(stop, *(() if work.done() else (work,)))
        if beats.done() and beats.result() == "lost":
            return None
        if not work.cancelled() and work.done():
            return work.result()
        if beats.done():
            return JobResult(outcome="cancelled", result=context.result)
        if self.stopping.is_set():
            return JobResult(outcome="released")
        reason = f"the job was stopped after {context.job.timeout_seconds:.0f} s, the time that it may take"
        error = {"code": "timed_out", "message": reason, "final": True}
        return JobResult(outcome="failed", result=context.result, error=error)

    async def _uninterrupted(self, context: JobContext) -> JobResult:
        """The result of a job that nothing interrupts."""
        try:
            return await self._work[context.job.kind](context)
        except Exception as error:  # the service gets any error
            log.exception("job %s", context.job.id)
            error_body = {"code": "worker_failed", "message": f"{type(error).__name__}: {error}"}
            return JobResult(outcome="failed", result=context.result, error=error_body)

    async def _heartbeats(self, context: JobContext) -> Literal["cancel", "lost"]:
        """Send heartbeats until the service ends the job."""
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
                wait_seconds = min(longer_seconds(wait_seconds), pause_seconds)
                continue
            wait_seconds = 0.0
            if state != "run":
                return state
            await asyncio.sleep(min(max(NEWS_SECONDS, context.job.timeout_seconds / MOST_NEWS), pause_seconds))

    async def _heartbeat(self, context: JobContext) -> Literal["run", "cancel", "lost"]:
        """Renew the lease; without the progress where the service refuses it, so that the job is not lost."""
        try:
            return await self._client.heartbeat(context.job, context.progress)
        except RequestRefused as error:
            log.warning("the progress of job %s is not taken: %s", context.job.id, error)
            context.progress = None
        try:
            return await self._client.heartbeat(context.job, None)
        except RequestRefused as error:
            raise Unavailable(str(error)) from error

    async def _finish(self, job: ClaimedJob, result: JobResult, *, is_refusal: bool = False) -> None:
        """Upload the result of a job, without a time limit, or briefly where this worker has to stop.

        A result that the service refuses fails the job; where it refuses that too, the lease expires.
        """
        try:
            taken = await self._unless_stopped(self._client.finish(job, result), RELEASE_SECONDS)
        except RequestRefused as error:
            log.warning("the result of job %s is not taken: %s", job.id, error)
            if not is_refusal:
                error_body = {"code": "result_refused", "message": str(error), "final": True}
                await self._finish(job, JobResult(outcome="failed", error=error_body), is_refusal=True)
            return
        if taken:
            log.info("job %s %s", job.id, result.outcome)
        else:
            log.warning("job %s is another's now, or the service is away; what was found is dropped", job.id)

    async def _upload(self, job: ClaimedJob, file: JobFile) -> str | None:
        """Upload a file of a job; returns the reason of a refusal, or None."""
        try:
            await self._client.upload(job, file)
        except RequestRefused as error:
            return str(error)
        return None


async def _cancelled(*tasks: "asyncio.Task[Any] | asyncio.Future[Any]") -> None:
    """Cancel tasks, and wait until they have cleaned up."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


DEFAULT_URL = "http://127.0.0.1:8000"
LOCAL, RAY = "local", "ray"
"""Runners: this host, or a Ray cluster."""

WITHOUT_RAY = "the runner ray needs Ray: pip install '.[ray]' in the folder of traincost's source, or pip install ray"

HELP = "Do jobs for a service: measure what it asks for, on this machine."
MOST_SLOTS = 1024


def main(words: Sequence[str]) -> int:
    """Run jobs until there is a reason to end."""
    options = _parsed(words)
    try:
        start_log(os.environ.get("TRAINCOST_LOG_LEVEL") or "info", _log_format())
        logging.getLogger("httpx").setLevel(logging.WARNING)
        asyncio.run(_work(options))
    except StartupError as error:
        print(f"traincost: {error}", file=sys.stderr)  # noqa: T201 - a command's complaint
        return 2
    return 0


def _log_format() -> LogFormat:
    """Format of log lines; this process reads its own settings."""
    name = os.environ.get("TRAINCOST_LOG_FORMAT") or "text"
    log_format = next((known for known in FORMATS if known == name), None)
    if log_format is None:
        raise StartupError(f"TRAINCOST_LOG_FORMAT: should be {' or '.join(FORMATS)}")
    return log_format


async def _work(options: argparse.Namespace) -> None:
    runner = await asyncio.to_thread(_runner, options)
    client = ServiceClient(Address(url=options.url, token=options.token or None, worker=options.name))
    limits = WorkerOptions(once=options.once, most_idle_seconds=options.max_idle)
    stopping = asyncio.Event()
    _stop_on_signal(stopping, with_parent=options.with_parent)
    try:
        await asyncio.to_thread(remove_abandoned)
        reported = await asyncio.to_thread(runner.capabilities)
        capabilities = {**reported, "labels": {**reported.get("labels", {}), **dict(options.label)}}
        work = work_of(capabilities)
        slots = [ClaimLoop(client, runner, work, limits, stopping) for _ in range(options.slots or runner.slots())]
        log.info("worker %s asks %s for jobs; %s", options.name, options.url, _summary(capabilities))
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
    from service.worker.runners.ray import RayRunner

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


def _summary(capabilities: dict[str, object]) -> str:
    devices = capabilities["devices"]
    counted = [f"{one['count']} x {one['name']}" for one in devices] if isinstance(devices, list) else []
    return ", ".join(counted) or f"no GPU, {capabilities['cpu_threads']} processor threads"


def _parsed(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="traincost worker", description=HELP, allow_abbrev=False)
    url = os.environ.get("TRAINCOST_URL") or DEFAULT_URL
    parser.add_argument("--url", default=url, help=f"address of the service (TRAINCOST_URL, {DEFAULT_URL})")
    parser.add_argument(
        "--token", default=os.environ.get("TRAINCOST_TOKEN"),
        help="a key with the scope worker (better in TRAINCOST_TOKEN, for a command line is seen by others)",
    )  # fmt: skip
    name = f"{socket.gethostname()}-{secrets.token_hex(4)}"
    parser.add_argument("--name", default=name, help="its name (the host's, and eight digits)")
    parser.add_argument(
        "--label",
        action="append",
        default=[],
        type=_label,
        metavar="NAME=VALUE",
        help="what jobs may ask for",
    )
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
    return parser.parse_args(words)


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
