"""Attacks from outside, over HTTP with valid keys: bodies, poisoning, workers, load, links, the rest."""

import argparse
import signal
import sys
import time
from pathlib import Path

from attacks import bodies, latency, poisoning, shares, sweep, workers
from attacks.record import Report
from attacks.service import Target

FAMILIES = {
    "bodies": bodies.run, "poisoning": poisoning.run, "workers": workers.run, "latency": latency.run,
    "shares": shares.run, "sweep": sweep.run,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, default=Path(), help="source tree of the service that is attacked")
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="Python that runs the service")
    parser.add_argument("--only", choices=FAMILIES, action="append", help="one family; repeat it for more")
    parser.add_argument("--seed", type=int, default=21, help="seed of the random parts")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # services are stopped on the way out
    target = Target(source=given.source.resolve(), python=given.python.absolute())
    report = Report()
    print(f"attacking {target.source} with {target.python}; seed {given.seed}", flush=True)
    for name in given.only or FAMILIES:
        started = time.monotonic()
        print(f"== {name}", flush=True)
        FAMILIES[name](target, report, given.seed)
        print(f"   {name}: {time.monotonic() - started:.0f} s", flush=True)
    print(report.table())
    if report.failed():
        sys.exit(f"{len(report.failed())} of {len(report.attempts)} attempts did not hold")


if __name__ == "__main__":
    main()
