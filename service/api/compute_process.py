"""Compute processes: the fork server, the processes that it forks, and their protocol with the API."""

import asyncio
import ctypes
import gc
import json
import os
import pickle
import resource
import signal
import socket
import struct
import subprocess
import sys
import traceback
from atexit import register
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from itertools import count
from select import select
from threading import Lock
from typing import Any, NoReturn

from starlette.concurrency import run_in_threadpool

from service.catalogue import Catalogue, shipped_catalogue
from service.errors import TraincostError

NICENESS = 10
"""Niceness of compute processes above the API's. Source: measured by `.ci/proof beside_load`."""
MOST_BYTES = 4 << 30
"""Address space of one process; a call that needs more fails. Source: a choice; ten times the largest search."""
RETIRE_BYTES = 512 << 20
"""Memory at which a process is replaced after its call. Source: a choice; five times that of a new process."""
MOST_CATALOGUES = 4
LENGTH = struct.Struct(">I")
COMMAND = struct.Struct(">cI")
FORK, KILL = b"F", b"K"
CHUNK_BYTES = 1 << 18
MOST_BYTES_AT_ONCE = 1 << 18
"""Longest answer that the event loop unpickles; a thread unpickles longer ones."""
REAP_SECONDS = 1.0
STOP_SECONDS = 3.0
"""Longest wait for the fork server to end; it finishes its imports first."""
PR_SET_PDEATHSIG = 1
"""Option that ends a process with its parent. Source: prctl(2)."""


class ProcessLost(Exception):
    """A compute process ended before its call."""


class _SocketClosed(Exception):
    """The API ended, or closed its side of the socket."""


class _CatalogueToken:
    """Placeholder of a catalogue among the arguments of a call."""

    __slots__ = ("token",)

    def __init__(self, token: str) -> None:
        self.token = token


@dataclass(frozen=True, slots=True)
class Large:
    """An argument that a thread pickles: thousands of rows would block the event loop."""

    value: Any


PackedCall = tuple[bytes | pickle.PickleBuffer, ...]
"""A pickled call, then each body among its arguments, which is sent as it is: a copy would take as much memory."""


def packed_call(function: Callable[..., Any], arguments: tuple[Any, ...]) -> PackedCall:
    """A pickled call, with a token in place of each catalogue."""
    bodies: list[pickle.PickleBuffer] = []
    packed = pickle.dumps(
        (function, [_packable(one) for one in arguments]), pickle.HIGHEST_PROTOCOL, buffer_callback=bodies.append
    )
    return packed, *bodies


def _packable(argument: Any) -> Any:
    if isinstance(argument, Catalogue):
        return _CatalogueToken(argument.token)
    if not isinstance(argument, Large):
        return argument
    return pickle.PickleBuffer(argument.value) if isinstance(argument.value, bytes) else argument.value


class _Sink(bytearray):
    """A file that pickle writes frame by frame, so that other threads run between two frames."""

    def write(self, data: bytes) -> int:
        self += data
        return len(data)


def packed_catalogue(catalogue: Catalogue) -> bytes:
    """A pickled catalogue; call it on a thread, because a large one takes seconds."""
    sink = _Sink()
    pickle.Pickler(sink, pickle.HIGHEST_PROTOCOL).dump(catalogue)
    return bytes(sink)


