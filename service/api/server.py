"""Server process: its start and end, and limits on connections and request heads."""

import asyncio
import ctypes
import gc
import logging
import re
import socket
import sys
from asyncio import AbstractEventLoop, TimerHandle, Transport
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from errno import EADDRINUSE
from ipaddress import ip_address
from time import monotonic
from types import FrameType
from typing import Any
from uuid import uuid4

import httptools
import uvicorn
from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from service.api.envelope import COMMON_HEADERS
from service.api.errors import ApiError, problem_response
from service.api.metrics import Metrics, RefusalKind
from service.errors import StartupError
from service.logs import start_log
from service.settings import Settings

LINGER_SECONDS = 2.0
"""Time for which bytes after the answer are discarded. Source: a choice; nginx takes 5 s since the last byte."""


class LingeringClose:
    """A transport that delays its close while the peer is still sending."""

    def __init__(self, transport: Transport, loop: AbstractEventLoop, is_sending: Callable[[], bool]) -> None:
        self._transport, self._loop, self._is_sending = transport, loop, is_sending
        self._timer: TimerHandle | None = None
        self.is_closed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        """Whether the close was requested."""
        return self.is_closed or self._transport.is_closing()

    def close(self) -> None:
        """End the sending direction, and close: at once, or LINGER_SECONDS later while the peer is sending."""
        if self.is_closed:
            return
        self.is_closed = True
        if self._transport.is_closing() or not self._is_sending() or not self._transport.can_write_eof():
            self._transport.close()
            return
        self._transport.write_eof()
        self._transport.resume_reading()
        self._timer = self._loop.call_later(LINGER_SECONDS, self._transport.close)

    def cancel(self) -> None:
        """Cancel the delayed close of a lost connection."""
        if self._timer is not None:
            self._timer.cancel()


HEAD_SECONDS = 10.0
"""Time limit of a request line and its headers, from the connection or from the end of the last answer."""
MOST_HEAD_BYTES = 64 << 10
"""Longest request line with its headers; also the chunk framing allowed beyond FRAMING_BYTES."""
FRAMING_BYTES = 16
"""Framing allowed for each byte of chunked content; a chunk of one byte has five."""
RETRY_SECONDS = 1

HOST = re.compile(rb"([A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?")
CHUNKED = [b"chunked"]
CLOSES = {"Connection": "close"}

MALFORMED = "send one request that HTTP/1.1 allows no one to read in two ways"
NO_METHOD = "send a method that HTTP knows, in capitals, such as GET or POST; this port speaks HTTP, without TLS"
ONE_HOST = "send exactly one Host header, with the name or address of the service and nothing else"
HOST_OF_TARGET = "send the path alone behind the method, or the same host there as in the Host header"
ONE_LENGTH = "send one Content-Length, or Transfer-Encoding: chunked, and never both"

TOO_MANY = "close connections that are not in use, or wait"

log = logging.getLogger(__name__)
parser_log = logging.getLogger(f"{__name__}.parser")
parser_log.setLevel(logging.ERROR)  # its warnings repeat rejections, which carry a request id


class RejectedConnection(ApiError):
    """A connection without a valid request: it gets an error answer and is closed."""

    def __init__(self, kind: RefusalKind, code: str, detail: str, headers: Mapping[str, str] = CLOSES) -> None:
        super().__init__(code, detail, headers)
        self.kind = kind


