"""Reports at 80 and 200 columns and in a pipe are as recorded; `python -m tests.cli.screens` records them anew."""

import re

import pytest

from tests.cli.screens import SCREENS, WIDTHS, file_of, shown

STYLE = re.compile("\u241b\\[[0-9;]*m")
QUANTITY = re.compile(r"\d[\d,.]* (?:[KMGT]iB|[GTPEZ]FLOP|[mu]?s|min|%|tokens)(?!\w)")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", SCREENS)
def test_a_report_is_as_recorded(name: str, width: str) -> None:
    assert shown(name, WIDTHS[width]) == file_of(name, width).read_text(encoding="utf-8")


@pytest.mark.parametrize("columns", [80, 100, 132])
@pytest.mark.parametrize("name", SCREENS)
def test_a_report_fits_the_terminal_with_every_number_whole(name: str, columns: int) -> None:
    text, piped = STYLE.sub("", shown(name, columns)), shown(name, None)
    lines = text.splitlines()
    assert max(map(len, lines)) <= columns
    assert set(QUANTITY.findall(piped)) <= set(QUANTITY.findall(text))


@pytest.mark.parametrize("name", ["estimate", "memory", "check"])
def test_a_verdict_has_a_colour_on_a_terminal_alone(name: str) -> None:
    colours = {"estimate": "32", "memory": "31", "check": "31"}
    assert shown(name, 80).startswith(f"\u241b[{colours[name]}m")
    assert "\u241b" not in shown(name, None)
