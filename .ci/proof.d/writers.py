"""Updates lost by four processes that read, change and write one row 600 times, on SQLite and on PostgreSQL."""

import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from service.store.database import prepare_database
from service.store.history import History, load_catalogue
from tests.databases import new_database, serving
from tests.store.racing import count_up_in_a_row, make_counter, race
from tests.store.small import SMALL

PROCESSES = 4
UPDATES = 600


def lost_updates(url: str, kind: str) -> int:
    """Updates that are missing at the end; prints what it took."""
    engine = prepare_database(url, SMALL)
    history = History(engine, load_catalogue(engine))
    make_counter(history)
    started = time.perf_counter()
    reports = race(partial(count_up_in_a_row, rounds=UPDATES // PROCESSES), url, PROCESSES)
    seconds = time.perf_counter() - started
    history.refresh()
    counted = int(history.view("team").rate_cards["counter"].note)
    numbers = [change.number for change in history.changes("team")]
    engine.dispose()
    failed = [report for report in reports if not report.endswith(" stale")]
    gaps = numbers != list(range(UPDATES + 2, 0, -1))
    print(
        f"{kind}: {UPDATES - counted} of {UPDATES} updates by {PROCESSES} processes lost in {seconds:.0f} s, "
        f"{sum(int(report.split()[0]) for report in reports if report not in failed)} refused as stale and made again, "
        f"{'with' if gaps else 'no'} gaps in the numbers of the changes"
    )
    if failed:
        print(failed[0])
    return UPDATES - counted + len(failed) + gaps


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        lost = lost_updates(f"sqlite:///{Path(folder) / 'traincost.db'}", "SQLite")
    with serving() as (server, reason):
        if server is None:
            print(f"PostgreSQL is not measured: {reason}")
        else:
            with new_database(server) as url:
                lost += lost_updates(url, "PostgreSQL")
    if lost:
        sys.exit("updates are lost, or changes are not numbered without gaps")


if __name__ == "__main__":
    main()