class LimitedProtocol(HttpToolsProtocol):
    """uvicorn's protocol for one connection, with limits; `limit_concurrency` counts connections."""

    head_seconds = HEAD_SECONDS

    @staticmethod
    def on_refusal(kind: RefusalKind) -> None:
        """Called for each rejected connection."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.logger = parser_log
        self.most_connections, self.limit_concurrency = self.limit_concurrency, None
        self.head_timer: TimerHandle | None = None
        self.refusal: RejectedConnection | None = None
        self.is_over = False
        self.is_in_head = False
        self.framing_bytes = self.content_bytes = self.new_content_bytes = 0

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]  # of TCP
        """Wait for a head, unless there are too many connections already."""
        super().connection_made(transport)
        self.transport = self.lingering = LingeringClose(transport, self.loop, self._is_awaiting)  # type: ignore[assignment]  # closes later, else the same
        if self.most_connections is not None and len(self.connections) > self.most_connections:
            headers = {**CLOSES, "Retry-After": str(RETRY_SECONDS)}
            self._reject(RejectedConnection("connections", "too_many_connections", TOO_MANY, headers))
        else:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timers."""
        self._cancel_head_timer()
        self.lingering.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse bytes, and count those that are not content."""
        if self.is_over or self.lingering.is_closed:
            return
        self.new_content_bytes = 0
        super().data_received(data)
        self.framing_bytes += len(data) - self.new_content_bytes
        if self.is_over or self.transport.is_closing():
            return
        if self.framing_bytes > MOST_HEAD_BYTES + FRAMING_BYTES * self.content_bytes:
            self._reject(_head_too_large())
        elif self.cycle is None or self.cycle.response_complete:
            self._await_head()

    def on_message_begin(self) -> None:
        """Reset the counts for the next request."""
        super().on_message_begin()
        self.is_in_head = True
        self.framing_bytes = self.content_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header of the head; ignore trailers, which could override headers that were checked already."""
        if self.is_in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Pass on the request unless its head is ambiguous."""
        self.refusal = rejection_of(self.url, self.headers, self.parser.get_http_version())
        if self.refusal is not None:
            raise self.refusal
        self.is_in_head = False
        self._cancel_head_timer()
        super().on_headers_complete()
        if self.parser.should_upgrade():
            self.cycle.keep_alive = False  # another protocol may follow

    def on_body(self, body: bytes) -> None:
        self.new_content_bytes += len(body)
        self.content_bytes += len(body)
        super().on_body(body)

    def on_response_complete(self) -> None:
        """Wait for the next request, which may be partly received."""
        super().on_response_complete()
        if self.cycle.response_complete:
            self.cycle.body = bytearray()  # unread content would take memory while the connection is kept alive
        if self.is_in_head and not self.is_over:
            self._unset_keepalive_if_required()
            self._await_head()

    def send_400_response(self, msg: str) -> None:
        """Answer a parser error with a problem document; called while the parser's exception is handled."""
        log.debug("%s", msg)
        is_no_method = isinstance(sys.exception(), httptools.HttpParserInvalidMethodError)
        self._reject(
            self.refusal or RejectedConnection("grammar", "bad_request", NO_METHOD if is_no_method else MALFORMED)
        )

    def _is_awaiting(self) -> bool:
        return self.is_in_head or (self.cycle is not None and self.cycle.more_body)

    def _reject(self, error: "RejectedConnection") -> None:
        """Answer with a problem document and close, after earlier requests on this connection are answered."""
        self.is_over = True
        self.on_refusal(error.kind)
        self._cancel_head_timer()
        earlier = self.cycle
        if earlier is not None and not earlier.response_complete:
            if not earlier.more_body:
                earlier.keep_alive = False
                return
            if self.pipeline or earlier.response_started:
                self.transport.close()
                return
        self.transport.write(response_bytes(error))
        self.transport.close()

    def _await_head(self) -> None:
        if self.head_timer is None:
            self.head_timer = self.loop.call_later(self.head_seconds, self._on_late_head)

    def _cancel_head_timer(self) -> None:
        if self.head_timer is not None:
            self.head_timer.cancel()
            self.head_timer = None

    def _on_late_head(self) -> None:
        """Close a connection without a complete head; answer only if part of one arrived."""
        self.head_timer = None
        if self.is_in_head:
            detail = f"send the request line and all headers within {self.head_seconds:g} seconds"
            self._reject(RejectedConnection("late", "head_timeout", detail))
        else:
            self.transport.close()


