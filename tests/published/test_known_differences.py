"""Where documents disagree, the estimate stands where the data says, and it warns where a document advises against."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from service.estimator import Estimate, Model, Recipe
from tests.ask import STATES, ask, bytes_of, model_of
from tests.published.cases import Case, cases, model_fields
from tests.published.test_memory import EAGER, GPT_3, SELECTIVE

BILLION = model_of(10**9, hidden=2000, layers=12, width=8000)
LLAMA = Model(**model_fields("llama-3-8b"))
PLAIN = Recipe(sequence_length=2048, vocabulary_multiple=1)


def billion(*kinds: str, **changes: object) -> float:
    """Bytes of one parameter of a model of 10^9 parameters."""
    return bytes_of(ask(BILLION, replace(PLAIN, **changes)), *kinds) / 1e9  # type: ignore[arg-type]  # by name


def llama(**changes: object) -> Estimate:
    """The answer for Llama 3.1 8B on one GPU."""
    return ask(LLAMA, replace(Recipe(sequence_length=8192), **changes))  # type: ignore[arg-type]  # by name


def ratio(kinds: tuple[str, ...], changed: Estimate, plain: Estimate) -> float:
    """Bytes of some kinds in one answer over those in another."""
    return bytes_of(changed, *kinds) / bytes_of(plain, *kinds)


def share_kept_by_full_recompute() -> float:
    """Activations of GPT-3 that full recompute keeps, over all, eager attention with dropout; the ends left out."""
    kept = GPT_3.num_hidden_layers * 2 * EAGER.sequence_length * GPT_3.hidden_size
    ends = bytes_of(ask(GPT_3, replace(EAGER, recompute="full")), "activations") - kept
    return kept / (bytes_of(ask(GPT_3, EAGER), "activations") - ends)


def global_batch_of_eight_replicas() -> float:
    """Global batch over mbs x grad_acc, where both are 1."""
    return float(ask(LLAMA, PLAIN, gpus=8).resolved.recipe.global_batch or 0)


def beside_tensors() -> float:
    """Device peak over reserved peak, one GPU."""
    memory = llama().memory
    return memory.device_peak_bytes.value - memory.reserved_peak_bytes.value


def advised_tokens() -> float:
    """The compute-optimal tokens that the warning for DeepSeek-V3 names."""
    few = Recipe(sequence_length=4096, global_batch=15360, training_tokens=300e9)
    warnings = ask(Model(**model_fields("deepseek-v3")), few).warnings
    found = re.search(r"compute-optimal ([\d.e+]+) tokens", " ".join(warnings))
    return float(found.group(1)) if found else 0.0


MEASURES: dict[str, Callable[[], float]] = {
    "static bytes, half gradients": lambda: billion(*STATES, gradient_dtype="bf16"),
    "gradient bytes": lambda: billion("gradients"),
    "moments over weights": lambda: billion("optimizer_states") / billion("weights"),
    "8-bit bytes with scales": lambda: billion(
        "master_weights", "optimizer_states", "optimizer_scales", optimizer="adamw-8bit"
    ),
    "selective cost, full": lambda: ask(GPT_3, SELECTIVE).flop.recompute_full_fraction,
    "selective cost, causal": lambda: ask(GPT_3, SELECTIVE).flop.recompute_fraction,
    "share kept by full recompute": share_kept_by_full_recompute,
    "FLOP of eight micro-batches over one batch": lambda: (
        llama(micro_batch=1, global_batch=8).flop.per_step_flop / llama(micro_batch=8).flop.per_step_flop
    ),
    "global batch over mbs x grad_acc": global_batch_of_eight_replicas,
    "activations of a doubled sequence, flash": lambda: ratio(("activations",), llama(sequence_length=16384), llama()),
    "bytes beside tensors, one GPU": beside_tensors,
    "states with much over states with little activation": lambda: ratio(STATES, llama(micro_batch=64), llama()),
    "gradients without over with accumulation": lambda: ratio(("gradients",), llama(), llama(global_batch=8)),
    "optimizer bytes at the peak": lambda: billion("optimizer_states"),
    "tokens advised for DeepSeek-V3": advised_tokens,
    "FLOP over 6 P D": lambda: llama().flop.per_token_flop / llama().flop.conventions.six_n,
    "tokens of 15,360 sequences": lambda: float(
        llama(sequence_length=4096, global_batch=15360).resolved.recipe.global_batch_tokens or 0
    ),
}


@pytest.mark.parametrize("case", cases("known_differences", "differences"))
def test_estimate_stands_where_the_data_says(case: Case) -> None:
    measured = MEASURES[case.inputs["measure"]]()
    assert case.agrees(measured)
    assert case.contradicted(measured), "nobody disagrees any more: remove the difference"


def test_every_measure_is_a_difference() -> None:
    named = {parameter.values[0].inputs["measure"] for parameter in cases("known_differences", "differences")}
    assert named == MEASURES.keys()


ABOUT_TOKENS = ("200 billion", "compute-optimal")


@pytest.mark.parametrize("case", cases("advice", "batch_warnings"))
def test_batch_outside_the_sweet_spot(case: Case) -> None:
    recipe = Recipe(sequence_length=4096, training_tokens=15e12, **case.inputs)
    warnings = ask(Model(**model_fields("llama-3-8b")), recipe).warnings
    assert any("4 to 60 million" in warning for warning in warnings) is case.expected


@pytest.mark.parametrize("case", cases("advice", "token_warnings"))
def test_too_few_training_tokens(case: Case) -> None:
    recipe = Recipe(sequence_length=4096, global_batch=1024, training_tokens=case.inputs["training_tokens"])
    warnings = ask(Model(**model_fields(case.inputs["model"])), recipe).warnings
    assert [words for words in ABOUT_TOKENS if any(words in warning for warning in warnings)] == case.expected
