"""The fourteen questions of the tuning guide take one call each, and the guide shows their answers.

The questions are those that the memory tracker of PyTorch's fully sharded data parallelism was asked (pull request
125323): each is a heading of the page, with one command and one answer below it.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.guide_pages import blocks_of, by_request, differences, walk
from tests.house.source import SERVICE
from tests.live import DOCUMENTED, serving

PAGE = SERVICE / "web" / "guide" / "tuning.html"
BLOCKS = blocks_of(PAGE)
QUESTIONS = (
    "expected peak", "wrapping", "largest micro-batch", "longest sequence", "data-parallel group",
    "optimizer on the host", "activations should be computed again", "selective policies", "unit by unit",
    "reduction in fp32", "mixed-precision policy", "HSDP", "resharding to a smaller group",
    "no resharding after the forward pass",
)  # fmt: skip


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[tuple[str, Any]]]:
    """What each block of the page says is answered, and what is."""
    folder = tmp_path_factory.mktemp("tuning")
    with serving(folder) as address:
        yield walk(BLOCKS, by_request(address, folder), address, folder)


def test_every_answer_is_the_one_that_the_page_shows(told: list[tuple[str, Any]]) -> None:
    assert len(told) == len(QUESTIONS)
    for text, answered in told:
        assert differences(json.loads(text), answered) == []


def test_each_question_is_one_call() -> None:
    sections = re.split(r"<h2>(\d+)\. ", PAGE.read_text(encoding="utf-8"))[1:]
    numbers, texts = sections[::2], sections[1::2]
    assert numbers == [str(place) for place in range(1, len(QUESTIONS) + 1)]
    for question, text in zip(QUESTIONS, texts, strict=True):
        heading, _, rest = text.partition("</h2>")
        assert question in heading
        assert rest.count('class="command"') == rest.count('class="answer"') == 1
        assert rest.count(DOCUMENTED) == 1


def test_no_row_of_the_page_is_refused(told: list[tuple[str, Any]]) -> None:
    rows = [row for _, answered in told for row in answered.get("rows", ())]
    assert len(rows) > 30
    assert {row["status"] for row in rows} == {200}


def test_every_choice_changes_something(told: list[tuple[str, Any]]) -> None:
    for _, answered in told:
        first, *rows = answered.get("rows", ({},))
        for row in (row for row in rows if row["values"] != first["values"]):
            ratios = [ratio for ratio in row["ratios"].values() if ratio is not None]
            assert any(abs(ratio - 1) > 1e-3 for ratio in ratios), row["values"]
