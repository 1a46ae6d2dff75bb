"""Steps of published runs: Llama 3.1 405B as its paper lays it out, and two tables of one stack."""

from collections.abc import Sequence
from math import exp, log
from statistics import fmean
from typing import Any

import pytest

from service.calibration.steps import StepRow, shipped_held_out
from service.calibration.tables import shipped_rows
from service.catalogue import shipped_catalogue
from service.estimator import Estimate, estimate
from service.evaluation.scoring import evaluate_rows, step_rows_of
from service.validation.questions import read_question
from tests.published.cases import Case, cases

CHUNKS = [0] + [1] * 126 + [0]
"""Layers of 128 chunks on 16 stages, eight each: the first holds the embedding alone, the last the head."""


def llama_405b(case: Case) -> Estimate:
    """The answer about one of the layouts of table 4."""
    given = case.inputs
    layout: dict[str, Any] = {
        "tensor": 8,
        "pipeline": 16,
        "context": given["context"],
        "data": given["data"],
        "context_method": "all-gather",
        "virtual_pipeline": 8,
        "stage_layers": CHUNKS,
        "zero_stage": 3,
        "reshard_after_forward": False,
    }
    body = {
        "model": "llama-3.1-405b",
        "recipe": {
            "sequence_length": given["sequence_length"],
            "global_batch": given["global_batch"],
            "micro_batch": 1,
            "stack": {"name": "megatron-core", "tensor_overlap": False},
        },
        "layout": layout,
        "cluster": {"gpu": "h100-sxm5-80gb", "gpus": 16_384},
    }
    return estimate(read_question(body, shipped_catalogue()).question)


@pytest.mark.parametrize("case", cases("steps", "llama_405b"))
def test_llama_405b_runs_as_fast_as_published(case: Case) -> None:
    found = llama_405b(case)
    assert case.agrees(found.flop.per_token_flop * found.step.tokens_per_s_per_gpu.value / 1e12)


def deepseek_v3(case: Case) -> Estimate:
    """The answer about its training, as its report lays it out."""
    given = case.inputs
    stack = {"name": "megatron-core", "dispatcher": "flex", "routed_nodes": 4}
    body = {
        "model": "deepseek-v3",
        "recipe": {
            "sequence_length": given["sequence_length"],
            "global_batch": given["global_batch"],
            "precision": "fp8-deepseek",
            "moment_dtype": "bf16",
            "recompute": {"granularity": "selective", "modules": ["layernorm", "mla_up_proj", "moe_act"]},
            "stack": stack,
        },
        "layout": {"pipeline": 16, "expert": 64, "schedule": "dualpipe", "stage_layers": given["stage_layers"]},
        "cluster": {"gpu": "h800-sxm5-80gb", "gpus": 2048},
    }
    return estimate(read_question(body, shipped_catalogue()).question)


@pytest.mark.parametrize("case", cases("steps", "deepseek_v3"))
def test_deepseek_v3_runs_as_fast_as_published(case: Case) -> None:
    found = deepseek_v3(case).step.tokens_per_s_per_gpu
    assert case.agrees(found.value)
    assert found.low < case.expected < found.high


TABLES = {"megatron2021_t1": 0.034, "korthikanti2022_t5": 0.036}
"""Tables of Megatron-LM's papers by source: the mean error that one scalar for the stack may leave.
Source of the rows: arXiv:2104.04473, table 1; arXiv:2205.05198, table 5."""

MOST_WITHOUT_SCALAR = 0.06


@pytest.fixture(scope="module")
def tables() -> dict[str, list[StepRow]]:
    rows = [row for row in shipped_rows("throughput") if row.text("source_key") in TABLES]
    found = step_rows_of(evaluate_rows(rows, shipped_catalogue()))
    return {key: [row for row in found if row.source_key == key] for key in TABLES}


def mean_error(rows: Sequence[StepRow], *, scaled: bool) -> float:
    """Mean error of steps by constants that never saw their source, times one scalar that never saw the row."""
    predicted = shipped_held_out().predicted_seconds
    found = []
    for row in rows:
        others = [log(one.measured_seconds / predicted[one.id]) for one in rows if one.id != row.id]
        scalar = exp(fmean(others)) if scaled else 1.0
        found.append(abs(scalar * predicted[row.id] / row.measured_seconds - 1))
    return fmean(found)


@pytest.mark.parametrize(("source", "most"), TABLES.items())
def test_a_table_of_one_stack_is_met_with_one_scalar_and_without(
    tables: dict[str, list[StepRow]], source: str, most: float
) -> None:
    assert mean_error(tables[source], scaled=True) <= most
    assert mean_error(tables[source], scaled=False) <= MOST_WITHOUT_SCALAR
