"""Requests with retries and a deadline, where a retry does no harm.

| what happened | what only asks | what writes |
|---|---|---|
| no connection was made | sent again | sent again |
| the connection broke before the whole answer came | sent again | not: it may have been written |
| no answer in time | not: the service may still be at work on it | not |
| 429, 503 | sent again, not before Retry-After | not |
| any other status | not | not |
"""

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import httpx

from service import __version__
from service.client.errors import Problem, Unreachable, Unreadable
from service.client.reading import encoded

NOT_CONNECTED = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
BROKEN = (httpx.ReadError, httpx.WriteError, httpx.CloseError, httpx.RemoteProtocolError)
NOT_NOW = (429, 503)
"""Statuses that ask to come back later."""

FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.25, 10.0
"""Longest wait before the first repetition, and before any: it doubles between. Source: a choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """How often and how long a request is repeated."""

    most: int = 4
    """Repetitions at most; 0 for none."""
    deadline_seconds: float = 120.0
    """Nothing is sent, and no wait begins that would end, later than this after the first try."""
    sleep: Callable[[float], None] = time.sleep
    """Waits."""
    clock: Callable[[], float] = time.monotonic
    """Seconds from any start."""
    draw: Callable[[], float] = random.random
    """A number from 0 to 1, which spreads those who wait."""


PATIENT = Retries()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A request as it is to be sent."""

    method: str
    path: str
    repeats: bool
    """Whether it may be sent again although it may have arrived: it writes nothing, or only once."""
    content: bytes | None = None
    """JSON of the body."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """The query."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers beside those of every request."""
    streams: bool = False
    """Whether a good answer is read by the caller, bit by bit."""


def making(path: str, body: Any, key: str | None) -> Sent:
    """A request that makes something, and is sent again where it may not have arrived, for it is done once.

    Args:
        path: the list that gets the new row
        body: what makes it
        key: what the request is called; None for a name of its own

    Returns:
        the request
    """
    headers = {"Idempotency-Key": key or str(uuid4())}
    return Sent(method="POST", path=path, repeats=True, content=encoded(body), headers=headers)


class Sender:
    """Sends requests to one service.

    Args:
        http: the connections
        retries: how often and how long a request is repeated
    """

    def __init__(self, http: httpx.Client, retries: Retries) -> None:
        self.http = http
        self.retries = retries

    def send(self, sent: Sent) -> httpx.Response:
        """The answer to a request.

        Args:
            sent: the request

        Returns:
            the response, whose status is a good one

        Raises:
            Problem: the service refuses, or fails to answer
            Unreachable: no whole answer came
        """
        ends = self.retries.clock() + self.retries.deadline_seconds
        for repetition in range(self.retries.most + 1):
            outcome = self._once(sent, ends)
            if isinstance(outcome, httpx.Response) and outcome.is_success:
                return outcome
            wait_seconds = self._wait_seconds(sent, outcome, repetition)
            if wait_seconds is None or self.retries.clock() + wait_seconds >= ends:
                break
            self.retries.sleep(wait_seconds)
        if isinstance(outcome, httpx.Response):
            raise problem_of(outcome)
        raise Unreachable(f"no answer from {self.http.base_url}: {outcome!r}") from outcome

    def _once(self, sent: Sent, ends: float) -> httpx.Response | httpx.RequestError:
        request = self.http.build_request(
            sent.method,
            sent.path,
            content=sent.content,
            params=sent.parameters,
            headers={**({} if sent.content is None else {"Content-Type": "application/json"}), **sent.headers},
        )
        left_seconds = max(ends - self.retries.clock(), 0.0)
        limits = request.extensions["timeout"]
        request.extensions["timeout"] = {
            name: left_seconds if limit is None else min(limit, left_seconds) for name, limit in limits.items()
        }
        try:
            response = self.http.send(request, stream=True)
            if not (sent.streams and response.is_success):
                response.read()
        except httpx.RequestError as error:
            return error
        return response

    def _wait_seconds(self, sent: Sent, outcome: httpx.Response | httpx.RequestError, repetition: int) -> float | None:
        """How long to wait before the request is sent again; None where it is not."""
        if repetition == self.retries.most:
            return None
        if isinstance(outcome, httpx.Response):
            if not sent.repeats or outcome.status_code not in NOT_NOW:
                return None
        elif not isinstance(outcome, NOT_CONNECTED) and not (sent.repeats and isinstance(outcome, BROKEN)):
            return None
        least = retry_after_seconds(outcome) if isinstance(outcome, httpx.Response) else 0.0
        return least + self.retries.draw() * min(FIRST_WAIT_SECONDS * 2.0**repetition, LONGEST_WAIT_SECONDS)


def connections(url: str, key: str | None, timeout: float, transport: httpx.BaseTransport | None) -> httpx.Client:
    """Connections to a service.

    Args:
        url: its address, with its path prefix, if any
        key: what is sent as a bearer token; None for nothing
        timeout: longest wait for a connection, and for each next part of an answer [second]
        transport: sends requests otherwise than over the network; None for the network

    Returns:
        the connections

    Raises:
        ValueError: the address has no scheme
    """
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{url} is no address of a service; it begins with http:// or https://")
    headers = {"User-Agent": f"traincost/{__version__}", "Accept": "application/json"}
    authorised = {} if key is None else {"Authorization": f"Bearer {key}"}
    return httpx.Client(base_url=url, headers={**headers, **authorised}, timeout=timeout, transport=transport)


def segment(text: str) -> str:
    """A name as one segment of a path, whatever it holds.

    Args:
        text: the name

    Returns:
        the segment

    Raises:
        ValueError: it is empty, or a name that paths give another meaning

    >>> segment("a/b c")
    'a%2Fb%20c'
    """
    if text in ("", ".", ".."):
        raise ValueError(f"{text!r} names nothing that the service holds")
    return quote(text, safe="")


def json_of(response: httpx.Response) -> Any:
    """The JSON value of a successful response.

    Args:
        response: the response, read

    Returns:
        the JSON value

    Raises:
        Unreadable: it is none
    """
    try:
        return response.json()
    except ValueError:
        raise Unreadable(f"the answer of {response.url} is no JSON") from None


def problem_of(response: httpx.Response) -> Problem:
    """The exception of an unsuccessful response.

    Args:
        response: the response, read

    Returns:
        its problem document; one of its status alone where it holds none
    """
    try:
        document = response.json()
    except ValueError:
        document = None
    problem = document if isinstance(document, dict) and "code" in document else {}
    return Problem(response.status_code, problem, response.headers.get("X-Request-Id", ""))


def retry_after_seconds(response: httpx.Response) -> float:
    """How long a response asks to wait.

    Args:
        response: the response; Retry-After is a number of seconds or a date, by the clock of the server
            where it says that too

    Returns:
        the wait [second]; 0 where it asks for none, or for one that is not readable
    """
    header = response.headers.get("Retry-After", "").strip()
    if header.isascii() and header.isdigit():
        return float(header)
    then, now = _date(header), _date(response.headers.get("Date", "")) or datetime.now(UTC)
    return 0.0 if then is None else max((then - now).total_seconds(), 0.0)


def _date(text: str) -> datetime | None:
    """A date of HTTP; None where the text is none."""
    try:
        found = parsedate_to_datetime(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
