"""Does the list of constants that measurements gave name constants that there are, and all of them?"""

import re

import pytest

from service.calibration.scores import READ_OFF, READ_OFF_ALL, constants_read_off
from service.calibration.tables import shipped_rows
from tests.house.source import SERVICE

NAMED = sorted({*READ_OFF_ALL, *(name for names in READ_OFF.values() for name in names)})

SAID = re.compile(r"read\s+off|published\s+(\w+\s+)?(runs|peaks|rows)")
"""How the source of a constant says that measurements gave it."""

SOURCES = {
    path.relative_to(SERVICE).as_posix(): path.read_text(encoding="utf-8")
    for path in (SERVICE / "estimator").rglob("*.py")
}
"""Text of every file of the estimator."""

OF_TIME = {"estimator/software/stacks.py"}
"""Files whose measured constants are about time."""


def _files_with(name: str) -> set[str]:
    """Files that define a constant; answers name the topic before the dot, which need not be a file."""
    constant = name.partition(".")[2]
    defined = re.compile(rf"^(def )?{constant}\b", re.MULTILINE)
    return {path for path, text in SOURCES.items() if defined.search(text)}


@pytest.mark.parametrize("name", NAMED)
def test_constant_exists(name: str) -> None:
    assert _files_with(name)


def test_sources_are_those_of_rows() -> None:
    assert READ_OFF.keys() <= {row.text("source_key") for row in shipped_rows()}


def test_every_file_that_says_a_number_was_read_off_is_named() -> None:
    saying = {path for path, text in SOURCES.items() if SAID.search(text)} - OF_TIME
    assert saying <= {path for name in NAMED for path in _files_with(name)}


def test_a_source_that_gave_nothing_has_no_constants() -> None:
    assert constants_read_off("nobody") == ()
