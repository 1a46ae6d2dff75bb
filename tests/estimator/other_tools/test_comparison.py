"""Another tool's formula answers what it reads and refuses the rest by name; its difference from ours is explained."""

import re
import tomllib
from math import isfinite
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from service.errors import Problem, Refused
from service.estimator import Cluster, Layout, Question, Recipe, estimate
from service.estimator.other_tools.comparison import TOOLS, compare, unsupported
from service.estimator.other_tools.tool import Comparison
from service.estimator.question import ToolName
from service.estimator.resolve import resolve
from service.estimator.samples import H100, LLAMA_3_8B
from tests.ask import lines
from tests.estimator.legal_questions import questions
from tests.estimator.rules.test_refusals import asked
from tests.estimator.small_models import DENSE, FAMILIES

ROWS: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("refusals.toml").read_text(encoding="utf-8"))[
    "refusal"
]
REFUSALS = [
    pytest.param(name, row, id=f"{name}: {row['code']} {n}") for n, row in enumerate(ROWS) for name in row["tools"]
]
PLAIN = Recipe(sequence_length=4096)


def ask_of(model: Any, recipe: Recipe = PLAIN, layout: Layout | None = None, *, gpus: int = 1) -> Question:
    cluster = Cluster(gpu=H100.slug, gpus=gpus)
    return Question(model=model, recipe=recipe, layout=layout or Layout(), cluster=cluster, gpu=H100)


def compared(name: ToolName, question: Question) -> Comparison:
    """What a tool says of a question."""
    ours = estimate(question)
    return compare(name, ours.resolved, ours.memory)


def problem_of(name: ToolName, row: dict[str, Any]) -> Problem:
    """The only problem that a tool has with a row's question."""
    with pytest.raises(Refused) as refused:
        compared(name, asked(row, row["asked"]))
    (problem,) = refused.value.problems
    return problem


@pytest.mark.parametrize(("name", "row"), REFUSALS)
def test_question_says_this_alone_that_the_tool_does_not_read(name: ToolName, row: dict[str, Any]) -> None:
    problem = problem_of(name, row)
    assert (problem.code, problem.field) == (row["code"], row["field"])
    assert problem.message.startswith(TOOLS[name].tool)
    unsaid = [words for words in row["says"] if not re.search(rf"(?<![\w.]){re.escape(words)}", problem.message)]
    assert not unsaid, problem.message
    assert row["fix"] in problem.fix


@pytest.mark.parametrize(("name", "row"), REFUSALS)
def test_following_the_fix_is_answered(name: ToolName, row: dict[str, Any]) -> None:
    assert compared(name, asked(row, row["asked"], row["mended"])).peak_bytes > 0


def test_every_limit_of_every_tool_has_a_case() -> None:
    limits = {(name, limit.name, limit.field) for name, tool in TOOLS.items() for limit in tool.limits}
    assert len(limits) > 40
    assert {(name, row["code"], row["field"]) for row in ROWS for name in row["tools"]} == limits


def test_a_limit_says_the_same_of_every_tool_and_stands_once_with_each() -> None:
    for tool in TOOLS.values():
        names = [limit.name for limit in tool.limits]
        assert len(set(names)) == len(names)
        assert all(name.startswith("method_") for name in names)


@settings(max_examples=100)
@given(questions())
def test_any_question_is_refused_or_answered_with_finite_bytes(question: Question) -> None:
    resolved = resolve(question)
    for tool in TOOLS.values():
        problems = unsupported(tool, resolved)
        if not problems:
            found = tool.answer(resolved)
            numbers = [found.peak_bytes, *(term.bytes for term in found.terms), *(line.bytes for line in found.totals)]
            assert all(isfinite(number) and number >= 0 for number in numbers)


@pytest.mark.parametrize("name", TOOLS)
def test_every_tool_answers_a_plain_question(name: ToolName) -> None:
    found = compared(name, ask_of(LLAMA_3_8B))
    ours = estimate(ask_of(LLAMA_3_8B))
    assert found.ours_bytes == ours.memory.allocated_peak_bytes.value
    assert found.difference_fraction == pytest.approx(found.peak_bytes / found.ours_bytes - 1)
    assert found.main_reason.startswith("the largest difference is")
    assert found.known_defects
    assert all(sentence.endswith(".") and not sentence[0].islower() for sentence in found.known_defects)


@pytest.mark.parametrize("name", TOOLS)
def test_its_terms_stand_for_lines_of_ours_and_none_for_two(name: ToolName) -> None:
    found = TOOLS[name].answer(resolve(ask_of(LLAMA_3_8B)))
    kinds = [kind for term in found.terms for kind in term.kinds]
    assert len(set(kinds)) == len(kinds)
    held = lines(estimate(ask_of(LLAMA_3_8B)))
    assert {"weights", "gradients", "optimizer_states"} & held.keys() <= {*kinds}


def test_the_main_reason_names_the_term_with_the_bytes_of_both() -> None:
    held = lines(estimate(ask_of(LLAMA_3_8B)))
    found = compared("nanotron-predict-memory", ask_of(LLAMA_3_8B))
    kept = {line.name: line.bytes for line in found.lines}["Activations"]
    for amount in (kept, held["activations"] + held["logits"]):
        assert f"{amount / 2**30:.4g} GiB" in found.main_reason
    left_out = compared("zero3-estimator", ask_of(LLAMA_3_8B, Recipe(sequence_length=16384, recompute="selective")))
    assert "leaves out activations" in left_out.main_reason


def test_a_term_that_ours_does_not_have_is_told() -> None:
    short = Recipe(sequence_length=128, recompute="selective")
    found = compared("eleutherai-cookbook", ask_of(DENSE, short, Layout(zero_stage=1), gpus=4))
    assert found.main_reason == "the largest difference is in Communication Memory: 953.7 MiB by " + (
        "EleutherAI cookbook calc_transformer_mem, nothing by ours"
    )


def test_a_peak_of_one_term_is_not_their_sum() -> None:
    found = compared("accelerate", ask_of(DENSE))
    assert found.peak_bytes == max(line.bytes for line in found.lines)
    assert found.peak_bytes < sum(line.bytes for line in found.lines)


def test_offload_chooses_the_row_of_the_table() -> None:
    layout = Layout(zero_stage=3, offload="optimizer")
    found = compared("zero3-estimator", ask_of(DENSE, Recipe(sequence_length=4096, stack="deepspeed"), layout, gpus=8))
    rows = {row.name: row.gpu_bytes for row in found.variants}
    assert len(rows) == 6
    assert found.peak_bytes == rows["offload_param=none, offload_optimizer=cpu, zero_init=1"]


@pytest.mark.parametrize("family", FAMILIES)
def test_megatron_and_the_models_of_transformers_read_every_family_or_name_what_they_do_not(family: str) -> None:
    resolved = resolve(ask_of(FAMILIES[family]))
    assert not unsupported(TOOLS["accelerate"], resolved)
    assert not unsupported(TOOLS["zero3-estimator"], resolved)
    assert bool(unsupported(TOOLS["megatron-theoretical"], resolved)) is (family == "hybrid")
