"""Does a text that could be run come back as a text from every column? `.ci/proof hostile` tries all in all."""

from itertools import groupby
from typing import Any

from tests.api.asking import Ask
from tests.api.injections import INJECTIONS, columns, faults_of, formulas_of_csv

EACH = 2
"""Texts that a column is tried with, each with others."""


def test_every_text_comes_back_as_a_text(own: Ask, document: dict[str, Any]) -> None:
    found = columns(document)
    assert {("/v1/scenarios", "note"), ("/v1/gpus", "aliases"), ("/v1/prices", "region")} <= {
        (column.listed, column.name) for column in found
    }
    texts = [INJECTIONS[turn :: len(INJECTIONS) // EACH] for turn in range(len(found))]
    taken = 0
    for _, tried in groupby(zip(found, texts, strict=True), lambda one: one[0].listed):
        made, faults = faults_of(own, list(tried))
        assert faults == []
        taken += made
    assert taken >= len(found)


def test_a_formula_would_be_noticed() -> None:
    assert list(formulas_of_csv('a,b\n=1,"x;=2"\n-3,+x\n')) == ["=1", "=2", "+x"]
