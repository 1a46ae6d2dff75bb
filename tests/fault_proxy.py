"""A proxy that delays, resets, cuts, or says nothing: what networks do, between a client and what it asks."""

import asyncio
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Literal

Fault = Literal["none", "delay", "reset", "cut", "silent", "refuse"]
"""delay: every piece comes late. reset: the connection ends with RST in mid-answer. cut: it is closed there. silent:
what is sent goes nowhere until the fault ends. refuse: no connection is taken, and those that are there end."""

CUT_BYTES = 10
"""Bytes of an answer that come through before it is reset or cut."""
DELAY_SECONDS = 0.3
PIECE_BYTES = 65_536


class FaultProxy:
    """A proxy to one address: host and port, or the path of a socket."""

    def __init__(self, target: tuple[str, int] | Path) -> None:
        self.target, self.fault, self.port = target, "none", 0

    fault: Fault
    """What happens now."""

    async def serve(self, taken: socket.socket) -> None:
        """Forward until the loop ends."""
        server = await asyncio.start_server(self._forward, sock=taken)
        async with server:
            await server.serve_forever()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.fault == "refuse":
            _reset(writer)
            return
        try:
            far_reader, far_writer = await self._reached()
        except OSError:
            _reset(writer)
            return
        pumps = {
            asyncio.ensure_future(self._pump(reader, far_writer, is_answer=False)),
            asyncio.ensure_future(self._pump(far_reader, writer, is_answer=True)),
        }
        with suppress(asyncio.CancelledError):  # at the end of the proxy; streams cannot bear a task that was cancelled
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        is_reset = any(pump.done() and not pump.cancelled() and pump.result() for pump in pumps)
        for pump in pumps:
            pump.cancel()
        _reset(writer) if is_reset else writer.close()
        far_writer.close()

    async def _reached(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if isinstance(self.target, Path):
            return await asyncio.open_unix_connection(str(self.target))
        return await asyncio.open_connection(*self.target)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool) -> bool:
        """Forward one way until the end; whether that is a reset."""
        with suppress(OSError):
            while piece := await reader.read(PIECE_BYTES):
                while self.fault == "silent":  # noqa: ASYNC110 - another thread ends it
                    await asyncio.sleep(0.02)
                if self.fault == "delay":
                    await asyncio.sleep(DELAY_SECONDS)
                is_broken = is_answer and self.fault in {"reset", "cut"}
                writer.write(piece[:CUT_BYTES] if is_broken else piece)
                await writer.drain()
                if is_broken or self.fault == "refuse":
                    return self.fault != "cut"
        return False


@contextmanager
def faults_before(target: tuple[str, int] | Path) -> Iterator[FaultProxy]:
    """A proxy to an address, on a port and a thread of its own."""
    proxy, loop = FaultProxy(target), asyncio.new_event_loop()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        proxy.port = taken.getsockname()[1]
        serving = loop.create_task(proxy.serve(taken))
        thread = Thread(target=_run, args=(loop, serving), daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            loop.call_soon_threadsafe(serving.cancel)
            thread.join(10)


def _run(loop: asyncio.AbstractEventLoop, serving: asyncio.Task[None]) -> None:
    with suppress(asyncio.CancelledError):
        loop.run_until_complete(serving)
    while left := asyncio.all_tasks(loop):
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
    loop.run_until_complete(asyncio.sleep(0))  # transports close in the next turn
    loop.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    """End a connection with RST, as a host does that knows nothing of it."""
    taken = writer.get_extra_info("socket")
    with suppress(OSError):
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
