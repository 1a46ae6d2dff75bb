"""A database file that turns read-only, Redis away and hanging, data of earlier versions upgraded: one table."""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from statistics import quantiles

from tests.api.asking import QUESTION
from tests.immutable import files_of, set_immutable
from tests.load import Request, keep_asking, post
from tests.needing import lacks
from tests.outages import Outages, service_on
from tests.redis_server import RedisServer
from tests.replicas import Replica

CLIENTS, PAUSE_SECONDS = 4, 0.08
"""Who asks for checks beside Redis: about 45 a second."""
MOST_LATER_SECONDS = 0.05
"""p99 beside that while Redis is well: half of the time after which a request gives Redis up."""
COUNTED = {"TRAINCOST_REQUESTS_PER_MINUTE": "100000", "TRAINCOST_REQUEST_BURST": "10000"}
REACHED = {"TRAINCOST_HOST": "0.0.0.0", "TRAINCOST_INSECURE": "true"}  # noqa: S104 - only such a service counts
_numbers = count()


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    attempt: str
    figures: str
    held: bool | None
    """None for what cannot be tried here."""


def read_only(seconds: float) -> Iterator[Row]:
    """The files of the database are immutable for a while, under traffic."""
    attempt = "SQLite file read-only (chattr +i)"
    if reason := lacks("immutable-files"):
        yield Row(attempt, f"skipped: {reason}", None)
        return
    with tempfile.TemporaryDirectory(prefix="traincost-endure-") as folder:
        file = Path(folder) / "traincost.db"
        url = f"sqlite:///{file}"
        with service_on(url) as (address, _):
            outages = Outages(f"http://{address}", f"http://{address}", url)
            begin, end = (partial(set_immutable, files_of(file), is_so=is_so) for is_so in (True, False))
            with outages:
                found = outages.under(attempt, begin, end, seconds, can_read=True)
    held = not found.wrong and not outages.lost and not outages.doubled and found.unready > 0
    figures = found.said().partition(": ")[2]
    yield Row(attempt, f"{figures}; {outages.lost} lost, {outages.doubled} done twice", held)


def redis(seconds: float) -> Iterator[Row]:
    """Checks at a steady rate while Redis is well, hangs, is back, is away, is back."""
    if reason := lacks("redis"):
        yield Row("Redis away", f"skipped: {reason}", None)
        return
    with tempfile.TemporaryDirectory(prefix="traincost-endure-") as name, limited(Path(name)) as (server, address):
        checks(address, seconds / 3)  # the first ones find nothing warm
        idle = 0.0
        for attempt, state in (
            ("Redis well", nullcontext), ("Redis hangs", server.hanging), ("Redis back", nullcontext),
            ("Redis away", partial(away, server)), ("Redis back", nullcontext),
        ):  # fmt: skip
            with state():
                sent, p99, faults = checks(address, seconds)
            idle = idle or p99
            figures = f"{sent} checks, p99 {1e3 * p99:.0f} ms ({p99 / idle:.1f} of that while Redis is well), {faults}"
            yield Row(attempt, figures, p99 <= idle + MOST_LATER_SECONDS and faults == "all answered")


@contextmanager
def limited(folder: Path) -> Iterator[tuple[RedisServer, str]]:
    """A Redis, and a service that counts requests in it."""
    server = RedisServer(folder)
    server.start()
    try:
        settings = {"TRAINCOST_REDIS_URL": server.url, **COUNTED, **REACHED}
        service = Replica(f"sqlite:///{folder / 'traincost.db'}", settings)
        try:
            yield server, f"127.0.0.1:{service.port}"
        finally:
            service.stop()
    finally:
        server.stop()


@contextmanager
def away(server: RedisServer) -> Iterator[None]:
    """Redis is killed, and started anew at the end."""
    server.stop()
    try:
        yield
    finally:
        server.start()


def check() -> Request:
    """A check of a question that was not asked before."""
    return post("/v1/check", {**QUESTION, "price": {"usd_per_gpu_hour": 2 + next(_numbers) / 1e6}})


def checks(address: str, seconds: float) -> tuple[int, float, str]:
    """Number of checks, their p99 [second], and what went wrong."""
    found = asyncio.run(keep_asking(address, CLIENTS, seconds, check, PAUSE_SECONDS))
    p99 = quantiles([took for _, took in found.seconds], n=100)[-1]
    return len(found.seconds), p99, str(dict(found.faults)) if found.faults else "all answered"


def upgrades(databases: list[str]) -> Iterator[Row]:
    """Databases that earlier versions wrote; the measurement of its own."""
    words = [word for which in databases for word in ("--database", which)]
    made = subprocess.run(
        [sys.executable, Path(__file__).with_name("upgrades.py"), *words], capture_output=True, text=True, check=False
    )
    for line in made.stdout.splitlines():
        attempt, _, figures = line.partition(": ")
        yield Row(f"upgrade of {attempt}", figures, " 0 lost" in figures)
    if made.returncode:
        yield Row("upgrades", made.stderr.strip()[-300:], held=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=15.0, help="length of each fault")
    parser.add_argument("--only", choices=("read-only", "redis", "upgrades"), action="append")
    parser.add_argument("--database", choices=("sqlite", "postgresql"), action="append", help="of the upgrades")
    given = parser.parse_args()
    families = {
        "read-only": lambda: read_only(given.seconds),
        "redis": lambda: redis(given.seconds),
        "upgrades": lambda: upgrades(given.database or []),
    }
    rows = [row for name in given.only or families for row in families[name]()]
    for row in rows:
        outcome = {True: "held", False: "NOT HELD", None: "-"}[row.held]
        print(f"{row.attempt:<34}{outcome:<10}{row.figures}")
    print(f"load of the machine {os.getloadavg()[1]:.2f} on {os.cpu_count()} cores")
    if any(row.held is False for row in rows):
        sys.exit("not everything held")


if __name__ == "__main__":
    main()
