"""Cost of a request of each kind, a thousand workers at once, a million own rows, queues foretold and measured."""

import argparse
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.capacity.figures import PAGE, filled, rounded
from tests.capacity.measured import (
    FILE,
    Size,
    machine,
    measured_costs,
    measured_crowd,
    measured_queues,
    measured_rows,
    planned,
)
from tests.capacity.workers import TAKEN

DATABASES = ("postgresql", "sqlite")
PARTS = ("costs", "crowd", "rows", "queues", "plan")


def told(name: str, found: Any) -> None:
    """Print what was measured, a line for each thing."""
    if isinstance(found, list):
        for one in found:
            told(name, one)
    elif any(isinstance(part, Mapping) for part in found.values()):
        plain = {key: part for key, part in found.items() if not isinstance(part, Mapping)}
        if plain:
            told(name, plain)
        for key, part in found.items():
            if isinstance(part, Mapping) and part:
                told(f"{name} {key}", part)
    else:
        said = (f"{key} {rounded(part) if isinstance(part, int | float) else part}" for key, part in found.items())
        print(f"{name}: {', '.join(said)}", flush=True)


def measured(part: str, size: Size) -> Any:
    """Measure one part of a run."""
    if part == "costs":
        return {kind: measured_costs(kind, size) for kind in DATABASES}
    if part == "crowd":
        return {kind: measured_crowd(kind, size) for kind in DATABASES}
    if part == "rows":
        return {kind: measured_rows(kind, size.rows) for kind in DATABASES}
    return measured_queues(size) if part == "queues" else planned(size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--rows", type=int, default=Size().rows)
    parser.add_argument("--workers", type=int, default=Size().workers)
    parser.add_argument("--seconds", type=float, default=Size().seconds)
    parser.add_argument(
        "--keep", action="store_true", help="keep the figures, and fill the page of the guide with them"
    )
    given = parser.parse_args()
    size = replace(Size(), rows=given.rows, workers=given.workers, seconds=given.seconds)
    run: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    loads = run.setdefault("loads", {})
    for part in given.parts:
        before = os.getloadavg()[0]
        run |= {part: measured(part, size), **machine()}
        loads[part] = [before, os.getloadavg()[0]]
        told(part, run[part])
        if given.keep:
            FILE.write_text(json.dumps(run, indent=1) + "\n", encoding="utf-8")
    if given.keep:
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), run), encoding="utf-8")
    lost = [f"{one['faults'][TAKEN]} on {kind}" for kind, one in run.get("crowd", {}).items() if TAKEN in one["faults"]]
    if lost:
        sys.exit(f"jobs went to another worker before they were handed in: {', '.join(lost)}")


if __name__ == "__main__":
    main()
