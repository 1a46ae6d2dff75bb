"""Does whoever writes know whether other processes hold what was written, and wait for nobody who is gone?"""

import pytest
from sqlalchemy import Engine, text

from service.errors import Unreachable
from service.store.engine import open_engine
from service.store.replicas import Replicas
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
