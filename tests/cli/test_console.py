"""Tables and progress of commands, on a terminal and elsewhere."""

import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from itertools import count

import pytest

from service.cli.console import PATIENCE_SECONDS, Progress
from service.cli.tables import table
from tests.house.source import ROOT

ROWS = [("name", "bytes", "what it is"), ("weights", "12", "read once [a layer]"), ("logits", "1,024", "")]
STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def _use_terminal(monkeypatch: pytest.MonkeyPatch, columns: int = 80) -> None:
    for stream in (sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    for name, value in (("TERM", "xterm"), ("COLUMNS", str(columns))):
        monkeypatch.setenv(name, value)


def test_a_row_is_a_line_where_no_terminal_is() -> None:
    assert table(ROWS, right={1}, indent="  ") == [
        "  name     bytes  what it is",
        "  weights     12  read once [a layer]",
        "  logits   1,024",
    ]
    assert table([], right={1}) == []


def test_a_terminal_gets_the_same_cells_below_a_bold_header(monkeypatch: pytest.MonkeyPatch) -> None:
    _use_terminal(monkeypatch)
    lines = table(ROWS, right={1}, indent="  ")
    assert "\x1b[1m" in lines[0]
    plain = [STYLE.sub("", line).rstrip() for line in lines]
    monkeypatch.undo()
    assert plain == table(ROWS, right={1}, indent="  ")


def test_a_narrow_terminal_folds_cells_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    _use_terminal(monkeypatch, columns=30)
    lines = [STYLE.sub("", line) for line in table(ROWS, right={1})]
    assert len(lines) > len(ROWS)
    assert max(map(len, lines)) <= 30
    _use_terminal(monkeypatch, columns=5)
    words = " ".join(STYLE.sub("", line) for line in table(ROWS, right={1}, has_header=False)).split()
    assert {"weights", "1,024", "[a", "layer]"} <= set(words)


def test_progress_has_a_rate_and_the_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    clock = count()
    with Progress(now=lambda: 2 * PATIENCE_SECONDS * next(clock)) as progress:
        for rows in (100, 200, 300):  # a hundred were there before
            progress.report(f"{rows} of 500 rows", rows, rows / 500, "rows")
    assert capsys.readouterr().err.splitlines() == [
        "100 of 500 rows",
        "200 of 500 rows, 25 rows/s, 12 s left",
        "300 of 500 rows, 33.3 rows/s, 6 s left",
    ]


PROGRAM = """
from itertools import count
from service.cli.console import Progress
clock = count()
with Progress(now=lambda: next(clock)) as progress:
    for rows in range(4):
        progress.report(f"{rows} of 4 rows [so far]", rows, rows / 4, "rows")
print("ended")
"""


def test_progress_is_a_bar_of_a_terminal_and_goes() -> None:
    leader, follower = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=follower, env=environment
    ) as process:
        os.close(follower)
        shown = b""
        with suppress(OSError):  # the terminal's other end is closed
            while part := os.read(leader, 4096):
                shown += part
        assert process.stdout is not None
        assert process.stdout.read() == b"ended\n"
    os.close(leader)
    text = shown.decode()
    assert "3 of 4 rows [so far], 0.75 rows/s, 1.3 s left" in STYLE.sub("", text)
    assert text.endswith("\x1b[2K") or text.rstrip().endswith("\x1b[?25h")
    assert "\u2501" in text
    assert re.search(r"\x1b\[[0-9;]*m", text)
