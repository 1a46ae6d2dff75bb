"""On which address does the application answer, and when does it?"""

import logging
import socket
from collections.abc import Callable
from ipaddress import ip_address

import uvicorn
from starlette.types import ASGIApp

from service.api.access_log import Masked
from service.errors import StartupError
from service.settings import Settings

BACKLOG = 2048
"""Connections that may wait to be accepted."""
GRACE_SECONDS = 10
"""Time that running requests have to finish once the process is told to stop."""


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens, taken before anything else starts: a taken port is said at once.

    Args:
        host: name or address to listen on
        port: port to listen on; 0 for any free one

    Returns:
        the listening socket

    Raises:
        StartupError: the port is taken or not allowed, or the host is none of this machine's
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise StartupError(f"cannot listen on {address(host, port)}: {reason}") from None


def refuse_unguarded(listener: socket.socket, settings: Settings, *, is_locked: bool) -> None:
    """Do not let everybody in by mistake: only this machine reaches a service without keys, unless somebody says so.

    Args:
        listener: where requests come from
        settings: whether that was said
        is_locked: whether callers need a key

    Raises:
        StartupError: other machines reach the service, and there are no keys
    """
    if not (is_locked or settings.insecure or ip_address(listener.getsockname()[0]).is_loopback):
        raise StartupError(
            f"other machines reach {settings.host}, and there are no keys, so everybody there could change everything; "
            "make a key with traincost keys create, or say --insecure"
        )


def address(host: str, port: int) -> str:
    """Host and port as they stand in a URL.

    Args:
        host: name or address
        port: port

    Returns:
        host:port, an IPv6 address in brackets
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def run(app: ASGIApp, listener: socket.socket, settings: Settings, announce: Callable[[], None]) -> None:
    """Answer requests until the process is told to stop.

    Args:
        app: the application
        listener: where requests come from
        settings: how much to log
        announce: called once, when the first request can be answered
    """
    logging.basicConfig(
        level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True
    )
    is_debug = settings.log_level == "debug"
    logging.getLogger("uvicorn.error").setLevel(logging.DEBUG if is_debug else logging.WARNING)
    logging.getLogger("uvicorn.access").addFilter(Masked())
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=is_debug,
        ws="none",
        server_header=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    _Announcing(config, announce).run(sockets=[listener])


class _Announcing(uvicorn.Server):
    """A server that says when it has started."""

    def __init__(self, config: uvicorn.Config, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self.announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then say so."""
        await super().startup(sockets)
        self.announce()
