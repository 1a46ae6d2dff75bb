"""Cases that schemathesis makes of the contract, for all operations and checks, and how many the service breaks."""

import argparse
import os
import secrets
import sys
import tempfile
import time
from pathlib import Path

from tests.contract.conforming import program, run
from tests.live import bearer, serving

FIXED_SEED = 20_000
EXAMPLES = 70
LEAST_CASES = 20_000
WORKERS = 8
"""Who ask at the same time: streams of events and waits for a job take their time."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=EXAMPLES, help="cases that are made up of each operation")
    parser.add_argument("--operations", default=".", help="operations to try, as a regular expression of their ids")
    parser.add_argument("--without-coverage", action="store_true", help="leave out the cases at every bound")
    given = parser.parse_args()
    if not program().is_file():
        sys.exit("needs schemathesis: .ci/tools FOLDER installs it, and TRAINCOST_TOOLS names the folder")
    os.environ |= {"TRAINCOST_REQUESTS_PER_MINUTE": "0", "TRAINCOST_STREAM_SECONDS": "1"}
    runs = [("fuzzing,stateful", FIXED_SEED), ("fuzzing,stateful", secrets.randbelow(1 << 32))]
    if not given.without_coverage:
        runs.insert(0, ("examples,coverage", FIXED_SEED))
    cases, unsound = 0, 0
    with tempfile.TemporaryDirectory(prefix="traincost-contract-") as name:
        folder = Path(name)
        headers = bearer(folder, "admin")
        with serving(folder) as address:
            for phases, seed in runs:
                begun = time.perf_counter()
                done = run(
                    address, headers, folder, f"--phases={phases}", f"--seed={seed}",
                    f"--max-examples={given.examples}", f"--include-operation-id-regex={given.operations}",
                    f"--workers={WORKERS}",
                )  # fmt: skip
                cases, unsound = cases + done.cases, unsound + (not done.is_sound)
                print(f"{phases}, seed {seed}: {done.cases} cases in {time.perf_counter() - begun:.0f} s", flush=True)
                if not done.is_sound:
                    print(done.said)
    print(f"{cases} cases, {unsound} of {len(runs)} runs with failures")
    if unsound or (cases < LEAST_CASES and given.operations == "."):
        sys.exit(f"at least {LEAST_CASES} cases and no failure are wanted")


if __name__ == "__main__":
    main()
