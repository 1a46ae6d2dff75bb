"""Formatting, lint and types as pyproject.toml asks; an exception to a rule of theirs gives its reason."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.source import ROOT, each_of, python_files

EXCEPTION = re.compile(r"#\s*(?:noqa|type:\s*ignore)")
EXPLAINED_EXCEPTION = re.compile(r"#\s*(?:noqa: [A-Z0-9, ]+|type: ignore\[[\w, -]+\])(?: -|  #) \w+")

CHECKS = {
    "ruff check": ["ruff", "check", "--no-cache", "."],
    "ruff format": ["ruff", "format", "--no-cache", "--diff", "--quiet", "."],
    "mypy": ["mypy"],
}


@pytest.mark.parametrize("command", CHECKS.values(), ids=CHECKS)
def test_linter_finds_nothing(command: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


@each_of(python_files("service", "migrations"))
def test_exceptions_to_a_linter_say_why(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    bare = [line.strip() for line in lines if EXCEPTION.search(line) and not EXPLAINED_EXCEPTION.search(line)]
    assert not bare, f"write `# noqa: RULE - reason`: {bare}"
