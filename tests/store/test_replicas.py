"""A writer learns whether other processes hold the change, and waits for no process that is gone."""

import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, text

from service.errors import Unreachable
from service.store.database import ReadOnChange, Replicas
from service.store.engine import open_engine
from tests.waiting import wait_until

END_WHO_SAID_ONE = (
    "SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database "
    "WHERE datname = current_database() AND locktype = 'advisory' AND objid = 1"
)


def test_a_replica_is_behind_until_it_says_what_was_written(postgresql_url: str) -> None:
    engine = open_engine(postgresql_url)
    here, there = Replicas(engine), Replicas(engine)
    here.announce(1)
    there.announce(1)
    assert not here.are_behind(1)
    assert here.are_behind(2)
    here.announce(2)
    assert here.are_behind(2), "the other one is"
    assert not there.are_behind(1)
    there.announce(2)
    there.announce(2)
    assert not here.are_behind(2)
    assert here.are_behind(3), "it still says so after it said the same twice"
    there.leave()
    wait_until(lambda: not here.are_behind(3))  # nobody else is left
    here.leave()
    engine.dispose()


def test_a_process_waits_for_nobody_on_another_database(postgresql_url: str, postgresql_server: str) -> None:
    engine, other = open_engine(postgresql_url), open_engine(postgresql_server)
    here, there = Replicas(engine), Replicas(other)
    there.announce(1)
    assert not here.are_behind(2)
    there.leave()
    for each in (engine, other):
        each.dispose()


def test_a_lost_connection_is_made_anew(postgresql_url: str) -> None:
    engine = open_engine(postgresql_url)
    here, there = Replicas(engine), Replicas(engine)
    there.announce(1)
    with engine.begin() as connection:
        connection.execute(text(END_WHO_SAID_ONE))
    wait_until(lambda: not here.are_behind(2))  # the server has ended its connection
    with pytest.raises(Unreachable):
        there.announce(1)
    there.announce(1)
    assert here.are_behind(2)
    there.leave()
    engine.dispose()


def test_without_a_server_there_is_nobody_to_wait_for(sqlite_url: str) -> None:
    engine: Engine = open_engine(sqlite_url)
    for alone in (Replicas(engine), Replicas(None)):
        alone.announce(1)
        assert not alone.are_behind(2)
        alone.leave()
    engine.dispose()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "data.db"
    _change(path, "CREATE TABLE numbers (number INTEGER)")
    return path


def _change(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(statement)
    connection.close()


def _reads(engine: Engine | None, longest_seconds: float = 60.0) -> tuple[ReadOnChange, list[int]]:
    seen: list[int] = []
    return ReadOnChange(engine, lambda: seen.append(1), longest_seconds), seen


def test_only_a_change_is_read(file: Path) -> None:
    read, seen = _reads(open_engine(f"sqlite:///{file}"))
    for _ in range(3):
        read()
    assert len(seen) == 1
    _change(file, "INSERT INTO numbers VALUES (1)")
    read()
    read()
    assert len(seen) == 2
    read.close()


def test_an_expired_read_is_repeated(file: Path) -> None:
    read, seen = _reads(open_engine(f"sqlite:///{file}"))
    read()
    read.expire()
    read()
    assert len(seen) == 2
    read.close()


def test_nothing_is_trusted_for_longer_than_the_bound(file: Path) -> None:
    read, seen = _reads(open_engine(f"sqlite:///{file}"), longest_seconds=0.0)
    read()
    read()
    assert len(seen) == 2
    read.close()


def test_what_changes_with_time_is_read_by_then(file: Path) -> None:
    waits = [0.0, 60.0]
    read = ReadOnChange(open_engine(f"sqlite:///{file}"), lambda: waits.pop(0))
    for _ in range(3):
        read()
    assert waits == []
    read.close()


def test_a_failed_read_is_repeated(file: Path) -> None:
    calls: list[int] = []

    def fail_once() -> None:
        calls.append(1)
        if len(calls) == 1:
            raise Unreachable("away")

    read = ReadOnChange(open_engine(f"sqlite:///{file}"), fail_once)
    with pytest.raises(Unreachable, match="away"):
        read()
    read()
    assert len(calls) == 2
    read.close()


@pytest.mark.parametrize("url", [None, "sqlite://"])
def test_without_a_file_everything_is_read(url: str | None) -> None:
    read, seen = _reads(None if url is None else create_engine(url))
    read()
    read()
    assert len(seen) == 2
