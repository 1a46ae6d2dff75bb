"""The service conforms to its contract, tried by schemathesis (.ci/tools)."""

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from service.openapi.document import COMMITTED
from tests.needing import tool

MANNER = Path(__file__).with_name("schemathesis.toml")
PROGRAM = ("schemathesis", "bin", "st")
COUNTED = re.compile(r"^\s*(\d+) generated", re.MULTILINE)


@dataclass(frozen=True)
class Run:
    """One run of schemathesis."""

    cases: int
    is_sound: bool
    said: str


def program() -> Path:
    """schemathesis in the folder that .ci/tools makes; the file need not be there."""
    return tool(*PROGRAM)


def run(address: str, headers: Mapping[str, str], folder: Path, *options: str) -> Run:
    """All checks of schemathesis, which it makes unless it is told otherwise, against a service, with such options."""
    sent = [part for name, value in headers.items() for part in ("-H", f"{name}: {value}")]
    command: list[str | Path] = [
        program(), f"--config-file={MANNER}", "run", COMMITTED, f"--url=http://{address}", *sent,
        "--no-shrink", "--continue-on-failure", "--warnings=off", "--request-timeout=60", *options,
    ]  # fmt: skip
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    found = COUNTED.search(done.stdout)
    return Run(int(found[1]) if found else 0, done.returncode == 0, done.stdout + done.stderr)
