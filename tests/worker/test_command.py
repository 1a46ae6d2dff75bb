"""A worker runs its jobs, goes on while the service is away, and stops on a signal."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.errors import StartupError
from service.worker.command import MOST_FAILURES, ClaimLoop, JobContext, JobResult, ServiceClient, Work
from service.worker.runners import Task

LEASE_SECONDS = 0.2
KIND = "test"
LEASE = "aQ3vX9mZ2kT7rW5yB8nC4dF6gH1jL0"
FOR_EVER = 600.0

Answer = Callable[[httpx.Request], httpx.Response]


@dataclass
class FakeService:
    """Gives jobs, and notes what it is told."""

    jobs: list[dict[str, Any]] = field(default_factory=list)
    state: str = "run"
    taken: list[dict[str, Any]] = field(default_factory=list)
    heard: list[dict[str, Any]] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    refusals: list[Any] = field(default_factory=list)
    """What goes wrong with the next requests: an exception or a status; None for nothing."""

    def __call__(self, request: httpx.Request) -> httpx.Response:
        wrong = self.refusals.pop(0) if self.refusals else None
        if isinstance(wrong, Exception):
            raise wrong
        if wrong is not None:
            return httpx.Response(wrong, json={"detail": "not like this"})
        what = request.url.path.rpartition("/")[2]
        if what == "claim":
            return httpx.Response(200, json={"job": self.jobs.pop(0)}) if self.jobs else httpx.Response(204)
        if request.method == "PUT":
            self.files[what] = request.content
            return httpx.Response(204)
        told = json.loads(request.content)
        if what == "heartbeat":
            self.heard.append(told)
            return httpx.Response(409) if self.state == "lost" else httpx.Response(200, json={"state": self.state})
        self.taken.append(told)
        return httpx.Response(409 if self.state == "lost" else 204)


class NoRunner:
    """Runs nothing: these jobs need nothing run."""

    def capabilities(self) -> dict[str, Any]:
        return {}

    def slots(self) -> int:
        return 1

    def lacking(self) -> str | None:
        return None

    def start(self, task: Task) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        pass


def job(job_id: str = "job_a", **changed: Any) -> dict[str, Any]:
    given = {
        "id": job_id,
        "kind": KIND,
        "attempt": 3,
        "lease": LEASE,
        "payload": {},
        "timeout_seconds": FOR_EVER,
        "device": None,
    }
    return {**given, "lease_seconds": LEASE_SECONDS, "device": None, **changed}


async def until(is_so: Callable[[], bool]) -> None:
    """Wait until something is so."""
    while not is_so():  # noqa: ASYNC110 - whatever it is
        await asyncio.sleep(0.01)


async def done(_desk: JobContext) -> JobResult:
    return JobResult(outcome="succeeded", result={"value": 1.5})


def go_on(
    service: FakeService,
    work: Work,
    meanwhile: Callable[[ClaimLoop], Any] | None = None,
    *,
    once: bool = True,
    most_idle_seconds: float | None = None,
) -> None:
    """A worker that does one job, or what its habits say, unless it is told to stop before."""

    async def run() -> None:
        client = ServiceClient("http://t", "k", "w1", httpx.MockTransport(service))
        options: dict[str, Any] = {"once": once, "most_idle_seconds": most_idle_seconds}
        claiming = ClaimLoop(client, NoRunner(), {KIND: work}, asyncio.Event(), **options)
        told = asyncio.create_task(meanwhile(claiming)) if meanwhile else None
        await asyncio.wait_for(claiming.run({"measures": True}), 20)
        if told:
            await told
        await client.close()

    asyncio.run(run())


def test_a_job_is_done_and_handed_in() -> None:
    service = FakeService(jobs=[job()])
    go_on(service, done)
    assert service.taken == [{"lease": LEASE, "outcome": "succeeded", "result": {"value": 1.5}, "error": None}]


def test_it_is_heard_of_while_it_is_at_work_and_tells_news_soon() -> None:
    service = FakeService(jobs=[job(lease_seconds=60.0)])

    async def slow(desk: JobContext) -> JobResult:
        desk.report({"done_fraction": 0.5})
        await until(lambda: bool(service.heard))
        return JobResult(outcome="succeeded")

    go_on(service, slow)
    assert service.heard == [{"lease": LEASE, "progress": {"done_fraction": 0.5}}]


def test_it_goes_on_while_the_service_is_away() -> None:
    service = FakeService(jobs=[job()])
    away = [httpx.ConnectError("refused"), 503, httpx.ReadTimeout("late")]
    service.refusals = [429, 500]

    async def slow(desk: JobContext) -> JobResult:
        service.refusals = list(away)
        await until(lambda: bool(service.heard) and not service.refusals)
        service.refusals = [500, httpx.ReadError("broken")]
        desk.report({"done_fraction": 0.9})
        return JobResult(outcome="succeeded", result={"went": "on"})

    go_on(service, slow)
    assert [told["result"] for told in service.taken] == [{"went": "on"}]


async def never(desk: JobContext) -> JobResult:
    """Work that ends only when it is stopped, and then says so."""
    desk.result = {"records": ["so far"]}
    try:
        await asyncio.sleep(FOR_EVER)
    finally:
        desk.result["stopped"] = True
    return JobResult(outcome="succeeded")


def test_a_cancelled_job_is_stopped_and_what_was_found_is_handed_in() -> None:
    service = FakeService(jobs=[job()], state="cancel")
    go_on(service, never)
    (told,) = service.taken
    assert (told["outcome"], told["result"]) == ("cancelled", {"records": ["so far"], "stopped": True})


def test_a_lost_job_is_stopped_and_nothing_of_it_is_handed_in() -> None:
    service = FakeService(jobs=[job()], state="lost")
    stopped = []

    async def noted(desk: JobContext) -> JobResult:
        try:
            return await never(desk)
        finally:
            stopped.append(desk.folder.exists())

    go_on(service, noted)
    assert (service.taken, stopped) == ([], [True])


def test_a_job_that_takes_too_long_is_stopped_for_good() -> None:
    service = FakeService(jobs=[job(timeout_seconds=0.1)])
    go_on(service, never)
    (told,) = service.taken
    assert (told["outcome"], told["error"]["code"], told["error"]["final"]) == ("failed", "timed_out", True)
    assert told["result"]["stopped"]


def test_a_worker_that_has_to_go_gives_its_job_back() -> None:
    service = FakeService(jobs=[job()])

    async def soon(loop: ClaimLoop) -> None:
        await until(lambda: not service.jobs)
        loop.stopping.set()

    go_on(service, never, soon, once=False)
    assert [told["outcome"] for told in service.taken] == ["released"]


def test_a_worker_that_has_to_go_waits_for_no_job() -> None:
    async def soon(loop: ClaimLoop) -> None:
        loop.stopping.set()

    go_on(FakeService(refusals=[httpx.ConnectError("x")] * 1000), done, soon, once=False)


def test_work_that_breaks_is_told_and_the_next_job_done() -> None:
    service = FakeService(jobs=[job(), job("job_b")])
    broken = ["job_a"]

    async def fragile(_desk: JobContext) -> JobResult:
        if broken:
            raise KeyError(broken.pop())
        return JobResult(outcome="succeeded")

    go_on(service, fragile, once=False, most_idle_seconds=0.3)
    first, second = service.taken
    assert (first["outcome"], first["error"]) == ("failed", {"code": "worker_failed", "message": "KeyError: 'job_a'"})
    assert second["outcome"] == "succeeded"


@pytest.mark.parametrize(
    ("result", "refusals", "reason"),
    [({"a": float("nan")}, [], "json"), ({"a": "x" * (9 << 20)}, [], "more than"), ({}, [None, 422], "not like this")],
    ids=["no JSON", "too long", "refused"],
)  # fmt: skip
def test_a_result_that_is_not_taken_is_a_failure_that_would_come_again(
    result: dict[str, Any], refusals: list[Any], reason: str
) -> None:
    async def odd(_desk: JobContext) -> JobResult:
        return JobResult(outcome="succeeded", result=result)

    service = FakeService(jobs=[job(lease_seconds=60.0)], refusals=refusals)
    go_on(service, odd)
    (told,) = service.taken
    assert (told["outcome"], told["error"]["code"], told["error"]["final"]) == ("failed", "result_refused", True)
    assert reason in told["error"]["message"].lower()


def test_a_service_that_fails_at_a_result_every_time_is_not_asked_for_ever() -> None:
    service = FakeService(jobs=[job(lease_seconds=60.0)], refusals=[None, *[500] * MOST_FAILURES])
    go_on(service, done)
    (told,) = service.taken
    assert (told["outcome"], told["error"]["code"]) == ("failed", "result_refused")


def test_a_job_whose_end_is_refused_in_every_form_is_left() -> None:
    service = FakeService(jobs=[job(lease_seconds=60.0), job("job_b", lease_seconds=60.0)], refusals=[None, 422, 422])
    go_on(service, done, once=False, most_idle_seconds=0.3)
    assert [told["outcome"] for told in service.taken] == ["succeeded"]


def test_what_a_newer_service_tells_beside_is_passed_over() -> None:
    service = FakeService(jobs=[job(color="blue")])
    go_on(service, done)
    assert len(service.taken) == 1


def test_files_are_handed_in_under_the_claim(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_bytes(b"[1]")
    service = FakeService(jobs=[job(lease_seconds=60.0)])
    answers = []

    async def leaving_files(desk: JobContext) -> JobResult:
        service.refusals = [503]
        answers.append(await desk.upload(tmp_path / "trace.json"))
        service.refusals = [409]
        answers.append(await desk.upload(tmp_path / "trace.json"))
        service.refusals = [413]
        answers.append(await desk.upload(tmp_path / "trace.json"))
        return JobResult(outcome="succeeded")

    go_on(service, leaving_files)
    assert service.files == {"trace.json": b"[1]"}
    assert answers == [None, "the lease of the job is no longer valid", "not like this"]


def test_a_job_is_not_lost_for_progress_that_is_refused() -> None:
    service = FakeService(jobs=[job(lease_seconds=60.0)], refusals=[None, 422])

    async def telling(desk: JobContext) -> JobResult:
        desk.report({"done_fraction": 0.5})
        await until(lambda: bool(service.heard))
        return JobResult(outcome="succeeded")

    go_on(service, telling)
    assert service.heard[0] == {"lease": LEASE, "progress": None}
    assert [told["outcome"] for told in service.taken] == ["succeeded"]


@pytest.mark.parametrize("status", [401, 403, 404, 422])
def test_a_worker_that_is_not_let_in_says_why_and_ends(status: int) -> None:
    with pytest.raises(StartupError, match="not like this"):
        go_on(FakeService(refusals=[status]), done)


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://host", "http://", "http://[::1"])
def test_an_address_that_is_none_is_named(url: str) -> None:
    with pytest.raises(StartupError, match="not the address of a service"):
        ServiceClient(url, None, "w1")
