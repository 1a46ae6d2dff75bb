"""What only a connection shows: late, long and ambiguous heads end there, and nothing behind them is answered."""

import asyncio
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Thread
from time import monotonic, sleep

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from service.api.envelope import ErrorMiddleware, RequestMiddleware
from service.api.errors import KINDS
from service.api.limits.http_limits import MAXIMUM_BODY_BYTES, BodyLimit
from service.api.server import LINGER_SECONDS, MOST_HEAD_BYTES, RESERVED_FILES, LimitedProtocol, connection_limit
from tests.api.slow_clients import BODIES, HEADS, all_slowly, chunked, dripped, sized
from tests.api.slow_clients import refused as refused_body
from tests.api.smuggling import AMBIGUOUS, CHUNKED, HIDDEN, SOUND, get, post, replies

SECONDS = 0.3
MOST_CONNECTIONS = 32


class Hasty(LimitedProtocol):
    """The same with less patience."""

    head_seconds = SECONDS


@dataclass
class Counting:
    """An application that counts what reaches it, and answers with the body; one path is answered unread."""

    entered: list[str] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        is_read = scope["path"] != "/unread"
        body = (await receive()).get("body", b"") if is_read else b""
        self.entered.append(scope["path"])
        names = b",".join(sorted(name for name, _ in scope["headers"]))
        headers = [(b"content-length", str(len(body)).encode()), (b"x-names", names)]
        await send({"type": "http.response.start", "status": 200 if is_read else 401, "headers": headers})
        await send({"type": "http.response.body", "body": body})


@dataclass(frozen=True)
class Served:
    address: tuple[str, int]
    counting: Counting


