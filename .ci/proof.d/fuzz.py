"""Readers and writers of other tools' files under a coverage-guided fuzzer; only the service's errors may end a run."""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.house.source import ROOT

PACKAGE = "atheris==3.0.0"
SECONDS = 1800
PROGRAM = Path(__file__).parent / "others" / "fuzzing.py"
TARGETS = (
    "model-configs", "framework-files", "measurement-files", "memory-snapshots", "prices", "accounting", "messages",
    "diagnoses", "exported-files",
)  # fmt: skip
RUNS = re.compile(r"stat::number_of_executed_units:\s*(\d+)")
COVERED = re.compile(r"cov: (\d+)")


def tried(target: str, seconds: int, environment: dict[str, str], folder: Path) -> bool:
    """Whether nothing went wrong in one target; prints what was found."""
    kept = folder / target
    kept.mkdir()
    command = [sys.executable, str(PROGRAM), target, str(kept), str(seconds)]
    done = subprocess.run(
        command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    runs, covered = RUNS.search(done.stdout), COVERED.findall(done.stdout)
    is_sound = done.returncode == 0 and runs is not None
    print(
        f"{target}: {runs[1] if runs else '?'} texts in {seconds} s, {covered[-1] if covered else '?'} edges reached, "
        f"{'none' if is_sound else 'one'} ended otherwise than by an answer or an error of the tree",
        flush=True,
    )
    if not is_sound:
        print(done.stdout[-6000:])
        print(*(repr(crash.read_bytes()[:2000]) for crash in kept.glob("crash-*")))
    return is_sound


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=SECONDS, help="for all targets together")
    parser.add_argument("--target", choices=TARGETS, action="append")
    given = parser.parse_args()
    targets = given.target or TARGETS
    with tempfile.TemporaryDirectory(prefix="traincost-fuzz-") as name:
        folder = Path(name)
        packages = folder / "packages"
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(packages), PACKAGE]
        subprocess.run(install, check=True)
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{packages}"}
        share = max(given.seconds // len(targets), 1)
        wrong = [target for target in targets if not tried(target, share, environment, folder)]
    if wrong:
        sys.exit(f"not sound: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
