"""Supported databases; transactions lose nothing and never wait for a reader."""

import resource
import sqlite3
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from threading import Timer

import pytest
from sqlalchemy import Engine, insert, select, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError, IntegrityError

from service.errors import Busy, StartupError, Unreachable
from service.store.database import prepare_database
from service.store.engine import alone, answering, lift_time_limits, open_engine, reading, takes_changes, writing
from service.store.tables import SEEDINGS
from tests.immutable import files_of, immutable
from tests.needing import needs
from tests.store.conftest import Prepare
from tests.store.racing import ROUNDS, count_up, race
from tests.store.small import SMALL

ANOTHER = {"catalogue_revision": "a value of a caller", "seeded_at": datetime(2026, 11, 21, tzinfo=UTC)}


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_every_spelling_of_postgresql_is_spoken_by_psycopg(scheme: str) -> None:
    engine = open_engine(f"{scheme}://somebody:secret@db.example.org/costs")
    assert engine.dialect.driver == "psycopg"
    assert engine.url.host == "db.example.org"


@pytest.mark.parametrize(
    "url",
    ["", "costs", "mysql://somebody:secret@db.example.org/costs", "postgresql://somebody:secret@db.example.org:port/x"],
)
def test_any_other_url_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(StartupError, match="use sqlite:////folder/") as refusal:
        open_engine(url)
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:"])
def test_a_database_that_keeps_nothing_is_refused(url: str) -> None:
    with pytest.raises(StartupError, match="names no file"):
        open_engine(url)


def test_folders_are_made(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path / 'a' / 'b' / 'traincost.db'}")
    assert takes_changes(engine)
    engine.dispose()
    assert (tmp_path / "a" / "b" / "traincost.db").exists()


def test_sqlite_keeps_a_write_ahead_log_and_foreign_keys(sqlite_url: str) -> None:
    engine = open_engine(sqlite_url)
    with reading(engine) as connection:
        settings = [
            connection.execute(text(f"PRAGMA {name}")).scalar_one()
            for name in ("journal_mode", "synchronous", "busy_timeout", "foreign_keys")
        ]
    engine.dispose()
    assert settings == ["wal", 1, 10_000, 1]


def test_a_file_that_is_being_made_is_waited_for(tmp_path: Path) -> None:
    maker = sqlite3.connect(tmp_path / "new.db", isolation_level=None, check_same_thread=False)
    maker.execute("BEGIN IMMEDIATE")  # without a write-ahead log yet, so switching to it is refused at once
    release = Timer(0.3, maker.execute, ["COMMIT"])
    release.start()
    engine = open_engine(f"sqlite:///{tmp_path / 'new.db'}")
    with reading(engine) as connection:
        assert connection.execute(text("PRAGMA journal_mode")).scalar_one() == "wal"
    release.join()
    maker.close()
    engine.dispose()


@needs("immutable-files")
def test_connections_made_while_a_file_could_only_be_read_do_not_stay_so(tmp_path: Path) -> None:
    file = tmp_path / "traincost.db"
    made, engine = (prepare_database(f"sqlite:///{file}", SMALL), open_engine(f"sqlite:///{file}"))
    assert takes_changes(made)
    with immutable(files_of(file)):
        with ExitStack() as stack:  # several at the same time, so that each opens a connection
            for _ in range(3):
                connection = stack.enter_context(reading(engine))
                assert connection.execute(select(SEEDINGS.c.catalogue_revision)).all()
        with pytest.raises(Unreachable, match="may only be read"), answering(), writing(engine) as connection:
            connection.execute(insert(SEEDINGS).values(ANOTHER))
        with ExitStack() as stack:
            for _ in range(3):
                stack.enter_context(reading(engine))
    found = [takes_changes(engine) for _ in range(4)]
    made.dispose()
    engine.dispose()
    assert found == [False] + [True] * 3  # the first finds out, and has them all closed


def test_a_reader_waits_for_no_writer_and_sees_one_state(prepare: Prepare) -> None:
    engine = prepare()
    with reading(engine) as reader:
        before = reader.execute(select(SEEDINGS.c.catalogue_revision)).scalars().all()
        with writing(engine) as writer:
            writer.execute(insert(SEEDINGS), ANOTHER)
            assert reader.execute(select(SEEDINGS.c.catalogue_revision)).scalars().all() == before
        assert reader.execute(select(SEEDINGS.c.catalogue_revision)).scalars().all() == before
    with reading(engine) as reader:
        assert ANOTHER["catalogue_revision"] in reader.execute(select(SEEDINGS.c.catalogue_revision)).scalars().all()


