"""Which conventions count multi-token-prediction depths, documents and frozen parts, and which know nothing of them?"""

from dataclasses import replace

from service.estimator import Recipe
from service.estimator.question import DocumentLength, Method
from service.estimator.samples import LLAMA_3_8B
from tests.ask import ask
from tests.estimator.small_models import LATENT

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
