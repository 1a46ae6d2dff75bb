"""Parameter counts of a model: total, used by one token, outside the embeddings."""

from dataclasses import dataclass
from typing import Any, ClassVar

from service.estimator.answer import ActiveParameters
from service.estimator.model.build import build_ledger
from service.estimator.model.ledger import Ledger, Ops, Setting, Split, Weight
from service.estimator.question import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterCounts:
    """Parameter counts of one model, undivided."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"use_attribute_docstrings": True}

    total: int
    """Every number of the model once."""
    trained: int
    """Numbers that are trained, those of adapters and depths counted."""
    adapters: int
    """Numbers of adapters."""
    active: ActiveParameters
    """What one token uses, by the vendors' definitions."""
    non_embedding: int
    """Without token embedding, positions and an untied head."""
    input_embedding: int
    """Token embedding."""
    position_embedding: int
    """Learned position table."""
    lm_head: int
    """Head matrix; 0 where tied."""
    routed_experts: int
    """All routed experts."""
    shared_experts: int
    """All shared experts."""
    multi_token_prediction: int
    """Own weights of the multi-token-prediction depths."""


def parameter_counts(model: Model, ledger: Ledger) -> ParameterCounts:
    """Parameters of a model, exact, from its ledger.

    Formula:
        total: sum of rows x columns x copies over every weight once; trained: over those that are not frozen; adapters:
        r (n_in + n_out) for each adapted matrix; active: total - routed (1 - k / (E + Z));
        non-embedding: total - token table - positions - untied head

    Args:
        ledger: its ledger under any setting

    Returns:
        the counts [1]

    Source:
        definition; equal to the count of unique parameters of the transformers classes
    """
    layers = list(zip(ledger.kind_counts(), ledger.kinds, strict=True))
    groups = [(1, ledger.embedding), *layers, (1, ledger.head)]
    every = [(times, op.name, weight) for times, ops in groups for op in ops for weight in op.weights]
    pairs = [result for result in every if result[2].role != "adapter"]
    whole = [(times, weight) for times, ops in ledger.groups() for op in ops for weight in op.weights]

    total = sum(times * weight.parameters for times, _, weight in pairs if not weight.tied)
    routed = sum(times * weight.parameters for times, _, weight in pairs if weight.split is Split.EXPERT)
    shared = sum(
        times * weight.parameters
        for times, name, weight in pairs
        if name.startswith("shared.") and name != "shared.gate"
    )
    token_table = model.vocab_size * model.embedding_width
    positions = model.position_embedding_rows * model.hidden_size
    head = 0 if model.tie_word_embeddings else token_table
    over, under = model.visits
    active = total - routed + (routed // model.num_experts * over // under if model.num_experts else 0)
    outside = token_table + positions + head
    return ParameterCounts(
        total=total,
        trained=sum(times * weight.parameters for times, weight in whole if weight.trained and not weight.tied),
        adapters=sum(times * weight.parameters for times, _, weight in every if weight.role == "adapter"),
        active=ActiveParameters(
            total=active, without_input_embedding=active - token_table, non_embedding=active - outside
        ),
        non_embedding=total - outside,
        input_embedding=token_table,
        position_embedding=positions,
        lm_head=head,
        routed_experts=routed,
        shared_experts=shared,
        multi_token_prediction=ledger.depths * _own_parameters(ledger.depth + ledger.kinds[ledger.depth_kind]),
    )


def count_parameters(model: Model) -> ParameterCounts:
    """Parameters of a model, exact, from its fields alone."""
    return parameter_counts(model, build_ledger(model, Setting(tokens=1, element_bytes=2)))


def _own_parameters(ops: Ops) -> int:
    weights: list[Weight] = [weight for op in ops for weight in op.weights]
    return sum(weight.parameters for weight in weights)
