"""Errors are signed, symmetric in size, and absent without data."""

import re

import pytest

from service.calibration import scores
from service.calibration.tables import shipped_rows
from tests.house.source import SERVICE


def test_twice_too_much_and_nothing_at_all() -> None:
    said = scores.score([scores.Comparison(10, 0, 20, 30), scores.Comparison(10, 0, 0, 0)])
    assert (said.mape_fraction, said.bias_fraction, said.median_fraction) == (1.0, 0.0, 1.0)
    assert said.coverage80_fraction == 0.5


def test_the_ends_of_an_interval_belong_to_it() -> None:
    assert scores.Comparison(10, 10, 11, 12).is_covered
    assert scores.Comparison(12, 10, 11, 12).is_covered
    assert not scores.Comparison(13, 10, 11, 12).is_covered


def test_p95_is_read_between_the_nearest() -> None:
    said = scores.score([scores.Comparison(100, 0, 100 + error, 200) for error in range(101)])
    assert said.p95_fraction == pytest.approx(0.95)
    assert said.p95_bytes == pytest.approx(95)


def test_nothing_has_no_figures() -> None:
    said = scores.score([])
    assert said.scored == 0
    assert {getattr(said, name) for name in said.__slots__ if name != "scored"} == {None}


NAMED = sorted({*scores.READ_OFF_ALL, *(name for names in scores.READ_OFF.values() for name in names)})

SAID = re.compile(r"read\s+off|published\s+(\w+\s+)?(runs|peaks|rows)")
"""How the source of a constant says that measurements gave it."""

SOURCES = {
    path.relative_to(SERVICE).as_posix(): path.read_text(encoding="utf-8")
    for path in (SERVICE / "estimator").rglob("*.*")
    if path.suffix in {".py", ".json"}
}
"""Text of every file of the estimator."""

OTHERS = {"estimator/software/stacks.json", "estimator/explain/ends.py"}
"""Files whose measured constants are about time, or named where they are defined."""


def _files_with(name: str) -> set[str]:
    """Files that define a constant; answers name the topic before the dot, which need not be a file."""
    constant = name.partition(".")[2]
    defined = re.compile(rf"^(def )?{constant}\b", re.MULTILINE)
    return {path for path, text in SOURCES.items() if defined.search(text)}


@pytest.mark.parametrize("name", NAMED)
def test_constant_exists(name: str) -> None:
    assert _files_with(name)


def test_sources_are_those_of_rows() -> None:
    assert scores.READ_OFF.keys() <= {row.text("source_key") for row in shipped_rows()}


def test_every_file_that_says_a_number_was_read_off_is_named() -> None:
    saying = {path for path, text in SOURCES.items() if SAID.search(text)} - OTHERS
    assert saying <= {path for name in NAMED for path in _files_with(name)}


def test_a_source_that_gave_nothing_has_no_constants() -> None:
    assert scores.constants_read_off("nobody") == ()


def test_a_source_of_many_rows_counts_as_much_as_one_of_few() -> None:
    assert scores.spread_fraction({"many": [0.01] * 1000, "few": [0.5]}) == 0.5
    assert (
        scores.spread_fraction(
            {"many": [0.01] * 1000, "other": [0.02] * 9, "third": [0.02], "fourth": [0.02], "few": [0.5]}
        )
        == 0.02
    )


def test_the_sign_does_not_count() -> None:
    assert scores.spread_fraction({"one": [-0.3]}) == scores.spread_fraction({"one": [0.3]})


def test_what_is_judged_has_no_part_in_the_spread() -> None:
    assert scores.left_out_fraction({"judged": [9.0, 0.1], "other": [0.2]}, "judged") == 0.5
    assert scores.left_out_fraction({"other": [0.2]}, "judged") is None
