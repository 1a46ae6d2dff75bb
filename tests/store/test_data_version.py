"""Reads that are left out while a SQLite database is unchanged."""

import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine

from service.errors import Unreachable
from service.store.engine import open_engine
from service.store.replicas import ReadOnChange


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
