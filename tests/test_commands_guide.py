"""Commands of the page on the command line, run in a shell one after the other, and its table of exit codes."""

import os
import subprocess
from pathlib import Path

from service.cli.console import EXIT_CODES
from tests.commands import write_program
from tests.guide_pages import blocks_of
from tests.house.source import SERVICE

BLOCKS = blocks_of(SERVICE / "web" / "guide" / "commands.html")


def test_commands_run_as_the_page_shows(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": f"{write_program(tmp_path)}{os.pathsep}{os.environ['PATH']}"}
    commands = [block.text for block in BLOCKS if block.kind == "shell"]
    for block in BLOCKS:
        if block.kind == "file":
            (tmp_path / block.title).write_text(block.text + "\n", encoding="utf-8")
    for command in commands:
        done = subprocess.run(
            ["/bin/sh", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (command, done.stderr)
        assert done.stdout or "> train.sh" in command, command
    assert done.stdout.endswith("starts\n")
    assert len(commands) >= 15


def test_exit_codes_are_those_of_the_help() -> None:
    (table,) = [block.text for block in BLOCKS if block.kind == "codes"]
    rows = [tuple(filter(None, line.split("\t"))) for line in table.strip().splitlines()]
    assert rows[1:] == [*EXIT_CODES]
