"""Processes that begin where two seconds of imports end: `python -m` for tests that start many services and commands.

One process imports what the service imports and forks one for each that is started, with its own words, folder,
environment and output. What the imports themselves do is tried where a new Python starts: tests/test_serve.py,
tests/test_cli.py and tests/house/test_imports.py.
"""

import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
from atexit import register
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from select import select
from tempfile import TemporaryFile
from typing import IO, Any, NoReturn, Self

from tests.house.source import ROOT

MOST_BYTES = 1 << 20
"""Of what is said of a process that is to be started."""

MODULES = ("service.api.app", "service.api.server", "service.commands.application")

MOST_SECONDS = 120.0
"""Longest run of a command."""


class Started:
    """A process, with the methods of `subprocess.Popen` that tests need.

    Args:
        words: what stands behind `python -m`: a module and its words
        cwd: its folder, by default this one
        env: its environment, by default this one
        stdout: a file for what it prints; by default it is read here
        stderr: a file for what it complains of; by default it goes where complaints of this process go
        stdin: a file of what it is given; nothing by default
    """

    def __init__(
        self,
        words: Sequence[str],
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdout: IO[Any] | None = None,
        stderr: IO[Any] | None = None,
        stdin: IO[Any] | None = None,
    ) -> None:
        said = {"words": list(words), "cwd": str(cwd or Path.cwd()), "env": dict(os.environ if env is None else env)}
        self._state, state = os.pipe()
        read, printed = os.pipe()
        with open(os.devnull, "rb") as nowhere:  # noqa: PTH123 - no path of the file system's own
            given = nowhere if stdin is None else stdin
            output = printed if stdout is None else stdout.fileno()
            complaints = 2 if stderr is None else stderr.fileno()
            socket.send_fds(_first(), [json.dumps(said).encode()], [given.fileno(), output, complaints, state])
        os.close(printed)
        os.close(state)
        self.stdout: IO[str] = os.fdopen(read, encoding="utf-8")
        self._told = b""
        self.returncode: int | None = None
        self.pid = int(self._line())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.wait()
        self.stdout.close()

    def poll(self) -> int | None:
        """Its exit code, that of a signal below 0; None where it runs."""
        if self.returncode is None and select([self._state], [], [], 0)[0]:
            return self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended: its exit code."""
        if self.returncode is None:
            if not select([self._state], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("a process that was started from another", timeout or 0.0)
            self.returncode = int(self._line())
            os.close(self._state)
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        """Read what it prints until it has ended."""
        ends = None if timeout is None else time.monotonic() + timeout
        out = "" if self.stdout.closed else self.stdout.read()
        self.wait(None if ends is None else max(0.0, ends - time.monotonic()))
        self.stdout.close()
        return out, None

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Tell it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)

    def _line(self) -> bytes:
        while b"\n" not in self._told:
            more = os.read(self._state, 64)
            assert more, "the process that starts others has ended"
            self._told += more
        line, _, self._told = self._told.partition(b"\n")
        return line


def ran(
    words: Sequence[str], cwd: Path | None = None, env: Mapping[str, str] | None = None, given: bytes = b""
) -> subprocess.CompletedProcess[str]:
    """What came of a process that has ended.

    Args:
        words: what stands behind `python -m`: a module and its words
        cwd: its folder, by default this one
        env: its environment, by default this one
        given: what it reads

    Returns:
        its exit code, what it printed and what it complained of
    """
    with TemporaryFile() as told, TemporaryFile() as out, TemporaryFile() as complaints:
        told.write(given)
        told.seek(0)
        with Started(words, cwd, env, out, complaints, told) as process:
            code = process.wait(MOST_SECONDS)
        said = []
        for file in (out, complaints):
            file.seek(0)
            said.append(file.read().decode())
    return subprocess.CompletedProcess(list(words), code, *said)


@cache
def _first() -> socket.socket:
    """Where the process listens that starts the others; it ends with this one."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for line in (here, there):
        line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MOST_BYTES)
    with there:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.prestarted", str(there.fileno())],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[there.fileno()],
        )

    def end() -> None:
        here.close()
        process.wait()

    register(end)
    return here


def _listen(asked: socket.socket) -> dict[str, Any]:
    """Start what is asked for, each in a process that returns from here with what was said of it."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        said, files, _, _ = socket.recv_fds(asked, MOST_BYTES, 4)
        if not said:
            sys.exit()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            asked.close()
            *streams, state = files
            pid = os.fork()
            if pid:
                _watch(pid, state, streams)
            for number, file in enumerate(streams):
                os.dup2(file, number)
            for file in files:
                os.close(file)
            found: dict[str, Any] = json.loads(said)
            return found
        for file in files:
            os.close(file)


def _watch(pid: int, state: int, others: Sequence[int]) -> NoReturn:
    """Tell the number of a process, and its exit code once it has ended."""
    for file in (0, 1, 2, *others):
        os.close(file)
    os.write(state, b"%d\n" % pid)
    os.write(state, b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    os._exit(0)


def _run(said: Mapping[str, Any]) -> None:
    gc.unfreeze()
    os.chdir(said["cwd"])
    os.environ.clear()
    os.environ.update(said["env"])
    sys.path[0] = said["cwd"]
    module, *words = said["words"]
    sys.argv = [module, *words]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _start_on_demand(_: object) -> None:
    """Leave the start of computing processes to the first computation: most services of tests never need one."""


def _import() -> None:
    for module in MODULES:
        import_module(module)
    from service.api.compute import Compute
    from service.catalogue import shipped_catalogue

    shipped_catalogue()
    Compute.start = _start_on_demand  # type: ignore[assignment, method-assign]
    gc.freeze()


if __name__ == "__main__":
    listening = socket.socket(fileno=int(sys.argv[1]))
    _import()
    _run(_listen(listening))
