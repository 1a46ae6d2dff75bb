"""Kills of workers, the service and both while jobs run and clients write: what is lost, doubled, left running."""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.databases import new_database, serving
from tests.worker.faults import LIFE_SECONDS, Figures, kill_services, kill_workers, suspend_workers
from tests.worker.scene import LEASE_SECONDS, Scene

CLIENTS = 4
ALONE, BOTH, SUSPENDED = 50, 20, 5
"""Rounds of each. A job lives for LIFE_SECONDS and the moments of 50 kills divide that evenly, so each part of it is
hit that is longer than 2 %. If one kill in 17 lost something, 50 kills would pass 5 times in 100 (0.94^50); the 240 of
both databases together would pass so if it were one in 80."""


@contextmanager
def scenes(which: str) -> Iterator[tuple[str, str]]:
    """A database of each kind that is asked for."""
    with tempfile.TemporaryDirectory(prefix="traincost-faults-") as folder, serving() as (server, reason):
        if which == "sqlite":
            yield f"sqlite:///{Path(folder) / 'traincost.db'}", folder
        elif server is None:
            sys.exit(f"PostgreSQL cannot be started here: {reason}")
        else:
            with new_database(server) as url:
                yield url, folder


def measured(which: str, rounds: tuple[int, int, int]) -> list[str]:
    """What is wrong on one kind of database; prints what was found."""
    alone, both, suspended = rounds
    wrong: list[str] = []

    def tell(what: str, figures: Figures) -> None:
        print(f"{which}, {what}: {figures.said()}", flush=True)
        wrong.extend(f"{which}, {what}: {one}" for one in figures.wrong())

    with scenes(which) as (url, folder), Scene(url, Path(folder)) as scene:
        service = scene.service()
        tell("worker killed in mid-measurement", kill_workers(scene, alone))
        found, service = kill_services(scene, service, alone, CLIENTS)
        tell(f"service killed while {CLIENTS} clients write", found)
        found, service = kill_services(scene, service, both, CLIENTS, workers_too=True)
        tell("both killed", found)
        tell("worker suspended beyond its lease", suspend_workers(scene, suspended))
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, nargs=3, default=(ALONE, BOTH, SUSPENDED))
    parser.add_argument("--database", choices=("sqlite", "postgresql"), action="append")
    given = parser.parse_args()
    print(f"lease {LEASE_SECONDS:.0f} s, jobs of {LIFE_SECONDS:.1f} s; every other worker's clock jumps by up to a day")
    databases = given.database or ("sqlite", "postgresql")
    wrong = [one for which in databases for one in measured(which, tuple(given.rounds))]
    if wrong:
        sys.exit("; ".join(wrong))


if __name__ == "__main__":
    main()
