"""Our FLOP without a mask are those that torch's own counter sees, forward and backward, to the last one."""

import json

import pytest

from service.catalogue import shipped_catalogue
from tests.estimator.flop_counter import BESIDE, COUNTS, Counted, expected, model_of, recorded

CASES = recorded()
NAMED = [pytest.param(case, id=f"{case.preset}-{index}") for index, case in enumerate(CASES)]


@pytest.mark.parametrize("case", NAMED)
def test_forward_and_backward_are_what_torch_counts(case: Counted) -> None:
    assert expected(case) == (case.forward, case.backward)


NOT_COUNTED = {
    "grok-1": "transformers has no class for it",
    "minimax-text-01": "its class computes linear attention as products over blocks of 256 tokens",
    "dbrx-132b": "its class does not run on the meta device",
}
"""Presets that torch's counter did not see, and why."""


def test_every_preset_was_counted_whole_or_has_a_reason() -> None:
    counted = {case.preset for case in CASES if case.method == {"name": "full"}}
    assert set(shipped_catalogue().models) - counted == set(NOT_COUNTED)


def test_every_kind_of_model_was_counted() -> None:
    models = {case.preset: model_of(case) for case in CASES if case.method == {"name": "full"} and not case.beside}
    sparse = [name for name, model in models.items() if model.num_experts]
    latent = [name for name, model in models.items() if model.kv_lora_rank]
    assert len(models) > 130
    assert len(sparse) > 10
    assert len(latent) > 3
    assert len([case for case in CASES if case.method["name"] == "lora"]) > 10
    assert len([case for case in CASES if "frozen" in case.method or "frozen_layers" in case.method]) > 5


def test_what_torch_counts_beside_a_model_is_named_with_its_formula() -> None:
    said = json.loads(COUNTS.read_text(encoding="utf-8"))["beside"]
    assert said == {name: extra.formula for name, extra in BESIDE.items()}
    assert said.keys() == {name for case in CASES for name in case.beside}
