"""Does the list of constants that measurements gave name constants that there are, and all of them?"""

import re
from importlib import import_module

import pytest

from service.calibration.in_sample import READ_OFF, READ_OFF_ALL, constants_read_off
from service.calibration.shipped import shipped_rows
from tests.house.source import SERVICE

NAMED = sorted({*READ_OFF_ALL, *(name for names in READ_OFF.values() for name in names)})

SAID = re.compile(r"read\s+off|published\s+(\w+\s+)?(runs|peaks|rows)")
"""How the source of a constant says that measurements gave it."""

OF_TIME = {"stacks"}
"""Files whose measured constants are about time."""


@pytest.mark.parametrize("name", NAMED)
def test_constant_exists(name: str) -> None:
    module, constant = name.split(".")
    assert hasattr(import_module(f"service.estimator.{module}"), constant)


def test_sources_are_those_of_rows() -> None:
    assert READ_OFF.keys() <= {row.text("source_key") for row in shipped_rows()}


def test_every_file_that_says_a_number_was_read_off_is_named() -> None:
    sources = {path.stem: path.read_text(encoding="utf-8") for path in (SERVICE / "estimator").rglob("*.py")}
    saying = {name for name, text in sources.items() if SAID.search(text)} - OF_TIME
    assert saying <= {name.split(".")[0] for name in NAMED}


def test_a_source_that_gave_nothing_has_no_constants() -> None:
    assert constants_read_off("nobody") == ()
