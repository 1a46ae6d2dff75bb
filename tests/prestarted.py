"""Processes that begin where two seconds of imports end: `python -m` for tests that start many services and commands.

One process imports what the service imports, and forks one for each that is started, with its own words, folder,
environment and output. The fork server of a service (service/api/compute_process.py) is forked from there
too. tests/test_serve.py, tests/cli/test_cli.py and tests/house/test_imports.py start a new Python, and try the imports.

What was imported stays out of the garbage collector: a process that looks through it copies all of it, twice, which
takes a second.
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

from service.api import compute_process
from service.catalogue import shipped_catalogue
from tests.house.source import ROOT

MOST_BYTES = 1 << 20
"""Of what is said of a process that is to be started."""
MOST_FILES = 5
"""That are sent with it."""

MODULES = ("service.app", "service.api.server", "service.cli.application")

MOST_SECONDS = 120.0
"""Longest run of a command."""

_OWN: list[socket.socket] = []
"""Where a process that was started so asks for others."""


class Started:
    """A process, with the methods of `subprocess.Popen` that tests need; output without a file is read here."""

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
        read, printed = os.pipe()
        with open(os.devnull, "rb") as nowhere:  # noqa: PTH123 - no path of the file system's own
            given = nowhere if stdin is None else stdin
            output = printed if stdout is None else stdout.fileno()
            complaints = 2 if stderr is None else stderr.fileno()
            self._begin(said, [given.fileno(), output, complaints])
        os.close(printed)
        self.stdout: IO[str] = os.fdopen(read, encoding="utf-8")

    def _begin(self, said: Mapping[str, Any], files: list[int]) -> None:
        self._state, state = os.pipe()
        socket.send_fds(_first(), [json.dumps(said).encode()], [*files, state])
        os.close(state)
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


class _Forks(Started):
    """The fork server of a service that was forked itself."""

    def __init__(self, line: socket.socket, _: Sequence[str]) -> None:
        with open(os.devnull, "r+b") as nowhere:  # noqa: PTH123 - no path of the file system's own
            said = {"words": [], "cwd": str(Path.cwd()), "env": dict(os.environ)}
            self._begin(said, [nowhere.fileno(), nowhere.fileno(), 2, line.fileno()])


Process = Started | subprocess.Popen[str]


def started(
    words: Sequence[str], folder: Path | None, environment: Mapping[str, str], complaints: IO[Any] | None = None
) -> Process:
    """`python -m` with some words: soon where tests run, and in a new Python where the service is measured."""
    if "PYTEST_VERSION" in os.environ:
        return Started(words, folder, environment, stderr=complaints)
    command = [sys.executable, "-m", *words]
    return subprocess.Popen(
        command, cwd=folder, env=dict(environment), stdout=subprocess.PIPE, stderr=complaints, text=True
    )


def ran(
    words: Sequence[str], cwd: Path | None = None, env: Mapping[str, str] | None = None, given: bytes = b""
) -> subprocess.CompletedProcess[str]:
    """What came of a process that has ended."""
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
    if _OWN:
        return _OWN[0]
    here, there = _pair()
    with there:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.prestarted", str(there.fileno())],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[there.fileno()],
        )

    def end() -> None:
        here.close()
        process.wait()

    register(end)
    return here


def _pair() -> tuple[socket.socket, socket.socket]:
    """Both ends of a line on which processes are asked for."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in ends:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MOST_BYTES)
    return ends


def _listen(lines: Sequence[socket.socket]) -> tuple[dict[str, Any], list[int]]:
    """Start what is asked for, each in a process that returns from here with what was said of it, and its own line."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        for line in select(lines, [], [])[0]:
            said, files, _, _ = socket.recv_fds(line, MOST_BYTES, MOST_FILES)
            if not said:
                sys.exit()
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for one in lines:
                    one.close()
                *given, state = files
                pid = os.fork()
                if pid:
                    _watch(pid, state, given)
                os.close(state)
                for number, file in enumerate(given[:3]):
                    os.dup2(file, number)
                    os.close(file)
                found: dict[str, Any] = json.loads(said)
                return found, given[3:]
            for file in files:
                os.close(file)


def _watch(pid: int, state: int, others: Sequence[int]) -> NoReturn:
    """Tell the number of a process, and its exit code once it has ended."""
    for file in (0, 1, 2, *others):
        os.close(file)
    os.write(state, b"%d\n" % pid)
    os.write(state, b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    os._exit(0)


def _run(said: Mapping[str, Any], files: Sequence[int]) -> None:
    os.chdir(said["cwd"])
    os.environ.clear()
    os.environ.update(said["env"])
    sys.path[0] = said["cwd"]
    if files:
        compute_process.serve_forks(files[0], ())
        os._exit(0)
    module, *words = said["words"]
    sys.argv = [module, *words]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _import() -> None:
    for module in MODULES:
        import_module(module)
    for module in import_module("service.app").PRELOADED:
        import_module(module)
    shipped_catalogue()
    gc.collect()
    gc.freeze()


def _main(listening: socket.socket) -> None:
    _import()
    asking, asked = _pair()
    said, files = _listen([listening, asked])
    _OWN.append(asking)
    compute_process.ForkServer._launched = _Forks  # type: ignore[assignment,method-assign]
    _run(said, files)


if __name__ == "__main__":
    _main(socket.socket(fileno=int(sys.argv[1])))
