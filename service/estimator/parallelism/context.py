"""Context parallelism: a sequence split over c ranks, and the exchange for attention."""

from service.estimator.degrees import Degrees, Spacing, Transfer, evaluated_once
from service.estimator.model.build import MIXERS
from service.estimator.numeric import Amount, divides, implies, minimum, where
from service.estimator.question import ContextMethod
from service.estimator.rule import LayoutRule, Rule, divisors_of
from service.estimator.workload import Workload

RULES: dict[str, LayoutRule] = {
    "context_needs_attention_alone": Rule(
        lambda w, d: implies(any(MIXERS[shape.mixer].carries_state for shape in w.ledger.shapes), d.context == 1)
    ),
}
"""Rules of every context_method."""

BLOCK_RULES: dict[str, LayoutRule] = {
    "context_divides_sequence": Rule(
        lambda w, d: divides(where(d.context > 1, 2 * d.context, 1), w.recipe.sequence_length),
        lambda _, d: {"chunks": 2 * d.context},
    ),
}
"""Rules of context_method ring and all-gather."""

HEAD_RULES: dict[str, LayoutRule] = {
    "ulysses_divides_heads": Rule(
        lambda w, d: divides(d.context * d.tensor, w.model.num_attention_heads),
        lambda w, _: {"divisors": divisors_of(w.model.num_attention_heads)},
    ),
    "ulysses_divides_sequence": Rule(lambda w, d: divides(d.context, w.recipe.sequence_length)),
}


@evaluated_once
def key_value_bytes(workload: Workload, degrees: Degrees) -> Amount:
    """Bytes of one layer's keys and values of one micro-batch, of all context ranks, on one tensor rank.

    Formula: b s g (d_qk + d_v) / min(t, g) elements
    Returns: bytes of one layer and micro-batch [byte]
    Source: definition

    >>> from service.estimator.samples import sample_degrees, sample_workload
    >>> key_value_bytes(sample_workload(), sample_degrees())
    33554432.0
    """
    heads, width = _key_heads(workload), workload.model.query_width + workload.model.value_width
    tokens = workload.recipe.sequence_length * degrees.micro_batch * workload.precision.element_bytes
    return tokens * heads * width / minimum(degrees.tensor, heads)


def exchanged_bytes(workload: Workload, degrees: Degrees, method: ContextMethod) -> Amount:
    """Bytes of other ranks' keys and values in the memory of one context rank during a layer's attention.

    Formula: all-gather: (c - 1) / c of keys and values; ring: two blocks of 1 / c; ulysses: none beside its own
    Args:
        method: how keys and values are exchanged
    Returns: bytes of one rank [byte]
    Source: Liu et al. 2023, arXiv:2310.01889, section 3 (double buffer); Llama 3, arXiv:2407.21783, section 3.3.2

    >>> from service.estimator.samples import sample_degrees, sample_workload
    >>> exchanged_bytes(sample_workload(), sample_degrees(context=4), "ring")
    16777216.0
    """
    block = key_value_bytes(workload, degrees) / degrees.context
    blocks = {"ring": minimum(2, degrees.context - 1), "all-gather": degrees.context - 1, "ulysses": 0}
    return blocks[method] * block


def _key_heads(workload: Workload) -> int:
    """Heads that have keys and values of their own; all heads in latent attention, after the up-projection."""
    model = workload.model
    return model.key_value_heads if model.kv_lora_rank is None else model.num_attention_heads


@evaluated_once
def layer_transfers(
    workload: Workload, degrees: Degrees, method: ContextMethod, forwards: Amount, backwards: Amount
) -> tuple[Transfer, ...]:
    """Transfers of one context rank for one layer and micro-batch, forward and backward.

    Formula:
        ring, all-gather: keys and values f times forward; again, and their gradients, r times backward
        ulysses: queries, keys, values and output by all-to-all, f times forward and r times backward
    Args:
        method: how keys and values are exchanged
        forwards: forward passes of the mean layer's attention, f [1]
        backwards: backward passes of the mean layer, r [1]
    Returns: the transfers
    Source:
        Liu et al. 2023, arXiv:2310.01889 (ring); Llama 3, arXiv:2407.21783, section 3.3.2 (all-gather);
        Jacobs et al. 2023, arXiv:2309.14509 (Ulysses)
    """
    group, spacing = degrees.context, Spacing(degrees.tensor)
    if method == "ulysses":
        tokens = workload.recipe.sequence_length * degrees.micro_batch * workload.precision.element_bytes
        width = workload.model.query_width + workload.model.value_width
        numbers = (workload.model.num_attention_heads + _key_heads(workload)) * width
        exchanged = tokens * numbers / degrees.tensor / degrees.context
        return (Transfer("all_to_all", exchanged, forwards + backwards, group, spacing),)
    exchanged = key_value_bytes(workload, degrees)
    return (
        Transfer("all_gather", exchanged, forwards + backwards, group, spacing, "keys_and_values"),
        Transfer("reduce_scatter", exchanged, backwards, group, spacing, "keys_and_values"),
    )
