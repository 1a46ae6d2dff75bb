"""Every revision of the database up, down and up again with 100,000 rows, and a backup of them, on both kinds."""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from threading import Event, Thread

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, insert

from service.store.backups import Tally, described_tables, make_backup, restore_backup, tally_rows
from service.store.database import HEAD, migrations_folder
from service.store.engine import open_engine, reading, writing
from service.store.tables import JOB_EVENTS, JOBS
from tests.databases import new_database, serving
from tests.store.holding import fill, row_of

ROWS = 100_000
"""Over all tables together, at every revision."""
MOST_UPGRADE_SECONDS = 30.0
NOT_FILLED = frozenset(("seedings",))
"""Whose one row a revision makes a change of; more of them are no database of ours."""


@contextmanager
def databases(which: str) -> Iterator[tuple[str, str]]:
    """Two empty databases of a kind."""
    with tempfile.TemporaryDirectory(prefix="traincost-migrations-") as folder, serving() as (server, reason):
        if which == "sqlite":
            yield f"sqlite:///{folder}/one.db", f"sqlite:///{folder}/two.db"
        elif server is None:
            sys.exit(f"PostgreSQL cannot be started here: {reason}")
        else:
            with new_database(server) as one, new_database(server) as two:
                yield one, two


def config_on(connection: Connection) -> Config:
    return Config(str(migrations_folder() / "alembic.ini"), attributes={"connection": connection})


def to(engine: Engine, revision: str, *, down: bool = False) -> float:
    """Seconds of the way to a revision."""
    started = time.perf_counter()
    with writing(engine) as connection:
        (command.downgrade if down else command.upgrade)(config_on(connection), revision)
    return time.perf_counter() - started


def tallies(engine: Engine) -> dict[str, Tally]:
    with reading(engine) as connection:
        return tally_rows(connection)


def stepped(which: str, url: str, rows: int) -> list[str]:
    """Each step up, down and up with rows in every table that there is before it."""
    engine, wrong, slowest = open_engine(url), [], 0.0
    with writing(engine) as connection:
        scripts = [*ScriptDirectory.from_config(config_on(connection)).walk_revisions()][::-1]
    to(engine, scripts[0].revision)
    for before, script in pairwise(scripts):
        to(engine, "base", down=True)
        to(engine, before.revision)
        with writing(engine) as connection:
            names = [table.name for table in described_tables(connection)]
            fill(connection, -(-rows // len(set(names) - NOT_FILLED)), NOT_FILLED)
        held = tallies(engine)
        up = to(engine, script.revision)
        first = tallies(engine)
        down = to(engine, before.revision, down=True)
        back = tallies(engine)
        again = to(engine, script.revision)
        slowest = max(slowest, up, again)
        total = sum(tally.rows for tally in held.values())
        same = back == held and tallies(engine) == first
        print(
            f"{which} {before.revision} to {script.revision}: {total:,} rows in {len(names)} tables, up {up:.2f} s, "
            f"down {down:.2f} s, up {again:.2f} s, checksums {'equal' if same else 'DIFFER'}",
            flush=True,
        )
        wrong += [] if same else [f"{which}: {script.revision} does not keep the rows"]
    with writing(engine) as connection:
        command.check(config_on(connection))  # raises where the models differ
    print(f"{which}: head is {HEAD} and equals the models; slowest upgrade {slowest:.2f} s")
    engine.dispose()
    return wrong + ([f"{which}: an upgrade takes {slowest:.1f} s"] if slowest > MOST_UPGRADE_SECONDS else [])


def whole(which: str, url: str, rows: int) -> list[str]:
    """From the first revision to head at once, with all rows in the tables of the first."""
    engine = open_engine(url)
    to(engine, "base", down=True)
    to(engine, "0001")
    with writing(engine) as connection:
        tables = described_tables(connection)
        fill(connection, -(-rows // (len(tables) - 1)), NOT_FILLED)
    seconds = to(engine, "head")
    engine.dispose()
    print(f"{which}: {rows:,} rows from 0001 to {HEAD} in {seconds:.2f} s", flush=True)
    return [f"{which}: the whole upgrade takes {seconds:.1f} s"] if seconds > MOST_UPGRADE_SECONDS else []


def backed_up(which: str, urls: tuple[str, str], rows: int) -> list[str]:
    """A backup while others write, restored into another database of the same kind and of the other."""
    one, two = urls
    engine, stop, written = open_engine(one), Event(), list[int]()
    to(engine, "base", down=True)
    to(engine, "head")
    with writing(engine) as connection:
        tables = described_tables(connection)
        fill(connection, -(-rows // (len(tables) - 1)), NOT_FILLED)
    held = tallies(engine)

    def write() -> None:
        number = rows
        while not stop.is_set():
            with writing(engine) as connection:
                connection.execute(insert(JOBS), row_of(JOBS, number))
                connection.execute(insert(JOB_EVENTS), row_of(JOB_EVENTS, number))
            written.append(number)
            number += 1

    writer = Thread(target=write)
    writer.start()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "made.backup"
        time.sleep(0.5)
        before, started = len(written), time.perf_counter()
        made = make_backup(one, file)
        seconds, after = time.perf_counter() - started, len(written)
        stop.set()
        writer.join()
        engine.dispose()
        new = {name: made.tables[name].rows - held[name].rows for name in ("jobs", "job_events")}
        unchanged = all(made.tables[name] == tally for name, tally in held.items() if name not in new)
        is_one_moment = unchanged and new["jobs"] == new["job_events"] and before <= new["jobs"] <= after + 1
        print(
            f"{which}: backup of {made.rows:,} rows in {seconds:.2f} s, {file.stat().st_size / 1e6:.1f} MB, while "
            f"{after - before} transactions were written; {'one moment' if is_one_moment else 'NOT ONE MOMENT'}",
            flush=True,
        )
        wrong = [] if is_one_moment else [f"{which}: a backup under load is not of one moment"]
        into = {two: which, f"sqlite:///{folder}/three.db": "sqlite"}
        for url, name in into.items():
            started = time.perf_counter()
            same = restore_backup(url, file, replace=True) == made
            print(f"{which}: restored into {name} in {time.perf_counter() - started:.2f} s, equal: {same}", flush=True)
            wrong += [] if same else [f"{which}: a restore into {name} differs"]
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--database", choices=("sqlite", "postgresql"), action="append")
    given = parser.parse_args()
    wrong: list[str] = []
    for which in given.database or ("sqlite", "postgresql"):
        with databases(which) as urls:
            wrong += stepped(which, urls[0], given.rows) + whole(which, urls[0], given.rows)
            wrong += backed_up(which, urls, given.rows)
    if wrong:
        sys.exit("; ".join(wrong))


if __name__ == "__main__":
    main()
