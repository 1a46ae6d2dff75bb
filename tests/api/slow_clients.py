"""Clients on plain sockets that send too much or too slowly."""

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

PATH = "/v1/memory"
HEAD = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n".encode()
BODY_BYTES = 10_000_000
PIECE_BYTES = 65_536
DRIP_BYTES = 1024
"""What a client that drips sends at a time near the bound, where each byte counts."""


@dataclass(frozen=True)
class Refusal:
    """How a body that is too long was refused."""

    status: int
    seconds: float
    """From the first byte that was too many, or from the head where that tells the length."""


def sized(_most_bytes: int) -> Iterator[tuple[bytes, bool]]:
    """A body whose length is said, and whether what was sent up to a piece is too much already."""
    yield HEAD + b"Content-Length: %d\r\n\r\n" % BODY_BYTES, True
    yield from ((b"x" * PIECE_BYTES, True) for _ in range(BODY_BYTES // PIECE_BYTES))


def chunked(most_bytes: int) -> Iterator[tuple[bytes, bool]]:
    """A body in chunks, whose length nobody says."""
    yield HEAD + b"Transfer-Encoding: chunked\r\n\r\n", False
    for sent in range(PIECE_BYTES, BODY_BYTES, PIECE_BYTES):
        yield b"%x\r\n%b\r\n" % (PIECE_BYTES, b"x" * PIECE_BYTES), sent > most_bytes


def dripped(most_bytes: int) -> Iterator[tuple[bytes, bool]]:
    """The same, byte by byte around the bound."""
    yield HEAD + b"Transfer-Encoding: chunked\r\n\r\n", False
    begun = most_bytes - DRIP_BYTES
    yield b"%x\r\n%b\r\n" % (begun, b"x" * begun), False
    for sent in range(begun + 1, BODY_BYTES):
        yield b"1\r\nx\r\n", sent > most_bytes


def refused(address: tuple[str, int], pieces: Iterator[tuple[bytes, bool]]) -> Refusal:
    """Send until there is an answer, and say how long that took from what was too much."""
    since = 0.0
    with socket.create_connection(address, timeout=60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece, is_too_much in pieces:
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(piece)
            if is_too_much:
                since = since or time.perf_counter()
                connection.settimeout(0.0005)
                with suppress(TimeoutError, BlockingIOError):
                    return Refusal(_status(connection.recv(4096)), time.perf_counter() - since)
                connection.settimeout(30)
        return Refusal(_status(connection.recv(4096)), time.perf_counter() - since)


def _status(came: bytes) -> int:
    return int(came[9:12]) if came else 0


@dataclass(frozen=True)
class Ended:
    """How a connection ended that sends too slowly."""

    status: int
    """0 where it ended without an answer."""
    seconds: float


async def slowly(address: tuple[str, int], begun: bytes, every_seconds: float, most_seconds: float) -> Ended:
    """Begin a request, go on a byte at a time, and say how the connection ended; TimeoutError where it did not."""
    reader, writer = await asyncio.open_connection(*address)
    since = time.perf_counter()
    writer.write(begun)

    async def drip() -> None:
        while not writer.is_closing():
            await asyncio.sleep(every_seconds)
            writer.write(b"x")

    dripping = asyncio.create_task(drip())
    came = b""
    try:
        async with asyncio.timeout(most_seconds):
            with suppress(ConnectionError):
                came = await reader.read()
        return Ended(_status(came), time.perf_counter() - since)
    finally:
        dripping.cancel()
        writer.close()


LEFT_OUT_BYTES = 10
"""What of a body is never sent."""


@contextmanager
def held_bodies(address: tuple[str, int], path: str, length: int, count: int) -> Iterator[list[int]]:
    """So many connections without a key, each with a body of that length but for its end; statuses of the answers."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    )
    body = b" " * (length - LEFT_OUT_BYTES)
    statuses: list[int] = []
    with ExitStack() as stack:
        for _ in range(count):
            connection = stack.enter_context(socket.create_connection(address, timeout=60))
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(head.encode() + body)
            connection.settimeout(1)
            with suppress(TimeoutError, ConnectionResetError):
                statuses.append(_status(connection.recv(4096)))
        yield statuses


HEADS = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-A: "
BODIES = HEAD + b"Content-Length: 500000\r\n\r\n{"


async def all_slowly(
    address: tuple[str, int], begun: dict[bytes, int], every_seconds: float, most_seconds: float
) -> dict[bytes, list[Ended]]:
    """So many of each at the same time."""
    started: dict[bytes, list[asyncio.Task[Ended]]] = {}
    for sent, count in begun.items():
        started[sent] = []
        for number in range(count):
            started[sent].append(asyncio.create_task(slowly(address, sent, every_seconds, most_seconds)))
            await asyncio.sleep(0.05 if number % 50 == 49 else 0)  # the server accepts some at a time
    return {sent: list(await asyncio.gather(*tasks)) for sent, tasks in started.items()}
