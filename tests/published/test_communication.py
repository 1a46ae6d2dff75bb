"""Bytes that parallel training sends are those of the papers: ZeRO, Megatron-LM, context rings, experts, pipelines."""

from math import prod

import pytest

from service.estimator import Layout, Model, Recipe, estimate
from service.estimator.answer import Communication
from tests.ask import question
from tests.published.cases import Case, cases, model_fields

REPLICAS = 64
MICRO_BATCHES = 16


def sent(rows: tuple[Communication, ...], element_bytes: int) -> float:
    """Numbers that one rank sends in one step."""
    return sum(row.calls * row.sent_bytes for row in rows) / element_bytes


@pytest.mark.parametrize("case", cases("communication", "zero"))
def test_shards_of_zero_send_so_many_times_the_parameters(case: Case) -> None:
    recipe = Recipe(sequence_length=4096, precision="fp32", stack="deepspeed", global_batch=REPLICAS)
    layout = Layout(data=REPLICAS, zero_stage=case.inputs["zero_stage"])
    found = estimate(question(Model(**model_fields("llama-2-7b")), recipe, layout, gpus=REPLICAS))
    assert {row.axis for row in found.communication} == {"data"}
    once_around = found.parameters.total * (REPLICAS - 1) / REPLICAS
    assert case.agrees(sent(found.communication, 4) / once_around)


@pytest.mark.parametrize("case", cases("communication", "layer"))
def test_a_layer_sends_so_much_for_each_micro_batch(case: Case) -> None:
    given = case.inputs
    layout = given["layout"]
    degrees = [layout.get(name, 1) for name in ("data", "tensor", "context", "pipeline")]
    recipe = Recipe(
        sequence_length=given["s"],
        global_batch=MICRO_BATCHES * degrees[0],
        recompute=given.get("recompute", "none"),
        precision=given.get("precision", "bf16-mixed"),
        stack="megatron-core",
    )
    asked = question(Model(**model_fields(given["model"])), recipe, Layout(**layout), gpus=prod(degrees))
    rows = tuple(row for row in estimate(asked).communication if row.axis == given["axis"])
    times = given["layers"] * MICRO_BATCHES
    found = {str(row.collective): row.calls / times for row in rows}
    found["numbers"] = sent(rows, 2) / times
    assert found == pytest.approx(case.expected, rel=case.tolerance)
