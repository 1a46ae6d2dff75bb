"""Faults of databases and networks under traffic: what is lost, doubled, answered 500, and when all is well again."""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.outage_faults import on_postgresql, on_sqlite
from tests.outages import Figures, Outages

SECONDS, ROUNDS = 12.0, 2
"""How long each fault lasts: longer than a change waits for others."""


def judged(which: str, outages: Outages, found: list[Figures]) -> list[str]:
    """What is wrong on one kind of database; prints what is true at the end."""
    lost, doubled = outages.lost, outages.doubled
    writes = sum((one.statuses for one in found), start=type(found[0].statuses)())
    estimates, slowest = sum(one.estimates for one in found), max(one.worst_estimate_seconds for one in found)
    print(
        f"{which}: {len(found)} faults, {len(outages.acknowledged)} writes acknowledged, {lost} lost, {doubled} done "
        f"twice; answers during faults {dict(sorted(writes.items()))}; {estimates} estimates, the slowest in "
        f"{slowest:.2f} s; recovered after {max(one.recovery_seconds for one in found):.1f} s at the latest",
        flush=True,
    )
    wrong = [f"{which}, {one.fault}: {fault}" for one in found for fault in one.wrong]
    return wrong + [f"{which}: {count} {what}" for count, what in ((lost, "lost"), (doubled, "doubled")) if count]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--database", choices=("sqlite", "postgresql"), action="append")
    given = parser.parse_args()
    wrong: list[str] = []
    for which in given.database or ("sqlite", "postgresql"):

        def say(figures: Figures, which: str = which) -> None:
            print(f"{which}, {figures.said()}", flush=True)

        if which == "sqlite":
            with tempfile.TemporaryDirectory(prefix="traincost-outages-") as folder:
                outages, found = on_sqlite(Path(folder), given.seconds, given.rounds, say)
                wrong += judged(which, outages, found)
        else:
            outages, found = on_postgresql(given.seconds, given.rounds, say)
            wrong += judged(which, outages, found)
    if wrong:
        sys.exit("; ".join(wrong))


if __name__ == "__main__":
    main()
