"""Is the code formatted, linted and typed as pyproject.toml asks?"""

import subprocess
import sys

import pytest

from tests.house.source import ROOT

CHECKS = {
    "ruff check": ["ruff", "check", "--no-cache", "."],
    "ruff format": ["ruff", "format", "--no-cache", "--diff", "--quiet", "."],
    "mypy": ["mypy"],
}


@pytest.mark.parametrize("command", CHECKS.values(), ids=CHECKS)
def test_linter_finds_nothing(command: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
