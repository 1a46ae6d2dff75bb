"""Requests with retries and a deadline, where a retry does no harm, and server-sent events.

| outcome | request that only reads, or writes once | request that writes |
|---|---|---|
| no connection | retry | retry |
| a connection that broke before the whole answer | retry | none: it may have been written |
| no answer in time | none: the service may still be at work on it | none |
| 429, 503 | retry, not before Retry-After | none |
| any other status | none | none |
"""

import random
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.parse import quote
from uuid import uuid4

import httpx

from service import __version__
from service.client.reading import Problem, Unreachable, Unreadable, encoded, from_json

Kind = TypeVar("Kind")

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


@dataclass(frozen=True, slots=True)
class Sent:
    """A request."""

    method: str
    path: str
    _: KW_ONLY
    repeats: bool = True
    """Whether it may be sent again although it may have arrived: it writes nothing, or only once."""
    content: bytes | None = None
    """JSON of the body."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """The query."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers beside those of every request."""
    streams: bool = False
    """Whether the caller reads a successful response bit by bit."""


def creation(path: str, body: Any, key: str | None) -> Sent:
    """A request that creates something once, however often it is sent; without a key it gets one of its own."""
    headers = {"Idempotency-Key": key or str(uuid4())}
    return Sent("POST", path, content=encoded(body), headers=headers)


class Sender:
    """Sends requests to one service."""

    def __init__(self, http: httpx.Client, retries: Retries) -> None:
        self.http = http
        self.retries = retries

    def answer(self, kind: type[Kind], sent: Sent) -> Kind:
        """The answer to a request as its dataclass."""
        return from_json(kind, self.json(sent))

    def json(self, sent: Sent) -> Any:
        """The answer to a request as a JSON value."""
        return json_of(self.send(sent))

    def send(self, sent: Sent) -> httpx.Response:
        """The successful response to a request; any other one is raised as a Problem, and none as Unreachable."""
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
        """Wait before the request is sent again; None where it is not."""
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
    """Connections to a service, with a bearer token where there is a key; a transport replaces the network."""
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{url} is no address of a service; it begins with http:// or https://")
    headers = {"User-Agent": f"traincost/{__version__}", "Accept": "application/json"}
    authorised = {} if key is None else {"Authorization": f"Bearer {key}"}
    return httpx.Client(base_url=url, headers={**headers, **authorised}, timeout=timeout, transport=transport)


def segment(text: str) -> str:
    """A name as one segment of a path, whatever it holds; names that paths give another meaning are refused.

    >>> segment("a/b c")
    'a%2Fb%20c'
    """
    if text in ("", ".", ".."):
        raise ValueError(f"{text!r} names nothing that the service holds")
    return quote(text, safe="")


def json_of(response: httpx.Response) -> Any:
    """The JSON value of a successful response."""
    try:
        return response.json()
    except ValueError:
        raise Unreadable(f"the answer of {response.url} is no JSON") from None


def problem_of(response: httpx.Response) -> Problem:
    """The exception of an unsuccessful response: its problem document, or its status alone where it has none."""
    try:
        document = response.json()
    except ValueError:
        document = None
    problem = document if isinstance(document, dict) and "code" in document else {}
    return Problem(response.status_code, problem, response.headers.get("X-Request-Id", ""))


def retry_after_seconds(response: httpx.Response) -> float:
    """The wait that a response asks for [s]; 0 where it asks for none, or for an unreadable one.

    Retry-After is a number of seconds, or a date by the server's clock where the response has that too.
    """
    header = response.headers.get("Retry-After", "").strip()
    if header.isascii() and header.isdigit():
        return float(header)
    then, now = _date(header), _date(response.headers.get("Date", "")) or datetime.now(UTC)
    return 0.0 if then is None else max((then - now).total_seconds(), 0.0)


def _date(text: str) -> datetime | None:
    """A date of HTTP; None where the text is none."""
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return None
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)


EVENT_STREAM = {"Accept": "text/event-stream"}
"""Header of a request for server-sent events."""

LINE_END = re.compile(rb"\r\n|\n|\r")
BYTE_ORDER_MARK = "\ufeff"
UNNAMED = "message"
"""Name of an event without one."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a stream."""

    name: str
    """Kind of the event."""
    data: str
    """Its data."""
    id: str = ""
    """Name of the last event that came, for a new connection; empty where the stream has no ids."""


def events_of(chunks: Iterable[bytes]) -> Iterator[Event]:
    r"""The events of a stream that is cut anywhere, each as soon as it is whole.

    Waiting times are ignored: a client that reconnects has its own. Source: HTML standard, section 9.2.6, interpreting
    an event stream.

    >>> [event.data for event in events_of([b"data: a\r", b"\ndata: b\n\n: a comment\n"])]
    ['a\nb']
    """
    name, data, last_id = "", list[str](), ""
    for place, line in enumerate(_lines(chunks)):
        field, _, value = (line if place else line.removeprefix(BYTE_ORDER_MARK)).partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            data.append(value)
        elif field == "event":
            name = value
        elif field == "id" and "\0" not in value:
            last_id = value
        elif not line:
            if data:
                yield Event(name or UNNAMED, "\n".join(data), last_id)
            name, data = "", []


def _lines(chunks: Iterable[bytes]) -> Iterator[str]:
    """Lines of a text that is cut anywhere; a return at the end of a chunk ends its line, whatever follows."""
    rest, returned = b"", False
    for chunk in chunks:
        *whole, rest = LINE_END.split(rest + (chunk.removeprefix(b"\n") if returned else chunk))
        returned = chunk.endswith(b"\r") or (returned and not chunk)
        yield from (line.decode("utf-8", errors="replace") for line in whole)
