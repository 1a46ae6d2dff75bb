"""Other tools' formulas give what was published of them, and what the tools said when they were run."""

from dataclasses import replace
from typing import Any

import pytest

from service.estimator import Layout, Model, Recipe
from service.estimator.other_tools.comparison import TOOLS
from service.estimator.other_tools.tool import ToolAnswer
from service.estimator.question import ToolName
from service.estimator.resolve import resolve
from tests.ask import question
from tests.published.cases import Case, cases, model_fields, tables

GIB = 2**30


def said(name: ToolName, model: Model, recipe: dict[str, Any], layout: dict[str, Any], gpus: int) -> ToolAnswer:
    """What a tool says of a question that it can express."""
    resolved = resolve(question(model, Recipe(**recipe), Layout(**layout), gpus=gpus))
    assert not [limit.name for limit in TOOLS[name].limits if not limit.holds(resolved)]
    return TOOLS[name].answer(resolved)


def numbers(found: ToolAnswer) -> dict[str, float]:
    """Every number of a tool by its name."""
    by_name = {term.name: term.bytes for term in found.terms} | {line.name: line.bytes for line in found.totals}
    for row in found.variants:
        by_name |= {f"{row.name}, GPU": row.gpu_bytes, f"{row.name}, CPU": row.cpu_bytes}
    return by_name | {"peak": found.peak_bytes}


@pytest.mark.parametrize("case", cases("methods", "predicted"))
def test_predict_memory_as_it_was_published(case: Case) -> None:
    given = case.inputs
    recipe = {"sequence_length": given["sequence_length"]}
    found = numbers(said("nanotron-predict-memory", Model(**model_fields(given["model"])), recipe, {}, 1))
    shown = {name: found[name] / given["unit_bytes"] for name in case.expected}
    if not case.tolerance:
        shown = {name: round(number) for name, number in shown.items()}
    assert shown == pytest.approx(case.expected, rel=case.tolerance)


@pytest.mark.parametrize("case", cases("methods", "peaks"))
def test_predict_memory_of_measured_configurations(case: Case) -> None:
    model = replace(Model(**model_fields(case.inputs["model"])), num_hidden_layers=case.inputs["layers"])
    layout = {"zero_stage": 1, **case.inputs["layout"]}
    recipe = {"sequence_length": 4096, "global_batch": 4 * layout["data"]}
    found = said("nanotron-predict-memory", model, recipe, layout, 8)
    assert case.agrees(found.peak_bytes / GIB)
    assert found.totals[-1].bytes == pytest.approx(found.peak_bytes, rel=1e-12)


@pytest.mark.parametrize("case", cases("methods", "tools"))
def test_as_the_tool_says_when_it_is_run(case: Case) -> None:
    given = case.inputs
    model = Model(**model_fields(given["model"]))
    found = numbers(said(given["method"], model, given["recipe"], given["layout"], given["gpus"]))
    assert found == pytest.approx(case.expected, rel=case.tolerance)


def test_every_tool_has_a_case() -> None:
    run = {case.inputs["method"] for case in tables("methods")["tools"]}
    assert run | {"nanotron-predict-memory"} == TOOLS.keys()
