"""Server process: its address, its start and its end."""

import asyncio
import ctypes
import gc
import logging
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from errno import EADDRINUSE
from ipaddress import ip_address
from time import monotonic
from types import FrameType

import uvicorn
from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp

from service.api.metrics import Metrics, RefusalKind
from service.api.protocol import protocol_reporting
from service.errors import StartupError
from service.logs import start_log
from service.settings import Settings

M_ARENA_MAX = -8
"""Name of the setting. Source: glibc's malloc.h."""
MOST_HEAPS = 2
"""Heaps. Source: a choice; glibc makes up to eight a core, and only one thread runs Python at a time."""


def bound_heaps() -> None:
    """Have threads share a few heaps: call it before any thread starts. Only glibc takes this setting."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, MOST_HEAPS)


if sys.platform != "win32":
    import resource

RESERVED_FILES = 256
"""Files that are no connections of callers: the database, logs, pipes to workers, what is being read."""
ON_WINDOWS = 512
"""Connections where the system does not tell how many files a process may open."""


def connection_limit(wanted: int) -> int:
    """How many connections this process can hold, once it may open as many files as the system allows it to."""
    if sys.platform == "win32":
        return min(wanted, ON_WINDOWS)
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = wanted + RESERVED_FILES
    if resource.RLIM_INFINITY != allowed < files:
        allowed = files if most == resource.RLIM_INFINITY else min(files, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))
    return wanted if allowed == resource.RLIM_INFINITY else max(min(wanted, allowed - RESERVED_FILES), 1)


BACKLOG = 2048
"""Connections that may wait to be accepted."""
STOP_SECONDS = 8.0
"""Time that draining and running requests have together once the process is told to stop: it ends within 10 s."""
SETTLE_SECONDS = 0.25
"""Time that who was taken last has to send a request, before connections without one are closed. Source: a choice; a
few round trips."""
ACCEPT_PASSES = 3
"""Turns of the event loop in which all that waits for it is accepted."""
LOOK_SECONDS = 0.1
"""Time between two looks whether somebody in a hurry cuts the drain short."""
TICK_SECONDS = 1.0
"""Time between two updates of the Date header."""
SWITCH_SECONDS = 0.0005
"""Time after which a thread that computes lets the event loop go on, which waits for that several times an answer.
Source: a choice; with Python's own 0.005 a check takes 20 ms and more beside one thread of a list's file."""
NEW_OBJECTS = 10_000
"""Objects made since the last look for garbage in cycles at which the next is due. Source: `.ci/proof load`; with
Python's own 700, looks take a fifteenth of what an answer takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifecycle:
    """What is done when a server starts and ends."""

    announce: Callable[[], None]
    """When the first request can be answered."""
    drain: Callable[[], None]
    """When the process is told to stop, in the event loop: from here on it says that it is about to end."""
    end_beside: Callable[[], None]
    """Meanwhile, on a thread: ends what runs beside the server and still asks it."""
    leave: Callable[[], None]
    """Once others have heard of it, in the event loop: ends what would go on for long."""


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens, taken before anything else starts: a taken port is said at once."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        if getattr(error, "errno", None) == EADDRINUSE:
            reason = "another program has it; choose another with --port, or 0 for any free one"
        raise StartupError(f"cannot listen on {address(host, port)}: {reason}") from None


def refuse_public_without_keys(listener: socket.socket, settings: Settings, *, is_locked: bool) -> None:
    """Do not let everybody in by mistake: only this machine reaches a service without keys, unless somebody says so."""
    if not (is_locked or settings.insecure or ip_address(listener.getsockname()[0]).is_loopback):
        raise StartupError(
            f"other machines reach {settings.host}, and there are no keys, so everybody there could change everything; "
            "make a key with traincost keys create, or say --insecure"
        )


def address(host: str, port: int) -> str:
    """Host and port as they stand in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def run(app: FastAPI, listener: socket.socket, settings: Settings, moments: Lifecycle) -> None:
    """Answer requests until the process is told to stop."""
    start_log(settings.log_level, settings.log_format)
    sys.setswitchinterval(SWITCH_SECONDS)
    logging.getLogger("uvicorn.error").setLevel(logging.DEBUG if settings.log_level == "debug" else logging.WARNING)
    metrics: Metrics = app.state.metrics
    _Server(configured(app, settings, metrics.refused), moments, settings.drain_seconds).run(sockets=[listener])


def configured(
    app: ASGIApp, settings: Settings, on_refusal: Callable[[RefusalKind], None] = lambda _: None
) -> uvicorn.Config:
    """How the server treats connections."""
    return uvicorn.Config(
        app,
        http=protocol_reporting(on_refusal),
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
    """A server that says when it has started, and when it is about to end."""

    def __init__(self, config: uvicorn.Config, moments: Lifecycle, drain_seconds: float) -> None:
        super().__init__(config)
        self.moments, self.drain_seconds = moments, drain_seconds
        self._end = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def main_loop(self) -> None:
        """Tick once a second, and at once on a signal; uvicorn ticks ten times a second."""
        self._loop = asyncio.get_running_loop()
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._end.wait(), TICK_SECONDS)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take a signal to end, and wake the main loop."""
        super().handle_exit(sig, frame)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._end.set)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then say so; what is in memory now stays there, so nobody looks through it for garbage any more."""
        await super().startup(sockets)
        gc.collect()
        gc.freeze()
        gc.set_threshold(NEW_OBJECTS)
        self.moments.announce()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Say so, go on until whoever sends requests has heard it, then end."""
        begun = monotonic()
        self.moments.drain()
        beside = asyncio.create_task(run_in_threadpool(self.moments.end_beside))
        while monotonic() - begun < self.drain_seconds and not self.force_exit:  # noqa: ASYNC110 - uvicorn's own flag
            await asyncio.sleep(LOOK_SECONDS)
        await beside
        await self._take_no_more()
        self.moments.leave()
        left_seconds = max(1, int(STOP_SECONDS - (monotonic() - begun)))
        self.config.timeout_graceful_shutdown = left_seconds
        await super().shutdown(sockets)

    async def _take_no_more(self) -> None:
        """Accept who waits for it already, then nobody; the last ones may still send their request."""
        for _ in range(ACCEPT_PASSES):
            await asyncio.sleep(0)
        for server in self.servers:
            server.close()
        if not self.force_exit:
            await asyncio.sleep(SETTLE_SECONDS)
