"""A real redis-server on loopback, started for tests in a folder of its own; it can go away and come back."""

import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.needing import need


class RedisServer:
    """One server on one port."""

    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.folder = folder
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        told = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(self.folder)]
        self._process = subprocess.Popen(["redis-server", *told], stdout=subprocess.DEVNULL)
        ends = time.monotonic() + 60
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                    return
            except OSError:
                assert time.monotonic() < ends, "redis-server does not answer"
                time.sleep(0.02)

    def stop(self) -> None:
        """Stop it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Let it take connections and answer nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)


@contextmanager
def running(folder: Path) -> Iterator[RedisServer]:
    """A server that answers."""
    need("redis")
    server = RedisServer(folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()