class ComputeProcess:
    def __init__(self, server: "ForkServer") -> None:
        self._server = server
        self._socket, self._number = server.fork()
        self.should_retire = False
        """Whether to replace it, because its memory has grown."""

    async def run(
        self, call: PackedCall, catalogue: Callable[[str], Awaitable[bytes]], on_item: Callable[[Any], None]
    ) -> Any:
        """Run one call; close the process after a cancellation."""
        try:
            for part in call:
                await self._send(part)
            while True:
                content = await self._receive()
                is_short = len(content) <= MOST_BYTES_AT_ONCE
                kind, value = pickle.loads(content) if is_short else await run_in_threadpool(pickle.loads, content)  # noqa: S301 - from a process of our own
                if kind == "missing":
                    await self._send(await catalogue(value))
                elif kind == "item":
                    on_item(value)
                else:
                    break
        except OSError as error:
            raise ProcessLost from error
        result, self.should_retire = value
        if kind == "raised":
            raise result
        return result

    def close(self) -> None:
        """Kill the process."""
        self._socket.close()
        self._server.kill(self._number)

    async def _send(self, content: bytes | pickle.PickleBuffer) -> None:
        loop, view = asyncio.get_running_loop(), memoryview(content)
        await loop.sock_sendall(self._socket, LENGTH.pack(view.nbytes))
        await loop.sock_sendall(self._socket, view)

    async def _receive(self) -> bytearray:
        (length,) = LENGTH.unpack(await self._receive_exactly(LENGTH.size))
        return await self._receive_exactly(length)

    async def _receive_exactly(self, length: int) -> bytearray:
        loop, received = asyncio.get_running_loop(), bytearray()
        while len(received) < length:
            more = await loop.sock_recv(self._socket, min(CHUNK_BYTES, length - len(received)))
            if not more:
                raise ConnectionResetError("the computing process has ended")
            received += more
        return received


class ForkServer:
    """Server that forks compute processes; it starts at its first use, and restarts after it ended."""

    def __init__(self, preloaded: Sequence[str]) -> None:
        self._preloaded = preloaded
        self._lock, self._numbers = Lock(), count(1)
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server unless it runs; do not wait for its imports."""
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._start()

    def fork(self) -> tuple[socket.socket, int]:
        """Fork a process, and return its socket and its number."""
        own_end, other_end = socket.socketpair()
        own_end.setblocking(False)  # noqa: FBT003 - of the standard library
        number = next(self._numbers) & 0xFFFFFFFF
        with other_end, self._lock:
            if self._process is None or self._process.poll() is not None:
                self._start()
            try:
                self._send_fork(number, other_end)
            except OSError:
                self._start()
                self._send_fork(number, other_end)
        return own_end, number

    def kill(self, number: int) -> None:
        with self._lock, suppress(OSError):
            if self._socket is not None:
                self._socket.sendall(COMMAND.pack(KILL, number))

    def _send_fork(self, number: int, other_end: socket.socket) -> None:
        if self._socket is None:
            raise ConnectionResetError
        socket.send_fds(self._socket, [COMMAND.pack(FORK, number)], [other_end.fileno()])

    def _start(self) -> None:
        if self._socket is not None:
            self._socket.close()
        own_end, other_end = socket.socketpair()
        with other_end:
            self._process = self._launched(other_end, self._preloaded)
        self._socket = own_end
        register(self.stop)

    @staticmethod
    def _launched(channel: socket.socket, preloaded: Sequence[str]) -> "subprocess.Popen[bytes]":
        """A new Python that serves forks on a socket."""
        path = [os.path.abspath(one) for one in sys.path]  # noqa: PTH100 - an empty entry is this folder
        program = (
            "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
            f"from {__name__} import serve_forks; serve_forks(int(sys.argv[2]), sys.argv[3:])"
        )
        return subprocess.Popen(  # noqa: S603 - this Python, with arguments of this module
            [sys.executable, "-P", "-c", program, json.dumps(path), str(channel.fileno()), *preloaded],
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[channel.fileno()],
        )

    def stop(self) -> None:
        """Stop the server and every process that it forked."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._process is not None:
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None


_servers: dict[int, ForkServer] = {}


def fork_server(preloaded: Sequence[str]) -> ForkServer:
    """The fork server of this process; a forked process gets its own."""
    return _servers.setdefault(os.getpid(), ForkServer(preloaded))