@contextmanager
def serving() -> Iterator[Served]:
    """A server with less patience and fewer connections, on a thread."""
    counting = Counting()
    bounded = BodyLimit(counting, maximum_seconds=2 * SECONDS)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await (RequestMiddleware(ErrorMiddleware(bounded)) if scope["path"] != "/unread" else counting)(
            scope, receive, send
        )

    config = uvicorn.Config(
        app, http=Hasty, ws="none", log_config=None, lifespan="off", limit_concurrency=MOST_CONNECTIONS
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield Served(listener.getsockname(), counting)
        finally:
            server.should_exit = True
            thread.join(timeout=60)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving() as server:
        yield server


def refused(came: bytes, code: str) -> None:
    """One problem document, whole, that says so and ends the connection."""
    head, _, body = came.partition(b"\r\n\r\n")
    document = json.loads(body)
    headers = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    assert (document["code"], document["status"]) == (code, KINDS[code].status)
    assert headers[b"content-type"] == b"application/problem+json"
    assert headers[b"connection"] == b"close"
    assert headers[b"x-request-id"] == document["request_id"].encode()
    assert int(headers[b"content-length"]) == len(body)


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_what_could_be_read_in_two_ways_is_refused_once(served: Served, name: str) -> None:
    served.counting.entered.clear()
    statuses, came = replies(served.address, AMBIGUOUS[name] + HIDDEN)
    assert statuses == [400]
    refused(came, "bad_request")
    assert served.counting.entered == []


@pytest.mark.parametrize("sent", [b"BREW / HTTP/1.1\r\n\r\n", b"get / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00"])
def test_a_method_that_nobody_knows_and_tls_are_told_what_is_spoken_here(served: Served, sent: bytes) -> None:
    statuses, came = replies(served.address, sent)
    assert statuses == [400]
    refused(came, "bad_request")
    assert b"such as GET or POST" in came
    assert b"without TLS" in came


@pytest.mark.parametrize("name", SOUND)
def test_what_ends_the_connection_hides_nothing(served: Served, name: str) -> None:
    statuses, _ = replies(served.address, SOUND[name] + HIDDEN)
    assert statuses == [200]


def test_a_refusal_reaches_who_has_not_sent_everything_yet(served: Served) -> None:
    """Who reads only after everything was sent finds the connection ended, not reset, and the refusal on it."""
    length = 4 * MAXIMUM_BODY_BYTES
    with socket.create_connection(served.address, timeout=60) as client:
        client.sendall(b"POST /v1/memory HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % length)
        sleep(SECONDS)  # the refusal is there by now
        client.sendall(b" " * length)
        refused(b"".join(iter(lambda: client.recv(65_536), b"")), "body_too_large")


def test_who_goes_on_sending_is_not_heard_out_for_ever(served: Served) -> None:
    with socket.create_connection(served.address, timeout=60) as client:
        client.sendall(b"POST /v1/memory HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999999\r\n\r\n")
        started = monotonic()
        with pytest.raises(OSError, match=r"reset|pipe"):  # noqa: PT012 - until it is over
            while monotonic() < started + 10 * LINGER_SECONDS:
                client.sendall(b" " * 1024)
                sleep(0.01)
    assert monotonic() - started > LINGER_SECONDS - 1


def test_requests_behind_each_other_are_all_answered(served: Served) -> None:
    sent = get(b"Host: a") + post(b"Content-Length: 2", content=b"{}") + post(CHUNKED, content=b"2\r\n{}\r\n0\r\n\r\n")
    statuses, came = replies(served.address, sent + get(b"Host: [::1]:8000", b"Connection: close"))
    assert statuses == [200] * 4
    assert came.count(b"\r\n\r\n{}") == 2


def test_what_came_before_garbage_is_answered_and_the_garbage_is_not(served: Served) -> None:
    for garbage in (b"\0\0\0", AMBIGUOUS["length and chunks"] + HIDDEN, get() + HIDDEN):
        statuses, _ = replies(served.address, get(b"Host: a") + garbage)
        assert statuses == [200]


def test_headers_behind_the_content_change_nothing(served: Served) -> None:
    trailed = post(CHUNKED, b"Connection: close", content=b"2\r\n{}\r\n0\r\nAuthorization: Bearer x\r\n\r\n")
    statuses, came = replies(served.address, trailed)
    assert statuses == [200]
    assert b"x-names: connection,content-type,host,transfer-encoding\r\n" in came


def test_a_body_that_breaks_off_reaches_nobody(served: Served) -> None:
    served.counting.entered.clear()
    with socket.create_connection(served.address) as connection:
        connection.sendall(post(b"Content-Length: 9", content=b"{}"))
    assert replies(served.address, get(b"Host: a", b"Connection: close", target=b"/after"))[0] == [200]
    assert served.counting.entered == ["/after"]


@pytest.mark.parametrize(
    "head",
    [
        get(b"Host: a", b"X-A: " + b"x" * MOST_HEAD_BYTES),
        get(b"Host: a", *(b"X-%d: y" % number for number in range(MOST_HEAD_BYTES // 8))),
        b"GET /" + b"x" * (1 << 20),
        b"\r\n" * MOST_HEAD_BYTES,
        post(CHUNKED, content=b"1;" + b"x" * (1 << 20)),
        post(CHUNKED, content=b"0\r\nX-A: " + b"x" * (1 << 20)),
    ],
    ids=["header", "headers", "target", "nothing", "extension", "trailer"],
)
def test_what_is_no_content_has_a_bound(served: Served, head: bytes) -> None:
    _, came = replies(served.address, head)
    refused(came, "head_too_large")


def test_a_long_head_and_small_chunks_are_within_it(served: Served) -> None:
    long = get(b"Host: a", b"Connection: close", b"X-A: " + b"x" * (MOST_HEAD_BYTES - 100))
    chunks = post(CHUNKED, b"Connection: close", content=b"1;a=b\r\nx\r\n" * 20_000 + b"0\r\n\r\n")
    assert [replies(served.address, sent)[0] for sent in (long, chunks)] == [[200], [200]]


@pytest.mark.parametrize("sent", [b"G", b"GET /healthz HTTP/1.1\r\nHost: a\r\n", get(b"Host: a") + b"GET /"])
def test_a_head_that_does_not_end_is_cut_off(served: Served, sent: bytes) -> None:
    begun = monotonic()
    _, came = replies(served.address, sent)
    refused(came[came.rindex(b"HTTP/1.1") :], "head_timeout")
    assert monotonic() - begun > SECONDS / 2


def test_a_head_that_comes_byte_by_byte_is_cut_off_all_the_same(served: Served) -> None:
    with socket.create_connection(served.address, timeout=60) as connection:
        for byte in get(b"Host: a", b"X-A: " + b"x" * 100)[: int(2 * SECONDS / 0.02)]:
            sleep(0.02)
            try:
                connection.sendall(bytes([byte]))
            except (BrokenPipeError, ConnectionResetError):
                return
        assert connection.recv(65536).startswith(b"HTTP/1.1 408 ")


def test_who_says_nothing_is_told_nothing(served: Served) -> None:
    assert replies(served.address, b"") == ([], b"")


def test_content_that_comes_slowly_is_cut_off_read_or_not(served: Served) -> None:
    _, came = replies(served.address, post(b"Content-Length: 9", content=b"{"))
    refused(came, "body_timeout")
    unread = post(b"Content-Length: 9", content=b"{").replace(b"/v1/memory", b"/unread")
    with socket.create_connection(served.address, timeout=60) as connection:
        connection.sendall(unread)
        assert connection.recv(65536).startswith(b"HTTP/1.1 401 ")
        begun = monotonic()
        connection.sendall(b"x")  # were each byte to count as a new beginning, this would go on for ever
        while connection.recv(65536):
            pass
        assert monotonic() - begun < 60


@pytest.mark.parametrize("form", [sized, chunked, dripped])
def test_a_body_of_ten_megabytes_is_refused_at_the_bound(
    served: Served, form: Callable[[int], Iterator[tuple[bytes, bool]]]
) -> None:
    served.counting.entered.clear()
    assert refused_body(served.address, form(MAXIMUM_BODY_BYTES)).status == 413
    assert served.counting.entered == []


def test_slow_clients_are_all_cut_off(served: Served) -> None:
    begun = {HEADS: 20, BODIES: 10}
    ended = asyncio.run(all_slowly(served.address, begun, every_seconds=SECONDS / 4, most_seconds=15))
    assert {one.status for some in ended.values() for one in some} == {408}
    assert replies(served.address, get(b"Host: a", b"Connection: close"))[0] == [200]


def test_one_connection_too_many_is_turned_away_and_the_others_stay(served: Served) -> None:
    held: list[socket.socket] = []
    try:
        for _ in range(MOST_CONNECTIONS):
            held.append(socket.create_connection(served.address, timeout=60))
            held[-1].sendall(get(b"Host: a"))
            assert held[-1].recv(65536).startswith(b"HTTP/1.1 200 ")
        _, came = replies(served.address, b"")
        refused(came, "too_many_connections")
        assert b"\r\nretry-after: " in came.lower()
        held[0].sendall(get(b"Host: a"))
        assert held[0].recv(65536).startswith(b"HTTP/1.1 200 ")
    finally:
        for connection in held:
            connection.close()


def test_connections_leave_files_for_the_database(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    bounds = [(1024, 4096)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: bounds[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, wanted: bounds.append(wanted))
    assert connection_limit(100) == 100
    assert bounds == [(1024, 4096)]
    assert connection_limit(2000) == 2000
    assert bounds[-1] == (2000 + RESERVED_FILES, 4096)
    assert connection_limit(10_000) == 4096 - RESERVED_FILES
    bounds.append((100, 100))
    assert connection_limit(10_000) == 1
    bounds.append((resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert connection_limit(10_000) == 10_000