def rejection_of(target: bytes, headers: Sequence[tuple[bytes, bytes]], version: str) -> RejectedConnection | None:
    """The reason to reject a request head; None for a valid one."""
    if len(target) + sum(len(name) + len(value) + len(": \r\n") for name, value in headers) > MOST_HEAD_BYTES:
        return _head_too_large()

    def values(header: bytes) -> list[bytes]:
        return [value for name, value in headers if name == header]

    host, lengths, codings = values(b"host"), values(b"content-length"), values(b"transfer-encoding")
    if len(host) != 1 or HOST.fullmatch(host[0]) is None:
        return RejectedConnection("host", "bad_request", ONE_HOST)
    if not target.startswith(b"/") and target.partition(b"://")[2].partition(b"/")[0] != host[0]:
        return RejectedConnection("target", "bad_request", HOST_OF_TARGET)
    is_chunked = bool(codings)
    if is_chunked and ([coding.lower() for coding in codings] != CHUNKED or lengths or version == "1.0"):
        return RejectedConnection("framing", "bad_request", ONE_LENGTH)
    if len(lengths) > 1 or not all(length.isdigit() for length in lengths):
        return RejectedConnection("framing", "bad_request", ONE_LENGTH)
    return None


def response_bytes(error: ApiError) -> bytes:
    """An error answer as raw HTTP bytes."""
    request_id = uuid4().hex
    log.info("connection refused as %s: %s", request_id, error.code)
    headers = {**error.headers, **COMMON_HEADERS, "X-Request-Id": request_id}
    response = problem_response({"state": {"request_id": request_id}}, error.code, error.detail, headers=headers)
    lines = [name + b": " + value + b"\r\n" for name, value in response.raw_headers]
    return b"".join([STATUS_LINE[response.status_code], *lines, b"\r\n", bytes(response.body)])


def _head_too_large() -> RejectedConnection:
    detail = f"send a request line and headers of at most {MOST_HEAD_BYTES} bytes"
    return RejectedConnection("head", "head_too_large", detail)


M_ARENA_MAX = -8
"""Option of mallopt for the number of heaps. Source: glibc's malloc.h."""
MOST_HEAPS = 2
"""Heaps. Source: a choice; glibc creates up to eight per core, and only one thread runs Python at a time."""


def bound_heaps() -> None:
    """Limit the heaps that threads share; call it before any thread starts. Only glibc supports it."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, MOST_HEAPS)


if sys.platform != "win32":
    import resource

RESERVED_FILES = 256
"""File descriptors beside client connections: the database, logs, pipes to workers, files."""
ON_WINDOWS = 512
"""Connections on Windows, which has no limit of open files to read."""


def connection_limit(requested: int) -> int:
    """Connections that this process can hold, after raising its limit of open files as far as the system allows."""
    if sys.platform == "win32":
        return min(requested, ON_WINDOWS)
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = requested + RESERVED_FILES
    if resource.RLIM_INFINITY != allowed < files:
        allowed = files if most == resource.RLIM_INFINITY else min(files, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))
    return requested if allowed == resource.RLIM_INFINITY else max(min(requested, allowed - RESERVED_FILES), 1)


BACKLOG = 2048
STOP_SECONDS = 8.0
"""Time limit of draining and running requests together after a stop signal: the process ends within 10 s."""
SETTLE_SECONDS = 0.25
"""Time for the last accepted clients to send a request. Source: a choice; a few round trips."""
ACCEPT_PASSES = 3
"""Passes of the event loop that accept all waiting connections."""
POLL_SECONDS = 0.1
"""Time between two checks whether a second signal cuts the drain short."""
TICK_SECONDS = 1.0
"""Time between two updates of the Date header."""
SWITCH_SECONDS = 0.0005
"""Switch interval of threads: the event loop waits for it several times per answer. Source: a choice; with Python's
default of 0.005 a check takes 20 ms and more beside one thread that writes a list's file."""
NEW_OBJECTS = 10_000
"""Allocations between two garbage collections. Source: `.ci/proof load`; with Python's default of 700, collections take
a fifteenth of an answer's time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifecycle:
    """Callbacks at the start and end of a server."""

    announce: Callable[[], None]
    """Called once the server accepts requests."""
    drain: Callable[[], None]
    """Called in the event loop at a stop signal: readiness fails from here on."""
    end_beside: Callable[[], None]
    """Called on a thread meanwhile: ends local processes that still send requests."""
    leave: Callable[[], None]
    """Called in the event loop after the drain: ends long requests."""


def listen(host: str, port: int) -> socket.socket:
    """A listening socket, opened before anything else starts so that a taken port is reported at once."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        if getattr(error, "errno", None) == EADDRINUSE:
            reason = "another program has it; choose another with --port, or 0 for any free one"
        raise StartupError(f"cannot listen on {address(host, port)}: {reason}") from None


