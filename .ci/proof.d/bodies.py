"""Bodies of 10 MB, bodies of strangers and thousands of slow connections: when they end, and what others notice."""

import argparse
import asyncio
import http.client
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread

from service.api.limits.http_limits import LARGER_BODY_BYTES, MAXIMUM_BODY_BYTES
from service.api.server import connection_limit
from tests.api.slow_clients import BODIES, HEADS, all_slowly, chunked, dripped, held_bodies, refused, sized
from tests.live import bearer, serving

TIMES = 20
STRANGERS = 100
SLOW_HEADS, SLOW_BODIES = 2_000, 500
LARGEST = "/v1/batch"
DRIP_SECONDS = 2.0
MOST_REFUSAL_SECONDS = 0.05
MOST_GROWN_BYTES = 5_000_000
MOST_HEAD_SECONDS, MOST_BODY_SECONDS = 15.0, 35.0
MOST_P99_SECONDS = 0.1
ENDS = {0, 408}
"""How a slow connection may end: with an answer, or with a reset where its next byte met the closed connection."""
PAUSE_SECONDS = 0.01


def service_pid() -> int:
    """The one process that this one has started."""
    (pid,) = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text(encoding="utf-8").split()
    return int(pid)


def memory_bytes(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def sockets(pid: int) -> int:
    """Open connections of a process; its pool may open further files of the database meanwhile."""
    return sum(one.is_socket() for one in Path(f"/proc/{pid}/fd").iterdir())


def too_long(address: tuple[str, int], pid: int) -> Iterator[str]:
    """What is wrong with how long bodies are refused; prints what was found."""
    for form in (sized, chunked, dripped):
        refused(address, form(MAXIMUM_BODY_BYTES))
        Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="utf-8")
        before = memory_bytes(pid, "VmRSS")
        found = [refused(address, form(MAXIMUM_BODY_BYTES)) for _ in range(TIMES)]
        grown = memory_bytes(pid, "VmHWM") - before
        slowest = max(one.seconds for one in found)
        print(
            f"10 MB {form.__name__}, {TIMES} times: refused within {slowest * 1000:.1f} ms of the bound, "
            f"memory grew by at most {grown / 1e6:.2f} MB",
            flush=True,
        )
        if {one.status for one in found} != {413} or slowest > MOST_REFUSAL_SECONDS or grown > MOST_GROWN_BYTES:
            yield f"{form.__name__}: {sorted({one.status for one in found})}"


def of_strangers(address: tuple[str, int], pid: int) -> Iterator[str]:
    """What is wrong with what bodies cost that come without a key; prints what was found."""
    length = LARGER_BODY_BYTES[LARGEST]
    with held_bodies(address, LARGEST, length, 1):
        Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="utf-8")
        before = memory_bytes(pid, "VmRSS")
    with held_bodies(address, LARGEST, length, STRANGERS) as statuses:
        grown = memory_bytes(pid, "VmHWM") - before
    print(
        f"{STRANGERS} connections without a key, {length} bytes each: answered {sorted({*statuses})}, "
        f"memory grew by at most {grown / 1e6:.2f} MB",
        flush=True,
    )
    if statuses != [401] * STRANGERS or grown > MOST_GROWN_BYTES:
        yield "strangers fill memory"


@dataclass
class Normal:
    """How long other callers wait meanwhile."""

    seconds: list[float] = field(default_factory=list)
    failed: int = 0

    def p99_seconds(self) -> float:
        return sorted(self.seconds)[int(len(self.seconds) * 0.99)]


@contextmanager
def normal_caller(address: tuple[str, int]) -> Iterator[Normal]:
    """Somebody who asks a hundred times a second at most on one connection, beside whatever else goes on."""
    normal, is_over = Normal(), Event()

    def ask() -> None:
        connection = http.client.HTTPConnection(*address, timeout=30)
        while not is_over.wait(PAUSE_SECONDS):
            begun = time.perf_counter()
            connection.request("GET", "/healthz")
            answer = connection.getresponse()
            normal.failed += answer.read() == b"" or answer.status != 200
            normal.seconds.append(time.perf_counter() - begun)

    thread = Thread(target=ask)
    thread.start()
    try:
        yield normal
    finally:
        is_over.set()
        thread.join()


def too_slow(address: tuple[str, int], pid: int, counts: tuple[int, int]) -> Iterator[str]:
    """What is wrong with how slow connections end; prints what was found."""
    before = sockets(pid)
    with normal_caller(address) as alone:
        time.sleep(5)
    with normal_caller(address) as normal:
        begun = dict(zip((HEADS, BODIES), counts, strict=True))
        ended = asyncio.run(all_slowly(address, begun, DRIP_SECONDS, 60))
    time.sleep(1)
    slowest = {sent: max(one.seconds for one in found) for sent, found in ended.items()}
    statuses = {one.status for found in ended.values() for one in found}
    after = sockets(pid)
    print(
        f"{counts[0]} slow heads ended within {slowest[HEADS]:.1f} s, {counts[1]} slow bodies within "
        f"{slowest[BODIES]:.1f} s, answered {sorted(statuses)}; p99 of {len(normal.seconds)} normal requests meanwhile "
        f"{normal.p99_seconds() * 1000:.1f} ms (before {alone.p99_seconds() * 1000:.1f} ms), {normal.failed} failed; "
        f"open sockets {before} before, {after} after",
        flush=True,
    )
    if slowest[HEADS] > MOST_HEAD_SECONDS or slowest[BODIES] > MOST_BODY_SECONDS or not statuses <= ENDS:
        yield "slow connections do not end in time"
    if normal.p99_seconds() > MOST_P99_SECONDS or normal.failed:
        yield "others wait"
    if after > before:
        yield "connections stay open"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slow", type=int, nargs=2, default=(SLOW_HEADS, SLOW_BODIES), metavar=("HEADS", "BODIES"))
    counts = tuple(parser.parse_args().slow)
    connection_limit(sum(counts) + 100)
    with tempfile.TemporaryDirectory(prefix="traincost-bodies-") as name, serving(Path(name)) as said:
        host, _, port = said.partition(":")
        address, pid = (host, int(port)), service_pid()
        wrong = [*too_long(address, pid), *too_slow(address, pid, counts)]
    with tempfile.TemporaryDirectory(prefix="traincost-strangers-") as name:
        bearer(Path(name), "read")
        with serving(Path(name)) as said:
            host, _, port = said.partition(":")
            wrong += of_strangers((host, int(port)), service_pid())
    if wrong:
        sys.exit("; ".join(wrong))


if __name__ == "__main__":
    main()
