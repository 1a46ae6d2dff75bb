"""Documents that share a sequence, and documents that have a padded one of their own."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from service.estimator import Estimate, Layout, Model, Recipe
from service.estimator.model.operations import visible_pairs_twice
from service.estimator.question import DocumentLength
from service.estimator.samples import LLAMA_3_8B
from tests.ask import ask, bytes_of, lines
from tests.estimator.small_models import LATENT, WINDOWED

TOKENS = 4096
HISTOGRAM = ((200, 70), (1500, 20), (4096, 5), (10000, 2))
PIECES = ((200, 70), (1500, 20), (4096, 5 + 2 * 2), (10000 - 2 * 4096, 2))
TOTAL = sum(tokens * count for tokens, count in HISTOGRAM)
LENGTHS = tuple(DocumentLength(tokens=tokens, count=count) for tokens, count in HISTOGRAM)
PLAIN = Recipe(sequence_length=TOKENS, global_batch=8, training_tokens=1e11)
PACKED = replace(PLAIN, document_lengths=LENGTHS)
PADDED = replace(PACKED, batching="padded")


def core_flop(answer: Estimate, model: Model, recipe: Recipe) -> Fraction:
    """Forward FLOP of core attention in one sequence: what it takes beyond documents of one token."""
    flop, batch = answer.flop, recipe.global_batch or 0
    alone = ask(model, replace(recipe, document_lengths=(DocumentLength(tokens=1, count=1),), batching="packed"))
    diagonals = heads_width(model) * model.num_hidden_layers * TOKENS
    return Fraction(flop.forward_per_step_flop - alone.flop.forward_per_step_flop, batch) + diagonals


def heads_width(model: Model) -> int:
    """Numbers that one query multiplies with one key and its value."""
    return model.num_attention_heads * (model.query_width + model.value_width)


def test_squares_of_documents_stand_for_the_square_of_the_sequence() -> None:
    squares = sum(tokens**2 * count for tokens, count in PIECES)
    pairs = Fraction(TOKENS * squares, TOTAL)
    measured = core_flop(ask(LLAMA_3_8B, PACKED), LLAMA_3_8B, PACKED)
    assert measured == LLAMA_3_8B.num_hidden_layers * heads_width(LLAMA_3_8B) * round(pairs)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [("sliding_attention", {"sliding_window": 512}), ("chunked_attention", {"attention_chunk_size": 1000})],
)
def test_windows_and_chunks_are_those_of_each_document(kind: Any, changes: dict[str, Any]) -> None:
    model = replace(LLAMA_3_8B, layer_types=(kind,), **changes)
    window, chunk = changes.get("sliding_window"), changes.get("attention_chunk_size")
    pairs = sum(count * visible_pairs_twice(tokens, kind, window, chunk) for tokens, count in PIECES)
    expected = model.num_hidden_layers * heads_width(model) * round(Fraction(TOKENS * pairs, TOTAL))
    assert core_flop(ask(model, PACKED), model, PACKED) == expected


@pytest.mark.parametrize("model", [LATENT, WINDOWED], ids=["latent", "windowed"])
def test_a_histogram_of_whole_sequences_changes_nothing(model: Model) -> None:
    whole = (DocumentLength(tokens=TOKENS, count=7), DocumentLength(tokens=3 * TOKENS, count=1))
    plain = ask(model, PLAIN)
    for batching in ("packed", "padded"):
        answer = ask(model, replace(PLAIN, document_lengths=whole, batching=batching))
        assert (answer.flop, answer.step, answer.totals) == (plain.flop, plain.step, plain.totals)


def test_packing_trains_every_token_and_spares_attention() -> None:
    plain, packed = ask(LLAMA_3_8B, PLAIN), ask(LLAMA_3_8B, PACKED)
    assert packed.flop.per_step_tokens == plain.flop.per_step_tokens == 8 * TOKENS
    assert packed.flop.per_token_flop < plain.flop.per_token_flop
    assert packed.flop.conventions.full == plain.flop.conventions.full
    assert (packed.flop.padding_per_step_flop, packed.flop.padding_fraction) == (0, 0)
    assert packed.step.step_seconds.value < plain.step.step_seconds.value
    assert lines(packed) == lines(plain)
    assert packed.totals is not None
    assert plain.totals is not None
    assert packed.totals.steps == plain.totals.steps


def test_padding_is_computed_and_not_trained() -> None:
    plain, padded = ask(LLAMA_3_8B, PLAIN), ask(LLAMA_3_8B, PADDED)
    pieces = sum(count for _, count in PIECES)
    share = TOTAL / pieces / TOKENS
    assert padded.flop.per_step_flop == plain.flop.per_step_flop
    assert padded.step.step_seconds == plain.step.step_seconds
    assert padded.flop.padding_fraction == pytest.approx(1 - share)
    assert padded.flop.per_step_tokens == pytest.approx(8 * TOKENS * share)
    assert padded.flop.per_token_flop == pytest.approx(plain.flop.per_token_flop / share)
    assert padded.flop.conventions.full == pytest.approx(plain.flop.conventions.full / share)
    ratio = padded.step.tokens_per_s_per_gpu.value / plain.step.tokens_per_s_per_gpu.value
    assert ratio == pytest.approx(share)
    assert padded.totals is not None
    assert plain.totals is not None
    assert padded.totals.steps == pytest.approx(plain.totals.steps / share, rel=1e-6)
    assert any("padding" in words for words in padded.warnings)


def test_kernels_for_variable_lengths_compute_what_packing_computes() -> None:
    """The FLOP of a trained token without padding are those of packed documents."""
    padded, packed = ask(LLAMA_3_8B, PADDED).flop, ask(LLAMA_3_8B, PACKED).flop
    left = (padded.per_step_flop - padded.padding_per_step_flop) / padded.per_step_tokens
    assert left == pytest.approx(packed.per_token_flop, rel=1e-6)


def test_eager_attention_keeps_its_whole_square() -> None:
    plain, packed = (ask(LLAMA_3_8B, replace(recipe, attention="eager")) for recipe in (PLAIN, PACKED))
    assert bytes_of(packed, "activations") == bytes_of(plain, "activations")


def test_context_ranks_are_said_to_share_documents_evenly() -> None:
    said = ask(LLAMA_3_8B, PACKED, Layout(context=2), gpus=2).assumptions
    assert any("context" in words and "evenly" in words for words in said)
