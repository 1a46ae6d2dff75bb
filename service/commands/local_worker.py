"""Who measures where nobody else does? One worker that `traincost serve` starts beside itself, and ends with itself.

It asks over loopback like any other worker. It holds on to this process by its standard input, so it ends even where
this process is killed; and it has a key of its own, kept nowhere, in case the service asks for keys.
"""

import logging
import os
import subprocess
import sys
from threading import Event, Thread
from time import monotonic

FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 1.0, 60.0
"""Waits before a worker that ended is started again; they double until one has run for a while. Source: a choice."""

END_SECONDS = 6.0
"""Time that the worker has to give back its job and end. Source: a choice; the service itself ends within 10 s."""

log = logging.getLogger(__name__)


class LocalWorker:
    """A worker beside the service.

    Args:
        url: where the service answers on this machine
        token: key that lets the worker in
        log_level: least serious messages that it writes
    """

    def __init__(self, url: str, token: str, log_level: str) -> None:
        own = {"TRAINCOST_URL": url, "TRAINCOST_TOKEN": token, "TRAINCOST_LOG_LEVEL": log_level, "NO_PROXY": "*"}
        self._environment = {**os.environ, **own}
        self._leaving = Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = Thread(target=self._keep, name="local worker", daemon=True)

    def start(self) -> None:
        """Start it, and again whenever it ends."""
        self._thread.start()

    def stop(self) -> None:
        """Have it give back its job and end."""
        self._leaving.set()
        if self._thread.is_alive():
            self._terminate()
            self._thread.join(END_SECONDS)
        if self._process is not None and self._process.poll() is None:
            self._process.kill()

    def _keep(self) -> None:
        wait_seconds = FIRST_WAIT_SECONDS
        while not self._leaving.is_set():
            started = monotonic()
            code = self._run()
            if self._leaving.is_set():
                return
            if monotonic() - started > LONGEST_WAIT_SECONDS:
                wait_seconds = FIRST_WAIT_SECONDS
            log.warning("the worker beside the service ended with code %d; started again in %.0f s", code, wait_seconds)
            self._leaving.wait(wait_seconds)
            wait_seconds = min(2.0 * wait_seconds, LONGEST_WAIT_SECONDS)

    def _run(self) -> int:
        """Start the worker; its code, once it has ended."""
        with subprocess.Popen(
            (sys.executable, "-m", "service", "worker", "--with-parent"),
            stdin=subprocess.PIPE,
            env=self._environment,
            start_new_session=True,
        ) as process:
            self._process = process
            if self._leaving.is_set():
                self._terminate()
            return process.wait()

    def _terminate(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
