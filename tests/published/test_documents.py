"""Every figure of the five introductory documents is a test, and every case names its document and its reason."""

import pytest

from tests.cases import each_case
from tests.published.cases import Case, documents, files, tables

INTRODUCTIONS = {key: entry for key, entry in documents().items() if entry["kind"] == "introduction"}
FIGURES = [
    pytest.param(key, figure, id=f"{key}: {figure['says']}")
    for key, entry in INTRODUCTIONS.items()
    for figure in entry["figure"]
]
EVERY_CASE = [
    pytest.param(case, id=f"{file}.{table}: {case.case}")
    for file in files()
    for table, rows in tables(file).items()
    for case in rows
]


def test_there_are_five_introductory_documents() -> None:
    assert len(INTRODUCTIONS) == 5


@each_case(("key", "figure"), FIGURES)
def test_every_figure_is_tested_or_says_why_not(key: str, figure: dict[str, list[str]]) -> None:
    assert ("tests" in figure) != ("beside" in figure)
    for name in figure.get("tests", []):
        file, table = name.split(".")
        assert any(key in case.source for case in tables(file)[table]), f"no case of {name} cites {key}"


@each_case("key", INTRODUCTIONS)
def test_every_table_that_cites_a_document_is_among_its_figures(key: str) -> None:
    named = {name for figure in INTRODUCTIONS[key]["figure"] for name in figure.get("tests", [])}
    citing = {
        f"{file}.{table}"
        for file in files()
        for table, rows in tables(file).items()
        if any(key in case.source for case in rows)
    }
    assert citing <= named


MOST_TOLERANCE = 0.15
"""Widest tolerance of a figure: the speed of DeepSeek-V3's training, whose software is not published; that of a run on
16,384 GPUs is met within 10 %, all others within 5 %."""


@each_case("case", EVERY_CASE)
def test_every_case_names_known_documents_and_its_reason(case: Case) -> None:
    assert case.source
    assert set(case.source) <= documents().keys()
    assert case.why
    assert 0 <= case.tolerance <= MOST_TOLERANCE


def test_every_document_says_what_it_is() -> None:
    for key, entry in documents().items():
        assert entry["title"], key
        assert entry["author"], key


def test_cases_have_names_of_their_own() -> None:
    for file in files():
        for table, rows in tables(file).items():
            names = [case.case for case in rows]
            assert len(set(names)) == len(names), f"{file}.{table}"


def test_every_cited_paper_is_cited() -> None:
    cited = {source for file in files() for rows in tables(file).values() for case in rows for source in case.source}
    assert documents().keys() == cited