def test_concurrent_writers_on_sqlite_lose_nothing(sqlite_url: str) -> None:
    engine = open_engine(sqlite_url)
    with writing(engine) as connection:
        connection.execute(text("CREATE TABLE counter (number INTEGER)"))
        connection.execute(text("INSERT INTO counter VALUES (0)"))
    assert race(count_up, sqlite_url, 4) == ["done"] * 4
    with reading(engine) as connection:
        assert connection.execute(text("SELECT number FROM counter")).scalar_one() == 4 * ROUNDS
    engine.dispose()


def test_an_exception_undoes_the_transaction(prepare: Prepare) -> None:
    engine = prepare()

    def fail() -> None:
        with writing(engine) as connection:
            connection.execute(insert(SEEDINGS), ANOTHER)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with reading(engine) as connection:
        assert len(connection.execute(select(SEEDINGS.c.catalogue_revision)).all()) == 1


def test_postgresql_refuses_to_write_while_reading(postgresql_url: str) -> None:
    engine = open_engine(postgresql_url)
    with pytest.raises(DBAPIError, match="read-only"), reading(engine) as connection:
        connection.execute(text("CREATE TABLE forbidden (x INTEGER)"))
    engine.dispose()


def test_errors_do_not_tell_the_values(prepare: Prepare) -> None:
    with writing(prepare()) as connection:
        connection.execute(insert(SEEDINGS), ANOTHER)
        with pytest.raises(IntegrityError) as error:
            connection.execute(insert(SEEDINGS), ANOTHER)
        connection.rollback()
    assert "SQL parameters hidden" in str(error.value)


def test_a_server_that_may_only_be_read_takes_no_changes(postgresql_url: str) -> None:
    engine = open_engine(postgresql_url)
    assert takes_changes(engine)
    name = make_url(postgresql_url).database
    with writing(engine) as connection:
        connection.execute(text(f"ALTER DATABASE {name} SET default_transaction_read_only = on"))
    engine.dispose()
    assert not takes_changes(engine)
    with pytest.raises(Unreachable, match="takes no changes now"), answering(), writing(engine) as connection:
        connection.execute(text("CREATE TABLE forbidden (x INTEGER)"))
    engine.dispose()


def test_a_server_that_says_nothing_is_given_up(postgresql_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.store.engine.ANSWER_SECONDS", 0.5)
    engine = open_engine(postgresql_url)
    with pytest.raises(Unreachable, match="does not answer"), answering(), reading(engine) as connection:
        connection.execute(text("SELECT pg_sleep(30)"))
    with reading(engine) as connection:
        assert connection.execute(text("SELECT 1")).scalar_one() == 1
    with writing(engine) as connection:
        lift_time_limits(connection)
        connection.execute(text("SELECT pg_sleep(0.7)"))
    engine.dispose()


def test_a_disk_that_is_full_takes_no_changes(sqlite_url: str) -> None:
    engine = prepare_database(sqlite_url, SMALL)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))
    try:
        assert not takes_changes(engine)
        with pytest.raises(Unreachable, match="its disk is full"), answering(), writing(engine) as connection:
            connection.execute(insert(SEEDINGS), ANOTHER)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert takes_changes(engine)
    with reading(engine) as connection:
        assert len(connection.execute(select(SEEDINGS.c.catalogue_revision)).all()) == 1
    engine.dispose()


def test_an_unreachable_database_takes_no_changes(engine: Engine) -> None:
    assert takes_changes(engine)
    gone = open_engine("postgresql://somebody@127.0.0.1:1/costs")
    assert not takes_changes(gone)


def test_a_writer_on_postgresql_sees_what_was_written_while_it_waited(postgresql_url: str) -> None:
    name = make_url(postgresql_url).database
    engine = open_engine(postgresql_url)
    with writing(engine) as connection:
        connection.execute(text(f"ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'"))
    engine.dispose()
    with writing(engine) as connection:
        assert connection.execute(text("SHOW transaction_isolation")).scalar_one() == "read committed"
    with reading(engine) as connection:
        assert connection.execute(text("SHOW transaction_isolation")).scalar_one() == "repeatable read"
    engine.dispose()


def test_a_writer_that_waits_too_long_is_told_that_others_write(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.store.engine.BUSY_SECONDS", 1)
    engine = open_engine(database_url)
    with writing(engine) as first:
        alone(first)
        with pytest.raises(Busy, match="other changes are being written"), answering(), writing(engine) as second:
            alone(second)
    with answering(), writing(engine) as third:
        alone(third)
    engine.dispose()


def test_a_process_holds_no_more_connections_than_it_may(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.store.engine.BUSY_SECONDS", 0.2)
    for most in (4, 7):
        engine = prepare_database(database_url, SMALL, most)
        with ExitStack() as held:
            for _ in range(most):
                held.enter_context(reading(engine))
            with pytest.raises(Unreachable), answering(), reading(engine):
                pass
        with answering(), reading(engine):
            pass
        engine.dispose()
