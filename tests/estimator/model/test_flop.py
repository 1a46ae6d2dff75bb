"""Our FLOP without a mask are those that torch's own counter sees, forward and backward, to the last one."""

import json
from dataclasses import replace

import pytest

from service.catalogue import shipped_catalogue
from service.estimator import Recipe
from service.estimator.question import DocumentLength, Method
from service.estimator.samples import LLAMA_3_8B
from tests.ask import ask
from tests.estimator.flop_counter import BESIDE, COUNTS, Counted, expected, model_of, recorded
from tests.estimator.small_models import LATENT

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


TOKENS = 4096
PLAIN = Recipe(sequence_length=TOKENS)


def test_a_depth_is_a_layer_a_projection_and_a_head_in_every_count_of_products() -> None:
    """Masks halve core attention and nothing else; a depth's layer is one more layer of the last kind."""
    with_depth, without = (
        ask(replace(LATENT, num_nextn_predict_layers=depths), PLAIN).flop.conventions for depths in (1, 0)
    )
    longer = ask(replace(LATENT, num_hidden_layers=9, num_nextn_predict_layers=0), PLAIN).flop.conventions
    own = 3 * (4 * LATENT.hidden_size**2 + 2 * LATENT.hidden_size * LATENT.vocab_size)
    assert with_depth.causal - without.causal == longer.causal - without.causal + own
    assert with_depth.full - without.full == longer.full - without.full + own
    assert (with_depth.palm, with_depth.six_n) == (without.palm, without.six_n)


def test_the_rules_of_thumb_know_whole_models_and_full_sequences_only() -> None:
    whole = ask(LLAMA_3_8B, PLAIN).flop.conventions
    for changed in (
        replace(PLAIN, method="lora"),
        replace(PLAIN, method=Method(name="full", frozen_layers=8)),
        replace(PLAIN, document_lengths=(DocumentLength(tokens=100, count=1),)),
        replace(PLAIN, document_lengths=(DocumentLength(tokens=100, count=1),), batching="padded"),
    ):
        said = ask(LLAMA_3_8B, changed).flop.conventions
        assert (said.palm, said.six_n) == (whole.palm, whole.six_n)
        assert said.causal != whole.causal
