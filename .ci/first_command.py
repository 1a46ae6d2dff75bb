"""Runs the README's first command word for word, in an environment that holds nothing, until the service answers.

Arguments: the environment, and a folder that holds the source.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from urllib.request import urlopen

ROOT = Path(__file__).parents[1]


def command_of(start: str) -> str:
    """The one command of the README that starts so."""
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    (found,) = [line for line in lines if line.startswith(start)]
    return found


def inside(environment: Path) -> dict[str, str]:
    """Variables under which a shell finds the programs of a virtual environment first, as `activate` sets them."""
    path = f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "VIRTUAL_ENV": str(environment), "PATH": path, "PIP_QUIET": "1"}


def serve(command: str, source: Path, variables: Mapping[str, str]) -> None:
    """Run a command until the service that it starts is ready, then end it."""
    process = subprocess.Popen(
        ["/bin/bash", "-c", command],
        cwd=source,
        env=variables,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        addresses = (re.search(r"http://[\d.]+:\d+", line) for line in process.stdout or ())
        address = next((found[0] for found in addresses if found), None)
        if address is None:
            sys.exit(f"{command}: ended before the service answered")
        with urlopen(f"{address}/readyz", timeout=60) as response:
            print(f"{command}: /readyz answers {response.status}")
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.communicate(timeout=60)


def main(environment: Path, source: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        own = {"TRAINCOST_DATABASE_URL": f"sqlite:///{folder}/traincost.db", "TRAINCOST_PORT": "0"}
        serve(command_of("pip install . &&"), source, {**inside(environment), **own})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
