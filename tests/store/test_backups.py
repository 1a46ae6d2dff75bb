"""A backup is complete under concurrent writes, and any kind of database restores it unchanged."""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from threading import Event, Thread

import pytest
from sqlalchemy import Column, Engine, Integer, MetaData, String, Table, func, insert, select, text, update

from service.errors import BackupRefused, StartupError
from service.store import backups
from service.store.database import HEAD, migrate, revision_in
from service.store.engine import open_engine, reading, writing
from service.store.tables import JOB_EVENTS, JOBS, METADATA
from tests.databases import copy_database, new_database, prepared
from tests.store.holding import fill, read, row_of
from tests.store.small import SMALL

ROWS = 20
SEEDED = frozenset(("seedings",))
SAY_REVISION = text("UPDATE alembic_version SET version_num = :revision")


@pytest.fixture(scope="module")
def patterns(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], str]]:
    """The URL of a database of a kind with rows in every table, made once and copied since then."""
    with ExitStack() as stack:

        @cache
        def of_kind(kind: str) -> str:
            if kind == "sqlite":
                url = f"sqlite:///{tmp_path_factory.mktemp('filled') / 'traincost.db'}"
            else:
                url = stack.enter_context(new_database(request.getfixturevalue("postgresql_server")))
            engine = prepared(url, SMALL)
            with writing(engine) as connection:
                fill(connection, ROWS, SEEDED)
            engine.dispose()
            return url

        yield of_kind


