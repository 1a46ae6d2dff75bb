"""Layouts that published runs took fit, and the line of memory that once said otherwise is that of their papers."""

from functools import cache
from typing import Any

import pytest

from service.catalogue import shipped_catalogue
from service.estimator import estimate_memory
from service.validation.questions import read_question
from tests.published.cases import Case, cases

GIGABYTE = 1e9


@cache
def catalogue() -> Any:
    return shipped_catalogue()


@pytest.mark.parametrize("case", cases("layouts", "fit"))
def test_a_published_layout_fits(case: Case) -> None:
    answer = estimate_memory(read_question(case.inputs["body"], catalogue()).question)
    memory, stage = answer.memory, answer.memory.stages[case.inputs["stage"]]
    assert answer.verdict in {"fits", "at_risk"}
    (held,) = (line.bytes for line in stage.lines if line.kind == case.inputs["line"])
    assert case.agrees(held / GIGABYTE)
    wrong_bytes = case.inputs["wrong"]["gigabytes"] * GIGABYTE - held
    assert memory.device_peak_bytes.value + wrong_bytes > memory.usable_bytes
    assert any("no published software trains so" in words for words in answer.assumptions)
