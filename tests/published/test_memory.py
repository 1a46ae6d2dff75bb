"""Memory adds up from the documents' parts, and fits where they say it fits."""

import pytest

from service.estimator import Layout, Model, Recipe
from tests.ask import ask, lines, model_of
from tests.published.cases import Case, cases, model_fields


@pytest.mark.parametrize("case", cases("memory", "verdicts"))
def test_verdict_on_80_gb(case: Case) -> None:
    model = model_of(
        case.inputs["parameters"],
        hidden=case.inputs["hidden"],
        layers=case.inputs["layers"],
        width=case.inputs["width"],
    )
    recipe = Recipe(sequence_length=2048, precision=case.inputs["precision"])
    answer = ask(model, recipe, Layout(zero_stage=case.inputs.get("zero_stage")), gpus=case.inputs["gpus"])
    assert answer.verdict == case.expected
    assert (answer.memory.headroom_bytes > 0) is (case.expected == "fits")


@pytest.mark.parametrize("case", cases("memory", "sums"))
def test_peak_is_the_sum_of_its_parts(case: Case) -> None:
    answer = ask(Model(**model_fields("llama-3-8b")), Recipe(sequence_length=4096, **case.inputs))
    held = lines(answer)
    assert set(held) == set(case.expected)
    assert sum(held.values()) == answer.memory.allocated_peak_bytes.value


@pytest.mark.parametrize("case", cases("memory", "beside_tensors"))
def test_bytes_beside_tensors(case: Case) -> None:
    memory = ask(Model(**model_fields("llama-3-8b")), Recipe(sequence_length=4096), gpus=case.inputs["gpus"]).memory
    assert case.agrees(memory.device_peak_bytes.value - memory.reserved_peak_bytes.value)
