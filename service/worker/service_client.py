"""Requests of a worker to the service. Retries let a measurement survive a restart of the service.

Requests without a response, or with 429 or 5xx, are retried after growing waits. A request that gets 500 every time is
dropped. After 409 the lease is lost, and the worker stops the job. 401, 403 and 404 end the worker with the reason. Any
other refusal is raised to the caller.
"""

import asyncio
import json
import logging
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal
from urllib.parse import quote

import httpx

from service import __version__
from service.errors import StartupError, TraincostError
from service.worker.jobs import ClaimedJob, JobFile, JobResult

CONNECT_SECONDS = 10.0
"""Longest wait for a connection."""
ANSWER_SECONDS = 60.0
"""Longest wait for each part of a response, beyond the requested poll."""
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.25, 5.0
"""Shortest and longest wait before a retry; waits double. Source: a choice; a restart takes a few seconds."""
MOST_FAILURES = 5
"""Most responses 500 to one request. A restart causes one; more indicate a defect."""

MOST_RESULT_BYTES, MOST_FILE_BYTES = 8 << 20, 64 << 20
"""Limits of the service, repeated here because it closes the connection on longer bodies. A test compares them."""

LEASE_HEADER = "Traincost-Lease"
"""Header with the lease for requests without a JSON body."""

LOST = 409
LEASE_LOST = "the lease of the job holds no longer"
REFUSED_WORKER = {401, 403, 404, 405}

State = Literal["run", "cancel", "lost"]

log = logging.getLogger(__name__)


class Unavailable(TraincostError):
    """No response, or a response that asks to retry."""


class Failed(Unavailable):
    """The service responds with 500."""


class RequestRefused(TraincostError):
    """The service refuses the request, and would refuse it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Address of the service and identity of the worker."""

    url: str
    """E.g. https://traincost.example.org"""
    token: str | None
    """A key with the scope worker; None where the service requires none."""
    worker: str
    """Name of this worker."""


class ServiceClient:
    """Client of one service for one worker."""

    def __init__(self, address: Address, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self.worker = address.worker
        self._is_unreachable = False
        headers = {"User-Agent": f"traincost-worker/{__version__}", "Accept": "application/json"}
        authorised = {} if address.token is None else {"Authorization": f"Bearer {address.token}"}
        timeout = httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS)
        try:
            self._http = httpx.AsyncClient(
                base_url=address.url, headers={**headers, **authorised}, timeout=timeout, transport=transport
            )
        except httpx.InvalidURL as error:
            raise StartupError(f"{address.url} is no address of a service: {error}") from None
        if self._http.base_url.scheme not in {"http", "https"} or not self._http.base_url.host:
            raise StartupError(f"{address.url} is no address of a service; it begins with http:// or https://")

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def claim(
        self, kinds: Sequence[str], capabilities: Mapping[str, Any], wait_seconds: float
    ) -> ClaimedJob | None:
        """Claim a job; sent once."""
        body = {"worker": self.worker, "kinds": kinds, "capabilities": capabilities, "wait_seconds": wait_seconds}
        timeout = httpx.Timeout(ANSWER_SECONDS + wait_seconds, connect=CONNECT_SECONDS)
        try:
            answer = await self._request("POST", "/v1/worker/claim", content=encoded(body), timeout=timeout)
        except RequestRefused as error:
            raise StartupError(f"the service at {self._http.base_url} does not take this worker: {error}") from None
        if answer.status_code == httpx.codes.NO_CONTENT:
            return None
        job = answer.json()["job"]
        names = {one.name for one in fields(ClaimedJob)}
        return ClaimedJob(**{name: value for name, value in job.items() if name in names})

    async def heartbeat(self, job: ClaimedJob, progress: Mapping[str, Any] | None) -> State:
        """Renew the lease of a job; sent once."""
        body = {"lease": job.lease, "progress": progress}
        answer = await self._request("POST", f"{_job_path(job)}/heartbeat", content=encoded(body))
        state: State = "lost" if answer.status_code == LOST else answer.json()["state"]
        return state

    async def upload(self, job: ClaimedJob, file: JobFile) -> None:
        """Upload a file of a job, retried while the service is down."""
        content = _bounded(MOST_FILE_BYTES, await asyncio.to_thread(file.path.read_bytes))
        headers = {"Content-Type": file.media_type, LEASE_HEADER: job.lease}
        await self._unless_lost(
            "PUT", f"{_job_path(job)}/files/{quote(file.name, safe='')}", content=content, headers=headers
        )

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
        answer = await self._until_answered("POST", f"{_job_path(job)}/finish", content=encoded(body))
        return answer.status_code != LOST

    async def _until_answered(self, method: str, path: str, **sent: Any) -> httpx.Response:
        wait_seconds, failures = 0.0, 0
        while True:
            try:
                return await self._request(method, path, **sent)
            except Unavailable as error:
                failures = failures + 1 if isinstance(error, Failed) else 0
                if failures == MOST_FAILURES:
                    raise RequestRefused(f"the service fails at it: {error}") from error
                wait_seconds = longer_seconds(wait_seconds)
                await asyncio.sleep(wait_seconds)

    async def _request(self, method: str, path: str, **sent: Any) -> httpx.Response:
        """Send a request; return a success or a lost lease, and raise for other responses."""
        try:
            headers = {"Content-Type": "application/json"} | sent.pop("headers", {})
            answer = await self._http.request(method, path, headers=headers, **sent)
        except httpx.RequestError as error:
            raise self._unreachable(repr(error)) from error
        if answer.status_code == httpx.codes.INTERNAL_SERVER_ERROR:
            raise Failed(refusal_of(answer))
        if answer.is_server_error or answer.status_code == httpx.codes.TOO_MANY_REQUESTS:
            raise self._unreachable(f"status {answer.status_code}")
        if self._is_unreachable:
            log.warning("%s answers again", self._http.base_url)
            self._is_unreachable = False
        if answer.is_success or answer.status_code == LOST:
            return answer
        if answer.status_code in REFUSED_WORKER:
            raise StartupError(f"{self._http.base_url} does not let this worker in: {refusal_of(answer)}")
        raise RequestRefused(refusal_of(answer))

    def _unreachable(self, reason: str) -> Unavailable:
        if not self._is_unreachable:
            log.warning("no answer from %s (%s); asking again, and what runs goes on", self._http.base_url, reason)
            self._is_unreachable = True
        return Unavailable(reason)


def encoded(body: Mapping[str, Any]) -> bytes:
    """The JSON of a body."""
    try:
        content = json.dumps(body, allow_nan=False).encode()
    except ValueError as error:
        raise RequestRefused(str(error)) from None
    return _bounded(MOST_RESULT_BYTES, content)


def refusal_of(answer: httpx.Response) -> str:
    """The service's reason of a refusal."""
    try:
        return str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return f"status {answer.status_code}"


def _bounded(most_bytes: int, content: bytes) -> bytes:
    if len(content) > most_bytes:
        raise RequestRefused(f"{len(content)} bytes are more than the {most_bytes} that the service takes")
    return content


def _job_path(job: ClaimedJob) -> str:
    return f"/v1/worker/jobs/{quote(job.id, safe='')}"


def longer_seconds(wait_seconds: float) -> float:
    """The wait after another failed attempt [s]: doubled within bounds, and randomized."""
    doubled = min(max(2.0 * wait_seconds, FIRST_WAIT_SECONDS), LONGEST_WAIT_SECONDS)
    return doubled * random.uniform(0.75, 1.0)  # noqa: S311 - no security use
