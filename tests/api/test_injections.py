"""A text that could be run comes back as text from every column. `.ci/proof hostile` tries all in all."""

from itertools import groupby
from typing import Any

from tests.api.asking import QUESTION, Ask
from tests.api.injections import INJECTIONS, LOOKALIKES, columns, faults_of, formulas_of_csv, formulas_of_workbook

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
    assert list(formulas_of_csv('a,b\n=1,"x;=2"\n-3,+x\n\uff1d4,\u200b@5\n')) == [
        "=1", "=2", "+x", "\uff1d4", "\u200b@5"
    ]  # fmt: skip


def test_names_that_a_question_gives_open_no_formula(ask: Ask) -> None:
    clusters = [
        {"name": text, "cluster": {"gpu": "h100-sxm5-80gb", "gpus": 8}} for text in (*LOOKALIKES, "=1+1", " -1", "-5")
    ]
    question = {name: value for name, value in QUESTION.items() if name != "cluster"}
    body = {"question": question, "clusters": clusters}
    text = ask("POST", "/v1/compare.csv", json=body)
    assert text.status_code == 200, text.text
    assert list(formulas_of_csv(text.text)) == []
    assert "'-5" in text.text
    assert list(formulas_of_workbook(ask("POST", "/v1/compare.xlsx", json=body).content)) == []


def test_numbers_of_a_table_stay_numbers(ask: Ask) -> None:
    table = ask("GET", "/v1/gpus.csv").text
    assert "'" not in table.partition("\n")[2].partition("\n")[0]
