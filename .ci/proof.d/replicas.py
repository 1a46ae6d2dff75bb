"""Two replicas on one PostgreSQL behind a proxy: the tests of the API, and a replacement of both without a loss."""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.databases import new_database, serving
from tests.house.source import ROOT
from tests.replicas import proxied, replicas
from tests.rolling import SETTINGS, loaded, replace

REPLICAS = 2
CLIENTS = 8


def suite_passes(count: int, tests: list[str]) -> bool:
    """Run the tests of the API against replicas; print what they came to."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        options = ["-n0", "-q", "--timeout=1200", "--junitxml", str(report), "-o", "junit_family=xunit1"]
        command = [sys.executable, "-m", "pytest", *options, *tests]
        environment = {**os.environ, "TRAINCOST_TEST_REPLICAS": str(count)}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        cases = list(ET.parse(report).iter("testcase"))  # noqa: S314 - pytest's own
    failed = [f"{one.get('classname')}::{one.get('name')}" for one in cases if {"failure", "error"} & _tags(one)]
    reasons: dict[str, list[str]] = {}
    for one in cases:
        for skipped in one.iter("skipped"):
            reasons.setdefault(skipped.get("message", ""), []).append(str(one.get("name")))
    sent = [int(said.get("value", "0")) for one in cases for said in one.iter("property")]
    left_out = sum(map(len, reasons.values()))
    passed = len(cases) - len(failed) - left_out
    print(
        f"{len(cases)} tests of the API on {count} replicas: {passed} passed, {sum(value > 0 for value in sent)} of "
        f"them by {sum(sent)} requests through the proxy, the rest without asking a replica; {len(failed)} failed, "
        f"{left_out} skipped"
    )
    for reason, names in sorted(reasons.items(), key=lambda one: -len(one[1])):
        print(f"  skipped, {len(names)}: {reason}: {', '.join(sorted(names))}")
    for name in failed:
        print(f"  failed: {name}")
    return not failed and done.returncode == 0


def _tags(case: ET.Element) -> set[str]:
    return {part.tag for part in case}


def restart_loses_nothing(server: str, rounds: int) -> bool:
    """Replace every replica so often, while clients ask; print what was lost."""
    with (
        new_database(server) as url,
        replicas(url, REPLICAS, SETTINGS) as running,
        proxied([one.address for one in running]) as address,
        loaded(address, CLIENTS) as load,
    ):
        took = [seconds for _ in range(rounds) for seconds in replace(url, running, REPLICAS)]
    print(
        f"{len(took)} replicas replaced one after the other, {max(took):.0f} s at most each, while {CLIENTS} clients "
        f"read, asked and wrote: {load.answered} requests answered, {len(load.lost)} lost {load.lost[:3] or ''}"
    )
    return not load.lost


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("tests", nargs="*", default=["tests/api", "tests/features"])
    given = parser.parse_args()
    with serving() as (server, reason):
        if server is None:
            sys.exit(f"PostgreSQL cannot be started here: {reason}")
        is_kept = restart_loses_nothing(server, given.rounds)
    is_passed = suite_passes(REPLICAS, given.tests)
    if not (is_kept and is_passed):
        sys.exit("replicas do not answer as one, or a request was lost")


if __name__ == "__main__":
    main()