def refuse_public_without_keys(listener: socket.socket, settings: Settings, *, is_locked: bool) -> None:
    """Refuse to start a service without keys on a public address, unless --insecure is set."""
    if not (is_locked or settings.insecure or ip_address(listener.getsockname()[0]).is_loopback):
        raise StartupError(
            f"other machines reach {settings.host}, and there are no keys, so anyone there could change everything; "
            "make a key with traincost keys create, or say --insecure"
        )


def address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def run(app: FastAPI, listener: socket.socket, settings: Settings, moments: Lifecycle) -> None:
    """Serve requests until a stop signal."""
    start_log(settings.log_level, settings.log_format)
    sys.setswitchinterval(SWITCH_SECONDS)
    logging.getLogger("uvicorn.error").setLevel(logging.DEBUG if settings.log_level == "debug" else logging.WARNING)
    metrics: Metrics = app.state.metrics
    _Server(configured(app, settings, metrics.refused), moments, settings.drain_seconds).run(sockets=[listener])


def configured(
    app: ASGIApp, settings: Settings, on_refusal: Callable[[RefusalKind], None] = lambda _: None
) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=type("Counting", (LimitedProtocol,), {"on_refusal": staticmethod(on_refusal)}),
        limit_concurrency=connection_limit(settings.connections),
        timeout_keep_alive=settings.idle_seconds,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=[*settings.trusted_proxies],
        log_config=None,
        access_log=False,
        ws="none",
        server_header=False,
        backlog=BACKLOG,
    )


class _Server(uvicorn.Server):
    """uvicorn's server with lifecycle callbacks and a drain."""

    def __init__(self, config: uvicorn.Config, moments: Lifecycle, drain_seconds: float) -> None:
        super().__init__(config)
        self.moments, self.drain_seconds = moments, drain_seconds
        self._end = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def main_loop(self) -> None:
        """Tick once a second, and at once on a signal; uvicorn's own loop ticks ten times a second."""
        self._loop = asyncio.get_running_loop()
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._end.wait(), TICK_SECONDS)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._end.set)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start and announce it; freeze present objects, which live as long as the process, against collections."""
        await super().startup(sockets)
        gc.collect()
        gc.freeze()
        gc.set_threshold(NEW_OBJECTS)
        self.moments.announce()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drain: report the end, serve until load balancers have noticed, then stop."""
        started = monotonic()
        self.moments.drain()
        beside = asyncio.create_task(run_in_threadpool(self.moments.end_beside))
        while monotonic() - started < self.drain_seconds and not self.force_exit:  # noqa: ASYNC110 - uvicorn's own flag
            await asyncio.sleep(POLL_SECONDS)
        await beside
        await self._stop_accepting()
        self.moments.leave()
        left_seconds = max(1, int(STOP_SECONDS - (monotonic() - started)))
        self.config.timeout_graceful_shutdown = left_seconds
        await super().shutdown(sockets)

    async def _stop_accepting(self) -> None:
        """Accept the waiting connections, then no more; the last ones may still send a request."""
        for _ in range(ACCEPT_PASSES):
            await asyncio.sleep(0)
        for server in self.servers:
            server.close()
        if not self.force_exit:
            await asyncio.sleep(SETTLE_SECONDS)
