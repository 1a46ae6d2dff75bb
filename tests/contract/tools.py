"""Tools that read the contract: linters, a generator of types and a compiler, installed by .ci/tools."""

import os
import subprocess
from pathlib import Path

from tests.needing import need, tool

MODULES = ("openapi", "node_modules")
"""The tools in the folder that .ci/tools makes, and the node that they run on."""

NOWHERE = "http://127.0.0.1:9"
"""Proxy that is not there, so that nothing beyond this machine can be reached."""

SEALED = {
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), NOWHERE),
    **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1"),
    "REDOCLY_TELEMETRY": "off",
    "REDOCLY_SUPPRESS_UPDATE_NOTICE": "true",
}
"""Nothing is counted, and no newer version is looked for."""


def modules() -> Path:
    """The tools; skips the test where there are none, or fails it where nothing may be skipped."""
    need("openapi-tools")
    return tool(*MODULES)


def ended(program: str, *arguments: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """A program of theirs, run to its end."""
    return _run(modules() / ".bin" / program, *arguments, folder=folder)


def output_of(program: str, *arguments: str | Path, folder: Path) -> str:
    """What a program prints, whatever it finds."""
    done = ended(program, *arguments, folder=folder)
    assert done.stdout, done.stderr
    return done.stdout


def node(script: str | Path, folder: Path) -> str:
    """What a script prints."""
    done = _run(script, folder=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _run(*command: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    (program,) = modules().glob("node-*/bin/node")
    environment = {**os.environ, **SEALED}
    return subprocess.run(
        [program, *command], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
