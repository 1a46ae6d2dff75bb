"""Tables and progress of commands, on a terminal and elsewhere."""

import re
import sys
from itertools import count

import pytest

from service.cli.console import PATIENCE_SECONDS, Progress
from service.cli.tables import table

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


def test_progress_is_one_line_of_a_terminal_and_goes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _use_terminal(monkeypatch)
    clock = count()
    with Progress(now=lambda: PATIENCE_SECONDS * next(clock)) as progress:
        for rows in range(3):
            progress.report(f"{rows} of 3 rows [so far]")
    written = capsys.readouterr()
    assert written.out == ""
    assert "2 of 3 rows [so far]" in STYLE.sub("", written.err)
    assert "\x1b[2K" in written.err