@pytest.fixture
def filled(database_url: str, patterns: Callable[[str], str]) -> Iterator[Engine]:
    """A database with rows in every table."""
    engine = open_engine(database_url)
    copy_database(database_url, patterns(engine.dialect.name))
    yield engine
    engine.dispose()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where a backup goes."""
    return tmp_path / "nightly.backup"


def _url(engine: Engine) -> str:
    return engine.url.render_as_string(hide_password=False)


@pytest.fixture(params=["sqlite", "postgresql"])
def other(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Another database, empty, of either kind."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'other.db'}"
        return
    with new_database(request.getfixturevalue("postgresql_server")) as url:
        yield url


def test_any_database_takes_back_what_either_held(filled: Engine, file: Path, other: str) -> None:
    made = backups.make_backup(_url(filled), file)
    assert made.revision == HEAD
    assert made.tables.keys() == METADATA.tables.keys()
    assert {name for name, tally in made.tables.items() if tally.rows < ROWS} == SEEDED
    assert backups.restore_backup(other, file) == made
    again = open_engine(other)
    with reading(again) as connection, reading(filled) as before:
        assert backups.tally_rows(connection) == backups.tally_rows(before) == made.tables
        assert revision_in(connection) == HEAD
        if again.dialect.name == filled.dialect.name == "sqlite":
            assert read(connection) == read(before)
        here, there = (
            one.execute(select(JOBS.c.payload).order_by(JOBS.c.created_at)).scalars().all()
            for one in (before, connection)
        )
    assert [list(payload) for payload in here] == [list(payload) for payload in there]  # keys in the same order
    again.dispose()


def test_numbers_that_a_server_gives_out_go_on(
    postgresql_url: str, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbered, engines = MetaData(), [open_engine(url) for url in (sqlite_url, postgresql_url)]
    table = Table("numbered", numbered, Column("number", Integer, primary_key=True), Column("text", String))
    for engine, add in zip(engines, (True, False), strict=True):
        with writing(engine) as connection:
            numbered.create_all(connection)
            if add:
                connection.execute(insert(table), [{"text": "one"}, {"text": "two"}])
    monkeypatch.setattr("service.store.backups.FORMER_TABLES", frozenset(("numbered",)))
    with reading(engines[0]) as source, writing(engines[1]) as target:
        backups.copy_rows(source, target)
        target.execute(insert(table), {"text": "three"})
        assert target.execute(select(table.c.number).order_by(table.c.number)).scalars().all() == [1, 2, 3]
    for engine in engines:
        engine.dispose()


def test_nobody_else_reads_it_and_nothing_is_left_beside_it(filled: Engine, file: Path) -> None:
    os.umask(os.umask(0o022))
    backups.make_backup(_url(filled), file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert {path.name for path in file.parent.iterdir()} <= {
        "traincost.db",
        "traincost.db-shm",
        "traincost.db-wal",
        file.name,
    }


def test_an_earlier_backup_is_not_written_over(filled: Engine, file: Path) -> None:
    file.write_text("the only one")
    with pytest.raises(BackupRefused, match="is there already"):
        backups.make_backup(_url(filled), file)
    assert file.read_text() == "the only one"


def test_a_damaged_backup_is_refused_wherever_the_damage_is(sqlite_url: str, file: Path) -> None:
    prepared(sqlite_url, SMALL).dispose()
    backups.make_backup(sqlite_url, file)
    whole, other = file.read_bytes(), f"sqlite:///{file.parent / 'other.db'}"
    damaged = [whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :] for place in range(0, len(whole), 9_973)]
    cut = [whole[:length] for length in (0, backups.END_BYTES - 1, len(whole) // 2, len(whole) - 1)]
    for content in (*damaged, *cut, whole + b"\n", b"no backup at all" * 100):
        file.write_bytes(content)
        with pytest.raises(BackupRefused, match=r"damaged|no backup"):
            backups.restore_backup(other, file)
    assert not (file.parent / "other.db").exists()


def test_a_database_that_holds_something_is_left_alone_unless_that_is_given_up(filled: Engine, file: Path) -> None:
    made = backups.make_backup(_url(filled), file)
    with writing(filled) as connection:
        connection.execute(insert(JOBS), row_of(JOBS, ROWS))
    with pytest.raises(BackupRefused, match="say --replace"):
        backups.restore_backup(_url(filled), file)
    with reading(filled) as connection:
        assert connection.execute(select(func.count()).select_from(JOBS)).scalar_one() == ROWS + 1
    assert backups.restore_backup(_url(filled), file, replace=True) == made
    with reading(filled) as connection:
        assert backups.tally_rows(connection) == made.tables


def test_a_restore_that_fails_keeps_what_was_there(filled: Engine, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backups.make_backup(_url(filled), file)
    with reading(filled) as connection:
        before = backups.tally_rows(connection)
    monkeypatch.setattr("service.store.backups.copy_rows", lambda *_: {})
    with pytest.raises(BackupRefused, match="nothing of it was kept"):
        backups.restore_backup(_url(filled), file, replace=True)
    with reading(filled) as connection:
        assert backups.tally_rows(connection) == before


def test_a_backup_of_an_earlier_revision_is_restored_at_it(engine: Engine, file: Path) -> None:
    with writing(engine) as connection:
        migrate(connection, "0010")
        fill(connection, 3)
    made = backups.make_backup(_url(engine), file)
    assert (made.revision, "measurements" in made.tables) == ("0010", False)
    other = f"sqlite:///{file.parent / 'other.db'}"
    assert backups.restore_backup(other, file) == made
    again = open_engine(other)
    with writing(again) as connection:
        assert backups.tally_rows(connection) == made.tables
        known = [
            table for table in backups.described_tables(connection) if table.name in {"jobs", "job_events", "job_files"}
        ]
        before = [sorted(connection.execute(select(table)).all(), key=repr) for table in known]
        migrate(connection)
        assert [sorted(connection.execute(select(table)).all(), key=repr) for table in known] == before
    again.dispose()


def test_what_a_newer_version_made_is_refused(filled: Engine, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with writing(filled) as connection:
        connection.execute(SAY_REVISION, {"revision": "9999"})
    with pytest.raises(StartupError, match="newer traincost"):
        backups.make_backup(_url(filled), file)
    assert not file.exists()
    with writing(filled) as connection:
        connection.execute(SAY_REVISION, {"revision": HEAD})
    monkeypatch.setattr("service.store.backups.FORMAT", 2)
    backups.make_backup(_url(filled), file)
    monkeypatch.undo()
    with pytest.raises(BackupRefused, match="newer traincost"):
        backups.restore_backup(_url(filled), file, replace=True)


def test_a_backup_of_a_newer_revision_is_refused(sqlite_url: str, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared(sqlite_url, SMALL).dispose()
    monkeypatch.setattr("service.store.backups._revision_of", lambda _: "9999")
    backups.make_backup(sqlite_url, file)
    with pytest.raises(BackupRefused, match=r"backup is at revision 9999.*newer traincost"):
        backups.restore_backup(f"sqlite:///{file.parent / 'other.db'}", file)


@pytest.mark.parametrize("made", ["no file", "no tables"])
def test_where_there_is_no_database_there_is_no_backup(made: str, tmp_path: Path, file: Path) -> None:
    path = tmp_path / "folder" / "traincost.db"
    if made == "no tables":
        open_engine(f"sqlite:///{path}").connect().close()
    with pytest.raises(BackupRefused, match=r"name (one|another one) in TRAINCOST_DATABASE_URL"):
        backups.make_backup(f"sqlite:///{path}", file)
    assert path.parent.exists() == (made == "no tables")
    assert not file.exists()


def test_what_is_written_meanwhile_is_in_it_whole_or_not_at_all(filled: Engine, file: Path) -> None:
    begun, acknowledged, stop = Event(), [], Event()

    def write() -> None:
        number = ROWS
        while not stop.is_set():
            with writing(filled) as connection:
                connection.execute(insert(JOBS), {**row_of(JOBS, number), "events": 1})
                connection.execute(insert(JOB_EVENTS), {**row_of(JOB_EVENTS, number), "number": 1})
                connection.execute(update(JOBS).where(JOBS.c.id == f"id ü {number}").values(events=2))
                connection.execute(insert(JOB_EVENTS), {**row_of(JOB_EVENTS, number), "number": 2})
            acknowledged.append(number)
            number += 1
            if number == ROWS + 5:
                begun.set()

    thread = Thread(target=write)
    thread.start()
    begun.wait(30)
    before = len(acknowledged)
    made: backups.Backup = backups.make_backup(_url(filled), file)
    after = len(acknowledged)
    stop.set()
    thread.join()
    written = made.tables["jobs"].rows - ROWS
    assert before <= written <= after + 1
    assert made.tables["job_events"].rows - ROWS == 2 * written
    other = f"sqlite:///{file.parent / 'other.db'}"
    assert backups.restore_backup(other, file) == made
