"""Many clients of one process of the service, each on a connection that it keeps; what it takes of the machine."""

import asyncio
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from tests.replicas import Replica

SETTINGS = {"TRAINCOST_REQUESTS_PER_MINUTE": "0"}
"""How the service is set up: no client is told to slow down."""
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Request:
    """One request, as it is sent."""

    method: str
    path: str
    body: bytes = b""
    statuses: tuple[int, ...] = (200,)

    @property
    def kind(self) -> str:
        """Method and path, without the query."""
        return f"{self.method} {self.path.partition('?')[0]}"

    @property
    def sent(self) -> bytes:
        """Its bytes on a connection."""
        head = f"{self.method} {self.path} HTTP/1.1\r\nHost: localhost\r\n"
        if self.body:
            head += f"Content-Type: application/json\r\nContent-Length: {len(self.body)}\r\n"
        return head.encode() + b"\r\n" + self.body


@dataclass(slots=True)
class Found:
    """What clients found."""

    seconds: list[tuple[float, float]] = field(default_factory=list)
    """When each request was sent, and how long its answer took [second]."""
    faults: Counter[str] = field(default_factory=Counter)
    """What went wrong, and how often."""
    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    """How often each kind of request had each status."""

    def note(self, request: Request, status: int, started: float) -> None:
        """An answer to a request, just now."""
        self.seconds.append((started, time.monotonic() - started))
        self.statuses[request.kind, status] += 1
        if status not in request.statuses:
            self.faults[f"{request.method} {request.path}: {status}"] += 1


def post(path: str, body: Any, *statuses: int) -> Request:
    """A request with a JSON body."""
    return Request("POST", path, json.dumps(body).encode(), statuses or (200,))


@contextmanager
def serving(folder: Path) -> Iterator[Replica]:
    """One process of the service on an SQLite file of its own."""
    replica = Replica(f"sqlite:///{folder / 'traincost.db'}", SETTINGS)
    try:
        yield replica
    finally:
        replica.stop()


def processor_seconds(process: int, *, with_ended_children: bool = False) -> float:
    """Processor time of a process so far, all of its threads, those that ended too [second]."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return sum(map(int, fields[11 : 15 if with_ended_children else 13])) / TICKS_PER_S


def resident_bytes(process: int) -> int:
    """Memory that a process has, its files in memory left out [byte]."""
    return _status_bytes(process, "RssAnon:")


def peak_bytes(process: int) -> int:
    """Most memory that a process ever had, with its files in memory [byte]."""
    return _status_bytes(process, "VmHWM:")


def _status_bytes(process: int, name: str) -> int:
    (line,) = [one for one in _status(process) if one.startswith(name)]
    return 1024 * int(line.split()[1])


def _status(process: int) -> list[str]:
    return Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()


def open_files(process: int) -> int:
    """Files and connections that a process has open."""
    return len(list(Path(f"/proc/{process}/fd").iterdir()))


def asked(address: str, request: Request) -> bytes:
    """The answer to one request."""
    with closing(HTTPConnection(address, timeout=60)) as connection:
        connection.request(request.method, request.path, request.body or None, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        content = answer.read()
    assert answer.status in request.statuses, (answer.status, content[:500])
    return content


def all_asked(address: str, requests: Sequence[Request], clients: int) -> None:
    """Ask each of some questions once, by clients that keep their connections."""
    left = iter(requests)

    def next_request() -> Request | None:
        return next(left, None)

    found = asyncio.run(keep_asking(address, clients, float("inf"), next_request))
    assert len(found.seconds) == len(requests)
    assert not found.faults, found.faults


async def keep_asking(
    address: str, clients: int, seconds: float, next_request: Callable[[], Request | None], pause_seconds: float = 0.0
) -> Found:
    """Clients that ask one question after the other for so long, or until there is none, each on its connection."""
    found, ends = Found(), time.monotonic() + seconds
    lanes = [_client(address, ends, next_request, found, pause_seconds) for _ in range(clients)]
    await asyncio.gather(*lanes)
    return found


class Line:
    """One connection to a service, which stays; another one is opened where it breaks."""

    def __init__(self, address: str) -> None:
        self._host, self._port = address.split(":")
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: Request) -> tuple[int, bytes]:
        """Status and content of the answer to one request."""
        if self._streams is None or self._streams[0].at_eof():  # the service ends connections that say nothing
            await self.close()
            self._streams = await asyncio.open_connection(self._host, int(self._port))
        reader, writer = self._streams
        try:
            writer.write(request.sent)
            return await _answer_in(reader)
        except (OSError, asyncio.IncompleteReadError, ValueError):
            self._streams = None
            writer.close()
            raise

    async def close(self) -> None:
        """End the connection."""
        if self._streams is not None:
            _, writer = self._streams
            self._streams = None
            writer.close()
            await writer.wait_closed()


async def _client(
    address: str, ends: float, next_request: Callable[[], Request | None], found: Found, pause_seconds: float
) -> None:
    line = Line(address)
    while time.monotonic() < ends and (request := next_request()) is not None:
        started = time.monotonic()
        try:
            status, _ = await line.ask(request)
        except (OSError, asyncio.IncompleteReadError, ValueError) as error:
            found.faults[type(error).__name__] += 1
            continue
        found.note(request, status, started)
        if pause_seconds:
            await asyncio.sleep(pause_seconds)
    await line.close()


async def _answer_in(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Status and content of an answer, which is read to its end."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    status, content = int(head.split(b" ", 2)[1]), b""
    _, is_sized, rest = head.partition(b"content-length:")
    if is_sized:
        content = await reader.readexactly(int(rest.split(b"\r\n", 1)[0]))
    elif b"transfer-encoding: chunked" in head:
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            content += (await reader.readexactly(size + 2))[:-2]
        await reader.readexactly(2)
    return status, content