def serve_forks(descriptor: int, preloaded: Sequence[str]) -> None:
    """Import modules, then fork a process for each command of the API until the API ends; runs as its own program."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the API decides when work ends
    with socket.socket(fileno=descriptor) as channel:
        for module in preloaded:
            import_module(module)
        shipped_catalogue()
        gc.collect()
        gc.freeze()
        with suppress(OSError):
            os.nice(NICENESS)  # after the imports, because the first computation waits for them
        _fork_on_demand(channel)


def _fork_on_demand(channel: socket.socket) -> None:
    children: dict[int, int] = {}
    while True:
        _reap(children)
        if not select([channel], [], [], REAP_SECONDS)[0]:
            continue
        command, descriptors, _, _ = socket.recv_fds(channel, COMMAND.size, 1)
        if len(command) < COMMAND.size:
            break  # the API ended: end its processes too
        kind, number = COMMAND.unpack(command)
        if kind == KILL and number in children:
            os.kill(children[number], signal.SIGKILL)
        elif kind == FORK and descriptors:
            pid = os.fork()
            if pid == 0:
                channel.close()
                _compute(socket.socket(fileno=descriptors[0]))
            children[number] = pid
            os.close(descriptors[0])
    for pid in children.values():
        os.kill(pid, signal.SIGKILL)


def _reap(children: dict[int, int]) -> None:
    """Remove processes that ended, so that no reused pid is killed later."""
    numbers = {pid: number for number, pid in children.items()}
    with suppress(ChildProcessError):
        while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
            children.pop(numbers.get(pid, 0), None)


def _compute(channel: socket.socket) -> NoReturn:
    code = 1
    try:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
        _Worker(channel).work()
        code = 0
    except _SocketClosed:
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


class _Worker:
    def __init__(self, channel: socket.socket) -> None:
        self._socket = channel
        self._catalogues: OrderedDict[str, Catalogue] = OrderedDict()

    def work(self) -> None:
        while True:
            call = self._receive()
            try:
                outcome = ("done", self._run(call))
            except _SocketClosed:
                raise
            except Exception as error:
                outcome = ("raised", _picklable(error))
            kind, value = outcome
            self._send(kind, (value, _peak_bytes() > RETIRE_BYTES))

    def _run(self, call: bytes) -> Any:
        bodies = iter(self._receive, None)  # one is received where the call has one
        function, tokenized = pickle.loads(call, buffers=bodies)  # noqa: S301 - from the process that started this one
        arguments = (self._catalogue(one.token) if isinstance(one, _CatalogueToken) else one for one in tokenized)
        result = function(*arguments)
        return self._drain(result) if isinstance(result, Generator) else result

    def _drain(self, steps: Generator[Any, None, Any]) -> Any:
        """The return value of a generator, whose items are sent as they come."""
        while True:
            try:
                item = next(steps)
            except StopIteration as done:
                return done.value
            if item is not None:
                self._send("item", item)

    def _catalogue(self, token: str) -> Catalogue:
        """A cached catalogue, or one requested from the API, with its rows in the same order for error messages."""
        if token not in self._catalogues:
            self._send("missing", token)
            self._catalogues[token] = pickle.loads(self._receive())  # noqa: S301 - from the API
        self._catalogues.move_to_end(token)
        while len(self._catalogues) > MOST_CATALOGUES:
            self._catalogues.popitem(last=False)
        return self._catalogues[token]

    def _send(self, kind: str, value: Any) -> None:
        content = pickle.dumps((kind, value), pickle.HIGHEST_PROTOCOL)
        try:
            self._socket.sendall(LENGTH.pack(len(content)) + content)
        except OSError as error:
            raise _SocketClosed from error

    def _receive(self) -> bytes:
        (length,) = LENGTH.unpack(self._receive_exactly(LENGTH.size))
        return self._receive_exactly(length)

    def _receive_exactly(self, length: int) -> bytes:
        received = bytearray()
        while len(received) < length:
            try:
                more = self._socket.recv(min(CHUNK_BYTES, length - len(received)))
            except OSError as error:
                raise _SocketClosed from error
            if not more:
                raise _SocketClosed
            received += more
        return bytes(received)


def _picklable(error: Exception) -> Exception:
    """An exception that pickles, with its stack for the log where it is unexpected."""
    if not isinstance(error, TraincostError):
        trace = "".join(traceback.format_exception(error))
        error = error if type(error) is MemoryError else RuntimeError(repr(error))
        error.add_note(f"in a computing process:\n{trace}")
    return error


def _peak_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak << 10
